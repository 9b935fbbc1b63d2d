//! HTTP/1.1 as a server speaks it (RFC 9112), over one connection.
//!
//! It is not hyper's, for two reasons. Requests are held against the standard more strictly than hyper does
//! ([`http1::HeadScan`]), and one reading of them cannot differ from another. And a short proxied request costs less
//! (docs/results.md). HTTP/2 is hyper's.
//!
//! One request after the other: nothing is read of the next, but for what came with the one before, until the response
//! is out. So what follows a head that asks for an upgrade waits for the answer, as bytes of whatever protocol that
//! will be.

#[cfg(test)]
mod frames;
pub(crate) mod interim;
#[cfg(test)]
mod tests;

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, Response, StatusCode, Version, request::Parts};
use http_body::{Body, Frame};
use http1::{BodyKind, Chunks, Framing, Head, HeadLimits, HeadScan, Malformed, Next, Refusal, RequestTraits, Step};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::interim::Interims;
use super::{date, lingering_close::LingeringClose};
use crate::body::{Feed, Inbox, Piece, Sending, Timer, Upload, upload};

pub(super) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// At a stop, idle connections are closed this late, so that a request that has just arrived is still seen.
const IDLE_GRACE: Duration = Duration::from_millis(50);
/// At a stop, connections that were accepted but have sent nothing yet may take so long for their request.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);
/// As much of a refused request as the log shows.
const MAX_REFUSED_LINE_BYTES: usize = 256;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// How long a connection may keep us waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a head, from its first byte; for the first one from the accept.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
}

/// An HTTP/1.1 connection of a client's.
///
/// The order of calls: [`Session::poll_protocol`] where it is not known, [`Session::serve`], and at the end
/// [`Session::poll_close`], or [`Session::into_parts`].
#[derive(Debug)]
pub(super) struct Session<S, B> {
    /// Before the transport, so that a response that breaks off is over before its connection is. In a box, so that an idle
    /// connection has none.
    sending: Option<Box<Sending<B>>>,
    transport: S,
    read: Inbox,
    limits: HeadLimits,
    scan: HeadScan,
    incoming: Incoming,
    /// Where the body of the request under way goes.
    feed: Option<Feed>,
    /// The client waits with the body until it is asked for it.
    awaits_continue: bool,
    asked: RequestTraits,
    /// Interim responses that are still to be written before the response.
    ahead: BytesMut,
    clock: Clock,
    /// The client has ended its side.
    ended: bool,
    lingering_close: LingeringClose,
    direct: Option<Direct<S, B>>,
}

/// Writes the next bytes of a body to the transport without a copy, if it can, behind the bytes given
/// ([`Sending::send_with`]).
pub(super) type Direct<S, B> = fn(&mut S, &mut Context<'_>, &[u8], &mut B, u64) -> Option<Poll<io::Result<usize>>>;

/// The part of a request to which the next bytes belong.
#[derive(Debug)]
enum Incoming {
    Head,
    Length(u64),
    Chunked(Chunks),
    /// The next bytes are not looked at: the request before them was refused or malformed, or a transfer broke off.
    Nothing,
}

/// The result of waiting for a request.
#[derive(Debug)]
enum Arrival {
    /// A request, with its body if it has one.
    Request(Box<Parts>, Option<Upload>),
    /// One that is to be refused; there will be no other.
    Refused(Refused),
    /// None.
    Nothing,
}

/// A request that is the client's fault.
#[derive(Debug)]
pub(super) struct Refused {
    /// The answer.
    pub(super) status: StatusCode,
    /// Whether it was a HEAD.
    pub(super) is_head: bool,
    /// The first line of the request, for the log.
    pub(super) line: Box<[u8]>,
}

/// Whether another request may come after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// A request.
    Next,
    /// Nothing.
    Last,
}

impl<S, B> Session<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error = io::Error> + Unpin,
{
    /// On a connection that was just accepted.
    pub(super) fn new(transport: S, limits: HeadLimits, patience: Patience, drain: CancellationToken) -> Self {
        Self {
            sending: None,
            transport,
            read: Inbox::default(),
            limits,
            scan: HeadScan::default(),
            incoming: Incoming::Head,
            feed: None,
            awaits_continue: false,
            asked: RequestTraits { version: Version::HTTP_11, is_head: false, keeps: true, takes_trailers: false },
            ahead: BytesMut::new(),
            clock: Clock::new(patience, drain),
            ended: false,
            lingering_close: LingeringClose::default(),
            direct: None,
        }
    }

