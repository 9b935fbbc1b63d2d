//! Talks to the store that the gateways of a site share, for [`crate::admission`].

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use cluster::{CellName, Connection, Error, Spent, Store};
use limits::Who;
use scheduler::lease::{Reply, Times};
use tokio::{task::AbortHandle, time::timeout};

use crate::{
    admission::{Admission, LeaseAsk},
    state::ServerState,
};

/// An ask without an answer counts as lost after this time: well before a lease ends.
const ANSWER_TIMEOUT: Duration = Duration::from_nanos(Times::DEFAULT.timeout_ns);
/// Time between two exchanges about limits: so much later a gateway hears what others let in.
const SHARED_EVERY: Duration = Duration::from_millis(100);
/// Most clients that others are told of at once, those with the most requests.
const MOST_TOLD: usize = 1000;
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
                state.metrics.lease_failures.fetch_add(1, Relaxed);
            }
        }
        state.metrics.lease_asks.fetch_add(1, Relaxed);
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

/// Tells other gateways which requests were let in under limits of a rate, and counts theirs, forever. Does nothing without
/// a store. While the store does not answer, each gateway has the whole rate.
pub(crate) async fn share_limits(state: Arc<ServerState>) {
    let Some(store) = &state.cluster else { return std::future::pending().await };
    let mut connection = None;
    loop {
        tokio::time::sleep(SHARED_EVERY).await;
        let snapshot = state.snapshot.load_full();
        let (mut who, mut spent) = (Vec::new(), Vec::new());
        for (limit, limiter) in &snapshot.shared_limits {
            let Some(keep) = limiter.fills_in() else { continue };
            let mut of_clients = limiter.take_spent();
            // A flood from many addresses must not keep the store from dividing slots.
            of_clients.sort_unstable_by_key(|&(_, requests)| std::cmp::Reverse(requests));
            of_clients.truncate(MOST_TOLD.saturating_sub(spent.len()));
            for (client, requests) in of_clients {
                spent.push(Spent { of: format!("{limit:016x}:{}", name(client, &snapshot.names)), requests, keep });
                who.push((limiter.clone(), client));
            }
        }
        if spent.is_empty() {
            continue;
        }
        match timeout(ANSWER_TIMEOUT, share(store, &mut connection, &spent)).await {
            Ok(Ok(others)) => {
                let now = Instant::now();
                for ((limiter, client), requests) in who.into_iter().zip(others) {
                    if requests > 0 {
                        limiter.spend(client, requests, now);
                    }
                }
                state
                    .metrics
                    .limit_requests_told
                    .fetch_add(spent.iter().map(|it| u64::from(it.requests)).sum(), Relaxed);
            }
            // The task that holds the leases tells of it.
            Ok(Err(_)) | Err(_) => connection = None,
        }
    }
}

async fn share(store: &Store, connection: &mut Option<Connection>, spent: &[Spent]) -> Result<Vec<u32>, Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(store.connect(ANSWER_TIMEOUT).await?),
    };
    connection.spend(spent).await
}

/// The name of a client, the same at all gateways.
fn name(client: Who, classes: &[Arc<str>]) -> String {
    match client {
        Who::Address(address) => address.to_string(),
        Who::Key(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        Who::Class(class) => format!("class {}", classes.get(usize::from(class)).map_or("", |name| name)),
        Who::All => "all".to_owned(),
        Who::Hash(hash) => format!("{hash:016x}"),
    }
}
