//! What is known of the burst that the link lets pass at once, before its own rate holds.
//!
//! A sounding on such a link first has to use up the burst. If it does not, no queue shows, and the link looks like a faster
//! one.

use crate::{round_trips::RoundTrips, time::Instant, units::Rate};

/// The burst of a link, in bytes; 0 if none has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst(f64);

/// A packet that waits for less may have met no queue of the estimator.
const SEARCH_LEAST_NS: u64 = 5_000_000;
/// No queue has shown after so many times the burst: the link is faster.
const SURE: f64 = 1.3;
/// The weight of what was known, if less of a burst shows than that: if the link had saved up all of it, and otherwise.
const WEIGHT: f64 = 0.4;
const WEIGHT_UNSAVED: f64 = 0.98;
/// All of it is saved up but for this part, and for so many chunks that the pacer itself has at the link.
const MISSES: f64 = 0.1;
const MISSES_CHUNKS: u64 = 3;

impl Burst {
    /// The estimator has measured this rate, in bits per second, in a queue that has shown since then.
    pub fn handle_search(&mut self, now: Instant, known: f64, since: Instant, seen: &RoundTrips) {
        self.0 = seen.burst_bytes(known, since, now, SEARCH_LEAST_NS).map_or(self.0, |bytes| self.0.max(bytes));
    }

    /// A sounding began, and between two moments after that its packets waited for so long at least.
    pub fn handle_sounding(&mut self, known: f64, began: Instant, queue: (Instant, Instant, u64), seen: &RoundTrips) {
        let (from, until, least_ns) = queue;
        let Some(bytes) = seen.burst_bytes(known, from, until, least_ns) else { return };
        let rate = Rate::clamped(known);
        let own_bytes = rate.bytes_in(MISSES_CHUNKS * seen.chunk_ns(rate)) as f64;
        let was_saved = seen.ahead_bytes(known, began) < own_bytes + MISSES * self.0;
        let weight = if was_saved { WEIGHT } else { WEIGHT_UNSAVED };
        self.0 = bytes.max(self.0 + (1.0 - weight) * (bytes.max(0.0) - self.0));
    }

    /// The time in which a link of this rate carries what has to be sent beyond its rate, until a queue shows for sure.
    pub fn sure_ns(&self, now: Instant, known: Rate, seen: &RoundTrips) -> u64 {
        let left_bytes = SURE * self.0 - seen.ahead_bytes(known.bits_per_second() as f64, now);
        known.ns_for(left_bytes.max(0.0) as u64)
    }

    /// Whether so little was sent beyond this rate that no queue need have shown by then.
    pub fn explains(&self, known: f64, until: Instant, seen: &RoundTrips) -> bool {
        seen.ahead_bytes(known, until) < SURE * self.0
    }

    /// Whether the link may have a burst.
    pub fn is_known(&self) -> bool {
        self.0 > 0.0
    }
}
