//! Tests with heads and bodies that two servers could read differently. The server refuses them, or sends
//! them on in a form that can be read in only one way. The bytes that the upstream gets are compared exactly.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
};

use super::support::{PATIENCE, Serpent};

/// An upstream that takes all bytes of a connection for one request, answers it, and reports every byte.
///
/// It knows nothing of framing: a request is complete when the marker has come. Further bytes before the
/// other side closes the connection are reported too.
struct Recorder {
    address: SocketAddr,
    heard: Receiver<String>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let text = record(stream);
                    // Connections without data are health checks, or were not needed.
                    if !text.is_empty() {
                        let _ = sender.send(text);
                    }
                });
            }
        });
        Self { address, heard }
    }

    /// Returns the next request. A body that is not collected first and is broken off arrives up to the
    /// break, and without its end.
    fn next(&self) -> String {
        loop {
            let text = self.heard.recv_timeout(PATIENCE).expect("a request for the upstream");
            let broken = text.contains("\r\ntransfer-encoding: chunked\r\n") && !text.ends_with("\r\n0\r\n\r\n");
            if !broken {
                return text;
            }
            assert!(text.ends_with("\r\n\r\n1\r\n!\r\n"), "{text:?}");
        }
    }
}

fn record(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let mut answered = false;
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
        let whole = |end: &[u8]| bytes.ends_with(end);
        let head = String::from_utf8_lossy(&bytes).to_lowercase();
        let ended = if head.contains("transfer-encoding") {
            whole(b"0\r\n\r\n")
        } else if head.contains("content-length") && !head.contains("content-length: 0") {
            whole(END.as_bytes())
        } else {
            whole(b"\r\n\r\n")
        };
        if ended && !answered {
            answered = true;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// The end of every body here.
const END: &str = "!";

/// A hidden request behind every request, as a client would smuggle it past the server.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

enum Expected {
    /// Refused with this status. The connection ends, and the upstream gets nothing.
    Refused(u16),
    /// Sent on. The fields are the first line, the client's fields that frame the body, and the body, as the
    /// upstream gets them.
    Seen(&'static str, &'static [&'static str], &'static str),
}
use Expected::{Refused, Seen};

fn corpus() -> Vec<(&'static str, Expected)> {
    const NONE: &[&str] = &[];
    vec![
        // Requests with two framings.
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG",
            Refused(400),
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\nG",
            Refused(400),
        ),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 1\r\n\r\n!", Refused(400)),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Refused(400),
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\ncontent-length: 1\r\n\r\n!", Refused(501)),
        // Codings that are not chunked, or only look like it.
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", Refused(501)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n", Refused(501)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        // Lengths that are not numbers.
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1_0\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551617\r\n\r\n!", Refused(400)),
        // Lines that some servers end elsewhere, and names that some servers read differently.
        ("POST / HTTP/1.1\r\nhost: a\r\nx: y\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\n host: a\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length\r\n : 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent length: 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\n: 1\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\nhost: a\ncontent-length: 1\n\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\ncontent-length: 1\r\n\r\n!", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: y\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: y\rtransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: y\0z\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a, b\r\n\r\n", Refused(400)),
        ("GET  / HTTP/1.1\r\nhost: a\r\n\r\n", Refused(400)),
        ("GET / HTTP/1.1 HTTP/1.1\r\nhost: a\r\n\r\n", Refused(400)),
        ("GET / HTTP/1.1\r\rhost: a\r\n\r\n", Refused(400)),
        // Chunks with sizes that some servers read differently, and ends that some servers find elsewhere.
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\n!\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n!\r\n0\r\n\r\n", Refused(400)),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n10000000000000001\r\n!\r\n0\r\n\r\n",
            Refused(400),
        ),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\n!\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;x\n!\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n!!\r\n0\r\n\r\n", Refused(400)),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n!\r\n\r\n0\r\n\r\n", Refused(400)),
        // Requests that are sent on, with one framing made by the server.
        ("GET /a HTTP/1.1\r\nhost: a\r\n\r\n", Seen("GET /a HTTP/1.1", NONE, "")),
        (
            "GET /b HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            Seen("GET /b HTTP/1.1", &["content-length: 0"], ""),
        ),
        (
            "GET /c HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n!",
            Seen("GET /c HTTP/1.1", &["content-length: 1"], "!"),
        ),
        (
            "POST /d HTTP/1.1\r\nhost: a\r\ncontent-length: 001\r\n\r\n!",
            Seen("POST /d HTTP/1.1", &["content-length: 1"], "!"),
        ),
        (
            "POST /e HTTP/1.1\r\nhost: a\r\nTransfer-Encoding:\tCHUNKED \r\n\r\n1;x=\"y\"\r\n!\r\n00\r\n\r\n",
            Seen("POST /e HTTP/1.1", &["transfer-encoding: chunked"], "1\r\n!\r\n0\r\n\r\n"),
        ),
        (
            // A body that looks like a request is a body.
            "POST /f HTTP/1.1\r\nhost: a\r\ncontent-length: 38\r\n\r\nGET /hidden HTTP/1.1\r\nhost: hidden\r\n\r!",
            Seen("POST /f HTTP/1.1", &["content-length: 38"], "GET /hidden HTTP/1.1\r\nhost: hidden\r\n\r!"),
        ),
        (
            // A client cannot remove the field that frames the message.
            "POST /g HTTP/1.1\r\nhost: a\r\nconnection: content-length\r\ncontent-length: 1\r\n\r\n!",
            Seen("POST /g HTTP/1.1", &["content-length: 1"], "!"),
        ),
        (
            "POST /h HTTP/1.1\r\nhost: a\r\nconnection: transfer-encoding, host\r\ntransfer-encoding: chunked\r\n\r\n1\r\n!\r\n0\r\n\r\n",
            Seen("POST /h HTTP/1.1", &["transfer-encoding: chunked"], "1\r\n!\r\n0\r\n\r\n"),
        ),
        (
            // A client cannot add a framing that only some servers read: these fields are sent on without a
            // meaning.
            "GET /i HTTP/1.1\r\nhost: a\r\ncontent_length: 5\r\ntransfer_encoding: chunked\r\n\r\n",
            Seen("GET /i HTTP/1.1", &["content_length: 5", "transfer_encoding: chunked"], ""),
        ),
        ("GET http://b/j HTTP/1.1\r\nhost: a\r\n\r\n", Seen("GET /j HTTP/1.1", NONE, "")),
    ]
}

/// Sends a request and the hidden one behind it. Returns all answers.
fn answered(serpent: &Serpent, request: &str) -> String {
    let mut client = serpent.connect();
    let _ = client.write_all(format!("{request}{HIDDEN}").as_bytes());
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_two_servers_could_read_differently_is_read_in_one_way() {
    all_is_read_in_one_way(true);
}

#[test]
fn the_same_of_bodies_that_are_not_collected_first() {
    all_is_read_in_one_way(false);
}

fn all_is_read_in_one_way(collected: bool) {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start();
    let file = folder.path().join("serpent.toml");
    fs::write(
        &file,
        format!(
            "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[[upstream]]\nname = \"app\"\nservers = [\"http://{}\"]\n\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer-request = {collected}\n",
            recorder.address
        ),
    )
    .unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap()]);
    let sent_on = |first: &str, host: &str, fields: &[&str], body: &str| {
        let mut lines: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        lines.extend([
            format!("forwarded: for=127.0.0.1;host={host};proto=http"),
            format!("host: {host}"),
            "x-forwarded-for: 127.0.0.1".to_owned(),
            "via: 1.1 serpent".to_owned(),
            format!("x-forwarded-host: {host}"),
            "x-forwarded-proto: http".to_owned(),
        ]);
        lines.sort();
        (first.to_owned(), lines, body.to_owned())
    };
    let parsed = |text: String| {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let mut lines = head.split("\r\n").map(str::to_owned);
        let first = lines.next().unwrap();
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        (first, lines, body.to_owned())
    };
    for (request, expected) in corpus() {
        let answer = answered(&serpent, request);
        match expected {
            // If the body is not collected first, the upstream gets the head, and never the end.
            Refused(_) if !collected && request.contains("chunked\r\n\r\n") && !answer.is_empty() => {
                assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 0, "{request:?}: {answer:?}");
            }
            Refused(status) => {
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{request:?}: {answer:?}");
                // No other request came before this one.
                answered(&serpent, "GET /canary HTTP/1.1\r\nhost: canary\r\nconnection: close\r\n\r\n");
                assert_eq!(parsed(recorder.next()), sent_on("GET /canary HTTP/1.1", "canary", &[], ""), "{request:?}");
            }
            Seen(first, fields, body) => {
                // A collected body has a length.
                let (fields, body) = match body.strip_suffix("\r\n0\r\n\r\n") {
                    Some(chunk) if collected => (&["content-length: 1"][..], chunk.trim_start_matches("1\r\n")),
                    _ => (fields, body),
                };
                let host = if request.contains("http://b/") { "b" } else { "a" };
                // The hidden request is a request of its own, visible to everyone. The two arrive over two
                // connections.
                let mut heard = [parsed(recorder.next()), parsed(recorder.next())];
                heard.sort_by_key(|(first, ..)| first.contains(" /hidden "));
                let hidden = sent_on("GET /hidden HTTP/1.1", "a", &[], "");
                assert_eq!(heard, [sent_on(first, host, fields, body), hidden], "{request:?}");
                assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{request:?}: {answer:?}");
            }
        }
    }
}
