//! The leases of slots, for [`crate::admission`], and of a line, for [`crate::uplink`].

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use cluster::{CellName, Connection, Error, Store};
use drivers::LeaseAsk;
use scheduler::lease::{Reply, Times};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use super::{ANSWER_TIMEOUT, QUIET};
use crate::{admission::Admission, state::ServerState, uplink::Uplink};

/// A resource that gateways lease.
#[derive(Clone)]
enum Leased {
    /// Slots of the site.
    Slots(Admission),
    /// A part of the line that several gateways send through.
    Line(Uplink),
}

impl Leased {
    /// The ask that is due next; `None`: the line of this connection is no longer that of the gateway.
    async fn ask(&self, link: Option<&Link>) -> Option<LeaseAsk> {
        match self {
            Self::Slots(admission) => Some(admission.lease_ask().await),
            Self::Line(uplink) => uplink.line_ask(link.and_then(|link| link.line.as_deref())).await,
        }
    }

    fn handle_answer(&self, ask: &LeaseAsk, reply: &Reply) {
        match self {
            Self::Slots(admission) => admission.leased(ask, reply),
            Self::Line(uplink) => uplink.line_leased(ask, reply),
        }
    }

    fn handle_failed(&self) {
        match self {
            Self::Slots(admission) => admission.lease_failed(),
            Self::Line(uplink) => uplink.line_failed(),
        }
    }

    fn handle_notice(&self) {
        match self {
            Self::Slots(admission) => admission.lease_notice(),
            Self::Line(uplink) => uplink.line_notice(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Slots(_) => "site",
            Self::Line(_) => "line",
        }
    }
}

/// A connection, and the task that waits for notices on it.
struct Link {
    /// The line that it is for.
    line: Option<String>,
    connection: Connection,
    listener: AbortHandle,
}

/// A connection that is being opened, for slots or for the line of this name, which may take longer than an ask may.
#[derive(Default)]
struct Opening(Option<(Option<String>, Attempt)>);

type Attempt = JoinHandle<Result<Connection, Error>>;

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Opening {
    /// The connection, once it is open. Dropping the future does not end it.
    async fn connection(&mut self, store: &Store, line: &Option<String>) -> Result<Connection, Error> {
        self.0.take_if(|(of, _)| of != line);
        let (_, opening) = self.0.get_or_insert_with(|| {
            let (store, of) = (store.clone(), line.clone());
            (line.clone(), tokio::spawn(async move { connect(&store, of.as_deref()).await }))
        });
        let opened = opening.await;
        self.0 = None;
        opened.unwrap_or(Err(Error::Unknown("the attempt to connect broke off")))
    }
}

async fn connect(store: &Store, line: Option<&str>) -> Result<Connection, Error> {
    match line {
        Some(line) => store.connect_line(line, ANSWER_TIMEOUT).await,
        None => store.connect(ANSWER_TIMEOUT).await,
    }
}

/// Asks the store for slots, forever. Does nothing without a store.
pub(crate) async fn hold_leases(state: Arc<ServerState>) {
    let slots = Leased::Slots(state.snapshot.load().admission.clone());
    hold(&state, &slots).await;
}

/// Asks the store for a part of the line that several gateways send through, forever. Does nothing without such a line.
pub(crate) async fn hold_line(state: Arc<ServerState>) {
    let line = Leased::Line(state.uplink.clone());
    hold(&state, &line).await;
}

async fn hold(state: &ServerState, leased: &Leased) {
    let Some(store) = state.cluster.as_ref().map(|cluster| &cluster.store) else { return std::future::pending().await };
    let (mut link, mut opening) = (None::<Link>, Opening::default());
    let mut is_reached = true;
    let mut told_at: Option<Instant> = None;
    loop {
        let Some(ask) = leased.ask(link.as_ref()).await else {
            // If that fails, the lease ends by itself.
            if let Some(mut left) = link.take() {
                let _ = timeout(ANSWER_TIMEOUT, left.connection.leave()).await;
            }
            continue;
        };
        let answer = match timeout(ANSWER_TIMEOUT, answer(store, leased, (&mut link, &mut opening), &ask)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the store has not answered within {ANSWER_TIMEOUT:?}")),
        };
        let of = leased.name();
        match answer {
            Ok(reply) => {
                leased.handle_answer(&ask, &reply);
                if !is_reached {
                    tracing::info!(of, gateways = reply.gateways, "cluster: the store answers");
                }
                is_reached = true;
            }
            Err(error) => {
                // A late answer on this connection would be taken for the answer to a later ask.
                link = None;
                leased.handle_failed();
                if is_reached && told_at.is_none_or(|at| at.elapsed() >= QUIET) {
                    tracing::warn!(%error, "cluster: this gateway has its equal part of the {of} until the store answers");
                    told_at = Some(Instant::now());
                }
                is_reached = false;
                state.metrics.lease_failures.fetch_add(1, Relaxed);
            }
        }
        state.metrics.lease_asks.fetch_add(1, Relaxed);
    }
}

async fn answer(
    store: &Store,
    leased: &Leased,
    (link, opening): (&mut Option<Link>, &mut Opening),
    ask: &LeaseAsk,
) -> Result<Reply, Error> {
    // A reload may have given the line another name.
    let link = match link.take().filter(|link| link.line == ask.line) {
        Some(kept) => link.insert(kept),
        None => {
            let connection = opening.connection(store, &ask.line).await?;
            let (notices, leased) = (connection.notices(), leased.clone());
            let listener = tokio::spawn(async move {
                loop {
                    notices.notified().await;
                    leased.handle_notice();
                }
            });
            link.insert(Link { line: ask.line.clone(), connection, listener: listener.abort_handle() })
        }
    };
    let names = ask.names.iter().map(|names| CellName {
        cell: names.cell.clone(),
        classes: names.classes.iter().map(|class| class.to_string()).collect(),
    });
    let names: Vec<CellName> = names.collect();
    let lease = Duration::from_nanos(Times::DEFAULT.lease_ns);
    link.connection.ask(lease, &ask.ask, &ask.cells, &names).await
}

/// Gives back the slots of this gateway, which has no request under way.
pub(crate) async fn leave(state: &ServerState) {
    let Some(store) = state.cluster.as_ref().map(|cluster| &cluster.store) else { return };
    let leave = async {
        if let Some(line) = &state.snapshot.load().uplink().line {
            store.connect_line(line, ANSWER_TIMEOUT).await?.leave().await?;
        }
        let mut connection = store.connect(ANSWER_TIMEOUT).await?;
        connection.leave().await?;
        connection.see("", Duration::ZERO, false).await
    };
    // Otherwise its lease ends by itself.
    let _ = timeout(ANSWER_TIMEOUT, leave).await;
}
