//! Two servers are drawn at random by weight, and the less loaded one is chosen.
//!
//! Several gateways that choose the least loaded server all choose the same one at once. Two random candidates avoid
//! that, at the price of a somewhat worse choice.

use super::{Candidate, at_point, scaled, total_weight};

/// The less loaded one of two random candidates.
pub(crate) fn choose(candidates: &[Candidate], random: [u64; 2]) -> Option<usize> {
    let total = total_weight(candidates);
    let first = at_point(candidates, scaled(random[0], total))?;
    let rest = total - u64::from(candidates[first].weight);
    if rest == 0 {
        return Some(first);
    }
    // The second one is drawn from the others: the first one's part of the line is left out.
    let before: u64 = total_weight(&candidates[..first]);
    let point = scaled(random[1], rest);
    let point = if point < before { point } else { point + u64::from(candidates[first].weight) };
    let second = at_point(candidates, point)?;
    Some(if candidates[second].is_less_loaded(&candidates[first]) { second } else { first })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::balance::testing::idle;

    #[test]
    fn the_busier_of_two_is_never_chosen() {
        let mut candidates = idle(&[1, 7]);
        candidates[1].load = 8;
        let mut random = fastrand::Rng::with_seed(1);
        assert!((0..100).all(|_| choose(&candidates, [random.u64(..), random.u64(..)]) == Some(0)));
        assert_eq!(choose(&[], [0, 0]), None);
        assert_eq!(choose(&idle(&[4]), [u64::MAX, u64::MAX]), Some(0));
    }

    proptest! {
        #[test]
        fn idle_servers_are_drawn_by_weight(weights in prop::collection::vec(1_u32..6, 2..6), seed: u64) {
            let candidates = idle(&weights);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut drawn = vec![0.0; weights.len()];
            for _ in 0..4_000 {
                drawn[choose(&candidates, [random.u64(..), random.u64(..)]).unwrap()] += 1.0 / 4_000.0;
            }
            let total: u32 = weights.iter().sum();
            for (drawn, weight) in drawn.iter().zip(&weights) {
                let fair = f64::from(*weight) / f64::from(total);
                prop_assert!((drawn - fair).abs() < 0.06, "{drawn} instead of {fair}");
            }
        }

        /// The most loaded server is chosen only where it is drawn twice, which cannot happen.
        #[test]
        fn the_one_most_loaded_server_is_never_chosen(
            weights in prop::collection::vec(1_u32..6, 2..6),
            random: [u64; 2],
        ) {
            let mut candidates = idle(&weights);
            candidates[0].load = 1_000;
            prop_assert!(choose(&candidates, random) != Some(0));
        }
    }
}
