//! The link between classes: what a share of slots becomes on a link.
//!
//! A site has slots, and a request holds one for as long as it runs. A link has a rate, and a grant holds it for as long as
//! its bytes take on the wire. So a choice costs bytes, as they are on the wire, and what a share promises of slots it
//! promises here of bytes:
//!
//! - *strict* and *edf* pick a class for each grant, as they pick one for each slot.
//! - *weighted* counts bytes in place of choices: while the same classes wait, nobody is more than a grant ahead of its part
//!   of the bytes, or behind it.
//! - *shared* capacity: as many slots held as were shared out are, on a link, as many bytes a second; and to lend what is not
//!   used, and take it back with the next grant, is what *weighted* does already. What it adds are reserves: a part of the rate
//!   that nobody else may use, ready when its class comes.
//! - *fixed* capacity is a part of the rate for each class, and nothing beside.
//!
//! So there is one mechanism for the last two. A [`Part`] is a link on paper with a part of the link's rate. Each class may have one
//! for itself, and there may be one for all: *fixed* has only the former, for all of the rate; *shared* has the reserves as the
//! former and the rest as the latter. A class may go when its own has room or the common one has; it is charged to its own
//! if that has room. Where there are no reserves there are no parts, and the link is never idle while somebody waits.
//!
//! Among the classes that may go, the turns are those of *weighted*, in all three.
//!
//! Bounds, held by tests. Of any time T, a class under *fixed* is granted the bytes of its part of T and two grants at
//! most, and from the moment at which it began to wait its part and one grant; both and what its part carries in the time
//! that is decided ahead ([`crate::Pacing::ahead_ns`]). The second grant is what it may catch up of turns that came late.
//! Bytes that need no leave are nobody's: they go first, and all parts are parts of what the rate leaves.

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
    /// Which class goes first.
    pub policy: Policy,
    /// The classes, the most important first. Of each count its weight; under [`Policy::Shared`] its reserve; under
    /// [`Policy::Edf`] its deadline, which is for the last byte of a response, counted from its start.
    pub classes: Vec<Class>,
    /// How many slots the whole is of which a class has [`Class::reserved_slots`]: as large a part of the rate is reserved
    /// for it. `None`: as many as the weights add up to.
    pub slots: Option<u32>,
}

/// Why the link cannot be shared so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareError {
    /// There is no class, or more than 65,535.
    Classes,
    /// The class has a weight of 0.
    Weight(ClassId),
    /// All of the rate or more is reserved, and somebody has no reserve.
    Reserves,
    /// The policy is none for links.
    Policy(Policy),
}

impl ClassShare {
    /// Finds what contradicts itself.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
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

/// What one class has had of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Its jobs waiting for leave.
    pub waiting: usize,
    /// Wire bytes that it was granted and did not hand back, since the link is shared as it is now.
    pub charged_bytes: u64,
}

/// Which part a grant was charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// None: only its turn counts.
    Turn,
    /// That of its class.
    Own,
    /// The common one.
    Common,
}

/// What the share keeps of the classes.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    given: ClassShare,
    turns: Box<dyn Share + Send>,
    /// By class; empty where nobody has a part for itself.
    own: Vec<Part>,
    common: Part,
    /// Kept for its memory.
    contenders: Vec<Contender>,
}

/// What the link is, as far as parts of it need to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
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

    /// Whether the link is never idle while somebody waits.
    #[cfg(test)]
    pub fn lends(&self) -> bool {
        self.own.is_empty()
    }

    /// When a job of a class is to be done that came at `arrived`.
    pub fn deadline(&self, class: usize, arrived: Instant) -> Option<Instant> {
        self.given.classes.get(class)?.deadline_ns.map(|ns| arrived.add_ns(ns))
    }

    /// A class begins to wait; `alone`: nobody else does. Who was silent has saved nothing up.
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

    /// Who goes next of all that wait, who come by class, each class once; the choice counts as made.
    pub fn choose(&mut self, now: Instant, whole: Whole, mut contenders: Vec<Contender>) -> Option<Choice> {
        let waiting = contenders.len();
        contenders.retain(|it| self.has_room(now, it.class.index(), whole));
        let choice = self.turns.choose(now, &Slots { window: None, running: &[] }, &contenders);
        self.contenders = contenders;
        let reason = |choice: Choice| match choice.reason {
            // Others wait, and may not go.
            Reason::Alone if waiting > 1 => Reason::WithinShare,
            Reason::Weight if self.given.policy == Policy::Fixed => Reason::WithinShare,
            reason => reason,
        };
        choice.map(|choice| Choice { reason: reason(choice), ..choice })
    }

    /// A class that was chosen is granted so many bytes.
    pub fn charge(&mut self, now: Instant, class: usize, wire_bytes: u64, whole: Whole) -> Source {
        let (Some(rate), Some(own)) = (whole.rate, self.own.get_mut(class)) else { return Source::Turn };
        let ns = rate.ns_for(wire_bytes);
        if own.has_room(now, whole.ahead_ns) {
            own.charge(now, ns);
            Source::Own
        } else {
            self.common.charge(now, ns);
            Source::Common
        }
    }

    /// Of what a class was granted, so many bytes came back.
    pub fn refund(&mut self, class: usize, wire_bytes: u64, source: Source, rate: Option<Rate>) {
        self.turns.refund(ClassId(class as u16), wire_bytes);
        let ns = rate.map_or(0, |rate| rate.ns_for(wire_bytes));
        match source {
            Source::Turn => {}
            Source::Own => self.own[class].refund(ns),
            Source::Common => self.common.refund(ns),
        }
    }

    /// When a class may go, as far as parts are concerned.
    pub fn room_at(&self, class: usize, whole: Whole) -> Instant {
        let (Some(_), Some(own)) = (whole.rate, self.own.get(class)) else { return Instant::ORIGIN };
        own.room_at(whole.ahead_ns).min(self.common.room_at(whole.ahead_ns))
    }

    /// The link turns out to be faster or slower: what is queued on paper takes that much less or more time.
    pub fn handle_rate(&mut self, now: Instant, old: Option<Rate>, new: Option<Rate>) {
        for part in self.own.iter_mut().chain([&mut self.common]) {
            part.free_at = match (old, new) {
                (Some(old), Some(new)) => now.add_ns(new.ns_for(old.bytes_in(part.free_at.ns_since(now)))),
                _ => Instant::ORIGIN,
            };
        }
    }

    fn has_room(&self, now: Instant, class: usize, whole: Whole) -> bool {
        self.room_at(class, whole) <= now
    }
}

/// A part of the link, on paper: a link of `slots` of `of` parts of the rate.
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

    /// What takes `ns` on the whole link. It may have begun before now by as long as it takes: a turn that came late is
    /// made up for, and no more than one.
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