    /// Bodies are written by `direct` where it can. The transport is a socket, which needs no shutdown before it is closed.
    pub(super) fn with_direct(mut self, direct: Option<Direct<S, B>>) -> Self {
        self.direct = direct;
        self
    }

    /// Tells the protocol from the first bytes (HTTP/2 with prior knowledge, RFC 9113, section 3.3). `None`: the connection
    /// was closed, or sent nothing in time.
    pub(super) fn poll_protocol(&mut self, cx: &mut Context<'_>) -> Poll<Option<Protocol>> {
        loop {
            let len = self.read.len().min(HTTP2_PREFACE.len());
            if self.read[..len] != HTTP2_PREFACE[..len] {
                return Poll::Ready(Some(Protocol::Http1));
            }
            if len == HTTP2_PREFACE.len() {
                return Poll::Ready(Some(Protocol::Http2));
            }
            let Poll::Ready(read) = self.read.poll_read_heads(&mut self.transport, cx) else {
                ready!(self.clock.poll_over(cx, len > 0));
                // A head that is cut off within what could be a preface is answered as one.
                return Poll::Ready((len > 0).then_some(Protocol::Http1));
            };
            if !matches!(read, Ok(1..)) {
                self.ended = true;
                return Poll::Ready(None);
            }
        }
    }

    /// Has one request after the other answered, to the last. `interims` has what comes before a response; a request is
    /// refused that cannot be understood, and there is none after it.
    pub(super) async fn serve<F>(
        &mut self,
        interims: &Interims,
        mut answer: impl FnMut(Box<Parts>, Option<Upload>) -> F,
        refuse: impl Fn(Refused) -> Response<B>,
    ) where
        F: Future<Output = Response<B>> + Unpin,
    {
        loop {
            let response = match poll_fn(|cx| self.poll_request(cx)).await {
                Arrival::Request(request, body) => {
                    let mut answer = answer(request, body);
                    poll_fn(|cx| self.poll_answer(cx, &mut answer, interims)).await
                }
                Arrival::Refused(refused) => refuse(refused),
                Arrival::Nothing => return,
            };
            self.ahead.extend_from_slice(&interims.answered());
            self.respond(response);
            if poll_fn(|cx| self.poll_sent(cx)).await == Sent::Last {
                return;
            }
        }
    }

