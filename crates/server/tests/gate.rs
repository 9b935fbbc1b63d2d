//! The gate under a real HTTP stack, on real sockets: which response goes first, and that none waits for ever.
//!
//! The uplink is slow enough that everything has to wait for leave. The tests assert an order of events, never a time.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use scheduler::{Order, class::ClassId, share::Policy, uplink::ShareError};
use serpent_server::{
    config::{ClassConfig, Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
    gate::{Gate, SendOutcome, Urgency, spawn_stream},
    uplink::{ClassAt, Uplink, UplinkError, UplinkStats},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

const LARGE_BYTES: usize = 400_000;
const SMALL_BYTES: usize = 2_000;

/// A body of zeros, its length announced or not.
struct Zeros {
    left: usize,
    announced: bool,
    /// How it tells its end: only when it is asked, with its last byte, or by trailers.
    end: End,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Asked,
    WithLast,
    Trailers,
}

impl Body for Zeros {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            let trailers = self.end == End::Trailers;
            self.end = End::Asked;
            return Poll::Ready(trailers.then(|| Ok(Frame::trailers(http::HeaderMap::new()))));
        }
        let take = self.left.min(64 * 1024);
        self.left -= take;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; take])))))
    }

    fn is_end_stream(&self) -> bool {
        self.end == End::WithLast && self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.announced { SizeHint::with_exact(self.left as u64) } else { SizeHint::new() }
    }
}

/// A server that answers `/N` with N bytes, and `/chunked/N` without a length (`/chunked/last/N`,
/// `/chunked/trailers/N`: see [`End`]). `/first/N` goes ahead of all others. `/high/N` is of the first class, all
/// others are of the second.
struct Server {
    address: SocketAddr,
    uplink: Uplink,
    /// Of the classes' numbers.
    generation: Arc<AtomicU64>,
    outcomes: mpsc::UnboundedReceiver<(String, SendOutcome)>,
}

fn config(rate: &str, order: Order) -> UplinkConfig {
    UplinkConfig {
        rate: UplinkRate::Given(rate.parse().unwrap()),
        order,
        enforce: Enforce::Server,
        line: None,
        cutoffs: Cutoffs::Learned,
        guard_stretch: None,
        utilisation: Some(1.0),
        segment_overhead_bytes: 66,
        device: None,
        keep: Default::default(),
    }
}

/// Two classes, of which one is as good as the other but by the share.
fn shared(policy: Policy) -> Classes {
    let mut classes = Classes::one();
    let class = |name: &str| ClassConfig { name: name.to_owned(), ..classes.classes[0].clone() };
    classes.classes = vec![class("high"), class("low")];
    classes.uplink_share = Some(policy);
    classes
}

async fn server(order: Order, write_timeout: Duration) -> Server {
    server_shared(order, write_timeout, &Classes::one()).await
}

async fn server_shared(order: Order, write_timeout: Duration, classes: &Classes) -> Server {
    server_of(&config("8mbit", order), write_timeout, 0, classes).await
}

/// One that holds nothing back, for tests that stop the clock.
async fn server_unpaced(write_timeout: Duration, least_rate: u64) -> Server {
    let config = UplinkConfig { rate: UplinkRate::Off, ..config("8mbit", Order::Srpt) };
    server_of(&config, write_timeout, least_rate, &Classes::one()).await
}

async fn server_of(config: &UplinkConfig, write_timeout: Duration, least_rate: u64, classes: &Classes) -> Server {
    let uplink = Uplink::new(config, classes).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, outcomes) = mpsc::unbounded_channel();
    let driver = uplink.clone();
    tokio::spawn(async move { driver.drive().await });
    let gates = uplink.clone();
    let generation = Arc::new(AtomicU64::new(0));
    let generations = generation.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let gate = Gate::tcp(stream, &gates);
            gate.set_write_timeout(write_timeout);
            gate.set_least_rate(least_rate);
            let (flow, tell, generation) = (gate.flow(), tell.clone(), generations.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                let left = path.rsplit('/').next().unwrap().parse().unwrap();
                let path_is_high = path.starts_with("/high");
                let urgency = if path.starts_with("/first") { Urgency::First } else { Urgency::Ranked };
                let end = match () {
                    () if path.starts_with("/chunked/last") => End::WithLast,
                    () if path.starts_with("/chunked/trailers") => End::Trailers,
                    () => End::Asked,
                };
                let body = Zeros { left, announced: !path.starts_with("/chunked"), end };
                let tell = tell.clone();
                let done = move |outcome| drop(tell.send((path, outcome)));
                let class = ClassAt { class: ClassId(u16::from(!path_is_high)), generation: generation.load(SeqCst) };
                let response = flow.clone().response_of(class, request.version(), Response::new(body), urgency, done);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(Streams);
                builder.http2().max_send_buf_size(16 * 1024);
                let _ = builder.serve_connection(TokioIo::new(gate), service).await;
            });
        }
    });
    Server { address, uplink, generation, outcomes }
}

