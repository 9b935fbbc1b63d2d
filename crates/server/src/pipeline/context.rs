//! The state of a request while it is answered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use access_log::{Entry, Log};
use bytes::Bytes;
use heads::{Page, PriorityField};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request::Parts,
    uri::PathAndQuery,
};
use limits::{Granted, Permit, Share};
use scheduler::{admission::Refusal, class::ClassId};
use tokio::time::Instant;

use super::{
    answer_body::AnswerBody,
    asked_for::asked_for,
    call::{Call, End},
    guard::Guarded,
    presence::ClientGone,
    spans::RequestSpans,
    websocket,
};
use crate::{
    admission::Refused,
    body::{ClientBody, IncomingBody},
    class_metrics::ClassCounters,
    classify::Verdict,
    config::{ForwardAuth, ForwardedField},
    connection::Connection,
    connection_state::InFlight,
    sites::Routed,
    state::ConfigSnapshot,
    uplink::ClassAt,
};
use files::{FileBody, error_page};

/// The status in the log of a request whose client is gone, as nginx has it. No client sees it.
const CLIENT_GONE: u16 = 499;
/// When a client may come again that found no room here.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("5");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// A request under way.
pub(super) struct RequestContext {
    pub(super) connection: Arc<Connection>,
    /// The head. A program may replace it ([`RequestContext::go_elsewhere`]).
    pub(super) parts: Box<Parts>,
    /// The path that the client asked for, if a guard has sent the request to another path.
    pub(super) asked: Option<PathAndQuery>,
    /// The server of `forward-auth` that has let the request go on.
    pub(super) allowed_by: Option<Arc<ForwardAuth>>,
    /// Fields of the answer of that server which the client gets.
    pub(super) of_auth: Vec<(HeaderName, HeaderValue)>,
    /// Whether the answer is that of the origin, and not one of this server.
    pub(super) is_answered_by_origin: bool,
    /// The body, until a step takes it; `None` if the request has none.
    pub(super) body: Option<ClientBody>,
    /// A call of gRPC.
    pub(super) call: Option<Call>,
    /// The bytes that the client of a WebSocket over HTTP/2 sends, until the upstream takes them.
    pub(super) websocket: Option<IncomingBody>,
    /// HTTP/2: the way of interim responses to the client.
    pub(super) interims: Option<http2::Interims>,
    /// The page that is asked for, where its route tells clients early what a page needs.
    pub(super) page: Option<Page>,
    /// Whether the body was read to its end; `None` if the request has none.
    arrived: Option<Arc<AtomicBool>>,
    /// The index of the site.
    pub(super) site: usize,
    /// The index of the route; `None`: no route has matched (yet).
    pub(super) route: Option<usize>,
    pub(super) verdict: Verdict,
    /// The last reading of the clock.
    pub(super) now: Instant,
    pub(super) record: RecordContext,
}

/// The facts that the record of a request needs beside its response.
pub(super) struct RecordContext {
    pub(super) started: Instant,
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// HTTP/2: how urgent the client says that the response is.
    pub(super) priority: PriorityField,
    /// The line of the log; `None`: there are no logs.
    pub(super) entry: Option<Entry>,
    /// The log that has the line.
    pub(super) log: Option<Log>,
    pub(super) in_flight: Option<InFlight>,
    pub(super) class: ClassAt,
    pub(super) counters: ClassCounters,
    /// The user, if a password was checked.
    pub(super) user: Option<Box<str>>,
    /// Held until the response is sent; limits on requests at once count these.
    pub(super) permits: Vec<Permit>,
    /// The response's share of the bytes of its client, where they are limited.
    pub(super) share: Option<Share>,
    /// How long the request waited for its slot, or for its refusal; `None`: it needed no slot.
    pub(super) waited: Option<Duration>,
    /// Why it was refused.
    pub(super) refused: Option<Refusal>,
    /// The upstream's server that answered.
    pub(super) server: Option<Arc<str>>,
    /// How many servers of an upstream were asked.
    pub(super) attempts: u32,
    /// The outcome of the request at the shared cache, as the log names it.
    pub(super) cache: Option<&'static str>,
    /// Its trace, and when its parts began and ended.
    pub(super) spans: RequestSpans,
    /// How the call ends, if it is one of gRPC.
    pub(super) call: Option<End>,
}

impl RecordContext {
    /// Takes over the grants of a limit. A request that a guard sends to another route may meet two limits of bytes. The last
    /// one holds.
    pub(super) fn is_granted(&mut self, Granted { permit, share }: Granted) {
        self.permits.extend(permit);
        self.share = share.or(self.share.take());
    }
}

impl RequestContext {
    pub(super) fn new(
        connection: Arc<Connection>,
        snapshot: &ConfigSnapshot,
        mut parts: Box<Parts>,
        mut body: IncomingBody,
        interims: Option<http2::Interims>,
    ) -> Self {
        let websocket = websocket::take(&mut parts, &mut body);
        if let Some(interims) = &interims {
            body = asked_for(&parts, body, interims);
        }
        let body = (!body.is_none()).then(|| connection.client_body(body, &snapshot.limits));
        Self { interims, websocket, ..Self::with(connection, snapshot, parts, body, None) }
    }

