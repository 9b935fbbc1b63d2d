//! What decides the rate of the pacer, by the configuration.

use scheduler::{
    Instant,
    correction::{Correction, Load},
    pace::{Finder, Pace},
};

use crate::config::{Enforce, UplinkConfig, UplinkRate};

/// `None` where the server does not pace.
pub(super) fn of(config: &UplinkConfig) -> Option<Pace> {
    match (config.enforce, config.rate) {
        (Enforce::Server, UplinkRate::Auto) => Some(Pace::Found(Finder::new(config.utilisation))),
        (Enforce::Server, UplinkRate::Given(rate)) => Some(Pace::Given(Correction::new(rate, config.utilisation))),
        _ => None,
    }
}

/// Returns true if the rate has changed.
pub(super) fn turn(pace: &mut Pace, now: Instant, load: Load) -> bool {
    let changed = pace.handle_turn(now, load);
    if changed {
        let rate = pace.rate().map_or_else(|| "unlimited".into(), |rate| rate.to_string());
        tracing::debug!(rate, phase = pace.phase_name(), queue = ?pace.queue(now), "the uplink's rate");
    }
    changed
}
