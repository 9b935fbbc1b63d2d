//! A server, its uplink and its clients on one machine, each in a network namespace of its own.
//!
//! ```text
//! server 10.77.0.1 ==bottleneck==> clients
//! server 10.77.0.1 --> router ==bottleneck==> clients
//! server 10.77.0.1 ==bottleneck==> path ~~distance~~> clients
//! server 10.77.0.1 --> router ==bottleneck==> path ~~distance~~> clients
//! ```
//!
//! The clients' namespace answers for a whole /16 for each group of clients, 10.10.0.0/16 for the first, 10.11.0.0/16 for the
//! second and so on, so that tens of thousands of connections have ports enough. A path with distance, loss or a line of its
//! own lies behind the bottleneck; without any there is no such hop. Segmentation offload is kept off the path: one coin, and
//! one place in a queue, for each packet and not for 64 KB of them. TCP's congestion control is set on the routes, which needs
//! no change outside the bed.

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

/// Who makes distance and loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// The kernel's netem where it works and no path has jitter, else our own: under load, netem's jitter lengthens the delay.
    #[default]
    Auto,
    /// The kernel's netem, or nothing.
    Netem,
    /// Our own: a thread between two TUN devices. Loss and jitter follow from the seed, and jitter keeps the order of each
    /// connection but lets no connection wait for another.
    Own,
}

