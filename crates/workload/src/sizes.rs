//! Response sizes of the web: a lognormal body under a bounded Pareto tail, and files that stand for them.
//!
//! Shape and numbers follow the World Cup 1998 trace as "Implementation of SRPT Scheduling in Web Servers" gives it: half of
//! the requests under 1 KB, nine in ten under 9.3 KB, mean about 5.5 KB, the largest 2 MB, tail exponent 1.1.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

/// A lognormal body up to a quantile, joined without a gap to a bounded Pareto tail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeavyTail {
    /// Median of all sizes, in bytes.
    pub median_bytes: f64,
    /// Share of the requests in the body, above one half.
    pub body_share: f64,
    /// Where the body ends and the tail begins, in bytes: the quantile of `body_share`.
    pub knee_bytes: f64,
    /// The tail's exponent. Not 1.
    pub alpha: f64,
    /// The smallest size, in bytes: what the body would put lower is raised to it.
    pub min_bytes: f64,
    /// The largest size, in bytes.
    pub max_bytes: f64,
}

impl HeavyTail {
    /// The sizes of the World Cup trace.
    pub const WORLD_CUP: Self = Self {
        median_bytes: 1000.0,
        body_share: 0.9,
        knee_bytes: 9200.0,
        alpha: 1.1,
        min_bytes: 41.0,
        max_bytes: 2_000_000.0,
    };

    /// The size below which a share `q` of the requests lies, in bytes.
    pub fn quantile(&self, q: f64) -> f64 {
        let size = if q <= self.body_share {
            (self.median_bytes.ln() + self.sigma() * normal_quantile(q)).exp()
        } else {
            let tail_q = ((q - self.body_share) / (1.0 - self.body_share)).min(1.0);
            let floor = (self.knee_bytes / self.max_bytes).powf(self.alpha);
            self.knee_bytes / ((1.0 - tail_q) * (1.0 - floor) + floor).powf(1.0 / self.alpha)
        };
        size.clamp(self.min_bytes, self.max_bytes)
    }

    /// Mean size of the requests between the quantiles `from` and `to`, in bytes, by the closed forms of both parts.
    pub fn mean_between(&self, from: f64, to: f64) -> f64 {
        let body = self.body_sum(to.min(self.body_share)) - self.body_sum(from.min(self.body_share));
        let tail = self.tail_sum(to.max(self.body_share)) - self.tail_sum(from.max(self.body_share));
        (body + tail) / (to - from)
    }

    /// Mean size, in bytes.
    pub fn mean(&self) -> f64 {
        self.mean_between(0.0, 1.0)
    }

    fn sigma(&self) -> f64 {
        (self.knee_bytes / self.median_bytes).ln() / normal_quantile(self.body_share)
    }

    /// The integral of the quantile function from 0 to `q`, within the body.
    fn body_sum(&self, q: f64) -> f64 {
        let sigma = self.sigma();
        let lowest = normal_cdf((self.min_bytes / self.median_bytes).ln() / sigma);
        if q <= lowest {
            return q * self.min_bytes;
        }
        let untruncated = self.median_bytes * (sigma * sigma / 2.0).exp();
        let partial = |q: f64| untruncated * normal_cdf(normal_quantile(q) - sigma);
        lowest * self.min_bytes + partial(q) - partial(lowest)
    }

    /// The integral of the quantile function from the end of the body to `q`.
    fn tail_sum(&self, q: f64) -> f64 {
        let (k, a) = (self.knee_bytes, self.alpha);
        let share = 1.0 - self.body_share;
        let scale = share * a * k.powf(a) / (1.0 - (k / self.max_bytes).powf(a));
        scale / (a - 1.0) * (k.powf(1.0 - a) - self.tail_quantile(q).powf(1.0 - a))
    }

    fn tail_quantile(&self, q: f64) -> f64 {
        if q <= self.body_share { self.knee_bytes } else { self.quantile(q) }
    }
}

/// A finite set of files, each standing for a slice of the distribution and asked for as often as that slice.
///
/// Half of the files divide the body, a quarter the rest up to the largest 1 %, a quarter the largest 1 %: there a slice
/// is thin, because that is where the bytes are. A file has the mean size of its slice, so the mean is kept; the last has
/// the largest size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSet {
    sizes_bytes: Vec<u64>,
    /// The quantile at which each file's slice ends; the last is 1.
    ends: Vec<f64>,
}

impl FileSet {
    /// At least `count` files (four or more) for `sizes`.
    pub fn new(sizes: &HeavyTail, count: usize) -> Self {
        let quarter = count.div_ceil(4).max(1);
        let knee = sizes.body_share.min(0.99);
        let mut ends = Vec::with_capacity(4 * quarter);
        for (from, to, files) in [(0.0, knee, 2 * quarter), (knee, 0.99, quarter), (0.99, 1.0, quarter)] {
            ends.extend((1..=files).map(|i| from + (to - from) * i as f64 / files as f64));
        }
        let mut from = 0.0;
        let mut sizes_bytes: Vec<u64> = ends
            .iter()
            .map(|&to| {
                let size = sizes.mean_between(from, to).round() as u64;
                from = to;
                size
            })
            .collect();
        if let (Some(last), Some(end)) = (sizes_bytes.last_mut(), ends.last_mut()) {
            *last = sizes.max_bytes as u64;
            *end = 1.0;
        }
        Self { sizes_bytes, ends }
    }

