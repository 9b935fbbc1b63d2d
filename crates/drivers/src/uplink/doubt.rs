//! Doubts in the rate, as they are logged.

use scheduler::{Instant, correction::Doubt};

use crate::config::UplinkRate;

/// A doubt in a given rate is logged once in this time. That one is not found is logged once.
const AGAIN_NS: u64 = 3_600_000_000_000;

/// The last doubt in the rate that was logged, and when.
#[derive(Debug, Default)]
pub(super) struct Doubts(Option<(Doubt, Instant)>);

impl Doubts {
    /// Returns true if the doubt is to be logged: it is new, or was not logged for long.
    pub fn note(&mut self, now: Instant, doubt: Option<Doubt>) -> bool {
        let Some(doubt) = doubt else { return false };
        let again_ns = if doubt == Doubt::NotFound { u64::MAX } else { AGAIN_NS };
        let is_said = self.0.is_some_and(|(said, at)| said == doubt && now.ns_since(at) < again_ns);
        if !is_said {
            self.0 = Some((doubt, now));
        }
        !is_said
    }

    /// The last one.
    pub fn last(&self) -> Option<Doubt> {
        self.0.map(|(doubt, _)| doubt)
    }
}

/// Logs that the given rate cannot be true, or that none is found.
pub(super) fn say(doubt: Option<Doubt>, rate: UplinkRate) {
    match (doubt, rate) {
        (Some(Doubt::TooHigh), UplinkRate::Given(given)) => tracing::warn!(
            %given,
            "the uplink's rate is lower than given: a queue stands behind the server, where the order has no effect, \
             though it sends at nine tenths of that rate; give a lower rate or `auto`"
        ),
        (Some(Doubt::TooLow), UplinkRate::Given(given)) => tracing::info!(
            %given,
            "the uplink's rate is higher than given: no queue shows though responses wait; give a higher rate or `auto`"
        ),
        (Some(Doubt::NotFound), _) => tracing::info!(
            "the uplink's rate is not found: no queue of it has shown in a minute of much traffic, so the order has no \
             effect; if a router with FQ-CoDel or CAKE is the bottleneck, give a rate a little below that of the router"
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_in_a_given_rate_is_logged_once_an_hour_and_that_none_is_found_once() {
        let noted = |doubt| {
            let mut doubts = Doubts::default();
            [0, 1, AGAIN_NS + 1].map(|ns| doubts.note(Instant::from_ns(ns), Some(doubt)))
        };
        assert_eq!(noted(Doubt::TooHigh), [true, false, true]);
        assert_eq!(noted(Doubt::NotFound), [true, false, false]);
        let mut doubts = Doubts::default();
        assert!(!doubts.note(Instant::from_ns(0), None));
    }
}
