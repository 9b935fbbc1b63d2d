//! The server with the fewest requests under way for its weight is chosen.
//!
//! Load shows how fast a server is: a slow one keeps its requests longer, so it gets fewer of them. Candidates that are
//! equally loaded take turns.

use smallvec::SmallVec;

use super::{Candidate, round_robin};

/// The least loaded candidate.
pub(crate) fn choose(candidates: &[Candidate], turn: u64) -> Option<usize> {
    let least = candidates.iter().reduce(|best, other| if other.is_less_loaded(best) { other } else { best })?;
    let equals = |candidate: &&Candidate| !least.is_less_loaded(candidate);
    if candidates.iter().all(|candidate| equals(&candidate)) {
        return round_robin::choose(candidates, turn);
    }
    let best: SmallVec<[(usize, Candidate); 8]> =
        candidates.iter().enumerate().filter(|(_, candidate)| equals(candidate)).map(|(at, it)| (at, *it)).collect();
    let among: SmallVec<[Candidate; 8]> = best.iter().map(|(_, candidate)| *candidate).collect();
    round_robin::choose(&among, turn).map(|chosen| best[chosen].0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::balance::testing::idle;

    #[test]
    fn the_load_is_counted_against_the_weight() {
        let mut candidates = idle(&[1, 3]);
        candidates[0].load = 1;
        candidates[1].load = 2;
        assert_eq!(choose(&candidates, 0), Some(1));
        candidates[1].load = 4;
        assert_eq!(choose(&candidates, 0), Some(0));
        assert_eq!(choose(&[], 0), None);
    }

    proptest! {
        /// Requests come and go; those under way are shared out by weight, within one request for each server.
        #[test]
        fn requests_under_way_are_shared_out_by_weight(
            weights in prop::collection::vec(1_u32..10, 1..8),
            requests in 1_usize..300,
        ) {
            let mut candidates = idle(&weights);
            for turn in 0..requests {
                let at = choose(&candidates, turn as u64).unwrap();
                candidates[at].load += 1;
            }
            let total: u32 = weights.iter().sum();
            for candidate in &candidates {
                let fair = requests as f64 * f64::from(candidate.weight) / f64::from(total);
                let most = (fair + 1.0).max(1.0) + f64::from(candidate.weight) / f64::from(*weights.iter().min().unwrap());
                prop_assert!(f64::from(candidate.load) <= most, "{candidate:?}: {fair}");
            }
        }

        #[test]
        fn no_other_candidate_is_less_loaded(
            loads in prop::collection::vec((0_u32..100, 1_u32..10), 1..8),
            turn: u64,
        ) {
            let candidate = |(load, weight)| Candidate { load, weight, identity: 0 };
            let candidates: Vec<_> = loads.into_iter().map(candidate).collect();
            let chosen = choose(&candidates, turn).unwrap();
            prop_assert!(candidates.iter().all(|other| !other.is_less_loaded(&candidates[chosen])));
        }
    }
}