/// What a bed is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct BedConfig {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Packets that the bottleneck's queue holds.
    pub queue_packets: u32,
    /// Where the bottleneck is.
    pub bottleneck: Bottleneck,
    /// Most segments in one packet of the stack: 1 is the truth, more spares the CPU at high rates.
    pub gso_segments: u32,
    /// TCP congestion control of the server.
    pub congestion: String,
    /// Limits of the server's network stack.
    pub server: ServerSetting,
    /// The path to each group of clients; empty means one group without a path. At most [`MOST_GROUPS`].
    pub paths: Vec<PathSetting>,
    /// Who makes those paths.
    pub emulation: Emulation,
    /// What decides which packets are lost and how long each takes, where the emulation is our own.
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
    /// Bytes of burst of the shaper: a packet, or a quarter of a millisecond at rates where timers would be too coarse.
    pub fn burst_bytes(&self) -> u64 {
        ((self.rate.bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20)
    }

    /// The path of each group, of which there is at least one.
    fn groups(&self) -> &[PathSetting] {
        const DIRECT: [PathSetting; 1] =
            [PathSetting { rtt_ms: 0.0, jitter_ms: 0.0, loss: 0.0, rate: None, queue_packets: None, mss_bytes: None }];
        if self.paths.is_empty() { const { &DIRECT } } else { &self.paths }
    }

    /// Refuses a bed that cannot be, whatever the machine.
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
            // Not a number is in no range.
            if !(0.0..=LONGEST_MS).contains(&path.rtt_ms) || !(0.0..=LONGEST_MS).contains(&path.jitter_ms) {
                return wrong("round-trip time and jitter are between 0 and 60000 ms");
            }
            if !(0.0..1.0).contains(&path.loss) {
                return wrong("loss is a share from 0 to below 1");
            }
            if path.jitter_ms > path.rtt_ms / 4.0 {
                // It is all on the way to the clients, which takes half of the round trip.
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

/// The namespaces and the path between them; removed when this is dropped, with every process that is still in them.
#[derive(Debug)]
pub struct Bed {
    config: BedConfig,
    /// Our own emulator, if there is a path and it is not netem's. Before the namespaces, so that it goes first.
    wan: Option<Wan>,
    /// Who makes the path, if there is one.
    emulation: Option<Emulation>,
    /// What keeps the first time-out as it was set.
    initial_rto: Vec<InitialRto>,
    /// The first is the server's, the last the clients'.
    namespaces: Namespaces,
    server: NetNs,
    client: NetNs,
}

impl Bed {
    /// Makes the namespaces, the links and the path between them. The bottleneck comes with [`Bed::shape`].
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for a bed that cannot be, [`LabError::Machine`] for what this machine lacks.
    pub fn build(mut config: BedConfig) -> Result<Self, LabError> {
        config.check()?;
        remove_stale();
        let emulation = emulation(&config, netem::works)?;
        if emulation == Some(Emulation::Netem) {
            // netem would toss one coin for several segments; a TUN device cuts them by itself.
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
        // From here on, an early return removes what was made.
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

    /// Puts the rate and the queue on the bottleneck.
    pub fn shape(&self) -> Result<(), LabError> {
        let (ns, dev) = self.bottleneck();
        tc(ns, &["qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "1"])?;
        self.shaper_class("add", self.config.rate)?;
        let limit = self.config.queue_packets.to_string();
        tc(ns, &["qdisc", "add", "dev", dev, "parent", "1:1", "handle", "10:", "pfifo", "limit", &limit])
    }

    /// Changes the rate that [`Bed::shape`] set.
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

    /// What the bed was made to be.
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

    /// The /16 that the clients of a group have, as an address with zeros: the third octet is free for whoever connects. The
    /// highest, 255, is used by calibration.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub fn sources(&self, group: usize) -> Ipv4Addr {
        assert!(group < self.groups(), "client group {group} of {}", self.groups());
        prefix::of_group(group)
    }

    /// Who makes the path; `None` if there is none.
    pub fn emulation(&self) -> Option<Emulation> {
        self.emulation
    }

    /// What our own emulator has counted since the bed was built; `None` if the path is netem's or there is none.
    pub fn wan(&self) -> Result<Option<WanCounters>, LabError> {
        let Some(wan) = &self.wan else { return Ok(None) };
        let mut counters = wan.counters()?;
        let [.., before, clients] = self.names() else { return Ok(Some(counters)) };
        counters.unread = dropped_on_the_way_out(before, DOWN)? + dropped_on_the_way_out(clients, UP)?;
        Ok(Some(counters))
    }

    /// What must be known to judge measurements on this bed; nothing, if all is as it should be.
    pub fn note(&self) -> Option<String> {
        self.wan.as_ref()?.note()
    }

    fn names(&self) -> &[String] {
        self.namespaces.names()
    }

    /// Number of the namespace that holds the bottleneck.
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

    /// The namespace right behind the bottleneck, where what passed it can be seen before distance and loss.
    fn behind_bottleneck(&self) -> Result<NetNs, LabError> {
        open(&self.names()[self.bottleneck_number() + 1])
    }

    /// An address behind the bottleneck and before the path; of the clients themselves if there is no path.
    fn behind_bottleneck_address(&self) -> Ipv4Addr {
        match self.emulation {
            None => prefix::calibration_of_group(0),
            Some(_) => Ipv4Addr::new(10, LINKS, self.bottleneck_number() as u8, 2),
        }
    }

    /// Addresses and routes of the chain.
    fn address(&self) -> Result<(), LabError> {
        let last = self.names().len() - 1;
        // Our own path has no cable at its end, hence no addresses of a link.
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
                // Calibration ends before the path, and is to have the same congestion control.
                let to = self.behind_bottleneck_address();
                let via = if self.bottleneck_number() == 0 { format!("dev {DOWN}") } else { onward };
                commands.push(format!("route add {to}/32 {via} {congestion}"));
            }
            let homeward =
                if i > cables { format!("dev {UP}") } else { format!("via 10.{LINKS}.{}.1", i.saturating_sub(1)) };
            if i == last && self.emulation.is_some() {
                // Whoever binds no address is of the first group.
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

/// Routing tables of groups whose segments are smaller than others'; any numbers that nobody else uses in a new namespace.
const MSS_TABLES: usize = 1000;

/// Who is to make the path, if there is one to make.
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

/// Some ten seconds of full frames at 20 Mbit/s; a packet that finds this full makes the measurement invalid.
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
    // Queues that hold whatever comes before the emulator looks: the device's own, and the one before it, which would be what
    // the host has by default, and that may drop packets on purpose.
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
