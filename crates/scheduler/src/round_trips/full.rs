//! Whether the link was busy all the time, so that what passed it is its rate.
//!
//! The uplink may pause while a queue at the link is worked off. Then the queue has to show that the link is busy. Jitter
//! looks like a queue. The slope of packets that never waited is the rate at which they were sent.

use alloc::vec::Vec;

use super::{CARRIED_ALL, FULL_LEVELS, JITTER_NS, RoundTrips, Sample, Slope};
use crate::{
    time::{Instant, MS},
    units::Rate,
};

/// Where the uplink paused, the queue of a full link is at least this long.
const FULL_LEAST_NS: u64 = 3 * MS;
/// One that is so many times as long is no jitter, whatever its slope is.
const VERY_LONG: u64 = 2;
/// A queue of this length is none that a search makes, which ends sooner.
const TCP_QUEUE_NS: i64 = 100 * MS as i64;
/// A slope with a larger error, as a part of it, is not believed.
const ERROR_MOST: f64 = 0.15;

impl RoundTrips {
    /// Whether the link was busy all the time since then, so that the slope of that time is its rate. That is so if the uplink
    /// was busy, or if half of the round trips met a queue of some milliseconds that is far longer than jitter.
    pub fn was_full(&self, now: Instant, since: Instant, slope: Slope) -> bool {
        if self.busy_ns(now) >= now.ns_since(since) {
            return true;
        }
        let recent = self.samples.iter().rev().take_while(|it| it.at >= since);
        let mut queues: Vec<u64> = recent.filter_map(|it| it.above_ns).collect();
        let middle = queues.len() / 2;
        let queue_ns = if queues.is_empty() { 0 } else { *queues.select_nth_unstable(middle).1 };
        let long_ns = (FULL_LEVELS * self.level_ns(now)).max(FULL_LEAST_NS);
        let is_of_sender =
            || is_same(slope, self.sent_bits(now, since), CARRIED_ALL) || self.is_jitter(now, since, slope);
        queue_ns > long_ns
            && slope.error < ERROR_MOST * slope.bits
            && (queue_ns > VERY_LONG * long_ns || !is_of_sender())
    }

    /// Whether a queue that has shown since then may be jitter. It may where jitter hides short queues, if its slope is not
    /// sure, or is the rate at which its packets were sent.
    pub fn is_jitter(&self, now: Instant, since: Instant, slope: Slope) -> bool {
        let level_ns = self.level_ns(now);
        if level_ns < self.chunk_ns(Rate::clamped(slope.bits)).max(JITTER_NS) {
            return false;
        }
        let recent = || self.samples.iter().rev().take_while(|it| it.at >= since).filter(|it| it.above_ns.is_some());
        let (Some(last), Some(first)) = (recent().next(), recent().last()) else { return true };
        let lasts_ns = last.sent_at.ns_since(first.sent_at) as f64;
        let sent_bits = 8e9 * (last.delivered_bytes - first.delivered_bytes) / lasts_ns;
        // Jitter makes the time shorter or longer in which they passed the link.
        let range = CARRIED_ALL + level_ns as f64 / lasts_ns;
        slope.error >= ERROR_MOST * slope.bits || is_same(slope, sent_bits, range)
    }

    /// The rate of the link since then, if it was busy all the time, or else while packets waited for the longest. Packets of
    /// the first kind count that met at least this queue.
    pub fn slope_if_full(&self, now: Instant, since: Instant, queue_least_ns: u64) -> Option<Slope> {
        let paused = self.busy_ns(now) < now.ns_since(since);
        match if paused { self.longest_queue(now, since) } else { None } {
            Some((from, until)) => self.slope_between(from, until),
            None => self.slope(since, queue_least_ns).filter(|slope| self.was_full(now, since, *slope)),
        }
    }

    /// The rate that the link has carried lately, in bits per second, if round trips meet a long queue. TCP sends no more than
    /// the link carries then, so no slope shows.
    pub fn carried_by_tcp(&self, now: Instant) -> Option<f64> {
        let queue_ns = self.queue_ns(now, Instant::ORIGIN, true)?;
        self.carried_bits(now).filter(|_| queue_ns > TCP_QUEUE_NS)
    }

    /// The rate at which was sent since then, in bits per second.
    pub(super) fn sent_bits(&self, now: Instant, since: Instant) -> f64 {
        let before = self.points.iter().rev().find(|it| it.at <= since);
        let (Some(before), Some(last)) = (before, self.points.back()) else { return 0.0 };
        8e9 * (last.sent_bytes - before.sent_bytes) as f64 / now.ns_since(since) as f64
    }

    /// The longest time since then in which packets waited without a pause: when the first of them was sent, and the last.
    /// Each was sent before an earlier one had passed the link. `None` with jitter, which looks like waiting.
    pub fn longest_queue(&self, now: Instant, since: Instant) -> Option<(Instant, Instant)> {
        let level_ns = self.level_ns(now);
        if level_ns >= JITTER_NS {
            return None;
        }
        let waited = |it: &Sample| Some((it.sent_at, it.sent_at.add_ns(it.above_ns?.checked_sub(level_ns)?)));
        let recent = self.samples.iter().filter(|it| it.at >= since);
        let mut waits: Vec<(Instant, Instant)> = recent.filter_map(waited).collect();
        waits.sort_unstable();
        let (mut from, mut busy_until) = *waits.first()?;
        let mut longest = (from, from);
        for (sent_at, passed_at) in waits {
            if sent_at > busy_until {
                from = sent_at;
            }
            busy_until = busy_until.max(passed_at);
            if sent_at.ns_since(from) > longest.1.ns_since(longest.0) {
                longest = (from, sent_at);
            }
        }
        Some(longest)
    }
}

/// Whether a slope is this rate, in bits per second, but for this part.
fn is_same(slope: Slope, bits: f64, part: f64) -> bool {
    (slope.bits / bits - 1.0).abs() < part
}
