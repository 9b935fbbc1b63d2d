//! Makes a short queue on purpose, and measures the rate at which the link works it off.
//!
//! The queue grows for a moment, stands at the known rate of the link, and shrinks. While it stands, the link is busy all
//! the time, so what passes it is its rate. A queue that does not show has been passed by a faster link.
//! If the link lets a burst pass first, that is used up before the queue grows.
//!
//! Each response of that time waits in the queue, so soundings are rare. Round trips show a link that has become much
//! faster without one: they meet less of the queue that the grants themselves make.

use core::ops::Range;

use super::burst::Burst;
use crate::{
    correction::Correction,
    round_trips::{Load, RoundTrips, Slope},
    time::{Instant, MS},
    units::Rate,
};

/// The soundings of a link.
#[derive(Clone, Debug)]
pub(super) struct Sounding {
    state: State,
    /// From then on the next one measures. Until then a queue is only felt for.
    measures_from: Instant,
    measures_every_ns: u64,
    /// The part of the pacer's own queue that round trips usually meet: before soundings that showed the link to be no faster
    /// than known.
    usual_part: Option<f64>,
    /// The mean part that showed of the queues that were made.
    shown: f64,
}

/// What is known of the rate of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// In bits per second.
    pub bits: f64,
    /// Whether it is known roughly, or in doubt.
    pub is_rough: bool,
    /// Whether it was seen lately to fit what packets met.
    pub fits: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next one begins from then on.
    Due(Instant),
    Grows(Times),
    Stands(Times),
    Shrinks(Times),
    /// Packets that were sent while the queue stood are on their way.
    Awaits(Times),
}

/// The course of a sounding.
#[derive(Clone, Copy, Debug)]
struct Times {
    began: Instant,
    sent_bytes: u64,
    /// When the queue is to have its length, until when it is to stand, and when it is to be gone.
    grown: Instant,
    stood: Instant,
    gone: Instant,
    queue_ns: u64,
    measures: bool,
    /// The part of the pacer's own queue that round trips met before.
    own_part: Option<f64>,
}

/// The outcome of a turn of [`Sounding`].
pub(super) enum Sounded {
    /// Nothing.
    Nothing,
    /// To send at this rate.
    Rate(f64),
    /// Packets that are sent from now on meet no queue of this.
    Ends(Instant),
    /// The link has this rate.
    Measured(Slope),
    /// No queue showed: the link is faster than was known.
    /// `of_usual`: see [`Sounding::of_usual`].
    Clear { of_usual: Option<f64> },
    /// There is jitter, and hardly anything of the queues of several soundings showed: the link is faster than was known.
    Unseen,
}

/// From one to the next, while the rate is known roughly, and after one that was broken off or not clear.
const EVERY_NS: u64 = 1_500 * MS;
const EVERY_ROUGH_NS: u64 = 400 * MS;
const AGAIN_NS: u64 = 400 * MS;
/// From one that measures to the next, at first. The time doubles, up to the longest, while each finds the known rate but
/// for this part.
const MEASURES_EVERY_NS: u64 = 16_000 * MS;
const MEASURES_EVERY_MOST_NS: u64 = 60_000 * MS;
const SAME: f64 = 0.01;
/// No sounding feels for a queue while round trips meet the usual part of the pacer's own, within these factors. That is
/// checked so often.
const AS_USUAL: Range<f64> = 0.6..4.0;
const LOOK_NS: u64 = 100 * MS;
/// A smaller usual part tells nothing: a token bucket before the link lets all packets of a grant pass at once.
const USUAL_LEAST: f64 = 0.12;
/// The weight of the last part in the usual one.
const USUAL_WEIGHT: f64 = 0.3;
/// The link has to be busy for so long before: then it probably stays busy until the end.
const BUSY_NS: u64 = 60 * MS;
/// The queue's length at least, and in chunks; and the part of that while the rate is known well.
const QUEUE_LEAST_NS: u64 = MS * 6 / 5;
const QUEUE_CHUNKS: f64 = 1.0;
const KNOWN_WELL: f64 = 0.6;
/// The rates at which it grows and shrinks. It is given more time to shrink than it takes: what is left of it would be
/// taken for one that stands.
const GROWS: f64 = 1.2;
const SHRINKS: f64 = 0.8;
const SHRINKS_FOR: f64 = 1.3;
/// How long it stands: so many times as long as enough round trips take to come, and longer if it is to be measured.
/// Within these bounds.
const STANDS_SAMPLES: u64 = 1;
const STANDS_SAMPLES_MEASURES: u64 = 4;
const STANDS_LEAST_NS: u64 = 25 * MS;
const STANDS_MOST_NS: u64 = 250 * MS;
const STANDS_CHUNKS: u64 = 27;
const STANDS_CHUNKS_MOST_NS: u64 = 600 * MS;
/// Soundings take at most one in so many parts of the time where round trips do not tell. The other bounds are for those
/// that measure, and for those while the rate is known roughly.
const SELDOM: u64 = 20;
const SELDOM_MEASURES: u64 = 400;
const SELDOM_ROUGH: u64 = 12;
/// If the median is below this part of its length, the queue does not show.
const SHOWS: f64 = 0.3;
const SAMPLES_LEAST: usize = 3;
/// With jitter, one sounding tells little. The queues of several do not show if the mean of what showed of them is below this
/// part. Of the mean, the last one has this weight, and it counts within these bounds.
const UNSEEN: f64 = 0.3;
const SHOWN_WEIGHT: f64 = 0.2;
const SHOWN: Range<f64> = -0.5..1.5;
/// It is compared with the time before.
const BEFORE_NS: u64 = 150 * MS;

