//! Estimates the rate of the bottleneck link from nothing, and follows its large changes. [`crate::pace`] uses it until the
//! rate is known well enough to be kept without its probes.
//!
//! The intuition: when an acknowledgement arrives after a round trip of `r`, all bytes sent more than `r` ago
//! have passed the bottleneck. So every round-trip sample at time `t` is a point on the curve of delivered
//! bytes, `delivered(t) = sent(t - r)`. This holds on any connection and needs no knowledge of the path's own
//! delay. While the bottleneck has a queue, the slope of that curve is the bottleneck's rate. Without a queue
//! the slope is only the sending rate. Then the rate can only be found by sending slightly more than the
//! estimate for a moment, until a queue shows.
//!
//! A queue shows as a round trip longer than the shortest one of the same client or its neighbours, and than is usual
//! there without a queue.
//!
//! The four phases follow BBR (Cardwell et al., "BBR: congestion-based congestion control", 2016), but for
//! the whole uplink and not for one connection:
//!
//! - **Search**: from nothing, the rate doubles after every round trip in which it was used up and no queue
//!   showed. So it does if one seemed to show, but the link carried all of it.
//! - **Cruise**: slightly below the estimate, so that no queue stands at the bottleneck and the scheduler
//!   decides the order.
//! - **Probe**: every few seconds while work waits, a tenth more. Without a queue, the higher rate becomes
//!   the estimate and the probe goes on. With a queue, the slope becomes the estimate.
//! - **Drain**: below the estimate until the queue is gone, or shows that it is none of the link (`drain.rs`).
//!
//! Beside a queue of others, a probe is judged by what the link carries of it. What it sent in vain is worked off then
//! (`beside.rs`).
//!
//! In a search, and while it cruises at a rate that was not measured, it also looks which link would make the queue that
//! packets meet (`round_trips/fit.rs`). That finds the rate where a queue comes and goes quickly.
//!
//! Only busy periods teach anything; in idle periods the estimate stays.

mod beside;
mod phase;
mod resume;

use self::{
    beside::Beside,
    phase::{Phase, Round},
};
pub use crate::round_trips::{RoundTrip, RttKind, are_prompt, round_trip_of_means};
use crate::{
    drain::{Cause, Drain, GAIN, GAIN_LEAST, Left, ROUND_NS},
    round_trips::{Load, Look, Looks, RoundTrips, Slope, Whose},
    time::{Instant, MS},
    units::Rate,
};

/// The estimator. See the head of this module.
#[derive(Clone, Debug)]
pub struct Estimator {
    /// The fraction of the estimate that is used while cruising.
    utilisation: f64,
    /// The estimated rate of the bottleneck, in bits per second.
    estimate: f64,
    /// The estimate before the current probe, or before the queue that is being drained.
    settled: f64,
    /// When the queue that is being drained first showed.
    congested_since: Instant,
    phase: Phase,
    round: Round,
    probe_after_ns: u64,
    last_probe: Instant,
    next_turn: Instant,
    round_trips: RoundTrips,
    /// Whether the estimate is that of a queue that has been worked off.
    is_measured: bool,
    /// Whether the estimate is what was sent in a silence: it may be far too low already.
    is_least: bool,
    /// Whether the rate of this link was never known well.
    is_new: bool,
    /// Whether the last round trips met no queue.
    seen_still: bool,
    /// Since when a queue has shown without a break.
    queue_since: Option<Instant>,
    /// The rate that was sent when the queue showed that is being drained, and a little more.
    most: f64,
    /// Whether that queue ended a search.
    searches: bool,
    /// The rate that was known until that queue showed a far slower link, or that may hold again.
    known: Option<f64>,
    /// While probes look whether that rate still holds: the queue may have been elsewhere.
    verifies: Option<Verifies>,
    /// How often they may look.
    verifies_left: u32,
    beside: Beside,
    looks: Looks,
}

