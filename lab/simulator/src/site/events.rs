//! Events of a run beyond its scenario.

use scheduler::control;

use super::{
    error::ScenarioError,
    scenario::{Need, Scenario},
    station::Curve,
};

/// The controller of the windows, and the events at the site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    /// Settings of the controller; `None` for constant windows.
    pub control: Option<control::Settings>,
    /// The needs of a probing request of each resource type. One without needs is answered at once.
    pub probes: Vec<Vec<Need>>,
    /// The events, by time.
    pub at_site: Vec<Event>,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Its time, in nanoseconds since the start.
    pub at_ns: u64,
    /// The event itself.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind {
    /// A station gets this curve and this pace: 1 as the curve says, 0 stops it.
    Curve {
        /// Its number.
        station: usize,
        /// The new curve.
        curve: Curve,
        /// The factor of its speed.
        pace: f64,
    },
    /// Requests that come to a station end at once with an error, or no longer do.
    Failing {
        /// Its number.
        station: usize,
        /// Whether they fail.
        failing: bool,
    },
    /// A load's clients send requests, or stop.
    Asking {
        /// Its number.
        load: usize,
        /// Whether they send requests.
        asking: bool,
    },
}

impl Events {
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        if let Some(control) = &self.control {
            control.check().map_err(ScenarioError::Control)?;
        }
        let stations = scenario.stations.len();
        for (number, event) in self.at_site.iter().enumerate() {
            let known = match event.kind {
                EventKind::Curve { station, curve, pace } => {
                    curve.check(station)?;
                    station < stations && pace.is_finite() && pace >= 0.0
                }
                EventKind::Failing { station, .. } => station < stations,
                EventKind::Asking { load, .. } => load < scenario.loads.len(),
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
