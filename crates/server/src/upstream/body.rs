//! Request bodies sent to an upstream and response bodies received from it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{UpstreamError, error::Wait, head, send::Exchange};
use crate::{body::RequestBody, timer::Timer};

/// Most bytes handed to hyper at once. Small pieces show how much the upstream has taken.
const PIECE: usize = 64 * 1024;

/// The state of a request's body while it is sent, shared by the body and its [`Watch`].
#[derive(Debug)]
pub(super) struct Feed {
    start: Instant,
    /// The body waits for more data from the client.
    waits_for_client: AtomicBool,
    /// When a piece of the body was last taken, in nanoseconds since `start`.
    taken: AtomicU64,
    /// The sender has dropped the body or read it to its end.
    done: AtomicBool,
    /// The error that broke the body off.
    pub(super) broke: Mutex<Option<io::Error>>,
}

impl Feed {
    pub(super) fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self {
            start,
            waits_for_client: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            done: AtomicBool::new(false),
            broke: Mutex::new(None),
        })
    }

    /// Whether the exchange waits for more data from the client.
    fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Relaxed) && !self.done.load(Relaxed)
    }
}

/// A request's body while it is sent. It is boxed because hyper moves it around and most requests have no
/// body.
#[derive(Debug, Default)]
pub(super) struct Outgoing(Option<Box<Sending>>);

#[derive(Debug)]
struct Sending {
    body: RequestBody,
    /// The unsent rest of a large frame.
    rest: Bytes,
    feed: Arc<Feed>,
}

impl Outgoing {
    /// Wraps a body. Without a `feed` the request has no body.
    pub(super) fn new(body: RequestBody, feed: Option<Arc<Feed>>) -> Self {
        Self(feed.map(|feed| Box::new(Sending { body, rest: Bytes::new(), feed })))
    }

    /// Gives the body back. Used only where nothing of it was read.
    pub(super) fn unread(mut self) -> RequestBody {
        self.0.as_mut().map_or(RequestBody::Empty, |sending| std::mem::take(&mut sending.body))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.feed.done.store(true, Relaxed);
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
        self.feed.taken.store(nanos(self.feed.start.elapsed()), Relaxed);
        if !self.rest.is_empty() {
            let piece = self.rest.split_to(self.rest.len().min(PIECE));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.feed.waits_for_client.store(polled.is_pending(), Relaxed);
        Poll::Ready(match std::task::ready!(polled) {
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
                *self.feed.broke.lock() = Some(error);
                Some(Err(told))
            }
            None => None,
        })
    }
}

/// Watches an exchange for silence of the upstream and for its total time.
#[derive(Debug)]
pub(super) struct Watch {
    timer: Timer,
    idle: Duration,
    end: Option<Instant>,
    /// When the upstream last sent or took bytes.
    heard: Instant,
    /// Bytes have moved since `heard` was set.
    hears: bool,
    /// The connection is multiplexed, so traffic on it is no sign of progress.
    shared: bool,
    pub(super) feed: Option<Arc<Feed>>,
}

impl Watch {
    /// Starts the watch. Reusing a timer is cheaper than making a new one.
    pub(super) fn new(timer: Option<Timer>, now: Instant, idle: Duration, end: Option<Instant>, shared: bool) -> Self {
        let first = earlier(now + idle, end);
        let timer = match timer {
            // A timer that is due too early is set again when it fires; it seldom fires at all.
            Some(timer) if timer.due() <= first => timer,
            Some(mut timer) => {
                timer.set(first);
                timer
            }
            None => Timer::at(first),
        };
        Self { timer, idle, end, heard: now, hears: false, shared, feed: None }
    }

    /// Notes that the upstream sent or took bytes, which ends a silence.
    pub(super) fn hears(&mut self) {
        self.hears = true;
    }

    /// Whether the exchange waits for the client rather than for the upstream.
    pub(super) fn waits_for_client(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.waits_for_client())
    }

    pub(super) fn into_timer(self) -> Timer {
        self.timer
    }

    /// Ready when the upstream was silent for too long. Polled when the upstream has nothing ready.
    pub(super) fn poll_silence(&mut self, cx: &mut Context<'_>, wait: Wait) -> Poll<Wait> {
        if self.hears {
            self.hears = false;
            self.heard = Instant::now();
        }
        loop {
            std::task::ready!(self.timer.poll(cx));
            let now = Instant::now();
            if self.end.is_some_and(|end| end <= now) {
                return Poll::Ready(Wait::End);
            }
            // While the client has to send, the upstream is not silent.
            if let Some(feed) = &self.feed {
                if feed.waits_for_client() {
                    self.heard = now;
                }
                // hyper takes a piece whenever it polls the body, until its buffers are full.
                if self.shared {
                    self.heard = self.heard.max(feed.start + Duration::from_nanos(feed.taken.load(Relaxed)));
                }
            }
            let next = self.heard + self.idle;
            if next <= now {
                return Poll::Ready(wait);
            }
            self.timer.set(earlier(next, self.end));
        }
    }
}

/// Removes forbidden fields from trailers; `None` if none are left. Trailers are the last frame.
fn filtered(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    let mut trailers = match frame.into_trailers() {
        Ok(trailers) => trailers,
        Err(frame) => return Some(frame),
    };
    head::trailers(&mut trailers);
    (!trailers.is_empty()).then(|| Frame::trailers(trailers))
}

fn earlier(one: Instant, other: Option<Instant>) -> Instant {
    other.map_or(one, |other| other.min(one))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The body of an upstream's response. At its end the connection becomes free for other requests. If it is
/// dropped earlier, the connection is closed or the HTTP/2 stream reset.
#[derive(Debug)]
pub struct UpstreamBody {
    /// The HTTP/2 body; an HTTP/1.1 body is read through the exchange.
    incoming: Option<Incoming>,
    /// `None`: the response has ended.
    exchange: Option<Box<Exchange>>,
}

impl UpstreamBody {
    pub(super) fn new(incoming: Option<Incoming>, exchange: Box<Exchange>) -> Self {
        let mut body = Self { incoming, exchange: Some(exchange) };
        if body.is_end_stream() {
            body.finish();
        }
        body
    }

    /// An empty body.
    pub(super) fn empty() -> Self {
        Self { incoming: None, exchange: None }
    }

    fn finish(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            exchange.finish();
        }
    }

    fn break_off(
        &mut self,
        error: impl FnOnce(&Exchange) -> UpstreamError,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.incoming = None;
        // Without an exchange the response has ended already and cannot break off.
        Poll::Ready(self.exchange.take().map(|exchange| Err(error(&exchange).into())))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else { return Poll::Ready(None) };
        match exchange.poll_frame(this.incoming.as_mut(), cx) {
            Poll::Ready(Some(Ok(frame))) => {
                exchange.watch.hears();
                if this.is_end_stream() {
                    this.finish();
                }
                let frame = filtered(frame);
                if frame.is_none() {
                    this.finish();
                }
                Poll::Ready(frame.map(Ok))
            }
            Poll::Ready(Some(Err(broke))) => this.break_off(|exchange| exchange.broke(broke)),
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let wait = std::task::ready!(exchange.watch.poll_silence(cx, Wait::Body));
                this.break_off(|exchange| exchange.timed_out(wait))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.incoming {
            Some(incoming) => incoming.is_end_stream(),
            None => self.exchange.as_ref().is_none_or(|exchange| exchange.is_end()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.incoming, &self.exchange) {
            (Some(incoming), _) => incoming.size_hint(),
            (None, Some(exchange)) => exchange.size_hint(),
            (None, None) => SizeHint::with_exact(0),
        }
    }
}
