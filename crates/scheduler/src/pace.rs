//! The rate of the pacer: found, given and corrected, or leased.

mod finder;

use core::time::Duration;

pub use self::finder::Finder;
use crate::{
    correction::{Correction, Doubt},
    lease::Line,
    round_trips::{Load, RoundTrip},
    time::{Instant, MS},
    units::Rate,
};

/// See [`Pace::looks_after_ns`].
const LOOKS_MOST_BITS: u64 = 20_000_000;
const LOOKS_AFTER_NS: u64 = 100 * MS;

/// The source of the pacer's rate.
#[derive(Clone, Debug)]
pub enum Pace {
    /// The rate is not known, and is found.
    Found(Finder),
    /// The rate is given, and is corrected.
    Given(Correction),
    /// Several gateways send through one line, and this one has a part of its rate. Round trips correct nothing: the queue
    /// that they meet is that of all gateways.
    Leased(Leased),
}

/// A part of a line, and the rate that follows from it.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The part.
    pub line: Line,
    rate: Rate,
}

impl Leased {
    /// Makes the pace of a gateway with this part.
    pub fn new(now: Instant, line: Line) -> Self {
        Self { rate: line.rate(now), line }
    }

    fn follow(&mut self, now: Instant) -> bool {
        let before = core::mem::replace(&mut self.rate, self.line.rate(now));
        before != self.rate
    }
}

impl Pace {
    /// The rate to send at now; `None` where pacing is not worth its cost.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Found(finder) => finder.rate(),
            Self::Given(correction) => Some(correction.rate()),
            Self::Leased(leased) => Some(leased.rate),
        }
    }

    /// Whether a given rate cannot be true, by what was seen last, or one is not found.
    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Leased(_) => None,
            Self::Found(finder) => finder.doubt(),
            Self::Given(correction) => correction.doubt(),
        }
    }

    /// The current phase as one word, for logs.
    pub fn phase_name(&self) -> &'static str {
        match self {
            Self::Found(finder) => finder.phase_name(),
            Self::Given(correction) => correction.phase_name(),
            Self::Leased(_) => "leased",
        }
    }

    /// The recent length of the queue at the bottleneck, as far as round trips show it.
    pub fn queue(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Found(finder) => finder.queue(now),
            Self::Given(correction) => correction.queue(now),
            Self::Leased(_) => None,
        }
    }

    /// On a slow link few round trips are measured. If none was for so long, in nanoseconds, connections are looked at after
    /// their last bytes, too. `None` where that is not worth its cost.
    pub fn looks_after_ns(&self) -> Option<u64> {
        let is_slow = |rate: Rate| rate.bits_per_second() <= LOOKS_MOST_BITS;
        (!matches!(self, Self::Leased(_)) && self.rate().is_some_and(is_slow)).then_some(LOOKS_AFTER_NS)
    }

    /// Takes a round trip.
    pub fn handle_round_trip(&mut self, now: Instant, round_trip: RoundTrip, load: Load) {
        match self {
            Self::Found(finder) => finder.handle_round_trip(now, round_trip, load),
            Self::Given(correction) => correction.handle_round_trip(now, round_trip, load),
            Self::Leased(_) => {}
        }
    }

    /// Decides whether the rate changes; returns true if [`Pace::rate`] has changed. Call after each grant, or as often
    /// as possible while there is traffic.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        match self {
            Self::Found(finder) => finder.handle_turn(now, load),
            Self::Given(correction) => correction.handle_turn(now, load),
            Self::Leased(leased) => leased.follow(now),
        }
    }
}
