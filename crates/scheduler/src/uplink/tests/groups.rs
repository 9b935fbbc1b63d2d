//! Groups: urgency orders within a group, and changes nothing for others.

extern crate std;

use std::{format, prelude::v1::*};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{super::*, PACING, ms, share, uplink};
use crate::{order::Order, priority::Priority, units::Rate};

const URGENT: Priority = Priority { urgency: 0, incremental: false };
const USUAL: Priority = Priority { urgency: 3, incremental: false };
const BACKGROUND: Priority = Priority { urgency: 7, incremental: false };
const IN_TURN: Priority = Priority { urgency: 3, incremental: true };

/// A response to come.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at_ns: u64,
    group: u64,
    class: u16,
    chunks: u64,
    priority: Priority,
}

/// A grant: for which group, of which job, how many bytes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Served {
    group: u64,
    job: usize,
    bytes: u64,
    at: Instant,
}

/// Serves arrivals to the end. Each job asks again at once. `is_grouped`: otherwise no job is in a group.
fn serve(mut uplink: Uplink, arrivals: &[Arrival], is_grouped: bool) -> Vec<Served> {
    let chunk_bytes = uplink.chunk_bytes();
    let mut names: Vec<Option<usize>> = Vec::new();
    let mut left: Vec<u64> = arrivals.iter().map(|it| it.chunks * chunk_bytes).collect();
    let mut served = Vec::new();
    let mut next = 0;
    loop {
        let arrives_at = arrivals.get(next).map(|it| Instant::from_ns(it.at_ns));
        let Some(now) = arrives_at.into_iter().chain(uplink.poll_timeout()).min() else { break };
        let mut granted = None;
        if arrives_at == Some(now) {
            let it = arrivals[next];
            let group = is_grouped.then_some((GroupId(it.group), it.priority));
            let size = Size::Known(left[next]);
            let job = uplink.handle_started_in(now, ClassId(it.class), group, size, Path::UNKNOWN);
            names.resize(names.len().max(job.index() + 1), None);
            names[job.index()] = Some(next);
            granted = uplink.handle_wants(now, job, left[next]);
            next += 1;
        }
        while let Some(grant) = granted.or_else(|| uplink.poll_grant(now)) {
            let job = names[grant.job.index()].unwrap();
            left[job] -= grant.bytes;
            served.push(Served { group: arrivals[job].group, job, bytes: grant.bytes, at: now });
            granted = match left[job] {
                0 => {
                    uplink.handle_finished(now, grant.job, true);
                    None
                }
                bytes => uplink.handle_wants(now, grant.job, bytes),
            };
        }
    }
    assert_eq!(uplink.stats().jobs, 0);
    assert!(uplink.groups.is_empty());
    served
}

/// The jobs in the order in which they got chunks: `A` the first to arrive.
fn letters(order: Order, arrivals: &[Arrival]) -> String {
    let mut uplink = uplink(order);
    uplink.handle_free_at(ms(10));
    let served = serve(uplink, arrivals, true);
    served.iter().map(|it| char::from(b'A' + it.job as u8)).collect()
}

fn at_once(group: u64, chunks: u64, priority: Priority) -> Arrival {
    Arrival { at_ns: 0, group, class: 0, chunks, priority }
}

#[test]
fn the_urgent_jobs_of_a_group_go_first_and_srpt_breaks_ties() {
    for (jobs, expected) in [
        ([(1, USUAL), (3, USUAL), (2, USUAL)], "ACCBBB"),
        ([(1, USUAL), (3, URGENT), (2, USUAL)], "BBBACC"),
        ([(1, BACKGROUND), (3, USUAL), (2, USUAL)], "CCBBBA"),
        ([(3, URGENT), (2, URGENT), (1, BACKGROUND)], "BBAAAC"),
        // Those that are sent in turn go behind those that are not.
        ([(3, IN_TURN), (3, IN_TURN), (2, USUAL)], "CCABABAB"),
        ([(3, IN_TURN), (1, IN_TURN), (3, IN_TURN)], "BACACAC"),
    ] {
        let arrivals: Vec<_> = jobs.iter().map(|&(chunks, priority)| at_once(0, chunks, priority)).collect();
        assert_eq!(letters(Order::Srpt, &arrivals), expected, "{jobs:?}");
    }
}

