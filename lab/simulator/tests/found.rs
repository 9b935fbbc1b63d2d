//! Properties of a rate that is found, in the packet model. For several links, distances and changes, the link is used,
//! and the pacing rate does not stay far above the link's for long.

use scheduler::{
    correction::Doubt,
    pace::{Finder, Pace},
    uplink::Settings,
};
use serpent_simulator::{
    Clients, Model, Packets, Stream, Ticket,
    packets::{
        BottleneckAt, ClientLine, ClientPath, Discipline, OtherDownloads, OtherUploads, PacketSettings, Queueing,
        Shaping,
    },
    run,
};
use workload::{
    pattern::Pattern,
    rate::{Link, Rate},
    sequence::{LoadMatch, Recipe},
    sizes::{FileSet, HeavyTail},
    wire::WireModel,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const LOOK_NS: u64 = 10 * MS;
/// The rate is found within this time, and a change is followed within the second, on a slow link within the third.
const FOUND_S: u64 = 10;
const FOLLOWED_S: u64 = 5;
const FASTER_FOLLOWED_S: u64 = 3;
const SLOW_FOLLOWED_S: u64 = 8;
const CHANGES_S: u64 = 15;
const ENDS_S: u64 = 30;

struct Seen {
    at_ns: u64,
    waits: bool,
    carried_bytes: u64,
    /// The rate paced at, over the truth.
    of_link: f64,
    /// Whether a queue is made on purpose.
    sounds: bool,
}

/// The link and its clients.
#[derive(Clone)]
struct Line<'a> {
    link: &'a Link,
    /// To each of the clients.
    paths: Vec<ClientPath>,
    /// So many requests in a row are of one client.
    requests_per_visit: usize,
    load: f64,
    /// The size of its token bucket.
    burst_bytes: u64,
    requests_per_connection: u32,
    downloads: Option<OtherDownloads>,
    uploads: Option<OtherUploads>,
    queue_packets: u32,
    bottleneck: BottleneckAt,
    /// The rate that the kernel holds the server's own device to.
    limit: Option<scheduler::Rate>,
}

impl<'a> Line<'a> {
    /// One that is overloaded a little.
    fn new(link: &'a Link, path: ClientPath) -> Self {
        Self {
            link,
            paths: vec![path],
            requests_per_visit: 1,
            load: 1.05,
            burst_bytes: 1_600,
            requests_per_connection: 1,
            downloads: None,
            uploads: None,
            queue_packets: 1_000,
            bottleneck: BottleneckAt::Router,
            limit: None,
        }
    }
}

/// Samples of every few milliseconds while a link of this rate is overloaded a little.
fn serve(link: &Link, path: ClientPath, known: Option<Rate>, seed: u64) -> Vec<Seen> {
    serve_line(&Line::new(link, path), known, seed)
}

/// The same of any line.
fn serve_line(line: &Line<'_>, known: Option<Rate>, seed: u64) -> Vec<Seen> {
    let &Line {
        link,
        ref paths,
        requests_per_visit,
        load,
        burst_bytes,
        requests_per_connection,
        downloads,
        uploads,
        queue_packets,
        bottleneck,
        limit,
    } = line;
    let mut finder = match known {
        Some(known) => Finder::with_rate(
            scheduler::Instant::ORIGIN,
            None,
            scheduler::Rate::clamped(known.bits_per_second() as f64),
        ),
        None => Finder::new(None),
    };
    finder.handle_limit(scheduler::Instant::ORIGIN, limit);
    let defaults =
        PacketSettings::new(link.clone(), Discipline::Gate(Settings { rate: finder.rate(), ..Settings::default() }));
    let mut model = Packets::new(PacketSettings {
        pace: Some(Pace::Found(finder)),
        bottleneck,
        paths: paths.clone(),
        shaping: Shaping::Bucket { burst_bytes },
        requests_per_connection,
        downloads,
        uploads,
        queue_packets,
        seed,
        ..defaults
    });
    let (files, pattern) = (FileSet::new(&HeavyTail::WORLD_CUP, 500), Pattern::constant(load).unwrap());
    let recipe = Recipe {
        files: &files,
        link,
        pattern: &pattern,
        duration_ns: ENDS_S * S,
        wire: WireModel::PER_CONNECTION,
        load_match: LoadMatch::Sequence,
    };
    let mut requests = (0..).zip(recipe.draw(seed)).peekable();
    let mut seen = Vec::new();
    for at_ns in (0..ENDS_S * S).step_by(LOOK_NS as usize) {
        loop {
            let until_ns = requests.peek().map_or(at_ns, |(_, request)| request.at_ns.min(at_ns));
            while model.poll_end(until_ns).is_some() {}
            let Some((number, mut request)) = requests.next_if(|(_, request)| request.at_ns < at_ns) else { break };
            request.group = (number as usize / requests_per_visit % paths.len()) as u16;
            model.handle_request(request.at_ns, Ticket(number), &request);
        }
        let bits = model.pace().and_then(Pace::rate).map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        let of_link = bits / (link.rate_at(at_ns).bits_per_second() as f64);
        let sounds = model.pace().is_some_and(|pace| pace.phase_name() == "sounding");
        seen.push(Seen { at_ns, waits: model.waits(), carried_bytes: model.stats().carried_bytes, of_link, sounds });
    }
    seen
}

