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
