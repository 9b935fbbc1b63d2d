//! A point in time, in nanoseconds since an origin that the caller chooses. There is no `now()` here, by
//! design.

use core::{
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds since the caller's origin. Good for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The caller's origin.
    pub const ORIGIN: Self = Self(0);

    /// The point `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later, as when a clock was set back.
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns_since(earlier))
    }

    /// The point `ns` nanoseconds later, or the end of time.
    pub const fn add_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.add_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_gives_zero_and_never_overflows() {
        let late = Instant::from_ns(10);
        assert_eq!(Instant::ORIGIN - late, Duration::ZERO);
        assert_eq!((late + Duration::MAX).as_ns(), u64::MAX);
    }
}
