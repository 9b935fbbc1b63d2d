//! The parts of a bed: its namespaces, the emulator between them, and their addresses.

use std::{net::Ipv4Addr, sync::atomic::AtomicBool, time::Instant};

use kernel::{initial_rto::InitialRto, netns::NetNs};

use super::{
    config::{BedConfig, Emulation},
    counters::{Qdisc, dropped_on_the_way_out, parse_qdisc},
    network::{DOWN, Namespaces, UP, open},
    prefix::{self, LINKS},
    tools::output,
    uploads::OtherMachine,
    wan::{Wan, WanCounters},
};
use crate::{
    LabError,
    setting::{Bottleneck, UploadSetting},
};

/// The namespaces and the path between them. Dropping it removes them, with every process still in them.
#[derive(Debug)]
pub struct TestBed {
    pub(super) config: BedConfig,
    /// Our own emulator, if there is a path and netem does not emulate it. It is before the namespaces, so
    /// that it is dropped first.
    pub(super) wan: Option<Wan>,
    /// The emulator of the path, if there is one.
    pub(super) emulation: Option<Emulation>,
    /// Keeps the configured first time-out in force.
    pub(super) initial_rto: Vec<InitialRto>,
    /// The first is the server's, the last the clients'.
    pub(super) namespaces: Namespaces,
    pub(super) server: NetNs,
    pub(super) client: NetNs,
    /// Another machine behind the router, if there are uploads.
    pub(super) other: Option<OtherMachine>,
}

impl TestBed {
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

    /// Uploads from the other machine to a client of the first group, and returns how many bytes came. The times of the
    /// setting count from `start`. The upload ends early once `is_over` is set. Blocks until it has ended.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] if the configuration has no uploads, so that there is no such machine.
    /// [`LabError::TestBed`] if a stream cannot be connected, or breaks.
    pub fn upload(&self, upload: &UploadSetting, start: Instant, is_over: &AtomicBool) -> Result<u64, LabError> {
        let other = self.other.as_ref().ok_or_else(|| LabError::Request("this bed has no uploads".to_owned()))?;
        other.upload(&self.client, upload, start, is_over)
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

    pub(super) fn names(&self) -> &[String] {
        self.namespaces.names()
    }

    /// Index of the namespace that holds the bottleneck.
    pub(super) fn bottleneck_number(&self) -> usize {
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
    pub(super) fn behind_bottleneck(&self) -> Result<NetNs, LabError> {
        open(&self.names()[self.bottleneck_number() + 1])
    }

    /// An address behind the bottleneck and before the path; the clients' own if there is no path.
    pub(super) fn behind_bottleneck_address(&self) -> Ipv4Addr {
        match self.emulation {
            None => prefix::calibration_of_group(0),
            Some(_) => Ipv4Addr::new(10, LINKS, self.bottleneck_number() as u8, 2),
        }
    }

    /// Counters of the bottleneck, for any kind of bottleneck.
    pub fn qdisc(&self) -> Result<Qdisc, LabError> {
        let (ns, dev) = self.bottleneck();
        parse_qdisc(&output("tc", &["-n", ns, "-s", "-j", "qdisc", "show", "dev", dev, "root"])?)
    }
}
