//! A site of several resources behind the gateway's admission.
//!
//! The site is a network of stations (processor, disk, database). Each shares its capacity equally among the
//! present requests, and thrashes when there are too many: see [`Station`]. Before it stands
//! [`scheduler::admission`], the server's own code. Requests come from [`Load`]s: at random times (open), or
//! from users that wait for the answer and think before the next request (closed).
//!
//! One seed decides everything. Each load and each user has its own random stream, so their requests do not
//! depend on the gateway's settings.
//!
//! ```
//! use scheduler::{
//!     admission::{ResourceId, Settings},
//!     class::{Class, ClassId},
//!     share::Policy,
//! };
//! use serpent_simulator::site::{Demand, Law, Load, Need, Scenario, Station};
//!
//! // A database that does no more than 4 queries at once well, and 200 users that each need 50 ms of it again and again.
//! let database = Station { servers: 2, knee: 4, thrash: 0.1 };
//! let load = Load {
//!     class: ClassId(0),
//!     resource: ResourceId(0),
//!     needs: vec![Need { station: 0, mean_ns: 50_000_000, law: Law::Exponential }],
//!     demand: Demand::Closed { users: 200, think_ns: 1_000_000_000 },
//!     patience_ns: None,
//!     silent_ns: None,
//! };
//! let with = |admission| Scenario {
//!     stations: vec![database],
//!     loads: vec![load.clone()],
//!     admission,
//!     warm_up_ns: 20_000_000_000,
//!     measured_ns: 60_000_000_000,
//!     seed: 1,
//! };
//! let classes = vec![Class::default()];
//! let all_at_once = with(Settings::uncontrolled(classes.clone(), 1, Policy::Strict)).run(|_| {})?;
//! let four_at_a_time = with(Settings::multi_resource(classes, Policy::Strict, &[4])).run(|_| {})?;
//! let (of_all, of_four) = (all_at_once.all(), four_at_a_time.all());
//! assert!(of_four.per_second() > 10.0 * of_all.per_second());
//! assert!(of_four.system_ms() < of_all.system_ms() / 3.0);
//! # Ok::<(), serpent_simulator::site::ScenarioError>(())
//! ```

mod course;
pub mod delays;
pub mod front;
pub mod overload;
pub mod promises;
mod run;
mod station;
mod tally;
pub mod windows;

use std::{fmt, ops::Range};

pub use self::{
    course::{Course, Event, What},
    run::{End, Passage},
    station::{Curve, Site, Station, Visit},
    tally::{Report, StationUse, Tally, WindowUse},
};
use scheduler::{
    admission::{ResourceId, Settings, SettingsError},
    class::ClassId,
    control,
};

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

/// Why a scenario cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioError {
    /// The gateway's settings are inconsistent.
    Admission(SettingsError),
    /// The station has no server, or its thrash is negative or not a number.
    Station(usize),
    /// The load needs a station that does not exist.
    Need(usize),
    /// The gateway does not have the load's class or resource type.
    Queue(usize),
    /// The load's rate is not above 0 and at most one a nanosecond. Or its users do not think: refused ones
    /// would retry without end.
    Demand(usize),
    /// The settings of the windows are invalid.
    Control(control::SettingsError),
    /// The event with this number names a station or a load that does not exist.
    Event(usize),
    /// The measured time is 0, or beyond the 584 years that can be counted.
    Time,
}

impl Scenario {
    /// Runs the scenario. `sink` gets every finished request, by time, with the warm-up.
    ///
    /// # Errors
    /// The errors of [`Scenario::check`].
    pub fn run(&self, sink: impl FnMut(Passage)) -> Result<Report, ScenarioError> {
        self.run_with(&Course::default(), sink)
    }

    /// Runs the scenario with adjusted windows and events at the site.
    ///
    /// # Errors
    /// The errors of [`Scenario::check`], and parts of the course that do not exist.
    pub fn run_with(&self, course: &Course, sink: impl FnMut(Passage)) -> Result<Report, ScenarioError> {
        self.check()?;
        course.check(self)?;
        run::run(self, course, sink)
    }

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

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admission(error) => write!(f, "the gateway cannot be set so: {error}"),
            Self::Station(number) => {
                write!(f, "station {number}: it needs at least one server, and a thrash of 0 or more")
            }
            Self::Need(number) => write!(f, "load {number} needs a station that there is not"),
            Self::Queue(number) => write!(f, "load {number} is of a class or a resource type that the gateway has not"),
            Self::Demand(number) => {
                write!(
                    f,
                    "load {number} must come at a rate above 0 and up to 1e9 a second, or from users who think for some time"
                )
            }
            Self::Control(error) => write!(f, "the windows cannot be adjusted so: {error}"),
            Self::Event(number) => write!(f, "event {number} names a station or a load that there is not"),
            Self::Time => f.write_str("there is no time to measure: give it some, and less than 584 years"),
        }
    }
}

impl std::error::Error for ScenarioError {}

#[cfg(test)]
mod tests;
