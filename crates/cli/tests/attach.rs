//! `serpent attach` in network namespaces, with the real program. Needs root, iproute2 and a kernel with BTF.
#![cfg(target_os = "linux")]

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use kernel::netns::NetNs;
use socket2::SockRef;

#[path = "attach/packets.rs"]
mod packets;
#[path = "attach/settings.rs"]
mod settings;
#[path = "attach/support.rs"]
mod support;
#[path = "attach/verdict.rs"]
mod verdict;

const DEVICE: &str = "va";

/// A server's and a client's network namespace with a cable between them, removed on drop.
struct Bed {
    server: String,
    client: String,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let missing = if !rustix::process::geteuid().is_root() {
            "network namespaces need root"
        } else if Command::new("tc").arg("-V").output().is_err() {
            "iproute2 is missing"
        } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            "the kernel does not describe its types (BTF)"
        } else {
            let name = format!("attach-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let bed = Self { server: format!("{name}-s"), client: format!("{name}-c") };
            ok("ip", &["netns", "add", &bed.server]);
            ok("ip", &["netns", "add", &bed.client]);
            let cable = ["link", "add", DEVICE, "netns", &bed.server, "type", "veth", "peer", "name", "vb", "netns"];
            ok("ip", &[&cable[..], &[&bed.client]].concat());
            for (namespace, device, address) in [(&bed.server, DEVICE, "1"), (&bed.client, "vb", "2")] {
                let [v4, v6] = [format!("10.9.0.{address}/24"), format!("fd09::{address}/64")];
                ok("ip", &["-n", namespace, "addr", "add", &v4, "dev", device]);
                ok("ip", &["-n", namespace, "addr", "add", &v6, "dev", device, "nodad"]);
                ok("ip", &["-n", namespace, "link", "set", "lo", "up"]);
                ok("ip", &["-n", namespace, "link", "set", device, "up"]);
            }
            return Some(bed);
        };
        assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: {missing}");
        eprintln!("SKIPPED: {test}: {missing}");
        None
    }

    /// Runs `serpent` in the server's namespace, as an operator would.
    fn serpent(&self, arguments: &[&str]) -> Output {
        let inside = ["netns", "exec", &self.server, env!("CARGO_BIN_EXE_serpent")];
        Command::new("ip").args([&inside[..], arguments].concat()).output().expect("iproute2")
    }

    fn does(&self, arguments: &[&str]) -> String {
        let output = self.serpent(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.serpent(arguments);
        assert!(!output.status.success(), "{arguments:?} is not refused");
        String::from_utf8(output.stderr).unwrap()
    }

    fn tc(&self, arguments: &[&str]) -> String {
        let inside = ["netns", "exec", &self.server, "tc"];
        ok("ip", &[&inside[..], arguments].concat())
    }

    /// All that the kernel says of the device, without counters.
    fn description(&self) -> String {
        let link = ok("ip", &["-n", &self.server, "-d", "link", "show", "dev", DEVICE]);
        link + &self.tc(&["-d", "qdisc", "show", "dev", DEVICE]) + &self.tc(&["-d", "class", "show", "dev", DEVICE])
    }

    fn shown(&self) -> serde_json::Value {
        serde_json::from_str(&self.does(&["attach", DEVICE, "--show", "--json"])).unwrap()
    }

    /// A server that sends each text of `writes` when it gets a byte, and a client that asks for them one by one. Each
    /// text leaves in a packet of its own.
    fn sends(&self, address: &str, port: u16, writes: &[Vec<u8>]) {
        let namespace = NetNs::open(&self.server).unwrap();
        let listener = {
            let _inside = namespace.enter().unwrap();
            TcpListener::bind((address, port)).unwrap()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                connection.set_nodelay(true).unwrap();
                for text in writes {
                    // An empty text is sent without being asked for: the one behind it belongs to the same response.
                    if !text.starts_with(b"+") {
                        connection.read_exact(&mut [0]).unwrap();
                    }
                    connection.write_all(text.strip_prefix(b"+").unwrap_or(text)).unwrap();
                }
            });
            let namespace = NetNs::open(&self.client).unwrap();
            let _inside = namespace.enter().unwrap();
            let mut client = TcpStream::connect((address, port)).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            for text in writes {
                let is_more = text.starts_with(b"+");
                if !is_more {
                    client.write_all(b"x").unwrap();
                }
                let mut read = vec![0; text.len() - usize::from(is_more)];
                client.read_exact(&mut read).unwrap();
                assert_eq!(read, text.strip_prefix(b"+").unwrap_or(text));
            }
        });
        // Closing alone may come too late for the next listener at this address. A process that another test is about
        // to start has a copy of the socket until its program runs.
        SockRef::from(&listener).shutdown(Shutdown::Both).unwrap();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Not `does`: a panic here would hide the panic that caused the drop.
        self.serpent(&["detach", DEVICE]);
        for namespace in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

