//! The servers of one upstream, and the look-up of their names.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    balance::budget::Savings,
    config::{UpstreamAddress, UpstreamConfig, UpstreamServer},
    connect::ClientTls,
    error::UpstreamSetupError,
    server::{Endpoint, Server, ServerState},
    sticky::Sticky,
};

/// Time between two look-ups of a name.
pub(crate) const LOOK_UP_EVERY: Duration = Duration::from_secs(15);
/// Time for one look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two look-ups for requests that wait for the first address.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// Finds the addresses of a name and port.
pub(crate) type Resolver = Arc<dyn Fn(String, u16) -> Lookup + Send + Sync>;
pub(crate) type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// The resolver of the operating system.
pub(crate) fn system_resolver() -> Resolver {
    Arc::new(|host, port| Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) }))
}

/// An upstream as defined in one configuration.
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) config: UpstreamConfig,
    pub(crate) tls: Option<ClientTls>,
    /// The cookie by which clients keep their server.
    pub(crate) sticky: Option<Sticky>,
    /// Counts requests, where servers take turns.
    turn: AtomicUsize,
    sources: Vec<Source>,
    lists: ArcSwap<Lists>,
    resolver: Resolver,
    /// Held while names are looked up for waiting requests. Contains the time of the last attempt.
    looking: tokio::sync::Mutex<Option<Instant>>,
    /// Serializes the rebuilding of `lists`.
    making: Mutex<()>,
    /// Attempts after the first one of a request.
    pub(crate) retries: AtomicU64,
    /// Attempts that the budget did not allow.
    pub(crate) retries_refused: AtomicU64,
    /// The retries that the budget has left; `None`: there is no limit.
    savings: Option<Mutex<Savings>>,
    start: Instant,
    /// Requests for which no server could be asked.
    pub(crate) unserved: AtomicU64,
}

/// A configured or started server, which may resolve to several addresses.
struct Source {
    spec: UpstreamServer,
    class: Option<usize>,
    /// The known addresses. Empty: none yet.
    endpoints: Mutex<Vec<Endpoint>>,
}

/// A snapshot of the servers.
#[derive(Default)]
struct Lists {
    all: Vec<Arc<Server>>,
    /// The servers of each class. The last entry serves all classes without servers of their own.
    /// Sorted by priority.
    by_class: Vec<Vec<Arc<Server>>>,
}

/// The identity of a server, which survives a change of the configuration.
type Key = (Endpoint, Option<usize>, bool, Option<bool>, String);

fn key(endpoint: &Endpoint, class: Option<usize>, spec: &UpstreamServer) -> Key {
    (endpoint.clone(), class, spec.tls, spec.http2, spec.authority.to_string())
}

impl Group {
    /// Makes the group. `started` has the servers started by this process, by class.
    pub(crate) fn new(
        config: &UpstreamConfig,
        started: &[Vec<UpstreamServer>],
        resolver: Resolver,
        before: Option<&Self>,
    ) -> Result<Self, UpstreamSetupError> {
        let source = |spec: &UpstreamServer, class| {
            let endpoints = match &spec.address {
                UpstreamAddress::Socket(address) => vec![Endpoint::Tcp(*address)],
                UpstreamAddress::Unix(path) => vec![Endpoint::Unix(path.clone())],
                // The known addresses stay in use until the next look-up.
                UpstreamAddress::Name(..) => before.map_or_else(Vec::new, |before| before.endpoints_of(spec, class)),
            };
            Source { spec: spec.clone(), class, endpoints: Mutex::new(endpoints) }
        };
        let of_class = |(class, servers): (usize, &Vec<UpstreamServer>)| {
            servers.iter().map(|spec| source(spec, Some(class))).collect::<Vec<_>>()
        };
        let mut sources: Vec<Source> = config.servers.iter().map(|spec| source(spec, None)).collect();
        sources.extend(started.iter().enumerate().flat_map(of_class));
        let mut group = Self {
            name: config.name.as_str().into(),
            config: config.clone(),
            tls: ClientTls::new(config)?,
            sticky: config.sticky.as_ref().map(|sticky| Sticky::new(sticky, &config.name)).transpose()?,
            turn: AtomicUsize::new(0),
            sources,
            lists: ArcSwap::default(),
            resolver,
            looking: tokio::sync::Mutex::new(None),
            making: Mutex::new(()),
            retries: AtomicU64::new(before.map_or(0, |before| before.retries.load(Relaxed))),
            retries_refused: AtomicU64::new(before.map_or(0, |before| before.retries_refused.load(Relaxed))),
            savings: None,
            start: Instant::now(),
            unserved: AtomicU64::new(before.map_or(0, |before| before.unserved.load(Relaxed))),
        };
        let states = before.map_or_else(HashMap::new, |before| {
            let key = |server: &Server| key(&server.endpoint, server.class, &server.spec);
            before.lists.load().all.iter().map(|server| (key(server), server.state.clone())).collect()
        });
        group.make_lists(&states);
        group.savings = config.retry_budget.map(|percent| Mutex::new(Savings::new(percent, group.first_attempts(), 0)));
        Ok(group)
    }

