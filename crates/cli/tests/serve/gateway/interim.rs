//! Interim responses, from the upstream to the client.

use std::net::TcpListener;

use super::*;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nserver: origin\r\nx-internal: 1\r\n\
     connection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\n\r\n";
/// The same, as clients see it.
const PASSED_HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
const PASSED_OVER_HTTP2: &str = "HTTP/2 103 \r\nlink: </a.css>; rel=preload\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-internal: 1\r\n\r\nok";

/// Reads exactly what is expected.
fn expect(stream: &mut TcpStream, expected: &str) {
    let mut got = vec![0; expected.len()];
    let read = stream.read_exact(&mut got);
    assert_eq!(String::from_utf8_lossy(&got), expected, "{read:?}");
}

#[test]
fn interim_responses_come_before_the_response_is_there() {
    for buffered in [true, false] {
        let rules = "response-headers = { remove = [\"x-internal\"], set = { x-shop = \"a\" } }\n";
        let gateway = Gateway::start(&format!("buffer-response = {buffered}\n{rules}"));
        let mut client = gateway.ask("/", "");
        let asked = gateway.origin.next();
        asked.send(b"HTTP/1.1 100 Continue\r\n\r\n");
        for _ in 0..2 {
            asked.send(HINTS.as_bytes());
            expect(&mut client, PASSED_HINTS);
        }
        asked.send(b"HTTP/1.1 102\r\n\r\n");
        expect(&mut client, "HTTP/1.1 102 Processing\r\n\r\n");
        // Together with it.
        asked.send(format!("{HINTS}{OK}").as_bytes());
        asked.done();
        expect(&mut client, PASSED_HINTS);
        let answer = all(client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nx-shop: a\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nok") && !answer.contains("x-internal"), "{answer}");

        // HTTP/1.0 clients get no interim responses.
        let mut old = gateway.serpent.connect();
        old.write_all(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n").unwrap();
        let asked = gateway.origin.next();
        asked.send(format!("{HINTS}{OK}").as_bytes());
        asked.done();
        let answer = all(old);
        assert!(answer.starts_with("HTTP/1.0 200 ") && !answer.contains("103"), "{answer}");
    }
}

#[test]
fn interim_responses_stand_between_those_of_pipelined_requests() {
    let gateway = Gateway::start("response-headers = { remove = [\"x-internal\"] }\n");
    let mut client = gateway.serpent.connect();
    let ask = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\n{more}\r\n");
    client.write_all((ask("/1", "") + &ask("/2", "") + &ask("/3", "connection: close\r\n")).as_bytes()).unwrap();
    for path in ["/1", "/2", "/3"] {
        let asked = gateway.origin.next();
        assert_eq!(asked.path(), path);
        asked.send(HINTS.as_bytes());
        asked.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", big().len()).as_bytes());
        std::thread::scope(|scope| {
            scope.spawn(|| asked.send(&big()));
            expect(&mut client, PASSED_HINTS);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
            let mut body = vec![0; big().len()];
            client.read_exact(&mut body).unwrap();
            assert!(body == big());
        });
        asked.done();
    }
    assert_eq!(all(client), "");
}

#[test]
fn an_upload_is_asked_for_once() {
    for more in ["", "buffer-request = false\n"] {
        let gateway = Gateway::start(more);
        let mut client = gateway.serpent.connect();
        let head =
            "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\nconnection: close\r\n\r\n";
        client.write_all(head.as_bytes()).unwrap();
        expect(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(b"body").unwrap();
        let asked = gateway.origin.next();
        // A gateway that keeps no body lets the upstream decide. This upstream does not answer, and gets the body after a while.
        let passed = (!more.is_empty()).then(|| "100-continue".to_owned());
        assert_eq!((&*asked.body, asked.field("expect")), (&b"body"[..], passed));
        asked.send(format!("HTTP/1.1 100 Continue\r\n\r\n{HINTS}{OK}").as_bytes());
        asked.done();
        expect(
            &mut client,
            &format!("{}HTTP/1.1 200 OK\r\n", PASSED_HINTS.replace("\r\n\r\n", "\r\nx-internal: 1\r\n\r\n")),
        );
        assert!(all(client).ends_with("\r\n\r\nok"));
    }
}

#[test]
fn an_upload_that_is_not_kept_is_asked_for_when_its_upstream_wants_it() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let gateway = Gateway::start_as(|origin| {
        text(origin, "buffer-request = false\n").replace(&origin.address.to_string(), &address.to_string())
    });
    let asked = || {
        let (mut stream, _) = upstream.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.contains("\r\nexpect: 100-continue\r\n"), "{head}");
        stream
    };
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let mut client = gateway.serpent.connect();
    client.write_all(head.as_bytes()).unwrap();
    let mut stream = asked();
    stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
    expect(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"body").unwrap();
    let mut body = [0; 4];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"body");
    stream.write_all(OK.as_bytes()).unwrap();
    expect(&mut client, "HTTP/1.1 200 OK\r\n");
    drop((client, stream));

    // Refused: the client is not asked, and what it might send is no request.
    let mut client = gateway.serpent.connect();
    client.write_all(head.as_bytes()).unwrap();
    let mut stream = asked();
    stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno").unwrap();
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nno"), "{answer}");
    assert_eq!(stream.read(&mut body).unwrap(), 0, "nothing of a body, and the end");
}

