//! Connects h2 with the socket, and with the loop that polls it.

use std::{
    cell::Cell,
    io::{self, ErrorKind},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::transport::Transport;

/// The state of the socket as the connection's owner sees it; h2 owns the socket.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Bytes that may still be read in this turn.
    left: Cell<usize>,
    has_more: Cell<bool>,
    heard: Cell<bool>,
    ended: Cell<bool>,
}

impl Link {
    /// Allows this many bytes to be read.
    pub(super) fn begin_turn(&self, bytes: usize) {
        self.left.set(bytes);
        self.has_more.set(false);
    }

    /// Whether the turn's limit was reached before the socket was empty.
    pub(super) fn has_more(&self) -> bool {
        self.has_more.get()
    }

    /// Whether the server ever sent anything.
    pub(super) fn was_heard(&self) -> bool {
        self.heard.get()
    }

    /// Whether the server has closed the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get()
    }
}

/// The transport in h2's interface. "Pending" wakes no task; the socket's next event polls again.
#[derive(Debug)]
pub(super) struct Io {
    transport: Transport,
    link: Rc<Link>,
}

impl Io {
    pub(super) fn new(transport: Transport, link: Rc<Link>) -> Self {
        Self { transport, link }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.link.left.get() == 0 {
            self.link.has_more.set(true);
            return Poll::Pending;
        }
        // TLS may have more to send than its socket accepted; h2 does not know this.
        if let Poll::Ready(Err(error)) = ready(self.transport.flush()) {
            return Poll::Ready(Err(error));
        }
        let room = buffer.initialize_unfilled();
        let most = room.len().min(self.link.left.get());
        ready(self.transport.read(&mut room[..most])).map_ok(|n| {
            buffer.advance(n);
            self.link.left.update(|left| left - n);
            self.link.heard.set(true);
            self.link.ended.set(n == 0);
        })
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready(self.transport.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready(self.transport.flush())
    }

    /// The socket is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

fn ready<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

/// Records which streams asked to be polled again. As a waker itself: the connection.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    connection: AtomicBool,
    streams: Mutex<Vec<usize>>,
}

impl Wakes {
    /// Clears the connection's mark.
    pub(super) fn reset(&self) {
        self.connection.store(false, Ordering::Relaxed);
    }

    /// Whether the connection, or a stream, asked.
    pub(super) fn is_set(&self) -> bool {
        self.connection.load(Ordering::Relaxed) || !self.streams().is_empty()
    }

    /// The requests whose streams asked.
    pub(super) fn take_streams(&self) -> Vec<usize> {
        std::mem::take(&mut *self.streams())
    }

    /// A waker for the stream of this request.
    pub(super) fn for_stream(self: &Arc<Self>, ask: usize) -> Waker {
        Waker::from(Arc::new(WakeStream { ask, wakes: Arc::clone(self) }))
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.connection.store(true, Ordering::Relaxed);
    }
}

struct WakeStream {
    ask: usize,
    wakes: Arc<Wakes>,
}

impl Wake for WakeStream {
    fn wake(self: Arc<Self>) {
        self.wakes.streams().push(self.ask);
    }
}
