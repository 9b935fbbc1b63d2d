//! HTTP/2 and TLS.

use std::{
    collections::VecDeque,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use bodies::{ClientBody, IncomingBody};
use http_body::{Body, Frame};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::PrivateKeyDer;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::*;

#[tokio::test]
async fn requests_share_a_connection() {
    let go = Arc::new(tokio::sync::Barrier::new(20));
    let gone = go.clone();
    let peer = Peer::http(move |request| {
        let go = gone.clone();
        async move {
            // All requests must be here at once, or none is answered.
            go.wait().await;
            let authority = request.uri().authority().unwrap().to_string();
            let host = request.headers().contains_key("host");
            Response::new(text(format!("{:?} {authority} {host}", request.version())))
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    let pools = Arc::new(pools);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let pools = pools.clone();
        asking.spawn(async move { asked(&pools, get("/")).await.unwrap().1 });
    }
    while let Some(answer) = asking.join_next().await {
        assert_eq!(answer.unwrap(), format!("HTTP/2.0 {} false", peer.address));
    }
    assert_eq!((peer.connections(), server_stats(&upstreams)[0].connections), (1, 1));
}

#[tokio::test]
async fn beyond_what_a_connection_carries_there_is_another() {
    let go = Arc::new(tokio::sync::Barrier::new(4));
    let gone = go.clone();
    let peer = Peer::raw(move |stream, _| {
        let go = gone.clone();
        async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let go = go.clone();
                async move {
                    if request.uri().path() == "/together" {
                        go.wait().await;
                    }
                    Ok::<_, Infallible>(Response::new(text("ok")))
                }
            });
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(2)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
    .await;
    let (pools, _) = pools(config(vec![http2(at(peer.address))]));
    let pools = Arc::new(pools);
    for _ in 0..2 {
        // By then the server has announced its limit of streams.
        asked(&pools, get("/")).await.unwrap();
    }
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let pools = pools.clone();
        asking.spawn(async move { asked(&pools, get("/together")).await.unwrap() });
    }
    while let Some(answer) = asking.join_next().await {
        answer.unwrap();
    }
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_reset_and_the_others_go_on() {
    let reset = Arc::new(Notify::new());
    let told = reset.clone();
    let peer = Peer::raw(move |stream, _| {
        let reset = told.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                if request.uri().path() == "/endless" {
                    let reset = reset.clone();
                    tokio::spawn(async move {
                        body.send_data(Bytes::from_static(b"part"), false).unwrap();
                        let reason = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
                        assert_eq!(reason, h2::Reason::CANCEL);
                        reset.notify_one();
                    });
                } else {
                    body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                }
            }
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    let endless = pools.send(get("/endless"), defaults()).await.unwrap();
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "ok");
    drop(endless);
    reset.notified().await;
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "ok");
    assert_eq!(peer.connections(), 1);
    assert_eq!((server_stats(&upstreams)[0].in_flight, server_stats(&upstreams)[0].failures), (0, 0));
}

/// Refuses the first stream with `refuse`, and answers all others.
async fn refuses_first(refuse: fn(&mut h2::server::SendResponse<Bytes>)) -> (Peer, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let peer = Peer::raw(move |stream, _| {
        let taken = counted.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                if taken.fetch_add(1, SeqCst) == 0 {
                    refuse(&mut respond);
                } else {
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                }
            }
        }
    })
    .await;
    (peer, taken)
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_whatever_its_method() {
    let (peer, taken) = refuses_first(|respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    assert_eq!(asked(&pools, post("/pay", "100")).await.unwrap().1, "ok");
    assert_eq!((taken.load(SeqCst), server_stats(&upstreams)[0].failures), (2, 0));
    // A stream that ended with another error may have been processed.
    let (peer, taken) = refuses_first(|respond| respond.send_reset(h2::Reason::INTERNAL_ERROR)).await;
    let other = Peer::echo_path().await;
    let (pools, _) = super::pools(config(vec![http2(at(peer.address)), http2(at(other.address))]));
    assert_eq!(reason(&pools, post("/pay", "100")).await, "closed");
    assert_eq!((taken.load(SeqCst), other.connections()), (1, 0));
}

#[tokio::test]
async fn what_a_server_that_goes_away_did_not_process_is_sent_again() {
    // SETTINGS, then a GOAWAY that names no stream (0) or stream 1 as the last one processed.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    for (last, expected) in [(0, Ok("ok")), (1, Err("closed"))] {
        let peer = Peer::raw(move |mut stream, number| async move {
            if number == 0 {
                let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0];
                stream.write_all(SETTINGS).await.unwrap();
                let mut read = Vec::new();
                while !read.ends_with(b"100") {
                    stream.read_buf(&mut read).await.unwrap();
                }
                stream.write_all(&goaway).await.unwrap();
                stream.shutdown().await.unwrap();
                let _ = stream.read_to_end(&mut read).await;
                return;
            }
            serve(stream, |_| async { Response::new(text("ok")) }).await;
        })
        .await;
        let (pools, _) = pools(config(vec![http2(at(peer.address))]));
        let outcome = asked(&pools, post("/pay", "100")).await;
        assert_eq!(outcome.as_ref().map(|(_, body)| body.as_str()).map_err(|error| error.reason()), expected);
        assert_eq!(asked(&pools, get("/")).await.unwrap().1, "ok");
        assert_eq!(peer.connections(), 2);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_anew() {
    let peer = Peer::raw(move |stream, number| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut answered = 0;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            answered += 1;
            if number == 0 && answered == 2 {
                return;
            }
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"ok"), true).unwrap();
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    for _ in 0..4 {
        assert_eq!(asked(&pools, get("/")).await.unwrap().1, "ok");
    }
    assert_eq!(peer.connections(), 2);
    assert_eq!(server_stats(&upstreams)[0].failures, 0);
    until("the old one is closed", || server_stats(&upstreams)[0].connections == 1).await;
}

#[tokio::test]
async fn a_graceful_end_costs_no_request() {
    let ended = Arc::new(Notify::new());
    let told = ended.clone();
    let peer = Peer::raw(move |stream, number| {
        let ended = told.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                if number == 0 {
                    connection.graceful_shutdown();
                }
            }
            ended.notify_one();
        }
    })
    .await;
    let (pools, upstreams) = pools(UpstreamConfig { retries: 0, ..config(vec![http2(at(peer.address))]) });
    assert_eq!(asked(&pools, post("/", "1")).await.unwrap().1, "ok");
    ended.notified().await;
    assert_eq!(asked(&pools, post("/", "2")).await.unwrap().1, "ok");
    assert_eq!((peer.connections(), server_stats(&upstreams)[0].failures), (2, 0));
}

