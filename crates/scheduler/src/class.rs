//! Whose request it is, and what that is worth.

use crate::admission::QueueOrder;

/// Number of a class: its place in the settings, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u16);

impl ClassId {
    /// Fit to index a table with a row for each class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a class is given. Which of it counts depends on the [`crate::share::Policy`] in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its part of the whole is this number over the sum of all classes' numbers. At least 1. Where the numbers add up to
    /// the window, they are slots.
    pub weight: u32,
    /// Its system times are to be to those of the others as these numbers ([`crate::share::Policy::is_by_delay`]): with 1, 2 and
    /// 4 the first class is the fastest. At least 1.
    pub delay_ratio: u32,
    /// Slots that are never lent, in each window that is shared ([`crate::share::Policy::Shared`]).
    pub reserved_slots: u32,
    /// Most of its requests at the site at once, over all resource types; `None` for no limit of its own. Holds under any
    /// share, and makes any of them keep slots free rather than give them to this class.
    pub most_running: Option<u32>,
    /// From arrival to the end of the response, in nanoseconds ([`crate::share::Policy::Edf`]); `None`: whenever nobody
    /// with a deadline waits.
    pub deadline_ns: Option<u64>,
    /// Which of its waiting requests goes first.
    pub order: QueueOrder,
    /// Most of its requests that wait for one resource type. With 0 a request starts at once or is refused.
    pub most_waiting: u32,
    /// A request that has waited for so long is refused, in nanoseconds; `None`: it waits.
    pub most_wait_ns: Option<u64>,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            weight: 1,
            delay_ratio: 1,
            reserved_slots: 0,
            most_running: None,
            deadline_ns: None,
            order: QueueOrder::Fifo,
            // Requests that wait cost memory; behind a thousand others few clients are still there when their turn comes.
            most_waiting: 1000,
            most_wait_ns: None,
        }
    }
}
