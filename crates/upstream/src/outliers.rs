//! Servers that fail or are slow where the others are not.
//!
//! The comparison is pure. `ejection` has the task that makes it.

use crate::config::OutlierChecks;

/// The responses and failures of a server in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Responses begun, and failures.
    pub(crate) requests: u64,
    /// Responses of 500 and above, and failures.
    pub(crate) errors: u64,
    /// Responses begun.
    pub(crate) answers: u64,
    /// The time until they began, in all.
    pub(crate) time_us: u64,
}

impl Counts {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            answers: self.answers.saturating_sub(before.answers),
            time_us: self.time_us.saturating_sub(before.time_us),
        }
    }

    fn error_share(self) -> f64 {
        self.errors as f64 / self.requests.max(1) as f64
    }

    fn mean_us(self) -> f64 {
        self.time_us as f64 / self.answers.max(1) as f64
    }
}

/// Why a server is an outlier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outlier {
    /// The share of its requests that failed.
    Fails(f64),
    /// How many times longer than the others it takes.
    IsSlow(f64),
}

/// The outliers among servers, by index, the worst first. `possible` is how many more may be left alone.
pub(crate) fn find(seen: &[Counts], checks: &OutlierChecks, possible: usize) -> Vec<(usize, Outlier)> {
    let counts = |counts: &Counts| counts.requests >= u64::from(checks.requests);
    let others =
        |at: usize| seen.iter().enumerate().filter(move |(other, it)| *other != at && counts(it)).map(|(_, it)| *it);
    let judged = |at: usize| {
        let own = seen[at];
        others(at).next()?;
        // Errors of all servers are no fault of one server.
        let (failed, all) = others(at).fold((0, 0), |(failed, all), it| (failed + it.errors, all + it.requests));
        let elsewhere = failed as f64 / all.max(1) as f64;
        let share = own.error_share();
        if checks.errors.is_some_and(|errors| share >= errors) && share > 2.0 * elsewhere {
            return Some(Outlier::Fails(share));
        }
        let mut means: Vec<f64> = others(at).filter(|it| it.answers > 0).map(Counts::mean_us).collect();
        means.sort_by(f64::total_cmp);
        let median = *means.get(means.len().checked_sub(1)? / 2)?;
        let times = own.mean_us() / median.max(1.0);
        checks.slower.filter(|slower| own.answers > 0 && times >= *slower).map(|_| Outlier::IsSlow(times))
    };
    let mut found: Vec<_> = (0..seen.len())
        .filter(|at| counts(&seen[*at]))
        .filter_map(|at| judged(at).map(|outlier| (at, outlier)))
        .collect();
    let badness = |outlier: &Outlier| match outlier {
        Outlier::Fails(share) => (1, *share),
        Outlier::IsSlow(times) => (0, *times),
    };
    found
        .sort_by(|(_, one), (_, other)| badness(other).partial_cmp(&badness(one)).unwrap_or(std::cmp::Ordering::Equal));
    // Two servers may be worse than each other.
    found.truncate(possible.min(seen.len().saturating_sub(1)));
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const CHECKS: OutlierChecks = OutlierChecks {
        every: Duration::from_secs(10),
        requests: 20,
        errors: Some(0.5),
        slower: Some(3.0),
        pause: Duration::from_secs(30),
        most: 50,
    };

    fn seen(requests: u64, errors: u64, mean_us: u64) -> Counts {
        Counts { requests, errors, answers: requests, time_us: requests * mean_us }
    }

    fn found(seen: &[Counts], possible: usize) -> Vec<usize> {
        find(seen, &CHECKS, possible).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn a_server_is_compared_with_the_others() {
        let well = seen(100, 1, 1_000);
        assert_eq!(found(&[well, seen(100, 60, 1_000), well], 2), [1]);
        assert_eq!(found(&[well, seen(100, 40, 1_000), well], 2), [0; 0], "less than half");
        assert_eq!(found(&[seen(100, 60, 1_000); 3], 2), [0; 0], "it fails everywhere");
        assert_eq!(found(&[well, seen(19, 19, 1_000), well], 2), [0; 0], "too few requests");
        assert_eq!(found(&[seen(100, 99, 1_000)], 1), [0; 0], "there is nothing to compare with");
        assert_eq!(found(&[well, well, seen(100, 0, 4_000)], 2), [2]);
        assert_eq!(found(&[well, well, seen(100, 0, 2_000)], 2), [0; 0]);
        let bad = [seen(100, 0, 9_000), seen(100, 60, 1_000), seen(100, 90, 1_000), well, well, well, well, well];
        assert_eq!(found(&bad, 8), [2, 1, 0], "the worst first, and errors before slowness");
        assert_eq!(found(&bad, 1), [2]);
    }

    proptest! {
        /// However servers behave, no more are found than may be left alone, each once, and never all of them.
        #[test]
        fn there_is_always_a_server_left(
            counts in prop::collection::vec((0_u64..200, 0_u64..200, 0_u64..100_000), 1..10),
            possible in 0_usize..10,
        ) {
            let all: Vec<_> = counts.into_iter().map(|(requests, errors, mean)| seen(requests, errors.min(requests), mean)).collect();
            let mut at = found(&all, possible);
            prop_assert!(at.len() <= possible && at.len() < all.len());
            at.sort_unstable();
            at.dedup();
            prop_assert!(at.len() <= possible);
        }
    }
}