/// A certificate authority, and the files it signed.
struct Paper {
    folder: tempfile::TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Paper {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();
        Self { folder, ca }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.ca).unwrap(), key)
    }

    /// Certificate files for the upstream's configuration.
    fn client(&self, name: &str) -> CertificateFiles {
        let (certificate, key) = self.signed(name);
        let files = CertificateFiles { chain: self.file("client.pem"), key: self.file("client.key"), ocsp: None };
        std::fs::write(&files.chain, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    async fn peer(&self, name: &str, alpn: &[&str], asks_for_certificate: bool) -> Peer {
        let (certificate, key) = self.signed(name);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier: Arc<dyn ClientCertVerifier> = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.der().clone()).unwrap();
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap()
        } else {
            WebPkiClientVerifier::no_client_auth()
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Peer::raw(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let version = |request: Request<Incoming>| async move {
                        Response::new(text(format!("{:?}", request.version())))
                    };
                    serve(stream, version).await;
                }
            }
        })
        .await
    }
}

fn over_tls(peer: &Peer, name: &str, ca: Option<&Path>) -> UpstreamConfig {
    let authority = format!("{name}:{}", peer.address.port()).parse().unwrap();
    let server = UpstreamServer { tls: true, authority, ..at(peer.address) };
    UpstreamConfig { tls_ca: ca.map(Path::to_owned), retries: 0, ..config(vec![server]) }
}

#[tokio::test]
async fn tls_agrees_on_the_version() {
    let paper = Paper::new();
    let ca = paper.file("ca.pem");
    let table: &[(&[&str], Option<bool>, &str)] = &[
        (&["h2", "http/1.1"], None, "HTTP/2.0"),
        (&["http/1.1"], None, "HTTP/1.1"),
        (&[], None, "HTTP/1.1"),
        (&["h2", "http/1.1"], Some(false), "HTTP/1.1"),
        (&["h2", "http/1.1"], Some(true), "HTTP/2.0"),
    ];
    for (alpn, wanted, expected) in table {
        let peer = paper.peer("app.test", alpn, false).await;
        let mut config = over_tls(&peer, "app.test", Some(&ca));
        config.servers[0].http2 = *wanted;
        let (pools, _) = pools(config);
        for _ in 0..3 {
            assert_eq!(asked(&pools, get("/")).await.unwrap().1, *expected);
        }
        assert_eq!(peer.connections(), 1, "{alpn:?} {wanted:?}");
    }
}

