//! The emulator without its devices: packets enter, and leave when they are due. Time is an argument.
//!
//! The driver passes packets to [`Emulator::handle_packet`], calls [`Emulator::poll_packet`] until no packet
//! is due, and waits until [`Emulator::poll_timeout`] or the next packet.

use super::{
    WanCounters,
    delay_line::DelayLine,
    flow::Flow,
    lane::{Fate, Lane, LaneSetting},
};
use crate::{bed::prefix, setting::PathSetting};

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToClients,
    ToServer,
}

/// A packet under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) direction: Direction,
    pub(super) bytes: Vec<u8>,
}

/// A packet leaves this much early. Reading, waking up and writing take about as long. Without this
/// correction every round trip is longer by the emulator's own time: 0.19 ms at the median of 500 flows at 90
/// Mbit/s.
const EARLY_NS: u64 = 60_000;

#[derive(Debug)]
pub(super) struct Emulator {
    groups: Vec<Group>,
    line: DelayLine<Packet>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    counters: WanCounters,
}

#[derive(Debug)]
struct Group {
    to_clients: Lane,
    to_server: Lane,
}

/// Most packets under way: a third of a second at 2 Gbit/s, which is more than one thread can carry.
const CAPACITY_PACKETS: usize = 1 << 16;
/// Rates count this beside the IP packet: an Ethernet header, as on the bottleneck.
const LINK_HEADER_BYTES: usize = 14;

impl Emulator {
    /// One group for each path, in their order; all randomness comes from the seed.
    pub(super) fn new(paths: &[PathSetting], seed: u64) -> Self {
        let group = |(number, path): (u64, &PathSetting)| {
            let half_ns = path.rtt_ms * 1e6 / 2.0;
            let to_clients = LaneSetting {
                delay_ns: half_ns,
                jitter_ns: path.jitter_ms * 1e6,
                loss: path.loss,
                line: path.rate.map(|rate| (rate, path.line_queue_packets())),
            };
            let to_server = LaneSetting { delay_ns: half_ns, ..LaneSetting::default() };
            Group {
                to_clients: Lane::new(to_clients, seed, 2 * number),
                to_server: Lane::new(to_server, seed, 2 * number + 1),
            }
        };
        Self {
            groups: (0..).zip(paths).map(group).collect(),
            line: DelayLine::new(CAPACITY_PACKETS),
            spare: Vec::new(),
            counters: WanCounters::new(paths.len()),
        }
    }

