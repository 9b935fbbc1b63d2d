//! All upstreams of a configuration, and what is known of their servers.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use tokio::task::JoinSet;

use crate::{
    checks,
    config::{UpstreamConfig, UpstreamServer},
    ejection,
    error::UpstreamSetupError,
    group::{Group, NameStats},
    pool::PoolRegistry,
    server::{Health, Server, ServerChange, ServerMode},
};
use names::{Resolver, resolver};

/// All upstreams of a configuration: their servers, health and load. Shared by all worker threads.
pub struct Upstreams {
    pub(crate) groups: Vec<Arc<Group>>,
    resolver: Resolver,
    /// The pools of all worker threads, those of earlier configurations included.
    pub(crate) registry: Arc<PoolRegistry>,
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
    /// Further attempts that the budget did not allow.
    pub retries_refused: u64,
    /// Requests for which no server could be asked.
    pub unserved: u64,
    /// Its names of servers.
    pub names: Vec<NameStats>,
    /// Look-ups of names that found nothing.
    pub look_ups_failed: u64,
    /// Requests sent to another server while the first one worked on them, those of them whose answer came first, and those
    /// that the budget or the slots did not allow.
    pub hedges: [u64; 3],
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
    /// Whether it is in use.
    pub mode: ServerMode,
    /// Its weight in force, without a slow start.
    pub weight: u32,
    /// The weight that it was given while it runs.
    pub given_weight: Option<u32>,
    /// Its priority.
    pub priority: u32,
    /// Mode or weight differ from the configuration.
    pub changed: bool,
    /// Its changes survive a reload.
    pub kept: bool,
}

impl Upstreams {
    /// Makes the upstreams of a configuration and reads their certificates. It does not connect. `started`
    /// has the servers started by this process, by upstream and class; trailing upstreams without any may be
    /// left out.
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(configs: &[UpstreamConfig], started: &[Vec<Vec<UpstreamServer>>]) -> Result<Self, UpstreamSetupError> {
        Self::with_resolver(configs, started, resolver())
    }

    pub(crate) fn with_resolver(
        configs: &[UpstreamConfig],
        started: &[Vec<Vec<UpstreamServer>>],
        resolver: Resolver,
    ) -> Result<Self, UpstreamSetupError> {
        Self::make(configs, started, resolver, None)
    }

    /// Makes the upstreams of a new configuration. The state of a server is kept if the upstream still has
    /// it. If nothing of an upstream has changed, [`Pools::succeed`](crate::Pools::succeed) keeps its
    /// connections too. Changed upstreams are retired only by [`Upstreams::replaced_by`].
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
        before_all: Option<&Self>,
    ) -> Result<Self, UpstreamSetupError> {
        let group = |(at, config): (usize, &UpstreamConfig)| {
            let before = before_all.and_then(|before| before.groups.iter().find(|group| *group.name == *config.name));
            let started = started.get(at).map_or(&[][..], Vec::as_slice);
            let group = Group::new(config, started, resolver.clone(), before.map(Arc::as_ref))?;
            Ok(match before {
                Some(before) if before.is_like(&group) => before.clone(),
                _ => Arc::new(group),
            })
        };
        let groups = configs.iter().enumerate().map(group).collect::<Result<_, _>>()?;
        let registry = before_all.map_or_else(Arc::default, |before| before.registry.clone());
        Ok(Self { groups, resolver, registry })
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
                        let next = group.look_up().await;
                        tokio::time::sleep_until(next).await;
                    }
                });
            }
            if let Some(active) = &group.config.active {
                tasks.spawn(checks::check_for_ever(group.clone(), active.clone()));
            }
            if let Some(outliers) = &group.config.outliers {
                tasks.spawn(ejection::look_for_ever(group.clone(), outliers.clone()));
            }
        }
        while tasks.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// Changes the servers of this name (as in [`ServerStats`]) in an upstream. Returns whether there are any.
    pub fn change(&self, upstream: &str, server: &str, change: ServerChange) -> bool {
        let groups = self.groups.iter().filter(|group| *group.name == *upstream);
        let named = groups.flat_map(|group| group.all()).filter(|it| *it.name == *server);
        named.map(|server| server.state.change(change)).count() > 0
    }

    /// Takes back the changes of servers that are not to survive a reload.
    pub fn forget_changes(&self) {
        let back = ServerChange { mode: Some(ServerMode::Enabled), weight: Some(None), keep: None };
        let all = self.groups.iter().flat_map(|group| group.all());
        all.filter(|server| !server.state.is_kept()).for_each(|server| server.state.change(back));
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
            mode: server.state.mode(),
            weight: server.weight(),
            priority: server.spec.priority,
            given_weight: server.state.given_weight(),
            changed: server.state.is_changed(),
            kept: server.state.is_kept(),
        };
        let of_group = |group: &Arc<Group>| UpstreamStats {
            name: group.name.clone(),
            servers: group.all().into_iter().map(of_server).collect(),
            retries: group.retries.load(Relaxed),
            retries_refused: group.retries_refused.load(Relaxed),
            unserved: group.unserved.load(Relaxed),
            names: group.names(),
            look_ups_failed: group.look_ups_failed.load(Relaxed),
            hedges: [&group.hedges.sent, &group.hedges.won, &group.hedges.refused].map(|count| count.load(Relaxed)),
        };
        self.groups.iter().map(of_group).collect()
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams").field("groups", &self.groups).finish_non_exhaustive()
    }
}
