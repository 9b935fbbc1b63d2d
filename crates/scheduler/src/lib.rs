//! Decides which request runs next, which response sends next, and how many requests run at once.
//!
//! The contract of this crate: decisions, and nothing else. No clock (`now` is an argument), no I/O, no
//! randomness, no async, no `std`. A driver owns the bytes. It reports events with `handle_*`, asks for
//! decisions with `poll_*`, and asks again at `poll_timeout`. The same code decides in the server and in the
//! simulator.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod bands;
pub mod class;
pub mod control;
pub mod correction;
mod drain;
pub mod estimate;
mod job;
pub mod lease;
mod link;
pub mod order;
pub mod pace;
pub mod priority;
mod processor_sharing;
mod round_trips;
pub mod share;
pub mod time;
pub mod units;
pub mod uplink;

pub use job::{JobId, Path, Size};
pub use link::{Chunk, Pacing};
pub use order::Order;
pub use time::Instant;
pub use units::Rate;
pub use uplink::Uplink;