    /// The sizes, by file number, in bytes.
    pub fn sizes_bytes(&self) -> &[u64] {
        &self.sizes_bytes
    }

    /// Draws a file number.
    pub fn draw(&self, rng: &mut ChaCha12Rng) -> u32 {
        let u: f64 = rng.random();
        self.ends.partition_point(|&end| end <= u).min(self.ends.len() - 1) as u32
    }

    /// Mean of `cost(size_bytes)` over requests.
    pub fn mean_of(&self, cost: impl Fn(u64) -> u64) -> f64 {
        let mut from = 0.0;
        let mut sum = 0.0;
        for (&size, &end) in self.sizes_bytes.iter().zip(&self.ends) {
            sum += cost(size) as f64 * (end - from);
            from = end;
        }
        sum
    }
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The inverse of [`normal_cdf`] by bisection: as exact as `erfc`, and fast enough for a few thousand files.
fn normal_quantile(q: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_cdf(middle) < q {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const SIZES: HeavyTail = HeavyTail::WORLD_CUP;

    /// The quantile function summed up step by step: what the closed forms of the mean must agree with.
    fn mean_by_summing(from: f64, to: f64) -> f64 {
        let steps = 20_000;
        (0..steps).map(|i| SIZES.quantile(from + (to - from) * (i as f64 + 0.5) / steps as f64)).sum::<f64>()
            / steps as f64
    }

    #[test]
    fn the_normal_quantile_has_its_tabled_values() {
        for (q, z) in [(0.5, 0.0), (0.9, 1.281_551_566), (0.975, 1.959_963_985), (0.01, -2.326_347_874)] {
            assert!((normal_quantile(q) - z).abs() < 1e-8, "{q}");
        }
    }

    #[test]
    fn the_papers_numbers_hold() {
        assert!((SIZES.quantile(0.5) - 1000.0).abs() < 1e-6, "half of the requests under 1 KB");
        assert!((SIZES.quantile(0.9) - 9200.0).abs() < 1e-6, "nine in ten under 9.3 KB");
        assert!((5300.0..5800.0).contains(&SIZES.mean()), "mean about 5.5 KB: {}", SIZES.mean());
        assert_eq!(SIZES.quantile(1.0), 2_000_000.0);
        let share_of_the_largest = 0.01 * SIZES.mean_between(0.99, 1.0) / SIZES.mean();
        assert!(
            (0.40..0.44).contains(&share_of_the_largest),
            "largest 1 % carry 42 % of the bytes: {share_of_the_largest}"
        );
    }

    #[test]
    fn the_tail_falls_with_its_exponent() {
        // Far below the bound, P(X > x) goes with x^-1.1: doubling x divides it by 2^1.1, after the bound's own share is added.
        let bound = 0.1 * (9200.0_f64 / 2e6).powf(1.1) / (1.0 - (9200.0_f64 / 2e6).powf(1.1));
        let above = |q: f64| 1.0 - q + bound;
        let (q1, q2) = (0.95, 0.99);
        let exponent = -(above(q2) / above(q1)).ln() / (SIZES.quantile(q2) / SIZES.quantile(q1)).ln();
        assert!((exponent - 1.1).abs() < 1e-9, "{exponent}");
    }

    #[test]
    fn closed_means_agree_with_sums_of_the_quantiles() {
        for (from, to) in [(0.0, 0.9), (0.0, 0.02), (0.3, 0.7), (0.9, 0.99), (0.5, 0.95), (0.99, 1.0)] {
            let (closed, summed) = (SIZES.mean_between(from, to), mean_by_summing(from, to));
            assert!((closed / summed - 1.0).abs() < 1e-3, "{from}..{to}: {closed} {summed}");
        }
    }

    #[test]
    fn files_keep_the_mean_and_the_largest() {
        let files = FileSet::new(&SIZES, 2000);
        assert_eq!(files.sizes_bytes().len(), 2000);
        assert_eq!(*files.sizes_bytes().last().unwrap(), 2_000_000);
        assert!(files.sizes_bytes().is_sorted());
        assert!((files.mean_of(|size| size) / SIZES.mean() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let files = FileSet::new(&SIZES, 1000);
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let mut sizes: Vec<u64> = (0..200_000).map(|_| files.sizes_bytes()[files.draw(&mut rng) as usize]).collect();
        sizes.sort_unstable();
        // Kolmogorov-Smirnov at the 0.1 % level is 1.95/sqrt(n) = 0.0044; the slices themselves are up to 0.0018 wide.
        for q in [0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999] {
            let at_most = sizes.partition_point(|&s| s as f64 <= SIZES.quantile(q)) as f64 / sizes.len() as f64;
            assert!((at_most - q).abs() < 0.0044 + 0.0018, "{q}: {at_most}");
        }
    }
}
