//! A request for an upstream, and the parameters for passing it on.

use std::time::Duration;

use bodies::RequestBody;
use std::net::IpAddr;

use heads::{ClientAddress, ForwardedField, HeaderRules};
use http::{HeaderMap, Method, Request, Version, uri::PathAndQuery};
use proxy_protocol::Ends;
use tokio::time::Instant;

/// A request for an upstream, as the client made it except for its path.
#[derive(Debug)]
pub struct Outbound {
    /// The method.
    pub method: Method,
    /// The path and query to ask the upstream for.
    pub path: PathAndQuery,
    /// The version of HTTP that the client speaks.
    pub version: Version,
    /// All fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
}

impl From<Request<RequestBody>> for Outbound {
    fn from(request: Request<RequestBody>) -> Self {
        let (parts, body) = request.into_parts();
        let path = parts.uri.into_parts().path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Self { method: parts.method, path, version: parts.version, headers: parts.headers, body }
    }
}

/// The parameters for passing a request on, beside the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The upstream's index in the configurations that [`crate::Upstreams::new`] got.
    pub upstream: usize,
    /// The class's index, for upstreams with a pool of workers for each class.
    pub class: usize,
    /// The address of the peer of the client's connection, for `X-Forwarded-For` and `Forwarded`. Behind a
    /// trusted proxy this is the proxy's address; it is appended to the proxy's own statement in the believed
    /// field.
    pub client: &'a ClientAddress,
    /// The address of the client itself, as far as proxies are believed, to choose a server by.
    pub client_ip: IpAddr,
    /// The two ends of the client's connection, for upstreams that get a header of the PROXY protocol; `None`: the request
    /// is this server's own.
    pub ends: Option<Ends>,
    /// `http` or `https`: the scheme of the client's connection to this server.
    pub scheme: &'a str,
    /// The host that the client asked for, for `X-Forwarded-Host`.
    pub host: &'a str,
    /// Whether the upstream sees the client's host rather than the server's own.
    pub keep_host: bool,
    /// The field about the client that is passed on because a trusted proxy sent it; `None`: no field is
    /// believed.
    pub believed: Option<ForwardedField>,
    /// Changes to the request's header. They are applied after hop-by-hop fields are removed. Otherwise a
    /// client could have the fields that they set removed, by naming them in `Connection`.
    pub rules: Option<&'a HeaderRules>,
    /// Time limits in place of those of the upstream.
    pub times: Option<Times>,
    /// When the client has no more use for an answer. No server is blamed for that.
    pub until: Option<Instant>,
}

/// Time limits of requests, in place of those of their upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// See [`UpstreamConfig::idle_timeout`](crate::UpstreamConfig::idle_timeout).
    pub idle: Duration,
    /// See [`UpstreamConfig::total_timeout`](crate::UpstreamConfig::total_timeout).
    pub total: Option<Duration>,
}
