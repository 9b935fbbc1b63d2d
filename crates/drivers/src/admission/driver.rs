//! The scheduler behind a short lock, the clock, the timer, and the tickets of waiting requests.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use scheduler::{
    Instant,
    admission::{self as machine, ClassStats, Decision, Moves, Refusal, RequestId, ResourceId, Start},
    class::ClassId,
    control::{Finished, Probed},
};
use slab::Slab;
use tokio::sync::Notify;

use super::{
    membership::Membership,
    request::Arrival,
    routes::Routes,
    settings::{Contradiction, check, class_names, resource_names, settings},
    stats::{ResourceStats, Stats, less},
    windows::{Adjusted, Due, Windows, ns},
};
use crate::{alarm::Alarm, config::Classes, wakers::Wakers};

/// Renumberings of classes that are remembered, for requests that were classified before so many changes.
const GENERATIONS: usize = 64;

#[derive(Debug)]
pub(super) struct AdmissionDriver {
    /// The runtime's clock, which is the system's unless a test has stopped it.
    started: tokio::time::Instant,
    /// Admission is off, so no request waits.
    open: AtomicBool,
    pub(super) core: Mutex<Core>,
    alarm: Alarm,
    /// A probing request is due.
    probes: Notify,
    /// An ask for leases is due.
    pub(super) asks: Notify,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) machine: machine::Admission,
    routes: Routes,
    pub(super) windows: Windows,
    /// The leases, if the site has several gateways.
    pub(super) membership: Option<Membership>,
    /// Probing requests to send: at most one for each resource.
    due: VecDeque<Due>,
    tickets: Slab<Ticket>,
    /// The ticket of each waiting request, by its number. The scheduler reuses a number as soon as its request is
    /// refused. The request's future may be polled later, so its ticket keeps the decision.
    ticket_of: Vec<usize>,
    pub(super) armed_at: Option<Instant>,
    classes: Vec<Arc<str>>,
    resources: Vec<Arc<str>>,
    default: ClassId,
    generation: u64,
    /// For each older generation, the oldest first: the present class of each number.
    translations: VecDeque<Moves>,
    /// Counts to subtract for each class, because the scheduler adds up classes that become one.
    before: Vec<ClassStats>,
}

#[derive(Debug)]
enum Ticket {
    Waiting { request: RequestId, class: ClassId, arrived: Instant, waker: Waker },
    Decided(Outcome),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Started { request: RequestId, since: Instant, waited_ns: u64 },
    Refused { refusal: Refusal, waited_ns: u64 },
}

pub(super) enum Polled {
    Decided(Outcome),
    /// The ticket. Its waker is woken when there is an answer.
    Waits(usize),
}

impl AdmissionDriver {
    pub fn new(classes: &Classes) -> Result<Self, Contradiction> {
        // Waiting requests need no timer that is more precise than a millisecond.
        Self::with_alarm(classes, Alarm::coarse())
    }

    #[cfg(any(test, feature = "test-util"))]
    pub fn by_hand(classes: &Classes) -> Result<Self, Contradiction> {
        Self::with_alarm(classes, Alarm::ByHand(Mutex::default()))
    }

    fn with_alarm(classes: &Classes, alarm: Alarm) -> Result<Self, Contradiction> {
        check(classes)?;
        let core = Core {
            machine: machine::Admission::new(settings(classes))?,
            routes: Routes::new(),
            windows: Windows::new(classes)?,
            membership: None,
            due: VecDeque::new(),
            tickets: Slab::new(),
            ticket_of: Vec::new(),
            armed_at: None,
            classes: class_names(classes),
            resources: resource_names(classes),
            default: classes.default,
            generation: 0,
            translations: VecDeque::new(),
            before: vec![ClassStats::default(); classes.classes.len()],
        };
        Ok(Self {
            started: tokio::time::Instant::now(),
            open: AtomicBool::new(!classes.admission.enabled),
            core: Mutex::new(core),
            alarm,
            probes: Notify::new(),
            asks: Notify::new(),
        })
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    pub async fn drive(&self) {
        // Probing requests are also sent while no request arrives.
        self.turn();
        self.alarm.listen(|| self.turn()).await;
    }

    #[cfg(any(test, feature = "test-util"))]
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.alarm.due()
    }

