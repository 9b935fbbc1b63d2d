//! Logs of web servers, read as a stream in constant memory: whatever their format and compression, one [`Record`] a request.
//!
//! ```
//! use std::ops::ControlFlow;
//! use workload::trace::{Options, Reader};
//!
//! let log = br#"in24.example.com - - [01/Aug/1995:00:00:01 -0400] "GET /index.html HTTP/1.0" 200 1839"#;
//! let mut reader = Reader::open(&log[..], &Options::default())?;
//! let mut bytes = 0;
//! reader.read(|record| {
//!     bytes += record.size_bytes.unwrap_or(0);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!((bytes, reader.tally().records), (1839, 1));
//! # Ok::<(), workload::trace::TraceError>(())
//! ```
//!
//! - [`Reader`]: finds out compression and format, reads, and keeps a [`Tally`] of what was broken, cut off or out of order;
//! - [`Summary`]: what kind of traffic it is, in constant memory too;
//! - [`replay`]: the log as requests of a run;
//! - [`common`], [`table`], [`json`], [`world_cup`]: one line or record each, as plain functions on bytes.
//!
//! Nothing in a log makes a reader panic, and a line that cannot be read is counted and left out unless
//! [`Options::strict`] asks for more.

use std::borrow::Cow;

pub mod columns;
pub mod common;
pub mod compression;
pub mod format;
pub mod json;
mod order;
mod reader;
pub mod replay;
pub mod stamp;
mod summary;
pub mod table;
mod tally;
pub mod world_cup;

pub use compression::{Compression, decode};
pub use format::{Foreign, Format, FormatError};
pub use order::{FarBehind, MAX_DISORDER_NS, Order};
pub use reader::{Options, Reader, TraceError};
pub use summary::{Period, Summary};
pub use tally::{Broken, Cut, Tally};

/// One request, as a log tells of it. What the log does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the line, or of the record in a format without lines; from 1.
    pub number: u64,
    /// When, in nanoseconds since 1970 UTC (or since whatever the log counts from).
    pub at_ns: u64,
    /// How finely the time is written, in nanoseconds: a second in the Common Log Format.
    pub tick_ns: u64,
    /// What was asked for: a path with its query and without its fragment, or a number.
    pub object: Option<Name<'a>>,
    /// Who asked: an address, a host name, or a number.
    pub client: Option<Name<'a>>,
    /// Bytes of the answer's body that were sent. Less than the object's where the transfer was aborted.
    pub size_bytes: Option<u64>,
    /// Status of the answer; 0 is one that the format cannot name.
    pub status: Option<u16>,
    /// Method of the request.
    pub method: Option<Method>,
    /// The class that it belongs to, where a column says so; in World Cup records the type of the file.
    pub class: Option<Cow<'a, [u8]>>,
}

/// A name of a client or an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name<'a> {
    /// As text. Logs hold any bytes, UTF-8 or not.
    Text(Cow<'a, [u8]>),
    /// As a number.
    Number(u64),
}

/// Why a line is no record: a short clause such as "the size is no number".
pub type Reason = &'static str;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    Patch,
    /// Any other, and what is no method at all.
    Other,
}

impl Method {
    /// The method of this name. Methods are case-sensitive (RFC 9110, section 9.1).
    pub fn from_bytes(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }
}

/// An unsigned decimal number and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| {
        byte.is_ascii_digit().then_some(())?;
        sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

/// What comes before the fragment.
fn without_fragment(mut target: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if let Some(end) = memchr::memchr(b'#', &target) {
        match &mut target {
            Cow::Borrowed(bytes) => *bytes = &bytes[..end],
            Cow::Owned(bytes) => bytes.truncate(end),
        }
    }
    target
}

/// Method and target of a request line such as `GET /a b.html HTTP/1.0`. Targets may hold spaces, and the protocol may be
/// missing; a lone `-` is no request.
fn request_line(line: &[u8]) -> (Option<Method>, Option<&[u8]>) {
    let line = line.trim_ascii();
    if line.is_empty() || line == b"-" {
        return (None, None);
    }
    let Some(space) = memchr::memchr(b' ', line) else { return (Some(Method::from_bytes(line)), None) };
    let (method, rest) = (&line[..space], line[space..].trim_ascii_start());
    let target = match memchr::memrchr(b' ', rest) {
        Some(last) if rest[last + 1..].starts_with(b"HTTP/") => rest[..last].trim_ascii_end(),
        None if rest.starts_with(b"HTTP/") => b"",
        _ => rest,
    };
    (Some(Method::from_bytes(method)), (!target.is_empty()).then_some(target))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod parts {
    use super::*;

    #[test]
    fn request_lines_are_read_as_servers_wrote_them() {
        for (line, method, target) in [
            ("GET /a HTTP/1.0", Some(Method::Get), Some("/a")),
            ("GET /a", Some(Method::Get), Some("/a")),
            ("GET /apollo/ 13.html HTTP/1.0", Some(Method::Get), Some("/apollo/ 13.html")),
            ("GET /a b", Some(Method::Get), Some("/a b")),
            ("HEAD  /a  HTTP/1.1", Some(Method::Head), Some("/a")),
            ("get /a HTTP/1.1", Some(Method::Other), Some("/a")),
            ("GET HTTP/1.1", Some(Method::Get), None),
            ("GET", Some(Method::Get), None),
            ("\\x16\\x03\\x01", Some(Method::Other), None),
            ("-", None, None),
            ("", None, None),
        ] {
            assert_eq!(request_line(line.as_bytes()), (method, target.map(str::as_bytes)), "{line}");
        }
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "-", "-1", "1.5", "18446744073709551616", "99999999999999999999", "1e3", " 1"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
