//! Whether the queue is on the device, or behind it.

use std::process::Command;

use crate::{
    Bed, DEVICE, ok,
    support::{Nginx, Process, connect, has},
};

/// A client behind a router, whose link to the client is narrower than the server's. Downloads that fill it go on until the
/// result is dropped.
struct Narrow {
    router: String,
    downloads: Vec<Process>,
    _nginx: Nginx,
}

impl Narrow {
    /// Eight large downloads through a link of 20 Mbit/s, with a queue of 100 ms.
    fn new(bed: &Bed) -> Self {
        let router = format!("{}-r", bed.client);
        ok("ip", &["netns", "add", &router]);
        let ip = |namespace: &str, line: &str| {
            ok("ip", &[&["-n", namespace][..], &line.split(' ').collect::<Vec<_>>()].concat())
        };
        // The cable of the bed leads to the router now.
        ip(&bed.client, &format!("link set vb netns {router}"));
        ip(&router, &format!("link add vc type veth peer name vd netns {}", bed.client));
        for (namespace, device, address) in
            [(&router, "vb", "10.9.0.2/24"), (&router, "vc", "10.8.0.1/24"), (&bed.client, "vd", "10.8.0.2/24")]
        {
            ip(namespace, &format!("addr add {address} dev {device}"));
            ip(namespace, &format!("link set {device} up"));
        }
        ip(&bed.client, "route add default via 10.8.0.1");
        ip(&bed.server, "route add 10.8.0.0/24 via 10.9.0.2 congctl cubic");
        ok("ip", &["netns", "exec", &router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
        let tbf = "qdisc add dev vc root tbf rate 20mbit burst 5000 limit 250000";
        ok("ip", &[&["netns", "exec", &router, "tc"][..], &tbf.split(' ').collect::<Vec<_>>()].concat());
        let nginx = Nginx::start(&bed.server, &[200_000_000]);
        drop(connect(&bed.client, "10.9.0.1:80"));
        let download = |_| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--output", "/dev/null", "http://10.9.0.1/200000000"]);
            Process::start(&bed.client, &mut curl)
        };
        Self { router, downloads: (0..8).map(download).collect(), _nginx: nginx }
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.router]).output();
    }
}

#[test]
fn the_verdict_tells_a_queue_here_from_one_behind_a_narrower_link() {
    let test = "the_verdict_tells_a_queue_here_from_one_behind_a_narrower_link";
    if !has(test, "nginx") || !has(test, "curl") {
        return;
    }
    let Some(bed) = Bed::new(test) else { return };
    bed.does(&["attach", DEVICE, "--rate", "200mbit", "--ports", "80"]);
    assert_eq!(bed.shown()["verdict"], "no-traffic");
    let mut narrow = Narrow::new(&bed);
    // The rate is far too high: the device is busy, and its queue is empty. Once the downloads have left their slow start,
    // no more leaves than the narrower link carries, and what fills its queue in a quarter of a second: 8 Mbit/s.
    let shown = bed.shows_verdict_and("queue-is-elsewhere", |observed| {
        (10_000_000..30_000_000).contains(&observed["sent_bits_per_second"].as_u64().unwrap())
    });
    let observed = &shown["observed"];
    let number = |name: &str| observed[name].as_u64().unwrap();
    assert!(number("round_trip_us") > number("shortest_round_trip_us") + 5_000, "{observed:#}");
    assert!(bed.does(&["attach", DEVICE, "--show"]).contains("Give a lower rate."));
    // A rate below the narrower link's brings the queue here.
    bed.does(&["attach", DEVICE, "--rate", "10mbit", "--ports", "80"]);
    let shown = bed.shows_verdict("queue-is-here");
    let waiting: u64 =
        shown["bands"].as_array().unwrap().iter().map(|it| it["waiting_packets"].as_u64().unwrap()).sum();
    let bytes: u64 = shown["bands"].as_array().unwrap().iter().map(|it| it["waiting_bytes"].as_u64().unwrap()).sum();
    assert!(waiting > 0 && bytes >= 60 * waiting, "{shown:#}");
    // Without downloads nothing waits.
    narrow.downloads.clear();
    bed.shows_verdict("no-queue");
}
