//! Finds the rate of the bottleneck, and then uses nearly all of it.
//!
//! Two machines take turns. The [`Estimator`] finds a rate from nothing, and follows large changes. It measures in
//! queues of some 15 ms, which delay the responses of that time. It knows the rate to a few percent, so it leaves 3 %
//! of the link unused. Once it has worked off a queue, the [`Correction`] goes on, as if the rate had been given. It
//! keeps the rate below that of the link, so no queue stands, and nothing is learned of what the link could carry
//! beyond that. So at times a short queue is made on purpose, a [sounding]. It measures the rate of the link to a
//! percent or better, and the measurements are averaged, each with the weight that its error gives it. In between, what
//! round trips meet of the pacer's own queue shows whether the link has become much faster. Often it also shows the rate, by
//! the link whose queue would rise and fall in the same way (`round_trips/fit.rs`). While that is the known rate, no
//! sounding is made.
//!
//! Many links let a [burst] pass before their own rate holds. Until it is used up, such a link looks like a faster one.
//!
//! On a slow link a sounding does harm, and the rate is raised in [trials] instead.
//!
//! The kernel may hold the server's own device to a rate. That one is then kept, as if it had been given, until a queue shows
//! that the link behind the device is far slower. From there on a rate is found as elsewhere, up to that of the device.
//!
//! The estimator goes on when no queue shows in soundings or trials, or at the upper end of the correction's range. It also
//! goes on when a queue shows that the link is far slower than was known.

mod burst;
mod sounding;
mod trials;
mod unfound;

use alloc::boxed::Box;
use core::time::Duration;

use self::{
    burst::Burst,
    sounding::{Known, Sounded, Sounding},
    trials::{Trials, Tried},
    unfound::Unfound,
};
use crate::{
    correction::{self, Correction, Doubt, UTILISATION},
    estimate::{Estimator, NO_BOTTLENECK_BITS},
    round_trips::{Load, Look, Looks, RoundTrip, RoundTrips, Slope},
    time::{Instant, MS},
    units::Rate,
};

/// Finds the rate. See the head of this module.
#[derive(Clone, Debug)]
pub struct Finder {
    /// The most of the rate that may be used; `None`: nearly all of it.
    most: Option<f64>,
    estimator: Estimator,
    /// Set while the rate is known.
    hold: Option<Box<Hold>>,
    rate: Option<Rate>,
    /// The rate that the kernel holds the device to, in bits per second.
    limit: Option<f64>,
    burst: Burst,
    /// Whether the link had its rate already before the queue in which the estimator measures it.
    is_steady: bool,
    unfound: Unfound,
}

#[derive(Clone, Debug)]
struct Hold {
    correction: Correction,
    watch: Watch,
    /// The part of the known rate that is used on links that are not slow.
    most: f64,
    /// The rate of the link, in bits per second, and the variance of its relative error.
    known: f64,
    variance: f64,
    /// Measurements in a row that cannot be of that rate.
    strange: u32,
    /// Soundings in a row in which no queue showed.
    clear: u32,
    began: Instant,
    looks: Looks,
    /// Whether the known rate is that which the kernel holds the device to. Then nothing is looked for.
    is_limit: bool,
}

/// How it is found out that the link has another rate.
#[derive(Clone, Debug)]
enum Watch {
    Sounds(Sounding),
    /// On a slow link.
    Tries(Trials),
}

