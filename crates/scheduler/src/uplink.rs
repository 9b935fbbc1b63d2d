//! The uplink scheduler: which response sends next, and how much.
//!
//! A state machine without clock and without bytes. The driver reports the jobs, and which of them have bytes
//! ready for a socket that accepts them. The scheduler answers which job may write how much, and when to ask
//! again.
//!
//! The life of a job, and its calls:
//!
//! 1. [`Uplink::handle_started`] when a response begins.
//! 2. [`Uplink::handle_wants`] when it has bytes ready and its socket accepts them. Either a grant is given
//!    at once, or the job waits and [`Uplink::poll_grant`] names it later. A job waits at most once at a
//!    time.
//! 3. [`Uplink::handle_unused`] when less was written than granted, before the next grant. All other granted
//!    bytes count as sent without a further call.
//! 4. [`Uplink::handle_withdrawn`] when a waiting job no longer has anything to write.
//! 5. [`Uplink::handle_finished`] when the last byte was handed over, or the response was given up.
//!
//! After any `handle_*` that may make room or change the order, call [`Uplink::poll_grant`] until it returns
//! `None`, and again at [`Uplink::poll_timeout`].
//!
//! ```
//! use serpent_scheduler::{Instant, Path, Size, Uplink, uplink::Settings};
//!
//! let mut uplink = Uplink::new(Settings { rate: "10mbit".parse().ok(), ..Settings::default() });
//! let now = Instant::ORIGIN;
//! let film = uplink.handle_started(now, Size::Known(1_000_000), Path::UNKNOWN);
//! let page = uplink.handle_started(now, Size::Known(2_000), Path::UNKNOWN);
//!
//! let grant = uplink.handle_wants(now, film, 1_000_000).expect("no other job waits");
//! assert_eq!(grant.bytes, uplink.chunk_bytes());
//! // The link is busy with that. Meanwhile both wait; the film asked first.
//! assert_eq!(uplink.handle_wants(now, film, 1_000_000 - grant.bytes), None);
//! assert_eq!(uplink.handle_wants(now, page, 2_000), None);
//!
//! let now = uplink.poll_timeout().expect("a job waits");
//! let grant = uplink.poll_grant(now).expect("and now there is room");
//! assert_eq!((grant.job, grant.bytes), (page, 2_000));
//! uplink.handle_finished(now, page, true);
//! ```
//!
//! The link may be shared between classes ([`Uplink::handle_share`]). Then every grant takes two decisions: the share
//! picks a class with waiting jobs, and the order picks the job within it. Without a share all jobs are one class. Jobs
//! may form groups ([`crate::priority`]): then the chosen job only earns the grant, and the most urgent job of its
//! group gets it. [`ClassShare`] gives the promises of shares. The guard and the lateness of a job count within its
//! class, so no promise of a share depends on them. The simulated link of `fsp` and the guard knows no classes.
//!
//! Invariants, tested for every order and share:
//! - A grant is earned by the waiting job with the smallest rank in its class. The queues are kept sorted, so a
//!   choice costs O(log n), plus O(classes) if the link is shared.
//! - Work is conserved: with a waiting job and room on the link, `poll_grant` returns a grant. The exception
//!   is a share that reserves a part of the link for another class (fixed parts, reserves). At `poll_timeout`
//!   there is a grant.
//! - The link is charged for the written bytes of each grant, counted as on the wire, plus bytes without a
//!   grant.

mod changes;
pub(crate) mod classes;
mod fair_sharing;
mod grant;
mod groups;
mod late;
mod priority_change;
mod queries;
mod queue;
mod settings;
mod stats;

use alloc::{vec, vec::Vec};

use slab::Slab;

pub use self::{
    classes::{ClassShare, ShareError},
    grant::{Grant, Reason},
    queries::Precedence,
    settings::{Settings, read_stretch},
    stats::{ClassStats, Stats},
};
use self::{
    classes::{Classes, LinkProperties},
    fair_sharing::FairSharing,
    groups::Groups,
    queue::ClassQueue,
};
use crate::{
    class::ClassId,
    job::{Guard, Job, JobId, Member, Path, Rank, Size, Waiting},
    link::Link,
    priority::{GroupId, Priority},
    share::{self, Contender, Policy},
    time::Instant,
};

