//! Spans of requests at a made-up collector, which reads them by the official definitions.

use std::collections::HashMap;

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A gateway whose spans go to a collector at once. `first` stands at the beginning of the file, `tracing` in its section.
fn traced(first: &str, tracing: &str, more: &str) -> (Gateway, Origin) {
    let collector = Origin::start();
    let gateway = Gateway::start_as(|origin| {
        let section = section(&collector, tracing);
        format!("access-log = {{ target = \"-\", format = \"json\" }}\n{first}{}{section}", text(origin, more))
    });
    (gateway, collector)
}

fn section(collector: &Origin, tracing: &str) -> String {
    format!("[tracing]\nendpoint = \"http://{}\"\ninterval = \"1ms\"\n{tracing}", collector.address)
}

/// The spans of the next requests to end, by their names, until there are those of so many.
fn spans(collector: &Origin, requests: usize) -> Vec<HashMap<String, Span>> {
    let mut traces: Vec<(Vec<u8>, HashMap<String, Span>)> = Vec::new();
    while traces.len() < requests {
        let asked = collector.next();
        let request = ExportTraceServiceRequest::decode(&*asked.body).unwrap();
        for span in request.resource_spans.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans) {
            // A trace may have several requests. The first span is that of a request.
            if span.kind() == SpanKind::Server {
                traces.push((span.span_id.clone(), HashMap::new()));
            }
            let (request, of_request) = traces.last_mut().unwrap();
            assert!(span.kind() == SpanKind::Server || span.parent_span_id == *request);
            of_request.insert(if span.kind() == SpanKind::Server { "request".into() } else { span.name.clone() }, span);
        }
        asked.answer(b"");
    }
    traces.into_iter().map(|(_, spans)| spans).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|it| it.key == key)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(is) => is.to_string(),
        other => panic!("{other:?}"),
    })
}

fn names(spans: &HashMap<String, Span>) -> Vec<&str> {
    let mut names: Vec<_> = spans.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_spans_of_a_request_say_where_its_time_went() {
    let (gateway, collector) = traced("trusted-proxies = [\"127.0.0.1\"]\n", "sample = \"0%\"\n", CLASSES);
    let field = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: a=b\r\nuser-agent: test\r\n");
    let first = gateway.ask("/plain/0?secret=1", &field);
    let asked = gateway.origin.next();
    let second = gateway.ask("/gold/1", &field);
    gateway.wait_for_waiting("gold", 1);
    let passed = asked.field("traceparent").unwrap();
    assert_eq!(asked.field("tracestate").as_deref(), Some("a=b"));
    asked.answer(b"0");
    assert_eq!(gateway.origin.answer("1"), "/gold/1");
    for client in [first, second] {
        assert!(all(client).starts_with("HTTP/1.1 200 "));
    }
    let line: serde_json::Value = serde_json::from_str(&gateway.serpent.stdout_line()).unwrap();
    assert_eq!(line["trace_id"], TRACE);

    let mut traces = spans(&collector, 2);
    traces.sort_by_key(|spans| spans["request"].start_time_unix_nano);
    let [first, second] = &traces[..] else { panic!("two: {traces:?}") };
    assert_eq!(names(first), ["origin", "request", "slot", "uplink"]);
    assert_eq!(names(second), ["origin", "queue", "request", "slot", "uplink"]);
    for spans in &traces {
        let request = &spans["request"];
        assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), (TRACE, PARENT));
        assert_eq!(request.trace_state, "a=b");
        for span in spans.values() {
            assert_eq!(span.trace_id, request.trace_id);
            assert!(span.start_time_unix_nano >= request.start_time_unix_nano, "{}", span.name);
            assert!(span.end_time_unix_nano <= request.end_time_unix_nano, "{}", span.name);
        }
        let [slot, origin, uplink] = ["slot", "origin", "uplink"].map(|name| &spans[name]);
        assert_eq!(origin.kind(), SpanKind::Client);
        assert_eq!(attribute(origin, "server.address").as_deref(), Some("127.0.0.1"));
        assert_eq!(attribute(origin, "server.port"), Some(gateway.origin.address.port().to_string()));
        assert!(slot.start_time_unix_nano <= origin.end_time_unix_nano);
        assert!(origin.end_time_unix_nano <= uplink.start_time_unix_nano);
        let [event] = &uplink.events[..] else { panic!("the first byte: {uplink:?}") };
        assert!((uplink.start_time_unix_nano..=uplink.end_time_unix_nano).contains(&event.time_unix_nano));
    }
    let request = &first["request"];
    assert_eq!(request.name, "GET /");
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/"),
        ("url.path", "/plain/0"),
        ("url.scheme", "http"),
        ("server.address", "site.example"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
        ("client.address", "127.0.0.1"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "1"),
        ("serpent.class", "plain"),
    ] {
        assert_eq!(attribute(request, key).as_deref(), Some(value), "{key}");
    }
    assert!(!format!("{request:?}").contains("secret"));
    assert_eq!(passed, format!("00-{TRACE}-{}-01", hex(&first["origin"].span_id)));
    let queue = &second["queue"];
    assert!(queue.end_time_unix_nano >= first["origin"].end_time_unix_nano, "the slot was taken until then");
    assert!(queue.end_time_unix_nano <= second["origin"].start_time_unix_nano);
}

