//! The gateway between real clients and an upstream that answers when the test says so.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    origin::Origin,
    support::{PATIENCE, Serpent, big, curl, program, tool},
};

struct Gateway {
    folder: TempDir,
    file: PathBuf,
    origin: Origin,
    admin: SocketAddr,
    serpent: Serpent,
}

impl Gateway {
    /// A gateway before an origin; `more` stands behind the upstream and the site in its configuration.
    fn start(more: &str) -> Self {
        Self::start_with("", more)
    }

    /// The same, with `settings` of the upstream.
    fn start_with(settings: &str, more: &str) -> Self {
        Self::start_as(|origin| text(origin, more).replace("[[upstream]]\n", &format!("[[upstream]]\n{settings}")))
    }

    /// A gateway with the configuration made for an origin.
    fn start_as(text: impl FnOnce(&Origin) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let origin = Origin::start();
        let file = folder.path().join("serpent.toml");
        fs::write(&file, text(&origin)).unwrap();
        let (serpent, admin) = start(&file);
        Self { folder, file, origin, admin, serpent }
    }

    /// Sends a request, whose answer is read later.
    fn ask(&self, path: &str, more: &str) -> TcpStream {
        let mut stream = self.serpent.connect();
        let head = format!("GET {path} HTTP/1.1\r\nhost: site.example\r\n{more}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Waits until so many requests wait to be let in.
    fn wait_for_waiting(&self, class: &str, waiting: u32) {
        wait_for_metric(self.admin, &format!("serpent_class_waiting{{class=\"{class}\"}} {waiting}"));
    }
}

/// The server of a configuration that has an administrator's address, and which one that is.
fn start(file: &Path) -> (Serpent, SocketAddr) {
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap(), "--log", "info"]);
    let said = serpent.wait_for_stderr("metrics on http://");
    let admin = said.split("metrics on http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let admin = admin.parse().unwrap();
    (serpent, admin)
}

/// Waits until the metrics have a line.
fn wait_for_metric(admin: SocketAddr, line: &str) {
    let start = std::time::Instant::now();
    loop {
        let said = metrics(admin);
        if said.lines().any(|said| said == line) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "no `{line}` in:\n{said}");
        std::thread::yield_now();
    }
}

