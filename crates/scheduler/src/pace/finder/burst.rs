//! The burst that a link lets pass at once, before its own rate holds, as far as queues have shown it.
//!
//! A sounding first has to use up the burst. Otherwise no queue shows, and the link looks like a faster one. How many
//! bytes a burst has is worked out from round trips ([`RoundTrips::burst_bytes`]).

use crate::{
    round_trips::RoundTrips,
    time::{Instant, MS},
    units::Rate,
};

/// The burst of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// 0 if none has shown.
    bytes: f64,
    /// Soundings in a row that have shown none, though the link had saved up all that it can.
    none_shown: u32,
    /// The link has had its rate since then.
    since: Instant,
}

/// A packet that waits for less may have met no queue of the estimator.
const SEARCH_LEAST_NS: u64 = 5 * MS;
/// No queue has shown after so many times the burst, or after so long a time of the link: the link is faster.
const SURE: f64 = 1.3;
const SURE_MOST_NS: u64 = 300 * MS;
/// The weight of what was known, if less of a burst shows than that: if the link had saved up all of it, and otherwise.
const WEIGHT: f64 = 0.4;
const WEIGHT_UNSAVED: f64 = 0.98;
/// All of it is saved up but for this part, and for so many chunks that the pacer itself has at the link.
const MISSES: f64 = 0.1;
const MISSES_CHUNKS: u64 = 3;
/// The part of a burst that is still believed after a sounding without a queue. Jitter can make one that is none.
const UNSEEN: f64 = 0.85;
/// After so many soundings without a burst, the queue of a search tells nothing of one. A search knows the rate to a few
/// percent, and what the link carries beyond a rate that is too low looks like a burst.
const NONE_SHOWN_LEAST: u32 = 3;

impl Burst {
    /// The estimator has measured this rate, in bits per second, in a queue that has shown since then. The link had that rate
    /// already before.
    pub fn handle_search(&mut self, now: Instant, known: f64, queue_since: Instant, seen: &RoundTrips) {
        self.since = Instant::ORIGIN;
        if self.none_shown < NONE_SHOWN_LEAST {
            let bytes = seen.burst_bytes(known, self.since, (queue_since, now), SEARCH_LEAST_NS);
            self.bytes = self.bytes.max(bytes.unwrap_or(0.0));
        }
    }

    /// The link has another rate now.
    pub fn handle_change(&mut self, now: Instant) {
        self.since = now;
    }

    /// A sounding began, and between two moments after that its packets waited for so long at least.
    pub fn handle_sounding(
        &mut self,
        known: f64,
        began: Instant,
        queue: (Instant, Instant),
        least_ns: u64,
        seen: &RoundTrips,
    ) {
        let Some(bytes) = seen.burst_bytes(known, self.since, queue, least_ns) else { return };
        let rate = Rate::clamped(known);
        let own_bytes = rate.bytes_in(MISSES_CHUNKS * seen.chunk_ns(rate)) as f64;
        let was_saved = seen.ahead_bytes(known, self.since, began) < own_bytes + MISSES * self.bytes;
        let weight = if was_saved { WEIGHT } else { WEIGHT_UNSAVED };
        self.bytes = bytes.max(self.bytes + (1.0 - weight) * (bytes.max(0.0) - self.bytes));
        self.none_shown = if self.bytes < own_bytes { self.none_shown + u32::from(was_saved) } else { 0 };
    }

    /// A sounding that had not used up the burst saw no queue.
    pub fn handle_unseen(&mut self) {
        self.bytes *= UNSEEN;
    }

    /// The time in which a link of this rate carries what has to be sent beyond its rate, until a queue shows for sure.
    pub fn sure_ns(&self, now: Instant, known: Rate, seen: &RoundTrips) -> u64 {
        let bits = known.bits_per_second() as f64;
        let left_bytes = self.sure_bytes(bits) - seen.ahead_bytes(bits, self.since, now);
        known.ns_for(left_bytes.max(0.0) as u64)
    }

    /// Whether so little was sent beyond this rate that no queue need have shown by then.
    pub fn explains(&self, known: f64, until: Instant, seen: &RoundTrips) -> bool {
        seen.ahead_bytes(known, self.since, until) < self.sure_bytes(known)
    }

    /// Whether the link may have a burst.
    pub fn is_known(&self) -> bool {
        self.bytes > 0.0
    }

    /// The bytes that it probably has.
    pub fn bytes(&self) -> f64 {
        self.bytes
    }

    fn sure_bytes(&self, known: f64) -> f64 {
        (SURE * self.bytes).min(Rate::clamped(known).bytes_in(SURE_MOST_NS) as f64)
    }
}
