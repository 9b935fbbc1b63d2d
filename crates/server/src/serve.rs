//! The server as a whole: started, changed while it runs, stopped.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::ProducesTickets;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::{
    access_log::{Log, Sink, Writer},
    admin::Token,
    admission::{Admission, Contradiction},
    body::Store,
    class_metrics::ClassMetrics,
    classify::{Classifier, ClassifierError},
    config::{
        AccessLog, CacheConfig, Classes, Config, Limits, Listen, LogTarget, UplinkConfig, UpstreamConfig,
        UpstreamServer,
    },
    http::{Drain, HttpSettings},
    listener::{self, Connections},
    metrics::Metrics,
    places::Places,
    programs::{self, PriorityError},
    refusals::Refusals,
    sites::Sites,
    tls::{Tls, TlsError},
    uplink::{Uplink, UplinkError},
    upstream::{UpstreamSetupError, Upstreams},
    worker::{self, Command},
    workers::Workers,
};
use files::Cache;

/// A server whose addresses are bound and whose sites are open. From here on clients can connect; they are answered once
/// [`Server::run`] is called.
pub struct Server {
    handle: Handle,
    commands: Vec<UnboundedReceiver<Command>>,
    stop: mpsc::Receiver<()>,
    background: crate::admin::Background,
}

/// Changes and stops a running server, from any thread; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    control: Mutex<Control>,
    stop: mpsc::Sender<()>,
}

/// What all workers share.
pub(crate) struct Shared {
    /// What a reload replaces; requests under way keep theirs.
    pub(crate) live: ArcSwap<Live>,
    pub(crate) uplink: Uplink,
    pub(crate) metrics: Metrics,
    /// Places for connections.
    pub(crate) places: Arc<Places>,
    /// Begins when the server stops: what has no end of its own ends then. A reload does not touch it.
    pub(crate) stopping: Drain,
    /// Held by whoever replaces what is live. True when the server stops: nothing is replaced any more.
    changing: Mutex<bool>,
    tickets: Option<Arc<dyn ProducesTickets>>,
}

/// A configuration in force.
#[derive(Clone)]
pub(crate) struct Live {
    /// Counts changes, by reloads and at run time.
    pub(crate) version: u64,
    /// Whether classes are other than in the configuration that was loaded.
    pub(crate) classes_changed: bool,
    pub(crate) sites: Arc<Sites>,
    pub(crate) cache: Cache,
    pub(crate) limits: Limits,
    pub(crate) http: HttpSettings,
    pub(crate) tls: Option<Tls>,
    pub(crate) log: Option<Log>,
    pub(crate) classes: Classes,
    /// The classes' names, for the log.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) classifier: Arc<Classifier>,
    /// The gate before the site, by these classes' numbers.
    pub(crate) admission: Admission,
    /// Of these classes' numbers, to the uplink.
    pub(crate) uplink_generation: u64,
    pub(crate) refusals: Arc<Refusals>,
    /// What is counted of the classes, by their numbers.
    pub(crate) class_metrics: ClassMetrics,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) started: Started,
    pub(crate) store: Store,
    /// What changes at the admin address need.
    pub(crate) admin_token: Option<Arc<Token>>,
    uplink: UplinkConfig,
}

/// What only starting, reloading and stopping touch.
struct Control {
    config: Config,
    bound: Vec<Bound>,
    workers: Vec<UnboundedSender<Command>>,
    log: Option<Writer>,
    admin: crate::admin::Control,
    /// What a reload had started when the server was asked to stop.
    late: Option<Arc<Workers>>,
}

/// An address that is listened on.
struct Bound {
    listen: Listen,
    local: SocketAddr,
    tls: Arc<AtomicBool>,
    /// One for each worker.
    drains: Vec<Arc<Drain>>,
}

