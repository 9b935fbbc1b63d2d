//! One server: its load and its health, shared by all worker threads.

use std::{
    net::SocketAddr,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::HeaderValue;
use tokio::time::Instant;

use crate::{
    config::{ActiveChecks, PassiveChecks, UpstreamServer},
    error::{Failure, UpstreamError, is_shortage},
};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
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
    /// The server has accepted a connection before.
    reached: AtomicBool,
}

/// The protocol of a server, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Unknown,
    Http1,
    Http2,
}

/// The health of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The server is in use.
    Healthy,
    /// It failed too often and gets no requests for a while.
    Paused,
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
    ) -> Self {
        let name = match &endpoint {
            Endpoint::Tcp(address) => address.to_string(),
            Endpoint::Unix(path) => format!("unix:{}", path.display()),
        };
        let protocol = match (spec.http2, spec.tls) {
            (Some(true), _) => Protocol::Http2,
            (Some(false), _) | (None, false) => Protocol::Http1,
            (None, true) => Protocol::Unknown,
        };
        Self {
            id,
            name: name.into(),
            // All bytes of an authority are valid in a field value.
            host: HeaderValue::from_str(host_of(&spec.authority)).unwrap_or(HeaderValue::from_static("localhost")),
            spec: spec.clone(),
            endpoint,
            class,
            state,
            protocol: AtomicU8::new(protocol as u8),
            retired: AtomicBool::new(false),
        }
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
            reached: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since `start`. Never 0, which stands for no pause.
    fn now(&self) -> u64 {
        nanos(self.start.elapsed()).saturating_add(1)
    }

    pub(crate) fn health(&self) -> Health {
        if self.down.load(Relaxed) {
            Health::Down
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

    /// Whether the pause is over and this request is the one that tries the server. The pause begins again
    /// for all others.
    fn try_again(&self, pause: Duration) -> bool {
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
    pub(crate) fn new(server: Arc<Server>) -> Self {
        server.state.in_flight.fetch_add(1, Relaxed);
        server.state.requests.fetch_add(1, Relaxed);
        Self(server)
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

/// Chooses the server for a request. First comes a server whose pause is over and that no request tries yet.
/// Then comes the healthy server with the fewest requests under way. Last comes a paused one, since no server
/// may be healthy. Servers that are down or in `skip` are never chosen. `turn` rotates the choice between
/// equals.
pub(crate) fn choose<'a>(
    servers: &'a [Arc<Server>],
    skip: &[u64],
    turn: usize,
    pause: Duration,
) -> Option<&'a Arc<Server>> {
    let mut best: Option<(bool, u32, &Arc<Server>)> = None;
    let start = if servers.is_empty() { 0 } else { turn % servers.len() };
    let (behind, ahead) = servers.split_at(start);
    for server in ahead.iter().chain(behind) {
        if skip.contains(&server.id) {
            continue;
        }
        let paused = match server.state.health() {
            Health::Down => continue,
            Health::Paused if server.state.try_again(pause) => return Some(server),
            Health::Paused => true,
            Health::Healthy => false,
        };
        let in_flight = server.state.in_flight();
        if best.is_none_or(|(best_paused, fewest, _)| (paused, in_flight) < (best_paused, fewest)) {
            best = Some((paused, in_flight, server));
        }
    }
    best.map(|(_, _, server)| server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamAddress;

    const PAUSE: Duration = Duration::from_secs(10);

    fn servers(count: u16) -> Vec<Arc<Server>> {
        let server = |port: u16| {
            let address: SocketAddr = ([127, 0, 0, 1], port).into();
            let spec = UpstreamServer {
                address: UpstreamAddress::Socket(address),
                http2: None,
                tls: false,
                authority: http::uri::Authority::from_static("upstream"),
            };
            Arc::new(Server::new(port.into(), &spec, Endpoint::Tcp(address), None, ServerState::new()))
        };
        (0..count).map(server).collect()
    }

    fn chosen(servers: &[Arc<Server>], skip: &[u64], turn: usize) -> Option<u64> {
        choose(servers, skip, turn, PAUSE).map(|server| server.id)
    }

    fn passive(failures: u32) -> PassiveChecks {
        PassiveChecks { failures, pause: PAUSE }
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_busy_is_chosen_and_equals_take_turns() {
        let servers = servers(3);
        let turns: Vec<_> = (0..6).map(|turn| chosen(&servers, &[], turn).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        let first = InFlight::new(servers[0].clone());
        let second = InFlight::new(servers[1].clone());
        assert!((0..6).all(|turn| chosen(&servers, &[], turn) == Some(2)));
        drop(first);
        let _third = InFlight::new(servers[2].clone());
        assert!((0..6).all(|turn| chosen(&servers, &[], turn) == Some(0)));
        drop(second);
        assert!((0..6).all(|turn| chosen(&servers, &[0], turn) == Some(1)));
        assert_eq!(chosen(&[], &[], 5), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_is_left_alone_and_then_tried_by_one_request() {
        let servers = servers(2);
        let bad = &servers[0];
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Healthy);
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Paused);
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)));
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen(&servers, &[], 1), Some(0), "the one trial");
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)), "everyone else keeps away");
        bad.failed("app", &passive(2));
        tokio::time::advance(PAUSE - Duration::from_nanos(1)).await;
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)), "one failure is enough to wait again");
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen(&servers, &[], 0), Some(0));
        bad.answered("app");
        assert_eq!(bad.state.health(), Health::Healthy);
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Healthy, "counted anew");
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
    async fn where_all_have_failed_one_is_tried_all_the_same() {
        let servers = servers(2);
        servers.iter().for_each(|server| server.failed("app", &passive(1)));
        assert_eq!(chosen(&servers, &[], 0), Some(0));
        assert_eq!(chosen(&servers, &[0], 0), Some(1));
        assert_eq!(chosen(&servers, &[0, 1], 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn active_checks_rise_and_fall() {
        let checks = ActiveChecks {
            path: http::Uri::from_static("/well"),
            every: PAUSE,
            timeout: PAUSE,
            statuses: (200, 299),
            rise: 2,
            fall: 3,
        };
        let servers = servers(1);
        let mut seen = String::new();
        for passed in [false, false, true, false, false, false, true, false, true, true, false] {
            servers[0].checked("app", if passed { Ok(()) } else { Err("500".to_owned()) }, &checks);
            seen.push(if chosen(&servers, &[], 0).is_some() { 'u' } else { 'd' });
        }
        assert_eq!(seen, "uuuuuddddu".to_owned() + "u");
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