impl Times {
    /// One that begins now, on a link of this rate, with this part of the usual queue, after this time for the burst.
    fn new(now: Instant, load: Load, known: Rate, part: f64, measures: bool, burst_ns: u64, seen: &RoundTrips) -> Self {
        let chunk_ns = seen.chunk_ns(known) as f64;
        let queue_ns = (part * (QUEUE_CHUNKS * chunk_ns).max(QUEUE_LEAST_NS as f64)) as u64;
        let queue_ns = queue_ns.max(seen.shows_ns(now));
        let samples = if measures { STANDS_SAMPLES_MEASURES } else { STANDS_SAMPLES };
        let least_ns = if measures { STANDS_CHUNKS * chunk_ns as u64 } else { 0 };
        let stands_ns = (samples * seen.samples_ns(now)).min(STANDS_MOST_NS);
        let stands_ns = stands_ns.max(STANDS_LEAST_NS).max(least_ns.min(STANDS_CHUNKS_MOST_NS));
        let grown = now.add_ns(((queue_ns + burst_ns) as f64 / (GROWS - 1.0)) as u64);
        let stood = grown.add_ns(stands_ns);
        let gone = stood.add_ns((SHRINKS_FOR * queue_ns as f64 / (1.0 - SHRINKS)) as u64);
        let (sent_bytes, own_part) = (load.sent_bytes, seen.own_queue_part(now));
        Self { began: now, sent_bytes, grown, stood, gone, queue_ns, measures, own_part }
    }

    /// Whether the queue shows already: less of the burst was saved up.
    fn shows_early(&self, now: Instant, seen: &RoundTrips) -> bool {
        seen.queue_ns(now, self.began, true).is_some_and(|queue_ns| queue_ns > self.queue_ns as i64)
    }

    /// The queue grows for twice its time at most.
    fn grown_at_most(&self) -> Instant {
        self.grown.add_ns(self.grown.ns_since(self.began))
    }

    /// The same, if the queue has its length now.
    fn grown_at(self, now: Instant) -> Self {
        let (stands_ns, shrinks_ns) = (self.stood.ns_since(self.grown), self.gone.ns_since(self.stood));
        let stood = now.add_ns(stands_ns);
        Self { grown: now, stood, gone: stood.add_ns(shrinks_ns), ..self }
    }
}

