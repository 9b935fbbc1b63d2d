//! Passes a request on: chooses the server, and tries another one where that is safe.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use heads::GrpcStatus;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http2::Incoming;
use parking_lot::Mutex;
use proxy_protocol::Ends;
use tokio::time::Instant;

use bodies::{BodyReader, ClientBody, IncomingBody, ReaderBody, RequestBody};

use crate::{
    balance::hash,
    body::UpstreamBody,
    choice::{Wish, choose},
    config::{Balance, HashKey},
    error::{Failure, Unavailable, UpstreamError, Wait},
    exchange::{AttemptError, Exchange},
    group::Group,
    head::{self, Head, NotForwardable},
    outgoing::{Outgoing, RequestBodyState},
    pool::{Connection, Need, NoConnection},
    pools::Pools,
    request::{Ask, Outbound, Times},
    server::{InFlight, Server},
    upgraded::{OverHttp2, Upgraded},
    watch::Watch,
    wire::Interim,
};

/// Most times that a request is sent again, beside the retries, because the connection closed before any of
/// it was written.
const UNSENT: u32 = 3;

/// Bytes of another protocol that wait until the framing of HTTP/2 takes them.
const TUNNEL_BYTES: usize = 16 * 1024;

/// The answer of an upstream.
#[derive(Debug)]
pub struct Answer {
    /// The response, without hop-by-hop fields. Its body ends with an error if it breaks off or takes too
    /// long.
    pub response: Response<UpstreamBody>,
    /// The name of the server that answered, for the log.
    pub server: Arc<str>,
    /// After a 101: the connection, which carries the new protocol from now on.
    pub upgraded: Option<Box<Upgraded>>,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Passed {
    /// The answer, or why there is none.
    pub answered: Result<Answer, UpstreamError>,
    /// How many servers were asked, those without a connection included.
    pub attempts: u32,
}

/// A request that is ready to be sent, and sent again.
#[derive(Debug)]
pub struct PreparedRequest {
    pub(crate) upstream: usize,
    pub(crate) class: usize,
    pub(crate) head: Head,
    pub(crate) started: Instant,
    pub(crate) idle: Duration,
    pub(crate) end: Option<Instant>,
    pub(crate) until: Option<Instant>,
    pub(crate) place: Place,
    /// The client's connection, if the upstream's servers are told of it.
    pub(crate) ends: Option<Ends>,
    /// Moved out by the attempt that sends them.
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    /// How many servers were asked.
    pub(crate) attempts: u32,
    /// The servers that were asked, for a second attempt beside the first one.
    pub(crate) asked: Option<Arc<Mutex<Vec<u64>>>>,
}

/// The properties of a request that decide on its server, beside load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The number of the key, if the rule has keys.
    key: Option<u64>,
    /// The value of the cookie that names a server.
    token: Option<Box<[u8]>>,
    /// Whether the cookie for a server is sent over TLS only.
    secure: bool,
}

impl Place {
    fn of(group: &Group, request: &Outbound, ask: &Ask<'_>) -> Self {
        let key = match &group.config.balance {
            Balance::Hash { key, .. } => key_number(key, request, ask.client_ip),
            Balance::LeastLoaded | Balance::RoundRobin | Balance::PowerOfTwo => None,
        };
        let token = group.sticky.as_ref().and_then(|sticky| sticky.read(&request.headers));
        Self { key, token, secure: ask.scheme == "https" }
    }
}

/// The number of a request's key; `None`: it has none.
fn key_number(key: &HashKey, request: &Outbound, client: IpAddr) -> Option<u64> {
    Some(match key {
        HashKey::Client => match client.to_canonical() {
            IpAddr::V4(address) => hash::number(&address.octets()),
            IpAddr::V6(address) => hash::number(&address.octets()[..8]),
        },
        HashKey::Path => hash::number(request.path.path().as_bytes()),
        HashKey::Header(name) => hash::number(request.headers.get(name)?.as_bytes()),
        HashKey::Cookie(name) => {
            let (_, value) = heads::cookies(&request.headers).find(|(found, _)| *found == name.as_bytes())?;
            hash::number(value)
        }
    })
}

