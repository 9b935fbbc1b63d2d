//! The shared cache of the server: the store, and what is counted of requests.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use cache::{Store, StoreConfig};
use tokio::{sync::Semaphore, time::timeout};

/// Most bodies that are read from disk at once. Further requests go to the site, as if the responses were not there.
const READS_AT_ONCE: usize = 32;
/// The longest that a request waits for a body from disk, before it goes to the site.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// The shared cache. A reload keeps it where its bounds are the same.
#[derive(Debug)]
pub(crate) struct SharedCache {
    pub(crate) store: Store,
    pub(crate) counts: Counts,
    reads: Arc<Semaphore>,
}

/// Requests of routes with a cache.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Answered from a fresh response.
    pub(crate) hits: AtomicU64,
    /// Answered from a stale one.
    pub(crate) stale: AtomicU64,
    /// Sent to the site, because there was nothing that could be used.
    pub(crate) misses: AtomicU64,
    /// Sent to the site, and the stored response was still right.
    pub(crate) revalidated: AtomicU64,
    /// Sent to the site, because no stored response may answer them.
    pub(crate) passed: AtomicU64,
    /// Answered by what another request had asked for already.
    pub(crate) collapsed: AtomicU64,
}

impl SharedCache {
    pub(crate) fn open(config: &StoreConfig, seed: u64) -> io::Result<Self> {
        let store = Store::open(config.clone(), seed)?;
        Ok(Self { store, counts: Counts::default(), reads: Arc::new(Semaphore::new(READS_AT_ONCE)) })
    }

    /// Reads a body from disk, on a thread that may block. `None`: it is damaged, or the disk is too slow.
    pub(crate) async fn read(&self, entry: u64, file: u64) -> Option<Bytes> {
        let permit = self.reads.clone().try_acquire_owned().ok()?;
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _held = permit;
            store.read(entry, file)
        });
        timeout(READ_PATIENCE, read).await.ok()?.ok()?
    }
}

/// The outcome of a request at the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Hit,
    Stale,
    Missed,
    Revalidated,
    Passed,
    Collapsed,
}

impl Counts {
    /// Counts it. `told`: what the log says of the request; the last word holds.
    pub(crate) fn add(&self, told: &mut Option<&'static str>, done: Done) {
        let (counter, word) = match done {
            Done::Hit => (&self.hits, "hit"),
            Done::Stale => (&self.stale, "stale"),
            Done::Missed => (&self.misses, "miss"),
            Done::Revalidated => (&self.revalidated, "revalidated"),
            Done::Passed => (&self.passed, "pass"),
            Done::Collapsed => (&self.collapsed, "collapsed"),
        };
        counter.fetch_add(1, Relaxed);
        *told = Some(word);
    }
}
