//! Tests with ordinary clients, over HTTP/1.1 and HTTP/2, in clear text and over TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use rustix::process::Signal;

use super::support::{BIG, Serpent, big, certificate, curl, site, tool};

/// Requests with curl. Returns the status, the head and the body.
fn get(args: &[&str]) -> Option<(String, String, String)> {
    let answer = curl(&[&["--include"], args].concat())?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().to_owned();
    Some((status, head.to_owned(), body.to_owned()))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

#[test]
fn get_and_head() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let Some((status, head, body)) = get(&[&serpent.url("/")]) else { return };
    assert_eq!(status, "200", "{head}");
    assert!(body.contains("<p>index"));
    assert!(field(&head, "content-type").unwrap().starts_with("text/html"), "{head}");
    assert!(field(&head, "etag").unwrap().starts_with('"'), "a strong validator: {head}");
    assert!(field(&head, "last-modified").is_some() && field(&head, "date").is_some(), "{head}");

    let (status, head, body) = get(&["--head", &serpent.url("/big.bin")]).unwrap();
    assert_eq!((status.as_str(), body.as_str()), ("200", ""));
    assert_eq!(field(&head, "content-length"), Some("2000000"), "{head}");
}

#[test]
fn ranges() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let url = serpent.url("/hello.txt");
    let Some((status, head, body)) = get(&["--range", "0-4", &url]) else { return };
    assert_eq!((status.as_str(), body.as_str()), ("206", "hello"));
    assert_eq!(field(&head, "content-range"), Some("bytes 0-4/13"), "{head}");
    assert_eq!(get(&["--range", "-6", &url]).unwrap().2, "world\n");
    let (status, head, _) = get(&["--range", "100-", &url]).unwrap();
    assert_eq!((status.as_str(), field(&head, "content-range")), ("416", Some("bytes */13")), "{head}");
    fs::write(site.path().join("www/long.txt"), format!("head{}tail", "x".repeat(10_000))).unwrap();
    let (status, head, body) = get(&["--range", "0-3,-4", &serpent.url("/long.txt")]).unwrap();
    assert_eq!(status, "206");
    assert!(field(&head, "content-type").unwrap().starts_with("multipart/byteranges"), "{head}");
    assert!(body.contains("\r\n\r\nhead\r\n") && body.contains("\r\n\r\ntail\r\n"), "{body}");
}

#[test]
fn conditions() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let url = serpent.url("/hello.txt");
    let Some((_, head, _)) = get(&[&url]) else { return };
    let (etag, modified) = (field(&head, "etag").unwrap(), field(&head, "last-modified").unwrap());
    let status = |condition: String| get(&["--header", &condition, &url]).unwrap().0;
    assert_eq!(status(format!("If-None-Match: {etag}")), "304");
    assert_eq!(status("If-None-Match: \"other\"".into()), "200");
    assert_eq!(status(format!("If-Modified-Since: {modified}")), "304");
    assert_eq!(status("If-Match: \"other\"".into()), "412");
    assert_eq!(status("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT".into()), "412");
}

#[test]
fn statuses_that_people_expect() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let Some((status, head, _)) = get(&[&serpent.url("/sub")]) else { return };
    assert_eq!((status.as_str(), field(&head, "location")), ("301", Some("/sub/")), "{head}");
    let status = |args: &[&str], path: &str| get(&[args, &[&serpent.url(path)]].concat()).unwrap().0;
    assert_eq!(status(&[], "/sub/"), "403");
    assert_eq!(status(&[], "/nothing"), "404");
    assert_eq!(status(&[], "/.secret"), "404");
    assert_eq!(status(&["--request", "POST", "--data", "x"], "/hello.txt"), "405");
    assert_eq!(status(&["--request", "BREW"], "/hello.txt"), "501");
    let (_, head, _) = get(&["--request", "DELETE", &serpent.url("/hello.txt")]).unwrap();
    assert!(field(&head, "allow").is_some_and(|allow| allow.contains("GET")), "{head}");
    let (status, head, _) = get(&["--request", "OPTIONS", &serpent.url("/hello.txt")]).unwrap();
    assert!(matches!(status.as_str(), "200" | "204"), "{head}");
}

#[test]
fn listings_when_asked_for() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &["--listing"]);
    let Some((status, _, body)) = get(&[&serpent.url("/sub/")]) else { return };
    assert_eq!(status, "200");
    assert!(body.contains("inner.txt"), "{body}");
}

