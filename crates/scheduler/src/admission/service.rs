//! How long the site took for requests of one resource type lately.

use alloc::collections::VecDeque;

/// As many as in "Multiple-resource Request Scheduling Algorithms for Proportional System-time Differentiation at Website
/// Gateway", section 3.5.1.
const KEPT: usize = 200;

/// Mean of the last [`KEPT`] service times, exact, in O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceTimes {
    last_ns: VecDeque<u64>,
    sum_ns: u128,
}

impl ServiceTimes {
    pub fn add(&mut self, service_ns: u64) {
        if self.last_ns.len() == KEPT
            && let Some(oldest_ns) = self.last_ns.pop_front()
        {
            self.sum_ns -= u128::from(oldest_ns);
        }
        self.last_ns.push_back(service_ns);
        self.sum_ns += u128::from(service_ns);
    }

    /// `None` before the first.
    pub fn mean_ns(&self) -> Option<u64> {
        let count = self.last_ns.len() as u128;
        (count > 0).then(|| (self.sum_ns / count) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_two_hundred_count() {
        let mut times = ServiceTimes::default();
        assert_eq!(times.mean_ns(), None);
        times.add(u64::MAX);
        assert_eq!(times.mean_ns(), Some(u64::MAX));
        for _ in 0..KEPT {
            times.add(10);
        }
        assert_eq!(times.mean_ns(), Some(10));
    }
}
