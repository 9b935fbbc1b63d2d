//! Round trips on their way to the estimator or the correction of the rate.

use scheduler::estimate::RoundTrip;

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
        }
    }
}
