//! Measurements of a subject.

use std::collections::BTreeMap;

use super::{outage::OutageTimes, outcome::Outcome, users::Alone, windows::WindowReading};

/// Measurements of a subject.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) outcomes: Vec<Outcome>,
    /// Each page through the gateway, without other users.
    pub(super) alone: BTreeMap<String, Alone>,
    pub(super) cut: Option<OutageTimes>,
    /// The windows over time, for a gateway that adjusts them.
    pub(super) windows: Vec<WindowReading>,
}
