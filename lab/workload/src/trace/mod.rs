//! Logs of web servers, read as a stream in constant memory: whatever their format and compression, one [`Record`] a request.
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
//! - [`Reader`]: finds out compression and format, reads, and keeps a [`Tally`] of what was broken, cut off or out of order;
//! - [`Summary`]: what kind of traffic it is, in constant memory too;
//! - [`replay`]: the log as requests of a run;
//! - [`common`], [`extended`], [`table`], [`json`], [`world_cup`]: one line or record each, as plain functions on bytes.
//!
//! Nothing in a log makes a reader panic, and a line that cannot be read is counted and left out unless
//! [`Options::strict`] asks for more.

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

#[cfg(test)]
mod tests;
