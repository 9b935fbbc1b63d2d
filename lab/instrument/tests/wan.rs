//! Paths with distance, loss and lines in real network namespaces. The tests need root, iproute2 and TUN
//! devices, and are skipped with a message without them.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
};

use serpent_instrument::{
    LabError,
    bed::{BedConfig, Bottleneck, Calibration, Emulation, SERVER, TestBed},
    setting::{PathSetting, ServerSetting},
};
use socket2::{Domain, SockAddr, Socket, Type};

fn possible() -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        "network namespaces need root"
    } else if !Path::new("/sbin/tc").exists() {
        "iproute2 is missing"
    } else if !Path::new("/dev/net/tun").exists() {
        "/dev/net/tun is missing"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none(), "in CI this must run: {missing}");
    eprintln!("SKIPPED: {missing}");
    false
}

fn paths() -> Vec<PathSetting> {
    let path = |rtt_ms| PathSetting { rtt_ms, ..PathSetting::default() };
    vec![
        path(0.0),
        path(90.0),
        PathSetting { jitter_ms: 5.0, loss: 0.15, ..path(100.0) },
        PathSetting { rate: "2mbit".parse().ok(), mss_bytes: Some(536), ..path(20.0) },
    ]
}

fn connect(bed: &TestBed, group: usize) -> TcpStream {
    let _inside = bed.client().enter().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source = Ipv4Addr::from_bits(bed.sources(group).to_bits() + 7);
    socket.bind(&SockAddr::from(SocketAddr::from((source, 0)))).unwrap();
    socket.connect(&SockAddr::from(SocketAddr::from((SERVER, 80)))).unwrap();
    socket.into()
}

/// Calibrates the bed. Other programs on the machine may delay most packets of a probe. The bed then rightly refuses, and
/// is asked again, a few times. No other refusal is accepted.
fn calibrated(bed: &TestBed) -> Calibration {
    let is_busy = |error: &LabError| error.to_string().contains("is the machine busy with something else?");
    for _ in 0..4 {
        match bed.calibrate() {
            Err(error) if is_busy(&error) => eprintln!("{error}"),
            calibration => return calibration.unwrap(),
        }
    }
    bed.calibrate().unwrap()
}

/// One test, because a process has one bed at a time.
#[test]
fn each_group_has_the_path_it_was_given() {
    if !possible() {
        return;
    }
    for (bottleneck, emulation) in [
        (Bottleneck::Server, Emulation::Own),
        (Bottleneck::Router, Emulation::Own),
        (Bottleneck::Server, Emulation::Netem),
        (Bottleneck::Router, Emulation::Netem),
    ] {
        let config = BedConfig {
            bottleneck,
            paths: paths(),
            emulation,
            server: ServerSetting { syn_queue: 300, accept_queue: 200, syn_cookies: false, initial_rto_s: Some(3.0) },
            ..BedConfig::default()
        };
        let bed = match TestBed::build(config) {
            Err(LabError::Machine(reason)) if emulation == Emulation::Netem => {
                eprintln!("SKIPPED, the paths by netem: {reason}");
                continue;
            }
            bed => bed.unwrap(),
        };
        assert_eq!(bed.emulation(), Some(emulation));
        bed.shape().unwrap();
        let calibration = calibrated(&bed);
        assert_eq!(bed.qdisc().unwrap().drops, 0);
        assert_eq!(calibration.paths.len(), 4);
        // Our own emulator releases a packet 60 µs early in each direction, to make up for its own work
        // (`EARLY_NS` in wan/emulator.rs). On an idle machine that work may take less.
        let early_ms = if emulation == Emulation::Own { 2.0 * 0.06 } else { 0.001 };
        for (seen, set) in calibration.paths.iter().zip(paths()) {
            assert!(seen.rtt_least_ms > set.rtt_ms - 5.0 * set.jitter_ms - early_ms, "{seen:?}");
            assert_eq!(seen.congestion, "cubic");
        }
        let line = calibration.paths[3].rate_bits_per_second.unwrap();
        assert!((line / 2e6 - 1.0).abs() < 0.1, "{line}");
        let lost = calibration.paths[2].loss;
        assert!((0.09..0.21).contains(&lost), "{lost}");
        eprintln!("{emulation:?}: {calibration:#?}");

        assert_eq!(bed.wan().unwrap().is_some(), emulation == Emulation::Own);
        if let Some(counters) = bed.wan().unwrap() {
            let facts = counters.facts();
            eprintln!("{facts:?}");
            assert_eq!((facts.strangers, facts.overflows, facts.refused, facts.unread), (0, 0, 0, 0), "{facts:?}");
            the_queue_before_the_emulator_is_ours(&bed);
            assert!(facts.groups[2].to_clients.lost > 0 && facts.groups[1].to_clients.lost == 0, "{facts:?}");
            assert_eq!(facts.groups[2].to_server.lost, 0);
        }
        server_settings_are_set(&bed);
        the_first_time_out_is_set(&bed);
        small_segments_are_small(&bed);
    }
}