/// Runs hyper's streams as the server runs its own.
#[derive(Clone)]
struct Streams;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        spawn_stream(stream);
    }
}

/// Asks for a path on a connection of its own; the name is told when the whole answer is there.
fn fetch(address: SocketAddr, path: &str, events: &Events) -> tokio::task::JoinHandle<()> {
    let (path, events) = (path.to_owned(), events.clone());
    tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        events.tell(format!("{path} begins"));
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        events.tell(path);
    })
}

/// The events of a test, in order.
#[derive(Clone)]
struct Events {
    seen: Arc<Mutex<Vec<String>>>,
    tell: tokio::sync::watch::Sender<usize>,
}

impl Events {
    fn new() -> Self {
        Self { seen: Arc::default(), tell: tokio::sync::watch::channel(0).0 }
    }

    fn tell(&self, what: String) {
        self.seen.lock().unwrap().push(what);
        self.tell.send_modify(|count| *count += 1);
    }

    async fn wait_for(&self, what: &str) {
        let mut changes = self.tell.subscribe();
        while !self.seen.lock().unwrap().iter().any(|seen| seen == what) {
            changes.changed().await.unwrap();
        }
    }

    fn in_order(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|seen| !seen.ends_with("begins")).cloned().collect()
    }
}

/// A large response under way, then a second one: the order in which they end.
async fn large_then(order: Order, second: &str) -> Vec<String> {
    let server = server(order, Duration::ZERO).await;
    let events = Events::new();
    let large = format!("/{LARGE_BYTES}");
    let first = fetch(server.address, &large, &events);
    events.wait_for(&format!("{large} begins")).await;
    let second = fetch(server.address, second, &events);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!((server.uplink.stats().jobs, server.uplink.stats().waiting), (0, 0), "nothing is left behind");
    events.in_order()
}

#[tokio::test]
async fn srpt_lets_a_small_response_overtake_a_large_one() {
    assert_eq!(large_then(Order::Srpt, "/2000").await, ["/2000", "/400000"]);
}

#[tokio::test]
async fn fifo_does_not() {
    assert_eq!(large_then(Order::Fifo, "/2000").await, ["/400000", "/2000"]);
}

#[tokio::test]
async fn what_goes_first_waits_for_no_body_in_any_order() {
    for order in Order::ALL {
        assert_eq!(large_then(order, "/first/2000").await, ["/first/2000", "/400000"], "{order}");
    }
}

#[tokio::test]
async fn a_response_of_unknown_length_is_ranked_by_what_it_has_had() {
    assert_eq!(large_then(Order::Srpt, "/chunked/2000").await, ["/chunked/2000", "/400000"]);
}