    #[cfg(any(test, feature = "test-util"))]
    pub fn ring(&self) {
        self.alarm.unset();
        self.turn();
    }

    /// A request has arrived.
    pub fn arrived(&self, arrival: Arrival, generation: u64, waker: &Waker) -> Polled {
        let (asked, wakers) = {
            let mut core = self.core.lock();
            let now = self.now();
            let (class, resource) = core.translate(arrival.class, arrival.resource, generation);
            let expected_ns = core.routes.expected_ns(arrival.route);
            let (client, within_ns) = (arrival.client, arrival.within.map(ns));
            let arrival = machine::Arrival { class, resource, client, expected_ns, within_ns };
            match core.machine.handle_arrived(now, arrival) {
                Ok(request) => match self.pump(&mut core, now, Some((request, class))) {
                    (Some(outcome), wakers) => (Polled::Decided(outcome), wakers),
                    (None, wakers) => {
                        let ticket = Ticket::Waiting { request, class, arrived: now, waker: waker.clone() };
                        (Polled::Waits(core.wait(request, ticket)), wakers)
                    }
                },
                Err(refusal) => {
                    core.tell_refused(now, class, refusal, 0);
                    (Polled::Decided(Outcome::Refused { refusal, waited_ns: 0 }), Wakers::default())
                }
            }
        };
        wakers.wake();
        asked
    }

    /// A request arrives that does not wait. `None`: another one waits, or there is no slot for it.
    pub fn arrived_at_once(&self, arrival: Arrival, generation: u64) -> Option<Outcome> {
        let (outcome, wakers) = {
            let mut core = self.core.lock();
            let now = self.now();
            let (class, resource) = core.translate(arrival.class, arrival.resource, generation);
            if !core.machine.is_free(resource) {
                return None;
            }
            let expected_ns = core.routes.expected_ns(arrival.route);
            let (client, within_ns) = (arrival.client, arrival.within.map(ns));
            let arrival = machine::Arrival { class, resource, client, expected_ns, within_ns };
            let request = core.machine.handle_arrived(now, arrival).ok()?;
            let (outcome, wakers) = self.pump(&mut core, now, Some((request, class)));
            if outcome.is_none() {
                core.machine.handle_given_up(request);
            }
            (outcome, wakers)
        };
        wakers.wake();
        outcome
    }

    /// A waiting request is polled.
    pub fn asked(&self, ticket: usize, waker: &Waker) -> Polled {
        // Dropping a waker may drop a whole task with all that it owns, so it is not done under the lock.
        let _old;
        let mut core = self.core.lock();
        match &mut core.tickets[ticket] {
            Ticket::Waiting { waker: current, .. } => {
                if !current.will_wake(waker) {
                    _old = std::mem::replace(current, waker.clone());
                }
                Polled::Waits(ticket)
            }
            Ticket::Decided(outcome) => {
                let outcome = *outcome;
                core.tickets.remove(ticket);
                Polled::Decided(outcome)
            }
        }
    }

    /// A request stops waiting. If it was admitted but not polled since, its slot becomes free.
    pub fn given_up(&self, ticket: usize) {
        let (_ticket, wakers) = {
            let mut core = self.core.lock();
            let ticket = core.tickets.remove(ticket);
            let request = match &ticket {
                Ticket::Waiting { request, .. } | Ticket::Decided(Outcome::Started { request, .. }) => *request,
                Ticket::Decided(Outcome::Refused { .. }) => return,
            };
            (ticket, self.leave(&mut core, request))
        };
        wakers.wake();
    }

    /// The client of an admitted request is gone.
    pub fn gone(&self, request: RequestId) {
        let wakers = self.leave(&mut self.core.lock(), request);
        wakers.wake();
    }

    /// The site could not serve a request.
    pub fn failed(&self, request: RequestId, route: u64, since: Instant) {
        let wakers = {
            let mut core = self.core.lock();
            let now = self.now();
            core.ended(now, request, route, since, false);
            core.machine.handle_given_up(request);
            tracing::trace!(at_ns = now.as_ns(), ?request, "failed");
            self.pump(&mut core, now, None).1
        };
        wakers.wake();
    }

