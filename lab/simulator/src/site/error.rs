//! The reasons why a scenario cannot be run.

use std::fmt;

use scheduler::{admission::SettingsError, control};

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