impl Sounding {
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::Due(now.add_ns(AGAIN_NS)),
            measures_from: now,
            measures_every_ns: MEASURES_EVERY_NS,
            usual_part: None,
            shown: 1.0,
        }
    }

    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Grows(_) | State::Stands(_) | State::Shrinks(_))
    }

    /// The part of the pacer's own queue that round trips of the last second met, over the usual part. `None` if it cannot be
    /// told.
    fn of_usual(&self, now: Instant, seen: &RoundTrips) -> Option<f64> {
        let usual = self.usual_part.filter(|usual| *usual >= USUAL_LEAST)?;
        Some(seen.own_queue_part(now)? / usual)
    }

    pub fn handle_turn(
        &mut self,
        now: Instant,
        load: Load,
        Known { bits: known, is_rough, fits }: Known,
        correction: &Correction,
        burst: &mut Burst,
    ) -> Sounded {
        let seen = correction.seen();
        match self.state {
            State::Due(at) if now < at || !load.waits || correction.sees_long_queue() || seen.is_elsewhere(now) => {
                Sounded::Nothing
            }
            State::Due(_) if !is_rough && seen.busy_ns(now) < BUSY_NS => Sounded::Nothing,
            State::Due(_) => {
                let measures = is_rough || now >= self.measures_from;
                let of_usual = self.of_usual(now, seen);
                let is_needless = if fits {
                    of_usual.is_none_or(|part| part >= AS_USUAL.start)
                } else {
                    !measures && of_usual.is_some_and(|part| AS_USUAL.contains(&part))
                };
                if is_needless {
                    self.state = State::Due(now.add_ns(LOOK_NS));
                    return Sounded::Nothing;
                }
                let part = if is_rough { 1.0 } else { KNOWN_WELL };
                let rate = Rate::clamped(known);
                let burst_ns = burst.sure_ns(now, rate, seen);
                self.state = State::Grows(Times::new(now, load, rate, part, measures, burst_ns, seen));
                Sounded::Rate(known * GROWS)
            }
            State::Grows(_) if !load.waits => self.break_off(now),
            State::Grows(times) if now < times.grown && burst.is_known() && times.shows_early(now, seen) => {
                self.state = State::Stands(times.grown_at(now));
                Sounded::Rate(known)
            }
            State::Grows(times) if now < times.grown => Sounded::Rate(known * GROWS),
            // Clients took less than they were granted: the burst is not used up yet.
            State::Grows(times) if now < times.grown_at_most() && burst.explains(known, now, seen) => {
                Sounded::Rate(known * GROWS)
            }
            State::Grows(times) => {
                let sent_bits = load.sent_bytes.saturating_sub(times.sent_bytes) as f64 * 8.0;
                let least_bits = known * (1.0 + SHOWS * (GROWS - 1.0)) * now.ns_since(times.began) as f64 / 1e9;
                if sent_bits < least_bits {
                    // Clients took less than they were granted.
                    return self.break_off(now);
                }
                self.state = State::Stands(times.grown_at(now));
                Sounded::Rate(known)
            }
            State::Stands(times) if now < times.stood && load.waits => Sounded::Rate(known),
            State::Stands(times) => {
                let gone = now.add_ns(times.gone.ns_since(times.stood));
                self.state = State::Shrinks(Times { stood: now, gone, ..times });
                Sounded::Rate(known * SHRINKS)
            }
            State::Shrinks(times) if now < times.gone => Sounded::Rate(known * SHRINKS),
            State::Shrinks(times) => {
                self.state = State::Awaits(times);
                Sounded::Ends(now)
            }
            State::Awaits(times) if now.ns_since(times.stood) < seen.rtt_ns() + times.queue_ns + 5 * MS => {
                Sounded::Nothing
            }
            State::Awaits(times) => self.judge(now, times, known, is_rough, correction.seen(), burst),
        }
    }

    fn judge(
        &mut self,
        now: Instant,
        times: Times,
        known: f64,
        is_rough: bool,
        seen: &RoundTrips,
        burst: &mut Burst,
    ) -> Sounded {
        self.state = State::Due(now.add_ns(AGAIN_NS));
        let Some(queue_ns) = seen.queue_between(now, times.grown, times.stood, SAMPLES_LEAST) else {
            return Sounded::Nothing;
        };
        // With jitter, something like a queue shows at all times, or like one that is too short. Without, a shorter one is that
        // of a faster link, or of a burst.
        let before = Instant::from_ns(times.began.as_ns().saturating_sub(BEFORE_NS));
        let before_ns = seen.queue_between(now, before, times.began, SAMPLES_LEAST).unwrap_or(0);
        let queue_ns = queue_ns - before_ns.max(-(seen.level_ns(now) as i64));
        let shown = queue_ns as f64 / times.queue_ns as f64;
        self.shown += SHOWN_WEIGHT * (shown.clamp(SHOWN.start, SHOWN.end) - self.shown);
        if self.shown < UNSEEN && seen.has_jitter(now) && !seen.are_clients_new(now) {
            self.shown = 1.0;
            return Sounded::Unseen;
        }
        if shown < SHOWS {
            if burst.explains(known, times.grown, seen) {
                burst.handle_unseen();
                return Sounded::Nothing;
            }
            return Sounded::Clear { of_usual: self.of_usual(now, seen) };
        }
        if let Some(part) = times.own_part {
            let usual = self.usual_part.unwrap_or(part);
            self.usual_part = Some(usual + USUAL_WEIGHT * (part - usual));
        }
        let lasted_ns = times.gone.ns_since(times.began);
        let next_ns = if is_rough {
            EVERY_ROUGH_NS.max(SELDOM_ROUGH * lasted_ns)
        } else if self.of_usual(now, seen).is_some() {
            // Round trips decide when the next one is made.
            AGAIN_NS
        } else {
            EVERY_NS.max(SELDOM * lasted_ns)
        };
        self.state = State::Due(now.add_ns(next_ns));
        let Some(slope) = seen.slope_between(times.grown, times.stood) else { return Sounded::Nothing };
        burst.handle_sounding(known, times.began, (times.grown, times.stood), times.queue_ns / 2, seen);
        if times.measures {
            let is_same = !is_rough && (slope.bits / known - 1.0).abs() < SAME;
            let longer_ns = (2 * self.measures_every_ns).min(MEASURES_EVERY_MOST_NS);
            self.measures_every_ns = if is_same { longer_ns } else { MEASURES_EVERY_NS };
            self.measures_from = now.add_ns(self.measures_every_ns.max(SELDOM_MEASURES * lasted_ns));
        }
        Sounded::Measured(slope)
    }

    /// Without enough work no queue grows.
    fn break_off(&mut self, now: Instant) -> Sounded {
        self.state = State::Due(now.add_ns(AGAIN_NS));
        Sounded::Ends(now)
    }
}
