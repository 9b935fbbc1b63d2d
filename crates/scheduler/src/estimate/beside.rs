//! The rate beside a queue of others, which does not tell whether the rate is too low or too high.
//!
//! The rate that was known well before is kept: a link seldom changes, and others' traffic comes and goes. It may be that
//! none was known, or that a far lower one seems to hold now. If work waits for long then, more is sent for a moment.
//! The part of it that the link carries shows whether the rate is too low.
//!
//! Where packets meet what they would meet of a far slower link, the link is that one. The rate of before is then kept in
//! mind for one case: that the link comes back.

use crate::time::{Instant, MS};

/// The rate that was known well, and how long work has waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// The rate that was known well, in bits per second, and when.
    well: Option<(Instant, f64)>,
    /// Since when work has waited without a break.
    waits_since: Option<Instant>,
    /// How often that rate was tried while a far lower one seemed to be known.
    tries: u32,
    /// Whether packets have met what they meet of a far slower link.
    is_refuted: bool,
}

/// The gain of a probe beside a queue of others, and how long it lasts at least: what comes back has to show a rate.
pub(super) const GAIN: f64 = 1.25;
pub(super) const LASTS_NS: u64 = 150 * MS;
/// Work has to wait for so long before it. Where no queue of others was found, it has to wait for longer, and for the time
/// of so many grants. On a slow line work waits for seconds at the right rate, too.
const STARVES_NS: u64 = 2_000 * MS;
const STARVES_ALONE_NS: u64 = 4_000 * MS;
const STARVES_ALONE_GRANTS: u64 = 800;
/// The first of these is tried after so long, and the time doubles so often.
const TRY_AFTER_NS: u64 = 4_000 * MS;
const TRY_AFTER_DOUBLES: u32 = 4;
/// A rate that was known well is believed for so long when a far lower one seems to be known: one below this part.
const WELL_NS: u64 = 60_000 * MS;
const FAR: f64 = 0.85;

impl Beside {
    /// The rate of the link is known well, in bits per second.
    pub fn handle_known(&mut self, now: Instant, bits: f64) {
        if !self.knew_more(now, bits) {
            (self.well, self.tries, self.is_refuted) = (Some((now, bits)), 0, false);
        }
    }

    /// More than this rate is tried, in bits per second.
    pub fn handle_try(&mut self, now: Instant, bits: f64) {
        if self.knew_more(now, bits) {
            self.tries += 1;
        }
    }

    /// From one try of the rate that was known well to the next, while work waits: each one was in vain.
    pub fn try_after_ns(&self) -> u64 {
        TRY_AFTER_NS << self.tries.min(TRY_AFTER_DOUBLES)
    }

    /// Takes whether work waits.
    pub fn handle_backlog(&mut self, now: Instant, waits: bool) {
        self.waits_since = if waits { self.waits_since.or(Some(now)) } else { None };
    }

    /// The rate that was known well lately, in bits per second.
    pub fn well(&self, now: Instant) -> Option<f64> {
        self.well.filter(|(at, _)| now.ns_since(*at) <= WELL_NS).map(|(_, bits)| bits)
    }

    /// Packets have met what they meet of a far slower link.
    pub fn handle_slower(&mut self) {
        self.is_refuted = true;
    }

    /// The same, unless a far slower link has shown since.
    pub fn believed(&self, now: Instant) -> Option<f64> {
        self.well(now).filter(|_| !self.is_refuted)
    }

    /// Whether a far higher rate than this was known well lately.
    pub fn knew_more(&self, now: Instant, bits: f64) -> bool {
        self.well(now).is_some_and(|well| bits <= well * FAR)
    }

    /// Whether work has waited for long beside a queue of others, at this rate in bits per second, which was not known well.
    pub fn starves(&self, now: Instant, bits: f64) -> bool {
        !self.is_well(now, bits) && self.waits_long(now)
    }

    /// The same where no queue of others was found. A grant takes this time.
    pub fn starves_alone(&self, now: Instant, bits: f64, grant_ns: u64) -> bool {
        !self.is_well(now, bits) && self.has_waited(now, STARVES_ALONE_NS.max(STARVES_ALONE_GRANTS * grant_ns))
    }

    fn is_well(&self, now: Instant, bits: f64) -> bool {
        self.well(now).is_some() && !self.knew_more(now, bits)
    }

    /// Whether work has waited for long.
    pub fn waits_long(&self, now: Instant) -> bool {
        self.has_waited(now, STARVES_NS)
    }

    fn has_waited(&self, now: Instant, least_ns: u64) -> bool {
        self.waits_since.is_some_and(|since| now.ns_since(since) >= least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MS)
    }

    #[test]
    fn a_far_lower_rate_does_not_replace_one_that_was_known_well_a_minute_ago() {
        let mut beside = Beside::default();
        beside.handle_known(at(0), 10e6);
        beside.handle_known(at(1_000), 9.5e6);
        assert_eq!(beside.well(at(2_000)), Some(9.5e6));
        beside.handle_known(at(3_000), 4e6);
        assert_eq!(beside.well(at(4_000)), Some(9.5e6));
        assert_eq!([9e6, 4e6].map(|bits| beside.knew_more(at(4_000), bits)), [false, true]);
        assert_eq!(beside.well(at(62_000)), None);
        beside.handle_known(at(62_000), 4e6);
        assert_eq!(beside.well(at(63_000)), Some(4e6));
    }

    #[test]
    fn a_rate_that_was_known_well_is_tried_less_often_with_each_try_in_vain() {
        let mut beside = Beside::default();
        beside.handle_known(at(0), 10e6);
        for after_s in [4, 8, 16, 32, 64, 64] {
            assert_eq!(beside.try_after_ns(), after_s * 1_000 * MS);
            beside.handle_try(at(1_000), 4e6);
        }
        beside.handle_known(at(2_000), 9e6);
        assert_eq!(beside.try_after_ns(), 4_000 * MS, "that rate holds again");
        beside.handle_try(at(3_000), 9e6);
        assert_eq!(beside.try_after_ns(), 4_000 * MS, "no far higher rate was known");
    }

    #[test]
    fn who_waits_for_two_seconds_at_a_rate_that_was_not_known_well_starves() {
        let mut beside = Beside::default();
        beside.handle_backlog(at(1_000), true);
        assert_eq!([2_900, 3_000].map(|ms| beside.starves(at(ms), 8e6)), [false, true]);
        beside.handle_known(at(3_000), 8e6);
        assert!(!beside.starves(at(3_100), 8e6), "the rate is that one");
        assert!(beside.starves(at(3_100), 2e6), "it is far lower");
        let starves_alone = |ms, grant_ms| beside.starves_alone(at(ms), 2e6, grant_ms * MS);
        assert_eq!([4_900, 5_000].map(|ms| starves_alone(ms, 3)), [false, true]);
        assert_eq!([8_900, 9_000].map(|ms| starves_alone(ms, 10)), [false, true]);
        beside.handle_backlog(at(3_400), false);
        beside.handle_backlog(at(3_500), true);
        assert!(!beside.starves(at(3_600), 2e6), "nothing waited in between");
    }
}
