//! The resolved configuration: every value checked, every default filled in.
//!
//! The configuration file and the flags are read in the `serpent` binary (stage one, raw); this is stage two, and there
//! is no third. Everything the data path needs to know stands here, and nothing in here can be invalid.

mod access;
mod cache;
mod classes;
mod cluster;
mod compression;
mod gateway;
mod maintenance;
mod respond;

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use ::access_log::LogChoices;
pub use ::access_log::{AccessLog, LogChoice, LogFormat, LogTarget};
pub use ::acme::{AcmeConfig, ChallengeKind, ExternalAccount};
pub use ::cache::{Rules as CacheRules, StoreConfig};
pub use ::compression::{Coding as CompressionCoding, Levels as CompressionLevels};
pub use ::limits::{ByteRate, Limit, LimitBy, Rate};
pub use classify::{Condition, Filter, KeysConfig, PathPattern, Requirement, Rule, SessionConfig, ValueMatch};
pub use drivers::{
    Adjustment, AdmissionConfig, Cutoffs, Enforce, KeepRate, ProbeConfig, ResourceConfig, UplinkConfig, UplinkRate,
};
pub use files::{CacheConfig, CacheControlRule, FilesConfig, SymlinkPolicy};
pub use heads::{Cors, Expires, ForwardedField, Freshness, HeaderRules, OriginPattern, Origins, TypePattern};
use http::{HeaderValue, Uri};
use ipnet::IpNet;
pub use programs::{CgiConfig, FastCgiAddress, FastCgiConfig, Priority, UwsgiConfig, WorkersConfig};
pub use rewrites::{BadTarget, Redirect, Rewrite};
pub use traces::{BadEndpoint, Endpoint as TracesEndpoint, Parents as TraceParents, TracesConfig};
pub use upstream::{
    ActiveChecks, Balance, CertificateFiles, HashKey, Hedge, OutlierChecks, PassiveChecks, ProxyVersion, StickyConfig,
    Times, UpstreamAddress, UpstreamConfig, UpstreamServer,
};

pub use self::{
    access::{Access, AddressRules, ForwardAuth, Require},
    cache::RouteCache,
    classes::{ClassConfig, Classes, Objective, Refusal},
    cluster::{ClusterConfig, StoreError, StoreFiles},
    compression::CompressionConfig,
    gateway::{Origin, Route, RouteLimit},
    maintenance::Maintenance,
    respond::Respond,
};
pub(crate) use rewrites::Source;

/// Everything `serpent serve` needs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Never empty.
    pub listen: Vec<Listen>,
    /// The sites, the first one being the default for unknown host names. Never empty.
    pub sites: Vec<Site>,
    /// Servers behind this one, that routes of sites name.
    pub upstreams: Vec<UpstreamConfig>,
    /// Programs that are started as servers of the upstreams that they name.
    pub upstream_workers: Vec<WorkersConfig>,
    /// Classes, the rules that assign requests to them, and their shares.
    pub classes: Classes,
    /// How the bytes of responses leave.
    pub uplink: UplinkConfig,
    /// Limits for clients.
    pub limits: Limits,
    /// Networks of proxies whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Vec<IpNet>,
    /// Number of worker threads that serve connections.
    pub workers: NonZeroUsize,
    /// Where outcomes are written, if anywhere. Sites and routes may choose another log.
    pub access_log: Option<AccessLog>,
    /// Where messages are written. The program writes them, not the server.
    pub error_log: ErrorLog,
    /// Where the spans of requests go, if anywhere.
    pub tracing: Option<TracesConfig>,
    /// Where metrics and status are served, if anywhere. Never on the public addresses.
    pub admin: Option<SocketAddr>,
    /// The file with the token that changes at that address need; `None`: nothing can be changed there.
    pub admin_token: Option<PathBuf>,
    /// The authority that is asked for certificates, if any site has one from it.
    pub acme: Option<AcmeConfig>,
    /// The store that the gateways of a site share, if there are several.
    pub cluster: Option<ClusterConfig>,
    /// Small hot files kept in memory.
    pub cache: CacheConfig,
    /// The bounds of the shared cache of responses.
    pub shared_cache: StoreConfig,
}

impl Config {
    /// Where the outcomes of requests are written, by site and route.
    pub(crate) fn logs(&self) -> LogChoices {
        let of_routes = |site: &Site| site.routes.iter().map(|route| route.access_log.clone()).collect();
        let sites = self.sites.iter().map(|site| (site.access_log.clone(), of_routes(site))).collect();
        LogChoices { server: self.access_log.clone(), sites }
    }
}

/// Where messages are written, and in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorLog {
    /// Where; `None`: to standard error.
    pub target: Option<LogTarget>,
    /// The form of a message.
    pub format: MessageFormat,
}

/// The form of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageFormat {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// One address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Whether TLS is spoken there.
    pub tls: bool,
}

