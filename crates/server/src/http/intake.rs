//! What a connection's bytes pass on their way in, between the transport (or TLS) and the HTTP parser.
//!
//! For HTTP/1 it hands over whole heads only, found in order by the [`Framer`]; so a slow or refused head costs the parser
//! nothing, its time-out can be answered with 408, and every refusal takes the ordinary way of a response: in place of the
//! refused head the parser gets [`REFUSED`], which no client can send, and the service answers it with the status that was
//! noted in the connection's [`Marks`]. HTTP/2 passes as it is.
//!
//! On their way out, interim responses are put between what the parser's other side writes ([`super::interim`]).

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use http::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Instant, Sleep, sleep_until, timeout},
};

use super::{
    Marks,
    framing::{Fault, Framer, WaitsFor},
    head::{HeadLimits, Refusal},
};
use crate::body::BODY_BYTES_PER_SECOND;

/// The target of the request that stands for a refused one: [`super::head`] lets `*` pass with OPTIONS only.
pub(crate) const REFUSED_TARGET: &str = "*";
const REFUSED: &[u8] = b"GET * HTTP/1.1\r\nConnection: close\r\n\r\n";
const REFUSED_HEAD: &[u8] = b"HEAD * HTTP/1.1\r\nConnection: close\r\n\r\n";

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// First bytes are read into a buffer of this size while the protocol is not known.
const FIRST_READ_BYTES: usize = 2048;
/// At a stop, idle connections are closed this late, so that a request that has just arrived is still seen.
const IDLE_GRACE: Duration = Duration::from_millis(50);
/// At a stop, connections that were accepted but have sent nothing yet may take so long for their request.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);
/// A closed connection whose client is still sending is read from for so long and so far, because closing a socket with
/// unread bytes resets it, and throws away what was not sent yet (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 4 * 1024 * 1024;
/// For the last bytes of a transport that is shut down (the TLS alert), and lingering.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

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
pub(crate) struct Patience {
    /// For a head, from its first byte; for the first one from the accept.
    pub(crate) head: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
}

/// The incoming side of a connection; writes pass through, but for interim responses.
#[derive(Debug)]
pub(crate) struct Intake<S> {
    inner: S,
    /// Bytes read and not handed on; the first `released` of them may be.
    held: BytesMut,
    released: usize,
    /// `None` for HTTP/2.
    framer: Option<Framer>,
    end: Option<End>,
    /// The rest of interim responses that are being written: nothing else goes before it.
    interim: BytesMut,
    /// Whether the client may still be sending when we close.
    linger: bool,
    marks: Arc<Marks>,
    patience: Patience,
    accepted_at: Instant,
    closing_since: Option<Instant>,
    wait: Wait,
    timer: Pin<Box<Sleep>>,
    /// Our side is closed.
    shut: bool,
    thrown_away: usize,
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The client has closed, or we do.
    Closed,
    /// A body is malformed, or took too long.
    Broken(io::ErrorKind),
}

