//! The phases of a correction: a queue is steered, or it is worked off.

use crate::time::Instant;

/// The present phase.
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

/// The part of a queue that a drain has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// Half of it or more.
    Much,
    /// Less, or it does not show.
    Little,
}
