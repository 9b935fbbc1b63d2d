//! A pacer that finds its rate, before a bottleneck whose rate changes. It complements the tests of the
//! finder, which use the packet model. Here responses of all sizes come in the pacer's order, and the only
//! measurement is the round trip of each response's last bytes.

use std::collections::{BTreeMap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use scheduler::{
    Instant, Order,
    correction::Load,
    estimate::{RoundTrip, RttKind},
    pace::Finder,
    uplink::Settings,
};
use serpent_simulator::{Model, Paced, Ticket};
use workload::{rate::Link, sequence::Request, wire::WireModel};

/// The pacing rate relative to the link's, sampled at regular times.
fn believed(order: Order, link: &Link, load: f64, until_ns: u64, seed: u64) -> Vec<(u64, f64)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut finder = Finder::new(None);
    let settings = Settings { order, rate: finder.rate(), ..Settings::default() };
    let mut pacer = Paced::new(link, &WireModel::KEPT_ALIVE, settings).with_decisions();
    let (mut request_ns, mut look_ns, mut requests) = (0, 0, 0);
    let mut last_leave_ns = BTreeMap::new();
    // When the acknowledgement of a response's last bytes arrives, and its round trip.
    let mut answers: VecDeque<(u64, u64)> = VecDeque::new();
    let mut believed = Vec::new();
    loop {
        let answer_ns = answers.front().map(|&(at_ns, _)| at_ns);
        let next_ns = [answer_ns, pacer.poll_timeout()].into_iter().flatten().min();
        let now_ns = next_ns.map_or(u64::MAX, |at_ns| at_ns).min(request_ns).min(look_ns);
        if now_ns > until_ns {
            return believed;
        }
        loop {
            let ended = pacer.poll_end(now_ns);
            last_leave_ns.extend(pacer.take_decisions().into_iter().map(|it| (it.ticket, it.at_ns)));
            let Some(ended) = ended else { break };
            let sent_ns = last_leave_ns.remove(&ended.ticket).expect("whoever ends had leave");
            let answered_ns = ended.end_ns + BASE_NS;
            answers.push_back((answered_ns, answered_ns - sent_ns));
        }
        let (now, uplink) = (Instant::from_ns(now_ns), pacer.uplink_mut());
        let stats = uplink.stats();
        let now_load = Load {
            sent_bytes: stats.charged_bytes,
            room_at: uplink.room_at(),
            waits: stats.waiting > 0,
            chunk_bytes: uplink.chunk_bytes(),
        };
        while let Some(&(_, rtt_ns)) = answers.front().filter(|(at_ns, _)| *at_ns <= now_ns) {
            answers.pop_front();
            finder.handle_round_trip(
                now,
                RoundTrip { path: 1, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 },
                now_load,
            );
        }
        if finder.handle_turn(now, now_load) {
            pacer.uplink_mut().handle_rate(now, finder.rate());
        }
        let truth = link.rate_at(now_ns);
        if now_ns >= look_ns {
            look_ns = now_ns + LOOK_NS;
            let bits = finder.rate().map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
            believed.push((now_ns, bits / truth.bits_per_second() as f64));
        }
        if now_ns >= request_ns {
            let size_bytes = size_bytes(random.random());
            let request = Request { at_ns: now_ns, file: 0, size_bytes, group: 0 };
            pacer.handle_request(now_ns, Ticket(requests), &request);
            requests += 1;
            let a_second = load * truth.bytes_per_second() / MEAN_WIRE_BYTES;
            request_ns = now_ns + (-(1.0 - random.random::<f64>()).ln() / a_second * 1e9) as u64;
        }
    }
}

/// 10 Mbit/s, after 20 s half of it, after 40 s four times that.
#[test]
fn the_rate_is_found_and_followed_from_the_ends_of_responses() {
    let rate = |text: &str| text.parse().unwrap();
    let link = Link::constant(rate("10mbit"));
    let link = link.then(20_000 * MS, rate("5mbit")).unwrap().then(40_000 * MS, rate("20mbit")).unwrap();
    for (order, seed) in [(Order::Srpt, 1), (Order::Srpt, 2), (Order::Fair, 1)] {
        let seen = believed(order, &link, 0.9, 60_000 * MS, seed);
        for began_s in [0, 20, 40] {
            // Eight seconds to find the rate.
            let settled = (began_s + 8) * 1_000 * MS..(began_s + 20) * 1_000 * MS;
            let of: Vec<f64> = seen.iter().filter(|(at_ns, _)| settled.contains(at_ns)).map(|&(_, of)| of).collect();
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            assert!((0.9..1.05).contains(&mean), "{order}, seed {seed}, from {began_s} s: {mean:.3} of the link");
        }
        // Probes exceed the link for a moment, and so does the old estimate when the link becomes slower.
        let above = seen.chunk_by(|(_, a), (_, b)| (*a > 1.1) == (*b > 1.1)).filter(|chunk| chunk[0].1 > 1.1);
        let longest_ms = above.map(|chunk| chunk.len() as u64 * LOOK_NS / MS).max().unwrap_or(0);
        assert!(longest_ms <= 1_000, "{order}, seed {seed}: {longest_ms} ms more than a tenth above the link");
    }
}

/// Bounded Pareto, alpha 1.2, from 500 bytes to 1 MB: by inversion of its distribution function.
fn size_bytes(uniform: f64) -> u64 {
    let (low, high, alpha) = (500f64, 1e6f64, 1.2f64);
    (low / (1.0 - uniform * (1.0 - (low / high).powf(alpha))).powf(1.0 / alpha)) as u64
}

/// The mean of these sizes, 2344 bytes, with a head of 250 bytes and 6 % of headers.
const MEAN_WIRE_BYTES: f64 = 2_750.0;
/// Round-trip time to the clients without queues.
const BASE_NS: u64 = 20 * MS;
const LOOK_NS: u64 = 5 * MS;
const MS: u64 = 1_000_000;
