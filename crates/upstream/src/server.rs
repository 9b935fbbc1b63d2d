//! One server: its load and its health, shared by all worker threads.

use std::{
    fmt,
    net::SocketAddr,
    num::NonZeroU32,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use aws_lc_rs::constant_time;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::{
    balance::{hash, slow_start},
    config::{ActiveChecks, PassiveChecks, UpstreamServer},
    error::{Failure, UpstreamError, is_shortage},
    outliers::Counts,
};

/// Longest time as an outlier, in times of the first one.
const MOST_EJECTIONS: u32 = 10;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server as defined in one configuration.
#[derive(Debug)]
pub(crate) struct Server {
    /// Worker threads find their connections to the server by this identifier.
    pub(crate) id: u64,
    /// The name in logs.
    pub(crate) name: Arc<str>,
    pub(crate) spec: UpstreamServer,
    pub(crate) endpoint: Endpoint,
    /// The class that it serves; `None`: all.
    pub(crate) class: Option<usize>,
    pub(crate) host: HeaderValue,
    pub(crate) state: Arc<ServerState>,
    /// A number that the name has in each process, for the choice by a key.
    pub(crate) identity: u64,
    /// The value of the cookie that stands for it; `None`: no client keeps its server.
    pub(crate) token: Option<Box<str>>,
    protocol: AtomicU8,
    /// The server no longer belongs to the upstream.
    pub(crate) retired: AtomicBool,
}

/// The state of a server that survives a change of the configuration.
#[derive(Debug)]
pub(crate) struct ServerState {
    start: Instant,
    in_flight: AtomicU32,
    connections: AtomicU32,
    requests: AtomicU64,
    failures: AtomicU64,
    /// Failures since the last success.
    in_a_row: AtomicU32,
    /// The pause lasts until then, in nanoseconds since `start`; 0: not paused.
    paused_until: AtomicU64,
    /// Active checks found it down.
    down: AtomicBool,
    /// How many active checks in a row had the result of the last one.
    checks_in_a_row: AtomicU32,
    last_check_passed: AtomicBool,
    pub(crate) checking: AtomicBool,
    /// Whether checks have found that it reads no HTTP/1.1, where nothing says which version it speaks.
    pub(crate) answers_http2_only: AtomicBool,
    /// The server has accepted a connection before.
    reached: AtomicBool,
    /// When it came back, in nanoseconds since `start`; 0: it has its whole part of the requests.
    back_since: AtomicU64,
    /// Responses begun, those of 500 and above, and the time until they began; counted where outliers are looked for.
    answers: AtomicU64,
    server_errors: AtomicU64,
    time_us: AtomicU64,
    /// It is left alone as an outlier, until then in nanoseconds since `start`; 0: it is not.
    ejected_until: AtomicU64,
    /// How often in a row it was.
    ejections: AtomicU32,
    /// The operator's changes while it runs: a [`ServerMode`], a weight (0: that of the configuration), and whether they
    /// survive a reload.
    mode: AtomicU8,
    weight: AtomicU32,
    kept: AtomicBool,
}

/// The protocol of a server, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Unknown,
    Http1,
    Http2,
}

/// Whether a server is in use, as the operator says while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerMode {
    /// It gets requests.
    #[default]
    Enabled,
    /// It keeps the clients whose cookie names it, and gets no others.
    Draining,
    /// It gets no requests.
    Disabled,
}

/// A change of a server while it runs. A setting that is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerChange {
    /// Whether it is in use.
    pub mode: Option<ServerMode>,
    /// Its weight, above 0; `Some(None)`: that of the configuration.
    pub weight: Option<Option<u32>>,
    /// Whether its changes survive a reload.
    pub keep: Option<bool>,
}

/// The health of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The server is in use.
    Healthy,
    /// It failed too often and gets no requests for a while.
    Paused,
    /// It did worse than the others and gets no requests for a while.
    Ejected,
    /// Active checks found it down.
    Down,
}

