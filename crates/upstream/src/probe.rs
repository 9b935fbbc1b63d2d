//! Asks an upstream for one page, without a client, to measure how long it takes.
//!
//! The page takes the path of any request: the same servers and choice between them, TLS or not, HTTP/1.1 or
//! HTTP/2, and kept connections. It takes no slot and waits in no queue; the caller limits how many are asked
//! for at once.

use std::{fmt, sync::Arc, time::Duration};

use bodies::RequestBody;
use heads::ClientAddress;
use http::{
    HeaderValue, Request, StatusCode, header,
    uri::{Authority, PathAndQuery},
};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{
    config::UpstreamConfig,
    error::{Failure, Unavailable, UpstreamError, UpstreamSetupError},
    pools::Pools,
    request::Ask,
    upstreams::Upstreams,
};

/// Lets the site's own log tell probes from visitors.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("serpent/", env!("CARGO_PKG_VERSION"), " (probe)"));

/// A page of an upstream that can be asked for repeatedly. It may be used only on one runtime.
///
/// It owns its connections and keeps idle ones as the upstream's configuration says. Dropping it closes them.
#[derive(Debug)]
pub struct Probe {
    pools: Pools,
    upstream: usize,
    class: usize,
    page: PathAndQuery,
    /// `None`: the server's own host.
    host: Option<String>,
    client: ClientAddress,
}

/// The outcome of a page, its whole body included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Time from the request to the end of the body.
    pub took: Duration,
    /// Bytes of the body.
    pub bytes: u64,
}

impl Answer {
    /// Whether the answer is the page. An error page or a redirect is faster and says nothing about the page.
    pub fn is_page(&self) -> bool {
        self.status.is_success()
    }
}

/// Why there is no whole answer.
#[derive(Debug)]
pub enum ProbeError {
    /// No whole answer arrived within the given time.
    TimedOut {
        /// The given time.
        after: Duration,
    },
    /// An error that would have failed any request.
    Upstream(UpstreamError),
}

/// The party at fault for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The site: it refused the connection, broke off, or was silent for too long.
    Site,
    /// The operator: the configuration does not allow the probe, or leads to no server.
    Operator,
    /// This machine, which lacks open files or ports. Nothing is known about the site.
    ThisMachine,
}

impl Probe {
    /// Makes a probe with an upstream of its own. It reads the certificates but does not connect. `host`
    /// replaces the server's own host.
    ///
    /// # Errors
    /// A certificate cannot be used, or `host` is invalid.
    pub fn new(config: &UpstreamConfig, page: PathAndQuery, host: Option<&str>) -> Result<Self, UpstreamSetupError> {
        let upstreams = Upstreams::new(std::slice::from_ref(config), &[])?;
        Self::of(Arc::new(upstreams), 0, page, host)
    }

    /// Makes a probe of an existing upstream, by its index. Requests under way, failures and pauses are
    /// shared with the server's traffic; connections are not.
    ///
    /// # Errors
    /// There is no such upstream, or `host` is invalid.
    pub fn of(
        upstreams: Arc<Upstreams>,
        upstream: usize,
        page: PathAndQuery,
        host: Option<&str>,
    ) -> Result<Self, UpstreamSetupError> {
        let name = upstreams.groups.get(upstream).map_or_else(String::new, |group| group.name.to_string());
        let wrong = |message: String| UpstreamSetupError { upstream: name.clone(), message };
        if upstream >= upstreams.groups.len() {
            return Err(wrong(format!("there is no upstream number {upstream}")));
        }
        if let Some(host) = host.filter(|host| host.parse::<Authority>().is_err()) {
            return Err(wrong(format!("`{host}` is no host")));
        }
        let client = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
        let pools = Pools::new(upstreams);
        // An index beyond all classes stands for the servers that all classes share.
        Ok(Self { pools, upstream, class: usize::MAX, page, host: host.map(str::to_owned), client })
    }

    /// Asks the servers of a class, if the upstream has servers for each class.
    #[must_use]
    pub fn for_class(self, class: usize) -> Self {
        Self { class, ..self }
    }

    /// Asks for the page and reads it to its end. Several calls may run at once. Dropping the future closes
    /// the connection or resets the HTTP/2 stream.
    ///
    /// # Errors
    /// There was no whole answer within `timeout`. An error status is an answer, not an error.
    pub async fn ask(&self, timeout: Duration) -> Result<Answer, ProbeError> {
        let started = Instant::now();
        match tokio::time::timeout(timeout, self.whole()).await {
            Ok(Ok((status, bytes))) => Ok(Answer { status, took: started.elapsed(), bytes }),
            Ok(Err(error)) => Err(ProbeError::Upstream(error)),
            Err(_) => Err(ProbeError::TimedOut { after: timeout }),
        }
    }

    async fn whole(&self) -> Result<(StatusCode, u64), UpstreamError> {
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = self.page.clone().into();
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        let ask = Ask {
            upstream: self.upstream,
            class: self.class,
            client: &self.client,
            client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            ends: None,
            scheme: "http",
            host: self.host.as_deref().unwrap_or_default(),
            keep_host: self.host.is_some(),
            believed: None,
            rules: None,
            times: None,
            until: None,
        };
        let answer = self.pools.send(request, ask).await?;
        let status = answer.response.status();
        let mut body = answer.response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(UpstreamError::of_body)?;
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok((status, bytes))
    }
}

impl ProbeError {
    /// The party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::TimedOut { .. } => Fault::Site,
            Self::Upstream(error) => match error {
                UpstreamError::Failed { failure: Failure::HeadTooLarge, .. } => Fault::Operator,
                UpstreamError::Failed { .. }
                | UpstreamError::TimedOut { .. }
                | UpstreamError::NoServer { why: Unavailable::Down, .. } => Fault::Site,
                UpstreamError::NoServer { .. } | UpstreamError::Loop { .. } | UpstreamError::Request(_) => {
                    Fault::Operator
                }
                UpstreamError::Shortage { .. } => Fault::ThisMachine,
            },
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { after } => write!(f, "no whole answer within {:.3} s", after.as_secs_f64()),
            Self::Upstream(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProbeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TimedOut { .. } => None,
            Self::Upstream(error) => Some(error),
        }
    }
}
