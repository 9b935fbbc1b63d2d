//! Statistics of response times.
//!
//! - [`summarise`]: a run in a few numbers, from sizes and times;
//! - [`observe`] and [`Measured`]: the same from outcomes, with incomplete requests counted and marked;
//! - [`alone`]: the time of a request on the idle system, the denominator of every slowdown;
//! - [`series`]: response times by size, by the size's percentile, by time, and their distribution;
//! - [`stretch`]: request by request against another run;
//! - [`interval`]: means and ratios over seeds, with their 95 % confidence intervals.
//!
//! An incomplete request has no response time, but has waited for one. It enters means, percentiles and bins
//! with that wait, a lower bound, and is also counted separately.

use serde::{Deserialize, Serialize};

pub mod alone;
pub mod interval;
mod measured;
pub mod series;
pub mod stretch;

pub use measured::{Measured, Observation, observe};

/// A request's size, its response time, and the time it would take alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Response time in nanoseconds.
    pub response_ns: f64,
    /// Response time on an idle system in nanoseconds: the denominator of the slowdown.
    pub alone_ns: f64,
}

/// The results of a run in a few numbers. Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Number of requests.
    pub count: usize,
    /// Mean response time.
    pub mean_ms: f64,
    /// Variance of the response time, in square milliseconds; of the whole population, not estimated from a
    /// sample.
    pub variance_ms2: f64,
    /// Variance of the response time over the square of its mean.
    pub squared_variation: f64,
    /// Mean of the slowdown: response time over time alone.
    pub mean_slowdown: f64,
    /// Median response time.
    pub p50_ms: f64,
    /// Response time that 5 % of the requests exceed.
    pub p95_ms: f64,
    /// Response time that 1 % of the requests exceed.
    pub p99_ms: f64,
    /// The longest response time.
    pub max_ms: f64,
    /// Mean response time of the largest 1 % of the requests.
    pub largest_percent_ms: f64,
    /// Mean response time of the requests for the largest requested size.
    pub very_largest_ms: f64,
}

/// Summarises `samples`, in any order. All zero without samples.
pub fn summarise(samples: &[Sample]) -> Summary {
    if samples.is_empty() {
        return Summary::default();
    }
    let mean_of = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
        sum / count as f64
    };
    let mean_ns = mean_of(&mut samples.iter().map(|s| s.response_ns));
    let variance = mean_of(&mut samples.iter().map(|s| (s.response_ns - mean_ns).powi(2)));

    let mut times: Vec<f64> = samples.iter().map(|s| s.response_ns).collect();
    times.sort_unstable_by(f64::total_cmp);
    let ms_at = |p: f64| percentile(&times, p) / 1e6;

    let mut by_size: Vec<&Sample> = samples.iter().collect();
    by_size.sort_by_key(|s| std::cmp::Reverse(s.size_bytes));
    let largest = by_size[0].size_bytes;
    let percent = samples.len().div_ceil(100);

    Summary {
        count: samples.len(),
        mean_ms: mean_ns / 1e6,
        variance_ms2: variance / 1e12,
        squared_variation: if mean_ns > 0.0 { variance / (mean_ns * mean_ns) } else { 0.0 },
        mean_slowdown: mean_of(&mut samples.iter().map(|s| s.response_ns / s.alone_ns)),
        p50_ms: ms_at(0.50),
        p95_ms: ms_at(0.95),
        p99_ms: ms_at(0.99),
        max_ms: ms_at(1.0),
        largest_percent_ms: mean_of(&mut by_size[..percent].iter().map(|s| s.response_ns)) / 1e6,
        very_largest_ms: mean_of(&mut by_size.iter().take_while(|s| s.size_bytes == largest).map(|s| s.response_ns))
            / 1e6,
    }
}

/// The value that a fraction `p` of `sorted` does not exceed (nearest rank). 0 if empty.
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// The median of `values`; of an even number, the mean of the middle two. 0 if empty.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.95, 0.99, 1.0].map(|p| percentile(&sorted, p)), [1.0, 50.0, 95.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 0.5), 7.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!([median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0]), median([])], [2.0, 2.5, 0.0]);
    }

    #[test]
    fn slowdown_is_over_the_time_alone_and_the_largest_are_chosen_by_size() {
        // 200 requests; the two largest by size (one of them the very largest) are not the slowest.
        let mut samples: Vec<Sample> =
            (0..198).map(|_| Sample { size_bytes: 10, response_ns: 4e6, alone_ns: 1e6 }).collect();
        samples.push(Sample { size_bytes: 900, response_ns: 2e6, alone_ns: 1e6 });
        samples.push(Sample { size_bytes: 1000, response_ns: 1e6, alone_ns: 1e6 });
        let summary = summarise(&samples);
        assert_eq!(summary.count, 200);
        assert_eq!(summary.mean_ms, (198.0 * 4.0 + 3.0) / 200.0);
        assert_eq!(summary.mean_slowdown, (198.0 * 4.0 + 3.0) / 200.0);
        assert_eq!(summary.largest_percent_ms, 1.5);
        assert_eq!(summary.very_largest_ms, 1.0);
        assert_eq!((summary.p50_ms, summary.max_ms), (4.0, 4.0));
    }

    #[test]
    fn variance_is_of_all_requests_and_its_coefficient_over_the_squared_mean() {
        // 2, 4, 4, 4, 5, 5, 7, 9 have the mean 5 and the variance 4.
        let samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let samples = samples.map(|ms| Sample { size_bytes: 1, response_ns: ms * 1e6, alone_ns: 1e6 });
        let summary = summarise(&samples);
        assert_eq!((summary.mean_ms, summary.variance_ms2, summary.squared_variation), (5.0, 4.0, 0.16));
    }

    #[test]
    fn nothing_comes_to_nothing() {
        assert_eq!(summarise(&[]), Summary::default());
    }
}