    /// Whether a group made from the other's configuration would not differ, so that this one and its
    /// connections can stay.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let sources = |group: &Self| -> Vec<_> {
            group.sources.iter().map(|source| (source.spec.clone(), source.class)).collect()
        };
        self.config == other.config
            && sources(self) == sources(other)
            && match (&self.tls, &other.tls) {
                (Some(one), Some(other)) => one.is_like(other),
                (None, None) => true,
                _ => false,
            }
            && match (&self.sticky, &other.sticky) {
                (Some(one), Some(other)) => one.is_like(other),
                (one, other) => one.is_none() && other.is_none(),
            }
    }

    /// Whether the budget allows another attempt, which is counted then.
    pub(crate) fn takes_retry(&self) -> bool {
        let allowed = self.savings.as_ref().is_none_or(|savings| {
            let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let requests = self.first_attempts();
            savings.lock().take(requests, now_ns)
        });
        let counter = if allowed { &self.retries } else { &self.retries_refused };
        counter.fetch_add(1, Relaxed);
        allowed
    }

    /// Requests sent to the servers, without those that were sent again.
    fn first_attempts(&self) -> u64 {
        let attempts: u64 = self.lists.load().all.iter().map(|server| server.state.requests()).sum();
        attempts.saturating_sub(self.retries.load(Relaxed))
    }

    /// A number that is one larger at each call, over all worker threads.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed)
    }

    /// Calls `look` with the servers that a class may use.
    pub(crate) fn with_servers<T>(&self, class: usize, look: impl FnOnce(&[Arc<Server>]) -> T) -> T {
        let lists = self.lists.load();
        let at = class.min(lists.by_class.len().saturating_sub(1));
        look(lists.by_class.get(at).map_or(&[], Vec::as_slice))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Server>> {
        self.lists.load().all.clone()
    }

    pub(crate) fn has_names(&self) -> bool {
        self.sources.iter().any(|source| matches!(source.spec.address, UpstreamAddress::Name(..)))
    }

    /// Looks up all names. A name that cannot be resolved keeps its last addresses.
    pub(crate) async fn look_up(&self) {
        let mut changed = false;
        for source in &self.sources {
            let UpstreamAddress::Name(host, port) = &source.spec.address else { continue };
            let found = tokio::time::timeout(LOOK_UP_TIMEOUT, (self.resolver)(host.clone(), *port)).await;
            let problem = match found {
                Ok(Ok(mut addresses)) if !addresses.is_empty() => {
                    addresses.sort_unstable();
                    addresses.dedup();
                    let found: Vec<_> = addresses.into_iter().map(Endpoint::Tcp).collect();
                    let mut known = source.endpoints.lock();
                    if *known != found {
                        *known = found;
                        changed = true;
                    }
                    continue;
                }
                Ok(Ok(_)) => "it has no address".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            let kept = source.endpoints.lock().len();
            tracing::warn!(
                upstream = &*self.name,
                "the name `{host}` cannot be looked up: {problem}; {kept} known addresses stay"
            );
        }
        if changed {
            self.make_lists(&HashMap::new());
        }
    }

    /// Looks up names for a request that has no server because no address is known yet.
    pub(crate) async fn look_up_first(&self, class: usize) {
        if !self.has_names() {
            return;
        }
        let mut tried = self.looking.lock().await;
        if !self.with_servers(class, <[_]>::is_empty) || tried.is_some_and(|tried| tried.elapsed() < LOOK_UP_AGAIN) {
            return;
        }
        self.look_up().await;
        *tried = Some(Instant::now());
    }

    fn endpoints_of(&self, spec: &UpstreamServer, class: Option<usize>) -> Vec<Endpoint> {
        let same = |source: &&Source| source.spec == *spec && source.class == class;
        self.sources.iter().find(same).map_or_else(Vec::new, |source| source.endpoints.lock().clone())
    }

    /// Rebuilds the lists. Unchanged servers keep their state; removed ones get no more requests.
    fn make_lists(&self, states: &HashMap<Key, Arc<ServerState>>) {
        let _making = self.making.lock();
        let before = self.lists.load_full();
        let mut all: Vec<Arc<Server>> = Vec::new();
        for source in &self.sources {
            for endpoint in &*source.endpoints.lock() {
                let same = |server: &&Arc<Server>| {
                    server.endpoint == *endpoint && server.spec == source.spec && server.class == source.class
                };
                if all.iter().any(|server| same(&server)) {
                    continue;
                }
                if self.config.outliers.is_none()
                    && let Some(state) = states.get(&key(endpoint, source.class, &source.spec))
                {
                    state.is_no_outlier();
                }
                let server = before.all.iter().find(same).cloned().unwrap_or_else(|| {
                    let state = states.get(&key(endpoint, source.class, &source.spec)).cloned();
                    let state = state.unwrap_or_else(|| {
                        let state = ServerState::new();
                        // The others are warm already.
                        if !before.all.is_empty() || !states.is_empty() {
                            state.comes_back();
                        }
                        state
                    });
                    let token = self.sticky.as_ref().map(|it| it.token(&endpoint.to_string(), source.class));
                    Arc::new(Server::new(next_id(), &source.spec, endpoint.clone(), source.class, state, token))
                });
                all.push(server);
            }
        }
        for server in &before.all {
            if !all.iter().any(|kept| kept.id == server.id) {
                server.retired.store(true, Relaxed);
            }
        }
        let of_class = |class: Option<usize>| {
            let serves = |server: &&Arc<Server>| server.class.is_none() || server.class == class;
            let mut servers: Vec<_> = all.iter().filter(serves).cloned().collect();
            servers.sort_by_key(|server| server.spec.priority);
            servers
        };
        let classes = self.sources.iter().filter_map(|source| source.class).max().map_or(0, |last| last + 1);
        let by_class = (0..classes).map(|class| of_class(Some(class))).chain([of_class(None)]).collect();
        self.lists.store(Arc::new(Lists { all, by_class }));
    }

    /// Retires all servers: they get no more requests from this group.
    pub(crate) fn retire(&self) {
        for server in &self.lists.load().all {
            server.retired.store(true, Relaxed);
        }
    }
}

/// Makes an identifier that is unique within the process, so that connections to different servers are never
/// confused.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("name", &self.name).finish_non_exhaustive()
    }
}
