//! HTTP/2, with prior knowledge and over TLS.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use scheduler::{admission::ResourceId, class::ClassId};
use serpent_server::{
    admission::Arrival,
    config::{
        Access, CgiConfig, Config, Filter, HeaderRules, Listen, LogChoice, Origin, PathPattern, Route, RouteLimit,
    },
};
use tokio::net::TcpStream;

use crate::harness::{Client as Client1, Running, certificate, config, plain, root, site};

/// Runs a server, and beside it a client's runtime, whose connections end with it.
fn serve(config: Config, client: impl AsyncFnOnce(&Running)) {
    let server = Running::start(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(client(&server));
    drop(runtime);
}

type Client = SendRequest<Full<Bytes>>;

async fn connect(address: SocketAddr) -> (Client, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(address).await.expect("connected");
    let (client, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("an HTTP/2 connection");
    (client, tokio::spawn(connection))
}

fn get(target: &str) -> Request<Full<Bytes>> {
    Request::get(target).body(Full::default()).expect("a request")
}

async fn answer(client: &mut Client, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let response = client.send_request(request).await.expect("a response");
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.headers()["server"], "serpent");
    (response.status(), response.into_body().collect().await.expect("a whole body").to_bytes())
}

#[test]
fn prior_knowledge() {
    let root = root();
    let config = config(root.path());
    serve(config, async |server| {
        let (mut client, _) = connect(server.addresses[0]).await;
        for _ in 0..3 {
            assert_eq!(answer(&mut client, get("http://x/a.txt")).await, (StatusCode::OK, Bytes::from("file a\n")));
        }
        assert_eq!(answer(&mut client, get("http://x/none")).await.0, StatusCode::NOT_FOUND);
        let (status, body) = answer(&mut client, get("http://x/big.bin")).await;
        assert_eq!((status, body.len()), (StatusCode::OK, 8 << 20));
    });
}

#[test]
fn many_streams_at_once() {
    let root = root();
    let config = config(root.path());
    serve(config, async |server| {
        let (client, _) = connect(server.addresses[0]).await;
        let tasks: Vec<_> = (0..100)
            .map(|at| {
                let mut client = client.clone();
                let target = if at % 10 == 0 { "http://x/big.bin" } else { "http://x/a.txt" };
                tokio::spawn(async move { answer(&mut client, get(target)).await.1.len() })
            })
            .collect();
        for (at, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.expect("no panic"), if at % 10 == 0 { 8 << 20 } else { 7 }, "{at}");
        }
    });
}

#[test]
fn bodies_and_their_limit() {
    let root = root();
    let mut config = config(root.path());
    config.limits.request_body_bytes = 1000;
    serve(config, async |server| {
        let (mut client, _) = connect(server.addresses[0]).await;
        for (bytes, status) in [(1000, StatusCode::OK), (1001, StatusCode::PAYLOAD_TOO_LARGE), (10, StatusCode::OK)] {
            let request = Request::get("http://x/a.txt").body(Full::from(vec![0; bytes])).expect("a request");
            assert_eq!(answer(&mut client, request).await.0, status, "{bytes}");
        }
    });
}

#[test]
fn a_host_that_differs_from_the_authority_is_refused() {
    let root = root();
    let config = config(root.path());
    serve(config, async |server| {
        let (mut client, _) = connect(server.addresses[0]).await;
        let ask =
            |host: &str| Request::get("http://x/a.txt").header("host", host).body(Full::default()).expect("a request");
        assert_eq!(answer(&mut client, ask("X")).await.0, StatusCode::OK);
        assert_eq!(answer(&mut client, ask("y")).await.0, StatusCode::BAD_REQUEST);
        assert_eq!(answer(&mut client, get("http://x/a.txt")).await.0, StatusCode::OK, "the connection goes on");
    });
}

