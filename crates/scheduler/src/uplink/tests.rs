mod groups;
mod random;

use alloc::vec::Vec;

use super::*;
use crate::{
    link::{Chunk, Pacing},
    order::Order,
    units::Rate,
};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// The pacing of the server, with grants of one size.
const PACING: Pacing = Pacing { chunk: Chunk::ByRate, ..Pacing::SERVER };

fn uplink(order: Order) -> Uplink {
    Uplink::new(Settings { order, rate: Some(rate("10mbit")), pacing: PACING, ..Settings::default() })
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
    uplink.handle_ungranted(ms(0), 1_000_000);
    // Within one round of slow start each. 10 KB more take 8 ms at 10 Mbit/s, less than the 10 ms of path,
    // but 80 ms at 1 Mbit/s.
    let large_and_near = waiting(&mut uplink, ms(0), Size::Known(11_000), far(10));
    let small_and_far = waiting(&mut uplink, ms(0), Size::Known(1_000), far(20));
    assert!(uplink.precedence(large_and_near) < uplink.precedence(small_and_far));
    uplink.handle_rate(ms(0), Some(rate("1mbit")));
    assert!(uplink.precedence(small_and_far) < uplink.precedence(large_and_near));
    let now = uplink.poll_timeout().unwrap();
    assert_eq!(uplink.poll_grant(now).map(|grant| grant.job), Some(small_and_far));
}

#[test]
fn what_needs_no_leave_takes_its_time_of_the_link_on_paper_too() {
    // 10 ms of the link, both real and simulated: the first response is as far from its end as before.
    let order = |ungranted_bytes: u64| {
        let mut uplink = uplink(Order::Fsp);
        let early = uplink.handle_started(ms(0), Size::Known(20_000), Path::UNKNOWN);
        uplink.handle_ungranted(ms(0), ungranted_bytes);
        let late = uplink.handle_started(ms(10), Size::Known(15_000), Path::UNKNOWN);
        uplink.precedence(late) < uplink.precedence(early)
    };
    assert!(order(12_500), "15 KB, while 20 KB are left of the other on paper");
    assert!(!order(0), "15 KB, while 7.5 KB are left of the other on paper");
}

/// Under fsp, whether 15 KB that come at `late_ms` go before 20 KB that came first; `happens` acts on the
/// link between. At 10 Mbit/s they do if the simulated link needs less than 4 ms more for the first.
fn late_goes_first(late_ms: u64, happens: impl Fn(&mut Uplink)) -> bool {
    let mut uplink = uplink(Order::Fsp);
    let early = uplink.handle_started(ms(0), Size::Known(20_000), Path::UNKNOWN);
    happens(&mut uplink);
    let late = uplink.handle_started(ms(late_ms), Size::Known(15_000), Path::UNKNOWN);
    uplink.precedence(late) < uplink.precedence(early)
}

#[test]
fn what_the_link_on_paper_is_busy_with_follows_the_rate_as_the_link_does() {
    let at = |text: &str| Some(rate(text));
    let ungranted_at = |rate: Option<Rate>, bytes| {
        move |uplink: &mut Uplink| {
            uplink.handle_rate(ms(0), rate);
            uplink.handle_ungranted(ms(0), bytes);
            uplink.handle_rate(ms(0), at("10mbit"));
        }
    };
    // 100 ms at 1 Mbit/s are 10 ms at 10 Mbit/s, and 1 ms at 100 Mbit/s is 10 ms at 10 Mbit/s.
    for rate in ["1mbit", "100mbit"] {
        let happens = ungranted_at(at(rate), 12_500);
        assert!(late_goes_first(10, happens), "{rate}");
        assert!(!late_goes_first(20, happens), "{rate}");
    }
    // A link without limit is never busy, and a lifted limit is forgotten.
    assert!(!late_goes_first(10, ungranted_at(None, 1_000_000_000)));
    assert!(!late_goes_first(10, |uplink| {
        uplink.handle_ungranted(ms(0), 1_000_000);
        uplink.handle_settings(ms(0), Settings { rate: None, ..*uplink.settings() });
        uplink.handle_settings(ms(0), Settings { rate: at("10mbit"), ..*uplink.settings() });
    }));
}

