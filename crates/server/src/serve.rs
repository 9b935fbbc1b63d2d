//! The server as a whole: started, changed while it runs, stopped.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
};

use access_log::{Logs, OpenError, Opened, Writer};
use arc_swap::ArcSwap;
use limits::AtOnce;
use parking_lot::Mutex;
use programs::Workers;
use recent::Orders;
use scheduler::{Rate, lease::Times};
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender},
};
use tokio_util::sync::CancellationToken;
use traces::Traces;

use crate::{
    admission::Admission,
    common::Cluster,
    config::{Config, Listen},
    connection_limit::ConnectionLimit,
    listener::{self, Connections},
    metrics::Metrics,
    program_priorities,
    start_error::StartError,
    state::{ConfigSnapshot, ServerState, chance},
    tls::Tls,
    uplink::Uplink,
    worker::{self, Command},
};
use files::Cache;

/// A server whose addresses are bound and whose sites are open. From here on clients can connect; they are answered once
/// [`Server::run`] is called.
pub struct Server {
    handle: Handle,
    commands: Vec<UnboundedReceiver<Command>>,
    stop: mpsc::Receiver<Stop>,
    background: crate::admin::Background,
}

/// Changes and stops a running server, from any thread; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    state: Arc<ServerState>,
    control: Mutex<Control>,
    stop: mpsc::Sender<Stop>,
}

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// When balancers have had `limits.shutdown_delay` to notice.
    Noticed,
    AtOnce,
}

/// The state that only starting, reloading and stopping touch.
struct Control {
    config: Config,
    bound: Vec<Bound>,
    workers: Vec<UnboundedSender<Command>>,
    log: Option<Writer>,
    admin: crate::admin::Control,
    /// The processes that a reload had started when the server was asked to stop.
    late: Option<Arc<Workers>>,
}

/// An address that is listened on.
struct Bound {
    listen: Listen,
    local: SocketAddr,
    tls: Arc<AtomicBool>,
    /// One for each socket.
    drains: Vec<CancellationToken>,
    /// Copies of the sockets, for a process that takes over. While one is open, the kernel completes connections.
    sockets: Vec<TcpListener>,
}

impl Server {
    /// Opens the sites, certificates and logs of a configuration and binds its addresses.
    pub fn bind(config: Config) -> Result<Self, StartError> {
        Self::bind_inheriting(config, Vec::new())
    }

