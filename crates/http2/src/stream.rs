//! The task of a stream: waits for the answer to a request, and sends it.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::{
    HeaderMap, HeaderName, Response,
    header::{CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE},
};
use http_body::Body;

use crate::interims::Interims;

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
            stream: SendStream<Bytes>,
            // Taken from the body, and waiting for the client's window.
            held: Option<Held>,
        },
    }
}

struct Held {
    data: Bytes,
    is_last: bool,
}

/// Why a response was not sent whole.
type EndedEarly = Box<dyn Error + Send + Sync>;

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
                    // Whatever was told before the answer goes before it.
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
                    this.stage.set(Stage::Sending { body, stream, held: None });
                }
                StageNow::Sending { body, stream, held } => return poll_body_sent(body, stream, held, cx),
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

/// The body is asked for more only when the framing has taken what it gave before. A window is asked for only when there is
/// something to send: windows of a connection that are held for nothing may stop its other streams.
fn poll_body_sent<B>(
    mut body: Pin<&mut B>,
    stream: &mut SendStream<Bytes>,
    held: &mut Option<Held>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), EndedEarly>>
where
    B: Body<Data = Bytes, Error: Into<EndedEarly>>,
{
    loop {
        if let Poll::Ready(reason) = stream.poll_reset(cx)? {
            return Poll::Ready(Err(h2::Error::from(reason).into()));
        }
        if let Some(Held { data, .. }) = held
            && !data.is_empty()
            && stream.capacity() == 0
        {
            ready!(stream.poll_capacity(cx)).ok_or("the client has closed the stream")??;
            continue;
        }
        if let Some(Held { data, is_last }) = held.take() {
            stream.send_data(data, is_last)?;
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
        let frame = match ready!(body.as_mut().poll_frame(cx)).transpose() {
            Ok(frame) => frame,
            Err(error) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Poll::Ready(Err(error.into()));
            }
        };
        match frame.map(|frame| frame.into_data().map_err(|frame| frame.into_trailers())) {
            Some(Ok(data)) => {
                if !data.is_empty() {
                    // The framing asks for all of it once it has it.
                    stream.reserve_capacity(1);
                }
                *held = Some(Held { data, is_last: body.is_end_stream() });
            }
            Some(Err(Ok(trailers))) => {
                stream.reserve_capacity(0);
                stream.send_trailers(trailers)?;
                return Poll::Ready(Ok(()));
            }
            Some(Err(Err(_))) => {}
            None => *held = Some(Held { data: Bytes::new(), is_last: true }),
        }
    }
}

fn remove_fields_of_connection(fields: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        fields.remove(name);
    }
}