/// Where a grant takes longer, below some 5 Mbit/s, the link is slow.
const CHUNK_MOST_NS: u64 = 5 * MS;
/// The part of the rate that is used while it is known roughly: no queue then stands at the bottleneck.
const ROUGHLY_KNOWN: f64 = 0.97;
/// The relative error of the estimator's rate, the least one of a measurement, and the drift of the link from one to the
/// next.
const FIRST_ERROR: f64 = 0.05;
const LEAST_ERROR: f64 = 0.003;
const DRIFT: f64 = 0.002;
/// A rate is known well if it was measured once, or held for so long.
const HELD_NS: u64 = 15_000 * MS;
/// With a larger error the rate is measured more often. A trial measures it better than a sounding.
const ROUGH: f64 = 0.01;
const ROUGH_SLOW: f64 = 0.004;
/// The part of the rate that is used between trials, if it is known well, and if it is not.
const RESTS: f64 = 0.993;
const RESTS_ROUGH: f64 = 0.98;
/// A measurement is of another rate if it is so many errors away; and the link has another rate if so many are.
const STRANGE: f64 = 4.0;
const STRANGE_MOST: u32 = 2;
/// The least raise of the known rate after a sounding without a queue, and in errors of that rate; and how many in a row
/// are believed to show more.
const CLEAR_RAISES: f64 = 0.03;
const CLEAR_RAISES_ERRORS: f64 = 1.5;
const CLEAR_MOST: u32 = 3;
/// What several looks show together counts if it changes the known rate by this part.
const FAINT_CHANGES: f64 = 0.002;
/// The rate of the device is kept where the link is seen to have this part of it.
const NEARLY_LIMIT: f64 = 0.98;
/// The raise after several whose queues do not show beside jitter.
const UNSEEN_RAISES: f64 = 1.25;
/// One is believed where round trips meet less than this part of what they usually meet of the pacer's own queue, and where a
/// far higher rate fits far better.
const FAR_FASTER: f64 = 0.4;

impl Finder {
    /// Knows nothing yet. At most this part of the rate is used; `None` leaves that to the finder.
    pub fn new(most: Option<f64>) -> Self {
        let estimator = Estimator::new(most.unwrap_or(ROUGHLY_KNOWN));
        let rate = estimator.rate();
        Self {
            most,
            estimator,
            hold: None,
            rate,
            limit: None,
            burst: Burst::default(),
            is_steady: true,
            unfound: Unfound::default(),
        }
    }

    /// As [`Finder::new`], but with a rate that was once true, and probably is.
    pub fn with_rate(now: Instant, most: Option<f64>, known: Rate) -> Self {
        let mut finder = Self::new(most);
        finder.estimator.resume(now, known.bits_per_second() as f64);
        finder.estimator.handle_known(now, known.bits_per_second() as f64);
        finder.rate = finder.estimator.rate();
        finder.is_steady = false;
        finder
    }

    /// Begins with a rate that was once true, and probably is, if none was found yet. The link behind a device may have been
    /// slower than the device.
    pub fn begin_at(&mut self, now: Instant, known: Rate) {
        let bits = known.bits_per_second() as f64;
        let is_found = self.hold.as_ref().is_some_and(|hold| !hold.is_limit);
        let is_slower = self.limit.is_none_or(|limit| bits < limit * NEARLY_LIMIT);
        if !is_found && is_slower {
            *self = Self { limit: self.limit, ..Self::with_rate(now, self.most, known) };
        }
    }

    /// Takes the rate that the kernel holds the server's own device to; `None`: none. Returns true if [`Finder::rate`] has
    /// changed.
    pub fn handle_limit(&mut self, now: Instant, limit: Option<Rate>) -> bool {
        let bits = limit.map(|limit| limit.bits_per_second() as f64).filter(|bits| *bits < NO_BOTTLENECK_BITS);
        if core::mem::replace(&mut self.limit, bits) == bits {
            return false;
        }
        let before = self.rate;
        match (&self.hold, bits) {
            // The link behind the device is slower.
            (Some(hold), Some(bits)) if hold.is_measured() && hold.known < bits * NEARLY_LIMIT => {}
            (None, Some(bits)) if self.estimator.found_bits().is_some_and(|found| found < bits * NEARLY_LIMIT) => {}
            (_, Some(bits)) => {
                // What was known is of another link.
                self.estimator.forget_known();
                self.keep_limit(now, bits);
            }
            (_, None) => self.doubt_limit(now),
        }
        self.rate != before
    }

    /// The rate of the device is that of the link.
    fn keep_limit(&mut self, now: Instant, bits: f64) {
        let seen = match self.hold.take() {
            Some(hold) => hold.correction.into_seen(),
            None => self.estimator.lend(),
        };
        self.estimator.handle_known(now, bits);
        self.is_steady = false;
        let hold = Hold::of_limit(now, bits, self.most, seen);
        self.rate = Some(hold.correction.rate());
        self.hold = Some(Box::new(hold));
    }

    /// The kernel no longer holds the device to its rate. The link has at least that.
    fn doubt_limit(&mut self, now: Instant) {
        if let Some(hold) = self.hold.take_if(|hold| hold.is_limit) {
            self.hold = Some(Box::new(Hold::new(now, hold.known, self.most, hold.correction.into_seen())));
        }
    }