fn metrics(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream
        .write_all(
            b"GET /metrics HTTP/1.1
host: a
connection: close

",
        )
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn text(origin: &Origin, more: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
         [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{more}",
        origin.address
    )
}

fn all(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_request_goes_through_and_its_answer_comes_back() {
    let gateway = Gateway::start("");
    let client = gateway.ask(
        "/a//b%2Fc?q=1&r",
        "x-forwarded-for: 6.6.6.6\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\ncookie: a=b\r\n",
    );
    let asked = gateway.origin.next();
    assert_eq!(asked.path(), "/a//b%2Fc?q=1&r", "the path stays as it came");
    for (name, value) in [
        ("host", Some("site.example")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("site.example")),
        ("via", Some("1.1 serpent")),
        ("x-hop", None),
        ("keep-alive", None),
        ("cookie", Some("a=b")),
    ] {
        assert_eq!(asked.field(name).as_deref(), value, "{name}: {}", asked.head);
    }
    asked.answer(b"from the origin");
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfrom the origin"), "{answer}");
    assert!(!answer.contains("server: origin"), "{answer}");

    // Two of the same client go over one connection behind.
    let (one, two) = (gateway.ask("/1", ""), "/2");
    let first = gateway.origin.next();
    let port = first.stream.peer_addr().unwrap();
    first.answer(b"1");
    all(one);
    let client = gateway.ask(two, "");
    let second = gateway.origin.next();
    assert_eq!(second.stream.peer_addr().unwrap(), port, "the connection is used again");
    second.answer(b"2");
    assert!(all(client).ends_with("\r\n\r\n2"));
}

#[test]
fn bodies_pass_both_ways_whatever_their_size_and_framing() {
    let gateway = Gateway::start("[limits]\nrequest-body = \"8MiB\"\nbody-memory = \"64KiB\"\n");
    let big = big();
    let file = gateway.folder.path().join("upload.bin");
    fs::write(&file, &big).unwrap();
    let upload = format!("@{}", file.display());
    let got = gateway.folder.path().join("got.bin");
    for args in [&["--http1.1"][..], &["--http1.1", "-H", "transfer-encoding: chunked"], &["--http2-prior-knowledge"]] {
        if tool("curl").is_none() {
            return;
        }
        let mut args = args.to_vec();
        let url = gateway.serpent.url("/upload");
        args.extend(["--data-binary", &upload, "-o", got.to_str().unwrap(), &url]);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| curl(&args));
            let asked = gateway.origin.next();
            assert!(asked.body == big, "{args:?}: {} bytes, {}", asked.body.len(), asked.head);
            asked.answer(&big);
            client.join().unwrap();
        });
        assert!(fs::read(&got).unwrap() == big, "{args:?}");
    }
    // An answer in chunks, with trailers nobody asked for.
    let client = gateway.ask("/chunks", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    asked.send(b"2\r\nde\r\n0\r\nx-end: 1\r\n\r\n");
    asked.done();
    let answer = all(client);
    assert!(answer.contains("abc") && answer.contains("de") && answer.ends_with("0\r\n\r\n"), "{answer}");
    // One that breaks off must not look whole.
    let client = gateway.ask("/broken", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let answer = all(client);
    assert!(!answer.starts_with("HTTP/1.1 200 ") || answer.contains("content-length: 1000000\r\n"), "{answer}");
    // Too large for us.
    let limit = (8 << 20) + 1;
    let answer =
        gateway.serpent.exchange(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {limit}\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(gateway.origin.is_idle());
}

#[test]
fn errors_behind_are_told_with_the_right_status() {
    let gateway = Gateway::start("");
    let client = gateway.ask("/", "");
    let asked = gateway.origin.next();
    asked.send(b"SSH-2.0-OpenSSH\r\n\r\n");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    // One that ends before it answers, and is the only one.
    let client = gateway.ask("/", "");
    gateway.origin.next().stream.shutdown(std::net::Shutdown::Both).unwrap();
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    for path in ["/%", "/../..", "/%00"] {
        let answer = all(gateway.ask(path, ""));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
    }
    assert!(gateway.origin.is_idle());
}

#[test]
fn a_body_that_is_streamed_is_refused_as_any_other() {
    let gateway =
        Gateway::start("buffer-request = false\n[limits]\nrequest-body = \"1KiB\"\nhead-timeout = \"200ms\"\n");
    let post = "POST / HTTP/1.1\r\nhost: site.example\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = gateway.serpent.exchange(format!("{post}800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let answer = gateway.serpent.exchange(format!("{post}4\r\npart\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_small_answer_that_falls_silent_is_a_time_out() {
    let gateway = Gateway::start_with("idle-timeout = \"200ms\"\n", "[admission]\nslots = 4\n");
    let client = gateway.ask("/", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\npart");
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_lack_of_open_files_is_no_fault_of_the_upstreams() {
    let gateway = Gateway::start("");
    // Accepted, and everything open that such a connection needs.
    let mut client = gateway.serpent.connect();
    let mut ask = |path: &str| {
        write!(client, "GET {path} HTTP/1.1\r\nhost: site.example\r\n\r\n").map(|()| client.try_clone().unwrap())
    };
    let status = |mut stream: TcpStream| {
        let (mut head, mut byte) = (String::new(), [0]);
        while !head.ends_with("\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0].into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
        head[9..12].to_owned()
    };
    assert_eq!(status(ask("/%").unwrap()), "400");
    gateway.serpent.may_open_files(false);
    for _ in 0..4 {
        assert_eq!(status(ask("/").unwrap()), "503");
    }
    let mut said = gateway.serpent.wait_for_stderr("LimitNOFILE=");
    gateway.serpent.may_open_files(true);
    let stream = ask("/").unwrap();
    gateway.origin.answer("well");
    assert_eq!(status(stream), "200");
    gateway.serpent.signal(Signal::TERM);
    said += &gateway.serpent.wait().1;
    assert!(!said.contains("is left alone"), "{said}");
}

#[test]
fn a_websocket_passes() {
    let gateway = Gateway::start("");
    let mut client = gateway.serpent.connect();
    // What is sent at once must not be taken for a request.
    client
        .write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n\x81early\r\n")
        .unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.field("upgrade").as_deref(), Some("websocket"));
    assert!(asked.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")), "{}", asked.head);
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\nhello") {
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.to_lowercase().contains("upgrade: websocket"), "{answer}");
    let mut upstream = asked.stream;
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut early = [0; 8];
    upstream.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"\x81early\r\n");
    client.write_all(b"GET / HTTP/1.1 is no request here").unwrap();
    let mut later = [0; 33];
    upstream.read_exact(&mut later).unwrap();
    assert_eq!(&later, b"GET / HTTP/1.1 is no request here");
    let sends = std::thread::spawn(move || upstream.write_all(&big()).unwrap());
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    sends.join().unwrap();
    assert!(rest == big(), "{} bytes", rest.len());

    // Refused: the connection goes on with HTTP.
    let mut client = gateway.serpent.connect();
    let next = "GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let ask = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    client.write_all(format!("{ask}{next}").as_bytes()).unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
    drop(asked);
    assert_eq!(gateway.origin.answer("next"), "/next");
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("no") && answer.ends_with("next"), "{answer}");
}

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nserver: origin\r\nx-internal: 1\r\n\
     connection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\n\r\n";
/// The same, as clients see it.
const PASSED_HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
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

        // Whoever speaks HTTP/1.0 knows of none.
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
        assert_eq!((&*asked.body, asked.field("expect")), (&b"body"[..], None));
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
    // What comes behind is no response any more.
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
fn curl_sees_early_hints() {
    let gateway = Gateway::start("response-headers = { remove = [\"x-internal\"] }\n");
    let url = gateway.serpent.url("/");
    for (version, passed) in [("--http1.1", PASSED_HINTS), ("--http1.0", ""), ("--http2-prior-knowledge", "")] {
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

const CLASSES: &str = "[[class]]\nname = \"gold\"\n[[class]]\nname = \"plain\"\nqueue = 3\n\
     [[rule]]\nclass = \"gold\"\npath = \"/gold\"\n[[rule]]\nclass = \"plain\"\n\
     [admission]\nshare = \"strict\"\nslots = 1\n";

#[test]
fn the_higher_class_goes_first_and_one_too_many_is_told_so() {
    let gateway = Gateway::start(CLASSES);
    let mut clients = vec![gateway.ask("/plain/0", "")];
    // It is in the site; from here on all others wait.
    let first = gateway.origin.next();
    for at in 1..=3 {
        clients.push(gateway.ask(&format!("/plain/{at}"), ""));
        gateway.wait_for_waiting("plain", at);
    }
    for at in 1..=2 {
        clients.push(gateway.ask(&format!("/gold/{at}"), ""));
        gateway.wait_for_waiting("gold", at);
    }
    let refused = all(gateway.ask("/plain/4", ""));
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 5"), "{refused}");
    first.answer(b"0");
    let order: Vec<_> = (0..5).map(|_| gateway.origin.answer("x")).collect();
    assert_eq!(order, ["/gold/1", "/gold/2", "/plain/1", "/plain/2", "/plain/3"]);
    for client in clients {
        assert!(all(client).starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn a_window_follows_what_probing_requests_say() {
    let gateway = Gateway::start(
        "[admission]\nwindows = \"probe\"\nprobe-every = \"1ms\"\nprobe-after = \"0s\"\nshrink-above = 0\ngrow-below = 0\n\
         [admission.resources]\nsite = { window = 1, most = 3, bound = \"1h\", probe = \"/heavy?n=1\" }\n",
    );
    let window = |now| wait_for_metric(gateway.admin, &format!("serpent_resource_window{{resource=\"site\"}} {now}"));
    let next = || {
        let asked = gateway.origin.next();
        assert_eq!(asked.path(), "/heavy?n=1");
        assert!(asked.field("user-agent").is_some_and(|name| name.ends_with("(probe)")));
        asked
    };
    // While one is under way there is no other, and it takes no slot.
    let first = next();
    window(1);
    let client = gateway.ask("/", "");
    let of_client = gateway.origin.next();
    assert_eq!(of_client.path(), "/");
    first.answer(b"in time");
    next().answer(b"in time");
    window(3);
    next().answer(b"in time");
    next().send(b"HTTP/1.1 500 \r\ncontent-length: 0\r\n\r\n");
    window(2);
    wait_for_metric(gateway.admin, "serpent_resource_window_changes_total{resource=\"site\"} 3");
    of_client.answer(b"done");
    assert!(all(client).starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_happens_to_one_upstream_is_nothing_to_the_class_before_another() {
    let other = Origin::start();
    let classes = CLASSES
        .replace("share = \"strict\"\nslots = 1", "share = \"strict\"\nslots = 2")
        .replace("queue = 3", "queue = 3\nslots = 1");
    let upstream = format!(
        "[[upstream]]\nname = \"other\"\nservers = [\"http://{}\"]\npassive = {{ failures = \"off\" }}\n",
        other.address
    );
    let route = "[[site.route]]\npath = \"/plain\"\nupstream = \"other\"\n";
    let gateway = Gateway::start_as(|origin| {
        text(origin, &classes).replace("[[site]]\n", &format!("{upstream}[[site]]\n{route}"))
    });
    let gold = |when: &str| {
        let client = gateway.ask("/gold", "");
        assert_eq!(gateway.origin.answer("gold"), "/gold", "while the other {when}");
        assert!(all(client).ends_with("gold"), "while the other {when}");
    };
    let plain = |path: &str| gateway.ask(&format!("/plain/{path}"), "");

    let killed = plain("killed");
    let asked = other.next();
    let garbage = plain("garbage");
    gateway.wait_for_waiting("plain", 1);
    gold("is silent");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(all(killed).starts_with("HTTP/1.1 502 "));

    let asked = other.next();
    gold("is about to answer");
    asked.send(b"\x00\x01\x02 nothing that is HTTP\r\n\r\n");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(all(garbage).starts_with("HTTP/1.1 502 "));

    let reset = plain("reset");
    let asked = other.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc");
    gold("has begun to answer");
    rustix::net::sockopt::set_socket_linger(&asked.stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(asked);
    let answer = all(reset);
    assert!(!answer.starts_with("HTTP/1.1 200 ") || answer.contains("content-length: 1000000\r\n"), "{answer}");

    let restored = plain("restored");
    assert_eq!(other.answer("again"), "/plain/restored");
    assert!(all(restored).ends_with("again"));
    gold("is well");
    assert!(other.is_idle() && gateway.origin.is_idle());
}

#[test]
fn slow_clients_hold_no_slot() {
    let gateway = Gateway::start(CLASSES);
    // One takes nothing of a large answer.
    let lazy = gateway.ask("/plain/lazy", "");
    gateway.origin.next().answer(&big());
    // One is still sending its request.
    let mut sender = gateway.serpent.connect();
    sender
        .write_all(b"POST /plain/post HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n12345")
        .unwrap();
    for at in 0..3 {
        let client = gateway.ask(&format!("/plain/{at}"), "");
        assert_eq!(gateway.origin.answer("quick"), format!("/plain/{at}"));
        assert!(all(client).ends_with("quick"));
    }
    sender.write_all(b"67890").unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.body, b"1234567890");
    asked.answer(b"posted");
    assert!(all(sender).ends_with("posted"));
    let mut answer = Vec::new();
    let mut lazy = lazy;
    lazy.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&big()), "{}", answer.len());
}

#[test]
fn who_is_gone_spends_no_slot_and_the_work_of_the_site_keeps_its_own() {
    let gateway = Gateway::start(CLASSES);
    let first = gateway.ask("/plain/0", "");
    let asked = gateway.origin.next();
    let gone = gateway.ask("/plain/gone", "");
    gateway.wait_for_waiting("plain", 1);
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 2);
    drop(gone);
    gateway.wait_for_waiting("plain", 1);
    // This one's client leaves while the site works for it. The site goes on working, so nobody else goes in.
    drop(first);
    // One that comes and goes after it: by when that is noticed, the other departure would be, too.
    let later = gateway.ask("/plain/later", "");
    gateway.wait_for_waiting("plain", 2);
    drop(later);
    gateway.wait_for_waiting("plain", 1);
    assert!(gateway.origin.is_idle());
    asked.answer(b"for nobody");
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
}

#[test]
fn over_http2_too_the_work_of_the_site_keeps_its_slot_when_its_client_is_gone() {
    let gateway = Gateway::start(CLASSES);
    let ask = |path: &str| {
        let mut client = tool("curl")?;
        client.args(["--silent", "--http2-prior-knowledge", &gateway.serpent.url(path)]);
        Some(client.stdout(std::process::Stdio::null()).spawn().unwrap())
    };
    let leave = |mut client: std::process::Child| {
        client.kill().unwrap();
        client.wait().unwrap();
    };
    let Some(first) = ask("/plain/0") else { return };
    let asked = gateway.origin.next();
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 1);
    leave(first);
    // One that comes and goes after it: by when that is noticed, the other departure would be, too.
    let later = ask("/plain/later").unwrap();
    gateway.wait_for_waiting("plain", 2);
    leave(later);
    gateway.wait_for_waiting("plain", 1);
    assert!(gateway.origin.is_idle());
    asked.answer(b"for nobody");
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
}

#[test]
fn a_client_that_is_gone_keeps_no_slot_with_an_answer_that_does_not_end() {
    let gateway = Gateway::start(CLASSES);
    let mut first = gateway.ask("/plain/0", "");
    let mut asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\n\r\nbegins");
    first.read_exact(&mut [0]).unwrap();
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 1);
    drop(first);
    // The origin goes on until it is told.
    let chunk = vec![0; 64 * 1024];
    while asked.stream.write_all(&chunk).is_ok() {}
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
}

#[test]
fn a_slow_body_holds_no_slot_though_another_protocol_is_asked_for() {
    let gateway = Gateway::start(CLASSES);
    let mut slow = gateway.serpent.connect();
    let head = "POST /plain/slow HTTP/1.1\r\nhost: a\r\nconnection: close, upgrade\r\nupgrade: x\r\n";
    slow.write_all(format!("{head}content-length: 10\r\n\r\n12345").as_bytes()).unwrap();
    for at in 0..3 {
        let client = gateway.ask(&format!("/plain/{at}"), "");
        assert_eq!(gateway.origin.answer("quick"), format!("/plain/{at}"));
        assert!(all(client).ends_with("quick"));
    }
    slow.write_all(b"67890").unwrap();
    let asked = gateway.origin.next();
    assert_eq!((&*asked.body, asked.field("upgrade")), (&b"1234567890"[..], None));
    asked.answer(b"posted");
    assert!(all(slow).ends_with("posted"));
    // A body that turns out to be empty: what follows is a request all the same.
    let mut client = gateway.serpent.connect();
    let head = head.replace("close, ", "").replace("slow", "empty");
    let next = "GET /plain/next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{next}").as_bytes()).unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.field("upgrade"), None);
    asked.answer(b"empty");
    assert_eq!(gateway.origin.answer("next"), "/plain/next");
    assert!(all(client).ends_with("next"));
}

#[test]
fn an_answer_before_the_body_was_read_says_close_and_arrives() {
    let gateway = Gateway::start("[limits]\nrequest-body = \"2MiB\"\n");
    let body = vec![b'x'; 1 << 20];
    for head in [
        "POST /%zz HTTP/1.1\r\nhost: a\r\ncontent-length: 1048576\r\n\r\n".to_owned(),
        format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", 3 << 20),
    ] {
        let client = gateway.serpent.connect();
        let mut sender = client.try_clone().unwrap();
        // A reset would be an error here.
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                let bodies = if head.contains("chunked") { 3 } else { 1 };
                let _ = sender.write_all(head.as_bytes());
                (0..bodies).for_each(|_| drop(sender.write_all(&body)));
            });
            all(client)
        });
        let status = if head.contains("chunked") { "413" } else { "400" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    assert!(gateway.origin.is_idle());
}

#[test]
fn a_tunnel_passes_one_direction_when_the_other_has_ended_and_outlives_a_reload() {
    let gateway = Gateway::start(CLASSES);
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let mut upstream = asked.stream.try_clone().unwrap();
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    // Its address is taken away.
    let text = fs::read_to_string(&gateway.file).unwrap();
    let elsewhere = text.replacen("127.0.0.1:0", "127.0.0.2:0", 1);
    fs::write(&gateway.file, elsewhere).unwrap();
    gateway.serpent.signal(Signal::HUP);
    gateway.serpent.wait_for_stderr("configuration reloaded");
    upstream.write_all(b"end").unwrap();
    upstream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut end = Vec::new();
    client.read_to_end(&mut end).unwrap();
    assert_eq!(end, b"end");
    client.write_all(&big()).unwrap();
    drop(client);
    let mut got = Vec::new();
    upstream.read_to_end(&mut got).unwrap();
    assert!(got == big(), "{}", got.len());
}

#[test]
fn what_a_tunnel_sends_takes_its_turn_on_the_uplink() {
    let gateway = Gateway::start(CLASSES);
    let text = fs::read_to_string(&gateway.file).unwrap();
    // The tunnel always has more to send than the link takes.
    let slow = text.replace("rate = \"off\"", "rate = \"1mbit\"\nshare = \"strict\"");
    fs::write(&gateway.file, slow.replace("slots = 1", "slots = 2")).unwrap();
    gateway.serpent.signal(Signal::HUP);
    gateway.serpent.wait_for_stderr("configuration reloaded");
    let mut tunnel = gateway.serpent.connect();
    tunnel.write_all(b"GET /plain HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let (mut upstream, mut reader) = (asked.stream.try_clone().unwrap(), tunnel.try_clone().unwrap());
    let (tell, got) = std::sync::mpsc::channel();
    std::thread::spawn(move || while upstream.write_all(&big()).is_ok() {});
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(1..) = reader.read(&mut bytes) {
            let _ = tell.send(());
        }
    });
    got.recv_timeout(PATIENCE).unwrap();
    let gold = gateway.ask("/gold", "");
    gateway.origin.next().answer(b"gold");
    assert!(all(gold).ends_with("gold"));
    tunnel.shutdown(std::net::Shutdown::Both).unwrap();
}

