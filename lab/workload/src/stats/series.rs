//! Response times by size, by the size's percentile, over time, and their distribution.
//!
//! The first two are the figures of "Implementation of SRPT Scheduling in Web Servers", section 5. It has bins
//! that span [x, 1.2x], and 200 buckets of half a percent of the requests, in the order of their sizes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Observation;

/// Running sums over requests; sums of several runs can be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// Number of requests.
    pub count: usize,
    /// Requests whose time is a lower bound.
    pub bounds: usize,
    /// Mean response time in milliseconds.
    pub mean_ms: f64,
    /// Mean slowdown.
    pub mean_slowdown: f64,
    /// Requests that have a time to the first byte.
    first_bytes: usize,
    /// Mean time to the first byte over them, in milliseconds.
    mean_first_byte_ms: f64,
    /// Sum of the squared distances from the mean, in square milliseconds.
    squares_ms2: f64,
}

impl Moments {
    /// Adds a request.
    pub fn add(&mut self, observation: &Observation) {
        self.merge(&Self {
            count: 1,
            bounds: usize::from(!observation.whole),
            mean_ms: observation.response_ns / 1e6,
            mean_slowdown: observation.response_ns / observation.alone_ns,
            first_bytes: usize::from(observation.first_byte_ns.is_some()),
            mean_first_byte_ms: observation.first_byte_ns.unwrap_or(0.0) / 1e6,
            squares_ms2: 0.0,
        });
    }

    /// Adds all requests of `other`. Sums of squares are kept around the mean (Chan, Golub and LeVeque),
    /// because the difference of two large sums would lose a small variance.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let share = other.count as f64 / count as f64;
        let apart = other.mean_ms - self.mean_ms;
        self.squares_ms2 += other.squares_ms2 + apart * apart * self.count as f64 * share;
        self.mean_ms += apart * share;
        self.mean_slowdown += (other.mean_slowdown - self.mean_slowdown) * share;
        let first_bytes = self.first_bytes + other.first_bytes;
        let share = other.first_bytes as f64 / first_bytes.max(1) as f64;
        self.mean_first_byte_ms += (other.mean_first_byte_ms - self.mean_first_byte_ms) * share;
        self.first_bytes = first_bytes;
        self.bounds += other.bounds;
        self.count = count;
    }

    /// Variance of the response time, in square milliseconds.
    pub fn variance_ms2(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.squares_ms2 / self.count as f64 }
    }

    /// Mean time to the first byte in milliseconds; a request without one counts with its wait. `None` for
    /// ideals.
    pub fn first_byte_ms(&self) -> Option<f64> {
        (self.first_bytes > 0).then_some(self.mean_first_byte_ms)
    }

    /// Variance of the response time over the square of its mean.
    pub fn squared_variation(&self) -> f64 {
        if self.mean_ms > 0.0 { self.variance_ms2() / (self.mean_ms * self.mean_ms) } else { 0.0 }
    }
}

/// Width of a size bin: its end over its start.
const BIN_RATIO: f64 = 1.2;

/// Groups by size, in bins [x, 1.2x]. Bin `k` begins at 1.2^k bytes for any sizes, so that runs can be
/// compared.
pub fn by_size(observations: &[Observation]) -> BTreeMap<u32, Moments> {
    grouped(observations, |observation| size_bin(observation.size_bytes))
}

/// The bin of a size. Empty files are in the first.
pub fn size_bin(size_bytes: u64) -> u32 {
    let guess = ((size_bytes.max(1) as f64).ln() / BIN_RATIO.ln()).floor().max(0.0) as u32;
    // Rounding of the logarithm may select a neighbour.
    if size_bytes as f64 >= size_bin_start(guess + 1) { guess + 1 } else { guess }
}

/// Where a bin begins, in bytes. It ends where the next one begins.
pub fn size_bin_start(bin: u32) -> f64 {
    BIN_RATIO.powi(bin as i32)
}

/// Groups by the percentile of the size: `buckets` of equal numbers of requests, the smallest first. Of equal
/// sizes the earlier request counts as smaller. With fewer requests than buckets some are empty.
pub fn by_size_percentile(observations: &[Observation], buckets: usize) -> Vec<Moments> {
    let mut by_size: Vec<&Observation> = observations.iter().collect();
    by_size.sort_by_key(|observation| observation.size_bytes);
    let mut moments = vec![Moments::default(); buckets];
    for (rank, observation) in by_size.iter().enumerate() {
        moments[rank * buckets / by_size.len()].add(observation);
    }
    moments
}

/// Groups by planned time, in steps of `step_ns`: the number and the requests of each step that has any.
pub fn over_time(observations: &[Observation], step_ns: u64) -> BTreeMap<u64, Moments> {
    grouped(observations, |observation| observation.at_ns / step_ns.max(1))
}

fn grouped<K: Ord>(observations: &[Observation], key: impl Fn(&Observation) -> K) -> BTreeMap<K, Moments> {
    let mut groups: BTreeMap<K, Moments> = BTreeMap::new();
    for observation in observations {
        groups.entry(key(observation)).or_default().add(observation);
    }
    groups
}

/// Steps of [`distribution`] in a factor of ten.
const STEPS: i32 = 20;

