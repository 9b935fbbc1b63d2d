//! The servers of one upstream, and the look-up of their names.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    balance::budget::Savings,
    config::{Hedge, UpstreamAddress, UpstreamConfig, UpstreamServer},
    connect::ClientTls,
    error::UpstreamSetupError,
    server::{Endpoint, Server, ServerState},
    slowest::Slowest,
    sticky::Sticky,
};
use names::{Answer, Found, MOST_SERVERS, Question, Resolver};

/// Time for one look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two look-ups for requests that wait for the first address, and after the first failure of a name; each
/// further one takes twice as long, up to the longest.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);
const LONGEST_AGAIN: Duration = Duration::from_secs(15);

/// Most classes whose times are kept; a number beyond it stands for none.
const MOST_CLASSES: usize = 1024;

/// The state of a name of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameStats {
    /// The name.
    pub name: String,
    /// The number of its servers in use.
    pub servers: usize,
    /// Why the last look-up found nothing; `None`: it did.
    pub problem: Option<String>,
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
    /// Look-ups of names that found nothing.
    pub(crate) look_ups_failed: AtomicU64,
    pub(crate) hedges: Arc<Hedges>,
    /// The second requests that the budget has left.
    hedge_savings: Mutex<Savings>,
    /// How long the slowest requests take, by class; empty until the first one.
    slowest: Mutex<Vec<Slowest>>,
}

/// The counts of second requests, by their outcome.
#[derive(Debug, Default)]
pub(crate) struct Hedges {
    pub(crate) sent: AtomicU64,
    /// Those whose answer came first.
    pub(crate) won: AtomicU64,
    /// Those that the budget did not allow, or for which there was no room.
    pub(crate) refused: AtomicU64,
}

/// A configured or started server, which may be a name of several.
struct Source {
    spec: UpstreamServer,
    class: Option<usize>,
    /// The known servers. Empty: none yet.
    places: Mutex<Vec<Place>>,
    /// `None`: it is no name.
    name: Option<Name>,
}

/// A server of a source. A service gives weights and priorities to its servers.
#[derive(Clone, PartialEq)]
struct Place {
    endpoint: Endpoint,
    weight: u32,
    priority: u32,
}

/// A name that is looked up.
struct Name {
    question: Question,
    state: Mutex<NameState>,
}

struct NameState {
    /// When it is looked up next.
    due: Instant,
    /// The time until then, after a failure.
    wait: Duration,
    /// Why the last look-up found nothing.
    problem: Option<String>,
    /// It has more servers than are used.
    has_too_many: bool,
}

impl Name {
    fn of(spec: &UpstreamServer, problem: Option<String>) -> Option<Self> {
        let question = match &spec.address {
            UpstreamAddress::Name(host, port) => Question::Host(host.clone(), *port),
            UpstreamAddress::Service(name) => Question::Service(name.clone()),
            UpstreamAddress::Socket(_) | UpstreamAddress::Unix(_) => return None,
        };
        let state = NameState { due: Instant::now(), wait: LOOK_UP_AGAIN, problem, has_too_many: false };
        Some(Self { question, state: Mutex::new(state) })
    }

    fn text(&self) -> &str {
        match &self.question {
            Question::Host(name, _) | Question::Service(name) => name,
        }
    }
}

impl Source {
    fn new(spec: &UpstreamServer, class: Option<usize>, before: Option<&Group>) -> Self {
        // The known servers of a name stay in use until the next look-up.
        let same = |source: &&Self| source.spec == *spec && source.class == class;
        let before = before.and_then(|before| before.sources.iter().find(same));
        let name = Name::of(spec, before.and_then(|it| it.name.as_ref()?.state.lock().problem.clone()));
        let fixed = |endpoint| vec![Place { endpoint, weight: spec.weight, priority: spec.priority }];
        let places = match &spec.address {
            UpstreamAddress::Socket(address) => fixed(Endpoint::Tcp(*address)),
            UpstreamAddress::Unix(path) => fixed(Endpoint::Unix(path.clone())),
            UpstreamAddress::Name(..) | UpstreamAddress::Service(_) => {
                before.map_or_else(Vec::new, |before| before.places.lock().clone())
            }
        };
        Self { spec: spec.clone(), class, places: Mutex::new(places), name }
    }

