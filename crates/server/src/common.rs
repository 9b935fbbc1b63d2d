//! The values that the gateways of a site share through their store.

use std::time::{Duration, Instant};

use cluster::{Shared, Store};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// The store, and this gateway's copy of what is in it.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    /// Values that all gateways have in common.
    pub(crate) values: Mutex<Shared>,
    /// Wakes the task that tells the store of changes.
    pub(crate) changed: Notify,
    pub(crate) seen: Mutex<Seen>,
}

/// The reports of gateways about themselves.
#[derive(Default)]
pub(crate) struct Seen {
    /// Gateway, how long before `heard_at`, and its report.
    pub(crate) said: Vec<(String, Duration, Value)>,
    pub(crate) heard_at: Option<Instant>,
    /// When the admin address was last asked for it.
    pub(crate) looked_at: Option<Instant>,
}

impl Cluster {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, values: Mutex::default(), changed: Notify::new(), seen: Mutex::default() }
    }

    /// Sets a value for all gateways.
    pub(crate) fn set(&self, name: &str, value: String) {
        self.values.lock().set(name, value);
        self.changed.notify_one();
    }
}

/// The name of the common value that closes a site for maintenance.
pub(crate) fn closed(site: &str) -> String {
    format!("closed {site}")
}

/// The beginning of the names of common values of servers, before upstream and server.
pub(crate) const SERVER: &str = "server ";

/// The name of the common value of a server.
pub(crate) fn server(upstream: &str, server: &str) -> String {
    format!("{SERVER}{upstream} {server}")
}
