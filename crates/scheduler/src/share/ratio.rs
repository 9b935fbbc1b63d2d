//! Delays in given ratios, both now and in the mean.
//!
//! WTP compares the next requests and is stable: the next choice is right whatever happens. But its error
//! always has the same sign, and is never corrected. MDP keeps accounts and is exact in the mean. But its
//! accounts compare measurements of different times, so after every change it pays back a debt that does not
//! exist. This share chooses as WTP does, and corrects it by accounts that cannot hold such a debt:
//!
//! 1. *Look ahead.* The mean time between two choices is s / window. A class that is not chosen now is late
//!    by that. It is much for a class with a small ratio and little for one with a large one. So it is added
//!    to all waits before they are divided by the ratios. That alone removes most of the error.
//! 2. *Accounts that fade.* Each class has the mean of system time / ratio over its finished requests. It is
//!    weighted by age, and fades for all classes alike. The excess over the mean of all classes, times
//!    [`GAIN`], is added to the value of the next request. It is scaled down while there are few finished
//!    requests ([`DOUBT`]), and is at most half of the mean.
//! 3. *Accounts that restart.* When a class comes back after a silence, the load and all delays are
//!    different. All accounts are dropped at once, and requests that came before do not count any more. Until
//!    requests finish again, the share is WTP that looks ahead.

use alloc::{boxed::Box, vec::Vec};

use super::{
    contender::{Choice, Contender, Share, Slots},
    delay::{Ratios, head_ns, slowest},
};
use crate::{
    class::{Class, ClassId},
    time::Instant,
};

/// The excess of a class over the mean of all is multiplied by this. A steady error shrinks to 1 / (1 +
/// gain).
const GAIN: f64 = 4.0;
/// With this many finished requests half of the gain is used: a mean of few is mostly noise.
const DOUBT: f64 = 60.0;
/// The accounts fade to 1 / e in this part of the delay window: 30 s of 120 s.
const MEMORY_PART: u64 = 4;
/// A class without any request for this part of the delay window was silent: 15 s of 120 s.
const SILENCE_PART: u64 = 8;
/// Steps in which accounts fade by 1/256 each.
const STEPS: u64 = 256;

#[derive(Clone, Debug)]
pub(super) struct Ratio {
    ratios: Ratios,
    rows: Vec<Row>,
    /// Silence after which the accounts restart.
    silence_ns: u64,
    /// When the accounts last restarted.
    begun: Instant,
    step_ns: u64,
    /// Number of the step up to which the accounts have faded.
    step: u64,
}

/// A class's account.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// System times of finished requests, over the ratio: sum and number, both faded.
    normalized_ns: f64,
    count: f64,
    /// When the class last contended, or a request of it finished.
    seen: Option<Instant>,
}

impl Row {
    /// The weight of its mean, from 0 to 1, and its mean.
    fn mean(&self) -> Option<(f64, f64)> {
        (self.count > 0.0).then(|| (self.count / (self.count + DOUBT), self.normalized_ns / self.count))
    }
}

impl Ratio {
    pub fn new(classes: &[Class], window_ns: u64) -> Self {
        Self {
            ratios: Ratios::new(classes),
            rows: classes.iter().map(|_| Row::default()).collect(),
            silence_ns: window_ns / SILENCE_PART,
            begun: Instant::ORIGIN,
            step_ns: (window_ns / MEMORY_PART / STEPS).max(1),
            step: 0,
        }
    }

    /// Records that a class is active.
    fn sees(&mut self, now: Instant, class: ClassId) {
        if self.rows.len() <= class.index() {
            self.rows.resize(class.index() + 1, Row::default());
        }
        let row = &mut self.rows[class.index()];
        if row.seen.is_none_or(|seen| now.ns_since(seen) > self.silence_ns) {
            row.seen = Some(now);
            self.begun = now;
            self.rows.iter_mut().for_each(|row| (row.normalized_ns, row.count) = (0.0, 0.0));
        }
        self.rows[class.index()].seen = Some(now);
    }

