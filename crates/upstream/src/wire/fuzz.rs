//! Fuzz target: the answer of an HTTP/1.1 server.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use http1::Coding;

use super::{Interim, Wire};

/// Smaller than hyper's limits, so that those never apply.
const HEAD_BYTES: usize = 1024;

/// Reads the answer of an HTTP/1.1 server, cut in different ways; the result must not differ. If it can be
/// read, hyper's client must read the same.
pub fn answers(bytes: &[u8]) {
    // Shorter than hyper's limits for chunk extensions and trailers.
    let bytes = &bytes[..bytes.len().min(8000)];
    let odd = 2 + bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 61);
    for method in [Method::GET, Method::HEAD] {
        let whole = read(bytes, bytes.len().max(1), &method);
        for piece in [1, odd] {
            assert_eq!(read(bytes, piece, &method), whole, "{method}, pieces of {piece}");
        }
        if let Some(Read { answer, .. }) = whole
            && answer.status != StatusCode::SWITCHING_PROTOCOLS
            && !has_later_version(bytes)
        {
            let answer = answer.without_connection();
            assert_eq!(by_hyper(bytes, &method).map(Answer::without_connection), Some(answer), "{method}");
        }
    }
}

/// Whether the bytes may contain a response of a minor version above 1, which hyper refuses.
fn has_later_version(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|version| version.starts_with(b"HTTP/1.") && matches!(version[7], b'2'..=b'9'))
}

/// The body of a request without one.
#[derive(Default)]
pub(super) struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(None)
    }
}

/// A whole answer, the interim responses before it, and the state of the connection after it.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) answer: Answer,
    pub(super) interims: Vec<String>,
    /// The connection can carry another exchange.
    pub(super) is_free: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) trailers: HeaderMap,
}

impl Answer {
    /// Removes `Connection`. It is not passed on, so the two readers may differ in it.
    fn without_connection(mut self) -> Self {
        self.headers.remove(http::header::CONNECTION);
        self
    }
}

/// Reads an answer in pieces. `None`: it is malformed or incomplete.
pub(super) fn read(bytes: &[u8], piece: usize, method: &Method) -> Option<Read> {
    let mut wire = Wire::<_, Nothing>::new(Pieces::new(bytes, piece), HEAD_BYTES);
    wire.begin(method, |out| out.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n"), Nothing, Coding::None);
    let mut cx = Context::from_waker(Waker::noop());
    let mut interims = Vec::new();
    let mut interim = |interim: Interim| {
        let fields =
            interim.headers().iter().map(|(name, value)| format!(" {name}={}", value.as_bytes().escape_ascii()));
        interims.push(interim.status().as_str().to_owned() + &fields.collect::<String>());
    };
    let Poll::Ready(head) = wire.poll_head(&mut cx, &mut interim) else { panic!("it ends") };
    let (parts, ()) = head.ok()?.into_parts();
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    let length = wire.size_hint().exact();
    loop {
        match wire.poll_frame(&mut cx) {
            Poll::Pending => panic!("it ends"),
            Poll::Ready(None) => break,
            Poll::Ready(Some(Err(_))) => return None,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    assert!(!data.is_empty());
                    body.extend_from_slice(&data);
                }
                Err(frame) => trailers = frame.into_trailers().expect("data or trailers"),
            },
        }
    }
    assert!(wire.is_end() && length.is_none_or(|length| length == body.len() as u64));
    let answer = Answer { status: parts.status, headers: parts.headers, body, trailers };
    // The bytes behind the answer may not have been read yet.
    let is_free = wire.is_free() && wire.transport.is_at_end();
    Some(Read { answer, interims, is_free })
}

fn by_hyper(bytes: &[u8], method: &Method) -> Option<Answer> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    let asked = async {
        let pieces = Pieces::new(bytes, bytes.len().max(1));
        let io = TokioIo::new(Server { pieces, asked: false, reader: None });
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
        let mut connection = pin!(connection);
        let mut over = false;
        let request = Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).expect("a request");
        let mut answer = pin!(async {
            let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
            let whole = body.collect().await.ok()?;
            let trailers = whole.trailers().cloned().unwrap_or_default();
            Some(Answer { status: parts.status, headers: parts.headers, body: whole.to_bytes().to_vec(), trailers })
        });
        poll_fn(|cx| {
            over = over || connection.as_mut().poll(cx).is_ready();
            answer.as_mut().poll(cx)
        })
        .await
    };
    RUNTIME.with(|runtime| runtime.block_on(asked))
}

/// A server that answers only after the request. hyper treats an earlier answer as an error.
struct Server {
    pieces: Pieces,
    asked: bool,
    reader: Option<Waker>,
}

impl AsyncRead for Server {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.pieces).poll_read(cx, buf)
    }
}

impl AsyncWrite for Server {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.asked = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Pin::new(&mut self.pieces).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pieces).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pieces).poll_shutdown(cx)
    }
}

/// A connection that gives these bytes in pieces of this size, and takes all that is written.
pub(super) struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Pieces {
    pub(super) fn new(bytes: &[u8], piece: usize) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, piece }
    }

    /// Whether all were read.
    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let len = self.piece.min(self.bytes.len() - self.at).min(buf.remaining());
        buf.put_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
