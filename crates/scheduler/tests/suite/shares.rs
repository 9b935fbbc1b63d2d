//! The promises of shares, checked on a simulated link, with every order within the classes.
//!
//! The cost of a grant is its bytes on the wire; the largest grant is a chunk.

use proptest::{collection::vec, prelude::*, sample::select};
use serpent_scheduler::{
    Order, Rate, Uplink,
    class::Class,
    share::Policy,
    uplink::{ClassShare, Settings, ShareError},
};

use crate::bare_link::{Arrival, PACING, Run, ahead_ns, grant_bytes, grant_ns, lends, run, run_shared, taken_ns};

fn settings(order: Order, rate: &str) -> Settings {
    Settings { order, rate: Some(rate.parse().unwrap()), pacing: PACING, ..Settings::default() }
}

fn rate(settings: &Settings) -> Rate {
    settings.rate.unwrap()
}

fn share(policy: Policy, weights: &[u32]) -> ClassShare {
    let classes = weights.iter().map(|&weight| Class { weight, ..Class::default() }).collect();
    ClassShare { policy, classes, slots: None }
}

fn grant_wire_bytes(settings: &Settings) -> f64 {
    Uplink::new(*settings).wire_bytes(grant_bytes(settings)) as f64
}

/// The grants of a run: time of decision, class, and bytes on the wire.
fn grants(settings: &Settings, run: &Run, jobs: &[Arrival]) -> Vec<(u64, usize, u64)> {
    let uplink = Uplink::new(*settings);
    let grant =
        |it: &crate::bare_link::Served| (it.decided_ns, usize::from(jobs[it.job].class), uplink.wire_bytes(it.bytes));
    run.served.iter().map(grant).collect()
}

/// `n` jobs of each class, of many sizes, that are there from the beginning.
fn backlog(classes: usize, n: usize) -> Vec<Arrival> {
    let sizes = [700, 20_000, 3_100, 1, 9_000, 40_000, 1_448];
    (0..n * classes)
        .map(|i| Arrival { class: (i % classes) as u16, ..Arrival::new(0, sizes[i / classes % sizes.len()]) })
        .collect()
}

/// Jobs of several classes that come and go, with a load between little and far too much.
fn jobs(classes: u16) -> impl Strategy<Value = Vec<Arrival>> {
    let bytes = prop_oneof![6 => 1..3_000u64, 3 => 3_000..20_000u64, 1 => 20_000..100_000u64];
    let gap_ns = prop_oneof![1 => Just(0), 3 => 0..10_000_000u64];
    vec((gap_ns, bytes, 0..classes), 1..50).prop_map(|jobs| {
        let mut at_ns = 0;
        let arrive = |(gap_ns, bytes, class)| {
            at_ns += gap_ns;
            Arrival { class, ..Arrival::new(at_ns, bytes) }
        };
        jobs.into_iter().map(arrive).collect()
    })
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    vec(1..10u32, 3)
}

/// The letters of the classes that got grants, in turn.
fn turns(share: &ClassShare, jobs: &[Arrival], n: usize) -> String {
    let settings = settings(Order::Fifo, "10mbit");
    let run = run_shared(&settings, Some(share), 10_000, jobs);
    grants(&settings, &run, jobs).iter().take(n).map(|&(_, class, _)| char::from(b'A' + class as u8)).collect()
}

#[test]
fn one_backlog_under_every_share() {
    let jobs: Vec<Arrival> = (0..3).map(|class| Arrival { class, ..Arrival::new(0, 100_000) }).collect();
    for (policy, expected) in [
        (Policy::Strict, "AAAAAAAAAAAAAA"),
        (Policy::Weighted, "ABACABAABACABA"),
        (Policy::Shared, "ABACABAABACABA"),
        (Policy::Edf, "BBBBBBBBBBBBBB"),
    ] {
        let mut share = share(policy, &[4, 2, 1]);
        share.classes[1].deadline_ns = Some(1_000_000_000);
        share.classes[0].deadline_ns = Some(2_000_000_000);
        assert_eq!(turns(&share, &jobs, 14), expected, "{policy}");
    }
}

