//! Admission to the site: which requests wait, and which may go in. [`scheduler::admission::Admission`]
//! decides; this module drives it.
//!
//! Any thread with an event (a request arrived, the site has finished one, a client is gone) tells the
//! scheduler and carries out the decisions. It does so under a lock that is never held over I/O or a wake-up.
//! When only time passes, the alarm fires in the task that runs [`Admission::drive`].
//!
//! A decision for a waiting request is stored in its ticket until its future is polled. If the future is
//! dropped before that, it returns its slot, so that no slot is lost.

mod driver;
mod handle;
mod leases;
mod membership;
mod request;
mod routes;
mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod windows;

pub use self::{
    handle::{Admission, Enter, Probe, ServiceTimes, Slot},
    membership::LeaseStats,
    request::{Arrival, Refused},
    settings::Contradiction,
    stats::{ResourceStats, Stats},
    windows::Adjusted,
};
