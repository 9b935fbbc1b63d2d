//! Requests that somebody else answers: an upstream, or a program. Sorted into a class, read whole, let into the site when it is
//! their turn, passed on; and the answer passed back so that a slow client holds no slot.

use std::{
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request::Parts,
    uri::PathAndQuery,
};
use http_body::Body;
use http_body_util::BodyExt as _;
use scheduler::{admission::Refusal, class::ClassId};
use tokio::time::Instant;

use super::{
    Connection, Marks,
    answer::{AnswerBody, Holding},
    exchange::sign,
    presence::{Gone, gone},
    target::{self, Target},
};
use crate::{
    admission::{Arrival, Refused, Slot},
    body::{Afterwards, ClientBody, CollectError, Patience, Pulse, RelayEnd, RequestBody, relay},
    cgi::{self, CgiAnswer},
    class_metrics::ClassCounters,
    classify::{Classified, Facts, Verdict},
    config::Origin,
    serve::Live,
    sites::RouteAt,
    uplink::ClassAt,
    upstream::{Answer, Ask, Errand, Interim, Outbound, Pools, UpstreamBody, UpstreamError},
};
use files::{FileBody, error_page};

/// A response of announced length up to this is read whole before its client sees any of it: it is there at once, as a rule.
const SMALL_BYTES: u64 = 64 * 1024;
/// Local redirects of programs that are followed for one request.
const MAX_LOCAL_REDIRECTS: u32 = 10;
/// As nginx has it: the client closed the connection before there was an answer. Nobody sees it but the log.
const CLIENT_GONE: u16 = 499;

/// An answer, and what is known of how it came about.
pub(super) struct Answered {
    pub(super) response: Response<AnswerBody>,
    pub(super) story: Story,
}

/// What the record of a request says beside its response.
#[derive(Clone, Debug)]
pub(super) struct Story {
    /// Whose it was.
    pub(super) class: ClassAt,
    /// Who it was, where a password was checked.
    pub(super) user: Option<Box<str>>,
    /// What is counted of its class.
    pub(super) counters: ClassCounters,
    /// How long it waited to be let in, or to be refused; `None` where it needed no slot.
    pub(super) waited: Option<Duration>,
    /// Why it was refused, if it was.
    pub(super) refused: Option<Refusal>,
    /// Which server answered.
    pub(super) server: Option<Arc<str>>,
}

impl Story {
    pub(super) fn new(live: &Live, class: ClassId) -> Self {
        let counters = live.class_metrics.of(class).clone();
        let class = ClassAt { class, generation: live.uplink_generation };
        Self { class, user: None, counters, waited: None, refused: None, server: None }
    }
}

/// A request on its way to an origin.
pub(super) struct Passage {
    pub(super) connection: Arc<Connection>,
    pub(super) live: Arc<Live>,
    pub(super) parts: Box<Parts>,
    /// `None`: there is none.
    pub(super) body: Option<ClientBody>,
    pub(super) site: usize,
    pub(super) classified: Classified,
    pub(super) began: Instant,
}

/// Why there is no answer of the origin's.
enum Failure {
    Status(StatusCode),
    Refused(Refused),
}

impl From<StatusCode> for Failure {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}

impl Passage {
    /// To the answer. Where this is dropped because the client is gone, a request that waits leaves its queue.
    pub(super) async fn go(mut self) -> Answered {
        let (verdict, now) = match self.classified {
            Classified::Now(verdict) => (verdict, self.began),
            Classified::Later(verdict) => (verdict.await, Instant::now()),
        };
        let live = &self.live;
        let mut story = Story { user: verdict.user.clone(), ..Story::new(live, verdict.class) };
        let arrived = self.body.as_ref().map(ClientBody::arrived);
        let mut redirects = 0;
        let mut route = None;
        let mut response = loop {
            let now = if redirects == 0 { now } else { Instant::now() };
            let way = Way { connection: &self.connection, live, verdict: &verdict, site: self.site, now };
            let taken = {
                // Pinned where it is, because what is awaited as a value takes its room twice.
                pin!(way.take(&mut self.parts, &mut self.body, &mut route, &mut story)).await
            };
            match taken {
                Ok(Taken::Response(response)) => break response,
                // A program answers with another path (RFC 3875, section 6.2.2), as if the client had asked for that.
                Ok(Taken::Elsewhere(target)) if redirects < MAX_LOCAL_REDIRECTS => {
                    redirects += 1;
                    *self.parts = as_if_asked(&self.parts, target);
                }
                Ok(Taken::Elsewhere(target)) => {
                    tracing::error!(%target, "programs redirect to each other without end");
                    break error_page(StatusCode::BAD_GATEWAY).map(Into::into);
                }
                Err(Failure::Status(status)) => break way.error(&self.parts, status),
                Err(Failure::Refused(refused)) => {
                    story.refused = Some(refused.refusal);
                    story.waited = Some(refused.waited);
                    break live.refusals.response(refused.class).map(Into::into);
                }
            }
        };
        sign(response.headers_mut());
        if let Some(route) = route {
            // Pages of ours too, so that a field such as Strict-Transport-Security is on every answer of the route.
            live.sites.routes(self.site)[route].config.response_headers.apply(response.headers_mut());
        }
        if self.parts.version != Version::HTTP_2 && !arrived.is_none_or(|arrived| arrived.load(Relaxed)) {
            // What is left of the body stands before the next request, and nobody reads it.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(cookie) = verdict.set_cookie {
            response.headers_mut().append(header::SET_COOKIE, cookie);
            keep_private(response.headers_mut());
        }
        Answered { response, story }
    }
}

