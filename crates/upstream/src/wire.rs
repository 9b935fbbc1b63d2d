//! The client side of HTTP/1.1 (RFC 9112), over one connection.
//!
//! hyper's client is not used here, because it has two ends with channels between them. Without it a short
//! proxied request costs a fifth less user time (docs/results.md). Interim responses also need no allocation.
//! The task that uses the connection moves its bytes: no task is spawned or woken in between.

#[cfg(test)]
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod tests;

use std::{
    io,
    task::{Context, Poll, ready},
};

use bodies::{Inbox, Sending};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http1::{Chunks, Coding, MOST_INTERIMS, Next, ResponseBody, ResponseError, ResponseHead, is_interim, may_begin};
use tokio::io::{AsyncRead, AsyncWrite};

/// An interim response (RFC 9110, section 15.2), as any client may see it.
pub type Interim = Response<()>;

/// An HTTP/1.1 connection to a server. It carries one exchange after the other.
///
/// The order of calls: [`Wire::begin`], [`Wire::poll_head`] until it is ready, [`Wire::poll_frame`] until
/// there are no more frames. If [`Wire::is_free`], the next exchange can begin.
#[derive(Debug)]
pub(crate) struct Wire<T, B> {
    transport: T,
    /// Size limit of a response's head, and of all interim responses before it.
    head_bytes: usize,
    sending: Sending<B>,
    /// Bytes read and not yet handed on.
    read: Inbox,
    /// The end of the head is not before this offset in `read`.
    searched: usize,
    /// Lines in the searched part, approximately.
    lines: usize,
    /// The request is HEAD.
    bodiless: bool,
    /// The interim responses so far: their number and their bytes.
    interims: (usize, usize),
    body: Body,
    /// Neither side has said that the connection will close after this exchange.
    keeps: bool,
    moved: bool,
    /// The server has said that it wants the body of the request.
    wants_body: bool,
}

/// The state of reading a response's body.
#[derive(Debug)]
enum Body {
    /// The head has not arrived yet.
    Awaited,
    /// This many bytes remain.
    Length(u64),
    Chunked(Chunks),
    /// Only these trailers remain.
    Trailers(HeaderMap),
    /// The body lasts until the server closes the connection.
    ToEnd,
    Ended,
}

impl From<ResponseBody> for Body {
    fn from(body: ResponseBody) -> Self {
        match body {
            ResponseBody::None => Self::Ended,
            ResponseBody::Length(bytes) => Self::Length(bytes),
            ResponseBody::Chunked => Self::Chunked(Chunks::of_server()),
            ResponseBody::ToEnd => Self::ToEnd,
        }
    }
}

/// Why an exchange ended without a whole response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The connection was closed or reset.
    Closed(io::Error),
    /// The answer is not HTTP.
    Malformed(Box<dyn std::error::Error + Send + Sync>),
    /// The head of the response is too large.
    HeadTooLarge,
    /// There were too many interim responses, or they were too large.
    TooManyInterims,
    /// The request's body ended too soon or with an error.
    Request(io::Error),
}

impl<T, B> Wire<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: http_body::Body<Data = Bytes, Error = io::Error> + Default + Unpin,
{
    /// Wraps a connection on which nothing was sent or received.
    pub(crate) fn new(transport: T, head_bytes: usize) -> Self {
        Self {
            transport,
            head_bytes,
            sending: Sending::default(),
            read: Inbox::default(),
            searched: 0,
            lines: 0,
            bodiless: false,
            interims: (0, 0),
            body: Body::Ended,
            keeps: true,
            moved: false,
            wants_body: false,
        }
    }

    /// Begins an exchange. `write` writes the request's head.
    pub(crate) fn begin(&mut self, method: &Method, write: impl FnOnce(&mut Vec<u8>), body: B, coding: Coding) {
        self.sending.begin(write, body, coding);
        self.read.restart();
        self.bodiless = *method == Method::HEAD;
        self.interims = (0, 0);
        self.body = Body::Awaited;
        self.moved = false;
        self.wants_body = false;
    }

