use super::*;

const MS: u64 = 1_000_000;
const SEGMENT: u32 = 1000;

fn sender(rtt_ms: u64) -> Sender {
    let mut sender = Sender::new(SEGMENT, None);
    sender.handle_established(0, Some(rtt_ms * MS));
    sender
}

fn sent(sender: &mut Sender, now_ns: u64) -> Vec<u64> {
    std::iter::from_fn(|| sender.poll_segment(now_ns, true)).map(|it| it.seq / u64::from(SEGMENT)).collect()
}

fn ack(next: u64) -> Ack {
    Ack { next: next * u64::from(SEGMENT), sack: None, duplicate: false }
}

fn sack(next: u64, from: u64, to: u64) -> Ack {
    let bytes = u64::from(SEGMENT);
    Ack { next: next * bytes, sack: Some((from * bytes, to * bytes)), duplicate: false }
}

#[test]
fn the_first_window_is_ten_segments_and_each_acknowledgement_lets_two_out() {
    let mut sender = sender(100);
    sender.handle_write(0, 100 * u64::from(SEGMENT));
    assert_eq!(sent(&mut sender, 0), (0..10).collect::<Vec<_>>());
    sender.handle_ack(100 * MS, ack(1));
    assert_eq!(sent(&mut sender, 100 * MS), [10, 11]);
    sender.handle_ack(101 * MS, ack(3));
    assert_eq!(sent(&mut sender, 101 * MS), [12, 13, 14, 15]);
    assert_eq!(sender.path().unwrap().window_segments, 13);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut sender = sender(100);
    for i in 0..20 {
        sender.handle_write(i * MS, u64::from(SEGMENT));
        assert_eq!(sent(&mut sender, i * MS), [i]);
        sender.handle_ack(i * MS + MS / 2, ack(i + 1));
    }
    assert_eq!(sender.path().unwrap().window_segments, 10);
}

#[test]
fn a_segment_is_lost_when_three_behind_it_have_come_and_the_window_comes_down_to_seven_tenths() {
    let mut sender = sender(100);
    sender.handle_write(0, 10 * u64::from(SEGMENT));
    sent(&mut sender, 0);
    for to in 2..=3 {
        sender.handle_ack(100 * MS, sack(0, 1, to));
        assert_eq!(sent(&mut sender, 100 * MS), [] as [u64; 0], "two may be overtaken");
    }
    sender.handle_ack(100 * MS, sack(0, 1, 4));
    assert_eq!(sent(&mut sender, 100 * MS), [0]);
    for to in 5..=10 {
        sender.handle_ack(101 * MS, sack(0, 1, to));
        assert_eq!(sent(&mut sender, 101 * MS), [] as [u64; 0], "once is enough");
    }
    sender.handle_ack(200 * MS, ack(10));
    assert_eq!(sender.path().unwrap().window_segments, 7);
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn the_tail_is_probed_after_two_round_trips_and_what_the_probe_shows_lost_is_sent_again() {
    let mut sender = sender(50);
    sender.handle_write(0, 3 * u64::from(SEGMENT));
    sent(&mut sender, 0);
    assert_eq!(sender.poll_timeout(), Some(104 * MS));
    let probe = sender.handle_timeout(104 * MS).unwrap();
    assert_eq!((probe.seq, probe.again), (2 * u64::from(SEGMENT), true));
    // The probe has arrived, but not the first two segments, which were sent long before it.
    sender.handle_ack(154 * MS, sack(0, 2, 3));
    // One segment out for one in; then the window opens.
    assert_eq!(sent(&mut sender, 154 * MS), [0]);
    sender.handle_ack(204 * MS, ack(1));
    assert_eq!(sent(&mut sender, 204 * MS), [1]);
    sender.handle_ack(254 * MS, ack(3));
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn without_any_answer_the_time_out_begins_again_with_one_segment_and_doubles() {
    let mut sender = sender(50);
    sender.handle_write(0, 10 * u64::from(SEGMENT));
    sent(&mut sender, 0);
    sender.handle_timeout(104 * MS).unwrap();
    // A round trip of 50 ms and at least 200 ms, from the sending of the first segment.
    assert_eq!(sender.poll_timeout(), Some(250 * MS));
    assert_eq!(sender.handle_timeout(250 * MS), None);
    assert_eq!(sent(&mut sender, 250 * MS), [0]);
    assert_eq!(sender.poll_timeout(), Some(250 * MS + 2 * 250 * MS));
    sender.handle_timeout(750 * MS);
    assert_eq!(sent(&mut sender, 750 * MS), [0]);
    sender.handle_ack(800 * MS, ack(1));
    assert_eq!(sent(&mut sender, 800 * MS), [1, 2], "slow start again");
}

#[test]
fn a_device_that_is_slow_has_two_packets_of_a_connection_and_more_when_one_has_left() {
    let mut sender = Sender::new(SEGMENT, Some(SmallQueue { gso_segments: 1 }));
    // 10 segments in 100 ms, times two, are 200 bytes in a millisecond: the minimum applies.
    sender.handle_established(0, Some(100 * MS));
    sender.handle_write(0, 20 * u64::from(SEGMENT));
    assert_eq!(sent(&mut sender, 0), [0, 1]);
    sender.handle_left(SEGMENT);
    assert_eq!(sent(&mut sender, 0), [2]);
    // With a short round trip the device is fast, and nothing is held back.
    let mut sender = Sender::new(SEGMENT, Some(SmallQueue { gso_segments: 1 }));
    sender.handle_established(0, Some(MS / 10));
    sender.handle_write(0, 20 * u64::from(SEGMENT));
    assert_eq!(sent(&mut sender, 0).len(), 10);
}

#[test]
fn a_full_device_brings_the_window_down_and_nothing_is_sent_twice() {
    let mut sender = Sender::new(SEGMENT, Some(SmallQueue { gso_segments: 1 }));
    sender.handle_established(0, Some(MS / 10));
    sender.handle_write(0, 20 * u64::from(SEGMENT));
    assert_eq!(sender.poll_segment(0, false), None);
    // No acknowledgement can come, since nothing is under way: after a time-out it tries again.
    let again_ns = sender.poll_timeout().unwrap();
    assert!(again_ns >= 200 * MS);
    assert_eq!(sender.handle_timeout(again_ns), None);
    assert_eq!(sent(&mut sender, again_ns)[0], 0);
    assert!(sender.path().unwrap().window_segments <= 10);
}

#[test]
fn a_window_halves_with_each_time_out_of_silence() {
    let mut sender = sender(100);
    sender.handle_write(0, 1_000 * u64::from(SEGMENT));
    let mut next = 0;
    for round in 0..3 {
        let out = sent(&mut sender, round * 100 * MS);
        // Acknowledgements far enough apart not to form a train.
        for _ in out {
            next += 1;
            sender.handle_ack((round + 1) * 100 * MS, ack(next));
        }
    }
    assert_eq!(sender.path().unwrap().window_segments, 80);
    let left = sender.unsent_bytes() / u64::from(SEGMENT);
    let mut now_ns = 300 * MS;
    while sender.unsent_bytes() > 0 {
        next += sent(&mut sender, now_ns).len() as u64;
        now_ns += 100 * MS;
        sender.handle_ack(now_ns, ack(next));
    }
    assert!(left > 0);
    let before = sender.path().unwrap().window_segments;
    sender.handle_write(now_ns + 60_000 * MS, u64::from(SEGMENT));
    assert!(before > 10);
    assert_eq!(sender.path().unwrap().window_segments, 10);
}
