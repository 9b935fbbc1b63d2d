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
//! The link may be shared between classes ([`Uplink::handle_share`]). Then every grant takes two decisions:
//! the share picks a class with waiting jobs, and the order picks the job within it. Without a share all jobs
//! are one class. [`ClassShare`] gives the promises of shares. The guard and the lateness of a job count
//! within its class, so no promise of a share depends on them. The simulated link of `fsp` and the guard
//! knows no classes.
//!
//! Invariants, tested for every order and share:
//! - A grant goes to the waiting job with the smallest rank in its class. The queues are kept sorted, so a
//!   choice costs O(log n), plus O(classes) if the link is shared.
//! - Work is conserved: with a waiting job and room on the link, `poll_grant` returns a grant. The exception
//!   is a share that reserves a part of the link for another class (fixed parts, reserves). At `poll_timeout`
//!   there is a grant.
//! - The link is charged for the written bytes of each grant, counted as on the wire, plus bytes without a
//!   grant.

pub(crate) mod classes;
mod fair_sharing;
mod grant;
mod queue;
mod settings;
mod stats;

use alloc::{vec, vec::Vec};

use slab::Slab;

pub use self::{
    classes::{ClassShare, ShareError},
    grant::{Grant, Reason},
    settings::{Settings, read_stretch},
    stats::{ClassStats, Stats},
};
use self::{
    classes::{Classes, LinkProperties},
    fair_sharing::FairSharing,
    queue::ClassQueue,
};
use crate::{
    class::ClassId,
    job::{Guard, Job, JobId, Path, Rank, Size, Waiting},
    link::Link,
    share::{self, Contender, Policy},
    time::Instant,
    units::Rate,
};

/// The uplink scheduler. The head of this module gives the order of calls.
#[derive(Clone, Debug)]
pub struct Uplink {
    settings: Settings,
    link: Link,
    jobs: Slab<Job>,
    /// One queue per class; a single one where the link is not shared.
    queues: Vec<ClassQueue>,
    waiting: usize,
    classes: Option<Classes>,
    fair_sharing: FairSharing,
    sequence: u64,
    grants: u64,
    guarded: u64,
}

