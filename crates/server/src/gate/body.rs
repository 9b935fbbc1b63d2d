//! A response body behind the gate.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use compression::Prediction;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use limits::Share;
use scheduler::{JobId, class::ClassId};
use tokio::time::Instant;

use super::{
    flow::Flow,
    limited::poll_share,
    response::{BodyEnd, ResponseId, SendOutcome, Urgency},
    stream_flow::CREDIT_LIMIT_BYTES,
    stream_priority::StreamPriority,
    stream_watch::StreamProgress,
};
use crate::{body::Timer, uplink::ClassAt};

/// The first chunk: the most bytes that the body of an HTTP/2 stream hands to the framing at once beyond the client's
/// window. Chunks grow once the client has shown that it takes them soon.
const FIRST_CHUNK_BYTES: u64 = 16 * 1024;

/// A client that takes a chunk within this time gets larger chunks.
const SOON: Duration = Duration::from_secs(1);

/// Extension of an HTTP/2 response that carries any number of messages. Bytes that come without a pause are ranked like
/// one response, so bytes sent earlier do not lower the rank of a short message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InBursts;

impl Flow {
    /// Announces a response to the scheduler and puts its body behind the gate. The `size_hint` of the body tells its
    /// length; a response without an exact length is ranked by attained service. `done` is called exactly once: when
    /// the transport has taken the last byte, or when the response is given up. It must not block.
    ///
    /// `version` is that of the request: in HTTP/2 each response is ranked, in HTTP/1 its connection is.
    ///
    /// The response is of the first class; where the uplink is shared between classes, see [`Flow::response_of`].
    pub fn response<B>(
        &self,
        version: Version,
        response: Response<B>,
        urgency: Urgency,
        done: impl FnOnce(SendOutcome) + Send + 'static,
    ) -> Response<GatedBody<B>>
    where
        B: Body,
    {
        self.clone().response_of(ClassAt { class: ClassId(0), generation: 0 }, version, response, urgency, done)
    }

    /// As [`Flow::response`], for a response of a class. Where the length is not known, a [`Prediction`] among the
    /// extensions of the response takes its place in the order. A [`Share`] there limits its bytes. In HTTP/2, a
    /// `StreamPriority` there says how urgent the response is among others of its connection. `InBursts` there ranks it
    /// burst by burst.
    pub fn response_of<B>(
        self,
        class: ClassAt,
        version: Version,
        mut response: Response<B>,
        urgency: Urgency,
        done: impl FnOnce(SendOutcome) + Send + 'static,
    ) -> Response<GatedBody<B>>
    where
        B: Body,
    {
        let multiplexed = version == Version::HTTP_2;
        let words = response.extensions_mut().remove::<StreamPriority>();
        let exact_bytes = response.body().size_hint().exact();
        let prediction = response.extensions_mut().remove::<Prediction>();
        let expected_bytes = exact_bytes.or_else(|| Some(prediction.as_ref()?.left_bytes()));
        let share = response.extensions_mut().remove::<Arc<Share>>();
        let in_bursts = response.extensions_mut().remove::<InBursts>().is_some() && exact_bytes.is_none();
        let of_connection = share.clone().filter(|_| !multiplexed);
        let (id, job) =
            self.begin(class, multiplexed.then_some(words), expected_bytes, urgency, of_connection, Box::new(done));
        let stream = multiplexed.then(|| StreamBody::new(job, share, in_bursts));
        response.map(|inner| GatedBody {
            inner,
            flow: self,
            id,
            stream,
            open_ended: exact_bytes.is_none(),
            held: Bytes::new(),
            exact_bytes,
            prediction,
            passed_bytes: 0,
            failed: false,
            ended: false,
        })
    }
}