/// Why a server cannot start, or cannot take over a configuration. All are the operator's to mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// `listen`: the address cannot be bound.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// `admin`: the address cannot be bound.
    Admin {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// `admin_token`: the file cannot be used.
    AdminToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// `root` of a site, `cgi` of a route: it cannot be opened.
    Root {
        /// The setting that names it.
        setting: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// `tls_cert`, `tls_key`: a certificate cannot be used.
    Certificate(String),
    /// `client_ca`: authorities for clients' certificates cannot be used.
    ClientCa(String),
    /// `listen`: TLS is asked for, and no site has a certificate.
    NoCertificate {
        /// The address.
        address: SocketAddr,
    },
    /// `access_log`: the file cannot be opened.
    AccessLog {
        /// The file; `None`: standard output.
        path: Option<PathBuf>,
        /// What the system says.
        error: io::Error,
    },
    /// `uplink`: it cannot be driven as configured.
    Uplink(UplinkError),
    /// Classes and shares contradict each other.
    Classes(Contradiction),
    /// A file that classes need cannot be used.
    Classifier(ClassifierError),
    /// An upstream cannot be used as configured.
    Upstream(UpstreamSetupError),
    /// The processor priority of a class cannot be given to programs.
    Priority(PriorityError),
    /// Workers of an upstream cannot be started.
    Workers(io::Error),
    /// A thread cannot be started.
    Thread(io::Error),
    /// The server is stopping.
    Stopping,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => {
                write!(f, "listen: cannot listen on {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => write!(f, " (is another server running?)"),
                    io::ErrorKind::PermissionDenied => {
                        write!(f, " (ports below 1024 need CAP_NET_BIND_SERVICE)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Admin { address, error } => write!(f, "admin: cannot listen on {address}: {error}"),
            Self::AdminToken { path, message } => write!(f, "admin_token: {}: {message}", path.display()),
            Self::Root { setting, path, error } => write!(f, "{setting}: cannot open {}: {error}", path.display()),
            Self::Certificate(error) => write!(f, "tls_cert, tls_key: {error}"),
            Self::ClientCa(error) => write!(f, "client_ca: {error}"),
            Self::NoCertificate { address } => {
                write!(f, "listen: TLS is asked for on {address}, but no site has a certificate (tls_cert, tls_key)")
            }
            Self::AccessLog { path: Some(path), error } => {
                write!(f, "access_log: cannot open {}: {error}", path.display())
            }
            Self::AccessLog { path: None, error } => write!(f, "access_log: cannot write: {error}"),
            Self::Uplink(error) => write!(f, "uplink: {error}"),
            Self::Classes(error) => write!(f, "class, admission: {error}"),
            Self::Classifier(error) => write!(f, "{}: {}", error.path.display(), error.message),
            Self::Upstream(error) => write!(f, "{error}"),
            Self::Priority(error) => write!(f, "{error}"),
            Self::Workers(error) => write!(f, "upstream.workers: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Stopping => write!(f, "the server is stopping"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<TlsError> for StartError {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Authorities(..) => Self::ClientCa(error.to_string()),
            _ => Self::Certificate(error.to_string()),
        }
    }
}

impl Server {
    /// Opens the sites, certificates and logs of a configuration and binds its addresses.
    pub fn bind(config: Config) -> Result<Self, StartError> {
        let workers = config.workers.get();
        programs::prepare(&config).map_err(StartError::Priority)?;
        let uplink = Uplink::new(&config.uplink, &config.classes).map_err(StartError::Uplink)?;
        let metrics = Metrics::new(workers);
        let tickets = Tls::tickets();
        let log = match &config.access_log {
            Some(log) => {
                Some(Writer::start(sink(log)?, metrics.log_lines_dropped.clone()).map_err(StartError::Thread)?)
            }
            None => None,
        };
        let live = Live::new(&config, Cache::new(config.cache), tickets.clone(), log.as_ref().map(Writer::log), None)?;
        let (senders, commands): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| tokio::sync::mpsc::unbounded_channel()).unzip();
        let mut bound = Vec::new();
        for listen in &config.listen {
            let (place, sockets) = bind(listen, &config.listen, workers, &uplink)?;
            place.start(sockets, &senders);
            bound.push(place);
        }
        let shared = Arc::new(Shared {
            live: ArcSwap::from_pointee(live),
            uplink,
            metrics,
            places: Places::new(config.limits.connections),
            stopping: Drain::default(),
            changing: Mutex::new(false),
            tickets,
        });
        let (admin, background) = crate::admin::bind(shared.clone(), config.admin)?;
        let (stop, stopped) = mpsc::channel();
        let control = Control { config, bound, workers: senders, log, admin, late: None };
        let handle = Handle { inner: Arc::new(Inner { shared, control: Mutex::new(control), stop }) };
        Ok(Self { handle, commands, stop: stopped, background })
    }

    /// The addresses that are listened on, in the order of the configuration, with the ports the system chose.
    pub fn addresses(&self) -> Vec<Listen> {
        self.handle.addresses()
    }

    /// The address of metrics and status, where there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.handle.inner.control.lock().admin.address()
    }

    /// The means to reload and stop this server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until [`Handle::shutdown`], and returns after the last response. Blocks; needs no runtime.
    pub fn run(self) -> Result<(), StartError> {
        let Self { handle, commands, stop, background } = self;
        let inner = &handle.inner;
        let background = background.start().map_err(StartError::Thread)?;
        let mut threads = Vec::new();
        for (number, commands) in commands.into_iter().enumerate() {
            threads.push(worker::start(inner.shared.clone(), number, commands).map_err(StartError::Thread)?);
        }
        // The handle holds a sender, so this ends with a message only.
        let _ = stop.recv();

        let (done, all_done) = mpsc::channel();
        let timeout = inner.shared.live.load().limits.shutdown_timeout;
        inner.shared.stopping.begin();
        {
            let mut control = inner.control.lock();
            control.bound.drain(..).for_each(|bound| bound.drain());
            for worker in &control.workers {
                let _ = worker.send(Command::Finish { timeout, done: done.clone() });
            }
        }
        drop(done);
        // Ends when every worker has dropped its sender. The first worker drives the uplink for all of them, so none is let
        // go before the last one has finished.
        let _ = all_done.recv();
        inner.control.lock().workers.clear();
        for thread in threads {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
        background.stop();
        // Waits for a change that is being made: what it starts is stopped below.
        *inner.shared.changing.lock() = true;
        let late = inner.control.lock().late.take();
        let workers = inner.shared.live.load().started.workers.clone();
        late.iter().chain(&workers).for_each(|workers| workers.stop());
        programs::finish();
        // Dropping the writer writes what is left.
        inner.control.lock().log = None;
        Ok(())
    }
}

impl Handle {
    /// Takes over a changed configuration: sites, certificates, limits, log, uplink, addresses. Requests under way are
    /// unharmed. After an error the old configuration is in force, as before. Log files are opened anew, also if nothing
    /// has changed. The number of workers stays.
    pub fn reload(&self, config: Config) -> Result<(), StartError> {
        let metrics = &self.inner.shared.metrics;
        let result = self.inner.reload(config);
        match &result {
            Ok(()) => metrics.reloads_ok.fetch_add(1, Relaxed),
            Err(_) => metrics.reloads_failed.fetch_add(1, Relaxed),
        };
        result
    }

    /// Asks the server to stop: no connection more is taken, responses under way are finished, at most for
    /// `limits.shutdown_timeout`. Returns at once; [`Server::run`] returns when all is done.
    pub fn shutdown(&self) {
        // Fails only if the server has stopped.
        let _ = self.inner.stop.send(());
    }

    /// The gate before the site, by the classes in force now; for who has work for the site that does not come by us.
    pub fn admission(&self) -> Admission {
        self.inner.shared.live.load().admission.clone()
    }

    /// The addresses that are listened on now.
    pub fn addresses(&self) -> Vec<Listen> {
        let control = self.inner.control.lock();
        control.bound.iter().map(|bound| Listen { address: bound.local, tls: bound.tls.load(Relaxed) }).collect()
    }
}

impl Inner {
    fn reload(&self, config: Config) -> Result<(), StartError> {
        let shared = &self.shared;
        // One at a time. What takes long is done without the lock on what is listened on: a stop does not wait for it.
        let changing = shared.changing.lock();
        let (workers, cache_config) = {
            let control = self.control.lock();
            if *changing || control.bound.is_empty() {
                return Err(StartError::Stopping);
            }
            (control.workers.len(), control.config.cache)
        };
        if config.workers.get() != workers {
            tracing::warn!(workers, "a changed number of workers takes effect at the next start");
        }

        // First all that can fail. What was made is dropped on an error.
        programs::prepare(&config).map_err(StartError::Priority)?;
        let sink = config.access_log.as_ref().map(sink).transpose()?;
        // The cache survives where it may: its entries are of use, and its counters do not jump back.
        let cache = match same_cache(&cache_config, &config.cache) {
            true => shared.live.load().cache.clone(),
            false => Cache::new(config.cache),
        };
        let before = shared.live.load_full();
        let mut live = Live::new(&config, cache, shared.tickets.clone(), None, Some(&before))?;
        let mut control = self.control.lock();
        if control.bound.is_empty() {
            control.late = live.started.workers;
            return Err(StartError::Stopping);
        }
        let mut added = Vec::new();
        for listen in &config.listen {
            if !control.bound.iter().any(|bound| bound.listen.address == listen.address) {
                added.push(bind(listen, &config.listen, workers, &shared.uplink)?);
            }
        }
        let admin = match control.config.admin == config.admin {
            true => None,
            false => Some(config.admin.map(crate::admin::listen).transpose()?),
        };
        if let (Some(_), None) = (&sink, &control.log) {
            let idle = Sink::discard();
            let dropped = shared.metrics.log_lines_dropped.clone();
            control.log = Some(Writer::start(idle, dropped).map_err(StartError::Thread)?);
        }
        live.uplink_generation =
            shared.uplink.reconfigure(&config.uplink, &config.classes).map_err(StartError::Uplink)?;

        // From here on nothing fails: the classes were checked when `live` was made.
        live.admission = before.admission.reconfigure(&config.classes).map_err(StartError::Classes)?;
        if let (Some(sink), Some(writer)) = (sink, &control.log) {
            writer.replace(sink);
            live.log = Some(writer.log());
        }
        before.upstreams.replaced_by(&live.upstreams);
        shared.live.store(Arc::new(live));
        drop(changing);
        shared.places.resize(config.limits.connections);
        let (kept, removed): (Vec<_>, Vec<_>) = std::mem::take(&mut control.bound)
            .into_iter()
            .partition(|bound| config.listen.iter().any(|listen| listen.address == bound.listen.address));
        removed.into_iter().for_each(|bound| bound.drain());
        control.bound = kept;
        for (place, sockets) in added {
            place.start(sockets, &control.workers);
            control.bound.push(place);
        }
        for bound in &mut control.bound {
            if let Some(listen) = config.listen.iter().find(|listen| listen.address == bound.listen.address) {
                bound.listen = *listen;
                bound.tls.store(listen.tls, Relaxed);
            }
        }
        if let Some(admin) = admin {
            control.admin.replace(admin);
        }
        programs::settle(&config.classes.classes, programs::are_run_by(&config));
        control.config = config;
        Ok(())
    }
}

impl Live {
    fn new(
        config: &Config,
        cache: Cache,
        tickets: Option<Arc<dyn ProducesTickets>>,
        log: Option<Log>,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let sites = Sites::open(&config.sites, &cache).map_err(|failed| StartError::Root {
            setting: failed.setting,
            path: failed.path,
            error: failed.error,
        })?;
        let tls = Tls::new(&config.sites, tickets)?;
        if let (None, Some(listen)) = (&tls, config.listen.iter().find(|listen| listen.tls)) {
            return Err(StartError::NoCertificate { address: listen.address });
        }
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
        let mut started = Started::new(&config.upstreams, &classes, before.map(|before| &before.started))?;
        started.runs_programs = programs::are_run_by(config);
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
            cache,
            http: HttpSettings::new(&limits),
            tls,
            log,
            classifier: Arc::new(Classifier::new(&classes).map_err(StartError::Classifier)?),
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
            limits,
            classes,
        })
    }

    /// The same with other classes, but for the gate before the site. Reads the files that they name; blocks.
    fn with_classes(&self, classes: Classes) -> Result<Self, StartError> {
        Admission::check(&classes).map_err(StartError::Classes)?;
        programs::prepare_classes(&classes.classes, self.started.runs_programs).map_err(StartError::Priority)?;
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
            classifier: Arc::new(Classifier::new(&classes).map_err(StartError::Classifier)?),
            names: names(&classes),
            refusals: Arc::new(Refusals::read(&classes).map_err(StartError::Classifier)?),
            class_metrics: self.class_metrics.renewed(&classes),
            classes,
            ..self.clone()
        })
    }
}

