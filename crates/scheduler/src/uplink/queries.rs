//! The state of the uplink, as its driver asks for it.

use super::{ClassShare, ClassStats, Settings, Stats, Uplink, classes::Classes, queue::ClassQueue};
use crate::{
    class::ClassId,
    job::{JobId, Size, Turn},
    share::Policy,
    time::{Instant, MS},
};

/// A job's precedence among others: see [`Uplink::precedence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    of_class: u64,
    turn: Turn,
}

/// See [`Uplink::fresh_ns`].
const FRESH_NS: u64 = 10 * MS;

impl Uplink {
    /// How the link is shared between classes; `None` if it is not.
    pub fn share(&self) -> Option<&ClassShare> {
        self.classes.as_ref().map(Classes::given)
    }

    /// The job's precedence by share, urgency and order: the smallest goes first. For a driver that chooses among
    /// jobs that share something narrower than the uplink, such as one connection. Classes count only where they
    /// are ordered: by priority or by deadline.
    pub fn precedence(&self, job: JobId) -> Precedence {
        let (class, arrived) = (self.class_of(job), self.jobs[job.index()].arrived);
        let of_class = self.classes.as_ref().map_or(0, |classes| match classes.policy() {
            Policy::Strict => class as u64,
            Policy::Edf => classes.deadline(class, arrived).map_or(u64::MAX, Instant::as_ns),
            _ => 0,
        });
        Precedence { of_class, turn: self.settings.turn(&self.jobs[job.index()]) }
    }

    /// The measure of the job for [`crate::bands`]: bytes, nanoseconds, or 0 and 1, by the order in force.
    /// `None` for an order without bands.
    pub fn measure(&self, now: Instant, job: JobId) -> Option<u64> {
        let Settings { order, rate, small_bytes, .. } = self.settings;
        order.measure(&self.jobs[job.index()], now, rate, small_bytes)
    }

    /// Payload bytes left of a job; `None` where its size is unknown.
    pub fn remaining_bytes(&self, job: JobId) -> Option<u64> {
        let it = &self.jobs[job.index()];
        match it.size {
            Size::Known(_) => Some(it.ahead_bytes()),
            Size::Unknown => None,
        }
    }

    /// Payload bytes granted to a job so far.
    pub fn attained_bytes(&self, job: JobId) -> u64 {
        self.jobs[job.index()].attained_bytes
    }

    /// A round trip says nothing of the present queue if it ended longer ago than this, in nanoseconds. On a slow link grants
    /// are far apart, and so are the times at which a connection is looked at.
    pub fn fresh_ns(&self) -> u64 {
        FRESH_NS.max(self.link.chunk_ns())
    }

    /// Current counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats {
            jobs: self.jobs.len() - self.groups.stays(),
            waiting: self.waiting,
            on_paper: self.fair_sharing.len(),
            charged_bytes: self.link.charged_bytes(),
            grants: self.grants,
            guarded: self.guarded,
        }
    }

    /// Counters of a class; zeros if the class does not exist or the link is not shared.
    pub fn class_stats(&self, class: ClassId) -> ClassStats {
        let queue = self.queues.get(class.index()).filter(|_| self.classes.is_some());
        let stats = |queue: &ClassQueue| ClassStats { waiting: queue.waiting, charged_bytes: queue.charged_bytes };
        queue.map(stats).unwrap_or_default()
    }
}
