//! The admin address with metrics, status and changes of classes, and the background tasks. All run on one
//! thread, apart from the workers.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full, channel::Channel};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{access::Peer, events::Events};
use crate::{pipeline::guard::Switch, start_error::StartError, state::ServerState, tls::Tls};

mod access;
mod api;
mod certificates;
mod edits;
mod events;
mod exposition;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub(crate) mod history;
mod live;
mod maintenance;
mod page;
mod place;
mod plain;
mod problem;
mod process;
pub(crate) mod servers;
mod settings;
mod shown;
mod stored;
pub(crate) mod token;

/// Time between two checks of certificate files.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);
/// Most connections to the admin address: one or two scrapers, and people.
const CONNECTIONS: usize = 64;
/// Longest life of an admin connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a connection may hold of requests and of answers: the largest body is 64 KiB.
const BUFFER_BYTES: usize = 96 * 1024;
/// Time until spans go to another collector after a reload. Until then they wait.
const TRACES_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks of the classes' objectives.
const OBJECTIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The admin side before it runs.
pub(crate) struct Background {
    state: Arc<ServerState>,
    sockets: mpsc::UnboundedReceiver<Option<Admin>>,
}

/// The admin side while it runs.
pub(crate) struct Running {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The part of the admin side that a reload changes.
pub(crate) struct Control {
    address: Option<SocketAddr>,
    /// A copy of the socket, for a process that takes over.
    socket: Option<StdTcpListener>,
    sockets: mpsc::UnboundedSender<Option<Admin>>,
    state: Arc<ServerState>,
}

/// A bound admin address.
pub(crate) struct Admin {
    address: SocketAddr,
    socket: StdTcpListener,
    copy: Option<StdTcpListener>,
}

/// Binds the admin address, or takes an inherited socket of it.
pub(crate) fn bind(
    state: Arc<ServerState>,
    address: Option<SocketAddr>,
    inherited: &mut Vec<StdTcpListener>,
) -> Result<(Control, Background), StartError> {
    let (sender, sockets) = mpsc::unbounded_channel();
    let mut control = Control { address: None, socket: None, sockets: sender, state: state.clone() };
    let listen = |address| listen(address, crate::listener::inherited_of(address, inherited).pop());
    control.replace(address.map(listen).transpose()?);
    Ok((control, Background { state, sockets }))
}

/// Binds an admin address, or takes an inherited socket of it.
pub(crate) fn listen(address: SocketAddr, inherited: Option<StdTcpListener>) -> Result<Admin, StartError> {
    let bind = || {
        let socket = inherited.map_or_else(|| StdTcpListener::bind(address), Ok)?;
        socket.set_nonblocking(true)?;
        Ok(Admin { address: socket.local_addr()?, copy: Some(socket.try_clone()?), socket })
    };
    bind().map_err(|error| StartError::Admin { address, error })
}

impl Control {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// A copy of the socket, for a process that takes over.
    pub(crate) fn socket(&self) -> Option<&StdTcpListener> {
        self.socket.as_ref()
    }

    /// Serves another address, or none, from now on.
    pub(crate) fn replace(&mut self, mut admin: Option<Admin>) {
        self.address = admin.as_ref().map(|admin| admin.address);
        self.socket = admin.as_mut().and_then(|admin| admin.copy.take());
        self.state.metrics.are_shown.store(admin.is_some(), Relaxed);
        // Fails only when the server has stopped.
        let _ = self.sockets.send(admin);
    }
}

impl Background {
    pub(crate) fn start(self) -> io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(watch_certificates(self.state.clone()));
                tokio::spawn(watch_maintenance(self.state.clone()));
                tokio::spawn(obtain_certificates(self.state.clone()));
                tokio::spawn(watch_objectives(self.state.clone()));
                let uplink = self.state.uplink.clone();
                tokio::spawn(async move { uplink.follow_limit().await });
                let (told, readings) = watch::channel(());
                tokio::spawn(live::watch(self.state.clone(), told));
                let stopping = CancellationToken::new();
                let exporting = tokio::spawn(export_traces(self.state.clone(), stopping.clone()));
                tokio::spawn(admin(self.state, self.sockets, readings));
                // Also ends when the sender is dropped.
                let _ = stopped.await;
                // The last spans; the exporter has a limit in time.
                stopping.cancel();
                let _ = exporting.await;
            });
            runtime.shutdown_background();
        })?;
        Ok(Running { stop: Some(stop), thread: Some(thread) })
    }
}

