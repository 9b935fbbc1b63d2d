//! Requests that hold a slot of the site, and for how long.

use super::*;
use crate::origin::Asked;

#[test]
fn the_higher_class_goes_first_and_one_too_many_is_told_so() {
    let gateway = Gateway::start(CLASSES);
    let mut clients = vec![gateway.ask("/plain/0", "")];
    // It is in the site; from here on all others wait.
    let first = gateway.origin.next();
    for at in 1..=3 {
        clients.push(gateway.ask(&format!("/plain/{at}"), ""));
        gateway.wait_for_waiting("plain", at);
    }
    for at in 1..=2 {
        clients.push(gateway.ask(&format!("/gold/{at}"), ""));
        gateway.wait_for_waiting("gold", at);
    }
    let refused = all(gateway.ask("/plain/4", ""));
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 5"), "{refused}");
    first.answer(b"0");
    let order: Vec<_> = (0..5).map(|_| gateway.origin.answer("x")).collect();
    assert_eq!(order, ["/gold/1", "/gold/2", "/plain/1", "/plain/2", "/plain/3"]);
    for client in clients {
        assert!(all(client).starts_with("HTTP/1.1 200 "));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_client_that_closes_its_side_behind_its_request_is_served_whether_it_has_to_wait_or_not() {
    for kept in [true, false] {
        let kept = if kept { "" } else { "buffer-response = false\n" };
        let gateway = Gateway::start(&format!("{kept}{CLASSES}"));
        let half_closed = |path: &str| {
            let mut stream = gateway.serpent.connect();
            // The request and the end go in one segment.
            socket2::SockRef::from(&stream).set_tcp_cork(true).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream
        };
        let first = half_closed("/plain/0");
        let asked = gateway.origin.next();
        let second = half_closed("/plain/1");
        gateway.wait_for_waiting("plain", 1);
        let third = gateway.ask("/plain/2", "");
        gateway.wait_for_waiting("plain", 2);
        reset(third);
        asked.answer(b"first");
        assert!(all(first).ends_with("first"));
        assert_eq!(gateway.origin.answer("second"), "/plain/1");
        let answer = all(second);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("second"), "{answer}");
        gateway.wait_for_waiting("plain", 0);
        wait_for_metric(gateway.admin, "serpent_class_running{class=\"plain\"} 0");
        assert!(gateway.origin.is_idle(), "nothing is asked for a client that is gone");
    }
}

#[test]
fn a_window_follows_what_probing_requests_say() {
    let gateway = Gateway::start(
        "[admission]\nwindows = \"probe\"\nprobe-every = \"1ms\"\nprobe-after = \"0s\"\nshrink-above = 0\ngrow-below = 0\n\
         [admission.resources]\nsite = { window = 1, most = 3, bound = \"1h\", probe = \"/heavy?n=1\" }\n",
    );
    let window = |now| wait_for_metric(gateway.admin, &format!("serpent_resource_window{{resource=\"site\"}} {now}"));
    let next = || {
        let asked = gateway.origin.next();
        assert_eq!(asked.path(), "/heavy?n=1");
        assert!(asked.field("user-agent").is_some_and(|name| name.ends_with("(probe)")));
        asked
    };
    // While one is under way there is no other, and it takes no slot.
    let first = next();
    window(1);
    let client = gateway.ask("/", "");
    let of_client = gateway.origin.next();
    assert_eq!(of_client.path(), "/");
    first.answer(b"in time");
    next().answer(b"in time");
    window(3);
    next().answer(b"in time");
    next().send(b"HTTP/1.1 500 \r\ncontent-length: 0\r\n\r\n");
    window(2);
    wait_for_metric(gateway.admin, "serpent_resource_window_changes_total{resource=\"site\"} 3");
    of_client.answer(b"done");
    assert!(all(client).starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_happens_to_one_upstream_is_nothing_to_the_class_before_another() {
    let other = Origin::start();
    let classes = CLASSES
        .replace("share = \"strict\"\nslots = 1", "share = \"strict\"\nslots = 2")
        .replace("queue = 3", "queue = 3\nslots = 1");
    let upstream = format!(
        "[[upstream]]\nname = \"other\"\nservers = [\"http://{}\"]\npassive = {{ failures = \"off\" }}\n",
        other.address
    );
    let route = "[[site.route]]\npath = \"/plain\"\nupstream = \"other\"\n";
    let gateway = Gateway::start_as(|origin| {
        text(origin, &classes).replace("[[site]]\n", &format!("{upstream}[[site]]\n{route}"))
    });
    let gold = |when: &str| {
        let client = gateway.ask("/gold", "");
        assert_eq!(gateway.origin.answer("gold"), "/gold", "while the other {when}");
        assert!(all(client).ends_with("gold"), "while the other {when}");
    };
    let plain = |path: &str| gateway.ask(&format!("/plain/{path}"), "");

    let killed = plain("killed");
    let asked = other.next();
    let garbage = plain("garbage");
    gateway.wait_for_waiting("plain", 1);
    gold("is silent");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(all(killed).starts_with("HTTP/1.1 502 "));

    let asked = other.next();
    gold("is about to answer");
    asked.send(b"\x00\x01\x02 nothing that is HTTP\r\n\r\n");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(all(garbage).starts_with("HTTP/1.1 502 "));

    let reset = plain("reset");
    let asked = other.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc");
    gold("has begun to answer");
    rustix::net::sockopt::set_socket_linger(&asked.stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(asked);
    let answer = all(reset);
    assert!(!answer.starts_with("HTTP/1.1 200 ") || answer.contains("content-length: 1000000\r\n"), "{answer}");

    let restored = plain("restored");
    assert_eq!(other.answer("again"), "/plain/restored");
    assert!(all(restored).ends_with("again"));
    gold("is well");
    assert!(other.is_idle() && gateway.origin.is_idle());
}

#[test]
fn slow_clients_hold_no_slot() {
    let gateway = Gateway::start(CLASSES);
    // One takes nothing of a large answer.
    let lazy = gateway.ask("/plain/lazy", "");
    gateway.origin.next().answer(&big());
    // One is still sending its request.
    let mut sender = gateway.serpent.connect();
    sender
        .write_all(b"POST /plain/post HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n12345")
        .unwrap();
    for at in 0..3 {
        let client = gateway.ask(&format!("/plain/{at}"), "");
        assert_eq!(gateway.origin.answer("quick"), format!("/plain/{at}"));
        assert!(all(client).ends_with("quick"));
    }
    sender.write_all(b"67890").unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.body, b"1234567890");
    asked.answer(b"posted");
    assert!(all(sender).ends_with("posted"));
    let mut answer = Vec::new();
    let mut lazy = lazy;
    lazy.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&big()), "{}", answer.len());
}

/// The site still works for a client that is gone. The slot stays taken until the site is done.
fn goes_in_when_the_site_is_done(gateway: &Gateway, asked: Asked, stays: TcpStream) {
    assert!(gateway.origin.is_idle());
    asked.answer(b"for nobody");
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
}

#[test]
fn who_is_gone_spends_no_slot_and_the_work_of_the_site_keeps_its_own() {
    let gateway = Gateway::start(CLASSES);
    let first = gateway.ask("/plain/0", "");
    let asked = gateway.origin.next();
    let gone = gateway.ask("/plain/gone", "");
    gateway.wait_for_waiting("plain", 1);
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 2);
    reset(gone);
    gateway.wait_for_waiting("plain", 1);
    // The first client leaves while the site works for it. The site goes on, so its slot stays taken.
    reset(first);
    // One that comes and goes after it: by when that is noticed, the other departure would be, too.
    let later = gateway.ask("/plain/later", "");
    gateway.wait_for_waiting("plain", 2);
    reset(later);
    gateway.wait_for_waiting("plain", 1);
    goes_in_when_the_site_is_done(&gateway, asked, stays);
}

