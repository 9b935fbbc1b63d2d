//! Requests of a log at moments: stamps of a second hold many that did not come at once.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Most requests of one stamp that are spread together; what comes beyond counts as of the stamp's end. Bounds the memory.
const MAX_TOGETHER: usize = 1 << 18;

/// Where within its tick a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Anywhere, evenly, by a seed.
    Random(u64),
    /// All at equal distances: as little at once as can be.
    Even,
    /// All at its beginning: as much at once as can be.
    Together,
}

/// Gives each request a moment within its tick, in the order of the log.
pub(super) struct Spreader {
    spread: Spread,
    rng: ChaCha12Rng,
    /// Beginning and length of the tick that requests are gathered of.
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

    /// A request stamped `at_ns`, by a clock of `tick_ns`. `each` gets moment and size of those whose moments are settled,
    /// by time. One that is late in the log counts as of the tick that the log has come to.
    pub(super) fn add(&mut self, at_ns: u64, tick_ns: u64, size_bytes: u64, each: impl FnMut(u64, u64)) {
        let from_ns = at_ns.max(self.tick.0);
        if from_ns > self.tick.0 || self.sizes.len() >= MAX_TOGETHER {
            self.flush(each);
        }
        self.tick = (from_ns, tick_ns.max(1));
        self.sizes.push(size_bytes);
    }

    /// Gives away those of the last tick.
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
