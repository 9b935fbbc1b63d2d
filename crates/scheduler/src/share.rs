//! Which class goes first.
//!
//! Two questions are kept apart: the *share* picks the class, the *order* picks the job within it. A share sees of each
//! class that contends no more than a [`Contender`], so any share goes with any order. The policies are those of
//! "Differentiated quality of Web service", section 3.6.
//!
//! What they promise, among classes that have somebody waiting (a class is said to contend if it has, and is not at a limit
//! of its own):
//!
//! | policy | promise | keeps a slot free although somebody waits |
//! |---|---|---|
//! | strict | a class goes only if no class before it contends | never |
//! | weighted | while the same classes contend, each has its part of any run of choices, give or take two choices, and give or take one of a run from the beginning; who was silent has saved nothing up | never |
//! | shared | a class below its share of the slots goes before all that are not; what it does not use is lent, up to the reserves of others | only for a reserve |
//! | fixed | a class has never more than its share of the slots | whenever its class has nobody waiting |
//! | edf | the class whose next request has the earliest deadline goes; who cannot make it any more goes behind all who can | never |
//! | wtp, pwad, mdp, ratio | mean system times are near the given ratios, where any order could keep them: docs/delay-shares.md says how near | never |
//!
//! A share of slots is a whole number: the exact share rounded up or down so that all add up to the window, and at least 1,
//! since a class with none would starve. A window smaller than the number of classes therefore has more shares than slots;
//! then the classes take turns by weight.
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

/// The rule by which a class is picked. The head of this module says what each promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The first class that has somebody waiting.
    Strict,
    /// In proportion to the weights, evenly spread.
    Weighted,
    /// A share of the slots each; what is not used is lent, but for a reserve.
    Shared,
    /// A share of the slots each, never lent.
    Fixed,
    /// The earliest deadline first.
    Edf,
    /// Waiting time priority: whose next request has been here longest, for its ratio of delays.
    Wtp,
    /// Proportional window average delay: whose requests took longest lately, for its ratio.
    Pwad,
    /// Mean delay proportional: the same, with what those who wait will take at least.
    Mdp,
    /// The ratios of delays kept now and in the mean: *wtp* that looks ahead, corrected by accounts that fade.
    Ratio,
}

/// The time over which *pwad* and *mdp* look at what has left, as in the paper. What *ratio* remembers goes with it.
pub const DELAY_WINDOW_NS: u64 = 120_000_000_000;

impl Policy {
    /// All of them, as they are listed to people.
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

    /// Those that a link can be shared by. How long a response takes is mostly a matter of its length, so that to keep mean
    /// times in a ratio would be to reward whoever sends large ones.
    pub const OF_LINKS: [Self; 5] = [Self::Strict, Self::Weighted, Self::Shared, Self::Fixed, Self::Edf];

    /// Who decides by this policy among these classes.
    pub fn build(self, classes: &[Class]) -> Box<dyn Share + Send> {
        self.build_over(classes, DELAY_WINDOW_NS)
    }

    /// The same; what has left counts for so long ([`Policy::Pwad`], [`Policy::Mdp`], [`Policy::Ratio`]).
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

    /// Whether the policy shares slots out, so that there must be a number of them.
    pub const fn needs_window(self) -> bool {
        matches!(self, Self::Shared | Self::Fixed)
    }

    /// Whether the policy keeps system times in ratios ([`Class::delay_ratio`]), and looks at [`Contender::delay`].
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

/// Picks classes, for one set of slots: requests of one resource type, or a link.
pub trait Share: fmt::Debug {
    /// Which of `contenders` goes next; its choice counts as made. `contenders` come by class, each class once.
    /// `None`: none of them may, though there is a free slot.
    fn choose(&mut self, now: Instant, slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice>;

    /// Of the cost of a class's latest choice, so much was not needed. Nothing to those who do not count costs.
    fn refund(&mut self, _class: ClassId, _cost: u64) {}

    /// A job of a class is done, so long after it arrived. Those given up are not told. Nothing to those who do not count
    /// delays.
    fn handle_done(&mut self, _now: Instant, _class: ClassId, _system_ns: u64) {}

    /// The same, with all that it remembers.
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
    /// How many there are; `None` for no limit.
    pub window: Option<u32>,
    /// How many each class holds, by [`ClassId::index`].
    pub running: &'a [u32],
}

impl Slots<'_> {
    fn held_by(&self, class: ClassId) -> u32 {
        self.running.get(class.index()).copied().unwrap_or(0)
    }
}

/// A class that has somebody waiting, and may go as far as its own limits are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Which.
    pub class: ClassId,
    /// What its next job costs: 1 for a request, bytes for a link.
    pub cost: u64,
    /// When its next job is to be done; `None` for whenever.
    pub deadline: Option<Instant>,
    /// Its next job cannot be done by then any more.
    pub late: bool,
    /// How long its jobs have been here; of use to [`Policy::is_by_delay`] only.
    pub delay: Delay,
}

/// How long the jobs of a class that wait have been here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// How long its next job has waited.
    pub waited_ns: u64,
    /// How many wait.
    pub waiting: u32,
    /// How long all of these have waited, together.
    pub all_waited_ns: u128,
    /// How long jobs such as the next one took lately once they were started, on average; 0 if none has.
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

/// Who goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Who.
    pub class: ClassId,
    /// Why.
    pub reason: Reason,
}

/// Why it is a class's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No other class contended.
    Alone,
    /// It stands before the others.
    Priority,
    /// By its weight.
    Weight,
    /// It has less than its share of the slots.
    WithinShare,
    /// It has its share, and what others do not use is lent.
    Lent,
    /// Its next job has the earliest deadline.
    Deadline,
    /// Its delays are the longest, for its ratio.
    Delay,
    /// Its next job is late, and no other class has one that can still make it.
    Late,
}

#[cfg(test)]
mod tests;