/// The part of the link that is used between these seconds while work waits.
fn used(seen: &[Seen], link: &Link, from_s: u64, until_s: u64) -> f64 {
    let (mut used, mut could) = (0.0, 0.0);
    for pair in seen.windows(2).filter(|pair| (from_s * S..until_s * S).contains(&pair[0].at_ns) && pair[0].waits) {
        used += (pair[1].carried_bytes - pair[0].carried_bytes) as f64;
        could += link.rate_at(pair[0].at_ns).bytes_per_second() * LOOK_NS as f64 / 1e9;
    }
    used / could
}

/// The mean of the rate paced at over the truth, between these seconds.
fn paced(seen: &[Seen], from_s: u64, until_s: u64) -> f64 {
    let within = seen.iter().filter(|it| (from_s * S..until_s * S).contains(&it.at_ns));
    let (sum, count) = within.fold((0.0, 0), |(sum, count), it| (sum + it.of_link, count + 1));
    sum / f64::from(count)
}

fn far(ms: u64) -> ClientPath {
    ClientPath { rtt_ns: ms * MS, ..ClientPath::DIRECT }
}

fn rate(mbit: f64) -> Rate {
    Rate::from_bits_per_second((mbit * 1e6) as u64).unwrap()
}

#[test]
fn a_rate_is_found_and_followed() {
    // Rate in Mbit/s, its change, round trip and jitter, seed.
    let cases = [
        (5.0, 1.0, 0, 0, 1_001),
        (8.0, 0.5, 20, 0, 1_002),
        (8.0, 2.0, 5, 500, 1_003),
        (20.0, 0.5, 0, 2_000, 1_004),
        (30.0, 2.0, 10, 0, 1_005),
        (50.0, 1.0, 30, 3_000, 1_006),
    ];
    for (mbit, factor, rtt_ms, jitter_us, seed) in cases {
        let link = Link::constant(rate(mbit)).then(CHANGES_S * S, rate(mbit * factor)).unwrap();
        let path = ClientPath { rtt_ns: rtt_ms * MS + 60_000, jitter_ns: jitter_us * 1_000, ..ClientPath::DIRECT };
        let seen = serve(&link, path, None, seed);
        for (from_s, until_s) in [(FOUND_S, CHANGES_S), (CHANGES_S + FOLLOWED_S, ENDS_S)] {
            let (used, paced) = (used(&seen, &link, from_s, until_s), paced(&seen, from_s, until_s));
            let what = format!("seed {seed}, from {from_s} s: {used:.3} of the link used, {paced:.3} paced at");
            assert!(used > 0.85 && paced < 1.05, "{what}");
        }
    }
}

#[test]
fn a_rate_that_was_kept_is_used_at_once_and_corrected_if_it_is_no_longer_true() {
    for (kept, from_s, least) in [(10.0, 1, 0.96), (20.0, 5, 0.93), (5.0, 5, 0.93)] {
        let link = Link::constant(rate(10.0));
        let seen = serve(&link, ClientPath::DIRECT, Some(rate(kept)), 1_234);
        let (used, paced) = (used(&seen, &link, from_s, CHANGES_S), paced(&seen, from_s, CHANGES_S));
        assert!(used > least && paced < 1.05, "{kept} Mbit/s kept: {used:.3} used, {paced:.3} paced at");
    }
}

