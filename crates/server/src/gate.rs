//! The gate: every byte of every connection passes here, under TLS and HTTP.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A connection behind the gate.
#[derive(Debug)]
pub struct Gate {
    stream: TcpStream,
    flow: Flow,
}

impl Gate {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, flow: Flow { _inner: Arc::new(()) } }
    }

    /// The handle by which the HTTP side speaks of this connection.
    pub fn flow(&self) -> Flow {
        self.flow.clone()
    }

    /// The stream itself, for address look-ups.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// The HTTP side's handle on its connection's gate; cheap to clone.
#[derive(Clone, Debug)]
pub struct Flow {
    _inner: Arc<()>,
}

/// How urgent a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Ranked by the order: it has a body that somebody asked for.
    Ranked,
    /// Goes first: heads without a body, redirects, error pages.
    First,
}

/// How a response ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Body bytes that the socket took.
    pub body_bytes: u64,
    /// Whether the whole body was taken; false when the client went away or the origin failed.
    pub complete: bool,
    /// From the moment the response was ready to the moment its last byte was taken by the socket.
    pub send_time: Duration,
    /// `send_time` over the time the bytes need alone at the uplink's rate; `None` where the rate is not known.
    pub slowdown: Option<f64>,
}

impl Flow {
    /// Announces a response to the scheduler and puts its body behind the gate. The body's `size_hint` tells its length;
    /// without an exact one it is ranked by attained service. `done` is called exactly once, when the last byte was taken
    /// by the socket or the response was given up; it must not block.
    pub fn response<B>(
        &self,
        response: Response<B>,
        urgency: Urgency,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) -> Response<GatedBody<B>>
    where
        B: Body<Data = Bytes, Error = io::Error>,
    {
        let _ = urgency;
        response.map(|inner| GatedBody { inner, done: Some(Box::new(done)) })
    }
}

pin_project_lite::pin_project! {
    /// A response body behind the gate.
    pub struct GatedBody<B> {
        #[pin]
        inner: B,
        done: Option<Box<dyn FnOnce(Outcome) + Send>>,
    }

    impl<B> PinnedDrop for GatedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if let Some(done) = this.project().done.take() {
                done(Outcome { body_bytes: 0, complete: true, send_time: Duration::ZERO, slowdown: None });
            }
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
        self.project().inner.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
