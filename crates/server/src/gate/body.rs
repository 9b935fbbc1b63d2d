//! A response body behind the gate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use scheduler::JobId;

use super::flow::Flow;

pin_project_lite::pin_project! {
    /// A response body behind the gate. In HTTP/2 it asks leave for every chunk; in HTTP/1 it only tells when it ended.
    pub struct GatedBody<B> {
        #[pin]
        inner: B,
        flow: Flow,
        ticket: u64,
        // HTTP/2: the job to ask leave for.
        asks: Option<JobId>,
        // Taken from the inner body, and waiting for leave.
        held: Bytes,
        exact_bytes: Option<u64>,
        passed_bytes: u64,
        failed: bool,
        ended: bool,
    }

    impl<B> PinnedDrop for GatedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // hyper drops a body of known length with its last byte, and never looks at one that is not to be sent; such
            // a one never asks leave either.
            let whole = match *this.exact_bytes {
                Some(bytes) => bytes == *this.passed_bytes || (*this.passed_bytes == 0 && this.asks.is_none()),
                None => *this.ended,
            };
            this.flow.ended(*this.ticket, *this.passed_bytes, whole && !*this.failed);
        }
    }
}

impl<B> GatedBody<B> {
    pub(super) fn new(inner: B, flow: Flow, ticket: u64, asks: Option<JobId>, exact_bytes: Option<u64>) -> Self {
        Self {
            inner,
            flow,
            ticket,
            asks,
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
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
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