    /// Takes an IP packet that enters the path now. Times never go back.
    pub(super) fn handle_packet(&mut self, now_ns: u64, direction: Direction, packet: &[u8]) {
        if packet.first().is_none_or(|first| first >> 4 != 4) {
            // IPv6 hosts search for routers on every new device.
            return;
        }
        let to_clients = direction == Direction::ToClients;
        let number = prefix::group_of(packet, to_clients).unwrap_or(usize::MAX);
        let Some(group) = self.groups.get_mut(number) else {
            self.counters.strangers += 1;
            return;
        };
        let counted = &mut self.counters.groups[number];
        let (lane, counted) = match direction {
            Direction::ToClients => (&mut group.to_clients, &mut counted.to_clients),
            Direction::ToServer => (&mut group.to_server, &mut counted.to_server),
        };
        counted.packets += 1;
        counted.bytes += packet.len() as u64;
        match lane.handle_packet(now_ns, Flow::of(packet, to_clients), packet.len() + LINK_HEADER_BYTES) {
            Fate::Lost => counted.lost += 1,
            Fate::Dropped => counted.dropped += 1,
            Fate::Due(_) if self.line.is_full() => self.counters.overflows += 1,
            Fate::Due(due_ns) => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(packet);
                self.line.push(due_ns, Packet { direction, bytes });
            }
        }
    }

    /// The next packet that is due by now, or so soon that a wait for it would end late.
    pub(super) fn poll_packet(&mut self, now_ns: u64) -> Option<Packet> {
        let (due_ns, packet) = self.line.pop_due(now_ns.saturating_add(EARLY_NS))?;
        self.counters.lateness_ns.saturating_record(now_ns.saturating_sub(due_ns));
        Some(packet)
    }

    /// When to ask for the next packet; `None` without packets under way.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        Some(self.line.next_due_ns()?.saturating_sub(EARLY_NS))
    }

    /// Takes back a packet that was sent, to reuse its memory.
    pub(super) fn recycle(&mut self, packet: Packet) {
        self.spare.push(packet.bytes);
    }

    /// Counts a packet that the device refused.
    pub(super) fn handle_refusal(&mut self) {
        self.counters.refused += 1;
    }

    pub(super) fn counters(&self) -> &WanCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header and a number.
    fn packet(from: [u8; 4], to: [u8; 4], number: u8) -> Vec<u8> {
        let mut bytes = vec![0; 21];
        bytes[0] = 0x45;
        bytes[12..16].copy_from_slice(&from);
        bytes[16..20].copy_from_slice(&to);
        bytes[20] = number;
        bytes
    }

    const SERVER: [u8; 4] = [10, 77, 0, 1];
    const MS: u64 = 1_000_000;

    fn out(emulator: &mut Emulator, now_ns: u64) -> Vec<(Direction, u8)> {
        std::iter::from_fn(|| emulator.poll_packet(now_ns)).map(|packet| (packet.direction, packet.bytes[20])).collect()
    }

    #[test]
    fn each_group_has_its_own_round_trip_half_of_it_each_way() {
        let path = |rtt_ms| PathSetting { rtt_ms, ..PathSetting::default() };
        let mut emulator = Emulator::new(&[path(20.0), path(100.0)], 1);
        emulator.handle_packet(0, Direction::ToClients, &packet(SERVER, [10, 11, 0, 1], 1));
        emulator.handle_packet(0, Direction::ToServer, &packet([10, 11, 9, 9], SERVER, 2));
        emulator.handle_packet(0, Direction::ToClients, &packet(SERVER, [10, 10, 0, 1], 3));
        assert_eq!(emulator.poll_timeout(), Some(10 * MS - EARLY_NS));
        assert_eq!(out(&mut emulator, 10 * MS), [(Direction::ToClients, 3)]);
        assert_eq!(out(&mut emulator, 50 * MS - EARLY_NS - 1), []);
        let both = [(Direction::ToClients, 1), (Direction::ToServer, 2)];
        assert_eq!(out(&mut emulator, 50 * MS - EARLY_NS), both);
        assert_eq!(emulator.poll_timeout(), None);
        let groups = &emulator.counters().groups;
        assert_eq!((groups[0].to_clients.packets, groups[0].to_server.packets), (1, 0));
        assert_eq!((groups[1].to_clients.bytes, groups[1].to_server.bytes), (21, 21));
    }

    #[test]
    fn loss_and_the_line_are_on_the_way_to_the_clients_only() {
        let path = PathSetting { loss: 0.5, rate: "800kbit".parse().ok(), ..PathSetting::default() };
        let mut emulator = Emulator::new(&[path], 1);
        for _ in 0..1000 {
            emulator.handle_packet(0, Direction::ToClients, &packet(SERVER, [10, 10, 0, 1], 1));
            emulator.handle_packet(0, Direction::ToServer, &packet([10, 10, 0, 1], SERVER, 2));
        }
        let left = out(&mut emulator, 0);
        assert_eq!(left, [(Direction::ToServer, 2); 1000], "the line takes a while for its packets");
        let counted = emulator.counters().groups[0];
        assert!((400..600).contains(&counted.to_clients.lost) && counted.to_clients.dropped > 0);
        assert_eq!((counted.to_server.lost, counted.to_server.dropped), (0, 0));
    }

    #[test]
    fn lateness_is_counted_from_when_a_packet_was_due() {
        let mut emulator = Emulator::new(&[PathSetting { rtt_ms: 2.0, ..PathSetting::default() }], 1);
        emulator.handle_packet(0, Direction::ToClients, &packet(SERVER, [10, 10, 0, 1], 1));
        assert_eq!(out(&mut emulator, 4 * MS).len(), 1);
        let facts = emulator.counters().facts();
        assert!((2_950.0..3_050.0).contains(&facts.lateness_max_us), "{facts:?}");
    }

    #[test]
    fn packets_of_nobody_are_counted_and_go_nowhere() {
        let mut emulator = Emulator::new(&[PathSetting::default()], 1);
        emulator.handle_packet(0, Direction::ToClients, &packet(SERVER, [10, 11, 0, 1], 1));
        emulator.handle_packet(0, Direction::ToServer, &packet([10, 77, 1, 2], SERVER, 1));
        assert_eq!(emulator.counters().strangers, 2);
        for other in [&[0x60; 40][..], &[0x45], &[]] {
            emulator.handle_packet(0, Direction::ToServer, other);
        }
        assert_eq!((emulator.counters().strangers, emulator.poll_timeout()), (3, None), "not IPv4, cut off, empty");
    }
}