/// Handshakes show that a link has become much faster, so that no queue need be made to find out.
#[test]
fn a_link_that_becomes_faster_is_followed_soon_and_a_steady_one_is_hardly_sounded() {
    for mbit in [8.0, 10.0, 40.0] {
        let link = Link::constant(rate(mbit)).then(CHANGES_S * S, rate(2.0 * mbit)).unwrap();
        let seeds: Vec<u64> = (3_001..3_009).collect();
        let (mut soon, mut late, mut sounded) = (0.0, 0.0, 0.0);
        for &seed in &seeds {
            let seen = serve(&link, ClientPath::DIRECT, None, seed);
            let steady = seen.iter().filter(|it| (FOUND_S * S..CHANGES_S * S).contains(&it.at_ns));
            sounded += steady.filter(|it| it.sounds).count() as f64 * LOOK_NS as f64 / 1e9;
            soon += used(&seen, &link, CHANGES_S + FASTER_FOLLOWED_S, CHANGES_S + FOLLOWED_S) / seeds.len() as f64;
            late += used(&seen, &link, CHANGES_S + FOLLOWED_S, ENDS_S) / seeds.len() as f64;
        }
        let sounded = sounded / (seeds.len() as f64 * (CHANGES_S - FOUND_S) as f64);
        let what = format!("{mbit} Mbit/s: {sounded:.4} of the time sounded, then {soon:.3} and {late:.3} used");
        assert!(sounded < 0.015 && soon > 0.95 && late > 0.95, "{what}");
    }
}

/// Above 5 Mbit/s the rate is found by soundings, below by trials.
#[test]
fn a_link_that_becomes_slow_or_is_slow_no_longer_is_followed() {
    for (before, after) in [(6.0, 3.0), (3.0, 6.0), (10.0, 1.5), (1.5, 10.0)] {
        let link = Link::constant(rate(before)).then(CHANGES_S * S, rate(after)).unwrap();
        let seeds: Vec<u64> = (4_001..4_009).collect();
        let (mut part, mut fast) = (0.0, 0.0);
        for &seed in &seeds {
            let seen = serve(&link, ClientPath::DIRECT, None, seed);
            part += used(&seen, &link, CHANGES_S + SLOW_FOLLOWED_S, ENDS_S) / seeds.len() as f64;
            fast += paced(&seen, CHANGES_S + SLOW_FOLLOWED_S, ENDS_S) / seeds.len() as f64;
        }
        assert!(part > 0.9 && fast < 1.02, "{before}, then {after} Mbit/s: {part:.3} used, {fast:.3} paced at");
    }
}

/// The queue grows to seconds then, and TCP sends packets again before they come back. So no round trips are measured.
#[test]
fn a_link_that_becomes_far_slower_does_not_keep_its_rate() {
    let cases = [
        (10.0, 1.5, vec![4_018, 4_021, 4_037, 4_055]),
        (20.0, 2.0, vec![4_006]),
        (50.0, 3.0, vec![4_027]),
        (10.0, 1.0, vec![4_011, 4_016, 4_018]),
        (100.0, 10.0, vec![4_002, 4_005, 4_006]),
    ];
    for (before, after, seeds) in cases {
        let link = Link::constant(rate(before)).then(CHANGES_S * S, rate(after)).unwrap();
        for seed in seeds {
            let seen = serve(&link, ClientPath::DIRECT, None, seed);
            let from_s = CHANGES_S + SLOW_FOLLOWED_S;
            let (used, paced) = (used(&seen, &link, from_s, ENDS_S), paced(&seen, from_s, ENDS_S));
            let what = format!("{before}, then {after} Mbit/s, seed {seed}: {used:.3} used, {paced:.3} paced at");
            assert!(used > 0.9 && paced < 1.05, "{what}");
        }
    }
}

/// Where a grant takes long, soundings would make TCP probe for lost packets.
#[test]
fn a_link_that_becomes_far_slower_is_used_though_connections_are_kept() {
    for (before, after) in [(10.0, 1.5), (20.0, 2.0), (50.0, 3.0), (10.0, 1.0), (5.0, 1.0)] {
        let link = Link::constant(rate(before)).then(CHANGES_S * S, rate(after)).unwrap();
        let line = Line { requests_per_connection: 20, ..Line::new(&link, ClientPath::DIRECT) };
        let from_s = CHANGES_S + SLOW_FOLLOWED_S;
        let all: Vec<f64> =
            (4_001..=4_003).map(|seed| used(&serve_line(&line, None, seed), &link, from_s, ENDS_S)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean > 0.85, "{before}, then {after} Mbit/s: {mean:.3} used, {all:.2?}");
    }
}

