//! One request and its response: checked, its site found, its file asked for, its bytes put behind the gate, its outcome
//! recorded. Straight-line code; a future only where something is waited for.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request::Parts,
    uri::PathAndQuery,
};
use http_body::Body;
use http1::is_host_and_port;
use tokio::time::Instant;

use super::{
    Connection, InFlight,
    answer::AnswerBody,
    gateway::{Answered, Passage, Story, facts},
    http1::Refused,
};
use crate::{
    access_log::{Entry, Told},
    body::{Arriving, ClientBody},
    class_metrics::ClassOutcome,
    classify::{Classified, Verdict},
    gate::{GatedBody, Outcome, Urgency},
    serve::Live,
    sites,
};
use files::{FileBody, Served, error_page};

const SERVER: HeaderValue = HeaderValue::from_static("serpent");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Answers the requests of one connection.
pub(crate) struct Exchange {
    connection: Arc<Connection>,
}

impl Exchange {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection: Arc::new(connection) }
    }

    /// Begins to answer a request.
    pub(super) fn begin(&self, parts: Box<Parts>, body: Arriving) -> Respond {
        let live = self.connection.shared.live.load();
        let under_way = UnderWay::new(self.connection.clone(), &live, &parts, None);
        let (under_way, parts, body) = match under_way.pass_on(&live, parts, body) {
            Ok(respond) => return respond,
            Err(back) => back,
        };
        if body.is_end_stream() {
            return under_way.answer(&live, &parts);
        }
        let limit_bytes = live.limits.request_body_bytes;
        if body.size_hint().lower() > limit_bytes {
            return under_way.refuse(StatusCode::PAYLOAD_TOO_LARGE);
        }
        // Nobody asks for the body of a request for a file; it is read only so that the next request can be found.
        Respond(State::Draining(Box::new(Draining {
            under_way: Some(under_way),
            body: self.connection.client_body(body, &live),
            parts,
            read_bytes: 0,
            limit_bytes,
        })))
    }

    /// Answers a request that could not be understood.
    pub(super) fn refuse(&self, refused: Refused) -> Response<GatedBody<AnswerBody>> {
        let Refused { status, is_head, line } = refused;
        let mut request = Request::new(());
        *request.method_mut() = if is_head { Method::HEAD } else { Method::GET };
        *request.uri_mut() = Uri::from_static("*");
        let live = self.connection.shared.live.load();
        UnderWay::new(self.connection.clone(), &live, &request.into_parts().0, Some(line)).refusal(status)
    }
}

/// The response to a request, mostly ready when it is first asked for.
pub(crate) struct Respond(State);

enum State {
    Ready(Option<Response<GatedBody<AnswerBody>>>),
    Draining(Box<Draining>),
    Later { response: Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>, under_way: Option<UnderWay> },
    Passing { answer: Pin<Box<dyn Future<Output = Answered> + Send>>, under_way: Option<UnderWay> },
}

struct Draining {
    under_way: Option<UnderWay>,
    parts: Box<Parts>,
    body: ClientBody,
    read_bytes: u64,
    limit_bytes: u64,
}

impl Future for Respond {
    type Output = Response<GatedBody<AnswerBody>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.0 = match &mut self.0 {
                State::Ready(response) => {
                    return Poll::Ready(response.take().expect("polled after its end"));
                }
                State::Later { response, under_way } => {
                    let response = ready!(response.as_mut().poll(cx));
                    let under_way = under_way.take().expect("taken once");
                    State::Ready(Some(under_way.finish(response.map(Into::into))))
                }
                State::Passing { answer, under_way } => {
                    let Answered { response, story } = ready!(answer.as_mut().poll(cx));
                    let mut under_way = under_way.take().expect("taken once");
                    under_way.story = Some(story);
                    State::Ready(Some(under_way.send(response)))
                }
                State::Draining(draining) => ready!(draining.poll(cx)).0,
            };
        }
    }
}

impl Draining {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Respond> {
        let refused = loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => break None,
                Some(Ok(frame)) => {
                    self.read_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                    if self.read_bytes > self.limit_bytes {
                        break Some(StatusCode::PAYLOAD_TOO_LARGE);
                    }
                }
                Some(Err(error)) if error.kind() == io::ErrorKind::TimedOut => break Some(StatusCode::REQUEST_TIMEOUT),
                Some(Err(_)) => break Some(StatusCode::BAD_REQUEST),
            }
        };
        let under_way = self.under_way.take().expect("taken once, then the state changes");
        Poll::Ready(match refused {
            Some(status) => under_way.refuse(status),
            None => {
                let live = under_way.connection.shared.live.load_full();
                under_way.answer(&live, &self.parts)
            }
        })
    }
}

