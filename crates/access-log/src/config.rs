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
    /// A receiver of syslog.
    Syslog(Box<Syslog>),
    /// The journal of systemd, by its socket.
    Journal(PathBuf),
}

/// A receiver of syslog, and what messages to it say of their sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Syslog {
    /// Where it is.
    pub server: SyslogServer,
    /// The facility of all messages.
    pub facility: Facility,
    /// The severity of lines of an access log; `None`: `info`. Other messages have their own.
    pub severity: Option<Severity>,
    /// The name of the program.
    pub tag: String,
    /// How messages are written.
    pub format: SyslogFormat,
    /// Whether they name this machine.
    pub names_host: bool,
}

/// Where a receiver of syslog is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SyslogServer {
    /// A socket of datagrams on this machine.
    Socket(PathBuf),
    /// A port of UDP.
    Udp {
        /// The name or address. A name is looked up when the log is opened.
        host: String,
        /// The port.
        port: u16,
    },
}

/// How messages of syslog are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyslogFormat {
    /// As RFC 3164 describes it: what receivers on the same machine expect.
    Rfc3164,
    /// RFC 5424, with the year and the zone of the time.
    Rfc5424,
}

/// The facility of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facility(u8);

impl Facility {
    /// The names of all, by their numbers.
    pub const NAMES: [&str; 24] = [
        "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp", "ntp",
        "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ];
    /// The default, as in nginx.
    pub const LOCAL7: Self = Self(23);

    /// The facility of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|number| Self(number as u8))
    }

    pub(super) fn number(self) -> u8 {
        self.0
    }
}

/// How severe a message is, by the numbers of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The system cannot be used.
    Emergency,
    /// A person has to act at once.
    Alert,
    /// A critical condition.
    Critical,
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Normal, but of note.
    Notice,
    /// For information.
    Info,
    /// For debugging.
    Debug,
}

impl Severity {
    /// All, with their names.
    pub const NAMED: [(Self, &str); 8] = [
        (Self::Emergency, "emerg"),
        (Self::Alert, "alert"),
        (Self::Critical, "crit"),
        (Self::Error, "error"),
        (Self::Warning, "warn"),
        (Self::Notice, "notice"),
        (Self::Info, "info"),
        (Self::Debug, "debug"),
    ];

    /// The severity of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|(_, known)| *known == name).map(|(severity, _)| severity)
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
            Self::Syslog(syslog) => match &syslog.server {
                SyslogServer::Socket(path) => write!(f, "syslog at {}", path.display()),
                SyslogServer::Udp { host, port } => write!(f, "syslog at {host}:{port}"),
            },
            Self::Journal(_) => f.write_str("the journal"),
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
