//! A site of several resources behind the gateway's admission.
//!
//! The site is a network of stations (processor, disk, database) that each share their capacity evenly among the requests
//! present, and that thrash when there are too many: see [`Station`]. Before it stands [`scheduler::admission`], the very
//! one that the server has. Requests come from [`Load`]s: at random moments (open), or from users who wait for the answer
//! and think before they ask again (closed).
//!
//! One seed decides everything, and each load and each user has a random stream of its own: what they ask for does not
//! depend on how the gateway is set.
//!
//! ```
//! use scheduler::{
//!     admission::{ResourceId, Settings},
//!     class::{Class, ClassId},
//!     share::Policy,
//! };
//! use serpent_simulator::site::{Demand, Law, Load, Need, Scenario, Station};
//!
//! // A database that does no more than 4 queries at once well, and 200 users who ask for 50 ms of it again and again.
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

/// A site, who asks it for what, and how the gateway before it is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The stations of the site.
    pub stations: Vec<Station>,
    /// Who asks for what.
    pub loads: Vec<Load>,
    /// The gateway.
    pub admission: Settings,
    /// What ends before this does not count, in nanoseconds.
    pub warm_up_ns: u64,
    /// What ends within so many nanoseconds after that counts; then the run is over.
    pub measured_ns: u64,
    /// Decides everything that is random.
    pub seed: u64,
}

/// Requests of one kind from one kind of client.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Whose requests they are.
    pub class: ClassId,
    /// Which resource type they are classified as.
    pub resource: ResourceId,
    /// What each needs of the site, one after the other. The sum of the means is what admission is told to expect.
    pub needs: Vec<Need>,
    /// When they come.
    pub demand: Demand,
    /// A client whose request has not ended after so many nanoseconds gives it up.
    pub patience_ns: Option<u64>,
    /// From when until when nobody asks, in nanoseconds. Users who would have asked then do so at its end, all at once.
    pub silent_ns: Option<Range<u64>>,
}

/// Work at a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Number of the station.
    pub station: usize,
    /// Nanoseconds of one server, on average.
    pub mean_ns: u64,
    /// How it varies.
    pub law: Law,
}

/// How a duration varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Always the mean.
    Fixed,
    /// Exponentially distributed.
    Exponential,
    /// Lognormally distributed, with a standard deviation of so many per cent of the mean.
    Spread(u32),
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// At random moments (Poisson), so many a second, whatever becomes of them. All count as of one client.
    Open {
        /// Mean number a second.
        per_second: f64,
    },
    /// From users, each a client of its own, who think for an exponentially distributed time, ask, and wait for the end of
    /// it: done, refused or given up.
    Closed {
        /// How many.
        users: u32,
        /// Mean time of thinking, in nanoseconds.
        think_ns: u64,
    },
}

/// Why a scenario cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioError {
    /// The gateway's settings contradict themselves.
    Admission(SettingsError),
    /// The station has no server, or its thrash is negative or no number.
    Station(usize),
    /// The load needs a station that does not exist.
    Need(usize),
    /// The load is of a class or a resource type that the gateway does not have.
    Queue(usize),
    /// The load's rate is not a number above 0 and up to one a nanosecond, or its users do not think: refused ones would ask
    /// again without end.
    Demand(usize),
    /// The windows cannot be adjusted so.
    Control(control::SettingsError),
    /// What happens at this place of the course names a station or a load that there is not.
    Event(usize),
    /// Nothing is measured: the time is 0, or beyond the 584 years that can be counted.
    Time,
}

impl Scenario {
    /// Runs it. `sink` is given every request that ends, by time, warm-up and all.
    ///
    /// # Errors
    /// What [`Scenario::check`] finds.
    pub fn run(&self, sink: impl FnMut(Passage)) -> Result<Report, ScenarioError> {
        self.run_with(&Course::default(), sink)
    }

    /// The same, with windows that are adjusted, and a site to which something happens.
    ///
    /// # Errors
    /// What [`Scenario::check`] finds, and what the course names and there is not.
    pub fn run_with(&self, course: &Course, sink: impl FnMut(Passage)) -> Result<Report, ScenarioError> {
        self.check()?;
        course.check(self)?;
        run::run(self, course, sink)
    }

    /// Finds what cannot be run.
    ///
    /// # Errors
    /// The first thing that is wrong, with its number.
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
                // Beyond that there would be no time between two.
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
