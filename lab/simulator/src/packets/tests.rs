use scheduler::{Order, Pacing, bands::BandPlan, uplink::Settings};
use workload::{outcome::End, rate::Link, wire::WireModel};

use super::*;
use crate::{Clients, Served, Stream, run};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn request(at_ns: u64, size_bytes: u64) -> Request {
    Request { at_ns, file: 0, size_bytes, group: 0 }
}

/// Payload of `count` whole segments, less the head's 250 bytes.
fn segments(count: u64) -> u64 {
    count * 1448 - 250
}

fn line(rate: &str, discipline: Discipline) -> PacketSettings {
    PacketSettings {
        shaping: Shaping::Line,
        answer_ns: 0,
        ..PacketSettings::new(Link::constant(rate.parse().unwrap()), discipline)
    }
}

fn far(rtt_ms: u64) -> ClientPath {
    ClientPath { rtt_ns: rtt_ms * MS, ..ClientPath::DIRECT }
}

fn gate(order: Order, rate: &str) -> Discipline {
    let rate = rate.parse::<scheduler::Rate>().unwrap();
    Discipline::Gate(Settings { order, rate: Some(rate.scaled(0.97)), ..Settings::default() })
}

/// Results in the order of the requests.
fn serve(settings: PacketSettings, requests: &[Request]) -> (Vec<Served>, PacketStats) {
    serve_clients(settings, requests, &Clients::PATIENT)
}

fn serve_clients(settings: PacketSettings, requests: &[Request], clients: &Clients) -> (Vec<Served>, PacketStats) {
    let mut model = Packets::new(settings);
    let mut all = Vec::new();
    run(&mut Stream::new(requests.iter().copied()), &mut model, clients, None, |served| all.push(served));
    all.sort_by_key(|served| served.request.at_ns);
    (all, model.stats())
}

fn end_ms(settings: PacketSettings, size_bytes: u64) -> u64 {
    serve(settings, &[request(0, size_bytes)]).0[0].end_ns / MS
}

#[test]
fn a_response_alone_takes_the_handshake_and_the_rounds_of_slow_start() {
    // A round trip for the handshake, one for the request and the first ten segments, one for the next
    // twenty, and so on. At 1 Gbit/s a frame takes 12 us.
    for (count, rounds) in [(1, 2), (10, 2), (11, 3), (30, 3), (31, 4), (70, 4), (71, 5)] {
        // nginx's head has its own segment.
        let alone = [(gate(Order::Srpt, "1gbit"), segments(count)), (Discipline::Fair, (count - 1) * 1448)];
        for (discipline, size_bytes) in alone {
            let settings = PacketSettings { paths: vec![far(100)], ..line("1gbit", discipline.clone()) };
            let took_ms = end_ms(settings, size_bytes);
            let slack_ms = took_ms.saturating_sub(rounds * 100);
            assert!(took_ms >= rounds * 100 && slack_ms < 3, "{count} segments, {discipline:?}: {took_ms} ms");
        }
    }
}

#[test]
fn a_response_alone_nearby_takes_what_its_frames_take() {
    // SYN-ACK 74 and the acknowledgement of the request 66 bytes; 100 frames of 1514. A byte takes a
    // microsecond.
    let (served, stats) = serve(line("8mbit", gate(Order::Fair, "8mbit")), &[request(0, segments(100))]);
    let wire_us = 74 + 66 + 100 * 1514;
    // Paced at 97 %, and four times 30 us of travel.
    let took_us = served[0].end_ns / 1000;
    assert!((wire_us..wire_us * 105 / 100).contains(&took_us), "{took_us} against {wire_us}");
    assert_eq!(stats.carried_bytes, WireModel::PER_CONNECTION.bytes_for(segments(100)));
    let (served, _) = serve(line("8mbit", Discipline::Fair), &[request(0, segments(100))]);
    // The head has its own frame here, 66 bytes more.
    assert!((wire_us + 66..wire_us + 1_000).contains(&(served[0].end_ns / 1000)), "{}", served[0].end_ns / 1000);
}

#[test]
fn a_bucket_saves_a_burst_and_a_frame() {
    let bucket = PacketSettings { shaping: Shaping::Bucket { burst_bytes: 1600 }, ..line("8mbit", Discipline::Fair) };
    let (at_line, _) = serve(line("8mbit", Discipline::Fair), &[request(S, segments(20))]);
    let (at_bucket, _) = serve(bucket, &[request(S, segments(20))]);
    let sooner_us = (at_line[0].end_ns - at_bucket[0].end_ns) / 1000;
    assert!((2_900..=1600 + 1514).contains(&sooner_us), "{sooner_us}");
}

