//! A job whose client calls it more or less urgent than before.

use super::Uplink;
use crate::{JobId, priority::Priority};

impl Uplink {
    /// A job of a group is as urgent as this from now on. Its place stays: only the bytes that the places of the group
    /// earn from now on go to other jobs. A job of no group is not changed.
    pub fn handle_priority(&mut self, job: JobId, priority: Priority) {
        let Some(member) = &mut self.jobs[job.index()].member else { return };
        // The turns that it has had were among jobs of another urgency.
        (member.priority, member.round_bytes) = (priority.capped(), 0);
        self.groups.handle_turn(&mut self.jobs, job);
        self.rank_anew(job);
    }
}
