//! Requests to make, outcomes seen, and the ideal to hold them against.
//!
//! Contract: pure and seeded. No clock, no I/O, no threads; the same arguments give the same sequence on every machine.
//! Times are nanoseconds since the start of a run, sizes and link work are bytes, loads are fractions of the link.
//!
//! The way of an experiment through this crate:
//!
//! 1. [`sizes`]: a heavy-tailed size distribution, and a finite set of files that stands for it; or a whole site, with
//!    popularity and temporal locality ([`surge`]);
//! 2. [`pattern`] and [`rate`]: how the load moves, and the link it is a load of;
//! 3. [`sequence`]: the requests, drawn from a seed, the same for every server that is compared;
//!    or users and sessions that ask when they have been answered ([`demand`]), each behaving in its own way
//!    ([`behaviour`]), or what a log recorded ([`trace`]);
//! 4. [`ideal`]: those requests on a bare link, shortest remaining first and shared evenly;
//! 5. [`outcome`] and [`stats`]: what a client saw, and the numbers made of it.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod demand;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod ideal;
pub mod outcome;
pub mod pattern;
pub mod rate;
pub mod sequence;
pub mod sizes;
pub mod stats;
pub mod surge;
pub mod trace;
pub mod wire;
