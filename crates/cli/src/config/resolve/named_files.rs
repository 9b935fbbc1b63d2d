//! Files and directories that the configuration names. They are checked when all of it has been read.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use server::config::{AccessLog, LogFormat, LogTarget};

/// A file or directory that the configuration names.
pub struct NamedFile {
    pub path: PathBuf,
    pub span: Option<Range<usize>>,
    pub kind: FileKind,
}

/// The required kind of a named file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Certificate authorities, PEM.
    Authorities,
    /// A certificate chain, PEM, that has its key in the next entry.
    Chain,
    /// The private key of the entry before, PEM.
    Key,
    /// A secret of at least this many bytes, readable by its owner alone.
    Secret(u64),
    /// Hashed passwords or keys, not readable by all users.
    Hashes,
    /// A file that is sent to clients.
    Page,
    /// A directory.
    Directory,
    /// A program.
    Program,
    /// A program, or a directory of them.
    Programs,
    /// A script for an interpreter, or a directory of scripts.
    Scripts,
}

/// The spans of a site's paths in the file; `None` for those from flags or defaults.
#[derive(Clone, Default)]
pub struct SiteSpans {
    pub root: Option<Range<usize>>,
    pub chain: Option<Range<usize>>,
    pub key: Option<Range<usize>>,
}

/// The logs that were read so far.
#[derive(Default)]
pub struct WrittenLogs {
    /// That of the server.
    pub server: Option<AccessLog>,
    /// The form of logs that do not say theirs.
    pub format: Option<LogFormat>,
    /// Where messages go.
    pub error: Option<(LogTarget, Option<Range<usize>>)>,
    /// Each with the first place where it is named.
    pub all: Vec<(AccessLog, Option<Range<usize>>)>,
}

impl WrittenLogs {
    /// The files, with what they are and the first place of each.
    pub fn files(self) -> Vec<(PathBuf, &'static str, Option<Range<usize>>)> {
        let all = self.all.into_iter().map(|(log, place)| (log.target, "access log", place));
        let error = self.error.into_iter().map(|(target, place)| (target, "error log", place));
        let file = |(target, what, place)| match target {
            LogTarget::File(path) => Some((path, what, place)),
            LogTarget::Stdout | LogTarget::Syslog(_) | LogTarget::Journal(_) => None,
        };
        all.chain(error).filter_map(file).collect()
    }
}

/// A path as written in the file at `folder`, or as given in a flag.
pub fn path_in(folder: Option<&Path>, path: &str) -> PathBuf {
    folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}
