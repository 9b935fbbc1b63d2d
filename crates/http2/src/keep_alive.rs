//! Finds out that a client has vanished.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// Counts how often bytes have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<AtomicU64>);

impl Heard {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A transport that notes when bytes come.
#[derive(Debug)]
pub(crate) struct Listening<S> {
    inner: S,
    heard: Heard,
}

impl<S> Listening<S> {
    pub(crate) fn new(inner: S) -> (Self, Heard) {
        let heard = Heard::default();
        (Self { inner, heard: heard.clone() }, heard)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.heard.0.fetch_add(1, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
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
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Asks a client that is quiet whether it is still there.
pub(crate) struct KeepAlive {
    heard: Heard,
    /// Its count at the last look.
    seen: u64,
    pings: PingPong,
    quiet: Duration,
    patience: Duration,
    /// A ping has no answer yet.
    is_asked: bool,
    timer: Pin<Box<Sleep>>,
}

impl KeepAlive {
    pub(crate) fn new(heard: Heard, pings: PingPong, quiet: Duration, patience: Duration) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + quiet));
        Self { heard, seen: 0, pings, quiet, patience, is_asked: false, timer }
    }

    /// Ready when the client was asked and nothing has come since. Any bytes will do, because a pong may stand behind
    /// much data.
    pub(crate) fn poll_vanished(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if self.is_asked && self.pings.poll_pong(cx).is_ready() {
                self.is_asked = false;
            }
            let heard = self.heard.count();
            let next = if std::mem::replace(&mut self.seen, heard) != heard {
                self.quiet
            } else if self.is_asked {
                return Poll::Ready(());
            } else {
                // Fails only where the connection is at its end, which is found out by others.
                self.is_asked = self.pings.send_ping(Ping::opaque()).is_ok();
                self.patience
            };
            self.timer.as_mut().reset(Instant::now() + next);
        }
    }
}
