//! The gate over a transport in memory, and what only sockets can show.

pub(crate) mod memory;

use std::{future::poll_fn, num::NonZeroU64};

use heads::PriorityField;
use http::{Response, Version};
use http_body::Body as _;
use http_body_util::Full;
use limits::{Allowance, ByteRate};
use scheduler::class::ClassId;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use self::memory::{MemoryClient, MemoryTransport, Settings};
use super::{read_fairness::AT_A_TIME, stream_flow::CREDIT_LIMIT_BYTES, *};
use crate::{
    config::{Classes, Cutoffs, Enforce, UplinkConfig, UplinkRate},
    uplink::ClassAt,
};

const LONG: Duration = Duration::from_secs(3600);

/// Bytes that the transport in memory holds.
const ROOM_BYTES: usize = 8192;

type Outcomes = mpsc::UnboundedReceiver<SendOutcome>;

/// Sends an HTTP/1 response of so many bytes in a task of its own.
fn sends(mut gate: Gate<MemoryTransport>, bytes: usize) -> (JoinHandle<io::Result<()>>, Outcomes) {
    let (tell, outcomes) = mpsc::unbounded_channel();
    let body = Full::new(bytes::Bytes::from(vec![0; bytes]));
    let done = move |outcome| {
        let _ = tell.send(outcome);
    };
    let body = gate.flow().response(Version::HTTP_11, Response::new(body), Urgency::Ranked, done).into_body();
    let sending = tokio::spawn(async move {
        let _body = body;
        gate.write_all(&vec![0; bytes]).await
    });
    (sending, outcomes)
}

/// Reads everything in a task of its own, and tells the name then.
fn reads(mut client: MemoryClient, name: &'static str, ended: &mpsc::UnboundedSender<&'static str>) {
    let ended = ended.clone();
    tokio::spawn(async move {
        client.read_to_end(&mut Vec::new()).await.unwrap();
        ended.send(name).unwrap();
    });
}

/// An uplink without a rate: nothing waits for leave.
pub(super) fn rate_off() -> Uplink {
    uplink(UplinkRate::Off, Enforce::Off)
}

/// An uplink paced at this rate in bits per second, also while the runtime's clock is stopped.
pub(super) fn paced(bits_per_second: &str) -> Uplink {
    uplink(UplinkRate::Given(bits_per_second.parse().expect("a rate")), Enforce::Server)
}

fn uplink(rate: UplinkRate, enforce: Enforce) -> Uplink {
    let config = UplinkConfig {
        rate,
        order: scheduler::Order::Srpt,
        enforce,
        line: None,
        cutoffs: Cutoffs::Learned,
        guard_stretch: None,
        utilisation: Some(1.0),
        segment_overhead_bytes: 66,
        device: None,
        keep: Default::default(),
    };
    Uplink::by_runtime(&config, &Classes::one()).expect("nothing is needed for it")
}

fn drives(uplink: &Uplink) {
    let uplink = uplink.clone();
    tokio::spawn(async move { uplink.drive().await });
}

