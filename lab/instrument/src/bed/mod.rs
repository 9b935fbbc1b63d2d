//! A server, its uplink and its clients on one machine, each in a network namespace of its own.
//!
//! ```text
//! server 10.77.0.1 ==bottleneck==> clients
//! server 10.77.0.1 --> router ==bottleneck==> clients
//! server 10.77.0.1 ==bottleneck==> path ~~distance~~> clients
//! server 10.77.0.1 --> router ==bottleneck==> path ~~distance~~> clients
//! ```
//!
//! Each group of clients has a whole /16 in the clients' namespace, 10.10.0.0/16 for the first, 10.11.0.0/16
//! for the second and so on. So tens of thousands of connections have enough ports. A path with distance,
//! loss or its own line lies behind the bottleneck; without any there is no such hop. Segmentation offload is
//! kept off the path, so that loss and queues act on packets and not on 64 KB at once. TCP's congestion
//! control is set on the routes, which changes nothing outside of the bed.

mod calibrate;
mod counters;
mod network;
mod prefix;
mod probe;
mod tools;
mod tune;
mod wan;

use std::net::Ipv4Addr;

use clap::ValueEnum;
use kernel::{initial_rto::InitialRto, netns::NetNs, tun::Tun};
use serde::{Deserialize, Serialize};
use workload::rate::Rate;

pub(crate) use self::counters::{TICK_US, parse, process_ticks};
pub use self::{
    calibrate::Calibration,
    counters::{Counters, Cpu, Qdisc},
    prefix::{MOST_GROUPS, SERVER},
    probe::PathCalibration,
    wan::{GroupCounters, LaneCounters, WanCounters, WanFacts},
};
use self::{
    counters::dropped_on_the_way_out,
    network::{DOWN, Namespaces, PREFIX, UP, join, remove_stale},
    prefix::LINKS,
    tools::{ip_batch, run, tc},
    wan::{Wan, netem},
};
use crate::{
    LabError,
    setting::{LinkSetting, PathSetting, ServerSetting},
};

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// On the server's own network device, as when a machine shapes its uplink.
    Server,
    /// On a router behind it, as when the modem is slower than the server's network.
    Router,
}

/// The emulator of distance and loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// The kernel's netem where it works and no path has jitter, else our own: under load, netem's jitter
    /// lengthens the delay.
    #[default]
    Auto,
    /// The kernel's netem, or an error.
    Netem,
    /// Our own: a thread between two TUN devices. Loss and jitter follow from the seed. Jitter keeps the
    /// order of each connection, and connections do not wait for each other.
    Own,
}

/// The configuration of a bed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct BedConfig {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Packets that the bottleneck's queue holds.
    pub queue_packets: u32,
    /// Where the bottleneck is.
    pub bottleneck: Bottleneck,
    /// Most segments in one packet of the stack: 1 is realistic, more saves processor time at high rates.
    pub gso_segments: u32,
    /// TCP congestion control of the server.
    pub congestion: String,
    /// Limits of the server's network stack.
    pub server: ServerSetting,
    /// The path to each group of clients; empty means one group without a path. At most [`MOST_GROUPS`].
    pub paths: Vec<PathSetting>,
    /// The emulator of these paths.
    pub emulation: Emulation,
    /// Seed of losses and delays, where the emulation is our own.
    pub seed: u64,
}

impl Default for BedConfig {
    fn default() -> Self {
        let link = LinkSetting::default();
        Self {
            rate: link.rate,
            queue_packets: link.queue_packets,
            bottleneck: link.bottleneck,
            gso_segments: 1,
            congestion: link.congestion,
            server: ServerSetting::default(),
            paths: Vec::new(),
            emulation: Emulation::default(),
            seed: 1,
        }
    }
}