/// A request that has no response yet, with what its record will need.
struct UnderWay {
    connection: Arc<Connection>,
    in_flight: Option<InFlight>,
    started: Instant,
    version: Version,
    is_head: bool,
    entry: Option<Entry>,
    story: Option<Story>,
}

impl UnderWay {
    /// `refused` is what a request began with that could not be understood.
    fn new(connection: Arc<Connection>, live: &Live, parts: &Parts, refused: Option<Box<[u8]>>) -> Self {
        let in_flight = (parts.version == Version::HTTP_2).then(|| InFlight::begin(connection.marks.clone()));
        let entry = live.log.as_ref().map(|_| Entry::new(connection.peer, parts, refused));
        let (version, is_head) = (parts.version, parts.method == Method::HEAD);
        Self { connection, in_flight, started: Instant::now(), version, is_head, entry, story: None }
    }

    /// The answer to a request that is not, or not only, for a file; others come back.
    #[expect(clippy::result_large_err, reason = "no error: what came in goes back")]
    fn pass_on(
        mut self,
        live: &Arc<Live>,
        parts: Box<Parts>,
        body: Arriving,
    ) -> Result<Respond, (Self, Box<Parts>, Arriving)> {
        let Ok(site) = site(&self.connection, live, &parts) else { return Err((self, parts, body)) };
        let routes = live.sites.routes(site);
        if (routes.is_empty() && live.classifier.is_trivial()) || parts.uri.path() == "*" {
            return Err((self, parts, body));
        }
        let connection = self.connection.clone();
        let classified = match live.classifier.is_trivial() {
            true => Classified::Now(Verdict {
                class: live.classes.default,
                rule: None,
                resource: None,
                client: connection.peer.ip().to_canonical(),
                believed: None,
                user: None,
                set_cookie: None,
            }),
            false => {
                let host = host(&parts).map(sites::normal).unwrap_or_default();
                live.classifier.classify(facts(&connection, live, site, &parts, &host))
            }
        };
        if routes.is_empty()
            && let Classified::Now(verdict) = &classified
            && verdict.set_cookie.is_none()
        {
            // A file, whose class counts on the uplink and in the log.
            self.story = Some(Story { user: verdict.user.clone(), ..Story::new(live, verdict.class) });
            return Err((self, parts, body));
        }
        // The one that it was classified by: another may have other numbers.
        let live = live.clone();
        let body = (!body.is_none()).then(|| connection.client_body(body, &live));
        let passage = Passage { connection, live, parts, body, site, classified, began: self.started };
        // The box first, so that it is made in there.
        let answer = Box::into_pin(Box::write(Box::new_uninit(), passage.go()));
        Ok(Respond(State::Passing { answer, under_way: Some(self) }))
    }

