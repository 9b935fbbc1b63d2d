//! Divides requests or users among client groups.

use std::fmt;

use rand::RngExt;

use super::{Request, stream};

/// The relative shares of the groups. At least one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Cumulative shares; the last is 1.
    ends: Vec<f64>,
}

impl Shares {
    /// Shares of groups 0, 1, and so on; an empty list means one group.
    ///
    /// # Errors
    ///
    /// A share that is negative or not finite, shares that are all zero, or more than 65,536 groups.
    pub fn new(shares: &[f64]) -> Result<Self, SharesError> {
        if shares.is_empty() {
            return Ok(Self::one());
        }
        if shares.len() > usize::from(u16::MAX) + 1 {
            return Err(SharesError::TooMany(shares.len()));
        }
        if let Some(group) = shares.iter().position(|share| !(0.0..1e12).contains(share)) {
            return Err(SharesError::Share { group, share: shares[group] });
        }
        let sum: f64 = shares.iter().sum();
        if sum <= 0.0 {
            return Err(SharesError::AllZero);
        }
        let mut end = 0.0;
        let ends = shares
            .iter()
            .map(|share| {
                end += share / sum;
                end
            })
            .collect();
        Ok(Self { ends })
    }

    /// One group.
    pub fn one() -> Self {
        Self { ends: vec![1.0] }
    }

    /// The group of the value `place` between 0 and 1.
    fn at(&self, place: f64) -> u16 {
        // The rounding error above the last end goes to the last group with a share above 0.
        let last = self.ends.partition_point(|&end| end < self.ends[self.ends.len() - 1]);
        self.ends.partition_point(|&end| end <= place).min(last) as u16
    }

    /// A group for each of `count` users. Every group has its share to within one user. The groups alternate,
    /// so the first few users are mixed like the whole.
    pub fn deal(&self, count: usize) -> Vec<u16> {
        let mut dealt = vec![0.0; self.ends.len()];
        (1..=count)
            .map(|users| {
                let mut from = 0.0;
                let mut most = (0, f64::NEG_INFINITY);
                for (group, &end) in self.ends.iter().enumerate() {
                    let short = (end - from) * users as f64 - dealt[group];
                    // Of equally short groups (to within rounding), the first.
                    if end > from && short > most.1 + 1e-9 {
                        most = (group, short);
                    }
                    from = end;
                }
                dealt[most.0] += 1.0;
                most.0 as u16
            })
            .collect()
    }
}

/// Assigns each request a group at random, with the shares as probabilities. The numbers come from their own
/// stream of the seed, so times and files stay the same.
pub fn assign_groups(requests: &mut [Request], shares: &Shares, seed: u64) {
    let mut rng = stream(seed, super::GROUPS);
    for request in requests {
        request.group = shares.at(rng.random());
    }
}

/// Invalid shares.
#[derive(Clone, Debug, PartialEq)]
pub enum SharesError {
    /// A share is negative, not finite, or 10^12 and more.
    Share {
        /// Number of the group, from 0.
        group: usize,
        /// The share.
        share: f64,
    },
    /// No group has a share.
    AllZero,
    /// More groups than group numbers.
    TooMany(usize),
}

impl fmt::Display for SharesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { group, share } => {
                write!(f, "group {group} has a share of {share}: give a number of 0 or more")
            }
            Self::AllZero => f.write_str("the shares of all groups are 0: give at least one a share above 0"),
            Self::TooMany(count) => write!(f, "{count} client groups: use at most 65536"),
        }
    }
}

impl std::error::Error for SharesError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_get_groups_by_share_and_keep_the_rest() {
        let request = |at_ns| Request { at_ns, file: 7, size_bytes: 10, group: 0 };
        let mut requests: Vec<Request> = (0..90_000).map(request).collect();
        assign_groups(&mut requests, &Shares::new(&[1.0, 0.0, 2.0, 3.0]).unwrap(), 5);
        let count = |group| requests.iter().filter(|request| request.group == group).count() as f64;
        // Four standard deviations of a binomial count.
        for (group, share) in [(0, 1.0 / 6.0), (2, 1.0 / 3.0), (3, 0.5)] {
            let expected = 90_000.0 * share;
            assert!((count(group) - expected).abs() < 4.0 * (expected * (1.0 - share)).sqrt(), "{group}");
        }
        assert_eq!(count(1), 0.0);
        assert!(requests.iter().enumerate().all(|(i, &r)| Request { group: 0, ..r } == request(i as u64)));
        // Random, not in turn: with two equal groups, neighbours share a group half of the time.
        assign_groups(&mut requests, &Shares::new(&[1.0, 1.0]).unwrap(), 5);
        let alike = requests.windows(2).filter(|pair| pair[0].group == pair[1].group).count() as f64;
        assert!((alike / 89_999.0 - 0.5).abs() < 4.0 * 0.5 / 300.0, "{alike}");
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        assert!(matches!(Shares::new(&[1.0, -1.0]), Err(SharesError::Share { group: 1, .. })));
        assert!(matches!(Shares::new(&[f64::NAN]), Err(SharesError::Share { group: 0, .. })));
        assert_eq!(Shares::new(&[0.0, 0.0]), Err(SharesError::AllZero));
        assert_eq!(Shares::new(&vec![1.0; 70_000]), Err(SharesError::TooMany(70_000)));
        assert_eq!(Shares::new(&[]), Ok(Shares::one()));
    }

    #[test]
    fn users_of_equal_groups_alternate() {
        assert_eq!(Shares::new(&[1.0, 1.0, 1.0]).unwrap().deal(7), [0, 1, 2, 0, 1, 2, 0]);
    }

    proptest! {
        #[test]
        fn each_group_has_its_share_of_the_users(shares in prop::collection::vec(0.0..9.0_f64, 1..8), users in 0_usize..500) {
            prop_assume!(shares.iter().sum::<f64>() > 0.0);
            let sum: f64 = shares.iter().sum();
            let dealt = Shares::new(&shares).unwrap().deal(users);
            for (group, share) in shares.iter().enumerate() {
                let count = dealt.iter().filter(|&&of| usize::from(of) == group).count() as f64;
                // The greatest shortfall is served first, so no group is short by more than the number of
                // groups.
                prop_assert!((count - share / sum * users as f64).abs() <= shares.len() as f64);
                prop_assert!(*share > 0.0 || count == 0.0);
            }
        }
    }
}