#[test]
fn a_slow_line_is_used_and_a_change_of_it_is_followed() {
    for (mbit, factor) in [(1.5, 1.0), (2.0, 1.0), (3.0, 1.0), (2.0, 0.5), (2.0, 2.0)] {
        let link = Link::constant(rate(mbit)).then(CHANGES_S * S, rate(mbit * factor)).unwrap();
        let (mut before, mut after, mut fast) = (0.0, 0.0, 0.0);
        let seeds: Vec<u64> = (2_001..2_009).collect();
        for &seed in &seeds {
            let seen = serve(&link, ClientPath::DIRECT, None, seed);
            before += used(&seen, &link, FOUND_S, CHANGES_S) / seeds.len() as f64;
            after += used(&seen, &link, CHANGES_S + SLOW_FOLLOWED_S, ENDS_S) / seeds.len() as f64;
            fast += paced(&seen, CHANGES_S + SLOW_FOLLOWED_S, ENDS_S) / seeds.len() as f64;
        }
        let what =
            format!("{mbit} Mbit/s, then {factor}: {before:.3} and {after:.3} of the link used, {fast:.3} paced at");
        assert!(before > 0.985 && after > 0.94 && fast < 1.02, "{what}");
    }
}

/// Handshakes show how far a slow line is ahead of the pacer, so no queue has to stand to measure it.
#[test]
fn a_slow_line_is_hardly_ever_sent_more_than_it_carries_and_a_faster_one_is_followed_soon() {
    for mbit in [2.0, 3.0, 4.0] {
        let link = Link::constant(rate(mbit)).then(CHANGES_S * S, rate(2.0 * mbit)).unwrap();
        let seeds: Vec<u64> = (5_001..5_009).collect();
        let (mut too_fast, mut before, mut soon) = (0.0, 0.0, 0.0);
        for &seed in &seeds {
            let seen = serve(&link, ClientPath::DIRECT, None, seed);
            let steady = || seen.iter().filter(|it| (FOUND_S * S..CHANGES_S * S).contains(&it.at_ns));
            too_fast += steady().filter(|it| it.of_link > 1.0).count() as f64 / steady().count() as f64;
            before += used(&seen, &link, FOUND_S, CHANGES_S);
            soon += used(&seen, &link, CHANGES_S + FASTER_FOLLOWED_S, CHANGES_S + FOLLOWED_S);
        }
        let [too_fast, before, soon] = [too_fast, before, soon].map(|sum| sum / seeds.len() as f64);
        let what = format!("{mbit} Mbit/s: {before:.3} used, {too_fast:.3} of the time too fast, then {soon:.3} used");
        assert!(too_fast < 0.02 && before > 0.98 && soon > 0.95, "{what}");
    }
}

/// Round trips meet a little less of the pacer's own queue then.
#[test]
fn a_link_that_becomes_a_fifth_faster_is_followed() {
    for mbit in [8.0, 10.0] {
        let link = Link::constant(rate(mbit)).then(CHANGES_S * S, rate(1.2 * mbit)).unwrap();
        let from_s = CHANGES_S + FOLLOWED_S;
        let all: Vec<f64> = (7_001..7_009)
            .map(|seed| used(&serve(&link, ClientPath::DIRECT, None, seed), &link, from_s, ENDS_S))
            .collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean > 0.97, "{mbit} Mbit/s: {mean:.3} used, {all:.3?}");
    }
}

/// Jitter looks like a queue. Where the first rate is too low, the uplink is never idle, so no idle one shows the jitter.
#[test]
fn jitter_is_not_taken_for_a_queue_though_the_uplink_is_never_idle() {
    for mbit in [8.0, 10.0, 12.0] {
        let link = Link::constant(rate(mbit));
        let path = ClientPath { rtt_ns: 30 * MS, jitter_ns: 5 * MS, ..ClientPath::DIRECT };
        let used = (6_001..6_009).map(|seed| used(&serve(&link, path, None, seed), &link, FOUND_S, ENDS_S));
        let used: Vec<f64> = used.collect();
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        assert!(mean > 0.9 && used.iter().all(|used| *used > 0.75), "{mbit} Mbit/s: {used:.3?} used");
    }
}

