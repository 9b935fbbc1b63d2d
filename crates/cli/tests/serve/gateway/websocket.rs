//! WebSockets where one side or both speak HTTP/2 (RFC 8441), and interim responses of upstreams that speak it.

use std::future::{Future, poll_fn};

use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use h2::{RecvStream, SendStream, client, ext::Protocol, server};
use http::{Method, Request, Response, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream as Stream},
    runtime::Builder,
    time::timeout,
};

use super::*;
use crate::support::certificate;

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, future).await.expect("it does not wait for ever") })
}

/// The value of `Sec-WebSocket-Accept` for this key (RFC 6455, section 4.2.2).
fn accept(key: &str) -> String {
    let mut digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest.finish())
}

/// The 101 for a request of HTTP/1.1.
fn switching(head: &str) -> String {
    let key = field(head, "sec-websocket-key").expect("a key");
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {}\r\nsec-websocket-protocol: chat\r\n\r\n",
        accept(key)
    )
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Reads a head of HTTP/1.1, and nothing behind it.
async fn head(stream: &mut Stream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A gateway before an upstream at this scheme, whose connections the test takes.
struct Sides {
    serpent: Serpent,
    upstream: TcpListener,
    folder: TempDir,
}

impl Sides {
    async fn start(scheme: &str, more: &str) -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serpent.toml");
        let (before, more) = if more.starts_with("[[site.route]]") { (more, "") } else { ("", more) };
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n\
             [access-log]\ntarget = \"{}\"\nformat = \"json\"\n\
             [[upstream]]\nname = \"app\"\nservers = [\"{scheme}://{}\"]\n\
             [[site]]\n{before}[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{more}",
            folder.path().join("access.log").display(),
            upstream.local_addr().unwrap()
        );
        fs::write(&file, text).unwrap();
        let (serpent, _) = super::start(&file);
        Self { serpent, upstream, folder }
    }

    async fn client(&self) -> Client {
        Client::over(Stream::connect(self.serpent.address()).await.unwrap()).await
    }

    async fn accept(&self) -> Stream {
        self.upstream.accept().await.unwrap().0
    }
}

/// A client of HTTP/2 with one connection.
struct Client(client::SendRequest<Bytes>);

impl Client {
    async fn over(stream: Stream) -> Self {
        let (http, connection) = client::handshake(stream).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        // A client may ask for another protocol when the server has said that it may.
        while !http.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        Self(http)
    }

    /// Asks for a protocol.
    fn ask(&mut self, path: &str, protocol: &'static str) -> (client::ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::builder().method(Method::CONNECT).uri(format!("http://site.example{path}"));
        request = request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "chat");
        let mut request = request.body(()).unwrap();
        request.extensions_mut().insert(Protocol::from_static(protocol));
        self.0.send_request(request, false).unwrap()
    }

    async fn status(&mut self, path: &str, protocol: &'static str) -> u16 {
        self.ask(path, protocol).0.await.unwrap().status().as_u16()
    }
}

/// Reads so many bytes.
async fn read(body: &mut RecvStream, bytes: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < bytes {
        let data = body.data().await.expect("more").unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        got.extend_from_slice(&data);
    }
    got
}

/// Waits for the end of a body, before which nothing comes.
async fn ended(body: &mut RecvStream) {
    while let Some(Ok(data)) = body.data().await {
        assert!(data.is_empty(), "{data:?}");
    }
}

async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        stream.send_data(bytes.split_to(room.min(bytes.len())), false).unwrap();
    }
}

/// The next stream that a server of HTTP/2 takes, over a connection that goes on in a task.
async fn served(
    stream: Stream,
    protocols: bool,
) -> tokio::sync::mpsc::Receiver<(Request<RecvStream>, server::SendResponse<Bytes>)> {
    let mut builder = server::Builder::new();
    if protocols {
        builder.enable_connect_protocol();
    }
    let mut http = builder.handshake(stream).await.unwrap();
    let (sender, streams) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        while let Some(Ok(stream)) = http.accept().await {
            let _ = sender.send(stream).await;
        }
    });
    streams
}

