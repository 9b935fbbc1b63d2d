//! A scenario: the stations of a site, the loads that come to it, and the settings of the gateway.

use std::ops::Range;

use scheduler::{
    admission::{ResourceId, Settings},
    class::ClassId,
};

use super::{error::ScenarioError, station::Station};

/// A site, its load, and the gateway's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The stations of the site.
    pub stations: Vec<Station>,
    /// The loads.
    pub loads: Vec<Load>,
    /// The gateway's settings.
    pub admission: Settings,
    /// Requests that end before this time do not count, in nanoseconds.
    pub warm_up_ns: u64,
    /// Length of the measurement after the warm-up, in nanoseconds; then the run ends.
    pub measured_ns: u64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// Requests of one kind from one kind of client.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The class of the requests.
    pub class: ClassId,
    /// The resource type of the requests.
    pub resource: ResourceId,
    /// The needs of each request, one after the other. Admission is told the sum of the means as the expected
    /// work.
    pub needs: Vec<Need>,
    /// When requests come.
    pub demand: Demand,
    /// Nanoseconds after which a client gives up an unfinished request.
    pub patience_ns: Option<u64>,
    /// A period without requests, in nanoseconds. Users that would send in it do so at its end, all at once.
    pub silent_ns: Option<Range<u64>>,
}

/// Work at a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Number of the station.
    pub station: usize,
    /// Mean nanoseconds of one server.
    pub mean_ns: u64,
    /// The law of the work.
    pub law: Law,
}

/// The law of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Always the mean.
    Fixed,
    /// Exponentially distributed.
    Exponential,
    /// Lognormally distributed; the standard deviation is this many per cent of the mean.
    Spread(u32),
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// At random times (Poisson), independent of responses. All count as one client.
    Open {
        /// Mean number a second.
        per_second: f64,
    },
    /// From users, each its own client. A user thinks for an exponentially distributed time, sends a request,
    /// and waits for its end: done, refused or given up.
    Closed {
        /// Number of users.
        users: u32,
        /// Mean think time, in nanoseconds.
        think_ns: u64,
    },
}

impl Scenario {
    /// Checks that the scenario can be run.
    ///
    /// # Errors
    /// The first problem, with its number.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.admission.check().map_err(ScenarioError::Admission)?;
        for (number, station) in self.stations.iter().enumerate() {
            station.check(number)?;
        }
        for (number, load) in self.loads.iter().enumerate() {
            if load.needs.iter().any(|need| need.station >= self.stations.len()) {
                return Err(ScenarioError::Need(number));
            }
            let Settings { classes, windows, .. } = &self.admission;
            if load.class.index() >= classes.len() || load.resource.index() >= windows.len() {
                return Err(ScenarioError::Queue(number));
            }
            let moves_on = match load.demand {
                // A higher rate would leave no time between requests.
                Demand::Open { per_second } => per_second > 0.0 && per_second <= 1e9,
                Demand::Closed { think_ns, .. } => think_ns > 0,
            };
            if !moves_on {
                return Err(ScenarioError::Demand(number));
            }
        }
        let in_time = self.warm_up_ns.checked_add(self.measured_ns).is_some();
        if self.measured_ns > 0 && in_time { Ok(()) } else { Err(ScenarioError::Time) }
    }
}
