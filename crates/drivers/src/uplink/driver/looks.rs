//! When connections are looked at after their last bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use scheduler::Instant;

/// When looks are due. Read for each response, so it is kept outside of the lock.
#[derive(Debug)]
pub(super) struct Looks {
    /// In nanoseconds; [`NEVER`]: none are.
    from_ns: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Looks {
    /// None are due.
    pub fn new() -> Self {
        Self { from_ns: AtomicU64::new(NEVER) }
    }

    /// The rate has come or gone. See [`scheduler::pace::Pace::looks_after_ns`].
    pub fn handle_rate(&self, after_ns: Option<u64>) {
        if after_ns.is_none() {
            self.from_ns.store(NEVER, Ordering::Relaxed);
        } else if self.from_ns.load(Ordering::Relaxed) == NEVER {
            self.from_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A round trip was measured.
    pub fn handle_measured(&self, now: Instant, after_ns: Option<u64>) {
        let from_ns = after_ns.map_or(NEVER, |after_ns| now.add_ns(after_ns).as_ns());
        self.from_ns.store(from_ns, Ordering::Relaxed);
    }

    /// Whether they are due then.
    pub fn are_due(&self, at: impl FnOnce() -> Instant) -> bool {
        let from_ns = self.from_ns.load(Ordering::Relaxed);
        from_ns != NEVER && from_ns <= at().as_ns()
    }
}
