//! The groups of jobs: see [`crate::priority`].

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use slab::Slab;

use crate::{
    job::{Job, JobId, Member, Turn},
    priority::{GroupId, Priority},
};

/// Places of ended jobs that a group may have. A client can make many with one large response that lends to small ones.
const MOST_ENDED: usize = 64;

/// The groups, each of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<(GroupId, usize), Group>,
    /// Places that have outlived their jobs.
    stays: usize,
}

/// The jobs of a group and a class.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Jobs that have not ended.
    members: usize,
    /// The jobs that ask for a grant, the most urgent first.
    asking: BTreeSet<(Turn, JobId)>,
    /// The jobs whose places owe bytes.
    debtors: BTreeSet<JobId>,
    /// Those of them that have ended.
    ended: Vec<JobId>,
    /// The sum of [`Member::lent_bytes`] over the members.
    lent_bytes: i64,
    /// The bytes that the places of ended jobs owe.
    owed_by_ended_bytes: i64,
    /// By urgency: [`Member::round_bytes`] of the incremental job that had the last turn.
    rounds_bytes: [u64; Priority::LEAST_URGENT as usize + 1],
}

/// The place of a job that ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// The place stays.
    pub stays: bool,
    /// Places that owe nothing any more, and are to be removed.
    pub removed: Vec<JobId>,
    /// A place that owes less than before.
    pub changed: Option<JobId>,
}

impl Groups {
    /// A job begins, or comes to another class.
    pub fn join(&mut self, member: &mut Member, class: usize) {
        member.class = class;
        self.groups.entry((member.group, class)).or_default().members += 1;
    }

    /// Forgets all groups and loans. Returns the places that have outlived their jobs, which are to be removed.
    pub fn clear(&mut self, jobs: &mut Slab<Job>) -> Vec<JobId> {
        self.groups.clear();
        self.stays = 0;
        let mut removed = Vec::new();
        for (index, it) in jobs {
            it.earned_by = None;
            let Some(member) = &mut it.member else { continue };
            (member.lent_bytes, member.round_bytes) = (0, 0);
            if member.has_ended {
                removed.push(JobId(index as u32));
            }
        }
        removed
    }

    /// Places that have outlived their jobs.
    pub fn stays(&self) -> usize {
        self.stays
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.stays == 0
    }

    /// Whether places of the job's group owe bytes.
    pub fn owes(&self, jobs: &Slab<Job>, job: JobId) -> bool {
        self.of(jobs, job).is_some_and(|group| !group.debtors.is_empty())
    }

    /// A job is about to ask. Returns the places of its group that are in no queue while none of the group asks.
    pub fn idle(&self, jobs: &Slab<Job>, job: JobId) -> Vec<JobId> {
        let Some(group) = self.of(jobs, job).filter(|group| group.asking.is_empty()) else { return Vec::new() };
        let mut idle = group.debtors();
        if !group.debtors.is_empty() {
            idle.push(job);
        }
        idle
    }

    /// A job is about to ask: an incremental one that was idle saves up no turns.
    pub fn handle_turn(&self, jobs: &mut Slab<Job>, job: JobId) {
        let Some(group) = self.of(jobs, job) else { return };
        if let Some(member) = &mut jobs[job.index()].member {
            member.round_bytes = member.round_bytes.max(group.rounds_bytes[usize::from(member.priority.urgency)]);
        }
    }

    /// A job asks. Returns other jobs whose places are in the queue from now on.
    pub fn handle_asks(&mut self, jobs: &Slab<Job>, job: JobId, turn: Turn) -> Vec<JobId> {
        let Some(group) = self.of_mut(jobs, job) else { return Vec::new() };
        let was_silent = group.asking.is_empty();
        group.asking.insert((turn, job));
        if was_silent { group.debtors() } else { Vec::new() }
    }

    /// A job asks no more. Returns other jobs whose places are no longer in the queue.
    pub fn handle_asks_no_more(&mut self, jobs: &Slab<Job>, job: JobId, turn: Turn) -> Vec<JobId> {
        let Some(group) = self.of_mut(jobs, job) else { return Vec::new() };
        group.asking.remove(&(turn, job));
        if group.asking.is_empty() { group.debtors() } else { Vec::new() }
    }

    /// The turn of a job that asks has changed.
    pub fn handle_new_turn(&mut self, jobs: &Slab<Job>, job: JobId, old: Turn, new: Turn) {
        if let Some(group) = self.of_mut(jobs, job) {
            group.asking.remove(&(old, job));
            group.asking.insert((new, job));
        }
    }

    /// Whether the job's place belongs into the queue of its class.
    pub fn is_queued(&self, jobs: &Slab<Job>, job: JobId) -> bool {
        let it = &jobs[job.index()];
        if it.member.is_none() {
            return it.waiting.is_some();
        }
        let others_ask = || self.of(jobs, job).is_some_and(|group| !group.asking.is_empty());
        !it.is_spent() && (it.waiting.is_some() || it.lent_bytes() < 0 && others_ask())
    }