    /// Polls for the head of the response. `interim` gets the interim responses before it, except those to
    /// `Expect`.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Poll<Result<Response<()>, ExchangeError>> {
        self.send(cx)?;
        loop {
            if let Some(response) = self.take_head(interim)? {
                return Poll::Ready(Ok(response));
            }
            if ready!(self.poll_read(cx)).map_err(ExchangeError::Closed)? == 0 {
                let within = if self.read.is_empty() { "before a response" } else { "within the head of a response" };
                return Poll::Ready(Err(closed(within)));
            }
        }
    }

    /// Polls for the next frame of the response's body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        if self.is_end() {
            return Poll::Ready(None);
        }
        self.send(cx)?;
        loop {
            if let Some(frame) = self.take_frame()? {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.is_end() {
                return Poll::Ready(None);
            }
            if ready!(self.poll_read(cx)).map_err(ExchangeError::Closed)? == 0 {
                let whole = matches!(self.body, Body::ToEnd);
                self.body = Body::Ended;
                return Poll::Ready((!whole).then(|| Err(closed("within the body of a response"))));
            }
        }
    }

    /// Whether the response has ended.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self.body, Body::Ended)
    }

    /// The size of the rest of the response's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.body {
            Body::Ended => SizeHint::with_exact(0),
            Body::Length(left) => SizeHint::with_exact(*left),
            Body::Awaited | Body::Chunked(_) | Body::Trailers(_) | Body::ToEnd => SizeHint::new(),
        }
    }

    /// Whether the exchange is over on both sides, and another one may begin.
    pub(crate) fn is_free(&self) -> bool {
        self.keeps && self.is_end() && self.read.is_empty() && self.sending.is_done()
    }

    /// Between exchanges: whether the server has closed the connection or sent unexpected bytes. It registers
    /// no waker.
    pub(crate) fn is_over(&mut self) -> bool {
        self.poll_read(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    /// The underlying connection.
    pub(crate) fn transport(&self) -> &T {
        &self.transport
    }

    /// Whether bytes have moved since the last call.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether the server has said, since the last call, that it wants the body.
    pub(crate) fn take_wants_body(&mut self) -> bool {
        std::mem::take(&mut self.wants_body)
    }

    /// The request's body, if nothing of the request was sent and nothing of a response read.
    pub(crate) fn unsent(&mut self) -> Option<B> {
        self.sending.unsent()
    }

    /// The connection, and the bytes read after the response.
    pub(crate) fn into_parts(self) -> (T, Bytes) {
        (self.transport, self.read.into_bytes())
    }

    /// Sends as much of the request as possible. A server that stops reading is no error: it may have
    /// answered already.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        let moved = self.sending.send(&mut self.transport, cx).map_err(ExchangeError::Request)?;
        self.moved |= moved;
        Ok(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = ready!(self.read.poll_read(&mut self.transport, cx));
        self.moved = true;
        Poll::Ready(read)
    }

    /// Searches the bytes read for the head of the response.
    fn take_head(&mut self, interim: &mut (dyn FnMut(Interim) + Send)) -> Result<Option<Response<()>>, ExchangeError> {
        loop {
            self.skip_empty_lines();
            if self.interims.1 > self.head_bytes {
                return Err(ExchangeError::TooManyInterims);
            }
            if !may_begin(&self.read) {
                return Err(ExchangeError::Malformed("it begins with something else than HTTP/1".into()));
            }
            let end = self.end_of_head();
            let is_interim = is_interim(&self.read);
            let bytes = end.unwrap_or(self.read.len());
            if is_interim && (self.interims.0 == MOST_INTERIMS || self.interims.1 + bytes > self.head_bytes) {
                return Err(ExchangeError::TooManyInterims);
            } else if bytes > self.head_bytes {
                return Err(ExchangeError::HeadTooLarge);
            }
            let Some(end) = end else { return Ok(None) };
            let fields_about = std::mem::take(&mut self.lines);
            let head = self.read.take_head(end);
            self.searched = 0;
            let answer = ResponseHead::parse(&head, fields_about, self.bodiless)?;
            match answer.response.status() {
                StatusCode::SWITCHING_PROTOCOLS => self.keeps = false,
                status if status.is_informational() => {
                    self.interims = (self.interims.0 + 1, self.interims.1 + end);
                    // The client is asked for its body when that is read.
                    if status == StatusCode::CONTINUE {
                        self.wants_body = true;
                    } else {
                        interim(into_interim(answer.response));
                    }
                    continue;
                }
                _ => self.keeps &= answer.keeps,
            }
            self.body = answer.body.into();
            self.skip_framing()?;
            return Ok(Some(answer.response));
        }
    }

    /// Skips empty lines before a head. Some servers send one too many after a body.
    fn skip_empty_lines(&mut self) {
        let before = self.read.len();
        while let [b'\n', ..] | [b'\r', b'\n', ..] = self.read[..] {
            let end = if self.read[0] == b'\n' { 1 } else { 2 };
            self.read.skip(end);
        }
        self.interims.1 += before - self.read.len();
    }

    /// The end of the first head, which is its first empty line.
    fn end_of_head(&mut self) -> Option<usize> {
        let from = self.searched.saturating_sub(2);
        for at in memchr::memchr_iter(b'\n', &self.read[from..]) {
            let end = from + at + 1;
            self.lines += 1;
            match &self.read[end..] {
                [b'\n', ..] => return Some(end + 1),
                [b'\r', b'\n', ..] => return Some(end + 2),
                _ => {}
            }
        }
        self.searched = self.read.len();
        None
    }

    fn take_frame(&mut self) -> Result<Option<Frame<Bytes>>, ExchangeError> {
        let data = match &mut self.body {
            Body::Ended | Body::Awaited => return Ok(None),
            Body::Trailers(trailers) => {
                let trailers = std::mem::take(trailers);
                self.body = Body::Ended;
                return Ok(Some(Frame::trailers(trailers)));
            }
            Body::Length(left) => {
                let len = usize::try_from(*left).map_or(self.read.len(), |left| left.min(self.read.len()));
                *left -= len as u64;
                if *left == 0 {
                    self.body = Body::Ended;
                }
                self.read.take(len)
            }
            Body::ToEnd => self.read.take(self.read.len()),
            Body::Chunked(chunks) => {
                let (framing, next) = chunks.next(&self.read).map_err(|_| malformed_chunks())?;
                self.read.skip(framing);
                match next {
                    Next::More => return Ok(None),
                    Next::Data(len) => {
                        chunks.take(len);
                        let data = self.read.take(len);
                        let Body::Chunked(chunks) = &mut self.body else { return Ok(None) };
                        // The last data of a body mostly comes with the body's end. A malformed end is found
                        // again by the next call.
                        if let Ok((framing, next)) = chunks.next(&self.read) {
                            self.read.skip(framing);
                            if next == Next::End {
                                self.end_chunks()?;
                            }
                        }
                        data
                    }
                    Next::End => {
                        self.end_chunks()?;
                        return self.take_frame();
                    }
                }
            }
        };
        Ok((!data.is_empty()).then(|| Frame::data(data)))
    }

    /// Reads the framing that came with the head. The head is not handed on yet, so a malformed response can
    /// still be replaced.
    fn skip_framing(&mut self) -> Result<(), ExchangeError> {
        let Body::Chunked(chunks) = &mut self.body else { return Ok(()) };
        let (framing, next) = chunks.next(&self.read).map_err(|_| malformed_chunks())?;
        self.read.skip(framing);
        if next == Next::End { self.end_chunks() } else { Ok(()) }
    }

    fn end_chunks(&mut self) -> Result<(), ExchangeError> {
        let Body::Chunked(chunks) = &self.body else { return Ok(()) };
        let trailers = chunks.trailers().map_err(|_| ExchangeError::Malformed("its trailers are malformed".into()))?;
        self.body = if trailers.is_empty() { Body::Ended } else { Body::Trailers(trailers) };
        Ok(())
    }
}

impl From<ResponseError> for ExchangeError {
    fn from(error: ResponseError) -> Self {
        match error {
            ResponseError::Malformed(what) => Self::Malformed(what.into()),
            ResponseError::TooManyFields => Self::HeadTooLarge,
        }
    }
}

/// An interim response as any client may see it.
pub(crate) fn into_interim(mut interim: Interim) -> Interim {
    *interim.version_mut() = Version::HTTP_11;
    heads::prepare_response(interim.status(), interim.headers_mut(), Some(0), &Method::GET);
    interim
}

fn closed(within: &'static str) -> ExchangeError {
    ExchangeError::Closed(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it closed the connection {within}")))
}

fn malformed_chunks() -> ExchangeError {
    ExchangeError::Malformed("the chunks of its body are malformed".into())
}
