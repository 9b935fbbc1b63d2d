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

#[cfg(test)]
impl Sample {
    /// A packet to a client one millisecond away, which is known, that was sent then and met this queue.
    pub fn met(path: u64, sent_at: Instant, queue_ns: u64) -> Self {
        let rtt_ns = queue_ns + crate::time::MS;
        Self {
            path,
            at: sent_at.add_ns(rtt_ns),
            sent_at,
            rtt_ns,
            above_ns: Some(queue_ns),
            is_guessed: false,
            own_ns: 0,
            delivered_bytes: 0.0,
            busy_ns: None,
        }
    }
}
