//! The cost of a response on the wire: the unit of load, of link use and of the ideal.

use serde::{Deserialize, Serialize};

/// Bytes that a response and its connection put on the server's uplink, counted as Linux's shapers count
/// them: whole Ethernet frames without preamble and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireModel {
    /// Bytes of the response head.
    pub head_bytes: u64,
    /// Bytes of TCP payload in a full segment.
    pub segment_bytes: u64,
    /// Bytes of Ethernet (14), IPv4 (20) and TCP with time stamps (32) in front of each segment.
    pub overhead_bytes: u64,
    /// Bytes of the frames without payload that the server sends for a request.
    pub control_bytes: u64,
}

impl WireModel {
    /// A new connection for each request: SYN-ACK (74), acknowledgement of the request, FIN, and
    /// acknowledgement of the client's FIN (66 each). Measured with nginx: within 1 % of the shaper's byte
    /// count.
    pub const PER_CONNECTION: Self =
        Self { head_bytes: 250, segment_bytes: 1448, overhead_bytes: 66, control_bytes: 74 + 3 * 66 };
    /// Many requests per connection: the acknowledgement is part of the response, the handshake is neglected.
    pub const KEPT_ALIVE: Self = Self { control_bytes: 0, ..Self::PER_CONNECTION };
    /// The body alone, without headers and framing.
    pub const BODY_ONLY: Self = Self { head_bytes: 0, segment_bytes: 1448, overhead_bytes: 0, control_bytes: 0 };

    /// Bytes on the wire for a response with a body of `size_bytes`.
    pub fn bytes_for(&self, size_bytes: u64) -> u64 {
        let payload = self.head_bytes + size_bytes;
        payload + payload.div_ceil(self.segment_bytes) * self.overhead_bytes + self.control_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_one_segment_and_of_two() {
        let wire = WireModel::PER_CONNECTION;
        assert_eq!(wire.bytes_for(1000), 1250 + 66 + 272);
        assert_eq!(wire.bytes_for(1448 - 250), 1448 + 66 + 272);
        assert_eq!(wire.bytes_for(1448 - 250 + 1), 1449 + 2 * 66 + 272);
        assert_eq!(WireModel::BODY_ONLY.bytes_for(123_456), 123_456);
    }
}