#[test]
fn a_head_is_held_against_the_standard_as_in_http1() {
    let root = root();
    let mut config = config(root.path());
    config.limits.request_headers = 20;
    serve(config, async |server| {
        let (mut client, _) = connect(server.addresses[0]).await;
        for target in ["http://x?q", "http://x:y/a.txt", "http://u@x/a.txt"] {
            let answered = client.send_request(get(target)).await;
            let refused = answered.map_or_else(|error| error.is_user(), |it| it.status() != StatusCode::BAD_REQUEST);
            assert!(!refused, "{target} is taken");
        }
        let fields = |name: &'static str, count: usize| {
            let mut request = get("http://x/a.txt");
            for at in 0..count {
                let name = if name == "cookie" { name.to_owned() } else { format!("{name}{at}") };
                let name = http::HeaderName::try_from(name).expect("a name");
                request.headers_mut().append(name, "a=b".parse().expect("a value"));
            }
            request
        };
        assert_eq!(answer(&mut client, fields("x-", 20)).await.0, StatusCode::OK);
        assert_eq!(answer(&mut client, fields("x-", 21)).await.0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(answer(&mut client, fields("cookie", 50)).await.0, StatusCode::OK, "one cookie in each");
        assert_eq!(answer(&mut client, get("http://x/a.txt")).await.0, StatusCode::OK, "the connection goes on");
    });
}

/// A frame of HTTP/2 with a payload shorter than 256 bytes.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    [&[0, 0, len, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Type and payload of each frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [l0, l1, l2, kind, _, _, _, _, _, rest @ ..] = bytes {
        let len = usize::from(*l0) << 16 | usize::from(*l1) << 8 | usize::from(*l2);
        frames.push((*kind, &rest[..len]));
        bytes = &rest[len..];
    }
    frames
}

#[test]
fn a_flood_of_control_frames_ends_the_connection_and_no_other() {
    let root = root();
    let mut config = config(root.path());
    config.admin = Some(([127, 0, 0, 1], 0).into());
    serve(config, async |server| {
        let (mut client, _) = connect(server.addresses[0]).await;
        let floods = [
            frame(6, 0, 0, b"12345678"),
            frame(6, 1, 0, b"12345678"),
            frame(4, 0, 0, b""),
            frame(2, 0, 1, b"\0\0\0\0\x10"),
            frame(8, 0, 0, b"\0\0\0\x01"),
            frame(0xfa, 0, 0, b""),
        ];
        for flood in &floods {
            let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, b""), flood.repeat(100_000)];
            let mut stream = std::net::TcpStream::connect(server.addresses[0]).expect("connected");
            let mut reader = stream.try_clone().expect("a second handle");
            let got = std::thread::spawn(move || {
                let mut got = Vec::new();
                // The bytes that came before a reset count.
                let _ = std::io::Read::read_to_end(&mut reader, &mut got);
                got
            });
            let _ = std::io::Write::write_all(&mut stream, &sent.concat());
            let got = got.join().expect("no panic");
            assert_eq!(frames(&got).last(), Some(&(7, &b"\0\0\0\0\0\0\0\x0b"[..])), "{:?}", &flood[..9]);
        }
        assert_eq!(answer(&mut client, get("http://x/a.txt")).await.0, StatusCode::OK, "others go on");
        let mut metrics = Client1::connect(server.admin.expect("an address"));
        metrics.send("GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let line = format!("serpent_http2_floods_total {}\n", floods.len());
        assert!(metrics.rest().contains(&line), "{line}");
    });
}

