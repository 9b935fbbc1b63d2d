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

pub mod delays;
mod error;
mod events;
mod finished;
pub mod listen_stage;
pub mod overload;
pub mod promises;
mod run;
mod scenario;
mod station;
mod tally;
pub mod windows;

pub use self::{
    error::ScenarioError,
    events::{Event, EventKind, Events},
    finished::{End, FinishedRequest},
    scenario::{Demand, Law, Load, Need, Scenario},
    station::{Curve, Site, Station, Visit},
    tally::{Report, StationUse, Tally, WindowUse},
};

impl Scenario {
    /// Runs the scenario. `sink` gets every finished request, by time, with the warm-up.
    ///
    /// # Errors
    /// The errors of [`Scenario::check`].
    pub fn run(&self, sink: impl FnMut(FinishedRequest)) -> Result<Report, ScenarioError> {
        self.run_with(&Events::default(), sink)
    }

    /// Runs the scenario with adjusted windows and events at the site.
    ///
    /// # Errors
    /// The errors of [`Scenario::check`], and events at parts that do not exist.
    pub fn run_with(&self, events: &Events, sink: impl FnMut(FinishedRequest)) -> Result<Report, ScenarioError> {
        self.check()?;
        events.check(self)?;
        run::run(self, events, sink)
    }
}

#[cfg(test)]
mod tests;
