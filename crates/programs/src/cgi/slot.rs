//! The programs of a route, and how many of them run.

use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use kernel::process::Limits;

use super::lookup::Programs;
use crate::config::CgiConfig;

/// The programs of a route, shared by all requests for them.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: CgiConfig,
    pub(super) programs: Programs,
    pub(super) interpreter: Option<CString>,
    /// Variables of the server's own environment.
    pub(super) passed_on: Vec<(String, Vec<u8>)>,
    pub(super) running: AtomicU32,
    pub(super) limits: Limits,
}

/// One of the program slots of a route, until dropped.
#[derive(Debug)]
pub(super) struct ProgramSlot(Arc<Shared>);

impl ProgramSlot {
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Self> {
        let most = shared.config.most_running.get();
        let taken = shared.running.fetch_update(Relaxed, Relaxed, |running| (running < most).then_some(running + 1));
        taken.is_ok().then(|| Self(shared.clone()))
    }

    /// The configuration of the route's programs.
    pub(super) fn config(&self) -> &CgiConfig {
        &self.0.config
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}
