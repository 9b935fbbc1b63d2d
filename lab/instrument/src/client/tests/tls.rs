//! HTTP/1.1 over TLS.

use super::{servers::tls, *};

fn encrypted(requests_per_connection: u32) -> Behaviour {
    Behaviour { tls: true, ..kept(requests_per_connection) }
}

fn drive_tls(server: SocketAddrV4, certificate_der: &[u8], count: u32, behaviour: Behaviour) -> LoadResult {
    let (groups, content) = (group(behaviour), Content::new());
    let tls = Some(TlsServer { address: server, certificate_der });
    Load { tls, ..load(nobody(), count, &groups, &content) }.drive().unwrap()
}

fn serving_tls(keep: bool) -> (SocketAddrV4, Vec<u8>) {
    let (config, certificate) = tls(&["http/1.1"]);
    let server = http1(Some(config), move |stream, asked| {
        answer(stream, asked.file, SIZE);
        keep
    });
    (server, certificate)
}

#[test]
fn whole_responses_are_done_on_connections_closed_or_kept() {
    let (server, certificate) = serving_tls(false);
    let single = drive_tls(server, &certificate, 10, encrypted(1));
    assert_eq!(ends(&single), [End::Done; 10], "{:?}", single.notes);
    assert_eq!((single.connections, single.outcomes[9].body_bytes), (10, SIZE));

    let (server, certificate) = serving_tls(true);
    let several = drive_tls(server, &certificate, 30, encrypted(0));
    assert_eq!(ends(&several), [End::Done; 30]);
    assert!(several.connections < 30, "{} connections", several.connections);
}

#[test]
fn a_server_with_another_certificate_is_not_believed() {
    let (server, _) = serving_tls(true);
    let (another, _) = servers::certificate();
    let drive = drive_tls(server, another.der(), 3, encrypted(1));
    assert_eq!(ends(&drive), [End::Broken; 3]);
    assert!(drive.notes.iter().any(|note| note.contains("certificate")), "{:?}", drive.notes);
}

#[test]
fn a_server_without_tls_is_not_believed() {
    let (_, certificate) = serving_tls(true);
    let server = http1(None, |_, _| true);
    assert_eq!(ends(&drive_tls(server, &certificate, 2, encrypted(1))), [End::Truncated; 2]);
}

#[test]
fn a_short_body_is_truncated_and_a_kept_connection_that_was_closed_is_replaced() {
    let (config, certificate) = tls(&[]);
    let server = http1(Some(config), |stream, asked| {
        answer(stream, asked.file, SIZE - 1);
        false
    });
    assert_eq!(ends(&drive_tls(server, &certificate, 3, encrypted(1))), [End::Truncated; 3]);

    let (server, certificate) = serving_tls(false);
    assert_eq!(ends(&drive_tls(server, &certificate, 20, encrypted(0))), [End::Done; 20]);
}

#[test]
fn a_handshake_that_does_not_come_is_aborted() {
    let (_, certificate) = serving_tls(true);
    // The kernel accepts the connection, and no program does.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string().parse().unwrap();
    let behaviour = Behaviour { abort_after_s: Some(0.02), retries: 1, ..encrypted(1) };
    let drive = drive_tls(server, &certificate, 2, behaviour);
    assert_eq!(ends(&drive), [End::Aborted; 2]);
    assert_eq!((drive.connections, drive.outcomes[0].attempts), (4, 2));
}
