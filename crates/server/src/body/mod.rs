//! Bodies on their way between a client and an origin.

mod relay;
mod request;
mod store;
mod upload;

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};

pub(crate) use self::upload::{Feed, Piece, Upload, upload};
pub use self::{
    relay::{Afterwards, Relay, RelayEnd, Relayed, relay},
    request::{Arriving, ClientBody, CollectError, Patience, Pulse, RequestBody, Streamed, Whole},
    store::Store,
};

/// The body of an origin's response, whatever the origin.
pub type OriginBody = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> OriginBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