    /// The site is done with a request. `done`: it has served it. Returns the service time.
    pub fn finished(&self, request: RequestId, route: u64, since: Instant, done: bool) -> Duration {
        let (service, wakers) = {
            let mut core = self.core.lock();
            let now = self.now();
            core.routes.learn(route, now.ns_since(since));
            core.ended(now, request, route, since, done);
            core.machine.handle_finished(now, request);
            tracing::trace!(at_ns = now.as_ns(), ?request, "finished");
            (now - since, self.pump(&mut core, now, None).1)
        };
        wakers.wake();
        service
    }

    /// The next probing request to send, and the resource that it mainly needs.
    pub async fn probe(&self) -> (Due, Arc<str>) {
        loop {
            let due = {
                let mut core = self.core.lock();
                core.due.pop_front().map(|due| (due, core.resources[due.resource.index()].clone()))
            };
            match due {
                Some(due) => return due,
                None => self.probes.notified().await,
            }
        }
    }

    /// A probing request has ended.
    pub fn probed(&self, due: Due, probed: Probed) {
        let wakers = {
            let mut core = self.core.lock();
            let now = self.now();
            core.windows.handle_probed(now, due, probed);
            self.pump(&mut core, now, None).1
        };
        wakers.wake();
    }

    /// The generation of the numbers in force from now on.
    pub fn reconfigure(&self, classes: &Classes) -> Result<u64, Contradiction> {
        let (generation, wakers) = {
            let mut core = self.core.lock();
            let now = self.now();
            core.reconfigure(now, classes)?;
            self.open.store(!classes.admission.enabled, Relaxed);
            (core.generation, self.pump(&mut core, now, None).1)
        };
        wakers.wake();
        Ok(generation)
    }

    pub fn stats(&self) -> Stats {
        let core = self.core.lock();
        let of_class = |(id, name): (usize, &Arc<str>)| (name.clone(), core.class_stats(id));
        let of_resource = |(id, name): (u16, &Arc<str>)| ResourceStats {
            name: name.clone(),
            window: core.machine.settings().windows[usize::from(id)],
            running: core.machine.running(ResourceId(id)),
            window_changes: core.windows.changes(ResourceId(id)),
            mean_service: core.machine.mean_service_ns(ResourceId(id)).map(Duration::from_nanos),
        };
        Stats {
            classes: core.classes.iter().enumerate().map(of_class).collect(),
            resources: (0..).zip(&core.resources).map(of_resource).collect(),
            leases: core.membership.as_ref().map(|membership| membership.stats(self.now())),
        }
    }

