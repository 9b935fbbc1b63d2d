//! Where spans go, and which requests are sampled.

use std::{fmt, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri, uri::PathAndQuery};

/// The path of traces at a collector (OTLP specification, "OTLP/HTTP").
const TRACES_PATH: &str = "/v1/traces";

/// Where spans go, and which requests are sampled.
#[derive(Clone, PartialEq)]
pub struct TracesConfig {
    /// The collector.
    pub endpoint: Endpoint,
    /// The share of new traces that are sampled, from 0 to 1.
    pub sample: f64,
    /// The clients whose `traceparent` is believed.
    pub parents: Parents,
    /// The name under which the collector shows this server.
    pub service_name: String,
    /// Fields of each request to the collector, such as a key.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The authorities that the collector's certificate may be from; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Spans wait for so long, so that many are sent at once.
    pub interval: Duration,
}

/// The clients whose word on the trace of a request is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    /// Trusted proxies.
    Trusted,
    /// Every client.
    All,
    /// No client: each request begins a trace.
    None,
}

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// Why a text is no address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadEndpoint {
    /// It is no URL of `http` or `https` with a host.
    NoUrl,
    /// It has an account in it, which belongs into the headers.
    Account,
}

impl Endpoint {
    /// Reads the address of a collector. Without a path, the path of the protocol is added.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &str) -> Result<Self, BadEndpoint> {
        let mut parts = text.parse::<Uri>().map_err(|_| BadEndpoint::NoUrl)?.into_parts();
        let is_http = parts.scheme.as_ref().is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https"));
        let authority = parts.authority.as_ref().filter(|_| is_http).ok_or(BadEndpoint::NoUrl)?;
        if authority.as_str().contains('@') {
            return Err(BadEndpoint::Account);
        }
        // `http` takes `host:` and `host:99999`, too.
        let after_host = authority.as_str().rsplit(']').next().unwrap_or_default();
        let is_port_sound = !after_host.contains(':') || authority.port_u16().is_some_and(|port| port != 0);
        if authority.host().is_empty() || !is_port_sound {
            return Err(BadEndpoint::NoUrl);
        }
        if parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(TRACES_PATH));
        }
        Uri::from_parts(parts).map(Self).map_err(|_| BadEndpoint::NoUrl)
    }

    /// Whether TLS is spoken.
    pub fn is_tls(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// The name or address of the host, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 })
    }

    /// The host with its port, as a request names it.
    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    pub(crate) fn path(&self) -> &PathAndQuery {
        self.0.path_and_query().expect("it was made with a path")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may have a key in it.
        let scheme = self.0.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{}{}", self.authority(), self.0.path())
    }
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUrl => f.write_str("is not the address of a collector"),
            Self::Account => f.write_str("has an account in it"),
        }
    }
}

impl std::error::Error for BadEndpoint {}

impl fmt::Debug for TracesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("TracesConfig")
            .field("endpoint", &self.endpoint.to_string())
            .field("sample", &self.sample)
            .field("parents", &self.parents)
            .field("service_name", &self.service_name)
            .field("headers", &names)
            .field("ca", &self.ca)
            .field("interval", &self.interval)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_that_of_the_protocol() {
        for (text, whole, port) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces", 4318),
            ("http://collector/", "http://collector/v1/traces", 80),
            ("https://api.example.org/otlp/v1/traces?key=secret", "https://api.example.org/otlp/v1/traces", 443),
            ("http://[::1]:4318/x", "http://[::1]:4318/x", 4318),
            ("http://[::1]", "http://[::1]/v1/traces", 80),
        ] {
            let endpoint = Endpoint::new(text).unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.port()), (whole, port));
        }
        assert_eq!(Endpoint::new("http://[::1]:4318").unwrap().host(), "::1");
        for text in
            ["", "off", "collector:4318", "/v1/traces", "grpc://a:4317", "http://", "http://a:", "http://a:99999"]
        {
            assert_eq!(Endpoint::new(text), Err(BadEndpoint::NoUrl), "{text}");
        }
        assert_eq!(Endpoint::new("http://a:b@c"), Err(BadEndpoint::Account));
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = TracesConfig {
            endpoint: Endpoint::new("https://a/v1/traces?key=secret").unwrap(),
            sample: 1.0,
            parents: Parents::Trusted,
            service_name: "serpent".to_owned(),
            headers: vec![(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"))],
            ca: None,
            interval: Duration::from_secs(5),
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }
}
