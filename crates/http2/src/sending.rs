//! Sends a body on a stream, of either side.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

/// Why a message was not sent whole.
pub type EndedEarly = Box<dyn Error + Send + Sync>;

/// A stream that a body is sent on. It is reset when this is dropped before the end.
///
/// The body is asked for more only when the framing has taken what it gave before. A window is asked for only when there is
/// something to send: windows of a connection that are held for nothing may stop its other streams.
#[derive(Debug)]
pub(crate) struct Outlet {
    stream: SendStream<Bytes>,
    /// Taken from the body, and waiting for the peer's window.
    held: Option<Held>,
    /// The reason that the peer is told when the body breaks off.
    broken_off: Reason,
}

#[derive(Debug)]
struct Held {
    data: Bytes,
    is_last: bool,
}

impl Outlet {
    pub(crate) fn new(stream: SendStream<Bytes>, broken_off: Reason) -> Self {
        Self { stream, held: None, broken_off }
    }

    /// Ready when the body is sent.
    ///
    /// # Errors
    /// The peer has reset the stream or closed the connection, or the body broke off.
    pub(crate) fn poll_sent<B>(&mut self, mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Result<(), EndedEarly>>
    where
        B: Body<Data = Bytes, Error: Into<EndedEarly>>,
    {
        let Self { stream, held, broken_off } = self;
        loop {
            if let Poll::Ready(reason) = stream.poll_reset(cx)? {
                return Poll::Ready(Err(h2::Error::from(reason).into()));
            }
            if let Some(Held { data, .. }) = held
                && !data.is_empty()
                && stream.capacity() == 0
            {
                ready!(stream.poll_capacity(cx)).ok_or("the peer has closed the stream")??;
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
                    stream.send_reset(*broken_off);
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
}

/// A body, and the stream that it is sent on.
#[derive(Debug)]
pub struct Sending<B> {
    body: B,
    outlet: Outlet,
}

impl<B> Sending<B>
where
    B: Body<Data = Bytes, Error: Into<EndedEarly>> + Unpin,
{
    pub(crate) fn new(body: B, stream: SendStream<Bytes>) -> Self {
        Self { body, outlet: Outlet::new(stream, Reason::CANCEL) }
    }

    /// Ready when the body is sent.
    ///
    /// # Errors
    /// The peer has reset the stream or closed the connection, or the body broke off.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndedEarly>> {
        self.outlet.poll_sent(Pin::new(&mut self.body), cx)
    }

    /// The body, of which a part may be sent. The stream is reset if it has not ended.
    pub fn into_body(self) -> B {
        self.body
    }
}