impl Shared {
    /// Changes classes and admission while running, until the next reload. Requests that wait go on waiting. One at a time, and
    /// not during a reload; blocks. What `change` finds wrong, or the new classes cannot be used with, is returned, and then
    /// nothing has changed.
    pub(crate) fn change_classes<E: From<StartError>>(
        &self,
        change: impl FnOnce(&Live) -> Result<Classes, E>,
    ) -> Result<Arc<Live>, E> {
        let changing = self.changing.lock();
        if *changing {
            return Err(StartError::Stopping.into());
        }
        let before = self.live.load_full();
        let mut live = before.with_classes(change(&before)?)?;
        live.uplink_generation = self.uplink.reconfigure(&live.uplink, &live.classes).map_err(StartError::Uplink)?;
        live.admission = before.admission.reconfigure(&live.classes).map_err(StartError::Classes)?;
        if !Arc::ptr_eq(&before.upstreams, &live.upstreams) {
            before.upstreams.replaced_by(&live.upstreams);
        }
        let live = Arc::new(live);
        self.live.store(live.clone());
        programs::settle(&live.classes.classes, live.started.runs_programs);
        live.class_metrics.watch(Instant::now());
        Ok(live)
    }
}

/// Servers that are started here.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    upstreams: Arc<[UpstreamConfig]>,
    /// Where there are any.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Whether programs are run with the priorities of classes.
    runs_programs: bool,
    /// The folder of their sockets.
    folder: Option<Arc<TempDir>>,
}

