//! Turns a web server's log into files to serve and requests to make.

use std::{
    collections::HashMap,
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

/// A log, read once and replayed under any number of conditions.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    collected: Collected,
    notes: Vec<String>,
}

/// A log file, and how to read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogFile {
    /// The file. A relative path is searched in the folder of the variable `SERPENT_TRACES`, then in the
    /// current one.
    pub path: PathBuf,
    /// Its format; detected if not given (see [`workload::trace::Format`]).
    pub format: Option<String>,
    /// Begin and end, in seconds from the first record.
    pub window_s: Option<(f64, f64)>,
    /// Whether an unreadable line makes the log invalid.
    pub strict: bool,
}

/// The conditions of a replay.
#[derive(Clone, Debug)]
pub struct Conditions<'a> {
    /// Load to which the times are scaled; `None` keeps the times.
    pub load: Option<f64>,
    /// The uplink to which the load refers.
    pub link: &'a Link,
    /// The cost of a request on the uplink.
    pub wire: WireModel,
    /// Time over which requests are sent.
    pub duration: Duration,
    /// The groups to divide the clients among, by their shares.
    pub groups: &'a [GroupSetting],
    /// Seed of data that the log lacks: times within a second, and groups.
    pub seed: u64,
}

/// The files and requests of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Sizes of the files to serve, by their number.
    pub sizes_bytes: Vec<u64>,
    /// The requests, by time.
    pub requests: Vec<Request>,
    /// Notes for the user on how they were made, a sentence each.
    pub notes: Vec<String>,
}

impl Log {
    /// Reads a log. `groups` are the names of the groups that its records may name.
    ///
    /// # Errors
    /// The file is unreadable, no log, or has nothing to replay; the message names it and gives the reason.
    pub fn read(file: &LogFile, groups: &[String]) -> Result<Self, LabError> {
        let path = find(&file.path, std::env::var_os(TRACES).map(PathBuf::from))?;
        let fault = |text: String| LabError::Request(format!("the log `{}`: {text}", path.display()));
        let format = file
            .format
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|error: workload::trace::FormatError| fault(error.to_string()))?;
        let window_ns = file.window_s.map(window_ns).transpose().map_err(fault)?;

        let opening = || format!("cannot read the log `{}`", path.display());
        let input = BufReader::with_capacity(BUFFER_BYTES, File::open(&path).map_err(LabError::io(opening()))?);
        let failed = |error| match error {
            TraceError::Io(error) if error.raw_os_error().is_some() => LabError::io(opening())(error),
            other => fault(other.to_string()),
        };
        let mut reader = Reader::open(input, &Options { format, strict: file.strict }).map_err(failed)?;
        let mut collector = Collector::new(window_ns, groups.to_vec());
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
        if reader.tally().stopped {
            notes.push("the log goes on behind the window and was not read to its end".to_owned());
        }
        notes.extend(collected.notes());
        Ok(Self { path, collected, notes })
    }

    /// Files and requests under these conditions; the same for the same seed.
    ///
    /// With a load, the first requests of the log with this load over the duration are spread over it.
    /// Without a load, requests logged within the duration keep their times.
    ///
    /// # Errors
    /// There is nothing to replay, or a load or share is invalid.
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
        let (sizes_bytes, requests) = asked_for(replayed.requests);
        Ok(Replay { sizes_bytes, requests, notes })
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
    /// The errors of both.
    pub fn read(file: &LogFile, conditions: &Conditions<'_>) -> Result<Self, LabError> {
        let groups: Vec<String> = conditions.groups.iter().map(|group| group.name.clone()).collect();
        Log::read(file, &groups)?.replay(conditions)
    }
}

/// Keeps only the requested files, renumbered in the order of their first requests: the other files of a long
/// log need not be on the disk.
fn asked_for(mut requests: Vec<Request>) -> (Vec<u64>, Vec<Request>) {
    let (mut sizes_bytes, mut numbers) = (Vec::new(), HashMap::new());
    for request in &mut requests {
        request.file = *numbers.entry(request.file).or_insert_with(|| {
            sizes_bytes.push(request.size_bytes);
            sizes_bytes.len() as u32 - 1
        });
    }
    (sizes_bytes, requests)
}

/// The file's path, in the folder of logs if it exists there.
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

#[cfg(test)]
mod tests {
    use workload::rate::Rate;

    use super::*;

    fn line(second: u64, path: &str) -> String {
        format!("c{second} - - [01/Aug/1995:00:00:{second:02} +0000] \"GET {path} HTTP/1.0\" 200 1000\n")
    }

    fn at(path: &Path) -> LogFile {
        LogFile { path: path.to_owned(), ..LogFile::default() }
    }

    fn log(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn fails(text: &str, format: Option<&str>, window_s: Option<(f64, f64)>) -> String {
        let (_dir, path) = log(text);
        let file = LogFile { path: path.clone(), format: format.map(str::to_owned), window_s, strict: false };
        let error = Log::read(&file, &[]).unwrap_err();
        assert!(matches!(error, LabError::Request(_)), "{error:?}");
        error.to_string().replace(path.to_str().unwrap(), "a.log")
    }

    fn conditions(link: &Link) -> Conditions<'_> {
        let duration = Duration::from_secs(60);
        Conditions { load: Some(0.5), link, wire: WireModel::BODY_ONLY, duration, groups: &[], seed: 1 }
    }

