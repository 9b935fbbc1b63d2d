//! How many programs of a route run at once.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// The program slots of a route.
#[derive(Debug)]
pub(crate) struct Slots {
    most: NonZeroU32,
    running: AtomicU32,
}

/// One of the slots, until dropped.
#[derive(Debug)]
pub(crate) struct ProgramSlot(Arc<Slots>);

impl Slots {
    pub(crate) fn new(most: NonZeroU32) -> Arc<Self> {
        Arc::new(Self { most, running: AtomicU32::new(0) })
    }

    /// Takes a slot, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ProgramSlot> {
        let most = self.most.get();
        let taken = self.running.fetch_update(Relaxed, Relaxed, |running| (running < most).then_some(running + 1));
        taken.is_ok().then(|| ProgramSlot(self.clone()))
    }

    /// Slots that are taken.
    pub(crate) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}