impl Started {
    /// Starts what an upstream says, or what is new of it, and waits for it. At the start, workers that do not get ready are tried again
    /// while we serve; later they replace nobody. Blocks.
    fn new(upstreams: &[UpstreamConfig], classes: &Classes, before: Option<&Self>) -> Result<Self, StartError> {
        let none = Self { upstreams: upstreams.into(), workers: None, runs_programs: false, folder: None };
        if upstreams.iter().all(|upstream| upstream.workers.is_none()) {
            return Ok(none);
        }
        let workers = before.and_then(|before| Some((before.workers.clone()?, before.folder.clone()?)));
        let (workers, folder) = match workers {
            Some((workers, folder)) => (workers.reload(upstreams, &classes.classes), folder),
            None => {
                let folder = tempfile::Builder::new().prefix("serpent-").tempdir().map_err(StartError::Workers)?;
                let sockets = folder.path().join("workers");
                (Workers::start(upstreams, &classes.classes, &sockets), Arc::new(folder))
            }
        };
        let workers = workers.map_err(StartError::Workers)?;
        match workers.wait_until_ready() {
            Err(error) if before.is_some() => return Err(StartError::Workers(error)),
            // The log has it.
            _ => {}
        }
        Ok(Self { workers: Some(Arc::new(workers)), folder: Some(folder), runs_programs: true, ..none })
    }