/// What came of taking the way once.
enum Taken {
    Response(Response<AnswerBody>),
    Elsewhere(PathAndQuery),
}

struct Way<'a> {
    connection: &'a Arc<Connection>,
    live: &'a Arc<Live>,
    verdict: &'a Verdict,
    site: usize,
    /// When it was begun.
    now: Instant,
}

impl Way<'_> {
    /// `number` becomes that of the route that the path belongs to.
    async fn take(
        &self,
        parts: &mut Parts,
        body: &mut Option<ClientBody>,
        number: &mut Option<usize>,
        story: &mut Story,
    ) -> Result<Taken, Failure> {
        let Self { connection, live, verdict, site, mut now } = *self;
        // Where a program redirected here, the rules of its own route are over.
        *number = None;
        let raw_path = parts.uri.path();
        let target = Target::parse(raw_path).map_err(|_| StatusCode::BAD_REQUEST)?;
        let Some(found) = live.sites.route(site, target.decoded()) else {
            return Box::pin(self.file(parts, body.take())).await.map(Taken::Response);
        };
        *number = Some(found.number);
        let route = &live.sites.routes(site)[found.number];
        let buffered = match &route.config.origin {
            Origin::Files => {
                route.config.request_headers.apply(&mut parts.headers);
                return Box::pin(self.file(parts, body.take())).await.map(Taken::Response);
            }
            Origin::Upstream { buffer_request, .. } => {
                if parts.method == Method::OPTIONS && target::forwards(&mut parts.headers).is_break() {
                    let mut response = Response::new(FileBody::empty().into());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    return Ok(Taken::Response(response));
                }
                *buffer_request
            }
            Origin::Cgi(_) => true,
        };
        let mut pulse = None;
        let body = match body.take() {
            Some(mut body) => {
                if !buffered {
                    // Its client may speak and listen at once, with long pauses in both.
                    let time = live.limits.idle_timeout;
                    body = body.with_patience(Patience::Idle { time, pulse: pulse.insert(Pulse::default()).clone() });
                }
                // Who asks for another protocol goes on with that right behind the head.
                parts.headers.remove(header::UPGRADE);
                // In boxes is what not every request needs, so that it does not make room for it.
                let body = Box::pin(self.body(body, buffered)).await?;
                now = Instant::now();
                body
            }
            None => RequestBody::Empty,
        };

        let still_sends = matches!(body, RequestBody::Streamed(_));
        let mut gone = gone(connection, parts.version, still_sends, now);
        let slot = match route.config.admitted && live.classes.admission.enabled {
            false => None,
            true => {
                let resource = verdict.resource.unwrap_or(route.config.resource);
                let client = client_key(verdict.client);
                let arrival = Arrival { class: verdict.class, resource, client, route: route.key };
                let slot = pin!(self.enter(arrival, &mut gone)).await?;
                story.waited = Some(slot.waited);
                if slot.waited > Duration::ZERO {
                    now = Instant::now();
                }
                Some(slot.counted(&story.counters))
            }
        };

        let host = host_of(parts);
        let headers = std::mem::take(&mut parts.headers);
        let response = match &route.config.origin {
            Origin::Files => unreachable!("answered above"),
            Origin::Upstream { upstream, replace_prefix, keep_host, buffer_response, .. } => {
                let replaced = replace_prefix.as_deref().map(|prefix| (prefix, found.rest));
                let path = target.forwarded(replaced);
                let path = match parts.uri.path_and_query() {
                    Some(same) if path == raw_path => Some(same.clone()),
                    _ => with_path(&path, parts.uri.query()),
                };
                let path = path.ok_or(StatusCode::BAD_REQUEST)?;
                let ask = Ask {
                    upstream: *upstream,
                    class: verdict.class.index(),
                    client: connection.client_address(),
                    scheme: if connection.tls.is_some() { "https" } else { "http" },
                    host: &host,
                    keep_host: *keep_host,
                    believed: verdict.believed,
                    rules: Some(&route.config.request_headers).filter(|rules| !rules.is_empty()),
                };
                let method = parts.method.clone();
                let request = Outbound { method, path, version: parts.version, headers, body };
                let pools = connection.pools.of(live);
                match pools.prepare(request, ask, now) {
                    Ok(errand) => {
                        let passing = Passing {
                            pools,
                            errand,
                            route: found.number,
                            buffer: *buffer_response,
                            version: parts.version,
                            is_head: parts.method == Method::HEAD,
                            gone,
                            pulse,
                        };
                        pin!(self.upstream(passing, slot, story)).await?
                    }
                    Err(error) => return Err(not_answered(slot, &error)),
                }
            }
            Origin::Cgi(_) => {
                let mut request = Request::new(body);
                *request.method_mut() = parts.method.clone();
                *request.uri_mut() = parts.uri.clone();
                *request.version_mut() = parts.version;
                *request.headers_mut() = headers.clone();
                // For the place that the program may redirect to, where other rules hold.
                parts.headers = headers;
                // In a box, because this is seldom, and larger than the rest.
                match Box::pin(self.program(route, found, target.decoded(), request, slot, gone)).await? {
                    Taken::Response(response) => response,
                    elsewhere => return Ok(elsewhere),
                }
            }
        };
        Ok(Taken::Response(response))
    }

    /// A file of the site, where a rule of classes or a program's redirect led here.
    async fn file(&self, parts: &Parts, body: Option<ClientBody>) -> Result<Response<AnswerBody>, Failure> {
        if let Some(body) = body {
            // Nobody asks for it; it is read so that the next request can be found.
            let limit_bytes = self.within_limit(&body)?;
            body.drain(limit_bytes).await.map_err(|error| self.not_here(error))?;
        }
        let files = self.live.sites.files(self.site).ok_or(StatusCode::NOT_FOUND)?;
        let response = files.serve(&parts.method, &parts.uri, &parts.headers).response().await;
        Ok(response.map(Into::into))
    }

    async fn body(&self, body: ClientBody, whole: bool) -> Result<RequestBody, Failure> {
        if body.is_end_stream() {
            return Ok(RequestBody::Empty);
        }
        let limit_bytes = self.within_limit(&body)?;
        if !whole {
            return Ok(RequestBody::streamed(body, limit_bytes));
        }
        RequestBody::collect(body, limit_bytes, &self.live.store).await.map_err(|error| self.not_here(error))
    }

    /// How long a body may be; an error if it is announced as longer.
    fn within_limit(&self, body: &ClientBody) -> Result<u64, Failure> {
        let limit_bytes = self.live.limits.request_body_bytes;
        if body.size_hint().lower() > limit_bytes {
            return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
        }
        Ok(limit_bytes)
    }

    fn not_here(&self, error: CollectError) -> Failure {
        match error {
            CollectError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE.into(),
            CollectError::Late => StatusCode::REQUEST_TIMEOUT.into(),
            CollectError::Client => StatusCode::BAD_REQUEST.into(),
            CollectError::Store(error) => {
                tracing::error!(%error, "a request's body cannot be kept");
                StatusCode::INTERNAL_SERVER_ERROR.into()
            }
        }
    }

    /// Waits for a slot while the client does. In HTTP/2 a client that goes away resets its stream, which drops all of this; the
    /// kernel is asked too, because a connection that takes nothing is not read either.
    async fn enter(&self, arrival: Arrival, gone: &mut Gone) -> Result<Slot, Failure> {
        let slot = unless_gone(gone, pin!(self.live.admission.enter(arrival))).await?.map_err(Failure::Refused)?;
        if slot.waited > Duration::ZERO && gone.is_over() {
            // The slot goes to the next one.
            return Err(client_gone());
        }
        Ok(slot)
    }

    async fn upstream(
        &self,
        passing: Passing,
        slot: Option<Slot>,
        story: &mut Story,
    ) -> Result<Response<AnswerBody>, Failure> {
        let mut slot = match slot {
            Some(held) if passing.buffer => return self.kept(passing, held, story).await,
            slot => slot,
        };
        let Self { connection, live, .. } = *self;
        let ahead = self.ahead(&passing);
        let mut tell = |interim| ahead.send(interim, &connection.marks, live);
        let Passing { pools, errand, mut gone, .. } = passing;
        let answer = unless_gone(&mut gone, pin!(pools.pass(errand, &mut tell))).await?;
        let Answer { response, server, upgraded } = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(not_answered(slot, &error)),
        };
        if let Some(slot) = &mut slot {
            slot.answered(response.status());
        }
        story.server = Some(server);
        if let Some(upgraded) = upgraded {
            connection.marks.tunnel(upgraded, story.class);
        }
        Ok(response.map(|body| AnswerBody::Upstream(Box::new(Holding::new(body, slot, gone, passing.pulse)))))
    }

    /// As [`Way::upstream`], but the answer is kept here until its client takes it. The site works on it, whether or not its client is
    /// still there; for so long it has its slot.
    fn kept(
        &self,
        passing: Passing,
        mut held: Slot,
        story: &mut Story,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Failure>> {
        // Not the connection: what outlives its client must not keep its socket open.
        let (live, marks) = (self.live.clone(), self.connection.marks.clone());
        let ahead = self.ahead(&passing);
        let Passing { pools, errand, is_head, pulse, .. } = passing;
        let held_for = async move {
            let answer = pools.pass(errand, &mut |interim| ahead.send(interim, &marks, &live)).await;
            let Answer { response, server, upgraded } = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    blame(held, &error);
                    return Err((told(&error), None));
                }
            };
            let (head, body) = response.into_parts();
            held.answered(head.status);
            let exact_bytes = body.size_hint().exact();
            let body = if head.status == StatusCode::SWITCHING_PROTOCOLS || is_head || body.is_end_stream() {
                held.finish();
                AnswerBody::Upstream(Box::new(Holding::ended(body)))
            } else if exact_bytes.is_some_and(|bytes| bytes <= SMALL_BYTES) {
                match whole(body).await {
                    Ok(body) => {
                        held.finish();
                        body
                    }
                    Err(error) => {
                        let error = UpstreamError::of_body(error);
                        blame(held, &error);
                        return Err((told(&error), Some(server)));
                    }
                }
            } else {
                let (relay, relayed) = relay(&live.store, exact_bytes);
                let body = body.map_frame(move |frame| {
                    pulse.iter().for_each(Pulse::beat);
                    frame
                });
                tokio::spawn(async move {
                    match relay.pass(body, Afterwards::ALittle).await {
                        RelayEnd::Whole => held.finish(),
                        RelayEnd::BrokenOff(error) => {
                            tracing::warn!(%error, "a response of an upstream broke off");
                            held.fail();
                        }
                        RelayEnd::NotKept | RelayEnd::ClientGone => {}
                    }
                });
                AnswerBody::Relayed(relayed)
            };
            Ok((Response::from_parts(head, body), server, upgraded))
        };
        let outliving = Outliving::new(held_for);
        async move {
            let (response, server, upgraded) = match outliving.await {
                Ok(answered) => answered,
                Err((status, server)) => {
                    story.server = server;
                    return Err(status.into());
                }
            };
            story.server = Some(server);
            if let Some(upgraded) = upgraded {
                self.connection.marks.tunnel(upgraded, story.class);
            }
            Ok(response)
        }
    }

    fn ahead(&self, passing: &Passing) -> Ahead {
        // Clients of HTTP/1.0 know of none, and to those of HTTP/2 hyper has no way.
        let request = (passing.version == Version::HTTP_11).then(|| self.connection.marks.interims.next());
        Ahead { site: self.site, route: passing.route, request }
    }

    async fn program(
        &self,
        route: &RouteAt,
        found: crate::sites::Found<'_>,
        decoded: &str,
        request: Request<RequestBody>,
        slot: Option<Slot>,
        mut gone: Gone,
    ) -> Result<Taken, Failure> {
        let Self { connection, live, verdict, .. } = *self;
        let Some(cgi) = &route.cgi else { return Err(StatusCode::INTERNAL_SERVER_ERROR.into()) };
        let class = &live.classes.classes[verdict.class.index()];
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let host = request.uri().host().map_or_else(|| crate::sites::without_port(host).to_owned(), str::to_owned);
        let is_head = request.method() == Method::HEAD;
        let context = cgi::Context {
            prefix: decoded.strip_suffix(found.rest).unwrap_or_default(),
            root: live.sites.root(self.site),
            client: SocketAddr::new(verdict.client, connection.peer.port()),
            local: connection.local,
            host: &host,
            tls: connection.tls.is_some(),
            user: verdict.user.as_deref(),
            believed: verdict.believed,
            rules: Some(&route.config.request_headers).filter(|rules| !rules.is_empty()),
            class: &class.name,
            priority: class.priority,
        };
        // A program runs for its client alone: it ends with it.
        let running = pin!(cgi.run(request, context));
        let answer = match unless_gone(&mut gone, running).await? {
            Ok(answer) => answer,
            Err(error) => {
                let status = error.status();
                if matches!(status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) {
                    slot.into_iter().for_each(Slot::fail);
                }
                return Err(status.into());
            }
        };
        let mut slot = slot;
        let finish = |slot: Option<Slot>| slot.into_iter().for_each(Slot::finish);
        let response = match answer {
            CgiAnswer::Local(target) => {
                finish(slot);
                return Ok(Taken::Elsewhere(target));
            }
            CgiAnswer::Response(response) => response,
        };
        if let Some(slot) = &mut slot {
            slot.answered(response.status());
        }
        let (head, body) = response.into_parts();
        if is_head || body.is_end_stream() {
            finish(slot);
            return Ok(Taken::Response(Response::from_parts(head, AnswerBody::Program(body))));
        }
        let (relay, relayed) = relay(&live.store, body.size_hint().exact());
        tokio::spawn(async move {
            let end = tokio::select! {
                biased;
                end = relay.pass(body, Afterwards::Nothing) => end,
                () = gone => RelayEnd::ClientGone,
            };
            if end == RelayEnd::Whole {
                finish(slot);
            }
        });
        Ok(Taken::Response(Response::from_parts(head, AnswerBody::Relayed(relayed))))
    }

    /// A page for a request without an answer.
    fn error(&self, parts: &Parts, status: StatusCode) -> Response<AnswerBody> {
        let mut response = error_page(status).map(AnswerBody::File);
        if parts.version != Version::HTTP_2 && status.as_u16() == CLIENT_GONE {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

fn client_gone() -> Failure {
    StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST).into()
}

/// What is worked out for a client, as long as it is there.
async fn unless_gone<T>(gone: &mut Gone, work: impl Future<Output = T> + Unpin) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = gone => Err(client_gone()),
    }
}