    /// A request whose head is malformed; `line` is what the head begins with.
    pub(super) fn refused(
        connection: Arc<Connection>,
        snapshot: &ConfigSnapshot,
        parts: Box<Parts>,
        line: Box<[u8]>,
    ) -> Self {
        Self::with(connection, snapshot, parts, None, Some(line))
    }

    fn with(
        connection: Arc<Connection>,
        snapshot: &ConfigSnapshot,
        mut parts: Box<Parts>,
        body: Option<ClientBody>,
        refused_line: Option<Box<[u8]>>,
    ) -> Self {
        let now = Instant::now();
        let class = snapshot.classes.default;
        let call = Call::of(&parts, now);
        let record = RecordContext {
            started: now,
            version: parts.version,
            is_head: parts.method == Method::HEAD,
            priority: match parts.version {
                Version::HTTP_2 => PriorityField::of(&parts.headers),
                _ => PriorityField::default(),
            },
            entry: (!snapshot.logs.are_none()).then(|| Entry::new(connection.peer, &parts, refused_line)),
            log: snapshot.logs.server().cloned(),
            in_flight: (parts.version == Version::HTTP_2).then(|| InFlight::begin(connection.state.clone())),
            class: ClassAt { class, generation: snapshot.uplink_generation },
            counters: snapshot.class_metrics.of(class).clone(),
            user: None,
            permits: Vec::new(),
            share: None,
            waited: None,
            refused: None,
            server: None,
            attempts: 0,
            cache: None,
            spans: RequestSpans::begin(&connection, snapshot, &mut parts),
            call: call.as_ref().map(Call::end),
        };
        let verdict = Verdict {
            class,
            rule: None,
            resource: None,
            client: connection.peer.ip().to_canonical(),
            believed: None,
            user: None,
            set_cookie: None,
        };
        let arrived = body.as_ref().map(ClientBody::arrived);
        Self {
            connection,
            parts,
            asked: None,
            allowed_by: None,
            of_auth: Vec::new(),
            is_answered_by_origin: false,
            body,
            call,
            websocket: None,
            interims: None,
            page: None,
            arrived,
            site: 0,
            route: None,
            verdict,
            now,
            record,
        }
    }

    /// The log of the site or the route has the line.
    pub(super) fn choose_log(&mut self, snapshot: &ConfigSnapshot) {
        self.record.log = snapshot.logs.of(self.site, self.route).cloned();
    }

    /// Takes over what the classifier says.
    pub(super) fn classified(&mut self, snapshot: &ConfigSnapshot, verdict: Verdict) {
        let class: ClassId = verdict.class;
        self.record.class.class = class;
        self.record.counters = snapshot.class_metrics.of(class).clone();
        self.record.user = verdict.user.clone();
        self.verdict = verdict;
    }

    /// Whether the next request of an HTTP/1 connection stands right behind this one: all of the body was read.
    pub(super) fn is_read(&self) -> bool {
        self.arrived.as_ref().is_none_or(|arrived| arrived.load(Relaxed))
    }

    /// The request as guards see it.
    pub(super) fn guarded<'a>(
        &'a mut self,
        snapshot: &'a ConfigSnapshot,
        routed: &'a Routed<'_>,
        is_elsewhere: bool,
    ) -> Guarded<'a> {
        let is_secure = self.is_secure();
        Guarded {
            parts: &mut self.parts,
            scheme: self.connection.scheme(),
            is_secure,
            path: routed.target.decoded(),
            rest: routed.rest(),
            client: self.verdict.client,
            class: self.verdict.class,
            now: self.now,
            is_elsewhere,
            certificate_names: self.connection.certificate_names(snapshot, self.site),
            files: snapshot.sites.files(self.site),
            classifier: &snapshot.classifier,
        }
    }

    /// Whether the client has spoken TLS, with this server or with a trusted proxy; `None`: the proxy does not say.
    pub(super) fn is_secure(&self) -> Option<bool> {
        match self.verdict.believed {
            _ if self.connection.tls.is_some() => Some(true),
            Some(field) => proxied_scheme(&self.parts.headers, field),
            None => Some(false),
        }
    }

    /// Takes over the user whose password a guard has checked.
    pub(super) fn is_of(&mut self, user: Box<str>) {
        self.record.user = Some(user.clone());
        self.verdict.user = Some(user);
    }

    /// Reads the clock again after a step that had to wait.
    pub(super) fn waited_for<T>(&mut self, outcome: T) -> T {
        self.now = Instant::now();
        outcome
    }

    /// Replaces the head by that of a GET request for another path, as if the client had sent it (RFC 3875, section 6.2.2).
    pub(super) fn go_elsewhere(&mut self, path: PathAndQuery) {
        let parts = &*self.parts;
        let mut request = Request::new(());
        *request.method_mut() = if parts.method == Method::HEAD { Method::HEAD } else { Method::GET };
        *request.version_mut() = parts.version;
        *request.headers_mut() = parts.headers.clone();
        for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING, header::EXPECT] {
            request.headers_mut().remove(name);
        }
        *request.uri_mut() = with_path(&parts.uri, path);
        *self.parts = request.into_parts().0;
        self.asked = None;
        self.now = Instant::now();
    }

    /// Replaces the path and the query; method, fields and body stay.
    pub(super) fn go_on_with(&mut self, path: PathAndQuery) {
        let to = with_path(&self.parts.uri, path);
        let asked = std::mem::replace(&mut self.parts.uri, to);
        if self.asked.is_none() {
            self.asked = asked.into_parts().path_and_query;
        }
    }
}