    fn answer(self, live: &Live, parts: &Parts) -> Respond {
        let site = match site(&self.connection, live, parts) {
            Ok(site) => site,
            Err(status) => return self.refuse(status),
        };
        if parts.method == Method::OPTIONS && parts.uri.path() == "*" {
            let mut response = Response::new(FileBody::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert(header::ALLOW, ALLOW);
            return Respond(State::Ready(Some(self.finish(response.map(Into::into)))));
        }
        let Some(files) = live.sites.files(site) else { return self.refuse(StatusCode::NOT_FOUND) };
        match files.serve(&parts.method, &parts.uri, &parts.headers) {
            Served::Ready(response) => Respond(State::Ready(Some(self.finish(response.map(Into::into))))),
            Served::Later(response) => Respond(State::Later { response, under_way: Some(self) }),
        }
    }

    /// An error page for a request that is the client's fault.
    fn refuse(self, status: StatusCode) -> Respond {
        Respond(State::Ready(Some(self.refusal(status))))
    }

    fn refusal(self, status: StatusCode) -> Response<GatedBody<AnswerBody>> {
        let mut response = error_page(status);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, ALLOW);
        }
        // After a refused head or an unread body, nothing on an HTTP/1 connection can be trusted to be a request.
        if self.version != Version::HTTP_2 && status != StatusCode::MISDIRECTED_REQUEST {
            response.headers_mut().insert(header::CONNECTION, CLOSE);
        }
        self.finish(response.map(Into::into))
    }

    fn finish(self, mut response: Response<AnswerBody>) -> Response<GatedBody<AnswerBody>> {
        sign(response.headers_mut());
        self.send(response)
    }

    /// Puts the response behind the gate and sees to its record.
    fn send(self, mut response: Response<AnswerBody>) -> Response<GatedBody<AnswerBody>> {
        let Self { connection, in_flight, started, version, is_head, entry, story } = self;
        if is_head && matches!(response.body(), AnswerBody::File(body) if !body.is_end_stream()) {
            // Pages of ours are made with their body. HTTP/2 would send it, though nobody asked for it.
            response = response.map(|_| FileBody::empty().into());
        }
        let response_is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        let stays = version == Version::HTTP_2 || response_is_upgrade;
        if !stays && connection.marks.closing() {
            headers.insert(header::CONNECTION, CLOSE);
        }
        let status = response.status();
        let urgency = match (status, response.body()) {
            (_, body) if body.is_end_stream() => Urgency::First,
            (StatusCode::OK | StatusCode::PARTIAL_CONTENT, _) => Urgency::Ranked,
            // A page of ours; what an origin says is as long as it likes.
            (_, AnswerBody::File(_)) => Urgency::First,
            _ => Urgency::Ranked,
        };
        let flow = connection.flow.clone();
        let story = story.unwrap_or_else(|| {
            let live = connection.shared.live.load();
            Story::new(&live, live.classes.default)
        });
        flow.response_of(story.class, version, response, urgency, move |outcome: Outcome| {
            let response_time = outcome.ended - started;
            drop(in_flight);
            connection.metrics.record(status, &outcome, response_time);
            story.counters.record(&ClassOutcome {
                waited: story.waited,
                // Its slot has counted it.
                service: None,
                system_time: response_time,
                status,
                refused: story.refused,
                complete: outcome.complete,
            });
            if let Some(entry) = entry {
                // The log of now, not of when the request came: it may have been replaced since.
                if let Some(log) = &connection.shared.live.load().log {
                    entry.write(log, status, &outcome, response_time, told(story));
                }
            }
        })
    }
}

/// Says who answers: in place of an origin's name, and before the rules of a route, which may say otherwise.
pub(super) fn sign(headers: &mut HeaderMap) {
    headers.insert(header::SERVER, SERVER);
}

fn told(story: Story) -> Told {
    let waited = story.waited.unwrap_or_default();
    Told { class: story.counters.name().clone(), user: story.user, waited, upstream: story.server }
}

/// The site a request is for, or why it is not answered.
fn site(connection: &Connection, live: &Live, parts: &Parts) -> Result<usize, StatusCode> {
    // In HTTP/1 that is refused with the head.
    if parts.version == Version::HTTP_2 {
        http2_head(live, parts)?;
    }
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let host = host(parts)?;
    let site = live.sites.find(host);
    let asked = connection.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
    if asked.is_some_and(|asked| !live.sites.same_certificate(asked, site)) {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    Ok(site)
}

/// Refuses a malformed path (RFC 9113, section 8.3.1) and too many fields in a head of HTTP/2. A client may send each cookie
/// in a field of its own (section 8.2.3), so all cookies count as one field.
fn http2_head(live: &Live, parts: &Parts) -> Result<(), StatusCode> {
    let path = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if !path.starts_with('/') && (path != "*" || parts.method != Method::OPTIONS) && parts.method != Method::CONNECT {
        return Err(StatusCode::BAD_REQUEST);
    }
    let most = live.limits.request_headers;
    if parts.headers.len() > most {
        let cookies = parts.headers.get_all(header::COOKIE).iter().count();
        if parts.headers.len() - cookies.saturating_sub(1) > most {
            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
    }
    Ok(())
}

/// The host asked for, with its port. For HTTP/1 it was seen to with the head that there is at most one, and one from
/// HTTP/1.1 on; an absolute target goes before it (RFC 9112, section 3.2.2). HTTP/2 has it in `:authority`, and a differing
/// Host is malformed (RFC 9113, section 8.3.1).
fn host(parts: &Parts) -> Result<&str, StatusCode> {
    let field = parts.headers.get(header::HOST);
    let text = field.map(HeaderValue::to_str).transpose().map_err(|_| StatusCode::BAD_REQUEST)?;
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    if parts.version == Version::HTTP_2 {
        let more = parts.headers.get_all(header::HOST).iter().nth(1).is_some();
        let differs = matches!((authority, text), (Some(one), Some(other)) if !one.eq_ignore_ascii_case(other));
        if more || differs || (authority.is_none() && text.is_none()) {
            return Err(StatusCode::BAD_REQUEST);
        }
    }
    let host = authority.or(text).unwrap_or_default();
    // That of HTTP/1 was looked at with the head.
    if parts.version == Version::HTTP_2 && (host.is_empty() || !is_host_and_port(host.as_bytes())) {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(host)
}
