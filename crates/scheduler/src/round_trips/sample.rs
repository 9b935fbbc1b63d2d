//! A round trip, beside what the pacer had sent by then.

use crate::time::Instant;

/// A round trip that was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The number of the client.
    pub path: u64,
    pub at: Instant,
    pub sent_at: Instant,
    pub rtt_ns: u64,
    /// Excess over the shortest round trip of the path. `None` for the first samples of a path.
    pub above_ns: Option<u64>,
    /// Whether that excess is guessed: the client came a moment ago.
    pub is_guessed: bool,
    /// The queue that the pacer itself had at the bottleneck.
    pub own_ns: u64,
    pub delivered_bytes: f64,
    /// How long the uplink had been busy when the packet was sent; `None` if it was idle or nearly so.
    pub busy_ns: Option<u64>,
}
