//! How near the pacer comes to exact SRPT, by the packet model: at a fixed rate, at a given one that it corrects, and at
//! one that it finds.
//!
//!     cargo run --release -p serpent-simulator --example pacing              # all conditions
//!     cargo run --release -p serpent-simulator --example pacing -- 3 11      # some of them
//!     cargo run --release -p serpent-simulator --example pacing -- auto      # found beside given, those of `auto.toml`
//!     cargo run --release -p serpent-simulator --example pacing -- auto 3 --seeds 4,5
//!     cargo run --release -p serpent-simulator --example pacing -- auto --told    # where the device has that rate
//!
//! Each condition and each way to know the rate has a line. The first columns are the mean response time over that of
//! exact SRPT on the bare link, and the 99th percentile of responses up to 2 KB. Then come the part of the link that
//! was used while responses waited for leave, and the time of the largest response over that of fair sharing. Next is
//! the time until the rate stayed within 3 % of the truth, from the start and after each change of the link. The last
//! column is how often the pacer's timer rang for each response.

use std::process::ExitCode;

use scheduler::{
    Rate,
    correction::{self, Correction},
    pace::{Finder, Pace},
    uplink::Settings,
};
use serpent_simulator::{
    Clients, Ended, Model, Packets, Stream, Ticket,
    packets::{
        BottleneckAt, ClientLine, ClientPath, Discipline, OtherDownloads, OtherTraffic, OtherUploads, PacketSettings,
        Queueing, Shaping,
    },
    run,
};
use workload::{
    ideal,
    pattern::Pattern,
    rate::Link,
    sequence::{LoadMatch, Recipe, Request},
    sizes::{FileSet, HeavyTail},
    wire::WireModel,
};

fn main() -> ExitCode {
    let mut wanted = Vec::new();
    let (mut is_auto, mut is_told, mut seeds) = (false, false, vec![1]);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), arg.parse::<usize>()) {
            ("auto", _) => is_auto = true,
            ("--told", _) => is_told = true,
            ("--seeds", _) => {
                let list = args.next().unwrap_or_default();
                seeds = list.split(',').filter_map(|seed| seed.parse().ok()).collect();
            }
            (_, Ok(number)) => wanted.push(number),
            _ => {
                eprintln!("usage: pacing [auto [--told]] [NUMBER ...] [--seeds N,N]");
                return ExitCode::FAILURE;
            }
        }
    }
    let (conditions, ways) = match (is_auto, is_told) {
        (true, false) => (auto_conditions(), &WAYS_AUTO[..]),
        (true, true) => (auto_conditions(), &WAYS_TOLD[..]),
        (false, _) => (conditions(), &WAYS[..]),
    };
    println!(
        "| condition | rate | mean / ideal | small p99 ms | use while busy | largest / fair | s to follow | rings a response |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (number, condition) in (1..).zip(conditions) {
        if wanted.is_empty() || wanted.contains(&number) {
            for &seed in &seeds {
                condition.show(number, ways, seed);
            }
        }
    }
    ExitCode::SUCCESS
}

/// The link, the load and the clients of a run.
struct Condition {
    name: String,
    /// Times in seconds from which on the link has this rate in Mbit/s.
    mbit: Vec<(u64, f64)>,
    load: &'static str,
    seconds: u64,
    paths: Vec<ClientPath>,
    /// The client that makes the request of this number, from the first one on again after the last.
    client: fn(usize) -> usize,
    are_neighbours: bool,
    requests_per_connection: u32,
    /// Bytes of a segment on the wire beside its payload, in truth. The server counts 66.
    overhead_bytes: u64,
    /// Other senders' traffic in Mbit/s, from and until, in seconds.
    other: Option<(f64, u64, u64)>,
    downloads: Option<OtherDownloads>,
    uploads: Option<OtherUploads>,
    /// Packets that wait before the link at most, if not the default.
    queue_packets: Option<u32>,
    bottleneck: BottleneckAt,
    shaping: Option<Shaping>,
    queueing: Queueing,
    sizes: HeavyTail,
    /// Requests of the first seconds are served, and not counted.
    warm_up_s: u64,
}

/// How the pacer knows the rate.
#[derive(Clone, Copy)]
enum Known {
    Fixed(f64),
    /// This part of the truth is given, and at most that part of it is used.
    Given(f64, Option<f64>),
    Found,
    /// The kernel holds the device to the first rate of the link, whatever the link does.
    Told,
}

const WAYS: [(&str, Known); 5] = [
    ("fixed, 0.97", Known::Fixed(0.97)),
    ("fixed, 1.00", Known::Fixed(1.0)),
    ("given, 0.95 of the truth", Known::Given(0.95, None)),
    ("given, 1.00", Known::Given(1.0, None)),
    ("given, 1.05", Known::Given(1.05, None)),
];
const GIVEN: (&str, Known) = ("given", Known::Given(1.0, Some(correction::UTILISATION)));
const WAYS_AUTO: [(&str, Known); 2] = [GIVEN, ("found", Known::Found)];
const WAYS_TOLD: [(&str, Known); 2] = [GIVEN, ("told", Known::Told)];

fn far(ms: u64) -> ClientPath {
    ClientPath { rtt_ns: ms * MS, ..ClientPath::DIRECT }
}

fn plain(name: &str, mbit: f64, load: &'static str) -> Condition {
    Condition {
        name: name.to_owned(),
        mbit: vec![(0, mbit)],
        load,
        seconds: if mbit > 60.0 { 20 } else { 60 },
        paths: Vec::new(),
        client: |request| request,
        are_neighbours: false,
        requests_per_connection: 1,
        overhead_bytes: 66,
        other: None,
        downloads: None,
        uploads: None,
        queue_packets: None,
        bottleneck: BottleneckAt::Router,
        shaping: None,
        queueing: Queueing::Fifo,
        sizes: HeavyTail::WORLD_CUP,
        warm_up_s: 0,
    }
}

