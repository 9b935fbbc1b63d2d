//! The connections of one worker thread to all servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{group::Group, pool::ServerPool, server::Server, upstreams::Upstreams};

/// Time between two searches for connections that were idle for too long.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// A worker thread's connections to upstreams. They may be used only on that thread's runtime.
#[derive(Debug)]
pub struct Pools(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    upstreams: Arc<Upstreams>,
    /// One for each server that had a request from this thread.
    pools: Mutex<Vec<Arc<ServerPool>>>,
    /// Rotates the choice between servers that are equally busy.
    turn: AtomicUsize,
    tidied: AtomicBool,
}

impl Pools {
    /// Makes pools without connections.
    pub fn new(upstreams: Arc<Upstreams>) -> Self {
        Self::with_pools(upstreams, Vec::new())
    }

    /// Makes the same thread's pools after a reload: connections to unchanged servers are kept.
    pub fn succeed(&self, upstreams: Arc<Upstreams>) -> Self {
        let mut pools = self.0.pools.lock().clone();
        let stays: Vec<u64> = upstreams.groups.iter().flat_map(|group| group.all()).map(|server| server.id).collect();
        pools.retain(|pool| stays.contains(&pool.server.id));
        Self::with_pools(upstreams, pools)
    }

    /// Makes pools for a request of an older configuration, which share connections to servers that both
    /// have. They must be short-lived, because their own idle connections are not closed.
    pub fn beside(&self, upstreams: Arc<Upstreams>) -> Self {
        let beside = self.succeed(upstreams);
        beside.0.tidied.store(true, Relaxed);
        beside
    }

    /// Whether these pools belong to these upstreams.
    pub fn are_of(&self, upstreams: &Arc<Upstreams>) -> bool {
        Arc::ptr_eq(&self.0.upstreams, upstreams)
    }

    fn with_pools(upstreams: Arc<Upstreams>, pools: Vec<Arc<ServerPool>>) -> Self {
        let (pools, turn, tidied) = (Mutex::new(pools), AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Inner { upstreams, pools, turn, tidied }))
    }

    /// The upstreams that the connections belong to.
    pub(crate) fn upstreams(&self) -> &Upstreams {
        &self.0.upstreams
    }

    /// A number that is one larger at each call.
    pub(crate) fn next_turn(&self) -> usize {
        self.0.turn.fetch_add(1, Relaxed)
    }

    /// The connections to a server.
    pub(crate) fn pool(&self, group: &Group, server: &Arc<Server>) -> Arc<ServerPool> {
        if !self.0.tidied.load(Relaxed) && !self.0.tidied.swap(true, Relaxed) {
            self.tidy_for_ever();
        }
        let mut pools = self.0.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.server.id == server.id) {
            return pool.clone();
        }
        let registry = self.0.upstreams.registry.clone();
        let new = ServerPool::new(server.clone(), group.config.keep_connections, group.config.keep_for, registry);
        pools.push(new.clone());
        new
    }

    /// Closes connections that were idle for too long, for as long as the pools exist.
    fn tidy_for_ever(&self) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                let Some(inner) = inner.upgrade() else { return };
                let now = Instant::now();
                inner.pools.lock().retain(|pool| pool.tidy(now));
            }
        });
    }
}
