#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod inbox;
mod outgoing;
mod reader;
mod relay;
mod request;
mod store;
mod timer;
mod upload;

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};

pub use self::{
    inbox::Inbox,
    outgoing::Sending,
    reader::{BodyReader, ReaderBody},
    relay::{Afterwards, Relay, RelayEnd, Relayed, relay},
    request::{ClientBody, CollectError, IncomingBody, Patience, Pulse, RequestBody, Streamed, Whole},
    store::{Store, StoreLimits, StoreStats},
    timer::Timer,
    upload::{Feed, Piece, Upload, upload},
};

/// The body of an origin's response, for any kind of origin.
pub type OriginBody = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> OriginBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
