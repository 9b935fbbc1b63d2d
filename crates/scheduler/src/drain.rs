//! Works off a queue, and finds out whether it was that of the link.
//!
//! While less is sent than the link carries, the queue of the link shrinks: the less is sent, the faster. Other
//! queues do not depend on what is sent. One is on the way to the server, where acknowledgements wait behind
//! downloads of others. One is before the link, where uploads of other hosts take what is left of it, and keep it
//! full. The round trips of a path that has become longer look like a queue, too.
//!
//! A queue that grows while less is sent shows a link that has become slower. Half of what it carries is sent then.
//!
//! A queue that stands while half of the rate is sent is drained again at a small part of the rate. If the link
//! carries half of the rate, its queue shrinks quickly then. A queue that still stands is none of the link. A queue
//! that is gone sooner than the queue of any link can be is none of it, either: a download has ended.

use core::ops::Range;

use crate::{
    round_trips::RoundTrips,
    time::{Instant, MS},
    units::Rate,
};

/// A queue that is being worked off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drain {
    /// The part of the estimate that is sent.
    pub gain: f64,
    pub began: Instant,
    /// When the queue should be gone.
    pub until: Instant,
    /// The queue at the beginning, and since when it has shown.
    pub queue_ns: u64,
    pub since: Instant,
    pub cause: Cause,
    /// The rate of the link that earlier drains of this queue have shown, in bits per second.
    pub shown: Option<f64>,
}

/// Why a queue is being worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It shows.
    Shows,
    /// It stood while [`GAIN_LEAST`] was sent.
    Stood,
    /// Nothing comes back.
    Silence,
}

/// The part of a queue that a drain has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Left {
    Nothing,
    /// So much, which is more than half of it; and by how many seconds in a second it grew, if enough packets tell.
    Much {
        ns: u64,
        trend: Option<f64>,
    },
    /// Less, or it does not show.
    Little,
}

/// The part of the rate that is sent while a short queue is worked off.
pub(crate) const GAIN: f64 = 0.8;
/// The part that is sent while a long one is, or one that a drain has left. If it stands then, it may be none of the link.
pub(crate) const GAIN_LEAST: f64 = 0.5;
/// The part that finds that out; and the one where a grant would take longer than this time.
const DEEP: f64 = 1.0 / 16.0;
const DEEP_SLOW: f64 = 1.0 / 8.0;
const CHUNK_MOST_NS: u64 = 200 * MS;
/// A round lasts a round trip and this: enough for samples to come back.
pub(crate) const ROUND_NS: u64 = 30 * MS;
/// A queue of this length that a drain leaves is drained again at a lower rate, before its slope is believed.
const AGAIN_NS: u64 = 25 * MS;
/// At a low rate few packets tell what is left of such a queue, so a drain may last so much longer.
const TELLS_NS: u64 = 600 * MS;
/// Packets tell what is left if they were sent after this part of the time until the queue should be gone.
const TELLS_AFTER: f64 = 0.4;
/// A queue stands if it grows by so many seconds in a second. Where too few packets tell, it stands if it has not grown. It
/// has grown if it is longer than so many quarters of what it was.
const STANDS: Range<f64> = -0.2..1.0;
const STANDS_QUARTERS: u64 = 5;
/// A queue is constant if it grows or shrinks by less than so many seconds in a second. While less is sent than the link
/// carries, its queue is not.
const CONSTANT: f64 = 0.03;
/// A queue that becomes so many times as long is drained at a lower rate at once.
const GROWS_MOST: u64 = 3;
/// Half of the rate that a queue shows is sent if it is below this part of the one that was known, but half of no less than
/// that part. The queue of an upload of others, which comes and goes, seems to show a little more.
const PART_MOST: f64 = 0.6;
const PART_LEAST: f64 = 0.4;
/// A longer queue is the link's: what TCP holds already goes on into it, so it does not shrink at once.
const ELSEWHERE_MOST_NS: u64 = 500 * MS;
/// A queue of the link is not gone sooner than after so many quarters of its length.
const GONE_QUARTERS: u64 = 3;
/// A rate below this part of the one that explains how fast the queue shrank is none of the link.
const TOO_SLOW: f64 = 0.75;
/// A good part of the rate that was known. A link that carries less than that is far slower, whatever else shows.
const GOOD_PART: f64 = 0.5;

