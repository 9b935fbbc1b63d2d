//! The task of a stream: waits for the answer to a request, and sends it.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, server::SendResponse};
use http::{
    HeaderMap, HeaderName, Response,
    header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body;

use crate::{
    interims::Interims,
    sending::{EndedEarly, Outlet},
};

/// Fields about the connection, which HTTP/2 does not have (RFC 9113, section 8.2.2).
const OF_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

pin_project_lite::pin_project! {
    /// Sends the answer to one request; a future that is ready when that is done. If it is dropped before, the stream is reset.
    pub struct StreamTask<F, B> {
        respond: SendResponse<Bytes>,
        interims: Interims,
        #[pin]
        stage: Stage<F, B>,
    }
}

pin_project_lite::pin_project! {
    #[project = StageNow]
    enum Stage<F, B> {
        Answering {
            #[pin]
            answer: F,
        },
        Sending {
            #[pin]
            body: B,
            outlet: Outlet,
        },
    }
}

impl<F, B> StreamTask<F, B> {
    pub(crate) fn new(answer: F, respond: SendResponse<Bytes>, interims: Interims) -> Self {
        Self { respond, interims, stage: Stage::Answering { answer } }
    }
}

impl<F, B> StreamTask<F, B>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<EndedEarly>>,
{
    fn poll_sent(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), EndedEarly>> {
        let mut this = self.project();
        loop {
            match this.stage.as_mut().project() {
                StageNow::Answering { answer } => {
                    let answered = answer.poll(cx);
                    // Interim responses that were told before the answer go before it.
                    while let Poll::Ready(interims) = this.interims.poll_take(cx) {
                        for mut interim in interims {
                            remove_fields_of_connection(interim.headers_mut());
                            this.respond.send_informational(interim)?;
                        }
                    }
                    let Poll::Ready(response) = answered else {
                        let reason = ready!(this.respond.poll_reset(cx))?;
                        return Poll::Ready(Err(h2::Error::from(reason).into()));
                    };
                    this.interims.end();
                    let (mut head, body) = response.into_parts();
                    remove_fields_of_connection(&mut head.headers);
                    let is_whole = body.is_end_stream();
                    if let (false, Some(bytes)) = (is_whole, body.size_hint().exact()) {
                        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| bytes.into());
                    }
                    let stream = this
                        .respond
                        .send_response(Response::from_parts(head, ()), is_whole)
                        .inspect_err(|_| this.respond.send_reset(Reason::INTERNAL_ERROR))?;
                    if is_whole {
                        return Poll::Ready(Ok(()));
                    }
                    this.stage.set(Stage::Sending { body, outlet: Outlet::new(stream, Reason::INTERNAL_ERROR) });
                }
                StageNow::Sending { body, outlet } => return outlet.poll_sent(body, cx),
            }
        }
    }
}

impl<F, B> Future for StreamTask<F, B>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<EndedEarly>>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_sent(cx).map(|sent| {
            if let Err(error) = sent {
                tracing::debug!("an HTTP/2 stream ends early: {error}");
            }
        })
    }
}

impl<F, B> fmt::Debug for StreamTask<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamTask").finish_non_exhaustive()
    }
}

fn remove_fields_of_connection(fields: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        fields.remove(name);
    }
}