#[test]
fn a_job_that_becomes_urgent_while_it_waits_goes_first_and_gains_nothing_against_others() {
    for order in Order::ALL {
        let served = |changed: bool| {
            let mut uplink = uplink(order);
            uplink.handle_free_at(ms(10));
            let chunk_bytes = uplink.chunk_bytes();
            let started: Vec<_> = [(0, 3), (0, 3), (1, 3)]
                .map(|(group, chunks)| {
                    let group = Some((GroupId(group), USUAL));
                    let size = Size::Known(chunks * chunk_bytes);
                    let job = uplink.handle_started_in(ms(0), ClassId(0), group, size, Path::UNKNOWN);
                    assert_eq!(uplink.handle_wants(ms(0), job, chunks * chunk_bytes), None);
                    (job, chunks * chunk_bytes)
                })
                .into();
            if changed {
                uplink.handle_priority(started[1].0, URGENT);
            }
            let mut left: Vec<u64> = started.iter().map(|(_, bytes)| *bytes).collect();
            let mut letters = String::new();
            while left.iter().any(|bytes| *bytes > 0) {
                let now = uplink.poll_timeout().unwrap();
                let Some(grant) = uplink.poll_grant(now) else { continue };
                let at = started.iter().position(|(job, _)| *job == grant.job).unwrap();
                letters.push(['A', 'B', 'C'][at]);
                left[at] -= grant.bytes;
                match left[at] {
                    0 => uplink.handle_finished(now, grant.job, true),
                    bytes => assert_eq!(uplink.handle_wants(now, grant.job, bytes), None),
                }
            }
            letters
        };
        let (usual, changed) = (served(false), served(true));
        // The other client is served at the same moments.
        let moments = |letters: &str| letters.match_indices('C').map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(moments(&usual), moments(&changed), "{order}: {usual} {changed}");
        assert!(changed.rfind('B') < changed.find('A'), "{order}: {changed}");
    }
}

#[test]
fn urgency_gains_nothing_against_other_groups() {
    // A and B are of one client, C of another.
    let alone = |priority| [at_once(0, 4, priority), at_once(0, 1, USUAL), at_once(1, 2, USUAL)];
    assert_eq!(letters(Order::Srpt, &alone(USUAL)), "BCCAAAA");
    // The urgent large one takes the place that the small one earns. Then the other client comes, as before.
    assert_eq!(letters(Order::Srpt, &alone(URGENT)), "ACCAAAB");
    assert_eq!(letters(Order::Fifo, &[at_once(0, 2, BACKGROUND), at_once(1, 1, USUAL), at_once(0, 1, URGENT)]), "CABA");
    assert_eq!(letters(Order::Fair, &[at_once(0, 2, URGENT), at_once(1, 3, USUAL), at_once(0, 2, USUAL)]), "ABACBCB");
}

#[test]
fn however_many_jobs_borrow_from_a_large_one_few_places_stay() {
    for order in Order::ALL {
        let mut uplink = uplink(order);
        uplink.handle_free_at(ms(10));
        let chunk_bytes = uplink.chunk_bytes();
        let start = |uplink: &mut Uplink, chunks: u64, priority| {
            let (group, size) = (Some((GroupId(1), priority)), Size::Known(chunks * chunk_bytes));
            let job = uplink.handle_started_in(ms(0), ClassId(0), group, size, Path::UNKNOWN);
            assert_eq!(uplink.handle_wants(ms(0), job, chunks * chunk_bytes), None);
            job
        };
        let large = start(&mut uplink, 1000, BACKGROUND);
        for _ in 0..500 {
            let urgent = start(&mut uplink, 1, URGENT);
            let now = uplink.poll_timeout().unwrap();
            assert_eq!(uplink.poll_grant(now).map(|grant| grant.job), Some(urgent), "{order}");
            uplink.handle_finished(now, urgent, true);
            assert!(uplink.jobs.len() <= 66, "{order}: {} places", uplink.jobs.len());
        }
        // The large one gets all of its bytes: from its own place, and from those that stay.
        let mut left_chunks = 1000;
        while left_chunks > 0 {
            let now = uplink.poll_timeout().unwrap();
            let grant = uplink.poll_grant(now).unwrap();
            assert_eq!((grant.job, grant.bytes), (large, chunk_bytes), "{order}");
            left_chunks -= 1;
            uplink.handle_wants(now, large, left_chunks.max(1) * chunk_bytes);
        }
        uplink.handle_finished(uplink.poll_timeout().unwrap(), large, true);
        assert!(uplink.groups.is_empty() && uplink.jobs.is_empty(), "{order}");
    }
}

#[test]
fn a_request_taken_back_leaves_the_rest_of_its_group_a_place() {
    for complete in [true, false] {
        let mut uplink = uplink(Order::Srpt);
        uplink.handle_free_at(ms(10));
        let chunk_bytes = uplink.chunk_bytes();
        let mut start = |chunks: u64, priority| {
            let size = Size::Known(chunks * chunk_bytes);
            let job = uplink.handle_started_in(ms(0), ClassId(0), Some((GroupId(1), priority)), size, Path::UNKNOWN);
            assert_eq!(uplink.handle_wants(ms(0), job, chunks * chunk_bytes), None);
            job
        };
        let (small, large) = (start(1, USUAL), start(100, URGENT));
        let now = uplink.poll_timeout().unwrap();
        // The place of the small one is spent on the large one, which ends then.
        assert_eq!(uplink.poll_grant(now).map(|grant| grant.job), Some(large));
        uplink.handle_finished(now, large, complete);
        assert_eq!((uplink.stats().jobs, uplink.stats().waiting), (1, 1));
        let now = uplink.poll_timeout().unwrap();
        assert_eq!(uplink.poll_grant(now).map(|grant| grant.job), Some(small));
        uplink.handle_finished(now, small, true);
        assert!(uplink.groups.is_empty() && uplink.jobs.is_empty());
    }
}

