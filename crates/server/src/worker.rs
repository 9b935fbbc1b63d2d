//! A worker: one thread, one runtime. Connections stay on the worker that accepted them.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread::JoinHandle,
    time::Duration,
};

use limits::Who;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cluster::{hold_leases, hold_line, leave, share_limits, share_values},
    connection::{Connection, Ends, TlsFacts},
    gate::{Gate, ReadFairness},
    http::{self, http1::Protocol, pools::WorkerPools},
    listener::{Accepted, Connections},
    metrics::WorkerMetrics,
    probing::probe_for_ever,
    proxied,
    state::ServerState,
    tls::Tls,
};

/// How late a task is started anew. Responses do not notice the first pause of the pacer; the pauses double, so that a task
/// that ends each time does not fill the log.
const RESTART_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(1);

/// How often each worker sets a timer that does nothing. tokio wakes its own thread, by a write to an eventfd and another
/// `epoll_wait`, when a timer is set that is due before all others. So a worker without timers would wake itself for nearly
/// every new connection. Those of connections are due later than this one.
const TICK: Duration = Duration::from_secs(2);

/// A command to a worker.
pub(crate) enum Command {
    /// Take connections from a listening socket.
    Listen(Connections),
    /// Wait for the connections to end, all of whose drains have begun; drop `done` then.
    Finish { timeout: Option<Duration>, done: Sender<()> },
}

/// Starts a worker. It ends when the sender of its commands is dropped.
pub(crate) fn start(
    state: Arc<ServerState>,
    number: usize,
    commands: UnboundedReceiver<Command>,
) -> io::Result<JoinHandle<()>> {
    let read_fairness = Arc::new(ReadFairness::new(state.metrics.workers[number].clone()));
    let resting = read_fairness.clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().on_thread_park(move || resting.rest()).build()?;
    std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = work(state, number, read_fairness.clone(), commands) => {}
                never = read_fairness.call() => match never {},
            }
        });
        // Reads of files on slow disks may still be under way for connections that were given up.
        runtime.shutdown_background();
    })
}

async fn work(
    state: Arc<ServerState>,
    number: usize,
    read_fairness: Arc<ReadFairness>,
    mut commands: UnboundedReceiver<Command>,
) {
    let metrics = state.metrics.workers[number].clone();
    let pools = Arc::new(WorkerPools::new(&state));
    tokio::spawn(async {
        loop {
            sleep(TICK).await;
        }
    });
    if number == 0 {
        let restarts = &state.metrics.tasks_restarted;
        let uplink = state.uplink.clone();
        tokio::spawn(keep_running("the pacer", restarts.clone(), move || {
            let uplink = uplink.clone();
            async move { uplink.drive().await }
        }));
        let admission = state.snapshot.load().admission.clone();
        tokio::spawn(keep_running("admission", restarts.clone(), move || {
            let admission = admission.clone();
            async move { admission.drive().await }
        }));
        let leases = state.clone();
        tokio::spawn(keep_running("leases", restarts.clone(), move || hold_leases(leases.clone())));
        let line = state.clone();
        tokio::spawn(keep_running("the line", restarts.clone(), move || hold_line(line.clone())));
        let limits = state.clone();
        tokio::spawn(keep_running("limits", restarts.clone(), move || share_limits(limits.clone())));
        let values = state.clone();
        tokio::spawn(keep_running("common values", restarts.clone(), move || share_values(values.clone())));
        let probing = state.clone();
        tokio::spawn(keep_running("probing", restarts.clone(), move || probe_for_ever(probing.clone())));
        let checking = state.clone();
        tokio::spawn(keep_running("checks", restarts.clone(), move || drive_upstreams(checking.clone())));
    }
    let serving = TaskTracker::new();
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen(connections) => {
                let (state, metrics, pools) = (state.clone(), metrics.clone(), pools.clone());
                let read_fairness = read_fairness.clone();
                let drain = connections.drain.clone();
                let tasks = serving.clone();
                serving.spawn(async move {
                    let limit = state.connections.clone();
                    let serve = |accepted| {
                        let (state, metrics, pools) = (state.clone(), metrics.clone(), pools.clone());
                        let (read_fairness, drain) = (read_fairness.clone(), drain.clone());
                        if let Some(limit) = header_timeout(&state, &accepted) {
                            let served_by = tasks.clone();
                            tasks.spawn(async move {
                                match proxied::of_client(&state, &metrics, accepted, limit).await {
                                    Some(accepted) => {
                                        let task = serve(state, metrics, pools, read_fairness, drain, accepted);
                                        task.map(|task| served_by.spawn(task));
                                    }
                                    None => drop(Closed(metrics)),
                                }
                            });
                            return;
                        }
                        serve(state, metrics, pools, read_fairness, drain, accepted).map(|task| tasks.spawn(task));
                    };
                    connections.accept(&limit, &metrics, serve).await;
                });
            }
            Command::Finish { timeout: limit, done } => {
                read_fairness.call_all();
                serving.close();
                match limit {
                    Some(limit) => {
                        if timeout(limit, serving.wait()).await.is_err() {
                            tracing::warn!(worker = number, "responses given up: shutdown_timeout is over");
                        }
                    }
                    None => serving.wait().await,
                }
                drop(done);
            }
        }
    }
    if number == 0 {
        leave(&state).await;
    }
}

