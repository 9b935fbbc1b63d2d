//! A request on its way: the server is chosen, and another one if that does no harm.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use hyper::{body::Incoming, client::conn::TrySendError};
use tokio::time::Instant;

use super::{
    Answer, Ask, Interim, Pools, UpstreamError,
    body::{Feed, Outgoing, UpstreamBody, Watch},
    error::{Failure, Unavailable, Wait, is_reset, is_unprocessed},
    group::Group,
    head::{self, Head},
    pool::{Connection, Need, NoConnection, asleep},
    server::{InFlight, Server, choose},
};
use crate::body::RequestBody;

/// Times that a request is sent again, beside the retries, because the connection had been closed before any of it was written.
const UNSENT: u32 = 3;

/// A request and its response, from the moment that it has a connection.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Arc<Group>,
    server: Arc<Server>,
    pub(super) watch: Watch,
    connection: Connection,
    started: Instant,
    in_flight: InFlight,
}

/// How an attempt ended without a response.
enum Lost {
    /// Nothing of it was written.
    Unsent(Box<Request<Outgoing>>),
    /// The server certainly did not process it.
    Unprocessed(UpstreamError),
    /// Nobody knows. The connection had carried a request before, and may have been closed for want of another.
    Unknown(UpstreamError, bool),
    /// It is not to be tried again.
    Final(UpstreamError),
}

impl Exchange {
    /// The next of the response's body.
    pub(super) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut incoming = Pin::new(incoming);
        let Connection::Http1(http1) = &mut self.connection else { return incoming.poll_frame(cx) };
        // To ask for the body wakes the driver, and so does to take it. Here it is driven, and whoever has got a frame asks again.
        http1.bell.muffle();
        let mut polled = incoming.as_mut().poll_frame(&mut asleep());
        if polled.is_pending() {
            http1.bell.muffle();
            http1.drive(cx);
            polled = incoming.poll_frame(&mut asleep());
        }
        match polled.is_pending() {
            true => http1.bell.open(),
            false => http1.bell.forget(),
        }
        polled
    }

    /// The response is whole.
    pub(super) fn finish(self) {
        self.server.succeeded();
        if let Connection::Http1(mut http1) = self.connection {
            // Where the request is not whole, the connection cannot carry another: it closes.
            let sent = self.watch.feed.as_ref().is_none_or(|feed| feed.done.load(Relaxed));
            http1.timer = Some(self.watch.into_timer());
            if sent {
                http1.put_back();
            }
        }
    }

    /// The response broke off.
    pub(super) fn broke(self, error: hyper::Error) -> UpstreamError {
        if let Some(error) = self.client_broke() {
            return error;
        }
        self.failed(Failure::of(error))
    }

    /// The server was silent for too long, or all of it took too long.
    pub(super) fn timed_out(&self, wait: Wait) -> UpstreamError {
        if wait == Wait::End && self.watch.waits_for_client() {
            // A server that waits for a client as we do has done nothing wrong.
            let what = "its client had not sent all of it when the total time was over";
            return UpstreamError::Request(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        if let Connection::Http2(stream) = &self.connection {
            // Others on it may have the same to fear.
            stream.0.retire();
        }
        self.server.failed(&self.group.name, &self.group.config.passive);
        UpstreamError::TimedOut { server: self.server.name.clone(), wait, after: self.started.elapsed() }
    }

    fn failed(self, failure: Failure) -> UpstreamError {
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

    /// Sends the request, and awaits the head of the response. `interim` gets what comes before it.
    fn attempt<'a>(
        &'a mut self,
        request: Request<Outgoing>,
        interim: &'a mut (dyn FnMut(Interim) + Send),
    ) -> impl Future<Output = Result<Response<Incoming>, Lost>> + Send + use<'a> {
        // In a box, because what hyper returns has room for a request.
        let (mut sending, used): (Pin<Box<dyn Future<Output = _> + Send>>, _) = match &mut self.connection {
            Connection::Http1(http1) => {
                http1.line.awaits(self.group.config.head_bytes);
                (Box::pin(http1.sender.try_send_request(request)), http1.used)
            }
            Connection::Http2(stream) => {
                let used = stream.0.used.swap(true, Relaxed);
                (Box::pin(stream.0.sender.clone().try_send_request(request)), used)
            }
        };
        async move {
            let polled = poll_fn(|cx| {
                let polled = self.poll_watched(cx, Wait::Head, |cx| sending.as_mut().poll(cx));
                if let Connection::Http1(http1) = &self.connection {
                    http1.line.take_interims().into_iter().for_each(&mut *interim);
                }
                polled
            });
            match polled.await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(error)) => Err(self.lost(error, used)),
                Err(wait) => Err(Lost::Final(self.timed_out(wait))),
            }
        }
    }

    /// Asks for what comes of this connection and of nothing else, and watches over the time that it takes.
    fn poll_watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        wait: Wait,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Wait>> {
        let polled = match &mut self.connection {
            Connection::Http1(http1) => {
                http1.drive(cx);
                poll(&mut asleep())
            }
            Connection::Http2(_) => poll(cx),
        };
        match polled {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.watch.poll_silence(cx, wait).map(Err),
        }
    }

    fn lost(&self, mut error: TrySendError<Request<Outgoing>>, used: bool) -> Lost {
        if let Some(request) = error.take_message() {
            return Lost::Unsent(Box::new(request));
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
            // It is closing.
            stream.0.retire();
        }
        let failure = Failure::of(error);
        let closed = matches!(failure, Failure::Closed(_));
        let error = self.error(failure);
        if unprocessed {
            Lost::Unprocessed(error)
        } else if closed {
            Lost::Unknown(error, used && !reset)
        } else {
            // What answers garbage has the request.
            self.server.failed(&self.group.name, &self.group.config.passive);
            Lost::Final(error)
        }
    }
}