#[test]
fn connections_that_began_together_share_the_link_alike() {
    let requests: Vec<Request> = (0..4).map(|i| request(i, segments(400))).collect();
    for at in [BottleneckAt::Server, BottleneckAt::Router] {
        for discipline in [Discipline::Fair, gate(Order::Fair, "8mbit")] {
            let (served, stats) =
                serve(PacketSettings { bottleneck: at, ..line("8mbit", discipline.clone()) }, &requests);
            let ends: Vec<f64> = served.iter().map(|it| it.end_ns as f64 / 1e6).collect();
            // 4 x 400 frames of 1.514 ms.
            let whole_ms = 4.0 * 400.0 * 1.514;
            let first = ends.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(stats.dropped, 0);
            // From a router's queue each connection takes the share of its window, and windows stop growing
            // at different sizes.
            let fair = if at == BottleneckAt::Server || discipline != Discipline::Fair { 0.95 } else { 0.6 };
            assert!(first > fair * whole_ms, "{at:?} {discipline:?} {ends:?}");
        }
    }
}

#[test]
fn a_connection_has_two_packets_in_the_queue_of_its_own_device_and_a_window_in_a_routers() {
    // During a large response, the SYN-ACK and the response of a small request wait behind the queue.
    let requests = [request(0, segments(2_000)), request(2 * S, 100)];
    let small_ms = |at| {
        serve(PacketSettings { bottleneck: at, ..line("8mbit", Discipline::Fair) }, &requests).0[1].response_ns() / MS
    };
    // Twice two frames of 1.5 ms, and the frame on the line.
    assert!((4..=9).contains(&small_ms(BottleneckAt::Server)), "{}", small_ms(BottleneckAt::Server));
    assert!(small_ms(BottleneckAt::Router) > 30, "{}", small_ms(BottleneckAt::Router));
}

#[test]
fn srpt_lets_a_small_response_overtake_and_fair_does_not() {
    let mut requests: Vec<Request> = (0..10).map(|i| request(i, segments(200))).collect();
    requests.push(request(500 * MS, 1_000));
    let small_ms = |discipline| serve(line("8mbit", discipline), &requests).0[10].response_ns() as f64 / 1e6;
    let bands = || Discipline::Bands(Settings::default(), BandPlan::new(vec![2_000, 20_000, 200_000]).unwrap());
    let (fair, paced, banded) = (small_ms(Discipline::Fair), small_ms(gate(Order::Srpt, "8mbit")), small_ms(bands()));
    // Ten connections have two packets each in the queue, which the small response meets twice.
    assert!(fair > 40.0, "{fair}");
    // At most one grant of two segments is on the way, and the queue of the bottleneck is empty.
    assert!(paced < 8.0, "{paced}");
    assert!(banded < 8.0, "{banded}");
}

#[test]
fn leave_for_all_at_once_is_no_more_than_the_socket_takes() {
    let Discipline::Gate(settings) = gate(Order::Srpt, "8mbit") else { panic!("a gate") };
    let at_once = Discipline::Gate(Settings { pacing: Pacing::EXACT, ..settings });
    let (served, _) = serve(line("8mbit", at_once), &[request(0, segments(1_000)), request(MS, 1_000)]);
    assert_eq!(served.len(), 2);
}

#[test]
fn what_a_full_queue_drops_is_sent_again() {
    let requests: Vec<Request> = (0..20).map(|i| request(i * MS, segments(60))).collect();
    let small = |at| PacketSettings { queue_packets: 12, bottleneck: at, ..line("8mbit", Discipline::Fair) };
    let (served, stats) = serve(small(BottleneckAt::Router), &requests);
    assert!(stats.dropped > 20 && stats.retransmitted > 20, "{stats:?}");
    assert!(served.iter().all(|it| it.end == End::Done) && served.len() == 20);
    // On its own device TCP is told, and sends nothing again; SYN-ACKs are still dropped.
    let (served, stats) = serve(small(BottleneckAt::Server), &requests);
    assert!(stats.retransmitted < 5, "{stats:?}");
    assert!(served.iter().all(|it| it.end == End::Done) && served.len() == 20);
    assert!(served.iter().any(|it| it.response_ns() > S), "a SYN-ACK that found no place comes a second later");
}

#[test]
fn loss_is_mended_within_about_a_round_trip() {
    // 200 responses of 40 segments, with 2 % loss: most responses lose one packet, and one round trip by it.
    let requests: Vec<Request> = (0..200).map(|i| request(i * 3 * S, segments(40))).collect();
    let lossy =
        |loss| PacketSettings { paths: vec![ClientPath { loss, ..far(100) }], ..line("100mbit", Discipline::Fair) };
    let median_ms = |loss| {
        let (served, stats) = serve(lossy(loss), &requests);
        assert!(served.iter().all(|it| it.end == End::Done), "none is lost for good");
        assert_eq!(stats.retransmitted > 0, loss > 0.0);
        let mut times: Vec<u64> = served.iter().map(Served::response_ns).collect();
        times.sort_unstable();
        times[times.len() / 2] / MS
    };
    let (clean, lossy) = (median_ms(0.0), median_ms(0.02));
    assert!((400..410).contains(&clean), "{clean}");
    assert!((clean..=clean + 150).contains(&lossy), "{lossy} against {clean}");
}