#[test]
fn bytes_handed_back_are_the_places_that_earned_them() {
    let mut uplink = uplink(Order::Srpt);
    uplink.handle_free_at(ms(10));
    let chunk_bytes = uplink.chunk_bytes();
    let mut start = |chunks: u64, priority| {
        let size = Size::Known(chunks * chunk_bytes);
        let job = uplink.handle_started_in(ms(0), ClassId(0), Some((GroupId(1), priority)), size, Path::UNKNOWN);
        assert_eq!(uplink.handle_wants(ms(0), job, chunks * chunk_bytes), None);
        job
    };
    let (small, large) = (start(1, USUAL), start(4, URGENT));
    let now = uplink.poll_timeout().unwrap();
    let grant = uplink.poll_grant(now).unwrap();
    assert_eq!(grant.job, large);
    uplink.handle_unused(large, grant.bytes);
    assert_eq!((uplink.attained_bytes(small), uplink.attained_bytes(large)), (0, 0));
    assert!(uplink.jobs.iter().all(|(_, it)| it.lent_bytes() == 0));
    // The place of the small one is the first again.
    assert_eq!(uplink.queues[0].places.first().map(|&(_, job)| job), Some(small));
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let priority = (select(&[0, 2, 3, 3, 5, 7][..]), any::<bool>())
        .prop_map(|(urgency, incremental)| Priority { urgency, incremental });
    let one = (0..20_000_000u64, 0..4u64, 0..3u16, 1..12u64, priority);
    vec(one, 1..30).prop_map(|arrivals| {
        let mut at_ns = 0;
        let arrival = |(after_ns, group, class, chunks, priority)| {
            at_ns += after_ns;
            Arrival { at_ns, group, class, chunks, priority }
        };
        arrivals.into_iter().map(arrival).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_group_gets_the_same_bytes_at_the_same_time_whatever_its_priorities_are(
        arrivals in arrivals(),
        weights in option::of(vec(1..5u32, 3)),
        policy in select(&Policy::OF_LINKS[..]),
        guard_stretch in option::of(1.0..4.0f64),
    ) {
        let rate: Option<Rate> = "10mbit".parse().ok();
        let class = |class: u16| if weights.is_some() { class } else { 0 };
        let arrivals: Vec<_> = arrivals.iter().map(|it| Arrival { class: class(it.class), ..*it }).collect();
        for order in Order::ALL {
            let start = || {
                let mut uplink = Uplink::new(Settings { order, rate, guard_stretch, pacing: PACING, ..Settings::default() });
                let share = weights.as_ref().map(|weights| share(policy, weights));
                uplink.handle_share(Instant::ORIGIN, share, &[]).unwrap();
                uplink
            };
            let alike: Vec<_> = arrivals.iter().map(|it| Arrival { priority: USUAL, ..*it }).collect();
            let (ungrouped, usual) = (serve(start(), &alike, false), serve(start(), &alike, true));
            prop_assert_eq!(&ungrouped, &usual, "{}: without priorities nothing changes", order);
            let ranked = serve(start(), &arrivals, true);
            let of_groups = |served: &[Served]| {
                served.iter().map(|it| (it.group, arrivals[it.job].class, it.bytes, it.at)).collect::<Vec<_>>()
            };
            // Where a job with more turns behind it goes first, a group that is silent for an instant loses turns.
            let is_exact = order != Order::QuickFix && (order != Order::Fair || guard_stretch.is_none());
            if is_exact {
                prop_assert_eq!(of_groups(&usual), of_groups(&ranked), "{}", order);
            }
            is_by_urgency(&arrivals, &ranked).map_err(|error| TestCaseError::fail(format!("{order}: {error}")))?;
        }
    }
}

/// Whether no job of a group and class is served while a more urgent one waits.
fn is_by_urgency(arrivals: &[Arrival], served: &[Served]) -> Result<(), String> {
    for (i, it) in served.iter().enumerate() {
        let mine = arrivals[it.job];
        let unfinished = |job: usize| served[i..].iter().any(|later| later.job == job);
        for (other, theirs) in arrivals.iter().enumerate() {
            let is_beside = theirs.group == mine.group && theirs.class == mine.class && theirs.at_ns < it.at.as_ns();
            if is_beside && theirs.priority.urgency < mine.priority.urgency && unfinished(other) {
                return Err(format!("grant {i}: {other} is more urgent than {}", it.job));
            }
        }
    }
    Ok(())
}