/// A request that is ready to be sent, and sent again.
#[derive(Debug)]
pub struct Errand {
    group: Arc<Group>,
    class: usize,
    head: Head,
    started: Instant,
    end: Option<Instant>,
    /// Whoever sends it takes these.
    headers: HeaderMap,
    body: RequestBody,
}

impl Pools {
    /// Makes a request what its upstream is to see. Its target is so already; hop-by-hop fields are taken out here, and fields that
    /// tell of the client put in.
    ///
    /// # Errors
    /// There is no such upstream, or the request cannot be passed on.
    pub fn prepare(&self, request: Request<RequestBody>, ask: Ask<'_>) -> Result<Box<Errand>, UpstreamError> {
        let Some(group) = self.0.upstreams.groups.get(ask.upstream) else {
            return Err(UpstreamError::NoServer { upstream: "".into(), why: Unavailable::Unknown });
        };
        let started = Instant::now();
        let end = group.config.total_timeout.map(|total| started + total);
        let (parts, body) = request.into_parts();
        let times = head::times_here(&parts.headers);
        if times > head::MOST_TIMES_HERE {
            return Err(UpstreamError::Loop { upstream: group.name.clone(), times });
        }
        let (head, headers) = head::request(parts, &body, &ask).map_err(UpstreamError::Request)?;
        Ok(Box::new(Errand { group: group.clone(), class: ask.class, head, started, end, headers, body }))
    }

    /// Prepares a request, and passes it on.
    ///
    /// # Errors
    /// As those of both.
    pub async fn send(&self, request: Request<RequestBody>, ask: Ask<'_>) -> Result<Answer, UpstreamError> {
        self.pass(self.prepare(request, ask)?, &mut drop).await
    }