/// Those of the experiment `auto`, other traffic in both directions, more slow lines, bursts, jitter, and connections in use.
fn auto_conditions() -> Vec<Condition> {
    let bucket = |burst_bytes, condition| Condition { shaping: Some(Shaping::Bucket { burst_bytes }), ..condition };
    let large = HeavyTail {
        min_bytes: 20_000.0,
        median_bytes: 100_000.0,
        knee_bytes: 400_000.0,
        body_share: 0.9,
        alpha: 1.2,
        max_bytes: 5_000_000.0,
    };
    let mut conditions = vec![
        late(plain("2 Mbit/s", 2.0, "0.8")),
        late(plain("10 Mbit/s", 10.0, "0.8")),
        late(plain("10 Mbit/s, load 0.9", 10.0, "0.9")),
        late(plain("10 Mbit/s, load 0.4", 10.0, "0.4")),
        late(plain("50 Mbit/s", 50.0, "0.8")),
        Condition { seconds: 30, ..late(plain("100 Mbit/s", 100.0, "0.8")) },
        Condition { sizes: large, seconds: 30, ..late(plain("500 Mbit/s, large responses", 500.0, "0.8")) },
        late(Condition { paths: vec![far(40)], ..plain("10 Mbit/s, RTT 40 ms", 10.0, "0.8") }),
        late(Condition { paths: vec![far(100)], ..plain("50 Mbit/s, RTT 100 ms", 50.0, "0.8") }),
        late(Condition { paths: vec![far(200)], ..plain("10 Mbit/s, RTT 200 ms", 10.0, "0.8") }),
        late(Condition {
            paths: vec![ClientPath { loss: 0.01, ..far(20) }],
            ..plain("10 Mbit/s, RTT 20 ms, loss 1 %", 10.0, "0.8")
        }),
        late(Condition {
            paths: vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }],
            ..plain("50 Mbit/s, RTT 30 ms, jitter 5 ms", 50.0, "0.8")
        }),
        Condition { seconds: 100, warm_up_s: 10, ..plain("10 Mbit/s, overload (W1)", 10.0, "w1") },
        late(Condition {
            mbit: vec![(0, 10.0), (20, 5.0)],
            ..plain("10 Mbit/s, half of it from second 20", 10.0, "0.8")
        }),
        late(Condition {
            mbit: vec![(0, 10.0), (20, 20.0)],
            ..plain("10 Mbit/s, twice of it from second 20", 10.0, "0.8")
        }),
        late(Condition {
            other: Some((3.0, 20, 40)),
            paths: vec![far(10)],
            ..plain("10 Mbit/s, 3 Mbit/s of others from second 20 to 40", 10.0, "0.8")
        }),
        late(Condition {
            paths: [1, 10, 50, 100, 200].map(far).to_vec(),
            ..plain("10 Mbit/s, load 0.9, RTT 1 to 200 ms", 10.0, "0.9")
        }),
        late(Condition { mbit: vec![(0, 2.0), (20, 1.0)], ..plain("2 Mbit/s, half of it from second 20", 2.0, "0.8") }),
        late(Condition {
            mbit: vec![(0, 2.0), (20, 4.0)],
            ..plain("2 Mbit/s, twice of it from second 20", 2.0, "0.8")
        }),
        late(plain("4 Mbit/s", 4.0, "0.8")),
        late(plain("2 Mbit/s, load 0.4", 2.0, "0.4")),
        late(Condition { paths: vec![far(40)], ..plain("2 Mbit/s, RTT 40 ms", 2.0, "0.8") }),
        late(bucket(16_000, plain("2 Mbit/s, a token bucket of 16 KB", 2.0, "0.8"))),
        late(bucket(64_000, plain("10 Mbit/s, a token bucket of 64 KB", 10.0, "0.8"))),
        late(bucket(64_000, plain("50 Mbit/s, a token bucket of 64 KB", 50.0, "0.8"))),
        late(bucket(256_000, plain("100 Mbit/s, a token bucket of 256 KB", 100.0, "0.8"))),
        late(Condition {
            mbit: vec![(0, 10.0), (20, 20.0)],
            ..bucket(64_000, plain("10, then 20 Mbit/s, a token bucket of 64 KB", 10.0, "0.8"))
        }),
        late(Condition {
            paths: vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }],
            ..plain("10 Mbit/s, RTT 30 ms, jitter 5 ms", 10.0, "0.8")
        }),
        late(kept(plain("2 Mbit/s, kept alive", 2.0, "0.8"))),
        late(kept(plain("10 Mbit/s, kept alive", 10.0, "0.8"))),
        late(kept(plain("50 Mbit/s, kept alive", 50.0, "0.8"))),
        late(kept(Condition { paths: vec![far(40)], ..plain("50 Mbit/s, kept alive, RTT 40 ms", 50.0, "0.8") })),
        late(kept(Condition {
            paths: vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }],
            ..plain("10 Mbit/s, kept alive, RTT 30 ms, jitter 5 ms", 10.0, "0.8")
        })),
        late(kept(Condition {
            paths: vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }],
            ..plain("50 Mbit/s, kept alive, RTT 30 ms, jitter 5 ms", 50.0, "0.8")
        })),
        late(Condition { paths: jittery(), ..plain("10 Mbit/s, RTT 10 to 150 ms, jitter 1 to 20 ms", 10.0, "0.8") }),
        late(kept(Condition {
            paths: jittery(),
            ..plain("20 Mbit/s, kept alive, RTT 10 to 150 ms, jitter 1 to 20 ms", 20.0, "0.8")
        })),
        late(kept(Condition {
            paths: jittery(),
            ..plain("50 Mbit/s, kept alive, RTT 10 to 150 ms, jitter 1 to 20 ms", 50.0, "0.8")
        })),
        late(kept(Condition {
            paths: [10, 15, 20, 25, 40].map(far).to_vec(),
            are_neighbours: true,
            ..plain("50 Mbit/s, kept alive, neighbours with RTT 10 to 40 ms", 50.0, "0.8")
        })),
        late(Condition {
            mbit: vec![(0, 10.0), (20, 1.5), (40, 10.0)],
            ..plain("10 Mbit/s, 1.5 Mbit/s from second 20 to 40", 10.0, "0.8")
        }),
        late(Condition {
            mbit: vec![(0, 50.0), (20, 3.0), (40, 50.0)],
            ..plain("50 Mbit/s, 3 Mbit/s from second 20 to 40", 50.0, "0.8")
        }),
        stays(plain("1 Mbit/s, connections that stay", 1.0, "0.8")),
        stays(Condition { sizes: large, ..plain("1 Mbit/s, connections that stay, large responses", 1.0, "0.8") }),
    ];
    conditions.extend(behind(Queueing::FairCodel, "FQ-CoDel"));
    conditions.extend(behind(Queueing::Pie, "PIE"));
    conditions.extend(homes(large));
    conditions.extend([
        kept(among(20, plain("2 Mbit/s, kept alive, 20 clients", 2.0, "0.8"))),
        stays(among(20, plain("1 Mbit/s, 20 clients, connections that stay", 1.0, "0.8"))),
        kept(among(
            20,
            Condition {
                mbit: vec![(0, 10.0), (20, 5.0)],
                ..plain("10 Mbit/s, kept alive, 20 clients, half of it from second 20", 10.0, "0.8")
            },
        )),
        visitors(once, plain("10 Mbit/s, visitors of one page", 10.0, "0.8")),
        kept(visitors(once, plain("50 Mbit/s, kept alive, visitors of one page", 50.0, "0.8"))),
        visitors(thrice, plain("2 Mbit/s, visitors of three pages", 2.0, "0.8")),
        kept(visitors(thrice, plain("10 Mbit/s, kept alive, visitors of three pages", 10.0, "0.8"))),
    ]);
    conditions.extend(beside_downloads());
    conditions.extend(beside_uploads());
    conditions.extend(strangers());
    conditions.extend(strangers_of_one_request());
    conditions.extend(becoming_faster());
    conditions.extend(in_turn());
    conditions.extend(becoming_slower(large));
    conditions.extend(on_own_device());
    conditions
}

