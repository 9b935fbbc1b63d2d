//! Namespaces and cables; dropping them removes them.

use kernel::netns::NetNs;

use super::tools::run;
use crate::LabError;

/// The devices of each namespace: towards the clients, and towards the server.
pub(super) const DOWN: &str = "down0";
pub(super) const UP: &str = "up0";
pub(super) const PREFIX: &str = "serpent-lab-";

/// Namespaces. Dropping this removes them, with every process still in them.
#[derive(Debug)]
pub(super) struct Namespaces(Vec<String>);

impl Namespaces {
    /// Names of future namespaces; the caller makes them.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Makes a cable between two namespaces, each with the name of its device, and sets up the devices.
pub(super) fn join(server_side: (&str, &str), client_side: (&str, &str)) -> Result<(), LabError> {
    let ((ns, dev), (peer_ns, peer)) = (server_side, client_side);
    run("ip", &["link", "add", dev, "netns", ns, "type", "veth", "peer", "name", peer, "netns", peer_ns])?;
    for (ns, dev) in [server_side, client_side] {
        run("ip", &["-n", ns, "link", "set", dev, "up"])?;
        run("ip", &["-n", ns, "link", "set", "lo", "up"])?;
    }
    Ok(())
}

/// Removes the beds of killed processes.
pub(super) fn remove_stale() {
    let Ok(names) = std::fs::read_dir("/run/netns") else { return };
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let stale = names.filter(|name| {
        let owner =
            name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse::<u32>().ok());
        owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    });
    remove(&stale.collect::<Vec<_>>());
}

/// Removes namespaces and the processes in them. Errors are ignored: there is no alternative to try.
fn remove(names: &[String]) {
    for name in names {
        let Ok(ns) = NetNs::open(name) else { continue };
        for pid in ns.processes().unwrap_or_default() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = run("ip", &["netns", "del", name]);
    }
}

/// Opens a namespace by its name.
pub(super) fn open(name: &str) -> Result<NetNs, LabError> {
    NetNs::open(name).map_err(LabError::io(format!("cannot open namespace {name}")))
}
