//! The rate to which the kernel holds the server's own device is the rate of the uplink, without being told and without
//! privileges, and it is followed.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use super::support::{Serpent, site, tool};

/// Two network namespaces, the server's and a client's. The server's device `uplink` leads to the client and to everybody
/// else, its device `lan` to the client alone.
struct Bed {
    server: String,
    client: String,
}

impl Bed {
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "in CI the tests run as root");
            eprintln!("SKIPPED: needs root");
            return None;
        }
        for program in ["ip", "tc", "nsenter", "setpriv", "curl"] {
            tool(program)?;
        }
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let bed = Self { server: format!("serpent-ls{unique}"), client: format!("serpent-lc{unique}") };
        for namespace in [&bed.server, &bed.client] {
            bed.ip(&["netns", "add", namespace]);
        }
        bed.ip(&["-n", &bed.server, "link", "set", "lo", "up"]);
        for (device, network) in [("uplink", "10.0.1"), ("lan", "10.0.2")] {
            let pair = ["link", "add", device, "type", "veth", "peer", "name", device, "netns", &bed.client];
            bed.ip(&[&["-n", &bed.server][..], &pair].concat());
            for (namespace, number) in [(&bed.server, 1), (&bed.client, 2)] {
                bed.ip(&["-n", namespace, "address", "add", &format!("{network}.{number}/24"), "dev", device]);
                bed.ip(&["-n", namespace, "link", "set", device, "up"]);
            }
        }
        bed.ip(&["-n", &bed.server, "route", "add", "default", "via", "10.0.1.2"]);
        Some(bed)
    }

    fn ip(&self, words: &[&str]) {
        run(tool("ip").unwrap().args(words));
    }

    fn tc(&self, words: &str) {
        run(tool("tc").unwrap().args(["-n", &self.server]).args(words.split(' ')));
    }

    /// A server of this folder that finds its rate, without any privilege.
    fn serve(&self, www: &Path) -> Serpent {
        let mut command = inside(&self.server, "setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_serpent"), "serve"]).arg(www);
        command.args(["--listen", "0.0.0.0:8080", "--admin", "127.0.0.1:8081", "--log", "info"]);
        Serpent::start_command(command)
    }

    /// The rate that the server paces at, and that of its device, in bits per second.
    fn rates(&self) -> (f64, Option<f64>) {
        let metrics = curl(&self.server, "http://127.0.0.1:8081/metrics");
        let of = |name: &str| {
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.map(|value| value.parse().unwrap())
        };
        let paced_at = of("serpent_uplink_rate_bits_per_second").unwrap_or_else(|| panic!("no rate in {metrics}"));
        (paced_at, of("serpent_uplink_device_rate_bits_per_second"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

fn inside(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
    command
}

fn curl(namespace: &str, url: &str) -> String {
    run(inside(namespace, "curl").args(["--silent", "--fail", "--max-time", "60", url]))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_that_finds_its_rate_takes_that_of_its_device_and_follows_it() {
    let Some(bed) = Bed::new() else { return };
    let site = site();
    bed.tc("qdisc add dev uplink root tbf rate 10mbit burst 10kb limit 100kb");
    let server = bed.serve(&site.path().join("www"));
    // What is said is said afterwards.
    let follows = |kind: &str, rate: &str, bits: f64| {
        let said = server.wait_for_stderr(&format!("device=\"uplink\" kind=\"{kind}\" rate={rate}"));
        assert!(!said.contains("20mbit"), "{said}");
        let (paced_at, device) = bed.rates();
        assert!((paced_at / bits - 0.995).abs() < 0.001, "{paced_at} where {kind} has {bits}");
        assert!((device.unwrap() / bits - 1.0).abs() < 1e-6, "{device:?} where {kind} has {bits}");
    };
    follows("tbf", "10mbit", 10e6);
    bed.tc("qdisc change dev uplink root tbf rate 5mbit burst 10kb limit 100kb");
    follows("tbf", "5mbit", 5e6);
    // 1514 bytes of a frame count as 1538.
    bed.tc("qdisc replace dev uplink root tbf rate 15.38mbit overhead 24 burst 10kb limit 100kb");
    follows("tbf", "15.140mbit", 15.14e6);

    bed.tc("qdisc del dev uplink root");
    server.wait_for_stderr("no longer holds");
    // Packets of no class pass beside this one, so nothing is known.
    bed.tc("qdisc add dev uplink root handle 1: htb");
    bed.tc("class add dev uplink parent 1: classid 1:1 htb rate 20mbit quantum 1514");
    bed.tc("qdisc del dev uplink root");
    bed.tc("qdisc add dev uplink root handle 1: htb default 3");
    bed.tc("class add dev uplink parent 1: classid 1:1 htb rate 40mbit quantum 1514");
    bed.tc("class add dev uplink parent 1:1 classid 1:2 htb rate 1mbit ceil 40mbit quantum 1514");
    bed.tc("class add dev uplink parent 1:1 classid 1:3 htb rate 8mbit ceil 40mbit quantum 1514");
    follows("htb", "40mbit", 40e6);
    // Two classes of different rates: which of them the packets take is not known.
    bed.tc("class change dev uplink parent 1:1 classid 1:2 htb rate 1mbit ceil 30mbit quantum 1514");
    server.wait_for_stderr("no longer holds");
    bed.tc("class del dev uplink classid 1:2");
    follows("htb", "40mbit", 40e6);
    // Faster than 4 Gbit/s: that does not fit in 32 bits.
    for class in ["parent 1: classid 1:1 htb rate 36gbit", "parent 1:1 classid 1:3 htb rate 36gbit"] {
        bed.tc(&format!("class change dev uplink {class} quantum 1514"));
    }
    follows("htb", "36gbit", 36e9);
}

#[test]
fn the_limit_of_the_device_does_not_count_where_clients_come_through_another_one() {
    let Some(bed) = Bed::new() else { return };
    let site = site();
    bed.tc("qdisc add dev uplink root tbf rate 10mbit burst 10kb limit 100kb");
    let server = bed.serve(&site.path().join("www"));
    server.wait_for_stderr("rate=10mbit");
    curl(&bed.client, "http://10.0.1.1:8080/hello.txt");
    // Time for a look at that client: the next change is told after it.
    bed.tc("qdisc change dev uplink root tbf rate 9mbit burst 10kb limit 100kb");
    server.wait_for_stderr("rate=9mbit");
    curl(&bed.client, "http://10.0.2.1:8080/hello.txt");
    server.wait_for_stderr("through another device");
    assert_eq!(bed.rates().1, None);
}
