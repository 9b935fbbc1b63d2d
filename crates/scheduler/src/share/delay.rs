//! Delays in given ratios: the three shares of "Multiple-resource Request Scheduling Algorithms for
//! Proportional System-time Differentiation at Website Gateway", section 3.4.1.
//!
//! The system time of a request is its waiting time plus its service time. Each share computes a number from
//! a class's system times and divides it by [`crate::class::Class::delay_ratio`]; the class with the largest
//! quotient goes. WTP uses the next request, PWAD the finished requests, MDP the finished and the waiting
//! ones.

use alloc::{boxed::Box, vec::Vec};

use super::{
    contender::{Choice, Contender, Reason, Share, Slots},
    recent::Recent,
};
use crate::{
    class::{Class, ClassId},
    time::Instant,
};

/// The ratios, by class.
#[derive(Clone, Debug)]
pub(super) struct Ratios(Vec<f64>);

impl Ratios {
    pub fn new(classes: &[Class]) -> Self {
        Self(classes.iter().map(|class| f64::from(class.delay_ratio.max(1))).collect())
    }

    pub fn of(&self, class: ClassId) -> f64 {
        self.0.get(class.index()).copied().unwrap_or(1.0)
    }
}

/// Chooses the class with the largest `normalized`; of equals the first.
pub(super) fn slowest(contenders: &[Contender], mut normalized: impl FnMut(&Contender) -> f64) -> Option<Choice> {
    let (first, others) = contenders.split_first()?;
    if others.is_empty() {
        return Some(Choice { class: first.class, reason: Reason::Alone });
    }
    let of_first = (normalized(first), first.class);
    let (_, class) = others.iter().fold(of_first, |(most, class), it| {
        let this = normalized(it);
        if this > most { (this, it.class) } else { (most, class) }
    });
    Some(Choice { class, reason: Reason::Delay })
}

/// The system time of a class's next request if it started now.
pub(super) fn head_ns(it: &Contender) -> f64 {
    it.delay.waited_ns as f64 + it.delay.service_ns as f64
}

/// Waiting time priority: the next request that has waited longest for its ratio.
#[derive(Clone, Debug)]
pub(super) struct Wtp(Ratios);

impl Wtp {
    pub fn new(classes: &[Class]) -> Self {
        Self(Ratios::new(classes))
    }
}

impl Share for Wtp {
    fn choose(&mut self, _now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        slowest(contenders, |it| head_ns(it) / self.0.of(it.class))
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}

/// Requests that finished recently, by class.
#[derive(Clone, Debug)]
struct Departed {
    window_ns: u64,
    rows: Vec<Recent>,
}

impl Departed {
    fn new(classes: &[Class], window_ns: u64) -> Self {
        Self { window_ns, rows: classes.iter().map(|_| Recent::new(window_ns)).collect() }
    }

    fn of(&mut self, class: ClassId) -> &mut Recent {
        if self.rows.len() <= class.index() {
            self.rows.resize_with(class.index() + 1, || Recent::new(self.window_ns));
        }
        &mut self.rows[class.index()]
    }
}

/// Proportional window average delay: the mean of the requests that finished recently.
///
/// The paper assumes that a request has finished. In a class without one, the next request stands for the
/// mean, as in WTP: with 0 the class would never have a turn again.
#[derive(Clone, Debug)]
pub(super) struct Pwad {
    ratios: Ratios,
    departed: Departed,
}

impl Pwad {
    pub fn new(classes: &[Class], window_ns: u64) -> Self {
        Self { ratios: Ratios::new(classes), departed: Departed::new(classes, window_ns) }
    }
}

impl Share for Pwad {
    fn choose(&mut self, now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        let Self { ratios, departed } = self;
        slowest(contenders, |it| {
            let mean_ns = departed.of(it.class).sum(now).mean_ns();
            mean_ns.unwrap_or_else(|| head_ns(it)) / ratios.of(it.class)
        })
    }

    fn handle_done(&mut self, now: Instant, class: ClassId, system_ns: u64) {
        self.departed.of(class).add(now, system_ns);
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}

/// Mean delay proportional: the mean of the recently finished and of the waiting requests. The waiting ones
/// count as if they were served one after the other from now on, and no others.
#[derive(Clone, Debug)]
pub(super) struct Mdp {
    ratios: Ratios,
    departed: Departed,
}

impl Mdp {
    pub fn new(classes: &[Class], window_ns: u64) -> Self {
        Self { ratios: Ratios::new(classes), departed: Departed::new(classes, window_ns) }
    }
}

impl Share for Mdp {
    fn choose(&mut self, now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        let Self { ratios, departed } = self;
        slowest(contenders, |it| {
            let (departed, queued) = (departed.of(it.class).sum(now), f64::from(it.delay.waiting));
            let so_far_ns = departed.ns as f64 + it.delay.all_waited_ns as f64;
            let at_least_ns = queued * (queued + 1.0) / 2.0 * it.delay.service_ns as f64;
            (so_far_ns + at_least_ns) / (departed.count as f64 + queued).max(1.0) / ratios.of(it.class)
        })
    }