#[test]
fn what_contradicts_itself_says_so() {
    let with = |change: fn(&mut ClassShare)| {
        let mut share = share(Policy::Shared, &[4, 2, 1]);
        change(&mut share);
        Uplink::new(Settings::default()).handle_share(Default::default(), Some(share), &[]).err()
    };
    assert_eq!(with(|_| {}), None);
    assert_eq!(with(|it| it.classes.clear()), Some(ShareError::Classes));
    assert_eq!(with(|it| it.classes[1].weight = 0), Some(ShareError::Weight(serpent_scheduler::class::ClassId(1))));
    assert_eq!(with(|it| it.classes[1].reserved_slots = 7), Some(ShareError::Reserves));
    assert_eq!(with(|it| it.classes[1].reserved_slots = 6), None);
    assert_eq!(with(|it| (it.classes[1].reserved_slots, it.slots) = (7, Some(8))), None);
    for policy in Policy::ALL {
        let is_of_links = Policy::OF_LINKS.contains(&policy);
        let refused = share(policy, &[1, 1]).check().err();
        assert_eq!(refused, (!is_of_links).then_some(ShareError::Policy(policy)), "{policy}");
    }
}

#[test]
fn a_fixed_part_is_not_lent_and_is_there_to_the_last_byte() {
    let settings = settings(Order::Srpt, "10mbit");
    let share = share(Policy::Fixed, &[4, 2, 1]);
    for class in 0..3 {
        let jobs: Vec<Arrival> = (0..50).map(|_| Arrival { class, ..Arrival::new(0, 5_000) }).collect();
        let run = run_shared(&settings, Some(&share), 0, &jobs);
        let sent: u64 = grants(&settings, &run, &jobs).iter().map(|&(.., bytes)| bytes).sum();
        let part = f64::from(share.classes[usize::from(class)].weight) / 7.0;
        let alone_ns = rate(&settings).ns_for(sent) as f64 / part;
        let ended_ns = *run.ended_ns.iter().max().unwrap() as f64;
        // The first grant may go at once, and so may grants decided ahead; the last is sent at the link's
        // rate.
        let slack_ns = 2.0 * grant_ns(&settings) as f64 / part + ahead_ns(&settings) as f64;
        assert!((ended_ns - alone_ns).abs() <= slack_ns, "class {class}: {ended_ns} ns, {alone_ns} ns by its part");
    }
}

#[test]
fn a_reserve_is_not_lent_and_is_ready_when_its_class_comes() {
    let settings = settings(Order::Fifo, "10mbit");
    let mut share = share(Policy::Shared, &[1, 1]);
    (share.classes[0].reserved_slots, share.slots) = (1, Some(4));
    // The link was idle for a second. That saved nothing up.
    let (from_ns, late_ns) = (1_000_000_000, 1_100_000_000);
    let mut jobs: Vec<Arrival> = (0..200).map(|_| Arrival { class: 1, ..Arrival::new(from_ns, 5_000) }).collect();
    jobs.push(Arrival { class: 0, ..Arrival::new(late_ns, 2_000) });
    let run = run_shared(&settings, Some(&share), 0, &jobs);
    let of_others = |until_ns: u64| -> f64 {
        let grants = grants(&settings, &run, &jobs);
        grants.iter().filter(|it| it.1 == 1 && it.0 < until_ns).map(|it| it.2 as f64).sum()
    };
    let open_bytes = 0.75 * rate(&settings).bytes_in(late_ns - from_ns + ahead_ns(&settings)) as f64;
    let (others, chunk) = (of_others(late_ns), grant_wire_bytes(&settings));
    assert!(open_bytes - chunk < others && others <= open_bytes + chunk, "{others} of {open_bytes} bytes");
    let came = run.served.iter().find(|it| it.job == 200).unwrap();
    assert!(came.decided_ns <= late_ns + taken_ns(&settings), "{}", came.decided_ns - late_ns);
}

/// When each job ends if the job with the earliest deadline is served at every moment, to the byte. By a
/// classical result (Dertouzos 1974) this meets every deadline that any order, preemptive or not, could meet.
fn earliest_deadline_ends_ns(rate: Rate, jobs: &[(u64, u64, u64)]) -> Vec<f64> {
    let mut left: Vec<f64> = jobs.iter().map(|&(_, bytes, _)| rate.ns_for(bytes) as f64).collect();
    let (mut ends, mut now) = (vec![0.0; jobs.len()], 0.0);
    loop {
        let comes = jobs.iter().map(|&(at_ns, ..)| at_ns as f64).filter(|&at_ns| at_ns > now).fold(f64::MAX, f64::min);
        let here = (0..jobs.len()).filter(|&i| left[i] > 0.0 && jobs[i].0 as f64 <= now);
        let Some(first) = here.min_by_key(|&i| (jobs[i].2, i)) else {
            if comes == f64::MAX {
                return ends;
            }
            now = comes;
            continue;
        };
        let until = (now + left[first]).min(comes);
        left[first] -= until - now;
        // A rounding remainder is no byte.
        if left[first] < 1e-3 {
            (left[first], ends[first]) = (0.0, until);
        }
        now = until;
    }
}

