//! The spans of a request, which the collector is told.

use std::borrow::Cow;

use crate::context::{Context, SpanId};

/// Longest text of an attribute.
const MOST_TEXT_BYTES: usize = 1024;

/// The spans of a request.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The trace of the request. The first span is that of the request itself.
    pub context: Context,
    /// The `tracestate` that the servers before have sent.
    pub state: Option<Box<str>>,
    /// The spans.
    pub spans: Vec<Span>,
}

/// A part of the time of a request.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its number.
    pub id: SpanId,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its place between servers.
    pub kind: Kind,
    /// Its beginning, in nanoseconds since 1970.
    pub began_ns: u64,
    /// Its end.
    pub ended_ns: u64,
    /// Its other properties.
    pub attributes: Vec<(&'static str, Value)>,
    /// Moments in it, in nanoseconds since 1970.
    pub events: Vec<(u64, &'static str)>,
    /// Whether it has failed, and the fault is not the client's.
    pub has_failed: bool,
}

/// The place of a span between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request of a client.
    Server,
    /// A request to another server.
    Client,
    /// A part of the work in this server.
    Internal,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Yes or no.
    Bool(bool),
}

impl Value {
    /// A text from a client, which is cut when it is long.
    pub fn foreign(text: &str) -> Self {
        let mut end = text.len().min(MOST_TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self::Text(text[..end].to_owned().into())
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Int(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Bool(is)
    }
}

impl Span {
    /// A span of this time, about which nothing else is known.
    pub fn new(id: SpanId, name: &'static str, kind: Kind, began_ns: u64, ended_ns: u64) -> Self {
        // A clock that is set back in between does not make a span of negative length.
        let ended_ns = ended_ns.max(began_ns);
        let (attributes, events) = (Vec::new(), Vec::new());
        Self { id, name: name.into(), kind, began_ns, ended_ns, attributes, events, has_failed: false }
    }

    /// Adds what is known.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = format!("a{}", "é".repeat(MOST_TEXT_BYTES));
        let Value::Text(cut) = Value::foreign(&text) else { panic!("it is a text") };
        assert!(cut.len() == MOST_TEXT_BYTES - 1 && text.starts_with(&*cut));
        assert_eq!(Value::foreign("a"), Value::from("a"));
    }
}
