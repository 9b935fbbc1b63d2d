//! Weighted sharing, spread as evenly as whole choices allow.
//!
//! Think of all contenders served at once, each at a rate in proportion to its weight: a fluid service. A
//! class may go when the fluid service would have begun its next job. Of those that may, the one whose job
//! the fluid would finish first goes. Then no class is ever ahead of or behind the fluid by a whole job. This
//! is WF2Q+ (Bennett and Zhang, "Hierarchical Packet Fair Queueing Algorithms", 1997).

use alloc::{boxed::Box, vec::Vec};

use super::contender::{Choice, Contender, Reason, Share, Slots, WHOLE};
use crate::{
    class::{Class, ClassId},
    time::Instant,
};

/// Virtual time of one unit of cost at weight 1. It is the least common multiple of 1 to 32, so that nothing
/// is rounded for weights up to 32.
const UNIT: u128 = 144_403_552_893_600;

#[derive(Clone, Debug)]
pub(super) struct Weighted {
    rows: Vec<Row>,
    /// The weights as configured.
    configured: Vec<u32>,
    /// Progress of the fluid service.
    virtual_time: u128,
    choices: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    weight: u32,
    /// When the fluid service begins the class's next job, in virtual time.
    start: u128,
    /// Number of the last choice at which the class contended; 0 for none.
    contended_at: u64,
    /// Total weight of all contenders when the class was last chosen.
    total_weight: u64,
}

impl Row {
    const NEW: Self = Self { weight: 1, start: 0, contended_at: 0, total_weight: 1 };

    /// The class stays as many jobs ahead of the fluid service, or behind it, as it is.
    fn set_weight(&mut self, weight: u32, virtual_time: u128) {
        if weight == self.weight {
            return;
        }
        let (old, new) = (u128::from(self.weight), u128::from(weight));
        let scaled = |jobs: u128| jobs.saturating_mul(old) / new;
        self.start = match self.start.checked_sub(virtual_time) {
            Some(ahead) => virtual_time + scaled(ahead),
            None => virtual_time.saturating_sub(scaled(virtual_time - self.start)),
        };
        self.total_weight = (u128::from(self.total_weight) * new / old).max(1) as u64;
        self.weight = weight;
    }
}

impl Weighted {
    pub fn new(classes: &[Class]) -> Self {
        let configured: Vec<u32> = classes.iter().map(|class| class.weight.max(1)).collect();
        let rows = configured.iter().map(|&weight| Row { weight, ..Row::NEW }).collect();
        Self { rows, configured, virtual_time: 0, choices: 0 }
    }

    fn row(&self, contender: &Contender) -> &Row {
        &self.rows[contender.class.index()]
    }
}

impl Share for Weighted {
    fn choose(&mut self, _now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        let needed = contenders.iter().map(|it| it.class.index() + 1).max()?;
        if self.rows.len() < needed {
            self.rows.resize(needed, Row::NEW);
        }
        self.choices += 1;
        for contender in contenders {
            let row = &mut self.rows[contender.class.index()];
            // A class that did not contend at the last choice has saved nothing up. Any excess it had
            // remains.
            if row.contended_at + 1 != self.choices {
                row.start = row.start.max(self.virtual_time);
            }
            row.contended_at = self.choices;
        }
        let first_start = contenders.iter().map(|it| self.row(it).start).min()?;
        self.virtual_time = self.virtual_time.max(first_start);
        let finish = |it: &Contender| {
            let row = self.row(it);
            row.start + u128::from(it.cost) * UNIT / u128::from(row.weight)
        };
        let begun = contenders.iter().filter(|it| self.row(it).start <= self.virtual_time);
        let chosen = begun.min_by_key(|it| (finish(it), it.class))?;
        let total_weight: u64 = contenders.iter().map(|it| u64::from(self.row(it).weight)).sum();
        let start = finish(chosen);
        let row = &mut self.rows[chosen.class.index()];
        (row.start, row.total_weight) = (start, total_weight);
        self.virtual_time += u128::from(chosen.cost) * UNIT / u128::from(total_weight);
        let reason = if contenders.len() == 1 { Reason::Alone } else { Reason::Weight };
        Some(Choice { class: chosen.class, reason })
    }

    fn refund(&mut self, class: ClassId, cost: u64) {
        let Some(row) = self.rows.get_mut(class.index()) else { return };
        row.start = row.start.saturating_sub(u128::from(cost) * UNIT / u128::from(row.weight));
        // The fluid did not serve it either. Otherwise it would run ahead of all waiting classes, where new
        // ones start.
        let ahead = u128::from(cost) * UNIT / u128::from(row.total_weight);
        self.virtual_time = self.virtual_time.saturating_sub(ahead);
    }

    fn handle_parts(&mut self, parts: &[u32]) {
        for (i, row) in self.rows.iter_mut().enumerate() {
            let part = match parts.get(i) {
                None if parts.is_empty() => 1,
                None | Some(0) => WHOLE,
                Some(&part) => part,
            };
            let weight = self.configured.get(i).copied().unwrap_or(1).saturating_mul(part);
            row.set_weight(weight, self.virtual_time);
        }
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(self.clone())
    }
}