#[test]
fn a_client_that_is_refused_before_its_body_does_not_send_it() {
    if tool("curl").is_none() {
        return;
    }
    let routes = "[[site.route]]\npath = \"/small\"\nupstream = \"app\"\nrequest-body = \"1KiB\"\n\
         [[site.route]]\npath = \"/password\"\nupstream = \"app\"\nrequire = { user = true }\n\
         [[site.route]]\npath = \"/closed\"\nupstream = \"app\"\ndeny = [\"0.0.0.0/0\"]\n\
         [[site.route]]\npath = \"/busy\"\nupstream = \"app\"\nbuffer-request = false\n";
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "").unwrap();
    let gateway = Gateway::start_as(|origin| {
        let text = text(origin, &CLASSES.replace("queue = 3", "queue = 1"));
        let users = format!("[users]\nfile = \"{}\"\n", users.display());
        text.replace("[[site]]\n", &format!("{users}[[site]]\n{routes}"))
    });
    let body = folder.path().join("body");
    fs::write(&body, vec![b'x'; 100_000]).unwrap();
    let data = format!("@{}", body.display());
    let base = gateway.serpent.url("");
    let upload = |path: &str| {
        let url = format!("{base}{path}");
        let write_out = "%{http_code} %{size_upload}";
        let args = ["--http1.1", "-H", "expect: 100-continue", "--expect100-timeout", "60", "--data-binary", &data];
        curl(&[&args[..], &["-o", "/dev/null", "-w", write_out, &url]].concat()).unwrap()
    };
    // The slot and the place in the queue are taken.
    let first = gateway.ask("/plain/1", "");
    let asked = gateway.origin.next();
    let second = gateway.ask("/plain/2", "");
    gateway.wait_for_waiting("plain", 1);
    for (path, status) in [("/small", 413), ("/password", 401), ("/closed", 403), ("/busy", 503)] {
        assert_eq!(upload(path), format!("{status} 0"), "{path}");
    }
    asked.answer(b"1");
    gateway.origin.next().answer(b"2");
    for (client, answer) in [(first, "1"), (second, "2")] {
        assert!(all(client).ends_with(answer));
    }
    // A client that is let in is asked for it.
    for path in ["/", "/busy"] {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| upload(path));
            let asked = gateway.origin.next();
            assert_eq!(asked.body.len(), 100_000);
            asked.answer(b"taken");
            assert_eq!(client.join().unwrap(), "200 100000", "{path}");
        });
    }
}

#[test]
fn after_interim_responses_all_else_is_as_without_them() {
    let gateway = Gateway::start("response-headers = { remove = [\"x-internal\"] }\n");
    // Asked again: on a connection that was used, the origin says only that it will.
    let warm = gateway.ask("/", "");
    let asked = gateway.origin.next();
    asked.send(OK.as_bytes());
    asked.done();
    assert!(all(warm).ends_with("ok"));
    let mut client = gateway.ask("/again", "");
    let asked = gateway.origin.next();
    asked.send(HINTS.as_bytes());
    expect(&mut client, PASSED_HINTS);
    drop(asked);
    let asked = gateway.origin.next();
    assert_eq!(asked.path(), "/again");
    asked.send(format!("{HINTS}{OK}").as_bytes());
    asked.done();
    expect(&mut client, PASSED_HINTS);
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");

    // Another protocol.
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    // Bytes behind the 101 are no HTTP response.
    asked.send(format!("{HINTS}{switched}{HINTS}").as_bytes());
    expect(&mut client, &format!("{PASSED_HINTS}HTTP/1.1 101 "));
    let mut got = Vec::new();
    while !got.ends_with(format!("\r\n\r\n{HINTS}").as_bytes()) {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        got.push(byte[0]);
    }
    drop((client, asked));

    // Too many of them. Its client takes none before all are sent.
    let mut client = gateway.ask("/many", "");
    let asked = gateway.origin.next();
    asked.send("HTTP/1.1 102\r\n\r\n".repeat(101).as_bytes());
    expect(&mut client, &"HTTP/1.1 102 Processing\r\n\r\n".repeat(100));
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    gateway.serpent.wait_for_stderr("more interim responses (1xx) than are allowed");
}

