use super::{leads::Lead, *};

/// A grant takes this long at the pacer's rate.
const GRANT_NS: u64 = 2_400_000;
const RTT_NS: u64 = 300_000;

/// Handshakes on a link that is so many times as fast as the pacer, with up to this noise. One comes every so often for three
/// seconds, and the pacer is idle in the first 200 ms. Also returns the time.
fn handshakes(faster: f64, every_ns: u64, noise_ns: u64) -> (RoundTrips, Instant) {
    let mut seen = RoundTrips::default();
    let (mut now, mut room_at, mut passed_at) = (Instant::from_ns(MS), Instant::ORIGIN, Instant::ORIGIN);
    let mut sent_bytes = 0;
    let mut answers = VecDeque::new();
    for step in 0..30_000u64 {
        now = now.add_ns(MS / 10);
        if now >= room_at && step > 2_000 {
            room_at = now.add_ns(GRANT_NS);
            passed_at = passed_at.max(now).add_ns((GRANT_NS as f64 / faster) as u64);
            sent_bytes += 2 * 1514;
        }
        let load = Load { sent_bytes, room_at, waits: step > 2_000, chunk_bytes: 2 * 1448 };
        seen.handle_load(now, load);
        if (step * (MS / 10)).is_multiple_of(every_ns) {
            let rtt_ns = RTT_NS + passed_at.ns_since(now) + step.wrapping_mul(7_919) % 1_000 * noise_ns / 1_000;
            answers.push_back((now.add_ns(rtt_ns), rtt_ns));
        }
        while let Some((_, rtt_ns)) = answers.pop_front_if(|(at, _)| *at <= now) {
            seen.handle_round_trip(
                now,
                RoundTrip { path: 7, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 },
                GRANT_NS,
            );
        }
    }
    (seen, now)
}

/// The part of the pacer's own queue that they meet.
fn own_part(faster: f64, every_ns: u64, noise_ns: u64) -> Option<f64> {
    let (seen, now) = handshakes(faster, every_ns, noise_ns);
    seen.own_queue_part(now)
}

#[test]
fn handshakes_meet_the_pacer_s_own_queue_only_where_the_link_is_not_faster() {
    let (same, twice, thrice) = (own_part(1.0, 17 * MS, 0), own_part(2.0, 17 * MS, 0), own_part(3.0, 17 * MS, 0));
    assert!(same.is_some_and(|part| (0.9..1.1).contains(&part)), "{same:?}");
    assert!(twice.is_some_and(|part| (0.15..0.35).contains(&part)), "{twice:?}");
    assert!(thrice.is_some_and(|part| part < 0.2), "{thrice:?}");
}

#[test]
fn a_few_handshakes_or_much_noise_tell_nothing_of_the_pacer_s_own_queue() {
    assert_eq!(own_part(1.0, 170 * MS, 0), None);
    assert_eq!(own_part(1.0, 17 * MS, 12 * MS), None);
}

#[test]
fn a_link_is_far_faster_if_handshakes_meet_nearly_nothing_of_a_queue_that_was_sent() {
    let bits = 2.0 * 1448.0 * 8.0 / (GRANT_NS as f64 / 1e9);
    let is_far_faster = |faster, every_ns, sent_part: f64| {
        let (seen, now) = handshakes(faster, every_ns, 0);
        seen.is_far_faster(now, bits / sent_part)
    };
    assert_eq!([1.0, 3.0, 16.0].map(|faster| is_far_faster(faster, 10 * MS, 1.0)), [false, false, true]);
    assert!(!is_far_faster(16.0, 30 * MS, 1.0), "they are too few");
    assert!(!is_far_faster(16.0, 10 * MS, 0.5), "less was sent than the link had");
}

#[test]
fn a_lead_that_falls_shows_a_slower_link_and_its_rate() {
    let bits = 2.0 * 1514.0 * 8.0 / (GRANT_NS as f64 / 1e9);
    for faster in [0.9, 0.97, 0.99] {
        let (seen, now) = handshakes(faster, 17 * MS, MS / 50);
        let since = Instant::from_ns(now.as_ns() - 500 * MS);
        let fell_ns = seen.lead_falls(now, since, 2 * MS as i64).expect("it falls by 5 ms and more");
        let known: Vec<Lead> = seen.leads(now, since).filter(|it| !it.is_bound).collect();
        let (last, first) = (known.first().unwrap(), known.last().unwrap());
        let expected_ns = last.sent_at.ns_since(first.sent_at) as f64 * (1.0 / faster - 1.0);
        let off_ns = (fell_ns - last.ns) as f64 - expected_ns;
        assert!(off_ns.abs() < 0.3e6, "{faster}: {fell_ns} to {}, and not by {expected_ns}", last.ns);
        let slope = seen.slope_of_waiting(now, since, now).expect("a rate");
        assert!((slope.bits / bits / faster - 1.0).abs() < 0.01, "{faster}: {slope:?} of {bits}");
    }
}

