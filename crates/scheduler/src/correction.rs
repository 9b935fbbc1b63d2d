//! Corrects the rate that the operator gave for the bottleneck, by the queue that stands there.
//!
//! The intuition: while work waits, a rate that is too high makes a queue grow at the bottleneck, and one that is too
//! low leaves none. A very short queue shows that the link is full. So the rate is steered, like the phase of a clock,
//! by the queue that recent round trips met. A queue longer than the target lowers the rate a little, and a shorter one
//! raises it. The error of the rate is learned on the way (a proportional and an integral part). Hence a given rate
//! that is wrong by a few percent does no harm: one rounded up by the provider, or without the overhead of a real wire.
//!
//! When an acknowledgement arrives after a round trip of `r`, all bytes sent more than `r` ago have passed the
//! bottleneck. So every round trip at time `t` is a point on the curve of delivered bytes, `delivered(t) = sent(t -
//! r)`. While the bottleneck has a queue, the slope of that curve is the bottleneck's rate.
//!
//! - **Follow**: the steering, within a narrow range around the given rate. If no queue shows for long, the rate climbs.
//! - **Drain**: below the rate until a queue is gone that is too long to be steered away. The slope is measured on the
//!   way. While nothing comes back from the queue, still less is sent.
//!
//! Only busy periods teach anything; in idle periods the rate stays. [`crate::estimate`] finds a rate that is not given.

mod phase;
#[cfg(test)]
mod tests;

use self::phase::{Phase, Round};
pub use crate::round_trips::Load;
use crate::{
    drain::{Cause, Drain, GAIN, GAIN_LEAST, Left, ROUND_NS},
    round_trips::{RoundTrip, RoundTrips, Slope, Whose},
    time::{Instant, MS},
    units::Rate,
};

/// The correction of a given rate. See the head of this module.
#[derive(Clone, Debug)]
pub struct Correction {
    /// The rate that was given, and the highest of its range, in bits per second.
    given: f64,
    most: f64,
    /// The rate at which the link is full, in bits per second, as far as known.
    estimate: f64,
    /// The part of the estimate that steering adds at present.
    steering: f64,
    /// The mean of the queue over the last second of busy time, in nanoseconds.
    mean_queue_ns: f64,
    /// The highest rate that the link was seen to carry, in bits per second, and when it was last measured.
    carried: f64,
    carried_at: Instant,
    /// Busy time at the lower end of the rates around that.
    low_ns: u64,
    /// The part of the queue that does not depend on the rate, in nanoseconds, and when it was measured.
    bias_ns: f64,
    bias_at: Instant,
    /// The rate in force.
    rate: f64,
    /// The estimate before the queue that is being drained.
    settled: f64,
    phase: Phase,
    round: Round,
    last_turn: Instant,
    round_trips: RoundTrips,
    /// Since when a long queue has shown without a break.
    queue_since: Option<Instant>,
    /// Busy time since a queue last showed, in nanoseconds.
    quiet_ns: u64,
    /// The last step of the climb, as a part of the estimate; 0 if it does not climb.
    climb: f64,
    /// Busy time at the lower or upper end of the range, in nanoseconds.
    at_end_ns: u64,
    doubt: Option<Doubt>,
    /// Packets sent earlier say nothing of the queue that is to be steered.
    counts_from: Instant,
    /// Since when a queue has stood that shows a link far slower than the range allows, and its rate in bits per second.
    far_too_high: Option<(Instant, f64)>,
    /// The least rate of the link, in bits per second, after a queue that no packet came back from.
    after_silence: Option<f64>,
    /// The length of a queue that a drain has not worked off, and that has not shown the rate of the link.
    drained_in_vain_ns: Option<u64>,
}

/// Why the rate cannot be that of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A queue stands at the bottleneck, though the uplink sends at the least rate of the range.
    TooHigh,
    /// No queue shows, though the uplink sends at the highest rate of the range.
    TooLow,
    /// The rate is to be found, and no queue shows though much is sent.
    NotFound,
}

/// The largest share of a given rate that is used by default. No queue then stands at the bottleneck if the rate is true,
/// and the correction lowers one that is too high.
pub const UTILISATION: f64 = 0.995;

