//! Flows: packets of one flow must not overtake each other; others may.

use std::collections::HashMap;

/// Identifies a flow within one group of clients and one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    client: [u8; 4],
    protocol: u8,
    /// Zeros where a packet has no ports.
    ports: [u8; 4],
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Flow {
    /// The flow of an IPv4 packet with a complete header; for others, any flow.
    pub(super) fn of(packet: &[u8], to_clients: bool) -> Self {
        let client_at = if to_clients { 16 } else { 12 };
        let protocol = packet.get(9).copied().unwrap_or_default();
        let header_bytes = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
        // Only the first fragment has ports.
        let is_first = packet.get(6..8).is_some_and(|offset| offset[0] & 0x1f == 0 && offset[1] == 0);
        let ports_at = (is_first && matches!(protocol, TCP | UDP)).then_some(header_bytes);
        Self {
            client: four(packet, client_at),
            protocol,
            ports: ports_at.map(|at| four(packet, at)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
impl Flow {
    /// A flow that differs from those of other numbers.
    pub(super) const fn from_number(number: u32) -> Self {
        Self { client: number.to_be_bytes(), protocol: TCP, ports: [0; 4] }
    }
}

fn four(packet: &[u8], at: usize) -> [u8; 4] {
    packet.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
}

/// When the last packet of each flow is due, for flows with a packet under way.
#[derive(Debug)]
pub(super) struct FlowOrder {
    last_due_ns: HashMap<Flow, u64>,
    /// Number of flows at which to remove those without packets.
    look_at: usize,
}

/// The removal takes some microseconds for this many flows.
const LOOK_AT_LEAST: usize = 1024;

impl FlowOrder {
    pub(super) fn new() -> Self {
        Self { last_due_ns: HashMap::new(), look_at: LOOK_AT_LEAST }
    }

    /// Returns when a packet arrives that could be there at `due_ns`: not before earlier packets of its flow.
    pub(super) fn handle_packet(&mut self, now_ns: u64, flow: Flow, due_ns: u64) -> u64 {
        if self.last_due_ns.len() >= self.look_at {
            self.last_due_ns.retain(|_, &mut last_ns| last_ns > now_ns);
            self.look_at = LOOK_AT_LEAST.max(2 * self.last_due_ns.len());
        }
        let last_ns = self.last_due_ns.entry(flow).or_insert(due_ns);
        *last_ns = due_ns.max(*last_ns);
        *last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header without options, and ports.
    fn packet(protocol: u8, server: [u8; 4], client: [u8; 4], ports: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[0] = 0x45;
        bytes[9] = protocol;
        bytes[12..16].copy_from_slice(&server);
        bytes[16..20].copy_from_slice(&client);
        bytes[20..24].copy_from_slice(&ports);
        bytes
    }

    const SERVER: [u8; 4] = [10, 77, 0, 1];
    const CLIENT: [u8; 4] = [10, 10, 0, 1];
    const PORTS: [u8; 4] = [0, 80, 5, 1];

    #[test]
    fn a_flow_is_a_client_a_protocol_and_ports() {
        let tcp = packet(TCP, SERVER, CLIENT, PORTS);
        let flow = Flow::of(&tcp, true);
        let others = [
            packet(TCP, SERVER, [10, 10, 0, 2], PORTS),
            packet(UDP, SERVER, CLIENT, PORTS),
            packet(TCP, SERVER, CLIENT, [0, 80, 5, 2]),
        ];
        assert!(others.iter().all(|other| Flow::of(other, true) != flow));
        // In the other direction the client's address is at the other place.
        assert_eq!(Flow::of(&tcp, false).client, SERVER);

        let mut with_options = tcp.clone();
        with_options[0] = 0x46;
        with_options.splice(20..20, [1; 4]);
        assert_eq!(Flow::of(&with_options, true), flow);
    }

    #[test]
    fn what_shows_no_ports_goes_by_client_and_protocol() {
        let mut later_fragment = packet(UDP, SERVER, CLIENT, PORTS);
        later_fragment[7] = 185;
        assert_eq!(Flow::of(&later_fragment, true), Flow { client: CLIENT, protocol: UDP, ports: [0; 4] });
        // Type, code and checksum of an echo are no ports.
        assert_eq!(Flow::of(&packet(1, SERVER, CLIENT, PORTS), true).ports, [0; 4]);
        for cut in 0..24 {
            Flow::of(&packet(TCP, SERVER, CLIENT, PORTS)[..cut], true);
        }
    }

    #[test]
    fn only_flows_with_a_packet_on_its_way_are_remembered() {
        let mut order = FlowOrder::new();
        // A new flow every microsecond, each with one packet that takes 3 ms.
        for now_ns in (0..1_000_000u64).map(|i| i * 1_000) {
            let flow = Flow::from_number((now_ns / 1_000) as u32);
            assert_eq!(order.handle_packet(now_ns, flow, now_ns + 3_000_000), now_ns + 3_000_000);
            assert!(order.last_due_ns.len() <= 2 * 3_000);
        }
        // Flows with packets under way are kept.
        let last = Flow::from_number(999_999);
        assert_eq!(order.handle_packet(1_000_000_000, last, 1_000_000_001), 1_002_999_000);
    }
}