    /// The rate to send at now; `None` where pacing is not worth its cost.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The rate of the link, once it is known well.
    pub fn known(&self) -> Option<Rate> {
        self.hold.as_ref().map(|hold| Rate::clamped(hold.known))
    }

    /// Whether the rate was not found, though much is sent.
    pub fn doubt(&self) -> Option<Doubt> {
        self.unfound.is_unfound().then_some(Doubt::NotFound)
    }

    /// The current phase as one word, for logs.
    pub fn phase_name(&self) -> &'static str {
        match &self.hold {
            None => self.estimator.phase_name(),
            Some(hold) => match &hold.watch {
                Watch::Sounds(sounding) if sounding.is_under_way() => "sounding",
                Watch::Tries(trials) if trials.is_under_way() => "trial",
                _ => hold.correction.phase_name(),
            },
        }
    }

    /// The recent length of the queue at the bottleneck, as far as round trips show it.
    pub fn queue(&self, now: Instant) -> Option<Duration> {
        match &self.hold {
            None => self.estimator.queue(now),
            Some(hold) => hold.correction.queue(now),
        }
    }

    /// Takes a round trip.
    pub fn handle_round_trip(&mut self, now: Instant, round_trip: RoundTrip, load: Load) {
        match &mut self.hold {
            None => self.estimator.handle_round_trip(now, round_trip, load),
            Some(hold) => hold.correction.handle_round_trip(now, round_trip, load),
        }
    }

    /// Decides whether the rate changes; returns true if [`Finder::rate`] has changed. Call after each grant, or as
    /// often as possible while there is traffic.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        self.estimator.handle_backlog(now, load.waits);
        let next = match &mut self.hold {
            None => {
                self.estimator.handle_turn(now, load);
                if let Some(known) = self.estimator.measured() {
                    let (since, seen) = (self.estimator.congested_since(), self.estimator.lend());
                    if self.is_steady {
                        self.burst.handle_search(now, known, since, &seen);
                    } else {
                        self.burst.handle_change(now);
                    }
                    self.hold = Some(Box::new(Hold::new(now, known, self.most, seen)));
                }
                Next::Seeks
            }
            Some(hold) => {
                if !hold.is_limit && hold.look(now, &self.burst) {
                    self.estimator.doubt_known();
                }
                let seen = hold.correction.seen();
                if hold.is_known(now) && !seen.is_elsewhere(now) {
                    self.estimator.handle_known(now, hold.known);
                }
                let is_too_low = !hold.is_limit && self.estimator.is_too_low(now, hold.known, seen);
                match hold.handle_turn(now, load, &mut self.burst, self.estimator.knew_far_more(now, hold.known)) {
                    Next::Goes(_) if is_too_low => Next::Starves,
                    next => next,
                }
            }
        };
        let rate = match (next, &self.hold) {
            (Next::Goes(bits), _) => Some(Rate::clamped(bits)),
            (_, None) => self.estimator.rate(),
            (Next::Seeks, Some(hold)) => Some(hold.correction.rate()),
            (next, Some(hold)) => {
                let (known, sent_bytes) = (hold.known, load.sent_bytes);
                self.is_steady = !matches!(next, Next::TooFast(..) | Next::AtLeast(_));
                let seen = self.hold.take().map(|hold| hold.correction.into_seen()).unwrap_or_default();
                match next {
                    Next::TooFast(since, shown) => {
                        self.estimator.resume_with_queue(now, sent_bytes, known, since, shown, seen);
                    }
                    Next::Starves => self.estimator.resume_with_try(now, sent_bytes, known, seen),
                    Next::AtLeast(bits) => self.estimator.resume_after_silence(now, sent_bytes, bits, seen),
                    _ => self.estimator.resume_with_probe(now, sent_bytes, known, seen),
                }
                self.estimator.rate()
            }
        };
        if self.hold.is_some() {
            self.unfound = Unfound::default();
        } else if let Some(bits) = self.estimator.searches_at() {
            self.unfound.handle_turn(now, load.sent_bytes, bits);
        }
        let before = core::mem::replace(&mut self.rate, rate);
        if let (Some(limit), Some(hold)) = (self.limit, &self.hold)
            && hold.has_reached(now, limit)
        {
            self.keep_limit(now, limit);
        }
        self.rate != before
    }
}