/// Whether a proxy has spoken TLS with its client, as it says.
fn proxied_scheme(headers: &HeaderMap, field: ForwardedField) -> Option<bool> {
    let (name, https, http) = match field {
        ForwardedField::XForwardedFor => ("x-forwarded-proto", "https", "http"),
        ForwardedField::Forwarded => ("forwarded", "proto=https", "proto=http"),
    };
    // The last proxy is the one that is trusted.
    let said = headers.get_all(name).iter().next_back()?.to_str().ok()?.rsplit(',').next()?.to_ascii_lowercase();
    let said = || said.split(';').map(|part| part.trim().replace('"', ""));
    match said().any(|part| part == https) {
        true => Some(true),
        false => said().any(|part| part == http).then_some(false),
    }
}

fn with_path(uri: &Uri, path: PathAndQuery) -> Uri {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Why a request gets no answer of its origin.
#[derive(Debug)]
pub(super) enum Failure {
    /// HTTP without TLS came to an address of TLS.
    Misplaced,
    /// The head or the body is at fault. On an HTTP/1 connection, nothing after it is trusted to be a request.
    Malformed(StatusCode),
    /// Anything else.
    Status(StatusCode),
    /// The request was refused a slot.
    Refused(Refused),
}

impl From<StatusCode> for Failure {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}

impl From<ClientGone> for Failure {
    fn from(_: ClientGone) -> Self {
        StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST).into()
    }
}

impl Failure {
    /// The page that the client gets.
    pub(super) fn response(self, request: &mut RequestContext, snapshot: &ConfigSnapshot) -> Response<AnswerBody> {
        let is_misplaced = matches!(self, Self::Misplaced);
        let (status, ends) = match self {
            Self::Refused(refused) => {
                request.record.refused = Some(refused.refusal);
                request.record.waited = Some(refused.waited);
                return snapshot.refusals.response(refused.class).map(Into::into);
            }
            Self::Misplaced => (StatusCode::BAD_REQUEST, true),
            Self::Malformed(status) => (status, true),
            Self::Status(status) => (status, status.as_u16() == CLIENT_GONE),
        };
        let page = if is_misplaced { without_tls() } else { error_page(status) };
        let mut response = page.map(AnswerBody::File);
        let headers = response.headers_mut();
        if ends && request.record.version != Version::HTTP_2 {
            headers.insert(header::CONNECTION, CLOSE);
        }
        match status {
            StatusCode::METHOD_NOT_ALLOWED => drop(headers.insert(header::ALLOW, ALLOW)),
            StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(header::RETRY_AFTER, RETRY_AFTER_S)),
            _ => {}
        }
        response
    }
}

/// The answer to HTTP without TLS on an address of TLS.
fn without_tls() -> Response<FileBody> {
    const TEXT: &str = "This address speaks HTTPS, and the request came without TLS. Begin the address with https://\n";
    let mut response = Response::new(FileBody::from(Bytes::from_static(TEXT.as_bytes())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(TEXT.len()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_says_how_its_client_is_connected_or_it_does_not() {
        use ForwardedField::{Forwarded, XForwardedFor};
        for (field, name, said, secure) in [
            (XForwardedFor, "x-forwarded-proto", "https", Some(true)),
            (XForwardedFor, "x-forwarded-proto", "http, HTTPS", Some(true)),
            (XForwardedFor, "x-forwarded-proto", "https, http", Some(false)),
            (XForwardedFor, "x-forwarded-proto", "wss", None),
            (XForwardedFor, "forwarded", "proto=https", None),
            (Forwarded, "forwarded", "for=1.2.3.4; proto=https", Some(true)),
            (Forwarded, "forwarded", "for=1.2.3.4;proto=\"HTTP\";by=_a", Some(false)),
            (Forwarded, "forwarded", "for=1.2.3.4", None),
            (Forwarded, "x-forwarded-proto", "https", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(said));
            assert_eq!(proxied_scheme(&headers, field), secure, "{said}");
        }
    }
}
