//! Counters of the emulator: its effects on each group, and its precision.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Counters since the emulator's start.
#[derive(Clone, Debug)]
pub struct WanCounters {
    /// By group.
    pub groups: Vec<GroupCounters>,
    /// IPv4 packets that belong to no group; they were discarded.
    pub strangers: u64,
    /// Packets discarded because too many were under way.
    pub overflows: u64,
    /// Packets that the device at the other end refused.
    pub refused: u64,
    /// Packets that the devices dropped because the emulator did not read them in time.
    pub unread: u64,
    /// Lateness of each packet, in nanoseconds.
    pub(super) lateness_ns: Histogram<u64>,
}

/// A group's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounters {
    /// On their way to the clients.
    pub to_clients: LaneCounters,
    /// On their way to the server.
    pub to_server: LaneCounters,
}

/// Packets in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounters {
    /// Packets that entered, also those lost later.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on.
    pub bytes: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets dropped at the full queue of the group's line.
    pub dropped: u64,
}

/// The counters as written to reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WanFacts {
    /// By group.
    pub groups: Vec<GroupCounters>,
    /// IPv4 packets that belong to no group; they were discarded.
    pub strangers: u64,
    /// Packets discarded because too many were under way.
    pub overflows: u64,
    /// Packets that the device at the other end refused.
    pub refused: u64,
    /// Packets that the devices dropped because the emulator did not read them in time.
    pub unread: u64,
    /// Median lateness of packets, in microseconds.
    pub lateness_p50_us: f64,
    /// 99th percentile of the lateness, in microseconds.
    pub lateness_p99_us: f64,
    /// Largest lateness, in microseconds.
    pub lateness_max_us: f64,
}

/// Longest recorded lateness.
const LONGEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;

impl WanCounters {
    pub(super) fn new(groups: usize) -> Self {
        let lateness_ns = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Self {
            groups: vec![GroupCounters::default(); groups],
            strangers: 0,
            overflows: 0,
            refused: 0,
            unread: 0,
            lateness_ns: lateness_ns.expect("the bounds are constants that a histogram can have"),
        }
    }

    /// Differences since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut lateness_ns = self.lateness_ns.clone();
        lateness_ns.subtract(&before.lateness_ns).expect("counters of the same emulator only grow");
        Self {
            groups: self.groups.iter().zip(&before.groups).map(|(now, before)| now.since(before)).collect(),
            strangers: self.strangers - before.strangers,
            overflows: self.overflows - before.overflows,
            refused: self.refused - before.refused,
            unread: self.unread.saturating_sub(before.unread),
            lateness_ns,
        }
    }

    /// The counters as written to reports.
    pub fn facts(&self) -> WanFacts {
        let late_us = |quantile| self.lateness_ns.value_at_quantile(quantile) as f64 / 1e3;
        WanFacts {
            groups: self.groups.clone(),
            strangers: self.strangers,
            overflows: self.overflows,
            refused: self.refused,
            unread: self.unread,
            lateness_p50_us: late_us(0.5),
            lateness_p99_us: late_us(0.99),
            lateness_max_us: late_us(1.0),
        }
    }
}

impl GroupCounters {
    fn since(&self, before: &Self) -> Self {
        Self {
            to_clients: self.to_clients.since(&before.to_clients),
            to_server: self.to_server.since(&before.to_server),
        }
    }
}

impl LaneCounters {
    fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            lost: self.lost - before.lost,
            dropped: self.dropped - before.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_does_not_count() {
        let mut counters = WanCounters::new(1);
        counters.groups[0].to_clients = LaneCounters { packets: 10, bytes: 1000, lost: 2, dropped: 1 };
        counters.lateness_ns.record_n(5_000_000, 10).unwrap();
        let before = counters.clone();
        counters.groups[0].to_clients.packets += 5;
        counters.strangers += 1;
        counters.unread += 3;
        counters.lateness_ns.record_n(10_000, 99).unwrap();
        counters.lateness_ns.record(200_000).unwrap();

        let facts = counters.since(&before).facts();
        assert_eq!(facts.groups[0].to_clients, LaneCounters { packets: 5, ..LaneCounters::default() });
        assert_eq!((facts.strangers, facts.unread), (1, 3));
        // To two digits.
        assert!((facts.lateness_p50_us - 10.0).abs() < 0.2 && (facts.lateness_p99_us - 10.0).abs() < 0.2);
        assert!((facts.lateness_max_us - 200.0).abs() < 4.0, "{facts:?}");
    }
}
