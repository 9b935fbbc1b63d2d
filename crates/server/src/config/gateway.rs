//! Routes of a site, and what stands behind them: files, upstreams, programs.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use scheduler::admission::ResourceId;

use super::CertificateFiles;

/// Where requests whose path matches go. The first of a site's routes that matches has the request; one that none matches is
/// for the site's files.
#[derive(Clone, Debug)]
pub struct Route {
    /// How it is called in logs, metrics and `serpent explain`: as its pattern is written.
    pub name: String,
    /// Which paths.
    pub pattern: PathPattern,
    /// What answers.
    pub origin: Origin,
    /// What the request mainly needs of the site.
    pub resource: ResourceId,
    /// Whether it waits for a slot of the site. On as a rule, but for files.
    pub admitted: bool,
    /// Changes to the request's header before it goes to the origin.
    pub request_headers: HeaderRules,
    /// Changes to the response's header before it goes to the client.
    pub response_headers: HeaderRules,
}

/// Paths, as requested and decoded, with dot segments resolved.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// Those that start with a prefix. It ends a path segment: `/api` matches `/api` and `/api/x`, not `/apis`; `/api/` matches
    /// what is below.
    Prefix(String),
    /// Those that a glob matches as a whole.
    Glob(globset::GlobMatcher),
    /// Those in which a regular expression is found.
    Regex(regex::Regex),
}

impl PathPattern {
    /// Whether a path, as [`crate::classify::decoded_path`] gives it, is one of these: then what follows the prefix. The prefix
    /// is taken off as it is written, so what follows `/api` starts with a slash (or is empty), and what follows `/api/` does
    /// not. With globs and regular expressions nothing is taken off.
    pub fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self {
            Self::Prefix(prefix) => {
                let rest = path.strip_prefix(prefix.as_str())?;
                let ends_a_segment = prefix.is_empty() || prefix.ends_with('/') || rest.is_empty();
                (ends_a_segment || rest.starts_with('/')).then_some(rest)
            }
            Self::Glob(glob) => glob.is_match(path).then_some(path),
            Self::Regex(regex) => regex.is_match(path).then_some(path),
        }
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Glob(glob) => glob.glob().glob(),
            Self::Regex(regex) => regex.as_str(),
        }
    }
}

/// What answers.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The files of the site's root.
    Files,
    /// Servers behind this one.
    Upstream {
        /// Which: its place in [`super::Config::upstreams`].
        upstream: usize,
        /// What takes the place of the prefix that matched; `None`: the path stays. Only with [`PathPattern::Prefix`].
        replace_prefix: Option<String>,
        /// Whether the client's Host goes on, rather than the upstream's own.
        keep_host: bool,
        /// Whether the request's body is read whole before the request waits for its slot, so that a slow upload holds none.
        buffer_request: bool,
        /// Whether a response that its client takes slowly is kept here, so that it does not hold a slot.
        buffer_response: bool,
    },
    /// A program run for each request (RFC 3875).
    Cgi(CgiConfig),
}

/// Changes to a header, in this order: removed, set, added.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Fields taken out.
    pub remove: Vec<HeaderName>,
    /// Fields replaced, or added where there are none.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields added to those that are there.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Changes a header.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

/// Servers that do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// How it is called in routes, logs and metrics.
    pub name: String,
    /// Its servers, those that operators name; never empty unless `workers` is given.
    pub servers: Vec<UpstreamServer>,
    /// Servers that are started here, a pool for each class.
    pub workers: Option<WorkersConfig>,
    /// Certificate authorities for TLS (PEM) in place of the system's.
    pub tls_ca: Option<PathBuf>,
    /// The name that the server's certificate must have, where it is not the one of its address.
    pub tls_name: Option<String>,
    /// Our own certificate, where the upstream asks for one.
    pub tls_certificate: Option<CertificateFiles>,
    /// Whether the server's certificate is checked. Off only where the operator says so.
    pub tls_verify: bool,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Longest silence of the upstream while the head of its response, or more of its body, is awaited; and longest time in
    /// which it takes nothing of a request.
    pub idle_timeout: Duration,
    /// Longest time from the start of a request to the end of its response; `None`: no limit.
    pub total_timeout: Option<Duration>,
    /// Most idle connections kept for each server and worker thread.
    pub keep_connections: usize,
    /// How long an idle connection is kept. Below the upstream's own limit, so that it does not close one just when it is used.
    pub keep_for: Duration,
    /// Connections at most for each server, over all worker threads; `None`: no limit. Beyond it the request is refused: to
    /// wait is what slots are for.
    pub most_connections: Option<NonZeroU32>,
    /// Further servers tried when a request did not reach one, or may be repeated without harm.
    pub retries: u32,
    /// Largest head of a response, and of the interim responses before it, together.
    pub head_bytes: usize,
    /// When a server is left alone, and when it is tried again.
    pub passive: PassiveChecks,
    /// Requests that ask a server whether it is well.
    pub active: Option<ActiveChecks>,
}

