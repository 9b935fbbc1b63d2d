//! Response sizes of the web: a lognormal body with a bounded Pareto tail, and files that represent them.

mod files;

use std::fmt;

use serde::Serialize;

pub use self::files::{FileRequests, FileSet};

/// A lognormal body up to a quantile, joined to a bounded Pareto tail without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeavyTail {
    /// Median of all sizes, in bytes.
    pub median_bytes: f64,
    /// Fraction of the requests in the body, above one half.
    pub body_share: f64,
    /// Where the body ends and the tail begins, in bytes: the quantile of `body_share`.
    pub knee_bytes: f64,
    /// The tail's exponent.
    pub alpha: f64,
    /// The smallest size, in bytes: smaller sizes of the body are raised to it.
    pub min_bytes: f64,
    /// The largest size, in bytes.
    pub max_bytes: f64,
}

impl HeavyTail {
    /// The World Cup 1998 trace as described in "Implementation of SRPT Scheduling in Web Servers" and "Web
    /// Servers Under Overload: How Scheduling Can Help". Half of the requests are under 1 KB, nine in ten
    /// under 9.3 KB, the mean is about 5.5 KB, the largest 2 MB, and the tail exponent 1.1.
    pub const WORLD_CUP: Self = Self {
        median_bytes: 1000.0,
        body_share: 0.9,
        knee_bytes: 9200.0,
        alpha: 1.1,
        min_bytes: 41.0,
        max_bytes: 2_000_000.0,
    };

    /// The NASA 1995 trace as described in "Implementation of SRPT Scheduling in Web Servers". The mean is
    /// 19 KB, the range 50 B to 1.93 MB. Half of the bytes are in the largest 2.5 % of the requests.
    ///
    /// The paper gives no more, so the other parameters are chosen. The median is that of the trace's 1
    /// August. Its 97.5th percentile, 131 KB, is then met as well (127 KB). Knee and exponent follow from the
    /// mean and the largest 2.5 %.
    pub const NASA: Self = Self {
        median_bytes: 3700.0,
        body_share: 0.9,
        knee_bytes: 31_000.0,
        alpha: 0.94,
        min_bytes: 50.0,
        max_bytes: 1_930_000.0,
    };

    /// Sizes with these parameters; see the fields.
    ///
    /// # Errors
    ///
    /// The first violated condition: 1 <= least < median < knee < largest < 10^15 bytes; body share above one
    /// half and below 1; exponent above 0 and at most 10.
    pub fn new(
        min_bytes: f64,
        median_bytes: f64,
        knee_bytes: f64,
        body_share: f64,
        alpha: f64,
        max_bytes: f64,
    ) -> Result<Self, SizesError> {
        let sizes = Self { median_bytes, body_share, knee_bytes, alpha, min_bytes, max_bytes };
        // Each condition is written so that NaN fails it.
        if !(1.0 <= min_bytes && min_bytes < median_bytes && median_bytes < knee_bytes && knee_bytes < max_bytes)
            || max_bytes >= 1e15
        {
            return Err(SizesError::Order(sizes));
        }
        if !(body_share > 0.5 && body_share < 1.0) {
            return Err(SizesError::BodyShare(body_share));
        }
        if !(alpha > 0.0 && alpha <= 10.0) {
            return Err(SizesError::Alpha(alpha));
        }
        Ok(sizes)
    }

    /// The size in bytes below which a fraction `q` of the requests lies.
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

    /// Mean size of the requests between the quantiles `from` and `to`, in bytes, in closed form.
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
        let until = self.tail_quantile(q);
        // At an exponent of 1 the formula is 0 / 0, and near 1 it loses precision; the limit is the
        // logarithm.
        let integral =
            if (a - 1.0).abs() < 1e-6 { (until / k).ln() } else { (k.powf(1.0 - a) - until.powf(1.0 - a)) / (a - 1.0) };
        scale * integral
    }

    fn tail_quantile(&self, q: f64) -> f64 {
        if q <= self.body_share { self.knee_bytes } else { self.quantile(q) }
    }
}