/// The jobs that end too late under edf with fifo, though some order could meet every deadline: by more than a grant and the
/// time that is decided ahead.
fn missed(jobs: &[Arrival], deadlines_ms: &[u64]) -> Vec<(Arrival, u64)> {
    let settings = settings(Order::Fifo, "10mbit");
    let mut share = share(Policy::Edf, &[1; 4]);
    for (class, ms) in share.classes.iter_mut().zip(deadlines_ms) {
        class.deadline_ns = Some(ms * 1_000_000);
    }
    let uplink = Uplink::new(settings);
    let due_ns = |job: &Arrival| job.at_ns + deadlines_ms[usize::from(job.class)] * 1_000_000;
    let on_paper: Vec<_> = jobs.iter().map(|job| (job.at_ns, uplink.wire_bytes(job.bytes), due_ns(job))).collect();
    let best = earliest_deadline_ends_ns(rate(&settings), &on_paper);
    if best.iter().zip(jobs).any(|(&end_ns, job)| end_ns > due_ns(job) as f64) {
        return Vec::new();
    }
    let run = run_shared(&settings, Some(&share), 0, jobs);
    let slack_ns = taken_ns(&settings) + run.served.len() as u64 + 1_000;
    let ends = jobs.iter().copied().zip(run.ended_ns);
    ends.filter(|(job, ended_ns)| *ended_ns > due_ns(job) + slack_ns).collect()
}