#[test]
fn a_flood_of_what_needs_no_leave_holds_nobody_back_for_longer_than_a_second() {
    let flood = |uplink: &mut Uplink| (0..1000).for_each(|_| uplink.handle_ungranted(ms(0), 1_250_000));
    assert!(late_goes_first(1000, flood), "nothing was sent of either in the first second");
    assert!(!late_goes_first(1010, flood), "and from then on it was");
    let mut uplink = uplink(Order::Srpt);
    flood(&mut uplink);
    waiting(&mut uplink, ms(0), Size::Known(100_000), Path::UNKNOWN);
    assert!(uplink.poll_grant(ms(1000)).is_some());
}

#[test]
fn what_the_link_on_paper_is_busy_with_stays_when_nobody_is_left_on_paper() {
    let order = |ungranted_bytes: u64| {
        late_goes_first(10, |uplink| {
            uplink.handle_finished(ms(0), JobId(0), false);
            uplink.handle_ungranted(ms(0), ungranted_bytes);
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
    // Unwritten bytes also give back their headers.
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
        uplink.handle_ungranted(ms(0), 10_000);
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
    uplink.handle_ungranted(ms(0), 10_000);
    let streamed = waiting(&mut uplink, ms(0), Size::Unknown, Path::UNKNOWN);
    let page = waiting(&mut uplink, ms(0), Size::Known(50_000), Path::UNKNOWN);
    uplink.handle_remaining_known(streamed, 1_000_000);
    assert!(uplink.precedence(page) < uplink.precedence(streamed), "a megabyte does not go before 50 KB");
    uplink.handle_finished(ms(1), page, true);
    uplink.handle_finished(ms(2), streamed, false);
    let next = uplink.handle_started(ms(10_000), Size::Known(1), Path::UNKNOWN);
    uplink.handle_finished(ms(10_000), next, false);
    assert!(uplink.fair_sharing.simulated.is_idle(), "nobody is left on paper");
}

#[test]
fn a_length_that_becomes_known_late_is_not_overdue_at_once() {
    let mut uplink = uplink(Order::Srpt);
    uplink.handle_settings(ms(0), Settings { guard_stretch: Some(2.0), ..*uplink.settings() });
    let streamed = uplink.handle_started(ms(0), Size::Unknown, Path::UNKNOWN);
    // The job is alone for 100 s: no other event tells the uplink how late it is.
    let grant = uplink.handle_wants(ms(100_000), streamed, 100).unwrap();
    assert_eq!(grant.bytes, 100);
    uplink.handle_remaining_known(streamed, 1_000_000);
    uplink.handle_wants(ms(100_001), streamed, 1_000_000);
    uplink.handle_started(ms(100_002), Size::Known(1_000), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 0);
}

#[test]
fn a_guard_taken_away_lets_go_of_whom_it_put_ahead() {
    // fsp follows fair sharing with and without a guard.
    let mut uplink = uplink(Order::Fsp);
    let guarded = Settings { guard_stretch: Some(1.0), ..*uplink.settings() };
    uplink.handle_settings(ms(0), guarded);
    uplink.handle_free_at(ms(8000));
    let old = waiting(&mut uplink, ms(0), Size::Known(100_000), Path::UNKNOWN);
    let page = waiting(&mut uplink, ms(1000), Size::Known(1_000), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 1);
    assert!(uplink.precedence(old) < uplink.precedence(page), "fair sharing would have finished it long ago");
    uplink.handle_settings(ms(1000), Settings { guard_stretch: None, ..guarded });
    assert!(uplink.precedence(page) < uplink.precedence(old));
    uplink.handle_started(ms(9000), Size::Known(1), Path::UNKNOWN);
    assert_eq!(uplink.stats().guarded, 1, "nobody more");
}

#[test]
fn the_guard_counts_what_is_left_in_wire_bytes() {
    let mut uplink = uplink(Order::Srpt);
    let settings = Settings { guard_stretch: Some(3.0), segment_overhead_bytes: 1448, ..*uplink.settings() };
    uplink.handle_settings(ms(0), settings);
    uplink.handle_free_at(ms(800));
    // 289.6 KB on the wire take 231.68 ms alone. With a stretch of 3 the job is due after three such spans,
    // and is put ahead after two.
    let job = waiting(&mut uplink, ms(0), Size::Known(144_800), Path::UNKNOWN);
    for (at_ms, guarded) in [(231, 0), (463, 0), (464, 1)] {
        let other = uplink.handle_started(ms(at_ms), Size::Unknown, Path::UNKNOWN);
        uplink.handle_finished(ms(at_ms), other, true);
        assert_eq!(uplink.stats().guarded, guarded, "after {at_ms} ms");
    }
    assert!(!uplink.rank(job).unguarded);
}

#[test]
fn what_was_written_of_a_grant_keeps_its_segments() {
    for written in [0, 1, 1447, 1448, 1449, 2895, 2896, 4344] {
        let mut uplink = uplink(Order::Srpt);
        let job = uplink.handle_started(ms(0), Size::Known(1_000_000), Path::UNKNOWN);
        let grant = uplink.handle_wants(ms(0), job, 1_000_000).unwrap();
        assert_eq!(grant.bytes, 4344);
        // Handed back in two calls, and then more than there is.
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
    // One job is served for a second, alone.
    for at_ms in (0..1000).step_by(10) {
        assert!(uplink.handle_wants(ms(at_ms), steady, 100_000).is_some());
    }
    // Now both have bytes all the time, and take turns.
    uplink.handle_ungranted(ms(1000), 10_000);
    uplink.handle_wants(ms(1000), steady, 100_000);
    uplink.handle_wants(ms(1000), pausing, 100_000);
    let mut turns = Vec::new();
    for _ in 0..6 {
        let now = uplink.poll_timeout().unwrap();
        let job = uplink.poll_grant(now).unwrap().job;
        uplink.handle_wants(now, job, 100_000);
        turns.push(job);
    }
    assert_eq!(turns, [pausing, steady, pausing, steady, pausing, steady]);
}

fn share(policy: Policy, weights: &[u32]) -> ClassShare {
    let classes = weights.iter().map(|&weight| crate::class::Class { weight, ..Default::default() }).collect();
    ClassShare { policy, classes, slots: None }
}

/// A shared uplink that is busy for 100 ms.
fn shared(order: Order, share: ClassShare) -> Uplink {
    let mut uplink = uplink(order);
    uplink.handle_share(ms(0), Some(share), &[]).unwrap();
    uplink.handle_free_at(ms(100));
    uplink
}

fn waiting_of(uplink: &mut Uplink, now: Instant, class: u16, bytes: u64) -> JobId {
    let job = uplink.handle_started_of(now, ClassId(class), Size::Known(bytes), Path::UNKNOWN);
    assert_eq!(uplink.handle_wants(now, job, bytes), None, "the link is busy");
    job
}

/// All further grants, in turn; a job that gets a grant asks for no more.
fn grants(uplink: &mut Uplink) -> Vec<Grant> {
    let next = |uplink: &mut Uplink| uplink.poll_grant(uplink.poll_timeout()?);
    core::iter::from_fn(|| next(uplink)).collect()
}

fn jobs(grants: &[Grant]) -> Vec<JobId> {
    grants.iter().map(|grant| grant.job).collect()
}

#[test]
fn the_share_picks_the_class_and_the_order_the_job_within_it() {
    let mut uplink = shared(Order::Srpt, share(Policy::Strict, &[1, 1]));
    let [large, small] = [2_500, 1_000].map(|bytes| waiting_of(&mut uplink, ms(0), 1, bytes));
    let [first, last] = [1_500, 10_000].map(|bytes| waiting_of(&mut uplink, ms(1), 0, bytes));
    // A class number that does not exist counts as the last class.
    let other = waiting_of(&mut uplink, ms(1), 7, 10);
    assert!(uplink.precedence(last) < uplink.precedence(other));
    let grants = grants(&mut uplink);
    assert_eq!(jobs(&grants), [first, last, other, small, large]);
    let reasons: Vec<_> = grants.iter().map(|grant| (grant.reason, grant.share.unwrap())).collect();
    assert_eq!(
        reasons,
        [
            (Reason::First, share::Reason::Priority),
            (Reason::Alone, share::Reason::Priority),
            (Reason::First, share::Reason::Alone),
            (Reason::First, share::Reason::Alone),
            (Reason::Alone, share::Reason::Alone),
        ]
    );
    assert_eq!(uplink.class_stats(ClassId(0)).charged_bytes, 1_500 + 2 * 66 + 4_344 + 3 * 66);
}

#[test]
fn a_changed_share_takes_along_whoever_waits_to_the_class_that_is_named() {
    let mut uplink = shared(Order::Fifo, share(Policy::Strict, &[1, 1]));
    let [low, high] = [1, 0].map(|class| waiting_of(&mut uplink, ms(0), class, 1_000));
    let error = uplink.handle_share(ms(1), Some(share(Policy::Strict, &[0])), &[ClassId(1)]);
    assert_eq!(error, Err(ShareError::Weight(ClassId(0))));
    assert!(uplink.precedence(high) < uplink.precedence(low), "nothing has changed");
    uplink.handle_share(ms(1), Some(share(Policy::Strict, &[1; 3])), &[ClassId(2), ClassId(1)]).unwrap();
    assert!(uplink.precedence(low) < uplink.precedence(high));
    assert_eq!(uplink.stats().waiting, 2);
    // Without a share all jobs are one class: first come, first served.
    uplink.handle_share(ms(1), None, &[]).unwrap();
    let granted = grants(&mut uplink);
    assert_eq!(jobs(&granted), [low, high]);
    assert!(granted.iter().all(|grant| grant.share.is_none()));
}

#[test]
fn what_a_class_hands_back_is_its_own_again() {
    for policy in [Policy::Weighted, Policy::Shared] {
        let mut uplink = shared(Order::Fifo, share(policy, &[1, 1]));
        let [gives_back, other] = [0, 1].map(|class| waiting_of(&mut uplink, ms(0), class, 1 << 20));
        let mut had = [0, 0];
        for _ in 0..400 {
            let now = uplink.poll_timeout().unwrap();
            let grant = uplink.poll_grant(now).unwrap();
            let unused = if grant.job == gives_back { grant.bytes - 1448 } else { 0 };
            uplink.handle_unused(grant.job, unused);
            had[usize::from(grant.job == other)] += grant.bytes - unused;
            uplink.handle_wants(now, grant.job, 1 << 20);
        }
        let apart = had[0] as i64 - had[1] as i64;
        assert!(apart.unsigned_abs() <= uplink.chunk_bytes(), "{policy}: {had:?}");
    }
}

#[test]
fn who_comes_after_much_was_handed_back_need_not_make_up_for_it() {
    let mut uplink = shared(Order::Fifo, share(Policy::Weighted, &[1, 1, 1]));
    let [a, b] = [0, 1].map(|class| waiting_of(&mut uplink, ms(0), class, 1 << 20));
    let turn = |uplink: &mut Uplink| {
        let now = uplink.poll_timeout().unwrap();
        let grant = uplink.poll_grant(now).unwrap();
        uplink.handle_unused(grant.job, grant.bytes - 1);
        uplink.handle_wants(now, grant.job, 1 << 20);
        grant.job
    };
    for _ in 0..1000 {
        turn(&mut uplink);
    }
    let now = uplink.poll_timeout().unwrap();
    let newcomer = waiting_of(&mut uplink, Instant::from_ns(now.as_ns() - 1), 2, 1 << 20);
    let turns: Vec<_> = (0..6).map(|_| turn(&mut uplink)).collect();
    for job in [a, b, newcomer] {
        assert!(turns.iter().filter(|&&it| it == job).count() >= 1, "{turns:?}");
    }
}

#[test]
fn the_guard_puts_ahead_within_a_class_and_not_before_another() {
    let mut uplink = shared(Order::Srpt, share(Policy::Strict, &[1, 1]));
    uplink.handle_settings(ms(0), Settings { guard_stretch: Some(1.0), ..*uplink.settings() });
    uplink.handle_free_at(ms(8000));
    let old = waiting_of(&mut uplink, ms(0), 1, 100_000);
    let page = waiting_of(&mut uplink, ms(7000), 1, 1_000);
    let high = waiting_of(&mut uplink, ms(7000), 0, 200_000);
    assert_eq!(uplink.stats().guarded, 1);
    let grants = grants(&mut uplink);
    assert_eq!(jobs(&grants), [high, old, page]);
    assert_eq!(grants[1].reason, Reason::Guarded);
}

#[test]
fn under_fair_classes_take_turns_among_themselves() {
    // The second class is served once for eight times of the first; that must not put its new jobs last.
    let mut uplink = shared(Order::Fair, share(Policy::Weighted, &[8, 1]));
    let first = waiting_of(&mut uplink, ms(0), 0, 1 << 20);
    let second = waiting_of(&mut uplink, ms(0), 1, 1 << 20);
    let mut of_second = Vec::new();
    let mut newcomer = None;
    for turn in 0..200 {
        let now = uplink.poll_timeout().unwrap();
        let grant = uplink.poll_grant(now).unwrap();
        if grant.job != first {
            of_second.push(grant.job);
        }
        uplink.handle_wants(now, grant.job, 1 << 20);
        if turn == 100 {
            newcomer = Some(waiting_of(&mut uplink, now, 1, 1 << 20));
        }
    }
    let newcomer = newcomer.unwrap();
    let since = of_second.iter().position(|&it| it == newcomer).unwrap();
    let alternate =
        of_second[since..].chunks(2).all(|two| two[0] == newcomer && two.get(1).is_none_or(|&it| it == second));
    assert!(alternate && of_second.len() > 15, "{of_second:?}");
}

#[test]
fn who_cannot_make_the_deadline_goes_behind_those_of_its_class_who_can() {
    let mut share = share(Policy::Edf, &[1, 1]);
    (share.classes[0].deadline_ns, share.classes[1].deadline_ns) = (Some(150_000_000), Some(500_000_000));
    let mut uplink = shared(Order::Fifo, share);
    // At 100 ms there is time for 62.5 KB of the first class.
    let late = waiting_of(&mut uplink, ms(0), 0, 100_000);
    let in_time = waiting_of(&mut uplink, ms(1), 0, 2_000);
    let other = waiting_of(&mut uplink, ms(2), 1, 2_000);
    let now = uplink.poll_timeout().unwrap();
    let ahead = uplink.clone();
    assert_eq!(jobs(&grants(&mut uplink)), [in_time, other, late]);
    // At ten times the rate the job can meet its deadline after all.
    uplink = ahead;
    uplink.find_late(now);
    uplink.handle_rate(now, Some(rate("100mbit")));
    assert_eq!(jobs(&grants(&mut uplink)), [late, in_time, other]);
}

#[test]
fn parts_follow_the_rate_and_a_link_without_limit_has_none() {
    let mut uplink = uplink(Order::Fifo);
    uplink.handle_share(ms(0), Some(share(Policy::Fixed, &[1, 1])), &[]).unwrap();
    let job = uplink.handle_started_of(ms(0), ClassId(0), Size::Unknown, Path::UNKNOWN);
    let grant = uplink.handle_wants(ms(0), job, 1 << 20).unwrap();
    assert_eq!((grant.reason, grant.share), (Reason::Alone, Some(share::Reason::Alone)));
    assert_eq!(uplink.handle_wants(ms(0), job, 1 << 20), None);
    let wire_ns = rate("5mbit").ns_for(uplink.wire_bytes(grant.bytes));
    let ahead_ns = uplink.settings().pacing.ahead_ns;
    assert_eq!(uplink.poll_timeout(), Some(Instant::from_ns(wire_ns - ahead_ns)), "by half of the rate");
    uplink.handle_rate(ms(0), Some(rate("5mbit")));
    let timeout = uplink.poll_timeout().unwrap().as_ns();
    assert!(timeout.abs_diff(2 * wire_ns - ahead_ns) < 1_000, "{timeout}");
    uplink.handle_rate(ms(0), None);
    assert!(uplink.poll_grant(ms(0)).is_some());
    assert!(uplink.handle_wants(ms(0), job, 1 << 20).is_some());
    uplink.handle_rate(ms(0), Some(rate("10mbit")));
    assert!(uplink.handle_wants(ms(0), job, 1 << 20).is_some(), "what was sent without limit is forgotten");
}

#[test]
fn what_needs_no_leave_takes_from_all_parts_alike() {
    let mut uplink = shared(Order::Fifo, share(Policy::Fixed, &[2, 1]));
    let [a, b] = [0, 1].map(|class| waiting_of(&mut uplink, ms(0), class, 1 << 20));
    let mut had = [0, 0];
    for _ in 0..300 {
        let now = uplink.poll_timeout().unwrap();
        let grant = uplink.poll_grant(now).unwrap();
        uplink.handle_ungranted(now, 2 * uplink.wire_bytes(grant.bytes));
        uplink.handle_wants(now, grant.job, 1 << 20);
        had[usize::from(grant.job == b)] += 1;
    }
    assert_eq!(had, [200, 100], "{a:?} {b:?}");
}

#[test]
fn who_would_be_late_by_less_than_a_grant_keeps_its_place() {
    for (bytes, is_late) in [(61_500, false), (66_000, false), (68_500, true)] {
        let mut share = share(Policy::Edf, &[1]);
        share.classes[0].deadline_ns = Some(150_000_000);
        let mut uplink = shared(Order::Fifo, share);
        // Decided at 99.5 ms, and on the link for 51.5, 55.2 and 57.3 ms: a new job may find the link taken for
        // 6.0 ms.
        let first = waiting_of(&mut uplink, ms(0), 0, bytes);
        let second = waiting_of(&mut uplink, ms(1), 0, 2_000);
        let expected = if is_late { [second, first] } else { [first, second] };
        assert_eq!(jobs(&grants(&mut uplink)), expected, "{bytes} bytes");
    }
}

#[test]
fn what_is_handed_back_makes_room_in_the_part_that_it_was_charged_to() {
    let mut reserve = share(Policy::Shared, &[1, 1]);
    (reserve.classes[0].reserved_slots, reserve.slots) = (1, Some(4));
    for (share, class) in [(share(Policy::Fixed, &[1, 1]), 0), (reserve.clone(), 0), (reserve, 1)] {
        let mut uplink = uplink(Order::Fifo);
        let policy = share.policy;
        uplink.handle_share(ms(0), Some(share), &[]).unwrap();
        let job = uplink.handle_started_of(ms(0), ClassId(class), Size::Unknown, Path::UNKNOWN);
        for _ in 0..10 {
            let grant = uplink.handle_wants(ms(0), job, 1 << 20).expect("there is room");
            uplink.handle_unused(job, grant.bytes);
        }
        assert_eq!(uplink.class_stats(ClassId(class)).charged_bytes, 0, "{policy}, class {class}");
    }
}

#[test]
fn a_grant_is_due_when_it_was_announced_though_a_few_bytes_without_one_went_out() {
    let mut uplink = uplink(Order::Srpt);
    let film = uplink.handle_started(ms(0), Size::Known(1 << 20), Path::UNKNOWN);
    let page = uplink.handle_started(ms(0), Size::Known(5_000), Path::UNKNOWN);
    assert!(uplink.handle_wants(ms(0), film, 1 << 20).is_some());
    assert_eq!(uplink.poll_timeout(), None, "no job waits");
    assert_eq!(uplink.handle_wants(ms(0), page, 5_000), None);
    let (slack_ns, due) = (uplink.settings().pacing.slack_ns, uplink.poll_timeout().unwrap());
    assert_eq!(due, uplink.room_at());
    let few_bytes = rate("10mbit").bytes_in(slack_ns);
    uplink.handle_ungranted(ms(0), few_bytes);
    assert_eq!(uplink.room_at(), due.add_ns(slack_ns));
    assert_eq!(uplink.poll_timeout(), Some(due));
    assert!(uplink.clone().poll_grant(due).is_some());
    // More of them do move it.
    uplink.handle_ungranted(ms(0), few_bytes);
    assert_eq!(uplink.poll_timeout(), Some(due.add_ns(2 * slack_ns)));
    assert!(uplink.poll_grant(due).is_none());
    // Two jobs that wait get no grant more than the link carries by then.
    assert_eq!(uplink.handle_wants(ms(0), film, 1 << 19), None);
    let at = uplink.poll_timeout().unwrap();
    assert!(uplink.poll_grant(at).is_some());
    assert!(uplink.poll_grant(at).is_none());
}

#[test]
fn a_short_grant_is_given_early_when_the_driver_comes_and_a_whole_chunk_is_not() {
    let mut uplink = uplink(Order::Srpt);
    let film = uplink.handle_started(ms(0), Size::Known(1 << 20), Path::UNKNOWN);
    assert!(uplink.handle_wants(ms(0), film, 1 << 20).is_some());
    assert_eq!(uplink.handle_wants(ms(0), film, 1 << 19), None);
    let due = uplink.poll_timeout().unwrap();
    let soon = Instant::from_ns(due.as_ns() - 1_000_000);
    assert_eq!(uplink.poll_grant(soon), None);
    let page = uplink.handle_started(soon, Size::Known(1_000), Path::UNKNOWN);
    assert_eq!(uplink.handle_wants(soon, page, 1_000), None, "another job waits");
    assert_eq!(uplink.poll_timeout(), Some(due), "the driver need not come for that");
    assert_eq!(uplink.poll_grant(soon).map(|grant| (grant.job, grant.bytes)), Some((page, 1_000)));
    assert_eq!(uplink.poll_grant(soon), None, "the film waits");
}

#[test]
fn nothing_slips_in_early_before_the_job_that_was_served_asks_again() {
    let mut uplink = uplink(Order::Fifo);
    let film = uplink.handle_started(ms(0), Size::Known(1 << 20), Path::UNKNOWN);
    assert!(uplink.handle_wants(ms(0), film, 1 << 20).is_some());
    let page = uplink.handle_started(ms(0), Size::Known(500), Path::UNKNOWN);
    let soon = Instant::from_ns(uplink.room_at().as_ns() - 1_000_000);
    assert_eq!(uplink.handle_wants(soon, page, 500), None);
    assert_eq!(uplink.poll_grant(soon), None, "the film may ask at any time, and is first then");
    assert_eq!(uplink.handle_wants(soon, film, 1 << 19), None);
    assert_eq!(uplink.poll_grant(soon), None);
    let due = uplink.poll_timeout().unwrap();
    assert_eq!(uplink.poll_grant(due).map(|grant| grant.job), Some(film));
    // Without the film the page need not wait for the time that was announced.
    uplink.handle_finished(due, film, false);
    let soon = Instant::from_ns(uplink.room_at().as_ns() - 1_000_000);
    assert_eq!(uplink.poll_grant(soon).map(|grant| grant.job), Some(page));
}
