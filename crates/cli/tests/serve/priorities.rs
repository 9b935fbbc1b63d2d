//! Priorities of HTTP/2 (RFC 9218): within one client's connection, and never across clients.

use std::{
    fs,
    io::Read as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use http::Request;
use tempfile::TempDir;

use super::support::Serpent;

const LARGE_BYTES: usize = 300_000;
const SMALL_BYTES: usize = 30_000;

/// Files of both sizes.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    fs::create_dir_all(www.join("late")).unwrap();
    for (name, bytes) in [("large", LARGE_BYTES), ("also-large", LARGE_BYTES), ("small", SMALL_BYTES)] {
        fs::write(www.join(name), vec![b'x'; bytes]).unwrap();
        fs::write(www.join("late").join(name), vec![b'x'; bytes]).unwrap();
    }
    folder
}

/// A server whose uplink has 8 Mbit/s.
fn start(folder: &TempDir, more: &str) -> Serpent {
    let config = folder.path().join("serpent.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n{more}\n[[site]]\nroot = \"www\"\n\
        [[site.route]]\npath = \"/late/\"\nfiles = true\nresponse-headers.set = {{ \"Priority\" = \"u=7\" }}\n"
    );
    fs::write(&config, text).unwrap();
    Serpent::start(&["serve", "--config", config.to_str().unwrap()])
}

const PACED: &str = "[uplink]\nrate = \"8mbit\"";

/// The data that a client got, in order: paths and bytes.
type Got = Arc<Mutex<Vec<(String, usize)>>>;

/// Asks for paths on one HTTP/2 connection, each with a `Priority` field or none, with windows that hold back nothing.
/// All that came is in `got`.
async fn fetch_all(address: SocketAddr, asked: &[(&str, &str)], got: &Got) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 28).initial_connection_window_size(1 << 30);
    let (mut sender, connection) = builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
    let mut responses = Vec::new();
    for (path, priority) in asked {
        let mut request = Request::get(format!("http://test{path}"));
        if !priority.is_empty() {
            request = request.header("priority", *priority);
        }
        sender = sender.ready().await.unwrap();
        let (response, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        responses.push(((*path).to_owned(), response));
    }
    // All requests leave together: a client that is busy with a response might send the next request late.
    let connection = tokio::spawn(connection);
    let mut streams = Vec::new();
    for (path, response) in responses {
        let got = got.clone();
        streams.push(tokio::spawn(async move {
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200, "{path}");
            let mut body = response.into_body();
            while let Some(data) = body.data().await {
                got.lock().unwrap().push((path.clone(), data.unwrap().len()));
            }
        }));
    }
    for stream in streams {
        stream.await.unwrap();
    }
    drop(sender);
    connection.abort();
}

fn fetched(serpent: &Serpent, asked: &[(&str, &str)]) -> Vec<(String, usize)> {
    let got = Got::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fetched = fetch_all(serpent.address(), asked, &got);
        tokio::time::timeout(Duration::from_secs(60), fetched).await.expect("all is answered");
    });
    Arc::try_unwrap(got).unwrap().into_inner().unwrap()
}

/// The paths in the order in which they ended.
fn ends(got: &[(String, usize)]) -> Vec<&str> {
    let mut ends: Vec<&str> = Vec::new();
    for (path, _) in got.iter().rev() {
        if !ends.contains(&&**path) {
            ends.insert(0, path);
        }
    }
    ends
}

#[test]
fn the_urgent_responses_of_a_connection_go_first_and_the_order_breaks_ties() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    for (asked, expected) in [
        ([("/large", ""), ("/small", "")], ["/small", "/large"]),
        ([("/large", "u=1"), ("/small", "")], ["/large", "/small"]),
        ([("/large", ""), ("/small", "u=4")], ["/large", "/small"]),
        ([("/large", "i, u=2"), ("/small", "u=5, i")], ["/large", "/small"]),
        // A field that is not valid has no effect.
        ([("/large", "u=-1"), ("/small", "u=8")], ["/small", "/large"]),
        ([("/large", "u=1;,"), ("/small", "")], ["/small", "/large"]),
        // `Priority` of the response overrides that of the request: here a route sets it.
        ([("/late/large", "u=0"), ("/small", "u=6")], ["/small", "/late/large"]),
        ([("/late/small", "u=0"), ("/large", "u=6")], ["/large", "/late/small"]),
    ] {
        let got = fetched(&serpent, &asked);
        assert_eq!(ends(&got), expected, "{asked:?}");
    }
}

