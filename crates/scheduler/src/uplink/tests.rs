mod random;

use super::*;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn uplink(order: Order) -> Uplink {
    Uplink::new(Settings { order, rate: Some(rate("10mbit")), ..Settings::default() })
}

fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// Starts a job and lets it wait: the caller has made the link busy.
fn waiting(uplink: &mut Uplink, now: Instant, size: Size, path: Path) -> JobId {
    let job = uplink.handle_started(now, size, path);
    assert_eq!(uplink.handle_wants(now, job, 100_000), None, "the link is busy");
    job
}

#[test]
fn a_new_rate_ranks_the_waiting_anew_where_the_order_looks_at_it() {
    let far = |rtt_ms: u64| Path { rtt_ns: rtt_ms * 1_000_000, ..Path::UNKNOWN };
    let mut uplink = uplink(Order::Swift);
    uplink.handle_unranked(ms(0), 1_000_000);
    // Within one round of slow start each. At 10 Mbit/s 10 KB more are 8 ms, less than the 10 ms of way; at 1 Mbit/s 80.
    let large_and_near = waiting(&mut uplink, ms(0), Size::Known(11_000), far(10));
    let small_and_far = waiting(&mut uplink, ms(0), Size::Known(1_000), far(20));
    assert!(uplink.place(large_and_near) < uplink.place(small_and_far));
    uplink.handle_rate(ms(0), Some(rate("1mbit")));
    assert!(uplink.place(small_and_far) < uplink.place(large_and_near));
    let now = uplink.poll_timeout().unwrap();
    assert_eq!(uplink.poll_grant(now).map(|grant| grant.job), Some(small_and_far));
}

#[test]
fn what_needs_no_leave_takes_its_time_of_the_link_on_paper_too() {
    // 10 ms of the link, both in reality and on paper: the first response is as far from its end as before.
    let order = |unranked_bytes: u64| {
        let mut uplink = uplink(Order::Fsp);
        let early = uplink.handle_started(ms(0), Size::Known(20_000), Path::UNKNOWN);
        uplink.handle_unranked(ms(0), unranked_bytes);
        let late = uplink.handle_started(ms(10), Size::Known(15_000), Path::UNKNOWN);
        uplink.place(late) < uplink.place(early)
    };
    assert!(order(12_500), "15 KB, while 20 KB are left of the other on paper");
    assert!(!order(0), "15 KB, while 7.5 KB are left of the other on paper");
}

/// Under fsp, whether 15 KB that come at `late_ms` go before 20 KB that came at first, after `happens` to the link meanwhile.
/// At 10 Mbit/s they do if less than 4 ms of the link on paper were left for the first.
fn late_goes_first(late_ms: u64, happens: impl Fn(&mut Uplink)) -> bool {
    let mut uplink = uplink(Order::Fsp);
    let early = uplink.handle_started(ms(0), Size::Known(20_000), Path::UNKNOWN);
    happens(&mut uplink);
    let late = uplink.handle_started(ms(late_ms), Size::Known(15_000), Path::UNKNOWN);
    uplink.place(late) < uplink.place(early)
}

#[test]
fn what_the_link_on_paper_is_busy_with_follows_the_rate_as_the_link_does() {
    let at = |text: &str| Some(rate(text));
    let unranked_at = |rate: Option<Rate>, bytes| {
        move |uplink: &mut Uplink| {
            uplink.handle_rate(ms(0), rate);
            uplink.handle_unranked(ms(0), bytes);
            uplink.handle_rate(ms(0), at("10mbit"));
        }
    };
    // 100 ms at 1 Mbit/s are 10 ms at 10 Mbit/s, and 1 ms at 100 Mbit/s are 10.
    for rate in ["1mbit", "100mbit"] {
        let happens = unranked_at(at(rate), 12_500);
        assert!(late_goes_first(10, happens), "{rate}");
        assert!(!late_goes_first(20, happens), "{rate}");
    }
    // A link without limit is busy with nothing, and a limit lifted is forgotten.
    assert!(!late_goes_first(10, unranked_at(None, 1_000_000_000)));
    assert!(!late_goes_first(10, |uplink| {
        uplink.handle_unranked(ms(0), 1_000_000);
        uplink.handle_settings(ms(0), Settings { rate: None, ..*uplink.settings() });
        uplink.handle_settings(ms(0), Settings { rate: at("10mbit"), ..*uplink.settings() });
    }));
}

