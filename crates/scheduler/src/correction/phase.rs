//! What a correction is doing: it follows a queue that it steers, or works one off.

use crate::time::Instant;

/// What a correction is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    Follow,
    Drain(Drain),
}

/// A queue is being worked off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drain {
    /// The part of the estimate that is sent.
    pub gain: f64,
    /// When the queue should be gone.
    pub until: Instant,
    /// The queue at the beginning, and since when it has shown.
    pub queue_ns: u64,
    pub since: Instant,
}

/// Start of the period since the last change of the phase, or step of the climb.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub began: Instant,
    pub sent_bytes: u64,
}

/// What a drain has left of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Half of it or more.
    Much,
    /// Less, or it does not show.
    Little,
}
