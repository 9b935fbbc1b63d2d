use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;
use rand::RngExt;

use super::*;
use crate::{
    pattern::Pattern,
    rate::{Link, Rate},
    sequence::{LoadMatch, stream},
    sizes::{FileSet, HeavyTail},
    surge::Surge,
    wire::WireModel,
};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_sequence_gives_each_request_once_and_in_time() {
    let request = |at_ns| Request { at_ns, file: 0, size_bytes: 1, group: 0 };
    let mut demand = Demand::sequence(vec![request(5), request(5), request(9)]);
    assert_eq!((demand.poll_timeout(), demand.poll_request(4)), (Some(5), None));
    assert_eq!(demand.poll_request(5), Some(Due { request: request(5), user: None }));
    assert_eq!(demand.poll_request(7).map(|due| due.request.at_ns), Some(5));
    assert_eq!((demand.poll_request(7), demand.poll_timeout()), (None, Some(9)));
    assert!(demand.poll_request(9).is_some());
    assert_eq!(demand.poll_timeout(), None);
}

/// A finished request: user, request, and time of its end.
type Gone = (u32, Request, u64);

/// Drives a demand to its end with a server that answers after `service_ns(request)`. It checks the common
/// promises: a user has one request at a time, planned times and returned times never go back, and no request
/// begins from `until_ns` on.
fn drive(mut demand: Demand, until_ns: u64, mut service_ns: impl FnMut(&Request) -> u64) -> Vec<Gone> {
    let mut under_way: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut gone: Vec<Gone> = Vec::new();
    let mut open: std::collections::HashMap<u32, usize> = std::collections::HashMap::new();
    let (mut now_ns, mut last_at_ns) = (0, 0);
    loop {
        while let Some(due) = demand.poll_request(now_ns) {
            let user = due.user.unwrap();
            assert!(due.request.at_ns <= now_ns, "not before its time");
            assert!(due.request.at_ns >= last_at_ns, "moments never go back");
            assert!(due.request.at_ns < until_ns, "nothing begins when the time is up");
            last_at_ns = due.request.at_ns;
            assert!(open.insert(user, gone.len()).is_none(), "one request under way a user");
            let end_ns = now_ns + service_ns(&due.request);
            gone.push((user, due.request, end_ns));
            under_way.push(Reverse((end_ns, user)));
        }
        let end = under_way.peek().map(|&Reverse(end)| end);
        let Some(next_ns) = [demand.poll_timeout(), end.map(|(at_ns, _)| at_ns)].into_iter().flatten().min() else {
            return gone;
        };
        assert!(next_ns >= now_ns, "time never goes back");
        now_ns = next_ns;
        if let Some((end_ns, user)) = end
            && end_ns <= now_ns
        {
            under_way.pop();
            assert!(open.remove(&user).is_some());
            demand.handle_end(user, end_ns);
        }
    }
}

fn small_site() -> Site {
    Site::new(&Surge::default(), 200, 1).unwrap()
}

fn users(site: &Site, users: u32, seconds: u64, seed: u64) -> Demand {
    Demand::users(site, users, &Shares::one(), seconds * SECOND, seed)
}

/// The files of each user, in order.
fn by_user(gone: &[Gone], users: u32) -> Vec<Vec<u32>> {
    (0..users)
        .map(|user| gone.iter().filter(|(who, ..)| *who == user).map(|(_, request, _)| request.file).collect())
        .collect()
}

#[test]
fn what_users_ask_for_does_not_depend_on_the_answers() {
    let site = small_site();
    let fast = drive(users(&site, 20, 200, 3), 200 * SECOND, |_| 1_000_000);
    let slow = drive(users(&site, 20, 200, 3), 200 * SECOND, |request| request.size_bytes * 10_000);
    assert!(slow.len() < fast.len(), "who waits longer asks less: {} {}", slow.len(), fast.len());
    for (fast, slow) in by_user(&fast, 20).into_iter().zip(by_user(&slow, 20)) {
        let both = fast.len().min(slow.len());
        assert_eq!(fast[..both], slow[..both]);
    }
    assert_eq!(fast, drive(users(&site, 20, 200, 3), 200 * SECOND, |_| 1_000_000), "a seed decides everything");
    assert_ne!(fast, drive(users(&site, 20, 200, 4), 200 * SECOND, |_| 1_000_000));
}

