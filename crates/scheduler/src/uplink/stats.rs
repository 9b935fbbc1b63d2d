//! Counters and gauges of the uplink.

/// Counters and gauges of the uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Current jobs.
    pub jobs: usize,
    /// Jobs that wait for a grant.
    pub waiting: usize,
    /// Jobs that simulated fair sharing has not finished; used by `fsp` and the guard only.
    pub on_paper: usize,
    /// Total wire bytes given to the link.
    pub charged_bytes: u64,
    /// Total number of grants.
    pub grants: u64,
    /// Total number of jobs put ahead by the guard.
    pub guarded: u64,
}

/// Counters of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Its jobs that wait for a grant.
    pub waiting: usize,
    /// Wire bytes granted and not handed back, since the current share is in force.
    pub charged_bytes: u64,
}
