use super::*;

/// A grant takes this long at the pacer's rate.
const GRANT_NS: u64 = 2_400_000;
const RTT_NS: u64 = 300_000;

/// The part of the pacer's own queue that handshakes meet, on a link that is so many times as fast as the pacer, with
/// up to this noise. One comes every so often for three seconds. The pacer is idle in the first 200 ms.
fn own_part(faster: f64, every_ns: u64, noise_ns: u64) -> Option<f64> {
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
            seen.handle_round_trip(now, 7, rtt_ns, RttKind::Exact, GRANT_NS);
        }
    }
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
