//! Groups of jobs, and how urgent each job is within its group.
//!
//! The responses of one HTTP/2 connection are a group, and its client says how urgent each of them is (RFC 9218).
//! Urgency orders only the jobs of a group that are of the same class. Against all other jobs the group does as
//! well as if no job of it were urgent.
//!
//! So a job and its *place* are two things. A job's place is its rank among all jobs, by the order in force and by
//! the bytes that the place has *earned*. Places are granted bytes as if there were no priorities. The bytes that
//! a place earns go to the most urgent job of its group. If that is another job than the place's own, the place
//! *lends* them, and the other job's place will earn as many for others. A place that has earned all of its job's
//! bytes is *spent*: its job waits for what others owe. The place of a job that has ended stays while it owes
//! bytes.
//!
//! The members of a group never wait for more than their places can earn: the sum of lent bytes, over members and over
//! places that stay, is never above zero. So if a job waits whose place is spent, a place that owes bytes is in the
//! queue. Where a client takes back a request, the bytes lent to it are settled by the places of the others, and what
//! its own place has lent is lost. A group has a bounded number of places that stay. With a size that is not known, a
//! place may earn more than its job turns out to have.

use core::fmt;

/// How urgent a job is within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    /// From 0, the most urgent, to [`Priority::LEAST_URGENT`]. A higher number counts as that.
    pub urgency: u8,
    /// The client uses the first bytes before it has the last ones. Such jobs take turns.
    pub incremental: bool,
}

impl Priority {
    /// The highest number of urgency.
    pub const LEAST_URGENT: u8 = 7;

    /// With a number of urgency that exists.
    pub(crate) fn capped(self) -> Self {
        Self { urgency: self.urgency.min(Self::LEAST_URGENT), ..self }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u={}{}", self.urgency, if self.incremental { ", i" } else { "" })
    }
}

/// Identifies a group. The driver gives each group a number that no earlier group had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);
