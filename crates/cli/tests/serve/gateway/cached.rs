//! The shared cache, between clients and an origin that answers when the test says so.

use super::*;
use crate::origin::Asked;

/// A gateway whose route has this cache.
fn gateway(cache: &str, more: &str) -> Gateway {
    Gateway::start(&format!("[site.route.cache]\n{cache}{more}"))
}

fn reply(asked: Asked, fields: &str, body: &str) {
    asked.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{fields}\r\n{body}", body.len()).as_bytes());
    asked.done();
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until the metrics have another line than this.
fn wait_for_other(admin: SocketAddr, line: &str) {
    let start = std::time::Instant::now();
    while metrics(admin).lines().any(|said| said == line) {
        assert!(start.elapsed() < PATIENCE, "still `{line}`");
        std::thread::yield_now();
    }
}

/// Checks that an answer is 200 with this body, and what it says of the cache.
fn assert_says(answer: &str, body: &str, cache_status: &str) {
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    assert!(answer.contains(&format!("cache-status: serpent; {cache_status}")), "no `{cache_status}` in {answer}");
}

#[test]
fn a_hit_needs_no_slot_and_answers_conditions_ranges_and_heads() {
    let gateway = gateway("", CLASSES);
    let first = gateway.ask("/a?b", "");
    reply(gateway.origin.next(), "cache-control: max-age=60\r\netag: \"1\"\r\n", "0123456789");
    assert_says(&read(first), "0123456789", "fwd=uri-miss; fwd-status=200; stored");
    // From now on the only slot is held.
    let held = gateway.ask("/held", "");
    let asked = gateway.origin.next();
    let answer = read(gateway.ask("/a?b", ""));
    assert_says(&answer, "0123456789", "hit; ttl=");
    assert!(answer.contains("age: "), "{answer}");
    let part = read(gateway.ask("/a?b", "range: bytes=2-3\r\n"));
    assert!(part.starts_with("HTTP/1.1 206") && part.ends_with("\r\n\r\n23"), "{part}");
    assert!(part.contains("content-range: bytes 2-3/10"), "{part}");
    let known = read(gateway.ask("/a?b", "if-none-match: \"1\"\r\n"));
    assert!(known.starts_with("HTTP/1.1 304") && known.contains("etag: \"1\""), "{known}");
    let head = gateway.serpent.exchange(b"HEAD /a?b HTTP/1.1\r\nhost: site.example\r\nconnection: close\r\n\r\n");
    assert!(head.contains("content-length: 10") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(gateway.origin.is_idle(), "all came from the store");
    let metrics = metrics(gateway.admin);
    assert!(metrics.contains("serpent_shared_cache_hits_total 4"), "{metrics}");
    asked.answer(b"x");
    read(held);
}

#[test]
fn the_access_log_says_what_the_cache_did() {
    let gateway = gateway("", "[access-log]\ntarget = \"-\"\nformat = \"json\"\n");
    let first = gateway.ask("/a", "");
    reply(gateway.origin.next(), "cache-control: max-age=60\r\n", "x");
    read(first);
    read(gateway.ask("/a", ""));
    for word in ["miss", "hit"] {
        let line = gateway.serpent.stdout_line();
        assert!(line.contains(&format!("\"cache\":\"{word}\"")), "{line}");
    }
}

#[test]
fn one_asks_the_origin_for_all_who_want_the_same() {
    let gateway = gateway("", "");
    let mut streams = vec![gateway.ask("/a", "")];
    let asked = gateway.origin.next();
    streams.extend((0..3).map(|_| gateway.ask("/a", "")));
    // Another target does not wait for it.
    let other = gateway.ask("/b", "");
    reply(gateway.origin.next(), "", "other");
    assert_says(&read(other), "other", "fwd=uri-miss; fwd-status=200");
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncache-control: max-age=60\r\n\r\nab");
    for stream in &mut streams {
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\nab") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            got.push(byte[0]);
        }
    }
    asked.send(b"cd");
    asked.done();
    for stream in streams {
        assert_eq!(read(stream), "cd");
    }
    assert!(gateway.origin.is_idle());
    wait_for_metric(gateway.admin, "serpent_shared_cache_collapsed_total 3");
}

#[test]
fn requests_that_cannot_share_an_answer_all_go_by_themselves() {
    let gateway = gateway("", "");
    let first = gateway.ask("/a", "");
    let asked = gateway.origin.next();
    let second = gateway.ask("/a", "");
    reply(asked, "cache-control: private\r\n", "one");
    reply(gateway.origin.next(), "cache-control: private\r\n", "two");
    assert_says(&read(first), "one", "fwd=uri-miss; fwd-status=200\r\n");
    assert_says(&read(second), "two", "fwd=uri-miss; fwd-status=200\r\n");
    // It is known now, so the next two ask at once.
    let streams = [gateway.ask("/a", ""), gateway.ask("/a", "")];
    let asked = [gateway.origin.next(), gateway.origin.next()];
    asked.into_iter().for_each(|asked| reply(asked, "cache-control: private\r\n", "x"));
    streams.into_iter().for_each(|stream| assert_says(&read(stream), "x", "fwd=uri-miss"));
}

#[test]
fn what_is_for_one_user_or_sets_a_cookie_is_not_stored() {
    let gateway = gateway("", "");
    for (path, request, response) in [
        ("/auth", "authorization: Basic YTpi\r\n", "cache-control: max-age=60\r\n"),
        ("/cookie", "", "cache-control: max-age=60\r\nset-cookie: a=b\r\n"),
        ("/private", "", "cache-control: private, max-age=60\r\n"),
        ("/star", "", "cache-control: max-age=60\r\nvary: *\r\n"),
    ] {
        for body in ["one", "two"] {
            let stream = gateway.ask(path, request);
            reply(gateway.origin.next(), response, body);
            assert_says(&read(stream), body, "fwd=uri-miss; fwd-status=200\r\n");
        }
    }
    wait_for_metric(gateway.admin, "serpent_shared_cache_entries 0");
}

#[test]
fn a_client_that_leaves_does_not_spoil_what_is_stored() {
    let gateway = gateway("", "");
    let mut first = gateway.ask("/a", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncache-control: max-age=60\r\n\r\nab");
    first.read_exact(&mut [0; 64]).unwrap();
    drop(first);
    asked.send(b"cd");
    asked.done();
    wait_for_metric(gateway.admin, "serpent_shared_cache_stored_total 1");
    assert_says(&read(gateway.ask("/a", "")), "abcd", "hit");
    // Nor does an origin that breaks off.
    let mut stream = gateway.ask("/b", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncache-control: max-age=60\r\n\r\nab");
    asked.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert!(got.is_empty() || got.ends_with(b"ab") || got.starts_with(b"HTTP/1.1 502"), "{got:?}");
    drop(asked);
    let again = gateway.ask("/b", "");
    reply(gateway.origin.next(), "cache-control: max-age=60\r\n", "whole");
    assert_says(&read(again), "whole", "fwd=uri-miss");
}

#[test]
fn a_stale_response_is_validated_and_used_again() {
    let gateway = gateway("", "");
    let stream = gateway.ask("/a", "");
    reply(gateway.origin.next(), "cache-control: max-age=0\r\netag: \"1\"\r\nx-a: old\r\n", "body");
    read(stream);
    // The client's own condition is answered by us.
    for (request, status, body) in [("", "200", "body"), ("if-none-match: \"1\"\r\n", "304", "")] {
        let stream = gateway.ask("/a", request);
        let asked = gateway.origin.next();
        assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
        asked.send(b"HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\nx-a: new\r\n\r\n");
        asked.done();
        let answer = read(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.ends_with(body), "{answer}");
        assert!(answer.contains("x-a: new") && answer.contains("fwd=stale; fwd-status=304"), "{answer}");
    }
    wait_for_metric(gateway.admin, "serpent_shared_cache_revalidated_total 2");
}

#[test]
fn a_stale_response_answers_where_the_origin_fails_or_while_it_is_asked() {
    let gateway = gateway("stale-if-error = \"1h\"\n", "");
    let stream = gateway.ask("/a", "");
    reply(gateway.origin.next(), "cache-control: max-age=0\r\netag: \"1\"\r\n", "old");
    read(stream);
    let stream = gateway.ask("/a", "");
    let asked = gateway.origin.next();
    asked.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    asked.done();
    assert_says(&read(stream), "old", "fwd=stale; fwd-status=503; ttl=");
    // The origin has seen none of these fields, so it says nothing of a 304.
    let stream = gateway.ask("/b", "");
    reply(gateway.origin.next(), "cache-control: max-age=0, stale-while-revalidate=60\r\netag: \"1\"\r\n", "first");
    read(stream);
    assert_says(&read(gateway.ask("/b", "")), "first", "hit; ttl=");
    let renewal = gateway.origin.next();
    assert_eq!((renewal.path(), renewal.field("if-none-match").as_deref()), ("/b", Some("\"1\"")));
    // One renewal is enough.
    assert_says(&read(gateway.ask("/b", "")), "first", "hit; ttl=");
    assert!(gateway.origin.is_idle());
    reply(renewal, "cache-control: max-age=60\r\n", "second");
    wait_for_metric(gateway.admin, "serpent_shared_cache_stored_total 3");
    assert_says(&read(gateway.ask("/b", "")), "second", "hit");
}

#[test]
fn a_renewal_waits_in_a_class_of_its_own_behind_what_clients_ask_for() {
    let classes = "[[class]]\nname = \"gold\"\n[[class]]\nname = \"plain\"\n[[class]]\nname = \"renewals\"\n\
         [[rule]]\nclass = \"gold\"\npath = \"/gold\"\n[[rule]]\nclass = \"plain\"\n\
         [admission]\nshare = \"strict\"\nslots = 1\n";
    let gateway = gateway("revalidation-class = \"renewals\"\n", classes);
    let stream = gateway.ask("/gold/page", "");
    reply(gateway.origin.next(), "cache-control: max-age=0, stale-while-revalidate=60\r\netag: \"1\"\r\n", "old");
    read(stream);
    let held = gateway.ask("/held", "");
    let asked = gateway.origin.next();
    // The hit needs no slot. Its renewal does, and so does a miss, each in its own class.
    assert_says(&read(gateway.ask("/gold/page", "")), "old", "hit; ttl=");
    gateway.wait_for_waiting("renewals", 1);
    let plain = gateway.ask("/plain", "");
    gateway.wait_for_waiting("plain", 1);
    let gold = gateway.ask("/gold/other", "");
    gateway.wait_for_waiting("gold", 1);
    asked.answer(b"x");
    let order: Vec<_> = (0..3).map(|_| gateway.origin.answer("x")).collect();
    assert_eq!(order, ["/gold/other", "/plain", "/gold/page"]);
    for stream in [held, plain, gold] {
        assert!(read(stream).starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn a_busy_site_is_spared_by_stale_responses_where_the_route_says_so() {
    let classes = "[[class]]\nname = \"plain\"\nqueue = 1\n[admission]\nslots = 1\n";
    let gateway = gateway("stale-when-busy = true\n", classes);
    let stream = gateway.ask("/a", "");
    reply(gateway.origin.next(), "cache-control: max-age=0\r\netag: \"1\"\r\n", "old");
    read(stream);
    let held = gateway.ask("/held", "");
    let asked = gateway.origin.next();
    let waits = gateway.ask("/waits", "");
    gateway.wait_for_waiting("plain", 1);
    assert_says(&read(gateway.ask("/a", "")), "old", "hit; detail=busy; ttl=");
    let refused = read(gateway.ask("/unknown", ""));
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    asked.answer(b"x");
    gateway.origin.answer("y");
    read(held);
    read(waits);
}

#[test]
fn what_is_purged_or_changed_is_asked_for_anew() {
    let gateway = Gateway::start_as(|origin| {
        let token = std::env::temp_dir().join(format!("serpent-cache-token-{}", std::process::id()));
        fs::write(&token, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        text(origin, "cache = true\n").replacen(
            "workers = 1\n",
            &format!("workers = 1\nadmin-token = \"{}\"\n", token.display()),
            1,
        )
    });
    let store = |body: &str| {
        let stream = gateway.ask("/a/b", "");
        reply(gateway.origin.next(), "cache-control: max-age=60\r\ncache-tag: news, front\r\n", body);
        assert_says(&read(stream), body, "fwd=uri-miss; fwd-status=200; stored");
        assert_says(&read(gateway.ask("/a/b", "")), body, "hit");
    };
    let purge = |query: &str, token: &str| {
        let mut stream = TcpStream::connect(gateway.admin).unwrap();
        let request = format!("DELETE /api/cache?{query} HTTP/1.1\r\nhost: a\r\n{token}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        read(stream)
    };
    const TOKEN: &str = "authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    store("one");
    assert!(purge("all", "").starts_with("HTTP/1.1 401"));
    assert!(purge("path=a", TOKEN).starts_with("HTTP/1.1 400"));
    assert!(purge("tag=other", TOKEN).contains("\"purged\": 0"));
    assert_says(&read(gateway.ask("/a/b", "")), "one", "hit");
    for (query, body) in [("path=/a/b", "two"), ("prefix=/a", "three"), ("tag=front&host=site.example", "four")] {
        assert!(purge(query, TOKEN).contains("\"purged\": 1"), "{query}");
        store(body);
    }
    // `POST` to a path invalidates its stored response.
    let mut stream = gateway.serpent.connect();
    stream
        .write_all(b"POST /a/b HTTP/1.1\r\nhost: site.example\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx")
        .unwrap();
    reply(gateway.origin.next(), "", "done");
    assert_says(&read(stream), "done", "fwd=method");
    store("five");
}

#[test]
fn a_restart_finds_responses_on_disk_and_a_damaged_one_is_never_served() {
    let disk = tempfile::tempdir().unwrap();
    let shared = format!("cache = true\n[shared-cache]\ndirectory = \"{}\"\n", disk.path().display());
    let gateway = Gateway::start(&shared);
    let stream = gateway.ask("/a", "");
    reply(gateway.origin.next(), "cache-control: max-age=600\r\n", "the body");
    read(stream);
    wait_for_other(gateway.admin, "serpent_shared_cache_disk_bytes 0");
    let Gateway { folder, file, origin, serpent, .. } = gateway;
    serpent.signal(Signal::TERM);
    serpent.wait();
    let ask = |serpent: &Serpent| {
        let mut stream = serpent.connect();
        stream.write_all(b"GET /a HTTP/1.1\r\nhost: site.example\r\nconnection: close\r\n\r\n").unwrap();
        stream
    };
    {
        let (serpent, admin) = start(&file);
        wait_for_metric(admin, "serpent_shared_cache_entries 1");
        assert_says(&read(ask(&serpent)), "the body", "hit");
        assert!(origin.is_idle());
    }
    for folder in fs::read_dir(disk.path()).unwrap().map(|it| it.unwrap().path()) {
        for file in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
            let mut bytes = fs::read(&file).unwrap();
            let at = bytes.len() - 1;
            bytes[at] ^= 1;
            fs::write(&file, bytes).unwrap();
        }
    }
    let (serpent, admin) = start(&file);
    wait_for_metric(admin, "serpent_shared_cache_entries 1");
    let stream = ask(&serpent);
    reply(origin.next(), "cache-control: max-age=600\r\n", "a new one");
    assert_says(&read(stream), "a new one", "fwd=uri-miss");
    wait_for_metric(admin, "serpent_shared_cache_disk_failures_total 1");
    drop(folder);
}