#[test]
fn incremental_responses_go_in_turn_and_others_one_after_the_other() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    // How much of the response that ends last has come when the other one ends.
    let beside = |priority: &str| {
        let got = fetched(&serpent, &[("/large", priority), ("/also-large", priority)]);
        let first = ends(&got)[0].to_owned();
        let end = got.iter().rposition(|(path, _)| *path == first).unwrap();
        got[..end].iter().filter(|(path, _)| *path != first).map(|(_, bytes)| bytes).sum::<usize>()
    };
    let (in_turn, one_by_one) = (beside("u=3, i"), beside("u=3"));
    assert!(in_turn > LARGE_BYTES * 8 / 10, "{in_turn} bytes of the other had come");
    assert!(one_by_one < LARGE_BYTES * 3 / 10, "{one_by_one} bytes of the other had come");
}

#[test]
fn urgency_gains_nothing_against_other_clients() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    let address = serpent.address();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let got = Got::default();
    runtime.block_on(async {
        let one = fetch_all(address, &[("/large", "u=0"), ("/also-large", "u=0")], &got);
        let other = async {
            // The first client has the link already.
            while got.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let theirs = Got::default();
            fetch_all(address, &[("/small", "u=7")], &theirs).await;
            got.lock().unwrap().push(("theirs".to_owned(), 0));
        };
        let both = async { tokio::join!(one, other) };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("all is answered");
    });
    let got = got.lock().unwrap();
    let before: usize = got.iter().take_while(|(path, _)| path != "theirs").map(|(_, bytes)| bytes).sum();
    // The small response of the other client is the shortest, whatever the first client calls urgent.
    assert!(before < LARGE_BYTES / 2, "{before} bytes came before it");
    assert_eq!(ends(&got)[0], "theirs");
}

#[test]
fn a_connection_of_a_trusted_proxy_has_many_clients_and_no_urgency() {
    let folder = folder();
    let serpent = start(&folder, &format!("trusted-proxies = [\"127.0.0.1\"]\n{PACED}"));
    let got = fetched(&serpent, &[("/large", "u=0"), ("/small", "u=7")]);
    assert_eq!(ends(&got), ["/small", "/large"]);
}

#[test]
fn where_nothing_is_paced_urgent_responses_still_go_first() {
    let folder = folder();
    for name in ["urgent", "other"] {
        fs::write(folder.path().join("www").join(name), vec![b'x'; 30_000_000]).unwrap();
    }
    let serpent = start(
        &folder,
        "[uplink]\nrate = \"off\"\n[cache]\ncapacity = \"256MiB\"\nmax-file = \"64MiB\"\nrevalidate-after = \"1h\"",
    );
    // From now on both are in memory: a response that waits for its file lets others go first.
    fetched(&serpent, &[("/other", ""), ("/urgent", "")]);
    // Asked for last.
    let got = fetched(&serpent, &[("/other", "u=5"), ("/urgent", "u=1")]);
    assert_eq!(ends(&got), ["/urgent", "/other"]);
    // The task of the urgent one may begin late. From then on it has the connection nearly alone.
    let is_urgent = |(path, _): &(String, usize)| path == "/urgent";
    let (begin, end) = (got.iter().position(is_urgent).unwrap(), got.iter().rposition(is_urgent).unwrap());
    let between: usize = got[begin..end].iter().filter(|&it| !is_urgent(it)).map(|(_, bytes)| bytes).sum();
    assert!(between < 1_000_000, "{between} bytes of the other came before its end");
}

#[test]
fn http1_has_no_priorities() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    let address = serpent.address();
    let fetch = |path: &'static str, priority: &'static str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\npriority: {priority}\r\nconnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        move || {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 "));
            std::time::Instant::now()
        }
    };
    let (large, small) = (fetch("/large", "u=0"), fetch("/small", "u=7"));
    let large = thread::spawn(large);
    let small = thread::spawn(small);
    assert!(small.join().unwrap() < large.join().unwrap());
}

