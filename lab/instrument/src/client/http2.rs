//! HTTP/2: many requests at a time on a connection.
//!
//! The `h2` crate implements the protocol. The generator's own loop polls its futures, without a runtime: the
//! transport returns "pending" when the socket would block, and the next event of the socket polls again.
//! Wakers only record which streams have news.

mod link;
mod stream;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{Builder, SendRequest},
};
use workload::{outcome::End, sequence::Request};

use self::{
    link::{Io, Link, Wakes},
    stream::{Failure, Stream},
};
use super::{
    report::{BYTES_A_TURN, ConnectionState, Progress, Report, RequestState},
    transport::{Transport, end_of},
};
use crate::docroot::Content;

/// Flow-control credit of the server on a stream and on a connection, as in Chrome. It is far above bandwidth
/// times delay of any path of the lab, so TCP decides how much is under way.
const STREAM_WINDOW_BYTES: u32 = 6 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 15 << 20;
/// Most requests under way before the server has announced its limit: the least that RFC 9113, section 6.5.2
/// recommends to servers.
const STREAMS_BEFORE_SETTINGS: usize = 100;

/// A connection and the requests on it.
pub(super) struct Http2 {
    phase: Phase,
    link: Rc<Link>,
    wakes: Arc<Wakes>,
    /// Requests that wait for the handshake, or for a free stream.
    waiting: Vec<Waiting>,
    /// By number of the request.
    streams: HashMap<usize, Stream>,
    /// Whether a response came over it.
    used: bool,
    /// Whether it accepts no more requests.
    retired: bool,
}

type Opened = (SendRequest<Bytes>, h2::client::Connection<Io, Bytes>);

enum Phase {
    /// The client's preface is being sent.
    Opening(Pin<Box<dyn Future<Output = Result<Opened, h2::Error>>>>),
    Open(Box<Opened>),
    Over,
}

struct Waiting {
    ask: usize,
    request: Request,
    head: http::Request<()>,
}

impl Http2 {
    /// A connection over an unused transport.
    pub(super) fn new(transport: Transport) -> Self {
        let link = Rc::new(Link::default());
        let io = Io::new(transport, Rc::clone(&link));
        let opening = Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .enable_push(false)
            // Aborts come in bursts. Data that the server sent before it saw them must still be recognised.
            .max_concurrent_reset_streams(100_000)
            .reset_stream_duration(Duration::from_secs(60))
            // h2's limit protects servers from clients; here every wrong response is such a reset.
            .max_local_error_reset_streams(None)
            .handshake::<_, Bytes>(io);
        Self {
            phase: Phase::Opening(Box::pin(opening)),
            link,
            wakes: Arc::new(Wakes::default()),
            waiting: Vec::new(),
            streams: HashMap::new(),
            used: false,
            retired: false,
        }
    }

    /// Whether it can take another request now.
    pub(super) fn has_room(&self) -> bool {
        let most = match &self.phase {
            Phase::Opening(_) => STREAMS_BEFORE_SETTINGS,
            Phase::Open(opened) => opened.0.current_max_send_streams(),
            Phase::Over => 0,
        };
        !self.retired && self.waiting.len() + self.streams.len() < most
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.streams.is_empty()
    }

    /// Takes a request.
    pub(super) fn give(&mut self, ask: usize, request: &Request, head: http::Request<()>) {
        self.waiting.push(Waiting { ask, request: *request, head });
    }

    /// Forgets a request, and tells the server in the next turn.
    pub(super) fn cancel(&mut self, ask: usize) -> ConnectionState {
        self.waiting.retain(|waiting| waiting.ask != ask);
        self.streams.remove(&ask);
        // The connection may never be established, so retries use another one.
        self.retired |= !self.link.was_heard();
        if self.retired && self.is_idle() { ConnectionState::Closed } else { ConnectionState::More }
    }

    /// Does all the work that the socket allows, up to a bound.
    pub(super) fn turn(&mut self, content: &Content, reports: &mut Vec<Report>) -> ConnectionState {
        self.link.begin_turn(BYTES_A_TURN);
        let waker = Waker::from(Arc::clone(&self.wakes));
        let context = &mut Context::from_waker(&waker);
        loop {
            self.wakes.reset();
            let over = self.poll_connection(context);
            let sent = self.send_waiting(context, reports);
            for ask in self.wakes.take_streams() {
                self.poll_stream(ask, content, reports);
            }
            if let Poll::Ready(result) = over {
                self.phase = Phase::Over;
                self.lose_all(&result, content, reports);
                return ConnectionState::Closed;
            }
            if !sent && !self.wakes.is_set() {
                break;
            }
        }
        match (self.retired && self.is_idle(), self.link.has_more()) {
            (true, _) => ConnectionState::Closed,
            (false, true) => ConnectionState::More,
            (false, false) => ConnectionState::Open,
        }
    }

