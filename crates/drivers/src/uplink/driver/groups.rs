//! Groups of responses, and how urgent each is within its group.

use std::sync::atomic::Ordering;

use scheduler::{
    JobId, Path, Size,
    priority::{GroupId, Priority},
};

use super::Driver;
use crate::uplink::ClassAt;

impl Driver {
    /// A group for the responses of one connection.
    pub fn new_group(&self) -> GroupId {
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    /// A response begins that is in no group.
    pub fn handle_started(&self, class: ClassAt, size: Size, path: Option<Path>) -> JobId {
        self.handle_started_in(None, class, size, path)
    }

    /// A response is more or less urgent within its group from now on.
    pub fn handle_priority(&self, job: JobId, priority: Priority) {
        let wakers = {
            let mut state = self.state.lock();
            state.machine.handle_priority(job, priority);
            tracing::trace!(job = job.index(), %priority, "has another priority");
            self.pump(&mut state, self.now())
        };
        wakers.wake();
    }
}
