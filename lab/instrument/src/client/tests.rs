//! Tests against small scripted servers on the loopback network.

mod behaviour;
mod http2;
mod nginx;
mod servers;
mod tls;

use std::{
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use workload::{behaviour::Behaviour, demand::Demand, outcome::End, sequence::Request};

use self::servers::{SIZE, Stream, answer, http1};
use super::*;
use crate::docroot::Content;

/// `count` requests, one every 2 ms, for files of [`SIZE`] with rising numbers.
fn requests(count: u32) -> Vec<Request> {
    (0..count).map(|i| Request { at_ns: u64::from(i) * 2_000_000, file: i, size_bytes: SIZE, group: 0 }).collect()
}

/// A load of these requests, begun at once, with an unlimited wait for responses.
fn load<'a>(server: SocketAddrV4, count: u32, groups: &'a [ClientGroup], content: &'a Content) -> Load<'a> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    Load {
        demand: Demand::sequence(requests(count)),
        groups,
        server,
        tls: None,
        until: Duration::from_millis(2) * count,
        drain: Duration::from_secs(20),
        content,
        start: Instant::now() + Duration::from_millis(1),
        stop: &NEVER,
    }
}

fn group(behaviour: Behaviour) -> [ClientGroup; 1] {
    [ClientGroup { sources: Ipv4Addr::new(127, 10, 0, 0), behaviour, mss_bytes: None }]
}

fn kept(requests_per_connection: u32) -> Behaviour {
    Behaviour { requests_per_connection, ..Behaviour::default() }
}

fn drive(server: SocketAddrV4, count: u32, behaviour: Behaviour) -> LoadResult {
    load(server, count, &group(behaviour), &Content::new()).drive().unwrap()
}

fn ends(drive: &LoadResult) -> Vec<End> {
    drive.outcomes.iter().map(|outcome| outcome.end).collect()
}

/// A server with complete answers, on connections that are closed or kept.
fn serving(keep: bool) -> SocketAddrV4 {
    http1(None, move |stream, asked| {
        answer(stream, asked.file, SIZE);
        keep
    })
}

/// A server that answers once, in the given way, and closes.
fn answering(way: impl Fn(&mut dyn Stream, u32) + Send + Sync + 'static) -> SocketAddrV4 {
    http1(None, move |stream, asked| {
        way(stream, asked.file);
        false
    })
}

fn nobody() -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string().parse().unwrap()
}

#[test]
fn whole_responses_are_done_each_on_its_own_connection() {
    let (groups, content) = (group(kept(1)), Content::new());
    let drive = load(serving(false), 20, &groups, &content).drive().unwrap();
    assert_eq!(ends(&drive), [End::Done; 20]);
    assert_eq!((drive.connections, drive.outcomes[3].attempts), (20, 1));
    for outcome in &drive.outcomes {
        assert_eq!(outcome.body_bytes, SIZE);
        assert!(outcome.at_ns <= outcome.sent_ns, "never before its time");
        assert!(outcome.sent_ns < outcome.first_byte_ns.unwrap() && outcome.first_byte_ns.unwrap() <= outcome.end_ns);
    }
}

#[test]
fn a_kept_connection_is_used_again() {
    let drive = drive(serving(true), 30, kept(0));
    assert_eq!(ends(&drive), [End::Done; 30]);
    assert!(drive.connections < 30, "{} connections", drive.connections);
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced() {
    // It announces keep-alive but closes: sometimes before the next request is written, sometimes after.
    assert_eq!(ends(&drive(serving(false), 30, kept(0))), [End::Done; 30]);
}

#[test]
fn a_short_body_is_truncated() {
    let drive = drive(answering(|stream, file| answer(stream, file, SIZE - 1)), 3, kept(1));
    assert_eq!(ends(&drive), [End::Truncated; 3]);
    assert_eq!(drive.outcomes[0].body_bytes, SIZE - 1);
}

#[test]
fn a_body_of_another_file_is_wrong() {
    assert_eq!(ends(&drive(answering(|stream, file| answer(stream, file + 1, SIZE)), 3, kept(1))), [End::WrongBody; 3]);
}

#[test]
fn a_refused_connection_is_refused() {
    assert_eq!(ends(&drive(nobody(), 3, kept(1))), [End::Refused; 3]);
}

#[test]
fn what_has_not_come_is_counted_with_its_time_so_far() {
    let server = http1(None, |stream, asked| {
        answer(stream, asked.file, if asked.file == 1 { SIZE / 2 } else { SIZE });
        asked.file == 1
    });
    let drain = Duration::from_millis(30);
    let (groups, content) = (group(kept(1)), Content::new());
    let drive = Load { drain, ..load(server, 3, &groups, &content) }.drive().unwrap();
    assert_eq!(ends(&drive), [End::Done, End::Unfinished, End::Done]);
    let late = &drive.outcomes[1];
    assert!(late.response_ns() >= drain.as_nanos() as u64 && late.body_bytes <= SIZE / 2);
}

#[test]
fn no_request_is_sent_after_the_end_however_late_it_is() {
    let (groups, content) = (group(kept(1)), Content::new());
    // Requests at 0, 2, 4, 6 and 8 ms.
    let short = Load { until: Duration::from_millis(5), ..load(serving(false), 5, &groups, &content) };
    assert_eq!(ends(&short.drive().unwrap()), [End::Done; 3]);
    let past = Load {
        start: Instant::now() - Duration::from_secs(1),
        drain: Duration::from_millis(1),
        ..load(serving(false), 5, &groups, &content)
    };
    let past = past.drive().unwrap();
    assert_eq!(past.outcomes.len(), 5, "what fell due is recorded");
    assert!(past.outcomes.iter().all(|outcome| outcome.lateness_ns() > 900_000_000), "with its lateness");
}

#[test]
fn a_stop_ends_the_run() {
    let (groups, content) = (group(kept(1)), Content::new());
    let load = Load {
        stop: &AtomicBool::new(true),
        start: Instant::now() + Duration::from_secs(3_600),
        ..load(nobody(), 1, &groups, &content)
    };
    assert!(matches!(load.drive(), Err(LabError::Interrupted)));
}

#[test]
fn a_group_that_is_not_there_and_one_that_cannot_be_are_refused() {
    let content = Content::new();
    let refusal = |groups: &[ClientGroup]| match load(nobody(), 1, groups, &content).drive() {
        Err(LabError::Request(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refusal(&[]).contains("group 0"));
    assert!(refusal(&group(Behaviour { tls: true, ..kept(1) })).contains("TLS"));
    for seconds in [0.0, -1.0, f64::NAN] {
        assert!(refusal(&group(Behaviour { abort_after_s: Some(seconds), ..kept(1) })).contains("abort-after-s"));
    }
}