#[test]
fn a_route_tells_browsers_what_the_last_page_needed() {
    const PAGE: &str = "HTTP/1.1 200 OK\r\nlink: </a.css>; rel=preload\r\nlink: </2>; rel=next\r\n\
         content-length: 4\r\n\r\npage";
    if tool("curl").is_none() {
        return;
    }
    let gateway =
        Gateway::start("early-hints = true\nresponse-headers.add = { link = \"<//fonts.example>; rel=preconnect\" }\n");
    let ask = |more: &[&str], path: &str, answer: &str| {
        let url = gateway.serpent.url(path);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                curl(&[&["--include", "--header", "host: site.example", url.as_str()], more].concat()).unwrap()
            });
            let asked = gateway.origin.next();
            asked.send(answer.as_bytes());
            asked.done();
            client.join().unwrap()
        })
    };
    let hints = "link: </a.css>; rel=preload\r\nlink: <//fonts.example>; rel=preconnect\r\n\r\n";
    let http2: &[&str] = &["--http2-prior-knowledge"];
    assert!(!ask(http2, "/", PAGE).contains("103"), "nothing is known");
    let told = ask(http2, "/?q", PAGE);
    assert!(told.starts_with(&format!("HTTP/2 103 \r\n{hints}HTTP/2 200 ")) && told.ends_with("page"), "{told}");
    let told = ask(&["--header", "sec-fetch-mode: navigate"], "/", PAGE);
    assert!(told.starts_with(&format!("HTTP/1.1 103 Early Hints\r\n{hints}HTTP/1.1 200 ")), "{told}");
    for (more, path) in [(&[][..], "/"), (http2, "/other"), (&["--http2-prior-knowledge", "--data", "x"], "/")] {
        assert!(!ask(more, path, OK).contains("103"), "{more:?} {path}");
    }
    // Before the origin says anything at all. The last page said less.
    let hints = hints.replace("link: </a.css>; rel=preload\r\n", "");
    let mut client = gateway.ask("/", "sec-fetch-mode: navigate\r\n");
    let asked = gateway.origin.next();
    expect(&mut client, &format!("HTTP/1.1 103 Early Hints\r\n{hints}"));
    asked.send(PAGE.as_bytes());
    asked.done();
    assert!(all(client).ends_with("page"));
    let private = PAGE.replace("content-length", "cache-control: private\r\ncontent-length");
    assert!(ask(http2, "/", &private).contains("103"));
    assert!(!ask(http2, "/", PAGE).contains("103"), "a page of one client's is forgotten");
}

#[test]
fn curl_sees_early_hints() {
    let gateway = Gateway::start("response-headers = { remove = [\"x-internal\"] }\n");
    let url = gateway.serpent.url("/");
    for (version, passed) in
        [("--http1.1", PASSED_HINTS), ("--http1.0", ""), ("--http2-prior-knowledge", PASSED_OVER_HTTP2)]
    {
        if tool("curl").is_none() {
            return;
        }
        std::thread::scope(|scope| {
            let client = scope.spawn(|| curl(&["--include", version, &url]).unwrap());
            let asked = gateway.origin.next();
            asked.send(format!("{HINTS}{OK}").as_bytes());
            asked.done();
            let said = client.join().unwrap();
            let rest = said.strip_prefix(passed).unwrap_or_else(|| panic!("{said}"));
            assert!(rest.starts_with("HTTP/") && !rest.contains("103") && rest.ends_with("\r\n\r\nok"), "{said}");
        });
    }
}
