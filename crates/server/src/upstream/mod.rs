//! Upstream servers: connections to them, and the choice of the server for each request.
//!
//! [`Upstreams`] is shared by all worker threads: it has the servers, their load and their health. [`Pools`]
//! has the connections of one worker thread. A request goes to the server with the fewest requests under way,
//! counted over all threads, on a connection of its own thread. An HTTP/1.1 connection is driven by the task
//! that uses it, so no other task is woken in between. An HTTP/2 connection is shared by several requests and
//! driven by a task of its own. Nothing is spawned for a request.
//!
//! A request is sent again only where that is safe. Either nothing of it was written, or the server certainly
//! did not process it, or its method is idempotent and its body can be read again. It is never sent again
//! after an answer has begun. Neither is it after a server was silent for too long, because then the client
//! has waited long enough.

mod body;
mod checks;
mod connect;
mod error;
mod forwarded;
mod group;
mod head;
mod http1;
mod pool;
pub mod probe;
mod send;
mod server;
#[cfg(test)]
mod tests;
mod upgraded;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::Instant};

#[cfg(any(test, fuzzing))]
pub use self::http1::fuzz::answers;
pub use self::{
    body::UpstreamBody,
    error::{Cause, Failure, Unavailable, UpstreamError, UpstreamSetupError, Wait},
    forwarded::ClientAddress,
    send::{Errand, Outbound},
    server::Health,
    upgraded::Upgraded,
};
pub(crate) use self::{forwarded::forget_client, head::take_named};
use self::{
    group::{Group, LOOK_UP_EVERY, Resolver, system_resolver},
    pool::Shelf,
    server::Server,
};
use crate::config::{ForwardedField, HeaderRules, UpstreamConfig, UpstreamServer};

/// Time between two searches for connections that were idle for too long.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// All upstreams of a configuration: their servers, health and load. Shared by all worker threads.
pub struct Upstreams {
    groups: Vec<Arc<Group>>,
    resolver: Resolver,
}

/// A worker thread's connections to upstreams. They may be used only on that thread's runtime.
#[derive(Debug)]
pub struct Pools(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstreams: Arc<Upstreams>,
    /// One for each server that had a request from this thread.
    shelves: Mutex<Vec<Arc<Shelf>>>,
    /// Rotates the choice between servers that are equally busy.
    turn: AtomicUsize,
    tidied: AtomicBool,
}

/// An interim response (RFC 9110, section 15.2), as any client may see it.
pub type Interim = Response<Empty<Bytes>>;

/// The answer of an upstream.
#[derive(Debug)]
pub struct Answer {
    /// The response, without hop-by-hop fields. Its body ends with an error if it breaks off or takes too
    /// long.
    pub response: Response<UpstreamBody>,
    /// The name of the server that answered, for the log.
    pub server: Arc<str>,
    /// After a 101: the connection, which carries the new protocol from now on.
    pub upgraded: Option<Box<Upgraded>>,
}

/// The parameters for passing a request on, beside the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The upstream's index in [`crate::config::Config::upstreams`].
    pub upstream: usize,
    /// The class's index, for upstreams with a pool of workers for each class.
    pub class: usize,
    /// The address of the peer of the client's connection, for `X-Forwarded-For` and `Forwarded`. Behind a
    /// trusted proxy this is the proxy's address; it is appended to the proxy's own statement in the believed
    /// field.
    pub client: &'a ClientAddress,
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
}

/// The statistics of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStats {
    /// The upstream's name.
    pub name: Arc<str>,
    /// Its currently known servers.
    pub servers: Vec<ServerStats>,
    /// Attempts after the first one of a request.
    pub retries: u64,
    /// Requests for which no server could be asked.
    pub unserved: u64,
}

/// The statistics of one server.
#[derive(Clone, Debug)]
pub struct ServerStats {
    /// Its address.
    pub server: Arc<str>,
    /// The class that it serves; `None`: all.
    pub class: Option<usize>,
    /// Requests sent to it, and attempts to send one.
    pub requests: u64,
    /// Requests that failed by the server's fault.
    pub failures: u64,
    /// Requests under way, changed protocols included.
    pub in_flight: u32,
    /// Open connections to it.
    pub connections: u32,
    /// Its health.
    pub health: Health,
}