#[test]
fn over_http2_too_the_work_of_the_site_keeps_its_slot_when_its_client_is_gone() {
    let gateway = Gateway::start(CLASSES);
    let ask = |path: &str| {
        let mut client = tool("curl")?;
        client.args(["--silent", "--http2-prior-knowledge", &gateway.serpent.url(path)]);
        Some(client.stdout(std::process::Stdio::null()).spawn().unwrap())
    };
    let leave = |mut client: std::process::Child| {
        client.kill().unwrap();
        client.wait().unwrap();
    };
    let Some(first) = ask("/plain/0") else { return };
    let asked = gateway.origin.next();
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 1);
    leave(first);
    // One that comes and goes after it: by when that is noticed, the other departure would be, too.
    let later = ask("/plain/later").unwrap();
    gateway.wait_for_waiting("plain", 2);
    leave(later);
    gateway.wait_for_waiting("plain", 1);
    goes_in_when_the_site_is_done(&gateway, asked, stays);
}

#[test]
fn a_client_that_is_gone_keeps_no_slot_with_an_answer_that_does_not_end() {
    let gateway = Gateway::start(CLASSES);
    let mut first = gateway.ask("/plain/0", "");
    let mut asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\n\r\nbegins");
    first.read_exact(&mut [0]).unwrap();
    let stays = gateway.ask("/plain/stays", "");
    gateway.wait_for_waiting("plain", 1);
    drop(first);
    // The origin goes on until it is told.
    let chunk = vec![0; 64 * 1024];
    while asked.stream.write_all(&chunk).is_ok() {}
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
}

