//! The source of the pacer's rate, by the configuration.

use scheduler::{
    Instant, Rate,
    class::Class,
    correction::{Correction, Load},
    lease::{Line, Times},
    pace::{Finder, Leased, Pace},
    share::Policy,
    uplink::ClassShare,
};

use crate::config::{Enforce, UplinkConfig, UplinkRate};

/// `None` where the server does not pace.
pub(super) fn of(now: Instant, config: &UplinkConfig, share: Option<&ClassShare>) -> Option<Pace> {
    if let Some(whole) = line_rate(config) {
        let (policy, classes) = division(share);
        return Some(Pace::Leased(Leased::new(now, Line::new(now, Times::DEFAULT, whole, policy, classes))));
    }
    match (config.enforce, config.rate) {
        (Enforce::Server, UplinkRate::Auto) => Some(Pace::Found(Finder::new(config.utilisation))),
        (Enforce::Server, UplinkRate::Given(rate)) => Some(Pace::Given(Correction::new(rate, config.utilisation))),
        _ => None,
    }
}

/// Follows a changed configuration; `before` is the one in force. Returns true if the pace begins anew.
pub(super) fn follow(
    pace: &mut Option<Pace>,
    now: Instant,
    before: &UplinkConfig,
    config: &UplinkConfig,
    share: Option<&ClassShare>,
) -> bool {
    if let (Some(Pace::Leased(leased)), Some(whole), true) = (&mut *pace, line_rate(config), before.line == config.line)
    {
        let (policy, classes) = division(share);
        leased.line.handle_settings(now, whole, policy, classes);
        return false;
    }
    let paced_by = |config: &UplinkConfig| (config.enforce, config.rate, config.utilisation, config.line.clone());
    let changed = paced_by(before) != paced_by(config);
    if changed {
        *pace = of(now, config, share);
    }
    changed
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

/// The rate of a line that several gateways send through, as far as it is used.
fn line_rate(config: &UplinkConfig) -> Option<Rate> {
    match (config.enforce, config.rate, &config.line) {
        (Enforce::Server, UplinkRate::Given(rate), Some(_)) => Some(rate.scaled(config.utilisation.unwrap_or(1.0))),
        _ => None,
    }
}

/// How a line is divided between the classes of all gateways.
fn division(share: Option<&ClassShare>) -> (Policy, &[Class]) {
    share.map_or((Policy::Weighted, &[]), |share| (share.policy, &share.classes))
}
