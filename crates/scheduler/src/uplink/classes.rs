//! Shares of a link between classes: a share of slots, translated to a link.
//!
//! A site has slots, and a request holds one while it runs. A link has a rate, and a grant holds it while its
//! bytes are sent. So a choice costs bytes, counted as on the wire, and a share promises bytes of a link as
//! it promises slots of a site:
//!
//! - *strict* and *edf* pick a class for each grant, as they pick one for each slot.
//! - *weighted* counts bytes instead of choices: while the same classes wait, no class is more than a grant
//!   ahead of or behind its part of the bytes.
//! - *shared* capacity means bytes per second instead of slots. *weighted* already lends unused capacity and
//!   takes it back with the next grant. *shared* adds reserves: a part of the rate that no other class may
//!   use, ready when its class needs it.
//! - *fixed* capacity gives each class a part of the rate and no more.
//!
//! One mechanism serves the last two. A [`Part`] is a simulated link with a part of the link's rate. Each
//! class may have one of its own, and there may be a common one. *fixed* has only own parts, for all of the
//! rate. *shared* has the reserves as own parts and the rest as the common part. A class may go when its own
//! part or the common part has room; its own part is charged first. Without reserves there are no parts, and
//! the link is never idle while a job waits.
//!
//! Among the classes that may go, all three take turns as *weighted* does.
//!
//! Bounds, tested. In any time T, a class under *fixed* is granted at most its part of T and two grants.
//! Counted from the moment when it began to wait, it is its part and one grant. To both, add the bytes that
//! its part carries in [`crate::Pacing::ahead_ns`]. The second grant makes up for turns that came late. Bytes
//! without a grant belong to no class: they go first, and the parts divide the rest of the rate.

use alloc::{boxed::Box, vec, vec::Vec};
use core::fmt;

use crate::{
    class::{Class, ClassId},
    share::{Choice, Contender, Policy, Reason, Share, Slots},
    time::Instant,
    units::Rate,
};

/// How the link is shared between classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassShare {
    /// The rule by which a class is picked.
    pub policy: Policy,
    /// The classes, the most important first. The share uses the weight of each; [`Policy::Shared`] also the
    /// reserve, and [`Policy::Edf`] the deadline, which runs from the start of a response to its last byte.
    pub classes: Vec<Class>,
    /// Number of slots that stand for the whole rate; [`Class::reserved_slots`] of them are reserved for a
    /// class. `None` means the sum of the weights.
    pub slots: Option<u32>,
}

/// Why a share of the link is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareError {
    /// There is no class, or there are more than 65,535.
    Classes,
    /// The class has a weight of 0.
    Weight(ClassId),
    /// All of the rate or more is reserved, and a class has no reserve.
    Reserves,
    /// The policy cannot share a link.
    Policy(Policy),
}

impl ClassShare {
    /// Checks that the share is consistent.
    ///
    /// # Errors
    /// The first inconsistency, and the class that has it.
    pub fn check(&self) -> Result<(), ShareError> {
        if !(1..=usize::from(u16::MAX)).contains(&self.classes.len()) {
            return Err(ShareError::Classes);
        }
        if self.policy.is_by_delay() {
            return Err(ShareError::Policy(self.policy));
        }
        if let Some(class) = self.classes.iter().position(|class| class.weight == 0) {
            return Err(ShareError::Weight(ClassId(class as u16)));
        }
        if self.policy == Policy::Shared {
            let (reserved, slots) = (self.reserved(), self.slots());
            let all_have = self.classes.iter().all(|class| class.reserved_slots > 0);
            if reserved > slots || (reserved == slots && !all_have) {
                return Err(ShareError::Reserves);
            }
        }
        Ok(())
    }

    fn total_weight(&self) -> u64 {
        self.classes.iter().map(|class| u64::from(class.weight)).sum()
    }

    fn slots(&self) -> u64 {
        self.slots.map_or_else(|| self.total_weight(), u64::from)
    }

    fn reserved(&self) -> u64 {
        self.classes.iter().map(|class| u64::from(class.reserved_slots)).sum()
    }
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes => f.write_str("there must be at least one class, and at most 65535"),
            Self::Weight(ClassId(class)) => write!(f, "class {class} has weight 0: the least is 1"),
            Self::Policy(policy) => {
                write!(
                    f,
                    "`{policy}` is a share of a site's slots: responses on a link have no system times to compare"
                )
            }
            Self::Reserves => {
                f.write_str("the reserves leave nothing of the uplink for a class without one: reserve fewer slots")
            }
        }
    }
}

impl core::error::Error for ShareError {}

/// The part of the link that a grant was charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// No part; only the turn counts.
    Turn,
    /// The class's own part.
    Own,
    /// The common part.
    Common,
}

/// State of a share between classes.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    given: ClassShare,
    turns: Box<dyn Share + Send>,
    /// The own part of each class; empty where no class has one.
    own: Vec<Part>,
    common: Part,
    /// Kept to reuse its memory.
    contenders: Vec<Contender>,
}

/// The properties of the whole link that parts depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkProperties {
    pub rate: Option<Rate>,
    pub ahead_ns: u64,
}

impl Classes {
    pub fn new(given: ClassShare) -> Self {
        let part = |slots: u64, of: u64| Part { slots, of, free_at: Instant::ORIGIN };
        let (own, common) = match given.policy {
            Policy::Fixed => {
                let all = given.total_weight();
                (given.classes.iter().map(|class| part(u64::from(class.weight), all)).collect(), part(0, all))
            }
            Policy::Shared if given.reserved() > 0 => {
                let all = given.slots();
                let own = given.classes.iter().map(|class| part(u64::from(class.reserved_slots), all)).collect();
                (own, part(all - given.reserved(), all))
            }
            _ => (vec![], part(1, 1)),
        };
        let turns = match given.policy {
            Policy::Shared | Policy::Fixed => Policy::Weighted,
            policy => policy,
        };
        Self { turns: turns.build(&given.classes), own, common, contenders: Vec::new(), given }
    }