/// The server's own device is the bottleneck. There TCP keeps few packets of each connection in the queue.
fn on_own_device() -> [Condition; 14] {
    let on = |condition: Condition| Condition {
        name: format!("{}, own device", condition.name),
        bottleneck: BottleneckAt::Server,
        ..late(condition)
    };
    let at = |rtt_ms: u64, mbit: f64, name: &str| {
        on(Condition { paths: vec![far(rtt_ms)], ..plain(&format!("{mbit} Mbit/s, {name}"), mbit, "0.8") })
    };
    let jitter =
        |condition: Condition| Condition { paths: vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }], ..condition };
    let near = |mbit: f64| on(plain(&format!("{mbit} Mbit/s"), mbit, "0.8"));
    let faster = |mbit: f64| {
        on(Condition {
            mbit: vec![(0, mbit), (20, 2.0 * mbit)],
            ..plain(&format!("{mbit}, then {} Mbit/s", 2.0 * mbit), mbit, "0.8")
        })
    };
    [
        near(2.0),
        near(10.0),
        near(50.0),
        Condition { seconds: 30, ..near(100.0) },
        kept(on(plain("10 Mbit/s, kept alive", 10.0, "0.8"))),
        kept(on(plain("50 Mbit/s, kept alive", 50.0, "0.8"))),
        at(40, 10.0, "RTT 40 ms"),
        at(100, 50.0, "RTT 100 ms"),
        jitter(at(30, 50.0, "RTT 30 ms, jitter 5 ms")),
        kept(jitter(at(30, 10.0, "kept alive, RTT 30 ms, jitter 5 ms"))),
        kept(jitter(at(30, 50.0, "kept alive, RTT 30 ms, jitter 5 ms"))),
        on(Condition { mbit: vec![(0, 10.0), (20, 5.0)], ..plain("10, then 5 Mbit/s", 10.0, "0.8") }),
        faster(10.0),
        faster(100.0),
    ]
}

/// The link becomes faster in second 20.
fn becoming_faster() -> [Condition; 8] {
    let faster = |name: &str, before: f64, after: f64| {
        late(Condition { mbit: vec![(0, before), (20, after)], ..plain(name, before, "0.8") })
    };
    let jitter = || vec![ClientPath { jitter_ns: 5 * MS, ..far(30) }];
    [
        Condition { paths: vec![far(40)], ..faster("10, then 20 Mbit/s, RTT 40 ms", 10.0, 20.0) },
        kept(faster("10, then 20 Mbit/s, kept alive", 10.0, 20.0)),
        kept(Condition { paths: vec![far(40)], ..faster("50, then 100 Mbit/s, kept alive, RTT 40 ms", 50.0, 100.0) }),
        faster("100, then 200 Mbit/s", 100.0, 200.0),
        Condition { paths: jitter(), ..faster("10, then 20 Mbit/s, RTT 30 ms, jitter 5 ms", 10.0, 20.0) },
        faster("10, then 12 Mbit/s", 10.0, 12.0),
        Condition { paths: vec![far(40)], ..faster("50, then 60 Mbit/s, RTT 40 ms", 50.0, 60.0) },
        kept(faster("50, then 75 Mbit/s, kept alive", 50.0, 75.0)),
    ]
}

