//! Compares the sampler's view of a server's namespace with known actions there. It needs root and iproute2,
//! and is skipped with a message without them.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serpent_instrument::{
    bed::{BedConfig, Counters, SERVER, TestBed},
    record::Sampled,
    sample::Sampler,
    setting::ServerSetting,
};
use socket2::{Domain, SockAddr, Socket, Type};

/// One test, because a process has one bed at a time.
#[test]
fn queues_connections_and_drops_are_seen_as_they_are() {
    if !rustix::process::geteuid().is_root() || !Path::new("/sbin/tc").exists() {
        assert!(std::env::var_os("CI").is_none(), "in CI this must run, as root and with iproute2");
        eprintln!("SKIPPED: network namespaces need root and iproute2");
        return;
    }
    let server = ServerSetting { accept_queue: 2, syn_cookies: false, ..ServerSetting::default() };
    let bed = TestBed::build(BedConfig { server, ..BedConfig::default() }).unwrap();
    bed.shape().unwrap();
    connections_that_nobody_accepts(&bed, 80);
    connections_that_hear_nothing(&bed, 81);
    drop(bed);

    let rate = "1gbit".parse().unwrap();
    let bed = TestBed::build(BedConfig { rate, ..BedConfig::default() }).unwrap();
    bed.shape().unwrap();
    twenty_thousand_connections(&bed, 82);
}

/// The queue accepts its limit and one more. A later client gets no answer, and repeats its SYN after a
/// second.
fn connections_that_nobody_accepts(bed: &TestBed, port: u16) {
    let listener = listen(bed, port);
    let mut clients: Vec<Socket> = (0..6).map(|_| connect(bed, port)).collect();
    let samples = sample(bed, port);
    for sampled in &samples {
        assert_eq!((sampled.accept_queue, sampled.established, sampled.syn_queue), (3, 3, 0), "{sampled:?}");
    }
    let last = samples.last().unwrap();
    assert!(last.listen_overflows >= 3 && last.syn_drops == 0, "{last:?}");
    // Three came before the sampler started, and are not in its count.
    assert!(last.listen_overflows + 3 <= total(bed, "ListenOverflows"), "{last:?}");

    const BYTES: usize = 50_000;
    let before = bed.qdisc().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.write_all(&[7; BYTES]).unwrap();
    drop(accepted);
    // It was the first in the queue, so it is the first client's.
    clients[0].set_nonblocking(false).unwrap();
    let mut received = Vec::new();
    clients[0].read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), BYTES);
    let since = bed.qdisc().unwrap().since(&before);
    assert!(since.bytes > BYTES as u64 && since.drops == 0, "{since:?}");
}

/// One of the server's counters since its namespace was made.
fn total(bed: &TestBed, counter: &str) -> u64 {
    Counters::read(bed.server()).unwrap().get(counter)
}

/// As many half-open connections as the accept queue has places, or on newer kernels one more. Later SYNs
/// find no place among them.
fn connections_that_hear_nothing(bed: &TestBed, port: u16) {
    let _listener = listen(bed, port);
    let dropped_before = total(bed, "ListenDrops") - total(bed, "ListenOverflows");
    // Frames to an address without a device: SYNs arrive, and their answers are lost.
    let (name, device) = bed.server_device();
    let nobody = ["neigh", "replace", "10.77.0.2", "lladdr", "02:00:00:00:00:99", "dev", device, "nud", "permanent"];
    assert!(Command::new("ip").args(["-n", name]).args(nobody).status().unwrap().success());
    let _clients: Vec<Socket> = (0..6).map(|_| connect(bed, port)).collect();
    let before = bed.qdisc().unwrap();
    let samples = sample(bed, port);
    let since = bed.qdisc().unwrap().since(&before);
    let (first, last) = (samples[0], samples.last().unwrap());
    assert!((2..=3).contains(&first.syn_queue), "{first:?}");
    assert!(samples.iter().all(|s| (s.accept_queue, s.syn_queue) == (0, first.syn_queue)), "{samples:?}");
    let refused = 6 - first.syn_queue;
    assert!(last.syn_drops >= refused, "{last:?}");
    let dropped_in_all = total(bed, "ListenDrops") - total(bed, "ListenOverflows") - dropped_before;
    assert!(last.syn_drops + refused <= dropped_in_all, "counted from the sampler's start: {last:?}");
    // The answers pass the bottleneck again and again.
    assert!((first.queue_bytes + 1..=since.bytes).contains(&last.queue_bytes), "{samples:?}, {since:?}");
}

/// All of them are counted in the accept queue, where they need no descriptor of the server. The cost is
/// printed and not judged: it depends on the machine and its other load.
fn twenty_thousand_connections(bed: &TestBed, port: u16) {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    let connections = hard.map_or(20_000, |hard| hard.saturating_sub(100).min(20_000));
    let _listener = listen(bed, port);
    let _clients: Vec<TcpStream> = {
        let _inside = bed.client().enter().unwrap();
        (0..connections).map(|_| TcpStream::connect((SERVER, port)).unwrap()).collect()
    };
    let before = clock_gettime(ClockId::ProcessCPUTime);
    let samples = sample(bed, port);
    let spent = clock_gettime(ClockId::ProcessCPUTime) - before;
    // One more sample is taken before the first, as a baseline.
    let each_ms = Duration::try_from(spent).unwrap().as_secs_f64() * 1e3 / (samples.len() + 1) as f64;
    eprintln!("a sample beside {connections} connections: {each_ms:.2} ms of processor time");
    for sampled in &samples {
        let seen = (sampled.established, sampled.accept_queue, sampled.syn_queue);
        assert_eq!(seen, (connections, connections, 0), "{sampled:?}");
    }
}

/// Three samples: at once, after one second and after two.
fn sample(bed: &TestBed, port: u16) -> Vec<Sampled> {
    let start = Instant::now();
    let sampler = Sampler::start(bed, start, port).unwrap();
    // The sampler's interval itself is under test.
    thread::sleep(Duration::from_millis(2500));
    let (samples, notes) = sampler.stop();
    assert_eq!(notes, Vec::<String>::new());
    assert!(samples.iter().zip(0..3).all(|(sampled, second)| sampled.at_s >= f64::from(second)), "{samples:?}");
    assert!(samples.len() >= 2 && samples.last().unwrap().at_s >= 1.0, "{samples:?}");
    samples
}

fn listen(bed: &TestBed, port: u16) -> TcpListener {
    let _inside = bed.server().enter().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from((SERVER, port)))).unwrap();
    // As many as the namespace allows.
    socket.listen(i32::MAX).unwrap();
    socket.into()
}

/// Begins to connect, without waiting.
fn connect(bed: &TestBed, port: u16) -> Socket {
    let _inside = bed.client().enter().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::new(10, 10, 0, 7), 0)))).unwrap();
    socket.set_nonblocking(true).unwrap();
    let begun = socket.connect(&SockAddr::from(SocketAddr::from((SERVER, port)))).unwrap_err();
    assert_eq!(begun.raw_os_error(), Some(rustix::io::Errno::INPROGRESS.raw_os_error()));
    socket
}
