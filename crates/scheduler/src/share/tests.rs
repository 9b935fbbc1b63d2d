use alloc::{string::String, vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{class::ClassId, time::Instant};

fn classes(weights: &[u32]) -> Vec<Class> {
    weights.iter().map(|&weight| Class { weight, ..Class::default() }).collect()
}

fn contend(classes: impl IntoIterator<Item = usize>) -> Vec<Contender> {
    classes.into_iter().map(|class| Contender::new(ClassId(class as u16))).collect()
}

const NO_SLOTS: Slots<'static> = Slots { window: None, running: &[] };

/// `n` choices while all classes have waiting jobs.
fn choices(share: &mut dyn Share, classes: usize, n: usize) -> Vec<usize> {
    let all = contend(0..classes);
    (0..n).map(|_| share.choose(Instant::ORIGIN, &NO_SLOTS, &all).unwrap().class.index()).collect()
}

fn letters(choices: &[usize]) -> String {
    choices.iter().map(|&class| char::from(b'A' + class as u8)).collect()
}

#[test]
fn orders_with_everybody_waiting() {
    for (policy, weights, expected) in [
        (Policy::Strict, &[1, 1, 1][..], "AAAAAA"),
        (Policy::Weighted, &[1, 1, 1], "ABCABCABC"),
        (Policy::Weighted, &[4, 2, 1], "ABACABAABACABA"),
        (Policy::Weighted, &[1, 6], "BABBBBBBABBBBB"),
        // Without deadlines, the more important first.
        (Policy::Edf, &[1, 1], "AAAA"),
    ] {
        let mut share = policy.build(&classes(weights));
        let chosen = choices(share.as_mut(), weights.len(), expected.len());
        assert_eq!(letters(&chosen), expected, "{policy} {weights:?}");
    }
}

#[test]
fn four_to_two_to_one_within_two_percent_of_a_thousand_and_ten_of_any_hundred() {
    let weights = [4.0, 2.0, 1.0];
    let chosen = choices(Policy::Weighted.build(&classes(&[4, 2, 1])).as_mut(), 3, 10_000);
    for (run, within) in [(1000, 0.02), (100, 0.1)] {
        for window in chosen.windows(run) {
            for (class, weight) in weights.iter().enumerate() {
                let due = run as f64 * weight / 7.0;
                let had = window.iter().filter(|&&it| it == class).count() as f64;
                assert!((had - due).abs() <= within * due, "class {class}: {had} of {run}, {due:.1} are due");
            }
        }
    }
}

#[test]
fn the_earliest_deadline_goes_and_the_late_wait_for_those_in_time() {
    let mut share = Policy::Edf.build(&classes(&[1, 1, 1, 1]));
    let at = |ns| Some(Instant::from_ns(ns));
    let mut contenders = contend(0..4);
    (contenders[1].deadline, contenders[2].deadline, contenders[3].deadline) = (at(30), at(20), at(10));
    contenders[3].late = true;
    let mut order = Vec::new();
    while let Some(choice) = share.choose(Instant::ORIGIN, &NO_SLOTS, &contenders) {
        order.push((choice.class.index(), choice.reason));
        contenders.retain(|it| it.class != choice.class);
    }
    let expected = [(2, Reason::Deadline), (1, Reason::Deadline), (0, Reason::Deadline), (3, Reason::Alone)];
    assert_eq!(order, expected);
}

#[test]
fn strict_takes_the_first_class_whatever_was_chosen_before() {
    let mut share = Policy::Strict.build(&classes(&[1, 1, 1]));
    for (waiting, chosen) in [(vec![1, 2], 1), (vec![0, 1, 2], 0), (vec![2], 2), (vec![0, 2], 0)] {
        assert_eq!(
            share.choose(Instant::ORIGIN, &NO_SLOTS, &contend(waiting)).map(|it| it.class.index()),
            Some(chosen)
        );
    }
}

#[test]
fn who_was_silent_has_saved_nothing_up() {
    let mut share = Policy::Weighted.build(&classes(&[1, 1, 2]));
    for _ in 0..1001 {
        share.choose(Instant::ORIGIN, &NO_SLOTS, &contend([0, 1]));
    }
    // From here on half of all, and not a thousand in a row.
    let chosen = choices(share.as_mut(), 3, 40);
    for (start, run) in chosen.windows(4).enumerate() {
        let had = run.iter().filter(|&&it| it == 2).count();
        assert!((1..=3).contains(&had), "{had} of 4 from {start}: {}", letters(&chosen));
    }
    assert_eq!(chosen.iter().filter(|&&it| it == 2).count(), 20);
}

/// A site whose slots are taken and freed.
struct Site {
    share: Box<dyn Share + Send>,
    window: u32,
    running: Vec<u32>,
}

impl Site {
    fn new(policy: Policy, classes: &[Class], window: u32) -> Self {
        Self { share: policy.build(classes), window, running: vec![0; classes.len()] }
    }

    /// Gives free slots to the class that the share names among `waiting`, until no slot is free or it names
    /// none.
    fn fill(&mut self, waiting: &[usize]) -> Vec<Choice> {
        let mut given = Vec::new();
        while self.running.iter().sum::<u32>() < self.window {
            let slots = Slots { window: Some(self.window), running: &self.running };
            let Some(choice) = self.share.choose(Instant::ORIGIN, &slots, &contend(waiting.iter().copied())) else {
                break;
            };
            self.running[choice.class.index()] += 1;
            given.push(choice);
        }
        given
    }
}

#[test]
fn what_a_class_does_not_use_is_lent_and_comes_back_slot_by_slot() {
    let mut site = Site::new(Policy::Shared, &classes(&[4, 2, 1]), 7);
    site.fill(&[1, 2]);
    // Two parts to one, as far as whole slots allow.
    assert_eq!(site.running, [0, 5, 2]);
    // Class A is back: it gets each slot that becomes free, until it has its four.
    for (freed, after) in
        [(1, [1, 4, 2]), (2, [2, 4, 1]), (1, [3, 3, 1]), (1, [4, 2, 1]), (1, [4, 2, 1]), (0, [4, 2, 1])]
    {
        site.running[freed] -= 1;
        assert!(site.fill(&[0, 1, 2]).iter().all(|choice| choice.reason == Reason::WithinShare));
        assert_eq!(site.running, after);
    }
}

#[test]
fn a_reserve_is_never_lent() {
    let mut of = classes(&[1, 1, 1]);
    of[0].reserved_slots = 2;
    let mut site = Site::new(Policy::Shared, &of, 9);
    site.fill(&[1, 2]);
    assert_eq!(site.running, [0, 4, 3], "two of the three that A has are lent to nobody");
    site.fill(&[0, 1, 2]);
    assert_eq!(site.running, [2, 4, 3], "and are there when A comes");
}

#[test]
fn a_fixed_share_is_never_lent() {
    let mut site = Site::new(Policy::Fixed, &classes(&[4, 2, 1]), 7);
    site.fill(&[1, 2]);
    assert_eq!(site.running, [0, 2, 1]);
    site.fill(&[0, 1, 2]);
    assert_eq!(site.running, [4, 2, 1]);
}

#[test]
fn with_fewer_slots_than_classes_they_take_turns_by_weight() {
    for policy in [Policy::Shared, Policy::Fixed] {
        let mut site = Site::new(policy, &classes(&[2, 1, 1]), 1);
        let mut turns = Vec::new();
        for _ in 0..8 {
            turns.extend(site.fill(&[0, 1, 2]).iter().map(|choice| choice.class.index()));
            site.running = vec![0; 3];
        }
        assert_eq!(letters(&turns), "ABACABAC", "{policy}");
    }
}

/// A step: the classes with waiting jobs (as bits), and which of the slots in use becomes free.
fn steps(classes: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..1usize << classes, any::<prop::sample::Index>()), 1..300)
        .prop_map(|steps| steps.into_iter().map(|(waiting, freed)| (waiting, freed.index(1 << 20))).collect())
}

