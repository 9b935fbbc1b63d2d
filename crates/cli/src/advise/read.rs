//! Finds the logs, puts them in order, and reads their records as often as needed.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    ops::ControlFlow,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use simulator::advise::Survey;
use workload::trace::{Format, Options, Reader, Record, TraceError};

use super::dates;
use crate::failure::Failure;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 * 1024;
/// Longest overlap of rotated files. They overlap only by the requests in progress during the rotation.
const MAX_OVERLAP_NS: u64 = 60 * 1_000_000_000;

/// Several files that form one log.
pub struct Logs {
    /// The files, by the time of their first record.
    files: Vec<LogFile>,
    format: Option<Format>,
}

struct LogFile {
    name: String,
    path: PathBuf,
    first_ns: u64,
    /// A copy of input that can be read only once. It is a file without a name, so nothing remains of it
    /// however the process ends.
    kept: Option<Arc<File>>,
}

/// A kept file, read from its beginning. Several threads read it, each at its own position.
struct KeptReader {
    file: Arc<File>,
    offset: u64,
}

impl io::Read for KeptReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(buffer, self.offset)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }
}

/// Number of records of each file that count. A log that is still being written grows between two readings.
pub struct RecordCounts {
    records: Vec<u64>,
}

impl Logs {
    /// Opens each file and looks for its first record.
    pub fn find(paths: &[PathBuf], format: Option<Format>) -> Result<Self, Failure> {
        let mut logs = Self { files: Vec::new(), format };
        for path in paths {
            let (name, kept) = match path.as_os_str() == "-" {
                true => ("standard input".to_owned(), Some(keep("standard input", io::stdin().lock())?)),
                false => (path.display().to_string(), keep_if_read_but_once(path)?),
            };
            let file = LogFile { name, path: path.clone(), first_ns: 0, kept };
            let mut first_ns = 0;
            logs.read_file(&file, |record| {
                first_ns = record.at_ns;
                ControlFlow::Break(())
            })?;
            logs.files.push(LogFile { first_ns, ..file });
        }
        logs.files.sort_by_key(|file| file.first_ns);
        Ok(logs)
    }

    /// A log that was got from somewhere, by a name.
    pub fn kept(name: &str, text: &[u8]) -> Result<Self, Failure> {
        let kept = Some(keep(name, text)?);
        Ok(Self {
            files: vec![LogFile { name: name.to_owned(), path: PathBuf::new(), first_ns: 0, kept }],
            format: None,
        })
    }

    /// Names of the files.
    pub fn names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| format!("`{}`", file.name)).collect();
        names.join(", ")
    }

    /// Gives every record to the survey, with remarks on the files.
    pub fn survey(&self, survey: &mut Survey) -> Result<RecordCounts, Failure> {
        let mut read = RecordCounts { records: Vec::new() };
        let mut last: Option<(&str, u64)> = None;
        for file in &self.files {
            if let Some((before, last_ns)) = last.filter(|&(_, at_ns)| file.first_ns + MAX_OVERLAP_NS < at_ns) {
                return Err(Failure::Usage(format!(
                    "`{}` begins at {}, before `{before}` ends at {}: logs of the same time must be merged into one first, \
                     line by line in the order of their times",
                    file.name,
                    moment(file.first_ns),
                    moment(last_ns)
                )));
            }
            let mut last_ns = last.map_or(0, |(_, at_ns)| at_ns);
            let reader = self.read_file(file, |record| {
                last_ns = last_ns.max(record.at_ns);
                survey.add(record);
                ControlFlow::Continue(())
            })?;
            last = Some((&file.name, last_ns));
            let tally = reader.tally();
            let compression = reader.compression().name().map(|name| format!(", {name}")).unwrap_or_default();
            let notes = tally.notes();
            let notes: Vec<String> = notes.into_iter().map(|note| format!("{}: {note}", file.name)).collect();
            survey.add_file(&file.name, &format!("{}{compression}", reader.format()), tally.broken, notes);
            read.records.push(tally.records);
        }
        Ok(read)
    }

    /// Gives the same records again, and none that were written since.
    pub fn again(&self, read: &RecordCounts, mut each: impl FnMut(&Record<'_>)) -> Result<(), Failure> {
        for (file, &records) in self.files.iter().zip(&read.records).filter(|&(_, &records)| records > 0) {
            let mut left = records;
            self.read_file(file, |record| {
                each(record);
                left -= 1;
                if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(())
    }

    fn read_file(
        &self,
        file: &LogFile,
        each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<Reader<'static>, Failure> {
        let unread = |error: &io::Error| unreadable(&file.name, &file.path, error);
        let failed = |error: TraceError| match &error {
            TraceError::Io(io) if io.raw_os_error().is_some() => unread(io),
            _ => Failure::Usage(format!("the log `{}`: {error}", file.name)),
        };
        let input: Box<dyn io::Read> = match &file.kept {
            Some(kept) => Box::new(KeptReader { file: Arc::clone(kept), offset: 0 }),
            None => Box::new(File::open(&file.path).map_err(|error| unread(&error))?),
        };
        let options = Options { format: self.format.clone(), strict: false };
        let mut reader = Reader::open(BufReader::with_capacity(BUFFER_BYTES, input), &options).map_err(failed)?;
        reader.read(each).map_err(failed)?;
        Ok(reader)
    }
}

/// An error for a file that cannot be read. A wrong path is the operator's fault; anything else is the
/// machine's.
fn unreadable(name: &str, path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::Usage(format!("there is no log `{name}`")),
        io::ErrorKind::PermissionDenied => Failure::Usage(format!("the log `{name}` may not be read by this user")),
        _ if path.is_dir() => Failure::Usage(format!("`{name}` is a directory: name the logs in it")),
        _ => Failure::Run(format!("cannot read the log `{name}`: {error}")),
    }
}

/// Copies input that can be read only once: a pipe, as in `<(zcat access.log.gz)`, and anything else that is
/// neither a file nor a directory.
fn keep_if_read_but_once(path: &Path) -> Result<Option<Arc<File>>, Failure> {
    let (name, unread) = (path.display().to_string(), |error| unreadable(&path.display().to_string(), path, &error));
    let kind = fs::metadata(path).map_err(unread)?.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(None);
    }
    keep(&name, File::open(path).map_err(unread)?).map(Some)
}

fn keep(name: &str, mut input: impl io::Read) -> Result<Arc<File>, Failure> {
    let kept = tempfile::tempfile().and_then(|mut kept| io::copy(&mut input, &mut kept).map(|_| kept));
    kept.map(Arc::new).map_err(|error| Failure::Run(format!("cannot keep {name} in a temporary file: {error}")))
}

fn moment(at_ns: u64) -> String {
    dates::minute(at_ns as f64 / 1e9)
}