impl UpstreamConfig {
    /// An upstream in clear, with what an operator has who says nothing more.
    pub fn new(name: impl Into<String>, servers: Vec<UpstreamServer>) -> Self {
        Self {
            name: name.into(),
            servers,
            workers: None,
            tls_ca: None,
            tls_name: None,
            tls_certificate: None,
            tls_verify: true,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            total_timeout: None,
            keep_connections: 1024,
            keep_for: Duration::from_secs(4),
            most_connections: None,
            retries: 1,
            head_bytes: 64 * 1024,
            passive: PassiveChecks { failures: 3, pause: Duration::from_secs(10) },
            active: None,
        }
    }
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// How it is reached.
    pub address: UpstreamAddress,
    /// HTTP/2 rather than HTTP/1.1. Over TLS, `None` leaves it to ALPN; without TLS it means HTTP/1.1.
    pub http2: Option<bool>,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// The host and port that its requests name, as the operator wrote them; for a Unix socket `localhost`.
    pub authority: http::uri::Authority,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamAddress {
    /// An address.
    Socket(SocketAddr),
    /// A name and port, looked up anew from time to time; all its addresses are servers.
    Name(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// When a server is left alone.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveChecks {
    /// Failures in a row (connections refused, resets, time-outs; not error pages) until it is left alone; 0: never.
    pub failures: u32,
    /// For how long it is left alone; then a single request tries it.
    pub pause: Duration,
}

/// Requests that ask a server whether it is well.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveChecks {
    /// The path, with query.
    pub path: Uri,
    /// Time between two checks of a server.
    pub every: Duration,
    /// Time for the answer.
    pub timeout: Duration,
    /// Statuses that mean it is well, from and to.
    pub statuses: (u16, u16),
    /// Checks passed in a row until it is used again.
    pub rise: u32,
    /// Checks failed in a row until it is left alone.
    pub fall: u32,
}

/// Servers that are started here: for each class a pool of processes, each with its class's processor priority.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkersConfig {
    /// Program and arguments. `{socket}` in them is replaced by the path of the Unix socket that the worker is to listen on,
    /// `{port}` by a port of the loopback address, `{class}` by its class's name.
    pub command: Vec<String>,
    /// The directory it is started in.
    pub directory: Option<PathBuf>,
    /// Its environment, beside what is always set.
    pub environment: Vec<(String, String)>,
    /// Processes for each class.
    pub processes: NonZeroU32,
    /// Time until it must take connections.
    pub start_timeout: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
}

/// Programs run for each request (RFC 3875).
#[derive(Clone, Debug, PartialEq)]
pub struct CgiConfig {
    /// The directory of the programs, or a single program.
    pub program: PathBuf,
    /// What the programs are started with, as `/usr/bin/php-cgi`; `None`: they are started themselves.
    pub interpreter: Option<PathBuf>,
    /// Variables beside those of the standard.
    pub environment: Vec<(String, String)>,
    /// Variables of our own environment that are passed on.
    pub pass_environment: Vec<String>,
    /// Longest time until the program has ended; then it is killed.
    pub timeout: Duration,
    /// Largest head of its answer.
    pub head_bytes: usize,
    /// Programs at once, beside what slots allow; beyond it 503.
    pub most_running: NonZeroU32,
}

/// The priority of the processes that do a class's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// As we are.
    #[default]
    Inherited,
    /// Ordinary scheduling with a nice value: -20 (first) to 19.
    Nice(i8),
    /// Before all ordinary ones, in turns with its like (SCHED_RR), from 1 to 99 (first).
    RoundRobin(u8),
    /// Before all ordinary ones, until it waits for something (SCHED_FIFO), from 1 to 99 (first).
    Fifo(u8),
    /// A control group of its own with this weight, 1 to 10000; 100 is ordinary.
    CgroupWeight(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_a_segment() {
        for (prefix, path, rest) in [
            ("/api", "/api", Some("")),
            ("/api", "/api/", Some("/")),
            ("/api", "/api/x", Some("/x")),
            ("/api", "/apis", None),
            ("/api", "/v1/api", None),
            ("/api", "/API", None),
            ("/api/", "/api", None),
            ("/api/", "/api/", Some("")),
            ("/api/", "/api/x/y", Some("x/y")),
            ("/", "/", Some("")),
            ("/", "/x", Some("x")),
            ("", "/x", Some("/x")),
        ] {
            assert_eq!(PathPattern::Prefix(prefix.to_owned()).matches(path), rest, "{prefix} {path}");
        }
    }

    #[test]
    fn a_glob_matches_the_whole_path_and_a_regular_expression_a_part() {
        let glob = |text| {
            let glob = globset::GlobBuilder::new(text).literal_separator(true).build().expect("a glob");
            PathPattern::Glob(glob.compile_matcher())
        };
        assert_eq!(glob("/img/*.png").matches("/img/a.png"), Some("/img/a.png"));
        assert_eq!(glob("/img/*.png").matches("/img/x/a.png"), None);
        assert_eq!(glob("/img/*.png").matches("/old/img/a.png"), None);
        assert_eq!(glob("/**/*.png").matches("/img/x/a.png"), Some("/img/x/a.png"));
        let regex = PathPattern::Regex(regex::Regex::new("^/v[0-9]+/").expect("an expression"));
        assert_eq!(regex.matches("/v12/x"), Some("/v12/x"));
        assert_eq!(regex.matches("/x/v12/"), None);
        assert_eq!((glob("/a*").as_str(), regex.as_str()), ("/a*", "^/v[0-9]+/"));
    }
}
