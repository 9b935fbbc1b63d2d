//! The gateway between real clients and an upstream that answers when the test says so.

pub(crate) mod balancing;
mod cached;
mod cached_disk;
mod cluster;
mod compression;
pub(crate) mod fastcgi;
mod forward_auth;
mod grpc;
mod hedged;
mod interim;
mod line;
pub(crate) mod named;
mod programs;
mod rules;
mod slots;
mod split;
mod traces;
mod tunnels;
mod uwsgi;
mod websocket;

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
    support::{PATIENCE, Serpent, big, curl, free_port, program, tool},
};

/// Two classes, one slot.
const CLASSES: &str = "[[class]]\nname = \"gold\"\n[[class]]\nname = \"plain\"\nqueue = 3\n\
     [[rule]]\nclass = \"gold\"\npath = \"/gold\"\n[[rule]]\nclass = \"plain\"\n\
     [admission]\nshare = \"strict\"\nslots = 1\n";

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
pub(crate) fn start(file: &Path) -> (Serpent, SocketAddr) {
    let serpent =
        Serpent::start(&["serve", "--config", file.to_str().unwrap(), "--log", "info,serpent_server::gate=debug"]);
    let said = serpent.wait_for_stderr("metrics on http://");
    let admin = said.split("metrics on http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let admin = admin.parse().unwrap();
    (serpent, admin)
}

/// Waits until the metrics have a line.
pub(crate) fn wait_for_metric(admin: SocketAddr, line: &str) {
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

pub(crate) fn metrics(admin: SocketAddr) -> String {
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

/// Ends a connection in a way that cannot be taken for the end of a request.
fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
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
    // A response in chunks, with trailers that were not announced.
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
fn a_response_whose_first_chunk_is_malformed_is_a_bad_gateway() {
    for more in ["", "[admission]\nslots = 4\n"] {
        let gateway = Gateway::start(more);
        for malformed in ["zz\r\n", "\r\n", "1\n", "0\r\nno field\r\n\r\n"] {
            let client = gateway.ask("/", "");
            let asked = gateway.origin.next();
            asked.send(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{malformed}").as_bytes());
            let answer = all(client);
            assert!(answer.starts_with("HTTP/1.1 502 "), "{more:?} {malformed:?}: {answer}");
        }
    }
}

#[test]
fn an_upstream_gets_the_target_that_an_absolute_one_stands_for() {
    let gateway = Gateway::start("");
    let ask = |line: &str, more: &str| {
        let mut client = gateway.serpent.connect();
        write!(client, "{line}\r\nhost: a\r\n{more}connection: close\r\n\r\n").unwrap();
        client
    };
    for (line, seen) in [
        ("GET http://b?q HTTP/1.1", "GET /?q HTTP/1.1"),
        ("GET http://b HTTP/1.1", "GET / HTTP/1.1"),
        ("GET http://b/a?q HTTP/1.2", "GET /a?q HTTP/1.1"),
        ("OPTIONS http://b/ HTTP/1.1", "OPTIONS / HTTP/1.1"),
    ] {
        let client = ask(line, "");
        let asked = gateway.origin.next();
        assert_eq!(asked.head.lines().next(), Some(seen), "{line}");
        assert_eq!(asked.field("host").as_deref(), Some("b"), "{line}");
        asked.answer(b"ok");
        assert!(all(client).starts_with("HTTP/1.1 200 "), "{line}");
    }
    // Of the server as a whole, and not passed on.
    assert!(all(ask("OPTIONS http://b HTTP/1.1", "")).starts_with("HTTP/1.1 204 "));
    assert!(gateway.origin.is_idle());
}

#[test]
fn options_go_as_far_as_they_say() {
    let gateway = Gateway::start("");
    let ask = |more: &str| {
        let mut client = gateway.serpent.connect();
        write!(client, "OPTIONS /a HTTP/1.1\r\nhost: a\r\n{more}connection: close\r\n\r\n").unwrap();
        client
    };
    assert!(all(ask("max-forwards: 0\r\n")).starts_with("HTTP/1.1 204 "));
    assert!(gateway.origin.is_idle());
    for (said, seen) in [("", None), ("max-forwards: 1\r\n", Some("0"))] {
        let client = ask(said);
        let asked = gateway.origin.next();
        assert_eq!(asked.field("max-forwards").as_deref(), seen, "{said}");
        asked.answer(b"ok");
        assert!(all(client).starts_with("HTTP/1.1 200 "), "{said}");
    }
}

#[test]
fn a_body_that_is_streamed_is_refused_as_any_other() {
    let gateway =
        Gateway::start("buffer-request = false\n[limits]\nrequest-body = \"1KiB\"\nidle-timeout = \"200ms\"\n");
    let post = "POST / HTTP/1.1\r\nhost: site.example\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = gateway.serpent.exchange(format!("{post}800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let answer = gateway.serpent.exchange(format!("{post}4\r\npart\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

/// Sends a request in chunks of a byte, each when the one before has arrived. None may wait for a timer: the shortest
/// timer of a request takes a second.
fn in_chunks_as_they_are_seen(client: &mut TcpStream, head: &str, mut is_seen: impl FnMut(&mut TcpStream)) {
    const CHUNKS: u32 = 30;
    client.write_all(head.as_bytes()).unwrap();
    let start = std::time::Instant::now();
    for _ in 0..CHUNKS {
        client.write_all(b"1\r\nx\r\n").unwrap();
        is_seen(client);
    }
    assert!(start.elapsed().as_secs() < u64::from(CHUNKS) / 2, "it crawls: {:?}", start.elapsed());
    client.write_all(b"0\r\n\r\n").unwrap();
}

/// Reads up to the next byte of a body of x.
fn next_x(stream: &mut TcpStream) {
    let mut byte = [0];
    while byte != *b"x" {
        stream.read_exact(&mut byte).unwrap();
    }
}

#[test]
fn a_streamed_body_goes_on_as_it_comes_through_an_upstream_that_speaks_http2() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = |name: &str, server: String| {
        let file = folder.path().join(name);
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\nworkers = 1\n[uplink]\nrate = \"off\"\n[[upstream]]\nname = \"app\"\nservers = [\"{server}\"]\n\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer-request = false\n"
        );
        fs::write(&file, config).unwrap();
        Serpent::start(&["serve", "--config", file.to_str().unwrap()])
    };
    let behind = gateway("behind.toml", format!("http://{}", listener.local_addr().unwrap()));
    let before = gateway("before.toml", format!("h2c://{}", behind.address()));
    let mut client = before.connect();
    let mut origin = None;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    in_chunks_as_they_are_seen(&mut client, head, |_| {
        let stream = origin.get_or_insert_with(|| {
            let mut stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream
        });
        next_x(stream);
    });
    origin.unwrap().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[test]
fn a_body_that_goes_on_as_it_comes_may_pause_for_longer_than_one_that_is_collected() {
    let gateway = Gateway::start_as(|origin| {
        let more = "buffer-request = false\n[limits]\nhead-timeout = \"300ms\"\n";
        let whole = "[[site]]\n[[site.route]]\npath = \"/whole/\"\nupstream = \"app\"\n";
        text(origin, more).replace("[[site]]\n", whole)
    });
    let post = |path: &str| {
        let mut stream = gateway.serpent.connect();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"5\r\nhello\r\n").unwrap();
        stream
    };
    let mut pauses = post("/streamed");
    // Both fall silent at the same time, and one of them is told that it was for too long; twice, so that it is the later one.
    for _ in 0..2 {
        assert!(all(post("/whole/late")).starts_with("HTTP/1.1 408 "));
    }
    pauses.write_all(b"5\r\nworld\r\n0\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.body, b"helloworld");
    asked.answer(b"posted");
    assert!(all(pauses).ends_with("posted"));
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