/// TCP keeps few packets of each connection in the queue of the server's own device, so a queue never becomes long.
#[test]
fn the_rate_of_the_servers_own_device_shows_beside_jitter() {
    let link = Link::constant(rate(50.0));
    let path = ClientPath { jitter_ns: 5 * MS, ..far(30) };
    let line = Line { load: 0.8, bottleneck: BottleneckAt::Server, ..Line::new(&link, path) };
    for seed in 1..=8 {
        let paced = paced(&serve_line(&line, None, seed), 10, ENDS_S);
        assert!((0.9..1.02).contains(&paced), "seed {seed}: {paced:.3}");
    }
}

/// Every look shows the new rate, though none is clear and the queue seems to be of others.
#[test]
fn the_old_rate_of_the_servers_own_device_does_not_come_back() {
    let link = Link::constant(rate(10.0)).then(CHANGES_S * S, rate(5.0)).unwrap();
    let line = Line { load: 0.8, bottleneck: BottleneckAt::Server, ..Line::new(&link, ClientPath::DIRECT) };
    let paced: Vec<f64> = (1..=24).map(|seed| paced(&serve_line(&line, None, seed), 23, ENDS_S)).collect();
    let mean = paced.iter().sum::<f64>() / paced.len() as f64;
    assert!(mean < 1.15 && paced.iter().all(|paced| *paced < 1.75), "{paced:.3?}");
}

/// Nothing has to be found where the kernel says to which rate it holds the device.
#[test]
fn the_limit_of_the_servers_own_device_is_used_from_the_start() {
    for (mbit, jitter_ms, load) in [(2.0, 0, 0.8), (10.0, 0, 1.05), (10.0, 5, 0.8), (50.0, 5, 1.05)] {
        let link = Link::constant(rate(mbit));
        let path = ClientPath { jitter_ns: jitter_ms * MS, ..far(30) };
        let limit = Some(scheduler::Rate::clamped(mbit * 1e6));
        let line = Line { load, bottleneck: BottleneckAt::Server, limit, ..Line::new(&link, path) };
        for seed in 1..=4 {
            let seen = serve_line(&line, None, seed);
            let least = seen.iter().map(|seen| seen.of_link).fold(1.0, f64::min);
            let most = seen.iter().map(|seen| seen.of_link).fold(0.0, f64::max);
            let what =
                format!("{mbit} Mbit/s, jitter {jitter_ms} ms, load {load}, seed {seed}: {least:.3} to {most:.3}");
            // The correction of a given rate goes down to 0.9 of it.
            assert!(least > 0.89 && most < 1.0 && seen.iter().all(|seen| !seen.sounds), "{what}");
        }
    }
}

#[test]
fn the_link_behind_the_servers_own_device_may_be_slower() {
    for (mbit, limit_mbit) in [(10.0, 100.0), (10.0, 12.0), (2.0, 10.0)] {
        let link = Link::constant(rate(mbit));
        let limit = Some(scheduler::Rate::clamped(limit_mbit * 1e6));
        let line = Line { limit, ..Line::new(&link, far(10)) };
        for seed in 1..=4 {
            let seen = serve_line(&line, None, seed);
            let (paced, used) = (paced(&seen, FOUND_S, ENDS_S), used(&seen, &link, FOUND_S, ENDS_S));
            let what = format!("{mbit} Mbit/s behind {limit_mbit}, seed {seed}: paced at {paced:.3}, {used:.3} used");
            assert!(paced < 1.05 && used > 0.9, "{what}");
        }
    }
}

/// The link becomes slower than the device, and later no longer is.
#[test]
fn the_limit_of_the_servers_own_device_holds_again_after_the_link_was_slower() {
    let link = Link::constant(rate(20.0)).then(8 * S, rate(5.0)).unwrap().then(18 * S, rate(20.0)).unwrap();
    let line = Line { limit: Some(scheduler::Rate::clamped(15e6)), ..Line::new(&link, far(10)) };
    for seed in 1..=4 {
        let seen = serve_line(&line, None, seed);
        let (slow, after) = (paced(&seen, 13, 18), paced(&seen, 25, ENDS_S));
        assert!(slow < 1.1 && (0.74..0.75).contains(&after), "seed {seed}: {slow:.3} and {after:.3}");
    }
}