/// The outcome of a turn of [`Hold`].
enum Next {
    /// The estimator decides.
    Seeks,
    /// It goes on at this rate.
    Goes(f64),
    /// The link is far slower than was known: a queue has stood since then. Its rate, if it is known, in bits per second.
    TooFast(Instant, Option<f64>),
    /// The link is faster than was known.
    TooSlow,
    /// The rate is probably too low. A queue of others may stand, so what the link carries has to tell.
    Starves,
    /// The link has become far slower. It has this rate at least, in bits per second, and more is not known.
    AtLeast(f64),
}

impl Hold {
    fn new(now: Instant, known: f64, most: Option<f64>, seen: RoundTrips) -> Self {
        let is_slow = most.is_none() && is_slow(known, &seen);
        let most = most.unwrap_or(UTILISATION);
        let mut correction = Correction::new(Rate::clamped(known), (!is_slow).then_some(most));
        correction.inherit(now, seen);
        Self {
            correction,
            watch: if is_slow { Watch::Tries(Trials::new(now)) } else { Watch::Sounds(Sounding::new(now)) },
            most,
            known,
            variance: FIRST_ERROR * FIRST_ERROR,
            strange: 0,
            clear: 0,
            began: now,
            looks: Looks::default(),
            is_limit: false,
        }
    }

    /// Keeps the rate of the device as if it had been given, in bits per second.
    fn of_limit(now: Instant, bits: f64, most: Option<f64>, seen: RoundTrips) -> Self {
        let mut hold = Self::new(now, bits, most, RoundTrips::default());
        hold.correction = Correction::new(Rate::clamped(bits), Some(hold.most));
        hold.correction.inherit(now, seen);
        Self { is_limit: true, ..hold }
    }

    /// Whether the link is seen to have the rate of the device again, in bits per second.
    fn has_reached(&self, now: Instant, limit: f64) -> bool {
        let is_seen = self.is_measured() && !self.correction.seen().is_elsewhere(now);
        !self.is_limit && (self.known > limit || is_seen && self.known >= limit * NEARLY_LIMIT)
    }

    /// Whether the rate is known well.
    fn is_known(&self, now: Instant) -> bool {
        self.is_limit || self.is_measured() || now.ns_since(self.began) > HELD_NS
    }

    /// Whether what packets met has shown the rate.
    fn is_measured(&self) -> bool {
        self.variance < FIRST_ERROR * FIRST_ERROR
    }

    /// Looks which rate fits what packets meet. Returns whether that is one of a far slower link.
    fn look(&mut self, now: Instant, burst: &Burst) -> bool {
        let may_look = match &self.watch {
            Watch::Sounds(sounding) => !sounding.is_under_way(),
            Watch::Tries(trials) => !trials.is_under_way() && !trials.is_blind(),
        };
        if !may_look {
            return false;
        }
        let seen = self.correction.seen();
        let before = self.known;
        let look = self.looks.rate(now, seen, self.began, self.known, burst.bytes());
        let Some(Look::Clear(slope) | Look::Slower(slope) | Look::Faint(slope)) = look else { return false };
        let is_slower = matches!(look, Some(Look::Slower(_)));
        if is_slower {
            (self.known, self.variance, self.strange) = (slope.bits, FIRST_ERROR * FIRST_ERROR, 0);
        } else {
            self.average(slope);
        }
        // The correction keeps what it has learned at a rate that is known well.
        if matches!(look, Some(Look::Faint(_))) && (self.known / before - 1.0).abs() < FAINT_CHANGES {
            return false;
        }
        let most = match &self.watch {
            Watch::Sounds(_) => self.most,
            Watch::Tries(_) if self.variance > ROUGH_SLOW * ROUGH_SLOW => RESTS_ROUGH,
            Watch::Tries(_) => RESTS,
        };
        self.correction.recenter(self.known, most);
        is_slower
    }