#[test]
fn a_compressed_sibling_is_sent_to_those_who_accept_it() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let url = serpent.url("/style.css");
    let Some((_, head, body)) = get(&["--compressed", "--header", "Accept-Encoding: gzip", &url]) else { return };
    assert_eq!(field(&head, "content-encoding"), Some("gzip"), "{head}");
    assert!(field(&head, "vary").unwrap().eq_ignore_ascii_case("accept-encoding"), "{head}");
    assert_eq!(body, "body { color: black }\n");
    let (_, head, body) = get(&[&url]).unwrap();
    assert_eq!(field(&head, "content-encoding"), None, "{head}");
    assert_eq!(body, "body { color: black }\n");
}

#[test]
fn connections_are_kept_and_requests_may_be_sent_ahead() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    let answers = serpent.exchange(
        b"GET /hello.txt HTTP/1.1\r\nhost: a\r\n\r\nHEAD /big.bin HTTP/1.1\r\nhost: a\r\n\r\n\
          GET /nothing HTTP/1.1\r\nhost: a\r\n\r\nGET /sub/inner.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    );
    let statuses: Vec<_> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "404", "200"], "{answers}");
    assert!(answers.ends_with("inner\n"));

    let url = serpent.url("/hello.txt");
    let Some(connects) = curl(&["--write-out", "%{num_connects} ", "-o", "/dev/null", "-o", "/dev/null", &url, &url])
    else {
        return;
    };
    assert_eq!(connects.trim(), "1 0");
}

#[test]
fn large_files_arrive_whole_in_clear_and_over_tls_by_both_protocols() {
    let site = site();
    let (chain, key) = certificate(site.path(), "localhost", &["localhost"]);
    let www = site.path().join("www");
    let listen = ["--listen", "http://127.0.0.1:0", "--listen", "https://127.0.0.1:0"];
    let certificate = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    for uplink in ["off", "200mbit", "auto"] {
        let args = [&["serve", www.to_str().unwrap(), "--uplink", uplink], &listen[..], &certificate[..]].concat();
        let serpent = Serpent::start(&args);
        let ports: Vec<_> = serpent.urls.iter().map(|url| url.rsplit_once(':').unwrap().1).collect();
        for (scheme, port, protocol, version) in [
            ("http", ports[0], "--http1.1", "1.1"),
            ("http", ports[0], "--http2-prior-knowledge", "2"),
            ("https", ports[1], "--http1.1", "1.1"),
            ("https", ports[1], "--http2", "2"),
        ] {
            let file = site.path().join("received");
            let url = format!("{scheme}://localhost:{port}/big.bin");
            let resolve = format!("localhost:{port}:127.0.0.1");
            let paths = [file.to_str().unwrap(), chain.to_str().unwrap()];
            let args = ["--resolve", &resolve, "--cacert", paths[1], "-o", paths[0], protocol, "--write-out"];
            let Some(seen) = curl(&[&args[..], &["%{http_version} %{http_code}", &url]].concat()) else { return };
            assert_eq!(seen, format!("{version} 200"), "{url} {uplink}");
            assert!(fs::read(&file).unwrap() == big(), "{url} {uplink}: the file arrived changed");
        }
    }
}

#[test]
fn certificates_and_sites_are_chosen_by_name() {
    let site = site();
    let folder = site.path();
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("other/hello.txt"), "other\n").unwrap();
    let (first, _) = certificate(folder, "first", &["first.example"]);
    let (second, _) = certificate(folder, "second", &["*.second.example"]);
    let config = folder.join("serpent.toml");
    fs::write(
        &config,
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n\
         [[site]]\nnames = [\"first.example\"]\nroot = \"www\"\ntls-cert = \"first.crt\"\ntls-key = \"first.key\"\n\
         [[site]]\nnames = [\"*.second.example\"]\nroot = \"other\"\ntls-cert = \"second.crt\"\ntls-key = \"second.key\"\n",
    )
    .unwrap();
    let serpent = Serpent::start(&["serve", "--config", config.to_str().unwrap()]);
    let port = serpent.address().port();
    for (name, chain, text) in [("first.example", &first, "hello, world\n"), ("a.second.example", &second, "other\n")] {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/hello.txt");
        let Some(body) = curl(&["--resolve", &resolve, "--cacert", chain.to_str().unwrap(), &url]) else { return };
        assert_eq!(body, text);
    }
}

