//! Admission: the request that enters the site next.
//!
//! A state machine without a clock and without the requests themselves. It limits how many requests a site works on at
//! once. Others wait in bounded queues, one for each class and resource type. The resource type of a request is what it
//! mainly needs: processor, disk, database. When there is room, three questions are answered in turn:
//!
//! 1. Which resource type? The idlest one with waiting requests: the largest (window - running) / window
//!    ("Multiple-resource Request Scheduling Algorithms for Proportional System-time Differentiation at Website Gateway",
//!    section 3.3.2).
//! 2. Which class? See [`crate::share`].
//! 3. Which request of that class? See [`QueueOrder`].
//!
//! The life of a request, and its calls:
//!
//! 1. [`Admission::handle_arrived`] when its class and resource type are known. It waits.
//! 2. [`Admission::poll_decision`] starts it, and it holds a slot from then on; or refuses it, which ends its id.
//! 3. [`Admission::handle_finished`] when the site has finished it, which frees the slot.
//! 4. [`Admission::handle_gone`] when its client is gone, while it waits or runs. [`Admission::handle_given_up`] when the
//!    gateway or the site gives it up. A request that only waited has used no slot.
//!
//! After every `handle_*` call [`Admission::poll_decision`] until it returns `None`, and again at
//! [`Admission::poll_timeout`]. A call with an id that is no longer valid has no effect, so a late report does no harm.
//!
//! ```
//! use serpent_scheduler::{
//!     Instant,
//!     admission::{Admission, Arrival, Decision, ResourceId, Settings},
//!     class::{Class, ClassId},
//!     share::Policy,
//! };
//!
//! let classes = vec![Class::default(), Class { most_waiting: 1, ..Class::default() }];
//! let mut admission = Admission::new(Settings::multi_resource(classes, Policy::Strict, &[1]))?;
//! let now = Instant::ORIGIN;
//! let ask = |class| Arrival { class, resource: ResourceId(0), client: 0, expected_ns: None, within_ns: None };
//! let (gold, plain) = (ClassId(0), ClassId(1));
//!
//! let first = admission.handle_arrived(now, ask(plain))?;
//! assert!(matches!(admission.poll_decision(now), Some(Decision::Start(start)) if start.request == first));
//! // The window is full. Now both wait; the plain one came first.
//! let waits = admission.handle_arrived(now, ask(plain))?;
//! let goes = admission.handle_arrived(now, ask(gold))?;
//! assert_eq!(admission.poll_decision(now), None);
//! // A further plain one finds its queue full.
//! let refused = admission.handle_arrived(now, ask(plain))?;
//! assert!(matches!(admission.poll_decision(now), Some(Decision::Refuse { request, .. }) if request == refused));
//!
//! admission.handle_finished(now, first);
//! assert!(matches!(admission.poll_decision(now), Some(Decision::Start(start)) if start.request == goes));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants, held by tests over every share and order:
//! - Every request that arrived is started, refused, or gone, once; none is lost when settings change.
//! - No window is exceeded, except by requests that already ran when it shrank.
//! - No queue is longer than its class's limit once `poll_decision` has returned `None`, and before that by one at most.
//!   Requests that already waited when settings changed are the exception.
//! - Work is conserved as far as the share promises it.

mod decision;
mod lane;
mod leases;
mod patience;
mod queue;
mod service;
mod settings;

use alloc::{
    collections::{BTreeSet, VecDeque},
    vec,
    vec::Vec,
};

use slab::Slab;

pub use self::{
    decision::{Arrival, ClassStats, Decision, Idlest, Reason, Refusal, RequestId, Start, Turn},
    settings::{Late, Moves, ResourceId, Settings, SettingsError},
};
use self::{
    lane::{Lane, lanes},
    patience::Patience,
    queue::{Queue, QueuedRequest, Rank},
    service::ServiceTimes,
};
pub use crate::class::QueueOrder;
use crate::{
    class::ClassId,
    share::{self, Contender, Delay, Policy},
    time::Instant,
};

