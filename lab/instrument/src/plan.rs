//! Resolves the conditions of a cell for the bed, the clients and the requests. Impossible conditions are
//! refused here, with the reason, before anything runs.

mod alone;
mod demand;
mod refuse;

use std::time::Duration;

use workload::{behaviour::Behaviour, pattern::Pattern, rate::Link, wire::WireModel};

pub use self::{
    alone::SingleRequests,
    demand::{Inputs, Work},
    refuse::check_machine,
};
use crate::{
    LabError,
    bed::{BedConfig, Emulation},
    setting::{GroupSetting, LinkSetting, Setting},
};

/// The conditions of a measurement, resolved.
#[derive(Debug)]
pub struct Plan {
    /// The configuration of the bed, without its seed.
    pub bed: BedConfig,
    /// The uplink, with the changes of its rate.
    pub link: Link,
    /// The cost of a response on the link.
    pub wire: WireModel,
    /// Time over which requests are sent.
    pub duration: Duration,
    /// Time to wait for unfinished requests after that.
    pub drain: Duration,
    /// The groups of clients, at least one.
    pub groups: Vec<Group>,
    /// Total size of the files to serve, in bytes.
    bytes_to_serve: u64,
    /// The source of requests.
    source: demand::Source,
    setting: Setting,
}

/// A group of clients, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, share and path.
    pub setting: GroupSetting,
    /// The behaviour of its clients.
    pub behaviour: Behaviour,
}

/// From this rate on several segments share a packet of the stack, as the processor would otherwise be the
/// bottleneck.
const GSO_FROM_BITS_PER_SECOND: u64 = 50_000_000;
/// A day: longer runs would need another way of storing outcomes.
const LONGEST_S: f64 = 86_400.0;
/// Time of a measurement beside sending: the bed, its calibration, single requests, the end.
const OVERHEAD_S: f64 = 6.0;

impl Plan {
    /// Resolves a setting. Logs and sites are read or made into `inputs`, or reused from there.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for an impossible measurement, [`LabError::Io`] for an unreadable file.
    pub fn new(setting: &Setting, inputs: &mut Inputs) -> Result<Self, LabError> {
        let LinkSetting { rate, queue_packets, bottleneck, gso_segments, ref congestion, .. } = setting.link;
        let gso_default = if rate.bits_per_second() < GSO_FROM_BITS_PER_SECOND { 1 } else { 4 };
        let link = link(&setting.link)?;
        let wire = wire(setting);
        let groups = groups(setting);
        let time = &setting.time;
        let (duration, drain) = (seconds("time.seconds", time.seconds)?, seconds("time.drain-s", time.drain_s)?);
        if !(0.0..time.seconds).contains(&time.warm_up_s) {
            return Err(refused(format!(
                "`time.warm-up-s` is {}: it is part of the {} s over which requests are sent",
                time.warm_up_s, time.seconds
            )));
        }
        let mut plan = Self {
            bed: BedConfig {
                rate,
                queue_packets,
                bottleneck,
                gso_segments: gso_segments.unwrap_or(gso_default),
                congestion: congestion.clone(),
                server: setting.server.clone(),
                paths: groups.iter().map(|group| group.setting.path.clone()).collect(),
                emulation: Emulation::default(),
                // Each measurement has its own seed.
                seed: 0,
            },
            duration,
            drain,
            source: demand::Source::new(setting, &groups, inputs)?,
            groups,
            link,
            wire,
            bytes_to_serve: 0,
            setting: setting.clone(),
        };
        plan.bed.check()?;
        plan.bytes_to_serve = plan.files()?.iter().fold(0, |sum, &size| sum.saturating_add(size));
        Ok(plan)
    }

    /// The setting that was resolved.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The load over time, where requests have planned times.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.source.pattern()
    }
}

/// The uplink, with the changes of its rate.
pub fn link(setting: &LinkSetting) -> Result<Link, LabError> {
    setting.rate_changes.iter().try_fold(Link::constant(setting.rate), |link, &(at_s, rate)| {
        let at = seconds("link.rate-changes", at_s)?;
        link.then(at.as_nanos() as u64, rate)
            .ok_or_else(|| refused(format!("`link.rate-changes`: {at_s} s does not come after the change before it")))
    })
}

/// The cost of a response on the link. Where groups differ, it is that of the group with most requests; TLS
/// is not counted.
pub fn wire(setting: &Setting) -> WireModel {
    let most = setting.groups.iter().max_by(|a, b| a.share.total_cmp(&b.share));
    let behaviour = most.and_then(|group| group.clients.as_ref()).unwrap_or(&setting.clients);
    let per_connection = WireModel::PER_CONNECTION;
    let mss_bytes = most.and_then(|group| group.path.mss_bytes);
    WireModel {
        // The requests of a connection share its handshake.
        control_bytes: match behaviour.requests_per_connection {
            0 => WireModel::KEPT_ALIVE.control_bytes,
            requests => per_connection.control_bytes / u64::from(requests),
        },
        // Time stamps take 12 bytes of the clients' limit.
        segment_bytes: mss_bytes.map_or(per_connection.segment_bytes, |mss| u64::from(mss).saturating_sub(12).max(1)),
        ..per_connection
    }
}

/// Estimated duration of a measurement under this setting, in seconds.
pub fn estimated_s(setting: &Setting) -> f64 {
    let alone_s = setting.groups.iter().map(|group| group.path.rtt_ms).fold(0.0, f64::max) / 1e3 * 40.0;
    OVERHEAD_S + alone_s + setting.time.seconds
}

fn groups(setting: &Setting) -> Vec<Group> {
    let one = [GroupSetting::default()];
    let groups = if setting.groups.is_empty() { &one[..] } else { &setting.groups };
    let resolve = |group: &GroupSetting| Group {
        behaviour: group.clients.clone().unwrap_or_else(|| setting.clients.clone()),
        setting: group.clone(),
    };
    groups.iter().map(resolve).collect()
}

fn seconds(key: &str, seconds: f64) -> Result<Duration, LabError> {
    if seconds > 0.0 && seconds <= LONGEST_S {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(refused(format!("`{key}` is {seconds}: give seconds above 0 and up to {LONGEST_S} (a day)")))
}

fn refused(text: String) -> LabError {
    LabError::Request(text)
}

#[cfg(test)]
mod tests;
