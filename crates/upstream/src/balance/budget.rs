//! Requests may be sent again only as a part of all requests. When every server fails, retries would otherwise multiply the
//! load on servers that fail because of their load.
//!
//! Requests are not counted here: the caller passes the count that servers keep anyway, so a request that succeeds at once
//! costs nothing. Saved retries fade within ten seconds.

/// Time in which savings fade.
const FADES_NS: u64 = 10_000_000_000;

/// Retries a second that are always possible, so that a quiet site can retry, too.
const A_SECOND: f64 = 10.0;

/// The retries that are left.
#[derive(Debug)]
pub(crate) struct Savings {
    /// Most retries, in percent of the requests.
    percent: u32,
    retries: f64,
    seen: u64,
    at_ns: u64,
}

impl Savings {
    /// Starts with the retries of one second without requests.
    pub(crate) fn new(percent: u32, requests: u64, now_ns: u64) -> Self {
        Self { percent, retries: A_SECOND, seen: requests, at_ns: now_ns }
    }

    /// Takes a retry if one is left. `requests` counts all requests so far, without retries.
    pub(crate) fn take(&mut self, requests: u64, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        let new = requests.saturating_sub(self.seen);
        // Servers that go take their count along.
        self.seen = requests;
        self.at_ns = self.at_ns.max(now_ns);
        let faded = passed_ns.min(FADES_NS) as f64 / FADES_NS as f64;
        // Of a longer time, only the last ten seconds count.
        let counted = if passed_ns > FADES_NS { FADES_NS as f64 / passed_ns as f64 } else { 1.0 };
        let seconds = passed_ns.min(FADES_NS) as f64 / 1e9;
        self.retries =
            self.retries * (1.0 - faded) + f64::from(self.percent) / 100.0 * new as f64 * counted + A_SECOND * seconds;
        let possible = self.retries >= 1.0;
        if possible {
            self.retries -= 1.0;
        }
        possible
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn taken(savings: &mut Savings, tries: usize, requests: u64, now: u64) -> usize {
        (0..tries).filter(|_| savings.take(requests, now)).count()
    }

    #[test]
    fn a_part_of_the_requests_may_be_sent_again() {
        let mut savings = Savings::new(20, 0, 0);
        assert_eq!(taken(&mut savings, 100, 0, 0), 10, "the first second's");
        assert_eq!(taken(&mut savings, 1_000, 1_000, SECOND), 210);
        assert_eq!(taken(&mut savings, 1_000, 1_000, SECOND), 0);
        assert_eq!(taken(&mut savings, 100, 1_000, 2 * SECOND), 10);
        // An hour of traffic is not saved up: the last ten seconds of it are.
        assert_eq!(taken(&mut savings, 10_000, 361_000, 3_602 * SECOND), 300);
    }

    proptest! {
        #[test]
        fn there_are_never_more_retries_than_the_rules_allow(
            steps in prop::collection::vec((0_u64..50, 0_u64..SECOND, 0_usize..30), 1..200),
            percent in 0_u32..=100,
        ) {
            let mut savings = Savings::new(percent, 0, 0);
            let (mut requests, mut now, mut retries) = (0, 0, 0);
            for (more, passed, tries) in steps {
                requests += more;
                now += passed;
                retries += taken(&mut savings, tries, requests, now);
                let seconds = now as f64 / 1e9 + 1.0;
                let most = f64::from(percent) / 100.0 * requests as f64 + A_SECOND * seconds;
                prop_assert!(retries as f64 <= most + 1e-6, "{retries} of {requests} in {seconds} s");
            }
        }
    }
}
