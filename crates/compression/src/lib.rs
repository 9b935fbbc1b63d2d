//! Compresses the body of a response while it is sent: gzip (RFC 1952), Brotli (RFC 7932),
//! Zstandard (RFC 8878).
//!
//! No sockets and no clock. Long steps are done on the threads of the tokio runtime that may block, so a
//! [`CompressedBody`] has to be polled within a runtime.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod brotli;
mod encoder;
mod prediction;

pub use self::{
    body::CompressedBody,
    encoder::{Coding, Encoder, Levels, compress},
    prediction::{Prediction, Ratio},
};