/// The third job of the first class finds the link taken for more than a chunk, and is in time all the same.
#[test]
fn a_job_that_the_longest_grant_holds_up_is_not_late() {
    let of = |class, at_ns, bytes| Arrival { class, ..Arrival::new(at_ns, bytes) };
    let soon = 5_674_401;
    let jobs = [
        of(1, 0, 9_844),
        of(2, 0, 2_978),
        of(0, soon, 1),
        of(0, soon, 12_154),
        of(0, soon, 2_707),
        of(0, soon, 1),
        of(1, soon, 1_481),
    ];
    assert_eq!(missed(&jobs, &[13, 29, 3, 1]).len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every job ends under every share with every order. The link is never idle while a job waits, except
    /// for parts that are not lent.
    #[test]
    fn every_order_with_every_share_serves_everybody(
        weights in weights(),
        reserved in vec(0..2u32, 3),
        deadlines_ms in vec(1..100u64, 3),
        jobs in jobs(3),
    ) {
        for order in Order::ALL {
            let settings = settings(order, "10mbit");
            let last_ns = |run: &Run| run.ended_ns.iter().copied().max();
            let unshared = last_ns(&run(&settings, 0, &jobs));
            for policy in Policy::OF_LINKS {
                let mut share = ClassShare { slots: Some(8), ..share(policy, &weights) };
                for (i, class) in share.classes.iter_mut().enumerate() {
                    (class.reserved_slots, class.deadline_ns) = (reserved[i], Some(deadlines_ms[i] * 1_000_000));
                }
                // `run_shared` asserts that all jobs are served to the last byte.
                let run = run_shared(&settings, Some(&share), 0, &jobs);
                prop_assert!(!lends(&share) || last_ns(&run) == unshared, "{} {}", order, policy);
            }
        }
    }

    /// Under strict no class is granted anything while one before it waits.
    #[test]
    fn strict_never_sends_a_class_while_one_before_it_waits(order in select(&Order::ALL[..]), jobs in jobs(3)) {
        let run = run_shared(&settings(order, "10mbit"), Some(&share(Policy::Strict, &[1; 3])), 0, &jobs);
        for (served, waited) in run.served.iter().zip(&run.waited) {
            let first = waited.iter().map(|&job| jobs[job].class).min();
            prop_assert_eq!(Some(jobs[served.job].class), first);
        }
    }

    /// While all classes wait, no class is ever more than a chunk ahead of or behind its part of the bytes.
    #[test]
    fn a_class_has_its_part_of_the_bytes_to_a_grant(
        order in select(&Order::ALL[..]),
        policy in select(&[Policy::Weighted, Policy::Shared][..]),
        weights in weights(),
    ) {
        let settings = settings(order, "10mbit");
        let jobs = backlog(3, 40);
        let run = run_shared(&settings, Some(&share(policy, &weights)), 20_000, &jobs);
        let total: u32 = weights.iter().sum();
        let (mut had, mut all) = ([0.0; 3], 0.0);
        for ((_, class, bytes), waited) in grants(&settings, &run, &jobs).into_iter().zip(&run.waited) {
            if (0..3).any(|class| waited.iter().all(|&job| jobs[job].class != class)) {
                break;
            }
            had[class] += bytes as f64;
            all += bytes as f64;
            for (class, had) in had.iter().enumerate() {
                let due = all * f64::from(weights[class]) / f64::from(total);
                let apart = (had - due).abs() / grant_wire_bytes(&settings);
                prop_assert!(apart <= 1.0 + 1e-6, "{policy}: class {class} is {apart:.3} chunks off its part");
            }
        }
        prop_assert!(all > 50_000.0, "{all} bytes are too few to tell");
    }

    /// Two classes that wait all the time keep their ratio, to a chunk each, while other classes come and go.
    #[test]
    fn two_classes_that_wait_keep_their_ratio(
        order in select(&Order::ALL[..]),
        policy in select(&[Policy::Weighted, Policy::Shared][..]),
        weights in weights(),
        others in jobs(1),
    ) {
        let settings = settings(order, "10mbit");
        let steady = [0, 1].map(|class| Arrival { class, ..Arrival::new(0, 3_000_000) });
        let jobs: Vec<Arrival> =
            steady.into_iter().chain(others.into_iter().map(|job| Arrival { class: 2, ..job })).collect();
        let run = run_shared(&settings, Some(&share(policy, &weights)), 20_000, &jobs);
        let mut had = [0.0; 3];
        for ((_, class, bytes), waited) in grants(&settings, &run, &jobs).into_iter().zip(&run.waited) {
            if !(waited.contains(&0) && waited.contains(&1)) {
                break;
            }
            had[class] += bytes as f64;
            let (a, b) = (f64::from(weights[0]), f64::from(weights[1]));
            let apart = (had[0] / a - had[1] / b).abs() / grant_wire_bytes(&settings);
            prop_assert!(apart <= 1.0 / a + 1.0 / b + 1e-6, "{had:?} bytes by {weights:?}");
        }
    }

    /// Under fixed no class gets, in any time, more than its part of that time, of the time decided ahead,
    /// and two chunks; from the beginning, one chunk. And while all wait, no part is wasted.
    #[test]
    fn fixed_never_exceeds_a_part(
        order in select(&Order::ALL[..]),
        weights in weights(),
        jobs in jobs(3),
        backlogged in any::<bool>(),
    ) {
        let settings = settings(order, "10mbit");
        let jobs = if backlogged { backlog(3, 20) } else { jobs };
        let run = run_shared(&settings, Some(&share(Policy::Fixed, &weights)), 20_000, &jobs);
        let (total, chunk) = (f64::from(weights.iter().sum::<u32>()), grant_wire_bytes(&settings));
        let grants = grants(&settings, &run, &jobs);
        for (class, &weight) in weights.iter().enumerate() {
            let bytes_in = |ns: u64| {
                let ns = ns + ahead_ns(&settings);
                rate(&settings).bytes_per_second() * ns as f64 / 1e9 * f64::from(weight) / total
            };
            let came_ns = jobs.iter().find(|job| usize::from(job.class) == class).map_or(0, |job| job.at_ns);
            let of_class: Vec<_> = grants.iter().filter(|it| it.1 == class).collect();
            for first in 0..of_class.len() {
                let mut had = 0.0;
                for it in &of_class[first..] {
                    had += it.2 as f64;
                    let chunks = if first == 0 { 1.0 } else { 2.0 };
                    let from_ns = if first == 0 { came_ns } else { of_class[first].0 };
                    let most = bytes_in(it.0 - from_ns) + chunks * chunk + 1.0;
                    prop_assert!(had <= most, "class {class}: {had} bytes, {most} at most");
                }
            }
        }
        // All wait until the first class has had all its bytes.
        let all_wait = |waited: &&Vec<usize>| (0..3).all(|class| waited.iter().any(|&job| jobs[job].class == class));
        let until = run.waited.iter().take_while(all_wait).count();
        if backlogged {
            let sent: u64 = grants[..until].iter().map(|it| it.2).sum();
            let took_ns = grants[until - 1].0 - grants[0].0;
            let idle_ns = took_ns.saturating_sub(rate(&settings).ns_for(sent));
            prop_assert!(idle_ns <= 2 * taken_ns(&settings), "{idle_ns} ns of {took_ns} were lost");
        }
    }

    /// Under edf with fifo every feasible deadline is met, up to a chunk and the time that is decided ahead.
    #[test]
    fn edf_meets_every_deadline_that_any_order_could_meet(
        jobs in jobs(4),
        deadlines_ms in vec(1..120u64, 4),
    ) {
        let missed = missed(&jobs, &deadlines_ms);
        prop_assert!(missed.is_empty(), "{missed:?} with the times of their ends");
    }
}