impl Server {
    pub(crate) fn new(
        id: u64,
        spec: &UpstreamServer,
        endpoint: Endpoint,
        class: Option<usize>,
        state: Arc<ServerState>,
        token: Option<Box<str>>,
    ) -> Self {
        let name = endpoint.to_string();
        let protocol = match (spec.http2, spec.tls) {
            (Some(true), _) => Protocol::Http2,
            (Some(false), _) | (None, false) => Protocol::Http1,
            (None, true) => Protocol::Unknown,
        };
        Self {
            id,
            identity: hash::number(name.as_bytes()),
            name: name.into(),
            // All bytes of an authority are valid in a field value.
            host: HeaderValue::from_str(host_of(&spec.authority)).unwrap_or(HeaderValue::from_static("localhost")),
            spec: spec.clone(),
            endpoint,
            class,
            state,
            token,
            protocol: AtomicU8::new(protocol as u8),
            retired: AtomicBool::new(false),
        }
    }

    /// Whether the value of a cookie stands for this server.
    pub(crate) fn has_token(&self, given: &[u8]) -> bool {
        let is_own = |own: &str| constant_time::verify_slices_are_equal(own.as_bytes(), given).is_ok();
        self.token.as_deref().is_some_and(is_own)
    }

    /// Its weight, given while it runs or configured.
    pub(crate) fn weight(&self) -> u32 {
        self.state.given_weight().unwrap_or(self.spec.weight)
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.protocol.load(Relaxed) {
            1 => Protocol::Http1,
            2 => Protocol::Http2,
            _ => Protocol::Unknown,
        }
    }

    pub(crate) fn learn(&self, protocol: Protocol) {
        self.protocol.store(protocol as u8, Relaxed);
    }

    /// Records that the server accepted a connection.
    pub(crate) fn reached(&self) {
        if !self.state.reached.load(Relaxed) {
            self.state.reached.store(true, Relaxed);
        }
    }

    /// Sorts a failed connection: a shortage of this machine, or a failure of the server.
    pub(crate) fn shortage(&self, failure: Failure) -> Result<UpstreamError, Failure> {
        match failure {
            Failure::Connect(error) if is_shortage(&error, self.state.reached.load(Relaxed)) => {
                Ok(UpstreamError::Shortage { server: self.name.clone(), error })
            }
            failure => Err(failure),
        }
    }

    /// Records that a request failed by the server's fault.
    pub(crate) fn failed(&self, upstream: &str, checks: &PassiveChecks) {
        self.state.failures.fetch_add(1, Relaxed);
        if checks.failures == 0 {
            return;
        }
        let in_a_row = self.state.in_a_row.fetch_add(1, Relaxed).saturating_add(1);
        let trial = self.state.paused_until.load(Relaxed) != 0;
        if in_a_row >= checks.failures || trial {
            self.state.paused_until.store(self.state.now() + nanos(checks.pause), Relaxed);
            if !trial {
                tracing::warn!(
                    upstream,
                    server = &*self.name,
                    "failed {in_a_row} times in a row, is left alone for {:?}",
                    checks.pause
                );
            }
        }
    }

    /// Records that the head of an answer arrived. The body may still fail.
    pub(crate) fn answered(&self, upstream: &str) {
        if self.state.paused_until.load(Relaxed) != 0 {
            self.state.paused_until.store(0, Relaxed);
            self.state.in_a_row.store(0, Relaxed);
            self.state.comes_back();
            tracing::info!(upstream, server = &*self.name, "answers again");
        }
    }

    /// Records that a whole answer arrived.
    pub(crate) fn succeeded(&self) {
        if self.state.in_a_row.load(Relaxed) != 0 {
            self.state.in_a_row.store(0, Relaxed);
        }
    }

    /// Records the result of an active check.
    pub(crate) fn checked(&self, upstream: &str, outcome: Result<(), String>, checks: &ActiveChecks) {
        let state = &self.state;
        let passed = outcome.is_ok();
        if state.last_check_passed.swap(passed, Relaxed) != passed {
            state.checks_in_a_row.store(0, Relaxed);
        }
        let in_a_row = state.checks_in_a_row.fetch_add(1, Relaxed).saturating_add(1);
        let down = state.down.load(Relaxed);
        match outcome {
            Ok(()) if down && in_a_row >= checks.rise.max(1) => {
                state.down.store(false, Relaxed);
                state.paused_until.store(0, Relaxed);
                state.in_a_row.store(0, Relaxed);
                state.comes_back();
                tracing::info!(upstream, server = &*self.name, "passed {in_a_row} checks, is used again");
            }
            Err(what) if !down && in_a_row >= checks.fall.max(1) => {
                state.down.store(true, Relaxed);
                tracing::warn!(upstream, server = &*self.name, "failed {in_a_row} checks, is left alone: {what}");
            }
            _ => {}
        }
    }
}