/// The uplink scheduler; see the head of this module.
#[derive(Clone, Debug)]
pub struct Uplink {
    settings: Settings,
    link: Link,
    jobs: Slab<Job>,
    /// One queue per class; a single one where the link is not shared.
    queues: Vec<ClassQueue>,
    waiting: usize,
    classes: Option<Classes>,
    groups: Groups,
    fair_sharing: FairSharing,
    sequence: u64,
    grants: u64,
    guarded: u64,
    /// When the next grant is due, as far as the link has room by then: see [`Uplink::poll_timeout`].
    due: Instant,
    /// The job of the last grant, until it asks again or ends.
    served: Option<JobId>,
}

impl Uplink {
    /// Makes an idle uplink.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            link: Link::new(settings.rate, settings.pacing),
            jobs: Slab::new(),
            queues: vec![ClassQueue::default()],
            waiting: 0,
            classes: None,
            groups: Groups::default(),
            fair_sharing: FairSharing::default(),
            sequence: 0,
            grants: 0,
            guarded: 0,
            due: Instant::ORIGIN,
            served: None,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts a response of the first class. `size` is in payload bytes, with head and framing as far as
    /// known.
    pub fn handle_started(&mut self, now: Instant, size: Size, path: Path) -> JobId {
        self.handle_started_of(now, ClassId(0), size, path)
    }

    /// Starts a response of a class. A class number that does not exist counts as the last class.
    pub fn handle_started_of(&mut self, now: Instant, class: ClassId, size: Size, path: Path) -> JobId {
        self.handle_started_in(now, class, None, size, path)
    }