/// The link becomes a fifth slower in second 20. It carries more than what comes, so at the old rate hardly any work waits.
fn becoming_slower(large: HeavyTail) -> [Condition; 4] {
    let slower = |name: &str, before: f64, after: f64| {
        let name = format!("{name}, load 0.64");
        late(Condition { mbit: vec![(0, before), (20, after)], ..plain(&name, before, "0.64") })
    };
    [
        Condition { sizes: large, ..slower("625, then 500 Mbit/s, large responses", 625.0, 500.0) },
        slower("125, then 100 Mbit/s", 125.0, 100.0),
        slower("12.5, then 10 Mbit/s", 12.5, 10.0),
        kept(slower("62.5, then 50 Mbit/s, kept alive", 62.5, 50.0)),
    ]
}

/// 250 clients ask for something in turn. Each comes back after some seconds, and its earlier round trips are few.
fn in_turn() -> [Condition; 8] {
    const CLIENTS: usize = 250;
    let of = |path: &dyn Fn(usize) -> ClientPath, are_neighbours: bool, condition: Condition| {
        late(Condition { paths: (0..CLIENTS).map(path).collect(), are_neighbours, ..condition })
    };
    let near = |condition: Condition| of(&|_| ClientPath::DIRECT, true, condition);
    let apart = |condition: Condition| of(&|n| far(mostly_near_ms(n)), true, condition);
    let half = |condition: Condition| {
        of(&|n| if n % 2 == 0 { ClientPath::DIRECT } else { far(mostly_near_ms(n)) }, true, condition)
    };
    let strange = |condition: Condition| of(&|n| far(mostly_near_ms(n)), false, condition);
    let at = |mbit: f64, name: &str| plain(&format!("{mbit} Mbit/s, 250 clients in turn, {name}"), mbit, "0.8");
    [
        near(at(2.0, "neighbours nearby")),
        near(at(10.0, "neighbours nearby")),
        near(Condition {
            mbit: vec![(0, 10.0), (20, 5.0)],
            ..at(10.0, "neighbours nearby, half of it from second 20")
        }),
        apart(at(2.0, "neighbours at 5 to 200 ms")),
        apart(at(10.0, "neighbours at 5 to 200 ms")),
        strange(at(2.0, "at 5 to 200 ms")),
        half(at(2.0, "neighbours, half of them nearby, half at 5 to 200 ms")),
        half(at(10.0, "neighbours, half of them nearby, half at 5 to 200 ms")),
    ]
}

/// Requests of the first 10 s do not count.
fn late(condition: Condition) -> Condition {
    Condition { seconds: 50, warm_up_s: 10, ..condition }
}

/// A router whose queue is not first in, first out, with clients at 20 ms.
fn behind(queueing: Queueing, name: &str) -> [Condition; 5] {
    let at = |mbit: f64| plain(&format!("{mbit} Mbit/s, RTT 20 ms, {name}"), mbit, "0.8");
    let halves = plain(&format!("10 Mbit/s, {name}, half of it from second 20"), 10.0, "0.8");
    let alive = plain(&format!("10 Mbit/s, RTT 20 ms, {name}, kept alive"), 10.0, "0.8");
    let halves = Condition { mbit: vec![(0, 10.0), (20, 5.0)], ..halves };
    [at(10.0), at(50.0), kept(alive), at(2.0), halves]
        .map(|condition| late(Condition { queueing, paths: vec![far(20)], ..condition }))
}

/// Clients at 20 ms, each behind a line of its own that is slower than the uplink, with a queue of 200 packets.
fn homes(large: HeavyTail) -> [Condition; 6] {
    let with_lines = |clients: usize, mbit: &[f64], condition: Condition| {
        let line = |mbit: f64| ClientLine { rate: rate(mbit), queue_bytes: 200 * 1514 };
        let path = |&mbit: &f64| ClientPath { line: Some(line(mbit)), ..far(20) };
        late(Condition { paths: mbit.iter().cycle().take(clients).map(path).collect(), ..condition })
    };
    let large = |condition: Condition| Condition { sizes: large, ..condition };
    [
        with_lines(40, &[5.0], plain("50 Mbit/s, 40 clients with lines of 5 Mbit/s", 50.0, "0.8")),
        kept(with_lines(
            40,
            &[2.0, 5.0, 10.0, 20.0, 50.0],
            plain("50 Mbit/s, kept alive, 40 clients with lines of 2 to 50 Mbit/s", 50.0, "0.8"),
        )),
        kept(with_lines(40, &[5.0], plain("10 Mbit/s, kept alive, 40 clients with lines of 5 Mbit/s", 10.0, "0.8"))),
        large(with_lines(40, &[10.0], plain("100 Mbit/s, large responses, 40 clients with 10 Mbit/s", 100.0, "0.8"))),
        large(with_lines(20, &[5.0], plain("50 Mbit/s, large responses, 20 clients with 5 Mbit/s", 50.0, "0.8"))),
        kept(with_lines(10, &[2.0, 20.0], plain("10 Mbit/s, kept alive, 10 clients with 2 or 20 Mbit/s", 10.0, "0.8"))),
    ]
}

/// Clients at 10 to 69 ms that come to the site and go.
fn visitors(client: fn(usize) -> usize, condition: Condition) -> Condition {
    late(Condition { paths: (0..6_000).map(|n| far(10 + n % 60)).collect(), client, ..condition })
}

