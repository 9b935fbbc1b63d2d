//! The same paths by the kernel's own `netem`, where it exists: a class with netem for each group of clients.
//!
//! Everything is on the path's two devices, never on a sender's. netem draws its own numbers: loss and jitter
//! follow the settings, but the affected packets cannot be reproduced.
//!
//! Jitter needs a rate, without which packets of one connection overtake each other. With a rate, netem lets
//! no packet of its class leave before an earlier one of any connection. The delay becomes the largest of all
//! draws still under way, and grows with the number of packets. So
//! [`Emulation::Auto`](crate::bed::Emulation::Auto) uses our own emulator for paths with jitter, which only
//! keeps the order within each connection.

use std::fmt::Write as _;

use super::super::{
    network::{DOWN, Namespaces, PREFIX, UP, join},
    prefix,
    tools::{run, tc, tc_batch},
};
use crate::{LabError, setting::PathSetting};

/// Whether this kernel supports [`commands`], found by trying it between two temporary namespaces.
pub(in crate::bed) fn works() -> bool {
    let name = |role| format!("{PREFIX}{}-try-{role}", std::process::id());
    let tried = Namespaces::new([name("a"), name("b")].to_vec());
    let [a, b] = tried.names() else { return false };
    let path = PathSetting { rtt_ms: 2.0, jitter_ms: 0.1, loss: 0.01, ..PathSetting::default() };
    let attempt = || -> Result<(), LabError> {
        run("ip", &["netns", "add", a])?;
        run("ip", &["netns", "add", b])?;
        join((a, DOWN), (b, UP))?;
        tc(a, &["qdisc", "add", "dev", DOWN, "root", "netem", "delay", "1ms"])?;
        tc(a, &["qdisc", "del", "dev", DOWN, "root"])?;
        tc_batch(a, &commands_for(DOWN, "dst", &[path], netem_to_clients))
    };
    attempt().is_ok()
}

/// Sets up the paths on the devices of the namespace `ns`.
pub(in crate::bed) fn set_up(ns: &str, paths: &[PathSetting]) -> Result<(), LabError> {
    tc_batch(ns, &commands_for(DOWN, "dst", paths, netem_to_clients))?;
    tc_batch(ns, &commands_for(UP, "src", paths, netem_to_server))
}

/// Commands for `tc -batch`: the treatment of packets whose `end` (`src` or `dst`) is in a group's prefix.
/// Others pass.
fn commands_for(dev: &str, end: &str, paths: &[PathSetting], netem: fn(&PathSetting) -> String) -> String {
    let mut lines = format!("qdisc add dev {dev} root handle 1: htb default ffff\n");
    for (group, path) in paths.iter().enumerate() {
        let (class, prefix) = (group + 1, prefix::of_group(group));
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "class add dev {dev} parent 1: classid 1:{class:x} htb rate 10gbit quantum 1514");
        let _ = writeln!(lines, "qdisc add dev {dev} parent 1:{class:x} {}", netem(path));
        let _ = writeln!(
            lines,
            "filter add dev {dev} parent 1: protocol ip prio 1 u32 match ip {end} {prefix}/16 flowid 1:{class:x}"
        );
    }
    lines
}

/// Most packets under way without another bound; netem's own 1000 are too few for a long fast path.
const LIMIT_PACKETS: u32 = 50_000;

fn netem_to_clients(path: &PathSetting) -> String {
    let limit = match path.rate {
        None => LIMIT_PACKETS,
        // Travelling packets count in netem's limit, so they are added to the waiting ones.
        Some(rate) => path.line_queue_packets() + (rate.bytes_per_second() * path.rtt_ms / 2e3 / 1514.0).ceil() as u32,
    };
    let mut netem = format!("netem limit {limit} delay {:.3}ms", path.rtt_ms / 2.0);
    if path.jitter_ms > 0.0 {
        let _ = write!(netem, " {:.3}ms distribution normal", path.jitter_ms);
    }
    if path.loss > 0.0 {
        let _ = write!(netem, " loss random {:.4}%", path.loss * 100.0);
    }
    match path.rate {
        Some(rate) => {
            let _ = write!(netem, " rate {rate}");
        }
        // Jitter alone would let packets overtake each other.
        None if path.jitter_ms > 0.0 => netem += " rate 10gbit",
        None => {}
    }
    netem
}

fn netem_to_server(path: &PathSetting) -> String {
    format!("netem limit {LIMIT_PACKETS} delay {:.3}ms", path.rtt_ms / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_to_netem_as_it_is() {
        let path = PathSetting { rtt_ms: 350.0, jitter_ms: 20.0, loss: 0.15, ..PathSetting::default() };
        assert_eq!(
            netem_to_clients(&path),
            "netem limit 50000 delay 175.000ms 20.000ms distribution normal loss random 15.0000% rate 10gbit"
        );
        assert_eq!(netem_to_server(&path), "netem limit 50000 delay 175.000ms");
        let line = PathSetting { rtt_ms: 40.0, rate: "1514kbit".parse().ok(), ..PathSetting::default() };
        // 20 ms at 1514 kbit/s are two and a half full frames.
        assert_eq!(netem_to_clients(&line), "netem limit 103 delay 20.000ms rate 1514kbit");
    }

    #[test]
    fn each_group_has_a_class_and_a_filter() {
        let lines = commands_for("up0", "src", &[PathSetting::default(), PathSetting::default()], netem_to_server);
        assert_eq!(lines.lines().count(), 1 + 2 * 3);
        assert!(lines.contains("match ip src 10.11.0.0/16 flowid 1:2\n"), "{lines}");
    }
}
