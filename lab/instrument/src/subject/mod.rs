//! The measured servers: Serpent, nginx, Apache httpd, Caddy, or any command; each a separate process in the
//! server's namespace.

mod answer;
mod certificate;
mod config;
mod protocols;
mod running;
mod start;

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

pub(crate) use self::start::{show, version_of};
pub use self::{certificate::Certificate, protocols::Protocols, running::Running};
use crate::{
    LabError,
    bed::{Bottleneck, TestBed},
    setting::Setting,
};

/// A server to measure, as in `--subjects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Debian's nginx: `nginx`, `nginx,workers=auto`.
    Nginx {
        /// The value of `worker_processes`.
        workers: String,
    },
    /// Debian's Apache httpd with the event MPM: `apache`, `apache,workers=4096,processes=2`.
    Apache {
        /// Threads of all processes together (`MaxRequestWorkers`): most requests in work at once. Without
        /// TLS a response that waits for the network needs no thread.
        workers: u32,
        /// Number of processes.
        processes: u32,
    },
    /// Caddy, which uses all processors as it does by default: `caddy`.
    Caddy,
    /// Serpent: `serpent:srpt`, `serpent:srpt,enforce=kernel,uplink=auto,workers=2`.
    Serpent {
        /// The order.
        order: String,
        /// `server`, `kernel` or `off`.
        enforce: String,
        /// `auto`, `off` or a rate; the bed's rate if not given.
        uplink: Option<String>,
        /// Number of workers, if given.
        workers: Option<String>,
        /// The multiple of its fair time after which a response goes first, if given.
        guard: Option<String>,
        /// A configuration file that replaces the lab's, which has room for 65536 connections.
        config: Option<PathBuf>,
    },
    /// Another server behind `serpent attach`, which puts its responses in order in the kernel: `nginx:attach`,
    /// `apache:attach,workers=64`, `caddy:attach`, `attach:cmd:COMMAND`.
    Attached(Box<Self>),
    /// Any command: `cmd:SERVER --root {dir} --listen {listen}`, with `{dir}`, `{listen}`, `{ip}`,
    /// `{port}`, `{rate}`, and for TLS `{cert}` and `{key}` (PEM files) filled in.
    Command(String),
}

impl Subject {
    /// Parses a list. Subjects are separated by commas, and so are their settings, which contain a `=`.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SubjectError> {
        let mut items: Vec<String> = Vec::new();
        for part in text.split(',') {
            let is_setting = part.split_once('=').is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase()));
            match items.last_mut() {
                Some(last) if is_setting || last.starts_with("cmd:") || last.starts_with("attach:cmd:") => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => items.push(part.to_owned()),
            }
        }
        items.iter().map(|item| item.parse()).collect()
    }

    /// Whether Serpent itself sets up the bottleneck's bands.
    pub fn shapes_the_uplink(&self) -> bool {
        match self {
            Self::Serpent { enforce, .. } => enforce == "kernel",
            Self::Attached(_) => true,
            _ => false,
        }
    }

    /// The server itself, without what is attached to its device.
    fn server(&self) -> &Self {
        match self {
            Self::Attached(server) => server,
            server => server,
        }
    }

    /// Checks before a run whether it can be measured under these conditions; the error says what to change.
    pub fn can(&self, setting: &Setting) -> Result<(), LabError> {
        let protocols = Protocols::of(setting)?;
        let refuse = |reason: &str| Err(LabError::Request(format!("`{self}` cannot be measured so: {reason}")));
        match self.server() {
            Self::Nginx { .. } if protocols.http1 && protocols.http2 && !protocols.tls => refuse(
                "without TLS a port of nginx speaks HTTP/2 or HTTP/1.1, not both; give all groups the same protocol, or \
                 TLS",
            ),
            _ if self.shapes_the_uplink() && setting.link.bottleneck == Bottleneck::Router => refuse(
                "its bands order the packets of the server's own device, and the bottleneck is on the router; take \
                 enforce=server or the bottleneck `server`",
            ),
            _ if self.shapes_the_uplink() && !setting.link.rate_changes.is_empty() => refuse(
                "its bands are set up for one rate, and the link's rate changes; take enforce=server or no rate-changes",
            ),
            _ if self.shapes_the_uplink() && setting.link.queue_packets < BAND_PACKETS => refuse(&format!(
                "its bands hold {BAND_PACKETS} packets or more, and `link.queue-packets` gives the other servers a queue of \
                 {}: unlike queues would be compared; take enforce=server, or queues of {BAND_PACKETS} packets or more",
                setting.link.queue_packets
            )),
            Self::Command(line) if protocols.tls && !(line.contains("{cert}") && line.contains("{key}")) => {
                refuse("clients use TLS, and the command has no place for {cert} and {key}")
            }
            _ => Ok(()),
        }
    }

    /// Checks before a run whether its program is on this machine.
    pub fn is_installed(&self, serpent: &Path) -> Result<(), LabError> {
        if self.shapes_the_uplink() && find(serpent).is_none() {
            return Err(LabError::Machine(format!("`{}` is not there{BUILD_SERPENT}", serpent.display())));
        }
        let (program, hint) = match self.server() {
            Self::Nginx { .. } => (Path::new(NGINX), "; it is in Debian's package nginx-light"),
            Self::Apache { .. } => (Path::new(APACHE), "; it is in Debian's package apache2-bin"),
            Self::Caddy => (Path::new(CADDY), "; it is in Debian's package caddy, and one file from caddyserver.com"),
            Self::Serpent { .. } => (serpent, BUILD_SERPENT),
            Self::Command(_) | Self::Attached(_) => return Ok(()),
        };
        find(program).map(drop).ok_or_else(|| LabError::Machine(format!("`{}` is not there{hint}", program.display())))
    }
}

