//! Values that all gateways of a site have in common: closed sites, servers that are drained, the keys of sessions.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{Connection, Error, Store};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{ANSWER_TIMEOUT, QUIET, seen, session_keys::KeyRing};
use crate::{
    admin::servers,
    common::{Cluster, SERVER, closed},
    state::{ConfigSnapshot, ServerState},
};

/// Time between two exchanges while nothing changes.
const EVERY: Duration = Duration::from_secs(1);
/// Least time between two, so that changes of many do not keep the store busy.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Tells the store of changes made here, and applies those made elsewhere, forever. Does nothing without a store.
pub(crate) async fn share_values(state: Arc<ServerState>) {
    let Some(cluster) = &state.cluster else { return std::future::pending().await };
    let mut connection: Option<Connection> = None;
    let mut keys = KeyRing::default();
    let (mut said_at, mut told_at): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let says = said_at.is_none_or(|at| at.elapsed() >= EVERY);
        let exchanged = async {
            exchange(&state, cluster, &mut connection, &mut keys).await?;
            if says {
                say(&state, cluster, connected(&cluster.store, &mut connection).await?).await?;
            }
            Ok::<_, Error>(())
        };
        match timeout(ANSWER_TIMEOUT, exchanged).await {
            Ok(Ok(())) if says => said_at = Some(Instant::now()),
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                connection = None;
                // The task that holds the leases tells of a store that is gone.
                if matches!(error, Error::Refused(_)) && told_at.is_none_or(|at| at.elapsed() >= QUIET) {
                    tracing::warn!(%error, "cluster: sessions, maintenance and servers are not common to all gateways");
                    told_at = Some(Instant::now());
                }
            }
            Err(_) => connection = None,
        }
        sleep(LEAST_PAUSE).await;
        let notices = connection.as_ref().map(Connection::notices);
        let notified = async {
            match &notices {
                Some(notices) => notices.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = notified => {}
            () = cluster.changed.notified() => {}
            () = sleep(EVERY) => {}
        }
    }
}

async fn exchange(
    state: &ServerState,
    cluster: &Cluster,
    connection: &mut Option<Connection>,
    keys: &mut KeyRing,
) -> Result<(), Error> {
    let connection = connected(&cluster.store, connection).await?;
    let snapshot = state.snapshot.load_full();
    let closed_here = snapshot.sites.maintenance().filter(|switch| switch.has_file());
    let held = closed_here.map(|switch| closed(switch.site())).collect();
    let ask = cluster.values.lock().ask(held);
    let reply = connection.share(&ask).await?;
    let now_us = reply.now_us;
    let changed = {
        let mut values = cluster.values.lock();
        let changed = values.handle_reply(&ask, reply);
        if let Some(session) = snapshot.classes.session.as_ref().filter(|session| session.secret.is_none()) {
            keys.update(&mut values, now_us, session.lifetime, &state.session_keys);
        }
        if values.is_untold() {
            cluster.changed.notify_one();
        }
        changed
    };
    if changed {
        apply(cluster, &snapshot);
    }
    Ok(())
}

/// Tells the others what this gateway does, and hears what they do if the page or the metrics ask for it.
async fn say(state: &ServerState, cluster: &Cluster, connection: &mut Connection) -> Result<(), Error> {
    let all = seen::is_wanted(state, &cluster.seen.lock());
    let said = connection.see(&seen::says(state).to_string(), seen::COUNTS_FOR, all).await?;
    if all {
        let read =
            |(gateway, since, text): (String, _, String)| Some((gateway, since, serde_json::from_str(&text).ok()?));
        let mut seen = cluster.seen.lock();
        (seen.said, seen.heard_at) = (said.into_iter().filter_map(read).collect(), Some(Instant::now()));
    }
    Ok(())
}

async fn connected<'a>(store: &Store, connection: &'a mut Option<Connection>) -> Result<&'a mut Connection, Error> {
    Ok(match connection {
        Some(connection) => connection,
        None => connection.insert(store.connect_shared(ANSWER_TIMEOUT).await?),
    })
}

/// Makes the sites and servers of a snapshot what they are at all gateways.
pub(crate) fn apply(cluster: &Cluster, snapshot: &ConfigSnapshot) {
    let values = cluster.values.lock();
    for switch in snapshot.sites.maintenance() {
        let name = closed(switch.site());
        if let Some(value) = values.get(&name) {
            switch.turn(value == "yes");
        }
        switch.hear(values.is_held(&name));
    }
    for (names, value) in values.all(SERVER) {
        let Some((upstream, server)) = names.split_once(' ') else { continue };
        // Another version may have other fields; what cannot be read changes nothing.
        let change = serde_json::from_str(value).ok().and_then(|value: Value| servers::change(value.as_object()?).ok());
        if let Some(change) = change {
            snapshot.upstreams.change(upstream, server, change);
        }
    }
}
