//! The resolved configuration of upstreams.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use http::Uri;

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
