//! A server, its uplink and its clients on one machine, each in a network namespace of its own.
//!
//! ```text
//! server 10.77.0.1 ==bottleneck==> client 10.77.0.2, 10.10.0.0/16
//! server 10.77.0.1 --> router ==bottleneck==> client 10.77.1.2, 10.10.0.0/16
//! ```
//!
//! The clients' namespace answers for all of 10.10.0.0/16, so that tens of thousands of connections have ports enough.
//! Segmentation offload is kept off the path: one coin, and one place in a queue, for each packet and not for 64 KB of them.
//! TCP's congestion control is set on the route, which needs no change outside the bed.

mod calibrate;
mod counters;
mod tools;

use std::net::Ipv4Addr;

use clap::ValueEnum;
use kernel::netns::NetNs;
use serde::{Deserialize, Serialize};
use workload::rate::Rate;

pub(crate) use self::counters::{TICK_US, parse, process_ticks};
use self::tools::{run, tc, write_sysctl};
pub use self::{
    calibrate::Calibration,
    counters::{Counters, Cpu, Qdisc},
};
use crate::LabError;

/// The server's address in every bed.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Where the bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// On the server's own network device, as when a machine shapes its uplink.
    Server,
    /// On a router behind it, as when the modem is slower than the server's network.
    Router,
}

/// What a bed is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
}

impl BedConfig {
    /// Bytes of burst of the shaper: a packet, or a quarter of a millisecond at rates where timers would be too coarse.
    pub fn burst_bytes(&self) -> u64 {
        ((self.rate.bytes_per_second() * 256e-6) as u64).clamp(1600, 1 << 20)
    }
}

/// The namespaces, removed when this is dropped, with every process that is still in them.
#[derive(Debug)]
pub struct Bed {
    config: BedConfig,
    /// Names of all namespaces; the first is the server's, the last the clients'.
    names: Vec<String>,
    server: NetNs,
    client: NetNs,
}

impl Bed {
    /// Makes the namespaces and the links between them. The bottleneck comes with [`Bed::shape`].
    pub fn build(config: BedConfig) -> Result<Self, LabError> {
        remove_stale();
        let roles: &[&str] = match config.bottleneck {
            Bottleneck::Server => &["server", "client"],
            Bottleneck::Router => &["server", "router", "client"],
        };
        let names: Vec<String> = roles.iter().map(|role| format!("{PREFIX}{}-{role}", std::process::id())).collect();
        // From here on, an early return removes what was made.
        let made = Namespaces(names);
        for name in &made.0 {
            run("ip", &["netns", "add", name])?;
        }
        for pair in made.0.windows(2) {
            join(&pair[0], &pair[1])?;
        }
        let open = |name: &str| NetNs::open(name).map_err(LabError::io(format!("cannot open namespace {name}")));
        let (server, client) = (open(&made.0[0])?, open(&made.0[made.0.len() - 1])?);
        let bed = Self { config, names: made.keep(), server, client };
        bed.address()?;
        bed.tune()?;
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
        (&self.names[0], DOWN)
    }

    /// Name of the namespace and of the device that hold the bottleneck.
    pub(crate) fn bottleneck(&self) -> (&str, &'static str) {
        (&self.names[self.names.len() - 2], DOWN)
    }

    /// Addresses and routes of the chain.
    fn address(&self) -> Result<(), LabError> {
        let last = self.names.len() - 1;
        for (i, pair) in self.names.windows(2).enumerate() {
            run("ip", &["-n", &pair[0], "addr", "add", &format!("10.77.{i}.1/24"), "dev", DOWN])?;
            run("ip", &["-n", &pair[1], "addr", "add", &format!("10.77.{i}.2/24"), "dev", UP])?;
        }
        for (i, name) in self.names.iter().enumerate() {
            if i < last {
                let via = format!("10.77.{i}.2");
                let mut route = vec!["-n", name, "route", "add", CLIENTS, "via", &via];
                if i == 0 {
                    route.extend(["congctl", &self.config.congestion]);
                }
                run("ip", &route)?;
            }
            if i > 1 {
                run("ip", &["-n", name, "route", "add", "10.77.0.0/24", "via", &format!("10.77.{}.1", i - 1)])?;
            }
        }
        run("ip", &["-n", &self.names[last], "route", "add", "local", CLIENTS, "dev", "lo"])
    }

    /// Settings of the namespaces' TCP, none of which reaches outside them.
    fn tune(&self) -> Result<(), LabError> {
        for name in &self.names {
            for dev in [DOWN, UP] {
                if name == &self.names[0] && dev == UP || Some(name) == self.names.last() && dev == DOWN {
                    continue;
                }
                let segments = self.config.gso_segments.to_string();
                run("ip", &["-n", name, "link", "set", "dev", dev, "gso_max_segs", &segments])?;
            }
        }
        // What calibration teaches TCP about the path must not reach the run.
        const BOTH: [(&str, &str); 2] =
            [("net/ipv4/tcp_no_metrics_save", "1"), ("net/ipv4/tcp_max_syn_backlog", "65536")];
        for ns in [&self.server, &self.client] {
            let _inside = ns.enter().map_err(LabError::io("cannot enter a namespace"))?;
            for (key, value) in BOTH {
                write_sysctl(key, value)?;
            }
            write_sysctl("net/core/somaxconn", "65536")?;
            write_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
        }
        if self.config.bottleneck == Bottleneck::Router {
            let router = NetNs::open(&self.names[1]).map_err(LabError::io("cannot open the router's namespace"))?;
            let _inside = router.enter().map_err(LabError::io("cannot enter a namespace"))?;
            write_sysctl("net/ipv4/ip_forward", "1")?;
        }
        Ok(())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        remove(&self.names);
    }
}

/// Each namespace's device towards the clients, and towards the server.
const DOWN: &str = "down0";
const UP: &str = "up0";
const CLIENTS: &str = "10.10.0.0/16";
const PREFIX: &str = "serpent-lab-";

/// Namespaces that are removed on drop unless kept.
struct Namespaces(Vec<String>);

impl Namespaces {
    fn keep(mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn join(server_side: &str, client_side: &str) -> Result<(), LabError> {
    run("ip", &["link", "add", DOWN, "netns", server_side, "type", "veth", "peer", "name", UP, "netns", client_side])?;
    for (ns, dev) in [(server_side, DOWN), (client_side, UP)] {
        run("ip", &["-n", ns, "link", "set", dev, "up"])?;
        run("ip", &["-n", ns, "link", "set", "lo", "up"])?;
    }
    Ok(())
}

/// Removes namespaces and what still runs in them. Errors are of no use: there is nothing else to try.
fn remove(names: &[String]) {
    for name in names {
        if let Ok(ns) = NetNs::open(name) {
            for pid in ns.processes().unwrap_or_default() {
                if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
        let _ = run("ip", &["netns", "del", name]);
    }
}

/// Removes the beds of processes that were killed before they could do it.
fn remove_stale() {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return };
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let stale = names.filter(|name| {
        let owner =
            name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse::<u32>().ok());
        owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    });
    remove(&stale.collect::<Vec<_>>());
}