/// Invalid parameters of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizesError {
    /// Least size, median, knee and largest size are not in this order, or out of range.
    Order(HeavyTail),
    /// The body share is not between one half and 1.
    BodyShare(f64),
    /// The exponent is not between 0 and 10.
    Alpha(f64),
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(sizes) => write!(
                f,
                "sizes of at least {}, median {}, knee {} and at most {} bytes: each must be above the one before it, \
                 the least at least 1",
                sizes.min_bytes, sizes.median_bytes, sizes.knee_bytes, sizes.max_bytes
            ),
            Self::BodyShare(share) => {
                write!(f, "a body with a share of {share} of the requests: give a number above 0.5 and below 1")
            }
            Self::Alpha(alpha) => write!(f, "a tail with an exponent of {alpha}: give a number above 0, at most 10"),
        }
    }
}

impl std::error::Error for SizesError {}

pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The inverse of [`normal_cdf`] by bisection: as precise as `erfc`, and fast enough for a few thousand
/// files.
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
    use super::*;

    const SIZES: HeavyTail = HeavyTail::WORLD_CUP;

    /// The mean by numerical integration of the quantile function, to check the closed forms.
    fn mean_by_summing(sizes: &HeavyTail, from: f64, to: f64) -> f64 {
        let steps = 8_000;
        (0..steps).map(|i| sizes.quantile(from + (to - from) * (i as f64 + 0.5) / steps as f64)).sum::<f64>()
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
        // Far below the bound, P(X > x) is proportional to x^-1.1, once the share above the bound is added.
        let bound = 0.1 * (9200.0_f64 / 2e6).powf(1.1) / (1.0 - (9200.0_f64 / 2e6).powf(1.1));
        let above = |q: f64| 1.0 - q + bound;
        let (q1, q2) = (0.95, 0.99);
        let exponent = -(above(q2) / above(q1)).ln() / (SIZES.quantile(q2) / SIZES.quantile(q1)).ln();
        assert!((exponent - 1.1).abs() < 1e-9, "{exponent}");
    }

    #[test]
    fn closed_means_agree_with_sums_of_the_quantiles() {
        let exponent_1 = HeavyTail { alpha: 1.0, ..SIZES };
        for sizes in [SIZES, HeavyTail::NASA, exponent_1] {
            for (from, to) in [(0.0, 0.9), (0.0, 0.02), (0.3, 0.7), (0.9, 0.99), (0.5, 0.95), (0.99, 1.0)] {
                let (closed, summed) = (sizes.mean_between(from, to), mean_by_summing(&sizes, from, to));
                assert!((closed / summed - 1.0).abs() < 1e-3, "{sizes:?} {from}..{to}: {closed} {summed}");
            }
        }
    }

    #[test]
    fn nasas_published_numbers_hold() {
        let nasa = HeavyTail::NASA;
        assert!((18_900.0..19_400.0).contains(&nasa.mean()), "mean 19 KB: {}", nasa.mean());
        let of_the_largest = 0.025 * nasa.mean_between(0.975, 1.0) / nasa.mean();
        assert!((of_the_largest - 0.5).abs() < 0.005, "largest 2.5 % carry half of the bytes: {of_the_largest}");
        assert_eq!((nasa.quantile(0.0), nasa.quantile(1.0).round()), (50.0, 1_930_000.0));
        assert!((nasa.quantile(0.5) - 3700.0).abs() < 1e-6);
    }

    #[test]
    fn the_built_in_sizes_pass_their_own_check_and_nonsense_does_not() {
        let check = |s: HeavyTail| {
            HeavyTail::new(s.min_bytes, s.median_bytes, s.knee_bytes, s.body_share, s.alpha, s.max_bytes)
        };
        assert_eq!(check(SIZES), Ok(SIZES));
        assert_eq!(check(HeavyTail::NASA), Ok(HeavyTail::NASA));
        for wrong in [
            HeavyTail { min_bytes: 0.0, ..SIZES },
            HeavyTail { median_bytes: f64::NAN, ..SIZES },
            HeavyTail { knee_bytes: 900.0, ..SIZES },
            HeavyTail { max_bytes: 9000.0, ..SIZES },
            HeavyTail { max_bytes: f64::INFINITY, ..SIZES },
        ] {
            assert!(matches!(check(wrong), Err(SizesError::Order(_))), "{wrong:?}");
        }
        assert_eq!(check(HeavyTail { body_share: 0.5, ..SIZES }), Err(SizesError::BodyShare(0.5)));
        assert_eq!(check(HeavyTail { alpha: 0.0, ..SIZES }), Err(SizesError::Alpha(0.0)));
    }
}