/// On connections in use, TCP tells a mean of the round trips. It lags behind the queue.
#[test]
fn clients_that_keep_their_connections_show_the_rate() {
    for (mbit, rtt_ms, jitter_ms) in [(2.0, 0, 0), (10.0, 30, 5), (50.0, 40, 0), (50.0, 30, 5)] {
        let link = Link::constant(rate(mbit));
        let path = ClientPath { rtt_ns: rtt_ms * MS + 60_000, jitter_ns: jitter_ms * MS, ..ClientPath::DIRECT };
        let line = Line { requests_per_connection: 20, ..Line::new(&link, path) };
        let used = (8_001..8_009).map(|seed| used(&serve_line(&line, None, seed), &link, FOUND_S, ENDS_S));
        let used: Vec<f64> = used.collect();
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        let what = format!("{mbit} Mbit/s, {rtt_ms} ms, jitter {jitter_ms} ms: {used:.3?} used");
        assert!(mean > 0.9 && used.iter().all(|used| *used > 0.75), "{what}");
    }
}

#[test]
fn a_slow_line_is_used_though_few_round_trips_show_its_rate() {
    // Hardly any connection is new, and those that are in use are looked at when something was sent on them.
    let link = Link::constant(rate(1.0));
    let near = Line { requests_per_connection: 1_000, ..Line::new(&link, ClientPath::DIRECT) };
    let far = Line { paths: vec![far(40)], ..near.clone() };
    for (line, seed) in [&near, &far].into_iter().flat_map(|line| (1..=4).map(move |seed| (line, seed))) {
        let seen = serve_line(line, None, seed);
        let used = used(&seen, &link, FOUND_S, ENDS_S);
        assert!(used > 0.9, "round trip {} ms, seed {seed}: {used:.3} used", line.paths[0].rtt_ns / MS);
    }
}

/// Each connection is seldom in use, so it is looked at after its last bytes, too.
#[test]
fn many_clients_of_a_slow_line_show_its_rate() {
    let link = Link::constant(rate(2.0));
    let paths = (0..20).map(|n| far(10 + 3 * n)).collect();
    let line = Line { paths, load: 0.8, requests_per_connection: 20, ..Line::new(&link, ClientPath::DIRECT) };
    for seed in 9_001..9_017 {
        let used = used(&serve_line(&line, None, seed), &link, FOUND_S, ENDS_S);
        assert!(used > 0.75, "seed {seed}: {used:.3} used");
    }
}

/// Each client asks for a page and goes, so its shortest round trip is never known.
#[test]
fn strangers_show_the_rate() {
    let link = Link::constant(rate(10.0));
    let paths = (0..2_000).map(|n| far(10 + n % 60)).collect();
    let line = Line { paths, requests_per_visit: 8, load: 0.8, ..Line::new(&link, ClientPath::DIRECT) };
    for seed in 9_201..9_213 {
        let paced = paced(&serve_line(&line, None, seed), FOUND_S, ENDS_S);
        assert!((0.82..1.12).contains(&paced), "seed {seed}: paced at {paced:.3} of the link");
    }
}