#[tokio::test(start_paused = true)]
async fn a_small_response_overtakes_a_large_one_over_any_transport() {
    let uplink = paced("10mbit");
    drives(&uplink);
    let (tell, mut ended) = mpsc::unbounded_channel();
    for (name, bytes) in [("large", 400_000), ("small", 20_000)] {
        let (transport, client) = memory::connection(ROOM_BYTES);
        let _ = sends(Gate::new(transport, &uplink), bytes);
        reads(client, name, &tell);
        // The first one has begun when the second one comes.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((ended.recv().await, ended.recv().await), (Some("small"), Some("large")));
    assert_eq!((uplink.stats().jobs, uplink.stats().waiting), (0, 0), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn a_transport_is_limited_while_the_order_is_kept_and_only_then() {
    for (uplink, limited) in [(paced("10mbit"), true), (rate_off(), false)] {
        drives(&uplink);
        let (transport, client) = memory::connection(ROOM_BYTES);
        let (sending, _outcomes) = sends(Gate::new(transport, &uplink), 1000);
        timeout(LONG, sending).await.unwrap().unwrap().unwrap();
        let Settings { unsent_limit_bytes } = client.settings();
        assert_eq!(unsent_limit_bytes.is_some(), limited);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_at_most_twice_as_large_as_it_has_to_be_is_kept() {
    let uplink = paced("10mbit");
    drives(&uplink);
    let needed_bytes = uplink.driver().unsent_limit_bytes().unwrap();
    let cases = [(2 * needed_bytes, None), (2 * needed_bytes + 1, Some(needed_bytes)), (1, Some(needed_bytes))];
    for (has_bytes, told_bytes) in cases {
        let (transport, client) = memory::connection(ROOM_BYTES);
        let (sending, _outcomes) = sends(Gate::new(transport, &uplink).with_unsent_limit(Some(has_bytes)), 1000);
        timeout(LONG, sending).await.unwrap().unwrap().unwrap();
        assert_eq!(client.settings().unsent_limit_bytes, told_bytes, "{has_bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_given_up_after_the_write_timeout_over_any_transport() {
    let uplink = rate_off();
    let (transport, _client) = memory::connection(ROOM_BYTES);
    let gate = Gate::new(transport, &uplink);
    gate.set_write_timeout(Duration::from_secs(60));
    gate.set_least_rate(240);
    let start = Instant::now();
    let (sending, mut outcomes) = sends(gate, 2 * ROOM_BYTES);
    let error = timeout(LONG, sending).await.expect("it is given up").unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    assert!(!outcomes.recv().await.unwrap().complete);
    assert_eq!((uplink.stats().stalled, uplink.stats().given_up), (1, 1));
}

/// A response of HTTP/1 as [`sends`] has it, which shares the bytes of its client.
fn sends_limited(mut gate: Gate<MemoryTransport>, allowance: &Arc<Allowance>, bytes: usize) -> JoinHandle<Instant> {
    let mut response = Response::new(Full::new(bytes::Bytes::from(vec![0; bytes])));
    response.extensions_mut().insert(Arc::new(allowance.clone().share()));
    let body = gate.flow().response(Version::HTTP_11, response, Urgency::Ranked, |_| ()).into_body();
    tokio::spawn(async move {
        let _body = body;
        gate.write_all(&vec![0; bytes]).await.unwrap();
        Instant::now()
    })
}

#[tokio::test(start_paused = true)]
async fn the_responses_of_a_client_share_its_bytes_and_others_do_not_wait_for_them() {
    let number = |number| NonZeroU64::new(number).unwrap();
    for uplink in [rate_off(), paced("100mbit")] {
        drives(&uplink);
        let rate = ByteRate { bytes_per_second: number(100_000), burst_bytes: number(50_000) };
        let start = Instant::now();
        let allowance = Allowance::new(rate, start.into_std());
        let (tell, mut ended) = mpsc::unbounded_channel();
        let connect = |name| {
            let (transport, client) = memory::connection(ROOM_BYTES);
            reads(client, name, &tell);
            Gate::new(transport, &uplink)
        };
        let large = sends_limited(connect("large"), &allowance, 400_000);
        tokio::time::sleep(Duration::from_millis(700)).await;
        let small = sends_limited(connect("small"), &allowance, 20_000);
        let (sending, _outcomes) = sends(connect("of another"), 400_000);
        sending.await.unwrap().unwrap();
        assert!(start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
        let (large, small) = (large.await.unwrap() - start, small.await.unwrap() - start);
        // The large one has used up what there was, and the small one goes before it.
        assert!((850..1_000).contains(&small.as_millis()), "{small:?}");
        assert!((3_650..3_800).contains(&large.as_millis()), "(400 + 20 - 50) KB at 100 KB/s: {large:?}");
        for name in ["of another", "small", "large"] {
            assert_eq!(ended.recv().await, Some(name));
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_part_of_a_file_goes_out_behind_the_bytes_ahead_of_it_and_only_with_leave() {
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, &content).unwrap();
    for (uplink, is_paced) in [(rate_off(), false), (paced("100mbit"), true)] {
        drives(&uplink);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut gate = Gate::tcp(listener.accept().await.unwrap().0, &uplink);
        let body = Full::new(bytes::Bytes::from(content.clone()));
        let body = gate.flow().response(Version::HTTP_11, Response::new(body), Urgency::Ranked, |_| ()).into_body();
        let reading = tokio::spawn(async move {
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            got
        });
        let head = b"a head";
        let (mut sent, mut most) = (0, 0);
        while sent < head.len() + content.len() {
            let ahead = head.get(sent..).unwrap_or_default();
            let start = sent.saturating_sub(head.len()) as u64;
            let part = start..content.len() as u64;
            let taken = poll_fn(|cx| gate.poll_send_file(cx, ahead, &file, part.clone())).await.unwrap();
            assert!(taken > 0);
            (sent, most) = (sent + taken, most.max(taken));
        }
        assert!(!is_paced || most < content.len() / 2, "leave is given in steps: {most}");
        // Both hold the socket.
        drop((gate, body));
        assert!(reading.await.unwrap() == [&head[..], &content].concat());
    }
    let (transport, _client) = memory::connection(ROOM_BYTES);
    let mut gate = Gate::new(transport, &rate_off());
    assert_eq!(poll_fn(|cx| gate.poll_send_file(cx, b"", &file, 0..1)).await.unwrap(), 0, "it takes none");
}

#[tokio::test]
async fn the_side_of_a_client_is_that_of_its_transport() {
    let (transport, mut client) = memory::connection(ROOM_BYTES);
    let gate = Gate::new(transport, &rate_off());
    let side = || gate.flow().client_side();
    assert_eq!(side(), ClientSide::Open);
    client.shutdown().await.unwrap();
    assert_eq!(side(), ClientSide::Closed);
    drop(client);
    assert_eq!(side(), ClientSide::Gone);
}

/// A connection whose framing holds all that it may. A stream waits in another task to hand over more.
async fn waits_for_its_connection() -> (Gate<MemoryTransport>, JoinHandle<u64>, MemoryClient) {
    let uplink = rate_off();
    let (transport, client) = memory::connection(ROOM_BYTES);
    let gate = Gate::new(transport, &uplink);
    let flow = gate.flow();
    let class = ClassAt { class: ClassId(0), generation: 0 };
    let (_, job) = flow.begin(class, Some(Default::default()), Some(1 << 20), Urgency::Ranked, None, Box::new(|_| ()));
    let job = job.expect("streams are ranked");
    assert_eq!(poll_fn(|cx| flow.poll_leave(cx, job, 1 << 20)).await, CREDIT_LIMIT_BYTES);
    flow.handle_full();
    let waiting = tokio::spawn({
        let flow = flow.clone();
        async move { poll_fn(|cx| flow.poll_leave(cx, job, 1 << 20)).await }
    });
    // The clock moves when the task is parked.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!waiting.is_finished());
    (gate, waiting, client)
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_in_its_task_is_woken_by_the_connections() {
    // The transport took all that the framing held.
    let (gate, waiting, _client) = waits_for_its_connection().await;
    let flow = gate.flow();
    tokio::spawn(async move { flow.handle_sent(CREDIT_LIMIT_BYTES) });
    assert_eq!(timeout(LONG, waiting).await.expect("it is woken").unwrap(), CREDIT_LIMIT_BYTES);
    // The transport took a part, and the client's window holds back the rest.
    let (gate, waiting, _client) = waits_for_its_connection().await;
    let flow = gate.flow();
    tokio::spawn(async move {
        flow.handle_sent(CREDIT_LIMIT_BYTES / 2);
        flow.handle_flushed();
    });
    assert_eq!(timeout(LONG, waiting).await.expect("it is woken").unwrap(), CREDIT_LIMIT_BYTES);
}

#[tokio::test]
async fn where_nothing_is_paced_a_stream_waits_for_the_bytes_of_more_urgent_ones() {
    let (transport, _client) = memory::connection(ROOM_BYTES);
    let gate = Gate::new(transport, &rate_off());
    let flow = gate.flow();
    let class = ClassAt { class: ClassId(0), generation: 0 };
    let begin = |urgency: u8| {
        let client = PriorityField { urgency: Some(urgency), incremental: None };
        let words = StreamPriority { stream: urgency.into(), client, ..StreamPriority::default() };
        flow.begin(class, Some(Some(words)), Some(1 << 20), Urgency::Ranked, None, Box::new(|_| ()))
            .1
            .expect("it is ranked")
    };
    let (urgent, usual, late) = (begin(1), begin(3), begin(5));
    let leave = |job| flow.poll_leave(&mut Context::from_waker(std::task::Waker::noop()), job, 10_000);
    assert_eq!(leave(usual), Poll::Ready(10_000));
    // There is room for more, but not for a stream that is less urgent.
    assert_eq!(leave(late), Poll::Pending);
    assert_eq!(leave(urgent), Poll::Ready(10_000));
    assert_eq!(leave(usual), Poll::Pending);
    // The transport takes the urgent bytes first, as far as the gate knows.
    flow.handle_sent(10_000);
    assert_eq!(leave(usual), Poll::Ready(10_000));
    assert_eq!(leave(late), Poll::Pending);
    // Bytes that the client's window holds back stop no other stream.
    flow.handle_flushed();
    assert_eq!(leave(late), Poll::Ready(10_000));
    // The client thinks better of it.
    flow.handle_flushed();
    let now_urgent = PriorityField { urgency: Some(0), incremental: None };
    flow.handle_priority(5, now_urgent, 5, 1).unwrap();
    assert_eq!(leave(late), Poll::Ready(10_000));
    assert_eq!(leave(urgent), Poll::Pending);
    // It may say so before it asks.
    flow.handle_priority(9, now_urgent, 5, 1).unwrap();
    assert!(flow.handle_priority(11, now_urgent, 5, 1).is_err(), "of more streams than it may open");
    flow.handle_flushed();
    let early = begin(9);
    assert_eq!(leave(early), Poll::Ready(10_000));
    assert_eq!(leave(urgent), Poll::Pending);
}

/// A connection over TCP that waits for its turn to be read from, and its client.
async fn in_turn(fairness: &Arc<ReadFairness>) -> (Gate, TcpStream) {
    let uplink = rate_off();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (Gate::tcp(listener.accept().await.unwrap().0, &uplink).in_turn(fairness.clone()), client)
}

/// Whether there is something to read now.
async fn reads_at_once(gate: &mut Gate) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *gate).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])).is_ready())).await
}

#[tokio::test]
async fn a_connection_without_data_spends_no_turn() {
    let fairness = Arc::new(ReadFairness::new(Arc::default()));
    let mut connections = Vec::new();
    for _ in 0..10 {
        let (mut gate, client) = in_turn(&fairness).await;
        // The runtime has looked at it: a new connection is ready to be written to.
        poll_fn(|cx| gate.transport.poll_write_ready(cx)).await.unwrap();
        assert!(!reads_at_once(&mut gate).await);
        connections.push((gate, client));
    }
    assert_eq!(fairness.taken_and_waiting(), (0, 0));
}

#[tokio::test]
async fn a_connection_whose_data_were_all_read_spends_no_second_turn() {
    let fairness = Arc::new(ReadFairness::new(Arc::default()));
    let (mut gate, mut client) = in_turn(&fairness).await;
    client.write_all(b"abcd").await.unwrap();
    gate.read_exact(&mut [0; 4]).await.unwrap();
    assert_eq!(fairness.taken_and_waiting(), (1, 0));
    for taken in [1, AT_A_TIME] {
        // The runtime still takes the socket for readable.
        fairness.set_taken(taken);
        assert!(!reads_at_once(&mut gate).await);
        assert_eq!(fairness.taken_and_waiting(), (taken, 0));
        if taken == 1 {
            client.write_all(b"efghijkl").await.unwrap();
            gate.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_in_bursts_is_ranked_behind_a_pause_as_if_it_began_then() {
    for in_bursts in [true, false] {
        let uplink = paced("10mbit");
        drives(&uplink);
        let (transport, _client) = memory::connection(ROOM_BYTES);
        let gate = Gate::new(transport, &uplink);
        let flow = gate.flow();
        let begin = |in_bursts: bool| {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let mut response = Response::new(crate::body::ReaderBody::new(far));
            if in_bursts {
                response.extensions_mut().insert(InBursts);
            }
            (near, flow.clone().response(Version::HTTP_2, response, Urgency::Ranked, |_| ()).into_body())
        };
        let (mut chat, mut of_chat) = begin(in_bursts);
        let (mut other, mut of_other) = begin(false);
        let says = async |near: &mut tokio::io::DuplexStream, body: &mut GatedBody<_>, bytes: usize| {
            near.write_all(&vec![0; bytes]).await.unwrap();
            let mut passed = 0;
            while passed < bytes {
                let frame = timeout(LONG, http_body_util::BodyExt::frame(body)).await.expect("it has leave").unwrap();
                let len = frame.unwrap().into_data().unwrap().len();
                flow.handle_sent(len as u64);
                passed += len;
            }
        };
        says(&mut chat, &mut of_chat, 50_000).await;
        says(&mut other, &mut of_other, 10_000).await;
        let place = |body: &GatedBody<_>| uplink.driver().place(body.job().expect("it is ranked"));
        assert!(place(&of_other) < place(&of_chat), "it has had less");
        let pauses = poll_fn(|cx| Poll::Ready(Pin::new(&mut of_chat).poll_frame(cx).is_pending())).await;
        assert!(pauses && uplink.stats().jobs == 2);
        says(&mut chat, &mut of_chat, 100).await;
        assert_eq!(place(&of_chat) < place(&of_other), in_bursts);
        drop((of_chat, of_other));
        assert_eq!(uplink.stats().jobs, 0, "nothing is left behind");
    }
}

/// The chunks in KiB of a stream of 320 KiB, whose client opens windows of so many bytes, and takes the fourth chunk
/// slowly.
async fn chunks_kib(window_bytes: Option<u32>) -> Vec<usize> {
    const KIB: usize = 1024;
    let (transport, _client) = memory::connection(ROOM_BYTES);
    let gate = Gate::new(transport, &rate_off());
    let flow = gate.flow();
    flow.set_stream_window(window_bytes);
    let body = Full::new(bytes::Bytes::from(vec![0; 320 * KIB]));
    let body = http_body_util::BodyExt::map_err(body, |never: std::convert::Infallible| match never {});
    let response = flow.clone().response(Version::HTTP_2, Response::new(body), Urgency::Ranked, |_| ());
    let (tell, mut chunks) = mpsc::unbounded_channel();
    let stream = async move {
        let mut body = std::pin::pin!(response.into_body());
        for number in 0.. {
            let Some(frame) = http_body_util::BodyExt::frame(&mut body).await else { return };
            let bytes = frame.unwrap().into_data().unwrap().len();
            tell.send(bytes / KIB).unwrap();
            flow.handle_sent(bytes as u64);
            tokio::time::sleep(Duration::from_millis(if number == 3 { 2000 } else { 1 })).await;
        }
    };
    spawn_stream(stream);
    let mut seen = Vec::new();
    while let Some(kib) = timeout(LONG, chunks.recv()).await.expect("the stream moves") {
        seen.push(kib);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_chunks_soon_gets_larger_ones() {
    assert_eq!(chunks_kib(None).await, [16, 16, 32, 64, 16, 32, 64, 64, 16]);
}

#[tokio::test(start_paused = true)]
async fn chunks_are_as_large_as_the_window_that_the_client_has_opened() {
    assert_eq!(chunks_kib(Some(20 * 1024)).await, [20, 16, 32, 64, 16, 32, 64, 64, 12]);
    assert_eq!(chunks_kib(Some(100 * 1024)).await, [64, 36, 32, 64, 16, 32, 64, 12]);
    assert_eq!(chunks_kib(Some(u32::MAX >> 1)).await, [64; 5]);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_connection_that_rests_gives_back_the_buffer_that_only_it_is_read_into() {
    let (transport, _client) = memory::connection(ROOM_BYTES);
    let mut gate = Gate::new(transport, &rate_off());
    let flow = gate.flow();
    let page_bytes = rustix::param::page_size();
    let mut buffer = vec![7; 4 * page_bytes];
    // Pages that were given back read as zeros.
    let mut given_back_after = async |rest| {
        tokio::time::sleep(rest).await;
        let mut poll = |cx: &mut Context<'_>| Pin::new(&mut gate).poll_read(cx, &mut ReadBuf::new(&mut buffer));
        assert!(poll_fn(|cx| Poll::Ready(poll(cx).is_pending())).await);
        buffer.iter().filter(|&&byte| byte == 0).count() / page_bytes
    };
    assert_eq!(given_back_after(Duration::ZERO).await, 0);
    assert_eq!(given_back_after(LONG).await, 0);
    assert!(!flow.is_resting());
    flow.set_keeps_buffer();
    assert_eq!(given_back_after(Duration::ZERO).await, 0);
    assert!(given_back_after(LONG).await >= 3);
    assert!(flow.is_resting());
}

#[test]
fn neighbours_differ_in_the_lowest_16_bits_of_the_number_of_their_path() {
    let number = |address: &str| super::path_number(address.parse().expect("an address"));
    let neighbours = |a: &str, b: &str| number(a) != number(b) && number(a) >> 16 == number(b) >> 16;
    assert!(neighbours("192.0.2.1", "192.0.2.254") && !neighbours("192.0.2.1", "192.0.3.1"));
    assert!(neighbours("2001:db8:0:1::1", "2001:db8:0:2::1") && !neighbours("2001:db8:0:1::1", "2001:db8:1:1::1"));
    assert_eq!(number("2001:db8:0:1::1"), number("2001:db8:0:1::2"), "a household");
}
