//! The body of a response.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http2::Incoming;

use crate::{
    error::{UpstreamError, Wait},
    exchange::Exchange,
    outgoing::filtered,
};

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
    pub(crate) fn new(incoming: Option<Incoming>, exchange: Box<Exchange>) -> Self {
        let mut body = Self { incoming, exchange: Some(exchange) };
        if body.is_end_stream() {
            body.finish();
        }
        body
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
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
            Poll::Ready(Some(Err(error))) => this.break_off(|exchange| exchange.broken_off(error)),
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let wait = ready!(exchange.watch.poll_silence(cx, Wait::Body));
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