impl Drain {
    /// Begins to work off a queue of this length, which has shown since then.
    pub fn new(now: Instant, seen: &RoundTrips, queue_ns: u64, since: Instant, gain: f64, cause: Cause) -> Self {
        let needed_ns = (queue_ns as f64 / (1.0 - gain)) as u64;
        let until = now.add_ns(needed_ns * 3 / 2 + 2 * seen.rtt_ns() + ROUND_NS);
        Self { gain, began: now, until, queue_ns, since, cause, shown: None }
    }

    /// From when on packets were sent that tell what is left of the queue.
    pub fn tells_from(&self) -> Instant {
        self.began.add_ns((self.until.ns_since(self.began) as f64 * TELLS_AFTER) as u64)
    }

    /// What is left of the queue; `None` while the drain goes on. `told_ns`: the queue that packets of this drain met.
    /// `met_ns`: the queue that was measured last, whenever its packets were sent.
    pub fn left(
        &self,
        now: Instant,
        seen: &RoundTrips,
        is_gone: bool,
        told_ns: Option<u64>,
        met_ns: Option<u64>,
    ) -> Option<Left> {
        if is_gone {
            return Some(Left::Nothing);
        }
        let grown_ns = met_ns.filter(|met_ns| self.has_grown(*met_ns));
        let trend = seen.trend_since(self.began);
        let most_ns = GROWS_MOST * self.queue_ns.max(AGAIN_NS);
        if let Some(ns) = met_ns.filter(|met_ns| self.gain > GAIN_LEAST && *met_ns > most_ns) {
            return Some(Left::Much { ns, trend });
        }
        // The slope of a queue that stood tells whose it is.
        let is_told =
            if self.cause == Cause::Stood { told_ns.and(trend).is_some() } else { told_ns.or(grown_ns).is_some() };
        let waits = !is_told && self.queue_ns > AGAIN_NS && self.cause != Cause::Silence;
        if now < if waits { self.until.add_ns(TELLS_NS) } else { self.until } {
            return None;
        }
        let left_ns = told_ns.or(grown_ns).filter(|left_ns| *left_ns > self.queue_ns / 2);
        Some(left_ns.map_or(Left::Little, |ns| Left::Much { ns, trend }))
    }

    /// The drain that follows if it is not known yet whose queue it is. `shown`: the rate that it shows, if it is the link's.
    /// `carried_all`: all that was sent in this drain has passed.
    pub fn next(
        &self,
        now: Instant,
        seen: &RoundTrips,
        left: Left,
        estimate: f64,
        shown: Option<f64>,
        carried_all: bool,
    ) -> Option<Self> {
        let Left::Much { ns, trend } = left else { return None };
        let is_last = self.gain <= DEEP_SLOW || self.cause == Cause::Silence || self.is_longer_path(seen, left);
        if is_last || ns <= AGAIN_NS && !carried_all {
            return None;
        }
        if self.gain > GAIN_LEAST {
            return Some(self.half(now, seen, ns, shown, estimate));
        }
        // A link of the rate that it shows has a queue that grows.
        let is_explained = self.has_grown(ns) && shown.is_some_and(|shown| shown < self.gain * estimate);
        let stands = !is_explained && trend.map_or(!self.has_grown(ns), |trend| STANDS.contains(&trend));
        let (gain, cause) = if stands && ns <= ELSEWHERE_MOST_NS {
            (deep(seen, estimate), Cause::Stood)
        } else if shown.is_none_or(|shown| shown >= self.gain * estimate) {
            (deep(seen, estimate), Cause::Shows)
        } else {
            return None;
        };
        Some(Self { shown: shown.or(self.shown), ..Self::new(now, seen, ns, self.since, gain, cause) })
    }

    /// The drain at half of the rate, or at half of the one that the queue shows. It lasts as long in both cases.
    fn half(&self, now: Instant, seen: &RoundTrips, queue_ns: u64, shown: Option<f64>, estimate: f64) -> Self {
        // Of what is sent to a full link, this part makes its queue longer.
        let grew_ns = queue_ns.saturating_sub(self.queue_ns) as f64;
        let grown = self.gain * (1.0 - grew_ns / now.ns_since(self.began).max(1) as f64);
        let part = shown.map_or(grown, |shown| grown.max(shown / estimate));
        let part = if part < PART_MOST { part.max(PART_LEAST) } else { 1.0 };
        let half = Self::new(now, seen, queue_ns, self.since, GAIN_LEAST, Cause::Shows);
        Self { gain: GAIN_LEAST * part, shown: shown.or(self.shown), ..half }
    }