#[test]
fn a_slow_body_holds_no_slot_though_another_protocol_is_asked_for() {
    let gateway = Gateway::start(CLASSES);
    let mut slow = gateway.serpent.connect();
    let head = "POST /plain/slow HTTP/1.1\r\nhost: a\r\nconnection: close, upgrade\r\nupgrade: x\r\n";
    slow.write_all(format!("{head}content-length: 10\r\n\r\n12345").as_bytes()).unwrap();
    for at in 0..3 {
        let client = gateway.ask(&format!("/plain/{at}"), "");
        assert_eq!(gateway.origin.answer("quick"), format!("/plain/{at}"));
        assert!(all(client).ends_with("quick"));
    }
    slow.write_all(b"67890").unwrap();
    let asked = gateway.origin.next();
    assert_eq!((&*asked.body, asked.field("upgrade")), (&b"1234567890"[..], None));
    asked.answer(b"posted");
    assert!(all(slow).ends_with("posted"));
    // A body that turns out to be empty: what follows is a request all the same.
    let mut client = gateway.serpent.connect();
    let head = head.replace("close, ", "").replace("slow", "empty");
    let next = "GET /plain/next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{next}").as_bytes()).unwrap();
    let asked = gateway.origin.next();
    assert_eq!(asked.field("upgrade"), None);
    asked.answer(b"empty");
    assert_eq!(gateway.origin.answer("next"), "/plain/next");
    assert!(all(client).ends_with("next"));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends a GET of HTTP/2 whose answer must not have a body: no window is opened for any stream.
fn ask_without_window(gateway: &Gateway, path: &str) -> TcpStream {
    let mut stream = gateway.serpent.connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE = 0.
    stream.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    // :method GET, :scheme http, :path and :authority as literals.
    let mut head = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend_from_slice(path.as_bytes());
    head.extend_from_slice(b"\x01\x01a");
    stream.write_all(&frame(1, 5, 1, &head)).unwrap();
    stream
}

#[test]
fn a_stream_whose_client_opens_no_window_holds_its_slot_no_longer_than_the_write_timeout() {
    let more = CLASSES.replace("slots = 1", "slots = 1\n[limits]\nwrite-timeout = \"500ms\"");
    let gateway = Gateway::start_as(|origin| {
        text(origin, &more).replace("upstream = \"app\"\n", "upstream = \"app\"\nbuffer-response = false\n")
    });
    let mut stalled = ask_without_window(&gateway, "/plain/stalled");
    gateway.origin.next().answer(&big());
    let stays = gateway.ask("/plain/stays", "");
    // It gets its turn when the slot is free.
    assert_eq!(gateway.origin.answer("stays"), "/plain/stays");
    assert!(all(stays).ends_with("stays"));
    // The connection, of which nothing else is under way, ends soon after, and not after the idle time-out.
    let mut said = Vec::new();
    stalled.read_to_end(&mut said).unwrap();
    let reset = frame(3, 0, 1, &8_u32.to_be_bytes());
    assert!(said.windows(reset.len()).any(|it| it == reset), "no RST_STREAM with CANCEL");
    wait_for_metric(gateway.admin, "serpent_responses_given_up_total 1");
    wait_for_metric(gateway.admin, "serpent_responses_stalled_total 1");
    let said = gateway.serpent.wait_for_stderr("a client takes too little of its response");
    assert!(said.contains("state=") && said.contains("acked_bytes="), "{said}");
}