/// Runs a task that must never end. When it ends, or panics, it is started anew.
async fn keep_running<F>(name: &'static str, restarts: Arc<AtomicU64>, task: impl Fn() -> F)
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let mut pause = RESTART_PAUSE;
    loop {
        let started = Instant::now();
        let ended = tokio::spawn(task()).await;
        restarts.fetch_add(1, Relaxed);
        let error = ended.err().map_or_else(|| "it came to its end".into(), |error| error.to_string());
        tracing::error!(task = name, error, "a task that must never end has ended, and is started anew");
        if started.elapsed() >= LONGEST_RESTART_PAUSE {
            pause = RESTART_PAUSE;
        }
        sleep(pause).await;
        pause = LONGEST_RESTART_PAUSE.min(2 * pause);
    }
}

/// Checks the upstreams of the configuration in force, whichever that is.
async fn drive_upstreams(state: Arc<ServerState>) {
    loop {
        let upstreams = state.snapshot.load().upstreams.clone();
        let replaced = async {
            while Arc::ptr_eq(&state.snapshot.load().upstreams, &upstreams) {
                state.replaced.notified().await;
            }
        };
        tokio::select! {
            () = upstreams.clone().drive() => {}
            () = replaced => {}
        }
    }
}

/// The time in which the header of the PROXY protocol has to arrive; `None`: the connection begins without one.
fn header_timeout(state: &ServerState, accepted: &Accepted) -> Option<Duration> {
    let snapshot = state.snapshot.load();
    proxied::is_proxy(&snapshot.proxy_protocol, accepted.peer.ip()).then_some(snapshot.limits.handshake_timeout)
}

