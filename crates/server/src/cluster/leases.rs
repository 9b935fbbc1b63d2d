//! The leases of slots, for [`crate::admission`].

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use cluster::{CellName, Connection, Error, Store};
use scheduler::lease::{Reply, Times};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use super::{ANSWER_TIMEOUT, QUIET};
use crate::{
    admission::{Admission, LeaseAsk},
    state::ServerState,
};

/// A connection, and the task that waits for notices on it.
struct Link {
    connection: Connection,
    listener: AbortHandle,
}

/// A connection that is being opened, which may take longer than an ask may.
#[derive(Default)]
struct Opening(Option<JoinHandle<Result<Connection, Error>>>);

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Opening {
    /// The connection, once it is open. Dropping the future does not end it.
    async fn connection(&mut self, store: &Store) -> Result<Connection, Error> {
        let opening = self.0.get_or_insert_with(|| {
            let store = store.clone();
            tokio::spawn(async move { store.connect(ANSWER_TIMEOUT).await })
        });
        let opened = opening.await;
        self.0 = None;
        opened.unwrap_or(Err(Error::Unknown("the attempt to connect broke off")))
    }
}

/// Asks the store for slots, forever. Does nothing without a store.
pub(crate) async fn hold_leases(state: Arc<ServerState>) {
    let Some(store) = state.cluster.as_ref().map(|cluster| &cluster.store) else { return std::future::pending().await };
    let admission = state.snapshot.load().admission.clone();
    let (mut link, mut opening) = (None, Opening::default());
    let mut is_reached = true;
    let mut told_at: Option<Instant> = None;
    loop {
        let ask = admission.lease_ask().await;
        let answer = match timeout(ANSWER_TIMEOUT, answer(store, &admission, (&mut link, &mut opening), &ask)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the store has not answered within {ANSWER_TIMEOUT:?}")),
        };
        match answer {
            Ok(reply) => {
                admission.leased(&ask, &reply);
                if !is_reached {
                    tracing::info!(gateways = reply.gateways, "cluster: the store answers");
                }
                is_reached = true;
            }
            Err(error) => {
                // What comes late on this connection would be taken for the answer to a later ask.
                link = None;
                admission.lease_failed();
                if is_reached && told_at.is_none_or(|at| at.elapsed() >= QUIET) {
                    tracing::warn!(%error, "cluster: this gateway has its equal part of the site until the store answers");
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
    admission: &Admission,
    (link, opening): (&mut Option<Link>, &mut Opening),
    ask: &LeaseAsk,
) -> Result<Reply, Error> {
    let link = match link {
        Some(link) => link,
        None => {
            let connection = opening.connection(store).await?;
            let (notices, admission) = (connection.notices(), admission.clone());
            let listener = tokio::spawn(async move {
                loop {
                    notices.notified().await;
                    admission.lease_notice();
                }
            });
            link.insert(Link { connection, listener: listener.abort_handle() })
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
        let mut connection = store.connect(ANSWER_TIMEOUT).await?;
        connection.leave().await?;
        connection.see("", Duration::ZERO, false).await
    };
    // Otherwise its lease ends by itself.
    let _ = timeout(ANSWER_TIMEOUT, leave).await;
}
