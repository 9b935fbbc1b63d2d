//! The trace of a request. The steps leave here when the parts of its time began and ended; when the response has ended,
//! spans are made of that.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderName, HeaderValue, StatusCode, Version, header, request::Parts};
use scheduler::admission::Refusal;
use tokio::time::Instant;
use traces::{Context, Kind, Span, SpanId, Trace, Value};

use super::target::host_and_port;
use crate::{
    admission::ServiceTimes,
    connection::Connection,
    gate::SendOutcome,
    host::without_port,
    sites::Origin,
    state::{ConfigSnapshot, ServerState},
};

/// The methods of RFC 9110 and RFC 5789, as OpenTelemetry knows them.
const KNOWN_METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// The trace of a request; without `[tracing]` it has none.
#[derive(Default)]
pub(super) struct RequestSpans(Option<Box<Traced>>);

struct Traced {
    context: Context,
    /// `None`: it is not sampled.
    times: Option<Times>,
}

/// When the parts of a request's time began and ended.
struct Times {
    /// The span of the request, as far as it is known.
    request: Span,
    /// The `tracestate` that the servers before have sent with the request.
    state: Option<Box<str>>,
    body: Option<(Instant, Instant)>,
    waits_since: Option<Instant>,
    slot_since: Option<Instant>,
    slot: Option<(Instant, Arc<SlotTime>)>,
    origin: Option<(Instant, &'static str)>,
    answered: Option<Instant>,
}

/// How long the site has worked for a request, which is known when its slot is free again.
#[derive(Debug)]
struct SlotTime {
    of_class: Arc<dyn ServiceTimes>,
    /// In nanoseconds; 0: the slot is not free yet.
    service_ns: AtomicU64,
}

impl ServiceTimes for SlotTime {
    fn record_service(&self, service: Duration) {
        self.service_ns.store(ns(service).max(1), Relaxed);
        self.of_class.record_service(service);
    }
}

impl RequestSpans {
    /// Decides about the trace of a request, and has its fields tell the next server.
    pub(super) fn begin(connection: &Connection, snapshot: &ConfigSnapshot, parts: &mut Parts) -> Self {
        let Some(traces) = &snapshot.traces else { return Self::default() };
        let context = traces.begin(&parts.headers, || snapshot.classifier.trusts(connection.peer.ip()));
        let times = context.is_sampled.then(|| Times {
            request: request(&context, connection, parts),
            state: context.state(&parts.headers),
            body: None,
            waits_since: None,
            slot_since: None,
            slot: None,
            origin: None,
            answered: None,
        });
        context.pass_on(&mut parts.headers);
        Self(Some(Box::new(Traced { context, times })))
    }

    /// The number of the trace, for the log.
    pub(super) fn trace_number(&self) -> Option<u128> {
        Some(self.0.as_ref()?.context.trace.number())
    }

    /// The field for a server that is asked about the request.
    pub(super) fn traceparent(&self) -> Option<(HeaderName, HeaderValue)> {
        Some(self.0.as_ref()?.context.traceparent_of_request())
    }

    fn times(&mut self) -> Option<&mut Times> {
        self.0.as_mut()?.times.as_mut()
    }

    pub(super) fn body_was_read(&mut self, began: Instant, ended: Instant) {
        if let Some(times) = self.times() {
            times.body = Some((began, ended));
        }
    }

    /// The request asks for a slot.
    pub(super) fn waits(&mut self, now: Instant) {
        if let Some(times) = self.times() {
            (times.waits_since, times.slot_since) = (Some(now), None);
        }
    }

    /// The request has its slot. Returns where that reports how long the site has worked.
    pub(super) fn has_slot(&mut self, now: Instant, of_class: Arc<dyn ServiceTimes>) -> Arc<dyn ServiceTimes> {
        let Some(times) = self.times() else { return of_class };
        times.slot_since = Some(now);
        let slot = Arc::new(SlotTime { of_class, service_ns: AtomicU64::new(0) });
        times.slot = Some((now, slot.clone()));
        slot
    }

    /// The origin is asked.
    pub(super) fn asks(&mut self, now: Instant, origin: &Origin) {
        if let Some(times) = self.times() {
            let kind = match origin {
                Origin::Files => "files",
                Origin::Upstream(_) => "upstream",
                Origin::Program(_) => "program",
            };
            (times.origin, times.answered) = (Some((now, kind)), None);
        }
    }

    /// The origin has answered, or has failed to.
    pub(super) fn is_answered(&mut self) {
        if let Some(times) = self.times() {
            times.answered = Some(Instant::now());
        }
    }

    /// The route, the client and the class of the request are known.
    pub(super) fn is_of(&mut self, route: Option<&str>, client: IpAddr, class: &str) {
        let Some(Times { request, .. }) = self.times() else { return };
        if let Some(route) = route {
            request.name = format!("{} {route}", request.name).into();
            request.attributes.push(("http.route", Value::foreign(route)));
        }
        request.attributes.push(("client.address", client.to_string().into()));
        request.attributes.push(("serpent.class", Value::foreign(class)));
    }

