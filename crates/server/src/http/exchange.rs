//! One request and its response: checked, its site found, its file asked for, its bytes put behind the gate, its outcome
//! recorded. Straight-line code; a future only where something is waited for.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header, request::Parts};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{Connection, InFlight, intake::REFUSED_TARGET};
use crate::{
    access_log::Entry,
    files::{FileBody, Served, error_page},
    gate::{GatedBody, Outcome, Urgency},
    serve::Live,
};

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
}

impl hyper::service::Service<Request<Incoming>> for Exchange {
    type Response = Response<GatedBody<FileBody>>;
    type Error = Infallible;
    type Future = Respond;

    fn call(&self, request: Request<Incoming>) -> Respond {
        let (parts, body) = request.into_parts();
        let live = self.connection.shared.live.load();
        let under_way = UnderWay::new(self.connection.clone(), &live, &parts);
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
            parts,
            body,
            read_bytes: 0,
            limit_bytes,
        })))
    }
}

/// The response to a request, mostly ready when it is first asked for.
pub(crate) struct Respond(State);

enum State {
    Ready(Option<Response<GatedBody<FileBody>>>),
    Draining(Box<Draining>),
    Later { response: Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>, under_way: Option<UnderWay> },
}

struct Draining {
    under_way: Option<UnderWay>,
    parts: Parts,
    body: Incoming,
    read_bytes: u64,
    limit_bytes: u64,
}

impl Future for Respond {
    type Output = Result<Response<GatedBody<FileBody>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            self.0 = match &mut self.0 {
                State::Ready(response) => {
                    return Poll::Ready(Ok(response.take().expect("polled after its end")));
                }
                State::Later { response, under_way } => {
                    let response = ready!(response.as_mut().poll(cx));
                    let under_way = under_way.take().expect("taken once");
                    State::Ready(Some(under_way.finish(response)))
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
                // Malformed, cut off, or late: the intake has noted which.
                Some(Err(_)) => break Some(self.under_way.as_ref().expect("taken below").connection.marks.refused()),
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
    in_flight: InFlight,
    started: Instant,
    version: Version,
    entry: Option<Entry>,
}

impl UnderWay {
    fn new(connection: Arc<Connection>, live: &Live, parts: &Parts) -> Self {
        let in_flight = InFlight::begin(connection.marks.clone());
        let entry = live.log.as_ref().map(|_| {
            let refused = is_refused(parts).then(|| connection.marks.refused_line());
            Entry::new(connection.peer, parts, refused)
        });
        Self { connection, in_flight, started: Instant::now(), version: parts.version, entry }
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
            return Respond(State::Ready(Some(self.finish(response))));
        }
        match live.sites.files(site).serve(&parts.method, &parts.uri, &parts.headers) {
            Served::Ready(response) => Respond(State::Ready(Some(self.finish(response)))),
            Served::Later(response) => Respond(State::Later { response, under_way: Some(self) }),
        }
    }

    /// An error page for a request that is the client's fault.
    fn refuse(self, status: StatusCode) -> Respond {
        let mut response = error_page(status);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, ALLOW);
        }
        // After a refused head or an unread body, nothing on an HTTP/1 connection can be trusted to be a request.
        if self.version != Version::HTTP_2 && status != StatusCode::MISDIRECTED_REQUEST {
            response.headers_mut().insert(header::CONNECTION, CLOSE);
        }
        Respond(State::Ready(Some(self.finish(response))))
    }

    /// Puts the response behind the gate and sees to its record.
    fn finish(self, mut response: Response<FileBody>) -> Response<GatedBody<FileBody>> {
        let Self { connection, in_flight, started, version, entry } = self;
        let headers = response.headers_mut();
        headers.insert(header::SERVER, SERVER);
        if version != Version::HTTP_2 && connection.marks.closing() {
            headers.insert(header::CONNECTION, CLOSE);
        }
        let status = response.status();
        let urgency = match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT if !response.body().is_end_stream() => Urgency::Ranked,
            _ => Urgency::First,
        };
        let flow = connection.flow.clone();
        flow.response(version, response, urgency, move |outcome: Outcome| {
            let now = Instant::now();
            let response_time = now - started;
            drop(in_flight);
            connection.metrics.record(status, &outcome, response_time);
            if let Some(entry) = entry {
                // The log of now, not of when the request came: it may have been replaced since.
                if let Some(log) = &connection.shared.live.load().log {
                    entry.write(log, status, &outcome, response_time);
                }
            }
        })
    }
}

/// Whether this stands for a request that the intake has refused.
fn is_refused(parts: &Parts) -> bool {
    parts.uri.path() == REFUSED_TARGET && parts.method != Method::OPTIONS
}

/// The site a request is for, or why it is not answered.
fn site(connection: &Connection, live: &Live, parts: &Parts) -> Result<usize, StatusCode> {
    if is_refused(parts) {
        return Err(connection.marks.refused());
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

/// The host asked for, with its port. For HTTP/1 the intake has seen to it that there is at most one, and one from
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
    match authority.or(text).unwrap_or_default() {
        // A user name in a host only serves to deceive (RFC 9110, section 4.2.4).
        host if host.contains('@') => Err(StatusCode::BAD_REQUEST),
        host => Ok(host),
    }
}
