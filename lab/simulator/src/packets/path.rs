//! The path between the bottleneck and the clients: distance, jitter, and loss.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use workload::rate::Rate;

/// The path to a group of clients, and what they accept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientPath {
    /// Round-trip time without queues, in nanoseconds; half of it in each direction.
    pub rtt_ns: u64,
    /// Standard deviation of the travel time to the clients, in nanoseconds: normal for each packet. Packets
    /// of a connection stay in order.
    pub jitter_ns: u64,
    /// Fraction of the packets to the clients that is lost.
    pub loss: f64,
    /// Payload of a full segment: 1448 with time stamps on Ethernet.
    pub segment_bytes: u32,
    /// The last part of the path, which the connections of the group share.
    pub line: Option<ClientLine>,
}

/// A client's own line, with a first-in, first-out queue before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientLine {
    /// Its rate.
    pub rate: Rate,
    /// Bytes that may wait. A packet that finds more is dropped.
    pub queue_bytes: u32,
}

impl ClientPath {
    /// On the same network: 60 us away, like two namespaces of one machine.
    pub const DIRECT: Self = Self { rtt_ns: 60_000, jitter_ns: 0, loss: 0.0, segment_bytes: 1448, line: None };

    pub(super) fn upward_ns(self) -> u64 {
        self.rtt_ns / 2
    }
}

/// The random path of one group.
#[derive(Debug)]
pub(super) struct Lane {
    path: ClientPath,
    dice: ChaCha8Rng,
    /// When the client's own line will have delivered all that it took.
    line_free_ns: u64,
}

impl Lane {
    /// All randomness comes from `seed` and `stream`; each lane has its own stream.
    pub fn new(path: ClientPath, seed: u64, stream: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(stream);
        Self { path, dice, line_free_ns: 0 }
    }

    pub fn path(&self) -> &ClientPath {
        &self.path
    }

    /// When a packet of so many bytes that is sent now arrives; `None` if it is lost. `last_due_ns` is the latest arrival
    /// on its connection.
    pub fn handle_packet(&mut self, now_ns: u64, bytes: u32, last_due_ns: &mut u64) -> Option<u64> {
        let ClientPath { rtt_ns, jitter_ns, loss, line, .. } = self.path;
        if loss > 0.0 && self.dice.random::<f64>() < loss {
            return None;
        }
        let mut travel_ns = rtt_ns - rtt_ns / 2;
        if jitter_ns > 0 {
            let deviation: f64 = StandardNormal.sample(&mut self.dice);
            // An arrival before the departure becomes 0 in the conversion.
            travel_ns = (travel_ns as f64 + deviation * jitter_ns as f64) as u64;
        }
        let mut due_ns = (*last_due_ns).max(now_ns + travel_ns);
        if let Some(ClientLine { rate, queue_bytes }) = line {
            let waits_ns = self.line_free_ns.saturating_sub(due_ns);
            if waits_ns as f64 > rate.ns_for(f64::from(queue_bytes)) {
                return None;
            }
            due_ns += waits_ns + rate.ns_for(f64::from(bytes)) as u64;
            self.line_free_ns = due_ns;
        }
        *last_due_ns = due_ns;
        Some(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn packets_of_a_connection_keep_their_order_and_mean_delay_is_half_the_round_trip() {
        let path = ClientPath { rtt_ns: 100 * MS, jitter_ns: 10 * MS, ..ClientPath::DIRECT };
        let mut lane = Lane::new(path, 1, 0);
        let (mut last_ns, mut before_ns, mut sum) = (0, 0, 0);
        for i in 0..2_000 {
            let due_ns = lane.handle_packet(i * 1_000 * MS, 1514, &mut last_ns).unwrap();
            assert!(due_ns >= before_ns);
            before_ns = due_ns;
            sum += due_ns - i * 1_000 * MS;
        }
        // Ten standard errors are 2.2 ms.
        assert!((sum / 2_000).abs_diff(50 * MS) < 2 * MS, "{sum}");
        assert_eq!(lane.handle_packet(0, 1514, &mut last_ns), Some(before_ns), "none overtakes one that left earlier");
    }

    #[test]
    fn a_clients_own_line_delivers_one_packet_after_the_other_and_drops_what_does_not_fit() {
        // A byte takes a microsecond.
        let line = ClientLine { rate: "8mbit".parse().unwrap(), queue_bytes: 2_000 };
        let path = ClientPath { rtt_ns: 10 * MS, line: Some(line), ..ClientPath::DIRECT };
        let mut lane = Lane::new(path, 1, 0);
        // Of two connections.
        let due_ms: Vec<_> = (0..5).map(|n| lane.handle_packet(0, 1_000, &mut [0, 0][n % 2])).collect();
        assert_eq!(due_ms, [Some(6 * MS), Some(7 * MS), Some(8 * MS), None, None]);
        assert_eq!(lane.handle_packet(20 * MS, 500, &mut 0), Some(25 * MS + MS / 2), "it was idle");
    }

    #[test]
    fn loss_is_what_it_is_set_to_and_the_seed_decides_which() {
        let lost = |seed| -> Vec<bool> {
            let mut lane = Lane::new(ClientPath { loss: 0.05, ..ClientPath::DIRECT }, seed, 0);
            (0..20_000).map(|now_ns| lane.handle_packet(now_ns, 1514, &mut 0).is_none()).collect()
        };
        let count = lost(1).iter().filter(|&&lost| lost).count() as f64;
        // Five standard deviations of the binomial distribution.
        assert!((count - 1000.0).abs() < 5.0 * (20_000.0f64 * 0.05 * 0.95).sqrt(), "{count}");
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }
}