    pub fn decisions(&self) -> Vec<Adjusted> {
        self.core.lock().windows.decisions(self.now())
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The alarm has fired.
    fn turn(&self) {
        let wakers = {
            let mut core = self.core.lock();
            core.armed_at = None;
            let now = self.now();
            self.pump(&mut core, now, None).1
        };
        wakers.wake();
    }

    fn leave(&self, core: &mut Core, request: RequestId) -> Wakers {
        let now = self.now();
        core.machine.handle_gone(now, request);
        tracing::trace!(at_ns = now.as_ns(), ?request, "gone");
        self.pump(core, now, None).1
    }

    /// Carries out the decisions about requests and windows, and sets the alarm for later ones. `newcomer` has no
    /// ticket yet, so the decision about it is returned.
    pub(super) fn pump(
        &self,
        core: &mut Core,
        now: Instant,
        newcomer: Option<(RequestId, ClassId)>,
    ) -> (Option<Outcome>, Wakers) {
        let mut wakers = Wakers::default();
        let mut answer = None;
        core.before_decisions(now);
        loop {
            answer = self.decide(core, now, newcomer, &mut wakers).or(answer);
            // A larger window admits more requests.
            if !core.windows.adjust(now, &mut core.machine) {
                break;
            }
        }
        while let Some(due) = core.windows.poll_probe(now) {
            core.due.push_back(due);
            self.probes.notify_one();
        }
        let of_leases = core.after_decisions(now).map(|(asks, timeout)| {
            if asks {
                self.asks.notify_one();
            }
            timeout
        });
        let timeouts = [core.machine.poll_timeout(), core.windows.poll_timeout(), of_leases.flatten()];
        if let Some(at) = timeouts.into_iter().flatten().min()
            && core.armed_at.is_none_or(|armed_at| at < armed_at || armed_at < now)
        {
            core.armed_at = Some(at);
            self.alarm.set(at - now);
        }
        (answer, wakers)
    }

    /// Carries out the scheduler's decisions.
    fn decide(
        &self,
        core: &mut Core,
        now: Instant,
        newcomer: Option<(RequestId, ClassId)>,
        wakers: &mut Wakers,
    ) -> Option<Outcome> {
        let mut answer = None;
        while let Some(decision) = core.machine.poll_decision(now) {
            let (Decision::Start(Start { request, .. }) | Decision::Refuse { request, .. }) = decision;
            let (ticket, class, arrived) = match newcomer {
                Some((newcomer, class)) if newcomer == request => (None, class, now),
                _ => {
                    let ticket = core.ticket_of[request.index()];
                    let Ticket::Waiting { class, arrived, .. } = core.tickets[ticket] else {
                        unreachable!("one decision for each request")
                    };
                    (Some(ticket), class, arrived)
                }
            };
            let outcome = match decision {
                Decision::Start(start) => {
                    core.tell_started(now, &start);
                    if let Some(membership) = &mut core.membership {
                        membership.handle_started(&start);
                    }
                    Outcome::Started { request, since: now, waited_ns: start.waited_ns }
                }
                Decision::Refuse { refusal, .. } => {
                    let waited_ns = now.ns_since(arrived);
                    core.tell_refused(now, class, refusal, waited_ns);
                    Outcome::Refused { refusal, waited_ns }
                }
            };
            let Some(ticket) = ticket else {
                answer = Some(outcome);
                continue;
            };
            if let Ticket::Waiting { waker, .. } =
                std::mem::replace(&mut core.tickets[ticket], Ticket::Decided(outcome))
            {
                wakers.extend(Some(waker));
            }
        }
        answer
    }
}

impl Core {
    /// Tells the scheduler which slots this gateway has.
    fn before_decisions(&mut self, now: Instant) {
        if let Some(membership) = &mut self.membership {
            membership.before(now, &mut self.machine, &mut self.windows);
        }
    }

    /// Tells the leases what waits and runs. Returns whether there is an ask to send, and when to look again; `None` without
    /// leases.
    fn after_decisions(&mut self, now: Instant) -> Option<(bool, Option<Instant>)> {
        let membership = self.membership.as_mut()?;
        let asks = membership.after(now, &self.machine, &self.windows);
        Some((asks, membership.poll_timeout(now)))
    }

    fn wait(&mut self, request: RequestId, ticket: Ticket) -> usize {
        let ticket = self.tickets.insert(ticket);
        if self.ticket_of.len() <= request.index() {
            self.ticket_of.resize(request.index() + 1, usize::MAX);
        }
        self.ticket_of[request.index()] = ticket;
        ticket
    }

    /// Translates the numbers of a generation into those in force.
    fn translate(&self, class: ClassId, resource: ResourceId, generation: u64) -> (ClassId, ResourceId) {
        let Some(age) = self.generation.checked_sub(generation).filter(|&age| age > 0) else {
            return (class, resource);
        };
        let moves = usize::try_from(age).ok().and_then(|age| self.translations.len().checked_sub(age));
        let Some(moves) = moves.map(|at| &self.translations[at]) else { return (self.default, ResourceId(0)) };
        // The scheduler refuses a number that no generation has.
        let class = moves.classes.get(class.index()).copied().unwrap_or(ClassId(u16::MAX));
        let resource = moves.resources.get(resource.index()).copied().unwrap_or(ResourceId(u16::MAX));
        (class, resource)
    }

    /// The site is done with a request, or has failed it.
    fn ended(&mut self, now: Instant, request: RequestId, route: u64, since: Instant, done: bool) {
        if let Some(resource) = self.machine.resource(request) {
            let finished = Finished { resource, route, service_ns: now.ns_since(since), done };
            self.windows.handle_finished(now, &finished);
            if let (Some(membership), Some(class)) = (&mut self.membership, self.machine.class(request)) {
                membership.handle_finished(&finished, class);
            }
        }
    }