fn members(bits: usize, classes: usize) -> Vec<usize> {
    (0..classes).filter(|class| bits >> class & 1 == 1).collect()
}

/// Frees the slot with this number, if any is in use.
fn free_one(site: &mut Site, number: usize) {
    let in_use: Vec<usize> =
        (0..site.running.len()).flat_map(|class| core::iter::repeat_n(class, site.running[class] as usize)).collect();
    if let Some(&class) = in_use.get(number % in_use.len().max(1)) {
        site.running[class] -= 1;
    }
}

/// How often each of three classes goes in 70 choices.
fn of_seventy(share: &mut dyn Share) -> [usize; 3] {
    let chosen = choices(share, 3, 70);
    [0, 1, 2].map(|class| chosen.iter().filter(|&&it| it == class).count())
}

#[test]
fn a_class_has_its_new_part_at_once_whatever_it_had_before() {
    let mut share = Policy::Weighted.build(&classes(&[4, 2, 1]));
    // A thousandth of gold is here, and a choice puts it as far ahead as 750 choices of the others.
    share.handle_parts(&[WHOLE / 1000, WHOLE, WHOLE]);
    assert_eq!(of_seventy(share.as_mut())[0], 1);
    for parts in [&[WHOLE; 3][..], &[1, 1, 1], &[]] {
        share.handle_parts(parts);
        let counts = of_seventy(share.as_mut());
        assert!(counts.iter().zip([40, 20, 10]).all(|(had, due)| had.abs_diff(due) <= 1), "{parts:?}: {counts:?}");
    }
}

