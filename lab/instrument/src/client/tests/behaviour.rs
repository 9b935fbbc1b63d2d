//! Tests of the connections of client groups, and of their patience.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use workload::{
    behaviour::Protocol,
    demand::SessionLaw,
    pattern::Pattern,
    rate::{Link, Rate},
    sequence::{LoadMatch, Recipe, Shares},
    sizes::FileSet,
    wire::WireModel,
};

use super::*;

/// A server that never answers, and keeps the connection.
fn silent() -> SocketAddrV4 {
    http1(None, |_, _| true)
}

fn impatient(abort_after_s: f64, retries: u16) -> Behaviour {
    Behaviour { abort_after_s: Some(abort_after_s), retries, ..kept(0) }
}

#[test]
fn a_connection_has_as_many_requests_as_asked_and_the_last_says_so() {
    let (tell, told) = mpsc::channel();
    let server = http1(None, move |stream, asked| {
        tell.send((asked.from, asked.lines.iter().any(|line| line == "Connection: close"))).unwrap();
        answer(stream, asked.file, SIZE);
        true
    });
    let drive = drive(server, 40, kept(3));
    assert_eq!(ends(&drive), [End::Done; 40]);
    let mut connections = BTreeMap::<_, Vec<bool>>::new();
    for (from, closes) in told.try_iter() {
        connections.entry(from).or_default().push(closes);
    }
    assert_eq!(connections.len() as u64, drive.connections);
    assert!(connections.values().all(|closes| [false, false, true].starts_with(closes)), "{connections:?}");
    assert!(connections.values().any(|closes| closes.len() == 3), "{connections:?}");
}

#[test]
fn a_request_is_aborted_when_its_client_has_waited_long_enough() {
    let drive = drive(silent(), 5, impatient(0.03, 0));
    assert_eq!(ends(&drive), [End::Aborted; 5]);
    for outcome in &drive.outcomes {
        assert_eq!((outcome.attempts, outcome.first_byte_ns), (1, None));
        assert!(outcome.end_ns - outcome.sent_ns >= 30_000_000);
    }
    assert_eq!(drive.connections, 5, "each aborted with its connection");
}

#[test]
fn an_aborted_request_is_asked_again_on_a_new_connection_and_its_time_runs_on() {
    let drive = drive(silent(), 2, impatient(0.02, 3));
    assert_eq!(ends(&drive), [End::Aborted; 2]);
    assert_eq!(drive.connections, 8);
    for outcome in &drive.outcomes {
        assert_eq!(outcome.attempts, 4);
        assert!(outcome.response_ns() >= 80_000_000);
    }
}

#[test]
fn a_retry_that_is_answered_is_done_and_nothing_of_the_aborted_answer_is_kept() {
    let asked_so_far = AtomicU32::new(0);
    let server = http1(None, move |stream, asked| {
        let first = asked_so_far.fetch_add(1, Ordering::Relaxed) == 0;
        answer(stream, asked.file, if first { SIZE / 2 } else { SIZE });
        true
    });
    let drive = drive(server, 1, impatient(0.3, 1));
    let outcome = &drive.outcomes[0];
    assert_eq!((outcome.end, outcome.attempts, outcome.body_bytes), (End::Done, 2, SIZE));
    assert!(outcome.first_byte_ns.unwrap() - outcome.sent_ns >= 300_000_000, "the answered attempt's first byte");
}

#[test]
fn who_is_answered_in_time_does_not_abort() {
    assert_eq!(ends(&drive(serving(true), 20, impatient(15.0, 2))), [End::Done; 20]);
}