/// The range around a given rate.
const GIVEN_LEAST: f64 = 0.90;
pub(crate) const GIVEN_MOST: f64 = 1.06;
/// The shortest queue that is aimed at, and the part of a chunk's time where that is more.
const TARGET_LEAST_NS: f64 = 0.05e6;
const TARGET_OF_CHUNK: f64 = 0.1;
/// This part of a chunk's time counts as queue, because the pacer's own queue, which is subtracted, stands at the
/// bottleneck only where the rate is that of the link. Without it the queue was a chunk's third too long, and each new
/// connection met it twice.
const OWN_OF_CHUNK: f64 = 0.25;
/// Bandwidth of the steering, in radians a second, at most; and its product with the delay of the measurement.
const STEERING_MOST: f64 = 15.0;
const STEERING_BY_DELAY: f64 = 0.3;
const DAMPING: f64 = 0.9;
/// Steering changes the rate by this part at most.
const STEERING_RANGE: f64 = 0.06;
/// A longer queue than so many targets counts as so many: the rest is for the drain.
const EXCESS_MOST: f64 = 16.0;
/// The weight of a queue that is too short, and the busy time after which it has that weight.
const RAISE: f64 = 0.1;
const RAISE_AFTER_NS: f64 = 150e6;
/// Steering keeps the rate above this part of what the link was seen to carry over this time.
const CARRIED_LEAST: f64 = 0.975;
const CARRIED_OVER_NS: u64 = 300 * MS;
/// Busy time at that lower end after which a queue that still shows is none of the pacer's, and how long that is
/// remembered.
const LOW_NS: u64 = 500 * MS;
const BIAS_KEEP_NS: u64 = 30_000 * MS;
/// The mean queue is kept within so many targets, so that a single outlier counts for little.
const MEAN_MOST: f64 = 8.0;
/// Busy time without any queue after which the rate climbs, and the first and the largest step.
const QUIET_NS: u64 = 1_500 * MS;
/// A step lasts at least so many times as long as the present queue is taken over, so that its queue shows before the next.
const CLIMB_WINDOWS: u64 = 2;
/// A queue of so many targets ends the climb at once.
const CLIMB_ENDS: f64 = 4.0;
const CLIMB_FIRST: f64 = 0.005;
const CLIMB_MOST: f64 = 0.01;
/// Busy time at an end of the range after which the given rate is doubted.
const DOUBT_NS: u64 = 3_000 * MS;
/// Busy time at the upper end after which the link is taken to be faster, if it was not given.
const FASTER_NS: u64 = 500 * MS;
/// Least time between two decisions.
const TURN_NS: u64 = 5 * MS;
/// Samples of a queue over this time are enough to measure a rate.
const SLOPE_LEAST_NS: u64 = 40 * MS;
/// A measurement within this range of the old estimate corrects it; one outside replaces it.
const SAME: core::ops::Range<f64> = 0.85..1.15;
/// Weight of a measurement that corrects the estimate.
const CORRECTION: f64 = 0.4;
/// A queue of this length, or of so many chunks, is drained if it shows for this long.
const LONG_QUEUE_NS: u64 = 6 * MS;
const LONG_QUEUE_CHUNKS: u64 = 2;
/// A queue of so many times this length was not made on purpose.
const OVERLONG: u64 = 4;
const LONG_QUEUE_BELIEVED_NS: u64 = 60 * MS;

impl Correction {
    /// Makes a correction of this rate. `most` is the largest part of it that may be used; `None` leaves that to the
    /// correction.
    pub fn new(rate: Rate, most: Option<f64>) -> Self {
        let given = rate.bits_per_second() as f64;
        let most = given * most.unwrap_or(GIVEN_MOST);
        let estimate = given.min(most);
        Self {
            given,
            most,
            estimate,
            steering: 0.0,
            mean_queue_ns: 0.0,
            // Nearly what was given is believed until the contrary is measured.
            carried: estimate * 0.97,
            carried_at: Instant::ORIGIN,
            low_ns: 0,
            bias_ns: 0.0,
            bias_at: Instant::ORIGIN,
            rate: estimate,
            settled: estimate,
            phase: Phase::Follow,
            round: Round { began: Instant::ORIGIN, sent_bytes: 0 },
            last_turn: Instant::ORIGIN,
            round_trips: RoundTrips::default(),
            queue_since: None,
            quiet_ns: 0,
            climb: 0.0,
            at_end_ns: 0,
            doubt: None,
            counts_from: Instant::ORIGIN,
            far_too_high: None,
            after_silence: None,
            drained_in_vain_ns: None,
        }
    }

