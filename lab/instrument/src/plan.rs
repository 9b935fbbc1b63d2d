//! Resolves the conditions of a cell for the bed, the clients and the requests. Impossible conditions are
//! refused here, with the reason, before anything runs.

mod alone;
mod demand;
mod group;
mod refuse;

use std::{borrow::Cow, time::Duration};

use workload::{
    demand::Demand,
    pattern::Pattern,
    rate::Link,
    sequence::{LoadMatch, Recipe, Request, Shares, assign_groups},
    sizes::FileSet,
    wire::WireModel,
};

pub use self::{
    alone::SingleRequests,
    demand::{Inputs, Work},
    group::Group,
    refuse::check_machine,
};
use self::{
    demand::{FILES, Source},
    group::groups,
};
use crate::{
    LabError,
    bed::{BedConfig, Emulation},
    replay::{Conditions, Log, Replay},
    setting::{Accounting, GroupSetting, LONGEST_S, LinkSetting, Setting},
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
    source: Source,
    setting: Setting,
}

/// From this rate on several segments share a packet of the stack, as the processor would otherwise be the
/// bottleneck.
const GSO_FROM_BITS_PER_SECOND: u64 = 50_000_000;
/// Time of a measurement beside sending: the bed, its calibration, single requests, the end.
const OVERHEAD_S: f64 = 6.0;

impl Plan {
    /// Resolves a setting. Logs and sites are read or made into `inputs`, or reused from there.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for an impossible measurement, [`LabError::Io`] for an unreadable file.
    pub fn new(setting: &Setting, inputs: &mut Inputs) -> Result<Self, LabError> {
        let LinkSetting { rate, queue_packets, bottleneck, gso_segments, ref congestion, ref uploads, .. } =
            setting.link;
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
                uploads: uploads.clone(),
                // Each measurement has its own seed.
                seed: 0,
            },
            duration,
            drain,
            source: Source::new(setting, &groups, inputs)?,
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

impl Plan {
    /// The demand under `seed`: the same at each call.
    pub fn work(&self, seed: u64) -> Result<Work, LabError> {
        let work = |sizes_bytes: &[u64], demand| Work { sizes_bytes: sizes_bytes.to_vec(), demand, notes: Vec::new() };
        Ok(match &self.source {
            Source::Open { files, pattern, shares } => {
                let requests = self.draw(files, pattern, shares, seed);
                work(files.sizes_bytes(), Demand::sequence(requests))
            }
            Source::Sessions { files, pattern, shares, law } => {
                let demand = Demand::sessions(&self.recipe(files, pattern), law, shares, seed);
                work(files.sizes_bytes(), demand)
            }
            Source::Users { site, users, shares } => {
                let until_ns = self.duration.as_nanos() as u64;
                work(site.sizes_bytes(), Demand::users(site, *users, shares, until_ns, seed))
            }
            Source::Trace { log, load } => {
                let Replay { sizes_bytes, requests, notes } = self.replay(log, *load, seed)?;
                Work { sizes_bytes, demand: Demand::sequence(requests), notes }
            }
        })
    }

    /// The requests of a seed, if they are fixed before the run; `None` if they wait for answers.
    pub fn requests(&self, seed: u64) -> Result<Option<Vec<Request>>, LabError> {
        match &self.source {
            Source::Open { files, pattern, shares } => Ok(Some(self.draw(files, pattern, shares, seed))),
            Source::Trace { log, load } => Ok(Some(self.replay(log, *load, seed)?.requests)),
            Source::Sessions { .. } | Source::Users { .. } => Ok(None),
        }
    }

    /// Sizes of the files to serve, by number. Those of a log hardly depend on the seed.
    ///
    /// # Errors
    /// A log has nothing to replay, or more files than can be served.
    pub(super) fn files(&self) -> Result<Cow<'_, [u64]>, LabError> {
        Ok(match &self.source {
            Source::Open { files, .. } | Source::Sessions { files, .. } => Cow::Borrowed(files.sizes_bytes()),
            Source::Users { site, .. } => Cow::Borrowed(site.sizes_bytes()),
            Source::Trace { log, load } => {
                let sizes_bytes = self.replay(log, *load, 1)?.sizes_bytes;
                if sizes_bytes.len() > *FILES.end() {
                    return Err(LabError::Request(format!(
                        "the requests of `{}` ask for {} files, and {} can be served: give a shorter `demand.window-s`, or a \
                         shorter `time.seconds`",
                        log.path().display(),
                        sizes_bytes.len(),
                        FILES.end()
                    )));
                }
                Cow::Owned(sizes_bytes)
            }
        })
    }

    fn draw(&self, files: &FileSet, pattern: &Pattern, shares: &Shares, seed: u64) -> Vec<Request> {
        let mut requests = self.recipe(files, pattern).draw(seed);
        assign_groups(&mut requests, shares, seed);
        requests
    }

    fn recipe<'a>(&'a self, files: &'a FileSet, pattern: &'a Pattern) -> Recipe<'a> {
        Recipe {
            files,
            link: &self.link,
            pattern,
            duration_ns: self.duration.as_nanos() as u64,
            wire: self.counted_wire(),
            load_match: self.load_match(),
        }
    }

    fn replay(&self, log: &Log, load: Option<f64>, seed: u64) -> Result<Replay, LabError> {
        let groups: Vec<GroupSetting> = self.groups.iter().map(|group| group.setting.clone()).collect();
        log.replay(&Conditions {
            load,
            link: &self.link,
            wire: self.counted_wire(),
            duration: self.duration,
            groups: &groups,
            seed,
        })
    }

    /// The cost of a request in loads.
    fn counted_wire(&self) -> WireModel {
        match self.setting.count.accounting {
            Accounting::Wire => self.wire,
            Accounting::Body => WireModel::BODY_ONLY,
        }
    }

    fn load_match(&self) -> LoadMatch {
        self.setting.count.load_match
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