/// The file of a program given by path or by name.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.is_file() { Some(program.to_owned()) } else { in_path(program) }
}

fn in_path(program: &Path) -> Option<PathBuf> {
    let searched = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&searched).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The least length of a band's queue. With fewer places bands cut off waiting responses, so Serpent has no setting for
/// fewer.
const BAND_PACKETS: u32 = 1000;
pub(crate) const BUILD_SERPENT: &str = " beside serpent-lab, nor in the folders of PATH: build it with `cargo build --release`, for \
                                       figures with `profile/build`, or give it with `--serpent PROGRAM`";
const SERPENT: &str = "serpent";
const NGINX: &str = "nginx";
const APACHE: &str = "apache2";
const CADDY: &str = "caddy";

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nginx { workers } if workers == "1" => f.write_str("nginx"),
            Self::Nginx { workers } => write!(f, "nginx,workers={workers}"),
            Self::Apache { workers, processes } => {
                f.write_str("apache")?;
                for (key, value, default) in
                    [("workers", workers, APACHE_WORKERS), ("processes", processes, APACHE_PROCESSES)]
                {
                    if *value != default {
                        write!(f, ",{key}={value}")?;
                    }
                }
                Ok(())
            }
            Self::Caddy => f.write_str("caddy"),
            Self::Serpent { order, enforce, uplink, workers, guard, config } => {
                write!(f, "serpent:{order},enforce={enforce}")?;
                for (key, value) in [("uplink", uplink), ("workers", workers), ("guard", guard)] {
                    if let Some(value) = value {
                        write!(f, ",{key}={value}")?;
                    }
                }
                if let Some(file) = config {
                    write!(f, ",config={}", file.display())?;
                }
                Ok(())
            }
            Self::Attached(server) => match (&**server, server.to_string().split_once(',')) {
                (Self::Command(_), _) => write!(f, "attach:{server}"),
                (_, Some((name, settings))) => write!(f, "{name}:attach,{settings}"),
                (_, None) => write!(f, "{server}:attach"),
            },
            Self::Command(line) => write!(f, "cmd:{line}"),
        }
    }
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let error = || SubjectError(text.to_owned());
        if let Some(line) = text.strip_prefix("cmd:") {
            return if line.trim().is_empty() { Err(error()) } else { Ok(Self::Command(line.to_owned())) };
        }
        if let Some(command) = text.strip_prefix("attach:cmd:") {
            return Ok(Self::Attached(Box::new(format!("cmd:{command}").parse().map_err(|_| error())?)));
        }
        let (name, rest) = text.split_once(',').map_or((text, ""), |(name, rest)| (name, rest));
        if let Some(name @ ("nginx" | "apache" | "caddy")) = name.strip_suffix(":attach") {
            let server = if rest.is_empty() { name.to_owned() } else { format!("{name},{rest}") };
            return Ok(Self::Attached(Box::new(server.parse().map_err(|_| error())?)));
        }
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let settings = parts.map(|part| part.split_once('=')).collect::<Option<Vec<_>>>().ok_or_else(error)?;
        let mut subject = match name.split_once(':') {
            None if name == "nginx" => Self::Nginx { workers: "1".to_owned() },
            None if name == "apache" => Self::Apache { workers: APACHE_WORKERS, processes: APACHE_PROCESSES },
            None if name == "caddy" => Self::Caddy,
            Some(("serpent", order)) if !order.is_empty() => Self::Serpent {
                order: order.to_owned(),
                enforce: "server".to_owned(),
                uplink: None,
                workers: None,
                guard: None,
                config: None,
            },
            _ => return Err(error()),
        };
        let number = |value: &str| value.parse().map_err(|_| error());
        for (key, value) in settings {
            match (&mut subject, key) {
                (Self::Nginx { workers }, "workers") => *workers = value.to_owned(),
                (Self::Apache { workers, .. }, "workers") => *workers = number(value)?,
                (Self::Apache { processes, .. }, "processes") => *processes = number(value)?,
                (Self::Serpent { enforce, .. }, "enforce") => *enforce = value.to_owned(),
                (Self::Serpent { uplink, .. }, "uplink") => *uplink = Some(value.to_owned()),
                (Self::Serpent { workers, .. }, "workers") => *workers = Some(value.to_owned()),
                (Self::Serpent { guard, .. }, "guard") => *guard = Some(value.to_owned()),
                (Self::Serpent { config, .. }, "config") if !value.is_empty() => *config = Some(value.into()),
                _ => return Err(error()),
            }
        }
        if let Self::Apache { workers, processes } = subject {
            // The limits of httpd's event MPM.
            let fits = (1..=20_000).contains(&processes) && (processes..=1_000_000).contains(&workers);
            if !fits || workers.div_ceil(processes) > 20_000 {
                return Err(error());
            }
        }
        Ok(subject)
    }
}

