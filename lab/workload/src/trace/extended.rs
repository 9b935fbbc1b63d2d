//! Lines of the W3C Extended Log File Format, as IIS and Amazon CloudFront write it:
//!
//! ```text
//! #Version: 1.0
//! #Date: 2024-05-01 00:00:01
//! #Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes
//! 2024-05-01 00:00:01 203.0.113.7 GET /index.html - 200 1839
//! ```
//!
//! Times are UTC. Values are separated by spaces or tabs, and values with spaces are in quotes.

use std::borrow::Cow;

use super::{
    Reason, Record,
    columns::{Columns, Draft, Field, Role, Value, normalised},
};

/// Reads the lines of one log. Its columns are those of the last `#Fields:` line. A server writes that line
/// again when it restarts.
#[derive(Debug, Default)]
pub struct Extended {
    fields: Vec<u8>,
    roles: Vec<Option<Role>>,
    /// The day of the last `#Date:`, for a log whose lines have only a time of day.
    day: Vec<u8>,
}

impl Extended {
    /// Makes a reader for the log with this beginning.
    ///
    /// # Errors
    /// If a time, or a size or an object, is missing from the first `#Fields:`; the error holds its names.
    pub fn new(head: &[u8]) -> Result<Self, Vec<String>> {
        let mut log = Self::default();
        let fields = lines(head).find_map(|line| directive(line, b"#Fields:")).unwrap_or_default();
        log.directive(&[b"#Fields:", fields].concat());
        let has = |field| log.roles.iter().flatten().any(|role| role.field == field);
        if (has(Field::Time) || has(Field::Date)) && (has(Field::Size) || has(Field::Object)) {
            return Ok(log);
        }
        Err(words(fields).map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Whether the data with this beginning is a log in this format.
    pub fn looks_like(head: &[u8]) -> bool {
        lines(head).any(|line| directive(line, b"#Fields:").is_some())
    }

    /// Whether this line changes how the following lines are read.
    pub fn is_changed_by(&self, line: &[u8]) -> bool {
        let changes = |name, known: &[u8]| directive(line, name).is_some_and(|value| value != known);
        changes(b"#Fields:", &self.fields) || changes(b"#Date:", &self.day)
    }

    /// Takes a line that begins with `#`.
    pub fn directive(&mut self, line: &[u8]) {
        if let Some(fields) = directive(line, b"#Fields:") {
            let role = |name: &[u8]| Columns::Guessed.role(&normalised(&String::from_utf8_lossy(name)));
            self.roles = words(fields).map(role).collect();
            self.fields = fields.to_vec();
        } else if let Some(date) = directive(line, b"#Date:") {
            self.day = date.to_vec();
        }
    }

    /// Reads a line of values.
    pub fn parse<'a>(&'a self, line: &'a [u8]) -> Result<Record<'a>, Reason> {
        let mut draft = Draft::default();
        let mut values = words(line);
        for role in &self.roles {
            let value = values.next().ok_or("it has fewer values than `#Fields:` names")?;
            if let Some(role) = role {
                draft.set(*role, Value::Text(unquoted(value)))?;
            }
        }
        if let Some(day) = words(&self.day).next() {
            // The rank is worse than that of a column of the line.
            draft.set(
                Role { field: Field::Date, unit: Default::default(), rank: u8::MAX - 1 },
                Value::Text(day.into()),
            )?;
        }
        draft.finish()
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii)
}

/// The value of the directive with this name.
fn directive<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Splits a line into its values. A quote that is not closed before a space is part of its value.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line.trim_ascii();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = quoted(rest).or_else(|| rest.iter().position(u8::is_ascii_whitespace)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.trim_ascii_start();
        Some(word)
    })
}

/// Returns the end of a value in quotes. Two quotes in a row stand for one quote in the value.
fn quoted(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        at += memchr::memchr(b'"', &inner[at..])? + 1;
        match inner.get(at) {
            None => return Some(at + 1),
            Some(next) if next.is_ascii_whitespace() => return Some(at + 1),
            Some(b'"') => at += 1,
            Some(_) => return None,
        }
    }
}

fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    match inner {
        Some(inner) if memchr::memchr(b'"', inner).is_none() => inner.into(),
        Some(inner) => {
            let mut last_is_quote = false;
            let mut plain = inner.to_vec();
            plain.retain(|&byte| {
                last_is_quote = byte == b'"' && !last_is_quote;
                !last_is_quote
            });
            plain.into()
        }
        None => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Method, Name};

    /// 2024-05-01 00:00:00 UTC (`date -d ... +%s`).
    const MAY_S: u64 = 1_714_521_600;

    fn read(head: &str, line: &str) -> Result<(f64, Option<u64>, Option<String>), String> {
        let mut log = Extended::new(head.as_bytes()).map_err(|names| names.join(" "))?;
        head.lines().for_each(|line| log.directive(line.as_bytes()));
        let record = log.parse(line.as_bytes())?;
        let object = record.object.map(|object| match object {
            Name::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            Name::Number(number) => number.to_string(),
        });
        Ok(((record.at_ns - MAY_S * 1_000_000_000) as f64 / 1e9, record.size_bytes, object))
    }

    #[test]
    fn a_line_of_iis_is_read_whole() {
        let head = b"#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n#Date: 2024-05-01 00:00:01\r\n\
            #Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status \
            sc-substatus sc-bytes time-taken\r\n";
        let log = Extended::new(head).unwrap();
        let line = b"2024-05-01 00:00:01 10.0.0.1 GET /shop/list.aspx page=2 443 - 203.0.113.7 Mozilla/5.0+(X11) 200 0 1839 31";
        let expected = Record {
            number: 0,
            at_ns: (MAY_S + 1) * 1_000_000_000,
            tick_ns: 1_000_000_000,
            object: Some(Name::Text(b"/shop/list.aspx?page=2"[..].into())),
            client: Some(Name::Text(b"203.0.113.7"[..].into())),
            size_bytes: Some(1839),
            status: Some(200),
            method: Some(Method::Get),
            class: None,
        };
        assert_eq!(log.parse(line), Ok(expected));
    }

    #[test]
    fn values_are_separated_by_spaces_or_tabs_and_may_be_in_quotes() {
        let head = "#Fields: date time x-comment sc-bytes cs-uri-stem cs-uri-query";
        let expected = Ok((61.5, Some(10), Some("/a".to_owned())));
        for line in [
            "2024-05-01 00:01:01.5 - 10 /a -",
            "2024-05-01\t00:01:01.5\t-\t10\t/a\t-",
            "2024-05-01 00:01:01.5  \"two words\" 10 /a -",
            "2024-05-01 00:01:01.5 \"a \"\"word\"\" or two\" 10 \"/a\" -",
            "2024-05-01 00:01:01.5 \"open 10 /a -",
            "2024-05-01 00:01:01.5 \"open\"not 10 /a -",
        ] {
            assert_eq!(read(head, line), expected, "{line}");
        }
        assert_eq!(unquoted(b"\"a \"\"b\"\"\"\"\""), &b"a \"b\"\""[..]);
    }

    #[test]
    fn a_log_without_dates_has_that_of_its_head() {
        let fields = "#Fields: time cs-uri-stem";
        let head = format!("#Date: 2024-05-01 00:00:00\n{fields}");
        assert_eq!(read(&head, "00:01:01 /a"), Ok((61.0, None, Some("/a".to_owned()))));
        assert_eq!(read(fields, "00:01:01 /a"), Err("the time is none that is known".to_owned()));
    }

    #[test]
    fn a_log_without_a_time_or_an_object_names_what_it_has() {
        assert_eq!(read("#Fields: date c-ip", "-"), Err("date c-ip".to_owned()));
        assert_eq!(read("#Fields: cs-uri c-ip", "-"), Err("cs-uri c-ip".to_owned()));
        assert_eq!(
            read("#Fields: date time sc-bytes", "2024-05-01"),
            Err("it has fewer values than `#Fields:` names".to_owned())
        );
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(head in any::<Vec<u8>>(), line in any::<Vec<u8>>(), near in "[\" \t0-9:-]{0,80}") {
            let _ = Extended::new(&head);
            let mut log = Extended::new(b"#Fields: date time cs-uri-stem cs-uri-query sc-bytes").unwrap();
            let _ = (log.parse(&line), log.parse(near.as_bytes()));
            log.directive(&[b"#Fields:", &head[..]].concat());
            let _ = (log.parse(&line), log.parse(near.as_bytes()));
        }
    }
}
