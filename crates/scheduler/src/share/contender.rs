//! The interface of a share: the contending classes, the slots, and the choice.

use alloc::boxed::Box;
use core::fmt;

use crate::{class::ClassId, time::Instant};

/// All requests of a class, in the unit of [`Share::handle_parts`].
pub const WHOLE: u32 = 64_000;

/// Picks classes for one set of slots: the requests of one resource type, or a link.
pub trait Share: fmt::Debug {
    /// Returns which of `contenders` goes next; the choice counts as made. `contenders` are sorted by class,
    /// one per class. `None` means that none of them may go, though there is a free slot.
    fn choose(&mut self, now: Instant, slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice>;

    /// Takes back a part of the cost of the class's latest choice. Does nothing in shares that do not count
    /// costs.
    fn refund(&mut self, _class: ClassId, _cost: u64) {}

    /// Records that a job of a class is done, and the time since its arrival. Jobs given up are not reported.
    /// Does nothing in shares that do not count delays.
    fn handle_done(&mut self, _now: Instant, _class: ClassId, _system_ns: u64) {}

    /// Sets the part of each class's requests that is at this gateway, where several divide the slots of a site
    /// ([`crate::lease`]), by class, where [`WHOLE`] is all of them; empty: as if there was one gateway. A weight is that of a
    /// class over the whole site, so it counts here for its part. 0 means that no requests of the class were known: those that
    /// come may be all that there are. Does nothing in shares without weights.
    fn handle_parts(&mut self, _parts: &[u32]) {}

    /// Sets the slots of a class at this gateway, where several divide the slots of a class. Does nothing in shares
    /// that lend slots.
    fn handle_slots(&mut self, _class: ClassId, _slots: u32) {}

    /// A copy with all its memory.
    fn duplicate(&self) -> Box<dyn Share + Send>;
}

impl Clone for Box<dyn Share + Send> {
    fn clone(&self) -> Self {
        (**self).duplicate()
    }
}

/// The slots that are shared.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    /// Number of slots; `None` for no limit.
    pub window: Option<u32>,
    /// Slots held by each class, by [`ClassId::index`].
    pub running: &'a [u32],
}

impl Slots<'_> {
    pub(super) fn held_by(&self, class: ClassId) -> u32 {
        self.running.get(class.index()).copied().unwrap_or(0)
    }
}

/// A class that has a waiting job and may go by its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The class.
    pub class: ClassId,
    /// Cost of its next job: 1 for a request, bytes for a link.
    pub cost: u64,
    /// Deadline of its next job; `None` if it has none.
    pub deadline: Option<Instant>,
    /// Whether its next job can no longer meet the deadline.
    pub late: bool,
    /// How long its jobs have waited; used only if [`super::Policy::is_by_delay`].
    pub delay: Delay,
}

/// How long the waiting jobs of a class have waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Waiting time of its next job.
    pub waited_ns: u64,
    /// Number of waiting jobs.
    pub waiting: u32,
    /// Total waiting time of all waiting jobs.
    pub all_waited_ns: u128,
    /// Mean recent service time of jobs such as the next one; 0 if none has finished.
    pub service_ns: u64,
}

impl Contender {
    /// A class with a request that has no deadline.
    pub const fn new(class: ClassId) -> Self {
        Self {
            class,
            cost: 1,
            deadline: None,
            late: false,
            delay: Delay { waited_ns: 0, waiting: 1, all_waited_ns: 0, service_ns: 0 },
        }
    }
}

/// The class that goes, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The class.
    pub class: ClassId,
    /// The reason.
    pub reason: Reason,
}

/// Why a class was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No other class contended.
    Alone,
    /// The class ranks before the others.
    Priority,
    /// By its weight.
    Weight,
    /// The class has less than its share of the slots.
    WithinShare,
    /// The class has its share; it gets a slot that others do not use.
    Lent,
    /// Its next job has the earliest deadline.
    Deadline,
    /// Its delays are the longest, relative to its ratio.
    Delay,
    /// Its next job is late, and no class has a job that is in time.
    Late,
}
