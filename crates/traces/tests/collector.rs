//! Spans on their way to a made-up collector, which reads them by the official definitions.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serpent_traces::{Counts, Endpoint, Kind, Parents, Span, Trace, Traces, TracesConfig};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Ends a test that would wait for ever.
const LONG: Duration = Duration::from_secs(60);

/// A request that a collector has got: its head, the names of its spans.
type Got = (HeaderMap, String, Vec<String>);
/// The answer of a collector to each request, by its number; `None`: it never answers.
type Answers = fn(usize) -> Option<Response<Full<Bytes>>>;

struct Collector {
    address: SocketAddr,
    got: mpsc::UnboundedReceiver<Got>,
    connections: Arc<AtomicUsize>,
}

impl Collector {
    async fn start(answers: Answers) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answers, None)
    }

    fn on(listener: TcpListener, answers: Answers, tls: Option<TlsAcceptor>) -> Self {
        let (sender, got) = mpsc::unbounded_channel();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (address, counted) = (listener.local_addr().unwrap(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Relaxed);
                let (sender, requests, tls) = (sender.clone(), requests.clone(), tls.clone());
                tokio::spawn(async move {
                    let answer = service_fn(move |request| answer(request, sender.clone(), requests.clone(), answers));
                    match tls {
                        None => drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                            }
                        }
                    }
                });
            }
        });
        Self { address, got, connections }
    }

    async fn next(&mut self) -> Got {
        timeout(LONG, self.got.recv()).await.expect("spans come").unwrap()
    }
}

async fn answer(
    request: Request<Incoming>,
    got: mpsc::UnboundedSender<Got>,
    requests: Arc<AtomicUsize>,
    answers: Answers,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let read = ExportTraceServiceRequest::decode(body).unwrap();
    let spans = read.resource_spans.iter().flat_map(|it| &it.scope_spans).flat_map(|it| &it.spans);
    let number = requests.fetch_add(1, Relaxed);
    let line = format!("{} {}", head.method, head.uri);
    got.send((head.headers, line, spans.map(|span| span.name.clone()).collect())).unwrap();
    match answers(number) {
        Some(answer) => Ok(answer),
        None => std::future::pending().await,
    }
}

fn says(status: u16, body: Vec<u8>) -> Option<Response<Full<Bytes>>> {
    Some(Response::builder().status(status).body(Full::new(body.into())).unwrap())
}

fn takes(_: usize) -> Option<Response<Full<Bytes>>> {
    says(200, ExportTraceServiceResponse::default().encode_to_vec())
}

