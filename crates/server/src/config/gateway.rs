//! Routes of a site, and the origins behind them: files, upstreams, programs.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use scheduler::admission::ResourceId;

use super::CertificateFiles;

/// A route to an origin. The first route of a site that matches a request serves it; without a match the
/// site's files do.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name in logs, metrics and `serpent explain`: the text of the pattern.
    pub name: String,
    /// The paths that it matches.
    pub pattern: PathPattern,
    /// The origin that answers.
    pub origin: Origin,
    /// The resource of the site that its requests mainly need.
    pub resource: ResourceId,
    /// Whether its requests wait for a slot of the site. On by default, except for files.
    pub admitted: bool,
    /// Changes to the request's header before it goes to the origin.
    pub request_headers: HeaderRules,
    /// Changes to the response's header before it goes to the client.
    pub response_headers: HeaderRules,
}

/// A pattern of request paths, which are decoded and have their dot segments resolved.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// Paths that start with a prefix, which must end at a path segment. `/api` matches `/api` and `/api/x`
    /// but not `/apis`; `/api/` matches paths below it.
    Prefix(String),
    /// Paths that a glob matches as a whole.
    Glob(globset::GlobMatcher),
    /// Paths in which a regular expression matches.
    Regex(regex::Regex),
}

impl PathPattern {
    /// Returns the rest of a path from [`crate::classify::decoded_path`] behind the prefix; `None`: the
    /// pattern does not match. The rest behind `/api` is empty or starts with a slash; behind `/api/` it does
    /// not. Globs and regular expressions remove nothing.
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

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Glob(glob) => glob.glob().glob(),
            Self::Regex(regex) => regex.as_str(),
        }
    }
}

/// The origin of answers.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The files of the site's root.
    Files,
    /// Upstream servers.
    Upstream {
        /// The index in [`super::Config::upstreams`].
        upstream: usize,
        /// The replacement of the matched prefix; `None`: the path stays. Only with [`PathPattern::Prefix`].
        replace_prefix: Option<String>,
        /// Whether the client's `Host` is passed on, rather than the upstream's own.
        keep_host: bool,
        /// Whether the body is read whole before the request waits for its slot, so that a slow upload holds
        /// none.
        buffer_request: bool,
        /// Whether a response that the client reads slowly is buffered here, so that it holds no slot.
        buffer_response: bool,
    },
    /// A program run for each request (RFC 3875).
    Cgi(CgiConfig),
}

/// Changes to a header, made in this order: remove, set, add.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
    /// Fields to set, replacing existing ones.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields to add to existing ones.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the changes to a header.
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

/// A group of servers that do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// The name in routes, logs and metrics.
    pub name: String,
    /// The configured servers; never empty unless `workers` is given.
    pub servers: Vec<UpstreamServer>,
    /// Servers that this process starts, a pool for each class.
    pub workers: Option<WorkersConfig>,
    /// Certificate authorities for TLS (PEM), instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// The name that the server's certificate must have, if not that of its address.
    pub tls_name: Option<String>,
    /// The client certificate for upstreams that ask for one.
    pub tls_certificate: Option<CertificateFiles>,
    /// Whether the server's certificate is verified. Off only if the operator says so.
    pub tls_verify: bool,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Longest silence of the upstream while the response's head or more of its body is awaited, and longest
    /// time in which it reads nothing of a request.
    pub idle_timeout: Duration,
    /// Longest time from the start of a request to the end of its response; `None`: no limit.
    pub total_timeout: Option<Duration>,
    /// Most idle connections kept for each server and worker thread.
    pub keep_connections: usize,
    /// How long an idle connection is kept. It must be below the upstream's own limit, or the upstream may
    /// close a connection just when it is used.
    pub keep_for: Duration,
    /// Most connections to each server, over all worker threads; `None`: no limit. A request beyond it is
    /// refused, because waiting is the task of slots.
    pub most_connections: Option<NonZeroU32>,
    /// Most other servers tried when a request reached none, or can safely be repeated.
    pub retries: u32,
    /// Largest head of a response, and of the interim responses before it, together.
    pub head_bytes: usize,
    /// When a server is paused after failures.
    pub passive: PassiveChecks,
    /// Requests that check a server's health.
    pub active: Option<ActiveChecks>,
}

impl UpstreamConfig {
    /// Makes an upstream without TLS, with the default settings.
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
    /// Its address.
    pub address: UpstreamAddress,
    /// Whether it speaks HTTP/2. `None`: over TLS, ALPN decides; without TLS it is HTTP/1.1.
    pub http2: Option<bool>,
    /// Whether TLS is used.
    pub tls: bool,
    /// The host and port for its requests, as configured; for a Unix socket `localhost`.
    pub authority: http::uri::Authority,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamAddress {
    /// An address.
    Socket(SocketAddr),
    /// A name and port, looked up again regularly; each of its addresses is a server.
    Name(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// When a server is paused after failures.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveChecks {
    /// Failures in a row (connections refused, resets, time-outs; not error pages) until the pause; 0: never.
    pub failures: u32,
    /// The length of the pause; after it a single request tries the server.
    pub pause: Duration,
}

/// Requests that check a server's health.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveChecks {
    /// The path, with query.
    pub path: Uri,
    /// Time between two checks of a server.
    pub every: Duration,
    /// Time for the answer.
    pub timeout: Duration,
    /// The statuses of a healthy server, from and to.
    pub statuses: (u16, u16),
    /// Passed checks in a row until it is used again.
    pub rise: u32,
    /// Failed checks in a row until it is not used.
    pub fall: u32,
}

/// Servers that this process starts: for each class a pool of processes, with the class's processor priority.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkersConfig {
    /// The program and its arguments. `{socket}` is replaced by the path of the Unix socket to listen on,
    /// `{port}` by a loopback port, and `{class}` by the class's name.
    pub command: Vec<String>,
    /// The working directory.
    pub directory: Option<PathBuf>,
    /// Environment variables, beside those that are always set.
    pub environment: Vec<(String, String)>,
    /// Processes for each class.
    pub processes: NonZeroU32,
    /// Time until a process must accept connections.
    pub start_timeout: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
}

/// Programs run for each request (RFC 3875).
#[derive(Clone, Debug, PartialEq)]
pub struct CgiConfig {
    /// The directory of the programs, or a single program.
    pub program: PathBuf,
    /// The interpreter that runs the programs, such as `/usr/bin/php-cgi`; `None`: they are executed
    /// directly.
    pub interpreter: Option<PathBuf>,
    /// Variables beside those of the standard.
    pub environment: Vec<(String, String)>,
    /// Variables of this server's environment that are passed on.
    pub pass_environment: Vec<String>,
    /// Longest run time of a program; then it is killed.
    pub timeout: Duration,
    /// Largest head of the answer.
    pub head_bytes: usize,
    /// Most programs at once, in addition to the limit of slots; beyond it 503.
    pub most_running: NonZeroU32,
}

/// The priority of the processes that do a class's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The priority of this server.
    #[default]
    Inherited,
    /// Ordinary scheduling with a nice value: -20 (first) to 19.
    Nice(i8),
    /// Above all ordinary processes, in turns with equals (SCHED_RR), from 1 to 99 (highest).
    RoundRobin(u8),
    /// Above all ordinary processes, until it waits (SCHED_FIFO), from 1 to 99 (highest).
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
