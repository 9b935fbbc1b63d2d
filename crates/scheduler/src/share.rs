//! The share: which class goes first.
//!
//! Two questions are separate: the *share* picks the class, the *order* picks the job within it. A share sees
//! only a [`Contender`] of each class, so any share works with any order. The policies are those of
//! "Differentiated quality of Web service", section 3.6.
//!
//! A class contends if it has a waiting job and is not at a limit of its own. The policies promise, among the
//! classes that contend:
//!
//! | policy | promise | keeps a slot free although jobs wait |
//! |---|---|---|
//! | strict | a class goes only if no class before it contends | never |
//! | weighted | while the same classes contend, each has its part of any run of choices, give or take two choices (one for a run from the beginning); a silent class saves nothing up | never |
//! | shared | a class below its share of the slots goes before all that are not; what it does not use is lent, up to the reserves of others | only for a reserve |
//! | fixed | a class never has more than its share of the slots | whenever its class has no waiting job |
//! | edf | the class whose next job has the earliest deadline goes; jobs that cannot meet theirs go behind those that can | never |
//! | wtp, pwad, mdp, ratio | mean system times are near the given ratios, where any order could keep them: docs/delay-shares.md says how near | never |
//!
//! A share of slots is a whole number: the exact share rounded up or down so that all add up to the window.
//! It is at least 1, since a class without a slot would starve. A window smaller than the number of classes
//! therefore has more shares than slots; then the classes take turns by weight.
//!
//! ```
//! use serpent_scheduler::{
//!     Instant,
//!     class::{Class, ClassId},
//!     share::{Contender, Policy, Slots},
//! };
//!
//! let classes = [4, 2, 1].map(|weight| Class { weight, ..Class::default() });
//! let mut share = Policy::Weighted.build(&classes);
//! let slots = Slots { window: None, running: &[0, 0, 0] };
//! let all = [0, 1, 2].map(|class| Contender::new(ClassId(class)));
//! let turns: String = (0..14)
//!     .map(|_| share.choose(Instant::ORIGIN, &slots, &all).expect("weighted sharing keeps nothing free").class)
//!     .map(|class| ["A", "B", "C"][class.index()])
//!     .collect();
//! assert_eq!(turns, "ABACABAABACABA");
//! ```

mod capacity;
mod delay;
mod edf;
mod ratio;
mod recent;
mod strict;
mod weighted;

use alloc::boxed::Box;
use core::fmt;

use self::{
    capacity::Capacity,
    delay::{Mdp, Pwad, Wtp},
    edf::Edf,
    ratio::Ratio,
    strict::Strict,
    weighted::Weighted,
};
use crate::{
    class::{Class, ClassId},
    time::Instant,
};

/// The rule by which a class is picked. The head of this module gives the promise of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The first class that has a waiting job.
    Strict,
    /// In proportion to the weights, evenly spread.
    Weighted,
    /// A share of the slots for each class; unused slots are lent, except reserves.
    Shared,
    /// A share of the slots for each class, never lent.
    Fixed,
    /// The earliest deadline first.
    Edf,
    /// Waiting time priority: the class whose next job has the longest system time, relative to its ratio of
    /// delays.
    Wtp,
    /// Proportional window average delay: the class whose recent jobs took longest, relative to its ratio.
    Pwad,
    /// Mean delay proportional: as *pwad*, plus the least time that the waiting jobs will take.
    Mdp,
    /// Keeps the ratios of delays now and in the mean: *wtp* that looks ahead, corrected by accounts that
    /// fade.
    Ratio,
}

/// The time over which *pwad* and *mdp* count finished jobs, as in the paper. The memory of *ratio* scales
/// with it.
pub const DELAY_WINDOW_NS: u64 = 120_000_000_000;

impl Policy {
    /// All policies, as shown to users.
    pub const ALL: [Self; 9] = [
        Self::Strict,
        Self::Weighted,
        Self::Shared,
        Self::Fixed,
        Self::Edf,
        Self::Wtp,
        Self::Pwad,
        Self::Mdp,
        Self::Ratio,
    ];

    /// The policies that can share a link. Policies by delay are excluded: the time of a response mostly
    /// depends on its length, so keeping mean times in a ratio would reward classes with large responses.
    pub const OF_LINKS: [Self; 5] = [Self::Strict, Self::Weighted, Self::Shared, Self::Fixed, Self::Edf];

    /// Makes a share with this policy for these classes.
    pub fn build(self, classes: &[Class]) -> Box<dyn Share + Send> {
        self.build_over(classes, DELAY_WINDOW_NS)
    }

    /// The same, with another time over which finished jobs count ([`Policy::Pwad`], [`Policy::Mdp`],
    /// [`Policy::Ratio`]).
    pub fn build_over(self, classes: &[Class], delay_window_ns: u64) -> Box<dyn Share + Send> {
        match self {
            Self::Strict => Box::new(Strict),
            Self::Weighted => Box::new(Weighted::new(classes)),
            Self::Shared => Box::new(Capacity::shared(classes)),
            Self::Fixed => Box::new(Capacity::fixed(classes)),
            Self::Edf => Box::new(Edf),
            Self::Wtp => Box::new(Wtp::new(classes)),
            Self::Pwad => Box::new(Pwad::new(classes, delay_window_ns)),
            Self::Mdp => Box::new(Mdp::new(classes, delay_window_ns)),
            Self::Ratio => Box::new(Ratio::new(classes, delay_window_ns)),
        }
    }

    /// Whether the policy divides slots, so that their number must be limited.
    pub const fn needs_window(self) -> bool {
        matches!(self, Self::Shared | Self::Fixed)
    }

    /// Whether the policy keeps system times in ratios ([`Class::delay_ratio`]) and uses
    /// [`Contender::delay`].
    pub const fn is_by_delay(self) -> bool {
        matches!(self, Self::Wtp | Self::Pwad | Self::Mdp | Self::Ratio)
    }

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Weighted => "weighted",
            Self::Shared => "shared",
            Self::Fixed => "fixed",
            Self::Edf => "edf",
            Self::Wtp => "wtp",
            Self::Pwad => "pwad",
            Self::Mdp => "mdp",
            Self::Ratio => "ratio",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    fn held_by(&self, class: ClassId) -> u32 {
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
    /// How long its jobs have waited; used only if [`Policy::is_by_delay`].
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

#[cfg(test)]
mod tests;