/// Visitors of one page, 5 to 200 ms away in no order, so nothing is known of a client when it comes.
fn strangers() -> [Condition; 7] {
    const LINES_MBIT: [f64; 5] = [2.0, 5.0, 10.0, 20.0, 50.0];
    let far_ms = |n: usize| 5 + n as u64 * 7919 % 1009 * 195 / 1009;
    let come = |path: &dyn Fn(usize) -> ClientPath, condition: Condition| {
        late(Condition { paths: (0..6_000).map(path).collect(), client: once, ..condition })
    };
    let plainly = |condition: Condition| come(&|n| far(far_ms(n)), condition);
    let at = |mbit: f64, name: &str| plain(&format!("{mbit} Mbit/s, strangers{name}"), mbit, "0.8");
    let jitter = |n: usize| ClientPath { jitter_ns: far_ms(n) * MS / 10, ..far(far_ms(n)) };
    let line = |n: usize| ClientPath {
        line: Some(ClientLine { rate: rate(LINES_MBIT[n % LINES_MBIT.len()]), queue_bytes: 200 * 1514 }),
        ..far(far_ms(n))
    };
    let [_, downloads, ..] = beside_downloads();
    let [upload, ..] = beside_uploads();
    [
        plainly(at(10.0, "")),
        come(&jitter, at(10.0, ", jitter of a tenth of the RTT")),
        kept(plainly(at(20.0, ", kept alive"))),
        plainly(Condition { mbit: vec![(0, 10.0), (20, 5.0)], ..at(10.0, ", half of it from second 20") }),
        plainly(Condition { downloads: downloads.downloads, ..at(10.0, ", downloads of 2 s from second 20 to 40") }),
        plainly(Condition {
            uploads: upload.uploads,
            queue_packets: upload.queue_packets,
            ..at(10.0, ", an upload from second 20 to 40")
        }),
        come(&line, at(20.0, ", lines of 2 to 50 Mbit/s")),
    ]
}

/// Each request is of a client that was never seen before, and does not come back. Clients are 5 to 200 ms away, half of them
/// below 55 ms.
fn strangers_of_one_request() -> [Condition; 8] {
    const CLIENTS: usize = 60_000;
    let come = |path: &dyn Fn(usize) -> ClientPath, condition: Condition| {
        late(Condition { paths: (0..CLIENTS).map(path).collect(), ..condition })
    };
    let plainly = |condition: Condition| come(&|n| far(mostly_near_ms(n)), condition);
    let jitter = |n: usize| ClientPath { jitter_ns: mostly_near_ms(n) * MS / 10, ..far(mostly_near_ms(n)) };
    let at = |mbit: f64, name: &str| plain(&format!("{mbit} Mbit/s, strangers of one request{name}"), mbit, "0.8");
    let [upload, ..] = beside_uploads();
    [
        plainly(at(2.0, "")),
        plainly(at(10.0, "")),
        plainly(at(50.0, "")),
        come(&|_| far(2), at(10.0, ", nearby")),
        come(&jitter, at(10.0, ", jitter of a tenth of the RTT")),
        plainly(Condition { mbit: vec![(0, 10.0), (20, 5.0)], ..at(10.0, ", half of it from second 20") }),
        plainly(Condition {
            uploads: upload.uploads,
            queue_packets: upload.queue_packets,
            ..at(10.0, ", an upload from second 20 to 40")
        }),
        plainly(Condition { client: mostly_once, ..at(10.0, ", and a third of pages") }),
    ]
}

/// From 5 to 200 ms, and below 55 ms for half of the clients.
fn mostly_near_ms(n: usize) -> u64 {
    5 + (195.0 * f64::powi(drawn(n), 2)) as u64
}

/// A number from 0 to 1, for each client always the same (SplitMix64).
fn drawn(n: usize) -> f64 {
    let mixed = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 40) as f64 / (1u64 << 24) as f64
}

/// Every third request is of a page, which is eight of them.
fn mostly_once(request: usize) -> usize {
    if request.is_multiple_of(3) { request / 24 * 24 } else { request }
}

/// Each visitor asks for a page, which is eight requests, and does not come back.
fn once(request: usize) -> usize {
    request / 8
}

/// Of 50 visitors each asks for a page, and then for two more.
fn thrice(request: usize) -> usize {
    let page = request / 8;
    page / 150 * 50 + page % 50
}

/// So many clients at distances from 10 ms on.
fn among(clients: u64, condition: Condition) -> Condition {
    late(Condition { paths: (0..clients).map(|n| far(10 + 3 * n)).collect(), ..condition })
}

/// Clients at 20 ms. On the way to the server, packets wait behind downloads of others: up to 100 ms, or 300 ms.
fn beside_downloads() -> [Condition; 9] {
    let [all, two_seconds] = [5_000, 2_000].map(|lasts_ms| OtherDownloads {
        from_ns: 20 * S,
        until_ns: 40 * S,
        lasts_ns: lasts_ms * MS,
        every_ns: 5 * S,
        most_ns: 100 * MS,
        fills_ns: 200 * MS,
    });
    let short = OtherDownloads { lasts_ns: 400 * MS, every_ns: 1_500 * MS, ..all };
    let long = OtherDownloads { most_ns: 300 * MS, fills_ns: S, ..two_seconds };
    let from_start = |downloads| OtherDownloads { from_ns: 0, ..downloads };
    let beside = |downloads, condition: Condition| {
        late(Condition { downloads: Some(downloads), paths: vec![far(20)], ..condition })
    };
    let at = |mbit: f64, name: &str| plain(&format!("{mbit} Mbit/s, {name}"), mbit, "0.8");
    [
        beside(all, at(10.0, "a download from second 20 to 40")),
        beside(two_seconds, at(10.0, "downloads of 2 s from second 20 to 40")),
        kept(beside(two_seconds, at(50.0, "kept alive, downloads of 2 s from second 20 to 40"))),
        beside(two_seconds, at(2.0, "downloads of 2 s from second 20 to 40")),
        beside(short, at(10.0, "downloads of 0.4 s from second 20 to 40")),
        kept(beside(short, at(50.0, "kept alive, downloads of 0.4 s from second 20 to 40"))),
        beside(long, at(10.0, "downloads with a queue of 300 ms from second 20 to 40")),
        beside(from_start(all), at(10.0, "a download until second 40")),
        kept(beside(from_start(two_seconds), at(10.0, "kept alive, downloads of 2 s until second 40"))),
    ]
}

