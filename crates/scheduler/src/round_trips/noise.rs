//! How far round trips are above the shortest by jitter, while the uplink is never idle.
//!
//! Packets that are sent one after the other meet nearly the same queue, and each of them has jitter of its own. So jitter
//! shows in how much their round trips differ.
//!
//! A queue that comes and goes quickly looks like that, too. But packets pass it in the order in which they were sent. With
//! jitter, many of those that were sent shortly one after the other do not.

use alloc::vec::Vec;

use crate::time::{Instant, MS};

/// The noise of round trips: twice the distance of each from the mean of its neighbours. A steady change counts for
/// nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    last: (Instant, i64),
    before: (Instant, i64),
    count: u32,
    mean_ns: i64,
}

/// Three round trips of this time meet nearly the same queue.
const OVER_NS: u64 = 60 * MS;
/// So many differences are enough, and the mean is over the last of so many.
const LEAST: u32 = 3;
const MOST: u32 = 64;
/// An outlier counts as so many times the mean, and this.
const OUTLIER: i64 = 4;
const OUTLIER_NS: i64 = MS as i64;
/// Packets are close if they were sent within this part of the noise. So many pairs are enough. They keep their order if they
/// miss it by less than this part of the noise, in the mean.
const CLOSE: u64 = 2;
const PAIRS_LEAST: u64 = 6;
const ORDER: u64 = 32;

impl Noise {
    /// A round trip that was measured now was longer by this than the shortest and the pacer's own queue.
    pub fn handle(&mut self, now: Instant, waited_ns: i64) {
        let differs_ns = (waited_ns - 2 * self.last.1 + self.before.1).abs();
        let over_ns = now.ns_since(self.before.0);
        (self.before, self.last) = (self.last, (now, waited_ns));
        if over_ns > OVER_NS {
            return;
        }
        self.count = self.count.saturating_add(1);
        let most_ns = if self.count > LEAST { OUTLIER * self.mean_ns + OUTLIER_NS } else { i64::MAX };
        self.mean_ns += (differs_ns.min(most_ns) - self.mean_ns) / i64::from(self.count.min(MOST));
    }

    /// How far the median is above the shortest, for jitter with a normal distribution. The mean difference is twice its
    /// deviation. The shortest of some hundred is two and a half deviations below the median.
    pub fn level_ns(&self) -> i64 {
        if self.count < LEAST { 0 } else { self.mean_ns * 5 / 4 }
    }

    /// Whether packets that were sent shortly one after the other have passed in that order: when each was sent, and when it
    /// had passed. Then the noise is that of a queue.
    pub fn keeps_order(&self, mut packets: Vec<(Instant, Instant)>) -> bool {
        let noise_ns = self.level_ns().cast_unsigned();
        packets.sort_unstable();
        let close = packets.windows(2).filter(|pair| pair[1].0.ns_since(pair[0].0) < noise_ns / CLOSE);
        let missed = close.map(|pair| pair[0].1.ns_since(pair[1].1));
        let (pairs, missed_ns) = missed.fold((0, 0), |(pairs, sum_ns), missed_ns| (pairs + 1, sum_ns + missed_ns));
        pairs >= PAIRS_LEAST && missed_ns * ORDER < pairs * noise_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet every 2 ms, and how long it waits, in microseconds. Returns whether they keep their order, and the level.
    fn keeps_order(waits_us: impl Iterator<Item = u64>) -> (bool, i64) {
        let mut noise = Noise::default();
        let mut packets = Vec::new();
        for (number, waits_us) in waits_us.enumerate() {
            let sent_at = Instant::from_ns(MS * (1_000 + 2 * number as u64));
            let passed_at = sent_at.add_ns(1_000 * waits_us);
            noise.handle(passed_at, 1_000 * waits_us as i64);
            packets.push((sent_at, passed_at));
        }
        (noise.keeps_order(packets), noise.level_ns() / MS as i64)
    }

    #[test]
    fn a_queue_that_comes_and_goes_keeps_the_order_and_jitter_does_not() {
        // A burst of 6 ms comes every 8 ms.
        let queue = (0..100).map(|number| [0, 6_000, 4_000, 2_000][number % 4]);
        assert_eq!(keeps_order(queue), (true, 4), "it looks like jitter, but for the order");
        // Multiples of the golden ratio spread evenly.
        let jitter = (0..100_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).map(|it| it % 10_000);
        let (keeps, level_ms) = keeps_order(jitter);
        assert!(!keeps && level_ms >= 4, "{level_ms} ms");
    }

    #[test]
    fn a_few_packets_do_not_tell() {
        assert!(!keeps_order([0, 6_000, 4_000, 2_000, 0, 6_000].into_iter()).0);
    }
}
