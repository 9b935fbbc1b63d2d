//! How fast a queue grows or shrinks.
//!
//! Two packets that are sent one after the other meet the queue at two times, however late they come back. The queue of the
//! link changes with what is sent. It never shrinks by more than a second in a second.

use alloc::vec::Vec;

use super::{Moments, RoundTrips, Sample};
use crate::time::{Instant, MS};

/// A trend shows in so many round trips, of packets that were sent over this time.
const LEAST: usize = 3;
const LEAST_NS: u64 = 40 * MS;
/// A queue that shrinks is taken to shrink by at most so many seconds in a second. A slower change than the second number may
/// be noise.
const SHRINKS_MOST: f64 = 0.95;
const SHRINKS_LEAST: f64 = 0.2;

impl RoundTrips {
    /// By how many seconds in a second the queue grows that packets meet that were sent since then. `None` if too few tell.
    pub fn trend_since(&self, since: Instant) -> Option<f64> {
        let recent = self.samples.iter().rev().take_while(|it| it.at >= since).filter(|it| it.sent_at >= since);
        let met = |it: &Sample| Some((it.sent_at.ns_since(since) as f64, it.above_ns? as f64));
        let points: Vec<(f64, f64)> = recent.filter_map(met).collect();
        let first_ns = points.iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let last_ns = points.iter().map(|it| it.0).fold(0.0, f64::max);
        let Moments { of_x: of_sent, of_both, .. } = Moments::new(&points);
        (points.len() >= LEAST && last_ns - first_ns >= LEAST_NS as f64).then_some(of_both / of_sent)
    }

    /// The rate of the link that explains how fast a queue shrank since then, in bits per second. So much was sent meanwhile.
    /// `None` if it did not shrink, and is not gone.
    pub fn shrank_at(&self, now: Instant, since: Instant, sent_bytes: u64, is_gone: bool) -> Option<f64> {
        let trend = self.trend_since(since).unwrap_or(0.0).clamp(-SHRINKS_MOST, 0.0);
        let sent_bits = 8e9 * sent_bytes as f64 / now.ns_since(since) as f64;
        (is_gone || trend < -SHRINKS_LEAST).then_some(sent_bits / (1.0 + trend))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Load, RoundTrip, RttKind},
        *,
    };

    /// A packet is sent every 10 ms for 200 ms, and meets this queue. Also returns the time at which all have come back.
    fn packets(queue_ms: impl Fn(u64) -> u64) -> (RoundTrips, Instant) {
        let mut seen = RoundTrips::default();
        let at = |ms: u64| Instant::from_ns(ms * MS);
        let mut measure = |now_ms: u64, rtt_ms: u64| {
            let load = Load { sent_bytes: now_ms * 1_000, room_at: at(now_ms), waits: true, chunk_bytes: 4_344 };
            seen.handle_load(at(now_ms), load);
            let round_trip = RoundTrip { path: 7, ns: rtt_ms * MS, kind: RttKind::Handshake, age_ns: 0 };
            seen.handle_round_trip(at(now_ms), round_trip, 0);
        };
        // The client is known after two seconds.
        (0..=300).for_each(|n| measure(10 * n, 1));
        let mut came: Vec<(u64, u64)> =
            (0..20).map(|n| (3_010 + 10 * n + queue_ms(10 * n), 1 + queue_ms(10 * n))).collect();
        came.sort_unstable();
        came.iter().for_each(|&(now_ms, rtt_ms)| measure(now_ms, rtt_ms));
        (seen, at(came[came.len() - 1].0))
    }

    const SINCE: Instant = Instant::from_ns(3_005 * MS);

    #[test]
    fn a_trend_is_that_of_packets_in_the_order_in_which_they_were_sent() {
        let trend = |queue_ms: fn(u64) -> u64| packets(queue_ms).0.trend_since(SINCE).unwrap();
        assert!(trend(|_| 80).abs() < 0.02);
        assert!((trend(|ms| 50 + ms / 2) - 0.5).abs() < 0.05);
        assert!((trend(|ms| 150 - ms / 2) + 0.5).abs() < 0.05);
        let (seen, now) = packets(|_| 80);
        assert_eq!(seen.trend_since(now), None, "nothing has come back that was sent since then");
    }

    #[test]
    fn the_faster_a_queue_shrank_the_faster_the_link() {
        let mbit = |queue_ms: fn(u64) -> u64, is_gone| {
            let (seen, now) = packets(queue_ms);
            let sent_bytes = now.ns_since(SINCE) / 1_000;
            seen.shrank_at(now, SINCE, sent_bytes, is_gone).map(|bits| bits / 1e6)
        };
        let half = mbit(|ms| 150 - ms / 2, false).unwrap();
        assert!((half - 16.0).abs() < 1.0, "8 Mbit/s were sent, and the link carried {half:.2}");
        assert_eq!(mbit(|_| 80, false), None, "it stands");
        assert_eq!(mbit(|_| 80, true), Some(8.0), "it is gone now, so the link carried all");
        assert!(mbit(|ms| 200 - ms, false).unwrap() > 100.0, "no link empties a queue so fast");
    }
}