#[test]
fn a_websocket_over_http2_passes_to_an_upstream_of_http1() {
    run(async {
        let classes = "limit = { at-once = 1 }\n[[class]]\nname = \"all\"\n[admission]\nslots = 1\n";
        let sides = Sides::start("http", classes).await;
        let mut client = sides.client().await;
        let (response, mut sends) = client.ask("/ws?a=b", "websocket");
        let mut upstream = sides.accept().await;
        let asked = head(&mut upstream).await;
        assert!(
            asked.starts_with("GET /ws?a=b HTTP/1.1\r\nhost: site.example\r\n") || asked.contains("GET /ws?a=b"),
            "{asked}"
        );
        for (name, value) in [("upgrade", "websocket"), ("sec-websocket-version", "13"), ("via", "2.0 serpent")] {
            assert_eq!(field(&asked, name), Some(value), "{asked}");
        }
        upstream.write_all(format!("{}early", switching(&asked)).as_bytes()).await.unwrap();
        let response = response.await.unwrap();
        assert_eq!(
            (response.status(), response.headers()["sec-websocket-protocol"].as_bytes()),
            (StatusCode::OK, &b"chat"[..])
        );
        assert!(!response.headers().contains_key("sec-websocket-accept"), "{:?}", response.headers());
        let mut body = response.into_body();
        assert_eq!(read(&mut body, 5).await, b"early");
        send(&mut sends, Bytes::from_static(b"GET / is no request here")).await;
        let mut got = [0; 24];
        upstream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"GET / is no request here");
        // It counts as a request of its client, and holds no slot.
        assert_eq!(client.status("/", "websocket").await, 429);
        // Much in both directions at once.
        let (mut reads, mut writes) = upstream.into_split();
        let sent = tokio::spawn(async move {
            writes.write_all(&big()).await.unwrap();
            writes
        });
        let taken = tokio::spawn(async move {
            let mut got = vec![0; big().len()];
            reads.read_exact(&mut got).await.unwrap();
            (got, reads)
        });
        let sending = tokio::spawn(async move {
            send(&mut sends, big().into()).await;
            sends
        });
        assert!(read(&mut body, big().len()).await == big());
        let (got, mut reads) = taken.await.unwrap();
        assert!(got == big());
        // The client ends its side, then the upstream.
        sending.await.unwrap().send_data(Bytes::new(), true).unwrap();
        assert_eq!(reads.read(&mut [0; 8]).await.unwrap(), 0);
        let mut writes = sent.await.unwrap();
        writes.write_all(b"end").await.unwrap();
        drop((reads, writes));
        assert_eq!(read(&mut body, 3).await, b"end");
        ended(&mut body).await;
        let log = || fs::read_to_string(sides.folder.path().join("access.log")).unwrap();
        while !log().contains("/ws?a=b") {
            tokio::task::yield_now().await;
        }
        assert!(log().contains("\"method\":\"GET\"") && log().contains("\"status\":200"), "{}", log());

        // A stream that is reset closes the connection to the upstream.
        let (response, mut sends) = client.ask("/again", "websocket");
        let mut upstream = sides.accept().await;
        let asked = head(&mut upstream).await;
        upstream.write_all(switching(&asked).as_bytes()).await.unwrap();
        drop(response.await.unwrap());
        sends.send_reset(h2::Reason::CANCEL);
        assert_eq!(upstream.read(&mut [0; 8]).await.unwrap(), 0);
    });
}

#[test]
fn a_websocket_over_http2_that_no_upstream_takes_is_none() {
    run(async {
        let sides = Sides::start("http", "[[site.route]]\npath = \"/page\"\nrespond = 200\n").await;
        let mut client = sides.client().await;
        for (answer, expected) in [
            ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", 403),
            ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage", 501),
            (
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: no\r\n\r\n",
                502,
            ),
        ] {
            let (response, _sends) = client.ask("/ws", "websocket");
            let mut upstream = sides.accept().await;
            head(&mut upstream).await;
            upstream.write_all(answer.as_bytes()).await.unwrap();
            drop(upstream);
            assert_eq!(response.await.unwrap().status(), expected, "{answer}");
        }
        assert_eq!(client.status("/page", "websocket").await, 501);
        assert_eq!(client.status("/ws", "connect-udp").await, 501);
    });
}

#[test]
fn a_silent_websocket_over_http2_ends_and_all_of_them_end_with_the_server() {
    for more in ["idle-timeout = \"200ms\"\n", ""] {
        run(async {
            let sides = Sides::start("http", more).await;
            let mut client = sides.client().await;
            let (response, _sends) = client.ask("/ws", "websocket");
            let mut upstream = sides.accept().await;
            let asked = head(&mut upstream).await;
            upstream.write_all(switching(&asked).as_bytes()).await.unwrap();
            let mut body = response.await.unwrap().into_body();
            if more.is_empty() {
                sides.serpent.signal(Signal::TERM);
            }
            ended(&mut body).await;
            assert_eq!(upstream.read(&mut [0; 8]).await.unwrap(), 0);
            if more.is_empty() {
                let (status, said) = tokio::task::spawn_blocking(|| sides.serpent.wait()).await.unwrap();
                assert!(status.success(), "{said}");
            }
        });
    }
}