fn host_of(authority: &http::uri::Authority) -> &str {
    // User names and passwords are no part of `Host`.
    let whole = authority.as_str();
    whole.rsplit_once('@').map_or(whole, |(_, host)| host)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
}

impl ServerState {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            in_flight: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            in_a_row: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            down: AtomicBool::new(false),
            checks_in_a_row: AtomicU32::new(0),
            last_check_passed: AtomicBool::new(true),
            checking: AtomicBool::new(false),
            answers_http2_only: AtomicBool::new(false),
            reached: AtomicBool::new(false),
            back_since: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            time_us: AtomicU64::new(0),
            ejected_until: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            mode: AtomicU8::new(ServerMode::Enabled as u8),
            weight: AtomicU32::new(0),
            kept: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since `start`. Never 0, which stands for no pause.
    fn now(&self) -> u64 {
        nanos(self.start.elapsed()).saturating_add(1)
    }

    pub(crate) fn health(&self) -> Health {
        if self.down.load(Relaxed) {
            Health::Down
        } else if self.ejected_until.load(Relaxed) != 0 {
            Health::Ejected
        } else if self.paused_until.load(Relaxed) != 0 {
            Health::Paused
        } else {
            Health::Healthy
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }

    /// Counts an answer for the comparison with other servers.
    pub(crate) fn count_answer(&self, status: StatusCode, after: Duration) {
        self.answers.fetch_add(1, Relaxed);
        self.time_us.fetch_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX), Relaxed);
        if status.is_server_error() {
            self.server_errors.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let (answers, failures) = (self.answers.load(Relaxed), self.failures.load(Relaxed));
        Counts {
            requests: answers + failures,
            errors: self.server_errors.load(Relaxed) + failures,
            answers,
            time_us: self.time_us.load(Relaxed),
        }
    }

    /// Leaves it alone as an outlier. Returns for how long.
    pub(crate) fn eject(&self, pause: Duration) -> Duration {
        let times = self.ejections.fetch_add(1, Relaxed).saturating_add(1).min(MOST_EJECTIONS);
        let pause = pause * times;
        self.ejected_until.store(self.now().saturating_add(nanos(pause)), Relaxed);
        pause
    }

    /// Takes it back once its time as an outlier is over.
    pub(crate) fn end_ejection(&self, upstream: &str, server: &str) {
        let until = self.ejected_until.load(Relaxed);
        if until != 0 && until <= self.now() {
            self.ejected_until.store(0, Relaxed);
            self.comes_back();
            tracing::info!(upstream, server, "is compared with the others anew");
        }
    }

    /// Notes that it did as well as the others.
    pub(crate) fn forgive(&self) {
        let _ = self.ejections.fetch_update(Relaxed, Relaxed, |times| times.checked_sub(1));
    }

    /// Takes it back because outliers are no longer looked for.
    pub(crate) fn is_no_outlier(&self) {
        self.ejected_until.store(0, Relaxed);
        self.ejections.store(0, Relaxed);
    }

    pub(crate) fn mode(&self) -> ServerMode {
        match self.mode.load(Relaxed) {
            1 => ServerMode::Draining,
            2 => ServerMode::Disabled,
            _ => ServerMode::Enabled,
        }
    }

    /// The weight that it was given while it runs.
    pub(crate) fn given_weight(&self) -> Option<u32> {
        Some(self.weight.load(Relaxed)).filter(|weight| *weight != 0)
    }

