//! A connection to a server on which HTTP has ended, or a stream of HTTP/2 that carries another protocol.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bodies::BodyReader;
use bytes::{BufMut as _, Bytes};
use http2::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::{connect::Transport, pool::Stream, server::InFlight, upload::Upload};

/// A connection that carries another protocol from now on.
#[derive(Debug)]
pub struct Upgraded {
    io: Io,
    /// The request counts as under way until the connection closes.
    _in_flight: InFlight,
}

#[derive(Debug)]
enum Io {
    Connection {
        transport: Transport,
        /// Bytes of the new protocol that were read with the head.
        early: Bytes,
    },
    Stream(Box<OverHttp2>),
}

/// A stream of HTTP/2 that carries another protocol.
#[derive(Debug)]
pub(crate) struct OverHttp2 {
    pub(crate) reader: BodyReader<Incoming>,
    /// Where the body of the request comes from.
    pub(crate) writer: DuplexStream,
    pub(crate) _upload: Option<Upload>,
    pub(crate) _stream: Stream,
}

impl Upgraded {
    pub(crate) fn new(transport: Transport, early: Bytes, in_flight: InFlight) -> Self {
        Self { io: Io::Connection { transport, early }, _in_flight: in_flight }
    }

    pub(crate) fn over_http2(stream: OverHttp2, in_flight: InFlight) -> Self {
        Self { io: Io::Stream(Box::new(stream)), _in_flight: in_flight }
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        match &mut self.io {
            Io::Connection { transport, .. } => Pin::new(transport),
            Io::Stream(stream) => Pin::new(&mut stream.writer),
        }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Connection { transport, early } if early.is_empty() => Pin::new(transport).poll_read(cx, buf),
            Io::Connection { early, .. } => {
                let len = early.len().min(buf.remaining());
                buf.put(early.split_to(len));
                Poll::Ready(Ok(()))
            }
            Io::Stream(stream) => Pin::new(&mut stream.reader).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }
}