    /// The rate to send at now.
    pub fn rate(&self) -> Rate {
        Rate::clamped(self.rate)
    }

    /// The current phase as one word, for logs.
    pub fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::Follow => "follow",
            Phase::Drain(_) => "drain",
        }
    }

    /// Whether the given rate cannot be true, by what was seen last.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// The recent length of the queue at the bottleneck beyond the pacer's own, as far as round trips show it.
    pub fn queue(&self, now: Instant) -> Option<core::time::Duration> {
        let queue_ns = self.round_trips.queue_ns(now, Instant::ORIGIN, true)?;
        Some(core::time::Duration::from_nanos(queue_ns.max(0).cast_unsigned()))
    }

    /// Takes a round trip.
    pub fn handle_round_trip(&mut self, now: Instant, round_trip: RoundTrip, load: Load) {
        self.round_trips.handle_load(now, load);
        let idle_most_ns = match self.phase {
            Phase::Follow => self.long_queue_ns(now),
            Phase::Drain(_) => 0,
        };
        self.round_trips.handle_round_trip(now, round_trip, idle_most_ns);
    }

    /// Decides whether the rate changes; returns true if [`Correction::rate`] has changed. Call after each grant, or
    /// as often as possible while there is traffic.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        self.round_trips.handle_load(now, load);
        let elapsed_ns = now.ns_since(self.last_turn);
        if elapsed_ns < TURN_NS {
            return false;
        }
        self.last_turn = now;
        // A rate above that of the link leaves no work waiting: a long queue shows at any time.
        let queue_ns = match self.phase {
            Phase::Follow => {
                self.round_trips.queue_ns(now, self.counts_from, true).or_else(|| self.overlong_queue_ns(now))
            }
            Phase::Drain(_) => self.round_trips.queue_ns(now, self.round.began, true),
        };
        match queue_ns {
            Some(queue_ns) if queue_ns > self.long_queue_ns(now) as i64 => {
                self.queue_since = self.queue_since.or(Some(now));
            }
            Some(_) => (self.queue_since, self.drained_in_vain_ns) = (None, None),
            None => {}
        }
        match self.phase {
            // A pause is not busy time, however the turns before and after it look.
            Phase::Follow => self.follow(now, load, elapsed_ns.min(4 * TURN_NS), queue_ns),
            Phase::Drain(drain) => self.drain_on(now, load.sent_bytes, drain, queue_ns),
        }
        let rate = match self.phase {
            Phase::Follow => self.limit(self.estimate * (1.0 + self.steering)),
            Phase::Drain(Drain { gain, .. }) => self.estimate * gain,
        };
        // Smaller changes are not worth their cost.
        let changed = (rate / self.rate - 1.0).abs() > 0.0005;
        if changed {
            self.rate = rate;
        }
        changed
    }

    /// The rate in force, in bits per second.
    pub(crate) fn rate_bits(&self) -> f64 {
        self.rate
    }

    /// The rate at which the link is full, as far as known, in bits per second.
    pub(crate) fn estimate_bits(&self) -> f64 {
        self.estimate
    }

    /// Whether no queue has shown for a while at the highest rate of the range.
    pub(crate) fn is_far_too_low(&self) -> bool {
        self.estimate >= self.most * 0.999 && self.quiet_ns >= QUIET_NS && self.at_end_ns >= FASTER_NS
    }

    /// Whether a long queue shows, or is being drained.
    pub(crate) fn sees_long_queue(&self) -> bool {
        self.phase != Phase::Follow || self.queue_since.is_some()
    }

    /// Since when a queue has stood that shows a link far slower than the range allows, if one has; and the rate of that link,
    /// if it is known, in bits per second.
    pub(crate) fn is_far_too_high(&self) -> Option<(Instant, Option<f64>)> {
        let at_end = (self.doubt == Some(Doubt::TooHigh)).then_some((self.last_turn, None));
        self.far_too_high.map(|(since, shown)| (since, Some(shown))).or(at_end)
    }

    /// The least rate of the link, in bits per second, after a queue that no packet came back from.
    pub(crate) fn after_silence(&self) -> Option<f64> {
        self.after_silence
    }

    /// Takes over the round trips of the link so far.
    pub(crate) fn inherit(&mut self, now: Instant, seen: RoundTrips) {
        self.round_trips = seen;
        self.ignore_before(now);
        self.last_turn = now;
    }

    /// The round trips of the link, for another machine that goes on.
    pub(crate) fn into_seen(self) -> RoundTrips {
        self.round_trips
    }

    /// Packets sent before then say nothing of the queue that is to be steered.
    pub(crate) fn ignore_before(&mut self, from: Instant) {
        (self.counts_from, self.queue_since, self.drained_in_vain_ns) = (from, None, None);
    }

    /// Goes on around another rate, in bits per second, of which this part may be used.
    pub(crate) fn recenter(&mut self, bits: f64, most: f64) {
        (self.given, self.most) = (bits, bits * most);
        self.estimate = bits.min(self.most);
        self.carried = self.estimate * 0.97;
        (self.quiet_ns, self.climb, self.at_end_ns, self.doubt) = (0, 0.0, 0, None);
    }

    /// Leaves the rate as it is while others decide it.
    pub(crate) fn rest(&mut self, now: Instant, load: Load) {
        self.round_trips.handle_load(now, load);
        self.last_turn = now;
    }

    /// The round trips of the link.
    pub(crate) fn seen(&self) -> &RoundTrips {
        &self.round_trips
    }

    fn follow(&mut self, now: Instant, load: Load, busy_ns: u64, queue_ns: Option<i64>) {
        let believed = self.queue_since.filter(|since| now.ns_since(*since) >= LONG_QUEUE_BELIEVED_NS);
        if let (Some(since), Some(queue_ns)) = (believed, queue_ns) {
            match self.round_trips.whose(now, since, queue_ns.max(0).cast_unsigned(), self.estimate) {
                Whose::Ours => return self.drain_believed(now, load, since, queue_ns),
                Whose::Others => self.queue_since = None,
                Whose::NotKnown => {}
            }
        }
        if self.round_trips.is_silent(now) {
            self.settled = self.estimate;
            let queue_ns = self.round_trips.last_excess_ns().unwrap_or(0);
            let since = self.queue_since.unwrap_or(now);
            self.drain_at(now, load.sent_bytes, queue_ns, since, RoundTrips::deeper(1.0), Cause::Silence);
            return;
        }
        let own_ns = OWN_OF_CHUNK * self.round_trips.chunk_ns(Rate::clamped(self.estimate)) as f64;
        let queue_ns = self.round_trips.queue_ns(now, self.counts_from, false);
        let queue_ns = queue_ns.map(|it| it + (own_ns - self.bias_ns) as i64);
        let (Some(queue_ns), true) = (queue_ns, load.waits) else {
            self.steering = 0.0;
            return;
        };
        self.measure_carried(now, busy_ns);
        self.steer(now, busy_ns, queue_ns);
        self.climb(now, load.sent_bytes, busy_ns, queue_ns);
        self.judge(busy_ns, queue_ns);
    }

    /// Works off a queue that has shown for long.
    fn drain_believed(&mut self, now: Instant, load: Load, since: Instant, queue_ns: i64) {
        self.settled = self.estimate;
        // Only an estimate that is far off is replaced at once. A queue that stands while the uplink sends less
        // than the link carries comes from other traffic.
        if let Some(slope) = self.congested_slope(now)
            && slope < self.estimate * SAME.start
            && self.used_up(now, load.sent_bytes)
        {
            self.estimate = self.limit(slope);
            self.far_too_high = Some((since, slope));
        }
        self.drain(now, load.sent_bytes, queue_ns, since);
    }

    /// Brings the queue to its target.
    fn steer(&mut self, now: Instant, busy_ns: u64, queue_ns: i64) {
        let (target_ns, queue_ns, busy_s) = (self.target_ns(), queue_ns as f64, busy_ns as f64 / 1e9);
        let bound_ns = MEAN_MOST * target_ns;
        self.mean_queue_ns += busy_s * (queue_ns.clamp(-bound_ns, bound_ns) - self.mean_queue_ns);
        // A queue is never below zero, whatever noise says.
        let mut error_ns = (target_ns - queue_ns).clamp(-EXCESS_MOST * target_ns, target_ns);
        if error_ns > 0.0 {
            // A queue that is too short costs less than one that is too long, and takes time to show.
            error_ns *= RAISE * (self.round_trips.busy_ns(now) as f64 / RAISE_AFTER_NS).min(1.0);
        }
        let delay_ns = self.round_trips.rtt_ns() + self.round_trips.window_ns(now) / 2 + TURN_NS;
        let bandwidth = (STEERING_BY_DELAY / (delay_ns as f64 / 1e9)).min(STEERING_MOST);
        let error_s = error_ns / 1e9;
        self.steering = (2.0 * DAMPING * bandwidth * error_s).clamp(-STEERING_RANGE, STEERING_RANGE);
        let learned = bandwidth * bandwidth * error_s * busy_s;
        self.estimate = self.limit((self.estimate * (1.0 + learned)).max(self.carried * CARRIED_LEAST));
    }

    /// Measures what the link carries. The rate does not fall far below that unless a queue stands: noise alone must
    /// not wear it away.
    fn measure_carried(&mut self, now: Instant, busy_ns: u64) {
        if self.round_trips.busy_ns(now) < CARRIED_OVER_NS {
            return;
        }
        let since = Instant::from_ns(now.as_ns().saturating_sub(CARRIED_OVER_NS));
        let is_low = self.estimate <= self.carried * CARRIED_LEAST * 1.001;
        self.low_ns = if is_low { self.low_ns + busy_ns } else { 0 };
        if self.low_ns >= LOW_NS + 2 * self.round_trips.rtt_ns() {
            self.low_ns = 0;
            match self.round_trips.slope(since, 0).map(|slope| slope.bits) {
                // The link carries less than it did.
                Some(slope) if slope < self.rate * 0.98 => self.carried = slope,
                // A queue would have gone by now: it is noise, or other senders have it.
                Some(_) if self.mean_queue_ns > self.target_ns() / 2.0 => {
                    self.bias_ns += self.mean_queue_ns;
                    (self.bias_at, self.mean_queue_ns) = (now, 0.0);
                    self.estimate = self.limit(self.carried);
                }
                _ => {}
            }
        } else if now.ns_since(self.carried_at) >= CARRIED_OVER_NS {
            self.carried_at = now;
            if let Some(Slope { bits: slope, .. }) = self.round_trips.slope(since, 0) {
                self.carried = self.carried.max(slope.min(self.rate));
            }
        }
        if now.ns_since(self.bias_at) >= BIAS_KEEP_NS {
            self.bias_ns = 0.0;
        }
    }

    /// Raises the rate faster while no queue shows at all.
    fn climb(&mut self, now: Instant, sent_bytes: u64, busy_ns: u64, queue_ns: i64) {
        let target_ns = self.target_ns();
        if queue_ns as f64 > CLIMB_ENDS * target_ns || self.mean_queue_ns > target_ns / 2.0 {
            (self.quiet_ns, self.climb) = (0, 0.0);
            return;
        }
        let age_ns = self.round_trips.busy_ns(now);
        self.quiet_ns = if age_ns < self.quiet_ns { 0 } else { self.quiet_ns + busy_ns };
        let lasts_ns =
            (ROUND_NS + self.round_trips.rtt_ns() * 5 / 4).max(CLIMB_WINDOWS * self.round_trips.window_ns(now));
        if self.quiet_ns >= QUIET_NS + lasts_ns && now.ns_since(self.round.began) >= lasts_ns {
            self.climb = (self.climb * 2.0).clamp(CLIMB_FIRST, CLIMB_MOST);
            self.estimate = self.limit(self.estimate * (1.0 + self.climb));
            self.begin_round(now, sent_bytes);
        }
    }

    /// Whether the given rate can be true.
    fn judge(&mut self, busy_ns: u64, queue_ns: i64) {
        let doubt = if self.estimate <= self.given * GIVEN_LEAST * 1.001 && queue_ns as f64 > 2.0 * self.target_ns() {
            Some(Doubt::TooHigh)
        } else if self.estimate >= self.most * 0.999 && self.quiet_ns >= QUIET_NS {
            Some(Doubt::TooLow)
        } else {
            None
        };
        match doubt {
            Some(_) => self.at_end_ns += busy_ns,
            None => self.at_end_ns = self.at_end_ns.saturating_sub(busy_ns),
        }
        if self.at_end_ns >= DOUBT_NS {
            self.doubt = self.doubt.or(doubt);
        } else if self.at_end_ns == 0 {
            self.doubt = None;
        }
    }

    fn drain(&mut self, now: Instant, sent_bytes: u64, queue_ns: i64, since: Instant) {
        if self.estimate <= self.given * GIVEN_LEAST * 1.001 {
            // A queue of this length stands at the least rate of the range.
            self.at_end_ns += DOUBT_NS / 3;
            self.doubt = if self.at_end_ns >= DOUBT_NS { Some(Doubt::TooHigh) } else { self.doubt };
        }
        let queue_ns = queue_ns.max(0).cast_unsigned();
        let gain = match self.drained_in_vain_ns {
            _ if queue_ns <= 10 * self.least_long_queue_ns(now) => GAIN,
            // Half of the rate was too much, and what came back did not show how much.
            Some(before_ns) if queue_ns > before_ns / 2 => RoundTrips::deeper(GAIN_LEAST),
            _ => GAIN_LEAST,
        };
        self.drain_at(now, sent_bytes, queue_ns, since, gain, Cause::Shows);
    }

    fn drain_at(&mut self, now: Instant, sent_bytes: u64, queue_ns: u64, since: Instant, gain: f64, cause: Cause) {
        self.phase = Phase::Drain(Drain::new(now, &self.round_trips, queue_ns, since, gain, cause));
        self.begin_round(now, sent_bytes);
    }

    fn drain_on(&mut self, now: Instant, sent_bytes: u64, drain: Drain, queue_ns: Option<i64>) {
        let seen = &self.round_trips;
        let met_ns = seen.excess_ns(now, drain.began);
        // At a low rate, the pacer's own queue is shorter at the link than in its model.
        let is_low = drain.cause == Cause::Stood;
        let queue_ns = if is_low { met_ns } else { queue_ns.map(|queue_ns| queue_ns.max(0).cast_unsigned()) };
        let is_gone = queue_ns.is_some_and(|queue_ns| queue_ns <= self.long_queue_ns(now) / 4)
            && now.ns_since(drain.began) >= seen.rtt_ns();
        let told_ns = queue_ns.filter(|_| !is_low).or_else(|| seen.last_queue_since(now, drain.tells_from(), !is_low));
        if !is_gone && now >= drain.until && seen.is_silent(now) {
            let (queue_ns, gain) = (drain.queue_ns.max(now.ns_since(drain.began)), RoundTrips::deeper(drain.gain));
            self.drain_at(now, sent_bytes, queue_ns, drain.since, gain, Cause::Silence);
        } else if let Some(left) = drain.left(now, seen, is_gone, told_ns, met_ns) {
            self.end_drain(now, sent_bytes, drain, left);
        }
    }

    fn end_drain(&mut self, now: Instant, sent_bytes: u64, drain: Drain, left: Left) {
        let sent_in_round_bytes = sent_bytes.saturating_sub(self.round.sent_bytes);
        let seen = &self.round_trips;
        // From the first sign of the queue to its end.
        let slope = self.slope(now, drain.since);
        if drain.cause == Cause::Silence {
            // Much of what passed was sent again, so the slope may be far too low.
            self.after_silence = Some(slope.map_or(0.0, |slope| slope.bits).max(self.estimate * drain.gain));
        }
        let shown = slope.filter(|slope| seen.was_full(now, drain.since, *slope)).map(|slope| slope.bits);
        let carried_all = seen.carried_all(now, drain.began, sent_in_round_bytes);
        if let Some(next) = drain.next(now, seen, left, self.estimate, shown, carried_all) {
            self.phase = Phase::Drain(next);
            self.begin_round(now, sent_bytes);
            return;
        }
        let shown = shown.or(drain.shown);
        let shows_others = shown.is_some_and(|shown| drain.shows_others(now, seen, shown, self.settled, self.settled));
        let refuted = shown.and_then(|shown| drain.refuted_by(now, seen, left, sent_in_round_bytes, shown));
        let mut is_learned = true;
        if shows_others || drain.is_elsewhere(seen, left) {
            let is_sure = shows_others || drain.is_surely_elsewhere(left);
            self.round_trips.learn_paths(now, drain.began, drain.queue_ns, is_sure);
        } else if let Some(shown) = shown.filter(|_| refuted.is_none()) {
            if shown < self.settled * SAME.start {
                self.far_too_high = Some((drain.since, shown));
            }
            let same = SAME.contains(&(shown / self.settled));
            let estimate = if same { self.settled + CORRECTION * (shown - self.settled) } else { shown };
            self.estimate = self.limit(estimate);
            self.carried = self.carried.min(self.estimate);
        } else {
            is_learned = left == Left::Nothing;
        }
        self.settled = self.estimate;
        // A queue that has taught nothing yet is the same one when it is drained again.
        self.queue_since = if is_learned { None } else { Some(drain.since) };
        self.drained_in_vain_ns = if is_learned { None } else { Some(drain.queue_ns) };
        (self.steering, self.mean_queue_ns) = (0.0, 0.0);
        (self.quiet_ns, self.climb) = (0, 0.0);
        self.phase = Phase::Follow;
        self.begin_round(now, sent_bytes);
    }

    fn begin_round(&mut self, now: Instant, sent_bytes: u64) {
        self.round = Round { began: now, sent_bytes };
    }

    /// Whether the allowed rate was really sent, so that the round says something about the link.
    fn used_up(&self, now: Instant, sent_bytes: u64) -> bool {
        let elapsed_ns = now.ns_since(self.round.began);
        let sent_bits = sent_bytes.saturating_sub(self.round.sent_bytes) as f64 * 8.0;
        sent_bits >= self.rate * (elapsed_ns as f64 / 1e9) * 0.85
    }

    /// The queue that is aimed at: as short as can be told from none.
    fn target_ns(&self) -> f64 {
        let rate = Rate::clamped(self.estimate);
        (TARGET_OF_CHUNK * self.round_trips.chunk_ns(rate) as f64).max(TARGET_LEAST_NS)
    }

    /// The shortest queue that is drained instead of steered away.
    fn long_queue_ns(&self, now: Instant) -> u64 {
        self.least_long_queue_ns(now).max(self.round_trips.elsewhere_ns(now))
    }

    /// The same if no queue of others was found.
    fn least_long_queue_ns(&self, now: Instant) -> u64 {
        let rate = Rate::clamped(self.estimate);
        let chunk_ns = self.round_trips.chunk_ns(rate);
        LONG_QUEUE_NS.max(LONG_QUEUE_CHUNKS * chunk_ns).max(self.round_trips.level_ns(now) / 2)
    }

    /// The queue that recent packets met, whenever they were sent, if it is too long to have been made on purpose. While a
    /// queue grows, packets that are sent into it take long to come back.
    fn overlong_queue_ns(&self, now: Instant) -> Option<i64> {
        let least_ns = OVERLONG * self.long_queue_ns(now);
        self.round_trips.queue_ns(now, Instant::ORIGIN, true).filter(|queue_ns| *queue_ns > least_ns as i64)
    }

    /// Keeps a rate within the range around the given one.
    fn limit(&self, bits: f64) -> f64 {
        bits.clamp((self.given * GIVEN_LEAST).min(self.most), self.most)
    }

    /// The bottleneck's rate by the queue that shows now, if the queue is old enough.
    fn congested_slope(&self, now: Instant) -> Option<f64> {
        let since = self.queue_since.filter(|since| now.ns_since(*since) >= SLOPE_LEAST_NS)?;
        Some(self.slope(now, since)?.bits)
    }

    fn slope(&self, now: Instant, since: Instant) -> Option<Slope> {
        let slope = self.round_trips.slope(since, self.long_queue_ns(now) / 4)?;
        (slope.bits >= Rate::MIN.bits_per_second() as f64).then_some(slope)
    }
}