    /// Whether the queue is longer now than it was, with this length.
    fn has_grown(&self, queue_ns: u64) -> bool {
        queue_ns > self.queue_ns / 4 * STANDS_QUARTERS
    }

    /// Whether it is no queue at all: what new clients seemed to meet has not changed. Their paths are longer than they were
    /// guessed to be.
    fn is_longer_path(&self, seen: &RoundTrips, left: Left) -> bool {
        let is_constant = matches!(left, Left::Much { trend: Some(trend), .. } if trend.abs() < CONSTANT);
        is_constant && seen.are_guessed(self.began)
    }

    /// Whether the queue is none of the link: it did not shrink at a small part of a rate at which it did not grow, or it is no
    /// queue.
    pub fn is_elsewhere(&self, seen: &RoundTrips, left: Left) -> bool {
        self.stood_throughout(left) || self.is_longer_path(seen, left)
    }

    fn stood_throughout(&self, left: Left) -> bool {
        let Left::Much { ns, trend } = left else { return false };
        self.cause == Cause::Stood && trend.map_or(ns <= AGAIN_NS || !self.has_grown(ns), |trend| trend > STANDS.start)
    }

    /// Whether it surely is: it did not become longer at that small part.
    pub fn is_surely_elsewhere(&self, left: Left) -> bool {
        matches!(left, Left::Much { ns, .. } if !self.has_grown(ns)) && self.stood_throughout(left)
    }

    /// Whether the queue is none of the link, though it has shown this rate: what passed was only what was sent. That is so if
    /// the link has carried far more since then, and a good part of the rate that was `settled`. It is so, too, if others keep
    /// the queue before a link of the `known` rate. All rates are in bits per second.
    pub fn shows_others(&self, now: Instant, seen: &RoundTrips, bits: f64, settled: f64, known: f64) -> bool {
        let carried_more = |most| bits < TOO_SLOW * most && most > GOOD_PART * settled;
        seen.most_carried(now, self.since).is_some_and(carried_more) || seen.stands_beside(self.since, bits, known)
    }

    /// If this rate of the link, in bits per second, does not explain how fast the queue shrank: the least one that does.
    /// `sent_bytes` were sent in this drain.
    pub fn refuted_by(&self, now: Instant, seen: &RoundTrips, left: Left, sent_bytes: u64, bits: f64) -> Option<f64> {
        if self.cause == Cause::Stood && self.contradicts_itself(now, seen, left) {
            return Some(f64::INFINITY);
        }
        let least = seen.shrank_at(now, self.began, sent_bytes, left == Left::Nothing)?;
        (bits < TOO_SLOW * least).then_some(least)
    }

    /// Whether a queue that stood is gone sooner than that of any link can be, or has begun to shrink far too late.
    fn contradicts_itself(&self, now: Instant, seen: &RoundTrips, left: Left) -> bool {
        match left {
            Left::Nothing => now.ns_since(self.began).saturating_sub(seen.rtt_ns()) < self.queue_ns / 4 * GONE_QUARTERS,
            Left::Much { ns, .. } => ns <= self.queue_ns,
            Left::Little => false,
        }
    }
}