/// A job's precedence among others: see [`Uplink::precedence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    of_class: u64,
    rank: Rank,
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
            fair_sharing: FairSharing::default(),
            sequence: 0,
            grants: 0,
            guarded: 0,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies changed settings; waiting jobs are ranked again.
    pub fn handle_settings(&mut self, now: Instant, settings: Settings) {
        self.advance(now);
        let followed = (self.settings.needs_fair_sharing(), self.settings.guard_stretch);
        self.classes_follow_rate(now, settings.rate);
        let old_rate = self.settings.simulated_rate();
        self.settings = settings;
        self.link.set(now, settings.rate, settings.pacing);
        self.fair_sharing.handle_rate(old_rate, self.settings.simulated_rate(), self.link.free_at());
        if (self.settings.needs_fair_sharing(), settings.guard_stretch) != followed {
            self.fair_sharing.restart(now, &self.settings, &mut self.jobs);
        }
        self.rank_all_anew();
    }

    /// Changes the rate of the bottleneck.
    pub fn handle_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.advance(now);
        let late_anew = self.classes_follow_rate(now, rate);
        let old_rate = self.settings.simulated_rate();
        self.settings.rate = rate;
        self.link.set_rate(now, rate);
        self.fair_sharing.handle_rate(old_rate, self.settings.simulated_rate(), self.link.free_at());
        if self.settings.order.needs_rate() || late_anew {
            self.rank_all_anew();
        }
    }

    /// Changes how the link is shared between classes; `None` makes all jobs one class.
    ///
    /// Waiting jobs keep waiting, in their new class: `moves` gives the new class for each old number. A
    /// class that is not in `moves` keeps its number, or becomes the last class if there are fewer now.
    ///
    /// # Errors
    /// The same errors as [`ClassShare::check`]; then nothing has changed.
    pub fn handle_share(
        &mut self,
        now: Instant,
        share: Option<ClassShare>,
        moves: &[ClassId],
    ) -> Result<(), ShareError> {
        if let Some(share) = &share {
            share.check()?;
        }
        self.advance(now);
        self.queues = vec![ClassQueue::default(); share.as_ref().map_or(1, |share| share.classes.len())];
        self.classes = share.map(Classes::new);
        self.waiting = 0;
        let mut waiting = Vec::new();
        for (index, it) in &mut self.jobs {
            it.class = moves.get(it.class.index()).copied().unwrap_or(it.class);
            (it.share_tag_bytes, it.charged_to, it.late) = (0, None, false);
            waiting.extend(it.waiting.take().map(|waiting| (JobId(index as u32), waiting.wanted_bytes)));
        }
        for (job, wanted_bytes) in waiting {
            self.wait(now, job, wanted_bytes);
        }
        Ok(())
    }

    /// How the link is shared between classes; `None` if it is not.
    pub fn share(&self) -> Option<&ClassShare> {
        self.classes.as_ref().map(Classes::given)
    }

    /// Starts a response of the first class. `size` is in payload bytes, with head and framing as far as
    /// known.
    pub fn handle_started(&mut self, now: Instant, size: Size, path: Path) -> JobId {
        self.handle_started_of(now, ClassId(0), size, path)
    }

    /// Starts a response of a class. A class number that does not exist counts as the last class.
    pub fn handle_started_of(&mut self, now: Instant, class: ClassId, size: Size, path: Path) -> JobId {
        self.advance(now);
        let sequence = self.sequence;
        self.sequence += 1;
        let entry = self.jobs.vacant_entry();
        let job = JobId(u32::try_from(entry.key()).expect("fewer than 2^32 responses under way"));
        let mut sharing_tag = self.fair_sharing.virtual_time();
        if let (Size::Known(bytes), true) = (size, self.settings.needs_fair_sharing()) {
            sharing_tag = self.fair_sharing.arrive(job, sequence, self.settings.wire_bytes(&path, bytes));
        }
        entry.insert(Job {
            class,
            size,
            attained_bytes: 0,
            granted_bytes: 0,
            granted_wire_bytes: 0,
            charged_to: None,
            arrived: now,
            sequence,
            path,
            share_tag_bytes: self.queues[class.index().min(self.queues.len() - 1)].share_tag_bytes,
            sharing_tag,
            waited_until: now,
            guard: Guard::Resting,
            late: false,
            waiting: None,
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
        let class = self.class_of(job);
        let it = &mut self.jobs[job.index()];
        if let Some(waiting) = &mut it.waiting {
            waiting.wanted_bytes = bytes;
            return None;
        }
        // A job that was idle saves up no turns.
        it.share_tag_bytes = it.share_tag_bytes.max(self.queues[class].share_tag_bytes);
        it.waited_until = now;
        let alone = self.waiting == 0 && self.link.has_room(now);
        if alone && self.classes.is_none() {
            return Some(self.grant(now, job, bytes, Reason::Alone, None));
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
        it.share_tag_bytes = it.share_tag_bytes.saturating_sub(bytes);
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
        self.rank_anew(job);
    }

    /// A waiting job has nothing to write any more.
    pub fn handle_withdrawn(&mut self, job: JobId) {
        if let Some(waiting) = self.jobs[job.index()].waiting.take() {
            let class = self.class_of(job);
            self.queues[class].waiting.remove(&(waiting.rank, job));
            self.waiting -= 1;
        }
    }

    /// Ends a job: the last byte was handed over (`complete`), or the response was given up. Its id may be
    /// used again.
    pub fn handle_finished(&mut self, now: Instant, job: JobId, complete: bool) {
        self.advance(now);
        self.handle_withdrawn(job);
        let it = self.jobs.remove(job.index());
        self.fair_sharing.handle_finished(job, &it, complete);
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
    }

    /// Sets the time when the link will have sent all bytes given to it. For a driver that owns and observes
    /// the link, where the model drifts by the rounding of each grant. Not useful where the link's rate is an
    /// estimate.
    pub fn handle_free_at(&mut self, at: Instant) {
        self.link.set_free_at(at);
    }

    /// Returns the next grant. Ask until `None`.
    pub fn poll_grant(&mut self, now: Instant) -> Option<Grant> {
        if self.waiting == 0 || !self.link.has_room(now) {
            return None;
        }
        self.advance(now);
        let (class, share) = match self.classes {
            None => (0, None),
            Some(_) => self.choose(now).map(|choice| (choice.class.index(), Some(choice.reason)))?,
        };
        let queue = &mut self.queues[class].waiting;
        let (rank, job) = queue.pop_first().expect("a job waits, and a share picks a class with a waiting job");
        let reason = match (rank.unguarded, queue.is_empty()) {
            (false, _) => Reason::Guarded,
            (true, true) => Reason::Alone,
            (true, false) => Reason::First,
        };
        self.waiting -= 1;
        let waiting = self.jobs[job.index()].waiting.take().expect("a job in the queue waits");
        Some(self.grant(now, job, waiting.wanted_bytes, reason, share))
    }

    /// When to call [`Uplink::poll_grant`] again; `None` while no job waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        let room_at = self.link.room_at();
        let Some(classes) = &self.classes else { return Some(room_at) };
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        let may_go_at = waiting.map(|(class, _)| classes.room_at(class, self.link_properties())).min();
        Some(room_at.max(may_go_at?))
    }

    /// The job's precedence by share and order: the smallest goes first. For a driver that chooses among jobs that
    /// share something narrower than the uplink, such as one connection. Classes count only where they are
    /// ordered: by priority or by deadline.
    pub fn precedence(&self, job: JobId) -> Precedence {
        let (class, arrived) = (self.class_of(job), self.jobs[job.index()].arrived);
        let of_class = self.classes.as_ref().map_or(0, |classes| match classes.policy() {
            Policy::Strict => class as u64,
            Policy::Edf => classes.deadline(class, arrived).map_or(u64::MAX, Instant::as_ns),
            _ => 0,
        });
        Precedence { of_class, rank: self.rank(job) }
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

    /// When the link has room for another grant, by the model.
    pub fn room_at(&self) -> Instant {
        self.link.room_at()
    }

    /// Payload of one grant.
    pub fn chunk_bytes(&self) -> u64 {
        self.link.chunk_bytes()
    }

    /// Bytes on the wire of a payload in segments of the usual size.
    pub fn wire_bytes(&self, payload_bytes: u64) -> u64 {
        self.settings.wire_bytes(&Path::UNKNOWN, payload_bytes)
    }

    /// Current counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats {
            jobs: self.jobs.len(),
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
        let stats =
            |queue: &ClassQueue| ClassStats { waiting: queue.waiting.len(), charged_bytes: queue.charged_bytes };
        queue.map(stats).unwrap_or_default()
    }

    fn grant(
        &mut self,
        now: Instant,
        job: JobId,
        wanted_bytes: u64,
        reason: Reason,
        share: Option<share::Reason>,
    ) -> Grant {
        let (class, link) = (self.class_of(job), self.link_properties());
        let bytes = wanted_bytes.min(self.link.chunk_bytes());
        let it = &mut self.jobs[job.index()];
        let wire_bytes = self.settings.wire_bytes(&it.path, bytes);
        self.link.charge(now, wire_bytes);
        it.attained_bytes += bytes;
        (it.granted_bytes, it.granted_wire_bytes) = (bytes, wire_bytes);
        let queue = &mut self.queues[class];
        queue.share_tag_bytes = queue.share_tag_bytes.max(it.share_tag_bytes);
        queue.charged_bytes += wire_bytes;
        it.share_tag_bytes += bytes;
        it.charged_to = self.classes.as_mut().map(|classes| classes.charge(now, class, wire_bytes, link));
        self.grants += 1;
        Grant { job, bytes, reason, share }
    }

    /// Chooses the next class; the choice counts as made.
    fn choose(&mut self, now: Instant) -> Option<share::Choice> {
        self.find_late(now);
        let properties = self.link_properties();
        let Self { classes, queues, jobs, settings, link, .. } = self;
        let classes = classes.as_mut()?;
        let mut contenders = classes.contenders();
        for (queue, class) in queues.iter().zip((0..).map(ClassId)) {
            let Some(&(rank, job)) = queue.waiting.first() else { continue };
            let it = &jobs[job.index()];
            let wanted_bytes = it.waiting.map_or(0, |waiting| waiting.wanted_bytes);
            let cost = settings.wire_bytes(&it.path, wanted_bytes.min(link.chunk_bytes()));
            let deadline = classes.deadline(class.index(), it.arrived);
            contenders.push(Contender { cost, deadline, late: rank.late, ..Contender::new(class) });
        }
        classes.choose(now, properties, contenders)
    }

    /// Marks jobs at the head of their class as late if they cannot meet their deadline even with the whole
    /// link.
    ///
    /// The test allows for the time by which the link may already be taken: a grant and the time decided
    /// ahead.
    fn find_late(&mut self, now: Instant) {
        let Some(classes) = self.classes.as_ref().filter(|classes| classes.policy() == Policy::Edf) else { return };
        let ns_for = |bytes: u64| self.settings.rate.map_or(0, |rate| rate.ns_for(bytes));
        let chunk_bytes = self.settings.wire_bytes(&Path::UNKNOWN, self.link.chunk_bytes());
        let taken_ns = ns_for(chunk_bytes).saturating_add(self.settings.pacing.ahead_ns);
        let mut late = Vec::new();
        for (class, queue) in self.queues.iter().enumerate() {
            let is_late = |job: &JobId| {
                let it = &self.jobs[job.index()];
                let left_bytes = if it.size == Size::Unknown { 0 } else { it.ahead_bytes() };
                let left = self.settings.wire_bytes(&it.path, left_bytes);
                let deadline = classes.deadline(class, it.arrived);
                deadline.is_some_and(|deadline| deadline.add_ns(taken_ns) < now.add_ns(ns_for(left)))
            };
            let in_time = queue.waiting.iter().take_while(|(rank, _)| !rank.late).map(|&(_, job)| job);
            late.extend(in_time.take_while(is_late));
        }
        for job in late {
            self.jobs[job.index()].late = true;
            self.rank_anew(job);
        }
    }

    /// Puts a job that asked into the queue of its class.
    fn wait(&mut self, now: Instant, job: JobId, wanted_bytes: u64) {
        let (rank, class, alone) = (self.rank(job), self.class_of(job), self.waiting == 0);
        let queue = &mut self.queues[class];
        if let (Some(classes), true) = (&mut self.classes, queue.waiting.is_empty()) {
            classes.handle_waits(now, class, alone);
        }
        queue.waiting.insert((rank, job));
        self.jobs[job.index()].waiting = Some(Waiting { rank, wanted_bytes });
        self.waiting += 1;
    }

    fn class_of(&self, job: JobId) -> usize {
        self.jobs[job.index()].class.index().min(self.queues.len() - 1)
    }

    fn link_properties(&self) -> LinkProperties {
        LinkProperties { rate: self.settings.rate, ahead_ns: self.settings.pacing.ahead_ns }
    }

    fn rank(&self, job: JobId) -> Rank {
        let it = &self.jobs[job.index()];
        let unguarded = it.guard != Guard::Ahead;
        let key = if unguarded {
            self.settings.order.key(it, self.settings.rate, self.settings.small_bytes)
        } else {
            it.sequence
        };
        Rank { unguarded, late: it.late, key, sequence: it.sequence }
    }

    /// Gives a waiting job its new place after a change of its rank.
    fn rank_anew(&mut self, job: JobId) {
        let Some(Waiting { rank: old, wanted_bytes }) = self.jobs[job.index()].waiting else { return };
        let rank = self.rank(job);
        if rank != old {
            let class = self.class_of(job);
            self.queues[class].waiting.remove(&(old, job));
            self.queues[class].waiting.insert((rank, job));
            self.jobs[job.index()].waiting = Some(Waiting { rank, wanted_bytes });
        }
    }

    fn rank_all_anew(&mut self) {
        let waiting: Vec<JobId> = self.queues.iter().flat_map(|queue| &queue.waiting).map(|&(_, job)| job).collect();
        for job in waiting {
            self.rank_anew(job);
        }
    }

    /// Prepares the classes for a new rate. Returns true if ranks are out of date: lateness depends on the
    /// rate.
    fn classes_follow_rate(&mut self, now: Instant, rate: Option<Rate>) -> bool {
        let Some(classes) = &mut self.classes else { return false };
        classes.handle_rate(now, self.settings.rate, rate);
        let late_anew = classes.policy() == Policy::Edf;
        if late_anew {
            self.jobs.iter_mut().for_each(|(_, it)| it.late = false);
        }
        late_anew
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
