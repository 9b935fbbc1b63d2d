//! A slow request that is sent to a second server, and the slots that it takes.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::origin::Asked;

/// A gateway before two servers that answer when the test says so.
struct Hedged {
    folder: TempDir,
    origins: [Origin; 2],
    admin: SocketAddr,
    serpent: Serpent,
}

impl Hedged {
    fn start(upstream: &str, route: &str, rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let origins = [Origin::start(), Origin::start()];
        let file = folder.path().join("serpent.toml");
        let servers: Vec<_> = origins.iter().map(|origin| format!("http://{}", origin.address)).collect();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[access-log]\ntarget = {:?}\nformat = \"json\"\n[uplink]\nrate = \"off\"\n\
             [[upstream]]\nname = \"app\"\nservers = {servers:?}\nbalance = \"round-robin\"\n{upstream}\n\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{route}\n{rest}",
            folder.path().join("access.log")
        );
        fs::write(&file, text).unwrap();
        let (serpent, admin) = start(&file);
        Self { folder, origins, admin, serpent }
    }

    fn ask(&self, method: &str, path: &str) -> TcpStream {
        let mut stream = self.serpent.connect();
        let length = if method == "POST" { "content-length: 0\r\n" } else { "" };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: site.example\r\n{length}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// The next request at either server, and which server that is.
    fn next(&self) -> (usize, Asked) {
        let start = Instant::now();
        loop {
            for (at, origin) in self.origins.iter().enumerate() {
                if let Some(asked) = origin.try_next() {
                    return (at, asked);
                }
            }
            assert!(start.elapsed() < PATIENCE, "no request for a server");
            std::thread::yield_now();
        }
    }

    /// A request at its first server and at its second one.
    fn both(&self, path: &str) -> [Asked; 2] {
        let ((one, first), (other, second)) = (self.next(), self.next());
        assert_ne!(one, other, "the second attempt goes to another server");
        assert_eq!((first.path(), second.path()), (path, path));
        [first, second]
    }

    /// How many servers each request was sent to, by the access log.
    fn attempts(self) -> Vec<(String, Value)> {
        self.serpent.signal(Signal::TERM);
        self.serpent.wait();
        let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| (line["target"].as_str().unwrap().to_owned(), line["attempts"].clone())).collect()
    }

    /// Waits until metrics of the upstream, and of the class if there are slots, have these values.
    fn wait_for(&self, name: &str, value: u32) {
        let label = if name.starts_with("class") { "class=\"default\"" } else { "upstream=\"app\"" };
        wait_for_metric(self.admin, &format!("serpent_{name}{{{label}}} {value}"));
    }
}

/// Waits until the gateway has closed the connection of a request.
fn is_given_up(asked: &Asked) {
    asked.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = (&asked.stream).read(&mut [0]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset));
}

const TWO_SLOTS: &str = "[admission]\nslots = 2\n";
const AFTER_50_MS: &str = "hedge = \"50ms\"\nhedge-budget = \"100%\"";

#[test]
fn the_second_attempt_takes_a_slot_and_the_slower_one_gives_its_slot_back() {
    for route in ["", "buffer-response = false\n"] {
        let gateway = Hedged::start(AFTER_50_MS, route, TWO_SLOTS);
        for winner in [1, 0] {
            let client = gateway.ask("GET", "/slow");
            let mut asked = gateway.both("/slow");
            gateway.wait_for("class_running", 2);
            // Both slots are taken, so the next request waits.
            let next = gateway.ask("GET", "/next");
            gateway.wait_for("class_waiting", 1);
            gateway.origins.iter().for_each(|origin| assert!(origin.is_idle()));
            asked.rotate_left(winner);
            let [faster, slower] = asked;
            faster.answer(b"faster");
            let answer = all(client);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("faster"), "{answer}");
            is_given_up(&slower);
            let (_, asked) = gateway.next();
            assert_eq!(asked.path(), "/next");
            asked.answer(b"next");
            assert!(all(next).ends_with("next"));
            gateway.wait_for("class_running", 0);
        }
        // Of the two slow requests, the second attempt of one was faster.
        let said = metrics(gateway.admin);
        assert!(said.contains("serpent_upstream_hedges_won_total{upstream=\"app\"} 1\n"), "{said}");
        for server in gateway.origins.iter().map(|origin| origin.address) {
            let blamed =
                format!("serpent_upstream_failures_total{{upstream=\"app\",server=\"{server}\",class=\"\"}} 0");
            assert!(said.lines().any(|line| line == blamed), "{said}");
        }
    }
}