    /// Hands the spans of a request over, whose response has ended.
    pub(super) fn record(self, server: &ServerState, ended: &Ended<'_>) {
        let Some(Traced { context, times: Some(times) }) = self.0.map(|traced| *traced) else { return };
        if let Some(traces) = &server.snapshot.load().traces {
            traces.record(times.parts(), || times.spans(context, ended));
        }
    }
}

/// The span of a request, of which only the head is known.
fn request(context: &Context, connection: &Connection, parts: &Parts) -> Span {
    // A method that a client has made up is no name for a span.
    let (name, method) = match KNOWN_METHODS.iter().find(|known| parts.method == **known) {
        Some(known) => (*known, *known),
        None => ("HTTP", "_OTHER"),
    };
    let mut span = Span::new(context.span, name, Kind::Server, 0, 0)
        .with("http.request.method", method)
        .with("url.scheme", connection.scheme())
        // Not the query, which may have secrets in it.
        .with("url.path", Value::foreign(parts.uri.path()))
        .with("network.peer.address", connection.peer.ip().to_canonical().to_string())
        .with("network.protocol.version", version(parts.version));
    let host = host_and_port(parts);
    if !host.is_empty() {
        span = span.with("server.address", Value::foreign(without_port(&host)));
    }
    if let Some(agent) = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        span = span.with("user_agent.original", Value::foreign(agent));
    }
    span
}

/// The facts about a request whose response has ended.
pub(super) struct Ended<'a> {
    pub(super) started: Instant,
    pub(super) status: StatusCode,
    pub(super) outcome: &'a SendOutcome,
    /// The upstream's server that answered.
    pub(super) server: Option<&'a str>,
    /// The outcome of the request at the shared cache, as the log names it.
    pub(super) cache: Option<&'static str>,
    /// Why the request was refused a slot.
    pub(super) refused: Option<Refusal>,
}

impl Times {
    /// How many spans there are.
    fn parts(&self) -> u64 {
        let parts = [self.body.is_some(), self.has_waited(), self.slot.is_some(), self.origin.is_some()];
        // Beside the request and its response.
        2 + parts.into_iter().map(u64::from).sum::<u64>()
    }

    /// Whether the request had to wait for its slot.
    fn has_waited(&self) -> bool {
        self.waits_since.is_some() && self.slot_since != self.waits_since
    }

    fn spans(self, context: Context, ended: &Ended<'_>) -> Trace {
        let has_waited = self.has_waited();
        let Self { mut request, state, body, waits_since, slot_since, slot, origin, answered } = self;
        let Ended { started, status, outcome, server, cache, refused } = ended;
        // By one reading of the clock that is set, spans stand to each other as they were.
        let ended_ns = UNIX_EPOCH.elapsed().map_or(0, ns);
        let at = |moment: Instant| ended_ns.saturating_sub(ns(outcome.ended.saturating_duration_since(moment)));
        let ready = outcome.ended.checked_sub(outcome.send_time).map_or(*started, |ready| ready.max(*started));
        let part = |id, name, kind, began, ended| Span::new(id, name, kind, at(began), at(ended));
        let has_failed = status.is_server_error();

        (request.began_ns, request.ended_ns) = (at(*started), ended_ns);
        request.has_failed = has_failed;
        request = request
            .with("http.response.status_code", status.as_u16())
            .with("http.response.body.size", outcome.body_bytes);
        if has_failed {
            request = request.with("error.type", status.as_u16().to_string());
        }
        if !outcome.complete {
            request = request.with("serpent.incomplete", true);
        }
        if let Some(cache) = *cache {
            request = request.with("serpent.cache", cache);
        }
        if let Some(refused) = refused {
            request = request.with("serpent.refused", refused.to_string());
        }
        let mut spans = vec![request];
        let internal = |name, began, ended| part(SpanId::random(), name, Kind::Internal, began, ended);
        if let Some((began, ended)) = body {
            spans.push(internal("request body", began, ended));
        }
        if let Some(since) = waits_since.filter(|_| has_waited) {
            spans.push(internal("queue", since, slot_since.unwrap_or(ready)));
        }
        let answered = answered.unwrap_or(ready);
        if let Some((since, slot)) = slot {
            let until = match slot.service_ns.load(Relaxed) {
                // It was given back without an answer, or is held still.
                0 => answered,
                service_ns => since + Duration::from_nanos(service_ns),
            };
            spans.push(internal("slot", since, until.min(outcome.ended)));
        }
        if let Some((began, origin)) = origin {
            let kind = if origin == "upstream" { Kind::Client } else { Kind::Internal };
            let mut span = part(context.origin, "origin", kind, began, answered).with("serpent.origin", origin);
            if let Some(server) = *server {
                let (host, port) = host_and_port_of(server);
                span = span.with("server.address", Value::foreign(host));
                if let Some(port) = port {
                    span = span.with("server.port", port);
                }
            }
            // An error that the gateway has made of a failure of the origin is the same to its client.
            span.has_failed = has_failed;
            spans.push(span);
        }
        let mut uplink = internal("uplink", ready, outcome.ended);
        uplink.events.extend(outcome.first.map(|first| (at(first), "first byte")));
        if let Some(slowdown) = outcome.slowdown {
            uplink = uplink.with("serpent.slowdown", slowdown);
        }
        spans.push(uplink);
        Trace { context, state, spans }
    }
}

/// The host and the port of a server of an upstream, or its socket.
fn host_and_port_of(server: &str) -> (&str, Option<u16>) {
    let authority = server.split_once("://").map_or(server, |(_, authority)| authority);
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (authority, None),
        },
        _ => (authority, None),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_host_and_port_or_by_its_socket() {
        for (server, host, port) in [
            ("http://10.0.0.1:3000", "10.0.0.1", Some(3000)),
            ("https://app.example", "app.example", None),
            ("http://[::1]:80", "[::1]", Some(80)),
            ("http://[::1]", "[::1]", None),
            ("unix:/run/app.sock", "unix:/run/app.sock", None),
        ] {
            assert_eq!(host_and_port_of(server), (host, port));
        }
    }
}
