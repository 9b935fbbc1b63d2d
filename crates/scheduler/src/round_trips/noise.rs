//! How far round trips are above the shortest by jitter, while the uplink is never idle.
//!
//! Packets that are sent one after the other meet nearly the same queue, and each of them has jitter of its own. So jitter
//! shows in how much their round trips differ.

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
}