/// One process, as nginx has one worker, and enough threads that no limit affects the measurement.
const APACHE_WORKERS: u32 = 1024;
const APACHE_PROCESSES: u32 = 1;

/// The text is not a valid subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectError(String);

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a subject: use nginx[,workers=N], apache[,workers=N][,processes=N] (at most 20000 workers in a \
             process), caddy, serpent:ORDER[,enforce=server|kernel|off][,uplink=RATE|auto|off][,workers=N][,guard=STRETCH]\
             [,config=FILE], or cmd:COMMAND with {{dir}} and {{listen}}; nginx:attach, apache:attach, caddy:attach and \
             attach:cmd:COMMAND are those behind `serpent attach`",
            self.0
        )
    }
}

impl std::error::Error for SubjectError {}

/// Where and how a subject is started.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The bed; the subject runs in its server's namespace.
    pub bed: &'a TestBed,
    /// The protocols of its clients, and the length of its accept queue.
    pub setting: &'a Setting,
    /// The directory to serve.
    pub root: &'a Path,
    /// The port to listen on.
    pub port: u16,
    /// The binary of Serpent.
    pub serpent: &'a Path,
    /// The certificate for TLS, if the setting uses it.
    pub certificate: &'a Certificate,
}

/// The program to measure: as given, or the one beside the running program, or the first in the folders of `PATH`.
/// A program that is nowhere is returned as its name alone. [`Subject::is_installed`] refuses that where it is needed.
pub fn serpent_binary(given: Option<&Path>) -> Result<PathBuf, LabError> {
    match given {
        Some(path) => fs::canonicalize(path).map_err(LabError::io(format!("cannot find {}", path.display()))),
        None => Ok(beside(env::current_exe().ok().as_deref())),
    }
}

fn beside(own: Option<&Path>) -> PathBuf {
    let beside = own.map(|own| own.with_file_name(SERPENT)).filter(|file| file.is_file());
    beside.or_else(|| in_path(Path::new(SERPENT))).unwrap_or_else(|| PathBuf::from(SERPENT))
}

#[cfg(test)]
mod tests {
    use workload::behaviour::{Behaviour, Protocol};

    use super::*;
    use crate::setting::GroupSetting;

    #[test]
    fn a_list_is_read_as_people_write_it() {
        let list =
            Subject::parse_list("nginx,serpent:srpt,enforce=kernel,uplink=9.7mbit,nginx,workers=auto,serpent:fair,guard=5,config=a.toml,apache,apache,workers=64,processes=2,nginx:attach,apache:attach,workers=64,caddy,caddy:attach,attach:cmd:run {dir},a")
                .unwrap();
        let shown: Vec<String> = list.iter().map(Subject::to_string).collect();
        assert_eq!(
            shown,
            [
                "nginx",
                "serpent:srpt,enforce=kernel,uplink=9.7mbit",
                "nginx,workers=auto",
                "serpent:fair,enforce=server,guard=5,config=a.toml",
                "apache",
                "apache,workers=64,processes=2",
                "nginx:attach",
                "apache:attach,workers=64",
                "caddy",
                "caddy:attach",
                "attach:cmd:run {dir},a"
            ]
        );
        assert!(list[1].shapes_the_uplink() && !list[3].shapes_the_uplink());
        for (text, subject) in shown.iter().zip(&list) {
            assert_eq!(text.parse::<Subject>().as_ref(), Ok(subject), "what is printed can be typed again");
        }
    }