/// The requests that wait for the site and those that run in it. The head of this module gives the order of calls.
#[derive(Debug)]
pub struct Admission {
    settings: Settings,
    lanes: Vec<Lane>,
    /// By resource type.
    lane_of: Vec<usize>,
    requests: Slab<Request>,
    running: u32,
    running_of_class: Vec<u32>,
    /// The part of the limit of all types that this gateway has by a lease; `None`: all of it.
    leased_total: Option<u32>,
    service: Vec<ServiceTimes>,
    /// By class.
    patience: Vec<Patience>,
    /// Waiting requests with a time limit, by its end.
    expiries: BTreeSet<(Instant, RequestId)>,
    /// Waiting requests that can still meet their deadlines, by the latest start for that.
    latest_starts: BTreeSet<(Instant, RequestId)>,
    /// Queues that may be above their limit if no request can start.
    overfull: VecDeque<(usize, ClassId)>,
    sequence: u64,
    stats: Vec<ClassStats>,
    /// Kept to reuse their memory.
    by_idleness: Vec<usize>,
    contenders: Vec<Contender>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrival: Arrival,
    id: RequestId,
    arrived: Instant,
    expected_ns: u64,
    deadline: Option<Instant>,
    expires: Option<Instant>,
    state: RequestState,
}

#[derive(Clone, Copy, Debug)]
enum RequestState {
    Waiting(Rank),
    Running { since: Instant },
}

