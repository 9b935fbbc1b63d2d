//! The state that requests are served by: that of the server, which outlives a reload, and the snapshot of the
//! configuration, which a reload replaces as a whole.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use access_log::Logs;
use acme::Acme;
use arc_swap::ArcSwap;
use ipnet::IpNet;
use limits::{AtOnce, Limiter};
use parking_lot::Mutex;
use recent::changes::Changes;
use rustls::server::ProducesTickets;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use traces::Traces;

use crate::{
    admin::{history::Undo, token::Token},
    admission::Admission,
    body::Store,
    class_metrics::ClassMetrics,
    classify::{Classifier, SessionKeys},
    common::Cluster,
    config::{Classes, Config, Limits, UplinkConfig},
    connection_limit::ConnectionLimit,
    http::settings::HttpSettings,
    metrics::Metrics,
    program_priorities,
    refusals::Refusals,
    shared_cache::SharedCache,
    sites::Sites,
    start_error::StartError,
    started_servers::StartedServers,
    tls::Tls,
    uplink::Uplink,
    upstream::Upstreams,
};
use files::Cache;

/// The state that all workers share.
pub(crate) struct ServerState {
    /// The configuration in force. Reloads and changes of classes replace it; requests under way keep theirs.
    pub(crate) snapshot: ArcSwap<ConfigSnapshot>,
    pub(crate) uplink: Uplink,
    pub(crate) metrics: Metrics,
    /// The limit on connections.
    pub(crate) connections: Arc<ConnectionLimit>,
    /// The connections of each client, where they are limited.
    pub(crate) connections_of_clients: AtOnce,
    /// Cancelled when the server stops: what has no end of its own ends then. A reload does not touch it.
    pub(crate) stopping: CancellationToken,
    /// The server has been asked to stop; balancers are told so, and it may still take connections for a while.
    pub(crate) is_draining: AtomicBool,
    /// Held by the task that replaces the snapshot. True when the server stops: nothing is replaced any more.
    pub(crate) changing: Mutex<bool>,
    /// The last changes at the admin address.
    pub(crate) changes: Mutex<Changes<Undo>>,
    pub(crate) tickets: Option<Arc<dyn ProducesTickets>>,
    /// Wakes the task that checks upstreams, after the snapshot was replaced.
    pub(crate) replaced: Notify,
    /// When the operator was told of a connection that a proxy began in a wrong way.
    pub(crate) told_of_proxy_headers: Mutex<Option<tokio::time::Instant>>,
    /// The store that the gateways of a site share, if there are several.
    pub(crate) cluster: Option<Cluster>,
    /// The keys of session cookies, where no file has a secret.
    pub(crate) session_keys: SessionKeys,
}

impl ServerState {
    /// Changes classes and admission while running, until the next reload. Requests that wait go on waiting. One at a
    /// time, and not during a reload; blocks. An error of `change`, or of the use of the new classes, is returned, and
    /// then nothing has changed.
    pub(crate) fn change_classes<E: From<StartError>>(
        &self,
        change: impl FnOnce(&ConfigSnapshot) -> Result<Classes, E>,
    ) -> Result<Arc<ConfigSnapshot>, E> {
        let changing = self.changing.lock();
        if *changing {
            return Err(StartError::Stopping.into());
        }
        let before = self.snapshot.load_full();
        let mut snapshot = before.with_classes(change(&before)?)?;
        snapshot.uplink_generation =
            self.uplink.reconfigure(&snapshot.uplink, &snapshot.classes).map_err(StartError::Uplink)?;
        snapshot.admission = before.admission.reconfigure(&snapshot.classes).map_err(StartError::Classes)?;
        if !Arc::ptr_eq(&before.upstreams, &snapshot.upstreams) {
            before.upstreams.replaced_by(&snapshot.upstreams);
        }
        let snapshot = Arc::new(snapshot);
        self.snapshot.store(snapshot.clone());
        self.replaced.notify_one();
        program_priorities::settle(&snapshot.classes.classes, snapshot.started.runs_programs);
        snapshot.class_metrics.watch(Instant::now());
        Ok(snapshot)
    }
}

/// A configuration in force.
#[derive(Clone)]
pub(crate) struct ConfigSnapshot {
    /// Counts changes, by reloads and at run time.
    pub(crate) version: u64,
    /// Whether classes are other than in the configuration that was loaded.
    pub(crate) classes_changed: bool,
    pub(crate) sites: Arc<Sites>,
    /// The limits that several gateways have together, each with a number that all know it by.
    pub(crate) shared_limits: Vec<(u64, Arc<Limiter>)>,
    pub(crate) cache: Cache,
    pub(crate) shared_cache: Arc<SharedCache>,
    pub(crate) limits: Limits,
    /// Networks whose connections begin with a header of the PROXY protocol.
    pub(crate) proxy_protocol: Arc<[IpNet]>,
    pub(crate) http: HttpSettings,
    pub(crate) tls: Option<Tls>,
    /// Certificates that an authority is asked for.
    pub(crate) acme: Option<Acme>,
    pub(crate) logs: Logs,
    /// Where the spans of requests go, if anywhere.
    pub(crate) traces: Option<Traces>,
    pub(crate) classes: Classes,
    /// The classes' names, for the log.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) classifier: Arc<Classifier>,
    /// The gate before the site, by these classes' numbers.
    pub(crate) admission: Admission,
    /// Of these classes' numbers, to the uplink.
    pub(crate) uplink_generation: u64,
    pub(crate) refusals: Arc<Refusals>,
    /// The counters of the classes, by their numbers.
    pub(crate) class_metrics: ClassMetrics,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) started: StartedServers,
    pub(crate) store: Store,
    /// The token for changes at the admin address, and for reading it from elsewhere.
    pub(crate) admin_token: Option<Arc<Token>>,
    uplink: UplinkConfig,
    session_keys: SessionKeys,
}