    /// As [`Server::bind`], with listening sockets that are open already: from systemd, or from a process that this one
    /// takes over from. Each address of the configuration (`admin`, too) takes the sockets that are bound to it, in place
    /// of new ones. A socket of no address is closed.
    pub fn bind_inheriting(config: Config, mut inherited: Vec<TcpListener>) -> Result<Self, StartError> {
        let workers = config.workers.get();
        program_priorities::prepare(&config).map_err(StartError::Priority)?;
        let uplink = Uplink::new(&config.uplink, &config.classes).map_err(StartError::Uplink)?;
        let metrics = Metrics::new(workers);
        let tickets = Tls::tickets();
        let opened = open_logs(&config)?;
        let mut log = None;
        start_writer(&mut log, &opened, &metrics)?;
        let logs = log.as_mut().map_or_else(Logs::default, |writer| writer.replace(opened));
        let traces = open_traces(&config, &metrics, None)?;
        let cache = Cache::new(config.cache);
        let snapshot = ConfigSnapshot::new(&config, cache, tickets.clone(), logs, traces, None)?;
        let (senders, commands): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| tokio::sync::mpsc::unbounded_channel()).unzip();
        let mut bound = Vec::new();
        for listen in &config.listen {
            let (place, sockets) = bind(listen, &config.listen, workers, &uplink, &mut inherited)?;
            place.start(sockets, &senders);
            bound.push(place);
        }
        let cluster = config.cluster.as_ref().map(|cluster| cluster.open(chance()).map(Cluster::new));
        let session_keys = snapshot.session_keys().clone();
        let state = Arc::new(ServerState {
            snapshot: ArcSwap::from_pointee(snapshot),
            uplink,
            metrics,
            connections: ConnectionLimit::new(config.limits.connections),
            connections_of_clients: AtOnce::default(),
            stopping: CancellationToken::new(),
            is_draining: AtomicBool::new(false),
            changing: Mutex::new(false),
            changes: Mutex::default(),
            tickets,
            replaced: Notify::new(),
            told_of_proxy_headers: Mutex::default(),
            cluster: cluster.transpose().map_err(StartError::Cluster)?,
            session_keys,
        });
        if state.cluster.is_some() {
            state.snapshot.load().admission.join(&config.classes, Times::DEFAULT);
        }
        let (admin, background) = crate::admin::bind(state.clone(), config.admin, &mut inherited)?;
        let (stop, stopped) = mpsc::channel();
        let control = Control { config, bound, workers: senders, log, admin, late: None };
        let handle = Handle { inner: Arc::new(Inner { state, control: Mutex::new(control), stop }) };
        Ok(Self { handle, commands, stop: stopped, background })
    }

    /// Lets the page of the admin address compare the order with others, which `orders` computes.
    #[must_use]
    pub fn comparing(self, orders: Orders) -> Self {
        let _ = self.handle.inner.state.metrics.orders.set(orders);
        self
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
            threads.push(worker::start(inner.state.clone(), number, commands).map_err(StartError::Thread)?);
        }
        // The handle holds a sender, so this ends with a message only.
        let how = stop.recv();
        inner.state.is_draining.store(true, Relaxed);
        let (delay, timeout) = {
            let limits = &inner.state.snapshot.load().limits;
            (limits.shutdown_delay, limits.shutdown_timeout)
        };
        if how == Ok(Stop::Noticed) && !delay.is_zero() {
            tracing::info!(?delay, "balancers are told that this server stops; connections are still taken");
            // A second signal to stop ends the wait.
            let _ = stop.recv_timeout(delay);
        }

        let (done, all_done) = mpsc::channel();
        inner.state.stopping.cancel();
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
        *inner.state.changing.lock() = true;
        let late = inner.control.lock().late.take();
        let workers = inner.state.snapshot.load().started.workers.clone();
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
        let result = self.inner.reload(config);
        self.inner.state.metrics.reloaded(result.is_ok());
        result
    }

    /// Asks the server to stop: `/health` says so; after `limits.shutdown_delay`, or when this is called again, no connection
    /// more is taken, and responses under way are finished, at most for `limits.shutdown_timeout`. Returns at once;
    /// [`Server::run`] returns when all is done.
    pub fn shutdown(&self) {
        // Fails only if the server has stopped.
        let _ = self.inner.stop.send(Stop::Noticed);
    }

    /// Counts a changed configuration that has mistakes, so that there was nothing to take over.
    pub fn refuse_reload(&self) {
        self.inner.state.metrics.reloaded(false);
    }

    /// Copies of all listening sockets, for a process that takes over. That process and this one take connections from
    /// the same queues.
    pub fn sockets(&self) -> io::Result<Vec<TcpListener>> {
        let control = self.inner.control.lock();
        let served = control.bound.iter().flat_map(|bound| &bound.sockets);
        served.chain(control.admin.socket()).map(TcpListener::try_clone).collect()
    }

    /// Stops as [`Handle::shutdown`] does, for a process that has taken over: metrics and status are asked there from now
    /// on.
    pub fn hand_over(&self) {
        self.inner.control.lock().admin.replace(None);
        // The other process takes connections; there is nothing to be noticed.
        let _ = self.inner.stop.send(Stop::AtOnce);
    }

    /// The gate before the site, by the classes in force now; for who has work for the site that does not come by us.
    pub fn admission(&self) -> Admission {
        self.inner.state.snapshot.load().admission.clone()
    }

    /// Begins with a rate of the uplink that was found earlier. Without effect unless it is to be found, and is not known.
    pub fn begin_at(&self, known: Rate) {
        self.inner.state.uplink.begin_at(known);
    }

    /// The rate of the uplink that was found, once it is known well; for [`Handle::begin_at`] after a restart.
    pub fn known_rate(&self) -> Option<Rate> {
        self.inner.state.uplink.known_rate()
    }

    /// The addresses that are listened on now.
    pub fn addresses(&self) -> Vec<Listen> {
        let control = self.inner.control.lock();
        control.bound.iter().map(|bound| Listen { address: bound.local, tls: bound.tls.load(Relaxed) }).collect()
    }
}

