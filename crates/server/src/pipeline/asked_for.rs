//! A client of HTTP/2 that waits with its body (`Expect: 100-continue`).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Response, StatusCode, header::EXPECT, request::Parts};
use http_body::{Body, Frame, SizeHint};

use crate::body::IncomingBody;

/// The body of a request over HTTP/2. Its client is asked for it (`100 Continue`) as soon as it is wanted, if it waits
/// for that.
pub(super) fn asked_for(parts: &Parts, body: IncomingBody, interims: &http2::Interims) -> IncomingBody {
    let waits = parts.headers.get(EXPECT).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if !waits || body.is_none() {
        return body;
    }
    IncomingBody::new(AskedFor { body, interims: Some(interims.clone()) })
}

struct AskedFor {
    body: IncomingBody,
    /// `None`: the client was asked, or sends without it.
    interims: Option<http2::Interims>,
}

impl Body for AskedFor {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (true, Some(interims)) = (polled.is_pending(), self.interims.take()) {
            let mut asks = Response::new(());
            *asks.status_mut() = StatusCode::CONTINUE;
            interims.push(asks);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
