//! Doubts in a given rate, as they are logged.

use scheduler::{Instant, correction::Doubt};

use crate::config::UplinkRate;

/// A doubt in the given rate is logged once in this time.
const AGAIN_NS: u64 = 3_600_000_000_000;

/// The last doubt in the given rate that was logged, and when.
#[derive(Debug, Default)]
pub(super) struct Doubts(Option<(Doubt, Instant)>);

impl Doubts {
    /// Returns true if the doubt is to be logged: it is new, or was not logged for long.
    pub fn note(&mut self, now: Instant, doubt: Option<Doubt>) -> bool {
        let Some(doubt) = doubt else { return false };
        let is_said = self.0.is_some_and(|(said, at)| said == doubt && now.ns_since(at) < AGAIN_NS);
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

/// Logs that the given rate cannot be true.
pub(super) fn say(doubt: Option<Doubt>, rate: UplinkRate) {
    let UplinkRate::Given(given) = rate else { return };
    match doubt {
        Some(Doubt::TooHigh) => tracing::warn!(
            %given,
            "the uplink's rate is lower than given: a queue stands behind the server, where the order has no effect, \
             though it sends at nine tenths of that rate; give a lower rate or `auto`"
        ),
        Some(Doubt::TooLow) => tracing::info!(
            %given,
            "the uplink's rate is higher than given: no queue shows though responses wait; give a higher rate or `auto`"
        ),
        None => {}
    }
}
