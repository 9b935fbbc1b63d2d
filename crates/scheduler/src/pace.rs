//! The rate of the pacer: found, or given and corrected.

mod finder;

use core::time::Duration;

pub use self::finder::Finder;
use crate::{
    correction::{Correction, Doubt},
    round_trips::{Load, RttKind},
    time::Instant,
    units::Rate,
};

/// What decides the rate of the pacer.
#[derive(Clone, Debug)]
pub enum Pace {
    /// The rate is not known, and is found.
    Found(Finder),
    /// The rate is given, and is corrected.
    Given(Correction),
}

impl Pace {
    /// The rate to send at now; `None` where pacing is not worth its cost.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Found(finder) => finder.rate(),
            Self::Given(correction) => Some(correction.rate()),
        }
    }

    /// Whether a given rate cannot be true, by what was seen last.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Found(_) => None,
            Self::Given(correction) => correction.doubt(),
        }
    }

    /// The current phase as one word, for logs.
    pub fn phase_name(&self) -> &'static str {
        match self {
            Self::Found(finder) => finder.phase_name(),
            Self::Given(correction) => correction.phase_name(),
        }
    }

    /// The recent length of the queue at the bottleneck, as far as round trips show it.
    pub fn queue(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Found(finder) => finder.queue(now),
            Self::Given(correction) => correction.queue(now),
        }
    }

    /// Takes a round trip measured just now. `path` is any number that is the same for the same client or prefix of
    /// clients.
    pub fn handle_round_trip(&mut self, now: Instant, path: u64, rtt_ns: u64, kind: RttKind, load: Load) {
        match self {
            Self::Found(finder) => finder.handle_round_trip(now, path, rtt_ns, kind, load),
            Self::Given(correction) => correction.handle_round_trip(now, path, rtt_ns, kind, load),
        }
    }

    /// Decides whether the rate changes; returns true if [`Pace::rate`] has changed. Call after each grant, or as often
    /// as possible while there is traffic.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        match self {
            Self::Found(finder) => finder.handle_turn(now, load),
            Self::Given(correction) => correction.handle_turn(now, load),
        }
    }
}