fn the_queue_before_the_emulator_is_ours(bed: &TestBed) {
    let _inside = bed.client().enter().unwrap();
    let shown = Command::new("tc").args(["qdisc", "show", "dev", "up0"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("pfifo") && shown.contains("limit 20000p"), "{shown}");
}

fn server_settings_are_set(bed: &TestBed) {
    let _inside = bed.server().enter().unwrap();
    let read = |key| std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap().trim().to_owned();
    assert_eq!(read("ipv4/tcp_max_syn_backlog"), "300");
    assert_eq!(read("core/somaxconn"), "200");
    assert_eq!(read("ipv4/tcp_syncookies"), "0");
}

/// The time-out applies to connections of the bed, and to no others.
fn the_first_time_out_is_set(bed: &TestBed) {
    for (ns, to) in [(bed.server(), bed.sources(1)), (bed.client(), SERVER)] {
        let _inside = ns.enter().unwrap();
        assert_eq!(first_time_out_us(to), 3_000_000);
    }
    assert_eq!(first_time_out_us(Ipv4Addr::LOCALHOST), 1_000_000, "outside the bed nothing has changed");
}

fn first_time_out_us(to: Ipv4Addr) -> u32 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&SockAddr::from(SocketAddr::from((to, 1))));
    kernel::socket::tcp_info(&socket).unwrap().rto_us
}

/// Data arrive complete from every group, in segments within the limit of its clients.
fn small_segments_are_small(bed: &TestBed) {
    const BYTES: usize = 100_000;
    let listener = {
        let _inside = bed.server().enter().unwrap();
        TcpListener::bind((SERVER, 80)).unwrap()
    };
    for (group, largest) in [(1, 1460), (3, 536)] {
        let before = packets_to_clients(bed);
        let mut client = connect(bed, group);
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), Ipv4Addr::from_bits(bed.sources(group).to_bits() + 7));
        let sender = thread::spawn(move || server.write_all(&[7; BYTES]).unwrap());
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert!(received == [7; BYTES]);
        let packets = packets_to_clients(bed) - before;
        assert!(packets >= BYTES / largest, "{group}: {packets}");
        // All packets without data are a handful.
        assert!(packets <= BYTES / largest + BYTES / largest / 5 + 10, "{group}: {packets}");
    }
}

fn packets_to_clients(bed: &TestBed) -> usize {
    let _inside = bed.client().enter().unwrap();
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("up0:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let path = |path| TestBed::build(BedConfig { paths: vec![path], ..BedConfig::default() }).unwrap_err();
    let server = ServerSetting { initial_rto_s: Some(0.0), ..ServerSetting::default() };
    let at_once = TestBed::build(BedConfig { server, ..BedConfig::default() }).unwrap_err();
    assert!(matches!(at_once, LabError::Request(_)), "{at_once}");
    for wrong in [
        PathSetting { rtt_ms: -1.0, ..PathSetting::default() },
        PathSetting { rtt_ms: f64::NAN, ..PathSetting::default() },
        PathSetting { loss: 1.0, ..PathSetting::default() },
        PathSetting { rtt_ms: 10.0, jitter_ms: 3.0, ..PathSetting::default() },
        PathSetting { mss_bytes: Some(9000), ..PathSetting::default() },
    ] {
        let refused = path(wrong);
        assert!(matches!(&refused, LabError::Request(reason) if reason.contains("client group 0")), "{refused}");
    }
    let many =
        TestBed::build(BedConfig { paths: vec![PathSetting::default(); 68], ..BedConfig::default() }).unwrap_err();
    assert!(matches!(many, LabError::Request(_)), "{many}");
}
