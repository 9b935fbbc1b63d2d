//! The transport of a connection, as the gate needs it: bytes in both directions, and the facts and settings that the
//! order depends on.
//!
//! `tcp.rs` implements it for TCP sockets. Tests use a transport in memory. A protocol that multiplexes streams below
//! HTTP, such as QUIC, needs no gate: it would implement [`Peer`], and tell a flow what it has sent as the gate does.

use std::{
    fs::File,
    io,
    net::IpAddr,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use scheduler::Path;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::uplink::{ResponseRank, Teller};

/// The transport of one connection, owned by its gate.
///
/// A byte that the transport has taken can no longer be overtaken. So the gate asks leave as late as possible: only
/// when the transport would take bytes at once.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Ready when there may be something to read. A read may find nothing all the same.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready when a write may take bytes. A write may take none all the same.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether a read would find nothing now, not even the end. If so, the transport is no longer ready to read.
    fn is_empty(&self) -> bool;

    /// Limits the bytes that the transport takes and has not sent; `None`: no limit.
    ///
    /// # Errors
    ///
    /// Where the transport has no such limit. Then later bytes overtake fewer earlier ones.
    fn set_unsent_limit(&self, bytes: Option<u32>) -> io::Result<()>;

    /// Tells the kernel of what the transport sends: the last words, in the order of their bytes.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it. Then what it sends is ranked as that of any other server.
    fn tell(&self, teller: &Teller, words: &[ResponseRank]) -> io::Result<()>;

    /// Takes `ahead`, and then bytes of a part of a file, which the page cache has. Returns how many bytes it took in
    /// all. 0: it takes no bytes from this file, or the file has none there.
    fn poll_send_file(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        ahead: &[u8],
        file: &File,
        part: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        let _ = (cx, ahead, file, part);
        Poll::Ready(Ok(0))
    }

    /// The client's end of the connection, shared with the HTTP side.
    fn peer(&self) -> Arc<dyn Peer>;
}

/// The client's end of a connection and the path to it, as the transport sees them now. Each answer may cost a system
/// call.
pub trait Peer: Send + Sync {
    /// The address of the client's end.
    fn address(&self) -> Option<IpAddr>;

    /// Whether the client is still there.
    fn side(&self) -> ClientSide;

    /// Measurements of the path; `None` where the transport has none.
    fn measure(&self) -> Option<Measurements>;

    /// Payload bytes of a full segment. Costs less than [`Peer::measure`].
    fn segment_bytes(&self) -> Option<u32>;

    /// Bytes that the transport took and the client's machine has not acknowledged; `None` where the transport does not
    /// tell.
    fn unacked_bytes(&self) -> Option<u64>;

    /// Logs the state of the transport at level `debug`.
    fn log(&self, message: &'static str);
}

/// Measurements of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Measurements {
    /// The path; `None` before the first round trip was measured.
    pub path: Option<Path>,
    /// Bytes that the client's machine has acknowledged.
    pub acked_bytes: u64,
    /// Segments that it has acknowledged. The count starts again at 0 after the last number.
    pub acked_segments: u32,
    /// Acknowledgements that came without data. So does this count.
    pub bare_acks: u32,
    /// Time since the last acknowledgement, in milliseconds.
    pub last_ack_ms: u32,
    /// Time since data was last sent, in milliseconds.
    pub last_sent_ms: u32,
    /// Segments that were sent and not acknowledged.
    pub unacked_segments: u32,
}

/// A client's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSide {
    /// It may send more.
    Open,
    /// It sends nothing more. Only a write would tell whether it still reads.
    Closed,
    /// It has reset the connection, or the connection has ended.
    Gone,
}