/// The tail of the response times: pairs of a time in milliseconds and the fraction of requests that took at
/// least as long, down to the slowest. The fractions are evenly spaced on a logarithmic axis and the same for
/// every run.
pub fn distribution(observations: &[Observation]) -> Vec<(f64, f64)> {
    let mut times_ms: Vec<f64> = observations.iter().map(|o| o.response_ns / 1e6).collect();
    times_ms.sort_unstable_by(f64::total_cmp);
    let count = times_ms.len();
    let shares = (0..).map(|step| 10_f64.powf(-f64::from(step) / f64::from(STEPS)));
    // The fraction of a single request is kept although rounding may put it slightly below 1.
    shares
        .map(|share| (share, (share * count as f64 + 1e-9).floor() as usize))
        .take_while(|&(_, slower)| slower >= 1)
        .map(|(share, slower)| (times_ms[count - slower], share))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn observation(at_s: u64, size_bytes: u64, response_ms: f64) -> Observation {
        let at_ns = at_s * 1_000_000_000;
        let (response_ns, first_byte_ns) = (response_ms * 1e6, Some(response_ms * 1e6 / 4.0));
        Observation { at_ns, size_bytes, group: 0, response_ns, alone_ns: 1e6, first_byte_ns, whole: true }
    }

    #[test]
    fn moments_by_hand() {
        let mut moments = Moments::default();
        for ms in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            moments.add(&Observation { whole: ms < 9.0, ..observation(0, 1, ms) });
        }
        assert_eq!((moments.count, moments.bounds), (8, 1));
        assert!((moments.mean_ms - 5.0).abs() < 1e-12 && (moments.mean_slowdown - 5.0).abs() < 1e-12);
        assert!((moments.variance_ms2() - 4.0).abs() < 1e-12 && (moments.squared_variation() - 0.16).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn merged_sums_are_the_sums_of_all(a in prop::collection::vec(0.1f64..1e6, 0..40), b in prop::collection::vec(0.1f64..1e6, 1..40)) {
            let sum = |values: &[f64]| {
                let mut moments = Moments::default();
                values.iter().for_each(|&ms| moments.add(&observation(0, 1, ms)));
                moments
            };
            let mut merged = sum(&a);
            merged.merge(&sum(&b));
            let all = sum(&[a, b].concat());
            prop_assert_eq!(merged.count, all.count);
            prop_assert!((merged.mean_ms / all.mean_ms - 1.0).abs() < 1e-9);
            prop_assert!((merged.first_byte_ms().unwrap() / all.mean_ms * 4.0 - 1.0).abs() < 1e-9);
            prop_assert!((merged.variance_ms2() - all.variance_ms2()).abs() <= 1e-9 * all.mean_ms * all.mean_ms);
        }

        #[test]
        fn a_size_lies_in_its_bin(size in 1u64..10_000_000_000) {
            let bin = size_bin(size);
            prop_assert!(size_bin_start(bin) <= size as f64 && (size as f64) < size_bin_start(bin + 1));
        }
    }

    #[test]
    fn bins_begin_at_one_byte_and_span_a_fifth_more() {
        // 1.2^3 = 1.728 and 1.2^4 = 2.0736. Sizes are integers, so 2 bytes are in bin 3 and 3 bytes in bin 6
        // (2.986..3.58).
        assert_eq!([0, 1, 2, 3].map(size_bin), [0, 0, 3, 6]);
        let bins = by_size(&[observation(0, 2, 10.0), observation(0, 2, 20.0), observation(0, 3, 5.0)]);
        assert_eq!(
            bins.iter().map(|(&bin, m)| (bin, m.count, m.mean_ms)).collect::<Vec<_>>(),
            [(3, 2, 15.0), (6, 1, 5.0)]
        );
    }

    #[test]
    fn percentile_buckets_hold_as_many_requests_each_in_the_order_of_size() {
        let sizes = [50, 10, 40, 10, 30, 20];
        let observations: Vec<Observation> = sizes.iter().map(|&size| observation(0, size, size as f64)).collect();
        let buckets = by_size_percentile(&observations, 3);
        assert_eq!(buckets.iter().map(|m| (m.count, m.mean_ms)).collect::<Vec<_>>(), [(2, 10.0), (2, 25.0), (2, 45.0)]);
        assert_eq!(by_size_percentile(&observations, 200).iter().map(|m| m.count).sum::<usize>(), 6);
        assert_eq!(by_size_percentile(&[], 4), [Moments::default(); 4]);
    }

    #[test]
    fn each_second_has_what_was_planned_in_it() {
        let without = Observation { first_byte_ns: None, ..observation(3, 1, 2.0) };
        let observations = [observation(0, 1, 1.0), observation(2, 1, 3.0), observation(2, 1, 5.0), without];
        let seconds = over_time(&observations, 1_000_000_000);
        assert_eq!(
            seconds.iter().map(|(&s, m)| (s, m.mean_ms, m.first_byte_ms())).collect::<Vec<_>>(),
            [(0, 1.0, Some(0.25)), (2, 4.0, Some(1.0)), (3, 2.0, None)]
        );
    }

    #[test]
    fn the_tail_falls_from_all_to_the_slowest() {
        let observations: Vec<Observation> = (1..=1000).map(|ms| observation(0, 1, f64::from(ms))).collect();
        let tail = distribution(&observations);
        assert_eq!(tail.len(), 61, "three factors of ten, 20 steps each, and both ends");
        assert_eq!((tail[0], tail[20].0, tail[60].0), ((1.0, 1.0), 901.0, 1000.0));
        assert!(distribution(&[]).is_empty());
    }
}
