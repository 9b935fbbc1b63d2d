//! Lines of JSON, one object each, as nginx, Caddy and others write them.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    Reason, Record,
    columns::{Columns, Draft, Value, push_normalised},
};

/// Objects within objects that are looked into.
const MAX_DEPTH: u8 = 4;

/// Reads a line. Keys within a key count by their way: `uri` in `request` is `request.uri`.
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
    /// The way to the present value, normalised.
    path: String,
    draft: Draft<'de>,
    wrong: Option<Reason>,
}

/// Goes through a value and gives the draft what it asks for, without building the value.
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