#[test]
fn the_rules_of_a_route_speak_of_the_servers_name_too() {
    for (rules, named) in [
        ("", Some("serpent")),
        ("response-headers = { remove = [\"Server\"] }\n", None),
        ("response-headers = { set = { \"Server\" = \"shop\" } }\n", Some("shop")),
    ] {
        let gateway = Gateway::start(rules);
        let client = gateway.ask("/", "");
        gateway.origin.next().answer(b"x");
        let answer = all(client);
        let said = answer.lines().find_map(|line| line.strip_prefix("server: "));
        assert_eq!(said, named, "{answer}");
    }
}

#[test]
fn a_reload_changes_classes_and_loses_nobody() {
    let gateway = Gateway::start(CLASSES);
    let first = gateway.ask("/plain/0", "");
    let asked = gateway.origin.next();
    let waits: Vec<_> = (1..=3)
        .map(|at| {
            let client = gateway.ask(&format!("/plain/{at}"), "");
            gateway.wait_for_waiting("plain", at);
            client
        })
        .collect();
    let changed = CLASSES
        .replace("slots = 1", "slots = 3")
        .replace("[[class]]\nname = \"plain\"", "[[class]]\nname = \"new\"\n[[class]]\nname = \"plain\"");
    fs::write(&gateway.file, text(&gateway.origin, &changed)).unwrap();
    gateway.serpent.signal(Signal::HUP);
    let two: Vec<_> = (0..2).map(|_| gateway.origin.next()).collect();
    // Both were let in at once, and go over connections of their own: either may be heard first.
    let mut paths: Vec<_> = two.iter().map(|asked| asked.path().to_owned()).collect();
    paths.sort();
    assert_eq!(paths, ["/plain/1", "/plain/2"]);
    gateway.wait_for_waiting("plain", 1);
    asked.answer(b"0");
    two.into_iter().for_each(|asked| asked.answer(b"x"));
    assert_eq!(gateway.origin.answer("3"), "/plain/3");
    for client in waits.into_iter().chain([first]) {
        assert!(all(client).starts_with("HTTP/1.1 200 "));
    }
}