    /// Fades all accounts, once per step.
    fn fade(&mut self, now: Instant) {
        let step = now.as_ns() / self.step_ns;
        let steps = step.saturating_sub(self.step);
        if steps > 0 {
            self.step = step;
            let left = power(1.0 - 1.0 / STEPS as f64, steps);
            self.rows
                .iter_mut()
                .for_each(|row| (row.normalized_ns, row.count) = (row.normalized_ns * left, row.count * left));
        }
    }

    /// The mean over all classes, weighted by how far each is trusted.
    fn usual_ns(&self) -> Option<f64> {
        let means = self.rows.iter().filter_map(Row::mean);
        let (trust, sum) = means.fold((0.0, 0.0), |(all, sum), (trust, mean)| (all + trust, sum + trust * mean));
        (trust > 0.0).then(|| sum / trust)
    }
}

impl Share for Ratio {
    fn choose(&mut self, now: Instant, slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        contenders.iter().for_each(|it| self.sees(now, it.class));
        let usual_ns = self.usual_ns();
        slowest(contenders, |it| {
            let gap_ns = slots.window.map_or(0.0, |window| it.delay.service_ns as f64 / f64::from(window.max(1)));
            let head = (head_ns(it) + gap_ns) / self.ratios.of(it.class);
            let row = self.rows.get(it.class.index()).and_then(Row::mean);
            let (Some(usual), Some((trust, mean))) = (usual_ns, row) else { return head };
            head + (GAIN * trust * (mean - usual)).clamp(-usual / 2.0, usual / 2.0)
        })
    }

    fn handle_done(&mut self, now: Instant, class: ClassId, system_ns: u64) {
        self.sees(now, class);
        self.fade(now);
        if now.as_ns().saturating_sub(system_ns) >= self.begun.as_ns() {
            let normalized_ns = system_ns as f64 / self.ratios.of(class);
            let row = &mut self.rows[class.index()];
            (row.normalized_ns, row.count) = (row.normalized_ns + normalized_ns, row.count + 1.0);
        }
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}

/// The power, by squaring: at most 64 rounds.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::{Delay, Policy};

    const MS: u64 = 1_000_000;
    /// The accounts fade by 1/256 every 100 ms; a class is silent after 12.8 s.
    const WINDOW_NS: u64 = 102_400 * MS;

    fn classes(ratios: &[u32]) -> Vec<Class> {
        ratios.iter().map(|&delay_ratio| Class { delay_ratio, ..Class::default() }).collect()
    }