    /// `knew_more`: a far higher rate was known well lately.
    fn handle_turn(&mut self, now: Instant, load: Load, burst: &mut Burst, knew_more: bool) -> Next {
        if self.is_limit {
            return self.keep(now, load);
        }
        let fits = !knew_more && self.looks.suffice(now);
        match &mut self.watch {
            Watch::Sounds(sounding) => {
                let is_rough = self.variance > ROUGH * ROUGH;
                let is_doubtful = is_rough || self.clear > 0 || self.looks.suspects_more(now);
                let known = Known { bits: self.known, is_rough: is_doubtful, fits };
                let sounded = sounding.handle_turn(now, load, known, &self.correction, burst);
                self.handle_sounded(now, load, sounded, is_rough)
            }
            Watch::Tries(trials) => {
                if trials.is_under_way() {
                    self.correction.rest(now, load);
                } else {
                    self.correction.handle_turn(now, load);
                }
                if trials.is_blind() {
                    self.known = self.correction.estimate_bits();
                }
                let is_rough = self.variance > ROUGH_SLOW * ROUGH_SLOW;
                let tried = trials.handle_turn(now, load, self.known, is_rough, &self.correction);
                let is_blind = trials.is_blind();
                self.handle_tried(now, tried, is_rough, is_blind)
            }
        }
    }

    fn handle_sounded(&mut self, now: Instant, load: Load, sounded: Sounded, is_rough: bool) -> Next {
        match sounded {
            Sounded::Nothing => {}
            Sounded::Rate(bits) => {
                self.correction.rest(now, load);
                return Next::Goes(bits);
            }
            Sounded::Ends(from) => self.correction.ignore_before(from),
            Sounded::Measured(slope) => {
                self.clear = 0;
                self.measured(slope);
                self.correction.recenter(self.known, self.most);
            }
            Sounded::Unseen => {
                self.clear = 0;
                self.raise(UNSEEN_RAISES);
            }
            Sounded::Clear { of_usual } => {
                let is_far_faster = of_usual.is_some_and(|part| part < FAR_FASTER) || self.looks.sees_more(now);
                self.clear = if is_far_faster { CLEAR_MOST } else { self.clear + 1 };
                if self.clear >= CLEAR_MOST {
                    return Next::TooSlow;
                }
                if is_rough || self.clear > 1 {
                    self.raise(1.0 + f64::max(CLEAR_RAISES, CLEAR_RAISES_ERRORS * libm::sqrt(self.variance)));
                }
            }
        }
        self.keep(now, load)
    }

    /// The correction decides.
    fn keep(&mut self, now: Instant, load: Load) -> Next {
        self.correction.handle_turn(now, load);
        if let Some(bits) = self.correction.after_silence() {
            return Next::AtLeast(bits);
        }
        if let Some((since, shown)) = self.correction.is_far_too_high() {
            return Next::TooFast(since, shown);
        }
        Next::Goes(self.correction.rate_bits())
    }

    /// The link has probably so many times the known rate.
    fn raise(&mut self, times: f64) {
        self.known *= times;
        self.variance = FIRST_ERROR * FIRST_ERROR;
        self.looks = Looks::default();
        self.correction.recenter(self.known, self.most);
    }

    fn handle_tried(&mut self, now: Instant, tried: Tried, is_rough: bool, is_blind: bool) -> Next {
        match tried {
            Tried::Nothing => {}
            Tried::Rate(bits) => return Next::Goes(bits),
            Tried::Measured { slope, is_faster: false } => {
                self.measured(slope);
                return Next::Goes(self.known * trials::SHRINKS);
            }
            // That trial was short. Another one follows soon.
            Tried::Measured { slope: Slope { bits, .. }, is_faster: true } | Tried::AtLeast(bits) => {
                (self.known, self.variance) = (bits, FIRST_ERROR * FIRST_ERROR);
                return Next::Goes(self.known * trials::SHRINKS);
            }
            Tried::TooSlow => return Next::TooSlow,
            Tried::Rests if is_slow(self.known, self.correction.seen()) => {
                self.go_on(now, if is_rough { RESTS_ROUGH } else { RESTS });
            }
            Tried::Rests => {
                self.watch = Watch::Sounds(Sounding::new(now));
                self.go_on(now, self.most);
            }
            Tried::Blind => {
                self.variance = FIRST_ERROR * FIRST_ERROR;
                self.go_on(now, correction::GIVEN_MOST);
            }
        }
        if let Some(bits) = self.correction.after_silence() {
            return Next::AtLeast(bits);
        }
        match self.correction.is_far_too_high() {
            Some((since, shown)) => Next::TooFast(since, shown),
            None if is_blind && self.correction.is_far_too_low() => Next::TooSlow,
            None => Next::Goes(self.correction.rate_bits()),
        }
    }

