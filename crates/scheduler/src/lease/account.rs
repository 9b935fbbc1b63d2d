//! The account of the requests that classes with weights are owed.
//!
//! The amounts of classes follow from asks of before, and slots are whole. So while requests move between gateways, a
//! class gets more or less than its weight says. The account compares the requests that started with the weights, over
//! all gateways. A difference is repaid: for a while the weight of the class counts a little more, or less, at each
//! gateway.
//!
//! Only classes that wait for slots are compared. The others are owed nothing: a class saves nothing up.
//!
//! The function in the store computes the same, with the same numbers in the same order.

use alloc::{vec, vec::Vec};

use super::ClassSettings;
use crate::time::Instant;

/// A difference is repaid within about as many requests as start in this time, ...
const REPAY_NS: f64 = 400_000_000.0;
/// ... and in no fewer than this number for each slot, because a difference of one request is always there.
const LEAST_FOR_SLOT: f64 = 8.0;
/// A weight counts at most so many times as much, or as little.
const MOST: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Requests that each class is behind its part, or ahead of it if negative.
    owed: Vec<f64>,
    /// Requests that started lately.
    recent: f64,
    settled_at: Instant,
}

impl Account {
    /// An account in which no class is owed anything.
    pub fn new(now: Instant, classes: usize) -> Self {
        Self { owed: vec![0.0; classes], recent: 0.0, settled_at: now }
    }

    /// Counts requests that have started at one gateway since it asked last. `wants`: whether a class gets less than it asks
    /// for. Returns what each weight is to be multiplied by, in thousandths.
    pub fn settle(
        &mut self,
        now: Instant,
        window: f64,
        classes: &[ClassSettings],
        wants: impl Iterator<Item = bool> + Clone,
        started: &[u32],
    ) -> Vec<u32> {
        let started = started.iter().map(|&it| f64::from(it)).chain(core::iter::repeat(0.0));
        let rows = || classes.iter().map(|class| f64::from(class.weight)).zip(wants.clone()).zip(started.clone());
        let (mut all, mut compared, mut weights) = (0.0, 0.0, 0.0);
        for ((weight, wants), started) in rows() {
            all += started;
            if wants {
                compared += started;
                weights += weight;
            }
        }
        self.recent = self.recent / (1.0 + now.ns_since(self.settled_at) as f64 / REPAY_NS) + all;
        self.settled_at = now;
        let span = self.recent.max(LEAST_FOR_SLOT * window);
        let settle = |(owed, ((weight, wants), started)): (&mut f64, ((f64, bool), f64))| {
            if !wants {
                *owed = 0.0;
                return 1000;
            }
            let part = weight / weights;
            *owed = (*owed + compared * part - started).clamp(-span, span);
            let factor = (1.0 + *owed / (part * span)).clamp(1.0 / MOST, MOST);
            (factor * 1000.0 + 0.5) as u32
        };
        self.owed.iter_mut().zip(rows()).map(settle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: [ClassSettings; 3] = [
        ClassSettings { weight: 4, reserve: 0 },
        ClassSettings { weight: 2, reserve: 0 },
        ClassSettings { weight: 1, reserve: 0 },
    ];

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn settle(account: &mut Account, ms: u64, wants: [bool; 3], started: [u32; 3]) -> Vec<u32> {
        account.settle(at(ms), 10.0, &CLASSES, wants.into_iter(), &started)
    }

    #[test]
    fn what_a_class_lacks_is_repaid_and_no_more() {
        let mut account = Account::new(at(0), 3);
        assert_eq!(settle(&mut account, 100, [true; 3], [40, 20, 10]), [1000, 1000, 1000]);
        // Of 14 requests 8, 4 and 2 would be right. Within 80 requests that is 8 in 45.7, 4 in 22.9 and 6 in 11.4.
        assert_eq!(settle(&mut account, 100, [true; 3], [0, 0, 14])[..2], [1167, 1167]);
        // So that plain has its 14 of 98, the others get what it would have had.
        for left in (0..7).rev() {
            let factors = settle(&mut account, 100, [true; 3], [8, 4, 0]);
            assert_eq!(factors == [1000; 3], left == 0, "{left}: {factors:?}");
        }
    }

    #[test]
    fn a_class_that_has_what_it_asks_for_saves_nothing_up() {
        let mut account = Account::new(at(0), 3);
        assert_eq!(settle(&mut account, 100, [false, true, true], [0, 20, 10]), [1000, 1000, 1000]);
        settle(&mut account, 100, [true; 3], [0, 20, 10]);
        assert_eq!(settle(&mut account, 200, [false, true, true], [0, 0, 0])[0], 1000);
        assert_eq!(settle(&mut account, 200, [true; 3], [0, 0, 0])[0], 1000);
    }

    #[test]
    fn no_weight_counts_more_than_twice_or_less_than_half() {
        let mut account = Account::new(at(0), 3);
        for ms in 0..100 {
            let factors = settle(&mut account, ms, [true; 3], [0, 0, 100]);
            assert!(factors.iter().all(|it| (500..=2000).contains(it)), "{factors:?}");
        }
        assert_eq!(settle(&mut account, 100, [true; 3], [0, 0, 100]), [2000, 2000, 500]);
    }
}