pin_project_lite::pin_project! {
    /// A response body behind the gate. In HTTP/2 it asks leave for every chunk; in HTTP/1 it only tells when it ended.
    pub struct GatedBody<B: Body> {
        #[pin]
        inner: B,
        flow: Flow,
        id: ResponseId,
        stream: Option<StreamBody>,
        // The length was not known at the beginning, and is not known yet.
        open_ended: bool,
        // Taken from the inner body, and waiting for leave.
        held: Bytes,
        exact_bytes: Option<u64>,
        // How much is expected to be left, where the length is not known.
        prediction: Option<Prediction>,
        passed_bytes: u64,
        failed: bool,
        ended: bool,
    }

    impl<B: Body> PinnedDrop for GatedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // A body may be dropped with its last byte, if that is known to be the last one. One that is not to be sent is
            // never polled; it never asks leave.
            let at_end = *this.ended || (this.held.is_empty() && this.inner.is_end_stream());
            let asks = this.stream.as_ref().is_some_and(|stream| stream.asks.is_some());
            let whole = match *this.exact_bytes {
                Some(bytes) => bytes == *this.passed_bytes || (*this.passed_bytes == 0 && !asks),
                None => at_end,
            };
            let (bytes, first) = (*this.passed_bytes, this.stream.as_ref().and_then(|stream| stream.first));
            this.flow.handle_body_end(*this.id, BodyEnd { bytes, whole: whole && !*this.failed, first });
        }
    }
}

#[cfg(test)]
impl<B: Body> GatedBody<B> {
    /// HTTP/2: the job that asks leave now.
    pub(super) fn job(&self) -> Option<JobId> {
        self.stream.as_ref()?.asks
    }
}

impl<B: Body + Unpin> GatedBody<B> {
    /// HTTP/1: the inner body, if all that was taken from it was passed on. The caller may send bytes of it by itself,
    /// and then tells so ([`GatedBody::handle_passed`]).
    pub(crate) fn inner_mut(&mut self) -> Option<&mut B> {
        (self.stream.is_none() && self.held.is_empty()).then_some(&mut self.inner)
    }

    /// HTTP/1: bytes of the inner body were sent without [`Body::poll_frame`].
    pub(crate) fn handle_passed(&mut self, bytes: u64) {
        self.passed_bytes += bytes;
    }
}

/// HTTP/2: what a body needs to know of its stream.
struct StreamBody {
    /// The job to ask leave for; `None`: the response goes first.
    asks: Option<JobId>,
    /// Known from the first poll on, because only then the task of the stream runs.
    progress: Option<StreamProgress>,
    /// The most bytes that the body hands to the framing at once beyond the client's window. A client has to take them
    /// within the write timeout, so they are few until it has shown that it takes them soon. Large chunks cost less CPU
    /// time.
    chunk_bytes: u64,
    /// Whether the client takes bytes. The framing takes two chunks at once, before the client has taken any.
    is_taken: bool,
    /// When the last chunk was handed over; `None`: the framing asked for more since.
    given_at: Option<Instant>,
    /// When the first chunk was handed over.
    first: Option<Instant>,
    /// The share of its client's bytes, with the timer to wait for them; `None`: they are not limited.
    limited: Option<(Arc<Share>, Option<Box<Timer>>)>,
    bursts: Bursts,
}

/// Whether a response is ranked burst by burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bursts {
    /// As a whole.
    No,
    /// Nothing of a burst was handed over yet.
    Begins,
    /// A part of it was.
    Moves,
    /// The burst is over.
    Pauses,
}

impl StreamBody {
    fn new(asks: Option<JobId>, share: Option<Arc<Share>>, in_bursts: bool) -> Self {
        let limited = share.map(|share| (share, None));
        Self {
            asks,
            progress: None,
            chunk_bytes: FIRST_CHUNK_BYTES,
            is_taken: false,
            given_at: None,
            first: None,
            limited,
            bursts: if in_bursts { Bursts::Begins } else { Bursts::No },
        }
    }

    /// The framing asks for more: the client has opened its window for all that was handed over before.
    fn handle_asked(&mut self) {
        if let Some(progress) = &self.progress {
            progress.handle_asked();
        }
        if let Some(given_at) = self.given_at.take() {
            self.chunk_bytes = if given_at.elapsed() >= SOON {
                FIRST_CHUNK_BYTES
            } else if std::mem::replace(&mut self.is_taken, true) {
                (2 * self.chunk_bytes).min(CREDIT_LIMIT_BYTES)
            } else {
                self.chunk_bytes
            };
        }
    }