/// The part of this rate, in bits per second, at which the queue shrinks quickly of a link that carries half of it.
fn deep(seen: &RoundTrips, bits: f64) -> f64 {
    let takes_long = seen.chunk_ns(Rate::clamped(bits * DEEP)) > CHUNK_MOST_NS;
    if takes_long { DEEP_SLOW } else { DEEP }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_trips::{Load, RoundTrip, RttKind};

    const BITS: f64 = 10e6;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MS)
    }

    fn drain(queue_ms: u64, gain: f64, cause: Cause) -> Drain {
        Drain::new(at(0), &RoundTrips::default(), queue_ms * MS, at(0), gain, cause)
    }

    fn much(ms: u64, trend: f64) -> Left {
        Left::Much { ns: ms * MS, trend: Some(trend) }
    }

    /// The gain and the cause of the drain that follows.
    fn next(drain: Drain, left: Left, shown: Option<f64>) -> Option<(f64, Cause)> {
        let next = drain.next(at(500), &RoundTrips::default(), left, BITS, shown, false)?;
        Some((next.gain, next.cause))
    }

    #[test]
    fn a_queue_that_stands_is_drained_at_half_of_the_rate_and_then_at_a_small_part_of_it() {
        let (first, half) = (drain(80, GAIN, Cause::Shows), drain(80, GAIN_LEAST, Cause::Shows));
        assert_eq!(next(first, much(80, 0.0), None), Some((GAIN_LEAST, Cause::Shows)));
        assert_eq!(next(half, much(90, 0.1), None), Some((DEEP, Cause::Stood)));
        assert_eq!(next(half, Left::Little, None), None);
        assert_eq!(next(half, much(20, 0.0), None), None, "so short a one may be jitter");
        assert_eq!(next(half, much(600, 0.3), None), Some((DEEP, Cause::Shows)), "TCP holds more of so long a one");
    }

    #[test]
    fn a_queue_of_a_far_slower_link_is_drained_at_half_of_the_rate_that_it_shows() {
        let first = drain(40, GAIN, Cause::Shows);
        let seen = RoundTrips::default();
        let left = |met_ms: u64| first.left(at(100), &seen, false, None, Some(met_ms * MS));
        assert_eq!([left(120), left(121)], [None, Some(Left::Much { ns: 121 * MS, trend: None })], "it grows quickly");
        let next = |ms, queue_ms, shown| {
            let next = first.next(at(ms), &seen, much(queue_ms, 0.0), BITS, shown, false).unwrap();
            (next.gain, next.until.ns_since(at(ms)) / MS)
        };
        assert_eq!(next(200, 140, Some(5e6)), (0.25, 450));
        assert_eq!(next(200, 140, Some(7e6)), (0.5, 450), "that shrinks quickly enough at half");
        assert_eq!(next(200, 140, Some(1e6)), (0.2, 450), "a half of what was sent has passed");
        assert_eq!(next(200, 140, None), (0.2, 450));
        assert_eq!(next(200, 45, Some(5e6)), (0.5, 165), "a link of that rate would have a longer queue");
    }

    #[test]
    fn no_drain_follows_one_in_a_silence_or_at_a_small_part_of_the_rate() {
        assert_eq!(next(drain(80, 0.25, Cause::Silence), much(80, 0.0), None), None);
        assert_eq!(next(drain(80, DEEP_SLOW, Cause::Stood), much(80, 0.0), None), None);
        assert_eq!(next(drain(80, 0.25, Cause::Shows), much(80, 0.0), None), Some((DEEP, Cause::Stood)));
    }

    #[test]
    fn a_queue_that_grows_at_half_of_the_rate_shows_the_rate_of_the_link() {
        let half = drain(80, GAIN_LEAST, Cause::Shows);
        assert_eq!(next(half, much(300, 2.0), Some(2e6)), None);
        assert_eq!(
            next(half, much(300, 2.0), Some(6e6)),
            Some((DEEP, Cause::Shows)),
            "that one would not make it grow"
        );
        assert_eq!(next(half, much(160, 0.5), Some(2e6)), None, "that explains how it grew");
        assert_eq!(next(half, much(160, 0.5), None), Some((DEEP, Cause::Stood)));
        let shown = half.next(at(500), &RoundTrips::default(), much(300, 2.0), BITS, Some(6e6), false).unwrap().shown;
        assert_eq!(shown, Some(6e6), "it is known if nothing else shows");
    }

    #[test]
    fn a_queue_is_elsewhere_if_it_stood_and_does_not_shrink_at_a_small_part_of_the_rate() {
        let seen = RoundTrips::default();
        assert!(drain(80, DEEP, Cause::Stood).is_elsewhere(&seen, much(75, -0.05)));
        assert!(!drain(80, DEEP, Cause::Stood).is_elsewhere(&seen, much(75, -0.8)));
        assert!(!drain(80, DEEP, Cause::Stood).is_elsewhere(&seen, Left::Little));
        let few = |ms: u64| Left::Much { ns: ms * MS, trend: None };
        assert!(drain(80, DEEP, Cause::Stood).is_elsewhere(&seen, few(100)));
        assert!(
            !drain(80, DEEP, Cause::Stood).is_elsewhere(&seen, few(101)),
            "it has grown, and too few packets tell how"
        );
        assert!(drain(10, DEEP, Cause::Stood).is_elsewhere(&seen, few(25)), "so short a one may be jitter");
        assert!(!drain(80, GAIN_LEAST, Cause::Shows).is_elsewhere(&seen, much(75, -0.05)));
    }

    #[test]
    fn what_new_clients_seem_to_meet_is_no_queue_if_it_does_not_change() {
        // A client is known for three seconds. Then one comes with each packet, or it stays alone.
        let seen = |come: bool| {
            let mut seen = RoundTrips::default();
            for n in 0..320 {
                let client = if come && n >= 300 { n } else { 1 };
                let load = Load { sent_bytes: n * 10_000, room_at: at(10 * n), waits: true, chunk_bytes: 4_344 };
                seen.handle_load(at(10 * n), load);
                let round_trip = RoundTrip { path: client << 16, ns: 20 * MS, kind: RttKind::Handshake, age_ns: 0 };
                seen.handle_round_trip(at(10 * n), round_trip, 0);
            }
            seen
        };
        let (new, known) = (seen(true), seen(false));
        let first = Drain::new(at(3_000), &new, 30 * MS, at(2_900), GAIN, Cause::Shows);
        let next = |seen, trend| first.next(at(3_200), seen, much(30, trend), BITS, None, false).is_some();
        assert!(first.is_elsewhere(&new, much(30, 0.01)) && !next(&new, 0.01));
        assert!(!first.is_elsewhere(&new, much(30, -0.1)) && next(&new, -0.1), "it changes");
        assert!(!first.is_elsewhere(&known, much(30, 0.01)) && next(&known, 0.01), "the client is known");
        assert!(!first.is_surely_elsewhere(much(30, 0.01)));
    }

    #[test]
    fn a_queue_that_became_longer_may_be_that_of_a_far_slower_link() {
        let (seen, stood) = (RoundTrips::default(), drain(80, DEEP, Cause::Stood));
        assert!(stood.is_surely_elsewhere(much(80, 0.0)));
        assert!(stood.is_elsewhere(&seen, much(160, 0.5)) && !stood.is_surely_elsewhere(much(160, 0.5)));
        assert!(!drain(80, GAIN_LEAST, Cause::Shows).is_surely_elsewhere(much(80, 0.0)));
    }

    #[test]
    fn a_rate_that_does_not_explain_how_the_queue_shrank_is_refuted() {
        let seen = RoundTrips::default();
        let refuted =
            |drain: Drain, ms, left, sent_bytes, mbit| drain.refuted_by(at(ms), &seen, left, sent_bytes, mbit * 1e6);
        let (half, stood) = (drain(80, GAIN_LEAST, Cause::Shows), drain(80, DEEP, Cause::Stood));
        assert_eq!(refuted(half, 200, Left::Nothing, 100_000, 2.0), Some(4e6), "the link carried what was sent");
        assert_eq!(refuted(half, 200, Left::Nothing, 100_000, 4.0), None);
        assert_eq!(refuted(half, 200, much(75, 0.0), 100_000, 2.0), None);
        assert_eq!(
            refuted(stood, 40, Left::Nothing, 1_000, 5.0),
            Some(f64::INFINITY),
            "no link empties its queue so soon"
        );
        assert_eq!(refuted(stood, 90, Left::Nothing, 1_000, 5.0), None);
        assert_eq!(refuted(stood, 200, much(60, -0.7), 1_000, 5.0), Some(f64::INFINITY), "it should have gone at once");
        assert_eq!(refuted(stood, 200, much(300, -0.7), 1_000, 5.0), None, "it had been longer than was known");
    }

    #[test]
    fn a_drain_goes_on_until_packets_tell_what_is_left() {
        let half = drain(80, GAIN_LEAST, Cause::Shows);
        let seen = RoundTrips::default();
        let left = |ms, told_ms: Option<u64>, met_ms: Option<u64>| {
            half.left(at(ms), &seen, false, told_ms.map(|ms| ms * MS), met_ms.map(|ms| ms * MS))
        };
        assert_eq!(left(200, Some(70), None), None, "it should be gone after 270 ms");
        assert_eq!(left(300, Some(70), None), Some(Left::Much { ns: 70 * MS, trend: None }));
        assert_eq!(left(300, Some(30), None), Some(Left::Little));
        assert_eq!(left(300, None, Some(80)), None);
        assert_eq!(left(300, None, Some(120)), Some(Left::Much { ns: 120 * MS, trend: None }), "it has grown");
        assert_eq!(left(900, None, Some(80)), Some(Left::Little), "none tells");
        assert_eq!(half.left(at(10), &seen, true, None, None), Some(Left::Nothing));
        let stood = drain(80, DEEP, Cause::Stood);
        let left = |ms| stood.left(at(ms), &seen, false, Some(120 * MS), Some(120 * MS));
        assert_eq!(left(300), None, "too few packets tell its slope");
        assert_eq!(left(900), Some(Left::Much { ns: 120 * MS, trend: None }));
    }
}