/// What is being waited for, since when.
#[derive(Clone, Copy, Debug)]
struct Wait {
    heads: u64,
    what: WaitsFor,
    since: Instant,
    /// Bytes handed on since.
    bytes: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Intake<S> {
    pub(crate) fn new(inner: S, limits: HeadLimits, patience: Patience, marks: Arc<Marks>) -> Self {
        let now = Instant::now();
        Self {
            inner,
            held: BytesMut::new(),
            released: 0,
            framer: Some(Framer::new(limits)),
            end: None,
            interim: BytesMut::new(),
            linger: false,
            marks,
            patience,
            accepted_at: now,
            closing_since: None,
            wait: Wait { heads: 0, what: WaitsFor::FirstHead, since: now, bytes: 0 },
            timer: Box::pin(sleep_until(now + patience.head)),
            shut: false,
            thrown_away: 0,
        }
    }

    /// Tells the protocol from the first bytes (HTTP/2 with prior knowledge, RFC 9113, section 3.3). `None`: the connection
    /// was closed, or sent nothing in time.
    pub(crate) fn poll_protocol(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Protocol>>> {
        let mut bytes = [0; FIRST_READ_BYTES];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            if Pin::new(&mut self.inner).poll_read(cx, &mut buf)?.is_pending() {
                ready!(self.poll_patience(cx));
                // A head that is cut off within what could be a preface is answered as one.
                return Poll::Ready(Ok((self.released > 0).then_some(Protocol::Http1)));
            }
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(None));
            }
            self.held.extend_from_slice(buf.filled());
            let len = self.held.len().min(HTTP2_PREFACE.len());
            if self.held[..len] != HTTP2_PREFACE[..len] {
                self.scan_held();
                return Poll::Ready(Ok(Some(Protocol::Http1)));
            }
            if len == HTTP2_PREFACE.len() {
                self.pass_http2();
                return Poll::Ready(Ok(Some(Protocol::Http2)));
            }
        }
    }

    /// From here on bytes pass as they are: HTTP/2 has its own framing. Its acknowledgements of all kinds come until the end.
    pub(crate) fn pass_http2(&mut self) {
        self.pass_through();
        self.linger = true;
    }

    /// From here on bytes pass as they are, and each direction ends by itself: what still comes when ours has ended is somebody's.
    pub(crate) fn pass_through(&mut self) {
        self.framer = None;
        self.linger = false;
        self.end = None;
        self.released = self.held.len();
    }

    /// Closes an HTTP/1 connection so that what was sent arrives; `unread` tells that the client may have sent more than was
    /// read.
    pub(crate) async fn close(mut self, unread: bool) {
        // A stop ends connections after a response, whether or not the next request is on its way.
        // So does an answer that came before the request's body was read.
        self.linger |= unread || !self.held.is_empty() || (self.marks.closing() && self.end.is_none());
        self.linger |= self.framer.as_ref().is_some_and(|framer| framer.waits_for(&self.held) == WaitsFor::Body);
        let _ = timeout(SHUTDOWN_TIMEOUT, self.shutdown()).await;
    }

    fn scan_held(&mut self) {
        let Some(framer) = &mut self.framer else { return };
        let accepted = framer.accept(&self.held);
        self.released = accepted.bytes;
        if let Some(fault) = accepted.fault {
            self.fail(fault);
        }
    }

    fn fail(&mut self, fault: Fault) {
        let refused = self.held.split_off(self.released);
        self.linger = true;
        match fault {
            Fault::Head(Refusal { status, head }) => {
                self.marks.refuse(status, &refused);
                self.held.extend_from_slice(if head { REFUSED_HEAD } else { REFUSED });
                self.released = self.held.len();
                self.end = Some(End::Closed);
            }
            Fault::Body => self.end = Some(End::Broken(io::ErrorKind::InvalidData)),
        }
    }

    /// Ready when the client has kept us waiting for too long, after taking the consequence.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(framer) = &self.framer else { return Poll::Pending };
        let (heads, what) = (framer.heads(), framer.waits_for(&self.held));
        let now = Instant::now();
        if (heads, what) != (self.wait.heads, self.wait.what) {
            self.wait = Wait { heads, what, since: now, bytes: 0 };
        }
        if self.closing_since.is_none() && self.marks.closing() {
            self.closing_since = Some(now);
        }
        let due = self.due();
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
        // The timer is set anew only when it fires: a busy connection does not touch it.
        while self.timer.as_mut().poll(cx).is_ready() {
            if now >= due {
                self.run_out(what);
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    /// Writes the rest of interim responses that have begun.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.interim))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.interim.advance(bytes),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn due(&self) -> Instant {
        let Wait { heads, what, since, bytes } = self.wait;
        let due = match what {
            WaitsFor::FirstHead => self.accepted_at + self.patience.head,
            WaitsFor::RestOfHead if heads == 0 => self.accepted_at + self.patience.head,
            WaitsFor::RestOfHead => since + self.patience.head,
            WaitsFor::NextHead => since + self.patience.idle,
            WaitsFor::Body => since + self.patience.head + Duration::from_secs(bytes / BODY_BYTES_PER_SECOND),
        };
        match (self.closing_since, what) {
            (Some(closing), WaitsFor::NextHead) => due.min(closing + IDLE_GRACE),
            (Some(closing), WaitsFor::FirstHead) => due.min(closing + FIRST_REQUEST_GRACE),
            _ => due,
        }
    }

    fn run_out(&mut self, what: WaitsFor) {
        self.end = Some(End::Closed);
        match what {
            WaitsFor::FirstHead | WaitsFor::NextHead => {}
            WaitsFor::RestOfHead => {
                let refusal =
                    self.framer.as_mut().and_then(|framer| framer.give_up(&self.held, StatusCode::REQUEST_TIMEOUT));
                if let Some(refusal) = refusal {
                    self.fail(Fault::Head(refusal));
                }
            }
            WaitsFor::Body => {
                self.marks.refuse(StatusCode::REQUEST_TIMEOUT, b"");
                self.linger = true;
                self.end = Some(End::Broken(io::ErrorKind::TimedOut));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Intake<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.released > 0 {
                let len = this.released.min(buf.remaining());
                buf.put_slice(&this.held[..len]);
                this.released -= len;
                this.held.advance(len);
                if this.held.is_empty() {
                    // A connection that waits holds no buffer here.
                    this.held = BytesMut::new();
                }
                this.wait.bytes += len as u64;
                return Poll::Ready(Ok(()));
            }
            match this.end {
                Some(End::Closed) => return Poll::Ready(Ok(())),
                Some(End::Broken(kind)) => return Poll::Ready(Err(kind.into())),
                None => {}
            }
            let Some(framer) = &mut this.framer else { return Pin::new(&mut this.inner).poll_read(cx, buf) };
            if framer.holds() {
                // What comes now may be of another protocol. Who reads it is known when the request is answered.
                if this.marks.poll_ended(cx, framer.heads()).is_ready() {
                    framer.go_on();
                    this.scan_held();
                    continue;
                }
                return Poll::Pending;
            }

            // Read into the parser's buffer; what may not go on yet is taken out of it again.
            let before = buf.filled().len();
            if Pin::new(&mut this.inner).poll_read(cx, buf)?.is_pending() {
                ready!(this.poll_patience(cx));
                continue;
            }
            let fresh = &buf.filled()[before..];
            if fresh.is_empty() {
                this.end = Some(End::Closed);
            } else if this.held.is_empty() {
                let accepted = framer.accept(fresh);
                this.held.extend_from_slice(&fresh[accepted.bytes..]);
                buf.set_filled(before + accepted.bytes);
                if let Some(fault) = accepted.fault {
                    this.fail(fault);
                }
                if accepted.bytes > 0 {
                    this.wait.bytes += accepted.bytes as u64;
                    return Poll::Ready(Ok(()));
                }
            } else {
                this.held.extend_from_slice(fresh);
                buf.set_filled(before);
                this.scan_held();
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Intake<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.poll_interim(cx))?;
            ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
            if !this.marks.interims.wait() {
                return Poll::Ready(Ok(()));
            }
            // hyper has written all that it had, and has no answer to the request that they belong to.
            this.interim = this.marks.interims.take();
        }
    }

    /// Ends our side, and then reads what the client still sends, where that is to be expected and nobody else reads it.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.shut {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.shut = true;
            if !this.linger {
                return Poll::Ready(Ok(()));
            }
            this.timer.as_mut().reset(Instant::now() + LINGER);
        }
        let mut bytes = [0; FIRST_READ_BYTES];
        while this.thrown_away < LINGER_BYTES {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => this.thrown_away += buf.filled().len(),
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(this.timer.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