    /// The correction decides from now on, and uses this part of the known rate at most.
    fn go_on(&mut self, now: Instant, most: f64) {
        self.correction.recenter(self.known, most);
        self.correction.ignore_before(now);
    }

    /// The link has had time to drift since the last measurement.
    fn measured(&mut self, slope: Slope) {
        self.average(slope);
        self.variance += DRIFT * DRIFT;
    }

    /// Averages the known rate with this one.
    fn average(&mut self, slope: Slope) {
        let error = (slope.error / self.known).max(LEAST_ERROR);
        let of_known = slope.bits / self.known - 1.0;
        let expected = self.variance + error * error;
        if of_known * of_known > STRANGE * STRANGE * expected {
            self.strange += 1;
            if self.strange < STRANGE_MOST {
                return;
            }
            self.variance = FIRST_ERROR * FIRST_ERROR;
        }
        self.strange = 0;
        let weight = self.variance / (self.variance + error * error);
        self.known *= 1.0 + weight * of_known;
        self.variance *= 1.0 - weight;
    }
}

/// Whether a grant takes long on a link of this rate, in bits per second.
fn is_slow(bits: f64, seen: &RoundTrips) -> bool {
    seen.chunk_ns(Rate::clamped(bits)) > CHUNK_MOST_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { sent_bytes: 0, room_at: Instant::ORIGIN, waits: false, chunk_bytes: 4_542 };

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000 * MS)
    }

    fn limit(mbit: f64) -> Option<Rate> {
        Some(Rate::clamped(mbit * 1e6))
    }

    fn paced_mbit(finder: &mut Finder, now: Instant) -> f64 {
        finder.handle_turn(now, LOAD);
        finder.rate().unwrap().bits_per_second() as f64 / 1e6
    }

    #[test]
    fn the_rate_of_the_device_is_followed_and_no_longer_counts_once_it_is_gone() {
        let mut finder = Finder::new(None);
        assert!(finder.handle_limit(at(1), limit(10.0)));
        assert!(!finder.handle_limit(at(1), limit(10.0)), "nothing is new");
        assert!((paced_mbit(&mut finder, at(1)) - 9.95).abs() < 0.01);
        // In both directions, at once.
        for (seconds, mbit) in [(2, 40.0), (3, 0.5)] {
            assert!(finder.handle_limit(at(seconds), limit(mbit)));
            assert_eq!(finder.known(), limit(mbit));
            assert!((paced_mbit(&mut finder, at(seconds)) - 0.995 * mbit).abs() < 0.01);
        }
        finder.handle_limit(at(4), None);
        assert_eq!(finder.known(), limit(0.5), "it is the best that is known");
        // No queue has shown it, so it says nothing of what is behind the next limit.
        finder.handle_limit(at(30), limit(20.0));
        assert!((paced_mbit(&mut finder, at(30)) - 19.9).abs() < 0.01);
    }

    #[test]
    fn a_link_that_was_slower_than_the_device_before_a_restart_probably_is() {
        // What was kept may come before what the kernel says, or after it.
        for limit_first in [false, true] {
            let mut finder = Finder::new(None);
            if limit_first {
                finder.handle_limit(at(0), limit(10.0));
            }
            finder.begin_at(at(0), Rate::clamped(4e6));
            finder.handle_limit(at(0), limit(10.0));
            let paced = paced_mbit(&mut finder, at(1));
            assert!((3.5..4.1).contains(&paced), "limit first: {limit_first}, {paced}");
            // That of a faster one says nothing.
            let mut finder = Finder::new(None);
            if limit_first {
                finder.handle_limit(at(0), limit(10.0));
            }
            finder.begin_at(at(0), Rate::clamped(20e6));
            finder.handle_limit(at(0), limit(10.0));
            let paced = paced_mbit(&mut finder, at(1));
            assert!((9.9..10.0).contains(&paced), "limit first: {limit_first}, {paced}");
        }
    }

    #[test]
    fn a_part_of_the_rate_of_the_device_is_used_where_no_more_may_be() {
        let mut finder = Finder::new(Some(0.8));
        finder.handle_limit(at(0), limit(10.0));
        assert!((paced_mbit(&mut finder, at(1)) - 8.0).abs() < 0.01);
    }
}
