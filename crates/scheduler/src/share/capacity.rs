//! Shares of slots, with or without lending.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{
    contender::{Choice, Contender, Reason, Share, Slots},
    weighted::Weighted,
};
use crate::{
    class::{Class, ClassId},
    time::Instant,
};

#[derive(Clone, Debug)]
pub(super) struct Capacity {
    lends: bool,
    /// The weights as configured.
    configured: Vec<u32>,
    weights: Vec<u32>,
    reserved: Vec<u32>,
    /// The slots of each class at this gateway, if several divide them; empty: derived from the window.
    given: Vec<u32>,
    /// Chooses among classes with equal entitlement.
    turns: Weighted,
    /// Values derived from the latest window.
    fitted: Fitted,
}

#[derive(Clone, Debug)]
struct Fitted {
    window: Option<u32>,
    /// Slots of each class.
    shares: Vec<u32>,
    /// Slots of each class that are not lent.
    reserves: Vec<u32>,
}

impl Capacity {
    pub fn shared(classes: &[Class]) -> Self {
        Self::new(classes, true)
    }

    pub fn fixed(classes: &[Class]) -> Self {
        Self::new(classes, false)
    }

    fn new(classes: &[Class], lends: bool) -> Self {
        let weights: Vec<u32> = classes.iter().map(|class| class.weight.max(1)).collect();
        // Without lending, all slots are reserved already.
        let reserved: Vec<u32> = classes.iter().map(|class| if lends { class.reserved_slots } else { 0 }).collect();
        let fitted = fit(&weights, &reserved, None);
        Self {
            lends,
            configured: weights.clone(),
            weights,
            reserved,
            given: Vec::new(),
            turns: Weighted::new(classes),
            fitted,
        }
    }

    fn share(&self, class: ClassId) -> u32 {
        if let Some(&given) = self.given.get(class.index()) {
            return given;
        }
        let share = self.fitted.shares.get(class.index()).copied().unwrap_or(1);
        share.max(self.reserve(class.index()))
    }

    fn reserve(&self, class: usize) -> u32 {
        self.fitted.reserves.get(class).copied().unwrap_or(0)
    }

    /// Whether the class finds a free slot beside those reserved for others.
    fn leaves_reserves(&self, slots: &Slots<'_>, class: ClassId) -> bool {
        let held = slots.running;
        if slots.held_by(class) < self.reserve(class.index()) {
            return true;
        }
        let Some(window) = slots.window else { return true };
        let running: u64 = held.iter().map(|&n| u64::from(n)).sum();
        let kept: u64 = (0..self.weights.len())
            .filter(|&other| other != class.index())
            .map(|other| u64::from(self.reserve(other).saturating_sub(held.get(other).copied().unwrap_or(0))))
            .sum();
        running + kept < u64::from(window)
    }
}

impl Share for Capacity {
    fn choose(&mut self, now: Instant, slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        if self.fitted.window != slots.window {
            self.fitted = fit(&self.weights, &self.reserved, slots.window);
        }
        let may_go = |it: &&Contender| !self.lends || self.leaves_reserves(slots, it.class);
        let below = |it: &&Contender| slots.held_by(it.class) < self.share(it.class);
        let entitled: Vec<Contender> = contenders.iter().filter(below).filter(may_go).copied().collect();
        if !entitled.is_empty() {
            let choice = self.turns.choose(now, slots, &entitled)?;
            return Some(Choice { reason: Reason::WithinShare, ..choice });
        }
        if !self.lends {
            return None;
        }
        // Slots are lent to the class that holds least for its weight: a / b < c / d as a * d < c * b.
        let borrower = contenders.iter().filter(may_go).reduce(|best, it| {
            let filled = |of: &Contender, by: &Contender| {
                let weight = self.weights.get(by.class.index()).copied().unwrap_or(1);
                u64::from(slots.held_by(of.class)) * u64::from(weight)
            };
            if filled(it, best) < filled(best, it) { it } else { best }
        })?;
        Some(Choice { class: borrower.class, reason: Reason::Lent })
    }

    fn handle_slots(&mut self, class: ClassId, slots: u32) {
        if self.given.len() < self.weights.len() {
            self.given.resize(self.weights.len(), 0);
        }
        if let Some(given) = self.given.get_mut(class.index()) {
            *given = slots;
        }
    }

