//! Round trips on their way to the estimator or the correction of the rate.

use std::sync::atomic::Ordering::Relaxed;

use scheduler::estimate::{EXACT_ENOUGH_NS, RttKind};

use super::Driver;

impl Driver {
    /// A round trip was measured just now. The number of the path is the same for neighbours of the client.
    pub fn handle_round_trip(&self, path: u64, rtt_ns: u64, kind: RttKind) {
        let mut state = self.state.lock();
        let (now, load) = (self.now(), state.load());
        if kind == RttKind::Exact {
            let [last, before] = &self.exact_ns;
            before.store(last.swap(now.as_ns(), Relaxed), Relaxed);
        }
        if let Some(pace) = &mut state.pace {
            pace.handle_round_trip(now, path, rtt_ns, kind, load);
        }
    }

    /// Whether round trips count that TCP has averaged. They do not while there are enough exact ones, so that the kernel
    /// need not be asked.
    pub fn takes_smoothed(&self) -> bool {
        let [_, before] = &self.exact_ns;
        self.now().as_ns().saturating_sub(before.load(Relaxed)) >= EXACT_ENOUGH_NS
    }
}