    pub fn given(&self) -> &ClassShare {
        &self.given
    }

    pub fn policy(&self) -> Policy {
        self.given.policy
    }

    /// Whether the link is never idle while a job waits.
    #[cfg(test)]
    pub fn lends(&self) -> bool {
        self.own.is_empty()
    }

    /// Deadline of a job of the class that came at `arrived`.
    pub fn deadline(&self, class: usize, arrived: Instant) -> Option<Instant> {
        self.given.classes.get(class)?.deadline_ns.map(|ns| arrived.add_ns(ns))
    }

    /// A class begins to wait; `alone` means that no other class waits. A silent class saves nothing up.
    pub fn handle_waits(&mut self, now: Instant, class: usize, alone: bool) {
        if let Some(own) = self.own.get_mut(class) {
            own.free_at = own.free_at.max(now);
            if alone {
                self.common.free_at = self.common.free_at.max(now);
            }
        }
    }

    /// An empty list of contenders.
    pub fn contenders(&mut self) -> Vec<Contender> {
        let mut contenders = core::mem::take(&mut self.contenders);
        contenders.clear();
        contenders
    }

    /// Chooses the next class among all that wait, sorted by class, one entry per class; the choice counts as
    /// made.
    pub fn choose(&mut self, now: Instant, link: LinkProperties, mut contenders: Vec<Contender>) -> Option<Choice> {
        let waiting = contenders.len();
        contenders.retain(|it| self.has_room(now, it.class.index(), link));
        let choice = self.turns.choose(now, &Slots { window: None, running: &[] }, &contenders);
        self.contenders = contenders;
        let reason = |choice: Choice| match choice.reason {
            // Other classes wait, and may not go.
            Reason::Alone if waiting > 1 => Reason::WithinShare,
            Reason::Weight if self.given.policy == Policy::Fixed => Reason::WithinShare,
            reason => reason,
        };
        choice.map(|choice| Choice { reason: reason(choice), ..choice })
    }

    /// Charges a grant to a chosen class, and returns the part that it was charged to.
    pub fn charge(&mut self, now: Instant, class: usize, wire_bytes: u64, link: LinkProperties) -> Source {
        let (Some(rate), Some(own)) = (link.rate, self.own.get_mut(class)) else { return Source::Turn };
        let ns = rate.ns_for(wire_bytes);
        if own.has_room(now, link.ahead_ns) {
            own.charge(now, ns);
            Source::Own
        } else {
            self.common.charge(now, ns);
            Source::Common
        }
    }

    /// Takes back bytes of a grant.
    pub fn refund(&mut self, class: usize, wire_bytes: u64, source: Source, rate: Option<Rate>) {
        self.turns.refund(ClassId(class as u16), wire_bytes);
        let ns = rate.map_or(0, |rate| rate.ns_for(wire_bytes));
        match source {
            Source::Turn => {}
            Source::Own => self.own[class].refund(ns),
            Source::Common => self.common.refund(ns),
        }
    }

    /// When a class may go, by its parts.
    pub fn room_at(&self, class: usize, link: LinkProperties) -> Instant {
        let (Some(_), Some(own)) = (link.rate, self.own.get(class)) else { return Instant::ORIGIN };
        own.room_at(link.ahead_ns).min(self.common.room_at(link.ahead_ns))
    }

    /// Changes the rate: bytes queued in the model then take less or more time.
    pub fn handle_rate(&mut self, now: Instant, old: Option<Rate>, new: Option<Rate>) {
        for part in self.own.iter_mut().chain([&mut self.common]) {
            part.free_at = match (old, new) {
                (Some(old), Some(new)) => now.add_ns(new.ns_for(old.bytes_in(part.free_at.ns_since(now)))),
                _ => Instant::ORIGIN,
            };
        }
    }

    /// See [`crate::share::Share::handle_parts`].
    pub fn handle_parts(&mut self, parts: &[u32]) {
        self.turns.handle_parts(parts);
    }

    fn has_room(&self, now: Instant, class: usize, link: LinkProperties) -> bool {
        self.room_at(class, link) <= now
    }
}

/// A part of the link, simulated as a link with `slots` of `of` parts of the rate.
#[derive(Clone, Copy, Debug)]
struct Part {
    slots: u64,
    of: u64,
    free_at: Instant,
}

impl Part {
    fn has_room(&self, now: Instant, ahead_ns: u64) -> bool {
        self.room_at(ahead_ns) <= now
    }

    fn room_at(&self, ahead_ns: u64) -> Instant {
        match self.slots {
            0 => Instant::from_ns(u64::MAX),
            _ => Instant::from_ns(self.free_at.as_ns().saturating_sub(ahead_ns)),
        }
    }

    /// Charges work that takes `ns` on the whole link. It may begin in the past by its own length at most, so
    /// one late turn is made up for, and no more.
    fn charge(&mut self, now: Instant, ns: u64) {
        let ns = self.own_ns(ns);
        let earliest = Instant::from_ns(now.as_ns().saturating_sub(ns));
        self.free_at = self.free_at.max(earliest).add_ns(ns);
    }

    fn refund(&mut self, ns: u64) {
        self.free_at = Instant::from_ns(self.free_at.as_ns().saturating_sub(self.own_ns(ns)));
    }

    fn own_ns(&self, ns: u64) -> u64 {
        let ns = (u128::from(ns) * u128::from(self.of)).div_ceil(u128::from(self.slots.max(1)));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}
