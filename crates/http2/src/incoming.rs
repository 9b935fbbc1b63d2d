//! A body as it arrives on a stream, of either side.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body::{Body, Frame, SizeHint};

/// A body as it arrives. The peer may send more as soon as bytes are taken out of it.
#[derive(Debug)]
pub struct Incoming {
    stream: RecvStream,
    /// Bytes that are left, if the peer has said how many there are. That it keeps to that is for h2 to see.
    left_bytes: Option<u64>,
    /// All data has come; trailers may follow.
    has_data: bool,
}

impl Incoming {
    pub(crate) fn new(stream: RecvStream, head: &HeaderMap) -> Self {
        let said = || head.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let left_bytes = if stream.is_end_stream() { Some(0) } else { said() };
        Self { stream, left_bytes, has_data: true }
    }

    /// A stream that was answered before its body came, and therefore reset without an error, has a body that ends (RFC 9113,
    /// section 8.1). So has one that is reset behind all that it announced.
    fn failure(&self, error: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
        let is_end = match error.reason() {
            Some(Reason::NO_ERROR) => true,
            Some(Reason::CANCEL) => self.left_bytes == Some(0),
            _ => false,
        };
        (!is_end).then_some(Err(error))
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = &mut *self;
        if this.has_data {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Fails only for a stream that has ended, which needs no window.
                    let _ = this.stream.flow_control().release_capacity(data.len());
                    this.left_bytes = this.left_bytes.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(this.failure(error)),
                None => this.has_data = false,
            }
        }
        Poll::Ready(match ready!(this.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => this.failure(error),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left_bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