    /// The next request.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            if !self.read.is_empty() {
                match self.scan.advance(&self.read, &self.limits) {
                    Step::Complete(head) => return Poll::Ready(self.begin(head)),
                    Step::Refused(refusal) => return Poll::Ready(self.refuse(refusal, first_line(&self.read))),
                    Step::Partial => {}
                }
            }
            match self.read.poll_read_heads(&mut self.transport, cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.ended = true;
                    return Poll::Ready(Arrival::Nothing);
                }
                Poll::Pending => {
                    if self.read.is_empty() {
                        self.scan = HeadScan::default();
                    }
                    let begun = self.scan.begun(&self.read);
                    ready!(self.clock.poll_over(cx, begun));
                    let refusal = begun.then(|| self.scan.refuse(&self.read, StatusCode::REQUEST_TIMEOUT));
                    let line = first_line(&self.read);
                    return Poll::Ready(refusal.map_or(Arrival::Nothing, |refusal| self.refuse(refusal, line)));
                }
            }
        }
    }

    fn begin(&mut self, head: Head) -> Arrival {
        let bytes = self.read.take_head(head.len);
        let request = match self.scan.request(&bytes) {
            Ok(request) => request,
            Err(status) => return self.refuse(self.scan.refuse(&bytes, status), first_line(&bytes)),
        };
        self.scan.restart();
        self.clock.begun();
        let (version, is_head) = (request.version, request.method == Method::HEAD);
        self.asked = RequestTraits { version, is_head, keeps: head.keeps, takes_trailers: head.takes_trailers };
        let (incoming, length) = match head.body {
            BodyKind::None => return Arrival::Request(request, None),
            BodyKind::Length(length) => (Incoming::Length(length), Some(length)),
            BodyKind::Chunked => (Incoming::Chunked(Chunks::of_client()), None),
        };
        self.incoming = incoming;
        self.awaits_continue = head.expects_continue && self.read.is_empty();
        self.read.restart();
        let (feed, upload) = upload(length);
        self.feed = Some(feed);
        // The part of the body that came with the head is there at once.
        if let Some(piece) = self.piece() {
            self.give(&Context::from_waker(Waker::noop()), piece);
        }
        Arrival::Request(request, Some(upload))
    }

    fn refuse(&mut self, refusal: Refusal, line: Box<[u8]>) -> Arrival {
        let Refusal { status, head: is_head } = refusal;
        self.incoming = Incoming::Nothing;
        self.asked = RequestTraits { version: Version::HTTP_11, is_head, keeps: false, takes_trailers: false };
        Arrival::Refused(Refused { status, is_head, line })
    }

    /// The answer to a request. Meanwhile what stands before it goes out, and what is asked for of the request's body comes in.
    fn poll_answer<F>(&mut self, cx: &mut Context<'_>, answer: &mut F, interims: &Interims) -> Poll<F::Output>
    where
        F: Future + Unpin,
    {
        loop {
            if let Poll::Ready(response) = Pin::new(&mut *answer).poll(cx) {
                return Poll::Ready(response);
            }
            while let Poll::Ready(interims) = interims.poll_take(cx) {
                self.ahead.extend_from_slice(&interims);
            }
            // An error of the connection will be met again.
            let _ = self.poll_ahead(cx);
            if !self.feed(cx) {
                return Poll::Pending;
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !self.ahead.is_empty() {
            match ready!(Pin::new(&mut self.transport).poll_write(cx, &self.ahead))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.ahead.advance(bytes),
            }
        }
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    /// Whether something of the request's body has come that was asked for.
    fn feed(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.feed.as_ref().is_some_and(|feed| feed.poll_wanted(cx).is_ready()) {
            return false;
        }
        let Poll::Ready(piece) = self.poll_piece(cx) else { return false };
        self.give(cx, piece);
        true
    }

    fn give(&mut self, cx: &Context<'_>, piece: Result<Piece, io::ErrorKind>) {
        if piece.is_err() {
            self.incoming = Incoming::Nothing;
        }
        if let Some(feed) = &self.feed {
            feed.push(cx, piece);
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, io::ErrorKind>> {
        loop {
            if let Some(piece) = self.piece() {
                return Poll::Ready(piece);
            }
            if std::mem::take(&mut self.awaits_continue) {
                self.ahead.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                let _ = self.poll_ahead(cx);
            }
            if !matches!(ready!(self.read.poll_read(&mut self.transport, cx)), Ok(1..)) {
                self.ended = true;
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof));
            }
        }
    }

    /// The next of the request's body, if it was read.
    fn piece(&mut self) -> Option<Result<Piece, io::ErrorKind>> {
        self.incoming.piece(&mut self.read).map_err(|Malformed| io::ErrorKind::InvalidData).transpose()
    }

    /// Begins a response.
    fn respond(&mut self, response: Response<B>) {
        let (head, body) = response.into_parts();
        let exact = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        let framing = Framing::of(&self.asked, &head, exact);
        self.asked.keeps = framing.keeps;
        // A 100 (Continue) goes before a response (RFC 9110, section 10.1.1). Within one, it would be taken for a part of it.
        self.awaits_continue = false;
        let (asked, ahead) = (self.asked, std::mem::take(&mut self.ahead));
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(&ahead);
            framing.write(&asked, &head, date::write, out);
        };
        self.sending.get_or_insert_default().begin(write, body, framing.coding);
    }

    /// Ready when the response is out, or cannot be.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Sent> {
        loop {
            let (sending, direct) = (self.sending.get_or_insert_default(), self.direct);
            let sent = sending.send_with(&mut self.transport, cx, |transport, cx, ahead, body, left_bytes| {
                direct.and_then(|direct| direct(transport, cx, ahead, body, left_bytes))
            });
            if sent.is_err() || sending.has_failed() {
                // The client may still be sending what will have no answer.
                self.incoming = Incoming::Nothing;
                break;
            }
            if sending.is_done() {
                break;
            }
            // The response may depend on the rest of the request.
            if !self.feed(cx) {
                return Poll::Pending;
            }
        }
        self.sending = None;
        // The rest of a body is not asked for any more.
        self.feed = None;
        let goes_on = self.asked.keeps && matches!(self.incoming, Incoming::Head);
        Poll::Ready(if goes_on { Sent::Next } else { Sent::Last })
    }

    /// Ends our side so that what was sent arrives, even if the client is still sending.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A stop ends connections after a response, whether or not the next request is on its way. So does an answer that came
        // before the request's body was read.
        let unread =
            !self.read.is_empty() || !matches!(self.incoming, Incoming::Head) || self.clock.drain.is_cancelled();
        let lingers = unread && !self.ended;
        if !lingers && self.direct.is_some() {
            return Poll::Ready(());
        }
        self.lingering_close.poll(&mut self.transport, lingers, cx)
    }

    /// How long the connection may be idle between requests.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.clock.patience.idle
    }

    /// The connection, and what was read and belongs to no request.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.transport, self.read.into_bytes())
    }
}

