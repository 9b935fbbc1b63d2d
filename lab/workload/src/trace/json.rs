//! Lines of JSON, one object each, as nginx, Caddy and others write them.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    Reason, Record,
    columns::{Columns, Draft, Value, push_normalised},
};

/// Depth of nested objects that are read.
const MAX_DEPTH: u8 = 4;

/// Reads a line. A key within a key is named by its path: `uri` in `request` is `request.uri`.
pub fn parse<'a>(line: &'a [u8], columns: &Columns) -> Result<Record<'a>, Reason> {
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is no JSON object");
    }
    let mut state = State { columns, path: String::new(), draft: Draft::default(), wrong: None };
    let mut json = serde_json::Deserializer::from_slice(line);
    let read = Walk { state: &mut state, depth: 0 }.deserialize(&mut json).and_then(|()| json.end());
    match (state.wrong, read) {
        (Some(reason), _) => Err(reason),
        (None, Err(_)) => Err("it is not well-formed JSON"),
        (None, Ok(())) => state.draft.finish(),
    }
}

struct State<'de, 'c> {
    columns: &'c Columns,
    /// The path to the present value, normalised.
    path: String,
    draft: Draft<'de>,
    wrong: Option<Reason>,
}

/// Walks through a value and sets the fields of the draft, without building the value in memory.
struct Walk<'s, 'de, 'c> {
    state: &'s mut State<'de, 'c>,
    depth: u8,
}

impl<'de> Walk<'_, 'de, '_> {
    fn value<E: Error>(self, value: Value<'de>) -> Result<(), E> {
        let Some(role) = self.state.columns.role(&self.state.path) else { return Ok(()) };
        self.state.draft.set(role, value).map_err(|reason| {
            self.state.wrong = Some(reason);
            E::custom(reason)
        })
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, 'de, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth > MAX_DEPTH {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, 'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        self.value(Value::Text(Cow::Borrowed(text.as_bytes())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.value(Value::Text(Cow::Owned(text.as_bytes().to_vec())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.value(Value::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.value(Value::Real(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.value(Value::Real(number))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let above = self.state.path.len();
        while map.next_key_seed(Key(&mut self.state.path))?.is_some() {
            map.next_value_seed(Walk { state: &mut *self.state, depth: self.depth + 1 })?;
            self.state.path.truncate(above);
        }
        Ok(())
    }
}

/// Appends a key to the path.
struct Key<'p>(&'p mut String);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        if !self.0.is_empty() {
            self.0.push('_');
        }
        push_normalised(self.0, key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Format, Method, Name};

    fn text(bytes: &'static str) -> Option<Name<'static>> {
        Some(Name::Text(bytes.as_bytes().into()))
    }

    fn guessed(line: &str) -> Result<Record<'_>, Reason> {
        parse(line.as_bytes(), &Columns::Guessed)
    }

    #[test]
    fn a_line_of_caddy() {
        let line = r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{
            "remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"127.0.0.2","proto":"HTTP/2.0","method":"GET",
            "host":"localhost","uri":"/a\u0020b?c#d","headers":{"User-Agent":["curl/7.82.0"],"Size":["1"]}},"bytes_read":0,
            "user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;
        let record = guessed(line).unwrap();
        assert_eq!(record.at_ns / 1000, 1_646_861_401_524_102);
        assert_eq!((record.client.clone(), record.object.clone()), (text("127.0.0.2"), text("/a b?c")));
        assert_eq!((record.size_bytes, record.status, record.method), (Some(10_900), Some(200), Some(Method::Get)));
    }

    #[test]
    fn a_line_of_nginx() {
        let line = r#"{"time_local":"09/Mar/2022:21:30:01 +0000","msec":"1646861401.524","remote_addr":"2001:db8::1",
            "request":"GET /a/b.html HTTP/1.1","status":"206","body_bytes_sent":"1839","bytes_sent":"2100","request_time":"0.5"}"#;
        let record = guessed(line).unwrap();
        assert_eq!((record.at_ns, record.tick_ns), (1_646_861_401_524_000_000, 1_000_000), "the finer of two times");
        assert_eq!((record.client.clone(), record.object.clone()), (text("2001:db8::1"), text("/a/b.html")));
        assert_eq!((record.size_bytes, record.status, record.method), (Some(1839), Some(206), Some(Method::Get)));
    }

    #[test]
    fn keys_are_named_where_they_are_not_usual() {
        let Ok(Format::Json(columns)) = "json:time=meta.at_us,size=volume".parse() else { panic!("it is a format") };
        let record =
            parse(br#"{"meta":{"at_us":1500000},"volume":7,"size":8,"path":"/a","client":17}"#, &columns).unwrap();
        assert_eq!((record.at_ns, record.size_bytes), (1_500_000_000, Some(7)));
        assert_eq!((record.object.clone(), record.client.clone()), (text("/a"), Some(Name::Number(17))));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, reason) in [
            ("[1]", "it is no JSON object"),
            ("hello", "it is no JSON object"),
            (r#"{"ts":1"#, "it is not well-formed JSON"),
            (r#"{"ts":1} {"ts":2}"#, "it is not well-formed JSON"),
            (r#"{"path":"/a"}"#, "it has no time"),
            (r#"{"ts":null}"#, "it has no time"),
            (r#"{"ts":"now"}"#, "the time is none that is known"),
            (r#"{"ts":-1}"#, "the time is none that is known"),
            (r#"{"ts":1e300}"#, "the time is none that is known"),
            (r#"{"ts":1,"size":"big"}"#, "the size is no number"),
            (r#"{"ts":1,"status":20000}"#, "the status is no number of three digits"),
        ] {
            assert_eq!(guessed(line), Err(reason), "{line}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert_eq!(guessed(&deep), Err("it has no time"));
        let hidden = r#"{"ts":1,"a":{"b":{"c":{"d":{"e":{"ts":2}}}}}}"#;
        assert_eq!(guessed(hidden).unwrap().at_ns, 1_000_000_000);
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(any in any::<Vec<u8>>(), near in r#"\{["a-z:0-9.,e{}\[\]\\-]{0,80}"#, ts in any::<f64>()) {
            let _ = parse(&any, &Columns::Guessed);
            let _ = guessed(&near);
            let _ = guessed(&format!("{{\"ts\":{ts:e},\"size\":{ts:e},\"status\":{ts:e}}}"));
        }

        #[test]
        fn a_written_record_reads_back(at_us in 0_u64..4_000_000_000_000_000, size in any::<u64>(), path in "/[^#]{0,30}[^# ]") {
            prop_assume!(path.trim() == path);
            let line = serde_json::json!({ "time_us": at_us, "size": size, "request": { "uri": path } }).to_string();
            let record = guessed(&line).unwrap();
            prop_assert_eq!((record.at_ns, record.size_bytes), (at_us * 1000, Some(size)));
            prop_assert_eq!(record.object.clone(), Some(Name::Text(path.trim_ascii().as_bytes().into())));
        }
    }
}
