//! The state of the uplink, for metrics.

use std::sync::atomic::Ordering;

use scheduler::{Rate, correction::Doubt, pace::Pace};

use super::Driver;

/// The state of the uplink, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct UplinkStats {
    /// The rate paced at, in bits per second of wire bytes; `None` while not paced.
    pub rate_bits_per_second: Option<u64>,
    /// Where the rate is found: that which the kernel holds the server's own device to, if it does.
    pub device_rate_bits_per_second: Option<u64>,
    /// Why the given rate cannot be true, if it cannot.
    pub rate_doubt: Option<Doubt>,
    /// Responses under way.
    pub jobs: usize,
    /// Responses waiting for leave.
    pub waiting: usize,
    /// Wire bytes charged so far.
    pub charged_bytes: u64,
    /// Grants so far.
    pub grants: u64,
    /// Responses put ahead by the guard so far.
    pub guarded: u64,
    /// Responses whose client took too little for a quarter of the write timeout, so far.
    pub stalled: u64,
    /// Stalled responses that were given up.
    pub given_up: u64,
    /// How often the pacer's timer has failed.
    pub timer_failures: u64,
}

impl Driver {
    /// The state of the uplink, for metrics.
    pub fn uplink_stats(&self) -> UplinkStats {
        let state = self.state.lock();
        let stats = state.machine.stats();
        UplinkStats {
            rate_bits_per_second: state.machine.settings().rate.map(Rate::bits_per_second),
            device_rate_bits_per_second: state.limit.filter(|_| self.estimates_rate()).map(Rate::bits_per_second),
            rate_doubt: state.pace.as_ref().and_then(Pace::doubt),
            jobs: stats.jobs,
            waiting: stats.waiting,
            charged_bytes: stats.charged_bytes,
            grants: stats.grants,
            guarded: stats.guarded,
            stalled: self.stalled.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            timer_failures: self.alarm.failures(),
        }
    }
}