#[test]
fn a_kept_connection_needs_no_handshake() {
    let far_away = |requests_per_connection| PacketSettings {
        paths: vec![far(100)],
        requests_per_connection,
        ..line("100mbit", Discipline::Fair)
    };
    let requests: Vec<Request> = (0..6).map(|i| request(i * S, 1_000)).collect();
    let (served, stats) = serve(far_away(3), &requests);
    let times_ms: Vec<u64> = served.iter().map(|it| it.response_ns() / MS).collect();
    assert_eq!(times_ms, [200, 100, 100, 200, 100, 100]);
    assert_eq!((stats.connections, serve(far_away(1), &requests).1.connections), (2, 6));
}

#[test]
fn a_client_that_gives_up_takes_nothing_from_the_others_any_more() {
    let mut requests: Vec<Request> = (0..5).map(|i| request(i, segments(1_000))).collect();
    requests.push(request(3 * S, segments(100)));
    for discipline in [Discipline::Fair, gate(Order::Fair, "8mbit")] {
        let clients = Clients { abort_after_ns: Some(S), retries: 0 };
        let (served, _) = serve_clients(line("8mbit", discipline), &requests, &clients);
        assert!(served[..5].iter().all(|it| it.end == End::Aborted && it.end_ns - it.request.at_ns == S));
        assert_eq!(served[5].end, End::Done);
        assert!(served[5].response_ns() < 170 * MS, "alone on the link: {}", served[5].response_ns());
    }
}

#[test]
fn the_link_may_become_slower() {
    let link = Link::constant("16mbit".parse().unwrap()).then(S, "8mbit".parse().unwrap()).unwrap();
    let settings = PacketSettings { link, ..line("16mbit", Discipline::Fair) };
    // 2 000 000 bytes in the first second; 2000 frames are 3 028 000 bytes.
    let (served, _) = serve(settings, &[request(0, segments(2_000))]);
    assert!(served[0].end_ns.abs_diff(2_028 * MS) < 3 * MS, "{}", served[0].end_ns);
}

#[test]
fn orders_that_look_at_the_path_are_given_it() {
    // Ten large responses to distant clients fill the link. An order that counts the round trip sends a larger
    // one to a nearby client first. Alone it takes 30 ms and 330 frames of 1.5 ms.
    let mut requests: Vec<Request> = (0..10).map(|i| request(i, segments(300))).collect();
    requests.push(Request { at_ns: S, file: 0, size_bytes: segments(330), group: 1 });
    let near_ms = |order| {
        let settings = PacketSettings { paths: vec![far(200), far(10)], ..line("8mbit", gate(order, "8mbit")) };
        serve(settings, &requests).0[10].response_ns() / MS
    };
    let (srpt, srrt) = (near_ms(Order::Srpt), near_ms(Order::Srrt));
    assert!(srrt < 800 && srpt > 2_000, "srrt {srrt} ms, srpt {srpt} ms");
}

#[test]
fn a_seed_decides_everything() {
    let requests: Vec<Request> = (0..100).map(|i| request(i * 30 * MS, 500 + 777 * (i % 40))).collect();
    let ends = |seed| -> Vec<u64> {
        let path = ClientPath { loss: 0.05, jitter_ns: 5 * MS, ..far(40) };
        let settings = PacketSettings { paths: vec![path], seed, ..line("8mbit", gate(Order::Srpt, "8mbit")) };
        serve(settings, &requests).0.iter().map(|it| it.end_ns).collect()
    };
    assert_eq!(ends(1), ends(1));
    assert_ne!(ends(1), ends(2));
}

#[test]
fn a_pacer_that_believes_too_much_leaves_the_order_to_the_queue() {
    let mut requests: Vec<Request> = (0..6).map(|i| request(i, segments(300))).collect();
    requests.push(request(S, 1_000));
    let small_ms = |factor: f64| {
        let rate = "8mbit".parse::<scheduler::Rate>().unwrap().scaled(factor);
        let rules = Settings { rate: Some(rate), pacing: Pacing::SERVER, ..Settings::default() };
        serve(line("8mbit", Discipline::Gate(rules)), &requests).0[6].response_ns() as f64 / 1e6
    };
    let (right, wrong) = (small_ms(0.97), small_ms(1.3));
    assert!(right < 8.0 && wrong > 2.0 * right, "{right} ms and {wrong} ms");
}

