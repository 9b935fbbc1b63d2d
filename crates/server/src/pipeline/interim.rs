//! Interim responses (RFC 9110, section 15.2): how they come to the client of a request.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use heads::Page;
use http::{Response, StatusCode, Version, header::EXPECT, request::Parts};
use http_body::{Body, Frame, SizeHint};

use super::context::RequestContext;
use crate::{body::IncomingBody, connection_state::ConnectionState, sites::Routed};

/// The body of a request over HTTP/2. Its client is asked for it (`100 Continue`) as soon as it is wanted, if it waits for that.
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

/// The way of interim responses to the client of a request. Usable from any task; from the response on, they are dropped.
pub(super) enum InterimWay {
    /// The connection writes them. It knows its requests by number.
    Http1(Arc<ConnectionState>, u64),
    /// The stream of the request sends them.
    Http2(http2::Interims),
    /// Clients of HTTP/1.0 know no interim responses.
    Nowhere,
}

impl InterimWay {
    pub(super) fn of(request: &RequestContext) -> Self {
        match (&request.interims, request.record.version) {
            (Some(interims), _) => Self::Http2(interims.clone()),
            (None, Version::HTTP_11) => {
                let connection = request.connection.state.clone();
                let number = connection.interims.next();
                Self::Http1(connection, number)
            }
            (None, _) => Self::Nowhere,
        }
    }

    pub(super) fn send(&self, interim: Response<()>) {
        match self {
            Self::Http1(connection, request) => connection.interims.push(*request, &interim),
            Self::Http2(interims) => interims.push(interim),
            Self::Nowhere => {}
        }
    }
}

/// Tells the client what the page will need, where the route says so and it is known. Guards have let the request go on.
pub(super) fn hint(request: &mut RequestContext, routed: &Routed<'_>) {
    let Some(known) = &routed.route.early_hints else { return };
    request.page = Page::of(&request.parts);
    if let Some(hints) = request.page.as_ref().and_then(|page| known.of(page, &request.parts)) {
        InterimWay::of(request).send(hints);
    }
}
