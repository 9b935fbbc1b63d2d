//! A request's body while it is sent.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bodies::RequestBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Most bytes handed to hyper at once. Small pieces show how much the upstream has taken.
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
}

impl RequestBodyState {
    pub(crate) fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self {
            start,
            waits_for_client: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            done: AtomicBool::new(false),
            error: Mutex::new(None),
        })
    }

    /// Whether the exchange waits for more data from the client.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Relaxed) && !self.done.load(Relaxed)
    }

    /// When a piece of the body was last taken.
    pub(crate) fn last_taken(&self) -> Instant {
        self.start + Duration::from_nanos(self.taken.load(Relaxed))
    }
}

/// A request's body while it is sent. It is boxed because hyper moves it around and most requests have no
/// body.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Option<Box<Sending>>);

#[derive(Debug)]
struct Sending {
    body: RequestBody,
    /// The unsent rest of a large frame.
    rest: Bytes,
    state: Arc<RequestBodyState>,
}

impl Outgoing {
    /// Wraps a body. Without a `state` the request has no body.
    pub(crate) fn new(body: RequestBody, state: Option<Arc<RequestBodyState>>) -> Self {
        Self(state.map(|state| Box::new(Sending { body, rest: Bytes::new(), state })))
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
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.state.taken.store(nanos(self.state.start.elapsed()), Relaxed);
        if !self.rest.is_empty() {
            let piece = self.rest.split_to(self.rest.len().min(PIECE));
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