/// Kolmogorov-Smirnov: the greatest distance between values and a law, over its critical value at the 1 %
/// level.
fn distance_over_critical(mut values: Vec<f64>, law: impl Fn(f64) -> f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    let distances = values.iter().enumerate().map(|(i, &x)| {
        let expected = law(x);
        (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
    });
    distances.fold(0.0, f64::max) / (1.628 / n.sqrt())
}

#[test]
fn users_read_pages_and_are_silent_between() {
    // Answers take no time and active OFF times are far below inactive ones, so pages can be told apart.
    let surge = Surge { active_off_s: crate::surge::Weibull { scale: 0.01, shape: 2.0 }, ..Surge::default() };
    let site = Site::new(&surge, 200, 1).unwrap();
    let seconds = 2_000;
    let gone = drive(users(&site, 50, seconds, 1), seconds * SECOND, |_| 0);
    let (mut active_s, mut inactive_s, mut embedded) = (Vec::new(), Vec::new(), Vec::new());
    for user in 0..50 {
        let ends: Vec<u64> = gone.iter().filter(|(who, ..)| *who == user).map(|&(.., end_ns)| end_ns).collect();
        assert!(ends[0] < 2 * SECOND, "users begin in the first seconds");
        let mut of_page = 0_u32;
        for pair in ends.windows(2) {
            let off_s = (pair[1] - pair[0]) as f64 / 1e9;
            if off_s < 0.5 {
                active_s.push(off_s);
                of_page += 1;
            } else {
                inactive_s.push(off_s);
                embedded.push(of_page);
                of_page = 0;
            }
        }
    }
    assert!(distance_over_critical(active_s, |x| 1.0 - (-(x / 0.01).powi(2)).exp()) < 1.0);
    // The end of the run cuts long silences off. Times below 20 s are compared, of which at most a hundredth
    // is cut.
    let cut = inactive_s.into_iter().filter(|&off_s| off_s < 20.0).collect();
    let below_20 = 1.0 - 20_f64.powf(-1.5);
    assert!(distance_over_critical(cut, |x| (1.0 - x.powf(-1.5)) / below_20) < 1.0);
    // At least n embedded references with probability n^-2.43, to four standard deviations.
    for n in 1..6_u32 {
        let (pages, expected) = (embedded.len() as f64, f64::from(n).powf(-2.43));
        let share = embedded.iter().filter(|&&count| count >= n).count() as f64 / pages;
        assert!(
            (share - expected).abs() <= 4.0 * (expected * (1.0 - expected) / pages).sqrt(),
            "{n}: {share} {expected}"
        );
    }
}

#[test]
fn users_belong_to_groups_by_share_and_begin_at_different_times() {
    let site = small_site();
    let shares = Shares::new(&[1.0, 3.0]).unwrap();
    let gone = drive(Demand::users(&site, 40, &shares, 20 * SECOND, 1), 20 * SECOND, |_| 1_000_000);
    let dealt = shares.deal(40);
    assert!(gone.iter().all(|(user, request, _)| request.group == dealt[*user as usize]));
    assert_eq!(dealt.iter().filter(|&&group| group == 1).count(), 30);
    let mut first: Vec<u64> = gone.iter().take(40).map(|(_, request, _)| request.at_ns).collect();
    first.dedup();
    assert!(first.len() > 30 && first[0] > 0);
}

#[test]
fn users_who_wait_for_ever_end_with_the_time() {
    let site = small_site();
    let mut demand = users(&site, 3, 5, 1);
    while let Some(at_ns) = demand.poll_timeout() {
        assert!(demand.poll_request(at_ns).is_some());
    }
    assert_eq!(demand.poll_request(5 * SECOND), None);
    demand.handle_end(0, 6 * SECOND);
    assert_eq!((demand.poll_timeout(), demand.poll_request(9 * SECOND)), (None, None));
    assert_eq!(users(&site, 0, 5, 1).poll_timeout(), None, "nobody asks for nothing");
}

struct Bed {
    files: FileSet,
    link: Link,
    pattern: Pattern,
}

impl Bed {
    fn new(pattern: &str) -> Self {
        Self {
            files: FileSet::new(&HeavyTail::WORLD_CUP, 400),
            link: Link::constant(Rate::from_bits_per_second(10_000_000).unwrap()),
            pattern: pattern.parse().unwrap(),
        }
    }

    fn recipe(&self, seconds: u64, load_match: LoadMatch) -> Recipe<'_> {
        let (files, link, pattern) = (&self.files, &self.link, &self.pattern);
        Recipe { files, link, pattern, duration_ns: seconds * SECOND, wire: WireModel::KEPT_ALIVE, load_match }
    }

    fn sessions(&self, seconds: u64, load_match: LoadMatch, requests: f64, think_s: f64, seed: u64) -> Demand {
        let law = SessionLaw::new(requests, think_s).unwrap();
        Demand::sessions(&self.recipe(seconds, load_match), &law, &Shares::new(&[1.0, 1.0]).unwrap(), seed)
    }
}

