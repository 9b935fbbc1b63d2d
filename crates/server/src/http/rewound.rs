//! A connection of which the first bytes were read already.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::farewell::Farewell;

/// A connection of which the first bytes were read already, and that ends as HTTP/2 connections do: acknowledgements of all kinds come
/// until the end.
#[derive(Debug)]
pub(super) struct Rewound<S> {
    inner: S,
    early: Bytes,
    farewell: Farewell,
}

impl<S> Rewound<S> {
    pub(super) fn new(inner: S, early: Bytes) -> Self {
        Self { inner, early, farewell: Farewell::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let len = self.early.len().min(buf.remaining());
        buf.put_slice(&self.early[..len]);
        self.early.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.farewell.poll(&mut this.inner, true, cx));
        Poll::Ready(Ok(()))
    }
}