    /// Whether it differs from the configuration.
    pub(crate) fn is_changed(&self) -> bool {
        self.mode() != ServerMode::Enabled || self.given_weight().is_some()
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Relaxed)
    }

    pub(crate) fn change(&self, change: ServerChange) {
        if let Some(mode) = change.mode
            && self.mode.swap(mode as u8, Relaxed) != mode as u8
            && mode == ServerMode::Enabled
        {
            self.comes_back();
        }
        if let Some(weight) = change.weight {
            self.weight.store(weight.unwrap_or(0), Relaxed);
        }
        if let Some(keep) = change.keep {
            self.kept.store(keep, Relaxed);
        }
    }

    /// Notes that it gets requests after a time without any.
    pub(crate) fn comes_back(&self) {
        self.back_since.store(self.now(), Relaxed);
    }

    /// The part of its weight that it has, in percent.
    pub(crate) fn percent(&self, slow_start: Duration) -> u32 {
        let since = self.back_since.load(Relaxed);
        if since == 0 {
            return 100;
        }
        let percent = slow_start::percent(self.now().saturating_sub(since), nanos(slow_start));
        if percent == 100 {
            // If it came back again meanwhile, that is not forgotten.
            let _ = self.back_since.compare_exchange(since, 0, Relaxed, Relaxed);
        }
        percent
    }

    /// Whether the pause is over, so that a request may try the server.
    pub(crate) fn is_pause_over(&self) -> bool {
        let until = self.paused_until.load(Relaxed);
        until != 0 && until <= self.now()
    }

    /// Whether the pause is over and this request is the one that tries the server. The pause begins again
    /// for all others.
    pub(crate) fn try_again(&self, pause: Duration) -> bool {
        let until = self.paused_until.load(Relaxed);
        let now = self.now();
        until != 0
            && until <= now
            && self.paused_until.compare_exchange(until, now + nanos(pause).max(1), Relaxed, Relaxed).is_ok()
    }
}

/// A server with a request under way, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Server>);

impl InFlight {
    /// Counts a request; `None` if the server has as many as it may have.
    pub(crate) fn new(server: Arc<Server>, most: Option<NonZeroU32>) -> Option<Self> {
        let in_flight = &server.state.in_flight;
        match most {
            None => drop(in_flight.fetch_add(1, Relaxed)),
            Some(most) => {
                let within = |count: u32| (count < most.get()).then_some(count + 1);
                in_flight.fetch_update(Relaxed, Relaxed, within).ok()?;
            }
        }
        server.state.requests.fetch_add(1, Relaxed);
        Some(Self(server))
    }
}

impl Deref for InFlight {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A connection to a server, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected(Arc<ServerState>);

impl Connected {
    /// Counts a connection; `None` if the limit is reached.
    pub(crate) fn new(server: &Server, most: Option<u32>) -> Option<Self> {
        let within = |count: u32| match most {
            Some(most) if count >= most => None,
            _ => Some(count + 1),
        };
        server.state.connections.fetch_update(Relaxed, Relaxed, within).ok()?;
        Some(Self(server.state.clone()))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamAddress;

    const PAUSE: Duration = Duration::from_secs(10);

    fn servers(count: u16) -> Vec<Arc<Server>> {
        let server = |port: u16| {
            let address: SocketAddr = ([127, 0, 0, 1], port).into();
            let authority = http::uri::Authority::from_static("upstream");
            let spec = UpstreamServer::new(UpstreamAddress::Socket(address), None, false, authority);
            Arc::new(Server::new(port.into(), &spec, Endpoint::Tcp(address), None, ServerState::new(), None))
        };
        (0..count).map(server).collect()
    }

    fn passive(failures: u32) -> PassiveChecks {
        PassiveChecks { failures, pause: PAUSE }
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_between_failures_starts_the_count_again() {
        let servers = servers(1);
        for _ in 0..5 {
            servers[0].failed("app", &passive(2));
            servers[0].succeeded();
        }
        assert_eq!(servers[0].state.health(), Health::Healthy);
        for _ in 0..5 {
            servers[0].failed("app", &passive(0));
        }
        assert_eq!(servers[0].state.health(), Health::Healthy, "0 means never");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_have_a_bound() {
        let servers = servers(1);
        let first = Connected::new(&servers[0], Some(1)).unwrap();
        assert!(Connected::new(&servers[0], Some(1)).is_none());
        assert!(Connected::new(&servers[0], None).is_some());
        drop(first);
        assert!(Connected::new(&servers[0], Some(1)).is_some());
        assert_eq!(servers[0].state.connections(), 0);
    }
}
