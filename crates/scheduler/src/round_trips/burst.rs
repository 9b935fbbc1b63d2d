//! How many bytes the link lets pass at once.
//!
//! Many links are limited by a token bucket: after a pause they let a burst pass at any rate, and their own rate holds from
//! then on. No queue shows until the burst is used up, so for that time such a link looks like a faster one.

use alloc::vec::Vec;

use super::{FULL_LEVELS, RoundTrips};
use crate::time::Instant;

/// A burst shows in so many packets.
const PACKETS_LEAST: usize = 5;

impl RoundTrips {
    /// The bytes by which more was sent from then on, before each moment of the history, than a link of this rate (in bits per
    /// second) has carried. It carries bytes only after they were sent.
    fn ahead(&self, bits: f64, since: Instant) -> Vec<(Instant, f64)> {
        let mut ahead_bytes = 0.0;
        let points = || self.points.iter().skip_while(move |it| it.at < since);
        let pairs = points().zip(points().skip(1));
        let later = pairs.map(|(before, it)| {
            let carried_bytes = bits / 8.0 * it.at.ns_since(before.at) as f64 / 1e9;
            let sent_bytes = it.sent_bytes.saturating_sub(before.sent_bytes) as f64;
            ahead_bytes = f64::max(ahead_bytes + sent_bytes - carried_bytes, 0.0);
            (it.at, ahead_bytes)
        });
        points().next().map(|it| (it.at, 0.0)).into_iter().chain(later).collect()
    }

    /// The bytes by which more was sent between these times than a link of this rate has carried.
    pub fn ahead_bytes(&self, bits: f64, since: Instant, until: Instant) -> f64 {
        self.ahead(bits, since).iter().rev().find(|(at, _)| *at <= until).map_or(0.0, |&(_, bytes)| bytes)
    }

    /// The burst that a link of this rate has let pass before packets began to wait for so long, and longer than with
    /// jitter alone. Those count that were sent between the two times of `queue`; `None` if too few of them waited. Right
    /// if the link had this rate from `since` on, and had saved up all of the burst within the history.
    pub fn burst_bytes(&self, bits: f64, since: Instant, queue: (Instant, Instant), least_ns: u64) -> Option<f64> {
        let ahead = self.ahead(bits, since);
        let (from, until) = queue;
        let sent = self.samples.iter().filter(|it| from <= it.sent_at && it.sent_at <= until);
        let of_packet = |(sent_at, waited_ns): (Instant, u64)| {
            let before = ahead.partition_point(|(at, _)| *at <= sent_at).checked_sub(1)?;
            Some(ahead.get(before)?.1 - bits / 8.0 * waited_ns as f64 / 1e9)
        };
        let level_ns = self.level_ns(until);
        let least_ns = least_ns.max(FULL_LEVELS * level_ns);
        let waited_ns = |above_ns: u64| above_ns.checked_sub(level_ns).filter(|waited_ns| *waited_ns >= least_ns);
        let waited = sent.filter_map(|it| Some((it.sent_at, waited_ns(it.above_ns?)?)));
        let mut bursts: Vec<f64> = waited.filter_map(of_packet).collect();
        let middle = bursts.len() / 2;
        (bursts.len() >= PACKETS_LEAST).then(|| *bursts.select_nth_unstable_by(middle, f64::total_cmp).1)
    }
}