mod random {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn every_request_ends_once_whatever_happens(
            sizes in proptest::collection::vec((0u64..400, 0u64..60_000, 0u16..3), 1..40),
            (loss, jitter_ms, queue_packets, kept) in (0.0f64..0.3, 0u64..8, 1u32..40, 1u32..4),
            (order, discipline, router) in (0usize..Order::ALL.len(), 0u8..3, any::<bool>()),
            (patience_ms, seed) in (proptest::option::of(300u64..3_000), any::<u64>()),
        ) {
            let mut at_ns = 0;
            let requests: Vec<Request> = sizes
                .into_iter()
                .map(|(gap_ms, size_bytes, group)| {
                    at_ns += gap_ms * MS / 10;
                    Request { at_ns, file: 0, size_bytes, group }
                })
                .collect();
            let order = Order::ALL[order];
            let bands = || BandPlan::new(vec![1_000, 10_000, 100_000]).unwrap();
            let discipline = match discipline {
                0 => Discipline::Fair,
                1 => gate(order, "8mbit"),
                _ => Discipline::Bands(Settings { order, ..Settings::default() }, bands()),
            };
            let path = ClientPath { loss, jitter_ns: jitter_ms * MS, ..far(32) };
            let settings = PacketSettings {
                paths: vec![path, ClientPath { segment_bytes: 524, ..path }],
                queue_packets,
                requests_per_connection: kept,
                bottleneck: if router { BottleneckAt::Router } else { BottleneckAt::Server },
                seed,
                ..line("8mbit", discipline)
            };
            let clients = Clients { abort_after_ns: patience_ms.map(|ms| ms * MS), retries: 1 };
            let (served, _) = serve_clients(settings, &requests, &clients);
            prop_assert_eq!(served.len(), requests.len());
            for it in &served {
                // Head and body cannot arrive before the link has carried them.
                let least_ns = (it.request.size_bytes + 250) * 1_000 + 32 * MS;
                match it.end {
                    End::Done => prop_assert!(it.response_ns() >= least_ns || it.attempts > 1 || kept > 1),
                    other => prop_assert!(other == End::Aborted && patience_ms.is_some()),
                }
            }
        }
    }
}

#[test]
fn an_upload_takes_what_the_site_leaves_and_ends_in_time() {
    let upload = OtherUploads {
        from_ns: S,
        until_ns: 11 * S,
        lasts_ns: 10 * S,
        every_ns: 10 * S,
        connections: 1,
        rtt_ns: 20 * MS,
        window_segments: None,
    };
    let at = |uploads| PacketSettings {
        bottleneck: BottleneckAt::Router,
        queue_packets: 100,
        uploads,
        paths: vec![far(20)],
        ..line("8mbit", Discipline::Fair)
    };
    let uploaded = |uploads, requests: &[Request]| {
        let (served, stats) = serve(at(Some(uploads)), requests);
        (served[0].end_ns, stats.uploaded_bytes as f64 / 10e6)
    };
    // A request at the end makes the model go on until then.
    let late = request(15 * S, 1_000);
    let (_, alone) = uploaded(upload, &[late]);
    assert!((0.95..1.02).contains(&alone), "{alone:.3} of 8 Mbit/s for 10 s");
    let two_seconds = OtherUploads { lasts_ns: 2 * S, every_ns: 5 * S, ..upload };
    let (_, parts) = uploaded(two_seconds, &[late]);
    assert!((0.36..0.44).contains(&parts), "{parts:.3}: two times 2 s");
    // One connection each: the site has about a half.
    let (end_ns, beside) = uploaded(upload, &[request(S, 5_000_000), late]);
    assert!((0.35..0.75).contains(&beside), "{beside:.3}");
    let alone_ns = serve(at(None), &[request(S, 5_000_000)]).0[0].end_ns;
    assert!(alone_ns < 7 * S && end_ns > 8 * S, "{alone_ns} and {end_ns}");
    // 34 packets fill the path and a short queue. A site that makes the queue longer leaves them a small part of the line.
    let fixed = OtherUploads { window_segments: Some(34), ..upload };
    let (_, alone) = uploaded(fixed, &[late]);
    assert!((0.95..1.02).contains(&alone), "{alone:.3}: the line is full");
    let until_second_6 = OtherUploads { until_ns: 6 * S, ..fixed };
    let (beside_fixed_ns, beside) = uploaded(until_second_6, &[request(S, 5_000_000), late]);
    assert!((0.05..0.25).contains(&beside), "{beside:.3} of what passes in ten seconds, in five");
    assert!(beside_fixed_ns < end_ns, "{beside_fixed_ns} and {end_ns}");
}
