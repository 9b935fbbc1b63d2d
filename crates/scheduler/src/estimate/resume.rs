//! How the estimator and the machine that keeps a known rate take turns.

use super::{
    Estimator, NO_BOTTLENECK_BITS, PROBE_EVERY_NS, VERIFIES,
    beside::{self, Beside},
    phase::Phase,
};
use crate::{round_trips::RoundTrips, time::Instant, units::Rate};

impl Estimator {
    /// The rate of the link is known well, in bits per second.
    pub(crate) fn handle_known(&mut self, now: Instant, bits: f64) {
        self.is_new = false;
        self.beside.handle_known(now, bits);
    }

    /// What was known well was that of another link.
    pub(crate) fn forget_known(&mut self) {
        self.beside = Beside::default();
    }

    /// Packets have met what they meet of a far slower link than was known.
    pub(crate) fn doubt_known(&mut self) {
        self.beside.handle_slower();
    }

    /// Takes whether work waits.
    pub(crate) fn handle_backlog(&mut self, now: Instant, waits: bool) {
        self.beside.handle_backlog(now, waits);
    }

    /// Whether a far higher rate than this, in bits per second, was known well lately.
    pub(crate) fn knew_far_more(&self, now: Instant, bits: f64) -> bool {
        self.beside.knew_more(now, bits)
    }

    /// Whether this rate is probably too low, in bits per second. Either it was not known well, and work waits for long, or a
    /// far higher one was known well lately.
    pub(crate) fn is_too_low(&self, now: Instant, bits: f64, seen: &RoundTrips) -> bool {
        let knew_more = self.beside.knew_more(now, bits);
        let since_probe_ns = now.ns_since(self.last_probe);
        let waits_long = self.beside.waits_long(now) && since_probe_ns >= self.beside.try_after_ns();
        let starves = || {
            if seen.is_elsewhere(now) {
                self.beside.starves(now, self.estimate)
            } else {
                let grant_ns = seen.chunk_ns(Rate::clamped(bits));
                self.beside.starves_alone(now, self.estimate, grant_ns) && seen.are_clients_new(now)
            }
        };
        let believes_more = knew_more && self.beside.believed(now).is_some();
        let knows_more = believes_more && (waits_long || seen.is_surely_elsewhere(now));
        knows_more || self.is_back(now, bits, seen) || since_probe_ns >= self.probe_after_ns && starves()
    }

    /// The estimate, if it was measured and nothing is being measured.
    pub(crate) fn measured(&self) -> Option<f64> {
        let is_still = self.phase == Phase::Cruise && self.queue_since.is_none() && self.seen_still;
        (is_still && self.is_measured && self.estimate < NO_BOTTLENECK_BITS).then_some(self.estimate)
    }

    /// The rate of the search, in bits per second, while it goes on.
    pub(crate) fn searches_at(&self) -> Option<f64> {
        (self.phase == Phase::Search).then_some(self.estimate)
    }

    /// The estimate, in bits per second, after a search and while no queue is drained.
    pub(crate) fn found_bits(&self) -> Option<f64> {
        matches!(self.phase, Phase::Cruise | Phase::Probe { .. }).then_some(self.estimate)
    }

    /// Since when the queue showed in which the rate was measured last.
    pub(crate) fn congested_since(&self) -> Instant {
        self.congested_since
    }

    /// Gives away the round trips of the link. No more are seen here until they come back.
    pub(crate) fn lend(&mut self) -> RoundTrips {
        self.round_trips.set_rough(false);
        core::mem::take(&mut self.round_trips)
    }

    /// Goes on from a rate that was once true.
    pub(crate) fn resume(&mut self, now: Instant, known: f64) {
        (self.estimate, self.settled) = (known, known);
        (self.phase, self.is_measured, self.is_least) = (Phase::Cruise, false, false);
        (self.known, self.verifies) = (None, None);
        (self.probe_after_ns, self.last_probe) = (PROBE_EVERY_NS, now);
        self.queue_since = None;
        self.begin_round(now, 0);
    }

    /// Goes on from a rate that a queue has shown to be far too high since then. `shown`: the rate of the link in bits per
    /// second, if that queue has shown it.
    pub(crate) fn resume_with_queue(
        &mut self,
        now: Instant,
        sent_bytes: u64,
        known: f64,
        since: Instant,
        shown: Option<f64>,
        seen: RoundTrips,
    ) {
        self.resume(now, known);
        self.round_trips = seen;
        (self.queue_since, self.known, self.verifies_left) = (Some(since), Some(known), VERIFIES);
        if let Some(slope) = self.slope_if_full(now, since) {
            self.estimate = slope.bits.min(known);
        }
        self.drain(now, sent_bytes, self.round_trips.excess_ns(now, since));
        if let Phase::Drain(drain) = &mut self.phase {
            drain.shown = shown;
        }
    }

    /// Goes on from a rate that is probably too low.
    pub(crate) fn resume_with_probe(&mut self, now: Instant, sent_bytes: u64, known: f64, seen: RoundTrips) {
        self.resume(now, known);
        self.round_trips = seen;
        self.probe_from_here(now, sent_bytes);
    }

    /// Goes on from what was sent in a silence, in bits per second: the link has at least that.
    pub(crate) fn resume_after_silence(&mut self, now: Instant, sent_bytes: u64, least: f64, seen: RoundTrips) {
        self.resume_with_probe(now, sent_bytes, least, seen);
        self.is_least = true;
    }

    /// Tries more than a rate that is probably too low. Where a queue is surely of others, a higher rate that was known well
    /// holds again. Where the link has become far faster, probes look whether that rate holds.
    pub(crate) fn resume_with_try(&mut self, now: Instant, sent_bytes: u64, bits: f64, seen: RoundTrips) {
        let probe_after_ns = self.probe_after_ns;
        let well = self.beside.believed(now).filter(|_| seen.is_surely_elsewhere(now));
        let known = self.beside.well(now).filter(|_| self.is_back(now, bits, &seen));
        self.beside.handle_try(now, bits);
        self.resume(now, bits.max(well.unwrap_or(0.0)));
        (self.known, self.verifies_left) = (known, VERIFIES);
        (self.round_trips, self.probe_after_ns) = (seen, probe_after_ns);
        self.phase = Phase::Probe { gain: beside::GAIN };
        self.begin_round(now, sent_bytes);
    }
}