#[test]
fn nghttp_and_h2load_work() {
    let site = site();
    let serpent = Serpent::serve(&site.path().join("www"), &[]);
    if let Some(mut nghttp) = tool("nghttp") {
        let output =
            nghttp.args(["--null-out", "--verbose", "--get-assets", &serpent.url("/page.html")]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(":status: 200"), "{said}");
        assert!(!said.contains("GOAWAY") || said.contains("NO_ERROR"), "{said}");
    }
    for args in [["--clients=4", "--max-concurrent-streams=10"], ["--clients=10", "--h1"]] {
        let Some(mut h2load) = tool("h2load") else { return };
        let output = h2load.args(["--requests=1000"]).args(args).arg(serpent.url("/hello.txt")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
        assert!(said.contains("1000 2xx"), "{said}");
    }
    serpent.assert_alive();
}

#[test]
fn the_access_log_tells_what_was_sent() {
    let site = site();
    let serpent = Serpent::serve(
        &site.path().join("www"),
        &["--access-log", "-", "--access-log-format", "json", "--uplink", "off"],
    );
    serpent.exchange(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\nuser-agent: x\"y\r\nconnection: close\r\n\r\n");
    let line: serde_json::Value = serde_json::from_str(&serpent.stdout_line()).unwrap();
    let text = line.to_string();
    assert!(text.contains("hello.txt") && text.contains("200") && text.contains("13"), "{text}");

    let serpent = Serpent::serve(&site.path().join("www"), &["--access-log", "-"]);
    serpent.exchange(b"GET /nothing HTTP/1.1\r\nhost: a\r\nuser-agent: x\"y\r\nconnection: close\r\n\r\n");
    let line = serpent.stdout_line();
    assert!(line.starts_with("127.0.0.1 - - [") && line.contains("] \"GET /nothing HTTP/1.1\" 404 "), "{line}");
    assert!(line.contains(r#" "x\x22y" "#), "a quote in a header is escaped: {line}");
}

#[test]
fn metrics_are_on_their_own_address() {
    let site = site();
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let serpent = Serpent::serve(&site.path().join("www"), &["--admin", &admin.to_string()]);
    serpent.assert_alive();
    let Some((status, _, body)) = get(&[&format!("http://{admin}/metrics")]) else { return };
    assert_eq!(status, "200");
    assert!(body.contains("# TYPE "), "{body}");
    assert_eq!(get(&[&serpent.url("/metrics")]).unwrap().0, "404", "not on the public address");
}

/// Requests in progress go first: of a burst, the worker begins only some before it looks for other ready
/// work.
#[test]
fn of_clients_that_ask_all_at_once_most_wait_for_their_turn_and_all_are_answered() {
    const CLIENTS: usize = 40;
    let site = site();
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let serpent = Serpent::serve(&site.path().join("www"), &["--admin", &admin, "--workers", "1"]);
    let answered = |client: &mut TcpStream| {
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello, world\n") {
            let mut part = [0; 1024];
            let len = client.read(&mut part).unwrap();
            assert_ne!(len, 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..len]);
        }
    };
    let ask = |client: &mut TcpStream| client.write_all(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| serpent.connect()).collect();
    for client in &mut clients {
        ask(client);
        answered(client);
    }
    let delayed = || {
        let mut admin = TcpStream::connect(&admin).unwrap();
        admin.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut metrics = String::new();
        admin.read_to_string(&mut metrics).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix("serpent_reads_delayed_total "));
        line.expect("a metric").parse::<usize>().unwrap()
    };
    let before = delayed();
    serpent.signal(Signal::STOP);
    clients.iter_mut().for_each(ask);
    serpent.signal(Signal::CONT);
    clients.iter_mut().for_each(answered);
    let delayed = delayed() - before;
    assert!((CLIENTS / 2..CLIENTS).contains(&delayed), "{delayed} of {CLIENTS}");
}

#[test]
fn a_slow_uplink_sends_a_small_response_ahead_of_a_large_one() {
    let site = site();
    // 2 MB at 4 Mbit/s take four seconds. The small response must not wait for them.
    let serpent = Serpent::serve(&site.path().join("www"), &["--uplink", "4mbit"]);
    let mut large = serpent.connect();
    large.write_all(b"GET /big.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut first = [0; 1000];
    large.read_exact(&mut first).unwrap();
    let small = serpent.exchange(b"GET /hello.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(small.ends_with("hello, world\n"));
    large.set_nonblocking(true).unwrap();
    let mut received = first.len();
    let mut buffer = vec![0; 1 << 20];
    while let Ok(n) = large.read(&mut buffer) {
        assert!(n > 0, "the large response ended before the small one");
        received += n;
    }
    assert!(received < BIG / 2, "{received} bytes of the large response went before the small one");
}