/// The same on one HTTP/2 connection.
async fn large_then_small_multiplexed(order: Order) -> Vec<String> {
    let server = server(order, Duration::ZERO).await;
    let events = Events::new();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut tasks = Vec::new();
    for bytes in [LARGE_BYTES, SMALL_BYTES] {
        let path = format!("/{bytes}");
        let request = Request::get(format!("http://test{path}")).body(Empty::<Bytes>::new()).unwrap();
        let mut response = sender.send_request(request).await.unwrap();
        let first = response.frame().await.unwrap().unwrap();
        assert!(first.is_data());
        let events = events.clone();
        tasks.push(tokio::spawn(async move {
            response.collect().await.unwrap();
            events.tell(path);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    events.in_order()
}

#[tokio::test]
async fn streams_of_one_connection_go_in_the_same_order() {
    assert_eq!(large_then_small_multiplexed(Order::Srpt).await, ["/2000", "/400000"]);
}

#[tokio::test]
async fn in_fifo_the_first_stream_ends_first() {
    // The small one's first frame has to wait for all of the large one.
    assert_eq!(large_then_small_multiplexed(Order::Fifo).await, ["/400000", "/2000"]);
}

#[tokio::test]
async fn a_stream_that_its_client_does_not_read_stops_no_other() {
    let server = server(Order::Srpt, Duration::ZERO).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(10_000).initial_connection_window_size(1 << 20);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let ask = |path: &str| Request::get(format!("http://test{path}")).body(Empty::<Bytes>::new()).unwrap();
    let unread = sender.send_request(ask("/20000")).await.unwrap();
    for _ in 0..3 {
        let response = sender.send_request(ask("/100000")).await.unwrap();
        assert_eq!(response.collect().await.unwrap().to_bytes().len(), 100_000);
    }
    assert_eq!(unread.collect().await.unwrap().to_bytes().len(), 20_000);
}

#[tokio::test]
async fn an_outcome_tells_what_was_sent_and_how_long_it_took() {
    let mut server = server(Order::Srpt, Duration::ZERO).await;
    fetch(server.address, "/100000", &Events::new()).await.unwrap();
    let (path, outcome) = server.outcomes.recv().await.unwrap();
    assert_eq!((path.as_str(), outcome.body_bytes, outcome.complete), ("/100000", 100_000, true));
    assert!(outcome.slowdown.unwrap() >= 1.0);
}

#[tokio::test]
async fn a_response_of_unknown_length_is_whole_however_it_tells_its_end() {
    let mut server = server(Order::Srpt, Duration::ZERO).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let handshake = client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    for path in ["/chunked/3000", "/chunked/last/3000", "/chunked/trailers/3000"] {
        fetch(server.address, path, &Events::new()).await.unwrap();
        let (_, outcome) = server.outcomes.recv().await.unwrap();
        assert_eq!((outcome.body_bytes, outcome.complete), (3000, true), "{path} HTTP/1");
        let request = Request::get(format!("http://test{path}")).body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap().collect().await.unwrap();
        let (_, outcome) = server.outcomes.recv().await.unwrap();
        assert_eq!((outcome.body_bytes, outcome.complete), (3000, true), "{path} HTTP/2");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_an_incomplete_outcome_and_a_free_uplink() {
    let mut server = server(Order::Srpt, Duration::ZERO).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /90000000 HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 100]).await.unwrap();
    drop(stream);
    let (_, outcome) = server.outcomes.recv().await.unwrap();
    assert!(!outcome.complete);
    assert_eq!(server.uplink.stats().jobs, 0);
    fetch(server.address, "/2000", &Events::new()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let mut server = server(Order::Srpt, Duration::from_millis(100)).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(b"GET /90000000 HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    let (_, outcome) = server.outcomes.recv().await.unwrap();
    assert!(!outcome.complete);
    drop(stream);
}

/// Keeps the clock from moving by itself while the kernel carries bytes, until this is dropped: a test that stops the clock
/// moves it.
fn hold_clock() -> std::sync::mpsc::Sender<()> {
    let (held, let_go) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || let_go.recv().is_err());
    held
}

/// A client that takes so many bytes every 50 s of a response without end: whether it is given up within half an hour.
async fn takes_every_50_s(bytes: usize) -> (bool, UplinkStats) {
    let _held = hold_clock();
    let mut server = server_unpaced(Duration::from_secs(60), 240).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(b"GET /900000000 HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    let mut taken = vec![0; bytes];
    for _ in 0..40 {
        let given_up = stream.read_exact(&mut taken).await.is_err() || server.outcomes.try_recv().is_ok();
        if given_up {
            return (true, server.uplink.stats());
        }
        tokio::time::advance(Duration::from_secs(50)).await;
    }
    (false, server.uplink.stats())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_less_than_the_least_rate_is_given_up_and_a_slow_one_is_not() {
    let (given_up, stats) = takes_every_50_s(1000).await;
    assert!(given_up);
    assert_eq!((stats.stalled, stats.given_up), (1, 1));
    let (given_up, stats) = takes_every_50_s(100_000).await;
    assert!(!given_up);
    assert_eq!(stats.given_up, 0);
}

#[tokio::test]
async fn a_response_that_waits_for_the_order_is_not_given_up_however_slow_it_is() {
    let config = config("8mbit", Order::Srpt);
    let mut server = server_of(&config, Duration::from_millis(50), u64::MAX, &Classes::one()).await;
    fetch(server.address, "/400000", &Events::new()).await.unwrap();
    let (_, outcome) = server.outcomes.recv().await.unwrap();
    assert!(outcome.complete && outcome.send_time > Duration::from_millis(200), "{outcome:?}");
}

/// A client of HTTP/2 that opens windows by hand, of 1,000 bytes at first.
async fn with_windows_of_1000(address: SocketAddr) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1000).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The body of the answer.
async fn ask(sender: &h2::client::SendRequest<Bytes>, path: &str) -> h2::RecvStream {
    let request = Request::get(format!("http://test{path}")).body(()).unwrap();
    let (response, _) = sender.clone().ready().await.unwrap().send_request(request, true).unwrap();
    response.await.unwrap().into_body()
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_opens_no_window_is_reset_though_another_one_moves() {
    let _held = hold_clock();
    let mut server = server_unpaced(Duration::from_secs(60), 240).await;
    let sender = with_windows_of_1000(server.address).await;
    let mut stalls = ask(&sender, "/100000").await;
    assert_eq!(stalls.data().await.unwrap().unwrap().len(), 1000);
    let mut moves = ask(&sender, "/90000000").await;
    let start = tokio::time::Instant::now();
    while server.outcomes.is_empty() && start.elapsed() < Duration::from_secs(200) {
        let data = moves.data().await.unwrap().unwrap();
        moves.flow_control().release_capacity(data.len()).unwrap();
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let waited = start.elapsed();
    let error = stalls.data().await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
    assert!((60..65).contains(&waited.as_secs()), "{waited:?}");
    let (path, outcome) = server.outcomes.recv().await.unwrap();
    assert_eq!((path.as_str(), outcome.complete), ("/100000", false));
    assert!(moves.data().await.unwrap().is_ok());
    let stats = server.uplink.stats();
    assert_eq!((stats.stalled, stats.given_up), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_opens_its_window_slowly_is_not_reset() {
    let _held = hold_clock();
    let server = server_unpaced(Duration::from_secs(60), 240).await;
    let sender = with_windows_of_1000(server.address).await;
    let mut slow = ask(&sender, "/100000").await;
    let (start, mut taken) = (tokio::time::Instant::now(), 0);
    while let Some(data) = slow.data().await {
        let len = data.unwrap().len();
        taken += len;
        // 333 bytes a second.
        tokio::time::advance(Duration::from_millis(3 * len as u64)).await;
        slow.flow_control().release_capacity(len).unwrap();
    }
    assert_eq!(taken, 100_000);
    assert!(start.elapsed() > Duration::from_secs(240));
}

#[tokio::test]
async fn pipelined_responses_each_have_their_outcome() {
    let mut server = server(Order::Srpt, Duration::ZERO).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let one = "GET /3000 HTTP/1.1\r\nHost: test\r\n\r\n";
    stream.write_all(one.repeat(5).as_bytes()).await.unwrap();
    for _ in 0..5 {
        let (_, outcome) = server.outcomes.recv().await.unwrap();
        assert_eq!((outcome.body_bytes, outcome.complete), (3000, true));
    }
    assert_eq!(server.uplink.stats().jobs, 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_http2_leaves_nothing_behind() {
    let mut server = server(Order::Srpt, Duration::ZERO).await;
    let address = server.address;
    // A runtime of its own: with it everything of the client's goes at once, without a farewell.
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) =
                client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get("http://test/90000000").body(Empty::<Bytes>::new()).unwrap();
            let mut response = sender.send_request(request).await.unwrap();
            assert!(response.frame().await.unwrap().unwrap().is_data());
        });
    });
    let (_, outcome) = server.outcomes.recv().await.unwrap();
    assert!(!outcome.complete);
    client.join().unwrap();
    assert_eq!(server.uplink.stats().jobs, 0);
}

#[tokio::test]
async fn a_reload_that_turns_pacing_on_ranks_what_is_under_way() {
    let server = server(Order::Srpt, Duration::ZERO).await;
    let paced = config("8mbit", Order::Srpt);
    server.uplink.reconfigure(&UplinkConfig { rate: UplinkRate::Off, ..paced.clone() }, &Classes::one()).unwrap();
    let events = Events::new();
    let first = fetch(server.address, "/90000000", &events);
    events.wait_for("/90000000 begins").await;
    server.uplink.reconfigure(&paced, &Classes::one()).unwrap();
    // It would wait for as long as the large one takes, more than a minute.
    fetch(server.address, "/2000", &events).await.unwrap();
    assert_eq!(events.in_order(), ["/2000"]);
    first.abort();
}

#[tokio::test]
async fn a_more_important_response_overtakes_one_that_began_before() {
    let server = server_shared(Order::Fifo, Duration::ZERO, &shared(Policy::Strict)).await;
    let events = Events::new();
    // It would take more than a minute.
    let low = fetch(server.address, "/90000000", &events);
    events.wait_for("/90000000 begins").await;
    fetch(server.address, "/high/600000", &events).await.unwrap();
    assert_eq!(events.in_order(), ["/high/600000"]);
    let [of_high, of_low] = [0, 1].map(|class| server.uplink.class_bytes()[class].1);
    assert!(600_000 < of_high && of_high < 650_000 && 0 < of_low, "{of_high}, {of_low}");
    low.abort();
}

#[tokio::test]
async fn a_reload_that_shares_the_uplink_knows_the_classes_of_what_is_under_way() {
    let server = server(Order::Srpt, Duration::ZERO).await;
    let events = Events::new();
    let low = fetch(server.address, "/80000000", &events);
    events.wait_for("/80000000 begins").await;
    // The longer one waits for as long as the other takes, more than a minute.
    let high = fetch(server.address, "/high/90000000", &events);
    while server.uplink.stats().jobs < 2 {
        tokio::task::yield_now().await;
    }
    server.uplink.reconfigure(&config("8mbit", Order::Srpt), &shared(Policy::Strict)).unwrap();
    events.wait_for("/high/90000000 begins").await;
    // Classes are known by their names: now the class that was the first is the last.
    let mut turned = shared(Policy::Strict);
    turned.classes.reverse();
    let generation = server.uplink.reconfigure(&config("8mbit", Order::Srpt), &turned).unwrap();
    server.generation.store(generation, SeqCst);
    // Of the last class, as the one under way is now. When the first class has no response, the order is between these two.
    let last = fetch(server.address, "/2000", &events);
    low.abort();
    last.await.unwrap();
    assert_eq!(events.in_order(), ["/2000"]);
    high.abort();
}

#[test]
fn a_share_that_cannot_be_kept_is_refused() {
    let kernel = UplinkConfig { enforce: Enforce::Kernel, ..config("8mbit", Order::Srpt) };
    let error = Uplink::new(&kernel, &shared(Policy::Weighted)).unwrap_err();
    assert!(matches!(error, UplinkError::ShareNotBandable(Policy::Weighted)), "{error}");
    assert!(error.to_string().contains("cannot be shared by `weighted`"), "{error}");
    let mut reserves = shared(Policy::Shared);
    reserves.classes[0].given.reserved_slots = 2;
    let error = Uplink::new(&config("8mbit", Order::Srpt), &reserves).unwrap_err();
    assert!(matches!(error, UplinkError::Share(ShareError::Reserves)), "{error}");
    // Of a window of 8 they are a quarter.
    reserves.admission.total = std::num::NonZeroU32::new(8);
    assert!(Uplink::new(&config("8mbit", Order::Srpt), &reserves).is_ok());
    // But not of a line that is shared with other gateways.
    let line = UplinkConfig { line: Some("a".to_owned()), ..config("8mbit", Order::Srpt) };
    for classes in [&reserves, &shared(Policy::Fixed)] {
        let error = Uplink::new(&line, classes).unwrap_err();
        assert!(matches!(error, UplinkError::KeptOfLine), "{error}");
    }
    assert!(Uplink::new(&line, &shared(Policy::Shared)).is_ok());
}
