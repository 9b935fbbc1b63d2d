//! The phases of a correction: a queue is steered, or it is worked off.

use crate::{drain::Drain, time::Instant};

/// The present phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    Follow,
    Drain(Drain),
}

/// Start of the period since the last change of the phase, or step of the climb.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub began: Instant,
    pub sent_bytes: u64,
}
