//! How long the slowest requests of a class take: the time that 95 % of them keep within, until the head of their answer.
//!
//! Times are counted in buckets, eight to a doubling, so the estimate is at most a tenth too long and never too short.
//! When a thousand are counted all counts are halved, so that the estimate follows the servers.

use std::time::Duration;

/// Fewest times that an estimate is made of.
const FEWEST: u32 = 100;
/// Counts are halved from here on.
const MOST: u32 = 1000;
/// The part of the requests that takes longer: one in 20.
const ONE_IN: u32 = 20;
const PER_DOUBLING: f64 = 8.0;
/// Up to `2^(BUCKETS / PER_DOUBLING)` microseconds: two minutes.
const BUCKETS: usize = 216;

/// The times of the requests of a class.
#[derive(Debug)]
pub(crate) struct Slowest {
    counts: [u32; BUCKETS],
    total: u32,
}

impl Default for Slowest {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Slowest {
    /// Counts a request.
    pub(crate) fn record(&mut self, took: Duration) {
        let us = took.as_secs_f64() * 1e6;
        let bucket = (us.max(1.0).log2() * PER_DOUBLING).ceil() as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        if self.total >= MOST {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// The time that is exceeded by one request in 20; `None`: too little is known.
    pub(crate) fn estimate(&self) -> Option<Duration> {
        if self.total < FEWEST {
            return None;
        }
        let may_exceed = self.total / ONE_IN;
        let mut exceed = 0;
        let bucket = self.counts.iter().rposition(|count| {
            exceed += count;
            exceed > may_exceed
        })?;
        Some(Duration::from_secs_f64((bucket as f64 / PER_DOUBLING).exp2() / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(times: impl IntoIterator<Item = f64>) -> Option<Duration> {
        let mut slowest = Slowest::default();
        times.into_iter().for_each(|seconds| slowest.record(Duration::from_secs_f64(seconds)));
        slowest.estimate()
    }

    #[test]
    fn a_few_requests_say_nothing() {
        assert_eq!(after([0.1; 99]), None);
        assert!(after([0.1; 100]).is_some());
    }

    #[test]
    fn the_estimate_follows_servers_that_become_slower_and_faster() {
        let mut slowest = Slowest::default();
        for seconds in [0.01, 1.0, 0.001] {
            (0..10_000).for_each(|_| slowest.record(Duration::from_secs_f64(seconds)));
            let estimate = slowest.estimate().unwrap().as_secs_f64();
            assert!((seconds..seconds * 1.1).contains(&estimate), "{seconds}: {estimate}");
        }
        slowest.record(Duration::MAX);
        slowest.record(Duration::ZERO);
    }

    proptest! {
        #[test]
        fn one_in_twenty_takes_longer(times in prop::collection::vec(0.000_01_f64..100.0, 100..999)) {
            let estimate = after(times.clone()).unwrap().as_secs_f64();
            let most = times.len() / 20;
            prop_assert!(times.iter().filter(|time| **time > estimate).count() <= most);
            prop_assert!(times.iter().filter(|time| **time > estimate / 1.1).count() > most);
        }
    }
}
