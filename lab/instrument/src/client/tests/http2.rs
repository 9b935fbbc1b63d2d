//! HTTP/2, by prior knowledge and over TLS.

use std::sync::atomic::Ordering;

use super::{
    servers::{Reply, http2, tls},
    *,
};

fn multiplexed(requests_per_connection: u32) -> Behaviour {
    Behaviour { protocol: workload::behaviour::Protocol::Http2, ..kept(requests_per_connection) }
}

fn whole(file: u32, _: usize) -> Reply {
    Reply::Body(file, SIZE)
}

#[test]
fn many_requests_share_a_connection() {
    let (server, seen) = http2(None, 1_000, whole);
    let drive = drive(server, 40, multiplexed(0));
    assert_eq!(ends(&drive), [End::Done; 40], "{:?}", drive.notes);
    assert_eq!((drive.connections, seen.connections.load(Ordering::Relaxed)), (1, 1));
    for outcome in &drive.outcomes {
        assert_eq!(outcome.body_bytes, SIZE);
        assert!(outcome.head_bytes > 0 && outcome.attempts == 1);
        assert!(outcome.sent_ns < outcome.first_byte_ns.unwrap() && outcome.first_byte_ns.unwrap() <= outcome.end_ns);
    }
}

#[test]
fn a_response_of_many_turns_and_an_empty_one_come_whole() {
    // More than a turn, a stream's window and a connection's window.
    const LARGE: u64 = 20 << 20;
    let content = Content::new();
    let groups = group(multiplexed(0));
    let (server, _) = http2(None, 100, |file, _| Reply::Of(file, if file == 0 { LARGE } else { 0 }));
    let requests = vec![
        Request { at_ns: 0, file: 0, size_bytes: LARGE, group: 0 },
        Request { at_ns: 1, file: 1, size_bytes: 0, group: 0 },
    ];
    let load = Load { demand: Demand::sequence(requests), ..load(server, 1, &groups, &content) };
    let drive = load.drive().unwrap();
    assert_eq!(ends(&drive), [End::Done; 2], "{:?}", drive.notes);
    assert_eq!(drive.outcomes[0].body_bytes, LARGE);
}

#[test]
fn over_tls_it_is_chosen_by_alpn_and_a_server_without_it_is_refused() {
    let (config, certificate_der) = tls(&["h2"]);
    let (server, _) = http2(Some(config), 100, whole);
    let (groups, content) = (group(Behaviour { tls: true, ..multiplexed(0) }), Content::new());
    let tls_server = Some(TlsServer { address: server, certificate_der: &certificate_der });
    let drive = Load { tls: tls_server, ..load(nobody(), 30, &groups, &content) }.drive().unwrap();
    assert_eq!(ends(&drive), [End::Done; 30], "{:?}", drive.notes);
    assert_eq!(drive.connections, 1);

    let (config, certificate_der) = tls(&[]);
    let (server, _) = http2(Some(config), 100, whole);
    let tls_server = Some(TlsServer { address: server, certificate_der: &certificate_der });
    let drive = Load { tls: tls_server, ..load(nobody(), 2, &groups, &content) }.drive().unwrap();
    assert_eq!(ends(&drive), [End::Broken; 2]);
    assert!(drive.notes.iter().any(|note| note.contains("ALPN")), "{:?}", drive.notes);
}

#[test]
fn every_lie_has_its_name() {
    for (reply, end) in [
        (Reply::Status(503), End::WrongStatus),
        (Reply::NoLength, End::WrongHead),
        (Reply::Of(7, SIZE - 1), End::WrongHead),
        (Reply::Body(99, SIZE), End::WrongBody),
        (Reply::Body(0, SIZE + 1), End::WrongBody),
        (Reply::Body(0, SIZE - 1), End::WrongBody),
    ] {
        let (server, _) = http2(None, 100, move |_, _| reply);
        assert_eq!(ends(&drive(server, 1, multiplexed(0))), [end], "{reply:?}");
    }
}

#[test]
fn a_wrong_response_does_not_touch_the_others_on_its_connection() {
    let (server, _) =
        http2(None, 100, |file, _| if file == 2 { Reply::Body(99, SIZE) } else { Reply::Body(file, SIZE) });
    let drive = drive(server, 5, multiplexed(0));
    assert_eq!(ends(&drive), [End::Done, End::Done, End::WrongBody, End::Done, End::Done]);
    assert_eq!(drive.connections, 1);
}

