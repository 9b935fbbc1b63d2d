//! Band plans, given and learned.

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
};
use serpent_scheduler::bands::{BandLearner, BandPlan, LEARN_FROM};

/// Measures over all orders of magnitude, with both ends of the range.
fn measure() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => Just(u64::MAX), 20 => (any::<u64>(), 0..64u32).prop_map(|(bits, shift)| bits >> shift)]
}

proptest! {
    #[test]
    fn whoever_has_more_left_is_never_in_a_better_band(
        cutoffs in btree_set(measure(), 1..300),
        measures in vec(measure(), 2..50),
    ) {
        let plan = BandPlan::new(cutoffs.iter().copied().collect()).unwrap();
        let mut measures: Vec<u64> = measures.into_iter().chain(cutoffs.iter().copied()).collect();
        measures.sort_unstable();
        let bands: Vec<u8> = measures.iter().map(|&measure| plan.band(measure)).collect();
        prop_assert!(bands.is_sorted(), "{bands:?}");
        prop_assert!(bands.iter().all(|&band| band >= 1 && usize::from(band) <= cutoffs.len() + 1));
        // Cutoff i - 1 is the first measure of band i + 1, up to band 255.
        for (i, &cutoff) in cutoffs.iter().enumerate() {
            prop_assert_eq!(usize::from(plan.band(cutoff)), (i + 2).min(255));
        }
    }

    #[test]
    fn cutoffs_out_of_order_are_refused(cutoffs in vec(0..20u64, 0..5)) {
        let increase = !cutoffs.is_empty() && cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
        prop_assert_eq!(BandPlan::new(cutoffs).is_ok(), increase);
    }

    #[test]
    fn a_learned_plan_is_valid_whatever_was_seen(
        kinds in vec(measure(), 1..50),
        seen in 0..3_000usize,
        bands in any::<u8>(),
    ) {
        let mut learner = BandLearner::default();
        for i in 0..seen {
            // Some sizes often, others seldom.
            learner.handle_seen(kinds[i * i % kinds.len()]);
        }
        let Some(plan) = learner.plan(bands) else {
            prop_assert!(seen < LEARN_FROM as usize || bands < 2, "enough was seen");
            return Ok(());
        };
        prop_assert!(seen >= LEARN_FROM as usize && bands >= 2);
        prop_assert!(plan.cutoffs().len() < usize::from(bands), "{plan:?} has more than {bands} bands");
        prop_assert_eq!(BandPlan::new(plan.cutoffs().to_vec()), Ok(plan.clone()), "a plan that could be given");

        // The first band holds at least half of the sizes. With more than two bands, all but the last hold at
        // least 99.3 %.
        let mut measures: Vec<u64> = (0..seen).map(|i| kinds[i * i % kinds.len()]).collect();
        measures.sort_unstable();
        let at = |permille: usize| measures[(seen * permille).div_ceil(1000).saturating_sub(1)];
        let (first, last) = (plan.cutoffs()[0], *plan.cutoffs().last().unwrap());
        prop_assert!(first > at(500) || first == u64::MAX, "{plan:?}, half up to {}", at(500));
        if bands > 2 {
            prop_assert!(last > at(993) || last == u64::MAX, "{plan:?}, 99.3 % up to {}", at(993));
        }
    }
}

#[test]
fn the_plan_follows_the_site() {
    for (old, new) in [(1_000, 100_000), (100_000, 1_000), (0, u64::MAX), (u64::MAX, 0)] {
        let mut learner = BandLearner::default();
        let mut seen = |measure, times| (0..times).for_each(|_| _ = learner.handle_seen(measure));
        seen(old, 25_000);
        seen(new, 60_000);
        let mut fresh = BandLearner::default();
        (0..LEARN_FROM).for_each(|_| _ = fresh.handle_seen(new));
        let half_below = |learner: &BandLearner| learner.plan(3).unwrap().cutoffs()[0];
        assert_eq!(half_below(&learner), half_below(&fresh), "from {old} to {new}");
    }
}
