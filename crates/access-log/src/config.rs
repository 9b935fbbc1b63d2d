//! Where the access log goes, and in which form.

use std::path::PathBuf;

/// Where outcomes are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The file, opened for appending and opened anew at SIGHUP, or standard output.
    pub target: LogTarget,
    /// The form of a line.
    pub format: LogFormat,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

/// The form of an access log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// NCSA combined, followed by class, response time and slowdown.
    Combined,
    /// One JSON object a line.
    Json,
}
