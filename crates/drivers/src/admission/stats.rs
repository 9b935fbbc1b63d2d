//! Statistics of admission, for metrics.

use std::{sync::Arc, time::Duration};

use scheduler::admission::ClassStats;

use super::membership::LeaseStats;

/// Statistics of admission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// By class, in the order in force.
    pub classes: Vec<(Arc<str>, ClassStats)>,
    /// By resource, in the order in force.
    pub resources: Vec<ResourceStats>,
    /// The leases of this gateway, if the site has several.
    pub leases: Option<LeaseStats>,
}

/// Statistics of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its window, if it has one of its own.
    pub window: Option<u32>,
    /// Its requests at the site; resources without a window of their own share one count.
    pub running: u32,
    /// How often its window was adjusted.
    pub window_changes: u64,
    /// Mean service time of its last requests.
    pub mean_service: Option<Duration>,
}

/// The counts since an earlier moment.
pub(super) fn less(now: &ClassStats, before: &ClassStats) -> ClassStats {
    ClassStats {
        waiting: now.waiting,
        running: now.running,
        arrived: now.arrived.saturating_sub(before.arrived),
        started: now.started.saturating_sub(before.started),
        finished: now.finished.saturating_sub(before.finished),
        gone_waiting: now.gone_waiting.saturating_sub(before.gone_waiting),
        gone_running: now.gone_running.saturating_sub(before.gone_running),
        refused_full: now.refused_full.saturating_sub(before.refused_full),
        refused_waited: now.refused_waited.saturating_sub(before.refused_waited),
        refused_late: now.refused_late.saturating_sub(before.refused_late),
    }
}