    #[test]
    fn a_log_becomes_files_requests_and_notes() {
        let (_dir, path) = log(&format!("{}garbage\n{}{}", line(0, "/a"), line(1, "/b"), line(2, "/a")));
        let link = Link::constant(Rate::from_bits_per_second(8_000).unwrap());
        let replay = Replay::read(&at(&path), &conditions(&link)).unwrap();
        assert_eq!(replay.sizes_bytes, [1000, 1000]);
        assert_eq!(replay.requests.iter().map(|request| request.file).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(
            replay.notes,
            [
                &format!("{} (Common Log Format): 3 records read", path.display())[..],
                "lines left out because they could not be read: 1 (25.00 %), the first of them line 2: no time in brackets, such as \
                 [01/Aug/1995:00:00:01 -0400] (`garbage`)",
                "3 requests of 3 clients for 2 files, over 3 s of the log",
                "3 of its requests are made over 6.0 s, its times multiplied by 2.0000",
                "the log is too short for 60.0 s: requests end after 6.0 s",
            ]
        );
    }

    #[test]
    fn what_cannot_be_replayed_names_the_log_and_the_fault() {
        assert_eq!(fails("", None, None), "the log `a.log`: there is nothing in it");
        assert_eq!(fails("<html>", None, None), "the log `a.log`: it looks like an HTML page, not like a log");
        assert!(
            fails(&line(0, "/a"), Some("apache"), None).starts_with("the log `a.log`: `apache` is no format of a log")
        );
        assert!(fails(&line(0, "/a"), Some("json"), None).starts_with("the log `a.log`: its only line is no record"));
        // Two logs in sequence: no single line is wrong.
        let later: String = (0..5).map(|second| line(second, "/a").replace(":00:00:", ":09:00:")).collect();
        let earlier: String = (0..5).map(|second| line(second, "/b")).collect();
        assert!(fails(&(later + &earlier), None, None).contains("line 6 is 9.0 hours earlier than line 5"));
        for window in [(5.0, 2.0), (-1.0, 2.0), (f64::NAN, 1.0), (1.0, 1.0)] {
            assert!(fails(&line(0, "/a"), None, Some(window)).contains("give two seconds"), "{window:?}");
        }
        let (_dir, path) = log(&line(0, "/a"));
        let link = Link::constant(Rate::from_bits_per_second(8_000).unwrap());
        let file = LogFile { window_s: Some((10.0, 20.0)), ..at(&path) };
        let outside = Replay::read(&file, &conditions(&link)).unwrap_err().to_string();
        assert!(
            outside.ends_with(
                "nothing in the log can be replayed; records left out because they lie outside the window: 1"
            )
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_is_left_out_or_refuses_the_log() {
        let (_dir, path) = log(&format!("{}garbage\n{}", line(0, "/a"), line(1, "/b")));
        Log::read(&at(&path), &[]).unwrap();
        let refused = Log::read(&LogFile { strict: true, ..at(&path) }, &[]).unwrap_err();
        assert!(matches!(&refused, LabError::Request(what) if what.contains("line 2")), "{refused}");
    }

    #[test]
    fn files_that_nobody_asks_for_are_not_served() {
        let lines: String = (0..60).map(|second| line(second, &format!("/{second}"))).collect();
        let (_dir, path) = log(&lines);
        let link = Link::constant(Rate::from_bits_per_second(8_000).unwrap());
        // Only the second half of the last minute, and of that only the run's duration.
        let file = LogFile { window_s: Some((30.0, 60.0)), ..at(&path) };
        let duration = Duration::from_secs(10);
        let replay = Replay::read(&file, &Conditions { load: None, duration, ..conditions(&link) }).unwrap();
        assert_eq!(replay.requests.len(), 10);
        assert_eq!(replay.requests.iter().map(|request| request.file).collect::<Vec<_>>(), Vec::from_iter(0..10));
        assert_eq!(replay.sizes_bytes, [1000; 10]);
    }

    #[test]
    fn a_log_is_looked_for_in_its_folder_then_here() {
        let (dir, path) = log("x");
        let folder = Some(dir.path().to_owned());
        assert_eq!(find(Path::new("a.log"), folder.clone()).unwrap(), path);
        assert_eq!(find(&path, None).unwrap(), path);
        assert_eq!(
            find(Path::new("Cargo.toml"), folder.clone()).unwrap(),
            Path::new("Cargo.toml"),
            "tests run in their crate"
        );
        let missing = |folder| find(Path::new("b.log"), folder).unwrap_err().to_string();
        assert!(missing(folder).ends_with("which SERPENT_TRACES names, nor here"));
        assert_eq!(
            missing(None),
            "there is no log `b.log` here; logs elsewhere are found if SERPENT_TRACES names their folder"
        );
    }

    #[test]
    fn a_folder_is_no_log() {
        let (dir, _path) = log("");
        assert!(matches!(Log::read(&at(dir.path()), &[]), Err(LabError::Io(..))));
    }
}
