//! Number and total time of the requests that finished within a sliding window of time, in O(1).
//!
//! A request is only added to the sums of its *bucket*, a 128th of the window. So an account has at most 128
//! buckets (6 KiB), however many requests finish. A request is forgotten with its bucket, after 127/128 to
//! all of the window: of 120 s the difference is not quite a second.

use alloc::collections::VecDeque;

use crate::time::Instant;

/// Buckets in a window.
const BUCKETS: u64 = 128;

#[derive(Clone, Debug)]
pub(super) struct Recent {
    bucket_ns: u64,
    /// By number of the bucket; only buckets with finished requests.
    buckets: VecDeque<(u64, Sum)>,
    sum: Sum,
}

/// Number and total time of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub count: u64,
    pub ns: u128,
}

impl Recent {
    pub fn new(window_ns: u64) -> Self {
        Self { bucket_ns: (window_ns / BUCKETS).max(1), buckets: VecDeque::new(), sum: Sum::default() }
    }

    /// Adds a finished request that took `ns`.
    pub fn add(&mut self, now: Instant, ns: u64) {
        let one = Sum { count: 1, ns: u128::from(ns) };
        // A clock that was set back adds to the newest bucket, so that numbers never fall.
        let newest = self.buckets.back().map_or(0, |&(number, _)| number);
        let number = self.number(now).max(newest);
        self.forget(number);
        match self.buckets.back_mut() {
            Some((last, sum)) if *last == number => sum.add(one),
            _ => self.buckets.push_back((number, one)),
        }
        self.sum.add(one);
    }

    /// Number and total time of all requests that finished within the window.
    pub fn sum(&mut self, now: Instant) -> Sum {
        self.forget(self.number(now));
        self.sum
    }

    fn number(&self, now: Instant) -> u64 {
        now.as_ns() / self.bucket_ns
    }

    /// Drops old buckets. Each bucket is made once and dropped once, so the cost per event is O(1).
    fn forget(&mut self, number: u64) {
        while let Some(&(_, old)) = self.buckets.front().filter(|(old, _)| *old + BUCKETS <= number) {
            self.buckets.pop_front();
            self.sum.count -= old.count;
            self.sum.ns -= old.ns;
        }
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.ns += other.ns;
    }

    /// The mean; `None` without requests.
    pub fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| self.ns as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn however_many_leave_there_are_no_more_than_128_buckets() {
        let mut recent = Recent::new(120 * SECOND);
        for i in 0..200_000u64 {
            recent.add(Instant::from_ns(i * 1_000_000), i);
            assert!(recent.buckets.len() <= BUCKETS as usize);
        }
        let sum = recent.sum(Instant::from_ns(200 * SECOND));
        assert!((119_000..=120_000).contains(&sum.count), "{sum:?}");
        assert_eq!(recent.sum(Instant::from_ns(330 * SECOND)), Sum::default());
        assert!(recent.buckets.is_empty());
    }

    proptest! {
        #[test]
        fn what_counts_is_the_window_to_a_bucket(
            gaps in prop::collection::vec((0..3 * SECOND, 0..1_000u64), 1..300),
            window_s in 1..100u64,
        ) {
            let mut recent = Recent::new(window_s * SECOND);
            let (mut now, mut all) = (0, Vec::new());
            for (gap, ns) in gaps {
                now += gap;
                recent.add(Instant::from_ns(now), ns);
                all.push((now, ns));
                let within = |ns: u64| {
                    let since = now.saturating_sub(ns);
                    let kept = all.iter().filter(|it| it.0 > since || now < ns);
                    kept.fold(Sum::default(), |sum, it| Sum { count: sum.count + 1, ns: sum.ns + u128::from(it.1) })
                };
                let sum = recent.sum(Instant::from_ns(now));
                let (least, most) = (within(window_s * SECOND * 127 / 128), within(window_s * SECOND));
                prop_assert!(least.count <= sum.count && sum.count <= most.count, "{least:?} {sum:?} {most:?}");
                prop_assert!(least.ns <= sum.ns && sum.ns <= most.ns);
            }
        }
    }
}
