//! Passes a request on: chooses the server, and tries another one where that is safe.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, uri::PathAndQuery};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::TrySendError};
use tokio::time::Instant;

use super::{
    Answer, Ask, Interim, Pools, UpstreamError,
    body::{Feed, Outgoing, UpstreamBody, Watch},
    error::{Failure, Unavailable, Wait, is_reset, is_unprocessed},
    group::Group,
    head::{self, Head, Unfit},
    http1::Broken,
    pool::{Connection, Need, NoConnection, Stream},
    server::{InFlight, choose},
    upgraded::Upgraded,
};
use crate::body::RequestBody;

/// Most times that a request is sent again, beside the retries, because the connection closed before any of
/// it was written.
const UNSENT: u32 = 3;

/// A request and its response, from the moment that it has a connection.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Arc<Group>,
    server: InFlight,
    pub(super) watch: Watch,
    connection: Connection,
    started: Instant,
}

/// How an attempt ended without a response.
enum Lost {
    /// Nothing was written. Returns the fields, if the attempt took them, and the body.
    Unsent(Option<HeaderMap>, Outgoing),
    /// The server certainly did not process it.
    Unprocessed(UpstreamError),
    /// The server may have processed it. True: the connection had carried a request before, so it may have
    /// been closed for being idle.
    Unknown(UpstreamError, bool),
    /// The request must not be sent again.
    Final(UpstreamError),
}

/// The error that broke a response off.
pub(super) enum Broke {
    Http1(Broken),
    Http2(hyper::Error),
}

impl Exchange {
    /// Polls for the next frame of the response's body; `incoming` is the body of an HTTP/2 response.
    pub(super) fn poll_frame(
        &mut self,
        incoming: Option<&mut Incoming>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broke>>> {
        match (&mut self.connection, incoming) {
            (Connection::Http1(http1), _) => {
                let polled = http1.wire.poll_frame(cx).map_err(Broke::Http1);
                if http1.wire.take_moved() {
                    self.watch.hears();
                }
                polled
            }
            (Connection::Http2(_), Some(incoming)) => Pin::new(incoming).poll_frame(cx).map_err(Broke::Http2),
            (Connection::Http2(_), None) => Poll::Ready(None),
        }
    }

    /// Whether an HTTP/1.1 response has ended.
    pub(super) fn is_end(&self) -> bool {
        match &self.connection {
            Connection::Http1(http1) => http1.wire.is_end(),
            Connection::Http2(_) => true,
        }
    }

    /// The size of the rest of an HTTP/1.1 response.
    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.connection {
            Connection::Http1(http1) => http1.wire.size_hint(),
            Connection::Http2(_) => SizeHint::with_exact(0),
        }
    }

    /// Records success and returns the connection to its pool, after the whole response.
    pub(super) fn finish(self) {
        let Self { server, watch, connection, .. } = self;
        server.succeeded();
        if let Connection::Http1(mut http1) = connection {
            http1.timer = Some(watch.into_timer());
            http1.put_back();
        }
    }

    /// The error for a response that broke off.
    pub(super) fn broke(&self, broke: Broke) -> UpstreamError {
        if let Some(error) = self.client_broke() {
            return error;
        }
        match broke {
            Broke::Http1(broken) => match Failure::of_http1(broken) {
                Ok(failure) => self.failed(failure),
                Err(error) => UpstreamError::Request(error),
            },
            Broke::Http2(error) => self.failed(Failure::of(error)),
        }
    }

