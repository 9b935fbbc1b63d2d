//! A response body behind the gate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use scheduler::JobId;

use super::{flow::Flow, stream::Offer};

pin_project_lite::pin_project! {
    /// A response body behind the gate. In HTTP/2 it asks leave for every chunk; in HTTP/1 it only tells when it ended.
    pub struct GatedBody<B: Body> {
        #[pin]
        inner: B,
        flow: Flow,
        ticket: u64,
        // HTTP/2: the job to ask leave for.
        asks: Option<JobId>,
        // HTTP/2: tells its stream that the client has something to take; known from the first time that it is asked on, because
        // only then the stream's own task runs.
        offer: Option<Offer>,
        multiplexed: bool,
        // Nobody knew at the beginning how long it is.
        open_ended: bool,
        // Taken from the inner body, and waiting for leave.
        held: Bytes,
        exact_bytes: Option<u64>,
        passed_bytes: u64,
        failed: bool,
        ended: bool,
    }

    impl<B: Body> PinnedDrop for GatedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // hyper drops a body with its last byte, where that is known to be the last, and never looks at one that is not
            // to be sent; such a one never asks leave either.
            let at_end = *this.ended || (this.held.is_empty() && this.inner.is_end_stream());
            let whole = match *this.exact_bytes {
                Some(bytes) => bytes == *this.passed_bytes || (*this.passed_bytes == 0 && this.asks.is_none()),
                None => at_end,
            };
            this.flow.ended(*this.ticket, *this.passed_bytes, whole && !*this.failed);
        }
    }
}

impl<B: Body> GatedBody<B> {
    pub(super) fn new(
        inner: B,
        flow: Flow,
        ticket: u64,
        asks: Option<JobId>,
        multiplexed: bool,
        exact_bytes: Option<u64>,
    ) -> Self {
        Self {
            inner,
            flow,
            ticket,
            asks,
            offer: None,
            multiplexed,
            open_ended: exact_bytes.is_none(),
            held: Bytes::new(),
            exact_bytes,
            passed_bytes: 0,
            failed: false,
            ended: false,
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
        if *this.multiplexed {
            match this.offer {
                Some(offer) => offer.taken(),
                None => *this.offer = Offer::of_stream(this.flow, *this.ticket),
            }
        }
        while this.held.is_empty() {
            let frame = match ready!(this.inner.as_mut().poll_frame(cx)) {
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
                    // Nothing comes behind them, and hyper does not ask.
                    *this.ended = true;
                    return Poll::Ready(Some(Ok(trailers)));
                }
            }
        }
        let data = match *this.asks {
            None => std::mem::take(this.held),
            Some(job) => {
                let leave = ready!(this.flow.poll_leave(cx, job, this.held.len() as u64));
                this.held.split_to((leave as usize).min(this.held.len()))
            }
        };
        *this.passed_bytes += data.len() as u64;
        if *this.open_ended
            && let Some(left) = this.inner.size_hint().exact()
        {
            *this.open_ended = false;
            this.flow.length_known(*this.ticket, left.saturating_add((this.held.len() + data.len()) as u64));
        }
        if let Some(offer) = this.offer {
            offer.given(this.flow.ahead_bytes());
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