/// One connection, from accept to close. `None`: it has ended already.
///
/// The handshake has a box of its own, which an idle connection does not hold.
fn serve(
    state: Arc<ServerState>,
    metrics: Arc<WorkerMetrics>,
    pools: Arc<WorkerPools>,
    read_fairness: Arc<ReadFairness>,
    drain: CancellationToken,
    accepted: Accepted,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let Accepted { stream, peer, proxy, local, tls, unsent_limit_bytes, permit } = accepted;
    let closed = Closed(metrics.clone());
    let snapshot = state.snapshot.load_full();
    let of_client = match snapshot.limits.connections_per_client {
        Some(most) if !snapshot.classifier.trusts(peer.ip()) => {
            let Some(permit) = state.connections_of_clients.begin(Who::client(peer.ip()), most) else {
                metrics.client_connections_refused.fetch_add(1, Relaxed);
                tracing::debug!(%peer, "closed at once: its client has limits.connections-per-client open");
                return None;
            };
            // In a box, as most servers have no such limit.
            Some(Box::new(permit))
        }
        _ => None,
    };
    let ends = Ends { peer, local: local.or_else(|| stream.local_addr().ok())? };
    // The bytes take the path to the proxy, where there is one.
    let gate = Gate::tcp_of(proxy.unwrap_or(peer), stream, &state.uplink);
    let gate = gate.with_unsent_limit(unsent_limit_bytes).in_turn(read_fairness);
    let flow = gate.flow();
    flow.set_write_timeout(snapshot.limits.write_timeout);
    flow.set_least_rate(snapshot.limits.response_rate);
    let serving: Pin<Box<dyn Future<Output = ()> + Send>> = if tls {
        let tls = snapshot.tls.clone()?;
        let limit = snapshot.limits.handshake_timeout;
        let counters = closed.0.clone();
        let connection = move |tls: Option<TlsFacts>| {
            if tls.is_some() {
                flow.set_encrypted();
            }
            Connection::new(state, metrics, pools, flow, drain, ends, tls)
        };
        let handshake = Box::pin(serve_tls(gate, peer, tls, limit, counters, connection));
        Box::pin(async move {
            if let Some(serving) = handshake.await {
                serving.await;
            }
        })
    } else {
        let connection = Connection::new(state, metrics, pools, flow, drain, ends, None);
        http::serve(gate, None, Some(http::send_part), connection)
    };
    Some(async move {
        let _held = (permit, of_client, closed);
        serving.await;
    })
}

/// The handshake of a connection with TLS; returns what serves the connection then.
async fn serve_tls(
    gate: Gate,
    peer: SocketAddr,
    tls: Tls,
    limit: Duration,
    metrics: Arc<WorkerMetrics>,
    connection: impl FnOnce(Option<TlsFacts>) -> Connection,
) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let accept = async {
        // Every method of HTTP begins with a capital letter, and no record of TLS does.
        if gate.first_byte().await?.is_some_and(|byte| byte.is_ascii_uppercase()) {
            return Ok(Err(gate));
        }
        tls.accept(gate).await.map(Ok)
    };
    let (stream, client) = match timeout(limit, accept).await {
        Ok(Ok(Ok(accepted))) => accepted,
        Ok(Ok(Err(gate))) => {
            metrics.handshakes_failed.fetch_add(1, Relaxed);
            tracing::debug!(%peer, "HTTP without TLS on an address of TLS");
            return Some(http::serve(gate, None, None, connection(None).misplaced()));
        }
        failed => {
            metrics.handshakes_failed.fetch_add(1, Relaxed);
            match failed {
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                _ => tracing::debug!(%peer, "TLS handshake took too long"),
            }
            return None;
        }
    };
    let session = stream.get_ref().1;
    if session.alpn_protocol() == Some(acme::TLS_ALPN) {
        // An authority has seen the certificate that it asked for, and that was all.
        return None;
    }
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Some(Protocol::Http2),
        Some(_) => Some(Protocol::Http1),
        None => None,
    };
    let server_name = session.server_name().map(Into::into);
    Some(http::serve(stream, protocol, None, connection(Some(TlsFacts { server_name, client: client.map(Box::new) }))))
}

/// Counts a connection as closed, whatever ends it.
struct Closed(Arc<WorkerMetrics>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_or_ends_is_started_anew_and_counted() {
        let restarts = Arc::new(AtomicU64::new(0));
        let counted = restarts.clone();
        let (tell, mut started) = mpsc::unbounded_channel();
        tokio::spawn(keep_running("a test", restarts.clone(), move || {
            let (tell, before) = (tell.clone(), counted.load(Relaxed));
            async move {
                tell.send(before).unwrap();
                match before {
                    0 => panic!("as the pacer should not"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        }));
        for expected in 0..3 {
            assert_eq!(started.recv().await, Some(expected));
        }
        assert_eq!(restarts.load(Relaxed), 2);
    }
}
