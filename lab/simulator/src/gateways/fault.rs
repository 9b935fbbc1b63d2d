//! The faults of a simulation.

use std::ops::Range;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A fault, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// From when to when, in nanoseconds.
    pub during_ns: Range<u64>,
    /// The fault.
    pub kind: FaultKind,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// These gateways cannot reach the store: their messages are lost without a sign.
    Split(Range<u32>),
    /// A gateway stands still, and then goes on where it was.
    Pause(u32),
    /// A gateway is killed, and started anew. The site finishes its requests.
    Kill(u32),
    /// The store is gone, and refuses connections. It comes back with what it knew this many nanoseconds before its end;
    /// `None`: without any memory.
    Store(Option<u64>),
}

impl Fault {
    /// Random faults of up to two seconds each, one after the other with time to settle.
    pub fn random(seed: u64, gateways: u32, from_ns: u64, until_ns: u64) -> Vec<Self> {
        const LONGEST_NS: u64 = 2_000_000_000;
        const SETTLE_NS: u64 = 6_000_000_000;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut faults = Vec::new();
        let mut at_ns = from_ns;
        loop {
            let begin_ns = at_ns + random.random_range(0..1_000_000_000);
            let end_ns = begin_ns + random.random_range(1_000_000..LONGEST_NS);
            if end_ns + SETTLE_NS > until_ns {
                return faults;
            }
            let gateway = random.random_range(0..gateways);
            let kind = match random.random_range(0..5) {
                0 => FaultKind::Split(gateway..random.random_range(gateway..gateways) + 1),
                1 => FaultKind::Pause(gateway),
                2 => FaultKind::Kill(gateway),
                3 => FaultKind::Store(None),
                _ => FaultKind::Store(Some(50_000_000)),
            };
            faults.push(Self { during_ns: begin_ns..end_ns, kind });
            at_ns = end_ns + SETTLE_NS;
        }
    }
}
