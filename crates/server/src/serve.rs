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
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::ProducesTickets;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::{
    access_log::{Log, Sink, Writer},
    config::{AccessLog, CacheConfig, Config, Limits, Listen, LogTarget},
    files::Cache,
    http::{Drain, HttpSettings},
    listener::{self, Connections},
    metrics::Metrics,
    places::Places,
    sites::Sites,
    tls::{Tls, TlsError},
    uplink::{Uplink, UplinkError},
    worker::{self, Command},
};

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
    tickets: Option<Arc<dyn ProducesTickets>>,
}

/// A configuration in force.
pub(crate) struct Live {
    pub(crate) sites: Sites,
    pub(crate) cache: Cache,
    pub(crate) limits: Limits,
    pub(crate) http: HttpSettings,
    pub(crate) tls: Option<Tls>,
    pub(crate) log: Option<Log>,
}

/// What only starting, reloading and stopping touch.
struct Control {
    config: Config,
    bound: Vec<Bound>,
    workers: Vec<UnboundedSender<Command>>,
    log: Option<Writer>,
    admin: crate::admin::Control,
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
    /// `root` of a site: the directory cannot be opened.
    Root {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// `tls_cert`, `tls_key`: a certificate cannot be used.
    Certificate(String),
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
            Self::Root { path, error } => write!(f, "root: cannot open {}: {error}", path.display()),
            Self::Certificate(error) => write!(f, "tls_cert, tls_key: {error}"),
            Self::NoCertificate { address } => {
                write!(f, "listen: TLS is asked for on {address}, but no site has a certificate (tls_cert, tls_key)")
            }
            Self::AccessLog { path: Some(path), error } => {
                write!(f, "access_log: cannot open {}: {error}", path.display())
            }
            Self::AccessLog { path: None, error } => write!(f, "access_log: cannot write: {error}"),
            Self::Uplink(error) => write!(f, "uplink: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Stopping => write!(f, "the server is stopping"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<TlsError> for StartError {
    fn from(error: TlsError) -> Self {
        Self::Certificate(error.to_string())
    }
}

impl Server {
    /// Opens the sites, certificates and logs of a configuration and binds its addresses.
    pub fn bind(config: Config) -> Result<Self, StartError> {
        let workers = config.workers.get();
        let uplink = Uplink::new(&config.uplink).map_err(StartError::Uplink)?;
        let metrics = Metrics::new(workers);
        let tickets = Tls::tickets();
        let log = match &config.access_log {
            Some(log) => {
                Some(Writer::start(sink(log)?, metrics.log_lines_dropped.clone()).map_err(StartError::Thread)?)
            }
            None => None,
        };
        let live = Live::new(&config, Cache::new(config.cache), tickets.clone(), log.as_ref().map(Writer::log))?;
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
            tickets,
        });
        let (admin, background) = crate::admin::bind(shared.clone(), config.admin)?;
        let (stop, stopped) = mpsc::channel();
        let control = Control { config, bound, workers: senders, log, admin };
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

    /// The addresses that are listened on now.
    pub fn addresses(&self) -> Vec<Listen> {
        let control = self.inner.control.lock();
        control.bound.iter().map(|bound| Listen { address: bound.local, tls: bound.tls.load(Relaxed) }).collect()
    }
}

impl Inner {
    fn reload(&self, config: Config) -> Result<(), StartError> {
        let shared = &self.shared;
        let mut control = self.control.lock();
        if control.bound.is_empty() {
            return Err(StartError::Stopping);
        }
        let workers = control.workers.len();
        if config.workers.get() != workers {
            tracing::warn!(workers, "a changed number of workers takes effect at the next start");
        }

        // First all that can fail. What was made is dropped on an error.
        let sink = config.access_log.as_ref().map(sink).transpose()?;
        // The cache survives where it may: its entries are of use, and its counters do not jump back.
        let cache = match same_cache(&control.config.cache, &config.cache) {
            true => shared.live.load().cache.clone(),
            false => Cache::new(config.cache),
        };
        let mut live = Live::new(&config, cache, shared.tickets.clone(), None)?;
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
        shared.uplink.reconfigure(&config.uplink).map_err(StartError::Uplink)?;

        // From here on nothing fails.
        if let (Some(sink), Some(writer)) = (sink, &control.log) {
            writer.replace(sink);
            live.log = Some(writer.log());
        }
        shared.live.store(Arc::new(live));
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
    ) -> Result<Self, StartError> {
        let sites = Sites::open(&config.sites, &cache)
            .map_err(|failed| StartError::Root { path: failed.root, error: failed.error })?;
        let tls = Tls::new(&config.sites, tickets)?;
        if let (None, Some(listen)) = (&tls, config.listen.iter().find(|listen| listen.tls)) {
            return Err(StartError::NoCertificate { address: listen.address });
        }
        let limits = config.limits.clone();
        Ok(Self { sites, cache, http: HttpSettings::new(&limits), limits, tls, log })
    }
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