#[test]
fn a_trace_that_is_not_sampled_goes_on_and_leaves_no_span() {
    let (gateway, collector) = traced("trusted-proxies = [\"127.0.0.1\"]\n", "", "");
    for flags in ["00", "01"] {
        let client = gateway.ask("/", &format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n"));
        let asked = gateway.origin.next();
        let passed = asked.field("traceparent").unwrap();
        assert!(passed.starts_with(&format!("00-{TRACE}-")) && passed.ends_with(&format!("-{flags}")), "{passed}");
        assert!(!passed.contains(PARENT), "{passed}");
        asked.answer(b"");
        all(client);
    }
    // Of the first there is none, or it would be before this.
    assert_eq!(attribute(&spans(&collector, 1)[0]["origin"], "serpent.origin").as_deref(), Some("upstream"));
    wait_for_metric(gateway.admin, "serpent_trace_spans_exported_total 3");
}

#[test]
fn a_client_that_is_not_trusted_begins_a_trace_with_a_link() {
    for (parents, is_believed) in [("trusted", false), ("none", false), ("all", true)] {
        let (gateway, collector) = traced("", &format!("parents = \"{parents}\"\n"), "");
        let client = gateway.ask("/", &format!("traceparent: 00-{TRACE}-{PARENT}-00\r\ntracestate: a=b\r\n"));
        let asked = gateway.origin.next();
        let passed = asked.field("traceparent").unwrap();
        assert_eq!(passed.contains(TRACE), is_believed, "{passed}");
        assert_eq!(asked.field("tracestate").is_some(), is_believed);
        asked.answer(b"");
        all(client);
        if is_believed {
            // It was not sampled by its client.
            wait_for_metric(gateway.admin, "serpent_trace_spans_exported_total 0");
            continue;
        }
        let request = &spans(&collector, 1)[0]["request"];
        assert!(request.parent_span_id.is_empty());
        assert_eq!(hex(&request.links[0].trace_id), TRACE);
        assert_eq!(passed, format!("00-{}-{}-01", hex(&request.trace_id), &passed[36..52]));
    }
    let untraced = Gateway::start("");
    let field = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    let client = untraced.ask("/", &format!("{field}\r\ntracestate: a=b\r\n"));
    let asked = untraced.origin.next();
    assert!(asked.head.contains(&field), "without `[tracing]` it passes as it is: {}", asked.head);
    assert_eq!(asked.field("tracestate").as_deref(), Some("a=b"));
    asked.answer(b"");
    all(client);
}

#[test]
fn a_request_that_is_refused_or_fails_says_why() {
    let classes = CLASSES.replace("queue = 3", "queue = 1");
    let (gateway, collector) = traced("", "", &classes);
    let first = gateway.ask("/plain/0", "");
    let asked = gateway.origin.next();
    let second = gateway.ask("/plain/1", "");
    gateway.wait_for_waiting("plain", 1);
    assert!(all(gateway.ask("/plain/2", "")).starts_with("HTTP/1.1 503 "));
    let refused = &spans(&collector, 1)[0];
    assert_eq!(names(refused), ["queue", "request", "uplink"]);
    let request = &refused["request"];
    assert_eq!(attribute(request, "serpent.refused").as_deref(), Some("too many requests of its class wait"));
    assert_eq!(request.status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(attribute(request, "error.type").as_deref(), Some("503"));
    asked.send(b"HTTP/1.1 nonsense\r\n\r\n");
    asked.done();
    assert!(all(first).starts_with("HTTP/1.1 502 "));
    let failed = &spans(&collector, 1)[0];
    assert_eq!(failed["origin"].status.as_ref().map(|status| status.code), Some(2));
    gateway.origin.answer("x");
    assert!(all(second).ends_with("x"));
    assert_eq!(spans(&collector, 1)[0]["request"].status, None);
    // A method of the client's own is no name.
    let mut client = gateway.serpent.connect();
    client.write_all(b"MADEUP /plain/3 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(gateway.origin.answer("x"), "/plain/3");
    all(client);
    let made_up = &spans(&collector, 1)[0]["request"];
    assert_eq!(made_up.name, "HTTP /");
    assert_eq!(attribute(made_up, "http.request.method").as_deref(), Some("_OTHER"));
    // A head that cannot be understood.
    gateway.serpent.exchange(b"nonsense\r\n\r\n");
    let malformed = &spans(&collector, 1)[0];
    assert_eq!(attribute(&malformed["request"], "http.response.status_code").as_deref(), Some("400"));
}

#[test]
fn a_body_that_comes_slowly_and_a_stream_of_http2_have_their_times() {
    let (gateway, collector) = traced("", "", "");
    let mut client = gateway.serpent.connect();
    client.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nconnection: close\r\n\r\na").unwrap();
    client.write_all(b"b").unwrap();
    assert_eq!(gateway.origin.answer("x"), "/");
    all(client);
    let posted = &spans(&collector, 1)[0];
    assert_eq!(names(posted), ["origin", "request", "request body", "uplink"]);
    assert!(posted["request body"].end_time_unix_nano <= posted["origin"].start_time_unix_nano);

    if tool("curl").is_none() {
        return;
    }
    let url = gateway.serpent.url("/h2");
    let answered = std::thread::spawn(move || curl(&["--http2-prior-knowledge", &url]));
    assert_eq!(gateway.origin.answer("answer"), "/h2");
    assert_eq!(answered.join().unwrap().unwrap(), "answer");
    let stream = &spans(&collector, 1)[0];
    assert_eq!(attribute(&stream["request"], "network.protocol.version").as_deref(), Some("2"));
    assert_eq!(stream["uplink"].events[0].name, "first byte");
}

#[test]
fn spans_go_to_another_collector_after_a_reload_and_one_that_is_gone_delays_nothing() {
    let collector = Origin::start();
    let gateway = Gateway::start_as(|origin| {
        let fixed = "[[site.route]]\npath = \"/fixed\"\nrespond = 200\n";
        let sites = text(origin, "").replace("[[site.route]]", &format!("{fixed}[[site.route]]"));
        format!("{sites}{}", section(&collector, ""))
    });
    let change = |collector: &str| {
        let before = fs::read_to_string(&gateway.file).unwrap();
        let (start, rest) = before.split_once("endpoint = \"http://").unwrap();
        let (_, rest) = rest.split_once('"').unwrap();
        fs::write(&gateway.file, format!("{start}endpoint = \"http://{collector}\"{rest}")).unwrap();
        gateway.serpent.signal(Signal::HUP);
        gateway.serpent.wait_for_stderr("configuration reloaded");
    };
    let fixed = || assert!(all(gateway.ask("/fixed", "")).starts_with("HTTP/1.1 200 "));
    fixed();
    assert_eq!(spans(&collector, 1)[0]["request"].name, "GET /fixed");
    let other = Origin::start();
    change(&other.address.to_string());
    fixed();
    assert_eq!(names(&spans(&other, 1)[0]), ["request", "uplink"]);
    assert!(collector.is_idle());

    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    change(&gone.to_string());
    fixed();
    gateway.serpent.wait_for_stderr("the collector does not take spans; requests are served as before");
    fixed();
    let failures = |line: &str| line.starts_with("serpent_trace_export_failures_total ") && !line.ends_with(" 0");
    assert!(metrics(gateway.admin).lines().any(failures));
    gateway.serpent.signal(Signal::TERM);
    let (status, said) = gateway.serpent.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!said.contains("does not take spans"), "it was said once: {said}");
}