    fn handle_done(&mut self, now: Instant, class: ClassId, system_ns: u64) {
        self.departed.of(class).add(now, system_ns);
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::{Delay, Policy};

    const MS: u64 = 1_000_000;
    const NO_SLOTS: Slots<'static> = Slots { window: None, running: &[] };

    fn classes(ratios: &[u32]) -> Vec<Class> {
        ratios.iter().map(|&delay_ratio| Class { delay_ratio, ..Class::default() }).collect()
    }

    /// A class with `waiting` requests; the waiting times are those of the next and of all. Service takes 10
    /// ms.
    fn waits(class: u16, waited_ms: u64, waiting: u32, all_waited_ms: u64) -> Contender {
        let (waited_ns, all_waited_ns) = (waited_ms * MS, u128::from(all_waited_ms * MS));
        let delay = Delay { waited_ns, waiting, all_waited_ns, service_ns: 10 * MS };
        Contender { delay, ..Contender::new(ClassId(class)) }
    }

    fn chosen(share: &mut dyn Share, at_ms: u64, contenders: &[Contender]) -> u16 {
        share.choose(Instant::from_ns(at_ms * MS), &NO_SLOTS, contenders).unwrap().class.0
    }

    #[test]
    fn wtp_divides_what_the_next_request_waits_and_takes_by_the_ratio() {
        let mut share = Policy::Wtp.build(&classes(&[1, 2, 4]));
        // (w + 10) / 1, / 2, / 4.
        for (waited_ms, expected) in [
            ([0, 0, 0], 0),      // 10, 5, 2.5
            ([5, 25, 0], 1),     // 15, 17.5, 2.5
            ([5, 20, 51], 2),    // 15, 15, 15.25
            ([5, 20, 50], 0),    // 15, 15, 15: the first of equals
            ([4, 20, 50], 1),    // 14, 15, 15
            ([90, 189, 391], 2), // 100, 99.5, 100.25
        ] {
            let all = [0, 1, 2].map(|class| waits(class, waited_ms[usize::from(class)], 1, 0));
            assert_eq!(chosen(share.as_mut(), 0, &all), expected, "{waited_ms:?}");
        }
        assert_eq!(chosen(share.as_mut(), 0, &[waits(0, 5, 1, 0), waits(2, 51, 1, 0)]), 2);
    }

    #[test]
    fn pwad_divides_the_mean_of_those_that_left_by_the_ratio() {
        let mut share = Policy::Pwad.build_over(&classes(&[1, 2]), 1280 * MS);
        // The wait of the next request does not count, unless no request of the class has finished: 30, 50 /
        // 2.
        let (a, b) = (waits(0, 20, 1, 20), waits(1, 40, 1, 40));
        assert_eq!(chosen(share.as_mut(), 0, &[a, b]), 0);
        share.handle_done(Instant::from_ns(0), ClassId(0), 20 * MS);
        assert_eq!(chosen(share.as_mut(), 0, &[a, b]), 1, "20, 25");
        for (class, system_ms) in [(1, 30), (1, 40), (0, 14)] {
            share.handle_done(Instant::from_ns(600 * MS), ClassId(class), system_ms * MS);
        }
        // (20 + 14) / 2 = 17, (30 + 40) / 2 / 2 = 17.5.
        assert_eq!(chosen(share.as_mut(), 600, &[a, b]), 1);
        share.handle_done(Instant::from_ns(700 * MS), ClassId(1), 31 * MS);
        // 101 / 3 / 2 = 16.83.
        assert_eq!(chosen(share.as_mut(), 700, &[a, b]), 0);
        // The first has left the window: 14.
        assert_eq!(chosen(share.as_mut(), 1280, &[a, b]), 1);
    }

    #[test]
    fn mdp_adds_what_those_who_wait_have_waited_and_will_take_at_least() {
        let mut share = Policy::Mdp.build_over(&classes(&[1, 4]), 1280 * MS);
        let now = |at_ms| Instant::from_ns(at_ms * MS);
        // One waits, 5 ms so far: (5 + 10) / 1 = 15. Three wait, 70 ms in all: (70 + 6 * 10) / 3 / 4 = 10.83.
        let (a, b) = (waits(0, 5, 1, 5), waits(1, 40, 3, 70));
        assert_eq!(chosen(share.as_mut(), 0, &[a, b]), 0);
        // One has finished after 7 ms: (7 + 15) / 2 = 11.
        share.handle_done(now(0), ClassId(0), 7 * MS);
        assert_eq!(chosen(share.as_mut(), 0, &[a, b]), 0);
        // Another after 9 ms: (16 + 15) / 3 = 10.33.
        share.handle_done(now(100), ClassId(0), 9 * MS);
        assert_eq!(chosen(share.as_mut(), 100, &[a, b]), 1);
        // One of the other class after 30: (30 + 130) / 4 / 4 = 10. Then the first class's 7 expires: (9 +
        // 15) / 2 = 12.
        share.handle_done(now(100), ClassId(1), 30 * MS);
        assert_eq!(chosen(share.as_mut(), 100, &[a, b]), 0);
        // Four wait, 90 in all: (30 + 90 + 100) / 5 / 4 = 11.
        let more = waits(1, 40, 4, 90);
        assert_eq!(chosen(share.as_mut(), 1279, &[a, more]), 1);
        assert_eq!(chosen(share.as_mut(), 1280, &[a, more]), 0);
    }

    #[test]
    fn a_class_that_has_been_silent_is_not_in_the_way() {
        for policy in Policy::ALL.into_iter().filter(|it| it.is_by_delay()) {
            let mut share = policy.build_over(&classes(&[1, 1]), 1280 * MS);
            share.handle_done(Instant::from_ns(0), ClassId(0), 1000 * MS);
            let alone = share.choose(Instant::from_ns(0), &NO_SLOTS, &[waits(1, 0, 1, 0)]).unwrap();
            assert_eq!(alone, Choice { class: ClassId(1), reason: Reason::Alone }, "{policy}");
            // Classes that were not announced.
            share.handle_done(Instant::from_ns(0), ClassId(7), 1);
            assert!(share.choose(Instant::from_ns(0), &NO_SLOTS, &[waits(5, 0, 1, 0), waits(7, 0, 1, 0)]).is_some());
            assert_eq!(share.choose(Instant::from_ns(0), &NO_SLOTS, &[]), None);
        }
    }

    proptest! {
        /// Only the proportions count, not the numbers; and the same calls give the same answers.
        #[test]
        fn twice_the_ratios_are_the_same_ratios(
            ratios in prop::collection::vec(1u32..50, 1..5),
            window_s in 1u64..200,
            events in prop::collection::vec((0u64..3000, 0u16..5, 1u64..60_000, any::<bool>()), 1..200),
        ) {
            let doubled: Vec<u32> = ratios.iter().map(|ratio| 2 * ratio).collect();
            for policy in Policy::ALL.into_iter().filter(|it| it.is_by_delay()) {
                let build = |ratios: &[u32]| policy.build_over(&classes(ratios), window_s * 1000 * MS);
                let (mut once, mut twice) = (build(&ratios), build(&doubled));
                let mut now_ms = 0;
                for &(gap_ms, class, ms, done) in &events {
                    now_ms += gap_ms;
                    let (now, class) = (Instant::from_ns(now_ms * MS), class % ratios.len() as u16);
                    if done {
                        once.handle_done(now, ClassId(class), ms * MS);
                        twice.handle_done(now, ClassId(class), ms * MS);
                        continue;
                    }
                    // The waiting classes follow from the numbers; there is always at least one.
                    let all = (0..ratios.len() as u16).filter(|it| *it == class || (ms >> it) & 1 == 1);
                    let contenders: Vec<_> = all
                        .map(|it| waits(it, ms * (u64::from(it) + 1) % 7919, 1 + u32::from(it), ms * 7 % 100_003))
                        .collect();
                    let slots = Slots { window: Some(1 + ms as u32 % 9), running: &[] };
                    let chosen = once.choose(now, &slots, &contenders).unwrap();
                    prop_assert_eq!(Some(chosen), once.duplicate().choose(now, &slots, &contenders), "{}", policy);
                    prop_assert_eq!(Some(chosen), twice.choose(now, &slots, &contenders), "{}", policy);
                    prop_assert!(contenders.iter().any(|it| it.class == chosen.class));
                }
            }
        }

        /// With equal ratios and services WTP is first come first served, whatever the classes.
        #[test]
        fn wtp_without_ratios_is_first_come_first_served(waited_ms in prop::collection::vec(0u64..1000, 1..8)) {
            let mut share = Policy::Wtp.build(&classes(&[3; 8][..waited_ms.len()]));
            let all: Vec<_> = waited_ms.iter().zip(0..).map(|(&ms, class)| waits(class, ms, 1, ms)).collect();
            let first = chosen(share.as_mut(), 0, &all);
            prop_assert_eq!(Some(&waited_ms[usize::from(first)]), waited_ms.iter().max());
        }
    }
}