/// Clients at 20 ms, or nearby. Others send as fast as CUBIC lets them, or with a fixed window. The site's load is 0.4 of
/// the line meanwhile.
fn beside_uploads() -> [Condition; 18] {
    let all = OtherUploads {
        from_ns: 20 * S,
        until_ns: 40 * S,
        lasts_ns: 20 * S,
        every_ns: 20 * S,
        connections: 1,
        rtt_ns: 20 * MS,
        window_segments: None,
    };
    let two_seconds = OtherUploads { lasts_ns: 2 * S, every_ns: 5 * S, ..all };
    let short = OtherUploads { lasts_ns: 400 * MS, every_ns: 1_500 * MS, ..all };
    let from_start = OtherUploads { from_ns: 0, lasts_ns: 40 * S, every_ns: 40 * S, ..all };
    let beside = |uploads, queue_packets, condition: Condition| {
        let queue_packets = Some(queue_packets);
        late(Condition { uploads: Some(uploads), queue_packets, paths: vec![far(20)], ..condition })
    };
    // BBR's window is twice the product of bandwidth and round trip, which nearby is a few packets.
    let fixed = |segments, uploads| OtherUploads { window_segments: Some(segments), ..uploads };
    let near = |condition: Condition| Condition {
        uploads: condition.uploads.map(|uploads| OtherUploads { rtt_ns: MS, ..uploads }),
        paths: Vec::new(),
        ..condition
    };
    let at = |mbit: f64, name: &str| plain(&format!("{mbit} Mbit/s, {name}"), mbit, "0.8");
    [
        beside(all, 100, at(10.0, "an upload from second 20 to 40")),
        beside(two_seconds, 100, at(10.0, "uploads of 2 s from second 20 to 40")),
        beside(short, 100, at(10.0, "uploads of 0.4 s from second 20 to 40")),
        beside(all, 1000, at(10.0, "an upload from second 20 to 40, a queue of 1000 packets")),
        kept(beside(all, 300, at(50.0, "kept alive, an upload from second 20 to 40"))),
        beside(from_start, 100, at(10.0, "an upload until second 40")),
        beside(all, 50, at(2.0, "an upload from second 20 to 40")),
        Condition {
            queueing: Queueing::FairCodel,
            ..beside(all, 1000, at(10.0, "FQ-CoDel, an upload from second 20 to 40"))
        },
        Condition { paths: Vec::new(), ..beside(all, 100, at(10.0, "clients nearby, an upload from second 20 to 40")) },
        Condition {
            paths: Vec::new(),
            ..kept(beside(all, 300, at(50.0, "kept alive, clients nearby, an upload from second 20 to 40")))
        },
        beside(OtherUploads { connections: 4, ..all }, 100, at(10.0, "four uploads from second 20 to 40")),
        beside(all, 30, at(10.0, "an upload from second 20 to 40, a queue of 30 packets")),
        beside(fixed(34, all), 100, at(10.0, "an upload with 34 packets from second 20 to 40")),
        near(beside(fixed(6, all), 100, at(10.0, "clients nearby, an upload with 6 packets from second 20 to 40"))),
        near(beside(
            fixed(6, two_seconds),
            100,
            at(10.0, "clients nearby, uploads of 2 s with 6 packets from second 20 to 40"),
        )),
        near(beside(fixed(6, from_start), 100, at(10.0, "clients nearby, an upload with 6 packets until second 40"))),
        near(beside(fixed(4, all), 50, at(2.0, "clients nearby, an upload with 4 packets from second 20 to 40"))),
        near(kept(beside(
            fixed(12, all),
            300,
            at(50.0, "kept alive, clients nearby, an upload with 12 packets from second 20 to 40"),
        ))),
    ]
}

/// Clients that make all their requests on the same connections: handshakes are few.
fn stays(condition: Condition) -> Condition {
    late(Condition { requests_per_connection: u32::MAX, ..condition })
}

/// Clients that make 20 requests on a connection.
fn kept(condition: Condition) -> Condition {
    Condition { requests_per_connection: 20, ..condition }
}

/// The farther a client is, the more its round trips vary.
fn jittery() -> Vec<ClientPath> {
    let paths = [(10, 1), (20, 2), (40, 5), (80, 10), (150, 20)];
    paths.map(|(rtt_ms, jitter_ms)| ClientPath { jitter_ns: jitter_ms * MS, ..far(rtt_ms) }).to_vec()
}

