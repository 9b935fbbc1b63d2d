//! What happens in a run beyond its scenario.

use scheduler::control;

use super::{Curve, Need, Scenario, ScenarioError};

/// Who adjusts the windows, and what happens to the site meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Who adjusts the windows; `None` for nobody.
    pub control: Option<control::Settings>,
    /// What a probing request of each resource type needs. One that needs nothing is answered at once.
    pub probes: Vec<Vec<Need>>,
    /// What happens, by time.
    pub events: Vec<Event>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, in nanoseconds since the start.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// From now on a station does its work so, at this pace: 1 as the curve says, 0 not at all.
    Curve {
        /// Its number.
        station: usize,
        /// How it does its work.
        curve: Curve,
        /// The factor.
        pace: f64,
    },
    /// From now on requests that come to a station end there at once, with an error; or no more.
    Failing {
        /// Its number.
        station: usize,
        /// Whether they do.
        failing: bool,
    },
    /// From now on a load's clients ask, or they do not.
    Asking {
        /// Its number.
        load: usize,
        /// Whether they do.
        asking: bool,
    },
}

impl Course {
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        if let Some(control) = &self.control {
            control.check().map_err(ScenarioError::Control)?;
        }
        let stations = scenario.stations.len();
        for (number, event) in self.events.iter().enumerate() {
            let known = match event.what {
                What::Curve { station, curve, pace } => {
                    curve.check(station)?;
                    station < stations && pace.is_finite() && pace >= 0.0
                }
                What::Failing { station, .. } => station < stations,
                What::Asking { load, .. } => load < scenario.loads.len(),
            };
            if !known {
                return Err(ScenarioError::Event(number));
            }
        }
        match self.probes.iter().flatten().find(|need| need.station >= stations) {
            Some(need) => Err(ScenarioError::Station(need.station)),
            None => Ok(()),
        }
    }
}
