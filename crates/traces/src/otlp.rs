//! The messages of OTLP (opentelemetry-proto 1.x), as far as they are sent and read here. A field that is left out has its
//! default. Tests decode them with the official definitions.

use prost::{Message, Oneof};

use crate::{
    context::{SpanId, TraceId},
    span::{self, Kind, Trace},
};

/// The status of a span that has failed.
const STATUS_ERROR: i32 = 2;
/// The flags of a span say whether its parent is in another server: known, and so.
const PARENT_IS_REMOTE: u32 = 0x300;
const SAMPLED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Float(f64),
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// A request with the spans of these traces.
pub(crate) fn request(service_name: &str, traces: Vec<Trace>) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let about = [
        ("service.name", span::Value::from(service_name.to_owned())),
        ("service.version", span::Value::from(version)),
        ("process.pid", span::Value::from(u64::from(std::process::id()))),
    ];
    let resource = Resource { attributes: about.into_iter().map(attribute).collect() };
    let scope = Scope { name: "serpent".to_owned(), version: version.to_owned() };
    let spans = traces.into_iter().flat_map(of_trace).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    Request { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }.encode_to_vec()
}

/// How many spans of a request the collector has refused, and why, by the body of its answer. A body that cannot be
/// read refuses none.
pub(crate) fn refused(answer: &[u8]) -> Option<(u64, String)> {
    let PartialSuccess { rejected_spans, error_message } = Response::decode(answer).ok()?.partial_success?;
    u64::try_from(rejected_spans).ok().filter(|spans| *spans > 0).map(|spans| (spans, error_message))
}

fn of_trace(Trace { context, state, spans }: Trace) -> impl Iterator<Item = Span> {
    let bytes = |trace: TraceId, span: SpanId| (trace.bytes().to_vec(), span.bytes().to_vec());
    spans.into_iter().map(move |span| {
        let is_of_request = span.id == context.span;
        let parent = if is_of_request { context.parent } else { Some(context.span) };
        let link = |(trace, span)| {
            let (trace_id, span_id) = bytes(trace, span);
            Link { trace_id, span_id }
        };
        let (trace_id, span_id) = bytes(context.trace, span.id);
        Span {
            trace_id,
            span_id,
            trace_state: state.as_deref().unwrap_or_default().to_owned(),
            parent_span_id: parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec()),
            name: span.name.into_owned(),
            kind: match span.kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: span.began_ns,
            end_time_unix_nano: span.ended_ns,
            attributes: span.attributes.into_iter().map(attribute).collect(),
            events: span
                .events
                .into_iter()
                .map(|(time_unix_nano, name)| Event { time_unix_nano, name: name.to_owned() })
                .collect(),
            links: context.claimed.filter(|_| is_of_request).map(link).into_iter().collect(),
            status: span.has_failed.then_some(Status { code: STATUS_ERROR }),
            flags: SAMPLED | if is_of_request && context.parent.is_some() { PARENT_IS_REMOTE } else { 0x100 },
        }
    })
}

fn attribute((key, value): (&'static str, span::Value)) -> KeyValue {
    let value = match value {
        span::Value::Text(text) => Value::Text(text.into_owned()),
        span::Value::Int(number) => Value::Int(number),
        span::Value::Float(number) => Value::Float(number),
        span::Value::Bool(is) => Value::Bool(is),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use opentelemetry_proto::tonic::{
        collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse},
        common::v1::{KeyValue as OfficialKeyValue, any_value::Value as OfficialValue},
        trace::v1::{span::SpanKind, status::StatusCode},
    };
    use prost::Message as _;

    use super::*;
    use crate::context::Context;

    #[test]
    fn the_official_definitions_read_what_is_sent() {
        let mut fields = HeaderMap::new();
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        fields.insert("traceparent", HeaderValue::from_static(parent));
        fields.insert("tracestate", HeaderValue::from_static("a=b"));
        let context = Context::begin(&fields, true, 0.0);
        let first = span::Span::new(context.span, "GET", Kind::Server, 10, 50)
            .with("text", "a")
            .with("int", 7_u64)
            .with("float", 0.5)
            .with("bool", true);
        let mut second = span::Span::new(context.origin, "origin", Kind::Client, 20, 15);
        second.has_failed = true;
        second.events.push((12, "first byte"));
        let third = span::Span::new(SpanId::random(), "queue", Kind::Internal, 10, 20);
        let trace = Trace { context, state: context.state(&fields), spans: vec![first, second, third] };
        let claimed = Context::begin(&fields, false, 1.0);
        let spans = vec![span::Span::new(claimed.span, "GET", Kind::Server, 1, 2)];
        let other = Trace { context: claimed, state: None, spans };
        let sent = request("shop", vec![trace, other]);

        let read = ExportTraceServiceRequest::decode(&*sent).unwrap();
        let of = &read.resource_spans[0];
        let text = |attributes: &[OfficialKeyValue], key: &str| {
            let value = attributes.iter().find(|it| it.key == key).unwrap().value.clone().unwrap().value.unwrap();
            match value {
                OfficialValue::StringValue(text) => text,
                OfficialValue::IntValue(number) => number.to_string(),
                OfficialValue::DoubleValue(number) => number.to_string(),
                OfficialValue::BoolValue(is) => is.to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(text(&of.resource.as_ref().unwrap().attributes, "service.name"), "shop");
        assert_eq!(of.scope_spans[0].scope.as_ref().unwrap().name, "serpent");
        let [first, second, third, other] = &of.scope_spans[0].spans[..] else { panic!("four spans: {read:?}") };
        assert_eq!(first.trace_id, context.trace.bytes());
        assert_eq!(first.parent_span_id, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!((first.name.as_str(), first.trace_state.as_str(), first.kind()), ("GET", "a=b", SpanKind::Server));
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (10, 50));
        let said = ["text", "int", "float", "bool"].map(|key| text(&first.attributes, key));
        assert_eq!(said, ["a", "7", "0.5", "true"]);
        assert_eq!((first.status.as_ref(), first.flags), (None, 0x301));
        assert_eq!((second.parent_span_id.as_slice(), second.kind()), (first.span_id.as_slice(), SpanKind::Client));
        assert_eq!(second.status.as_ref().unwrap().code(), StatusCode::Error);
        assert_eq!((second.start_time_unix_nano, second.end_time_unix_nano), (20, 20), "no span ends before it begins");
        assert_eq!((second.events[0].name.as_str(), second.events[0].time_unix_nano), ("first byte", 12));
        assert_eq!((third.kind(), third.flags), (SpanKind::Internal, 0x101));
        assert!(other.parent_span_id.is_empty() && first.links.is_empty());
        assert_eq!(other.links[0].trace_id, context.trace.bytes(), "what the client claims");
        assert_eq!(other.links[0].span_id, first.parent_span_id);
    }

    #[test]
    fn spans_that_the_collector_refuses_are_counted() {
        let answer = |rejected_spans| {
            let error_message = "too old".to_owned();
            let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
            refused(&ExportTraceServiceResponse { partial_success }.encode_to_vec())
        };
        assert_eq!(answer(3), Some((3, "too old".to_owned())));
        assert_eq!((answer(0), answer(-1)), (None, None), "a warning, or nonsense");
        assert_eq!((refused(b""), refused(b"<html>")), (None, None));
    }
}
