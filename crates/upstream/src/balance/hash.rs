//! A key leads to the same server, for as long as the servers stay the same.
//!
//! Each server has a score for each key; the highest score wins (weighted rendezvous hashing). When a server goes, only its
//! keys move, each to the server with the next score. When a server comes, it takes its part of the keys and no other key
//! moves.
//!
//! With a bound, no server has more than its fair part of the requests under way, times the bound. A key whose server
//! is full goes to the server with the next score until there is room again.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::{Candidate, total_weight};

/// The candidate for a key. `bound` is in percent of the fair part and at least 100.
pub(crate) fn choose(candidates: &[Candidate], key: u64, bound: Option<u32>) -> Option<usize> {
    let load: u64 = candidates.iter().map(|candidate| u64::from(candidate.load)).sum();
    let weight = total_weight(candidates);
    let has_room = |candidate: &Candidate| {
        let Some(bound) = bound else { return true };
        // The request is counted, too.
        let most = (u128::from(load + 1) * u128::from(candidate.weight) * u128::from(bound))
            .div_ceil(u128::from(weight) * 100);
        u128::from(candidate.load) < most
    };
    let scored = candidates.iter().enumerate().filter(|(_, candidate)| has_room(candidate));
    scored
        .map(|(at, candidate)| (at, score(candidate, key)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(at, _)| at)
}

/// The number for a key or for the name of a server. It is the same on each machine and in each release.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The score of a server for a key. The chance of the highest one is in proportion to the weight.
fn score(candidate: &Candidate, key: u64) -> f64 {
    let mut hasher = SipHasher13::new_with_keys(candidate.identity, 0);
    hasher.write_u64(key);
    // Evenly spread between 0 and 1, without either.
    let uniform = ((hasher.finish() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    f64::from(candidate.weight) / -uniform.ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::balance::testing::idle;

    #[test]
    fn the_numbers_never_change() {
        // Gateways of different releases have to send a key to the same server.
        assert_eq!(number(b"192.0.2.1"), 562_859_773_054_509_022);
        let servers: Vec<_> = (0..8).map(|key| choose(&idle(&[1, 1, 1]), key, None).unwrap()).collect();
        assert_eq!(servers, [1, 0, 2, 1, 2, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn keys_are_spread_by_weight(weights in prop::collection::vec(1_u32..6, 2..6), from: u32) {
            let candidates = idle(&weights);
            let mut keys = vec![0.0; weights.len()];
            for key in 0..4_000 {
                keys[choose(&candidates, u64::from(from) + key, None).unwrap()] += 1.0 / 4_000.0;
            }
            let total: u32 = weights.iter().sum();
            for (keys, weight) in keys.iter().zip(&weights) {
                let fair = f64::from(*weight) / f64::from(total);
                prop_assert!((keys - fair).abs() < 0.05, "{keys} instead of {fair}");
            }
        }

        /// The order of the servers does not matter either.
        #[test]
        fn only_the_keys_of_a_server_move_when_it_goes(
            weights in prop::collection::vec(1_u32..6, 2..8),
            gone in 0_usize..8,
            keys in prop::collection::vec(any::<u64>(), 100),
        ) {
            let all = idle(&weights);
            let gone = all[gone % all.len()];
            let left: Vec<_> = all.iter().rev().copied().filter(|candidate| *candidate != gone).collect();
            for key in keys {
                let (before, after) = (choose(&all, key, None).unwrap(), choose(&left, key, None).unwrap());
                prop_assert!(all[before] == gone || all[before] == left[after]);
            }
        }

        /// However popular a key is, with a bound no server has more than its part.
        #[test]
        fn with_a_bound_no_server_is_overloaded(
            weights in prop::collection::vec(1_u32..6, 1..8),
            keys in prop::collection::vec(0_u64..3, 1..200),
            bound in 100_u32..200,
        ) {
            let mut candidates = idle(&weights);
            for key in keys {
                let at = choose(&candidates, key, Some(bound)).unwrap();
                candidates[at].load += 1;
            }
            let load: u32 = candidates.iter().map(|candidate| candidate.load).sum();
            let total: u32 = weights.iter().sum();
            for candidate in &candidates {
                let most = f64::from(load * candidate.weight) / f64::from(total) * f64::from(bound) / 100.0;
                prop_assert!(f64::from(candidate.load) < most + 1.0, "{candidate:?}: {most}");
            }
        }
    }
}
