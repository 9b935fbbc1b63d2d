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
//!
//! A share of slots is a whole number: the exact share rounded up or down so that all add up to the window, and at least 1,
//! since a class with none would starve. A window smaller than the number of classes therefore has more shares than slots;
//! then the classes take turns by weight.
//!
//! ```
//! use serpent_scheduler::{
//!     class::{Class, ClassId},
//!     share::{Contender, Policy, Slots},
//! };
//!
//! let classes = [4, 2, 1].map(|weight| Class { weight, ..Class::default() });
//! let mut share = Policy::Weighted.build(&classes);
//! let slots = Slots { window: None, running: &[0, 0, 0] };
//! let all = [0, 1, 2].map(|class| Contender::new(ClassId(class)));
//! let turns: String = (0..14)
//!     .map(|_| share.choose(&slots, &all).expect("weighted sharing keeps nothing free").class)
//!     .map(|class| ["A", "B", "C"][class.index()])
//!     .collect();
//! assert_eq!(turns, "ABACABAABACABA");
//! ```

mod capacity;
mod edf;
mod strict;
mod weighted;

use alloc::boxed::Box;
use core::fmt;

use self::{capacity::Capacity, edf::Edf, strict::Strict, weighted::Weighted};
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
}

impl Policy {
    /// All of them, as they are listed to people.
    pub const ALL: [Self; 5] = [Self::Strict, Self::Weighted, Self::Shared, Self::Fixed, Self::Edf];

    /// Who decides by this policy among these classes.
    pub fn build(self, classes: &[Class]) -> Box<dyn Share + Send> {
        match self {
            Self::Strict => Box::new(Strict),
            Self::Weighted => Box::new(Weighted::new(classes)),
            Self::Shared => Box::new(Capacity::shared(classes)),
            Self::Fixed => Box::new(Capacity::fixed(classes)),
            Self::Edf => Box::new(Edf),
        }
    }

    /// Whether the policy shares slots out, so that there must be a number of them.
    pub const fn needs_window(self) -> bool {
        matches!(self, Self::Shared | Self::Fixed)
    }

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Weighted => "weighted",
            Self::Shared => "shared",
            Self::Fixed => "fixed",
            Self::Edf => "edf",
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
    fn choose(&mut self, slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice>;

    /// Of the cost of a class's latest choice, so much was not needed. Nothing to those who do not count costs.
    fn refund(&mut self, _class: ClassId, _cost: u64) {}

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
}

impl Contender {
    /// A class with a request that has no deadline.
    pub const fn new(class: ClassId) -> Self {
        Self { class, cost: 1, deadline: None, late: false }
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
    /// Its next job is late, and no other class has one that can still make it.
    Late,
}

#[cfg(test)]
mod tests;
