//! Where access logs go, and in which form.

use std::{fmt, path::PathBuf};

/// Where outcomes are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessLog {
    /// The file, opened for appending and opened anew at SIGHUP, or standard output.
    pub target: LogTarget,
    /// The form of a line.
    pub format: LogFormat,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The form of an access log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// NCSA combined, followed by class, response time and slowdown.
    Combined,
    /// One JSON object a line.
    Json,
}

/// The access log of a site or a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogChoice {
    /// That of the server for a site, that of the site for a route.
    #[default]
    Outer,
    /// One of its own.
    Own(AccessLog),
    /// None.
    Off,
}

/// The access logs of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChoices {
    /// The log of requests that are for no site, and of sites that do not say otherwise.
    pub server: Option<AccessLog>,
    /// Each site with its routes, in their order.
    pub sites: Vec<(LogChoice, Vec<LogChoice>)>,
}

impl LogChoices {
    /// Every log once.
    pub(super) fn distinct(&self) -> Vec<&AccessLog> {
        let of_sites = self.sites.iter().flat_map(|(site, routes)| std::iter::once(site).chain(routes));
        let own = of_sites.filter_map(|choice| match choice {
            LogChoice::Own(log) => Some(log),
            LogChoice::Outer | LogChoice::Off => None,
        });
        let mut distinct = Vec::new();
        for log in self.server.iter().chain(own) {
            if !distinct.contains(&log) {
                distinct.push(log);
            }
        }
        distinct
    }
}
