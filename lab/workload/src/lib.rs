//! Workloads: requests to make, outcomes measured, and ideals to compare with.
//!
//! Contract: pure and seeded. No clock, no I/O, no threads; the same arguments give the same sequence on
//! every machine. Times are nanoseconds since the start of a run, sizes and link work are bytes, loads are
//! fractions of the link.
//!
//! The modules in the order of an experiment:
//!
//! 1. [`sizes`]: a heavy-tailed size distribution and a finite set of files that represents it; or a whole
//!    site, with popularity and temporal locality ([`surge`]).
//! 2. [`pattern`] and [`rate`]: the load over time, and the link.
//! 3. [`sequence`]: the requests, drawn from a seed, equal for every server that is compared. Or users and
//!    sessions that wait for responses ([`demand`]), each with its own behaviour ([`behaviour`]). Or a
//!    recorded log ([`trace`]).
//! 4. [`ideal`]: the same requests on an ideal link, shortest remaining first and shared equally.
//! 5. [`outcome`] and [`stats`]: the client's measurements, and statistics of them.
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