#[test]
fn a_class_of_which_nothing_was_known_counts_fully() {
    let mut share = Policy::Weighted.build(&classes(&[4, 2, 1]));
    share.handle_parts(&[0, WHOLE, WHOLE]);
    assert_eq!(of_seventy(share.as_mut()), [40, 20, 10]);
}

proptest! {
    #[test]
    fn nobody_is_a_choice_ahead_or_behind_from_the_beginning_nor_two_in_any_run(
        weights in prop::collection::vec(1u32..100, 1..8),
    ) {
        let total: u32 = weights.iter().sum();
        let chosen = choices(Policy::Weighted.build(&classes(&weights)).as_mut(), weights.len(), 600);
        for (class, &weight) in weights.iter().enumerate() {
            // How far it is ahead of its part, in choices, after each.
            let mut ahead = vec![0.0];
            for (n, &it) in chosen.iter().enumerate() {
                let had = ahead[n] + f64::from(u8::from(it == class));
                ahead.push(had - f64::from(weight) / f64::from(total));
            }
            let (least, most) = ahead.iter().fold((0.0f64, 0.0f64), |(least, most), &it| (least.min(it), most.max(it)));
            prop_assert!(least > -1.0 - 1e-6 && most < 1.0 + 1e-6, "class {class} of {weights:?}: {least} to {most}");
        }
    }

    #[test]
    fn two_classes_that_contend_all_the_time_keep_their_ratio_whoever_else_comes_and_goes(
        weights in prop::collection::vec(1u32..20, 5),
        others in prop::collection::vec(0usize..8, 1..500),
    ) {
        let mut share = Policy::Weighted.build(&classes(&weights));
        let mut had = [0.0f64; 5];
        for bits in others {
            let waiting: Vec<usize> = [0, 1].into_iter().chain(members(bits, 3).into_iter().map(|it| it + 2)).collect();
            let choice = share.choose(Instant::ORIGIN, &NO_SLOTS, &contend(waiting)).unwrap();
            had[choice.class.index()] += 1.0;
            let (a, b) = (f64::from(weights[0]), f64::from(weights[1]));
            let apart = (had[0] / a - had[1] / b).abs();
            prop_assert!(apart <= 1.0 / a + 1.0 / b + 1e-6, "{had:?} by {weights:?}");
        }
    }

    #[test]
    fn by_bytes_nobody_is_ahead_or_behind_by_more_than_the_largest_job(
        weights in prop::collection::vec(1u32..20, 2..6),
        costs in prop::collection::vec(1u64..65_536, 300),
    ) {
        let mut share = Policy::Weighted.build(&classes(&weights));
        let total: u32 = weights.iter().sum();
        // The cost of each class's next job stays the same until the job goes.
        let mut costs = costs.into_iter();
        let mut contenders = contend(0..weights.len());
        for it in &mut contenders {
            it.cost = costs.next().unwrap();
        }
        let (mut had, mut all) = (vec![0u64; weights.len()], 0);
        for next in costs {
            let chosen = share.choose(Instant::ORIGIN, &NO_SLOTS, &contenders).unwrap().class.index();
            had[chosen] += contenders[chosen].cost;
            all += contenders[chosen].cost;
            contenders[chosen].cost = next;
            for (class, &weight) in weights.iter().enumerate() {
                let due = all as f64 * f64::from(weight) / f64::from(total);
                prop_assert!((had[class] as f64 - due).abs() <= 65_536.0, "class {class}: {had:?} by {weights:?}");
            }
        }
    }

    #[test]
    fn with_everybody_waiting_slots_are_held_exactly_as_shared_out(
        weights in prop::collection::vec(1u32..50, 1..7),
        window in 1u32..100,
        fixed in any::<bool>(),
        freed in prop::collection::vec(0usize..1 << 20, 300),
    ) {
        let total: u32 = weights.iter().sum();
        let exact: Vec<f64> = weights.iter().map(|&it| f64::from(it * window) / f64::from(total)).collect();
        prop_assume!(exact.iter().all(|&share| share >= 1.0));
        let policy = if fixed { Policy::Fixed } else { Policy::Shared };
        let mut site = Site::new(policy, &classes(&weights), window);
        let all: Vec<usize> = (0..weights.len()).collect();
        site.fill(&all);
        let at_first = site.running.clone();
        prop_assert_eq!(at_first.iter().sum::<u32>(), window);
        for (&held, exact) in at_first.iter().zip(&exact) {
            prop_assert!((f64::from(held) - exact).abs() < 1.0, "{held} slots, exactly {exact}");
        }
        for number in freed {
            free_one(&mut site, number);
            site.fill(&all);
            prop_assert_eq!(&site.running, &at_first);
        }
    }

    #[test]
    fn whoever_comes_and_goes_fixed_is_never_exceeded_and_shared_gives_first_to_who_has_less(
        weights in prop::collection::vec(1u32..10, 4),
        reserved in prop::collection::vec(0u32..3, 4),
        window in 12u32..40,
        steps in steps(4),
    ) {
        let mut of = classes(&weights);
        for (class, &slots) in of.iter_mut().zip(&reserved) {
            class.reserved_slots = slots;
        }
        let mut full = Site::new(Policy::Fixed, &of, window);
        full.fill(&[0, 1, 2, 3]);
        let own = full.running;
        let mut fixed = Site::new(Policy::Fixed, &of, window);
        let mut shared = Site::new(Policy::Shared, &of, window);
        for (bits, number) in steps {
            let waiting = members(bits, 4);
            free_one(&mut fixed, number);
            fixed.fill(&waiting);
            for &class in &waiting {
                prop_assert_eq!(fixed.running[class], own[class], "it waits only if it has all that is its own");
            }
            prop_assert!(fixed.running.iter().zip(&own).all(|(held, own)| held <= own));

            free_one(&mut shared, number);
            let mut held = shared.running.clone();
            for choice in shared.fill(&waiting) {
                let entitled = |class: usize| held[class] < own[class].max(reserved[class]);
                let short = waiting.iter().any(|&class| entitled(class));
                prop_assert!(entitled(choice.class.index()) || !short, "{held:?} of {own:?}, and {choice:?}");
                held[choice.class.index()] += 1;
            }
            let kept: u32 = (0..4).map(|class| reserved[class].saturating_sub(shared.running[class])).sum();
            let running: u32 = shared.running.iter().sum();
            prop_assert!(running + kept <= window, "a reserve was lent: {:?} of {window}", shared.running);
            // All slots but reserves are in use while a class waits, and a waiting class has used up its own.
            prop_assert!(waiting.is_empty() || running + kept == window);
            prop_assert!(waiting.iter().all(|&class| shared.running[class] >= reserved[class]));
        }
    }

    #[test]
    fn no_policy_but_fixed_keeps_a_slot_free_without_a_reserve(
        weights in prop::collection::vec(1u32..1000, 1..6),
        window in 1u32..20,
        steps in steps(6),
    ) {
        for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::Fixed) {
            let mut site = Site::new(policy, &classes(&weights), window);
            for &(bits, number) in &steps {
                let waiting = members(bits, weights.len());
                free_one(&mut site, number);
                site.fill(&waiting);
                prop_assert!(waiting.is_empty() || site.running.iter().sum::<u32>() == window, "{policy}");
            }
        }
    }
}
