//! Talks to the store that the gateways of a site share, for [`crate::admission`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{CellName, Connection, Error, Store};
use scheduler::lease::{Reply, Times};
use tokio::{task::AbortHandle, time::timeout};

use crate::{
    admission::{Admission, LeaseAsk},
    state::ServerState,
};

/// An ask without an answer counts as lost after this time: well before a lease ends.
const ANSWER_TIMEOUT: Duration = Duration::from_nanos(Times::DEFAULT.timeout_ns);
/// Messages about a store that is gone are at least so far apart.
const QUIET: Duration = Duration::from_secs(60);

/// A connection, and the task that waits for notices on it.
struct Link {
    connection: Connection,
    listener: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Asks the store for slots, forever. Does nothing without a store.
pub(crate) async fn hold_leases(state: Arc<ServerState>) {
    let Some(store) = &state.cluster else { return std::future::pending().await };
    let admission = state.snapshot.load().admission.clone();
    let mut link = None;
    let mut is_reached = true;
    let mut told_at: Option<Instant> = None;
    loop {
        let ask = admission.lease_ask().await;
        let answer = match timeout(ANSWER_TIMEOUT, answer(store, &admission, &mut link, &ask)).await {
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
                state.metrics.lease_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        state.metrics.lease_asks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

async fn answer(store: &Store, admission: &Admission, link: &mut Option<Link>, ask: &LeaseAsk) -> Result<Reply, Error> {
    let link = match link {
        Some(link) => link,
        None => {
            let connection = store.connect(ANSWER_TIMEOUT).await?;
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
    let Some(store) = &state.cluster else { return };
    let leave = async { store.connect(ANSWER_TIMEOUT).await?.leave().await };
    // Otherwise its lease ends by itself.
    let _ = timeout(ANSWER_TIMEOUT, leave).await;
}
