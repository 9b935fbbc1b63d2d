//! The HTTP/1.1 codec of both sides (RFC 9112), sans I/O: no socket, no clock, no allocation beyond the
//! content of a message.
//!
//! ```
//! use serpent_http1::{BodyKind, HeadLimits, HeadScan, Step};
//!
//! let limits = HeadLimits { head_bytes: 8192, fields: 100 };
//! let bytes = b"POST /form HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\na=b";
//! let mut scan = HeadScan::default();
//! // The head arrives in pieces: each call gets the bytes from the start of the head.
//! assert_eq!(scan.advance(&bytes[..20], &limits), Step::Partial);
//! let Step::Complete(head) = scan.advance(bytes, &limits) else { panic!("the head is complete") };
//! assert_eq!(head.body, BodyKind::Length(3));
//! let request = scan.request(&bytes::Bytes::copy_from_slice(&bytes[..head.len])).unwrap();
//! assert_eq!(request.uri.path(), "/form");
//! ```

#![forbid(unsafe_code)]

mod chunked;
mod fields;
mod framing;
mod host;
mod request;
mod response;

pub use self::{
    chunked::{Chunks, Malformed, Next},
    fields::{has_control_byte, welcomes_trailers, write_field, write_length, write_status_line},
    framing::{Coding, Framing, RequestTraits},
    host::is_host_and_port,
    request::{BodyKind, Head, HeadLimits, HeadScan, Refusal, Step},
    response::{MOST_INTERIMS, ResponseBody, ResponseError, ResponseHead, is_interim, may_begin},
};