/// An exporter with its task. It sends at once.
struct Exporter {
    traces: Traces,
    counts: Arc<Counts>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Exporter {
    fn start(endpoint: &str, ca: Option<&Path>) -> Self {
        Self::every(Duration::from_millis(1), endpoint, ca)
    }

    fn every(interval: Duration, endpoint: &str, ca: Option<&Path>) -> Self {
        let counts = Arc::<Counts>::default();
        let config = TracesConfig {
            endpoint: Endpoint::new(endpoint).unwrap(),
            sample: 1.0,
            parents: Parents::Trusted,
            service_name: "shop".to_owned(),
            headers: vec![(HeaderName::from_static("x-key"), HeaderValue::from_static("secret"))],
            ca: ca.map(Into::into),
            interval,
        };
        let traces = Traces::open(&config, counts.clone()).unwrap();
        let (stop, driven) = (CancellationToken::new(), traces.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move { driven.drive(stopped.cancelled_owned()).await });
        Self { traces, counts, stop, task }
    }

    fn record(&self, name: &'static str) {
        let context = self.traces.begin(&HeaderMap::new(), || true);
        assert!(context.is_sampled);
        let span = || Span::new(context.span, name, Kind::Server, 1, 2);
        self.traces.record(1, || Trace { context, state: None, spans: vec![span()] });
    }

    /// Exported, dropped, refused; failures.
    async fn stop(self) -> ([u64; 3], u64) {
        self.stop.cancel();
        timeout(LONG, self.task).await.expect("it ends").unwrap();
        let Counts { exported, dropped, refused, failures } = &*self.counts;
        ([exported, dropped, refused].map(|count| count.load(Relaxed)), failures.load(Relaxed))
    }
}

#[tokio::test]
async fn spans_come_over_one_connection_with_the_fields_of_the_operator() {
    let mut collector = Collector::start(takes).await;
    let exporter = Exporter::start(&format!("http://{}", collector.address), None);
    for name in ["one", "two", "three"] {
        exporter.record(name);
        let (fields, line, spans) = collector.next().await;
        assert_eq!((line.as_str(), &spans[..]), ("POST /v1/traces", &[name.to_owned()][..]));
        assert_eq!(fields["content-type"], "application/x-protobuf");
        assert_eq!(fields["host"], collector.address.to_string());
        assert_eq!(fields["x-key"], "secret");
    }
    assert_eq!(collector.connections.load(Relaxed), 1);
    assert_eq!(exporter.stop().await, ([3, 0, 0], 0));
}

#[tokio::test]
async fn spans_wait_until_there_are_many_and_are_not_sent_one_by_one() {
    let mut collector = Collector::start(takes).await;
    let hour = Duration::from_secs(3600);
    let exporter = Exporter::every(hour, &format!("http://{}", collector.address), None);
    // The first look at the queue is at once.
    tokio::task::yield_now().await;
    for full in 1..=2 {
        (0..1024).for_each(|_| exporter.record("a"));
        exporter.record("one more");
        let (.., spans) = collector.next().await;
        assert_eq!(spans.len(), 1024, "batch {full}");
    }
    while exporter.counts.exported.load(Relaxed) < 2048 {
        tokio::task::yield_now().await;
    }
    assert!(collector.got.try_recv().is_err(), "two more spans wait");
    assert_eq!(exporter.stop().await, ([2050, 0, 0], 0));
    assert_eq!(collector.next().await.2.len(), 2);
}

#[tokio::test]
async fn the_last_spans_are_sent_when_the_server_stops() {
    let mut collector = Collector::start(takes).await;
    let exporter = Exporter::start(&format!("http://{}/x", collector.address), None);
    exporter.record("last");
    // Nothing has run since.
    assert_eq!(exporter.stop().await, ([1, 0, 0], 0));
    let (_, line, spans) = collector.next().await;
    assert_eq!((line.as_str(), &spans[..]), ("POST /x", &["last".to_owned()][..]));
}

#[tokio::test]
async fn a_collector_that_is_gone_costs_spans_and_no_time_and_gets_those_that_waited_when_it_is_back() {
    // Connections are refused until it listens, and no other program gets its port.
    let place = TcpSocket::new_v4().unwrap();
    place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = place.local_addr().unwrap();
    let exporter = Exporter::start(&format!("http://{address}"), None);
    let began = Instant::now();
    (0..100_000).for_each(|_| exporter.record("a"));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "no attempt is waited for: {took:?}");
    assert_eq!(exporter.counts.dropped.load(Relaxed), 100_000 - 8192);
    while exporter.counts.failures.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let mut collector = Collector::on(place.listen(64).unwrap(), takes, None);
    let mut came = 0;
    while came < 8192 {
        let (.., spans) = collector.next().await;
        assert!(spans.len() <= 1024);
        came += spans.len();
    }
    exporter.record("b");
    assert_eq!(collector.next().await.2, ["b"]);
    let (spans, failures) = exporter.stop().await;
    assert_eq!(spans, [8193, 100_000 - 8192, 0]);
    assert!(failures > 0);
}

#[tokio::test]
async fn a_collector_that_is_gone_is_not_waited_for_at_the_end() {
    // Connections are refused until it listens, and no other program gets its port.
    let place = TcpSocket::new_v4().unwrap();
    place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = place.local_addr().unwrap();
    let exporter = Exporter::start(&format!("http://{address}"), None);
    exporter.record("a");
    while exporter.counts.failures.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    exporter.record("b");
    assert_eq!(exporter.stop().await.0, [0, 2, 0]);
}

#[tokio::test]
async fn a_collector_that_never_answers_ends_with_the_server() {
    let mut collector = Collector::start(|_| None).await;
    let exporter = Exporter::start(&format!("http://{}", collector.address), None);
    exporter.record("a");
    collector.next().await;
    exporter.record("b");
    assert_eq!(exporter.stop().await, ([0, 2, 0], 0));
}