    /// Ready when the connection has ended.
    fn poll_connection(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Phase::Opening(opening) = &mut self.phase {
            match opening.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(opened) => self.phase = Phase::Open(Box::new(opened?)),
            }
        }
        let Phase::Open(opened) = &mut self.phase else { return Poll::Ready(Ok(())) };
        Pin::new(&mut opened.1).poll(context)
    }

    /// Sends waiting requests; returns whether any was sent.
    fn send_waiting(&mut self, context: &mut Context<'_>, reports: &mut Vec<Report>) -> bool {
        let Phase::Open(opened) = &mut self.phase else { return false };
        let sender = &mut opened.0;
        let mut taken = 0;
        for Waiting { ask, request, head } in &mut self.waiting {
            let response = match sender.poll_ready(context) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => sender.send_request(std::mem::take(head), true),
                Poll::Ready(Err(error)) => Err(error),
            };
            taken += 1;
            match response {
                Ok((response, _)) => {
                    let waker = self.wakes.for_stream(*ask);
                    waker.wake_by_ref();
                    self.streams.insert(*ask, Stream::new(request, response, waker));
                }
                // The server accepts no more (GOAWAY), or the connection has ended.
                Err(_) => {
                    self.retired = true;
                    reports.push(Report { ask: *ask, progress: Progress::default(), what: RequestState::Unseen });
                }
            }
        }
        self.waiting.drain(..taken);
        taken > 0
    }

    fn poll_stream(&mut self, ask: usize, content: &Content, reports: &mut Vec<Report>) {
        // The request may have been cancelled.
        let Some(stream) = self.streams.get_mut(&ask) else { return };
        let polled = stream.poll(content);
        let progress = stream.progress();
        let what = match polled {
            Poll::Pending => RequestState::UnderWay,
            Poll::Ready(Ok(())) => RequestState::Done,
            Poll::Ready(Err(Failure::Wrong(end))) => RequestState::Failed(end, None),
            Poll::Ready(Err(Failure::Protocol(error))) => self.judge(&error, progress),
        };
        if what != RequestState::UnderWay {
            self.streams.remove(&ask);
        }
        self.used |= what == RequestState::Done;
        reports.push(Report { ask, progress, what });
    }

    /// The connection has ended, with all its unfinished requests.
    fn lose_all(&mut self, result: &Result<(), h2::Error>, content: &Content, reports: &mut Vec<Report>) {
        let asks: Vec<usize> = self.streams.keys().copied().collect();
        for ask in asks {
            self.poll_stream(ask, content, reports);
        }
        let left = self.streams.drain().map(|(ask, stream)| (ask, stream.progress()));
        let waiting = self.waiting.drain(..).map(|Waiting { ask, .. }| (ask, Progress::default()));
        for (ask, progress) in left.chain(waiting).collect::<Vec<_>>() {
            let what = match result {
                Err(error) => self.judge(error, progress),
                Ok(()) if progress.answered => RequestState::Failed(End::Truncated, None),
                Ok(()) => RequestState::Unseen,
            };
            reports.push(Report { ask, progress, what });
        }
    }

    /// The state of a request after an error.
    fn judge(&self, error: &h2::Error, progress: Progress) -> RequestState {
        if let Some(error) = error.get_io() {
            let (end, why) = if self.link.has_ended() { (End::Truncated, None) } else { end_of(error) };
            // As in HTTP/1.1: a connection that served before may be closed at any time.
            return if self.used && !progress.answered { RequestState::Unseen } else { RequestState::Failed(end, why) };
        }
        let unseen = error.is_remote()
            && !progress.answered
            && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
        match (unseen, error.is_library() && error.is_reset(), progress.answered) {
            (true, ..) => RequestState::Unseen,
            // h2's own checks of a response: the body differs from the announced length.
            (_, true, true) => RequestState::Failed(End::WrongBody, None),
            (_, true, false) => RequestState::Failed(End::WrongHead, None),
            _ => RequestState::Failed(End::Broken, Some(format!("HTTP/2 failed: {error}"))),
        }
    }
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2")
            .field("streams", &self.streams.len())
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}
