//! Maps the columns of a table, or the keys of a JSON log, to the fields of a record.

use std::borrow::Cow;

use super::{
    Method, Name, Reason, Record,
    stamp::{self, Stamp, Unit},
    text::{number, request_line, without_fragment},
};

/// A fact about a request that a column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The time of the request.
    Time,
    /// The day, where [`Field::Time`] holds only the time of day.
    Date,
    /// Bytes sent.
    Size,
    /// The requested object.
    Object,
    /// The client.
    Client,
    /// Status of the answer.
    Status,
    /// Method of the request.
    Method,
    /// Class of the request.
    Class,
    /// Method and target as the client sent them: `GET / HTTP/1.1`.
    Request,
    /// The query behind the `?`, for an object that has none.
    Query,
}

/// Number of fields.
const FIELDS: usize = 10;

/// Names of each field in the logs of common servers and in published traces, the best name first. All are
/// lower case, with `_` for `-`, `.` and space. A key within a key follows it (`request.uri` is
/// `request_uri`). The name of a time may end with its unit: `_s`, `_ms`, `_us`, `_ns`.
#[rustfmt::skip]
const NAMES: [(Field, &[&str]); FIELDS] = [
    (Field::Time, &["msec", "ts", "timestamp", "@timestamp", "time", "time_iso8601", "time_local", "starttime", "start_time",
        "datetime", "date_time", "epoch", "at", "when"]),
    (Field::Date, &["date"]),
    (Field::Size, &["body_bytes_sent", "size_bytes", "size", "bytes", "bytes_sent", "response_size", "resp_size",
        "response_bytes", "object_size", "content_length", "http_response_body_bytes", "sc_bytes", "length"]),
    (Field::Object, &["path", "uri", "request_uri", "request_path", "url", "object", "object_id", "objectid", "file", "target",
        "url_original", "url_path", "cs_uri_stem", "cs_uri"]),
    (Field::Client, &["client", "client_ip", "clientip", "client_id", "clientid", "remote_addr", "remote_ip", "remote_host",
        "request_client_ip", "request_remote_ip", "request_remote_addr", "ip", "source_ip", "source_address", "client_address",
        "c_ip"]),
    (Field::Status, &["status", "status_code", "statuscode", "code", "response_status", "http_status",
        "http_response_status_code", "sc_status"]),
    (Field::Method, &["method", "request_method", "http_method", "verb", "http_request_method", "cs_method"]),
    (Field::Class, &["class", "group"]),
    (Field::Request, &["request", "request_line"]),
    (Field::Query, &["cs_uri_query"]),
];

/// The way to find the columns of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    /// By the usual names.
    #[default]
    Guessed,
    /// The listed columns by their names in this log, the others by their usual names.
    Named(Vec<(Field, String)>),
    /// By position: the table has no header line. `None` is a column to skip.
    InOrder(Vec<Option<(Field, Unit)>>),
}

/// The purpose of a column. A lower rank is a better name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) field: Field,
    pub(super) unit: Unit,
    pub(super) rank: u8,
}

impl Columns {
    /// The role of the column with this (normalised) name.
    pub(super) fn role(&self, name: &str) -> Option<Role> {
        let guessed = guess(name);
        match self {
            Self::Guessed => guessed,
            Self::Named(named) => match named.iter().find(|(_, given)| given == name) {
                Some(&(field, _)) => Some(Role { field, unit: unit_of(name).1, rank: 0 }),
                None => guessed.filter(|role| named.iter().all(|(field, _)| *field != role.field)),
            },
            Self::InOrder(_) => None,
        }
    }
}

/// The field that usually has this name. People also name fields so in a format.
pub(super) fn guess(name: &str) -> Option<Role> {
    let find = |name: &str, unit| {
        NAMES.iter().find_map(|&(field, names)| {
            let place = names.iter().position(|&usual| usual == name)?;
            Some(Role { field, unit, rank: place as u8 + 1 })
        })
    };
    find(name, Unit::Guessed).or_else(|| {
        let (name, unit) = unit_of(name);
        find(name, unit).filter(|role| role.field == Field::Time && unit != Unit::Guessed)
    })
}

