//! Calls of gRPC, between a client and a server that are made of the library of most programs (`tests/serve/grpc`).

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
};

use super::*;
use crate::support::certificate;

/// A client or a server: a process that obeys lines and tells lines.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Program {
    /// `None`: it was not built.
    fn start(args: &[&str]) -> Option<Self> {
        let mut child =
            tool("grpc-try")?.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let (sender, output) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Some(Self { input: child.stdin.take().unwrap(), child, output })
    }

    fn server(files: &[&str]) -> Option<(Self, String)> {
        let server = Self::start(&[&["server", "127.0.0.1:0"], files].concat())?;
        let said = server.next();
        let address = said.strip_prefix("listens on ").unwrap().to_owned();
        Some((server, address))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line.
    fn next(&self) -> String {
        self.output.recv_timeout(PATIENCE).expect("a line")
    }

    fn expect(&self, expected: &str) {
        assert_eq!(self.next(), expected);
    }

    /// Checks how a line begins, and returns it.
    #[track_caller]
    fn begins(&self, expected: &str) -> String {
        let line = self.next();
        assert!(line.starts_with(expected), "`{line}`, and not `{expected}`");
        line
    }

    /// Checks how each of the next lines begins, in any order, and returns them in the order of `expected`.
    #[track_caller]
    fn begin_in_any_order<const N: usize>(&self, expected: [&str; N]) -> [String; N] {
        let mut lines: Vec<String> = expected.iter().map(|_| self.next()).collect();
        expected.map(|expected| {
            let at = lines.iter().position(|line| line.starts_with(expected));
            lines.swap_remove(at.unwrap_or_else(|| panic!("{lines:?}, and no `{expected}`")))
        })
    }

    fn is_silent(&self) -> bool {
        self.output.try_recv().is_err()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client, a gateway and a server.
struct Calls {
    client: Program,
    server: Program,
    admin: SocketAddr,
    _serpent: Serpent,
    folder: TempDir,
    file: PathBuf,
}

impl Calls {
    /// `scheme`: of the server. `more`: behind the route. `None`: the program was not built.
    fn start(scheme: &str, more: &str) -> Option<Self> {
        let (server, address) = Program::server(&[])?;
        Self::before(server, &format!("{scheme}://{address}"), "", more)
    }

    fn before(server: Program, url: &str, of_upstream: &str, more: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serpent.toml");
        let log = folder.path().join("access.log");
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n\
             [access-log]\ntarget = \"{}\"\nformat = \"json\"\n\
             [[upstream]]\nname = \"app\"\nservers = [\"{url}\"]\n{of_upstream}\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n{more}",
            log.display()
        );
        fs::write(&file, text).unwrap();
        let (serpent, admin) = start(&file);
        let client = Program::start(&["client", &serpent.address().to_string()])?;
        Some(Self { client, server, admin, _serpent: serpent, folder, file })
    }

    /// Waits for the line of the access log with this status of gRPC, and returns it.
    fn logged(&self, status: u8) -> serde_json::Value {
        let start = std::time::Instant::now();
        loop {
            let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap();
            let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            if let Some(line) = lines.into_iter().find(|line| line["grpc_status"] == status) {
                return line;
            }
            assert!(start.elapsed() < PATIENCE, "no call with status {status} in:\n{log}");
            std::thread::yield_now();
        }
    }

    fn running(&self, calls: u32) {
        wait_for_metric(self.admin, &format!("serpent_class_running{{class=\"plain\"}} {calls}"));
    }

    fn waiting(&self, calls: u32) {
        wait_for_metric(self.admin, &format!("serpent_class_waiting{{class=\"plain\"}} {calls}"));
    }
}

/// Calls of each kind, without a setting for them.
fn all_kinds(calls: &mut Calls) {
    let Calls { client, server, .. } = calls;
    client.say("unary 1 0 hello");
    client.expect("1 message hello");
    assert!(client.begins("1 status 0 ").contains("x-end:[Unary]"), "trailers pass");
    server.expect("begins Unary");
    server.expect("ends Unary OK");

    client.say("open 2 0 Download");
    client.say("send 2 burst 3");
    client.say("close 2");
    for message in ["2 message 0", "2 message 1", "2 message 2"] {
        client.expect(message);
    }
    client.begins("2 status 0 ");

    client.say("open 3 0 Upload");
    for _ in 0..3 {
        client.say("bytes 3 1000");
    }
    client.say("close 3");
    client.expect("3 message 3000");
    client.begins("3 status 0 ");

    // Each message goes and comes while the client's side is open, so nothing is kept on the way.
    client.say("open 4 0 Chat");
    for message in ["a", "b", "c"] {
        client.say(&format!("send 4 {message}"));
        client.expect(&format!("4 message {message}"));
    }
    client.say("close 4");
    client.begins("4 status 0 ");

    // Larger than windows, buffers, and what the body of a request may have elsewhere.
    client.say("open 5 0 Chat");
    client.say("bytes 5 20000000");
    client.expect("5 bytes 20000000");
    client.say("send 5 size 20000000");
    client.expect("5 bytes 20000000");
    client.say("send 5 status 9 no: 100 % ä");
    client.begins("5 status 9 no: 100 % ä");

    client.say("unary 6 0 status 5 nothing");
    client.begins("6 status 5 nothing");
}

#[test]
fn calls_of_all_kinds_pass_without_a_setting_for_them() {
    for (scheme, classes) in [("h2c", ""), ("http", CLASSES)] {
        let Some(mut calls) = Calls::start(scheme, classes) else { return };
        all_kinds(&mut calls);
        let line = calls.logged(5);
        assert_eq!((line["status"].as_u64(), line["protocol"].as_str()), (Some(200), Some("HTTP/2.0")), "{line}");
        wait_for_metric(calls.admin, "serpent_grpc_calls_total{status=\"OK\"} 4");
        wait_for_metric(calls.admin, "serpent_grpc_calls_total{status=\"FAILED_PRECONDITION\"} 1");
        if !classes.is_empty() {
            wait_for_metric(calls.admin, "serpent_class_finished_total{class=\"plain\"} 6");
            calls.running(0);
        }
    }
}

#[test]
fn checks_find_a_server_that_reads_no_http1() {
    // The server comes later, and no other test has this address.
    let address = std::net::TcpListener::bind("127.0.0.5:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    // To a GET, the library answers with an error of its own.
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\n[uplink]\nrate = \"off\"\n\
         [[upstream]]\nname = \"app\"\nservers = [\"http://{address}\"]\n\
         active = {{ path = \"/\", every = \"100ms\", statuses = \"200-499\", fall = 1, rise = 1 }}\n\
         [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n"
    );
    fs::write(&file, text).unwrap();
    let (_serpent, admin) = start(&file);
    let is_well = |well: u8| {
        let server = format!("upstream=\"app\",server=\"{address}\",class=\"\"");
        wait_for_metric(admin, &format!("serpent_upstream_healthy{{{server}}} {well}"));
    };
    is_well(0);
    let Some(_server) = Program::start(&["server", &address.to_string()]) else { return };
    is_well(1);
}

#[test]
fn calls_pass_over_tls_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = certificate(folder.path(), "localhost", &["localhost"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let Some((server, address)) = Program::server(&[chain, key]) else { return };
    let port = address.rsplit(':').next().unwrap();
    let tls_ca = format!("tls-ca = \"{chain}\"\n");
    let calls = Calls::before(server, &format!("https://localhost:{port}"), &tls_ca, "").unwrap();
    let text = fs::read_to_string(&calls.file).unwrap();
    let text = text.replacen("\"127.0.0.1:0\"", "\"https://127.0.0.1:0\"", 1);
    fs::write(
        &calls.file,
        text.replace("[[site]]\n", &format!("[[site]]\ntls-cert = \"{chain}\"\ntls-key = \"{key}\"\n")),
    )
    .unwrap();
    let (serpent, admin) = start(&calls.file);
    let client = Program::start(&["client", &serpent.address().to_string(), chain]).unwrap();
    all_kinds(&mut Calls { client, _serpent: serpent, admin, ..calls });
}

#[test]
fn a_call_holds_its_slot_to_its_end_and_waits_for_it_no_longer_than_its_client() {
    let Some(mut calls) = Calls::start("h2c", CLASSES) else { return };
    let stream = |calls: &mut Calls| {
        calls.client.say("open 1 0 Chat");
        calls.client.say("send 1 first");
        calls.client.expect("1 message first");
        calls.server.expect("begins Chat");
        calls.running(1);
    };
    stream(&mut calls);
    // A second call waits, and is not started behind its deadline.
    calls.client.say("unary 2 300ms late");
    calls.waiting(1);
    calls.client.begins("2 status 4 ");
    calls.waiting(0);
    // A third one waits until the stream has ended.
    calls.client.say("unary 3 60s told");
    calls.waiting(1);
    assert!(calls.server.is_silent(), "nothing but the stream has begun");
    calls.client.say("close 1");
    // The call that waited goes on at once, so its answer may come before the end of the stream.
    let [_, told, _] = calls.client.begin_in_any_order(["1 status 0 ", "3 message deadline_ms=", "3 status 0 "]);
    let left_ms: u64 = told.split(['=', ' ']).nth(3).and_then(|ms| ms.parse().ok()).expect("a deadline");
    assert!((1..60_000).contains(&left_ms), "the server is told what is left of the deadline: {told}");
    calls.running(0);
    calls.server.expect("ends Chat OK");
    for _ in 0..2 {
        calls.server.next();
    }

    // The client cancels a stream, and the slot is free.
    stream(&mut calls);
    calls.client.say("cancel 1");
    calls.client.begins("1 status 1 ");
    calls.server.begins("is left alone in Chat");
    calls.running(0);
    calls.logged(1);

    // Its time ends while the server works: the server is told, and not blamed.
    for call in 4..10 {
        calls.client.say(&format!("unary {call} 300ms wait"));
        calls.client.begins(&format!("{call} status 4 "));
        calls.server.expect("begins Unary");
        calls.server.begins("is left alone in Unary");
    }
    calls.running(0);
    let failures = metrics(calls.admin);
    let failures = failures.lines().find(|line| line.starts_with("serpent_upstream_failures_total{")).unwrap();
    assert!(failures.ends_with(" 0"), "{failures}");
    calls.client.say("unary 10 0 well");
    calls.client.expect("10 message well");
}

#[test]
fn deadlines_decide_which_call_goes_first_under_edf() {
    let classes = CLASSES.replace("queue = 3\n", "queue = 9\norder = \"fifo\"\n").replace("strict", "edf");
    let Some(mut calls) = Calls::start("h2c", &classes) else { return };
    calls.client.say("unary 1 0 hold");
    calls.server.expect("begins Unary");
    for (at, (call, timeout)) in (1..).zip([(2, "50s"), (3, "20s"), (4, "0"), (5, "30s")]) {
        calls.client.say(&format!("unary {call} {timeout} hold {call}"));
        calls.waiting(at);
    }
    calls.server.say("go on");
    calls.client.expect("1 message hold");
    calls.client.begins("1 status 0");
    for call in [3, 5, 2, 4] {
        while calls.server.next() != "begins Unary" {}
        calls.server.say("go on");
        calls.client.expect(&format!("{call} message hold {call}"));
        calls.client.begins(&format!("{call} status 0"));
    }
}

#[test]
fn clients_understand_why_their_calls_are_refused() {
    let classes = CLASSES.replace("queue = 3", "queue = 1");
    let routes = "[[site.route]]\npath = \"/try.Try/Limited\"\nupstream = \"app\"\nlimit = { rate = \"1/m\", burst = 1 }\n\
         [[site.route]]\npath = \"/try.Try/Closed\"\nupstream = \"app\"\ndeny = [\"0.0.0.0/0\"]\n\
         [[site.route]]\npath = \"/try.Try/Password\"\nupstream = \"app\"\nrequire = { user = true }\n\
         [[site.route]]\npath = \"/try.Try/Elsewhere\"\nredirect = \"https://other.example/\"\n\
         [[site.route]]\npath = \"/try.Try/Down\"\nupstream = \"down\"\n\
         [[site.route]]\npath = \"/try.Try/Missing\"\nrespond = 404\n";
    let Some((server, address)) = Program::server(&[]) else { return };
    let down = "[[upstream]]\nname = \"down\"\nservers = [\"h2c://127.0.0.1:1\"]\n";
    let users = "[users]\nfile = \"users\"\n";
    let Some(calls) = Calls::before(server, &format!("h2c://{address}"), down, &classes) else { return };
    let text = fs::read_to_string(&calls.file).unwrap();
    fs::write(calls.folder.path().join("users"), "").unwrap();
    let text = text.replace("[[site]]\n", &format!("{users}[[site]]\n{routes}"));
    fs::write(&calls.file, text).unwrap();
    let (serpent, admin) = start(&calls.file);
    let client = Program::start(&["client", &serpent.address().to_string()]).unwrap();
    let mut calls = Calls { client, _serpent: serpent, admin, ..calls };
    let mut number = 100;
    let mut refused = |calls: &mut Calls, method: &str, status: &str| {
        number += 1;
        calls.client.say(&format!("open {number} 0 {method}"));
        calls.client.say(&format!("send {number} x"));
        calls.client.begins(&format!("{number} status {status}"));
    };
    refused(&mut calls, "Closed", "7 Forbidden");
    refused(&mut calls, "Password", "16 Unauthorized");
    refused(&mut calls, "Elsewhere", "2 ");
    refused(&mut calls, "Missing", "12 ");
    refused(&mut calls, "Down", "14 Bad Gateway");
    calls.client.say("open 1 0 Limited");
    // The server does not know the method, and says so itself.
    calls.client.begins("1 status 12 unknown method Limited");
    refused(&mut calls, "Limited", "8 Too Many Requests");
    // The only slot is taken.
    calls.client.say("unary 2 0 hold");
    calls.running(1);
    calls.client.say("unary 3 0 waits");
    calls.waiting(1);
    refused(&mut calls, "Chat", "14 too many requests of the class wait");
    calls.server.say("go on");
    // The call that waited goes on at once, so its answer may come first.
    let first = std::iter::repeat_with(|| calls.client.next()).find(|line| !line.starts_with("3 "));
    assert_eq!(first.as_deref(), Some("2 message hold"));
    calls.logged(16);
}

#[test]
fn a_silent_stream_lives_as_long_as_the_idle_time_of_its_route_and_its_end_is_told() {
    let Some(mut calls) = Calls::start("h2c", "idle-timeout = \"300ms\"\n") else { return };
    let start = std::time::Instant::now();
    calls.client.say("open 1 0 Chat");
    calls.client.say("send 1 one");
    calls.client.expect("1 message one");
    // The client is silent, then the server.
    calls.client.begins("1 status 14 the call was silent for too long");
    assert!(start.elapsed() >= std::time::Duration::from_millis(300));
    calls.server.expect("begins Chat");
    calls.server.begins("is left alone in Chat");
    calls.client.say("open 2 0 Download");
    calls.client.say("send 2 wait");
    calls.client.say("close 2");
    calls.client.begins("2 status 14 ");
}

#[test]
fn neither_the_rate_nor_the_length_of_bodies_ends_a_call() {
    let more = "[limits]\nhead-timeout = \"200ms\"\nrequest-body-rate = \"1MB\"\nrequest-body = \"1KiB\"\n";
    let Some(mut calls) = Calls::start("h2c", more) else { return };
    calls.client.say("open 1 0 Chat");
    for message in ["a", "b", "c", "d"] {
        calls.client.say(&format!("send 1 {message}"));
        calls.client.expect(&format!("1 message {message}"));
        // A call that takes longer than the time of the limit.
        calls.client.say("unary 2 100ms wait");
        calls.client.begins("2 status 4");
    }
    calls.client.say("bytes 1 5000000");
    calls.client.expect("1 bytes 5000000");
    calls.client.say("close 1");
    calls.client.begins("1 status 0 ");
}

#[test]
fn many_short_messages_pass_while_nobody_takes_them() {
    let Some(mut calls) = Calls::start("h2c", "") else { return };
    calls.client.say("open 1 0 Download");
    calls.client.say("send 1 burst 20000");
    calls.client.say("close 1");
    for number in 0..20_000 {
        calls.client.expect(&format!("1 message {number}"));
    }
    calls.client.begins("1 status 0 ");
    // The server takes nothing, so that all of them wait on the way.
    calls.client.say("open 2 0 Chat");
    calls.client.say("send 2 hold");
    for _ in 0..20_000 {
        calls.client.say("send 2 x");
    }
    calls.server.say("go on");
    calls.client.expect("2 message hold");
    for _ in 0..20_000 {
        calls.client.expect("2 message x");
    }
    calls.client.say("close 2");
    calls.client.begins("2 status 0 ");
}