fn ok(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("iproute2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

const ATTACH: [&str; 6] = ["attach", DEVICE, "--rate", "100mbit", "--ports", "80,8080"];

#[test]
fn what_was_there_comes_back() {
    let Some(bed) = Bed::new("what_was_there_comes_back") else { return };
    let before = bed.description();
    assert!(bed.refuses(&["detach", DEVICE]).contains("is not attached"));
    assert!(bed.refuses(&["attach", "no-device", "--rate", "1mbit"]).contains("no network device"));
    let dry = bed.does(&[&ATTACH[..], &["--dry-run"]].concat());
    assert!(dry.contains("tc qdisc add dev va root handle 5e7: htb default 8"), "{dry}");
    assert!(dry.contains("ip link set dev va txqueuelen 10000"), "{dry}");
    assert_eq!(bed.description(), before, "a dry run changes nothing");

    assert!(bed.does(&ATTACH).contains("va: attached; 21 ranks"));
    let attached = bed.description();
    assert!(attached.contains("pfifo_fast 5e72: parent 5e7:2") && attached.contains("gso_max_segs 2 "), "{attached}");
    assert!(attached.contains("qlen 10000"), "the queues of the ranks are as long as the device's: {attached}");
    assert!(bed.does(&ATTACH).contains("changed in place"));
    assert_eq!(bed.description(), attached);
    bed.does(&["attach", DEVICE, "--rate", "50mbit", "--ports", "80"]);
    assert!(bed.description().contains("rate 50Mbit ceil 50Mbit"), "{}", bed.description());
    assert!(bed.does(&["detach", DEVICE]).contains("the kernel's default is back"));
    assert_eq!(bed.description(), before);

    // An earlier version made its bands with the device's own, short queues.
    bed.does(&ATTACH);
    ok("ip", &["-n", &bed.server, "link", "set", DEVICE, "txqueuelen", "500"]);
    assert!(bed.does(&ATTACH).contains("in place of Serpent's bands"));
    assert!(bed.description().contains("qlen 10000"), "{}", bed.description());
    bed.does(&["detach", DEVICE]);
    assert_eq!(bed.description(), before);

    // The bands of an earlier version, without a classifier.
    bed.tc(&["qdisc", "add", "dev", DEVICE, "root", "handle", "5e7:", "htb"]);
    let said = bed.refuses(&ATTACH);
    assert!(said.contains("an earlier version of Serpent"), "{said}");
    assert!(bed.does(&[&ATTACH[..], &["--replace"]].concat()).contains("in place of Serpent's bands"));
    bed.does(&["detach", DEVICE]);
    assert_eq!(bed.description(), before);

    // One discipline, and a tree of classes.
    for lines in [
        &["qdisc add dev va root handle 1: tbf rate 5mbit burst 3000 limit 30000"][..],
        &[
            "qdisc add dev va root handle 7: htb default 2",
            "class add dev va parent 7: classid 7:1 htb rate 9mbit ceil 9mbit",
            "class add dev va parent 7:1 classid 7:2 htb rate 3mbit ceil 9mbit prio 2",
            "qdisc add dev va parent 7:2 handle 8: pfifo limit 77",
        ],
    ] {
        for line in lines {
            bed.tc(&line.split(' ').collect::<Vec<_>>());
        }
        let foreign = bed.description();
        let said = bed.refuses(&ATTACH);
        assert!(said.contains("another program or person configured") && said.contains("--replace"), "{said}");
        assert_eq!(bed.description(), foreign);
        assert!(bed.does(&[&ATTACH[..], &["--replace"]].concat()).contains("comes back"));
        assert!(bed.description().contains("htb 5e7: root"));
        assert!(bed.does(&["detach", DEVICE]).contains("is back"));
        assert_eq!(bed.description(), foreign);
        bed.tc(&["qdisc", "del", "dev", DEVICE, "root"]);
    }
}

/// A head with a length, and a body.
fn response(body_bytes: usize) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    text.extend(vec![b'.'; body_bytes]);
    text
}

fn more(text: &[u8]) -> Vec<u8> {
    [b"+", text].concat()
}

#[test]
fn lengths_are_read_from_heads() {
    let Some(bed) = Bed::new("lengths_are_read_from_heads") else { return };
    bed.does(&ATTACH);
    let large_head = format!("HTTP/1.1 200 OK\r\nSet-Cookie: {}\r\n", "c".repeat(900)).into_bytes();
    for (number, (what, writes, known, unknown)) in [
        ("keep-alive", vec![response(10), response(700), response(0)], 3, 0),
        ("several responses in a packet", vec![[response(10), response(20), response(30)].concat()], 3, 0),
        (
            "a head over several packets",
            vec![
                large_head,
                more(b"Content-"),
                more(b"Length: 3"),
                more(b"0\r\n\r"),
                more(b"\n"),
                more(&[b'.'; 30]),
                response(5),
            ],
            2,
            0,
        ),
        ("no body", vec![b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9000\r\n\r\n".to_vec(), response(5)], 2, 0),
        ("an answer to HEAD", vec![b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n".to_vec(), response(5)], 2, 0),
        (
            "interim responses",
            vec![
                [&b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"[..], &response(5)]
                    .concat(),
            ],
            1,
            0,
        ),
        (
            "chunks, and a name that only ends alike",
            vec![
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Content-Length: 7\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                    .to_vec(),
                response(5),
            ],
            1,
            1,
        ),
        ("no HTTP", vec![vec![0x16, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], vec![0x17; 100]], 0, 2),
    ]
    .into_iter()
    .enumerate()
    {
        for address in ["10.9.0.1", "fd09::1"] {
            let before = bed.shown();
            bed.sends(address, 80 + 8000 * (number % 2) as u16, &writes);
            let after = bed.shown();
            let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
            assert_eq!(
                (grown("responses_with_length"), grown("responses_without_length")),
                (known, unknown),
                "{what} over {address}"
            );
        }
    }
    let before = bed.shown();
    bed.sends("10.9.0.1", 81, &[response(10)]);
    let after = bed.shown();
    assert_eq!(after["responses_with_length"], before["responses_with_length"], "another port is not read");
    assert!(after["foreign_packets"].as_u64() > before["foreign_packets"].as_u64());
}

#[test]
fn ranks_follow_what_is_left() {
    let Some(bed) = Bed::new("ranks_follow_what_is_left") else { return };
    bed.does(&[&ATTACH[..], &["--cutoffs", "1000,100000"]].concat());
    let packets = |rank: usize| bed.shown()["ranks"][rank - 1]["packets"].as_u64().unwrap();
    bed.sends("10.9.0.1", 80, &[response(100)]);
    assert_eq!((packets(1), packets(2), packets(3)), (1, 0, 0));
    bed.sends("10.9.0.1", 80, &[response(1000)]);
    assert_eq!((packets(1), packets(2), packets(3)), (1, 1, 0));
    bed.sends("10.9.0.1", 80, &[response(200_000)]);
    assert!(packets(3) > 0);
    // Without a length: what has been sent.
    let before = (packets(1), packets(3));
    bed.sends("10.9.0.1", 80, &[vec![1; 200_000]]);
    assert!(packets(1) > before.0 && packets(3) > before.1);
}

#[test]
fn classes_go_before_each_other() {
    let Some(bed) = Bed::new("classes_go_before_each_other") else { return };
    bed.does(
        &[&ATTACH[..], &["--class", "gold:port=8080", "--class", "far:source=10.9.0.77", "--class", "rest"]].concat(),
    );
    let of_class = |class: u64| {
        let shown = bed.shown();
        let ranks = shown["ranks"].as_array().unwrap().iter().filter(|rank| rank["class"] == class);
        ranks.map(|rank| rank["packets"].as_u64().unwrap()).sum::<u64>()
    };
    bed.sends("10.9.0.1", 8080, &[response(10)]);
    assert_eq!((of_class(0), of_class(1), of_class(2)), (1, 0, 0));
    bed.sends("10.9.0.1", 80, &[response(10)]);
    bed.sends("fd09::1", 80, &[response(10)]);
    assert_eq!((of_class(0), of_class(1), of_class(2)), (1, 0, 2));
    let said = bed.refuses(&[&ATTACH[..], &["--class", "gold:port=9999"]].concat());
    assert!(said.contains("not among the ports"), "{said}");
}

#[test]
fn cutoffs_are_learned_from_sizes() {
    let Some(bed) = Bed::new("cutoffs_are_learned_from_sizes") else { return };
    bed.does(&ATTACH);
    assert!(bed.does(&["attach", DEVICE, "--relearn"]).contains("too few to learn from"));
    bed.sends("10.9.0.1", 80, &vec![response(3000); 150]);
    bed.sends("10.9.0.1", 80, &vec![response(20_000); 100]);
    let said = bed.does(&["attach", DEVICE, "--relearn"]);
    assert!(said.contains("new cutoffs, from 250 responses"), "{said}");
    let first = bed.shown()["ranks"][0]["less_than_bytes"].as_u64().unwrap();
    assert!((2_500..3_600).contains(&first), "{first}");
    assert!(bed.does(&["attach", DEVICE, "--relearn"]).contains("the cutoffs stay"));
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("serpent.prom");
    bed.does(&["attach", DEVICE, "--show", "--metrics-file", file.to_str().unwrap()]);
    let metrics = std::fs::read_to_string(file).unwrap();
    assert!(metrics.contains("serpent_attach_responses_total{device=\"va\",length=\"known\"} 250"), "{metrics}");
}

/// A kill at any moment leaves all or nothing: queues and classifier, or the state from before. `SERPENT_SEED` repeats
/// the moments of an earlier run.
#[test]
fn a_kill_leaves_all_or_nothing() {
    const KILLS: u32 = 20;
    let Some(bed) = Bed::new("a_kill_leaves_all_or_nothing") else { return };
    let given = std::env::var("SERPENT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    eprintln!("SERPENT_SEED={seed}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let replace = [&ATTACH[..], &["--replace"]].concat();
    let detach = ["detach", DEVICE];
    for (attach, foreign) in [
        (&ATTACH[..], None),
        (&replace[..], Some("qdisc add dev va root handle 1: tbf rate 5mbit burst 3000 limit 30000")),
    ] {
        if let Some(line) = foreign {
            bed.tc(&line.split(' ').collect::<Vec<_>>());
        }
        let without = bed.description();
        let start = Instant::now();
        bed.does(attach);
        let run = start.elapsed();
        let with = bed.description();
        let mut counts = [[0; 2]; 2];
        while counts.iter().any(|count| count.iter().sum::<u32>() < KILLS) {
            // The other command carries on from what a kill has left.
            let number = usize::from(bed.description() == without);
            let arguments = [&detach[..], attach][number];
            if counts[number].iter().sum::<u32>() == KILLS {
                bed.does(arguments);
                assert_eq!(bed.description(), *[&without, &with][number], "after a kill, seed {seed}");
                continue;
            }
            let after = run.mul_f64(1.2 * random());
            // `ip netns exec` becomes the program.
            let mut child = Command::new("ip")
                .args([&["netns", "exec", &bed.server, env!("CARGO_BIN_EXE_serpent")][..], arguments].concat())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(after);
            let _ = child.kill();
            child.wait().unwrap();
            let state = bed.description();
            let is_with = state == with;
            assert!(is_with || state == without, "after {after:?} of {arguments:?}, seed {seed}: {state}");
            if is_with {
                let filter = bed.tc(&["filter", "show", "dev", DEVICE, "parent", "5e7:"]);
                assert!(filter.contains("direct-action"), "queues without a classifier, seed {seed}: {filter}");
            }
            counts[number][usize::from(is_with)] += 1;
        }
        let [[detached, not_detached], [not_attached, attached]] = counts;
        eprintln!(
            "{KILLS} kills each within {:?}: detached {detached} times, not {not_detached}; attached {attached} times, not \
             {not_attached}",
            run.mul_f64(1.2)
        );
        if bed.description() == with {
            bed.does(&detach);
        }
        assert_eq!(bed.description(), without, "seed {seed}");
    }
}