#[test]
fn each_group_comes_from_its_prefix_with_its_fields_and_keeps_to_its_ways() {
    let (tell, told) = mpsc::channel();
    let server = http1(None, move |stream, asked| {
        let gold = asked.lines.iter().any(|line| line == "x-class: gold");
        tell.send((asked.file % 2, asked.from.ip().to_string(), asked.mss_bytes < 600, gold)).unwrap();
        answer(stream, asked.file, SIZE);
        true
    });
    let gold = Behaviour { headers: vec![("X-Class".to_owned(), "gold".to_owned())], ..kept(0) };
    let groups = [
        ClientGroup { mss_bytes: Some(536), ..group(gold)[0].clone() },
        ClientGroup { sources: Ipv4Addr::new(127, 20, 0, 0), ..group(kept(1))[0].clone() },
    ];
    let requests = (0..4u32).map(|i| Request {
        at_ns: u64::from(i) * 20_000_000,
        group: (i % 2) as u16,
        ..requests(4)[i as usize]
    });
    let content = Content::new();
    let load = Load {
        demand: Demand::sequence(requests.collect()),
        until: Duration::from_secs(1),
        ..load(server, 0, &groups, &content)
    };
    let drive = load.drive().unwrap();
    assert_eq!(ends(&drive), [End::Done; 4]);
    assert_eq!(drive.outcomes.iter().map(|outcome| outcome.group).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert_eq!(drive.connections, 3, "one kept, two for a request each");
    let told: Vec<_> = told.try_iter().collect();
    let expected = [
        (0, "127.10.0.1", true, true),
        (1, "127.20.0.1", false, false),
        (0, "127.10.0.1", true, true),
        (1, "127.20.0.2", false, false),
    ];
    assert_eq!(told, expected.map(|(group, from, small, gold)| (group, from.to_owned(), small, gold)));
}

/// About ten users with some 40 requests each, each at the time of the previous answer; none begins after a
/// second.
fn users() -> Demand {
    let recipe = Recipe {
        files: &FileSet::fixed(SIZE),
        link: &Link::constant(Rate::from_bits_per_second(10_000_000).unwrap()),
        pattern: &Pattern::requests_per_second(400.0).unwrap(),
        duration_ns: 1_000_000_000,
        wire: WireModel::KEPT_ALIVE,
        load_match: LoadMatch::Sequence,
    };
    Demand::sessions(&recipe, &SessionLaw::new(40.0, 0.0).unwrap(), &Shares::one(), 3)
}

/// Number of requests not planned at the end of another: the first ones of each user.
fn first_requests(drive: &LoadResult) -> usize {
    let ends: BTreeSet<u64> = drive.outcomes.iter().map(|outcome| outcome.end_ns).collect();
    drive.outcomes.iter().filter(|outcome| !ends.contains(&outcome.at_ns)).count()
}

#[test]
fn a_user_asks_at_the_moment_of_the_answer_before_on_a_free_connection() {
    let (http2, _) = servers::http2(None, 100, |file, _| servers::Reply::Body(file, SIZE));
    for (server, protocol) in [(serving(true), Protocol::Http1), (http2, Protocol::Http2)] {
        let (groups, content) = (group(Behaviour { protocol, ..kept(0) }), Content::new());
        let until = Duration::from_secs(1);
        let drive = Load { demand: users(), until, ..load(server, 0, &groups, &content) }.drive().unwrap();
        assert!(drive.outcomes.iter().all(|outcome| outcome.end == End::Done), "{:?}", drive.notes);
        let users = first_requests(&drive);
        assert!(users > 1 && drive.outcomes.len() > 5 * users, "{users} users, {} requests", drive.outcomes.len());
        assert!(drive.most_concurrent <= users && drive.connections <= users as u64, "{drive:?}");
    }
}

#[test]
fn a_user_whose_request_was_aborted_goes_on_and_nobody_asks_after_the_end() {
    let (groups, content) = (group(impatient(0.05, 1)), Content::new());
    let until = Duration::from_millis(500);
    let drive = Load { demand: users(), until, ..load(silent(), 0, &groups, &content) }.drive().unwrap();
    assert!(drive.outcomes.len() > first_requests(&drive), "somebody asked again");
    for outcome in &drive.outcomes {
        assert_eq!((outcome.end, outcome.attempts), (End::Aborted, 2));
        assert!(outcome.response_ns() >= 100_000_000 && outcome.at_ns <= 500_000_000);
    }
}