/// Work that goes on by itself when whoever waited for it is gone.
struct Outliving<F: Future + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future + Send + 'static> Outliving<F> {
    fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<F: Future + Send + 'static> Future for Outliving<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let output = ready!(self.0.as_mut().expect("polled after its end").as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F: Future + Send + 'static> Drop for Outliving<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { drop(work.await) });
        }
    }
}

/// A request on its way to an upstream.
struct Passing {
    pools: Arc<Pools>,
    errand: Box<Errand>,
    route: usize,
    /// Whether the answer is kept here for its client, where a slot is held.
    buffer: bool,
    version: Version,
    is_head: bool,
    gone: Gone,
    /// Where its client waits for the answer while it sends.
    pulse: Option<Pulse>,
}

/// Where what goes ahead of a response belongs.
#[derive(Clone, Copy)]
struct Ahead {
    site: usize,
    route: usize,
    /// `None`: nowhere.
    request: Option<u64>,
}

impl Ahead {
    /// Of the rules for a response, those hold that take something out; and the origin's name goes, as it does there.
    fn send(self, mut interim: Interim, marks: &Marks, live: &Live) {
        let Some(request) = self.request else { return };
        interim.headers_mut().remove(header::SERVER);
        for name in &live.sites.routes(self.site)[self.route].config.response_headers.remove {
            interim.headers_mut().remove(name);
        }
        marks.interims.push(request, &interim);
    }
}

