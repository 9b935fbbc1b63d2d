//! The measures of a simulation.

use hdrhistogram::Histogram;

/// The measures of a run, from the end of its warm-up.
#[derive(Clone, Debug)]
pub struct Measures {
    /// By class.
    pub classes: Vec<ClassMeasures>,
    /// Requests at the site beyond the window while nothing is wrong.
    pub sound: InUse,
    /// The same from the beginning of a fault until the leases of before and after it have ended.
    pub faulty: InUse,
    /// The part of the site's slots that stayed free while requests waited.
    pub unused: f64,
    /// The part of the time for which the worst gateway had waiting requests and none at the site.
    pub starved_worst: f64,
    /// Asks for a gateway and second.
    pub asks: f64,
    /// Most asks of one gateway in a second.
    pub asks_most: u32,
    /// Messages to and from the store a second, notices too.
    pub messages: f64,
    /// Requests that were refused, or whose gateway was killed.
    pub lost: u64,
    /// Nanoseconds from the first request of the users that come later until nine tenths of that gateway's
    /// part of the slots are in use; `None`: never, or not asked for.
    pub followed_ns: Option<u64>,
    /// Measured time in nanoseconds.
    pub measured_ns: u64,
}

/// Requests at the site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InUse {
    /// Most at once.
    pub most: u32,
    /// How long more than the window, in nanoseconds.
    pub over_ns: u64,
    /// For how long there was anything to look at, in nanoseconds.
    pub seen_ns: u64,
}

/// The measures of a class.
#[derive(Clone, Debug)]
pub struct ClassMeasures {
    /// Requests done.
    pub done: u64,
    system_ns: u128,
    /// In microseconds.
    system_us: Histogram<u64>,
}

impl ClassMeasures {
    pub(super) fn new() -> Self {
        let system_us = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("an hour to three digits");
        Self { done: 0, system_ns: 0, system_us }
    }

    pub(super) fn add(&mut self, system_ns: u64) {
        self.done += 1;
        self.system_ns += u128::from(system_ns);
        self.system_us.saturating_record(system_ns / 1000);
    }

    /// Mean response time in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.system_ns as f64 / self.done.max(1) as f64 / 1e6
    }

    /// Response time that 99 % do not exceed, in milliseconds.
    pub fn p99_ms(&self) -> f64 {
        self.system_us.value_at_quantile(0.99) as f64 / 1e3
    }
}

impl Measures {
    /// All classes together.
    pub fn all(&self) -> ClassMeasures {
        let mut all = ClassMeasures::new();
        for class in &self.classes {
            all.done += class.done;
            all.system_ns += class.system_ns;
            all.system_us.add(&class.system_us).expect("all have the same bounds");
        }
        all
    }

    /// Requests done a second.
    pub fn throughput(&self) -> f64 {
        self.all().done as f64 * 1e9 / self.measured_ns as f64
    }

    /// The mean response time of each class over that of the first.
    pub fn ratios(&self) -> Vec<f64> {
        self.classes.iter().map(|class| class.mean_ms() / self.classes[0].mean_ms()).collect()
    }
}

impl InUse {
    pub(super) fn add(&mut self, running: u32, window: u32, for_ns: u64) {
        if for_ns > 0 {
            self.most = self.most.max(running);
            self.seen_ns += for_ns;
            self.over_ns += if running > window { for_ns } else { 0 };
        }
    }
}
