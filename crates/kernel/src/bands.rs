//! The counters of the priority bands that `serpent attach` makes on a network device, and the numbers that fit a link of
//! a given rate.
//!
//! The bands are classes `5e7:1` to `5e7:8` of HTB, drained in strict order: a packet of band 3 leaves only when bands 0
//! to 2 are empty. Class `5e7:100` is the whole link, which has the rate. The queues are read by `tc` of iproute2, in the
//! network namespace of the calling thread.
//!
//! # Why HTB
//!
//! It shapes and orders in one: it chooses the packet at the moment when it may leave. Measured on Linux 6.18 with three
//! senders that each fill the link: the highest band got all of 10 and of 100 Mbit/s, and the others nothing. The
//! condition is that a band's own guaranteed rate is next to nothing. It is 128 bit/s here; at the customary 8 kbit/s each
//! starved band leaks 9 kbit/s. Only band 0 owns the whole rate: a ping beside a full band 7 at 10 Mbit/s then takes 0.05
//! ms instead of 0.9 ms.

mod error;
pub mod link;
mod show;
mod tool;

pub use error::BandsError;
pub use show::{BandShown, Shown, show};