    /// The error for an exchange in which the server was silent for too long, or whose total time is over.
    pub(super) fn timed_out(&self, wait: Wait) -> UpstreamError {
        if wait == Wait::End && self.watch.waits_for_client() {
            // The server waited for the client as this proxy did, so it is not at fault.
            let what = "its client had not sent all of it when the total time was over";
            return UpstreamError::Request(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        if let Connection::Http2(stream) = &self.connection {
            // The other streams of the connection may be stuck too.
            stream.0.retire();
        }
        self.server.failed(&self.group.name, &self.group.config.passive);
        UpstreamError::TimedOut { server: self.server.name.clone(), wait, after: self.started.elapsed() }
    }

    fn failed(&self, failure: Failure) -> UpstreamError {
        self.server.failed(&self.group.name, &self.group.config.passive);
        self.error(failure)
    }

    fn error(&self, failure: Failure) -> UpstreamError {
        UpstreamError::Failed { server: self.server.name.clone(), failure, after: self.started.elapsed() }
    }

    fn client_broke(&self) -> Option<UpstreamError> {
        let feed = self.watch.feed.as_ref()?;
        feed.broke.lock().take().map(UpstreamError::Request)
    }

    /// Sends the request over HTTP/1.1 and awaits the head of the response. `interim` gets the interim
    /// responses before it.
    async fn attempt_http1(
        &mut self,
        head: &Head,
        fields: &HeaderMap,
        body: Outgoing,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<(Response<()>, Option<Incoming>), Lost> {
        let Self { connection, watch, server, .. } = self;
        let Connection::Http1(http1) = connection else { return Err(Lost::Unsent(None, body)) };
        http1.wire.begin(&head.method, |out| head.write(fields, &server.host, out), body, head.coding());
        // The watch begins when the first bytes are written, so these need no note.
        let mut begins = true;
        let polled = poll_fn(|cx| {
            let polled = http1.wire.poll_head(cx, interim);
            if http1.wire.take_moved() && !std::mem::take(&mut begins) {
                watch.hears();
            }
            or_silence(polled, watch, cx)
        });
        match polled.await {
            Ok(Ok(response)) => Ok((response, None)),
            Ok(Err(broken)) => Err(self.lost(broken)),
            Err(wait) => Err(Lost::Final(self.timed_out(wait))),
        }
    }

    /// Sends the request over HTTP/2 and awaits the head of the response.
    async fn attempt_http2(&mut self, request: Request<Outgoing>) -> Result<(Response<()>, Option<Incoming>), Lost> {
        let Self { connection, watch, .. } = self;
        let Connection::Http2(Stream(http2)) = connection else {
            let (parts, body) = request.into_parts();
            return Err(Lost::Unsent(Some(parts.headers), body));
        };
        let used = http2.used.swap(true, Relaxed);
        // Boxed, because hyper's result has room for a whole request.
        let mut sending = Box::pin(http2.sender.clone().try_send_request(request));
        match poll_fn(|cx| or_silence(sending.as_mut().poll(cx), watch, cx)).await {
            Ok(Ok(response)) => {
                let (parts, incoming) = response.into_parts();
                Ok((Response::from_parts(parts, ()), Some(incoming)))
            }
            Ok(Err(error)) => Err(self.lost_http2(error, used)),
            Err(wait) => Err(Lost::Final(self.timed_out(wait))),
        }
    }

    fn lost(&mut self, broken: Broken) -> Lost {
        if let Some(error) = self.client_broke() {
            return Lost::Final(error);
        }
        let used = match &mut self.connection {
            Connection::Http1(http1) => {
                if matches!(broken, Broken::Closed(_))
                    && let Some(outgoing) = http1.wire.unsent()
                {
                    return Lost::Unsent(None, outgoing);
                }
                http1.used
            }
            Connection::Http2(_) => false,
        };
        match Failure::of_http1(broken) {
            Ok(failure) => self.lost_by(failure, used),
            Err(error) => Lost::Final(UpstreamError::Request(error)),
        }
    }

    fn lost_http2(&self, mut error: TrySendError<Request<Outgoing>>, used: bool) -> Lost {
        if let Some(request) = error.take_message() {
            let (parts, outgoing) = request.into_parts();
            return Lost::Unsent(Some(parts.headers), outgoing);
        }
        if let Some(error) = self.client_broke() {
            return Lost::Final(error);
        }
        let error = error.into_error();
        let unprocessed = is_unprocessed(&error);
        let reset = is_reset(&error);
        if let Connection::Http2(stream) = &self.connection
            && !reset
        {
            // The connection is closing.
            stream.0.retire();
        }
        let failure = Failure::of(error);
        if unprocessed { Lost::Unprocessed(self.error(failure)) } else { self.lost_by(failure, used && !reset) }
    }

    fn lost_by(&self, failure: Failure, used: bool) -> Lost {
        let closed = matches!(failure, Failure::Closed(_));
        let error = self.error(failure);
        if closed {
            Lost::Unknown(error, used)
        } else {
            // The answer is malformed, so the server has received the request.
            self.server.failed(&self.group.name, &self.group.config.passive);
            Lost::Final(error)
        }
    }
}

/// The output; or, if there is none yet, a time-out when the silence has lasted too long.
fn or_silence<T>(polled: Poll<T>, watch: &mut Watch, cx: &mut Context<'_>) -> Poll<Result<T, Wait>> {
    match polled {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => watch.poll_silence(cx, Wait::Head).map(Err),
    }
}

/// A request for an upstream, as the client made it except for its path.
#[derive(Debug)]
pub struct Outbound {
    /// The method.
    pub method: Method,
    /// The path and query to ask the upstream for.
    pub path: PathAndQuery,
    /// The version of HTTP that the client speaks.
    pub version: Version,
    /// All fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
}

impl From<Request<RequestBody>> for Outbound {
    fn from(request: Request<RequestBody>) -> Self {
        let (parts, body) = request.into_parts();
        let path = parts.uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Self { method: parts.method, path, version: parts.version, headers: parts.headers, body }
    }
}

/// A request that is ready to be sent, and sent again.
#[derive(Debug)]
pub struct Errand {
    upstream: usize,
    class: usize,
    head: Head,
    started: Instant,
    end: Option<Instant>,
    /// Moved out by the attempt that sends them.
    headers: HeaderMap,
    body: RequestBody,
}

impl Pools {
    /// Prepares a request for its upstream: removes hop-by-hop fields and adds fields about the client. The
    /// request's path is already the upstream's.
    ///
    /// # Errors
    /// There is no such upstream, or the request cannot be passed on.
    pub fn prepare(&self, request: Outbound, ask: Ask<'_>, now: Instant) -> Result<Box<Errand>, UpstreamError> {
        let group = self.group(ask.upstream)?;
        let end = group.config.total_timeout.map(|total| now + total);
        let (head, headers, body) = head::request(request, &ask).map_err(|unfit| match unfit {
            Unfit::Loops(times) => UpstreamError::Loop { upstream: group.name.clone(), times },
            Unfit::Unspeakable(error) => UpstreamError::Request(error),
        })?;
        Ok(Box::new(Errand { upstream: ask.upstream, class: ask.class, head, started: now, end, headers, body }))
    }

    /// Prepares a request and passes it on.
    ///
    /// # Errors
    /// Those of [`Pools::prepare`] and [`Pools::pass`].
    pub async fn send(&self, request: Request<RequestBody>, ask: Ask<'_>) -> Result<Answer, UpstreamError> {
        self.pass(self.prepare(request.into(), ask, Instant::now())?, &mut drop).await
    }

    /// Passes a request on. Dropping the future, or the response's body before its end, closes the
    /// connection. `interim` gets the interim responses of each attempt (RFC 9110, section 15.2), except
    /// those to `Expect`, from HTTP/1.1 servers only.
    ///
    /// # Errors
    /// There is no response: no server could be asked, the server failed or took too long, or the request
    /// broke off.
    pub async fn pass(
        &self,
        mut errand: Box<Errand>,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Answer, UpstreamError> {
        let Errand { upstream, class, head, started, end, headers, body } = &mut *errand;
        let (group, started, end) = (self.group(*upstream)?, *started, *end);
        let idempotent = head.method.is_idempotent();

        let mut left = group.config.retries;
        let mut unsent = UNSENT;
        let mut fresh = false;
        let mut skip = Vec::new();
        let mut last = None;
        loop {
            let server = match self.choose(group, *class, &skip, end).await {
                Ok(chosen) => chosen,
                Err(why) => {
                    return Err(last.unwrap_or_else(|| {
                        group.unserved.fetch_add(1, Relaxed);
                        UpstreamError::NoServer { upstream: group.name.clone(), why }
                    }));
                }
            };
            let shelf = self.shelf(group, &server);
            let need = Need { http1: head.upgrade.is_some() && server.spec.http2 != Some(true), fresh, started, end };
            let mut connection = match shelf.connection(group, need).await {
                Ok(connection) => connection,
                Err(NoConnection::Full) => {
                    skip.push(server.id);
                    continue;
                }
                Err(NoConnection::Failed(error)) => {
                    if !matches!(error, UpstreamError::Shortage { .. }) {
                        server.failed(&group.name, &group.config.passive);
                    }
                    if left == 0 || end.is_some_and(|end| end <= Instant::now()) {
                        return Err(error);
                    }
                    left -= 1;
                    group.retries.fetch_add(1, Relaxed);
                    skip.push(server.id);
                    last = Some(error);
                    continue;
                }
            };

            let (timer, http2) = match &mut connection {
                Connection::Http1(http1) => (http1.timer.take(), false),
                Connection::Http2(_) => (None, true),
            };
            let mut watch = Watch::new(timer, Instant::now(), group.config.idle_timeout, end, http2);
            watch.feed = (!matches!(*body, RequestBody::Empty)).then(|| Feed::new(started));
            // A copy of the body, if there may be another attempt.
            let spare = match left {
                0 => None,
                _ if idempotent || http2 => body.again(),
                _ => None,
            };
            let outgoing = Outgoing::new(std::mem::take(body), watch.feed.clone());
            // Boxed, because it moves along with the response.
            let mut exchange = Box::new(Exchange { group: group.clone(), server, watch, connection, started });
            let attempted = match http2 {
                false => exchange.attempt_http1(head, headers, outgoing, interim).await,
                true => {
                    // The fields move into hyper's request, so another attempt needs a copy.
                    let fields = if spare.is_some() { headers.clone() } else { std::mem::take(headers) };
                    let spec = &exchange.server.spec;
                    let request = head.request(fields, outgoing, spec.tls, &spec.authority);
                    exchange.attempt_http2(request.map_err(UpstreamError::Request)?).await
                }
            };
            let error = match attempted {
                Ok((response, incoming)) => return exchange.answer(response, incoming, head),
                Err(Lost::Final(error)) => return Err(error),
                Err(Lost::Unsent(fields, outgoing)) if unsent > 0 => {
                    unsent -= 1;
                    fresh = true;
                    if let Some(fields) = fields {
                        *headers = fields;
                    }
                    *body = outgoing.unread();
                    continue;
                }
                Err(Lost::Unsent(..)) => {
                    exchange.server.failed(&group.name, &group.config.passive);
                    let failure = Failure::Connect(io::Error::other("closed each time before a request was sent"));
                    return Err(exchange.error(failure));
                }
                Err(Lost::Unprocessed(error)) => error,
                Err(Lost::Unknown(error, used)) => {
                    let again = spare.is_some() && idempotent;
                    if !(used && again) {
                        exchange.server.failed(&group.name, &group.config.passive);
                    }
                    if !again {
                        return Err(error);
                    }
                    if used {
                        fresh = true;
                    } else {
                        skip.push(exchange.server.id);
                    }
                    error
                }
            };
            let Some(spare) = spare else { return Err(error) };
            *body = spare;
            left -= 1;
            group.retries.fetch_add(1, Relaxed);
            last = Some(error);
        }
    }

    fn group(&self, upstream: usize) -> Result<&Arc<Group>, UpstreamError> {
        let unknown = || UpstreamError::NoServer { upstream: "".into(), why: Unavailable::Unknown };
        self.0.upstreams.groups.get(upstream).ok_or_else(unknown)
    }

    async fn choose(
        &self,
        group: &Group,
        class: usize,
        skip: &[u64],
        end: Option<Instant>,
    ) -> Result<InFlight, Unavailable> {
        let turn = self.0.turn.fetch_add(1, Relaxed);
        let pick = || {
            group.with_servers(class, |servers| {
                let server = choose(servers, skip, turn, group.config.passive.pause);
                match server {
                    Some(server) => Ok(InFlight::new(server.clone())),
                    None if servers.is_empty() => Err(Unavailable::Unknown),
                    None if skip.is_empty() => Err(Unavailable::Down),
                    None => Err(Unavailable::Full),
                }
            })
        };
        match pick() {
            Err(Unavailable::Unknown) => {
                let until = Instant::now() + group.config.connect_timeout;
                let until = end.map_or(until, |end| end.min(until));
                let _ = tokio::time::timeout_at(until, group.look_up_first(class)).await;
                pick()
            }
            picked => picked,
        }
    }
}

impl Exchange {
    fn answer(
        mut self: Box<Self>,
        response: Response<()>,
        incoming: Option<Incoming>,
        head: &Head,
    ) -> Result<Answer, UpstreamError> {
        self.server.answered(&self.group.name);
        let server = self.server.name.clone();
        let (mut parts, ()) = response.into_parts();
        let switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        if switched && (head.upgrade.is_none() || incoming.is_some()) {
            return Err(self.failed(Failure::Switched));
        }
        let exact = incoming.as_ref().map_or_else(|| self.size_hint(), Incoming::size_hint).exact();
        head::response(parts.status, &mut parts.headers, exact, &head.method);
        if !switched {
            self.watch.hears();
            let response = Response::from_parts(parts, UpstreamBody::new(incoming, self));
            return Ok(Answer { response, server, upgraded: None });
        }
        self.server.succeeded();
        let upgraded = match self.connection {
            Connection::Http1(http1) => {
                let (transport, early) = http1.wire.into_parts();
                Some(Box::new(Upgraded::new(transport, early, self.server)))
            }
            Connection::Http2(_) => None,
        };
        Ok(Answer { response: Response::from_parts(parts, UpstreamBody::empty()), server, upgraded })
    }
}