    #[test]
    fn a_command_keeps_its_commas() {
        let list = Subject::parse_list("nginx,cmd:run --a=1,b {dir} {listen}").unwrap();
        assert_eq!(list[1], Subject::Command("run --a=1,b {dir} {listen}".to_owned()));
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        for text in [
            "",
            "lighttpd",
            "caddy,workers=2",
            "serpent",
            "serpent:",
            "nginx,uplink=auto",
            "serpent:srpt,color=red",
            "cmd:",
            "workers=1",
            "apache,workers=0",
            "apache,workers=2,processes=3",
            "apache,workers=20001",
            "apache,workers=many",
            "serpent:srpt,config=",
        ] {
            assert!(Subject::parse_list(text).is_err(), "{text}");
        }
    }

    fn refusal(subject: &str, setting: &Setting) -> String {
        match subject.parse::<Subject>().unwrap().can(setting) {
            Ok(()) => String::new(),
            Err(LabError::Request(reason)) => reason,
            Err(other) => panic!("not the operator's fault: {other}"),
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_what_to_change() {
        let mut setting = Setting::default();
        let all = ["nginx", "apache", "caddy", "serpent:srpt", "serpent:srpt,enforce=kernel", "cmd:x"];
        for subject in all {
            assert_eq!(refusal(subject, &setting), "", "{subject}");
        }
        setting.link.bottleneck = Bottleneck::Router;
        assert!(refusal("serpent:srpt,enforce=kernel", &setting).contains("enforce=server"));
        assert_eq!(refusal("serpent:srpt", &setting), "");
        setting.link.bottleneck = Bottleneck::Server;
        setting.link.rate_changes = vec![(5.0, "5mbit".parse().unwrap())];
        assert!(refusal("serpent:srpt,enforce=kernel", &setting).contains("rate-changes"));

        setting = Setting::default();
        setting.link.queue_packets = 100;
        assert!(refusal("serpent:srpt,enforce=kernel", &setting).contains("queues of 1000 packets"));
        assert_eq!(refusal("serpent:srpt", &setting), "");

        setting = Setting::default();
        setting.clients.tls = true;
        assert!(refusal("cmd:x {dir}", &setting).contains("{cert}"));
        assert_eq!(refusal("cmd:x --cert {cert} --key {key}", &setting), "");
        for subject in ["nginx", "apache", "caddy:attach", "serpent:srpt,enforce=kernel"] {
            assert_eq!(refusal(subject, &setting), "", "{subject}");
        }
    }

    #[test]
    fn nginx_speaks_one_protocol_in_clear_and_both_over_tls() {
        let mut setting = Setting::default();
        setting.clients.protocol = Protocol::Http2;
        assert_eq!(refusal("nginx", &setting), "");
        setting.groups = vec![
            GroupSetting::default(),
            GroupSetting { clients: Some(Behaviour::default()), ..GroupSetting::default() },
        ];
        assert!(refusal("nginx", &setting).contains("not both"));
        for subject in ["apache", "caddy", "serpent:fair"] {
            assert_eq!(refusal(subject, &setting), "", "{subject}");
        }
        setting.clients.tls = true;
        setting.groups[1].clients.as_mut().unwrap().tls = true;
        assert_eq!(refusal("nginx", &setting), "");
    }

    #[test]
    fn a_program_that_is_not_there_is_missed_before_the_run() {
        let serpent: Subject = "serpent:srpt".parse().unwrap();
        let missing = serpent.is_installed(Path::new("/no/such/serpent")).unwrap_err();
        assert!(matches!(&missing, LabError::Machine(reason) if reason.contains("/no/such/serpent")), "{missing}");
        assert!(serpent.is_installed(&env::current_exe().unwrap()).is_ok());
    }

    #[test]
    fn the_program_to_measure_is_looked_for_beside_the_running_one_first() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("serpent-lab");
        assert_ne!(beside(Some(&own)), folder.path().join("serpent"), "it is not there");
        fs::write(folder.path().join("serpent"), "").unwrap();
        assert_eq!(beside(Some(&own)), folder.path().join("serpent"));
        let missing =
            "serpent:srpt".parse::<Subject>().unwrap().is_installed(Path::new("serpent-of-nobody")).unwrap_err();
        for part in ["`serpent-of-nobody` is not there", "cargo build --release", "profile/build", "--serpent"] {
            assert!(missing.to_string().contains(part), "{missing}");
        }
    }
}