/// Start rate of the search. A home uplink survives the first round at it, and 4 Gbit/s is nine rounds away.
const SEARCH_FROM_BITS: f64 = 8e6;
/// From this rate on, pacing is not worth its cost.
pub(crate) const NO_BOTTLENECK_BITS: f64 = 40e9;
const SEARCH_GAIN: f64 = 2.0;
/// How long the search waits, once a queue shows, for enough samples to measure the rate.
const SEARCH_PATIENCE_NS: u64 = 1_000 * MS;
const PROBE_GAIN: f64 = 1.1;
const PROBE_GAIN_MAX: f64 = 1.8;
/// The gain of the probe that follows a rate far below the one before, at most.
const VERIFIES_MOST: f64 = 1.5;
/// Such a probe may follow so many queues in a row.
const VERIFIES: u32 = 2;
/// Time to the next probe: short while little is known, longer the longer the estimate holds, up to the
/// second value.
const PROBE_EVERY_NS: u64 = 300 * MS;
const PROBE_EVERY_MAX_NS: u64 = 4_000 * MS;
/// A round trip with a longer excess did not meet an idle uplink, whatever the pacer's model says.
const IDLE_QUEUE_NS: u64 = 6 * MS;
/// Least time between two decisions.
const TURN_NS: u64 = 5 * MS;
/// A probe lasts until it would have made a queue this long: several times the noise. A short probe with a
/// high gain would make the same queue, but its few samples do not show the slope.
const PROBE_QUEUE_NS: u64 = 15 * MS;
/// Where chunks take long, it is longer, so that it shows. But a rate that is far too low must be left soon.
const PROBE_QUEUE_MOST_NS: u64 = 40 * MS;
/// It lasts at least so long, and so many chunks: with fewer, the rate may seem not to be used up.
const PROBE_LEAST_NS: u64 = 60 * MS;
const PROBE_LEAST_CHUNKS: u64 = 5;
/// Samples of a queue over this time are enough to measure a rate.
const SLOPE_LEAST_NS: u64 = 40 * MS;
/// A shorter queue counts as noise.
const QUEUE_MIN_NS: u64 = 2 * MS;
/// A measurement within this range of the old estimate corrects it; one outside replaces it.
const SAME: core::ops::Range<f64> = 0.85..1.15;
/// Weight of a measurement that corrects the estimate.
const CORRECTION: f64 = 0.4;
/// A queue of this length is worked off before anything else.
const LONG_QUEUE_NS: u64 = 100 * MS;
/// Outside of probes, a queue must show for this long to be believed.
const QUEUE_BELIEVED_NS: u64 = 60 * MS;

/// A queue has shown a far lower rate than was known. Probes look whether the link still has that one.
#[derive(Clone, Copy, Debug)]
struct Verifies {
    /// The rate that was known, in bits per second.
    before: f64,
    /// The rate that the queue has shown.
    shown: f64,
}

impl Estimator {
    /// Makes an estimator without any knowledge. `utilisation` is the fraction of the estimate to use.
    pub fn new(utilisation: f64) -> Self {
        Self {
            utilisation,
            estimate: SEARCH_FROM_BITS,
            settled: SEARCH_FROM_BITS,
            congested_since: Instant::ORIGIN,
            phase: Phase::Search,
            round: Round { began: Instant::ORIGIN, sent_bytes: 0 },
            probe_after_ns: PROBE_EVERY_NS,
            last_probe: Instant::ORIGIN,
            next_turn: Instant::ORIGIN,
            round_trips: RoundTrips::default(),
            is_measured: false,
            is_least: false,
            is_new: true,
            seen_still: false,
            queue_since: None,
            most: f64::MAX,
            searches: false,
            known: None,
            beside: Beside::default(),
            looks: Looks::default(),
            verifies: None,
            verifies_left: 0,
        }
    }

    /// The rate to send at now; `None` where pacing is not worth its cost.
    pub fn rate(&self) -> Option<Rate> {
        let bits = match self.phase {
            Phase::Search => self.estimate,
            Phase::Cruise => self.estimate * self.utilisation,
            Phase::Repays { .. } => self.estimate * GAIN_LEAST,
            Phase::Probe { gain } | Phase::Drain(Drain { gain, .. }) => self.estimate * gain,
        };
        (bits < NO_BOTTLENECK_BITS).then(|| Rate::clamped(bits))
    }