#[tokio::test]
async fn what_may_be_sent_again_is_and_what_may_not_is_given_up() {
    let mut collector = Collector::start(|number| match number {
        0 => says(400, Vec::new()),
        1 => says(503, Vec::new()),
        _ => takes(number),
    })
    .await;
    let exporter = Exporter::start(&format!("http://{}", collector.address), None);
    exporter.record("refused");
    assert_eq!(collector.next().await.2, ["refused"]);
    exporter.record("again");
    assert_eq!(collector.next().await.2, ["again"]);
    assert_eq!(collector.next().await.2, ["again"]);
    while exporter.counts.exported.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(exporter.stop().await, ([1, 0, 1], 2));
}

#[tokio::test]
async fn spans_that_the_collector_does_not_like_are_counted() {
    let mut collector = Collector::start(|_| {
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans: 1, error_message: "old".to_owned() });
        says(200, ExportTraceServiceResponse { partial_success }.encode_to_vec())
    })
    .await;
    let exporter = Exporter::start(&format!("http://{}", collector.address), None);
    ["a", "b", "c"].into_iter().for_each(|name| exporter.record(name));
    assert_eq!(collector.next().await.2, ["a", "b", "c"]);
    assert_eq!(exporter.stop().await, ([2, 0, 1], 0));
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let mut collector = Collector::start(|number| match number {
        0 => says(200, vec![0; 1024 * 1024]),
        _ => takes(number),
    })
    .await;
    let exporter = Exporter::start(&format!("http://{}", collector.address), None);
    exporter.record("a");
    collector.next().await;
    collector.next().await;
    let (_, failures) = exporter.stop().await;
    assert_eq!((failures, collector.connections.load(Relaxed)), (1, 2));
}

#[tokio::test]
async fn tls_is_spoken_with_a_collector_whose_certificate_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut collector = Collector::on(listener, takes, Some(TlsAcceptor::from(Arc::new(config))));
    let port = collector.address.port();
    let exporter = Exporter::start(&format!("https://localhost:{port}"), Some(&ca));
    exporter.record("a");
    assert_eq!(collector.next().await.2, ["a"]);
    assert_eq!(exporter.stop().await, ([1, 0, 0], 0));

    // A certificate for another name.
    let exporter = Exporter::start(&format!("https://127.0.0.1:{port}"), Some(&ca));
    exporter.record("a");
    while exporter.counts.failures.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(exporter.stop().await.0, [0, 1, 0]);

    std::fs::write(&ca, "no certificate").unwrap();
    let config = TracesConfig { ca: Some(ca.clone()), ..exporter_config(port) };
    let error = Traces::open(&config, Arc::default()).unwrap_err().to_string();
    assert!(error.contains("ca.pem"), "{error}");
}

fn exporter_config(port: u16) -> TracesConfig {
    TracesConfig {
        endpoint: Endpoint::new(&format!("https://localhost:{port}")).unwrap(),
        sample: 1.0,
        parents: Parents::None,
        service_name: "shop".to_owned(),
        headers: Vec::new(),
        ca: None,
        interval: Duration::from_secs(5),
    }
}

#[tokio::test]
async fn a_connection_that_the_collector_has_closed_is_made_anew() -> io::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let exporter = Exporter::start(&format!("http://{}", listener.local_addr()?), None);
    for name in ["one", "two"] {
        exporter.record(name);
        let (mut stream, _) = timeout(LONG, listener.accept()).await??;
        let mut read = Vec::new();
        // The name of the span is in the last bytes of the request.
        while !read.windows(name.len()).any(|part| part == name.as_bytes()) {
            assert!(stream.read_buf(&mut read).await? > 0);
        }
        // It says that the connection stays, and closes it. The unread part of the request prevents a clean end.
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        while exporter.counts.exported.load(Relaxed) == u64::from(name == "two") {
            tokio::task::yield_now().await;
        }
    }
    let (spans, _) = exporter.stop().await;
    assert_eq!(spans[0], 2);
    Ok(())
}
