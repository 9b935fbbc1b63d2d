//! Simulated fair sharing of the jobs, and the guard against starvation, which follows from it.
//!
//! The guard allows each job [`super::Settings::guard_stretch`] times the time that it would take under fair sharing. A job
//! goes ahead of all others when it needs the whole link to meet that limit.

use alloc::collections::BTreeSet;

use slab::Slab;

use super::settings::Settings;
use crate::{
    job::{Guard, Job, JobId, Size},
    processor_sharing::ProcessorSharing,
    time::Instant,
    units::Rate,
};

/// The simulation, and the jobs that the guard will put ahead.
#[derive(Clone, Debug, Default)]
pub(super) struct FairSharing {
    pub simulated: ProcessorSharing,
    /// Jobs that simulated fair sharing has finished, by the time from which the guard puts them ahead.
    pub deadlines: BTreeSet<(Instant, u64, JobId)>,
}

impl FairSharing {
    /// Advances the simulation to now. A job that it finishes gets the time from which the guard puts it ahead.
    pub fn advance(&mut self, now: Instant, settings: &Settings, jobs: &mut Slab<Job>) {
        let rate = settings.simulated_rate();
        let Self { simulated, deadlines } = self;
        simulated.advance(now, rate, |job, sequence, done_at| {
            let Some(stretch) = settings.guard_stretch else { return };
            let Some(it) = jobs.get_mut(job.index()).filter(|it| it.sequence == sequence) else { return };
            let fair_ns = done_at.ns_since(it.arrived);
            let deadline = it.arrived.add_ns((fair_ns as f64 * stretch) as u64);
            // Early enough to be done by the deadline with the whole link.
            let left = settings.wire_bytes(&it.path, it.ahead_after(it.earned_bytes()));
            let ahead_at = Instant::from_ns(deadline.as_ns().saturating_sub(rate.ns_for(left)));
            it.guard = Guard::AheadFrom(ahead_at);
            deadlines.insert((ahead_at, sequence, job));
        });
    }

    /// The next job that the guard puts ahead by now. Ask until `None`.
    pub fn poll_ahead(&mut self, now: Instant) -> Option<JobId> {
        self.deadlines.first().filter(|(ahead_at, ..)| *ahead_at <= now)?;
        self.deadlines.pop_first().map(|(_, _, job)| job)
    }

    /// Adds a job of this many wire bytes and returns its tag. Advance to now first.
    pub fn arrive(&mut self, job: JobId, sequence: u64, wire_bytes: u64) -> u64 {
        self.simulated.arrive(job, sequence, wire_bytes)
    }

    /// The tag of a job without a size.
    pub fn virtual_time(&self) -> u64 {
        self.simulated.virtual_time()
    }

    /// A job has really ended. A complete one stays in the simulation until its simulated end.
    pub fn handle_finished(&mut self, job: JobId, it: &Job, complete: bool) {
        if !complete {
            self.simulated.abort(job, it.sequence, it.sharing_tag);
        }
        if let Guard::AheadFrom(ahead_at) = it.guard {
            self.deadlines.remove(&(ahead_at, it.sequence, job));
        }
    }

    /// No real job is left: virtual time starts at zero again if no simulated one is left either.
    pub fn handle_idle(&mut self, now: Instant) {
        if self.simulated.is_idle() {
            self.simulated.clear(now);
        }
    }

    /// Bytes without a grant keep the simulated link busy for `ns`, and no longer than the real one. Otherwise
    /// simulated fair sharing would run ahead of any real link, all jobs would look late, and the large ones
    /// most.
    pub fn handle_ungranted(&mut self, ns: u64, link_free_at: Instant) {
        self.simulated.occupy(ns);
        self.simulated.occupied_until_at_most(link_free_at);
    }

    /// Passes a new rate to the simulated link. Its time for bytes without a grant ends no later than the real
    /// link's.
    pub fn handle_rate(&mut self, old: Rate, new: Rate, link_free_at: Instant) {
        self.simulated.handle_rate(old, new);
        self.simulated.occupied_until_at_most(link_free_at);
    }

    /// Restarts the simulation with the present jobs and their remaining sizes, or stops it.
    pub fn restart(&mut self, now: Instant, settings: &Settings, jobs: &mut Slab<Job>) {
        self.simulated.clear(now);
        self.deadlines.clear();
        for (index, it) in jobs {
            it.guard = Guard::Resting;
            it.sharing_tag = 0;
            if let (Size::Known(_), true) = (it.size, settings.needs_fair_sharing()) {
                let left = settings.wire_bytes(&it.path, it.ahead_after(it.earned_bytes()));
                it.sharing_tag = self.simulated.arrive(JobId(index as u32), it.sequence, left);
            }
        }
    }

    /// Number of jobs in the simulation.
    pub fn len(&self) -> usize {
        self.simulated.len()
    }
}