impl Inner {
    fn reload(&self, mut config: Config) -> Result<(), StartError> {
        let state = &self.state;
        if state.cluster.is_none() && config.uplink.line.take().is_some() {
            tracing::warn!("`uplink.line` takes effect at the next start: there was no `[cluster]` at this one");
        }
        // One at a time. The slow steps are done without the lock on `control`, so that a stop can begin meanwhile.
        let changing = state.changing.lock();
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

        if config.cluster != self.control.lock().config.cluster {
            tracing::warn!("a changed `[cluster]` takes effect at the next start");
        }

        // First all that can fail. On an error, the results so far are dropped.
        program_priorities::prepare(&config).map_err(StartError::Priority)?;
        let opened = open_logs(&config)?;
        // The cache survives where it may: its entries are of use, and its counters do not jump back.
        let cache = match cache_config == config.cache {
            true => state.snapshot.load().cache.clone(),
            false => Cache::new(config.cache),
        };
        let before = state.snapshot.load_full();
        let traces = open_traces(&config, &state.metrics, before.traces.as_ref())?;
        let (tickets, logs) = (state.tickets.clone(), Logs::default());
        let mut snapshot = ConfigSnapshot::new(&config, cache, tickets, logs, traces, Some(&before))?;
        let mut control = self.control.lock();
        if control.bound.is_empty() {
            control.late = snapshot.started.workers;
            return Err(StartError::Stopping);
        }
        let mut added = Vec::new();
        for listen in &config.listen {
            if !control.bound.iter().any(|bound| bound.listen.address == listen.address) {
                added.push(bind(listen, &config.listen, workers, &state.uplink, &mut Vec::new())?);
            }
        }
        let admin = match control.config.admin == config.admin {
            true => None,
            false => Some(config.admin.map(|address| crate::admin::listen(address, None)).transpose()?),
        };
        start_writer(&mut control.log, &opened, &state.metrics)?;
        snapshot.uplink_generation =
            state.uplink.reconfigure(&config.uplink, &config.classes).map_err(StartError::Uplink)?;

        // From here on nothing fails: the classes were checked when the snapshot was made.
        snapshot.admission = before.admission.reconfigure(&config.classes).map_err(StartError::Classes)?;
        if let Some(writer) = &mut control.log {
            snapshot.logs = writer.replace(opened);
        }
        before.upstreams.replaced_by(&snapshot.upstreams);
        snapshot.upstreams.forget_changes();
        if let Some(cluster) = &state.cluster {
            crate::cluster::apply(cluster, &snapshot);
        }
        state.snapshot.store(Arc::new(snapshot));
        state.replaced.notify_one();
        drop(changing);
        state.connections.resize(config.limits.connections);
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
        program_priorities::settle(&config.classes.classes, program_priorities::are_run_by(&config));
        control.config = config;
        Ok(())
    }
}

impl Bound {
    fn start(&self, sockets: Vec<TcpListener>, workers: &[UnboundedSender<Command>]) {
        for ((socket, drain), worker) in sockets.into_iter().zip(&self.drains).zip(workers.iter().cycle()) {
            let connections = Connections { socket, drain: drain.clone(), tls: self.tls.clone() };
            // Fails only if the worker has died, which was reported.
            let _ = worker.send(Command::Listen(connections));
        }
    }

    fn drain(self) {
        // First, so that the worker has the last copy: it takes all connections that are complete before it closes it.
        drop(self.sockets);
        self.drains.iter().for_each(|drain| drain.cancel());
    }
}

fn bind(
    listen: &Listen,
    all: &[Listen],
    workers: usize,
    uplink: &Uplink,
    inherited: &mut Vec<TcpListener>,
) -> Result<(Bound, Vec<TcpListener>), StartError> {
    let failed = |error| StartError::Listen { address: listen.address, error };
    let sockets = listener::bind(listen, all, workers, uplink, inherited).map_err(failed)?;
    let local = sockets[0].local_addr().map_err(failed)?;
    let drains = sockets.iter().map(|_| CancellationToken::new()).collect();
    let copies = sockets.iter().map(TcpListener::try_clone).collect::<Result<_, _>>().map_err(failed)?;
    let tls = Arc::new(AtomicBool::new(listen.tls));
    Ok((Bound { listen: *listen, local, tls, drains, sockets: copies }, sockets))
}

fn open_logs(config: &Config) -> Result<Opened, StartError> {
    Opened::open(config.logs()).map_err(|OpenError { log, error }| StartError::AccessLog { target: log.target, error })
}

/// Where spans go. The old way stays, with the spans on it, unless something has changed.
fn open_traces(config: &Config, metrics: &Metrics, before: Option<&Traces>) -> Result<Option<Traces>, StartError> {
    let Some(config) = &config.tracing else { return Ok(None) };
    match before.filter(|before| before.config() == config && config.ca.is_none()) {
        Some(before) => Ok(Some(before.clone())),
        None => Traces::open(config, metrics.spans.clone()).map(Some).map_err(StartError::Tracing),
    }
}

/// Starts the thread that writes logs, if there are any, and it does not run.
fn start_writer(writer: &mut Option<Writer>, opened: &Opened, metrics: &Metrics) -> Result<(), StartError> {
    if writer.is_none() && !opened.are_none() {
        *writer = Some(Writer::start(metrics.log_lines_dropped.clone()).map_err(StartError::Thread)?);
    }
    Ok(())
}
