//! Round trips on their way to the estimator or the correction of the rate.

use scheduler::estimate::RttKind;

use super::Driver;

impl Driver {
    /// A round trip was measured just now. `path` is a number of the client. Those of its neighbours
    /// differ in the lowest 16 bits.
    pub fn handle_round_trip(&self, path: u64, rtt_ns: u64, kind: RttKind) {
        let mut state = self.state.lock();
        let (now, load) = (self.now(), state.load());
        if let Some(pace) = &mut state.pace {
            pace.handle_round_trip(now, path, rtt_ns, kind, load);
        }
    }
}
