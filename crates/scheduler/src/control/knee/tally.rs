//! The work done while one window was in force.

/// Work done while one window was in force.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub ns: f64,
    pub short_ns: f64,
    pub requests: u32,
    pub worth: f64,
    pub worth_squared: f64,
}

impl Tally {
    pub fn add(&mut self, worth: f64) {
        self.requests += 1;
        self.worth += worth;
        self.worth_squared += worth * worth;
    }

    pub fn merge(&mut self, other: &Self) {
        self.ns += other.ns;
        self.short_ns += other.short_ns;
        self.requests += other.requests;
        self.worth += other.worth;
        self.worth_squared += other.worth_squared;
    }

    /// Variance of the log of the work, if requests ended at random. Requests of equal work end more evenly
    /// than that.
    pub fn variance(&self) -> f64 {
        self.worth_squared / (self.worth * self.worth)
    }
}