/// Splits a name into the name without its unit, and the unit.
fn unit_of(name: &str) -> (&str, Unit) {
    let units =
        [("_s", Unit::Seconds), ("_ms", Unit::Milliseconds), ("_us", Unit::Microseconds), ("_ns", Unit::Nanoseconds)];
    let found = units.into_iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)));
    found.unwrap_or((name, Unit::Guessed))
}

/// Appends a name in the normalised form of [`NAMES`].
pub(super) fn push_normalised(to: &mut String, name: &str) {
    to.extend(name.trim().chars().map(|character| match character {
        '-' | '.' | ' ' => '_',
        other => other.to_ascii_lowercase(),
    }));
}

pub(super) fn normalised(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    push_normalised(&mut normal, name);
    normal
}

/// A value of a column.
pub(super) enum Value<'a> {
    Text(Cow<'a, [u8]>),
    Number(u64),
    /// A number with a sign or a fraction. Few fields accept one.
    Real(f64),
}

/// A record that is being assembled from values.
#[derive(Default)]
pub(super) struct Draft<'a> {
    time: Option<(Value<'a>, Unit)>,
    date: Option<(Value<'a>, Unit)>,
    object: Option<Name<'a>>,
    client: Option<Name<'a>>,
    size_bytes: Option<u64>,
    status: Option<u16>,
    method: Option<Method>,
    class: Option<Cow<'a, [u8]>>,
    request: Option<Cow<'a, [u8]>>,
    query: Option<Cow<'a, [u8]>>,
    /// Rank of the column that set each field, plus one. 0 means that no column has set it.
    ranks: [u8; FIELDS],
}

impl<'a> Draft<'a> {
    /// Sets a field, unless a column with a better name has set it. An empty text, `-` and `null` are no
    /// value.
    pub(super) fn set(&mut self, role: Role, value: Value<'a>) -> Result<(), Reason> {
        if matches!(&value, Value::Text(text) if matches!(text.trim_ascii(), b"" | b"-" | b"null")) {
            return Ok(());
        }
        let rank = &mut self.ranks[role.field as usize];
        if *rank != 0 && *rank <= role.rank + 1 {
            return Ok(());
        }
        *rank = role.rank + 1;
        match role.field {
            // A time of day needs its date, which may come later.
            Field::Time => self.time = Some((value, role.unit)),
            Field::Date => self.date = Some((value, role.unit)),
            Field::Size => {
                self.size_bytes = match value {
                    Value::Number(size) => Some(size),
                    Value::Real(size) => whole(size)?,
                    Value::Text(text) => match number(text.trim_ascii()) {
                        Some(size) => Some(size),
                        None => {
                            let real = std::str::from_utf8(text.trim_ascii()).ok().and_then(|text| text.parse().ok());
                            whole(real.ok_or("the size is no number")?)?
                        }
                    },
                };
            }
            Field::Status => {
                let status = match value {
                    Value::Text(text) => number(text.trim_ascii()),
                    Value::Number(status) => Some(status),
                    Value::Real(_) => None,
                };
                let status = status.and_then(|status| u16::try_from(status).ok()).filter(|&status| status < 1000);
                self.status = Some(status.ok_or("the status is no number of three digits")?);
            }
            Field::Object => {
                self.object = name(value).map(|name| match name {
                    Name::Text(target) => Name::Text(without_fragment(target)),
                    number @ Name::Number(_) => number,
                });
            }
            Field::Client => self.client = name(value),
            Field::Method => self.method = text(value).map(|text| Method::from_bytes(text.trim_ascii())),
            Field::Class => self.class = text(value),
            Field::Request => self.request = text(value),
            Field::Query => self.query = text(value),
        }
        Ok(())
    }

    /// Returns the record. Method and object come from the request line where no column has them.
    pub(super) fn finish(self) -> Result<Record<'a>, Reason> {
        let time = moment(self.time, self.date)?;
        let (mut method, mut object) = (self.method, self.object);
        if let Some(line) = &self.request {
            let (asked, target) = request_line(line);
            method = method.or(asked);
            object = object.or_else(|| target.map(|target| Name::Text(without_fragment(target.to_vec().into()))));
        }
        if let (Some(Name::Text(path)), Some(query)) = (&mut object, &self.query)
            && memchr::memchr(b'?', path).is_none()
        {
            *path = [path, &b"?"[..], query].concat().into();
        }
        Ok(Record {
            number: 0,
            at_ns: time.at_ns,
            tick_ns: time.tick_ns,
            object,
            client: self.client,
            size_bytes: self.size_bytes,
            status: self.status,
            method,
            class: self.class,
        })
    }
}