fn conditions() -> Vec<Condition> {
    let mixed = || [1, 10, 50, 100, 200].map(far).to_vec();
    vec![
        plain("2 Mbit/s, load 0.9", 2.0, "0.9"),
        plain("10 Mbit/s, load 0.8", 10.0, "0.8"),
        plain("10 Mbit/s, load 0.9", 10.0, "0.9"),
        plain("50 Mbit/s, load 0.9", 50.0, "0.9"),
        plain("100 Mbit/s, load 0.8", 100.0, "0.8"),
        plain("500 Mbit/s, load 0.8", 500.0, "0.8"),
        Condition { paths: vec![far(20)], ..plain("10 Mbit/s, load 0.9, 20 ms", 10.0, "0.9") },
        Condition { paths: mixed(), ..plain("10 Mbit/s, load 0.9, 1 to 200 ms", 10.0, "0.9") },
        Condition { paths: mixed(), ..plain("100 Mbit/s, load 0.9, 1 to 200 ms", 100.0, "0.9") },
        Condition {
            paths: vec![ClientPath { loss: 0.01, ..far(20) }],
            ..plain("10 Mbit/s, load 0.9, 20 ms, loss 1 %", 10.0, "0.9")
        },
        Condition {
            other: Some((3.0, 20, 40)),
            paths: vec![far(10)],
            ..plain("10 Mbit/s, load 0.9, 3 Mbit/s of others from 20 to 40 s", 10.0, "0.9")
        },
        Condition {
            mbit: vec![(0, 10.0), (20, 5.0), (40, 10.0)],
            paths: vec![far(10)],
            ..plain("10, 5 and 10 Mbit/s, load 0.9", 10.0, "0.9")
        },
        kept(Condition { paths: mixed(), ..plain("50 Mbit/s, load 0.9, kept alive, 1 to 200 ms", 50.0, "0.9") }),
        Condition {
            overhead_bytes: 66 + 24,
            shaping: Some(Shaping::Line),
            ..plain("100 Mbit/s, load 0.9, a real wire (24 bytes more)", 100.0, "0.9")
        },
        Condition {
            overhead_bytes: 66 + 24 + 20 + 8,
            shaping: Some(Shaping::Line),
            ..plain("10 Mbit/s, load 0.9, PPPoE and IPv6 (52 bytes more)", 10.0, "0.9")
        },
        Condition { seconds: 25, ..plain("10 Mbit/s, load 1.3 for 25 s", 10.0, "1.3") },
        Condition { seconds: 100, ..plain("10 Mbit/s, W1", 10.0, "w1") },
    ]
}

impl Condition {
    fn show(&self, number: usize, ways: &[(&str, Known)], seed: u64) {
        let line = self.line();
        let left = self.left();
        let wire = WireModel { overhead_bytes: self.overhead_bytes, ..WireModel::PER_CONNECTION };
        let wire = WireModel { control_bytes: 8 + 4 * self.overhead_bytes, ..wire };
        let wire = if self.requests_per_connection > 1 { WireModel { control_bytes: 0, ..wire } } else { wire };
        let files = FileSet::new(&self.sizes, 2000);
        let pattern: Pattern = match self.load.parse::<f64>() {
            Ok(load) => Pattern::constant(load).expect("a load"),
            Err(_) => self.load.parse().expect("the name of a pattern"),
        };
        let recipe = Recipe {
            files: &files,
            link: &left,
            pattern: &pattern,
            duration_ns: self.seconds * S,
            wire,
            load_match: LoadMatch::Sequence,
        };
        let mut requests = recipe.draw(seed);
        let groups = self.paths.len().max(1);
        for (n, request) in requests.iter_mut().enumerate() {
            request.group = ((self.client)(n) % groups) as u16;
        }
        let counts = |at: usize| requests[at].at_ns >= self.warm_up_s * S;
        // The ideal has distances: handshake and request take two round trips to each client.
        let trips = if self.requests_per_connection > 1 { 1.0 } else { 2.0 };
        let distance_ns =
            |it: &Request| trips * self.paths.get(usize::from(it.group)).map_or(0.0, |path| path.rtt_ns as f64);
        let alone_ns = ideal::srpt(&requests, &left, &wire);
        let counted = (0..requests.len()).filter(|&at| counts(at)).count();
        let ideal_ns: f64 =
            (0..requests.len()).filter(|&at| counts(at)).map(|at| alone_ns[at] + distance_ns(&requests[at])).sum();
        let largest = (0..requests.len()).filter(|&at| counts(at)).max_by_key(|&at| requests[at].size_bytes);
        let largest = largest.expect("some requests");
        let fair_ns = ideal::ps(&requests, &left, &wire)[largest];
        println!(
            "| {number}. {}, seed {seed}, ideal {:.2} ms | | | | | | | |",
            self.name,
            ideal_ns / counted as f64 / 1e6
        );
        for &(name, known) in ways {
            let truth = line.first_rate().bits_per_second() as f64;
            let (factor, pace) = match known {
                Known::Fixed(factor) => (factor, None),
                Known::Given(factor, most) => {
                    (factor, Some(Pace::Given(Correction::new(Rate::clamped(truth * factor), most))))
                }
                Known::Found => (1.0, Some(Pace::Found(Finder::new(None)))),
                Known::Told => {
                    let mut finder = Finder::new(None);
                    finder.handle_limit(scheduler::Instant::ORIGIN, Some(Rate::clamped(truth)));
                    (1.0, Some(Pace::Found(finder)))
                }
            };
            let settings = Settings { rate: Some(Rate::clamped(truth * factor)), ..Settings::default() };
            let defaults = PacketSettings::new(line.clone(), Discipline::Gate(settings));
            let mut model = Watched::new(
                PacketSettings {
                    wire,
                    pace,
                    seed,
                    other: self.other.map(|(mbit, from, until)| OtherTraffic {
                        rate: Link::constant(rate(mbit)),
                        from_ns: from * S,
                        until_ns: until * S,
                    }),
                    downloads: self.downloads,
                    uploads: self.uploads,
                    queue_packets: self.queue_packets.unwrap_or(defaults.queue_packets),
                    shaping: self.shaping.unwrap_or(defaults.shaping),
                    queueing: self.queueing,
                    bottleneck: self.bottleneck,
                    gso_segments: if truth > 50e6 { 4 } else { 1 },
                    paths: self.paths.clone(),
                    are_neighbours: self.are_neighbours,
                    requests_per_connection: self.requests_per_connection,
                    ..defaults
                },
                left.clone(),
            );
            let (mut sum_ns, mut small_ms, mut largest_ns) = (0, Vec::new(), 0);
            let mut source = Stream::new(requests.iter().copied());
            run(&mut source, &mut model, &Clients::PATIENT, None, |served| {
                if served.request.at_ns < self.warm_up_s * S {
                    return;
                }
                sum_ns += served.response_ns();
                if served.request.size_bytes <= 2_000 {
                    small_ms.push(served.response_ns() as f64 / 1e6);
                }
                if served.request.at_ns == requests[largest].at_ns {
                    largest_ns = served.response_ns();
                }
            });
            small_ms.sort_by(f64::total_cmp);
            println!(
                "| | {name} | {:.3} | {:.2} | {:.3} | {:.2} | {} | {:.2} |",
                sum_ns as f64 / ideal_ns,
                small_ms.get(small_ms.len() * 99 / 100).copied().unwrap_or(f64::NAN),
                model.used_bytes / model.could_bytes,
                largest_ns as f64 / fair_ns,
                if matches!(known, Known::Fixed(_)) { String::new() } else { model.followed(self) },
                model.model.stats().rings as f64 / requests.len() as f64,
            );
        }
    }