    fn reconfigure(&mut self, now: Instant, classes: &Classes) -> Result<(), Contradiction> {
        check(classes)?;
        let (class_names, resource_names) = (class_names(classes), resource_names(classes));
        let place = |names: &[Arc<str>], name: &Arc<str>| names.iter().position(|it| it == name);
        let moves = Moves {
            classes: (self.classes.iter())
                .map(|name| place(&class_names, name).map_or(classes.default, |at| ClassId(at as u16)))
                .collect(),
            resources: (self.resources.iter())
                .map(|name| ResourceId(place(&resource_names, name).unwrap_or(0) as u16))
                .collect(),
        };
        let counted: Vec<_> = (0..self.classes.len()).map(|class| self.class_stats(class)).collect();
        if self.windows.reconfigure(classes)? {
            self.due.clear();
        }
        let mut settings = settings(classes);
        for (window, id) in settings.windows.iter_mut().zip((0..).map(ResourceId)) {
            *window = self.windows.window(id).or(*window);
        }
        // The settings were checked, so this does not fail.
        self.machine.handle_settings(settings, &moves)?;
        if let Some(membership) = &mut self.membership {
            membership.reconfigure(now, self.machine.settings(), classes);
        }
        for ticket in self.tickets.iter_mut() {
            if let (_, Ticket::Waiting { class, .. }) = ticket {
                *class = moves.classes[class.index()];
            }
        }
        let before = (0..).zip(&class_names).map(|(id, name)| {
            let all = self.machine.class_stats(ClassId(id));
            place(&self.classes, name).map_or(all, |old| less(&all, &counted[old]))
        });
        self.before = before.collect();
        if class_names != self.classes || resource_names != self.resources {
            for older in &mut self.translations {
                older.classes.iter_mut().for_each(|class| *class = moves.classes[class.index()]);
                older.resources.iter_mut().for_each(|resource| *resource = moves.resources[resource.index()]);
            }
            self.translations.push_back(moves);
            if self.translations.len() > GENERATIONS {
                self.translations.pop_front();
            }
            self.generation += 1;
        }
        (self.classes, self.resources, self.default) = (class_names, resource_names, classes.default);
        Ok(())
    }

    fn class_stats(&self, class: usize) -> ClassStats {
        less(&self.machine.class_stats(ClassId(class as u16)), &self.before[class])
    }

    fn name(&self, class: ClassId) -> &str {
        self.classes.get(class.index()).map_or("?", |name| name)
    }

    /// Decisions are logged at a level that is normally off. When it is on, the log is written under the lock.
    fn tell_started(&self, now: Instant, start: &Start) {
        let Start { request, class, resource, waited_ns, reason } = start;
        let (class, resource) = (self.name(*class), resource.0);
        tracing::trace!(at_ns = now.as_ns(), ?request, class, resource, waited_ns, ?reason, "started");
    }

    fn tell_refused(&self, now: Instant, class: ClassId, refusal: Refusal, waited_ns: u64) {
        tracing::trace!(at_ns = now.as_ns(), class = self.name(class), waited_ns, ?refusal, "refused");
    }
}

#[cfg(test)]
impl AdmissionDriver {
    /// Adjusts windows by this controller from now on.
    pub fn adjusted_by(&self, control: Box<dyn scheduler::control::Controller + Send>) {
        self.core.lock().windows.adjusted_by(control);
    }

    /// Holds back all answers until it is dropped.
    pub fn lock_for_test(&self) -> impl Drop + '_ {
        self.core.lock()
    }

    /// The number of tickets, and of decided ones.
    pub fn tickets(&self) -> (usize, usize) {
        let core = self.core.lock();
        let decided = core.tickets.iter().filter(|(_, ticket)| matches!(ticket, Ticket::Decided(_)));
        (core.tickets.len(), decided.count())
    }

    /// The number of admitted requests that have not been polled since.
    pub fn given(&self) -> usize {
        let core = self.core.lock();
        let given = core.tickets.iter().filter(|(_, it)| matches!(it, Ticket::Decided(Outcome::Started { .. })));
        given.count()
    }

    /// Whether a ticket is decided.
    pub fn is_decided(&self, ticket: usize) -> bool {
        matches!(self.core.lock().tickets[ticket], Ticket::Decided(_))
    }
}