#[test]
fn sessions_ask_for_the_load_when_answers_take_no_time() {
    let bed = Bed::new("10s@0.8");
    for load_match in [LoadMatch::Sequence, LoadMatch::Expectation] {
        let loads: Vec<f64> = (0..10)
            .map(|seed| {
                let gone = drive(bed.sessions(100, load_match, 5.0, 0.0, seed), 100 * SECOND, |_| 0);
                let bytes: u64 = gone.iter().map(|(_, r, _)| WireModel::KEPT_ALIVE.bytes_for(r.size_bytes)).sum();
                bytes as f64 / 125e6
            })
            .collect();
        let mean = loads.iter().sum::<f64>() / 10.0;
        assert!((mean - 0.8).abs() < 0.03, "{load_match:?}: {mean}");
        if load_match == LoadMatch::Sequence {
            // Half a session may be missing or extra: rarely more than a large file.
            assert!(loads.iter().all(|load| (load - 0.8).abs() < 0.02), "{loads:?}");
        }
    }
}

#[test]
fn sessions_have_geometric_lengths_and_exponential_pauses() {
    let bed = Bed::new("1s@20/s");
    let until_ns = 4_000 * SECOND;
    let gone = drive(bed.sessions(4_000, LoadMatch::Expectation, 4.0, 0.5, 2), until_ns, |_| 7);
    let sessions = gone.iter().map(|(who, ..)| *who).max().unwrap() as usize + 1;
    let mut ends: Vec<Vec<u64>> = vec![Vec::new(); sessions];
    let mut starts = Vec::new();
    let mut pauses_s = Vec::new();
    for (who, request, end_ns) in &gone {
        let before = &mut ends[*who as usize];
        match before.last() {
            None => starts.push(request.at_ns as f64),
            Some(last) => pauses_s.push((request.at_ns - last) as f64 / 1e9),
        }
        before.push(*end_ns);
    }
    assert!(distance_over_critical(pauses_s, |x| 1.0 - (-x / 0.5).exp()) < 1.0);
    assert!(
        distance_over_critical(starts, |x| x / until_ns as f64) < 1.0,
        "a Poisson process is uniform given its number"
    );
    for n in 2..15_i32 {
        let (count, expected) = (sessions as f64, 0.75_f64.powi(n - 1));
        let share = ends.iter().filter(|ends| ends.len() >= n as usize).count() as f64 / count;
        assert!(
            (share - expected).abs() <= 4.0 * (expected * (1.0 - expected) / count).sqrt(),
            "{n}: {share} {expected}"
        );
    }
}

#[test]
fn what_sessions_ask_for_does_not_depend_on_the_answers() {
    let bed = Bed::new("10s@0.5-1");
    let run = |service_ns: u64| drive(bed.sessions(60, LoadMatch::Sequence, 3.0, 1.0, 9), 60 * SECOND, |_| service_ns);
    let (fast, slow) = (run(1_000), run(2 * SECOND));
    let sessions = fast.iter().chain(&slow).map(|(who, ..)| *who).max().unwrap() + 1;
    for (fast, slow) in by_user(&fast, sessions).into_iter().zip(by_user(&slow, sessions)) {
        let both = fast.len().min(slow.len());
        assert!(both > 0, "every session begins");
        assert_eq!(fast[..both], slow[..both]);
    }
    assert_eq!(fast, run(1_000));
    assert!(fast.iter().any(|(_, request, _)| request.group == 1) && fast.iter().any(|(_, r, _)| r.group == 0));
}

#[test]
fn sessions_of_one_request_are_the_open_sequence() {
    let bed = Bed::new("10s@0.7");
    let gone = drive(bed.sessions(30, LoadMatch::Sequence, 1.0, 3.0, 5), 30 * SECOND, |_| SECOND);
    let open = bed.recipe(30, LoadMatch::Sequence).draw(5);
    assert!(gone.iter().map(|&(_, request, _)| Request { group: 0, ..request }).eq(open));
}

#[test]
fn laws_that_are_none_are_refused() {
    assert_eq!(SessionLaw::new(0.5, 1.0), Err(SessionLawError::Requests(0.5)));
    assert!(SessionLaw::new(f64::NAN, 1.0).is_err());
    assert_eq!(SessionLaw::new(1.0, -1.0), Err(SessionLawError::Think(-1.0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_the_server_does_demands_keep_their_promises(
        seed in 0_u64..1000,
        count in 1_u32..40,
        seconds in 1_u64..40,
        longest_ns in 1_u64..30 * SECOND,
        requests in 1.0..8.0_f64,
        think_s in 0.0..3.0_f64,
    ) {
        let mut rng = stream(seed, 99);
        let mut service = |_: &Request| rng.random_range(0..longest_ns);
        // `drive` checks the promises.
        let site = small_site();
        drive(users(&site, count, seconds, seed), seconds * SECOND, &mut service);
        let bed = Bed::new("3s@0.2-1.5,1s@0");
        drive(bed.sessions(seconds, LoadMatch::Sequence, requests, think_s, seed), seconds * SECOND, &mut service);
    }
}
