//! Round trips on their way to the estimator or the correction of the rate.

use std::time::Duration;

use scheduler::estimate::{RoundTrip, RttKind};

use super::Driver;

impl Driver {
    /// A round trip was measured. It counts if it ended a moment ago, and if the connection was not idle for longer than that,
    /// in nanoseconds.
    pub fn handle_round_trip(&self, round_trip: RoundTrip, idle_ns: u64) {
        let mut state = self.state.lock();
        if round_trip.age_ns.max(idle_ns) > state.machine.fresh_ns() {
            return;
        }
        let (now, load) = (self.now(), state.load());
        if let Some(pace) = &mut state.pace {
            pace.handle_round_trip(now, round_trip, load);
            if round_trip.kind != RttKind::LateData {
                self.looks.handle_measured(now, pace.looks_after_ns());
            }
        }
    }

    /// Whether so few round trips are measured that a connection is to be looked at after its last bytes: now, or within this
    /// time if none is measured until then. See [`scheduler::pace::Pace::looks_after_ns`].
    pub fn looks_within(&self, time: Duration) -> bool {
        self.looks.are_due(|| self.now().add_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// From one look at a connection to the next: what the first shows is still of use then.
    pub fn looks_every(&self) -> Duration {
        Duration::from_nanos(self.state.lock().machine.fresh_ns())
    }
}