#[test]
fn a_flood_of_what_needs_no_leave_holds_nobody_back_for_longer_than_a_second() {
    let flood = |uplink: &mut Uplink| (0..1000).for_each(|_| uplink.handle_unranked(ms(0), 1_250_000));
    assert!(late_goes_first(1000, flood), "nothing was sent of either in the first second");
    assert!(!late_goes_first(1010, flood), "and from then on it was");
    let mut uplink = uplink(Order::Srpt);
    flood(&mut uplink);
    waiting(&mut uplink, ms(0), Size::Known(100_000), Path::UNKNOWN);
    assert!(uplink.poll_grant(ms(1000)).is_some());
}

#[test]
fn what_the_link_on_paper_is_busy_with_stays_when_nobody_is_left_on_paper() {
    let order = |unranked_bytes: u64| {
        late_goes_first(10, |uplink| {
            uplink.handle_finished(ms(0), JobId(0), false);
            uplink.handle_unranked(ms(0), unranked_bytes);
            let gone = uplink.handle_started(ms(0), Size::Known(1), Path::UNKNOWN);
            uplink.handle_finished(ms(0), gone, false);
            uplink.handle_started(ms(0), Size::Known(20_000), Path::UNKNOWN);
        })
    };
    assert!(order(12_500), "the first byte of the 20 KB would leave now");
    assert!(!order(0));
}

#[test]
fn a_response_in_short_segments_is_charged_for_each_of_their_headers() {
    let mut uplink = uplink(Order::Srpt);
    let job = uplink.handle_started(ms(0), Size::Known(2_000), Path { mss_bytes: 536, ..Path::UNKNOWN });
    assert_eq!(uplink.handle_wants(ms(0), job, 2_000).map(|grant| grant.bytes), Some(2_000));
    assert_eq!(uplink.stats().charged_bytes, 2_000 + 4 * 66);
    // What was not written gives back its headers too.
    uplink.handle_unused(job, 1_000);
    assert_eq!(uplink.stats().charged_bytes, 1_000 + 2 * 66);
}

#[test]
fn a_path_out_of_all_bounds_is_ranked_all_the_same() {
    let paths = [
        Path { rtt_ns: u64::MAX, window_segments: 0, mss_bytes: 0, delivery_bytes_per_second: 0 },
        Path { rtt_ns: 0, window_segments: u32::MAX, mss_bytes: u32::MAX, delivery_bytes_per_second: u64::MAX },
    ];
    for order in Order::ALL {
        let mut uplink = uplink(order);
        uplink.handle_unranked(ms(0), 10_000);
        for path in paths {
            waiting(&mut uplink, ms(0), Size::Known(u64::MAX), path);
        }
        let now = uplink.poll_timeout().unwrap();
        assert!(uplink.poll_grant(now).is_some(), "{order}");
    }
}

#[test]
fn under_fsp_a_length_that_becomes_known_counts_from_there() {
    let mut uplink = uplink(Order::Fsp);
    uplink.handle_unranked(ms(0), 10_000);
    let streamed = waiting(&mut uplink, ms(0), Size::Unknown, Path::UNKNOWN);
    let page = waiting(&mut uplink, ms(0), Size::Known(50_000), Path::UNKNOWN);
    uplink.handle_remaining_known(streamed, 1_000_000);
    assert!(uplink.place(page) < uplink.place(streamed), "a megabyte does not go before 50 KB");
    uplink.handle_finished(ms(1), page, true);
    uplink.handle_finished(ms(2), streamed, false);
    let next = uplink.handle_started(ms(10_000), Size::Known(1), Path::UNKNOWN);
    uplink.handle_finished(ms(10_000), next, false);
    assert!(uplink.sharing.is_idle(), "nobody is left on paper");
}

#[test]
fn a_length_that_becomes_known_late_is_not_overdue_at_once() {
    let mut uplink = uplink(Order::Srpt);
    uplink.handle_settings(ms(0), Settings { guard_stretch: Some(2.0), ..*uplink.settings() });
    let streamed = uplink.handle_started(ms(0), Size::Unknown, Path::UNKNOWN);
    // Alone for 100 s: nothing else tells the uplink how late it is.
    let grant = uplink.handle_wants(ms(100_000), streamed, 100).unwrap();
    assert_eq!(grant.bytes, 100);
    uplink.handle_remaining_known(streamed, 1_000_000);
    uplink.handle_wants(ms(100_001), streamed, 1_000_000);
    uplink.handle_started(ms(100_002), Size::Known(1_000), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 0);
}

