//! The share: which class goes first.
//!
//! Two questions are separate: the *share* picks the class, the *order* picks the job within it. A share sees
//! only a [`Contender`] of each class, so any share works with any order. The policies are those of
//! "Differentiated quality of Web service", section 3.6.
//!
//! A class contends if it has a waiting job and is not at a limit of its own. The policies promise, among the
//! classes that contend:
//!
//! - *strict*: a class goes only if no class before it contends.
//! - *weighted*: while the same classes contend, each has its part of any run of choices, give or take two
//!   choices (one for a run from the beginning). A silent class saves nothing up.
//! - *shared*: a class below its share of the slots goes before all that are not. Unused slots are lent, up to
//!   the reserves of others.
//! - *fixed*: a class never has more than its share of the slots.
//! - *edf*: the class whose next job has the earliest deadline goes. Jobs that cannot meet theirs go behind
//!   those that can.
//! - *wtp*, *pwad*, *mdp* and *ratio*: mean system times are near the given ratios, where any order could keep
//!   them. `docs/delay-shares.md` says how near.
//!
//! While jobs wait, *fixed* keeps a slot free if its class has no waiting job, and *shared* only for a reserve.
//! The others keep no slot free.
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
mod contender;
mod delay;
mod edf;
mod ratio;
mod recent;
mod strict;
mod weighted;

use alloc::boxed::Box;
use core::fmt;

pub(crate) use self::capacity::apportion;
pub use self::contender::{Choice, Contender, Delay, Reason, Share, Slots, WHOLE};
use self::{
    capacity::Capacity,
    delay::{Mdp, Pwad, Wtp},
    edf::Edf,
    ratio::Ratio,
    strict::Strict,
    weighted::Weighted,
};
use crate::class::Class;

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

#[cfg(test)]
mod tests;
