//! The body of an HTTP/1.1 request, between the connection that reads it and whoever asks for it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// The body, as it is asked for. Nothing is read of it before.
#[derive(Debug)]
pub(crate) struct Upload(Arc<Mutex<Slot>>);

/// The connection's end of it.
#[derive(Debug)]
pub(crate) struct Feed(Arc<Mutex<Slot>>);

#[derive(Debug, Default)]
struct Slot {
    next: Option<Frame<Bytes>>,
    /// Nothing comes after `next`; or what went wrong.
    end: Option<Result<(), io::ErrorKind>>,
    /// Bytes to come, `next` among them; `None`: nobody knows.
    left: Option<u64>,
    /// There was nothing when it was asked for.
    wanted: bool,
    waker: Option<Waker>,
}

/// What comes next of a body.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Nothing: only its end is here.
    pub(crate) frame: Option<Frame<Bytes>>,
    pub(crate) is_last: bool,
}

/// A body of so many bytes; `None`: nobody knows how many.
pub(crate) fn upload(bytes: Option<u64>) -> (Feed, Upload) {
    let slot = Arc::new(Mutex::new(Slot { left: bytes, ..Slot::default() }));
    (Feed(slot.clone()), Upload(slot))
}

impl Feed {
    /// Whether more was asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.lock().wanted
    }

    /// The next, where it was asked for; or what went wrong. Whoever asked in this very task is to look by itself.
    pub(crate) fn push(&self, cx: &Context<'_>, piece: Result<Piece, io::ErrorKind>) {
        let mut slot = self.0.lock();
        (slot.next, slot.end) = match piece {
            Ok(Piece { frame, is_last }) => (frame, is_last.then_some(Ok(()))),
            Err(kind) => (None, Some(Err(kind))),
        };
        slot.wanted = false;
        if let Some(waker) = slot.waker.take().filter(|waker| !waker.will_wake(cx.waker())) {
            waker.wake();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        slot.end.get_or_insert(Err(io::ErrorKind::ConnectionAborted));
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut slot = self.0.lock();
        if let Some(frame) = slot.next.take() {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            slot.left = slot.left.map(|left| left.saturating_sub(bytes));
            return Poll::Ready(Some(Ok(frame)));
        }
        match slot.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(kind)) => Poll::Ready(Some(Err(kind.into()))),
            None => {
                slot.wanted = true;
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let slot = self.0.lock();
        slot.next.is_none() && slot.end == Some(Ok(()))
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