/// A client of HTTP/2 that writes its own frames.
struct Frames(std::net::TcpStream);

const SETTINGS: u8 = 4;
const PRIORITY_UPDATE: u8 = 0x10;

impl Frames {
    /// Its windows hold back nothing.
    fn connect(serpent: &Serpent) -> Self {
        let mut client = Self(serpent.connect());
        std::io::Write::write_all(&mut client.0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        client.send(8, 0, 0, &(1u32 << 30).to_be_bytes());
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = (payload.len() as u32).to_be_bytes();
        let frame = [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        std::io::Write::write_all(&mut self.0, &frame).unwrap();
    }

    fn ask(&mut self, stream: u32, path: &str) {
        // GET, http, a path and an authority, which no table has (RFC 7541).
        let fields = [&[0x82, 0x86, 0x04, path.len() as u8][..], path.as_bytes(), &[0x01, 1, b'a']].concat();
        self.send(1, 0x5, stream, &fields);
    }

    fn update(&mut self, stream: u32, priority: &str) {
        self.send(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes(), priority.as_bytes()].concat());
    }

    /// The next frame: kind, flags, stream, payload.
    fn next(&mut self) -> (u8, u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).unwrap();
        (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
    }

    /// The streams in the order in which so many of them end. `at_data` is called at the first body bytes.
    fn ends(&mut self, count: usize, at_data: impl FnOnce(&mut Self)) -> Vec<u32> {
        let (mut ends, mut at_data) = (Vec::new(), Some(at_data));
        while ends.len() < count {
            let (kind, flags, stream, payload) = self.next();
            if kind == 0 {
                if let Some(at_data) = at_data.take() {
                    at_data(self);
                }
                if flags & 1 != 0 {
                    ends.push(stream);
                }
            }
            assert!(!matches!(kind, 3 | 7), "{kind} {payload:?}");
        }
        ends
    }
}

#[test]
fn a_client_may_say_how_urgent_a_response_is_before_it_asks_and_while_it_is_sent() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    let mut client = Frames::connect(&serpent);
    client.update(3, "u=0");
    client.update(1, "u=6");
    client.update(1, "u=5");
    client.ask(1, "/small");
    client.ask(3, "/large");
    assert_eq!(client.ends(2, |_| ()), [3, 1], "said before");
    client.ask(5, "/small");
    client.ask(7, "/large");
    assert_eq!(client.ends(2, |_| ()), [5, 7], "a word is for one stream");
    client.ask(9, "/large");
    client.ask(11, "/also-large");
    assert_eq!(client.ends(2, |client| client.update(11, "u=1")), [11, 9], "said while it is sent");
    // `Priority` of the response overrides the client's frame.
    client.ask(13, "/late/large");
    client.ask(15, "/small");
    assert_eq!(client.ends(2, |client| client.update(13, "u=0")), [15, 13]);
}

#[test]
fn a_frame_about_a_priority_that_no_client_may_send_ends_the_connection() {
    let folder = folder();
    let serpent = start(&folder, PACED);
    let said = |stream: u32| [&stream.to_be_bytes()[..], b"u=0"].concat();
    for (on, payloads, code) in [
        (1, vec![said(1)], 1),
        (0, vec![said(0)], 1),
        (0, vec![said(2)], 1),
        (0, vec![vec![0, 0, 1]], 6),
        // More streams than the client may open at once.
        (0, (0..129).map(|stream| said(2 * stream + 1)).collect(), 1),
    ] {
        let mut client = Frames::connect(&serpent);
        for payload in &payloads {
            client.send(PRIORITY_UPDATE, 0, on, payload);
        }
        let payload = loop {
            let (kind, _, _, payload) = client.next();
            if kind == 7 {
                break payload;
            }
        };
        assert_eq!(payload[4..8], [0, 0, 0, code], "{on} {:?}", payloads[0]);
        let mut rest = Vec::new();
        client.0.read_to_end(&mut rest).unwrap();
    }
}