    fn waits(class: u16, waited_ms: u64) -> Contender {
        let delay = Delay { waited_ns: waited_ms * MS, waiting: 1, all_waited_ns: 0, service_ns: 10 * MS };
        Contender { delay, ..Contender::new(ClassId(class)) }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MS)
    }

    fn chosen(share: &mut dyn Share, at_ms: u64, window: Option<u32>, waited_ms: [u64; 2]) -> u16 {
        let contenders = [waits(0, waited_ms[0]), waits(1, waited_ms[1])];
        share.choose(at(at_ms), &Slots { window, running: &[] }, &contenders).unwrap().class.0
    }

    #[test]
    fn without_departures_it_is_wtp_that_looks_ahead_by_a_slot() {
        let mut share = Policy::Ratio.build_over(&classes(&[1, 2]), WINDOW_NS);
        // 20 / 1 and 42 / 2: by WTP the second.
        assert_eq!(chosen(share.as_mut(), 0, None, [10, 32]), 1);
        // In 10 / 2 ms it will be 25 / 1 and 47 / 2; in 10 / 8 ms 21.25 and 21.625.
        assert_eq!(chosen(share.as_mut(), 0, Some(2), [10, 32]), 0);
        assert_eq!(chosen(share.as_mut(), 0, Some(8), [10, 32]), 1);
    }

    #[test]
    fn who_took_longer_than_the_others_goes_sooner_as_far_as_there_are_enough_to_tell() {
        let mut share = Policy::Ratio.build_over(&classes(&[1, 2]), WINDOW_NS);
        assert_eq!(chosen(share.as_mut(), 0, None, [10, 31]), 1, "20 and 20.5");
        let mut leave =
            |class, system_ms| (0..60).for_each(|_| share.handle_done(at(1000), ClassId(class), system_ms * MS));
        // Means 22 / 1 and 40 / 2, both with weight one half: each is 1 off the common mean of 21.
        leave(0, 22);
        leave(1, 40);
        // So 4 * 1 / 2 * 1 = 2 to either side: 20 + 2, and the second needs more than 24.
        for (second_ms, expected) in [(31, 0), (37, 0), (39, 1)] {
            assert_eq!(chosen(share.as_mut(), 1000, None, [10, second_ms]), expected, "{second_ms}");
        }
        // At rest it stays. A hundred steps later, 60 have faded to 40.6, with weight 0.403: 1.61 to either
        // side.
        assert_eq!(chosen(share.as_mut(), 1000, None, [10, 37]), 0, "23.5 - 2, 22");
        share.handle_done(at(11_000), ClassId(0), 22 * MS);
        assert_eq!(chosen(share.as_mut(), 11_000, None, [10, 37]), 1, "23.5 - 1.61, 20 + 1.63");
    }

    #[test]
    fn no_account_is_worth_more_than_half_of_the_mean() {
        let mut share = Policy::Ratio.build_over(&classes(&[1, 1]), WINDOW_NS);
        chosen(share.as_mut(), 0, None, [0, 0]);
        for _ in 0..1000 {
            share.handle_done(at(1000), ClassId(0), 900 * MS);
            share.handle_done(at(1000), ClassId(1), 100 * MS);
        }
        // The mean is 500, so that they are 500 apart and no more.
        assert_eq!(chosen(share.as_mut(), 1000, None, [0, 499]), 0);
        assert_eq!(chosen(share.as_mut(), 1000, None, [0, 501]), 1);
    }

    #[test]
    fn when_a_class_comes_back_the_accounts_begin_anew_for_those_who_come_then() {
        let mut share = Policy::Ratio.build_over(&classes(&[1, 1]), WINDOW_NS);
        chosen(share.as_mut(), 0, None, [0, 0]);
        let mut leave = |at_ms, class, system_ms| {
            for _ in 0..1000 {
                share.handle_done(at(at_ms), ClassId(class), system_ms * MS);
            }
        };
        leave(1000, 0, 300);
        leave(1000, 1, 100);
        // Only the second class is active, for longer than a silence.
        for at_ms in [12_000, 13_000, 14_000] {
            leave(at_ms, 1, 100);
        }
        let mut back = share.duplicate();
        assert_eq!(chosen(back.as_mut(), 13_800, None, [0, 50]), 0, "silent for 12.8 s: not for longer");
        assert_eq!(chosen(share.as_mut(), 13_801, None, [0, 50]), 1);
        // Requests that came before belong to another load.
        (0..1000).for_each(|_| share.handle_done(at(14_000), ClassId(0), 200 * MS));
        (0..1000).for_each(|_| share.handle_done(at(14_000), ClassId(1), 1000 * MS));
        assert_eq!(chosen(share.as_mut(), 14_000, None, [0, 0]), 0);
        (0..1000).for_each(|_| share.handle_done(at(14_000), ClassId(0), 100 * MS));
        (0..1000).for_each(|_| share.handle_done(at(14_000), ClassId(1), 199 * MS));
        assert_eq!(chosen(share.as_mut(), 14_000, None, [0, 0]), 1);
    }

    #[test]
    fn fading_step_by_step_is_fading_at_once() {
        let once = power(1.0 - 1.0 / 256.0, 1000);
        let steps = (0..1000).fold(1.0, |left, _| left * (1.0 - 1.0 / 256.0));
        assert!((once - steps).abs() < 1e-12, "{once} {steps}");
        assert_eq!((power(0.5, 0), power(0.5, u64::MAX)), (1.0, 0.0));
    }
}