    /// Passes a request on. To drop the future, or the response's body before its end, closes the connection. `interim` gets the
    /// interim responses of each attempt (RFC 9110, section 15.2), without those to `Expect`; HTTP/1.1 servers' only.
    ///
    /// # Errors
    /// No response: nobody to ask, or whoever was asked failed or took too long, or the request itself broke off.
    pub async fn pass(
        &self,
        mut errand: Box<Errand>,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Answer, UpstreamError> {
        let Errand { group, class, head, started, end, headers, body } = &mut *errand;
        let (group, started, end) = (&*group, *started, *end);
        let idempotent = head.method.is_idempotent();

        let mut left = group.config.retries;
        let mut unsent = UNSENT;
        let mut fresh = false;
        let mut skip = Vec::new();
        let mut last = None;
        loop {
            let (server, in_flight) = match self.choose(group, *class, &skip, end).await {
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
            let mut watch = Watch::new(timer, Instant::now(), group.config.idle_timeout, end);
            let feed = (!matches!(*body, RequestBody::Empty)).then(|| Feed::new(started));
            watch.feed = feed.clone();
            if let Connection::Http1(http1) = &connection {
                watch.line = Some(http1.line.clone());
            }
            // Kept for another attempt where there may be one: the fields are hyper's as soon as it has them.
            let spare = match left {
                0 => None,
                _ if idempotent || http2 => body.again().map(|body| (headers.clone(), body)),
                _ => None,
            };
            let outgoing = Outgoing::new(std::mem::take(body), feed);
            let spec = &server.spec;
            let request = head
                .request(std::mem::take(headers), outgoing, http2, spec.tls, &spec.authority, &server.host)
                .map_err(UpstreamError::Request)?;
            let mut exchange =
                Exchange { group: group.clone(), server: server.clone(), watch, connection, started, in_flight };
            let error = match exchange.attempt(request, interim).await {
                Ok(response) => return exchange.answer(response, head).await,
                Err(Lost::Final(error)) => return Err(error),
                Err(Lost::Unsent(request)) if unsent > 0 => {
                    unsent -= 1;
                    fresh = true;
                    let (parts, outgoing) = request.into_parts();
                    *headers = parts.headers;
                    *body = outgoing.unread();
                    continue;
                }
                Err(Lost::Unsent(_)) => {
                    server.failed(&group.name, &group.config.passive);
                    let failure = Failure::Connect(io::Error::other("closed each time before a request was sent"));
                    return Err(exchange.error(failure));
                }
                Err(Lost::Unprocessed(error)) => error,
                Err(Lost::Unknown(error, used)) => {
                    let again = spare.is_some() && idempotent;
                    if !(used && again) {
                        server.failed(&group.name, &group.config.passive);
                    }
                    if !again {
                        return Err(error);
                    }
                    if used {
                        fresh = true;
                    } else {
                        skip.push(server.id);
                    }
                    error
                }
            };
            let Some(spare) = spare else { return Err(error) };
            (*headers, *body) = spare;
            left -= 1;
            group.retries.fetch_add(1, Relaxed);
            last = Some(error);
        }
    }

    async fn choose(
        &self,
        group: &Group,
        class: usize,
        skip: &[u64],
        end: Option<Instant>,
    ) -> Result<(Arc<Server>, InFlight), Unavailable> {
        let turn = self.0.turn.fetch_add(1, Relaxed);
        let pick = || {
            group.with_servers(class, |servers| {
                let server = choose(servers, skip, turn, group.config.passive.pause);
                match server {
                    Some(server) => Ok((server.clone(), InFlight::new(server))),
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
    async fn answer(mut self, mut response: Response<Incoming>, head: &Head) -> Result<Answer, UpstreamError> {
        self.server.answered(&self.group.name);
        let server = self.server.name.clone();
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            head::response(&mut response, &head.method);
            self.watch.hears();
            let response = response.map(|incoming| UpstreamBody::new(incoming, self));
            return Ok(Answer { response, server, upgraded: None });
        }
        if head.upgrade.is_none() {
            return Err(self.failed(Failure::Switched));
        }
        head::response(&mut response, &head.method);
        let mut upgrade = hyper::upgrade::on(&mut response);
        let upgraded = poll_fn(|cx| self.poll_watched(cx, Wait::Head, |cx| Pin::new(&mut upgrade).poll(cx)));
        let upgraded = match upgraded.await {
            Ok(Ok(upgraded)) => upgraded,
            Ok(Err(error)) => return Err(self.failed(Failure::of(error))),
            Err(wait) => return Err(self.timed_out(wait)),
        };
        self.server.succeeded();
        let Self { connection, in_flight, .. } = self;
        if let Connection::Http1(http1) = &connection {
            // Under way until the connection closes.
            *http1.line.upgraded.lock() = Some(in_flight);
        }
        Ok(Answer { response: response.map(|_| UpstreamBody::empty()), server, upgraded: Some(upgraded) })
    }
}
