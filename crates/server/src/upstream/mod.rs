//! Servers behind this one: connections to them, and which of them has a request.
//!
//! [`Upstreams`] is what all worker threads share: which servers there are, how busy they are, how well. [`Pools`] are the
//! connections of one worker thread. A request goes to the server with the fewest requests under way, counted over all
//! threads; its connection comes from the thread's own. An HTTP/1.1 connection is driven by whoever has it, so that nobody has to
//! be woken in between; an HTTP/2 connection, which several share, by a task of its own. Nothing is spawned for a request.
//!
//! A request is sent again only where that does no harm: nothing of it was written, or the server certainly did not process it, or
//! its method is idempotent and its body can be read again; and never after an answer has begun, nor after a server was silent
//! for too long, for then the client has waited long enough.

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

/// Time between two looks for connections that were idle for too long.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// All upstreams of a configuration: their servers, how well they are, how busy. All worker threads have one.
pub struct Upstreams {
    groups: Vec<Arc<Group>>,
    resolver: Resolver,
}

/// A worker thread's connections to upstreams. To be used on that thread's runtime only.
#[derive(Debug)]
pub struct Pools(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstreams: Arc<Upstreams>,
    /// For each server that was asked one; they are few.
    shelves: Mutex<Vec<Arc<Shelf>>>,
    /// Who goes first of servers that are equally busy.
    turn: AtomicUsize,
    tidied: AtomicBool,
}

/// An interim response (RFC 9110, section 15.2), as any client may see it.
pub type Interim = Response<Empty<Bytes>>;

/// What an upstream answered.
#[derive(Debug)]
pub struct Answer {
    /// The response; hop-by-hop fields are gone. Its body is an error if it breaks off or takes too long.
    pub response: Response<UpstreamBody>,
    /// The server that answered, for the log.
    pub server: Arc<str>,
    /// After a 101: the connection, on which the new protocol is spoken from now on.
    pub upgraded: Option<Box<Upgraded>>,
}

/// What is asked of an upstream, beside the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its place in [`crate::config::Config::upstreams`].
    pub upstream: usize,
    /// The class's place, for upstreams with a pool of workers for each class.
    pub class: usize,
    /// The address of whoever is connected to us, for `X-Forwarded-For` and `Forwarded`. Behind a proxy that is trusted it is the
    /// proxy's: what that says of the client in the field that is believed is kept, and the proxy added.
    pub client: &'a ClientAddress,
    /// `http` or `https`: what the client speaks to us.
    pub scheme: &'a str,
    /// The host that the client asked for, for `X-Forwarded-Host`.
    pub host: &'a str,
    /// Whether the upstream sees that host rather than its own.
    pub keep_host: bool,
    /// The field whose word about the client is passed on, because it came from a proxy that is trusted; `None`: nobody's is.
    pub believed: Option<ForwardedField>,
    /// Changes to the request's header. They are made here, after hop-by-hop fields were taken out: else a client could have the
    /// fields that they set taken out again, by naming them in `Connection`.
    pub rules: Option<&'a HeaderRules>,
}

/// Numbers of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStats {
    /// How it is called.
    pub name: Arc<str>,
    /// Its servers, those that are known at the moment.
    pub servers: Vec<ServerStats>,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Requests that no server could be asked for.
    pub unserved: u64,
}

/// Numbers of one server.
#[derive(Clone, Debug)]
pub struct ServerStats {
    /// Its address.
    pub server: Arc<str>,
    /// The class that it is for; `None`: all.
    pub class: Option<usize>,
    /// Requests that were sent to it, or were to be.
    pub requests: u64,
    /// Those that failed by its fault.
    pub failures: u64,
    /// Those under way, changed protocols included.
    pub in_flight: u32,
    /// Connections to it.
    pub connections: u32,
    /// How it is.
    pub health: Health,
}

impl Upstreams {
    /// Reads certificates. Connects to nobody. `started` are the servers that are started here, by upstream and class; upstreams
    /// without any may be left out at the end.
    ///
    /// # Errors
    /// Certificates that cannot be used.
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

    /// The upstreams of a new configuration. What is known of a server stays where the upstream still has it, and where nothing
    /// of an upstream has changed, connections stay too ([`Pools::succeed`]). What changed is retired only by
    /// [`Upstreams::replaced_by`].
    ///
    /// # Errors
    /// Certificates that cannot be used; then nothing has changed.
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

    /// Another one has taken its place: idle connections to servers that only this one has are closed.
    pub fn replaced_by(&self, next: &Self) {
        for group in &self.groups {
            if !next.groups.iter().any(|next| Arc::ptr_eq(next, group)) {
                group.retire();
            }
        }
    }

    /// Checks servers and looks up names; to be run by one thread, for ever. Its end, by being dropped, ends the checks.
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

    /// Numbers, for metrics and the like.
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
    /// No connections yet.
    pub fn new(upstreams: Arc<Upstreams>) -> Self {
        Self::with_shelves(upstreams, Vec::new())
    }

    /// For the same thread, after a reload: connections to servers that have not changed stay.
    pub fn succeed(&self, upstreams: Arc<Upstreams>) -> Self {
        let mut shelves = self.0.shelves.lock().clone();
        let stays: Vec<u64> = upstreams.groups.iter().flat_map(|group| group.all()).map(|server| server.id).collect();
        shelves.retain(|shelf| stays.contains(&shelf.server.id));
        Self::with_shelves(upstreams, shelves)
    }

    /// For a request of an older configuration: connections to servers that both have are shared. For a short time only, in which
    /// nothing of its own is closed for being idle.
    pub fn beside(&self, upstreams: Arc<Upstreams>) -> Self {
        let pools = self.succeed(upstreams);
        pools.0.tidied.store(true, Relaxed);
        pools
    }

    /// Whether they are to the servers of these upstreams.
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

    /// Closes connections that were idle for too long, as long as the pools are there.
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