impl Upstreams {
    /// Makes the upstreams of a configuration and reads their certificates. It does not connect. `started`
    /// has the servers started by this process, by upstream and class; trailing upstreams without any may be
    /// left out.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(configs: &[UpstreamConfig], started: &[Vec<Vec<UpstreamServer>>]) -> Result<Self, UpstreamSetupError> {
        Self::with_resolver(configs, started, system_resolver())
    }

    fn with_resolver(
        configs: &[UpstreamConfig],
        started: &[Vec<Vec<UpstreamServer>>],
        resolver: Resolver,
    ) -> Result<Self, UpstreamSetupError> {
        Self::make(configs, started, resolver, None)
    }

    /// Makes the upstreams of a new configuration. The state of a server is kept if the upstream still has
    /// it. If nothing of an upstream has changed, its connections are kept too ([`Pools::succeed`]). Changed
    /// upstreams are retired only by [`Upstreams::replaced_by`].
    ///
    /// # Errors
    /// A certificate cannot be used; then nothing has changed.
    pub fn succeed(
        &self,
        configs: &[UpstreamConfig],
        started: &[Vec<Vec<UpstreamServer>>],
    ) -> Result<Self, UpstreamSetupError> {
        Self::make(configs, started, self.resolver.clone(), Some(self))
    }

    fn make(
        configs: &[UpstreamConfig],
        started: &[Vec<Vec<UpstreamServer>>],
        resolver: Resolver,
        before: Option<&Self>,
    ) -> Result<Self, UpstreamSetupError> {
        let group = |(at, config): (usize, &UpstreamConfig)| {
            let before = before.and_then(|before| before.groups.iter().find(|group| *group.name == *config.name));
            let started = started.get(at).map_or(&[][..], Vec::as_slice);
            let group = Group::new(config, started, resolver.clone(), before.map(Arc::as_ref))?;
            Ok(match before {
                Some(before) if before.is_like(&group) => before.clone(),
                _ => Arc::new(group),
            })
        };
        let groups = configs.iter().enumerate().map(group).collect::<Result<_, _>>()?;
        Ok(Self { groups, resolver })
    }

    /// Retires the upstreams that `next` does not have; idle connections to their servers are closed.
    pub fn replaced_by(&self, next: &Self) {
        for group in &self.groups {
            if !next.groups.iter().any(|next| Arc::ptr_eq(next, group)) {
                group.retire();
            }
        }
    }

    /// Checks servers and looks up names, forever. One thread runs it; dropping it ends the checks.
    pub async fn drive(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        for group in &self.groups {
            if group.has_names() {
                let group = group.clone();
                tasks.spawn(async move {
                    loop {
                        group.look_up().await;
                        tokio::time::sleep(LOOK_UP_EVERY).await;
                    }
                });
            }
            if let Some(active) = &group.config.active {
                tasks.spawn(checks::check_for_ever(group.clone(), active.clone()));
            }
        }
        while tasks.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// The current statistics, for metrics.
    pub fn stats(&self) -> Vec<UpstreamStats> {
        let of_server = |server: Arc<Server>| ServerStats {
            server: server.name.clone(),
            class: server.class,
            requests: server.state.requests(),
            failures: server.state.failures(),
            in_flight: server.state.in_flight(),
            connections: server.state.connections(),
            health: server.state.health(),
        };
        let of_group = |group: &Arc<Group>| UpstreamStats {
            name: group.name.clone(),
            servers: group.all().into_iter().map(of_server).collect(),
            retries: group.retries.load(Relaxed),
            unserved: group.unserved.load(Relaxed),
        };
        self.groups.iter().map(of_group).collect()
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams").field("groups", &self.groups).finish_non_exhaustive()
    }
}

impl Pools {
    /// Makes pools without connections.
    pub fn new(upstreams: Arc<Upstreams>) -> Self {
        Self::with_shelves(upstreams, Vec::new())
    }

    /// Makes the same thread's pools after a reload: connections to unchanged servers are kept.
    pub fn succeed(&self, upstreams: Arc<Upstreams>) -> Self {
        let mut shelves = self.0.shelves.lock().clone();
        let stays: Vec<u64> = upstreams.groups.iter().flat_map(|group| group.all()).map(|server| server.id).collect();
        shelves.retain(|shelf| stays.contains(&shelf.server.id));
        Self::with_shelves(upstreams, shelves)
    }

    /// Makes pools for a request of an older configuration, which share connections to servers that both
    /// have. They must be short-lived, because their own idle connections are not closed.
    pub fn beside(&self, upstreams: Arc<Upstreams>) -> Self {
        let pools = self.succeed(upstreams);
        pools.0.tidied.store(true, Relaxed);
        pools
    }

    /// Whether these pools belong to these upstreams.
    pub fn are_of(&self, upstreams: &Arc<Upstreams>) -> bool {
        Arc::ptr_eq(&self.0.upstreams, upstreams)
    }

    fn with_shelves(upstreams: Arc<Upstreams>, shelves: Vec<Arc<Shelf>>) -> Self {
        let (shelves, turn, tidied) = (Mutex::new(shelves), AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Inner { upstreams, shelves, turn, tidied }))
    }

    fn shelf(&self, group: &Group, server: &Arc<Server>) -> Arc<Shelf> {
        if !self.0.tidied.load(Relaxed) && !self.0.tidied.swap(true, Relaxed) {
            self.tidy_for_ever();
        }
        let mut shelves = self.0.shelves.lock();
        if let Some(shelf) = shelves.iter().find(|shelf| shelf.server.id == server.id) {
            return shelf.clone();
        }
        let new = Shelf::new(server.clone(), group.config.keep_connections, group.config.keep_for);
        shelves.push(new.clone());
        new
    }

    /// Closes connections that were idle for too long, for as long as the pools exist.
    fn tidy_for_ever(&self) {
        let pools = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                let Some(pools) = pools.upgrade() else { return };
                let now = Instant::now();
                pools.shelves.lock().retain(|shelf| shelf.tidy(now));
            }
        });
    }
}