#[test]
fn a_lead_stays_on_a_link_that_is_as_fast_or_faster_and_is_longer_there() {
    let leads = [1.0, 1.5, 2.0].map(|faster| {
        let (seen, now) = handshakes(faster, 17 * MS, MS / 50);
        let since = Instant::from_ns(now.as_ns() - 500 * MS);
        assert_eq!(seen.lead_falls(now, since, MS as i64), None, "{faster}");
        assert!(seen.shows_leads(now));
        seen.lead_ns(now, since, 3, 31).expect("some packets wait")
    });
    let expected = [1.0, 1.5, 2.0].map(|faster| (GRANT_NS as f64 * (1.0 - 1.0 / faster)) as i64);
    for (lead_ns, expected_ns) in leads.into_iter().zip(expected) {
        assert!((lead_ns - expected_ns).abs() < MS as i64 / 5, "{leads:?} and {expected:?}");
    }
}

#[test]
fn few_handshakes_show_no_leads() {
    let (seen, now) = handshakes(1.0, 250 * MS, 0);
    assert!(!seen.shows_leads(now));
    assert!(seen.leads(now, Instant::ORIGIN).count() < 12);
}

/// A link of 1,000 bytes a millisecond that lets a burst pass is sent twice as much, after a pause, and a handshake every 2 ms.
#[test]
fn a_burst_is_what_was_sent_beyond_the_rate_before_packets_waited() {
    const BURST_BYTES: f64 = 60_000.0;
    let mut seen = RoundTrips::default();
    let (mut sent_bytes, mut ahead_bytes, mut now) = (0, 0.0, Instant::ORIGIN);
    let mut answers = VecDeque::new();
    let mut began = None;
    for ms in 0..400_u64 {
        now = Instant::from_ns(ms * MS);
        let sends = ms >= 200;
        sent_bytes += if sends { 2_000 } else { 0 };
        ahead_bytes = f64::max(ahead_bytes + if sends { 1_000.0 } else { -1_000.0 }, 0.0);
        let waits_ns = (f64::max(ahead_bytes - BURST_BYTES, 0.0) / 1_000.0 * MS as f64) as u64;
        began = began.or((waits_ns > 0).then_some(now));
        seen.handle_load(now, Load { sent_bytes, room_at: now, waits: sends, chunk_bytes: 2_896 });
        if ms % 2 == 0 {
            answers.push_back((now.add_ns(RTT_NS + waits_ns), RTT_NS + waits_ns));
        }
        while let Some((_, rtt_ns)) = answers.pop_front_if(|(at, _)| *at <= now) {
            seen.handle_round_trip(now, RoundTrip { path: 7, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 }, 0);
        }
    }
    let began = began.expect("the burst is used up");
    assert_eq!(began, Instant::from_ns(260 * MS));
    assert_eq!(seen.burst_bytes(8e6, Instant::ORIGIN, (Instant::ORIGIN, Instant::from_ns(259 * MS)), 2 * MS), None);
    let burst_bytes = seen.burst_bytes(8e6, Instant::ORIGIN, (began, now), 2 * MS).expect("packets wait");
    assert!((burst_bytes / BURST_BYTES - 1.0).abs() < 0.05, "{burst_bytes}");
    assert!((seen.ahead_bytes(8e6, Instant::ORIGIN, began) / BURST_BYTES - 1.0).abs() < 0.05);
    assert!(seen.ahead_bytes(16e6, Instant::ORIGIN, now) < 3_000.0, "at twice the rate nothing is ahead");
    let since = Instant::from_ns(230 * MS);
    let later = seen.burst_bytes(8e6, since, (began, now), 2 * MS).expect("packets wait");
    assert!((later / (BURST_BYTES / 2.0) - 1.0).abs() < 0.1, "what was sent before does not count: {later}");
    // A link of that rate without a burst has had a queue from the start.
    let without = seen.burst_bytes(8e6 * 1.6, Instant::ORIGIN, (began, now), 2 * MS).expect("packets wait");
    assert!(without < BURST_BYTES / 2.0, "{without}");
}