/// The slot of a request that an upstream did not answer.
fn blame(slot: Slot, error: &UpstreamError) {
    if error.is_of_upstream() {
        slot.fail();
    }
}

/// What comes of a request that no upstream has answered.
fn not_answered(slot: Option<Slot>, error: &UpstreamError) -> Failure {
    slot.into_iter().for_each(|slot| blame(slot, error));
    told(error).into()
}

/// What the client is told, and the operator.
fn told(error: &UpstreamError) -> StatusCode {
    error.log();
    error.status()
}

/// Reads a small body whole.
async fn whole(body: UpstreamBody) -> std::io::Result<AnswerBody> {
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let bytes = body.to_bytes();
    Ok(match trailers {
        None => AnswerBody::File(FileBody::from(bytes)),
        // In HTTP/2 they can follow a body of announced length.
        Some(trailers) => {
            let body = crate::body::full(bytes).with_trailers(std::future::ready(Some(Ok(trailers))));
            AnswerBody::Program(body.boxed_unsync())
        }
    })
}

/// The request that a local redirect stands for (RFC 3875, section 6.2.2).
fn as_if_asked(parts: &Parts, target: PathAndQuery) -> Parts {
    let mut request = Request::new(());
    *request.method_mut() = if parts.method == Method::HEAD { Method::HEAD } else { Method::GET };
    *request.version_mut() = parts.version;
    *request.headers_mut() = parts.headers.clone();
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING, header::EXPECT] {
        request.headers_mut().remove(name);
    }
    let mut uri = parts.uri.clone().into_parts();
    uri.path_and_query = Some(target);
    *request.uri_mut() = Uri::from_parts(uri).unwrap_or_else(|_| parts.uri.clone());
    request.into_parts().0
}