impl Running {
    /// Ends the thread.
    pub(crate) fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn watch_certificates(state: Arc<ServerState>) {
    let mut interval = tokio::time::interval(CERTIFICATE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let snapshot = state.snapshot.load_full();
        if snapshot.tls.is_none() {
            continue;
        }
        // On another thread, because a metrics scrape must not wait for a slow disk.
        let refreshed = tokio::task::spawn_blocking(move || snapshot.tls.as_ref().map(Tls::refresh)).await;
        let Ok(Some((taken, errors))) = refreshed else { continue };
        if taken > 0 {
            tracing::info!(certificates = taken, "changed certificates taken over");
            state.metrics.certificate_reloads_ok.fetch_add(taken as u64, Relaxed);
        }
        for error in errors {
            tracing::error!(%error, "a changed certificate cannot be used; the old one stays");
            state.metrics.certificate_reloads_failed.fetch_add(1, Relaxed);
        }
    }
}

async fn watch_maintenance(state: Arc<ServerState>) {
    loop {
        let switches: Vec<_> = state.snapshot.load().sites.maintenance().cloned().collect();
        // Only a reload can bring the first one, and that looks for the file itself.
        let pause = if switches.is_empty() { CERTIFICATE_INTERVAL } else { Switch::INTERVAL };
        tokio::time::sleep(pause).await;
        // On another thread, as above.
        let _ = tokio::task::spawn_blocking(move || switches.iter().for_each(|switch| switch.refresh())).await;
    }
}

/// Obtains and renews the certificates of the configuration in force, whichever that is.
async fn obtain_certificates(state: Arc<ServerState>) {
    let mut interval = tokio::time::interval(CERTIFICATE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(acme) = state.snapshot.load().acme.clone() else { continue };
        let replaced = async {
            while state.snapshot.load().acme.as_ref().is_some_and(|now| now.is(&acme)) {
                interval.tick().await;
            }
        };
        tokio::select! {
            () = acme.drive() => {}
            () = replaced => {}
        }
    }
}

/// Sends the spans of requests to the collector of the configuration in force, whichever that is.
async fn export_traces(state: Arc<ServerState>, stopping: CancellationToken) {
    let mut interval = tokio::time::interval(TRACES_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stopping.is_cancelled() {
        let traces = state.snapshot.load().traces.clone();
        let is_in_force = || match (&state.snapshot.load().traces, &traces) {
            (Some(now), Some(traces)) => now.is(traces),
            (now, traces) => now.is_none() && traces.is_none(),
        };
        let replaced = async {
            while is_in_force() {
                interval.tick().await;
            }
        };
        let ends = async {
            tokio::select! {
                () = replaced => {}
                () = stopping.cancelled() => {}
            }
        };
        match &traces {
            Some(traces) => traces.drive(ends).await,
            None => ends.await,
        }
    }
}

async fn watch_objectives(state: Arc<ServerState>) {
    let mut interval = tokio::time::interval(OBJECTIVE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let now = interval.tick().await;
        state.snapshot.load().class_metrics.watch(now.into_std());
    }
}

async fn admin(
    state: Arc<ServerState>,
    mut sockets: mpsc::UnboundedReceiver<Option<Admin>>,
    readings: watch::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut listener = None;
    let mut events = Events::new(readings);
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => accept(listener, &places).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = sockets.recv() => match changed {
                None => return,
                Some(admin) => {
                    // Streams of the old address end.
                    events.restart();
                    listener = admin.and_then(polled);
                }
            },
            (stream, place) = accepted => {
                let (state, events) = (state.clone(), events.clone());
                tokio::spawn(async move {
                    let Ok(peer) = stream.peer_addr() else { return };
                    let (peer, ends) = (Peer::new(peer, stream.local_addr().ok()), Instant::now() + CONNECTION_TIMEOUT);
                    let answer = service_fn(|request| async {
                        Ok::<_, Infallible>(answer(&state, &events, peer, ends, request).await)
                    });
                    let connection = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD_TIMEOUT)
                        .max_buf_size(BUFFER_BYTES)
                        .serve_connection(TokioIo::new(stream), answer);
                    // An error of a scraper's connection concerns only the scraper.
                    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
                    drop(place);
                });
            }
        }
    }
}

/// The socket of an admin address, for this runtime.
fn polled(admin: Admin) -> Option<TcpListener> {
    let listener = TcpListener::from_std(admin.socket);
    listener.inspect_err(|error| tracing::error!(%error, "the admin address cannot be polled")).ok()
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    let place = places.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(
    state: &Arc<ServerState>,
    events: &Events,
    peer: Peer,
    ends: Instant,
    request: Request<Incoming>,
) -> Response<Either<Full<Bytes>, Channel<Bytes>>> {
    let path = request.uri().path();
    if request.method() == Method::GET && path == events::PATH {
        return match events.stream(state, peer, ends, &request) {
            Ok(stream) => stream.map(Either::Right),
            Err(problem) => problem.response().map(Either::Left),
        };
    }
    let answered = match path.starts_with("/api/") {
        true => api::answer(state, peer, request).await,
        false => show(state, peer, &request),
    };
    answered.map(Either::Left)
}

/// Answers a request that is not for the API.
fn show(state: &ServerState, peer: Peer, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads && path == "/" {
        let may_read = access::may_read(&state.snapshot.load(), peer, request.headers()).is_ok();
        return page::page(&if may_read { plain::tables(state) } else { plain::LOCKED.to_owned() });
    }
    if let (true, Some(part)) = (reads, page::find(path)) {
        return part;
    }
    let (status, content_type, text) = match (reads, path) {
        (true, "/metrics") => (StatusCode::OK, exposition::CONTENT_TYPE, exposition::text(state)),
        (true, "/health") if state.is_draining.load(Relaxed) => {
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "stopping\n".to_owned())
        }
        (true, "/health") => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        (false, "/metrics" | "/health" | "/") => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "method not allowed\n".to_owned())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "not found: /, /metrics, /health, /api/schema\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static("GET, HEAD"));
    }
    response
}