/// Round trips of 20 ms with up to this jitter, and a queue that grows by so much from each to the next. One comes every
/// 8 ms for 1.6 s, from second 0.5 on. The uplink is busy all the time, or in the first millisecond of each 8 only.
fn jittery(jitter_ms: u64, grows_us: u64, is_busy: bool) -> RoundTrips {
    let mut seen = RoundTrips::default();
    let mut random = 1_u64;
    for number in 0..200_u64 {
        let now = Instant::from_ns((500 + 8 * number) * MS);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let jitter_ns = (random >> 33) % 1_000 * jitter_ms * MS / 1_000;
        let load = Load { sent_bytes: number * 3_000, room_at: now.add_ns(MS), waits: is_busy, chunk_bytes: 2_896 };
        seen.handle_load(now, load);
        let rtt_ns = 20 * MS + jitter_ns + number * grows_us * 1_000;
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: rtt_ns, kind: RttKind::Handshake, age_ns: 0 }, 0);
    }
    seen
}

#[test]
fn jitter_shows_while_the_uplink_is_never_idle_and_a_queue_that_grows_is_none() {
    let level_ms = |jitter_ms, grows_us| jittery(jitter_ms, grows_us, true).level_ns(Instant::from_ns(2_200 * MS)) / MS;
    assert!((4..=16).contains(&level_ms(16, 0)), "half of it is above the shortest: {}", level_ms(16, 0));
    assert_eq!(level_ms(0, 500), 0);
    assert_eq!(level_ms(0, 0), 0);
}

/// Round trips of this kind that wait for so long, in turn. One is sent every 2 ms, from second 1 on, for 0.8 s.
fn waiting(kind: RttKind, waits_us: [u64; 4]) -> RoundTrips {
    let mut seen = RoundTrips::default();
    let waits = (0..400_u64).zip(waits_us.into_iter().cycle());
    let mut answers: Vec<(u64, u64)> = waits.map(|(number, us)| (2_000 * (500 + number) + us, us)).collect();
    answers.sort_unstable();
    for (at_us, waits_us) in answers {
        let now = Instant::from_ns(1_000 * at_us);
        seen.handle_load(now, Load { sent_bytes: at_us, room_at: now, waits: true, chunk_bytes: 2_896 });
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: MS + 1_000 * waits_us, kind, age_ns: 0 }, 0);
    }
    seen
}

#[test]
fn the_pauses_of_clients_are_no_jitter() {
    let level_ns = |kind| waiting(kind, [5_000, 9_000, 0, 8_000]).level_ns(Instant::from_ns(1_900 * MS));
    assert_eq!(level_ns(RttKind::LateData), 0);
    assert!(level_ns(RttKind::Data) > MS);
}

#[test]
fn a_link_was_full_if_the_uplink_was_busy_or_a_queue_is_longer_than_jitter() {
    let (since, now) = (Instant::from_ns(1_500 * MS), Instant::from_ns((500 + 8 * 199) * MS));
    let was_full = |noise_ms, grows_us, is_busy| {
        let seen = jittery(noise_ms, grows_us, is_busy);
        seen.was_full(now, since, seen.slope(since, 0).expect("many round trips"))
    };
    assert!(was_full(16, 0, true));
    assert!(!was_full(16, 0, false), "the uplink paused, and jitter is no queue");
    assert!(was_full(16, 500, false), "a queue of 60 to 100 ms stands");
}

#[test]
fn jitter_has_the_slope_of_what_was_sent_and_a_queue_that_grows_has_another() {
    let (since, now) = (Instant::from_ns(1_500 * MS), Instant::from_ns((500 + 8 * 199) * MS));
    let is_jitter = |noise_ms, grows_us| {
        let seen = jittery(noise_ms, grows_us, false);
        let slope = seen.slope(since, 0).expect("many round trips");
        (seen.is_jitter(now, since, slope), seen.is_jitter(now, since, Slope { error: 0.2 * slope.bits, ..slope }))
    };
    assert_eq!(is_jitter(32, 0), (true, true));
    assert_eq!(is_jitter(32, 4_000), (false, true), "an unsure one may be jitter");
    assert_eq!(is_jitter(0, 0), (false, false), "without jitter nothing looks like a queue");
}

