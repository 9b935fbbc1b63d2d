//! The place of one worker process, and its state.

use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::address::WorkerAddress;

/// The place of one process and of its restarts.
#[derive(Debug)]
pub(super) struct ProcessPlace {
    pub(super) number: u32,
    pub(super) address: WorkerAddress,
    pub(super) status: Mutex<ProcessStatus>,
    pub(super) state: watch::Sender<WorkerState>,
}

/// The current process of a place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessStatus {
    pub(super) pid: Option<u32>,
    pub(super) since: Option<SystemTime>,
    pub(super) restarts: u64,
}

impl ProcessStatus {
    pub(super) fn ended(&mut self) {
        (self.pid, self.since) = (None, None);
    }
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It does not accept connections yet.
    Starting,
    /// It serves.
    Ready,
    /// It has ended, and is restarted after a pause.
    Waiting,
    /// It was asked to end.
    Stopping,
    /// It has ended and is not restarted.
    Stopped,
}

/// The statistics of a process.
#[derive(Clone, Debug)]
pub struct WorkerStats {
    /// The upstream's name.
    pub upstream: String,
    /// The class's name.
    pub class: String,
    /// The number within its pool.
    pub process: u32,
    /// The process id, while there is a process.
    pub pid: Option<u32>,
    /// Its current state.
    pub state: WorkerState,
    /// When it became ready.
    pub since: Option<SystemTime>,
    /// How often it was restarted.
    pub restarts: u64,
}
