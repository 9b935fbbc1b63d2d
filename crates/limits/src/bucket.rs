//! A token bucket in one number: the time at which the bucket is full again. No clock: time is passed in.
//!
//! This is the generic cell rate algorithm. A request moves that time on by the time of one token. It is refused
//! if the bucket would then need longer than a whole one takes to fill.

use crate::config::Rate;

/// Times in nanoseconds since any fixed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    token_ns: u64,
    whole_ns: u64,
}

impl Bucket {
    pub(crate) fn new(rate: &Rate) -> Self {
        let window_ns = u64::try_from(rate.window.as_nanos()).unwrap_or(u64::MAX);
        // At least 1 ns, so that every request counts.
        let token_ns = (window_ns / u64::from(rate.requests.get())).max(1);
        Self { token_ns, whole_ns: token_ns.saturating_mul(u64::from(rate.burst.get())) }
    }

    /// Takes a token. `full_ns` is when the bucket is full. Returns when it is full after that.
    ///
    /// # Errors
    /// There is none; the time until there is one.
    pub(crate) fn take(&self, full_ns: u64, now_ns: u64) -> Result<u64, u64> {
        let full_then_ns = full_ns.max(now_ns).saturating_add(self.token_ns);
        match full_then_ns.checked_sub(now_ns.saturating_add(self.whole_ns)) {
            None | Some(0) => Ok(full_then_ns),
            Some(wait_ns) => Err(wait_ns),
        }
    }

    /// Takes tokens that were spent at another place, where there was no telling whether they are here. A bucket is empty at
    /// worst. Returns when it is full after that.
    pub(crate) fn spend(&self, full_ns: u64, tokens: u32, now_ns: u64) -> u64 {
        let full_then_ns = full_ns.max(now_ns).saturating_add(self.token_ns.saturating_mul(tokens.into()));
        full_then_ns.min(now_ns.saturating_add(self.whole_ns))
    }

    /// The time in which an empty bucket fills.
    pub(crate) fn whole_ns(&self) -> u64 {
        self.whole_ns
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;

    const S: u64 = 1_000_000_000;

    fn bucket(requests: u32, window_s: u64, burst: u32) -> Bucket {
        let number = |number| NonZeroU32::new(number).unwrap();
        Bucket::new(&Rate { requests: number(requests), window: Duration::from_secs(window_s), burst: number(burst) })
    }

    #[test]
    fn a_burst_is_served_and_then_the_rate() {
        let bucket = bucket(2, 1, 3);
        let (mut full, start) = (0, 100 * S);
        for _ in 0..3 {
            full = bucket.take(full, start).unwrap();
        }
        assert_eq!(bucket.take(full, start), Err(S / 2), "a token is back after half a second");
        assert_eq!(bucket.take(full, start + S / 4), Err(S / 4));
        full = bucket.take(full, start + S / 2).unwrap();
        assert!(bucket.take(full, start + S / 2).is_err(), "one token, not two");
        assert!(bucket.take(full, start + 10 * S).is_ok());
    }

    #[test]
    fn a_refused_request_costs_no_token() {
        let bucket = bucket(1, 60, 1);
        let full = bucket.take(0, S).unwrap();
        for second in 2..61 {
            assert_eq!(bucket.take(full, second * S), Err((61 - second) * S));
        }
        assert!(bucket.take(full, 61 * S).is_ok());
    }

    #[test]
    fn in_the_long_run_no_more_than_the_rate_is_served() {
        let bucket = bucket(10, 1, 20);
        let (mut full, mut served) = (0, 0);
        for ms in 0..100_000_u64 {
            if let Ok(after) = bucket.take(full, ms * 1_000_000) {
                (full, served) = (after, served + 1);
            }
        }
        assert!((1_000..=1_020).contains(&served), "{served}");
    }

    #[test]
    fn no_rate_overflows() {
        let fastest = bucket(u32::MAX, 1, u32::MAX);
        assert!(fastest.take(u64::MAX - 1, u64::MAX).is_ok());
        assert!(bucket(1, u64::MAX, u32::MAX).take(0, u64::MAX).is_ok());
    }
}