    /// Starts a response of a class and a group.
    pub fn handle_started_in(
        &mut self,
        now: Instant,
        class: ClassId,
        group: Option<(GroupId, Priority)>,
        size: Size,
        path: Path,
    ) -> JobId {
        self.advance(now);
        if let Size::Known(bytes) = size {
            self.link.handle_size(bytes);
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let entry = self.jobs.vacant_entry();
        let job = JobId(u32::try_from(entry.key()).expect("fewer than 2^32 responses under way"));
        let mut sharing_tag = self.fair_sharing.virtual_time();
        if let (Size::Known(bytes), true) = (size, self.settings.needs_fair_sharing()) {
            sharing_tag = self.fair_sharing.arrive(job, sequence, self.settings.wire_bytes(&path, bytes));
        }
        let queue = class.index().min(self.queues.len() - 1);
        let mut member = group.map(|(group, priority)| Member::new(group, priority));
        if let Some(member) = &mut member {
            self.groups.join(member, queue);
        }
        entry.insert(Job {
            class,
            size,
            attained_bytes: 0,
            granted_bytes: 0,
            granted_wire_bytes: 0,
            charged_to: None,
            earned_by: None,
            arrived: now,
            sequence,
            path,
            share_tag_bytes: self.queues[queue].share_tag_bytes,
            sharing_tag,
            waited_until: now,
            guard: Guard::Resting,
            late: false,
            waiting: None,
            queued: None,
            member,
        });
        job
    }

    /// Sets the size of a response whose size was unknown: this many bytes are left.
    pub fn handle_remaining_known(&mut self, job: JobId, remaining_bytes: u64) {
        let it = &mut self.jobs[job.index()];
        if it.size == Size::Unknown && self.settings.needs_fair_sharing() {
            // Simulated fair sharing treats it as a new job of the remaining size.
            let left = self.settings.wire_bytes(&it.path, remaining_bytes);
            it.sharing_tag = self.fair_sharing.arrive(job, it.sequence, left);
        }
        it.size = Size::Known(it.attained_bytes.saturating_add(remaining_bytes));
        self.rank_anew(job);
    }

    /// Takes a new measurement of the job's path.
    pub fn handle_path(&mut self, job: JobId, path: Path) {
        self.jobs[job.index()].path = path;
        if self.settings.order.needs_path() {
            self.rank_anew(job);
        }
    }

    /// The job has `bytes` ready, and its socket accepts some. Returns a grant if no other job waits and the
    /// link has room; otherwise the job waits. A second call while waiting only updates the number of bytes.
    pub fn handle_wants(&mut self, now: Instant, job: JobId, bytes: u64) -> Option<Grant> {
        self.advance(now);
        self.served = self.served.filter(|&it| it != job);
        let class = self.class_of(job);
        if let Some(waiting) = &mut self.jobs[job.index()].waiting {
            waiting.wanted_bytes = bytes;
            return None;
        }
        self.handle_served(now, job);
        for idle in self.groups.idle(&self.jobs, job) {
            let it = &mut self.jobs[idle.index()];
            it.share_tag_bytes = it.share_tag_bytes.max(self.queues[class].share_tag_bytes);
        }
        self.groups.handle_turn(&mut self.jobs, job);
        let room_bytes = if self.served.is_none() { bytes } else { u64::MAX };
        let alone = self.waiting == 0 && self.link.has_room(now, room_bytes);
        if alone && self.classes.is_none() && !self.groups.owes(&self.jobs, job) {
            return Some(self.grant(now, job, (job, bytes), Reason::Alone, None));
        }
        self.wait(now, job, bytes);
        if !alone {
            return None;
        }
        self.poll_grant(now).map(|grant| Grant { reason: Reason::Alone, ..grant })
    }

    /// Hands back bytes of the last grant that were not written. Other jobs can use them at once.
    pub fn handle_unused(&mut self, job: JobId, bytes: u64) {
        let it = &mut self.jobs[job.index()];
        let bytes = bytes.min(it.granted_bytes);
        it.granted_bytes -= bytes;
        it.attained_bytes -= bytes;
        // The written bytes keep the overhead of all their segments, also of a partial last one.
        let kept = self.settings.wire_bytes(&it.path, it.granted_bytes).min(it.granted_wire_bytes);
        let refund = it.granted_wire_bytes - kept;
        self.link.refund(refund);
        it.granted_wire_bytes = kept;
        if let (Some(source), Some(classes)) = (it.charged_to, &mut self.classes) {
            let class = it.class.index().min(self.queues.len() - 1);
            let charged_bytes = &mut self.queues[class].charged_bytes;
            *charged_bytes = charged_bytes.saturating_sub(refund);
            classes.refund(class, refund, source, self.settings.rate);
        }
        let place = self.groups.handle_unused(&mut self.jobs, job, bytes);
        let earned_by = &mut self.jobs[place.unwrap_or(job).index()];
        earned_by.share_tag_bytes = earned_by.share_tag_bytes.saturating_sub(bytes);
        self.rank_anew(job);
        place.into_iter().for_each(|place| self.rank_anew(place));
        self.follow_room();
    }

    /// A waiting job has nothing to write any more.
    pub fn handle_withdrawn(&mut self, job: JobId) {
        self.take_waiting(job);
        self.rank_anew(job);
        self.follow_room();
    }

    /// Ends a job: the last byte was handed over (`complete`), or the response was given up. Its id may be
    /// used again.
    pub fn handle_finished(&mut self, now: Instant, job: JobId, complete: bool) {
        self.advance(now);
        self.served = self.served.filter(|&it| it != job);
        self.handle_withdrawn(job);
        self.handle_served(now, job);
        let ended = self.groups.handle_ended(&mut self.jobs, job);
        for settled in ended.removed {
            self.remove(settled, true);
        }
        ended.changed.into_iter().for_each(|place| self.rank_anew(place));
        if ended.stays {
            let it = &mut self.jobs[job.index()];
            if !complete {
                // Nothing is left but what its place owes.
                it.size = Size::Known(it.attained_bytes);
                self.fair_sharing.handle_finished(job, it, false);
                it.guard = Guard::Resting;
            }
            self.rank_anew(job);
        } else {
            self.remove(job, complete);
        }
        if self.jobs.is_empty() {
            self.queues.iter_mut().for_each(|queue| queue.share_tag_bytes = 0);
            self.fair_sharing.handle_idle(now);
        }
    }

    /// Charges wire bytes that go out without a grant: handshakes, acknowledgements, heads, control frames,
    /// error pages.
    pub fn handle_ungranted(&mut self, now: Instant, wire_bytes: u64) {
        self.link.charge_ungranted(now, wire_bytes);
        if self.settings.needs_fair_sharing() {
            // The simulated link must carry them too.
            self.advance(now);
            let ns = self.settings.simulated_rate().ns_for(wire_bytes);
            self.fair_sharing.handle_ungranted(ns, self.link.free_at());
        }
        self.follow_room();
    }

    /// Sets the time when the link will have sent all bytes given to it. For a driver that owns and observes
    /// the link, where the model drifts by the rounding of each grant. Not useful where the link's rate is an
    /// estimate.
    pub fn handle_free_at(&mut self, at: Instant) {
        self.link.set_free_at(at);
        self.follow_room();
    }

    /// Returns the next grant. Ask until `None`. Before [`Uplink::poll_timeout`] there is one only if it is shorter
    /// than a chunk ([`crate::Pacing::early_percent`]).
    pub fn poll_grant(&mut self, now: Instant) -> Option<Grant> {
        let due = self.poll_timeout()?;
        self.advance(now);
        if now < due && !self.may_be_early(now) {
            return None;
        }
        let (class, share) = match self.classes {
            None => (0, None),
            Some(_) => self.choose(now).map(|choice| (choice.class.index(), Some(choice.reason)))?,
        };
        let queue = &self.queues[class];
        let &(rank, place) = queue.places.first().expect("a job waits, and a share picks a class with a waiting job");
        let reason = match (rank.unguarded, queue.waiting == 1) {
            (false, _) => Reason::Guarded,
            (true, true) => Reason::Alone,
            (true, false) => Reason::First,
        };
        let (job, most_bytes) = self.groups.beneficiary(&self.jobs, place);
        let waiting = self.take_waiting(job).expect("a place is in the queue only while its group asks");
        Some(self.grant(now, place, (job, waiting.wanted_bytes.min(most_bytes)), reason, share))
    }

    /// When to call [`Uplink::poll_grant`] again; `None` while no job waits.
    ///
    /// That is the moment when the link has room. Bytes without a grant (acknowledgements, handshakes) move it. If they
    /// move it by at most [`crate::Pacing::slack_ns`], the grant is due at the time that was returned before. So a
    /// driver that has set its timer does not wake up in vain.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (room_at, class_at) = (self.link.room_at(), self.class_may_go_at()?);
        let earliest = Instant::from_ns(room_at.as_ns().saturating_sub(self.settings.pacing.slack_ns)).max(class_at);
        let latest = room_at.max(class_at);
        Some(if (earliest..=latest).contains(&self.due) { self.due } else { latest })
    }

