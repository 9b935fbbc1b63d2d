//! Spreads the requests of one stamp over the stamp's time: requests stamped with the same second did not all
//! arrive at once.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Most requests of one stamp that are spread together. Further requests count as of the stamp's end. This
/// bounds the memory.
const MAX_TOGETHER: usize = 1 << 18;

/// The way to choose a request's time within its tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Uniformly at random, by a seed.
    Random(u64),
    /// All at equal distances, so that as few as possible arrive together.
    Even,
    /// All at the beginning of the tick, so that as many as possible arrive together.
    Together,
}

/// Gives each request a time within its tick, in the order of the log.
pub(super) struct Spreader {
    spread: Spread,
    rng: ChaCha12Rng,
    /// Beginning and length of the tick whose requests are being gathered.
    tick: (u64, u64),
    settled_ns: u64,
    sizes: Vec<u64>,
    offsets: Vec<u64>,
}

impl Spreader {
    pub(super) fn new(spread: Spread) -> Self {
        let seed = if let Spread::Random(seed) = spread { seed } else { 0 };
        let rng = ChaCha12Rng::seed_from_u64(seed);
        Self { spread, rng, tick: (0, 1), settled_ns: 0, sizes: Vec::new(), offsets: Vec::new() }
    }

    /// Adds a request stamped `at_ns` by a clock of `tick_ns`. `each` gets the time and size of every request
    /// whose time is settled, in the order of time. A request that is late in the log counts as of the latest
    /// tick.
    pub(super) fn add(&mut self, at_ns: u64, tick_ns: u64, size_bytes: u64, each: impl FnMut(u64, u64)) {
        let from_ns = at_ns.max(self.tick.0);
        if from_ns > self.tick.0 || self.sizes.len() >= MAX_TOGETHER {
            self.flush(each);
        }
        self.tick = (from_ns, tick_ns.max(1));
        self.sizes.push(size_bytes);
    }

    /// Gives away the requests of the last tick.
    pub(super) fn flush(&mut self, mut each: impl FnMut(u64, u64)) {
        let (from_ns, tick_ns) = self.tick;
        let count = self.sizes.len() as u64;
        self.offsets.clear();
        match self.spread {
            Spread::Random(_) => self.offsets.extend((0..count).map(|_| self.rng.random_range(0..tick_ns))),
            Spread::Even => self.offsets.extend((0..count).map(|i| tick_ns / count * i)),
            Spread::Together => self.offsets.extend((0..count).map(|_| 0)),
        }
        self.offsets.sort_unstable();
        for (&offset, size_bytes) in self.offsets.iter().zip(self.sizes.drain(..)) {
            self.settled_ns = self.settled_ns.max(from_ns + offset);
            each(self.settled_ns, size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1000;

    fn moments(spread: Spread, stamps: &[u64]) -> Vec<(u64, u64)> {
        let (mut spreader, mut out) = (Spreader::new(spread), Vec::new());
        for (size, &at_ns) in stamps.iter().enumerate() {
            spreader.add(at_ns, TICK, size as u64, |at_ns, size| out.push((at_ns, size)));
        }
        spreader.flush(|at_ns, size| out.push((at_ns, size)));
        out
    }

    #[test]
    fn every_request_is_given_once_within_its_tick_and_in_order() {
        let stamps = [0, 0, 0, 2000, 3000, 3000];
        for spread in [Spread::Random(1), Spread::Random(2), Spread::Even, Spread::Together] {
            let out = moments(spread, &stamps);
            assert_eq!(out.iter().map(|&(_, size)| size).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "{spread:?}");
            assert!(out.is_sorted_by_key(|&(at_ns, _)| at_ns), "{out:?}");
            for (&(at_ns, _), stamp) in out.iter().zip(stamps) {
                assert!((stamp..stamp + TICK).contains(&at_ns), "{spread:?}: {at_ns} for {stamp}");
            }
        }
        assert_eq!(moments(Spread::Random(1), &stamps), moments(Spread::Random(1), &stamps));
        assert_ne!(moments(Spread::Random(1), &stamps), moments(Spread::Random(2), &stamps));
        assert_eq!(moments(Spread::Even, &[0, 0, 5000]).iter().map(|m| m.0).collect::<Vec<_>>(), [0, 500, 5000]);
        assert_eq!(moments(Spread::Together, &[0, 0]).iter().map(|m| m.0).collect::<Vec<_>>(), [0, 0]);
    }

    #[test]
    fn a_late_record_counts_as_of_now() {
        let out = moments(Spread::Even, &[5000, 7000, 6000, 8000]);
        assert_eq!(out.iter().map(|m| m.0).collect::<Vec<_>>(), [5000, 7000, 7500, 8000]);
    }

    #[test]
    fn a_stamp_with_too_many_requests_loses_none_and_keeps_the_order() {
        let stamps = vec![4000; MAX_TOGETHER + 10];
        let out = moments(Spread::Random(1), &stamps);
        assert_eq!(out.len(), stamps.len());
        assert!(out.is_sorted() && out.iter().all(|&(at_ns, _)| (4000..5000).contains(&at_ns)));
    }
}