impl Admission {
    /// Makes an admission without requests.
    ///
    /// # Errors
    /// The errors of [`Settings::check`].
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let (lanes, lane_of) = lanes(&settings);
        Ok(Self {
            lanes,
            lane_of,
            requests: Slab::new(),
            running: 0,
            running_of_class: vec![0; settings.classes.len()],
            leased_total: None,
            service: vec![ServiceTimes::default(); settings.windows.len()],
            patience: vec![Patience::default(); settings.classes.len()],
            expiries: BTreeSet::new(),
            latest_starts: BTreeSet::new(),
            overfull: VecDeque::new(),
            sequence: 0,
            stats: vec![ClassStats::default(); settings.classes.len()],
            by_idleness: Vec::new(),
            contenders: Vec::new(),
            settings,
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies changed settings, and ends all leases. Waiting requests keep waiting, in the class and the resource type
    /// that `moves` gives, with the time limit and the deadline that they came with. A queue above its new limit
    /// accepts no request until it is below.
    ///
    /// # Errors
    /// The errors of [`Settings::check`]; then nothing has changed.
    pub fn handle_settings(&mut self, settings: Settings, moves: &Moves) -> Result<(), SettingsError> {
        settings.check()?;
        let (classes, resources) = (settings.classes.len(), settings.windows.len());
        let class_now = |old: usize| {
            let class = moves.classes.get(old).map_or(old, |class| class.index());
            ClassId(class.min(classes - 1) as u16)
        };
        let resource_now = |old: usize| {
            let resource = moves.resources.get(old).map_or(old, |resource| resource.index());
            ResourceId(resource.min(resources - 1) as u16)
        };
        (self.lanes, self.lane_of) = lanes(&settings);
        self.settings = settings;
        self.leased_total = None;
        self.running_of_class = vec![0; classes];
        self.running = 0;
        self.latest_starts.clear();
        let mut service = vec![ServiceTimes::default(); resources];
        for (old, times) in self.service.drain(..).enumerate() {
            // If types become one, the first with a measurement is used.
            let now = &mut service[resource_now(old).index()];
            if now.mean_ns().is_none() {
                *now = times;
            }
        }
        self.service = service;
        let mut stats = vec![ClassStats::default(); classes];
        for (old, of_class) in self.stats.drain(..).enumerate() {
            stats[class_now(old).index()].add(&of_class);
        }
        self.stats = stats;
        let mut patience = vec![Patience::default(); classes];
        for (old, of_class) in self.patience.drain(..).enumerate() {
            let now = &mut patience[class_now(old).index()];
            if now.ns().is_none() {
                *now = of_class;
            }
        }
        self.patience = patience;
        let mut by_arrival: Vec<RequestId> = self.requests.iter().map(|(_, request)| request.id).collect();
        by_arrival.sort_unstable();
        for id in by_arrival {
            let request = &mut self.requests[id.index()];
            let Arrival { class, resource, .. } = &mut request.arrival;
            (*class, *resource) = (class_now(class.index()), resource_now(resource.index()));
            match request.state {
                RequestState::Waiting(_) => self.enqueue(id),
                RequestState::Running { .. } => self.hold(id),
            }
        }
        // No waiting request is refused because a limit is lower now.
        self.overfull.clear();
        Ok(())
    }

    /// Sets the window of a resource type, at least 1. Running requests continue. Does nothing for a type without a window
    /// of its own.
    pub fn handle_window(&mut self, resource: ResourceId, window: u32) {
        if let Some(own @ Some(_)) = self.settings.windows.get_mut(resource.index()) {
            *own = Some(window.max(1));
            self.lanes[self.lane_of[resource.index()]].window = *own;
        }
    }

    /// Sets the limit on the running requests of all types, at least 1. Running requests continue. Does nothing if there
    /// was no such limit.
    pub fn handle_total(&mut self, total: u32) {
        if self.settings.total.is_some() {
            self.settings.total = Some(total.max(1));
        }
    }

    /// A request has arrived, and waits.
    ///
    /// # Errors
    /// The request is refused at once, and gets no id.
    pub fn handle_arrived(&mut self, now: Instant, arrival: Arrival) -> Result<RequestId, Refusal> {
        let Arrival { class: class_id, resource, .. } = arrival;
        let class = *self.settings.classes.get(class_id.index()).ok_or(Refusal::NoSuchQueue)?;
        let lane = *self.lane_of.get(resource.index()).ok_or(Refusal::NoSuchQueue)?;
        let stats = &mut self.stats[class_id.index()];
        stats.arrived += 1;
        // One request above the limit stays until it is known whether a request can start. A second is refused at once.
        if self.lanes[lane].queues[class_id.index()].len() > class.most_waiting as usize {
            stats.refused_full += 1;
            return Err(Refusal::QueueFull);
        }
        let entry = self.requests.vacant_entry();
        let index = u32::try_from(entry.key()).expect("fewer than 2^32 requests wait and run");
        self.sequence += 1;
        let id = RequestId { sequence: self.sequence, index };
        let expected_ns = arrival.expected_ns.or_else(|| self.service[resource.index()].mean_ns()).unwrap_or(0);
        let earliest = |of_class: Option<u64>| Some(now.add_ns(of_class.into_iter().chain(arrival.within_ns).min()?));
        let (expires, deadline) = (earliest(class.most_wait_ns), earliest(class.deadline_ns));
        let nowhere = RequestState::Running { since: now };
        entry.insert(Request { arrival, id, arrived: now, expected_ns, deadline, expires, state: nowhere });
        if let Some(expires) = expires {
            self.expiries.insert((expires, id));
        }
        self.enqueue(id);
        Ok(id)
    }

    /// The site has finished a request, and its slot is free.
    pub fn handle_finished(&mut self, now: Instant, request: RequestId) {
        let Some(it) = self.known(request) else { return };
        if let RequestState::Running { since } = it.state {
            self.service[it.arrival.resource.index()].add(now.ns_since(since));
            self.stats[it.arrival.class.index()].finished += 1;
            let lane = &mut self.lanes[self.lane_of[it.arrival.resource.index()]];
            lane.share.handle_done(now, it.arrival.class, now.ns_since(it.arrived));
            self.release(&it);
        }
    }

    /// A request's client is gone. If the request ran, its slot is free; if it waited, it took none.
    pub fn handle_gone(&mut self, now: Instant, request: RequestId) {
        let Some(it) = self.known(request) else { return };
        let patience = &mut self.patience[it.arrival.class.index()];
        let age_ns = now.ns_since(it.arrived);
        match it.state {
            RequestState::Waiting(_) => patience.handle_left(0, age_ns),
            RequestState::Running { since } => {
                let waited_ns = since.ns_since(it.arrived);
                // A client that leaves during a long service may have seen enough of the answer.
                if now.ns_since(since) < waited_ns {
                    patience.handle_left(waited_ns, age_ns);
                }
            }
        }
        self.handle_given_up(request);
    }

    /// A request was given up, but not by its client. If it ran, its slot is free; if it waited, it took none.
    pub fn handle_given_up(&mut self, request: RequestId) {
        let Some(it) = self.known(request) else { return };
        let stats = &mut self.stats[it.arrival.class.index()];
        match it.state {
            RequestState::Running { .. } => {
                stats.gone_running += 1;
                self.release(&it);
            }
            RequestState::Waiting(rank) => {
                stats.gone_waiting += 1;
                self.withdraw(&it, rank);
            }
        }
    }

    /// Returns the next decision. Call it until it returns `None`.
    pub fn poll_decision(&mut self, now: Instant) -> Option<Decision> {
        self.poll_expired(now)
            .or_else(|| self.poll_late(now))
            .or_else(|| self.poll_start(now).map(Decision::Start))
            .or_else(|| self.poll_overfull(now))
    }

    /// When to call [`Admission::poll_decision`] again if nothing happens before; `None` if time alone changes nothing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.expiries.first().map(|&(at, _)| at);
        // A request that must start at this moment is late from the next nanosecond on.
        let late = self.latest_starts.first().map(|&(at, _)| at.add_ns(1)).filter(|_| self.refuses_late());
        [expiry, late].into_iter().flatten().min()
    }

    /// Counters of a class; zeros if there is no such class.
    pub fn class_stats(&self, class: ClassId) -> ClassStats {
        let Some(stats) = self.stats.get(class.index()) else { return ClassStats::default() };
        let waiting = self.lanes.iter().map(|lane| lane.queues[class.index()].len()).sum();
        ClassStats { waiting, running: self.running_of_class[class.index()] as usize, ..*stats }
    }

    /// The resource type of a request that waits or runs.
    pub fn resource(&self, request: RequestId) -> Option<ResourceId> {
        self.known(request).map(|it| it.arrival.resource)
    }

    /// The class of a request that waits or runs.
    pub fn class(&self, request: RequestId) -> Option<ClassId> {
        self.known(request).map(|it| it.arrival.class)
    }

    /// Requests of a resource type at the site. Types without a window of their own have one number together.
    pub fn running(&self, resource: ResourceId) -> u32 {
        self.lane_of.get(resource.index()).map_or(0, |&lane| self.lanes[lane].running)
    }

    /// Requests of a class and a resource type at the site. Types without a window of their own have one number together.
    pub fn running_of(&self, class: ClassId, resource: ResourceId) -> u32 {
        let lane = self.lane_of.get(resource.index()).map(|&lane| &self.lanes[lane]);
        lane.and_then(|lane| lane.running_of_class.get(class.index())).copied().unwrap_or(0)
    }

    /// Requests of a class that wait for a resource type. Types without a window of their own have one queue together.
    pub fn waiting(&self, class: ClassId, resource: ResourceId) -> usize {
        let lane = self.lane_of.get(resource.index()).map(|&lane| &self.lanes[lane]);
        lane.and_then(|lane| lane.queues.get(class.index())).map_or(0, Queue::len)
    }

    /// Mean service time of the last 200 requests of a resource type, in nanoseconds; `None` before the first.
    pub fn mean_service_ns(&self, resource: ResourceId) -> Option<u64> {
        self.service.get(resource.index()).and_then(ServiceTimes::mean_ns)
    }

    /// Whether a slot is free for a request of this type, and no request waits. A share may still keep it from its class.
    pub fn is_free(&self, resource: ResourceId) -> bool {
        let lane = self.lane_of.get(resource.index()).map(|&lane| &self.lanes[lane]);
        lane.is_some_and(|lane| lane.has_room())
            && self.total().is_none_or(|total| self.running < total)
            && self.lanes.iter().all(|lane| lane.waiting == 0)
    }

    fn poll_expired(&mut self, now: Instant) -> Option<Decision> {
        let &(_, request) = self.expiries.first().filter(|(at, _)| *at <= now)?;
        let Request { arrived, arrival, .. } = self.known(request)?;
        let is_over = arrival.within_ns.is_some_and(|within_ns| arrived.add_ns(within_ns) <= now);
        self.refuse(now, request, if is_over { Refusal::TooLate } else { Refusal::WaitedTooLong })
    }

    /// Refuses late requests one at a time, or puts all of them behind those in time.
    fn poll_late(&mut self, now: Instant) -> Option<Decision> {
        while let Some(&(at, id)) = self.latest_starts.first().filter(|(at, _)| *at < now) {
            if self.refuses_late() {
                return self.refuse(now, id, Refusal::TooLate);
            }
            self.latest_starts.remove(&(at, id));
            let Some(Request { arrival, state: RequestState::Waiting(rank), .. }) = self.known(id) else { continue };
            let rank = self.lanes[self.lane_of[arrival.resource.index()]].queues[arrival.class.index()].set_late(rank);
            self.requests[id.index()].state = RequestState::Waiting(rank);
        }
        None
    }

    fn poll_start(&mut self, now: Instant) -> Option<Start> {
        let total = self.total();
        if total.is_some_and(|total| self.running >= total) {
            return None;
        }
        let mut by_idleness = core::mem::take(&mut self.by_idleness);
        by_idleness.clear();
        let may_start = |lane: &usize| self.lanes[*lane].waiting > 0 && self.lanes[*lane].has_room();
        by_idleness.extend((0..self.lanes.len()).filter(may_start));
        by_idleness.sort_by(|&a, &b| self.lanes[b].compare_idleness(&self.lanes[a], total));
        let start = by_idleness.iter().enumerate().find_map(|(i, &lane)| {
            let idlest = match (i, by_idleness.len()) {
                (0, 1) => Idlest::Only,
                (0, _) => Idlest::First,
                _ => Idlest::OthersKept,
            };
            self.start_from(now, lane, idlest)
        });
        self.by_idleness = by_idleness;
        start
    }

    fn start_from(&mut self, now: Instant, lane: usize, idlest: Idlest) -> Option<Start> {
        let mut contenders = core::mem::take(&mut self.contenders);
        contenders.clear();
        let it = &self.lanes[lane];
        for (queue, class) in it.queues.iter().zip((0..).map(ClassId)) {
            let most_running = self.settings.classes[class.index()].most_running;
            if most_running.is_some_and(|most| self.running_of_class[class.index()] >= most) {
                continue;
            }
            if let Some((Rank { late, id, .. }, _)) = queue.first(now, self.patience_ns(class)) {
                let first = &self.requests[id.index()];
                let delay =
                    if self.settings.policy.is_by_delay() { self.delay(now, it, first) } else { Delay::default() };
                contenders.push(Contender { class, cost: 1, deadline: first.deadline, late, delay });
            }
        }
        let window = it.slots().or(self.total());
        let choice = self.lanes[lane].choose(now, window, &contenders);
        self.contenders = contenders;
        let share::Choice { class, reason: share } = choice?;
        let (rank, turn) = self.lanes[lane].queues[class.index()].first(now, self.patience_ns(class))?;
        let request = self.requests[rank.id.index()];
        self.unqueue(&request);
        self.lanes[lane].queues[class.index()].take(rank, request.arrival.client);
        self.requests[rank.id.index()].state = RequestState::Running { since: now };
        self.hold(rank.id);
        self.stats[class.index()].started += 1;
        let waited_ns = now.ns_since(request.arrived);
        self.patience[class.index()].handle_stayed(0, waited_ns);
        Some(Start {
            request: rank.id,
            class,
            resource: request.arrival.resource,
            waited_ns,
            reason: Reason { idlest, share, turn },
        })
    }

    /// Most requests of all types together at this gateway.
    fn total(&self) -> Option<u32> {
        self.settings.total.map(|total| self.leased_total.unwrap_or(total))
    }

    /// How long the requests of a class have waited in a lane, of which `first` is the next to go.
    fn delay(&self, now: Instant, lane: &Lane, first: &Request) -> Delay {
        let Arrival { class, resource, .. } = first.arrival;
        let waiting = lane.queues[class.index()].len() as u32;
        let all_ns = u128::from(now.as_ns()) * u128::from(waiting);
        Delay {
            waited_ns: now.ns_since(first.arrived),
            waiting,
            // A clock that was set back makes waits too short, and never less than nothing.
            all_waited_ns: all_ns.saturating_sub(lane.arrived_ns[class.index()]),
            service_ns: self.mean_service_ns(resource).unwrap_or(0),
        }
    }

    /// No request could start, so each queue above its limit loses its last request.
    fn poll_overfull(&mut self, now: Instant) -> Option<Decision> {
        while let Some((lane, class)) = self.overfull.pop_front() {
            let queue = &self.lanes[lane].queues[class.index()];
            if queue.len() > self.settings.classes[class.index()].most_waiting as usize
                && let Some(last) = queue.last(now, self.patience_ns(class))
            {
                return self.refuse(now, last.id, Refusal::QueueFull);
            }
        }
        None
    }

    fn refuse(&mut self, now: Instant, request: RequestId, refusal: Refusal) -> Option<Decision> {
        let it = self.known(request)?;
        let RequestState::Waiting(rank) = it.state else { return None };
        self.patience[it.arrival.class.index()].handle_stayed(0, now.ns_since(it.arrived));
        self.withdraw(&it, rank);
        let stats = &mut self.stats[it.arrival.class.index()];
        match refusal {
            Refusal::WaitedTooLong => stats.refused_waited += 1,
            Refusal::TooLate => stats.refused_late += 1,
            Refusal::QueueFull | Refusal::NoSuchQueue => stats.refused_full += 1,
        }
        Some(Decision::Refuse { request, refusal })
    }

    /// How long the clients of a class are willing to wait, as far as that is known. A request is refused at
    /// [`crate::class::Class::most_wait_ns`], which is no better for its client.
    fn patience_ns(&self, class: ClassId) -> Option<u64> {
        let learned_ns = self.patience[class.index()].ns();
        let given_ns = self.settings.classes[class.index()].most_wait_ns;
        [learned_ns, given_ns].into_iter().flatten().min()
    }

    fn known(&self, request: RequestId) -> Option<Request> {
        self.requests.get(request.index()).filter(|it| it.id == request).copied()
    }

    fn refuses_late(&self) -> bool {
        self.settings.policy == Policy::Edf && self.settings.late == Late::Refuse
    }

    /// Puts a request into its class's queue.
    fn enqueue(&mut self, id: RequestId) {
        let Request { arrival, arrived, expected_ns, deadline, .. } = self.requests[id.index()];
        let (class, lane_index) = (arrival.class, self.lane_of[arrival.resource.index()]);
        let lane = &mut self.lanes[lane_index];
        // Of a class without a deadline, all come after those with one.
        let deadline_ns = match self.settings.policy {
            Policy::Edf => deadline.map_or(u64::MAX, Instant::as_ns),
            _ => 0,
        };
        let queued = QueuedRequest { id, arrived, deadline_ns, expected_ns, client: arrival.client };
        let rank = lane.queues[class.index()].insert(&queued);
        lane.waiting += 1;
        lane.arrived_ns[class.index()] += u128::from(arrived.as_ns());
        self.requests[id.index()].state = RequestState::Waiting(rank);
        if let (Some(deadline), Policy::Edf) = (deadline, self.settings.policy) {
            let latest_start = Instant::from_ns(deadline.as_ns().saturating_sub(expected_ns));
            self.latest_starts.insert((latest_start, id));
        }
        if lane.queues[class.index()].len() > self.settings.classes[class.index()].most_waiting as usize {
            self.overfull.push_back((lane_index, class));
        }
    }

    /// Removes a waiting request from everything but its queue.
    fn unqueue(&mut self, it: &Request) {
        let lane = &mut self.lanes[self.lane_of[it.arrival.resource.index()]];
        lane.waiting -= 1;
        lane.arrived_ns[it.arrival.class.index()] -= u128::from(it.arrived.as_ns());
        if let Some(expires) = it.expires {
            self.expiries.remove(&(expires, it.id));
        }
        if let Some(deadline) = it.deadline {
            let latest_start = Instant::from_ns(deadline.as_ns().saturating_sub(it.expected_ns));
            self.latest_starts.remove(&(latest_start, it.id));
        }
    }

    fn withdraw(&mut self, it: &Request, rank: Rank) {
        self.unqueue(it);
        let Arrival { class, resource, client, .. } = it.arrival;
        self.lanes[self.lane_of[resource.index()]].queues[class.index()].withdraw(rank, client);
        self.requests.remove(it.id.index());
    }

    /// Counts a running request.
    fn hold(&mut self, id: RequestId) {
        let Arrival { class, resource, .. } = self.requests[id.index()].arrival;
        let lane = &mut self.lanes[self.lane_of[resource.index()]];
        lane.running += 1;
        lane.running_of_class[class.index()] += 1;
        self.running_of_class[class.index()] += 1;
        self.running += 1;
    }

    fn release(&mut self, it: &Request) {
        let Arrival { class, resource, .. } = it.arrival;
        let lane = &mut self.lanes[self.lane_of[resource.index()]];
        lane.running -= 1;
        lane.running_of_class[class.index()] -= 1;
        self.running_of_class[class.index()] -= 1;
        self.running -= 1;
        self.requests.remove(it.id.index());
    }
}

#[cfg(test)]
mod tests;
