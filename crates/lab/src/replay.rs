//! A log of a web server as files to serve and requests to make.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    time::Duration,
};

use workload::{
    rate::Link,
    sequence::Request,
    trace::{
        Options, Reader, TraceError,
        replay::{Collected, Collector, Pace, Plan},
    },
    wire::WireModel,
};

use crate::{LabError, setting::GroupSetting};

/// The variable of the environment that names the folder of logs.
pub const TRACES: &str = "SERPENT_TRACES";

/// Bytes of a log read at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// A log, read once and replayed under as many conditions as wanted.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    collected: Collected,
    notes: Vec<String>,
}

/// What a log is replayed under.
#[derive(Clone, Debug)]
pub struct Conditions<'a> {
    /// Load to which the times are scaled; without it they are kept.
    pub load: Option<f64>,
    /// The uplink that it is a load of.
    pub link: &'a Link,
    /// What a request costs the uplink.
    pub wire: WireModel,
    /// How long requests are sent.
    pub duration: Duration,
    /// The groups that clients are dealt out to, by their shares.
    pub groups: &'a [GroupSetting],
    /// Seed of what the log does not tell: times within a second, and groups.
    pub seed: u64,
}

/// Files and requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Sizes of the files to serve, by their number.
    pub sizes_bytes: Vec<u64>,
    /// The requests, by time.
    pub requests: Vec<Request>,
    /// What a person should know of how they were made, a sentence each.
    pub notes: Vec<String>,
}

impl Log {
    /// Reads a log, in the format given or found (see [`workload::trace::Format`]). A relative path is looked for in the folder
    /// that the variable `SERPENT_TRACES` names, then here. The window is in seconds from the first record.
    ///
    /// # Errors
    /// If the file cannot be read, if it is no log or holds nothing that can be replayed; the message names it and says why.
    pub fn read(
        file: &Path,
        format: Option<&str>,
        window_s: Option<(f64, f64)>,
        groups: &[GroupSetting],
    ) -> Result<Self, LabError> {
        let path = find(file, std::env::var_os(TRACES).map(PathBuf::from))?;
        let fault = |text: String| LabError::Request(format!("the log `{}`: {text}", path.display()));
        let format = format
            .map(str::parse)
            .transpose()
            .map_err(|error: workload::trace::FormatError| fault(error.to_string()))?;
        let window_ns = window_s.map(window_ns).transpose().map_err(fault)?;

        let opening = || format!("cannot read the log `{}`", path.display());
        let input = BufReader::with_capacity(BUFFER_BYTES, File::open(&path).map_err(LabError::io(opening()))?);
        let failed = |error| match error {
            TraceError::Io(error) if error.raw_os_error().is_some() => LabError::io(opening())(error),
            other => fault(other.to_string()),
        };
        let mut reader = Reader::open(input, &Options { format, strict: false }).map_err(failed)?;
        let mut collector = Collector::new(window_ns, groups.iter().map(|group| group.name.clone()).collect());
        reader.read(|record| collector.add(record)).map_err(failed)?;
        let collected = collector.finish();

        let compression = reader.compression().name().map(|name| format!(", {name}")).unwrap_or_default();
        let mut notes = vec![format!(
            "{} ({}{compression}): {} records read",
            path.display(),
            reader.format(),
            reader.tally().records
        )];
        notes.extend(reader.tally().notes());
        notes.extend(collected.notes());
        Ok(Self { path, collected, notes })
    }

    /// Files and requests under these conditions; the same for the same seed.
    ///
    /// With a load, the first requests of the log that make this load over the duration are spread over it; without, those
    /// logged within the duration are made at their own times.
    ///
    /// # Errors
    /// If there is nothing to replay, or a load or share that is none.
    pub fn replay(&self, conditions: &Conditions<'_>) -> Result<Replay, LabError> {
        let Conditions { load, link, wire, duration, groups, seed } = conditions;
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let shares: Vec<f64> = groups.iter().map(|group| group.share).collect();
        let plan = Plan {
            pace: load.map_or(Pace::AsLogged, Pace::Load),
            link,
            wire: *wire,
            duration_ns: Some(duration_ns),
            shares: &shares,
            seed: *seed,
        };
        let replayed = self
            .collected
            .replay(&plan)
            .map_err(|error| LabError::Request(format!("the log `{}`: {error}", self.path.display())))?;

        let mut notes = self.notes.clone();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let count = replayed.requests.len();
        notes.push(format!(
            "{count} of its requests are made over {:.1} s, its times multiplied by {:.4}",
            seconds(replayed.span_ns),
            replayed.factor
        ));
        if count == self.collected.requests() && seconds(replayed.span_ns) < 0.99 * duration.as_secs_f64() {
            notes.push(format!(
                "the log is too short for {:.1} s: requests end after {:.1} s",
                duration.as_secs_f64(),
                seconds(replayed.span_ns)
            ));
        }
        Ok(Replay { sizes_bytes: self.collected.sizes_bytes().to_vec(), requests: replayed.requests, notes })
    }

    /// The file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Replay {
    /// Reads a log and replays it once: [`Log::read`], then [`Log::replay`].
    ///
    /// # Errors
    /// Those of both.
    pub fn read(
        file: &Path,
        format: Option<&str>,
        window_s: Option<(f64, f64)>,
        conditions: &Conditions<'_>,
    ) -> Result<Self, LabError> {
        Log::read(file, format, window_s, conditions.groups)?.replay(conditions)
    }
}

/// The file, in the folder of logs if it is there.
fn find(file: &Path, folder: Option<PathBuf>) -> Result<PathBuf, LabError> {
    let in_folder = folder.as_ref().map(|folder| folder.join(file));
    match in_folder.filter(|path| path.exists()) {
        Some(path) => Ok(path),
        None if file.exists() => Ok(file.to_owned()),
        None => Err(LabError::Request(match folder {
            _ if file.is_absolute() => format!("there is no log `{}`", file.display()),
            Some(folder) => format!(
                "there is no log `{}`, neither in `{}`, which {TRACES} names, nor here",
                file.display(),
                folder.display()
            ),
            None => format!(
                "there is no log `{}` here; logs elsewhere are found if {TRACES} names their folder",
                file.display()
            ),
        })),
    }
}

fn window_ns((from_s, until_s): (f64, f64)) -> Result<(u64, u64), String> {
    if from_s >= 0.0 && until_s > from_s {
        Ok(((from_s * 1e9) as u64, (until_s * 1e9) as u64))
    } else {
        Err(format!("a window from {from_s} s to {until_s} s is none: give two seconds from 0 on, the earlier first"))
    }
}
