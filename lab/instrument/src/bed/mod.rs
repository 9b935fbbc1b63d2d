//! A server, its uplink and its clients on one machine, each in a network namespace of its own.
//!
//! ```text
//! server 10.77.0.1 ==bottleneck==> clients
//! server 10.77.0.1 --> router ==bottleneck==> clients
//! server 10.77.0.1 ==bottleneck==> path ~~distance~~> clients
//! server 10.77.0.1 --> router ==bottleneck==> path ~~distance~~> clients
//! ```
//!
//! Another machine may upload through the router, as 10.77.200.1.
//!
//! Each group of clients has a whole /16 in the clients' namespace, 10.10.0.0/16 for the first, 10.11.0.0/16
//! for the second and so on. So tens of thousands of connections have enough ports. A path with distance,
//! loss or its own line lies behind the bottleneck; without any there is no such hop. Segmentation offload is
//! kept off the path, so that loss and queues act on packets and not on 64 KB at once. TCP's congestion
//! control is set on the routes, which changes nothing outside of the bed.

mod calibrate;
mod config;
mod counters;
mod network;
mod prefix;
mod probe;
mod test_bed;
mod tools;
mod tune;
mod uploads;
mod wan;

use kernel::tun::Tun;
use workload::rate::Rate;

pub(crate) use self::counters::{TICK_US, parse, process_ticks};
pub use self::{
    calibrate::Calibration,
    config::{BedConfig, Emulation},
    counters::{Counters, Cpu, Qdisc},
    prefix::{MOST_GROUPS, SERVER},
    probe::PathCalibration,
    test_bed::TestBed,
    wan::{GroupCounters, LaneCounters, WanCounters, WanFacts},
};
use self::{
    network::{DOWN, Namespaces, PREFIX, UP, join, open, remove_stale},
    prefix::LINKS,
    tools::{ip_batch, run, tc},
    uploads::OtherMachine,
    wan::{Wan, netem},
};
pub use crate::setting::Bottleneck;
use crate::{LabError, setting::PathSetting};

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
                join((&pair[0], DOWN), (&pair[1], UP))?;
            }
        }
        let router = (!config.uploads.is_empty()).then(|| &names[1]);
        let other = router.map(|router| OtherMachine::build(router, config.gso_segments)).transpose()?;
        let mut bed = Self { config, wan, emulation, initial_rto: Vec::new(), namespaces, server, client, other };
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
                commands.push(format!("route add 10.{LINKS}.0.0/16 {homeward}"));
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
