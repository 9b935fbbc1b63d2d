//! Means and ratios over seeds, with 95 % confidence intervals from Student's t.
//!
//! A seed is one draw of the whole run. So the runs of several seeds are independent and their means about
//! normal, unlike the requests within a run. Seeds are few, and t accounts for that: with three seeds the
//! interval is 4.3 standard errors wide to each side.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The fraction of intervals that cover the true value.
pub const CONFIDENCE: f64 = 0.95;

/// A value from several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over the seeds; of ratios the geometric mean.
    pub value: f64,
    /// The 95 % confidence interval: least, greatest. `None` with a single seed.
    pub interval: Option<(f64, f64)>,
    /// Number of seeds.
    pub seeds: usize,
    /// Whether the value is a bound because of incomplete requests.
    #[serde(default)]
    pub bound: Bound,
}

/// How lower bounds among the response times affect a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Not at all.
    #[default]
    Exact,
    /// The true value is this or larger.
    AtLeast,
    /// The true value is this or smaller.
    AtMost,
    /// The true value may be smaller or larger.
    Either,
}

impl Estimate {
    /// Whether `value` lies in the interval; false without one.
    pub fn covers(&self, value: f64) -> bool {
        self.interval.is_some_and(|(low, high)| (low..=high).contains(&value))
    }

    /// Half the width of the interval. `None` without one.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|(low, high)| (high - low) / 2.0)
    }

    /// The same with another [`Bound`].
    pub fn with_bound(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }
}

/// The mean of `values`, one per seed. `None` if empty or not all finite.
pub fn mean(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let count = values.len() as f64;
    let value = values.iter().sum::<f64>() / count;
    let interval = (values.len() > 1).then(|| {
        let variance = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (count - 1.0);
        let half = t_quantile(values.len() - 1) * (variance / count).sqrt();
        (value - half, value + half)
    });
    Some(Estimate { value, interval, seeds: values.len(), bound: Bound::Exact })
}

/// The geometric mean of the ratios first / second, one pair per seed: ratios of 2 and 1/2 cancel out. `None`
/// if empty, or if a ratio is not positive and finite.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    // A quotient with zero or infinity has no finite logarithm, and `mean` refuses it.
    let logarithms: Vec<f64> = pairs.iter().map(|&(first, second)| (first / second).ln()).collect();
    let log = mean(&logarithms)?;
    let interval = log.interval.map(|(low, high)| (low.exp(), high.exp()));
    Some(Estimate { value: log.value.exp(), interval, ..log })
}

/// The quantile of Student's t for a two-sided interval of [`CONFIDENCE`].
fn t_quantile(degrees_of_freedom: usize) -> f64 {
    // Degrees of freedom are positive here, which is the law's only condition.
    StudentsT::new(0.0, 1.0, degrees_of_freedom as f64)
        .map_or(f64::INFINITY, |law| law.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;
    use rand_distr::{Distribution, Normal};

    use super::*;

    #[test]
    fn students_t_has_its_tabled_values() {
        for (freedom, t) in [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (29, 2.0452), (1000, 1.9623)] {
            assert!((t_quantile(freedom) - t).abs() < 5e-5, "{freedom}: {}", t_quantile(freedom));
        }
    }

    #[test]
    fn a_mean_by_hand() {
        // Mean 4, variance (4 + 0 + 4) / 2 = 4, standard error 2 / sqrt(3), times 4.3027.
        let estimate = mean(&[2.0, 4.0, 6.0]).unwrap();
        let half = 4.302_653 * 2.0 / 3.0_f64.sqrt();
        assert_eq!((estimate.value, estimate.seeds), (4.0, 3));
        assert!((estimate.half_width().unwrap() - half).abs() < 1e-4, "{estimate:?}");
        assert!(estimate.covers(4.0 + half - 0.01) && !estimate.covers(4.0 + half + 0.01));
    }

    #[test]
    fn a_ratio_is_the_geometric_mean_of_the_pairs() {
        // Ratios 2 and 8: geometric mean 4, each a factor of 2 away.
        let estimate = ratio(&[(10.0, 5.0), (8.0, 1.0)]).unwrap();
        assert!((estimate.value - 4.0).abs() < 1e-12);
        let (low, high) = estimate.interval.unwrap();
        // Logarithms ln 4 ± ln 2: standard deviation ln 2 * sqrt 2, standard error ln 2.
        let factor = (12.7062 * 2.0_f64.ln()).exp();
        assert!((high / 4.0 / factor - 1.0).abs() < 1e-3 && (4.0 / low / factor - 1.0).abs() < 1e-3);
    }

    #[test]
    fn one_seed_has_no_interval_and_what_is_no_number_no_estimate() {
        assert_eq!(mean(&[3.0]).unwrap().interval, None);
        assert!(!mean(&[3.0]).unwrap().covers(3.0));
        assert!(mean(&[]).is_none() && mean(&[1.0, f64::NAN]).is_none());
        assert!(ratio(&[(1.0, 0.0)]).is_none() && ratio(&[(0.0, 0.0)]).is_none() && ratio(&[(0.0, 1.0)]).is_none());
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let law = Normal::new(10.0, 3.0).unwrap();
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let runs = 4000;
        let covered = (0..runs)
            .filter(|_| {
                let values: Vec<f64> = (0..3).map(|_| law.sample(&mut rng)).collect();
                mean(&values).unwrap().covers(10.0)
            })
            .count();
        // Three standard errors of a share of 0.95 in 4000 draws are 0.0103.
        assert!((covered as f64 / f64::from(runs) - 0.95).abs() < 0.0104, "{covered}");
    }
}