impl Pools {
    /// Prepares a request for its upstream: removes hop-by-hop fields and adds fields about the client. The
    /// request's path is already the upstream's.
    ///
    /// # Errors
    /// There is no such upstream, or the request cannot be passed on.
    pub fn prepare(
        &self,
        request: Outbound,
        ask: Ask<'_>,
        now: Instant,
    ) -> Result<Box<PreparedRequest>, UpstreamError> {
        let group = self.group(ask.upstream)?;
        let of_upstream = Times { idle: group.config.idle_timeout, total: group.config.total_timeout };
        let Times { idle, total } = ask.times.unwrap_or(of_upstream);
        let end = total.map(|total| now + total).into_iter().chain(ask.until).min();
        let place = Place::of(group, &request, &ask);
        let (head, headers, body) = head::request(request, &ask).map_err(|refused| match refused {
            NotForwardable::Loops(times) => UpstreamError::Loop { upstream: group.name.clone(), times },
            NotForwardable::Inexpressible(error) => UpstreamError::Request(error),
        })?;
        Ok(Box::new(PreparedRequest {
            upstream: ask.upstream,
            class: ask.class,
            head,
            started: now,
            idle,
            end,
            until: ask.until,
            place,
            ends: ask.ends.filter(|_| group.config.proxy_protocol.is_some()),
            headers,
            body,
            attempts: 0,
            asked: None,
        }))
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
    /// those to `Expect`.
    ///
    /// # Errors
    /// There is no response: no server could be asked, the server failed or took too long, or the request
    /// broke off.
    pub async fn pass(
        &self,
        mut prepared: Box<PreparedRequest>,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Answer, UpstreamError> {
        self.pass_counting(&mut prepared, interim).await
    }

    /// As [`Pools::pass`]; the request counts its attempts.
    pub(crate) async fn pass_counting(
        &self,
        prepared: &mut PreparedRequest,
        interim: &mut (dyn FnMut(Interim) + Send),
    ) -> Result<Answer, UpstreamError> {
        let mut held = None;
        let begun = match self.attempt(prepared, interim, &mut held, None).await {
            Ok(begun) => begun,
            // No other server has answered.
            Err(error) => held.ok_or(error)?,
        };
        answer(begun, &prepared.head, &prepared.place)
    }

    /// Tries one server after the other. `held` gets an answer that is passed on only if no other server has one. `only`: this
    /// server alone is tried.
    pub(crate) async fn attempt(
        &self,
        prepared: &mut PreparedRequest,
        interim: &mut (dyn FnMut(Interim) + Send),
        held: &mut Option<Begun>,
        only: Option<InFlight>,
    ) -> Result<Begun, UpstreamError> {
        let PreparedRequest {
            upstream,
            class,
            head,
            started,
            idle,
            end,
            until,
            place,
            ends,
            headers,
            body,
            attempts,
            asked,
        } = prepared;
        let (group, started, idle, end) = (self.group(*upstream)?, *started, *idle, *end);
        let (until, ends) = (*until, *ends);
        let idempotent = head.method.is_idempotent();
        let retried = |status| head.method.is_safe() && group.config.retry_statuses.contains(&status);

        let mut left = if only.is_some() { 0 } else { group.config.retries };
        let mut unsent = UNSENT;
        let mut fresh = false;
        let mut skip = Vec::new();
        let mut last = None;
        let mut next = only;
        loop {
            let chosen = match next.take() {
                Some(chosen) => Ok(chosen),
                None => self.choose(group, *class, place, &skip, end).await,
            };
            let server = match chosen {
                Ok(chosen) => chosen,
                Err(why) => {
                    return Err(last.unwrap_or_else(|| {
                        group.unserved.fetch_add(1, Relaxed);
                        UpstreamError::NoServer { upstream: group.name.clone(), why }
                    }));
                }
            };
            if let Some(asked) = asked {
                asked.lock().push(server.id);
            }
            let pool = self.pool(group, &server);
            let of_spec = server.spec.http2;
            let http1 = head.upgrade.is_some() && of_spec != Some(true);
            let http2 = head.is_grpc && of_spec.is_none() && !server.spec.tls;
            let need = Need { http1, http2, fresh, ends, started, end, until };
            *attempts += 1;
            let mut connection = match pool.connection(group, need).await {
                Ok(connection) => connection,
                Err(NoConnection::Full) => {
                    *attempts -= 1;
                    skip.push(server.id);
                    continue;
                }
                // The time of its client is over.
                Err(NoConnection::Failed(error @ UpstreamError::Request(_))) => return Err(error),
                Err(NoConnection::Failed(error)) => {
                    if !matches!(error, UpstreamError::Shortage { .. }) {
                        server.failed(&group.name, &group.config.passive);
                    }
                    skip.push(server.id);
                    if left == 0 || end.is_some_and(|end| end <= Instant::now()) {
                        return Err(error);
                    }
                    let Some(other) = self.another(group, *class, place, &skip) else { return Err(error) };
                    next = Some(other);
                    left -= 1;
                    last = Some(error);
                    continue;
                }
            };

            let (timer, http2) = match &mut connection {
                Connection::Http1(http1) => (http1.timer.take(), false),
                Connection::Http2(_) => (None, true),
            };
            let mut watch = Watch::new(timer, Instant::now(), idle, end, http2);
            watch.request = (!matches!(*body, RequestBody::Empty)).then(|| RequestBodyState::new(started));
            // A copy of the body, if there may be another attempt.
            let mut spare = match left {
                0 => None,
                _ if idempotent || http2 => body.again(),
                _ => None,
            };
            let mut outgoing = Outgoing::new(std::mem::take(body), watch.request.clone());
            if head.expects {
                outgoing = outgoing.expecting();
            }
            let mut tunnel = None;
            if http2 && head.websocket.is_some() {
                let (near, far) = tokio::io::duplex(TUNNEL_BYTES);
                let sent = ClientBody::new(IncomingBody::new(ReaderBody::new(far)), None);
                let sent = RequestBody::streamed(sent, u64::MAX);
                outgoing = Outgoing::new(sent, Some(RequestBodyState::new(started)));
                tunnel = Some(near);
            }
            // A call of gRPC that the server refuses is sent again with what was read of its body.
            let keeps = head.is_grpc && left > 0;
            if keeps {
                outgoing = outgoing.keeping_beginning();
            }
            // Boxed, because it moves along with the response.
            let sent = group.times_answers().then(Instant::now);
            let mut exchange = Box::new(Exchange {
                group: group.clone(),
                server,
                watch,
                connection,
                started,
                until,
                upload: None,
                tunnel,
                heard: 0,
            });
            let attempted = match http2 {
                false => exchange.attempt_http1(head, headers, outgoing, interim).await,
                true => {
                    // The fields move into the request, so another attempt needs a copy.
                    let fields = if spare.is_some() || keeps { headers.clone() } else { std::mem::take(headers) };
                    let spec = &exchange.server.spec;
                    let mut request = head.request(fields, outgoing, spec.tls, &spec.authority);
                    if let (Ok(request), Some(_)) = (&mut request, &exchange.tunnel) {
                        *request.method_mut() = Method::CONNECT;
                        request.headers_mut().remove(header::SEC_WEBSOCKET_KEY);
                    }
                    exchange.attempt_http2(request.map_err(UpstreamError::Request)?, interim).await
                }
            };
            let error = match attempted {
                Ok((response, incoming)) => {
                    let (status, server) = (response.status(), exchange.server.id);
                    if let Some(sent) = sent {
                        let took = sent.elapsed();
                        // A call that fails at once says so in its head.
                        let failed = GrpcStatus::of(response.headers()).is_some_and(GrpcStatus::is_of_server);
                        let status = if failed { StatusCode::SERVICE_UNAVAILABLE } else { status };
                        exchange.server.state.count_answer(status, took);
                        group.count_time(*class, took);
                    }
                    let begun = Begun { exchange, response, incoming };
                    let Some(spare) = spare.filter(|_| retried(status) && head.upgrade.is_none()) else {
                        return Ok(begun);
                    };
                    skip.push(server);
                    let Some(other) = self.another(group, *class, place, &skip) else { return Ok(begun) };
                    left -= 1;
                    *body = spare;
                    next = Some(other);
                    *held = Some(begun);
                    continue;
                }
                Err(AttemptError::Final(error)) => {
                    let in_time = !matches!(error, UpstreamError::TimedOut { wait: Wait::End, .. });
                    if !(spare.is_some() && error.is_of_upstream() && in_time && retried(error.status())) {
                        return Err(error);
                    }
                    skip.push(exchange.server.id);
                    error
                }
                Err(AttemptError::Unsent(fields, outgoing)) if unsent > 0 => {
                    unsent -= 1;
                    fresh = true;
                    if let Some(fields) = fields {
                        *headers = fields;
                    }
                    *body = outgoing.unread();
                    continue;
                }
                Err(AttemptError::Unsent(..)) => {
                    exchange.server.failed(&group.name, &group.config.passive);
                    let failure = Failure::Connect(io::Error::other("closed each time before a request was sent"));
                    return Err(exchange.error(failure));
                }
                Err(AttemptError::Unprocessed(error, body)) => {
                    spare = spare.or(body);
                    error
                }
                Err(AttemptError::Unknown(error, used)) => {
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
            let Some(other) = self.another(group, *class, place, &skip) else { return Err(error) };
            *body = spare;
            next = Some(other);
            left -= 1;
            last = Some(error);
        }
    }

    pub(crate) fn group(&self, upstream: usize) -> Result<&Arc<Group>, UpstreamError> {
        let unknown = || UpstreamError::NoServer { upstream: "".into(), why: Unavailable::Unknown };
        self.upstreams().groups.get(upstream).ok_or_else(unknown)
    }

    async fn choose(
        &self,
        group: &Group,
        class: usize,
        place: &Place,
        skip: &[u64],
        end: Option<Instant>,
    ) -> Result<InFlight, Unavailable> {
        let picked = match self.pick(group, class, place, skip) {
            Err(Unavailable::Unknown) => {
                let until = Instant::now() + group.config.connect_timeout;
                let until = end.map_or(until, |end| end.min(until));
                let _ = tokio::time::timeout_at(until, group.look_up_first(class)).await;
                self.pick(group, class, place, skip)
            }
            picked => picked,
        };
        // Another thread may have filled the last place meanwhile.
        InFlight::new(picked?, group.config.most_requests).ok_or(Unavailable::Full)
    }

    /// Another server for a request that failed, if there is one and the budget allows it.
    fn another(&self, group: &Group, class: usize, place: &Place, skip: &[u64]) -> Option<InFlight> {
        let server = self.pick(group, class, place, skip).ok()?;
        if !group.takes_retry() {
            return None;
        }
        InFlight::new(server, group.config.most_requests)
    }

    /// Chooses among the known servers.
    pub(crate) fn pick(
        &self,
        group: &Group,
        class: usize,
        place: &Place,
        skip: &[u64],
    ) -> Result<Arc<Server>, Unavailable> {
        let turn = match group.config.balance {
            Balance::RoundRobin => group.next_turn(),
            Balance::LeastLoaded | Balance::PowerOfTwo | Balance::Hash { .. } => self.next_turn(),
        };
        let wish = Wish { skip, turn, key: place.key, token: place.token.as_deref() };
        group.with_servers(class, |servers| {
            let server = choose(servers, &group.config, wish);
            match server {
                Some(server) => Ok(server.clone()),
                None if servers.is_empty() => Err(Unavailable::Unknown),
                None if skip.is_empty() && group.config.most_requests.is_none() => Err(Unavailable::Down),
                None => Err(Unavailable::Full),
            }
        })
    }
}

/// A response whose head has arrived.
pub(crate) struct Begun {
    exchange: Box<Exchange>,
    response: Response<()>,
    /// The body of an HTTP/2 response.
    incoming: Option<Incoming>,
}

/// The answer that a response's head begins.
pub(crate) fn answer(begun: Begun, head: &Head, place: &Place) -> Result<Answer, UpstreamError> {
    let Begun { mut exchange, response, incoming } = begun;
    exchange.server.answered(&exchange.group.name);
    let server = exchange.server.name.clone();
    let (mut parts, ()) = response.into_parts();
    let tunnel = exchange.tunnel.take().filter(|_| parts.status.is_success());
    if let (Some(_), Some(websocket)) = (&tunnel, &head.websocket) {
        websocket.switch(&mut parts);
    }
    let switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    if switched && (head.upgrade.is_none() || incoming.is_some() && tunnel.is_none()) {
        return Err(exchange.failed(Failure::Switched));
    }
    if switched && head.websocket.as_ref().is_some_and(|it| tunnel.is_none() && !it.is_answered_by(&parts.headers)) {
        return Err(
            exchange.failed(Failure::Malformed("its WebSocket is for another key (Sec-WebSocket-Accept)".into()))
        );
    }
    let exact = incoming.as_ref().map_or_else(|| exchange.size_hint(), Incoming::size_hint).exact();
    heads::prepare_response(parts.status, &mut parts.headers, exact, &head.method);
    if let (Some(sticky), Some(token)) = (&exchange.group.sticky, &exchange.server.token)
        && place.token.as_deref() != Some(token.as_bytes())
        && let Some(cookie) = sticky.write(token, place.secure)
    {
        parts.headers.append(header::SET_COOKIE, cookie);
    }
    if !switched {
        exchange.watch.hears();
        let response = Response::from_parts(parts, UpstreamBody::new(incoming, exchange));
        return Ok(Answer { response, server, upgraded: None });
    }
    exchange.server.succeeded();
    let Exchange { connection, server: in_flight, upload, .. } = *exchange;
    let upgraded = match (connection, incoming.zip(tunnel)) {
        (Connection::Http1(http1), _) => {
            let (transport, early) = http1.wire.into_parts();
            Some(Box::new(Upgraded::new(transport, early, in_flight)))
        }
        (Connection::Http2(stream), Some((incoming, writer))) => {
            let reader = BodyReader::new(incoming);
            let stream = OverHttp2 { reader, writer, _upload: upload, _stream: stream };
            Some(Box::new(Upgraded::over_http2(stream, in_flight)))
        }
        (Connection::Http2(_), None) => None,
    };
    Ok(Answer { response: Response::from_parts(parts, UpstreamBody::empty()), server, upgraded })
}