/// A gateway to these programs, all in the class plain, and where its metrics are.
fn with_programs(folder: &TempDir, programs: &[(&str, &str)], route: &str) -> (Serpent, SocketAddr) {
    let cgi = folder.path().join("cgi");
    fs::create_dir(&cgi).unwrap();
    for (name, script) in programs {
        program(&cgi.join(name), script);
    }
    let (file, cgi) = (folder.path().join("serpent.toml"), cgi.display());
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[uplink]\nrate = \"off\"\n[[site]]\n\
         [[site.route]]\npath = \"/first\"\ncgi = \"{cgi}\"\n{route}\n[[site.route]]\npath = \"/cgi\"\ncgi = \"{cgi}\"\n{CLASSES}"
    );
    fs::write(&file, config).unwrap();
    start(&file)
}

#[test]
fn header_rules_end_where_a_program_redirects_and_answers_without_a_body_are_finished() {
    let folder = tempfile::tempdir().unwrap();
    let programs = [
        ("redirect.sh", "echo 'Location: /cgi/tell.sh'; echo"),
        ("tell.sh", "echo 'Content-Type: text/plain'; echo; echo \"it says <$HTTP_X_OWN> <$HTTP_X_SET>\""),
        ("empty.sh", "echo 'Status: 204 No Content'; echo"),
    ];
    let rules = "request-headers = { set = { X-Set = \"first\" }, remove = [\"X-Own\"] }";
    let (serpent, admin) = with_programs(&folder, &programs, rules);
    let ask = |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-own: mine\r\nconnection: close\r\n\r\n");
        serpent.exchange(request.as_bytes())
    };
    let answer = ask("GET", "/first/tell.sh");
    assert!(answer.contains("it says <> <first>"), "{answer}");
    let answer = ask("GET", "/first/redirect.sh");
    assert!(answer.contains("it says <mine> <>"), "{answer}");
    let answer = ask("HEAD", "/cgi/tell.sh");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("it says"), "{answer}");
    let answer = ask("GET", "/cgi/empty.sh");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    // The program behind the redirect is one more.
    wait_for_metric(admin, "serpent_class_finished_total{class=\"plain\"} 5");
    wait_for_metric(admin, "serpent_class_abandoned_total{class=\"plain\",state=\"running\"} 0");
}