/// One site: a set of host names, a directory, and routes to other origins.
#[derive(Clone, Debug)]
pub struct Site {
    /// Host names, in lower case, without port. `*.example.org` matches one or more labels. Empty for a default site.
    pub names: Vec<String>,
    /// The directory that is served; `None`: there are only routes, and paths of none of them answer 404.
    pub root: Option<PathBuf>,
    /// The routes to other origins than the site's files.
    pub routes: Vec<Route>,
    /// Its certificate, where the site is served over TLS.
    pub certificate: Option<Certificate>,
    /// Certificate authorities (PEM) for clients that show a certificate; `None`: clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// How files are served.
    pub files: FilesConfig,
    /// How the responses for paths of no route are compressed while they are sent; `None`: they are not.
    pub compression: Option<Arc<CompressionConfig>>,
    /// How long the responses for paths of no route may be kept, by their type; `None`: nothing is said.
    pub expires: Option<Arc<Expires>>,
    /// Which pages of other origins may read the responses for paths of no route; `None`: nothing is said.
    pub cors: Option<Arc<Cors>>,
    /// Changes to the header of every response. Those of a route are made after them.
    pub response_headers: HeaderRules,
    /// Access to paths that no route matches. Each route has its own.
    pub access: Access,
    /// Pages that take the place of the body of an error, by status; the first one counts.
    pub error_pages: Vec<ErrorPage>,
    /// How many requests are answered, of all routes together that have no limit of their own.
    pub limit: Option<Limit>,
    /// When requests are refused for maintenance; `None`: never.
    pub maintenance: Option<Maintenance>,
    /// Where requests without TLS are sent: the same address with TLS. `None`: they are answered.
    pub to_https: Option<Redirect>,
    /// `Strict-Transport-Security` of responses over TLS.
    pub hsts: Option<HeaderValue>,
    /// Where the outcomes of its requests are written.
    pub access_log: LogChoice,
}

impl Site {
    /// The extensions of the scripts that routes hand on. No such file is sent as it is.
    pub(crate) fn scripts(&self) -> Vec<String> {
        let extensions = self.routes.iter().filter_map(|route| match &route.origin {
            Origin::FastCgi(fastcgi) => Some(fastcgi.extensions.clone()),
            _ => None,
        });
        extensions.flatten().collect()
    }
}

/// Whether a path leads to a file with one of these extensions.
pub fn is_script(extensions: &[String], path: &str) -> bool {
    let extension = path.trim_end_matches('/').rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    extension.is_some_and(|(_, found)| extensions.iter().any(|extension| extension == found))
}

/// Where the certificate of a site is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Files that another program keeps.
    Files(CertificateFiles),
    /// An authority is asked for it. The names are one of [`AcmeConfig::certificates`].
    Acme(Arc<[String]>),
}

impl Certificate {
    /// The files, if it is in files.
    pub fn files(&self) -> Option<&CertificateFiles> {
        match self {
            Self::Files(files) => Some(files),
            Self::Acme(_) => None,
        }
    }
}

/// A page in place of the body of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// From the first of these statuses to the last.
    pub statuses: (u16, u16),
    /// The page.
    pub page: PageSource,
}

/// Where the text of a page is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageSource {
    /// A file of the site's root, by its path on the site.
    OfRoot(Uri),
    /// A file, read when the site is opened.
    File(PathBuf),
    /// The configuration.
    Text(String),
}

/// Limits for clients. docs/DEFAULTS.md has the reasons for the defaults.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections open at once; more wait in the kernel's accept queue.
    pub connections: usize,
    /// Connections of one client open at once; beyond it they are closed. `None`: as many as there may be. Trusted proxies may
    /// have any number.
    pub connections_per_client: Option<NonZeroU32>,
    /// Largest request head in bytes; beyond it 431 (414 for the target).
    pub request_head_bytes: usize,
    /// Largest number of header fields; beyond it 431.
    pub request_headers: usize,
    /// Largest request body; beyond it 413.
    pub request_body_bytes: u64,
    /// Most bytes of one body, on its way to or from an origin, in memory; the rest goes to a temporary file.
    pub body_memory_bytes: usize,
    /// Bytes of one body kept in a temporary file at most; beyond it the origin, or the client, has to wait.
    pub body_file_bytes: u64,
    /// Bytes of all bodies kept in temporary files at once; beyond it a body is treated as if it were allowed no file.
    pub body_files_bytes: u64,
    /// The directory of such files; `None`: the system's.
    pub body_directory: Option<PathBuf>,
    /// Time for a TLS handshake, and for the header of a proxy before it.
    pub handshake_timeout: Duration,
    /// Time for a request head, from its first byte (from the accept for the first request); then 408.
    pub head_timeout: Duration,
    /// The least rate of a request's body, in bytes a second, beyond `head_timeout`; then 408. 0: only a silence of
    /// that length ends the request. A body that is streamed to its origin has no least rate.
    pub request_body_rate: u64,
    /// How long a keep-alive connection may be idle, and how long both directions of a streamed request.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of a response that is offered to it. Time spent waiting for the scheduler's
    /// leave does not count: starved responses are never cut off.
    pub write_timeout: Duration,
    /// The least rate at which a client has to take offered bytes, in bytes a second, averaged over about
    /// `write_timeout`; 0: none.
    pub response_rate: u64,
    /// Concurrent streams of an HTTP/2 connection.
    pub http2_streams: u32,
    /// How long connections are still taken after SIGTERM, while `/health` says that the server stops.
    pub shutdown_delay: Duration,
    /// How long responses under way may take after SIGTERM; `None`: as long as they need.
    pub shutdown_timeout: Option<Duration>,
}

impl From<&Limits> for bodies::StoreLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.body_memory_bytes,
            file_bytes: limits.body_file_bytes,
            files_bytes: limits.body_files_bytes,
            directory: limits.body_directory.clone(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_client: None,
            request_head_bytes: 32 * 1024,
            request_headers: 100,
            request_body_bytes: 1024 * 1024,
            body_memory_bytes: 256 * 1024,
            body_file_bytes: 1024 * 1024 * 1024,
            body_files_bytes: 16 * 1024 * 1024 * 1024,
            body_directory: None,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            request_body_rate: 500,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(60),
            response_rate: 240,
            http2_streams: 128,
            shutdown_delay: Duration::ZERO,
            shutdown_timeout: None,
        }
    }
}
