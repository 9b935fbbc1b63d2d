//! Numbers made of requests as they end, none of which is kept.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use workload::outcome::End;

use crate::Served;

/// Response times and slowdowns of a simulation, in all and by size, in memory that does not grow with it.
///
/// Means are exact, percentiles to three digits (to two within a class of sizes). As in [`workload::stats`], a request that did
/// not come whole has no response time but has waited for one: it enters with that wait, a lower bound, and is counted as
/// such.
#[derive(Clone, Debug)]
pub struct Digest {
    all: Sums,
    times_ns: Histogram<u64>,
    /// By number of the class.
    classes: BTreeMap<u32, Class>,
}

/// The requests of sizes in [x, 1.2 x), where x is a power of 1.2.
#[derive(Clone, Debug)]
pub struct Class {
    number: u32,
    sums: Sums,
    times_ns: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    not_whole: u64,
    size_bytes: f64,
    response_ns: f64,
    slowdown: f64,
    longest_ns: u64,
}

/// How wide a class of sizes is.
pub const CLASS_RATIO: f64 = 1.2;

impl Default for Digest {
    fn default() -> Self {
        Self { all: Sums::default(), times_ns: histogram(3), classes: BTreeMap::new() }
    }
}

impl Digest {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more request, and the time it would take on the idle system in nanoseconds, above 0.
    pub fn add(&mut self, served: &Served, alone_ns: f64) {
        let number = class_of(served.request.size_bytes);
        let class = self.classes.entry(number).or_insert_with(|| Class {
            number,
            sums: Sums::default(),
            times_ns: histogram(2),
        });
        for sums in [&mut self.all, &mut class.sums] {
            sums.add(served, alone_ns);
        }
        let response_ns = served.response_ns();
        record(&mut self.times_ns, response_ns);
        record(&mut class.times_ns, response_ns);
    }

    /// What another digest saw as well, as of another seed.
    pub fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        merge(&mut self.times_ns, &other.times_ns);
        for (&number, class) in &other.classes {
            match self.classes.get_mut(&number) {
                Some(own) => {
                    own.sums.merge(&class.sums);
                    merge(&mut own.times_ns, &class.times_ns);
                }
                None => {
                    self.classes.insert(number, class.clone());
                }
            }
        }
    }

    /// Requests seen.
    pub fn count(&self) -> u64 {
        self.all.count
    }

    /// Of them, those that did not come whole.
    pub fn not_whole(&self) -> u64 {
        self.all.not_whole
    }

    /// Mean response time in milliseconds; 0 if there was no request, as with every other number here.
    pub fn mean_ms(&self) -> f64 {
        self.all.mean_of(self.all.response_ns) / 1e6
    }

    /// The response time that `p` percent of the requests do not exceed, in milliseconds, within 0.1 %.
    pub fn percentile_ms(&self, p: f64) -> f64 {
        percentile_ms(&self.times_ns, self.all.longest_ns, p)
    }

    /// The longest response time in milliseconds.
    pub fn longest_ms(&self) -> f64 {
        self.all.longest_ns as f64 / 1e6
    }

    /// Mean of response time over time alone.
    pub fn slowdown(&self) -> f64 {
        self.all.mean_of(self.all.slowdown)
    }

    /// By size, the smallest first; classes without a request are left out.
    pub fn by_size(&self) -> impl Iterator<Item = &Class> {
        self.classes.values()
    }
}

impl Class {
    /// Where the class begins, in bytes.
    pub fn from_bytes(&self) -> f64 {
        CLASS_RATIO.powi(self.number as i32)
    }

    /// Where it ends, in bytes.
    pub fn below_bytes(&self) -> f64 {
        CLASS_RATIO.powi(self.number as i32 + 1)
    }

    /// Requests in it.
    pub fn count(&self) -> u64 {
        self.sums.count
    }

    /// Of them, those that did not come whole.
    pub fn not_whole(&self) -> u64 {
        self.sums.not_whole
    }

    /// Mean size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.sums.mean_of(self.sums.size_bytes)
    }

    /// Mean response time in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.sums.mean_of(self.sums.response_ns) / 1e6
    }

    /// The response time that `p` percent of the class do not exceed, in milliseconds, within 1 %.
    pub fn percentile_ms(&self, p: f64) -> f64 {
        percentile_ms(&self.times_ns, self.sums.longest_ns, p)
    }

    /// Mean of response time over time alone.
    pub fn slowdown(&self) -> f64 {
        self.sums.mean_of(self.sums.slowdown)
    }
}

