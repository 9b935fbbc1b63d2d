//! Connections on which HTTP has ended.

use super::*;
use crate::answers::origin_is_asked;

#[test]
fn a_websocket_passes() {
    let gateway = Gateway::start("");
    let mut client = gateway.serpent.connect();
    // Bytes that are sent at once must not be taken for a request.
    client
        .write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n\x81early\r\n")
        .unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.field("upgrade").as_deref(), Some("websocket"));
    assert!(asked.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")), "{}", asked.head);
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\nhello") {
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.to_lowercase().contains("upgrade: websocket"), "{answer}");
    let mut upstream = asked.stream;
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut early = [0; 8];
    upstream.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"\x81early\r\n");
    client.write_all(b"GET / HTTP/1.1 is no request here").unwrap();
    let mut later = [0; 33];
    upstream.read_exact(&mut later).unwrap();
    assert_eq!(&later, b"GET / HTTP/1.1 is no request here");
    let sends = std::thread::spawn(move || upstream.write_all(&big()).unwrap());
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    sends.join().unwrap();
    assert!(rest == big(), "{} bytes", rest.len());

    // Refused: the connection goes on with HTTP.
    let mut client = gateway.serpent.connect();
    let next = "GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let ask = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    client.write_all(format!("{ask}{next}").as_bytes()).unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
    drop(asked);
    assert_eq!(gateway.origin.answer("next"), "/next");
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("no") && answer.ends_with("next"), "{answer}");
}

#[test]
fn a_silent_tunnel_ends_after_the_time_of_its_route() {
    // The client's connection may be idle for 75 s, and the test waits for no longer than `PATIENCE`.
    let gateway = Gateway::start("idle-timeout = \"200ms\"\n");
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    // A silent answer as well.
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let _silent = gateway.origin.next();
    let answer = all(client);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

#[test]
fn a_tunnel_passes_one_direction_when_the_other_has_ended_and_outlives_a_reload() {
    let gateway = Gateway::start(CLASSES);
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let mut upstream = asked.stream.try_clone().unwrap();
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    // Its address is taken away.
    let text = fs::read_to_string(&gateway.file).unwrap();
    let elsewhere = text.replacen("127.0.0.1:0", "127.0.0.2:0", 1);
    fs::write(&gateway.file, elsewhere).unwrap();
    gateway.serpent.signal(Signal::HUP);
    gateway.serpent.wait_for_stderr("configuration reloaded");
    upstream.write_all(b"end").unwrap();
    upstream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut end = Vec::new();
    client.read_to_end(&mut end).unwrap();
    assert_eq!(end, b"end");
    client.write_all(&big()).unwrap();
    drop(client);
    let mut got = Vec::new();
    upstream.read_to_end(&mut got).unwrap();
    assert!(got == big(), "{}", got.len());
}

#[test]
fn what_a_tunnel_sends_takes_its_turn_on_the_uplink() {
    let gateway = Gateway::start(CLASSES);
    let text = fs::read_to_string(&gateway.file).unwrap();
    // The tunnel always has more to send than the link takes.
    let slow = text.replace("rate = \"off\"", "rate = \"1mbit\"\nshare = \"strict\"");
    fs::write(&gateway.file, slow.replace("slots = 1", "slots = 2")).unwrap();
    gateway.serpent.signal(Signal::HUP);
    gateway.serpent.wait_for_stderr("configuration reloaded");
    let mut tunnel = gateway.serpent.connect();
    tunnel.write_all(b"GET /plain HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let (mut upstream, mut reader) = (asked.stream.try_clone().unwrap(), tunnel.try_clone().unwrap());
    let (tell, got) = std::sync::mpsc::channel();
    std::thread::spawn(move || while upstream.write_all(&big()).is_ok() {});
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(1..) = reader.read(&mut bytes) {
            let _ = tell.send(());
        }
    });
    got.recv_timeout(PATIENCE).unwrap();
    let gold = gateway.ask("/gold", "");
    gateway.origin.next().answer(b"gold");
    assert!(all(gold).ends_with("gold"));
    tunnel.shutdown(std::net::Shutdown::Both).unwrap();
}

#[test]
fn a_tunnel_counts_as_a_request_at_once_until_it_ends() {
    let gateway = Gateway::start("limit = { at-once = 1 }\n");
    let mut client = gateway.serpent.connect();
    client.write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").unwrap();
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello");
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"hello") {
        client.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    let answer = all(gateway.ask("/", ""));
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    drop((client, asked));
    // The end of the tunnel is seen a moment later.
    let start = std::time::Instant::now();
    while !origin_is_asked(&gateway.origin, &mut gateway.ask("/", "")) {
        assert!(start.elapsed() < PATIENCE, "the tunnel that is over still counts");
    }
}
