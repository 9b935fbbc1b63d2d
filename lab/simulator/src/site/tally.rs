//! Results of a run.

use std::ops::AddAssign;

use hdrhistogram::Histogram;
use scheduler::{admission::ResourceId, class::ClassId};

use super::finished::{End, FinishedRequest};

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// By class and resource type.
    cells: Vec<Vec<Tally>>,
    /// Use of the stations, from the beginning of the run.
    pub stations: Vec<StationUse>,
    /// Use of the adjusted windows, by resource type, in the measured time; empty if none was adjusted.
    pub windows: Vec<WindowUse>,
}

/// A window over the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowUse {
    /// The mean over time.
    pub mean: f64,
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
    /// Number of changes.
    pub changes: u32,
}

/// Use of a station over the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StationUse {
    /// Mean number of requests present.
    pub present: f64,
    /// Mean used capacity, in servers.
    pub capacity: f64,
}

/// Requests that ended in the measured time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The site did its work.
    pub done: u64,
    /// The gateway refused.
    pub refused: u64,
    /// The site answered with an error.
    pub failed: u64,
    /// Clients gave up while they waited.
    pub gone_waiting: u64,
    /// Clients gave up while the site worked on their requests.
    pub gone_running: u64,
    measured_ns: u64,
    queueing_ns: u128,
    service_ns: u128,
    /// Sums over time of running and of waiting requests.
    running_ns: u128,
    waiting_ns: u128,
    /// System times of done requests, in microseconds.
    system_us: Histogram<u64>,
}

impl Report {
    pub(super) fn new(classes: usize, resources: usize, measured_ns: u64) -> Self {
        Self {
            cells: vec![vec![Tally::new(measured_ns); resources]; classes],
            stations: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// Requests of one class and one resource type; `None` if it does not exist.
    pub fn cell(&self, class: ClassId, resource: ResourceId) -> Option<&Tally> {
        self.cells.get(class.index())?.get(resource.index())
    }

    /// Requests of a class, of all resource types.
    pub fn class(&self, class: ClassId) -> Tally {
        self.sum(self.cells.get(class.index()).into_iter().flatten())
    }

    /// Requests of a resource type, of all classes.
    pub fn resource(&self, resource: ResourceId) -> Tally {
        self.sum(self.cells.iter().filter_map(|of_class| of_class.get(resource.index())))
    }

    /// All requests.
    pub fn all(&self) -> Tally {
        self.sum(self.cells.iter().flatten())
    }

    pub(super) fn cell_mut(&mut self, class: ClassId, resource: ResourceId) -> &mut Tally {
        &mut self.cells[class.index()][resource.index()]
    }

    fn sum<'a>(&self, tallies: impl Iterator<Item = &'a Tally>) -> Tally {
        let measured_ns = self.cells.iter().flatten().next().map_or(0, |tally| tally.measured_ns);
        let mut sum = Tally::new(measured_ns);
        tallies.for_each(|tally| sum += tally);
        sum
    }
}

impl Tally {
    fn new(measured_ns: u64) -> Self {
        Self {
            done: 0,
            refused: 0,
            failed: 0,
            gone_waiting: 0,
            gone_running: 0,
            measured_ns,
            queueing_ns: 0,
            service_ns: 0,
            running_ns: 0,
            waiting_ns: 0,
            system_us: Histogram::new(3).expect("three digits are allowed"),
        }
    }

    /// Mean system time of done requests, queueing and service, in milliseconds. NaN without any.
    pub fn system_ms(&self) -> f64 {
        self.queueing_ms() + self.service_ms()
    }

    /// Mean waiting time before the site of done requests, in milliseconds.
    pub fn queueing_ms(&self) -> f64 {
        self.queueing_ns as f64 / self.done as f64 / 1e6
    }

    /// Mean time in the site of done requests, in milliseconds.
    pub fn service_ms(&self) -> f64 {
        self.service_ns as f64 / self.done as f64 / 1e6
    }

    /// Percentile of the system times of done requests, in milliseconds, to three digits.
    pub fn system_percentile_ms(&self, percentile: f64) -> f64 {
        if self.done == 0 { f64::NAN } else { self.system_us.value_at_percentile(percentile) as f64 / 1e3 }
    }

    /// Requests done a second.
    pub fn per_second(&self) -> f64 {
        self.done as f64 * 1e9 / self.measured_ns as f64
    }

    /// Mean number of requests in the site.
    pub fn running(&self) -> f64 {
        self.running_ns as f64 / self.measured_ns as f64
    }

    /// Mean number of requests before the site.
    pub fn waiting(&self) -> f64 {
        self.waiting_ns as f64 / self.measured_ns as f64
    }

    /// Counts a finished request.
    pub(super) fn add(&mut self, request: &FinishedRequest) {
        match (request.end, request.started_ns) {
            (End::Done, Some(started_ns)) => {
                self.done += 1;
                self.queueing_ns += u128::from(started_ns - request.arrived_ns);
                self.service_ns += u128::from(request.end_ns - started_ns);
                let system_us = (request.end_ns - request.arrived_ns) / 1000;
                self.system_us.record(system_us).expect("it grows as needed");
            }
            (End::Failed, _) => self.failed += 1,
            (End::Gone, Some(_)) => self.gone_running += 1,
            (End::Gone, None) => self.gone_waiting += 1,
            (End::Refused | End::Done, _) => self.refused += 1,
        }
    }

    /// Adds a time span with these numbers of waiting and running requests.
    pub(super) fn add_time(&mut self, waiting: u64, running: u64, ns: u64) {
        self.waiting_ns += u128::from(waiting) * u128::from(ns);
        self.running_ns += u128::from(running) * u128::from(ns);
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.done += other.done;
        self.refused += other.refused;
        self.failed += other.failed;
        self.gone_waiting += other.gone_waiting;
        self.gone_running += other.gone_running;
        self.queueing_ns += other.queueing_ns;
        self.service_ns += other.service_ns;
        self.running_ns += other.running_ns;
        self.waiting_ns += other.waiting_ns;
        self.system_us += &other.system_us;
    }
}