impl Sums {
    fn add(&mut self, served: &Served, alone_ns: f64) {
        let response_ns = served.response_ns();
        self.count += 1;
        self.not_whole += u64::from(served.end != End::Done);
        self.size_bytes += served.request.size_bytes as f64;
        self.response_ns += response_ns as f64;
        self.slowdown += response_ns as f64 / alone_ns.max(1.0);
        self.longest_ns = self.longest_ns.max(response_ns);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.not_whole += other.not_whole;
        self.size_bytes += other.size_bytes;
        self.response_ns += other.response_ns;
        self.slowdown += other.slowdown;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    fn mean_of(&self, sum: f64) -> f64 {
        if self.count == 0 { 0.0 } else { sum / self.count as f64 }
    }
}

/// Number of the class that a size is in; what is empty is with what has one byte.
fn class_of(size_bytes: u64) -> u32 {
    let size = size_bytes.max(1) as f64;
    let guess = (size.ln() / CLASS_RATIO.ln()) as i32;
    // The logarithm rounds; the powers that the borders are told by decide.
    let above = i32::from(CLASS_RATIO.powi(guess + 1) <= size);
    let below = i32::from(CLASS_RATIO.powi(guess) > size);
    (guess + above - below).max(0) as u32
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).expect("a histogram of at most 5 digits")
}

fn record(into: &mut Histogram<u64>, ns: u64) {
    into.record(ns).expect("a histogram that grows has room for every number");
}

fn merge(into: &mut Histogram<u64>, other: &Histogram<u64>) {
    into.add(other).expect("a histogram that grows takes in another");
}

fn percentile_ms(times_ns: &Histogram<u64>, longest_ns: u64, p: f64) -> f64 {
    times_ns.value_at_percentile(p).min(longest_ns) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use workload::{
        sequence::Request,
        stats::{self, Sample},
    };

    use super::*;

    fn served(size_bytes: u64, response_ns: u64, end: End) -> Served {
        let request = Request { at_ns: 1_000, file: 0, size_bytes, group: 0 };
        Served { request, first_byte_ns: None, end_ns: 1_000 + response_ns, end, attempts: 1 }
    }

    #[test]
    fn every_size_is_within_the_borders_of_its_class() {
        let borders = (0..200).map(|number| CLASS_RATIO.powi(number) as u64);
        for size in borders.flat_map(|size| [size.saturating_sub(1).max(1), size, size + 1]) {
            let mut digest = Digest::new();
            digest.add(&served(size, 1, End::Done), 1.0);
            let class = digest.by_size().next().unwrap();
            assert!(class.from_bytes() <= size as f64 && (size as f64) < class.below_bytes(), "{size}");
        }
        assert_eq!((class_of(0), class_of(1)), (0, 0));
        assert!(class_of(u64::MAX) < 250, "so there are never more classes than that");
    }

    #[test]
    fn what_did_not_come_whole_counts_with_its_wait() {
        let mut digest = Digest::new();
        digest.add(&served(100, 2_000_000, End::Done), 1e6);
        digest.add(&served(100, 10_000_000, End::Aborted), 1e6);
        assert_eq!((digest.count(), digest.not_whole(), digest.mean_ms(), digest.slowdown()), (2, 1, 6.0, 6.0));
    }

    #[test]
    fn nothing_comes_to_nothing() {
        let digest = Digest::new();
        assert_eq!(
            (digest.mean_ms(), digest.percentile_ms(99.0), digest.slowdown(), digest.by_size().count()),
            (0.0, 0.0, 0.0, 0)
        );
    }

    proptest! {
        #[test]
        fn it_agrees_with_numbers_made_of_all_that_is_kept(
            requests in prop::collection::vec((1..2_000_000u64, 1..10_000_000_000u64), 1..300),
            divided_at in 0..300usize,
        ) {
            let samples: Vec<Sample> = requests.iter().map(|&(size_bytes, ns)| {
                Sample { size_bytes, response_ns: ns as f64, alone_ns: 800.0 * size_bytes as f64 }
            }).collect();
            let exact = stats::summarise(&samples);
            let (mut digest, mut rest) = (Digest::new(), Digest::new());
            for (i, &(size_bytes, ns)) in requests.iter().enumerate() {
                let part = if i < divided_at { &mut digest } else { &mut rest };
                part.add(&served(size_bytes, ns, End::Done), 800.0 * size_bytes as f64);
            }
            digest.merge(&rest);
            let near = |value: f64, exact: f64, within: f64| (value / exact - 1.0).abs() <= within;
            prop_assert!(near(digest.mean_ms(), exact.mean_ms, 1e-9) && near(digest.slowdown(), exact.mean_slowdown, 1e-9));
            for (p, exact_ms) in [(50.0, exact.p50_ms), (95.0, exact.p95_ms), (99.0, exact.p99_ms), (100.0, exact.max_ms)] {
                prop_assert!(near(digest.percentile_ms(p), exact_ms, 1e-3), "{p} %: {} for {exact_ms}", digest.percentile_ms(p));
            }
            prop_assert_eq!(digest.by_size().map(Class::count).sum::<u64>(), digest.count());
            let by_class: f64 = digest.by_size().map(|class| class.mean_ms() * class.count() as f64).sum();
            prop_assert!(near(by_class / digest.count() as f64, exact.mean_ms, 1e-9));
        }
    }
}
