//! A grant: which job may write, how much, and why.

use crate::{job::JobId, share};

/// Permission to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The job that may write.
    pub job: JobId,
    /// Most payload bytes it may write.
    pub bytes: u64,
    /// Why this job was chosen.
    pub reason: Reason,
    /// Why its class was chosen; `None` where the link is not shared between classes.
    pub share: Option<share::Reason>,
}

/// Why a grant went to this job among those of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No other job waited.
    Alone,
    /// First in order among the waiting jobs.
    First,
    /// Put ahead by the guard against starvation.
    Guarded,
}