#[test]
fn a_websocket_passes_to_an_upstream_of_http2_if_that_takes_it() {
    run(async {
        // From HTTP/2.
        let sides = Sides::start("h2c", "").await;
        let mut client = sides.client().await;
        let (response, mut sends) = client.ask("/ws", "websocket");
        let mut streams = served(sides.accept().await, true).await;
        let echo = |request: Request<RecvStream>, mut respond: server::SendResponse<Bytes>| async move {
            assert_eq!(request.method(), Method::CONNECT);
            assert_eq!(request.extensions().get::<Protocol>().map(Protocol::as_str), Some("websocket"));
            assert!(!request.headers().contains_key("sec-websocket-key"), "{:?}", request.headers());
            let head = Response::builder().header("sec-websocket-protocol", "chat").body(()).unwrap();
            let mut answers = respond.send_response(head, false).unwrap();
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                send(&mut answers, data).await;
            }
            answers.send_data(Bytes::new(), true).unwrap();
        };
        let (request, respond) = streams.recv().await.unwrap();
        tokio::spawn(echo(request, respond));
        let response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = response.into_body();
        let sending = tokio::spawn(async move {
            send(&mut sends, big().into()).await;
            sends.send_data(Bytes::new(), true).unwrap();
        });
        assert!(read(&mut body, big().len()).await == big());
        ended(&mut body).await;
        sending.await.unwrap();

        // From HTTP/1.1, which gets the answer to its key.
        let mut client = Stream::connect(sides.serpent.address()).await.unwrap();
        let ask = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
        client.write_all(ask.as_bytes()).await.unwrap();
        let (request, respond) = streams.recv().await.unwrap();
        tokio::spawn(echo(request, respond));
        let answer = head(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert_eq!(field(&answer, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
        assert_eq!(field(&answer, "upgrade"), Some("websocket"), "{answer}");
        client.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");

        // An upstream that takes no other protocols.
        let sides = Sides::start("h2c", "").await;
        let mut client = sides.client().await;
        let (response, _sends) = client.ask("/ws", "websocket");
        let _streams = served(sides.accept().await, false).await;
        assert_eq!(response.await.unwrap().status(), StatusCode::BAD_GATEWAY);
    });
}

#[test]
fn interim_responses_of_an_upstream_of_http2_come_to_clients_of_both_versions() {
    if tool("curl").is_none() {
        return;
    }
    run(async {
        let sides = Sides::start("h2c", "response-headers = { remove = [\"x-internal\"] }\n").await;
        let url = sides.serpent.url("/");
        let mut streams = None;
        for (args, expected) in [
            ("--http1.1", "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n"),
            ("--http2-prior-knowledge", "HTTP/2 103 \r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/2 200 \r\n"),
        ] {
            let url = url.clone();
            let client = tokio::task::spawn_blocking(move || curl(&["--include", args, &url]).unwrap());
            if streams.is_none() {
                streams = Some(served(sides.accept().await, false).await);
            }
            let (_, mut respond) = streams.as_mut().unwrap().recv().await.unwrap();
            let hints = Response::builder().status(103).header("link", "</a.css>; rel=preload");
            let hints = hints.header("server", "origin").header("x-internal", "1").body(()).unwrap();
            respond.send_informational(hints).unwrap();
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            let answer = client.await.unwrap();
            assert!(answer.starts_with(expected) && answer.ends_with("\r\n\r\nok"), "{answer}");
        }
    });
}

#[test]
fn a_client_of_http2_that_waits_with_its_body_is_asked_for_it_or_refused() {
    run(async {
        let more = "[[site.route]]\npath = \"/small\"\nupstream = \"app\"\nrequest-body = \"3B\"\n\
             [[site.route]]\npath = \"/closed\"\nupstream = \"app\"\ndeny = [\"0.0.0.0/0\"]\n\
             [[site.route]]\npath = \"/streamed\"\nupstream = \"app\"\nbuffer-request = false\n";
        let sides = Sides::start("h2c", more).await;
        let mut client = sides.client().await;
        let mut ask = |path: &str| {
            let request = Request::post(format!("http://site.example{path}")).header("expect", "100-continue");
            client.0.send_request(request.header("content-length", "4").body(()).unwrap(), false).unwrap()
        };
        for (path, status) in [("/small", 413), ("/closed", 403)] {
            let (mut response, _sends) = ask(path);
            let told = poll_fn(|cx| response.poll_informational(cx)).await;
            assert!(told.is_none(), "{told:?}");
            assert_eq!(response.await.unwrap().status(), status, "{path}");
        }
        // Read here, or asked for by the upstream.
        let (mut response, mut sends) = ask("/kept");
        let told = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(told.status(), StatusCode::CONTINUE);
        sends.send_data(Bytes::from_static(b"body"), true).unwrap();
        let mut streams = served(sides.accept().await, false).await;
        let (request, mut respond) = streams.recv().await.unwrap();
        assert!(!request.headers().contains_key("expect"), "{:?}", request.headers());
        assert_eq!(read(&mut request.into_body(), 4).await, b"body");
        respond.send_response(Response::new(()), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);

        let (mut response, mut sends) = ask("/streamed");
        let (request, mut respond) = streams.recv().await.unwrap();
        assert_eq!(request.headers()["expect"], "100-continue");
        respond.send_informational(Response::builder().status(100).body(()).unwrap()).unwrap();
        let told = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(told.status(), StatusCode::CONTINUE);
        sends.send_data(Bytes::from_static(b"body"), true).unwrap();
        assert_eq!(read(&mut request.into_body(), 4).await, b"body");
        respond.send_response(Response::new(()), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);

        let (mut response, _sends) = ask("/streamed");
        let (_request, mut respond) = streams.recv().await.unwrap();
        respond.send_response(Response::builder().status(401).body(()).unwrap(), true).unwrap();
        assert!(poll_fn(|cx| response.poll_informational(cx)).await.is_none());
        assert_eq!(response.await.unwrap().status(), StatusCode::UNAUTHORIZED);
    });
}

/// A page that opens a WebSocket and tells what has come over it.
const PAGE: &str = "<!doctype html><script>
const socket = new WebSocket('wss://' + location.host + '/ws', 'chat');
socket.onmessage = event => fetch('/said?' + event.data);
socket.onerror = () => fetch('/said?error');
socket.onopen = () => socket.send('hello');
</script>";

#[test]
fn a_browser_opens_a_websocket_over_its_http2_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = certificate(folder.path(), "localhost", &["localhost"]);
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(folder.path().join("www/page.html"), PAGE).unwrap();
    let Some(mut chromium) = tool("chromium") else { return };
    let gateway = Gateway::start_as(|origin| {
        let listen = "\"https://127.0.0.1:0\"]";
        let tls = format!("tls-cert = \"{}\"\ntls-key = \"{}\"\n", chain.display(), key.display());
        let route = format!(
            "{tls}root = \"{}\"\n[[site.route]]\npath = \"/page.html\"\nfiles = true\n",
            folder.path().join("www").display()
        );
        let log = format!("[access-log]\ntarget = \"{}\"\nformat = \"json\"\n", folder.path().join("log").display());
        let text = text(origin, "").replacen("\"127.0.0.1:0\"]", listen, 1);
        text.replace("[[site]]\n", &format!("[[site]]\n{route}"))
            .replace("[[upstream]]\n", &format!("{log}[[upstream]]\n"))
    });
    let mut browser = chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--ignore-certificate-errors", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(gateway.serpent.url("/page.html"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut asked = gateway.origin.next();
    while asked.path() != "/ws" {
        asked.answer(b"");
        asked = gateway.origin.next();
    }
    let head = format!("{}\r\n\r\n", asked.head);
    asked.send(switching(&head).as_bytes());
    let mut socket = asked.stream.try_clone().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // A frame of text from a client: two bytes, the mask, and the text.
    let mut frame = [0; 11];
    socket.read_exact(&mut frame).unwrap();
    let text: Vec<u8> = frame[6..].iter().zip(frame[2..6].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    assert_eq!((frame[0], frame[1], &text[..]), (0x81, 0x85, &b"hello"[..]));
    socket.write_all(b"\x81\x04back").unwrap();
    let mut said = gateway.origin.next();
    while !said.path().starts_with("/said") {
        said.answer(b"");
        said = gateway.origin.next();
    }
    assert_eq!(said.path(), "/said?back");
    said.answer(b"");
    browser.kill().unwrap();
    browser.wait().unwrap();
    let start = std::time::Instant::now();
    let line = loop {
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        if let Some(line) = log.lines().find(|line| line.contains("\"target\":\"/ws\"")) {
            break line.to_owned();
        }
        assert!(start.elapsed() < PATIENCE, "no WebSocket in:\n{log}");
        std::thread::yield_now();
    };
    assert!(line.contains("\"protocol\":\"HTTP/2.0\"") && line.contains("\"status\":200"), "{line}");
}