#[test]
fn a_silent_program_ends_with_its_client() {
    for head in ["", "echo 'Content-Type: text/plain'; echo; "] {
        let folder = tempfile::tempdir().unwrap();
        let begun = folder.path().join("begun");
        let script =
            format!("{head}touch {}; while [ -d {} ]; do sleep 0.1; done", begun.display(), folder.path().display());
        let (serpent, admin) = with_programs(&folder, &[("silent.sh", &script)], "");
        let mut client = serpent.connect();
        client.write_all(b"GET /cgi/silent.sh HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let start = std::time::Instant::now();
        while !begun.exists() {
            assert!(start.elapsed() < PATIENCE, "the program does not begin");
            std::thread::yield_now();
        }
        // A reset, which nobody takes for the end of a request.
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        wait_for_metric(admin, "serpent_class_abandoned_total{class=\"plain\",state=\"running\"} 1");
        wait_for_metric(admin, "serpent_class_running{class=\"plain\"} 0");
    }
}

#[test]
fn programs_answer_with_their_class() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("cgi");
    fs::create_dir(&programs).unwrap();
    program(
        &programs.join("who.sh"),
        "echo 'Content-Type: text/plain'\necho\necho \"$REQUEST_METHOD $SCRIPT_NAME $PATH_INFO $QUERY_STRING \
         $SERPENT_CLASS\"\ncat",
    );
    let file = folder.path().join("serpent.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[[site]]\n[[site.route]]\npath = \"/cgi/\"\ncgi = \"{}\"\n{CLASSES}",
        programs.display()
    );
    fs::write(&file, config.replace("path = \"/gold\"", "query = { level = \"gold\" }")).unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap()]);
    let answer = serpent.exchange(
        b"POST /cgi/who.sh/more?level=gold HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody",
    );
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("POST /cgi/who.sh /more level=gold gold"), "{answer}");
    assert!(answer.contains("body"), "{answer}");
    let answer = serpent.exchange(b"GET /cgi/none.sh HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
