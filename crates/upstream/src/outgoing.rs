//! A request's body while it is sent.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bodies::RequestBody;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

/// Most bytes of a streamed body that are kept to be sent again, to a server that certainly has not seen the first ones.
const MOST_KEPT: usize = 64 * 1024;

/// How long a server may take to say that it wants a body (RFC 9110, section 10.1.1). Servers that know the field
/// answer at once.
const EXPECTATION: Duration = Duration::from_secs(1);

/// Most bytes handed on at once. Small pieces show how much the upstream has taken.
const PIECE: usize = 64 * 1024;

/// The state of a request's body while it is sent, shared by the body and the watch of its exchange.
#[derive(Debug)]
pub(crate) struct RequestBodyState {
    start: Instant,
    /// The body waits for more data from the client.
    waits_for_client: AtomicBool,
    /// When a piece of the body was last taken, in nanoseconds since `start`.
    taken: AtomicU64,
    /// The sender has dropped the body or read it to its end.
    done: AtomicBool,
    /// The error that broke the body off.
    pub(crate) error: Mutex<Option<io::Error>>,
    expectation: Mutex<Expectation>,
}

/// Whether the server wants a body that its client has announced by `Expect: 100-continue`.
#[derive(Debug, Default)]
enum Expectation {
    /// It does, or it was not asked.
    #[default]
    Wanted,
    /// It has not said so. With what waits for it.
    Awaited(Option<Waker>),
    /// It has answered without the body.
    Refused,
}

impl RequestBodyState {
    pub(crate) fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self {
            start,
            waits_for_client: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            done: AtomicBool::new(false),
            error: Mutex::new(None),
            expectation: Mutex::default(),
        })
    }

    /// Whether the exchange waits for more data from the client.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Relaxed) && !self.done.load(Relaxed)
    }

    /// The server is asked whether it wants the body.
    pub(crate) fn expect(&self) {
        *self.expectation.lock() = Expectation::Awaited(None);
    }

    /// The server has said that it wants the body, or, by a final answer, that it does not.
    pub(crate) fn answered(&self, wants: bool) {
        let answer = if wants { Expectation::Wanted } else { Expectation::Refused };
        let waits = {
            let mut expectation = self.expectation.lock();
            match &mut *expectation {
                Expectation::Awaited(waits) => {
                    let waits = waits.take();
                    *expectation = answer;
                    waits
                }
                Expectation::Wanted | Expectation::Refused => None,
            }
        };
        waits.into_iter().for_each(Waker::wake);
    }

    /// Ready when the body may be sent.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.expectation.lock() {
            Expectation::Wanted => Poll::Ready(()),
            Expectation::Refused => Poll::Pending,
            Expectation::Awaited(waits) => {
                waits.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
                Poll::Pending
            }
        }
    }

    /// When a piece of the body was last taken.
    pub(crate) fn last_taken(&self) -> Instant {
        self.start + Duration::from_nanos(self.taken.load(Relaxed))
    }
}

/// A request's body while it is sent. It is boxed because it is moved around and most requests have no body.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Option<Box<Sending>>);

#[derive(Debug)]
struct Sending {
    body: RequestBody,
    /// The unsent rest of a large frame.
    rest: Bytes,
    state: Arc<RequestBodyState>,
    /// The part of a streamed body that was sent; `None`: it cannot be sent again.
    kept: Option<BytesMut>,
    /// How long the server is waited for that was asked whether it wants the body.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Outgoing {
    /// Wraps a body. Without a `state` the request has no body.
    pub(crate) fn new(body: RequestBody, state: Option<Arc<RequestBodyState>>) -> Self {
        Self(state.map(|state| Box::new(Sending { body, rest: Bytes::new(), state, kept: None, patience: None })))
    }

    /// Sends nothing until the server wants it, or has not answered for a while. A server need not answer.
    #[must_use]
    pub(crate) fn expecting(mut self) -> Self {
        if let Some(sending) = &mut self.0 {
            sending.state.expect();
            sending.patience = Some(Box::pin(sleep(EXPECTATION)));
        }
        self
    }

    /// Keeps the beginning of a streamed body, so that it can be sent again.
    #[must_use]
    pub(crate) fn keeping_beginning(mut self) -> Self {
        if let Some(sending) = &mut self.0
            && matches!(sending.body, RequestBody::Streamed(_))
        {
            sending.kept = Some(BytesMut::new());
        }
        self
    }

    /// The same body from its beginning; `None`: too much of it is gone.
    pub(crate) fn again(mut self) -> Option<RequestBody> {
        let sending = self.0.as_mut()?;
        let kept = sending.kept.take()?;
        let body = std::mem::take(&mut sending.body);
        let rest = std::mem::take(&mut sending.rest);
        Some(body.preceded_by([kept.freeze(), rest].concat().into()))
    }

    /// Gives the body back. Used only where nothing of it was read.
    pub(crate) fn unread(mut self) -> RequestBody {
        self.0.as_mut().map_or(RequestBody::Empty, |sending| std::mem::take(&mut sending.body))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.state.done.store(true, Relaxed);
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.get_mut().0 {
            Some(sending) => sending.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| sending.rest.is_empty() && sending.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(sending) = &self.0 else { return SizeHint::with_exact(0) };
        let rest = sending.rest.len() as u64;
        let inner = sending.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl Sending {
    fn keep(&mut self, data: &[u8]) {
        if let Some(kept) = &mut self.kept {
            if kept.len() + data.len() > MOST_KEPT {
                self.kept = None;
            } else {
                kept.extend_from_slice(data);
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(patience) = &mut self.patience {
            if self.state.poll_wanted(cx).is_pending() {
                ready!(patience.as_mut().poll(cx));
                self.state.answered(true);
                ready!(self.state.poll_wanted(cx));
            }
            self.patience = None;
        }
        self.state.taken.store(nanos(self.state.start.elapsed()), Relaxed);
        if !self.rest.is_empty() {
            let piece = self.rest.split_to(self.rest.len().min(PIECE));
            self.keep(&piece);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.state.waits_for_client.store(polled.is_pending(), Relaxed);
        Poll::Ready(match ready!(polled) {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(mut data) => {
                    if data.len() > PIECE {
                        self.rest = data.split_off(PIECE);
                    }
                    self.keep(&data);
                    Frame::data(data)
                }
                Err(frame) => match filtered(frame) {
                    Some(frame) => frame,
                    None => return Poll::Ready(None),
                },
            })),
            Some(Err(error)) => {
                let told = io::Error::new(error.kind(), error.to_string());
                *self.state.error.lock() = Some(error);
                Some(Err(told))
            }
            None => None,
        })
    }
}

/// Removes forbidden fields from trailers; `None` if none are left. Trailers are the last frame.
pub(crate) fn filtered(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    let mut trailers = match frame.into_trailers() {
        Ok(trailers) => trailers,
        Err(frame) => return Some(frame),
    };
    heads::prepare_trailers(&mut trailers);
    (!trailers.is_empty()).then(|| Frame::trailers(trailers))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