    /// The most bytes to hand over now, `passed_bytes` after the beginning of the body.
    fn limit_bytes(&self, flow: &Flow, passed_bytes: u64) -> u64 {
        if self.chunk_bytes == CREDIT_LIMIT_BYTES {
            return CREDIT_LIMIT_BYTES;
        }
        flow.open_window_bytes(passed_bytes).clamp(self.chunk_bytes, CREDIT_LIMIT_BYTES)
    }

    /// The body has handed over bytes, which have leave.
    fn handle_given(&mut self, flow: &Flow, bytes: u64) {
        if self.bursts == Bursts::Begins {
            self.bursts = Bursts::Moves;
        }
        if let Some(progress) = &self.progress {
            progress.handle_given(flow.ahead_bytes().saturating_sub(bytes));
            let now = Instant::now();
            self.given_at = Some(now);
            self.first.get_or_insert(now);
        }
    }
}

impl<B> Body for GatedBody<B>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut this = self.project();
        if let Some(stream) = this.stream {
            stream.handle_asked();
            if stream.progress.is_none() {
                stream.progress = StreamProgress::of_task(this.flow, *this.id);
            }
        }
        while this.held.is_empty() {
            let Poll::Ready(polled) = this.inner.as_mut().poll_frame(cx) else {
                if let Some(stream) = this.stream
                    && stream.bursts == Bursts::Moves
                {
                    stream.bursts = Bursts::Pauses;
                }
                return Poll::Pending;
            };
            let frame = match polled {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    *this.failed = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    *this.ended = true;
                    return Poll::Ready(None);
                }
            };
            match frame.into_data() {
                Ok(data) => *this.held = data,
                Err(trailers) => {
                    // Trailers end the body. It is not polled again.
                    *this.ended = true;
                    return Poll::Ready(Some(Ok(trailers)));
                }
            }
        }
        if let Some(stream) = this.stream
            && stream.bursts == Bursts::Pauses
        {
            stream.bursts = Bursts::Begins;
            stream.asks = this.flow.begin_again(*this.id);
        }
        let asks = this.stream.as_mut().and_then(|stream| Some((stream.asks?, stream)));
        let data = match asks {
            Some((job, stream)) => {
                let limit_bytes = stream.limit_bytes(this.flow, *this.passed_bytes);
                let mut wanted_bytes = limit_bytes.min(this.held.len() as u64);
                if let Some((share, timer)) = &mut stream.limited {
                    let whole_bytes = this.exact_bytes.unwrap_or(u64::MAX);
                    let left_bytes = whole_bytes.saturating_sub(*this.passed_bytes);
                    wanted_bytes = ready!(poll_share(share, timer, cx, left_bytes, wanted_bytes));
                }
                let leave = ready!(this.flow.poll_leave(cx, job, wanted_bytes));
                if let Some((share, _)) = &stream.limited {
                    share.take(leave, Instant::now().into_std());
                }
                this.held.split_to((leave as usize).min(this.held.len()))
            }
            None => std::mem::take(this.held),
        };
        *this.passed_bytes += data.len() as u64;
        if *this.open_ended {
            let exact_bytes = this.inner.size_hint().exact();
            *this.open_ended = exact_bytes.is_none();
            let left_bytes = exact_bytes.or_else(|| Some(this.prediction.as_ref()?.left_bytes()));
            if let Some(left_bytes) = left_bytes {
                this.flow.handle_length(*this.id, left_bytes.saturating_add((this.held.len() + data.len()) as u64));
            }
        }
        if let Some(stream) = this.stream {
            stream.handle_given(this.flow, data.len() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.len() as u64;
        let inner = self.inner.size_hint();
        match inner.exact() {
            Some(bytes) => SizeHint::with_exact(bytes + held),
            None => {
                let mut hint = SizeHint::new();
                hint.set_lower(inner.lower() + held);
                if let Some(upper) = inner.upper() {
                    hint.set_upper(upper + held);
                }
                hint
            }
        }
    }
}
