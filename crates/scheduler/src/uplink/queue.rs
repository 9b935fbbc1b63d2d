//! The waiting jobs of one class, in order.

use alloc::collections::BTreeSet;

use crate::job::{JobId, Rank};

/// The waiting jobs of one class, and what the class was served.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassQueue {
    /// Sorted. Holds the places that may earn the next grant: exactly those whose `queued` is set. Without groups
    /// these are the jobs that wait.
    pub places: BTreeSet<(Rank, JobId)>,
    /// The jobs that wait.
    pub waiting: usize,
    /// Start-time fair queueing: the tag of the job served last. A job's tag counts the bytes it was served
    /// beyond the common level of all present jobs; new jobs start at that level.
    pub share_tag_bytes: u64,
    pub charged_bytes: u64,
}
