//! Asks an upstream for one page, for nobody: to measure how long it takes.
//!
//! The page goes the way of any request: the same servers, the same choice between them, TLS or not, HTTP/1.1 or HTTP/2, and
//! connections that are kept for the next one. It takes no slot and waits in no queue; whoever asks sees to it that not too many
//! are asked at once.

use std::{fmt, sync::Arc, time::Duration};

use http::{
    HeaderValue, Request, StatusCode, header,
    uri::{Authority, PathAndQuery},
};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::{Ask, ClientAddress, Failure, Pools, Unavailable, UpstreamError, UpstreamSetupError, Upstreams};
use crate::{body::RequestBody, config::UpstreamConfig};

/// So that the site's own log tells them from visitors.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("serpent/", env!("CARGO_PKG_VERSION"), " (probe)"));

/// A page of an upstream that can be asked for again and again. To be used on one runtime only.
///
/// It owns its connections: as many idle ones as the upstream's configuration keeps, and for as long. With it they are closed.
#[derive(Debug)]
pub struct Probe {
    pools: Pools,
    upstream: usize,
    class: usize,
    page: PathAndQuery,
    /// `None`: the server's own.
    host: Option<String>,
    client: ClientAddress,
}

/// What came of a page, the whole body included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// From the question to the end of the body.
    pub took: Duration,
    /// Bytes of the body.
    pub bytes: u64,
}

impl Answer {
    /// Whether it is the page. An error page or a redirect is done with sooner, and tells nothing of the page.
    pub fn is_page(&self) -> bool {
        self.status.is_success()
    }
}

/// Why there is no whole answer.
#[derive(Debug)]
pub enum ProbeError {
    /// There was none in the time that was given for it.
    TimedOut {
        /// That time.
        after: Duration,
    },
    /// What would have failed any request.
    Upstream(UpstreamError),
}

/// Who is to blame for an answer that did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The site: it took no connection, broke off, or was silent for too long.
    Site,
    /// The operator: the configuration does not allow it, or leads nowhere.
    Operator,
    /// This machine, which lacks open files or ports. Nothing is known of the site.
    Us,
}

impl Probe {
    /// Of an upstream that nobody else uses. Reads its certificates, connects to nobody. `host` takes the place of the
    /// server's own.
    ///
    /// # Errors
    /// Certificates that cannot be used, or a host that is none.
    pub fn new(config: &UpstreamConfig, page: PathAndQuery, host: Option<&str>) -> Result<Self, UpstreamSetupError> {
        let upstreams = Upstreams::new(std::slice::from_ref(config), &[])?;
        Self::of(Arc::new(upstreams), 0, page, host)
    }

    /// Of one of the upstreams that a server has, by its place: requests under way, failures and pauses count for both. The
    /// connections are its own.
    ///
    /// # Errors
    /// No such upstream, or a host that is none.
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
        // Beyond all classes: the servers that all of them share.
        Ok(Self { pools, upstream, class: usize::MAX, page, host: host.map(str::to_owned), client })
    }

    /// Asks the servers that a class has, where an upstream has some for each.
    #[must_use]
    pub fn for_class(self, class: usize) -> Self {
        Self { class, ..self }
    }

    /// Asks for the page, and reads it to its end. Many may be asked for at once. To drop the future closes the connection, or
    /// resets the HTTP/2 stream.
    ///
    /// # Errors
    /// There was no whole answer within `timeout`. A status that says so is no error here.
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
            scheme: "http",
            host: self.host.as_deref().unwrap_or_default(),
            keep_host: self.host.is_some(),
            believed: None,
            rules: None,
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
    /// Who is to blame.
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
                UpstreamError::Shortage { .. } => Fault::Us,
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