/// Lets no shared cache keep a response, which would hand one client's cookie to all.
fn keep_private(headers: &mut HeaderMap) {
    let text = headers.get_all(header::CACHE_CONTROL).iter().map(|value| value.to_str().unwrap_or("\""));
    let text = text.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let directives = || text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    // Names of fields stand in quotes, and may be those of directives.
    let quotes = text.contains('"');
    if !quotes && directives().any(|it| it == "private" || it == "no-store") {
        return;
    }
    let for_all = |it: &str| it == "public" || it == "proxy-revalidate" || it.starts_with("s-maxage");
    let kept = match quotes {
        true => vec!["private", "no-cache"],
        false => std::iter::once("private").chain(directives().filter(|it| !for_all(it))).collect(),
    };
    let value = HeaderValue::try_from(kept.join(", ")).unwrap_or(HeaderValue::from_static("private"));
    headers.insert(header::CACHE_CONTROL, value);
}

fn with_path(path: &str, query: Option<&str>) -> Option<PathAndQuery> {
    match query {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

/// The host as the client asked for it, with its port.
fn host_of(parts: &Parts) -> Box<str> {
    let field = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(http::uri::Authority::as_str).or_else(field).unwrap_or_default().into()
}

fn client_key(client: std::net::IpAddr) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(client)
}

/// What is known of a request on a connection, for the classifier.
pub(super) fn facts<'a>(
    connection: &'a Connection,
    live: &Live,
    site: usize,
    parts: &'a Parts,
    host: &'a str,
) -> Facts<'a> {
    let names = connection.tls.as_ref().and_then(|tls| tls.client_names(live.sites.client_ca(site)));
    Facts {
        parts,
        host,
        peer: connection.peer,
        local: connection.local,
        certificate_names: names.unwrap_or_default(),
        has_certificate: names.is_some(),
        tls: connection.tls.is_some(),
        now: SystemTime::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shared_cache_keeps_a_cookie_and_the_rest_of_what_the_origin_says_stays() {
        for (said, left) in [
            (&[][..], &["private"][..]),
            (&["public"], &["private"]),
            (&["Public, max-age=60, s-maxage=600"], &["private, max-age=60"]),
            (&["no-cache", "public"], &["private, no-cache"]),
            (&["max-age=60, PRIVATE"], &["max-age=60, PRIVATE"]),
            (&["public", "no-store"], &["public", "no-store"]),
            (&["public, no-cache=\"a, private\""], &["private, no-cache"]),
            (&["private=\"x-user\""], &["private, no-cache"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(header::CACHE_CONTROL, HeaderValue::from_static(value));
            }
            keep_private(&mut headers);
            let found: Vec<_> = headers.get_all(header::CACHE_CONTROL).iter().map(|it| it.to_str().unwrap()).collect();
            assert_eq!(found, left, "{said:?}");
        }
    }
}
