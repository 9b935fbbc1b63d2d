//! The requests of HTTP/1 clients, byte by byte, and the responses to them.

use std::time::Duration;

use crate::harness::{Running, config, root, statuses};

const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";

fn with_limits(change: impl FnOnce(&mut serpent_server::config::Limits)) -> (Running, tempfile::TempDir) {
    let root = root();
    let mut config = config(root.path());
    change(&mut config.limits);
    (Running::start(config), root)
}

#[test]
fn a_file_is_served_and_the_connection_kept() {
    let (server, _root) = with_limits(|_| ());
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(GET);
        let response = client.response();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.contains("server: serpent\r\n") && response.contains("date: "), "{response}");
        assert!(response.ends_with("\r\n\r\nfile a\n"), "{response}");
    }
    client.send("HEAD /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let response = client.rest();
    assert!(response.contains("content-length: 7\r\n") && response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn pipelined_requests_are_answered_in_order_also_to_a_client_that_has_closed_its_side() {
    let (server, _root) = with_limits(|_| ());
    let text = server.say([GET, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n", GET].concat().repeat(20));
    assert_eq!(statuses(&text), [200, 404, 200].repeat(20));
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let (server, _root) = with_limits(|_| ());
    let mut client = server.connect();
    for byte in GET.as_bytes() {
        client.send([*byte]);
    }
    assert!(client.response().starts_with("HTTP/1.1 200"));
}

#[test]
fn ambiguous_heads_are_refused_and_nothing_after_them_is_read() {
    let (server, _root) = with_limits(|_| ());
    for (head, status) in [
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: x\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x\r\n folded: b\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        ("TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}", 400),
        ("PRI * HTTP/2.0\r\n\r\nXX", 505),
    ] {
        let text = server.say([GET, head, GET].concat());
        assert_eq!(statuses(&text), [200, status], "{head:?}: {text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
        assert_eq!(text.contains("allow: "), status == 405, "{text}");
    }
}

#[test]
fn a_refused_head_request_gets_no_body() {
    let (server, _root) = with_limits(|_| ());
    let text = server.say("HEAD / HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 400") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn options_for_the_whole_server() {
    let (server, _root) = with_limits(|_| ());
    let text = server.say("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(statuses(&text), [204]);
    assert!(text.contains("allow: GET, HEAD, OPTIONS\r\n"), "{text}");
}

#[test]
fn heads_beyond_the_limit() {
    let (server, _root) = with_limits(|limits| {
        limits.request_head_bytes = 1000;
        limits.request_headers = 5;
    });
    let long = "x".repeat(2000);
    for (head, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
        (format!("GET /a.txt HTTP/1.1\r\nHost: x\r\nLong: {long}\r\n\r\n"), 431),
        (format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(5)), 431),
        (format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(4)), 200),
    ] {
        assert_eq!(statuses(&server.say(&head)), [status], "{head:?}");
    }
    // The answer also arrives when much more than the limit was sent.
    let endless = format!("GET /{}", "x".repeat(400_000));
    assert_eq!(statuses(&server.say(endless)), [414]);
}

#[test]
fn many_header_fields_are_served_where_the_operator_allows_them() {
    let (server, _root) = with_limits(|limits| limits.request_headers = 300);
    let head = format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(299));
    assert_eq!(statuses(&server.say(head)), [200]);
}

#[test]
fn bodies_are_thrown_away_up_to_the_limit() {
    let (server, _root) = with_limits(|limits| limits.request_body_bytes = 100_000);
    let body = "b".repeat(60_000);
    let sized = format!("GET /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{body}");
    let chunked =
        format!("GET /a.txt HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n{body}\r\n0\r\n\r\n");
    assert_eq!(statuses(&server.say(format!("{sized}{chunked}{GET}"))), [200, 200, 200]);

    let announced = "GET /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n";
    assert_eq!(statuses(&server.say(format!("{announced}{body}"))), [413]);
    let streamed = format!(
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n{body}\r\nea60\r\n{body}\r\n0\r\n\r\n{GET}"
    );
    assert_eq!(statuses(&server.say(streamed)), [413]);
    let malformed = format!("GET /a.txt HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{GET}");
    assert_eq!(statuses(&server.say(malformed)), [400]);
}

#[test]
fn expect_continue_is_answered() {
    let (server, _root) = with_limits(|limits| limits.request_body_bytes = 1000);
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("12345");
    assert_eq!(statuses(&client.response()), [200]);
    client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n");
    assert_eq!(statuses(&client.rest()), [413]);
}

#[test]
fn an_absolute_target_and_http_1_0_are_served() {
    let (server, _root) = with_limits(|_| ());
    assert_eq!(statuses(&server.say("GET http://x/a.txt HTTP/1.1\r\nHost: y\r\n\r\n")), [200]);
    assert_eq!(statuses(&server.say("GET http://u@x/a.txt HTTP/1.1\r\nHost: y\r\n\r\n")), [400]);
    let text = server.say("GET /a.txt HTTP/1.0\r\n\r\n");
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
}

#[test]
fn a_head_that_takes_too_long_is_answered_with_408() {
    let (server, _root) = with_limits(|limits| limits.head_timeout = Duration::from_millis(100));
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHo");
    assert_eq!(statuses(&client.rest()), [408]);
    let mut client = server.connect();
    client.send([GET, "GET /a"].concat());
    assert_eq!(statuses(&client.rest()), [200, 408]);
    // A beginning that could become HTTP/2 is answered with 408, too.
    let mut client = server.connect();
    client.send("PRI * HT");
    assert_eq!(statuses(&client.rest()), [408]);
    // A client that has sent nothing gets no response.
    assert_eq!(server.connect().rest(), "");
}

#[test]
fn a_body_that_takes_too_long_is_answered_with_408() {
    let (server, _root) = with_limits(|limits| limits.head_timeout = Duration::from_millis(100));
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12");
    assert_eq!(statuses(&client.rest()), [408]);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let (server, _root) = with_limits(|limits| limits.idle_timeout = Duration::from_millis(100));
    let mut client = server.connect();
    client.send(GET);
    assert_eq!(statuses(&client.rest()), [200]);
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let (server, _root) = with_limits(|limits| limits.connections = 2);
    let mut first = server.connect();
    first.send(GET);
    first.response();
    let mut second = server.connect();
    second.send(GET);
    second.response();
    let mut third = server.connect();
    third.send(GET);
    third.0.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    assert!(std::io::Read::read(&mut third.0, &mut [0]).is_err(), "no place yet");
    drop(first);
    third.0.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    assert_eq!(statuses(&third.response()), [200]);
}
