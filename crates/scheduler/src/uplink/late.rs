//! Which jobs can no longer meet the deadline of their class.

use alloc::vec::Vec;

use slab::Slab;

use super::{classes::Classes, queue::ClassQueue, settings::Settings};
use crate::{
    job::{Job, JobId, Path, Size},
    time::Instant,
};

/// The jobs at the head of their class that cannot meet their deadline even with the whole link.
///
/// The test allows for the time by which the link may already be taken: the longest grant and the time decided ahead.
pub(super) fn jobs(
    now: Instant,
    classes: &Classes,
    queues: &[ClassQueue],
    jobs: &Slab<Job>,
    settings: &Settings,
    longest_grant_bytes: u64,
) -> Vec<JobId> {
    let ns_for = |bytes: u64| settings.rate.map_or(0, |rate| rate.ns_for(bytes));
    let grant_bytes = settings.wire_bytes(&Path::UNKNOWN, longest_grant_bytes);
    let taken_ns = ns_for(grant_bytes).saturating_add(settings.pacing.ahead_ns);
    let mut late = Vec::new();
    for (class, queue) in queues.iter().enumerate() {
        let is_late = |job: &JobId| {
            let it = &jobs[job.index()];
            let left_bytes = if it.size == Size::Unknown { 0 } else { it.ahead_after(it.earned_bytes()) };
            let left = settings.wire_bytes(&it.path, left_bytes);
            let deadline = classes.deadline(class, it.arrived);
            deadline.is_some_and(|deadline| deadline.add_ns(taken_ns) < now.add_ns(ns_for(left)))
        };
        let in_time = queue.places.iter().take_while(|(rank, _)| !rank.late).map(|&(_, job)| job);
        late.extend(in_time.take_while(is_late));
    }
    late
}