    /// The current phase as one word, for logs.
    pub fn phase_name(&self) -> &'static str {
        self.phase.name()
    }

    /// The recent length of the queue at the bottleneck, as far as round trips show it.
    pub fn queue(&self, now: Instant) -> Option<core::time::Duration> {
        self.queue_ns(now).map(core::time::Duration::from_nanos)
    }

    /// Takes a round trip.
    pub fn handle_round_trip(&mut self, now: Instant, round_trip: RoundTrip, load: Load) {
        self.round_trips.handle_load(now, load);
        self.round_trips.set_rough(!self.is_measured);
        let idle_most_ns = if matches!(self.phase, Phase::Cruise) { IDLE_QUEUE_NS } else { 0 };
        self.round_trips.handle_round_trip(now, round_trip, idle_most_ns);
    }

    /// Decides whether the rate changes; returns true if [`Estimator::rate`] has changed. Call from time to
    /// time while there is traffic.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        self.round_trips.handle_load(now, load);
        if now < self.next_turn {
            return false;
        }
        self.next_turn = now.add_ns(TURN_NS);
        let (sent_bytes, backlogged) = (load.sent_bytes, load.waits);
        let before = self.rate();
        let queue_ns = self.queue_ns(now);
        let limit_ns = match self.phase {
            Phase::Cruise => self.queue_limit_ns(now).max(self.round_trips.elsewhere_ns(now)),
            _ => self.queue_limit_ns(now),
        };
        match queue_ns {
            Some(queue_ns) if queue_ns > limit_ns => self.queue_since = self.queue_since.or(Some(now)),
            Some(_) => self.queue_since = None,
            None => {}
        }
        self.seen_still = queue_ns.is_some_and(|queue_ns| queue_ns <= limit_ns);
        if matches!(self.phase, Phase::Search | Phase::Cruise) && !self.is_measured {
            self.look(now, sent_bytes);
        }
        self.decide(now, sent_bytes, backlogged, queue_ns);
        self.rate() != before
    }

    /// Looks which rate fits what packets meet, and takes that for measured.
    fn look(&mut self, now: Instant, sent_bytes: u64) {
        let look = self.looks.rate(now, &self.round_trips, Instant::ORIGIN, self.estimate, 0.0);
        if let Some(Look::Clear(slope) | Look::Slower(slope) | Look::Faint(slope)) = look {
            let bits = slope.bits;
            if matches!(look, Some(Look::Slower(_))) {
                self.beside.handle_slower();
            }
            (self.estimate, self.settled, self.is_measured, self.is_least) = (bits, bits, true, false);
            (self.phase, self.searches, self.verifies, self.congested_since) = (Phase::Cruise, false, None, now);
            self.begin_round(now, sent_bytes);
        }
    }

    /// The part of the estimate that is sent after this one in a silence.
    fn deeper(&self, gain: f64) -> f64 {
        RoundTrips::deeper(if self.is_least { 1.0 } else { gain })
    }

    /// The estimate is probably too low.
    fn probe_from_here(&mut self, now: Instant, sent_bytes: u64) {
        (self.settled, self.is_measured, self.searches, self.queue_since) = (self.estimate, false, false, None);
        (self.phase, self.last_probe) = (Phase::Probe { gain: PROBE_GAIN }, now);
        self.begin_round(now, sent_bytes);
    }

    fn decide(&mut self, now: Instant, sent_bytes: u64, backlogged: bool, queue_ns: Option<u64>) {
        let shows = self.queue_since.is_some();
        let elapsed_ns = now.ns_since(self.round.began);
        let is_elsewhere = self.round_trips.is_elsewhere(now);
        let lasts_ns = match self.phase {
            Phase::Probe { gain } => {
                let chunks_ns = PROBE_LEAST_CHUNKS * self.round_trips.chunk_ns(Rate::clamped(self.estimate * gain));
                let least_ns = if is_elsewhere || self.verifies.is_some() { beside::LASTS_NS } else { PROBE_LEAST_NS };
                least_ns.max(chunks_ns).max((self.probe_queue_ns(now) as f64 / (gain - 1.0)) as u64)
            }
            _ => ROUND_NS,
        };
        let over = elapsed_ns >= lasts_ns + self.rtt_ns() * 5 / 4;
        let used_up = self.used_up(now, sent_bytes);
        let by_bytes = is_elsewhere || shows && self.verifies.is_some();
        match self.phase {
            Phase::Search | Phase::Probe { .. } | Phase::Repays { .. } | Phase::Cruise
                if self.round_trips.is_silent(now) =>
            {
                self.settled = self.estimate;
                self.congested_since = self.queue_since.unwrap_or(now);
                let queue_ns = self.round_trips.last_excess_ns().unwrap_or(0);
                self.drain_at(now, sent_bytes, queue_ns, self.deeper(1.0), Cause::Silence);
            }
            Phase::Search if shows => {
                // If the link carries all of it, what shows is jitter. Less than a round does not tell.
                let slope = self.congested_slope(now);
                let since = self.queue_since.unwrap_or(now);
                let is_jitter = slope.is_some_and(|slope| self.round_trips.is_jitter(now, since, slope));
                let carried_all = used_up && (is_jitter || self.carried_all(now, sent_bytes));
                if carried_all && over {
                    self.queue_since = None;
                    self.search_on(now, sent_bytes);
                } else if let Some(slope) = slope.filter(|_| over && !carried_all) {
                    (self.settled, self.searches) = (self.estimate, true);
                    self.estimate = slope.bits;
                    self.last_probe = now;
                    self.drain(now, sent_bytes, queue_ns);
                } else if elapsed_ns >= SEARCH_PATIENCE_NS
                    && let Some(carried) =
                        self.round_trips.carried_by_tcp(now).filter(|bits| *bits < self.estimate / SEARCH_GAIN)
                {
                    (self.settled, self.searches) = (self.estimate, true);
                    self.estimate = carried;
                    self.last_probe = now;
                    self.drain(now, sent_bytes, None);
                } else if elapsed_ns >= SEARCH_PATIENCE_NS {
                    // Too little traffic to measure anything.
                    self.queue_since = None;
                    self.begin_round(now, sent_bytes);
                }
            }
            Phase::Probe { gain } if by_bytes => {
                if over {
                    self.end_probe_by_bytes(now, sent_bytes, gain);
                }
            }
            Phase::Repays { until } if now >= until => {
                self.phase = Phase::Cruise;
                self.begin_round(now, sent_bytes);
            }
            Phase::Probe { .. } if shows => {
                let long = queue_ns.is_some_and(|queue_ns| queue_ns > 3 * self.probe_queue_ns(now));
                if over || long {
                    // The exact rate is known when the queue is gone. Only an estimate that is far off is
                    // replaced at once.
                    let rough = self.congested_slope(now).map(|slope| slope.bits);
                    self.estimate =
                        rough.filter(|rough| !SAME.contains(&(rough / self.settled))).unwrap_or(self.settled);
                    self.probe_after_ns = (self.probe_after_ns * 2).min(PROBE_EVERY_MAX_NS);
                    self.last_probe = now;
                    self.drain(now, sent_bytes, queue_ns);
                }
            }
            Phase::Search if over && used_up && self.has_seen(now) => self.search_on(now, sent_bytes),
            Phase::Search if over => self.begin_round(now, sent_bytes),
            Phase::Probe { gain } if over => {
                self.last_probe = now;
                if used_up && self.has_seen(now) {
                    // The link carried the probe without a queue, so it has at least that rate. The next
                    // probe is faster.
                    self.estimate = (self.estimate * gain).min(NO_BOTTLENECK_BITS);
                    self.settled = self.estimate;
                    self.probe_after_ns = PROBE_EVERY_NS;
                    self.is_measured = self.verifies.is_some_and(|it| self.estimate >= it.before * SAME.start);
                    if self.is_measured {
                        (self.phase, self.verifies) = (Phase::Cruise, None);
                    } else {
                        self.phase = Phase::Probe { gain: (1.0 + (gain - 1.0) * 2.0).min(PROBE_GAIN_MAX) };
                    }
                } else {
                    (self.phase, self.verifies) = (Phase::Cruise, None);
                }
                self.begin_round(now, sent_bytes);
            }
            Phase::Cruise => {
                let believed = self.queue_since.filter(|since| now.ns_since(*since) >= QUEUE_BELIEVED_NS);
                let whose =
                    believed.map(|since| self.round_trips.whose(now, since, queue_ns.unwrap_or(0), self.estimate));
                if whose == Some(Whose::Others) {
                    self.queue_since = None;
                }
                if whose == Some(Whose::Ours) {
                    self.settled = self.estimate;
                    // Only an estimate that is far off is replaced at once. A queue that stands while the
                    // uplink sends less than the link carries comes from other traffic.
                    if let Some(Slope { bits: slope, .. }) = self.congested_slope(now)
                        && slope < self.estimate * SAME.start
                        && used_up
                    {
                        self.estimate = slope;
                    }
                    self.drain(now, sent_bytes, queue_ns);
                } else if !shows && backlogged && self.is_probe_due(now, is_elsewhere) {
                    self.last_probe = now;
                    self.settled = self.estimate;
                    self.phase = Phase::Probe { gain: if is_elsewhere { beside::GAIN } else { PROBE_GAIN } };
                    self.begin_round(now, sent_bytes);
                } else if over {
                    self.begin_round(now, sent_bytes);
                }
            }
            Phase::Drain(drain) => {
                let is_gone = queue_ns.is_some_and(|queue_ns| queue_ns <= self.queue_limit_ns(now) / 2)
                    && elapsed_ns >= self.rtt_ns();
                let told_ns = queue_ns.or_else(|| self.round_trips.last_queue_since(now, drain.tells_from(), false));
                if !is_gone && now >= drain.until && self.round_trips.is_silent(now) {
                    let (queue_ns, gain) = (drain.queue_ns.max(elapsed_ns), self.deeper(drain.gain));
                    self.drain_at(now, sent_bytes, queue_ns, gain, Cause::Silence);
                } else if let Some(left) = drain.left(now, &self.round_trips, is_gone, told_ns, queue_ns) {
                    self.end_drain(now, sent_bytes, drain, left);
                }
            }
            Phase::Search | Phase::Probe { .. } | Phase::Repays { .. } => {}
        }
    }

    fn end_drain(&mut self, now: Instant, sent_bytes: u64, drain: Drain, left: Left) {
        let sent_in_round_bytes = sent_bytes.saturating_sub(self.round.sent_bytes);
        let seen = &self.round_trips;
        // From the first sign of the queue to its end.
        let shown = self.slope_if_full(now, drain.since).map(|slope| slope.bits);
        if drain.cause == Cause::Silence {
            // Much of what passed was sent again, so the slope may be far too low.
            self.estimate = shown.unwrap_or(0.0).max(self.estimate * drain.gain);
            self.is_least = true;
            self.probe_from_here(now, sent_bytes);
            return;
        }
        let carried_all = seen.carried_all(now, drain.began, sent_in_round_bytes);
        if let Some(next) = drain.next(now, seen, left, self.estimate, shown, carried_all) {
            self.phase = Phase::Drain(next);
            self.begin_round(now, sent_bytes);
            return;
        }
        // A link that is faster than what was sent has no queue.
        let shown = shown.or(drain.shown).map(|shown| shown.min(self.most));
        let well = self.beside.believed(now);
        let shows_others = shown
            .zip(well)
            .is_some_and(|(shown, well)| drain.shows_others(now, seen, shown, self.settled, self.settled.max(well)));
        let is_elsewhere = shows_others || drain.is_elsewhere(seen, left);
        let refuted = shown.and_then(|shown| drain.refuted_by(now, seen, left, sent_in_round_bytes, shown));
        if is_elsewhere {
            let is_sure = shows_others || drain.is_surely_elsewhere(left);
            self.round_trips.learn_paths(now, drain.began, drain.queue_ns, well.is_some() && is_sure);
            self.estimate = self.settled.max(well.filter(|_| is_sure).unwrap_or(0.0));
        } else if let Some(least) = refuted {
            self.estimate = least.min(self.settled);
        } else if let Some(shown) = shown {
            let same = SAME.contains(&(shown / self.settled));
            if !same {
                self.probe_after_ns = PROBE_EVERY_NS;
            }
            (self.is_measured, self.is_least, self.searches) = (true, false, false);
            self.estimate = if same { self.settled + CORRECTION * (shown - self.settled) } else { shown };
            if !matches!(left, Left::Much { .. })
                && let Some(before) = self.known.filter(|before| shown < before * SAME.start)
                && self.verifies_left > 0
            {
                self.verifies_left -= 1;
                // The queue may have been elsewhere, and then the link still has its rate.
                self.probe_from_here(now, sent_bytes);
                self.verifies = Some(Verifies { before, shown });
                self.phase = Phase::Probe { gain: (before / shown).min(VERIFIES_MOST) };
                return;
            }
        } else if left != Left::Nothing
            && let Some(left_ns) = self.round_trips.last_excess_ns()
            && left_ns > LONG_QUEUE_NS.max(if drain.gain > GAIN_LEAST { drain.queue_ns / 2 } else { drain.queue_ns })
        {
            // So much was too much, and what came back did not show how much.
            let (gain, cause) = match drain.gain > GAIN_LEAST {
                true => (GAIN_LEAST, Cause::Shows),
                false => (self.deeper(drain.gain), Cause::Silence),
            };
            self.drain_at(now, sent_bytes, left_ns, gain, cause);
            return;
        }
        let was_none = is_elsewhere || refuted.is_some();
        self.phase = if was_none && self.searches { Phase::Search } else { Phase::Cruise };
        (self.settled, self.searches, self.queue_since) = (self.estimate, false, None);
        self.begin_round(now, sent_bytes);
    }

    /// Whether it is time for a probe, beside a queue of others or not.
    fn is_probe_due(&self, now: Instant, is_elsewhere: bool) -> bool {
        let may = !is_elsewhere || self.beside.starves(now, self.estimate);
        let is_time = now.ns_since(self.last_probe) >= self.probe_after_ns;
        may && (is_time || self.is_back(now, self.estimate, &self.round_trips))
    }

    /// Whether a far higher rate than this, in bits per second, was known well lately, and holds again.
    fn is_back(&self, now: Instant, bits: f64, seen: &RoundTrips) -> bool {
        self.beside.knew_more(now, bits)
            && now.ns_since(self.last_probe) >= PROBE_EVERY_NS
            && seen.is_far_faster(now, bits)
    }

    /// A probe ends, and queues do not tell: what the link has carried does.
    fn end_probe_by_bytes(&mut self, now: Instant, sent_bytes: u64, gain: f64) {
        self.last_probe = now;
        let slope = self.round_trips.slope_between(self.round.began, now);
        let carried = slope.map_or(0.0, |slope| slope.bits - slope.error);
        if carried > self.estimate * (1.0 + gain) / 2.0 {
            self.estimate = carried.min(self.estimate * gain);
            self.settled = self.estimate;
            self.probe_after_ns = PROBE_EVERY_NS;
            if self.verifies.is_some_and(|it| self.estimate >= it.before * SAME.start) {
                (self.phase, self.verifies, self.is_measured) = (Phase::Cruise, None, true);
            }
        } else {
            let sent = self.estimate * gain;
            if let Some(Verifies { shown, .. }) = self.verifies.filter(|_| self.queue_since.is_some()) {
                // Earlier steps may have filled a queue that did not show yet.
                self.estimate = carried.clamp(shown.min(self.estimate), self.estimate);
                self.settled = self.estimate;
            }
            (self.verifies, self.is_measured) = (None, true);
            self.probe_after_ns = (self.probe_after_ns * 2).min(PROBE_EVERY_MAX_NS);
            let excess_ns = (sent / self.estimate - 1.0) * now.ns_since(self.round.began) as f64;
            self.phase = Phase::Repays { until: now.add_ns((excess_ns / (1.0 - GAIN_LEAST)) as u64) };
        }
        self.begin_round(now, sent_bytes);
    }

    fn search_on(&mut self, now: Instant, sent_bytes: u64) {
        self.estimate = (self.estimate * SEARCH_GAIN).min(NO_BOTTLENECK_BITS);
        self.begin_round(now, sent_bytes);
    }

    fn drain(&mut self, now: Instant, sent_bytes: u64, queue_ns: Option<u64>) {
        let queue_ns = queue_ns.or_else(|| self.round_trips.last_excess_ns()).unwrap_or(0);
        let gain = if queue_ns > 10 * self.queue_limit_ns(now) { GAIN_LEAST } else { GAIN };
        let sent_gain = if let Phase::Probe { gain } = self.phase { gain } else { 1.0 };
        (self.most, self.verifies) = (self.settled * sent_gain * SAME.end, None);
        self.congested_since = self.queue_since.unwrap_or(now);
        self.drain_at(now, sent_bytes, queue_ns, gain, Cause::Shows);
    }

    fn drain_at(&mut self, now: Instant, sent_bytes: u64, queue_ns: u64, gain: f64, cause: Cause) {
        self.phase = Phase::Drain(Drain::new(now, &self.round_trips, queue_ns, self.congested_since, gain, cause));
        self.begin_round(now, sent_bytes);
    }

    fn begin_round(&mut self, now: Instant, sent_bytes: u64) {
        self.round = Round { began: now, sent_bytes };
    }

    /// Whether the allowed rate was really sent, so that the round says something about the link.
    fn used_up(&self, now: Instant, sent_bytes: u64) -> bool {
        let elapsed_ns = now.ns_since(self.round.began);
        let sent_bits = sent_bytes.saturating_sub(self.round.sent_bytes) as f64 * 8.0;
        let allowed_bits = self.rate().map_or(f64::MAX, |rate| rate.bits_per_second() as f64) * elapsed_ns as f64 / 1e9;
        sent_bits >= allowed_bits * 0.85
    }

    /// Whether a round trip was measured in the second half of this round. On a slow link few are, and the last moments may
    /// have none.
    fn has_seen(&self, now: Instant) -> bool {
        self.round_trips.has_since(self.round.began.add_ns(now.ns_since(self.round.began) / 2))
    }

    /// The excess of recent round trips over the path alone, as a median.
    fn queue_ns(&self, now: Instant) -> Option<u64> {
        self.round_trips.excess_ns(now, self.round.began)
    }

    /// Shortest excess that counts as a queue: two chunks may be on their way at any time.
    fn queue_limit_ns(&self, now: Instant) -> u64 {
        let rate = Rate::clamped(self.estimate);
        let chunk_ns = self.round_trips.chunk_ns(rate);
        QUEUE_MIN_NS.max(2 * chunk_ns).max(self.round_trips.level_ns(now) / 2)
    }

    /// The queue that a probe makes.
    fn probe_queue_ns(&self, now: Instant) -> u64 {
        let shows_ns = (self.queue_limit_ns(now) * 3 / 2).min(PROBE_QUEUE_MOST_NS);
        PROBE_QUEUE_NS.max(shows_ns).max(self.round_trips.level_ns(now))
    }

    /// A typical round trip without a queue.
    fn rtt_ns(&self) -> u64 {
        self.round_trips.rtt_ns()
    }

    /// The bottleneck's rate by the queue that shows now, if the queue is old enough.
    fn congested_slope(&self, now: Instant) -> Option<Slope> {
        let since = self.queue_since.filter(|since| now.ns_since(*since) >= SLOPE_LEAST_NS)?;
        self.slope_if_full(now, since)
    }

    /// The bottleneck's rate since then, if it was busy all the time, or else while packets waited for the longest.
    fn slope_if_full(&self, now: Instant, since: Instant) -> Option<Slope> {
        let seen = &self.round_trips;
        let slope = seen.slope_if_full(now, since, self.queue_limit_ns(now) / 4)?;
        // Where little is known, a slope may be that of a link that was idle in between.
        let carried = seen.carried_bits(now).filter(|_| self.is_new);
        let slope = Slope { bits: slope.bits.max(carried.unwrap_or(0.0)), ..slope };
        (slope.bits >= Rate::MIN.bits_per_second() as f64).then_some(slope)
    }

    /// Whether the link has carried all that was sent in this round.
    fn carried_all(&self, now: Instant, sent_bytes: u64) -> bool {
        let sent_in_round_bytes = sent_bytes.saturating_sub(self.round.sent_bytes);
        self.round_trips.carried_all(now, self.round.began, sent_in_round_bytes)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;

    /// A link with a queue, more work than it can carry, and a client 200 us away that opens connections at
    /// random.
    struct World {
        now: Instant,
        estimator: Estimator,
        link_bits: f64,
        offered_bits: f64,
        queue_bits: f64,
        sent_bits: f64,
        base_ns: u64,
        /// Round trips under way, with the time at which they will be measured.
        under_way: VecDeque<(Instant, u64)>,
        seed: u64,
        worst_queue_ns: u64,
        /// A connection begins once in so many steps of 0.2 ms.
        apart: u64,
        /// Each round trip is longer by up to this: a packet of other traffic in front, or jitter.
        noise_ns: u64,
    }

    impl World {
        fn new(link_bits: f64, base_ns: u64) -> Self {
            Self {
                now: Instant::from_ns(MS),
                estimator: Estimator::new(0.97),
                link_bits,
                offered_bits: f64::MAX,
                queue_bits: 0.0,
                sent_bits: 0.0,
                base_ns,
                under_way: VecDeque::new(),
                seed: 1,
                worst_queue_ns: 0,
                apart: 20,
                noise_ns: 1_500_000,
            }
        }

        fn random(&mut self, below: u64) -> u64 {
            // SplitMix64
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % below
        }

        fn run(&mut self, ms: u64) {
            const STEP_NS: u64 = 200_000;
            for _ in 0..ms * MS / STEP_NS {
                self.now = self.now.add_ns(STEP_NS);
                let step = STEP_NS as f64 / 1e9;
                let pace = self.estimator.rate().map_or(1e12, |rate| rate.bits_per_second() as f64);
                let backlogged = self.offered_bits > pace;
                self.sent_bits += pace.min(self.offered_bits) * step;
                self.queue_bits += (pace.min(self.offered_bits) - self.link_bits) * step;
                self.queue_bits = self.queue_bits.max(0.0);
                let queue_ns = (self.queue_bits / self.link_bits * 1e9) as u64;
                self.worst_queue_ns = self.worst_queue_ns.max(queue_ns);
                if self.random(self.apart) == 0 {
                    let rtt_ns = self.base_ns + queue_ns + self.random(self.noise_ns);
                    self.under_way.push_back((self.now.add_ns(rtt_ns), rtt_ns));
                    self.under_way.make_contiguous().sort_unstable();
                }
                let load = Load {
                    sent_bytes: (self.sent_bits / 8.0) as u64,
                    room_at: self.now,
                    waits: backlogged,
                    chunk_bytes: 2 * 1448,
                };
                while self.under_way.front().is_some_and(|(at, _)| *at <= self.now) {
                    let (_, rtt_ns) = self.under_way.pop_front().unwrap();
                    self.estimator.handle_round_trip(
                        self.now,
                        RoundTrip { path: 7, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 },
                        load,
                    );
                }
                self.estimator.handle_turn(self.now, load);
            }
        }

        fn error(&self) -> f64 {
            self.estimator.estimate / self.link_bits - 1.0
        }

        /// Mean queue over `ms` milliseconds.
        fn mean_queue_ms(&mut self, ms: u64) -> f64 {
            let mut sum = 0.0;
            for _ in 0..ms {
                self.run(1);
                sum += self.queue_bits / self.link_bits * 1e3;
            }
            sum / ms as f64
        }
    }

    #[test]
    fn from_nothing_the_rate_is_found_within_three_seconds() {
        for mbit in [2.0, 5.0, 10.0, 37.0, 100.0, 940.0] {
            for base_ns in [200_000, 20 * MS, 100 * MS] {
                let mut world = World::new(mbit * 1e6, base_ns);
                world.run(3_000);
                assert!(world.error().abs() < 0.1, "{mbit} Mbit/s, {base_ns} ns: {:+.3}", world.error());
            }
        }
    }

    #[test]
    fn jitter_does_not_end_the_search() {
        let found = (1..=20).filter(|&seed| {
            let mut world = World::new(100e6, 30 * MS);
            (world.noise_ns, world.seed) = (10 * MS, seed);
            world.run(1_000);
            world.error().abs() < 0.1
        });
        // Little is known of the jitter in the first moments, and at times it shows a slope by chance.
        let found = found.count();
        assert!(found >= 18, "{found} of 20");
    }

    #[test]
    fn a_rate_that_is_far_too_low_is_left_though_few_round_trips_are_measured() {
        for seed in 1..=8 {
            let mut world = World::new(3e6, 200_000);
            (world.apart, world.seed) = (300, seed);
            world.estimator.resume(world.now, 1.2e6);
            world.run(12_000);
            assert!(world.error() > -0.15, "seed {seed}: {:+.3}", world.error());
        }
    }

    #[test]
    fn a_search_ends_where_tcp_sends_no_more_than_the_link_carries() {
        for seed in 1..=8 {
            let mut world = World::new(1e6, 200_000);
            world.offered_bits = 1.05e6;
            (world.apart, world.seed) = (1_500, seed);
            world.run(15_000);
            assert!(world.error() < 0.5, "seed {seed}: {:+.3}", world.error());
        }
    }

    #[test]
    fn it_stays_there_and_keeps_the_queue_short() {
        let mut world = World::new(10e6, 200_000);
        world.run(3_000);
        let mean_ms = world.mean_queue_ms(20_000);
        assert!(world.error().abs() < 0.06, "{:+.3}", world.error());
        assert!(mean_ms < 2.0, "a mean queue of {mean_ms:.2} ms");
    }

    #[test]
    fn a_change_of_the_link_is_followed_within_eight_seconds() {
        for base_ns in [200_000, 60 * MS] {
            let mut world = World::new(10e6, base_ns);
            world.run(4_000);
            for mbit in [5.0, 20.0, 3.0, 50.0, 10.0] {
                world.link_bits = mbit * 1e6;
                world.run(8_000);
                assert!(world.error().abs() < 0.08, "{mbit} Mbit/s, {base_ns} ns: {:+.3}", world.error());
            }
        }
    }

    #[test]
    fn an_idle_site_learns_nothing_and_forgets_nothing() {
        let mut world = World::new(10e6, 200_000);
        world.run(3_000);
        let before = world.estimator.estimate;
        world.offered_bits = 1e6;
        world.run(30_000);
        assert_eq!(world.estimator.estimate, before);
    }

    #[test]
    fn a_longer_path_is_no_queue_for_long() {
        let mut world = World::new(10e6, 20 * MS);
        world.run(4_000);
        world.base_ns = 60 * MS;
        world.run(10_000);
        assert!(world.error().abs() < 0.08, "{:+.3}", world.error());
        assert!(world.mean_queue_ms(2_000) < 4.0);
    }

    #[test]
    fn without_a_bottleneck_there_is_no_rate() {
        let mut world = World::new(1e12, 200_000);
        world.run(3_000);
        assert_eq!(world.estimator.rate(), None);
    }

    /// A probe at 8 Mbit/s times its gain, beside a queue of others of 50 ms. The link carries this part of that. Returns the
    /// estimate after it, over the one before, and whether the phase is still that of a probe.
    fn probe(carries: f64) -> (f64, bool) {
        let mut estimator = Estimator::new(0.97);
        let bytes_per_ms = |ms: u64| (ms as f64 * 1_000.0 * if ms > 2_200 { beside::GAIN } else { 1.0 }) as u64;
        let mut came = VecDeque::new();
        for ms in (0..2_600).step_by(5) {
            let grown_ms = if ms > 2_200 { ((ms - 2_200) as f64 * (1.0 / carries - 1.0)) as u64 } else { 0 };
            came.push_back((ms + 51 + grown_ms, 51 + grown_ms));
        }
        for ms in 0..2_600 {
            let load = Load {
                sent_bytes: bytes_per_ms(ms),
                room_at: Instant::from_ns(ms * MS),
                waits: true,
                chunk_bytes: 4_344,
            };
            estimator.round_trips.handle_load(Instant::from_ns(ms * MS), load);
            while let Some((_, rtt_ms)) = came.pop_front_if(|(came_ms, _)| *came_ms <= ms) {
                let it = RoundTrip { path: 7, ns: rtt_ms * MS, kind: RttKind::Handshake, age_ns: 0 };
                estimator.round_trips.handle_round_trip(Instant::from_ns(ms * MS), it, 0);
            }
            if ms == 2_250 {
                estimator.phase = Phase::Probe { gain: beside::GAIN };
                estimator.begin_round(Instant::from_ns(ms * MS), load.sent_bytes);
            }
        }
        let before = estimator.estimate;
        estimator.end_probe_by_bytes(Instant::from_ns(2_600 * MS), bytes_per_ms(2_600), beside::GAIN);
        (estimator.estimate / before, matches!(estimator.phase, Phase::Probe { .. }))
    }

    #[test]
    fn what_the_link_carries_of_a_probe_tells_whether_the_rate_was_too_low() {
        let (raised, goes_on) = probe(0.97);
        assert!(raised > 1.15 && raised <= beside::GAIN && goes_on, "{raised:.3}");
        let (raised, goes_on) = probe(1.0 / beside::GAIN);
        assert!(raised == 1.0 && !goes_on, "{raised:.3}");
    }

    #[test]
    fn a_step_back_to_the_old_rate_that_fails_takes_back_the_steps_before_it() {
        let fails = |queue_since| {
            let mut estimator = Estimator::new(0.97);
            (estimator.estimate, estimator.queue_since) = (1.5e6, queue_since);
            estimator.phase = Phase::Probe { gain: 1.8 };
            estimator.verifies = Some(Verifies { before: 2e6, shown: 1e6 });
            estimator.begin_round(Instant::from_ns(MS), 0);
            estimator.end_probe_by_bytes(Instant::from_ns(151 * MS), 50_000, 1.8);
            let Phase::Repays { until } = estimator.phase else { panic!("{:?}", estimator.phase) };
            (estimator.estimate, until.as_ns() / MS)
        };
        assert_eq!(fails(Some(Instant::from_ns(100 * MS))), (1e6, 661), "1.7 times too much was sent for 150 ms");
        assert_eq!(fails(None), (1.5e6, 391), "no queue shows");
    }
}