    /// Whether the next grant may be given before it is due.
    fn may_be_early(&mut self, now: Instant) -> bool {
        // A job that is about to ask again may be first then. Without this rule short jobs of a lower class, or that came
        // later, would slip in between its grants.
        if self.served.is_some() {
            return false;
        }
        self.find_late(now);
        let first = |queue: &ClassQueue| {
            let &(_, place) = queue.places.first()?;
            let (job, most_bytes) = self.groups.beneficiary(&self.jobs, place);
            Some(self.jobs[job.index()].waiting?.wanted_bytes.min(most_bytes))
        };
        // The share has not chosen yet between the first ones.
        let largest_bytes = self.queues.iter().filter_map(first).max();
        largest_bytes.is_some_and(|bytes| self.link.has_room(now, bytes))
            && self.class_may_go_at().is_some_and(|at| at <= now)
    }

    /// When the share lets a class with a waiting job go; `None` while no job waits.
    fn class_may_go_at(&self) -> Option<Instant> {
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| queue.waiting > 0);
        let may_go_at = |class| match &self.classes {
            Some(classes) => classes.room_at(class, self.link_properties()),
            None => Instant::ORIGIN,
        };
        waiting.map(|(class, _)| may_go_at(class)).min()
    }

    /// Grants bytes that a place has earned to a job of its group: as a rule, the place's own.
    fn grant(
        &mut self,
        now: Instant,
        place: JobId,
        (job, wanted_bytes): (JobId, u64),
        reason: Reason,
        share: Option<share::Reason>,
    ) -> Grant {
        let (class, link) = (self.class_of(job), self.link_properties());
        let bytes = self.link.grant_bytes(wanted_bytes);
        let it = &mut self.jobs[job.index()];
        let wire_bytes = self.settings.wire_bytes(&it.path, bytes);
        self.link.charge(now, wire_bytes);
        it.attained_bytes += bytes;
        (it.granted_bytes, it.granted_wire_bytes) = (bytes, wire_bytes);
        it.charged_to = self.classes.as_mut().map(|classes| classes.charge(now, class, wire_bytes, link));
        let (queue, earns) = (&mut self.queues[class], &mut self.jobs[place.index()]);
        queue.share_tag_bytes = queue.share_tag_bytes.max(earns.share_tag_bytes);
        queue.charged_bytes += wire_bytes;
        earns.share_tag_bytes += bytes;
        self.grants += 1;
        self.served = Some(job);
        let is_settled = self.groups.handle_granted(&mut self.jobs, place, job, bytes);
        self.rank_anew(job);
        if is_settled {
            self.remove(place, true);
        } else if place != job {
            self.rank_anew(place);
        }
        // The next one is due when there is room, and not before.
        self.due = Instant::ORIGIN;
        self.follow_room();
        Grant { job, bytes, reason, share }
    }

    /// Chooses the next class; the choice counts as made.
    fn choose(&mut self, now: Instant) -> Option<share::Choice> {
        self.find_late(now);
        let properties = self.link_properties();
        let Self { classes, groups, queues, jobs, settings, link, .. } = self;
        let classes = classes.as_mut()?;
        let mut contenders = classes.contenders();
        for (queue, class) in queues.iter().zip((0..).map(ClassId)) {
            let Some(&(rank, place)) = queue.places.first() else { continue };
            let (job, most_bytes) = groups.beneficiary(jobs, place);
            let it = &jobs[job.index()];
            let wanted_bytes = it.waiting.map_or(0, |waiting| waiting.wanted_bytes.min(most_bytes));
            let cost = settings.wire_bytes(&it.path, link.grant_bytes(wanted_bytes));
            let deadline = classes.deadline(class.index(), jobs[place.index()].arrived);
            contenders.push(Contender { cost, deadline, late: rank.late, ..Contender::new(class) });
        }
        classes.choose(now, properties, contenders)
    }

    /// Marks the first jobs of classes as late if they cannot meet their deadline even with the whole link.
    fn find_late(&mut self, now: Instant) {
        let Some(classes) = self.classes.as_ref().filter(|classes| classes.policy() == Policy::Edf) else { return };
        for job in late::jobs(now, classes, &self.queues, &self.jobs, &self.settings, self.link.longest_grant_bytes()) {
            self.jobs[job.index()].late = true;
            self.rank_anew(job);
        }
    }

    /// A job has used its last grant. The place that has earned it asks again now: the job's own, as a rule.
    /// Otherwise that one has waited all along.
    fn handle_served(&mut self, now: Instant, job: JobId) {
        let it = &self.jobs[job.index()];
        let (place, sequence) = it.earned_by.unwrap_or((job, it.sequence));
        let queue_tag_bytes = self.queues[self.class_of(job)].share_tag_bytes;
        let Some(it) = self.jobs.get_mut(place.index()).filter(|it| it.sequence == sequence) else { return };
        // A job that was idle saves up no turns.
        it.share_tag_bytes = it.share_tag_bytes.max(queue_tag_bytes);
        it.waited_until = now;
        self.rank_anew(place);
    }

    /// Lets a job that asks wait.
    fn wait(&mut self, now: Instant, job: JobId, wanted_bytes: u64) {
        let (class, alone) = (self.class_of(job), self.waiting == 0);
        let queue = &mut self.queues[class];
        if let (Some(classes), true) = (&mut self.classes, queue.waiting == 0) {
            classes.handle_waits(now, class, alone);
        }
        queue.waiting += 1;
        self.waiting += 1;
        let it = &mut self.jobs[job.index()];
        let turn = it.member.is_some().then(|| self.settings.turn(it));
        it.waiting = Some(Waiting { wanted_bytes, turn });
        self.rank_anew(job);
        if let Some(turn) = turn {
            let others = self.groups.handle_asks(&self.jobs, job, turn);
            others.into_iter().for_each(|other| self.rank_anew(other));
        }
        self.follow_room();
    }

    /// A job waits no more.
    fn take_waiting(&mut self, job: JobId) -> Option<Waiting> {
        let waiting = self.jobs[job.index()].waiting.take()?;
        let class = self.class_of(job);
        self.queues[class].waiting -= 1;
        self.waiting -= 1;
        if let Some(turn) = waiting.turn {
            let others = self.groups.handle_asks_no_more(&self.jobs, job, turn);
            others.into_iter().for_each(|other| self.rank_anew(other));
        }
        Some(waiting)
    }

    /// Removes a job and its place.
    fn remove(&mut self, job: JobId, complete: bool) {
        let class = self.class_of(job);
        let it = self.jobs.remove(job.index());
        it.queued.into_iter().for_each(|rank| _ = self.queues[class].places.remove(&(rank, job)));
        self.fair_sharing.handle_finished(job, &it, complete);
    }

    fn class_of(&self, job: JobId) -> usize {
        self.jobs[job.index()].class.index().min(self.queues.len() - 1)
    }

    fn link_properties(&self) -> LinkProperties {
        LinkProperties { rate: self.settings.rate, ahead_ns: self.settings.pacing.ahead_ns }
    }

    /// The rank of a job's place.
    fn rank(&self, job: JobId) -> Rank {
        let it = &self.jobs[job.index()];
        self.settings.rank(it, it.earned_bytes())
    }

    /// Gives a job its place in the queue, or takes it, or changes it; and its turn in its group. To be called
    /// after all that any of them depends on.
    fn rank_anew(&mut self, job: JobId) {
        let class = self.class_of(job);
        let rank = self.groups.is_queued(&self.jobs, job).then(|| self.rank(job));
        let it = &mut self.jobs[job.index()];
        let before = core::mem::replace(&mut it.queued, rank);
        if before != rank {
            let places = &mut self.queues[class].places;
            before.into_iter().for_each(|before| _ = places.remove(&(before, job)));
            rank.into_iter().for_each(|rank| _ = places.insert((rank, job)));
        }
        if let Some(Waiting { turn: Some(before), wanted_bytes }) = it.waiting {
            let turn = self.settings.turn(it);
            if turn != before {
                it.waiting = Some(Waiting { turn: Some(turn), wanted_bytes });
                self.groups.handle_new_turn(&self.jobs, job, before, turn);
            }
        }
    }

    /// Payload of one grant, as a rule; a short rest goes with the last one.
    pub fn chunk_bytes(&self) -> u64 {
        self.link.chunk_bytes()
    }

    /// Bytes on the wire of a payload in segments of the usual size.
    pub fn wire_bytes(&self, payload_bytes: u64) -> u64 {
        self.settings.wire_bytes(&Path::UNKNOWN, payload_bytes)
    }

    /// When the link has room for another grant, by the model.
    pub fn room_at(&self) -> Instant {
        self.link.room_at()
    }

    /// The jobs that have not ended: when each began, and its payload bytes where they are known.
    pub fn under_way(&self) -> impl Iterator<Item = (Instant, Option<u64>)> {
        let present = self.jobs.iter().filter(|(_, it)| it.member.is_none_or(|member| !member.has_ended));
        present.map(|(_, it)| match it.size {
            Size::Known(bytes) => (it.arrived, Some(bytes)),
            Size::Unknown => (it.arrived, None),
        })
    }

    /// The link or the waiting jobs have changed.
    fn follow_room(&mut self) {
        self.due = self.poll_timeout().unwrap_or(self.due);
    }

    /// Advances simulated fair sharing to now, and puts ahead the jobs that the guard names.
    fn advance(&mut self, now: Instant) {
        if !self.settings.needs_fair_sharing() {
            return;
        }
        self.fair_sharing.advance(now, &self.settings, &mut self.jobs);
        while let Some(job) = self.fair_sharing.poll_ahead(now) {
            self.jobs[job.index()].guard = Guard::Ahead;
            self.guarded += 1;
            self.rank_anew(job);
        }
    }
}

#[cfg(test)]
mod tests;