#[test]
fn what_is_refused_has_no_body_for_head() {
    let root = root();
    let mut config = config(root.path());
    // A request that gets no slot at once is refused.
    config.classes.admission.enabled = true;
    config.classes.admission.total = NonZeroU32::new(1);
    config.classes.classes[0].given.most_waiting = 0;
    config.sites[0].routes = vec![Route {
        name: "/busy".to_owned(),
        pattern: PathPattern::Prefix("/busy".to_owned()),
        filter: Filter::default(),
        origin: Origin::Cgi(CgiConfig {
            program: root.path().to_owned(),
            interpreter: None,
            environment: Vec::new(),
            pass_environment: Vec::new(),
            timeout: Duration::from_secs(10),
            head_bytes: 4096,
            most_running: NonZeroU32::MIN,
        }),
        resource: ResourceId(0),
        admitted: true,
        request_headers: HeaderRules::default(),
        response_headers: HeaderRules::default(),
        compression: None,
        expires: None,
        cors: None,
        access: Access::default(),
        limit: RouteLimit::OfSite,
        try_files: Vec::new(),
        fallback: None,
        listing: None,
        request_body_bytes: None,
        early_hints: false,
        internal: false,
        replaces_errors: true,
        cache: None,
        maintenance: true,
        access_log: LogChoice::Outer,
    }];
    serve(config, async |server| {
        let arrival = Arrival { class: ClassId(0), resource: ResourceId(0), client: 1, route: 1, within: None };
        let slot = server.handle.admission().enter(arrival).await.expect("a slot");
        let (mut client, _) = connect(server.addresses[0]).await;
        for (path, host, status) in [
            ("/busy", "x", StatusCode::SERVICE_UNAVAILABLE),
            ("/none", "x", StatusCode::NOT_FOUND),
            ("/a.txt", "y", StatusCode::BAD_REQUEST),
        ] {
            let request = Request::head(format!("http://x{path}")).header("host", host).body(Full::default());
            let response = client.send_request(request.expect("a request")).await.expect("a response");
            assert_eq!(response.status(), status, "{path}");
            assert_ne!(response.headers()["content-length"], "0", "as long as for GET: {path}");
            let body = response.into_body().collect().await.expect("nothing but its end").to_bytes();
            assert!(body.is_empty(), "{path}: {body:?}");
        }
        drop(slot);
    });
}

#[test]
fn an_idle_connection_is_asked_to_end() {
    let root = root();
    let mut config = config(root.path());
    config.limits.idle_timeout = Duration::from_millis(100);
    serve(config, async |server| {
        let (mut client, connection) = connect(server.addresses[0]).await;
        answer(&mut client, get("http://x/a.txt")).await;
        connection.await.expect("no panic").expect("closed in order");
    });
}

#[test]
fn a_stop_finishes_streams_under_way() {
    let root = root();
    let config = config(root.path());
    serve(config, async |server| {
        let (mut client, connection) = connect(server.addresses[0]).await;
        let response = client.send_request(get("http://x/big.bin")).await.expect("a response");
        server.handle.shutdown();
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        assert_eq!(body.len(), 8 << 20);
        connection.await.expect("no panic").expect("closed in order");
    });
}

#[test]
fn alpn_chooses_http2() {
    let root = root();
    let (files, trust) = certificate(root.path(), "one", &["one.example"]);
    let mut config = config(root.path());
    config.listen = vec![Listen { tls: true, ..plain() }];
    config.sites = vec![site(root.path(), &["one.example"], Some(files))];
    serve(config, async |server| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trust).expect("a certificate");
        let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TcpStream::connect(server.addresses[0]).await.expect("connected");
        let name = "one.example".try_into().expect("a name");
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, stream).await.expect("a handshake");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let (mut client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::get("https://one.example/a.txt").body(Empty::<Bytes>::new()).expect("a request");
        let response = client.send_request(request).await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
    });
}

#[test]
fn a_client_that_does_not_answer_does_not_hold_up_a_stop() {
    let root = root();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = Running::start(config(root.path()));
    runtime.block_on(async {
        let (mut client, _) = connect(server.addresses[0]).await;
        answer(&mut client, get("http://x/a.txt")).await;
    });
    // From here on the client's side of the connection is not driven, and stays open.
    server.handle.shutdown();
    server.wait();
}
