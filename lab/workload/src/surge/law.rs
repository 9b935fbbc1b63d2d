//! The probability laws of SURGE. Draws invert their closed forms, so parameters out of range give odd
//! numbers but never a panic.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::sizes::normal_cdf;

/// The lognormal law: a number whose logarithm is normal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogNormal {
    /// Mean of the logarithm.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl LogNormal {
    /// Draws a number.
    pub fn draw(&self, rng: &mut ChaCha12Rng) -> f64 {
        let normal: f64 = StandardNormal.sample(rng);
        (self.mu + self.sigma * normal).exp()
    }

    /// Probability of at most `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        if x > 0.0 { normal_cdf((x.ln() - self.mu) / self.sigma) } else { 0.0 }
    }
}

/// The Pareto law: at least `scale`, and above x with probability `(scale / x)^shape`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// The least value (k).
    pub scale: f64,
    /// The exponent of the tail (alpha). The mean is infinite at 1 and below, the variance at 2 and below.
    pub shape: f64,
}

impl Pareto {
    /// Draws a number.
    pub fn draw(&self, rng: &mut ChaCha12Rng) -> f64 {
        let above: f64 = 1.0 - rng.random::<f64>();
        self.scale * above.powf(-1.0 / self.shape)
    }

    /// The median of the draws.
    pub fn median(&self) -> f64 {
        self.scale * 0.5_f64.powf(-1.0 / self.shape)
    }

    /// Probability of at most `x`, given that it is at most `max`.
    pub fn cdf_below(&self, x: f64, max: f64) -> f64 {
        let below = |x: f64| if x > self.scale { 1.0 - (self.scale / x).powf(self.shape) } else { 0.0 };
        below(x.min(max)) / below(max)
    }
}

/// The Weibull law: above x with probability `exp(-(x / scale)^shape)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weibull {
    /// The value that a fraction 1/e exceeds (a).
    pub scale: f64,
    /// Below 1, long values are more frequent than under an exponential law of the same mean; above 1, less
    /// frequent (b).
    pub shape: f64,
}

impl Weibull {
    /// Draws a number.
    pub fn draw(&self, rng: &mut ChaCha12Rng) -> f64 {
        let above: f64 = 1.0 - rng.random::<f64>();
        self.scale * (-above.ln()).powf(1.0 / self.shape)
    }
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{self as reference, ContinuousCDF};

    use super::*;
    use crate::{sequence::stream, surge::Surge};

    const DRAWS: usize = 100_000;

    /// Kolmogorov-Smirnov: the greatest distance between the draws and a law, over its critical value at the
    /// 1 % level.
    fn distance_over_critical(
        mut draw: impl FnMut(&mut ChaCha12Rng) -> f64,
        law: &impl ContinuousCDF<f64, f64>,
    ) -> f64 {
        let mut rng = stream(20, 0);
        let mut draws: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let n = DRAWS as f64;
        let distances = draws.iter().enumerate().map(|(i, &x)| {
            let expected = law.cdf(x);
            (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
        });
        distances.fold(0.0, f64::max) / (1.628 / n.sqrt())
    }

    #[test]
    fn draws_follow_their_laws() {
        let surge = Surge::default();
        for law in [surge.body_bytes, surge.stack_distance] {
            let reference = reference::LogNormal::new(law.mu, law.sigma).unwrap();
            assert!(distance_over_critical(|rng| law.draw(rng), &reference) < 1.0, "{law:?}");
        }
        for law in [surge.tail_bytes, surge.request_bytes, surge.inactive_off_s, surge.embedded] {
            let reference = reference::Pareto::new(law.scale, law.shape).unwrap();
            assert!(distance_over_critical(|rng| law.draw(rng), &reference) < 1.0, "{law:?}");
        }
        for law in [surge.active_off_s, Surge::ACTIVE_OFF_SWAPPED] {
            let reference = reference::Weibull::new(law.shape, law.scale).unwrap();
            assert!(distance_over_critical(|rng| law.draw(rng), &reference) < 1.0, "{law:?}");
        }
    }

    #[test]
    fn the_test_tells_a_law_from_one_nearby() {
        let law = Surge::default().stack_distance;
        let nearby = reference::LogNormal::new(law.mu + 0.02, law.sigma).unwrap();
        assert!(distance_over_critical(|rng| law.draw(rng), &nearby) > 1.0);
    }

    #[test]
    fn probabilities_agree_with_the_reference() {
        let (body, requests) = (Surge::default().body_bytes, Surge::default().request_bytes);
        let lognormal = reference::LogNormal::new(body.mu, body.sigma).unwrap();
        let pareto = reference::Pareto::new(requests.scale, requests.shape).unwrap();
        for x in [10.0, 999.0, 1001.0, 12_000.0, 133_000.0, 2.9e6, 3e6, 4e6] {
            assert!((body.cdf(x) - lognormal.cdf(x)).abs() < 1e-9, "{x}");
            let below = pareto.cdf(f64::min(x, 3e6)) / pareto.cdf(3e6);
            assert!((requests.cdf_below(x, 3e6) - below).abs() < 1e-9, "{x}");
        }
        assert_eq!(body.cdf(0.0), 0.0);
    }

    #[test]
    fn active_off_times_are_shorter_than_a_second_only_when_exchanged() {
        let longer = |law: Weibull| (-(1.0 / law.scale).powf(law.shape)).exp();
        assert!((longer(Surge::default().active_off_s) - 0.42).abs() < 0.005);
        assert!((longer(Surge::ACTIVE_OFF_SWAPPED) - 0.017).abs() < 0.0005);
    }
}