    fn line(&self) -> Link {
        let (_, first) = self.mbit[0];
        let changes = self.mbit[1..].iter();
        changes.fold(Link::constant(rate(first)), |link, &(at_s, mbit)| {
            link.then(at_s * S, rate(mbit)).expect("changes in order")
        })
    }

    /// The part of the line that other traffic leaves; of uploads, which take what they get, a half is meant to.
    fn left(&self) -> Link {
        let all = self.mbit[0].1;
        let shared = self.uploads.map(|uploads| (all / 2.0, uploads.from_ns / S, uploads.until_ns / S));
        let Some((mbit, from, until)) = self.other.or(shared) else { return self.line() };
        let link = match from {
            0 => Link::constant(rate(all - mbit)),
            _ => Link::constant(rate(all)).then(from * S, rate(all - mbit)).expect("changes in order"),
        };
        link.then(until * S, rate(all)).expect("changes in order")
    }
}

/// The packet model, looked at every few milliseconds.
struct Watched {
    model: Packets,
    left: Link,
    look_ns: u64,
    before: Option<(bool, u64)>,
    used_bytes: f64,
    could_bytes: f64,
    /// The pacer's rate over the truth, over time, while work waited.
    rates: Vec<(u64, f64)>,
}

impl Watched {
    fn new(settings: PacketSettings, left: Link) -> Self {
        let model = Packets::new(settings);
        Self { model, left, look_ns: 0, before: None, used_bytes: 0.0, could_bytes: 0.0, rates: Vec::new() }
    }

    fn look(&mut self) {
        let (waits, carried_bytes) = (self.model.waits(), self.model.stats().carried_bytes);
        let truth = self.left.rate_at(self.look_ns);
        if let (Some((true, before_bytes)), true) = (self.before, waits) {
            self.used_bytes += (carried_bytes - before_bytes) as f64;
            self.could_bytes += truth.bytes_per_second() * LOOK_NS as f64 / 1e9;
        }
        if let Some(pace) = self.model.pace() {
            let bits = pace.rate().map_or(f64::MAX, |rate| rate.bits_per_second() as f64);
            self.rates.push((self.look_ns, bits / truth.bits_per_second() as f64));
        }
        self.before = Some((waits, carried_bytes));
        self.look_ns += LOOK_NS;
    }

    /// Seconds from the start, and from each change, until the rate stayed within 3 % of the truth in the mean of a
    /// second.
    fn followed(&self, condition: &Condition) -> String {
        let mut began_s: Vec<u64> = condition.mbit.iter().map(|&(at_s, _)| at_s).collect();
        began_s.extend(condition.other.into_iter().flat_map(|(_, from, until)| [from, until]));
        // The pacer counts fewer bytes than a wire with more overhead carries.
        let truth = (1448.0 + 66.0) / (1448.0 + condition.overhead_bytes as f64);
        let seconds: Vec<String> = (began_s.iter())
            .map(|&began_s| {
                let of: Vec<_> = self.rates.iter().filter(|(at_ns, _)| *at_ns >= began_s * S).collect();
                let window = (S / LOOK_NS) as usize;
                let found = of.windows(window).position(|it| {
                    let mean = it.iter().map(|it| it.1).sum::<f64>() / window as f64;
                    (mean / truth - 1.0).abs() < 0.03
                });
                found.map_or("never".to_owned(), |at| format!("{:.1}", (at as u64 * LOOK_NS) as f64 / 1e9))
            })
            .collect();
        seconds.join(", ")
    }
}

impl Model for Watched {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        self.model.handle_request(now_ns, ticket, request);
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.model.handle_abort(now_ns, ticket);
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.model.poll_timeout()
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            let until_ns = now_ns.min(self.look_ns);
            if let Some(ended) = self.model.poll_end(until_ns) {
                return Some(ended);
            }
            if self.look_ns > now_ns {
                return None;
            }
            self.look();
        }
    }
}

fn rate(mbit: f64) -> workload::rate::Rate {
    workload::rate::Rate::from_bits_per_second((mbit * 1e6) as u64).expect("a sensible rate")
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const LOOK_NS: u64 = 10 * MS;
