//! The body of an HTTP/1.1 request, between the connection that reads it and the origin that takes it.
//!
//! *Invariant*: the two ends may be in different tasks and may move between tasks. A waiting end has left its
//! waker, and every event that ends the wait wakes it. If both ends are in one task, no wake-up is needed: the
//! connection polls the origin first and its own end after that.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// The origin's end: a body that is read from the connection only when it is polled.
#[derive(Debug)]
pub struct Upload(Arc<Mutex<Slot>>);

/// The connection's end, which supplies the body.
#[derive(Debug)]
pub struct Feed(Arc<Mutex<Slot>>);

#[derive(Debug, Default)]
struct Slot {
    next: Option<Frame<Bytes>>,
    /// The end after `next`, or the error that broke the body off. `None`: more may come.
    end: Option<Result<(), io::ErrorKind>>,
    /// Bytes to come, `next` included; `None`: the length is unknown.
    left: Option<u64>,
    /// The body was polled while `next` was empty.
    wanted: bool,
    /// Wakes the task that waits for more of the body.
    taker: Option<Waker>,
    /// Wakes the connection's task, which waits until more is asked for.
    feeder: Option<Waker>,
}

/// The next piece of a body.
#[derive(Debug)]
pub struct Piece {
    /// The data or trailers; `None`: there is only the end.
    pub frame: Option<Frame<Bytes>>,
    /// Whether the body ends after this piece.
    pub is_last: bool,
}

/// Makes both ends of a body of this length; `None`: the length is unknown.
pub fn upload(bytes: Option<u64>) -> (Feed, Upload) {
    let slot = Arc::new(Mutex::new(Slot { left: bytes, ..Slot::default() }));
    (Feed(slot.clone()), Upload(slot))
}

impl Feed {
    /// Ready when the body was polled for more. Otherwise the current task is woken when another task polls it.
    pub fn poll_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        let mut slot = self.0.lock();
        if slot.wanted {
            return Poll::Ready(());
        }
        slot.feeder.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        Poll::Pending
    }

    /// Hands over the next piece, or the error that breaks the body off. The current task is not woken: it polls
    /// the body again by itself.
    pub fn push(&self, cx: &Context<'_>, piece: Result<Piece, io::ErrorKind>) {
        let taker = {
            let mut slot = self.0.lock();
            (slot.next, slot.end) = match piece {
                Ok(Piece { frame, is_last }) => (frame, is_last.then_some(Ok(()))),
                Err(kind) => (None, Some(Err(kind))),
            };
            slot.wanted = false;
            slot.taker.take()
        };
        wake_other(taker, cx);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let taker = {
            let mut slot = self.0.lock();
            slot.end.get_or_insert(Err(io::ErrorKind::ConnectionAborted));
            slot.taker.take()
        };
        taker.into_iter().for_each(Waker::wake);
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
                slot.taker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
                let feeder = slot.feeder.take();
                drop(slot);
                wake_other(feeder, cx);
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

/// Wakes a task unless it is the current one.
fn wake_other(waker: Option<Waker>, cx: &Context<'_>) {
    if let Some(waker) = waker.filter(|waker| !waker.will_wake(cx.waker())) {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use http_body_util::BodyExt as _;
    use tokio::time::timeout;

    use super::*;

    /// Far longer than all that has to happen. The clock stands still while a task can run, so only a lost wake-up takes it.
    const LONG: Duration = Duration::from_secs(3600);

    fn piece(data: &'static str, is_last: bool) -> Piece {
        Piece { frame: Some(Frame::data(Bytes::from_static(data.as_bytes()))), is_last }
    }

    async fn push(feed: &Feed, piece: Piece) {
        let mut piece = Some(piece);
        poll_fn(|cx| {
            piece.take().into_iter().for_each(|piece| feed.push(cx, Ok(piece)));
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_tasks_wake_each_other_for_each_piece_of_a_body() {
        let (feed, upload) = upload(None);
        let taking = tokio::spawn(timeout(LONG, upload.collect()));
        // Whichever end waits first, the other one wakes it.
        for data in ["a", "b", "c"] {
            timeout(LONG, poll_fn(|cx| feed.poll_wanted(cx))).await.expect("the taker has asked");
            push(&feed, piece(data, data == "c")).await;
        }
        let body = taking.await.unwrap().expect("the connection has fed it").unwrap();
        assert_eq!(body.to_bytes(), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_the_question_is_woken_by_it() {
        let (feed, upload) = upload(None);
        let feeding = tokio::spawn(timeout(LONG, async move {
            poll_fn(|cx| feed.poll_wanted(cx)).await;
            push(&feed, piece("a", true)).await;
        }));
        // The connection's task is parked before the first question.
        tokio::task::yield_now().await;
        let body = timeout(LONG, upload.collect()).await.expect("the connection has fed it").unwrap();
        assert_eq!(body.to_bytes(), "a");
        feeding.await.unwrap().expect("it was asked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_wakes_the_task_that_waits_for_more_of_a_body() {
        let (feed, upload) = upload(Some(10));
        let taking = tokio::spawn(timeout(LONG, upload.collect()));
        tokio::task::yield_now().await;
        drop(feed);
        let error = taking.await.unwrap().expect("it is told of the end").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_moves_to_another_task_is_woken_there() {
        let (feed, mut upload) = upload(None);
        // Both ends have left the waker of this task first.
        poll_fn(|cx| {
            assert!(feed.poll_wanted(cx).is_pending());
            assert!(Pin::new(&mut upload).poll_frame(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let taking = tokio::spawn(timeout(LONG, upload.collect()));
        tokio::task::yield_now().await;
        let feeding = tokio::spawn(timeout(LONG, async move {
            for data in ["a", "b"] {
                poll_fn(|cx| feed.poll_wanted(cx)).await;
                push(&feed, piece(data, data == "b")).await;
            }
        }));
        feeding.await.unwrap().expect("it was asked");
        assert_eq!(taking.await.unwrap().expect("it was fed").unwrap().to_bytes(), "ab");
    }
}