    fn handle_parts(&mut self, parts: &[u32]) {
        self.turns.handle_parts(parts);
        if self.lends {
            let part = |i: usize| if parts.is_empty() { 1 } else { parts.get(i).copied().unwrap_or(1).max(1) };
            self.weights = self.configured.iter().enumerate().map(|(i, it)| it.saturating_mul(part(i))).collect();
            self.fitted = fit(&self.weights, &self.reserved, self.fitted.window);
        }
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}

fn fit(weights: &[u32], reserved: &[u32], window: Option<u32>) -> Fitted {
    let Some(slots) = window else {
        return Fitted { window, shares: vec![u32::MAX; weights.len()], reserves: vec![0; weights.len()] };
    };
    let shares = apportion(slots, weights);
    let wanted: u64 = reserved.iter().map(|&n| u64::from(n)).sum();
    // A class without a reserve needs a slot that is not reserved.
    let open = u64::from(reserved.contains(&0));
    let reserves = if wanted + open <= u64::from(slots) {
        reserved.to_vec()
    } else {
        // The window has shrunk below the promised reserves: all reserves shrink with it, and never to the
        // last slot.
        let factor = u64::from(slots.saturating_sub(1));
        reserved.iter().map(|&n| (u64::from(n) * factor / wanted.max(1)) as u32).collect()
    };
    Fitted { window, shares, reserves }
}

/// Divides slots by weight: the exact share rounded down, the remaining slots to the largest remainders
/// (Hamilton's method), at least 1 each. With fewer slots than classes each has 1, which is more than there
/// are.
pub(crate) fn apportion(slots: u32, weights: &[u32]) -> Vec<u32> {
    let mut shares = vec![1; weights.len()];
    // A class whose exact share is below 1 gets 1. That leaves less for the others, so the division is
    // repeated.
    let mut large: Vec<usize> = (0..weights.len()).collect();
    let (left, weight) = loop {
        let left = u64::from(slots).saturating_sub((weights.len() - large.len()) as u64);
        let weight: u64 = large.iter().map(|&i| u64::from(weights[i])).sum();
        let before = large.len();
        large.retain(|&i| u64::from(weights[i]) * left >= weight);
        if large.len() == before {
            break (left, weight);
        }
    };
    if large.is_empty() {
        return shares;
    }
    let mut given = 0;
    for &i in &large {
        shares[i] = (u64::from(weights[i]) * left / weight) as u32;
        given += u64::from(shares[i]);
    }
    large.sort_by_key(|&i| core::cmp::Reverse(u64::from(weights[i]) * left % weight));
    for &i in large.iter().take((left - given) as usize) {
        shares[i] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_to_the_last_and_exact_to_one() {
        assert_eq!(apportion(7, &[4, 2, 1]), [4, 2, 1]);
        assert_eq!(apportion(10, &[4, 2, 1]), [6, 3, 1]);
        assert_eq!(apportion(8, &[1, 1, 1]), [3, 3, 2]);
        assert_eq!(apportion(1000, &[u32::MAX, u32::MAX]), [500, 500]);
        assert_eq!(apportion(10, &[]), [] as [u32; 0]);
    }

    #[test]
    fn a_small_class_has_a_slot_at_the_cost_of_the_large_ones() {
        assert_eq!(apportion(10, &[100, 1, 1, 1]), [7, 1, 1, 1]);
        assert_eq!(apportion(4, &[100, 1, 1, 1]), [1, 1, 1, 1]);
        assert_eq!(apportion(2, &[100, 1, 1, 1]), [1, 1, 1, 1], "more shares than slots: they take turns");
    }

    #[test]
    fn reserves_shrink_with_the_window_and_leave_a_slot() {
        assert_eq!(fit(&[1, 1, 1], &[4, 2, 0], Some(10)).reserves, [4, 2, 0]);
        assert_eq!(fit(&[1, 1, 1], &[4, 2, 0], Some(6)).reserves, [3, 1, 0]);
        assert_eq!(fit(&[1, 1, 1], &[4, 2, 0], Some(1)).reserves, [0, 0, 0]);
        assert_eq!(fit(&[1, 1], &[4, 2], Some(6)).reserves, [4, 2], "nobody needs an open slot");
    }
}
