//! Against small scripted servers on the loopback network.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use std::sync::atomic::AtomicBool;

use workload::{outcome::End, sequence::Request};

use super::*;

/// Serves each connection with `script`, which gets the connection and the number of the file asked for; `true` goes on to
/// the next request of the connection.
fn server(script: impl Fn(&mut TcpStream, u32) -> bool + Send + Sync + 'static) -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!("bound to IPv4") };
    let script = Arc::new(script);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let script = Arc::clone(&script);
            thread::spawn(move || {
                let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    let Some(rest) = line.strip_prefix("GET /") else { continue };
                    while lines.next().unwrap().unwrap() != "" {}
                    if !script(&mut connection, rest[..6].parse().unwrap()) {
                        return;
                    }
                }
            });
        }
    });
    address
}

const SIZE: u64 = 100_000;

fn answer(connection: &mut TcpStream, file: u32, body_bytes: u64) {
    let content = Content::new();
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes();
    let mut at = 0;
    while at < body_bytes {
        let piece = content.piece(file, at, body_bytes - at);
        bytes.extend_from_slice(piece);
        at += piece.len() as u64;
    }
    // The client may be gone: that is its affair.
    let _ = connection.write_all(&bytes);
}

fn drive(server: SocketAddrV4, count: u32, keep_alive: bool, drain: Duration) -> Drive {
    let behaviour = Behaviour { requests_per_connection: if keep_alive { 0 } else { 1 }, ..Behaviour::default() };
    load(server, count, drain, &group(behaviour), &Content::new()).drive().unwrap()
}

fn group(behaviour: Behaviour) -> [ClientGroup; 1] {
    [ClientGroup { sources: Ipv4Addr::new(127, 10, 0, 0), behaviour, mss_bytes: None }]
}

/// `count` requests, one each 2 ms.
fn load<'a>(
    server: SocketAddrV4,
    count: u32,
    drain: Duration,
    groups: &'a [ClientGroup],
    content: &'a Content,
) -> Load<'a> {
    let requests: Vec<Request> =
        (0..count).map(|i| Request { at_ns: u64::from(i) * 2_000_000, file: i, size_bytes: SIZE, group: 0 }).collect();
    Load {
        demand: Demand::sequence(requests),
        groups,
        server,
        tls: None,
        until: Duration::from_millis(2) * count,
        drain,
        content,
        start: Instant::now() + Duration::from_millis(1),
        stop: &NEVER,
        progress: None,
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

const LONG: Duration = Duration::from_secs(20);

fn ends(drive: &Drive) -> Vec<End> {
    drive.outcomes.iter().map(|outcome| outcome.end).collect()
}

#[test]
fn whole_responses_are_done_each_on_its_own_connection() {
    let server = server(|connection, file| {
        answer(connection, file, SIZE);
        false
    });
    let drive = drive(server, 20, false, LONG);
    assert_eq!(ends(&drive), [End::Done; 20]);
    assert_eq!(drive.connections, 20);
    for outcome in &drive.outcomes {
        assert_eq!(outcome.body_bytes, SIZE);
        assert!(outcome.at_ns <= outcome.sent_ns, "never before its time");
        assert!(outcome.sent_ns < outcome.first_byte_ns.unwrap() && outcome.first_byte_ns.unwrap() <= outcome.end_ns);
    }
}

#[test]
fn a_kept_connection_is_used_again() {
    // The second request waits for the first: it is given to the connection that became idle.
    let server = server(|connection, file| {
        answer(connection, file, SIZE);
        true
    });
    let drive = drive(server, 30, true, LONG);
    assert_eq!(ends(&drive), [End::Done; 30]);
    assert!(drive.connections < 30, "{} connections", drive.connections);
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced() {
    // It promises to stay and goes: sometimes before the next request is written, sometimes after.
    let server = server(|connection, file| {
        answer(connection, file, SIZE);
        false
    });
    assert_eq!(ends(&drive(server, 30, true, LONG)), [End::Done; 30]);
}

#[test]
fn a_short_body_is_truncated() {
    let server = server(|connection, file| {
        answer(connection, file, SIZE - 1);
        false
    });
    let drive = drive(server, 3, false, LONG);
    assert_eq!(ends(&drive), [End::Truncated; 3]);
    assert_eq!(drive.outcomes[0].body_bytes, SIZE - 1);
}

#[test]
fn a_body_of_another_file_is_wrong() {
    let server = server(|connection, file| {
        answer(connection, file + 1, SIZE);
        false
    });
    assert_eq!(ends(&drive(server, 3, false, LONG)), [End::WrongBody; 3]);
}

#[test]
fn a_refused_connection_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(nobody) = listener.local_addr().unwrap() else { unreachable!("bound to IPv4") };
    drop(listener);
    assert_eq!(ends(&drive(nobody, 3, false, LONG)), [End::Refused; 3]);
}

#[test]
fn what_has_not_come_is_counted_with_its_time_so_far() {
    let drain = Duration::from_millis(30);
    let server = server(|connection, file| {
        if file != 1 {
            answer(connection, file, SIZE);
            return false;
        }
        answer(connection, file, SIZE / 2);
        true
    });
    let drive = drive(server, 3, false, drain);
    assert_eq!(ends(&drive), [End::Done, End::Unfinished, End::Done]);
    let late = &drive.outcomes[1];
    assert!(late.response_ns() >= drain.as_nanos() as u64 && late.body_bytes <= SIZE / 2);
}

#[test]
fn a_stop_ends_the_run() {
    let (groups, content) = (group(Behaviour::default()), Content::new());
    let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    let load = Load {
        stop: &AtomicBool::new(true),
        start: Instant::now() + Duration::from_secs(3_600),
        ..load(nobody, 1, LONG, &groups, &content)
    };
    assert!(matches!(load.drive(), Err(LabError::Interrupted)));
}
