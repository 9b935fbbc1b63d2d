//! The resolved configuration of upstreams.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use http::{HeaderName, StatusCode, Uri};

pub use proxy_protocol::Version as ProxyVersion;

/// A certificate chain and its private key, both PEM, and what its authority says of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// A response of the authority that the certificate is valid (OCSP, DER), which a server sends along; `None`: none.
    pub ocsp: Option<PathBuf>,
}

/// A group of servers that do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// The name in routes, logs and metrics.
    pub name: String,
    /// The servers; may be empty if the caller starts some itself.
    pub servers: Vec<UpstreamServer>,
    /// Name servers for the names of servers; empty: those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// Certificate authorities for TLS (PEM), instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// The name that the server's certificate must have, if not that of its address.
    pub tls_name: Option<String>,
    /// The client certificate for upstreams that ask for one.
    pub tls_certificate: Option<CertificateFiles>,
    /// Whether the server's certificate is verified. Off only if the operator says so.
    pub tls_verify: bool,
    /// The header of the PROXY protocol that each connection begins with; `None`: none. A connection then carries the
    /// requests of one client's connection only.
    pub proxy_protocol: Option<ProxyVersion>,
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
    /// Most requests under way at each server, over all worker threads; `None`: no limit. A request that finds no server
    /// with room is refused.
    pub most_requests: Option<NonZeroU32>,
    /// The rule by which a request gets its server.
    pub balance: Balance,
    /// The cookie by which a client keeps its server; `None`: each request is placed anew.
    pub sticky: Option<StickyConfig>,
    /// Time in which a server that comes back gets its whole part of the requests; zero: at once.
    pub slow_start: Duration,
    /// Most other servers tried when a request reached none, or can safely be repeated.
    pub retries: u32,
    /// Statuses after which a safe request goes to another server: those of servers, and those that the client would get
    /// because a server failed or was silent.
    pub retry_statuses: Vec<StatusCode>,
    /// Most retries in percent of the requests, beside some that are always possible; `None`: no limit.
    pub retry_budget: Option<u32>,
    /// When another server is asked as well, because an answer takes long; `None`: never.
    pub hedge: Option<Hedge>,
    /// Most such second requests, in percent of the requests, beside some that are always possible.
    pub hedge_budget: u32,
    /// Largest head of a response, and of the interim responses before it, together.
    pub head_bytes: usize,
    /// When a server is paused after failures.
    pub passive: PassiveChecks,
    /// Requests that check a server's health.
    pub active: Option<ActiveChecks>,
    /// When a server is left alone because it does worse than the others; `None`: never.
    pub outliers: Option<OutlierChecks>,
}

impl UpstreamConfig {
    /// Makes an upstream without TLS, with the default settings.
    pub fn new(name: impl Into<String>, servers: Vec<UpstreamServer>) -> Self {
        Self {
            name: name.into(),
            servers,
            resolvers: Vec::new(),
            tls_ca: None,
            tls_name: None,
            tls_certificate: None,
            tls_verify: true,
            proxy_protocol: None,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            total_timeout: None,
            keep_connections: 1024,
            keep_for: Duration::from_secs(4),
            most_connections: None,
            most_requests: None,
            balance: Balance::LeastLoaded,
            sticky: None,
            slow_start: Duration::ZERO,
            retries: 1,
            retry_statuses: Vec::new(),
            retry_budget: Some(20),
            hedge: None,
            hedge_budget: 5,
            head_bytes: 64 * 1024,
            passive: PassiveChecks { failures: 3, pause: Duration::from_secs(10) },
            active: None,
            outliers: None,
        }
    }
}

/// When a safe request without an answer is sent to another server, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedge {
    /// When it takes longer than 95 % of the requests of its class.
    Slowest,
    /// After this time.
    After(Duration),
}

/// The rule by which a request gets its server, among those of one priority that are well.
#[derive(Clone, Debug, PartialEq)]
pub enum Balance {
    /// The server with the fewest requests under way for its weight.
    LeastLoaded,
    /// Servers take turns.
    RoundRobin,
    /// The less loaded one of two random servers.
    PowerOfTwo,
    /// Requests with the same key go to the same server. A request without a key goes to the least loaded one.
    Hash {
        /// The part of a request that counts.
        key: HashKey,
        /// Most requests under way at a server, in percent of its fair part and at least 100; `None`: no bound.
        bound: Option<u32>,
    },
}

/// The part of a request that decides on its server.
#[derive(Clone, Debug, PartialEq)]
pub enum HashKey {
    /// The client's address; of an IPv6 address the first 64 bits, which one client has for itself.
    Client,
    /// The path, without query.
    Path,
    /// A header field.
    Header(HeaderName),
    /// A cookie.
    Cookie(String),
}

/// The cookie by which a client keeps its server.
#[derive(Clone, Debug, PartialEq)]
pub struct StickyConfig {
    /// Its name.
    pub cookie: String,
    /// The file with the secret of at least 32 bytes that servers' names are signed with; `None`: a random one, lost
    /// when the process ends.
    pub secret: Option<PathBuf>,
    /// How long clients keep the cookie; `None`: until the browser is closed.
    pub lifetime: Option<Duration>,
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
    /// Its part of the requests, relative to the other servers of its priority. Never 0.
    pub weight: u32,
    /// Servers of the lowest number get all requests, for as long as one of them can take any.
    pub priority: u32,
}

impl UpstreamServer {
    /// The priority of a backup: after all others.
    pub const BACKUP: u32 = u32::MAX;

    /// Makes a server with the weight and priority of most servers.
    pub fn new(address: UpstreamAddress, http2: Option<bool>, tls: bool, authority: http::uri::Authority) -> Self {
        Self { address, http2, tls, authority, weight: 1, priority: 1 }
    }
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamAddress {
    /// An address.
    Socket(SocketAddr),
    /// A name and port, looked up again when its records are over; each of its addresses is a server.
    Name(String, u16),
    /// The name of a service (SRV), such as `_http._tcp.shop.internal`. Its records have servers with ports, weights and
    /// priorities, which are added to the priority of the configuration.
    Service(String),
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

/// When a server is left alone because it does worse than the others.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierChecks {
    /// Time between two looks.
    pub every: Duration,
    /// Fewest requests of a server in that time, so that it is judged at all.
    pub requests: u32,
    /// The share of failures and answers of 500 and above from which on a server is left alone, if it is also more than
    /// twice that of the others; `None`: errors do not matter.
    pub errors: Option<f64>,
    /// How many times longer than the others a server takes until it is left alone; `None`: time does not matter.
    pub slower: Option<f64>,
    /// For how long, the first time; each time in a row takes as much longer.
    pub pause: Duration,
    /// Most servers left alone at once, in percent of all.
    pub most: u32,
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