    /// The job that is served by what a place earns, and the most bytes that it can earn at once.
    pub fn beneficiary(&self, jobs: &Slab<Job>, place: JobId) -> (JobId, u64) {
        let it = &jobs[place.index()];
        let first = self.of(jobs, place).and_then(|group| group.asking.first());
        match (first, it.lendable_bytes()) {
            (Some(&(_, job)), lendable_bytes) if lendable_bytes > 0 && (job != place || it.lent_bytes() > 0) => {
                (job, lendable_bytes)
            }
            _ => (place, u64::MAX),
        }
    }

    /// A place has earned bytes for a job of its group. Returns true if the place is to be removed.
    pub fn handle_granted(&mut self, jobs: &mut Slab<Job>, place: JobId, job: JobId, bytes: u64) -> bool {
        let sequence = jobs[place.index()].sequence;
        let it = &mut jobs[job.index()];
        it.earned_by = (place != job).then_some((place, sequence));
        let Some(member) = &mut it.member else { return false };
        let Some(group) = self.groups.get_mut(&(member.group, member.class)) else { return false };
        if member.priority.incremental {
            let round_bytes = &mut group.rounds_bytes[usize::from(member.priority.urgency)];
            *round_bytes = member.round_bytes.max(*round_bytes);
            member.round_bytes += bytes;
        }
        if place == job {
            return false;
        }
        group.lend(jobs, job, -(bytes as i64));
        group.lend(jobs, place, bytes as i64);
        let is_settled = jobs[place.index()].has_ended() && jobs[place.index()].lent_bytes() >= 0;
        if is_settled {
            group.ended.retain(|&ended| ended != place);
            self.stays -= 1;
        }
        is_settled
    }

    /// A job hands back bytes of its last grant. Returns the place that has not earned them now, if it is another
    /// job's.
    pub fn handle_unused(&mut self, jobs: &mut Slab<Job>, job: JobId, bytes: u64) -> Option<JobId> {
        let (place, sequence) = jobs[job.index()].earned_by?;
        jobs.get(place.index()).filter(|it| it.sequence == sequence)?;
        let group = self.of_mut(jobs, job)?;
        group.lend(jobs, place, -(bytes as i64));
        group.lend(jobs, job, bytes as i64);
        Some(place)
    }

    /// A job has ended.
    pub fn handle_ended(&mut self, jobs: &mut Slab<Job>, job: JobId) -> Ended {
        let Some(Member { group, class, lent_bytes, .. }) = jobs[job.index()].member else { return Ended::default() };
        let key = (group, class);
        let Some(group) = self.groups.get_mut(&key) else { return Ended::default() };
        group.members -= 1;
        group.lent_bytes -= lent_bytes;
        let stays = lent_bytes < 0 && group.lent_bytes > 0;
        let mut removed = Vec::new();
        if stays {
            if let Some(member) = &mut jobs[job.index()].member {
                member.has_ended = true;
            }
            group.owed_by_ended_bytes -= lent_bytes;
            group.ended.push(job);
            self.stays += 1;
            if group.ended.len() > MOST_ENDED {
                // The newest takes over what the oldest owes. It has that much more to earn, and is no earlier for it.
                let oldest = group.ended.remove(0);
                let owed_bytes = -jobs[oldest.index()].lent_bytes();
                group.lend(jobs, oldest, owed_bytes);
                group.lend(jobs, job, -owed_bytes);
                jobs[job.index()].grow(owed_bytes.unsigned_abs());
                self.stays -= 1;
                removed.push(oldest);
            }
        } else {
            group.debtors.remove(&job);
        }
        let mut ended = Ended { stays, removed, changed: None };
        // The places of ended jobs owe no more than the members have lent.
        while group.owed_by_ended_bytes > group.lent_bytes.max(0) {
            let Some(&last) = group.ended.last() else { break };
            let excess_bytes = group.owed_by_ended_bytes - group.lent_bytes.max(0);
            let owed_bytes = -jobs[last.index()].lent_bytes();
            group.lend(jobs, last, excess_bytes.min(owed_bytes));
            if excess_bytes < owed_bytes {
                ended.changed = Some(last);
                break;
            }
            group.ended.pop();
            self.stays -= 1;
            if last == job {
                ended.stays = false;
            } else {
                ended.removed.push(last);
            }
        }
        if group.members == 0 {
            self.groups.remove(&key);
        }
        ended
    }

    fn of(&self, jobs: &Slab<Job>, job: JobId) -> Option<&Group> {
        let member = jobs[job.index()].member?;
        self.groups.get(&(member.group, member.class))
    }

    fn of_mut(&mut self, jobs: &Slab<Job>, job: JobId) -> Option<&mut Group> {
        let member = jobs[job.index()].member?;
        self.groups.get_mut(&(member.group, member.class))
    }
}

impl Group {
    fn debtors(&self) -> Vec<JobId> {
        self.debtors.iter().copied().collect()
    }

    /// The place of a job has lent so many bytes more.
    fn lend(&mut self, jobs: &mut Slab<Job>, job: JobId, bytes: i64) {
        let Some(member) = &mut jobs[job.index()].member else { return };
        member.lent_bytes += bytes;
        if member.has_ended {
            self.owed_by_ended_bytes -= bytes;
        } else {
            self.lent_bytes += bytes;
        }
        if member.lent_bytes < 0 {
            self.debtors.insert(job);
        } else {
            self.debtors.remove(&job);
        }
    }
}