#[tokio::test]
async fn certificates_are_checked_unless_the_operator_says_otherwise() {
    let paper = Paper::new();
    let ca = paper.file("ca.pem");
    let peer = paper.peer("app.test", &["http/1.1"], false).await;
    let outcome = async |config: UpstreamConfig| {
        let (pools, _) = pools(config);
        match asked(&pools, get("/")).await {
            Ok(_) => "ok",
            Err(error) => error.reason(),
        }
    };
    assert_eq!(outcome(over_tls(&peer, "app.test", Some(&ca))).await, "ok");
    assert_eq!(outcome(over_tls(&peer, "other.test", Some(&ca))).await, "tls");
    let renamed = UpstreamConfig { tls_name: Some("app.test".to_owned()), ..over_tls(&peer, "other.test", Some(&ca)) };
    assert_eq!(outcome(renamed).await, "ok");
    let other = Paper::new();
    assert_eq!(outcome(over_tls(&peer, "app.test", Some(&other.file("ca.pem")))).await, "tls");
    let unchecked = UpstreamConfig { tls_verify: false, ..over_tls(&peer, "other.test", None) };
    assert_eq!(outcome(unchecked).await, "ok");

    let asking = paper.peer("app.test", &["http/1.1"], true).await;
    let refused = outcome(over_tls(&asking, "app.test", Some(&ca))).await;
    // In TLS 1.3 the client's handshake ends before the server has verified its certificate.
    assert!(matches!(refused, "tls" | "closed"), "{refused}");
    let config = over_tls(&asking, "app.test", Some(&ca));
    assert_eq!(outcome(UpstreamConfig { tls_certificate: Some(paper.client("us.test")), ..config }).await, "ok");
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_told_of() {
    let paper = Paper::new();
    let peer = Peer::echo_path().await;
    let told = |config: UpstreamConfig| Upstreams::new(&[config], &[]).unwrap_err().to_string();
    let missing = told(over_tls(&peer, "app.test", Some(&paper.file("missing.pem"))));
    assert!(missing.contains("upstream `app`") && missing.contains("missing.pem"), "{missing}");
    std::fs::write(paper.file("empty.pem"), "").unwrap();
    let empty = told(over_tls(&peer, "app.test", Some(&paper.file("empty.pem"))));
    assert!(empty.contains("holds no certificate"), "{empty}");
    let unnamed = UpstreamConfig {
        tls_name: Some("no name".to_owned()),
        ..over_tls(&peer, "x.test", Some(&paper.file("ca.pem")))
    };
    assert!(told(unnamed).contains("is no server name"));
}

#[tokio::test]
async fn a_change_of_protocols_goes_over_http1() {
    let paper = Paper::new();
    let ca = paper.file("ca.pem");
    let peer = paper.peer("app.test", &["h2", "http/1.1"], false).await;
    let (pools, _) = pools(over_tls(&peer, "app.test", Some(&ca)));
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "HTTP/2.0");
    let upgrade = Request::get("/").header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(asked(&pools, upgrade.body(RequestBody::Empty).unwrap()).await.unwrap().1, "HTTP/1.1");
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "HTTP/2.0");
}

/// A streamed body of these frames that does not end.
fn open_body(frames: &'static [&'static str]) -> RequestBody {
    let frames = frames.iter().map(|text| Ok::<_, io::Error>(Frame::data(Bytes::from_static(text.as_bytes()))));
    let frames = frames.collect::<VecDeque<_>>();
    RequestBody::streamed(ClientBody::new(IncomingBody::new(OpenBody(frames)), None), u64::MAX)
}

struct OpenBody(VecDeque<io::Result<Frame<Bytes>>>);

impl Body for OpenBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.pop_front().map_or(Poll::Pending, |frame| Poll::Ready(Some(frame)))
    }
}

fn call(body: RequestBody) -> Request<RequestBody> {
    let request =
        Request::post("/try.Try/Chat").version(http::Version::HTTP_2).header("content-type", "application/grpc");
    request.body(body).unwrap()
}

/// As a client of HTTP/2 sends it.
async fn called(pools: &Pools, body: RequestBody, until: Option<Instant>) -> Result<Answer, UpstreamError> {
    let (parts, body) = call(body).into_parts();
    let version = parts.version;
    let outbound = Outbound { version, ..Outbound::from(Request::from_parts(parts, body)) };
    let prepared = pools.prepare(outbound, Ask { until, ..defaults() }, Instant::now())?;
    pools.pass(prepared, &mut drop).await
}