impl BedConfig {
    /// Burst of the shaper in bytes: a packet, or a quarter of a millisecond at rates where timers would be
    /// too coarse.
    pub fn burst_bytes(&self) -> u64 {
        ((self.rate.bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20)
    }

    /// The path of each group, of which there is at least one.
    fn groups(&self) -> &[PathSetting] {
        const DIRECT: [PathSetting; 1] =
            [PathSetting { rtt_ms: 0.0, jitter_ms: 0.0, loss: 0.0, rate: None, queue_packets: None, mss_bytes: None }];
        if self.paths.is_empty() { const { &DIRECT } } else { &self.paths }
    }

    /// Returns an error for a configuration that is impossible on any machine.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.paths.len() > MOST_GROUPS {
            return Err(LabError::Request(format!(
                "{} groups of clients are too many: a bed holds {MOST_GROUPS}",
                self.paths.len()
            )));
        }
        if self.server.initial_rto_s.is_some_and(|seconds| !(0.05..=60.0).contains(&seconds)) {
            return Err(LabError::Request("a first retransmission time-out is between 0.05 and 60 s".to_owned()));
        }
        for (group, path) in self.paths.iter().enumerate() {
            let wrong = |what: &str| Err(LabError::Request(format!("the path of client group {group}: {what}")));
            const LONGEST_MS: f64 = 60_000.0;
            // NaN is in no range.
            if !(0.0..=LONGEST_MS).contains(&path.rtt_ms) || !(0.0..=LONGEST_MS).contains(&path.jitter_ms) {
                return wrong("round-trip time and jitter are between 0 and 60000 ms");
            }
            if !(0.0..1.0).contains(&path.loss) {
                return wrong("loss is a share from 0 to below 1");
            }
            if path.jitter_ms > path.rtt_ms / 4.0 {
                // All jitter is on the way to the clients, which takes half of the round trip.
                return wrong(
                    "a jitter over a quarter of the round-trip time would let packets arrive before they left",
                );
            }
            if path.mss_bytes.is_some_and(|mss| !(88..=1460).contains(&mss)) {
                return wrong("the largest segment has 88 to 1460 bytes");
            }
        }
        Ok(())
    }
}

/// The namespaces and the path between them. Dropping it removes them, with every process still in them.
#[derive(Debug)]
pub struct TestBed {
    config: BedConfig,
    /// Our own emulator, if there is a path and netem does not emulate it. It is before the namespaces, so
    /// that it is dropped first.
    wan: Option<Wan>,
    /// The emulator of the path, if there is one.
    emulation: Option<Emulation>,
    /// Keeps the configured first time-out in force.
    initial_rto: Vec<InitialRto>,
    /// The first is the server's, the last the clients'.
    namespaces: Namespaces,
    server: NetNs,
    client: NetNs,
}

impl TestBed {
    /// Makes the namespaces, the links and the path between them. [`TestBed::shape`] adds the bottleneck.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for an impossible configuration, [`LabError::Machine`] for a missing feature of
    /// this machine.
    pub fn build(mut config: BedConfig) -> Result<Self, LabError> {
        config.check()?;
        remove_stale();
        let emulation = emulation(&config, netem::works)?;
        if emulation == Some(Emulation::Netem) {
            // netem would drop several segments at once; a TUN device cuts them by itself.
            config.gso_segments = 1;
        }
        let mut roles = match config.bottleneck {
            Bottleneck::Server => vec!["server"],
            Bottleneck::Router => vec!["server", "router"],
        };
        if emulation.is_some() {
            roles.push("path");
        }
        roles.push("client");
        let names = roles.iter().map(|role| format!("{PREFIX}{}-{role}", std::process::id())).collect();
        // From here on, an early return removes the namespaces.
        let namespaces = Namespaces::new(names);
        let names = namespaces.names();
        for name in names {
            run("ip", &["netns", "add", name])?;
        }
        let (server, client) = (open(&names[0])?, open(&names[names.len() - 1])?);
        let mut wan = None;
        for (i, pair) in names.windows(2).enumerate() {
            if emulation == Some(Emulation::Own) && i + 2 == names.len() {
                let to_server = tun(&pair[0], DOWN)?;
                let to_clients = tun(&pair[1], UP)?;
                wan = Some(Wan::start(to_server, to_clients, config.groups(), config.seed)?);
            } else {
                join(&pair[0], &pair[1])?;
            }
        }
        let mut bed = Self { config, wan, emulation, initial_rto: Vec::new(), namespaces, server, client };
        bed.address()?;
        bed.tune()?;
        bed.initial_rto = bed.set_initial_rto()?;
        if emulation == Some(Emulation::Netem) {
            netem::set_up(&bed.names()[bed.names().len() - 2], bed.config.groups())?;
        }
        Ok(bed)
    }