/// Each client makes one request, so no round trip is compared with another one of the same client.
#[test]
fn strangers_of_one_request_show_the_rate() {
    let link = Link::constant(rate(10.0));
    let anywhere = |n: u64| 5 + (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % 196;
    let distances: [&dyn Fn(u64) -> u64; 2] = [&|_| 2, &anywhere];
    for far_ms in distances {
        let paths = (0..20_000).map(|n| far(far_ms(n))).collect();
        let line = Line { paths, load: 0.8, ..Line::new(&link, ClientPath::DIRECT) };
        for seed in 9_301..9_313 {
            let paced = paced(&serve_line(&line, None, seed), FOUND_S, ENDS_S);
            assert!((0.8..1.15).contains(&paced), "seed {seed}: paced at {paced:.3} of the link");
        }
    }
}

/// A site that uses a mobile line for a while, and then its own again.
#[test]
fn a_link_that_was_far_slower_for_ten_seconds_is_used_again_within_one() {
    for (mbit, slow_mbit) in [(10.0, 1.5), (50.0, 3.0)] {
        let link = Link::constant(rate(mbit)).then(10 * S, rate(slow_mbit)).unwrap().then(20 * S, rate(mbit)).unwrap();
        for seed in 9_601..9_613 {
            let paced = paced(&serve(&link, ClientPath::DIRECT, None, seed), 21, 23);
            assert!(paced > 0.85, "{mbit} Mbit/s, seed {seed}: paced at {paced:.3} of the link");
        }
    }
}

/// A short queue hardly shows beside jitter. So a rate that is far too low looks right in some of the soundings.
#[test]
fn a_rate_that_is_far_too_low_is_raised_beside_jitter() {
    let link = Link::constant(rate(20.0));
    let paths = [(10, 1), (20, 2), (40, 5), (80, 10), (150, 20)];
    let paths = paths.map(|(ms, jitter_ms)| ClientPath { jitter_ns: jitter_ms * MS, ..far(ms) }).to_vec();
    let line = Line { paths, load: 0.8, requests_per_connection: 20, ..Line::new(&link, ClientPath::DIRECT) };
    // The search of seed 9527 ends at a third of the rate.
    for seed in 9_525..9_537 {
        let paced = paced(&serve_line(&line, None, seed), CHANGES_S, ENDS_S);
        assert!((0.75..1.2).contains(&paced), "seed {seed}: paced at {paced:.3} of the link");
    }
}

/// At such a rate hardly any work waits, so no sounding is made, and the queue at the link comes and goes.
#[test]
fn a_rate_that_is_so_far_too_high_that_no_work_waits_is_lowered() {
    let link = Link::constant(rate(500.0));
    let line = Line { load: 0.7, requests_per_connection: 20, ..Line::new(&link, ClientPath::DIRECT) };
    // Soundings alone leave seed 9704 at 1.19 of the link.
    for seed in 9_701..9_707 {
        let paced = paced(&serve_line(&line, Some(rate(625.0)), seed), 4, 8);
        assert!((0.93..1.04).contains(&paced), "seed {seed}: paced at {paced:.3} of the link");
    }
}

/// A client's own line that is slower than the uplink has a queue at all times, which is none of the uplink.
#[test]
fn the_queues_of_clients_lines_are_not_taken_for_the_uplinks() {
    let link = Link::constant(rate(10.0));
    let with_line = |mbit| ClientPath { line: Some(ClientLine { rate: rate(mbit), queue_bytes: 300_000 }), ..far(20) };
    let paths: Vec<ClientPath> = [2.0, 20.0].into_iter().cycle().take(10).map(with_line).collect();
    let line = Line { paths, load: 0.8, requests_per_connection: 20, ..Line::new(&link, ClientPath::DIRECT) };
    for seed in 9_101..9_109 {
        let paced = paced(&serve_line(&line, None, seed), FOUND_S, ENDS_S);
        assert!((0.8..1.05).contains(&paced), "seed {seed}: paced at {paced:.3} of the link");
    }
}

/// Requests and acknowledgements wait behind them, and round trips are as long as with a queue of the uplink.
#[test]
fn downloads_of_others_do_not_lower_the_rate() {
    let two_seconds = OtherDownloads {
        from_ns: CHANGES_S * S,
        until_ns: ENDS_S * S,
        lasts_ns: 2 * S,
        every_ns: 5 * S,
        most_ns: 100 * MS,
        fills_ns: 200 * MS,
    };
    let short = OtherDownloads { lasts_ns: 400 * MS, every_ns: 1_500 * MS, ..two_seconds };
    let from_start = OtherDownloads { from_ns: 0, ..two_seconds };
    for (mbit, downloads, least) in
        [(2.0, two_seconds, 0.85), (10.0, two_seconds, 0.85), (50.0, short, 0.7), (10.0, from_start, 0.85)]
    {
        let link = Link::constant(rate(mbit));
        let line = Line { downloads: Some(downloads), requests_per_connection: 20, ..Line::new(&link, far(20)) };
        let all: Vec<f64> =
            (9_201..9_209).map(|seed| used(&serve_line(&line, None, seed), &link, CHANGES_S, ENDS_S)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean > least, "{mbit} Mbit/s, {downloads:?}: {mean:.3} of the link used, {all:.2?}");
    }
}

/// They keep the queue of the link full, whatever is sent: less would only leave them more.
#[test]
fn uploads_of_others_do_not_lower_the_rate() {
    let all = OtherUploads {
        from_ns: CHANGES_S * S,
        until_ns: ENDS_S * S,
        lasts_ns: ENDS_S * S,
        every_ns: ENDS_S * S,
        connections: 1,
        rtt_ns: 20 * MS,
        window_segments: None,
    };
    let short = OtherUploads { lasts_ns: 400 * MS, every_ns: 1_500 * MS, ..all };
    // As with BBR, the queue has a few packets, and more only while the site sends.
    let few = OtherUploads { rtt_ns: MS, window_segments: Some(6), ..all };
    let cases = [
        (10.0, 100, all, 0.85),
        (10.0, 100, short, 0.85),
        (50.0, 300, all, 0.85),
        (2.0, 50, all, 0.7),
        (10.0, 100, few, 0.85),
    ];
    for (mbit, queue_packets, uploads, least) in cases {
        let link = Link::constant(rate(mbit));
        let path = ClientPath { rtt_ns: uploads.rtt_ns, ..ClientPath::DIRECT };
        let line = Line { uploads: Some(uploads), queue_packets, load: 0.6, ..Line::new(&link, path) };
        let all: Vec<f64> =
            (9_301..9_309).map(|seed| paced(&serve_line(&line, None, seed), CHANGES_S, ENDS_S)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((least..1.05).contains(&mean), "{mbit} Mbit/s, {uploads:?}: paced at {mean:.3} of the link, {all:.2?}");
    }
}

/// FQ-CoDel has a queue for each connection, and a new one does not wait.
#[test]
fn behind_fair_queueing_it_is_told_that_no_rate_is_found() {
    let told = |queueing, seconds| {
        let link = Link::constant(rate(10.0));
        let rules = Settings { rate: Finder::new(None).rate(), ..Settings::default() };
        let defaults = PacketSettings::new(link.clone(), Discipline::Gate(rules));
        let mut model = Packets::new(PacketSettings {
            pace: Some(Pace::Found(Finder::new(None))),
            bottleneck: BottleneckAt::Router,
            paths: vec![far(20)],
            queueing,
            seed: 9_401,
            ..defaults
        });
        let (files, pattern) = (FileSet::new(&HeavyTail::WORLD_CUP, 500), Pattern::constant(0.8).unwrap());
        let recipe = Recipe {
            files: &files,
            link: &link,
            pattern: &pattern,
            duration_ns: seconds * S,
            wire: WireModel::PER_CONNECTION,
            load_match: LoadMatch::Sequence,
        };
        run(&mut Stream::new(recipe.draw(9_401).into_iter()), &mut model, &Clients::PATIENT, None, |_| ());
        model.pace().and_then(Pace::doubt)
    };
    assert_eq!(told(Queueing::FairCodel, 55), None, "it searches for less than a minute");
    assert_eq!(told(Queueing::FairCodel, 70), Some(Doubt::NotFound));
    assert_eq!(told(Queueing::Fifo, 70), None);
}

/// Until its burst is used up, a token bucket looks like a link without a limit.
#[test]
fn a_link_that_lets_a_burst_pass_is_not_taken_for_a_faster_one() {
    for (mbit, burst_bytes) in [(10.0, 64_000), (50.0, 64_000), (50.0, 256_000), (100.0, 256_000)] {
        let link = Link::constant(rate(mbit));
        let seeds: Vec<u64> = (7_001..7_009).collect();
        let mut too_fast = 0.0;
        for &seed in &seeds {
            let seen = serve_line(&Line { load: 0.8, burst_bytes, ..Line::new(&link, ClientPath::DIRECT) }, None, seed);
            let found: Vec<_> = seen.iter().filter(|it| it.at_ns >= FOUND_S * S && !it.sounds).collect();
            too_fast += found.iter().filter(|it| it.of_link > 1.02).count() as f64 / found.len() as f64;
        }
        let too_fast = too_fast / seeds.len() as f64;
        assert!(too_fast < 0.1, "{mbit} Mbit/s, {burst_bytes} bytes: {too_fast:.3} of the time too fast");
    }
}