#[tokio::test]
async fn interim_responses_come_over_http2_and_too_many_of_them_are_an_error() {
    for (many, expected) in [(3, Ok("ok")), (101, Err("too_many_interims"))] {
        let peer = Peer::raw(move |stream, _| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let told = |status: u16| {
                    let link = if status == 103 { "</a.css>" } else { "" };
                    Response::builder().status(status).header("link", link).body(()).unwrap()
                };
                respond.send_informational(told(100)).unwrap();
                for _ in 0..many {
                    respond.send_informational(told(103)).unwrap();
                }
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            }
        })
        .await;
        let (pools, _) = pools(config(vec![http2(at(peer.address))]));
        let prepared = pools.prepare(get("/").into(), defaults(), Instant::now()).unwrap();
        let mut told = Vec::new();
        let passed = pools.pass(prepared, &mut |interim| told.push(interim)).await;
        let body = match passed {
            Ok(answer) => Ok(answer.response.into_body().collect().await.unwrap().to_bytes()),
            Err(error) => Err(error.reason()),
        };
        assert_eq!(body.as_deref().map_err(|error| *error), expected.map(str::as_bytes));
        assert!(told.iter().all(|it| it.status() == 103 && it.headers()["link"] == "</a.css>"), "not the 100");
        assert!(told.len() == many || told.len() <= 100, "{}", told.len());
    }
}

#[tokio::test]
async fn a_call_of_grpc_goes_over_http2_where_nothing_else_is_said() {
    let peer = Peer::http(|request| async move { Response::new(text(format!("{:?}", request.version()))) }).await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    for _ in 0..2 {
        let answer = called(&pools, whole("1"), None).await.unwrap();
        assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "HTTP/2.0");
        assert_eq!(asked(&pools, get("/")).await.unwrap().1, "HTTP/1.1", "other requests are not");
    }
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_refused_call_is_sent_again_with_what_was_read_of_its_body() {
    let (peer, taken) = refuses_first(|respond| respond.send_reset(h2::Reason::REFUSED_STREAM)).await;
    let (pools, _) = pools(config(vec![http2(at(peer.address))]));
    let answer = called(&pools, open_body(&["one", "two"]), None).await.unwrap();
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "ok");
    assert_eq!(taken.load(SeqCst), 2);

    // The second attempt gets the whole body.
    let refuses = Peer::raw(move |stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut refused = 0;
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut body = request.into_body();
            tokio::spawn(async move {
                let mut read = Vec::new();
                while read.len() < 6 {
                    let data = body.data().await.unwrap().unwrap();
                    read.extend_from_slice(&data);
                }
                if refused == 0 {
                    return respond.send_reset(h2::Reason::REFUSED_STREAM);
                }
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data(read.into(), true).unwrap();
            });
            refused += 1;
        }
    })
    .await;
    let (pools, _) = super::pools(config(vec![http2(at(refuses.address))]));
    let answer = called(&pools, open_body(&["one", "two"]), None).await.unwrap();
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "onetwo");
    // Too much of it is gone.
    static LONG: &str = match std::str::from_utf8(&[b'a'; 60_000]) {
        Ok(text) => text,
        Err(_) => "",
    };
    static FRAMES: [&str; 2] = [LONG, LONG];
    let late = Peer::raw(|stream, _| async move {
        let mut connection =
            h2::server::Builder::new().initial_window_size(200_000).handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut body = request.into_body();
            tokio::spawn(async move {
                let mut read = 0;
                while read < 65_000 {
                    read += body.data().await.unwrap().unwrap().len();
                    let _ = body.flow_control().release_capacity(60_000);
                }
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            });
        }
    })
    .await;
    let (pools, _) = super::pools(config(vec![http2(at(late.address))]));
    let error = called(&pools, open_body(&FRAMES), None).await.unwrap_err();
    assert_eq!(error.reason(), "closed");
}

#[tokio::test]
async fn no_server_is_blamed_for_the_time_that_its_client_gives() {
    let peer = Peer::raw(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut open = Vec::new();
        while let Some(Ok(accepted)) = connection.accept().await {
            open.push(accepted);
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    for _ in 0..4 {
        let until = Some(Instant::now() + Duration::from_millis(20));
        let error = called(&pools, open_body(&["one"]), until).await.unwrap_err();
        assert!(matches!(&error, UpstreamError::Request(error) if error.kind() == io::ErrorKind::TimedOut), "{error}");
    }
    assert_eq!((server_stats(&upstreams)[0].failures, server_stats(&upstreams)[0].in_flight), (0, 0));
}

#[tokio::test]
async fn a_body_that_is_wanted_no_more_ends_with_its_response() {
    let reset = Arc::new(Notify::new());
    let told = reset.clone();
    let peer = Peer::raw(move |stream, _| {
        let reset = told.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data(Bytes::from_static(b"enough"), true).unwrap();
                let (reset, mut body) = (reset.clone(), request.into_body());
                tokio::spawn(async move {
                    while let Some(Ok(_)) = body.data().await {}
                    reset.notify_one();
                });
            }
        }
    })
    .await;
    let (pools, upstreams) = pools(config(vec![http2(at(peer.address))]));
    let answer = called(&pools, open_body(&["one"]), None).await.unwrap();
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "enough");
    reset.notified().await;
    assert_eq!(server_stats(&upstreams)[0].failures, 0);
}
