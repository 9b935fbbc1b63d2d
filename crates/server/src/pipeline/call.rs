//! A call of gRPC: how long its client waits, the status that ends it, and the body of its answer.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use heads::{GrpcStatus, grpc_timeout, is_grpc};
use http::{StatusCode, request::Parts};
use http_body::{Body, Frame, SizeHint};
use scheduler::admission::Refusal;
use tokio::time::Instant;

/// How much earlier than here the time of a client may be over at the upstream, which tells so.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

/// A request that is a call of gRPC.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// When its client has no more use for an answer; `None`: it does not say.
    pub(super) until: Option<Instant>,
    /// How it has ended.
    pub(super) end: End,
}

/// How a call has ended, as its record and its body share it.
#[derive(Clone, Debug)]
pub(super) struct End(Arc<AtomicU8>);

impl End {
    /// The status. A call without one was given up by its client, or broke off.
    pub(super) fn status(&self) -> GrpcStatus {
        GrpcStatus::numbered(self.0.load(Relaxed)).unwrap_or(GrpcStatus::CANCELLED)
    }

    pub(super) fn is(&self, status: GrpcStatus) {
        self.0.store(status.number(), Relaxed);
    }
}

impl Call {
    /// `None`: the request is no call.
    pub(super) fn of(parts: &Parts, now: Instant) -> Option<Self> {
        is_grpc(parts).then(|| Self {
            until: grpc_timeout(&parts.headers).and_then(|timeout| now.checked_add(timeout)),
            end: End(Arc::new(AtomicU8::new(u8::MAX))),
        })
    }

    /// How its end is known later.
    pub(super) fn end(&self) -> End {
        self.end.clone()
    }

    /// How long its client still waits; `None`: it does not say.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now() + CLOCKS_DIFFER)
    }

    /// The status in place of one of HTTP, and what it says.
    pub(super) fn status_of(&self, status: StatusCode, refused: Option<Refusal>) -> (GrpcStatus, &'static str) {
        match refused {
            Some(refusal @ Refusal::TooLate) => (GrpcStatus::DEADLINE_EXCEEDED, said(refusal)),
            _ if self.is_late() => (GrpcStatus::DEADLINE_EXCEEDED, "the time that the client gives is over"),
            Some(refusal) => (GrpcStatus::of_http(status), said(refusal)),
            None => (GrpcStatus::of_http(status), status.canonical_reason().unwrap_or("an error of HTTP")),
        }
    }
}

fn said(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::QueueFull => "too many requests of the class wait",
        Refusal::WaitedTooLong => "the call has waited for as long as its class allows",
        Refusal::TooLate => "the call cannot be done by its deadline",
        Refusal::NoSuchQueue => "there is no such class",
    }
}

/// The answer of an upstream to a call. It has trailers with a status, also where the upstream breaks off.
pub(crate) struct CallBody<B> {
    inner: B,
    call: Call,
}

impl<B> CallBody<B> {
    pub(super) fn new(inner: B, call: Call) -> Self {
        Self { inner, call }
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for CallBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            None => {
                if this.call.end.0.load(Relaxed) == u8::MAX {
                    this.call.end.is(GrpcStatus::UNKNOWN);
                }
                return Poll::Ready(None);
            }
            // Its client is gone.
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted && error.get_ref().is_none() => {
                return Poll::Ready(Some(Err(error)));
            }
            Some(Err(error)) => {
                let (status, message) = match (this.call.is_late(), error.kind()) {
                    (true, _) => (GrpcStatus::DEADLINE_EXCEEDED, "the time that the client gives is over"),
                    (false, io::ErrorKind::TimedOut) => (GrpcStatus::UNAVAILABLE, "the call was silent for too long"),
                    (false, _) => (GrpcStatus::UNAVAILABLE, "the call broke off"),
                };
                this.call.end.is(status);
                return Poll::Ready(Some(Ok(Frame::trailers(status.fields(message)))));
            }
        };
        if let Some(status) = frame.trailers_ref().and_then(GrpcStatus::of) {
            this.call.end.is(status);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> fmt::Debug for CallBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBody").field("call", &self.call).finish_non_exhaustive()
    }
}
