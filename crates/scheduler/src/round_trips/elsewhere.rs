//! A queue that was found to be none of the uplink's making.

use crate::time::{Instant, MS};

/// A queue that was found to be of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elsewhere {
    pub at: Instant,
    pub queue_ns: u64,
    /// The rate of the link was known well, and the queue did not grow at a small part of that rate.
    pub is_sure: bool,
}

/// Whose queue it is that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The uplink may have made it.
    Ours,
    /// It is one that was found to be of others.
    Others,
    /// It has not shown for long enough.
    NotKnown,
}

/// It is remembered for so long. For twice that time, one that shows is looked at before it is drained.
const KEEP_NS: u64 = 10_000 * MS;
/// It may become so many times as long. If it was not sure, it may become longer by this part.
const GROWS: u64 = 2;
const GROWS_UNSURE: u64 = 2;

impl Elsewhere {
    /// Whether it was found lately.
    pub fn is_recent(&self, now: Instant) -> bool {
        now.ns_since(self.at) <= KEEP_NS
    }

    /// Whether one that shows is probably the same one.
    pub fn is_remembered(&self, now: Instant) -> bool {
        self.is_sure && now.ns_since(self.at) < 2 * KEEP_NS
    }

    /// How long one may be that shows, beyond what is learned of the paths.
    pub fn most_ns(&self) -> u64 {
        if self.is_sure { GROWS * self.queue_ns } else { self.queue_ns / GROWS_UNSURE }
    }
}
