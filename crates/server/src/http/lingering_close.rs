//! The end of a connection.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A closed connection whose client is still sending is read for so long, and up to so many bytes. Closing a socket
/// with unread bytes would reset it, and discard the bytes that were not sent yet (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u32 = 4 * 1024 * 1024;
/// For the last bytes of a transport that is shut down (the TLS alert).
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 2048;

/// How far the end of a connection has come.
#[derive(Debug, Default)]
pub(super) struct LingeringClose {
    /// Our side is closed.
    shut: bool,
    thrown_away: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl LingeringClose {
    /// Ends our side, and then reads what the client still sends, where `lingers` says that this is to be expected.
    pub(super) fn poll<S>(&mut self, transport: &mut S, lingers: bool, cx: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.shut {
            match Pin::new(&mut *transport).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(SHUTDOWN_TIMEOUT)));
                    return timer.as_mut().poll(cx);
                }
            }
            self.shut = true;
            self.timer = None;
        }
        if !lingers {
            return Poll::Ready(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut bytes = [0; READ_BYTES];
        while self.thrown_away < LINGER_BYTES {
            let mut buf = ReadBuf::new(&mut bytes);
            let Poll::Ready(read) = Pin::new(&mut *transport).poll_read(cx, &mut buf) else {
                return timer.as_mut().poll(cx);
            };
            if read.is_err() || buf.filled().is_empty() {
                break;
            }
            // At most [`READ_BYTES`].
            self.thrown_away += buf.filled().len() as u32;
        }
        Poll::Ready(())
    }
}