/// The time told by a time and a date: the time alone, the date alone, or the time of day on that date.
fn moment(time: Option<(Value<'_>, Unit)>, date: Option<(Value<'_>, Unit)>) -> Result<Stamp, Reason> {
    if let (Some((Value::Text(time), _)), Some((Value::Text(date), unit))) = (&time, &date)
        && let Some(stamp) = stamp::parse(&[date.trim_ascii(), b" ", time.trim_ascii()].concat(), *unit)
    {
        return Ok(stamp);
    }
    let stamp = |(value, unit)| match value {
        Value::Text(text) => stamp::parse(&text, unit),
        Value::Number(number) => stamp::epoch(number.to_string().as_bytes(), unit),
        Value::Real(number) => stamp::epoch(number.to_string().as_bytes(), unit),
    };
    time.or(date).ok_or("it has no time").and_then(|time| stamp(time).ok_or("the time is none that is known"))
}

/// Converts a size to a whole number. Sizes may be written as `1839.0`, and a negative number stands for no
/// size.
fn whole(size: f64) -> Result<Option<u64>, Reason> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match size {
        size if size < 0.0 => Ok(None),
        size if size.fract() == 0.0 && size <= EXACT => Ok(Some(size as u64)),
        _ => Err("the size is no whole number of bytes"),
    }
}

fn name(value: Value<'_>) -> Option<Name<'_>> {
    match value {
        Value::Number(number) => Some(Name::Number(number)),
        other => text(other).map(Name::Text),
    }
}

fn text(value: Value<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::Text(Cow::Borrowed(text)) => Some(Cow::Borrowed(text.trim_ascii())),
        Value::Text(text) => Some(text),
        Value::Number(number) => Some(number.to_string().into_bytes().into()),
        Value::Real(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_known_however_they_are_written() {
        for (name, field, unit) in [
            ("Time", Field::Time, Unit::Guessed),
            ("start-time_us", Field::Time, Unit::Microseconds),
            ("TS_NS", Field::Time, Unit::Nanoseconds),
            ("@timestamp", Field::Time, Unit::Guessed),
            ("Content-Length", Field::Size, Unit::Guessed),
            ("request.uri", Field::Object, Unit::Guessed),
            ("Remote Addr", Field::Client, Unit::Guessed),
        ] {
            let role = guess(&normalised(name)).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((role.field, role.unit), (field, unit), "{name}");
        }
        // nginx's `request_time` is a duration, and a size has no unit of time.
        assert_eq!(guess("request_time"), None);
        assert_eq!(guess("size_ms"), None);
    }

    #[test]
    fn no_name_means_two_things() {
        let all: Vec<&str> = NAMES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for (place, name) in all.iter().enumerate() {
            assert!(!all[..place].contains(name), "{name}");
            assert_eq!(normalised(name), *name, "names are listed as they are looked up");
        }
        for (place, (field, _)) in NAMES.iter().enumerate() {
            assert_eq!(*field as usize, place, "ranks are kept by field");
        }
    }

    #[test]
    fn the_best_name_wins_wherever_it_stands() {
        let role = |name| guess(name).unwrap();
        for order in [["body_bytes_sent", "bytes_sent"], ["bytes_sent", "body_bytes_sent"]] {
            let mut draft = Draft::default();
            draft.set(role("ts"), Value::Number(1)).unwrap();
            for name in order {
                draft.set(role(name), Value::Number(if name == "bytes_sent" { 1200 } else { 1000 })).unwrap();
            }
            assert_eq!(draft.finish().unwrap().size_bytes, Some(1000));
        }
    }

    #[test]
    fn a_name_that_is_given_takes_the_place_of_the_usual_ones() {
        let columns = Columns::Named(vec![(Field::Size, "wire_bytes".to_owned())]);
        assert_eq!(columns.role("wire_bytes").map(|role| role.field), Some(Field::Size));
        assert_eq!(columns.role("bytes"), None);
        assert_eq!(columns.role("ts").map(|role| role.field), Some(Field::Time));
    }
}