#[test]
fn what_the_link_has_carried_is_no_more_than_was_sent() {
    let now = Instant::from_ns((500 + 8 * 199) * MS);
    let carried = |grows_us| jittery(0, grows_us, false).carried_bits(now).expect("two seconds") / 1e6;
    assert!((2.9..3.1).contains(&carried(0)), "3,000 bytes every 8 ms: {}", carried(0));
    // The last packet was sent 100 ms before it had passed.
    assert!((2.7..2.9).contains(&carried(500)), "{}", carried(500));
    assert_eq!(RoundTrips::default().carried_bits(now), None);
}

#[test]
fn jitter_shows_no_burst() {
    let seen = jittery(16, 0, true);
    let (began, now) = (Instant::from_ns(1_500 * MS), Instant::from_ns((500 + 8 * 199) * MS));
    // The link is taken to be slower than it is: some bytes seem to have been ahead of it.
    assert!(seen.ahead_bytes(2e6, Instant::ORIGIN, now) > 100_000.0);
    assert_eq!(seen.burst_bytes(2e6, Instant::ORIGIN, (began, now), 5 * MS), None);
}

#[test]
fn round_trips_of_data_count_if_there_is_jitter_or_handshakes_are_few() {
    let data_counts = |mut seen: RoundTrips, after_ms: u64| {
        let now = Instant::from_ns((500 + 8 * 199 + after_ms) * MS);
        let load = Load { sent_bytes: 600_000, room_at: now, waits: true, chunk_bytes: 2_896 };
        seen.handle_load(now, load);
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: 30 * MS, kind: RttKind::Data, age_ns: 0 }, 0);
        seen.has_since(now)
    };
    assert!(!data_counts(jittery(0, 0, true), 10));
    assert!(data_counts(jittery(16, 0, true), 10));
    assert!(data_counts(jittery(0, 0, true), 300));
}

#[test]
fn late_round_trips_of_data_count_only_where_few_others_came_for_long() {
    let late_counts = |after_ms: u64| {
        let mut seen = jittery(0, 0, true);
        let now = Instant::from_ns((500 + 8 * 199 + after_ms) * MS);
        seen.handle_load(now, Load { sent_bytes: 600_000, room_at: now, waits: true, chunk_bytes: 2_896 });
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: 30 * MS, kind: RttKind::LateData, age_ns: 0 }, 0);
        seen.has_since(now)
    };
    assert!(!late_counts(300));
    assert!(late_counts(2_100));
}

#[test]
fn late_round_trips_do_not_count_with_jitter_while_the_rate_is_known_roughly() {
    let late_counts = |is_rough: bool| {
        let mut seen = jittery(16, 0, true);
        seen.set_rough(is_rough);
        let now = Instant::from_ns((500 + 8 * 199 + 300) * MS);
        seen.handle_load(now, Load { sent_bytes: 600_000, room_at: now, waits: true, chunk_bytes: 2_896 });
        seen.handle_round_trip(now, RoundTrip { path: 7, ns: 30 * MS, kind: RttKind::LateData, age_ns: 0 }, 0);
        seen.has_since(now)
    };
    assert!(!late_counts(true));
    assert!(late_counts(false));
}

#[test]
fn the_longest_queue_ends_where_the_link_was_idle() {
    let mut seen = RoundTrips::default();
    let at = |ms: u64| Instant::from_ns(1_000_000_000 + ms * MS);
    // Packets every 5 ms. Those sent from 50 to 100 ms and from 200 to 350 ms wait for 10 ms, all others for nothing.
    for sent_ms in (0..500).step_by(5) {
        let waited_ms = if (50..=100).contains(&sent_ms) || (200..=350).contains(&sent_ms) { 10 } else { 0 };
        let load = Load { sent_bytes: sent_ms * 1_000, room_at: at(sent_ms), waits: false, chunk_bytes: 2_896 };
        seen.handle_load(at(sent_ms), load);
        seen.handle_round_trip(
            at(sent_ms + 1 + waited_ms),
            RoundTrip { path: 7, ns: (1 + waited_ms) * MS, kind: RttKind::Data, age_ns: 0 },
            0,
        );
    }
    // The one that is sent next finds what is left of it.
    assert_eq!(seen.longest_queue(at(500), at(0)), Some((at(200), at(360))));
    assert_eq!(seen.longest_queue(at(500), at(400)), Some((at(400), at(400))), "none");
    let (from, now) = (Instant::from_ns(1_500 * MS), Instant::from_ns((500 + 8 * 199) * MS));
    assert_eq!(jittery(16, 0, true).longest_queue(now, from), None, "jitter");
}
