//! A worker: one thread, one runtime. Connections stay on the worker that accepted them.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    time::{Instant, sleep, timeout},
};

use crate::{
    gate::Turns,
    http::{self, Connection, Drain, Ends, Protocol, TlsFacts, WorkerPools},
    listener::{Accepted, Connections},
    metrics::WorkerMetrics,
    probing::probe_for_ever,
    serve::Shared,
};

/// How late a task is started anew. Responses do not notice the first pause of the pacer; the pauses double, so that a task
/// that ends each time does not fill the log.
const RESTART_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(1);

/// After a reload the new upstreams are checked this late.
const UPSTREAMS_INTERVAL: Duration = Duration::from_millis(200);

/// What a worker is told.
pub(crate) enum Command {
    /// Take connections from a listening socket.
    Listen(Connections),
    /// Wait for the connections to end, all of whose drains have begun; drop `done` then.
    Finish { timeout: Option<Duration>, done: Sender<()> },
}

/// Starts a worker. It ends when the sender of its commands is dropped.
pub(crate) fn start(
    shared: Arc<Shared>,
    number: usize,
    commands: UnboundedReceiver<Command>,
) -> io::Result<JoinHandle<()>> {
    let turns = Arc::new(Turns::new(shared.metrics.workers[number].clone()));
    let resting = turns.clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().on_thread_park(move || resting.rest()).build()?;
    std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = work(shared, number, turns.clone(), commands) => {}
                never = turns.call() => match never {},
            }
        });
        // Reads of files on slow disks may still be under way for connections that were given up.
        runtime.shutdown_background();
    })
}

async fn work(shared: Arc<Shared>, number: usize, turns: Arc<Turns>, mut commands: UnboundedReceiver<Command>) {
    let metrics = shared.metrics.workers[number].clone();
    let pools = Arc::new(WorkerPools::new(&shared));
    if number == 0 {
        let restarts = &shared.metrics.tasks_restarted;
        let uplink = shared.uplink.clone();
        tokio::spawn(keep_running("the pacer", restarts.clone(), move || {
            let uplink = uplink.clone();
            async move { uplink.drive().await }
        }));
        let admission = shared.live.load().admission.clone();
        tokio::spawn(keep_running("admission", restarts.clone(), move || {
            let admission = admission.clone();
            async move { admission.drive().await }
        }));
        let probing = shared.clone();
        tokio::spawn(keep_running("probing", restarts.clone(), move || probe_for_ever(probing.clone())));
        let checking = shared.clone();
        tokio::spawn(keep_running("checks", restarts.clone(), move || drive_upstreams(checking.clone())));
    }
    // Every task that serves holds a sender: the receiver ends when all of them have.
    let (mut alive, mut all_ended) = mpsc::channel::<()>(1);
    while let Some(command) = commands.recv().await {
        match command {
            Command::Listen(connections) => {
                let (shared, metrics, pools, alive) = (shared.clone(), metrics.clone(), pools.clone(), alive.clone());
                let turns = turns.clone();
                let drain = connections.drain.clone();
                tokio::spawn(async move {
                    let places = shared.places.clone();
                    let serve = |accepted| {
                        let (shared, metrics, pools) = (shared.clone(), metrics.clone(), pools.clone());
                        let (turns, drain) = (turns.clone(), drain.clone());
                        tokio::spawn(serve(shared, metrics, pools, turns, drain, accepted, alive.clone()));
                    };
                    connections.accept(&places, &metrics, serve).await;
                });
            }
            Command::Finish { timeout: limit, done } => {
                turns.call_all();
                (alive, _) = mpsc::channel(1);
                match limit {
                    Some(limit) => {
                        if timeout(limit, all_ended.recv()).await.is_err() {
                            tracing::warn!(worker = number, "responses given up: shutdown_timeout is over");
                        }
                    }
                    None => {
                        all_ended.recv().await;
                    }
                }
                drop(done);
            }
        }
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
async fn drive_upstreams(shared: Arc<Shared>) {
    let mut watch = tokio::time::interval(UPSTREAMS_INTERVAL);
    loop {
        let upstreams = shared.live.load().upstreams.clone();
        let replaced = async {
            loop {
                watch.tick().await;
                if !Arc::ptr_eq(&shared.live.load().upstreams, &upstreams) {
                    return;
                }
            }
        };
        tokio::select! {
            () = upstreams.clone().drive() => {}
            () = replaced => {}
        }
    }
}

/// One connection, from accept to close.
async fn serve(
    shared: Arc<Shared>,
    metrics: Arc<WorkerMetrics>,
    pools: Arc<WorkerPools>,
    turns: Arc<Turns>,
    drain: Arc<Drain>,
    accepted: Accepted,
    _alive: mpsc::Sender<()>,
) {
    let Accepted { stream, peer, tls, place: _place } = accepted;
    let _closed = Closed(metrics.clone());
    let Ok(local) = stream.local_addr() else { return };
    let ends = Ends { peer, local };
    let gate = shared.uplink.gate(stream).in_turn(turns);
    let flow = gate.flow();
    let live = shared.live.load_full();
    flow.set_write_timeout(live.limits.write_timeout);
    flow.set_least_rate(live.limits.response_rate);
    if !tls {
        drop(live);
        let connection = Connection::new(shared, metrics, pools, flow, drain, ends, None);
        // In a box each, so that a connection without TLS has not the size of one with it.
        return Box::pin(http::serve(gate, None, connection)).await;
    }
    let Some(tls) = live.tls.clone() else {
        return;
    };
    let limit = live.limits.handshake_timeout;
    drop(live);
    let (stream, client) = match timeout(limit, Box::pin(tls.accept(gate))).await {
        Ok(Ok(accepted)) => accepted,
        failed => {
            metrics.handshakes_failed.fetch_add(1, Relaxed);
            match failed {
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                _ => tracing::debug!(%peer, "TLS handshake took too long"),
            }
            return;
        }
    };
    let session = stream.get_ref().1;
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Some(Protocol::Http2),
        Some(_) => Some(Protocol::Http1),
        None => None,
    };
    let server_name = session.server_name().map(Into::into);
    let tls = Some(TlsFacts { server_name, client });
    let connection = Connection::new(shared, metrics, pools, flow, drain, ends, tls);
    Box::pin(http::serve(stream, protocol, connection)).await;
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