#[test]
fn a_connection_has_as_many_requests_as_asked() {
    let (server, _) = http2(None, 100, whole);
    assert_eq!(drive(server, 10, multiplexed(1)).connections, 10);
    let drive = drive(server, 10, multiplexed(4));
    assert_eq!((ends(&drive), drive.connections), (vec![End::Done; 10], 3));
}

#[test]
fn more_requests_than_a_server_takes_at_a_time_go_to_further_connections() {
    // Silence keeps all of them under way.
    let (server, seen) = http2(None, 4, |_, _| Reply::Silence);
    let behaviour = Behaviour { abort_after_s: Some(0.3), ..multiplexed(0) };
    let drive = drive(server, 12, behaviour);
    assert_eq!(ends(&drive), [End::Aborted; 12]);
    assert!(drive.connections >= 3, "{} connections", drive.connections);
    assert!(seen.most_under_way.load(Ordering::Relaxed) >= 12, "none waited for another's end: {seen:?}");
}

#[test]
fn an_abort_resets_the_stream_and_keeps_the_connection() {
    let (server, seen) = http2(None, 100, |file, _| if file == 1 { Reply::Silence } else { Reply::Body(file, SIZE) });
    let behaviour = Behaviour { abort_after_s: Some(0.3), retries: 2, ..multiplexed(0) };
    let drive = drive(server, 3, behaviour);
    assert_eq!(ends(&drive), [End::Done, End::Aborted, End::Done]);
    assert_eq!((drive.outcomes[1].attempts, drive.connections), (3, 1));
    assert!(drive.outcomes[1].response_ns() >= 900_000_000);
    // The last reset may still be on its way.
    assert!(seen.resets.load(Ordering::Relaxed) >= 2, "{seen:?}");
}

#[test]
fn a_connection_that_was_never_heard_is_not_tried_again() {
    // The kernel accepts the connection, and no program does.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string().parse().unwrap();
    let behaviour = Behaviour { abort_after_s: Some(0.02), retries: 2, ..multiplexed(0) };
    let drive = drive(server, 1, behaviour);
    assert_eq!((ends(&drive), drive.outcomes[0].attempts, drive.connections), (vec![End::Aborted], 3, 3));
}

#[test]
fn what_a_server_refuses_is_asked_again_elsewhere_and_what_it_always_refuses_fails() {
    let (server, _) =
        http2(None, 100, |file, number| if number % 2 == 0 { Reply::Refuse } else { Reply::Body(file, SIZE) });
    let several = drive(server, 12, multiplexed(0));
    assert_eq!(ends(&several), [End::Done; 12], "{:?}", several.notes);
    assert!(several.connections > 1 && several.outcomes.iter().all(|outcome| outcome.attempts == 1));

    let (server, _) = http2(None, 100, |_, _| Reply::Refuse);
    assert_eq!(ends(&drive(server, 2, multiplexed(0))), [End::Broken; 2]);
}

#[test]
fn a_connection_that_closes_before_its_first_answer_fails_and_one_that_served_is_replaced() {
    let (server, _) = http2(None, 100, |_, _| Reply::Close);
    // A FIN, or a RST if the server had not read everything.
    assert!(matches!(drive(server, 1, multiplexed(0)).outcomes[0].end, End::Truncated | End::Broken));

    let (server, seen) =
        http2(None, 100, |file, number| if number == 2 { Reply::Close } else { Reply::Body(file, SIZE) });
    let (groups, content) = (group(multiplexed(0)), Content::new());
    // The second request comes long after the first is done: requests under way are lost when a connection
    // closes.
    let requests = vec![requests(1)[0], Request { at_ns: 300_000_000, ..requests(1)[0] }];
    let until = Duration::from_secs(1);
    let load = Load { demand: Demand::sequence(requests), until, ..load(server, 0, &groups, &content) };
    assert_eq!(ends(&load.drive().unwrap()), [End::Done; 2]);
    assert_eq!(seen.connections.load(Ordering::Relaxed), 2);
}

#[test]
fn a_refused_connection_is_refused() {
    assert_eq!(ends(&drive(nobody(), 3, multiplexed(0))), [End::Refused; 3]);
}