    /// Sets the rate and the queue of the bottleneck.
    pub fn shape(&self) -> Result<(), LabError> {
        let (ns, dev) = self.bottleneck();
        tc(ns, &["qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "1"])?;
        self.shaper_class("add", self.config.rate)?;
        let limit = self.config.queue_packets.to_string();
        tc(ns, &["qdisc", "add", "dev", dev, "parent", "1:1", "handle", "10:", "pfifo", "limit", &limit])
    }

    /// Changes the rate that [`TestBed::shape`] set.
    pub fn set_rate(&self, rate: Rate) -> Result<(), LabError> {
        self.shaper_class("change", rate)
    }

    fn shaper_class(&self, verb: &str, rate: Rate) -> Result<(), LabError> {
        let (ns, dev) = self.bottleneck();
        let rate = format!("{}bit", rate.bits_per_second());
        let burst = self.config.burst_bytes().to_string();
        let shape = ["htb", "rate", &rate, "ceil", &rate, "burst", &burst, "cburst", &burst, "quantum", "1514"];
        let class = ["class", verb, "dev", dev, "parent", "1:", "classid", "1:1"];
        tc(ns, &[&class[..], &shape[..]].concat())
    }

    /// The configuration of the bed.
    pub fn config(&self) -> &BedConfig {
        &self.config
    }

    /// The server's namespace.
    pub fn server(&self) -> &NetNs {
        &self.server
    }

    /// The clients' namespace.
    pub fn client(&self) -> &NetNs {
        &self.client
    }

    /// Name and network device of the server.
    pub fn server_device(&self) -> (&str, &'static str) {
        (&self.names()[0], DOWN)
    }

    /// Number of client groups.
    pub fn groups(&self) -> usize {
        self.config.groups().len()
    }

    /// The /16 of a group's clients, as an address with zeros. The third octet is free for the caller; the
    /// highest, 255, is used by calibration.
    ///
    /// # Panics
    ///
    /// If the group does not exist.
    pub fn sources(&self, group: usize) -> Ipv4Addr {
        assert!(group < self.groups(), "client group {group} of {}", self.groups());
        prefix::of_group(group)
    }

    /// The emulator of the path; `None` without a path.
    pub fn emulation(&self) -> Option<Emulation> {
        self.emulation
    }

    /// Counters of our own emulator since the bed was built; `None` with netem or without a path.
    pub fn wan(&self) -> Result<Option<WanCounters>, LabError> {
        let Some(wan) = &self.wan else { return Ok(None) };
        let mut counters = wan.counters()?;
        let [.., before, clients] = self.names() else { return Ok(Some(counters)) };
        counters.unread = dropped_on_the_way_out(before, DOWN)? + dropped_on_the_way_out(clients, UP)?;
        Ok(Some(counters))
    }

    /// A note for judging measurements on this bed; `None` if there is nothing to report.
    pub fn note(&self) -> Option<String> {
        self.wan.as_ref()?.note()
    }

    fn names(&self) -> &[String] {
        self.namespaces.names()
    }

    /// Index of the namespace that holds the bottleneck.
    fn bottleneck_number(&self) -> usize {
        match self.config.bottleneck {
            Bottleneck::Server => 0,
            Bottleneck::Router => 1,
        }
    }

    /// Name of the namespace and of the device that hold the bottleneck.
    pub(crate) fn bottleneck(&self) -> (&str, &'static str) {
        (&self.names()[self.bottleneck_number()], DOWN)
    }

    /// The namespace right behind the bottleneck, where packets are visible before distance and loss.
    fn behind_bottleneck(&self) -> Result<NetNs, LabError> {
        open(&self.names()[self.bottleneck_number() + 1])
    }

    /// An address behind the bottleneck and before the path; the clients' own if there is no path.
    fn behind_bottleneck_address(&self) -> Ipv4Addr {
        match self.emulation {
            None => prefix::calibration_of_group(0),
            Some(_) => Ipv4Addr::new(10, LINKS, self.bottleneck_number() as u8, 2),
        }
    }

    /// Sets addresses and routes of the chain.
    fn address(&self) -> Result<(), LabError> {
        let last = self.names().len() - 1;
        // Our own path has no cable at its end, so no link addresses.
        let cables = if self.wan.is_some() { last - 1 } else { last };
        for (i, name) in self.names().iter().enumerate() {
            let mut commands = Vec::new();
            if i > 0 && i - 1 < cables {
                commands.push(format!("addr add 10.{LINKS}.{}.2/24 dev {UP}", i - 1));
            }
            if i < cables {
                commands.push(format!("addr add 10.{LINKS}.{i}.1/24 dev {DOWN}"));
            }
            let onward = if i < cables { format!("via 10.{LINKS}.{i}.2") } else { format!("dev {DOWN}") };
            let congestion = if i == 0 { format!("congctl {}", self.config.congestion) } else { String::new() };
            for group in 0..self.groups() {
                let prefix = prefix::of_group(group);
                commands.push(match i == last {
                    true => format!("route add local {prefix}/16 dev lo"),
                    false => format!("route add {prefix}/16 {onward} {congestion}"),
                });
            }
            if i == 0 && self.emulation.is_some() {
                // Calibration ends before the path, and must have the same congestion control.
                let to = self.behind_bottleneck_address();
                let via = if self.bottleneck_number() == 0 { format!("dev {DOWN}") } else { onward };
                commands.push(format!("route add {to}/32 {via} {congestion}"));
            }
            let homeward =
                if i > cables { format!("dev {UP}") } else { format!("via 10.{LINKS}.{}.1", i.saturating_sub(1)) };
            if i == last && self.emulation.is_some() {
                // A client that binds no address belongs to the first group.
                commands.push(format!("route add 10.{LINKS}.0.0/16 {homeward} src {}", prefix::first_of_group(0)));
                for (group, path) in self.config.groups().iter().enumerate() {
                    let Some(mss) = path.mss_bytes else { continue };
                    let table = MSS_TABLES + group;
                    commands.push(format!("route add 10.{LINKS}.0.0/16 {homeward} table {table} advmss {mss}"));
                    commands.push(format!("rule add from {}/16 lookup {table}", prefix::of_group(group)));
                }
            } else if i > 1 {
                commands.push(format!("route add 10.{LINKS}.0.0/24 {homeward}"));
            }
            commands.push(String::new());
            ip_batch(name, &commands.join("\n"))?;
        }
        Ok(())
    }
}

/// Routing tables of groups with smaller segments; arbitrary numbers that are unused in a new namespace.
const MSS_TABLES: usize = 1000;

/// Chooses the emulator, if a path is needed.
fn emulation(config: &BedConfig, netem_works: impl Fn() -> bool) -> Result<Option<Emulation>, LabError> {
    if config.paths.iter().all(PathSetting::is_none) {
        return Ok(None);
    }
    let is_jittery = config.paths.iter().any(|path| path.jitter_ms > 0.0);
    match config.emulation {
        Emulation::Own => Ok(Some(Emulation::Own)),
        Emulation::Auto => Ok(Some(if !is_jittery && netem_works() { Emulation::Netem } else { Emulation::Own })),
        Emulation::Netem if netem_works() => Ok(Some(Emulation::Netem)),
        Emulation::Netem => {
            let reason = "its kernel has no netem, or lacks HTB or u32 beside it; the emulation `own` needs none";
            Err(LabError::Machine(reason.to_owned()))
        }
    }
}

fn open(name: &str) -> Result<NetNs, LabError> {
    NetNs::open(name).map_err(LabError::io(format!("cannot open namespace {name}")))
}

/// Some ten seconds of full frames at 20 Mbit/s. A packet that finds this queue full makes the measurement
/// invalid.
const TUN_QUEUE_PACKETS: &str = "20000";

/// A TUN device in the namespace `ns`, set up.
fn tun(ns: &str, dev: &str) -> Result<Tun, LabError> {
    let made = {
        let _inside = open(ns)?.enter().map_err(LabError::io("cannot enter a namespace"))?;
        Tun::open(dev)
    };
    let made = made.map_err(|error| {
        LabError::Machine(format!("a path needs TUN devices ({error}): root and the kernel module `tun` provide them"))
    })?;
    // Queues that hold all packets until the emulator reads them: the device's own and the queueing
    // discipline. The host's default discipline might drop packets on purpose.
    run("ip", &["-n", ns, "link", "set", dev, "txqueuelen", TUN_QUEUE_PACKETS])?;
    tc(ns, &["qdisc", "add", "dev", dev, "root", "pfifo", "limit", TUN_QUEUE_PACKETS])?;
    run("ip", &["-n", ns, "link", "set", dev, "up"])?;
    run("ip", &["-n", ns, "link", "set", "lo", "up"])?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netem_makes_paths_where_it_works_but_jitter_only_if_asked_to() {
        let made_by = |wanted, jitter_ms, works| {
            let path = PathSetting { rtt_ms: 40.0, jitter_ms, ..PathSetting::default() };
            let config =
                BedConfig { paths: vec![PathSetting::default(), path], emulation: wanted, ..BedConfig::default() };
            emulation(&config, || works).ok().flatten()
        };
        assert_eq!(made_by(Emulation::Auto, 0.0, true), Some(Emulation::Netem));
        assert_eq!(made_by(Emulation::Auto, 0.0, false), Some(Emulation::Own));
        assert_eq!(made_by(Emulation::Auto, 5.0, true), Some(Emulation::Own));
        assert_eq!(made_by(Emulation::Netem, 5.0, true), Some(Emulation::Netem));
        assert_eq!(made_by(Emulation::Netem, 5.0, false), None);
        assert_eq!(emulation(&BedConfig::default(), || true).unwrap(), None);
    }
}
