use std::sync::LazyLock;

use bodies::{Store, StoreLimits};
use heads::{ClientAddress, ForwardedField, HeaderRules};
use http::{
    header::{CONNECTION, FORWARDED},
    request::Parts,
};

use super::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

fn defaults() -> Ask<'static> {
    static CLIENT: LazyLock<ClientAddress> = LazyLock::new(|| address("192.0.2.7"));
    Ask {
        upstream: 0,
        class: 0,
        client: &CLIENT,
        client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        ends: None,
        scheme: "https",
        host: "shop.example",
        keep_host: false,
        believed: None,
        rules: None,
        times: None,
        until: None,
    }
}

fn address(text: &str) -> ClientAddress {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

fn parts(method: &str, version: Version, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).version(version).uri("/a?b=c");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// [`request`], from these parts.
fn made(parts: Parts, body: &RequestBody, ask: &Ask<'_>) -> Result<(Head, HeaderMap), NotForwardable> {
    let body = body.again().expect("it is here whole");
    request(Request::from_parts(parts, body).into(), ask).map(|(head, headers, _)| (head, headers))
}

fn whole(bytes: &'static [u8]) -> RequestBody {
    RequestBody::from_bytes(bytes, &Store::new(StoreLimits::default()))
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

/// The fields that an upstream sees, without those about the client.
fn seen(http2: bool, method: &str, version: Version, fields: &[(&str, &str)], body: &RequestBody) -> Vec<String> {
    let mut lines = all_seen(http2, parts(method, version, fields), body, &defaults());
    let ours = ["x-forwarded-", "forwarded:", "via: 1.0 serpent", "via: 1.1 serpent", "via: 2.0 serpent"];
    lines.retain(|line| !ours.iter().any(|ours| line.starts_with(ours)));
    lines
}

fn all_seen(http2: bool, parts: Parts, body: &RequestBody, ask: &Ask<'_>) -> Vec<String> {
    let (head, headers) = made(parts, body, ask).unwrap();
    if http2 {
        let authority = Authority::from_static("app:8080");
        let made = head.request(headers, (), false, &authority).unwrap();
        if !ask.keep_host {
            assert_eq!(made.uri(), "http://app:8080/a?b=c");
        }
        return lines(made.headers());
    }
    let written = written(&head, &headers);
    let mut lines: Vec<_> = written.strip_suffix("\r\n\r\n").unwrap().split("\r\n").map(str::to_owned).collect();
    let line = lines.remove(0);
    assert!(line.ends_with(" /a?b=c HTTP/1.1"), "{line}");
    lines.sort();
    lines
}

fn written(head: &Head, headers: &HeaderMap) -> String {
    let mut written = Vec::new();
    head.write(headers, &HeaderValue::from_static("app:8080"), &mut written);
    String::from_utf8(written).unwrap()
}

#[test]
fn what_is_for_the_next_hop_only_does_not_go_on() {
    let table: &[(Fields, &[&str])] = &[
        (&[("connection", "keep-alive"), ("keep-alive", "timeout=5"), ("accept", "*/*")], &["accept: */*"]),
        (&[("connection", "close, X-Mine"), ("x-mine", "1"), ("x-yours", "2")], &["x-yours: 2"]),
        (&[("connection", "a"), ("connection", "b , C"), ("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")], &["d: 4"]),
        (&[("connection", "not a name!,, ,x"), ("x", "1")], &[]),
        (
            &[("proxy-connection", "keep-alive"), ("proxy-authorization", "Basic x"), ("authorization", "Basic y")],
            &["authorization: Basic y"],
        ),
        (&[("expect", "100-continue")], &[]),
        (&[("te", "gzip"), ("connection", "te")], &[]),
        (&[("upgrade", "websocket")], &[]),
        (&[("connection", "upgrade"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQ")], &[]),
        (&[("connection", "upgrade"), ("upgrade", "TLS/1.3, HTTP/2.0")], &[]),
        (&[("connection", "host"), ("host", "evil.example")], &[]),
    ];
    for (fields, expected) in table {
        for http2 in [false, true] {
            let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
            if !http2 {
                expected.push("host: app:8080".to_owned());
            }
            expected.sort();
            assert_eq!(seen(http2, "GET", Version::HTTP_11, fields, &RequestBody::Empty), expected, "{fields:?}");
        }
    }
}

#[test]
fn trailers_and_upgrades_are_asked_for_again() {
    let trailers: &[(&str, &str)] = &[("connection", "TE"), ("te", "deflate;q=0.5, Trailers")];
    let get = |http2, version, fields: &[_]| seen(http2, "GET", version, fields, &RequestBody::Empty);
    assert_eq!(get(false, Version::HTTP_11, trailers), ["connection: te", "host: app:8080", "te: trailers"]);
    assert_eq!(get(true, Version::HTTP_11, trailers), ["te: trailers"]);
    let upgrade: &[(&str, &str)] =
        &[("connection", "keep-alive, Upgrade"), ("upgrade", "h2c, websocket"), ("sec-websocket-key", "x")];
    let expected = ["connection: upgrade", "host: app:8080", "sec-websocket-key: x", "upgrade: websocket"];
    assert_eq!(get(false, Version::HTTP_11, upgrade), expected);
    assert_eq!(get(true, Version::HTTP_11, upgrade), ["sec-websocket-key: x"]);
    assert_eq!(get(false, Version::HTTP_10, upgrade), ["host: app:8080", "sec-websocket-key: x"]);
    let with_body = seen(false, "POST", Version::HTTP_11, upgrade, &whole(b"x"));
    assert_eq!(with_body, ["content-length: 1", "host: app:8080", "sec-websocket-key: x"]);
}

#[test]
fn framing_is_made_of_the_body_whatever_the_client_said() {
    let lies: &[&[(&str, &str)]] = &[
        &[("content-length", "7"), ("transfer-encoding", "chunked")],
        &[("content-length", "5"), ("content-length", "6")],
        &[("transfer-encoding", "chunked, identity"), ("transfer-encoding", "chunked")],
        &[("content-length", "+5")],
        &[("connection", "content-length, transfer-encoding"), ("content-length", "9")],
    ];
    for lie in lies {
        for http2 in [false, true] {
            // Over HTTP/2, hyper adds the body's length if it knows it.
            let expected: &[&str] = if http2 { &[] } else { &["content-length: 5", "host: app:8080"] };
            assert_eq!(seen(http2, "POST", Version::HTTP_11, lie, &whole(b"hello")), expected, "{lie:?}");
        }
        let empty = seen(false, "POST", Version::HTTP_11, lie, &RequestBody::Empty);
        assert_eq!(empty, ["content-length: 0", "host: app:8080"], "{lie:?}");
    }
    assert_eq!(seen(false, "GET", Version::HTTP_11, &[], &RequestBody::Empty), ["host: app:8080"]);
    let trailer = seen(false, "POST", Version::HTTP_11, &[("trailer", "x-sum")], &whole(b"hello"));
    assert_eq!(trailer, ["host: app:8080", "trailer: x-sum", "transfer-encoding: chunked"]);
}

#[test]
fn cookie_crumbs_become_one_field_for_http1() {
    let crumbs: &[(&str, &str)] = &[("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
    let expected = ["cookie: a=1; b=2; c=3; d=4", "host: app:8080"];
    assert_eq!(seen(false, "GET", Version::HTTP_2, crumbs, &RequestBody::Empty), expected);
}

#[test]
fn the_client_is_told_of_and_cannot_pretend() {
    let ours = [
        "forwarded: for=192.0.2.7;host=shop.example;proto=https",
        "host: app:8080",
        "via: 1.1 serpent",
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-host: shop.example",
        "x-forwarded-proto: https",
    ];
    let pretended: &[(&str, &str)] = &[
        ("x-forwarded-for", "10.0.0.1"),
        ("x_forwarded_for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-prefix", "/admin"),
        ("x-forwarded-host", "evil.example"),
        ("x-real-ip", "10.0.0.1"),
        ("x_real_ip", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("host", "evil.example"),
    ];
    let get =
        |fields: &[_], ask: &Ask<'_>| all_seen(false, parts("GET", Version::HTTP_11, fields), &RequestBody::Empty, ask);
    assert_eq!(get(pretended, &defaults()), ours);

    let trusted: &[(&str, &str)] = &[
        ("x-forwarded-for", "203.0.113.1, 10.0.0.9"),
        ("x_forwarded_for", "10.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded_proto", "https"),
        ("x-forwarded-host", "front.example"),
        ("x-forwarded-port", "80"),
        ("x-real-ip", "10.0.0.1"),
        ("forwarded", "for=203.0.113.1"),
    ];
    let ask = Ask {
        believed: Some(ForwardedField::XForwardedFor),
        client: &address("2001:db8::1"),
        host: "shop.example:8443",
        keep_host: true,
        ..defaults()
    };
    assert_eq!(
        get(trusted, &ask),
        [
            "forwarded: for=\"[2001:db8::1]\";host=\"shop.example:8443\";proto=https",
            "host: shop.example:8443",
            "via: 1.1 serpent",
            "x-forwarded-for: 203.0.113.1, 10.0.0.9, 2001:db8::1",
            "x-forwarded-host: front.example",
            "x-forwarded-port: 80",
            "x-forwarded-proto: http",
        ]
    );
    let ask = Ask { believed: Some(ForwardedField::Forwarded), ..ask };
    assert_eq!(
        get(trusted, &ask),
        [
            "forwarded: for=203.0.113.1, for=\"[2001:db8::1]\";host=\"shop.example:8443\";proto=https",
            "host: shop.example:8443",
            "via: 1.1 serpent",
            "x-forwarded-for: 2001:db8::1",
            "x-forwarded-host: shop.example:8443",
            "x-forwarded-proto: https",
        ]
    );
    let mapped = address("::ffff:192.0.2.7");
    let mapped = Ask { client: &mapped, ..defaults() };
    assert_eq!(get(&[], &mapped), ours, "an IPv4 client of an IPv6 socket");
}

#[test]
fn who_passed_a_request_on_is_told_and_counted() {
    for (version, ours) in [
        (Version::HTTP_10, "via: 1.0 serpent"),
        (Version::HTTP_11, "via: 1.1 serpent"),
        (Version::HTTP_2, "via: 2.0 serpent"),
    ] {
        let fields: &[(&str, &str)] = &[("via", "1.0 fred, 1.1 p.example")];
        let mut seen = all_seen(false, parts("GET", version, fields), &RequestBody::Empty, &defaults());
        seen.retain(|line| line.starts_with("via"));
        assert_eq!(seen, ["via: 1.0 fred, 1.1 p.example", ours]);
    }
}

#[test]
fn rules_come_last_and_no_client_undoes_them() {
    let value = HeaderValue::from_static;
    let rules = HeaderRules {
        remove: vec![HeaderName::from_static("x-forwarded-host"), FORWARDED],
        set: vec![
            (HeaderName::from_static("x-user"), value("alice")),
            (HeaderName::from_static("x-forwarded-proto"), value("http")),
            (HOST, value("inner")),
            (CONTENT_LENGTH, value("99")),
        ],
        add: vec![(HeaderName::from_static("x-more"), value("2")), (CONNECTION, value("x-user"))],
        client: vec![HeaderName::from_static("x-real-ip")],
    };
    let fields: &[(&str, &str)] =
        &[("connection", "x-user"), ("x-user", "mallory"), ("x-more", "1"), ("x-real-ip", "10.0.0.1")];
    let ask = Ask { rules: Some(&HeaderRules { add: rules.add[..1].to_vec(), ..rules.clone() }), ..defaults() };
    let seen = all_seen(false, parts("GET", Version::HTTP_11, fields), &RequestBody::Empty, &ask);
    let expected = [
        "host: inner",
        "via: 1.1 serpent",
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-proto: http",
        "x-more: 1",
        "x-more: 2",
        "x-real-ip: 127.0.0.1",
        "x-user: alice",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_cannot_go_on_is_refused() {
    let connect = Request::connect("shop.example:443").body(()).unwrap().into_parts().0;
    assert!(made(connect, &RequestBody::Empty, &defaults()).is_err());
    let ask = Ask { host: "a\r\nb", keep_host: true, ..defaults() };
    assert!(made(parts("GET", Version::HTTP_11, &[]), &RequestBody::Empty, &ask).is_err());
    let ask = Ask { host: "a b", keep_host: true, ..defaults() };
    let (head, headers) = made(parts("GET", Version::HTTP_11, &[]), &RequestBody::Empty, &ask).unwrap();
    assert!(head.request(headers, (), false, &Authority::from_static("app")).is_err());
}

#[test]
fn targets_of_all_kinds() {
    let table = [
        ("http://shop.example/x?y", "/x?y", "https://app/x?y"),
        ("http://shop.example", "/", "https://app/"),
        ("*", "*", "https://app*"),
    ];
    for (uri, http1, http2) in table {
        let parts = Request::options(uri).version(Version::HTTP_2).body(()).unwrap().into_parts().0;
        let (head, headers) = made(parts, &RequestBody::Empty, &defaults()).unwrap();
        let one = written(&head, &headers);
        assert!(one.starts_with(&format!("OPTIONS {http1} HTTP/1.1\r\n")), "{one}");
        let authority = Authority::from_static("app");
        let two = head.request(headers, (), true, &authority).unwrap();
        assert_eq!((two.uri().path(), two.uri().authority()), (http1.split('?').next().unwrap(), Some(&authority)));
        assert_eq!(two.uri().to_string(), http2);
    }
}
