//! A worker's connections to upstreams.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{
    state::{ConfigSnapshot, ServerState},
    upstream::{Pools, Upstreams},
};

/// The pools that go with the configuration in force.
#[derive(Debug)]
pub(crate) struct WorkerPools(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// Of the newest configuration that was seen, by its number.
    version: u64,
    upstreams: Arc<Upstreams>,
    pools: Arc<Pools>,
    /// Of an older one, for as long as a request uses them.
    older: Weak<Pools>,
}

impl WorkerPools {
    pub(crate) fn new(state: &ServerState) -> Self {
        let snapshot = state.snapshot.load();
        Self::with(snapshot.version, snapshot.upstreams.clone())
    }

    fn with(version: u64, upstreams: Arc<Upstreams>) -> Self {
        let pools = Arc::new(Pools::new(upstreams.clone()));
        Self(Mutex::new(Kept { version, upstreams, pools, older: Weak::new() }))
    }

    /// The pools for a configuration. A request that outlives its configuration has pools beside those in force, with the
    /// same connections to what has not changed; they are gone with the last such request.
    pub(crate) fn of(&self, snapshot: &ConfigSnapshot) -> Arc<Pools> {
        self.get(snapshot.version, &snapshot.upstreams)
    }

    fn get(&self, version: u64, upstreams: &Arc<Upstreams>) -> Arc<Pools> {
        let mut kept = self.0.lock();
        if Arc::ptr_eq(&kept.upstreams, upstreams) {
            return kept.pools.clone();
        }
        if version > kept.version {
            let pools = Arc::new(kept.pools.succeed(upstreams.clone()));
            let before = std::mem::replace(&mut kept.pools, pools.clone());
            (kept.version, kept.upstreams, kept.older) = (version, upstreams.clone(), Arc::downgrade(&before));
            return pools;
        }
        if let Some(older) = kept.older.upgrade().filter(|older| older.are_of(upstreams)) {
            return older;
        }
        let pools = Arc::new(kept.pools.beside(upstreams.clone()));
        kept.older = Arc::downgrade(&pools);
        pools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_an_older_configuration_leave_the_newer_pools_alone() {
        let first = Arc::new(Upstreams::new(&[], &[]).unwrap());
        let second = Arc::new(first.succeed(&[], &[]).unwrap());
        let kept = WorkerPools::with(1, first.clone());
        let old = kept.get(1, &first);
        let new = kept.get(2, &second);
        assert!(new.are_of(&second));
        assert!(Arc::ptr_eq(&kept.get(1, &first), &old), "those that are under way go on as they were");
        drop(old);
        let late = kept.get(1, &first);
        assert!(late.are_of(&first));
        assert!(Arc::ptr_eq(&kept.get(1, &first), &late), "at the same time they share");
        assert!(Arc::ptr_eq(&kept.get(2, &second), &new));
        drop(late);
        assert!(kept.0.lock().older.upgrade().is_none());
        assert!(Arc::ptr_eq(&kept.get(3, &second), &new), "of the same upstreams");
    }
}
