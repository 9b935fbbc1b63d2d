//! Response times by the size of the response.

use std::{
    array,
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the sizes, in bytes of the body.
const BOUNDS_BYTES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The sizes in words, smallest first.
pub const SIZE_NAMES: [&str; BOUNDS_BYTES.len() + 1] = ["to 1 KB", "to 10 KB", "to 100 KB", "to 1 MB", "over 1 MB"];

/// Counts responses by size. Usable from many threads.
#[derive(Debug, Default)]
pub struct BySize([OfSize; SIZE_NAMES.len()]);

#[derive(Debug, Default)]
struct OfSize {
    count: AtomicU64,
    sum_us: AtomicU64,
}

/// The responses of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeTotal {
    /// How many there were.
    pub count: u64,
    /// The sum of their response times, in microseconds.
    pub sum_us: u64,
}

impl AddAssign for SizeTotal {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.sum_us += other.sum_us;
    }
}

impl BySize {
    /// A response has ended.
    pub fn record(&self, body_bytes: u64, response_time: Duration) {
        let of_size = &self.0[BOUNDS_BYTES.partition_point(|&bound| bound < body_bytes)];
        of_size.count.fetch_add(1, Relaxed);
        of_size.sum_us.fetch_add(u64::try_from(response_time.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Those so far, smallest first.
    pub fn totals(&self) -> [SizeTotal; SIZE_NAMES.len()] {
        array::from_fn(|at| SizeTotal {
            count: self.0[at].count.load(Relaxed),
            sum_us: self.0[at].sum_us.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_counts_for_its_size() {
        let by_size = BySize::default();
        for (bytes, at) in [(0, 0), (1_000, 0), (1_001, 1), (100_000, 2), (1_000_000, 3), (u64::MAX, 4)] {
            let before = by_size.totals()[at];
            by_size.record(bytes, Duration::from_millis(3));
            let after = SizeTotal { count: before.count + 1, sum_us: before.sum_us + 3_000 };
            assert_eq!(by_size.totals()[at], after, "{bytes}");
        }
    }
}
