//! The demand of an experiment: files, and the requests of a seed.

use std::sync::Arc;

use workload::{
    demand::{Demand, SessionLaw},
    pattern::Pattern,
    sequence::Shares,
    sizes::{FileSet, HeavyTail},
    surge::{Site, Surge},
};

use super::group::Group;
use crate::{
    LabError,
    replay::{Log, LogFile},
    setting::{DemandSetting, Intensity, Setting, SizesSetting},
};

/// The demand under a seed.
#[derive(Debug)]
pub struct Work {
    /// Sizes of the files to serve, by number.
    pub sizes_bytes: Vec<u64>,
    /// The source of requests.
    pub demand: Demand,
    /// Notes for judging the measurement.
    pub notes: Vec<String>,
}

/// Logs and sites, shared by plans.
#[derive(Debug, Default)]
pub struct Inputs {
    logs: Vec<(LogKey, Arc<Log>)>,
    /// By number of files.
    sites: Vec<((Surge, usize), Arc<Site>)>,
}

/// The key of a log: its file, how to read it, and the groups that it may name.
type LogKey = (LogFile, Vec<String>);

/// The demand, under any seed.
#[derive(Debug)]
pub(super) enum Source {
    /// Requests at times fixed before the run.
    Open { files: FileSet, pattern: Pattern, shares: Shares },
    /// Sessions that begin independently, and wait for answers within.
    Sessions { files: FileSet, pattern: Pattern, shares: Shares, law: SessionLaw },
    /// Users that wait for answers.
    Users { site: Arc<Site>, users: u32, shares: Shares },
    /// A log.
    Trace { log: Arc<Log>, load: Option<f64> },
}

/// Fewest and most files. Most file systems handle more files in one folder badly.
pub(super) const FILES: std::ops::RangeInclusive<usize> = 1..=100_000;
/// A site is the same under all seeds, which decide the requests to it.
const SITE_SEED: u64 = 1;

impl Source {
    pub(super) fn new(setting: &Setting, groups: &[Group], inputs: &mut Inputs) -> Result<Self, LabError> {
        let shares: Vec<f64> = groups.iter().map(|group| group.setting.share).collect();
        let shares = Shares::new(&shares).map_err(|wrong| LabError::Request(format!("`groups`: {wrong}")))?;
        Ok(match &setting.demand {
            DemandSetting::Open { sizes, files, intensity } => {
                Self::Open { files: inputs.file_set(sizes, *files)?, pattern: pattern(intensity)?, shares }
            }
            DemandSetting::Sessions { sizes, files, requests_per_session, think_s, intensity } => Self::Sessions {
                files: inputs.file_set(sizes, *files)?,
                pattern: pattern(intensity)?,
                shares,
                law: SessionLaw::new(*requests_per_session, *think_s)
                    .map_err(|wrong| LabError::Request(format!("`demand`: {wrong}")))?,
            },
            DemandSetting::Users { users: 0, .. } => {
                return Err(LabError::Request("`demand.users` is 0: at least one user is needed".to_owned()));
            }
            DemandSetting::Users { users, files, surge } => {
                Self::Users { site: inputs.site(surge, *files)?, users: *users, shares }
            }
            DemandSetting::Trace { file, format, load, window_s, strict } => {
                let file = LogFile { path: file.clone(), format: format.clone(), window_s: *window_s, strict: *strict };
                let groups = groups.iter().map(|group| group.setting.name.clone()).collect();
                Self::Trace { log: inputs.log((file, groups))?, load: *load }
            }
        })
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Open { pattern, .. } | Self::Sessions { pattern, .. } => Some(pattern),
            Self::Users { .. } | Self::Trace { .. } => None,
        }
    }
}

impl Inputs {
    fn log(&mut self, key: LogKey) -> Result<Arc<Log>, LabError> {
        if let Some((_, log)) = self.logs.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(log));
        }
        let (file, groups) = &key;
        let log = Arc::new(Log::read(file, groups)?);
        self.logs.push((key, Arc::clone(&log)));
        Ok(log)
    }

    fn site(&mut self, surge: &Surge, files: usize) -> Result<Arc<Site>, LabError> {
        if let Some((_, site)) = self.sites.iter().find(|((law, count), _)| law == surge && *count == files) {
            return Ok(Arc::clone(site));
        }
        let site = Site::new(surge, files, SITE_SEED);
        let site = Arc::new(site.map_err(|wrong| LabError::Request(format!("`demand`: {wrong}")))?);
        self.sites.push(((surge.clone(), files), Arc::clone(&site)));
        Ok(site)
    }

    fn file_set(&mut self, sizes: &SizesSetting, files: usize) -> Result<FileSet, LabError> {
        if !FILES.contains(&files) {
            return Err(LabError::Request(format!(
                "`demand.files` is {files}: give {} to {}",
                FILES.start(),
                FILES.end()
            )));
        }
        Ok(match sizes {
            SizesSetting::WorldCup => FileSet::new(&HeavyTail::WORLD_CUP, files),
            SizesSetting::Nasa => FileSet::new(&HeavyTail::NASA, files),
            SizesSetting::Surge => self.site(&Surge::default(), files)?.file_set().clone(),
            SizesSetting::Fixed(bytes) => FileSet::fixed(*bytes),
            SizesSetting::HeavyTail { min_bytes, median_bytes, knee_bytes, body_share, alpha, max_bytes } => {
                let sizes = HeavyTail::new(*min_bytes, *median_bytes, *knee_bytes, *body_share, *alpha, *max_bytes);
                FileSet::new(
                    &sizes.map_err(|wrong| LabError::Request(format!("`demand.sizes.heavy-tail`: {wrong}")))?,
                    files,
                )
            }
        })
    }
}

fn pattern(intensity: &Intensity) -> Result<Pattern, LabError> {
    let not_positive =
        |key: &str, value: f64| LabError::Request(format!("`demand.{key}` is {value}: give a positive number"));
    match intensity {
        Intensity::Load(load) => Pattern::constant(*load).ok_or_else(|| not_positive("load", *load)),
        Intensity::RequestsPerSecond(rate) => {
            Pattern::requests_per_second(*rate).ok_or_else(|| not_positive("requests-per-second", *rate))
        }
        Intensity::Pattern(text) => match text.strip_prefix('@') {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(LabError::io(format!("`demand.pattern`: cannot read {file}")))?;
                let pattern = Pattern::parse_file(&text);
                pattern
                    .map(|pattern| pattern.with_name(file))
                    .map_err(|wrong| LabError::Request(format!("{file}: {wrong}")))
            }
            None => text.parse().map_err(|wrong| LabError::Request(format!("`demand.pattern`: {wrong}"))),
        },
    }
}
