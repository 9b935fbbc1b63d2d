//! A connection to a server on which HTTP has ended.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{connect::Transport, server::InFlight};

/// A connection that carries another protocol from now on.
#[derive(Debug)]
pub struct Upgraded {
    transport: Transport,
    /// Bytes of the new protocol that were read with the head.
    early: Bytes,
    /// The request counts as under way until the connection closes.
    _in_flight: InFlight,
}

impl Upgraded {
    pub(crate) fn new(transport: Transport, early: Bytes, in_flight: InFlight) -> Self {
        Self { transport, early, _in_flight: in_flight }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return Pin::new(&mut this.transport).poll_read(cx, buf);
        }
        let len = this.early.len().min(buf.remaining());
        buf.put(this.early.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