/// The first line of a request, cut to `MAX_REFUSED_LINE_BYTES`, for the log.
fn first_line(bytes: &[u8]) -> Box<[u8]> {
    let line = bytes.trim_ascii_start();
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len()).min(MAX_REFUSED_LINE_BYTES);
    line[..end].trim_ascii_end().into()
}

impl Incoming {
    /// The next of a body, if it was read.
    fn piece(&mut self, read: &mut Inbox) -> Result<Option<Piece>, Malformed> {
        match self {
            Self::Head | Self::Nothing => Err(Malformed),
            Self::Length(left) => {
                let len = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
                if len == 0 {
                    return Ok(None);
                }
                *left -= len as u64;
                let is_last = *left == 0;
                if is_last {
                    *self = Self::Head;
                }
                Ok(Some(Piece { frame: Some(Frame::data(read.take(len))), is_last }))
            }
            Self::Chunked(chunks) => {
                let (framing, next) = chunks.next(read)?;
                read.skip(framing);
                match next {
                    Next::More => Ok(None),
                    Next::Data(len) => {
                        chunks.take(len);
                        let frame = Some(Frame::data(read.take(len)));
                        // With its last data a body mostly brings its end. An error is found again the next time.
                        let next = chunks.next(read).ok();
                        read.skip(next.map_or(0, |(framing, _)| framing));
                        let is_last =
                            matches!(next, Some((_, Next::End))) && chunks.trailers().is_ok_and(|it| it.is_empty());
                        if is_last {
                            *self = Self::Head;
                        }
                        Ok(Some(Piece { frame, is_last }))
                    }
                    Next::End => {
                        let trailers = chunks.trailers()?;
                        *self = Self::Head;
                        let frame = (!trailers.is_empty()).then(|| Frame::trailers(trailers));
                        Ok(Some(Piece { frame, is_last: true }))
                    }
                }
            }
        }
    }
}

/// How long the next request may take.
#[derive(Debug)]
struct Clock {
    patience: Patience,
    drain: CancellationToken,
    /// The part of a request that is waited for; `None`: none is.
    waits_for: Option<WaitsFor>,
    since: Instant,
    /// No request has come yet.
    is_fresh: bool,
    closing_since: Option<Instant>,
    /// Set anew only when it fires, or for something that is due before: a busy connection does not touch it.
    timer: Timer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    Head,
    RestOfHead,
}

impl Clock {
    fn new(patience: Patience, drain: CancellationToken) -> Self {
        let now = Instant::now();
        let timer = Timer::at(now + patience.head);
        let waits_for = Some(WaitsFor::Head);
        Self { patience, drain, waits_for, since: now, is_fresh: true, closing_since: None, timer }
    }

    /// A request has begun.
    fn begun(&mut self) {
        self.waits_for = None;
        self.is_fresh = false;
    }

    /// Ready when the client has kept us waiting for too long: for a head, or the rest of one.
    fn poll_over(&mut self, cx: &mut Context<'_>, rest: bool) -> Poll<()> {
        let what = if rest { WaitsFor::RestOfHead } else { WaitsFor::Head };
        if !self.waits_for.is_some_and(|before| before == what || self.is_fresh) {
            self.since = Instant::now();
        }
        self.waits_for = Some(what);
        let since = self.since;
        if self.closing_since.is_none() && self.drain.is_cancelled() {
            self.closing_since = Some(Instant::now());
        }
        let due = since + if rest || self.is_fresh { self.patience.head } else { self.patience.idle };
        let due = match (self.closing_since, what) {
            (Some(closing), WaitsFor::Head) => {
                due.min(closing + if self.is_fresh { FIRST_REQUEST_GRACE } else { IDLE_GRACE })
            }
            _ => due,
        };
        if self.timer.due() > due {
            self.timer.set(due);
        }
        while self.timer.poll(cx).is_ready() {
            if self.timer.due() >= due {
                return Poll::Ready(());
            }
            self.timer.set(due);
        }
        Poll::Pending
    }
}