#[test]
fn a_guard_taken_away_lets_go_of_whom_it_put_ahead() {
    // fsp follows fair sharing with a guard and without one.
    let mut uplink = uplink(Order::Fsp);
    let guarded = Settings { guard_stretch: Some(1.0), ..*uplink.settings() };
    uplink.handle_settings(ms(0), guarded);
    uplink.handle_free_at(ms(8000));
    let old = waiting(&mut uplink, ms(0), Size::Known(100_000), Path::UNKNOWN);
    let page = waiting(&mut uplink, ms(1000), Size::Known(1_000), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 1);
    assert!(uplink.place(old) < uplink.place(page), "fair sharing would have finished it long ago");
    uplink.handle_settings(ms(1000), Settings { guard_stretch: None, ..guarded });
    assert!(uplink.place(page) < uplink.place(old));
    uplink.handle_started(ms(9000), Size::Known(1), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 1, "nobody more");
}

#[test]
fn the_guard_counts_what_is_left_in_wire_bytes() {
    let mut uplink = uplink(Order::Srpt);
    let settings = Settings { guard_stretch: Some(3.0), segment_overhead_bytes: 1448, ..*uplink.settings() };
    uplink.handle_settings(ms(0), settings);
    uplink.handle_free_at(ms(800));
    // 289.6 KB on the wire: 231.68 ms alone. Due by the end of the third such span, and ahead from the end of the second.
    let job = waiting(&mut uplink, ms(0), Size::Known(144_800), Path::UNKNOWN);
    for (at_ms, guarded) in [(231, 0), (463, 0), (464, 1)] {
        let other = uplink.handle_started(ms(at_ms), Size::Unknown, Path::UNKNOWN);
        uplink.handle_finished(ms(at_ms), other, true);
        assert_eq!(uplink.stats().guarded, guarded, "after {at_ms} ms");
    }
    assert!(!uplink.place(job).0);
}

#[test]
fn what_was_written_of_a_grant_keeps_its_segments() {
    for written in [0, 1, 1447, 1448, 1449, 2895, 2896] {
        let mut uplink = uplink(Order::Srpt);
        let job = uplink.handle_started(ms(0), Size::Known(1_000_000), Path::UNKNOWN);
        let grant = uplink.handle_wants(ms(0), job, 1_000_000).unwrap();
        assert_eq!(grant.bytes, 2896);
        // Handed back in two parts, and more than there is.
        let unused = grant.bytes - written;
        uplink.handle_unused(job, unused / 2);
        uplink.handle_unused(job, unused - unused / 2);
        assert_eq!(uplink.stats().charged_bytes, uplink.wire_bytes(written), "{written} bytes written");
        uplink.handle_unused(job, u64::MAX);
        assert_eq!((uplink.stats().charged_bytes, uplink.attained_bytes(job)), (0, 0));
    }
}

#[test]
fn under_fair_whoever_did_not_ask_saves_up_no_turns() {
    let mut uplink = uplink(Order::Fair);
    let (steady, pausing) = (
        uplink.handle_started(ms(0), Size::Known(1_000_000), Path::UNKNOWN),
        uplink.handle_started(ms(0), Size::Known(1_000_000), Path::UNKNOWN),
    );
    // One is served for a second, alone.
    for at_ms in (0..1000).step_by(10) {
        assert!(uplink.handle_wants(ms(at_ms), steady, 100_000).is_some());
    }
    // Now both have bytes all the time, and take turns.
    uplink.handle_unranked(ms(1000), 10_000);
    uplink.handle_wants(ms(1000), steady, 100_000);
    uplink.handle_wants(ms(1000), pausing, 100_000);
    let mut turns = alloc::vec::Vec::new();
    for _ in 0..6 {
        let now = uplink.poll_timeout().unwrap();
        let job = uplink.poll_grant(now).unwrap().job;
        uplink.handle_wants(now, job, 100_000);
        turns.push(job);
    }
    assert_eq!(turns, [pausing, steady, pausing, steady, pausing, steady]);
}
