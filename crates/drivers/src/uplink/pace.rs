//! The rate of the pacer: found, or given and corrected.

use scheduler::{
    Instant, Rate,
    correction::{Correction, Doubt, Load},
    estimate::{Estimator, RttKind},
    uplink::UTILISATION,
};

use crate::config::{Enforce, UplinkConfig, UplinkRate};

/// What decides the rate of the pacer.
#[derive(Debug)]
pub(super) enum Pace {
    /// The rate is not known, and is found.
    Found(Box<Estimator>),
    /// The rate is given, and is corrected.
    Given(Box<Correction>),
}

impl Pace {
    /// `None` where the server does not pace.
    pub fn of(config: &UplinkConfig) -> Option<Self> {
        match (config.enforce, config.rate) {
            (Enforce::Server, UplinkRate::Auto) => {
                Some(Self::Found(Box::new(Estimator::new(config.utilisation.unwrap_or(UTILISATION)))))
            }
            (Enforce::Server, UplinkRate::Given(rate)) => {
                Some(Self::Given(Box::new(Correction::new(rate, config.utilisation))))
            }
            _ => None,
        }
    }

    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Found(estimator) => estimator.rate(),
            Self::Given(correction) => Some(correction.rate()),
        }
    }

    pub fn doubt(&self) -> Option<Doubt> {
        match self {
            Self::Found(_) => None,
            Self::Given(correction) => correction.doubt(),
        }
    }

    pub fn handle_round_trip(&mut self, now: Instant, path: u64, rtt_ns: u64, kind: RttKind, load: Load) {
        match self {
            Self::Found(estimator) => estimator.handle_round_trip(now, path, rtt_ns, kind, load.sent_bytes),
            Self::Given(correction) => correction.handle_round_trip(now, path, rtt_ns, kind, load),
        }
    }

    /// Returns true if the rate has changed.
    pub fn handle_turn(&mut self, now: Instant, load: Load) -> bool {
        let changed = match self {
            Self::Found(estimator) => estimator.handle_turn(now, load.sent_bytes, load.waits),
            Self::Given(correction) => correction.handle_turn(now, load),
        };
        if changed {
            let (phase, queue) = match self {
                Self::Found(estimator) => (estimator.phase_name(), estimator.queue(now)),
                Self::Given(correction) => (correction.phase_name(), correction.queue(now)),
            };
            let rate = self.rate().map_or_else(|| "unlimited".into(), |rate| rate.to_string());
            tracing::debug!(rate, phase, ?queue, "the uplink's rate");
        }
        changed
    }
}