impl ConfigSnapshot {
    /// The keys of session cookies, where no file has a secret.
    pub(crate) fn session_keys(&self) -> &SessionKeys {
        &self.session_keys
    }

    /// How the uplink is used.
    pub(crate) fn uplink(&self) -> &UplinkConfig {
        &self.uplink
    }

    pub(crate) fn new(
        config: &Config,
        cache: Cache,
        tickets: Option<Arc<dyn ProducesTickets>>,
        logs: Logs,
        traces: Option<Traces>,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let before_acme = before.and_then(|before| before.acme.as_ref());
        let acme = config.acme.as_ref().map(|acme| Acme::open(acme, before_acme, chance()));
        let acme = acme.transpose().map_err(StartError::Acme)?;
        let challenges = acme.as_ref().map(Acme::challenges);
        let sites = Sites::open(&config.sites, &cache, challenges).map_err(|failed| StartError::Root {
            setting: failed.setting,
            path: failed.path,
            error: failed.error,
        })?;
        let shared_limits = config.cluster.as_ref().map_or_else(Vec::new, |cluster| {
            let limiters = sites.limiters();
            limiters.iter().for_each(|(_, limiter)| limiter.share(cluster.secret()));
            limiters
        });
        // They outlive a reload.
        let session_keys = before.map_or_else(SessionKeys::of_this_process, |before| before.session_keys.clone());
        let tls = Tls::new(&config.sites, acme.as_ref(), tickets)?;
        if let (None, Some(listen)) = (&tls, config.listen.iter().find(|listen| listen.tls)) {
            return Err(StartError::NoCertificate { address: listen.address });
        }
        let kept = before.map(|before| &before.shared_cache);
        let shared_cache = match kept.filter(|kept| *kept.store.config() == config.shared_cache) {
            Some(kept) => kept.clone(),
            None => Arc::new(SharedCache::open(&config.shared_cache, chance()).map_err(StartError::SharedCache)?),
        };
        let limits = config.limits.clone();
        let classes = config.classes.clone();
        let admission = match before {
            // Takes over what is new when nothing can fail any more.
            Some(before) => {
                Admission::check(&classes).map_err(StartError::Classes)?;
                before.admission.clone()
            }
            None => Admission::new(&classes).map_err(StartError::Classes)?,
        };
        let mut started = StartedServers::new(
            &config.upstreams,
            &config.upstream_workers,
            &classes,
            before.map(|before| &before.started),
        )?;
        started.runs_programs = program_priorities::are_run_by(config);
        let servers = started.servers();
        let upstreams = match before {
            Some(before) => before.upstreams.succeed(&config.upstreams, &servers),
            None => Upstreams::new(&config.upstreams, &servers),
        };
        let class_metrics = match before {
            Some(before) => before.class_metrics.renewed(&classes),
            None => ClassMetrics::new(&classes, config.workers.get()),
        };
        let read = |path: &PathBuf| {
            Token::read(path).map_err(|message| StartError::AdminToken { path: path.clone(), message })
        };
        let admin_token = config.admin_token.as_ref().map(read).transpose()?;
        Ok(Self {
            version: before.map_or(1, |before| before.version + 1),
            classes_changed: false,
            sites: Arc::new(sites),
            shared_limits,
            cache,
            shared_cache,
            http: HttpSettings::new(&limits),
            tls,
            acme,
            logs,
            traces,
            classifier: Arc::new(Classifier::with_keys(&classes, &session_keys).map_err(StartError::Classifier)?),
            session_keys,
            admission,
            uplink_generation: before.map_or(0, |before| before.uplink_generation),
            names: names(&classes),
            refusals: Arc::new(Refusals::read(&classes).map_err(StartError::Classifier)?),
            class_metrics,
            upstreams: Arc::new(upstreams.map_err(StartError::Upstream)?),
            started,
            store: match before {
                Some(before) => before.store.renewed(&limits),
                None => Store::new(&limits),
            },
            admin_token: admin_token.map(Arc::new),
            uplink: config.uplink.clone(),
            proxy_protocol: config.proxy_protocol.as_slice().into(),
            limits,
            classes,
        })
    }

    /// The same with other classes, but for the gate before the site. Reads the files that they name; blocks.
    fn with_classes(&self, classes: Classes) -> Result<Self, StartError> {
        Admission::check(&classes).map_err(StartError::Classes)?;
        program_priorities::prepare_classes(&classes.classes, self.started.runs_programs)
            .map_err(StartError::Priority)?;
        let started = self.started.with_classes(&classes)?;
        let upstreams = match started.workers.is_some() {
            true => {
                Arc::new(self.upstreams.succeed(&started.upstreams, &started.servers()).map_err(StartError::Upstream)?)
            }
            false => self.upstreams.clone(),
        };
        Ok(Self {
            upstreams,
            started,
            version: self.version + 1,
            classes_changed: true,
            classifier: Arc::new(Classifier::with_keys(&classes, &self.session_keys).map_err(StartError::Classifier)?),
            names: names(&classes),
            refusals: Arc::new(Refusals::read(&classes).map_err(StartError::Classifier)?),
            class_metrics: self.class_metrics.renewed(&classes),
            classes,
            ..self.clone()
        })
    }
}

/// A seed for what is up to chance.
pub(crate) fn chance() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

fn names(classes: &Classes) -> Vec<Arc<str>> {
    classes.classes.iter().map(|class| class.name.as_str().into()).collect()
}