    fn with_classes(&self, classes: &Classes) -> Result<Self, StartError> {
        let runs_programs = self.runs_programs;
        Ok(Self { runs_programs, ..Self::new(&self.upstreams, classes, Some(self))? })
    }

    /// Where they listen: by upstream, class and process.
    fn servers(&self) -> Vec<Vec<Vec<UpstreamServer>>> {
        let Some(workers) = &self.workers else { return Vec::new() };
        self.upstreams.iter().map(|upstream| workers.servers(upstream)).collect()
    }
}

fn names(classes: &Classes) -> Vec<Arc<str>> {
    classes.classes.iter().map(|class| class.name.as_str().into()).collect()
}

impl Bound {
    fn start(&self, sockets: Vec<TcpListener>, workers: &[UnboundedSender<Command>]) {
        for ((socket, drain), worker) in sockets.into_iter().zip(&self.drains).zip(workers) {
            let connections = Connections { socket, drain: drain.clone(), tls: self.tls.clone() };
            // Fails only if the worker has died, which was reported.
            let _ = worker.send(Command::Listen(connections));
        }
    }

    fn drain(self) {
        self.drains.iter().for_each(|drain| drain.begin());
    }
}

fn bind(
    listen: &Listen,
    all: &[Listen],
    workers: usize,
    uplink: &Uplink,
) -> Result<(Bound, Vec<TcpListener>), StartError> {
    let failed = |error| StartError::Listen { address: listen.address, error };
    let sockets = listener::bind(listen, all, workers, uplink).map_err(failed)?;
    let local = sockets[0].local_addr().map_err(failed)?;
    let drains = sockets.iter().map(|_| Arc::default()).collect();
    Ok((Bound { listen: *listen, local, tls: Arc::new(AtomicBool::new(listen.tls)), drains }, sockets))
}

fn same_cache(one: &CacheConfig, other: &CacheConfig) -> bool {
    one.capacity_bytes == other.capacity_bytes
        && one.max_file_bytes == other.max_file_bytes
        && one.revalidate_after == other.revalidate_after
}

fn sink(log: &AccessLog) -> Result<Sink, StartError> {
    Sink::open(log).map_err(|error| StartError::AccessLog {
        path: match &log.target {
            LogTarget::File(path) => Some(path.clone()),
            LogTarget::Stdout => None,
        },
        error,
    })
}
