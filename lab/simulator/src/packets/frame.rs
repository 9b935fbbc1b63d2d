//! Frames between the server and its clients.

use super::connection::ConnectionId;

/// A frame on its way to a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub connection: ConnectionId,
    /// Bytes on the wire.
    pub bytes: u32,
    pub cargo: Cargo,
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    SynAck,
    /// Payload from this offset of the connection's stream; `pushed` if the server's write ended with it.
    Data {
        seq: u64,
        payload_bytes: u32,
        pushed: bool,
    },
    /// An acknowledgement or a FIN, which has no effect on the client here.
    Bare,
}