#[test]
fn a_post_is_sent_once_and_nothing_is_sent_twice_without_a_slot() {
    let gateway = Hedged::start(AFTER_50_MS, "", TWO_SLOTS);
    let post = gateway.ask("POST", "/post");
    let (at, posted) = gateway.next();
    let get = gateway.ask("GET", "/get");
    let (_, asked) = gateway.next();
    assert_eq!((posted.path(), asked.path()), ("/post", "/get"));
    // The time of the GET is over, so that of the POST before it is, too.
    gateway.wait_for("upstream_hedges_refused_total", 1);
    gateway.wait_for("upstream_hedges_total", 0);
    gateway.wait_for("class_running", 2);
    asked.answer(b"got");
    assert!(all(get).ends_with("got"));
    // Now there is room for two attempts of what is safe.
    let second = gateway.ask("GET", "/second");
    let (_, asked) = gateway.next();
    gateway.wait_for("upstream_hedges_refused_total", 2);
    gateway.origins.iter().for_each(|origin| assert!(origin.is_idle()));
    asked.answer(b"");
    all(second);
    posted.answer(b"posted");
    assert!(all(post).ends_with("posted"), "server {at}");
    gateway.wait_for("class_running", 0);
    gateway.wait_for("upstream_hedges_total", 0);
    let twice = gateway.ask("GET", "/twice");
    let [faster, _slower] = gateway.both("/twice");
    faster.answer(b"");
    all(twice);
    let mut attempts = gateway.attempts();
    attempts.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("/get", 1), ("/post", 1), ("/second", 1), ("/twice", 2)];
    assert_eq!(attempts, expected.map(|(target, attempts)| (target.to_owned(), attempts.into())));
}

#[test]
fn a_client_that_leaves_ends_both_attempts() {
    let gateway = Hedged::start(AFTER_50_MS, "buffer-response = false\n", TWO_SLOTS);
    let client = gateway.ask("GET", "/left");
    let asked = gateway.both("/left");
    reset(client);
    asked.iter().for_each(is_given_up);
    gateway.wait_for("class_running", 0);
}

#[test]
fn a_request_is_slow_when_it_takes_longer_than_95_percent_of_its_class() {
    const LONG: Duration = Duration::from_secs(1);
    let classes = "[[class]]\nname = \"quick\"\n[[class]]\nname = \"slow\"\n\
         [[rule]]\nclass = \"quick\"\npath = \"/quick\"\n[[rule]]\nclass = \"slow\"\n[admission]\nslots = 200\n";
    let gateway = Hedged::start("hedge = \"p95\"\nhedge-budget = \"100%\"", "", classes);
    // A hundred answers of each class make its time known; before, nothing is slow.
    for (path, long) in [("/slow", LONG), ("/quick", Duration::ZERO)] {
        let clients: Vec<_> = (0..100).map(|_| gateway.ask("GET", path)).collect();
        let asked: Vec<_> = clients.iter().map(|_| gateway.next().1).collect();
        let start = Instant::now();
        while start.elapsed() < long {
            assert!(gateway.origins.iter().all(Origin::is_idle), "a second attempt");
            std::thread::sleep(Duration::from_millis(10));
        }
        asked.into_iter().for_each(|asked| asked.answer(b""));
        clients.into_iter().for_each(|client| assert!(all(client).starts_with("HTTP/1.1 200 ")));
    }
    gateway.wait_for("upstream_hedges_total", 0);
    let second_after = |path| {
        let client = gateway.ask("GET", path);
        let (_, first) = gateway.next();
        let start = Instant::now();
        let (_, second) = gateway.next();
        let took = start.elapsed();
        second.answer(b"");
        assert!(all(client).starts_with("HTTP/1.1 200 "));
        is_given_up(&first);
        took
    };
    let (quick, slow) = (second_after("/quick"), second_after("/slow"));
    assert!(slow > LONG.mul_f64(0.9), "{slow:?}");
    assert!(quick < LONG / 2, "{quick:?}");
    gateway.wait_for("upstream_hedges_won_total", 2);
}
