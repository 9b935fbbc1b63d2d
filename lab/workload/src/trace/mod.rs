//! Logs of web servers, read as a stream in constant memory. Every format and compression gives one
//! [`Record`] a request.
//!
//! ```
//! use std::ops::ControlFlow;
//! use serpent_workload::trace::{Options, Reader};
//!
//! let log = br#"in24.example.com - - [01/Aug/1995:00:00:01 -0400] "GET /index.html HTTP/1.0" 200 1839"#;
//! let mut reader = Reader::open(&log[..], &Options::default())?;
//! let mut bytes = 0;
//! reader.read(|record| {
//!     bytes += record.size_bytes.unwrap_or(0);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!((bytes, reader.tally().records), (1839, 1));
//! # Ok::<(), serpent_workload::trace::TraceError>(())
//! ```
//!
//! - [`Reader`] detects compression and format, reads, and keeps a [`Tally`] of what was broken, cut off or
//!   out of order.
//! - [`Summary`] describes the traffic, also in constant memory.
//! - [`replay`] makes the requests of a run from a log.
//! - [`common`], [`extended`], [`table`], [`json`] and [`world_cup`] read one line or record, as plain
//!   functions on bytes.
//!
//! No content of a log makes a reader panic. A line that cannot be read is counted and left out, unless
//! [`Options::strict`] makes it an error.

use std::borrow::Cow;

pub mod columns;
pub mod common;
pub mod compression;
pub mod extended;
pub mod format;
pub mod json;
mod jump;
mod order;
mod reader;
pub mod replay;
pub mod stamp;
mod summary;
pub mod table;
mod tally;
mod text;
pub mod world_cup;
mod zstandard;

pub use compression::{Compression, decode};
pub use format::{Foreign, Format, FormatError};
pub use order::{FarBehind, MAX_DISORDER_NS, Order};
pub use reader::{Options, Reader, TraceError};
pub use summary::{Period, Summary};
pub use tally::{Broken, Cut, Tally};

/// One request of a log. A fact that the log does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the line, or of the record in a format without lines; from 1.
    pub number: u64,
    /// Time in nanoseconds since 1970 UTC, or since the log's own origin.
    pub at_ns: u64,
    /// Resolution of the time in nanoseconds: a second in the Common Log Format.
    pub tick_ns: u64,
    /// The requested object: a path with its query and without its fragment, or a number.
    pub object: Option<Name<'a>>,
    /// The client: an address, a host name, or a number.
    pub client: Option<Name<'a>>,
    /// Bytes of the response's body that were sent. They are fewer than the object has if the transfer was
    /// aborted.
    pub size_bytes: Option<u64>,
    /// Status of the response. 0 is a status that the format cannot name.
    pub status: Option<u16>,
    /// Method of the request.
    pub method: Option<Method>,
    /// The class of the request, where a column tells it. In World Cup records it is the type of the file.
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

/// The reason why a line is not a record: a short clause such as "the size is no number".
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
    /// Any other method, or a text that is no method.
    Other,
}

impl Method {
    /// The method with this name. Methods are case-sensitive (RFC 9110, section 9.1).
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

#[cfg(test)]
mod tests;
