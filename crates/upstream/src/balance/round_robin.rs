//! Servers take turns, in proportion to their weights.
//!
//! A round has as many turns as the weights sum up to, after their common divisor is removed. In a round each server
//! has exactly as many turns as its weight. The turns of a round are visited in steps near the golden ratio, so the
//! turns of a heavy server do not follow each other.

use super::{Candidate, at_point};

/// The candidate whose turn it is. Consecutive turns make up rounds.
pub(crate) fn choose(candidates: &[Candidate], turn: u64) -> Option<usize> {
    let first = candidates.first()?.weight;
    if candidates.iter().all(|candidate| candidate.weight == first) {
        return Some((turn % candidates.len() as u64) as usize);
    }
    let divisor = candidates.iter().fold(0, |divisor, candidate| greatest_common_divisor(divisor, candidate.weight));
    let round = super::total_weight(candidates) / u64::from(divisor);
    let place = u128::from(turn % round) * u128::from(step(round)) % u128::from(round);
    at_point(candidates, place as u64 * u64::from(divisor))
}

/// The step nearest to the golden part of a round that visits all of its turns.
fn step(round: u64) -> u64 {
    let golden = (round as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..round).find(|&step| greatest_common_divisor_u64(step, round) == 1).unwrap_or(1)
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    greatest_common_divisor_u64(one.into(), other.into()) as u32
}

fn greatest_common_divisor_u64(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => greatest_common_divisor_u64(other, one % other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::balance::testing::idle;

    fn order(weights: &[u32], turns: u64) -> String {
        let candidates = idle(weights);
        (0..turns).map(|turn| char::from(b'A' + choose(&candidates, turn).unwrap() as u8)).collect()
    }

    #[test]
    fn equals_take_turns_and_a_heavy_server_does_not_take_its_turns_at_once() {
        assert_eq!(order(&[1, 1, 1], 7), "ABCABCA");
        assert_eq!(order(&[300, 300], 4), "ABAB");
        assert_eq!(order(&[5, 1], 12), "ABAAAAABAAAA");
        assert_eq!(order(&[3, 3, 1], 7), "ABABACB");
        assert_eq!(order(&[200, 100], 6), "AABAAB");
        assert_eq!(choose(&[], 3), None);
    }

    proptest! {
        #[test]
        fn every_round_is_shared_out_exactly(weights in prop::collection::vec(1_u32..50, 1..12), from in 0_u64..1_000) {
            let candidates = idle(&weights);
            let round: u32 = weights.iter().sum();
            let mut turns = vec![0; weights.len()];
            for turn in from..from + u64::from(round) {
                turns[choose(&candidates, turn).unwrap()] += 1;
            }
            prop_assert_eq!(turns, weights);
        }
    }
}