    fn place(&self, found: &Found) -> Place {
        let Self { spec, .. } = self;
        // Priorities of a backup stay behind all others.
        let base = spec.priority.min(UpstreamServer::BACKUP - u32::from(u16::MAX));
        Place {
            endpoint: Endpoint::Tcp(found.address),
            // A weight of 0 stands for next to nothing (RFC 2782).
            weight: found.weight.map_or(spec.weight, |weight| u32::from(weight).max(1)),
            priority: match found.weight {
                Some(_) => base + u32::from(found.priority),
                None => spec.priority,
            },
        }
    }
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
        let source = |spec: &UpstreamServer, class| Source::new(spec, class, before);
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
            look_ups_failed: AtomicU64::new(before.map_or(0, |before| before.look_ups_failed.load(Relaxed))),
            hedges: before.map_or_else(Arc::default, |before| before.hedges.clone()),
            hedge_savings: Mutex::new(Savings::new(config.hedge_budget, 0, 0)),
            slowest: Mutex::default(),
        };
        group.make_lists(&before.map_or_else(HashMap::new, Self::states));
        group.hedge_savings = Mutex::new(Savings::new(config.hedge_budget, group.first_attempts(), 0));
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
        attempts.saturating_sub(self.retries.load(Relaxed)).saturating_sub(self.hedges.sent.load(Relaxed))
    }

    /// Whether the time of each answer is taken.
    pub(crate) fn times_answers(&self) -> bool {
        self.config.outliers.is_some() || self.config.hedge == Some(Hedge::Slowest)
    }

    /// Counts the time of an answer of a class.
    pub(crate) fn count_time(&self, class: usize, took: Duration) {
        if self.config.hedge == Some(Hedge::Slowest) && class < MOST_CLASSES {
            let mut slowest = self.slowest.lock();
            if slowest.len() <= class {
                slowest.resize_with(class + 1, Slowest::default);
            }
            slowest[class].record(took);
        }
    }

    /// The time after which a request of a class is sent to another server, too; `None`: never, or not yet.
    pub(crate) fn hedge_after(&self, class: usize) -> Option<Duration> {
        match self.config.hedge? {
            Hedge::After(time) => Some(time),
            Hedge::Slowest => self.slowest.lock().get(class)?.estimate(),
        }
    }

    /// Whether the budget allows a second request.
    pub(crate) fn takes_hedge(&self) -> bool {
        let now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let requests = self.first_attempts();
        self.hedge_savings.lock().take(requests, now_ns) || self.refuses_hedge::<()>().is_some()
    }

    /// Counts a second request that is not sent.
    pub(crate) fn refuses_hedge<T>(&self) -> Option<T> {
        self.hedges.refused.fetch_add(1, Relaxed);
        None
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
        self.sources.iter().any(|source| source.name.is_some())
    }

    /// The names, with the number of their servers, and why the last look-up found nothing.
    pub(crate) fn names(&self) -> Vec<NameStats> {
        let stats = |source: &Source| {
            let name = source.name.as_ref()?;
            let problem = name.state.lock().problem.clone();
            Some(NameStats { name: name.text().to_owned(), servers: source.places.lock().len(), problem })
        };
        self.sources.iter().filter_map(stats).collect()
    }

    /// Looks up the names that are due, side by side. A name that cannot be resolved keeps its last servers. Returns when the
    /// next one is due.
    pub(crate) async fn look_up(&self) -> Instant {
        let now = Instant::now();
        let names = || self.sources.iter().enumerate().filter_map(|(at, source)| Some((at, source.name.as_ref()?)));
        let mut asked = JoinSet::new();
        for (at, name) in names().filter(|(_, name)| name.state.lock().due <= now) {
            let answer = (self.resolver)(name.question.clone(), self.config.resolvers.as_slice().into());
            asked.spawn(async move { (at, tokio::time::timeout(LOOK_UP_TIMEOUT, answer).await) });
        }
        let mut changed = false;
        while let Some(answered) = asked.join_next().await {
            // A panic was reported; the name stays due.
            let Ok((at, answered)) = answered else { continue };
            let answered = answered.map_err(|_| "no answer in time".to_owned());
            let answered = answered.and_then(|answer| answer.map_err(|error| error.to_string()));
            changed |= self.take_answer(&self.sources[at], answered);
        }
        if changed {
            self.make_lists(&self.states());
        }
        let next = names().map(|(_, name)| name.state.lock().due).min();
        next.unwrap_or(now).max(now + LOOK_UP_AGAIN)
    }

    /// Takes the servers of a name over. Returns whether they are others than before. The operator is told when a name
    /// cannot be looked up for the first time, and when it can be again.
    fn take_answer(&self, source: &Source, answered: Result<Answer, String>) -> bool {
        let Some(name) = &source.name else { return false };
        let (upstream, text) = (&*self.name, name.text());
        let mut state = name.state.lock();
        let answer = match answered {
            Ok(answer) if !answer.found.is_empty() => answer,
            other => {
                let problem = other.err().unwrap_or_else(|| "it has no server".to_owned());
                self.look_ups_failed.fetch_add(1, Relaxed);
                if state.problem.is_none() {
                    let kept = source.places.lock().len();
                    tracing::warn!(
                        upstream,
                        "the name `{text}` cannot be looked up: {problem}; its {kept} known servers stay in use"
                    );
                }
                state.problem = Some(problem);
                state.due = Instant::now() + state.wait;
                state.wait = LONGEST_AGAIN.min(2 * state.wait);
                return false;
            }
        };
        state.due = Instant::now() + answer.lasts;
        state.wait = LOOK_UP_AGAIN;
        if state.problem.take().is_some() {
            tracing::info!(upstream, "the name `{text}` is looked up again");
        }
        let has_too_many = answer.found.len() > MOST_SERVERS;
        if has_too_many && !std::mem::replace(&mut state.has_too_many, true) {
            let all = answer.found.len();
            tracing::warn!(upstream, "the name `{text}` has {all} servers; the first {MOST_SERVERS} are used");
        }
        state.has_too_many = has_too_many;
        let found: Vec<_> = answer.found.iter().take(MOST_SERVERS).map(|found| source.place(found)).collect();
        let mut known = source.places.lock();
        let changed = *known != found;
        *known = found;
        changed
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

    /// The states of the known servers.
    fn states(&self) -> HashMap<Key, Arc<ServerState>> {
        let key = |server: &Server| key(&server.endpoint, server.class, &server.spec);
        self.lists.load().all.iter().map(|server| (key(server), server.state.clone())).collect()
    }

    /// Rebuilds the lists. Unchanged servers keep their state; removed ones get no more requests.
    fn make_lists(&self, states: &HashMap<Key, Arc<ServerState>>) {
        let _making = self.making.lock();
        let before = self.lists.load_full();
        let mut all: Vec<Arc<Server>> = Vec::new();
        for source in &self.sources {
            for Place { endpoint, weight, priority } in &*source.places.lock() {
                let spec = UpstreamServer { weight: *weight, priority: *priority, ..source.spec.clone() };
                let same = |server: &&Arc<Server>| {
                    server.endpoint == *endpoint && server.spec == spec && server.class == source.class
                };
                if all.iter().any(|server| same(&server)) {
                    continue;
                }
                if self.config.outliers.is_none()
                    && let Some(state) = states.get(&key(endpoint, source.class, &spec))
                {
                    state.is_no_outlier();
                }
                let server = before.all.iter().find(same).cloned().unwrap_or_else(|| {
                    let state = states.get(&key(endpoint, source.class, &spec)).cloned();
                    let state = state.unwrap_or_else(|| {
                        let state = ServerState::new();
                        // The others are warm already.
                        if !before.all.is_empty() || !states.is_empty() {
                            state.comes_back();
                        }
                        state
                    });
                    let token = self.sticky.as_ref().map(|it| it.token(&endpoint.to_string(), source.class));
                    Arc::new(Server::new(next_id(), &spec, endpoint.clone(), source.class, state, token))
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
