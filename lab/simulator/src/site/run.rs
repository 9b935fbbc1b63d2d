//! Runs a scenario event by event: clients, gateway and site.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use scheduler::{
    Instant,
    admission::{Admission, Arrival, Decision, RequestId, ResourceId},
    class::ClassId,
    control::{Controller, Finished, Load as Busy, Probed},
};

use super::{
    error::ScenarioError,
    events::{EventKind, Events},
    finished::{End, FinishedRequest},
    scenario::{Demand, Law, Load, Scenario},
    station::{Site, Visit},
    tally::{Report, StationUse, WindowUse},
};
use crate::Ticket;

/// Runs a checked scenario.
pub(super) fn run(
    scenario: &Scenario,
    events: &Events,
    sink: impl FnMut(FinishedRequest),
) -> Result<Report, ScenarioError> {
    let until_ns = scenario.warm_up_ns + scenario.measured_ns;
    let mut run = Run::new(scenario, events, sink)?;
    while let Some(now_ns) = run.next_event_ns().filter(|&now_ns| now_ns <= until_ns) {
        run.turn(now_ns);
    }
    Ok(run.close(until_ns))
}

struct Run<'a, F> {
    scenario: &'a Scenario,
    sink: F,
    admission: Admission,
    site: Site,
    report: Report,
    /// The clients: each open load, and each user of a closed one.
    clients: Vec<Client>,
    /// Next requests: time and number of the client.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// When clients that wait lose patience.
    patience: BTreeSet<(u64, Ticket)>,
    /// By ticket, which is the index of the request's id.
    requests: Vec<Option<InFlight>>,
    /// By class and resource type.
    gauges: Vec<Vec<Gauge>>,
    adjusting: Adjusting<'a>,
}

/// State of the events of a run.
struct Adjusting<'a> {
    events: &'a Events,
    control: Option<Box<dyn Controller + Send>>,
    /// Number of events that have happened.
    happened: usize,
    now_ns: u64,
    /// By station and by load.
    failing: Vec<bool>,
    silent: Vec<bool>,
    /// Start times of probing requests under way, by resource type.
    probing: Vec<Option<u64>>,
    /// By resource type: the use of its window, the window, and the time of the last change.
    windows: Vec<(WindowUse, u32, u64)>,
}

/// A probing request without an answer for this long has failed.
const PROBE_LIMIT_NS: u64 = 30_000_000_000;

struct Client {
    load: usize,
    random: ChaCha8Rng,
}

struct InFlight {
    id: RequestId,
    client: usize,
    arrived_ns: u64,
    started_ns: Option<u64>,
    gives_up_ns: Option<u64>,
    visits: Vec<Visit>,
    /// The site will answer with an error.
    fails: bool,
}

/// The current counts, and the time of the last change.
#[derive(Clone, Copy, Default)]
struct Gauge {
    waiting: u64,
    running: u64,
    since_ns: u64,
}

impl<'a, F: FnMut(FinishedRequest)> Run<'a, F> {
    fn new(scenario: &'a Scenario, events: &'a Events, sink: F) -> Result<Self, ScenarioError> {
        let admission = Admission::new(scenario.admission.clone()).map_err(ScenarioError::Admission)?;
        let (classes, resources) = (scenario.admission.classes.len(), scenario.admission.windows.len());
        let mut run = Self {
            scenario,
            sink,
            admission,
            site: Site::new(&scenario.stations)?,
            report: Report::new(classes, resources, scenario.measured_ns),
            clients: Vec::new(),
            due: BinaryHeap::new(),
            patience: BTreeSet::new(),
            requests: Vec::new(),
            gauges: vec![vec![Gauge::default(); resources]; classes],
            adjusting: Adjusting {
                events,
                control: events.control.as_ref().map(|it| it.build().map_err(ScenarioError::Control)).transpose()?,
                happened: 0,
                now_ns: 0,
                failing: vec![false; scenario.stations.len()],
                silent: vec![false; scenario.loads.len()],
                probing: vec![None; resources],
                windows: Vec::new(),
            },
        };
        if let Some(control) = &run.adjusting.control {
            let windows =
                (0..resources as u16).map(|it| control.window(ResourceId(it)).unwrap_or(0)).collect::<Vec<_>>();
            for (window, resource) in windows.into_iter().zip((0..).map(ResourceId)) {
                if window > 0 {
                    run.admission.handle_window(resource, window);
                }
                run.adjusting.windows.push((
                    WindowUse { least: window, most: window, ..WindowUse::default() },
                    window,
                    0,
                ));
            }
        }
        for (load, it) in scenario.loads.iter().enumerate() {
            let clients = match it.demand {
                Demand::Open { .. } => 1,
                Demand::Closed { users, .. } => users,
            };
            for number in 0..clients {
                let mut random = ChaCha8Rng::seed_from_u64(scenario.seed);
                random.set_stream((load as u64) << 32 | u64::from(number));
                run.clients.push(Client { load, random });
                run.ask_later(0, run.clients.len() - 1);
            }
        }
        Ok(run)
    }

    fn next_event_ns(&self) -> Option<u64> {
        let due_ns = self.due.peek().map(|Reverse((at_ns, _))| *at_ns);
        let gives_up_ns = self.patience.first().map(|&(at_ns, _)| at_ns);
        let decides_ns = self.admission.poll_timeout().map(Instant::as_ns);
        let next_ns = [due_ns, gives_up_ns, decides_ns, self.site.poll_timeout(), self.adjusting.next_ns()];
        Some(next_ns.into_iter().flatten().min()?.max(self.adjusting.now_ns))
    }

    fn turn(&mut self, now_ns: u64) {
        while let Some((ticket, end_ns)) = self.site.poll_end(now_ns) {
            if self.adjusting.probed(end_ns, ticket) {
                continue;
            }
            if let Some(request) = self.take(ticket) {
                self.admission.handle_finished(Instant::from_ns(end_ns), request.id);
                self.finished(end_ns, &request);
                self.end(end_ns, &request, if request.fails { End::Failed } else { End::Done });
            }
        }
        self.happen(now_ns);
        while let Some(&(_, ticket)) = self.patience.first().filter(|(at_ns, _)| *at_ns <= now_ns) {
            // Removes it from `patience` too.
            let Some(request) = self.take(ticket) else { break };
            if request.started_ns.is_some() {
                self.site.handle_abort(now_ns, ticket);
            }
            self.admission.handle_gone(Instant::from_ns(now_ns), request.id);
            self.end(now_ns, &request, End::Gone);
        }
        while let Some(&Reverse((_, client))) = self.due.peek().filter(|Reverse((at_ns, _))| *at_ns <= now_ns) {
            self.due.pop();
            self.ask(now_ns, client);
        }
        self.decide(now_ns);
        while self.adjust(now_ns) {
            self.decide(now_ns);
        }
    }

    fn decide(&mut self, now_ns: u64) {
        while let Some(decision) = self.admission.poll_decision(Instant::from_ns(now_ns)) {
            match decision {
                Decision::Start(start) => self.start(now_ns, ticket(start.request)),
                Decision::Refuse { request, .. } => {
                    if let Some(request) = self.take(ticket(request)) {
                        self.end(now_ns, &request, End::Refused);
                    }
                }
            }
        }
    }

    fn ask(&mut self, now_ns: u64, client: usize) {
        let load = self.load(client);
        if self.adjusting.silent[self.clients[client].load] {
            self.ask_later(now_ns, client);
            return;
        }
        let random = &mut self.clients[client].random;
        let draw = |need: &super::Need| Visit { station: need.station, work_ns: need.law.draw(need.mean_ns, random) };
        let visits = load.needs.iter().map(draw).collect();
        let expected_ns = Some(load.needs.iter().fold(0, |sum: u64, need| sum.saturating_add(need.mean_ns)));
        if matches!(load.demand, Demand::Open { .. }) {
            self.ask_later(now_ns, client);
        }
        let Load { class, resource, .. } = *load;
        let arrival = Arrival { class, resource, client: client as u64, expected_ns, within_ns: None };
        let arrived = self.admission.handle_arrived(Instant::from_ns(now_ns), arrival);
        let Ok(id) = arrived else {
            self.tell(
                now_ns,
                load,
                client,
                FinishedRequest {
                    load: self.clients[client].load,
                    class,
                    resource,
                    arrived_ns: now_ns,
                    started_ns: None,
                    end_ns: now_ns,
                    end: End::Refused,
                },
            );
            return;
        };
        let gives_up_ns = load.patience_ns.map(|patience_ns| now_ns.saturating_add(patience_ns));
        self.patience.extend(gives_up_ns.map(|at_ns| (at_ns, ticket(id))));
        if self.requests.len() <= id.index() {
            self.requests.resize_with(id.index() + 1, || None);
        }
        self.requests[id.index()] =
            Some(InFlight { id, client, arrived_ns: now_ns, started_ns: None, gives_up_ns, visits, fails: false });
        self.count(now_ns, load, |gauge| gauge.waiting += 1);
    }

    fn start(&mut self, now_ns: u64, ticket: Ticket) {
        let Some(request) = &mut self.requests[ticket.0 as usize] else { return };
        request.started_ns = Some(now_ns);
        let (client, mut visits) = (request.client, std::mem::take(&mut request.visits));
        if let Some(at) = visits.iter().position(|visit| self.adjusting.failing[visit.station]) {
            visits.truncate(at);
            request.fails = true;
        }
        self.site.handle_started(now_ns, ticket, visits);
        self.count(now_ns, self.load(client), |gauge| {
            gauge.waiting -= 1;
            gauge.running += 1;
        });
    }

    /// Reports a finished request to the controller.
    fn finished(&mut self, end_ns: u64, request: &InFlight) {
        let load = self.load(request.client);
        let (Some(control), Some(started_ns)) = (&mut self.adjusting.control, request.started_ns) else { return };
        let route = self.clients[request.client].load as u64;
        let service_ns = end_ns.saturating_sub(started_ns);
        let finished = Finished { resource: load.resource, route, service_ns, done: !request.fails };
        control.handle_finished(Instant::from_ns(end_ns), &finished);
    }

    /// Applies the events that are due.
    fn happen(&mut self, now_ns: u64) {
        self.adjusting.now_ns = now_ns;
        let events = self.adjusting.events;
        while let Some(event) = events.at_site.get(self.adjusting.happened).filter(|event| event.at_ns <= now_ns) {
            self.adjusting.happened += 1;
            match event.kind {
                EventKind::Curve { station, curve, pace } => {
                    self.site.handle_curve(now_ns, station, curve, pace).expect("the events was checked");
                }
                EventKind::Failing { station, failing } => self.adjusting.failing[station] = failing,
                EventKind::Asking { load, asking } => self.adjusting.silent[load] = !asking,
            }
        }
    }

    /// Lets the controller adjust the windows; returns whether any changed.
    fn adjust(&mut self, now_ns: u64) -> bool {
        let Adjusting { events, control: Some(control), failing, probing, windows, .. } = &mut self.adjusting else {
            return false;
        };
        let now = Instant::from_ns(now_ns);
        for (since, resource) in probing.iter_mut().zip((0..).map(ResourceId)) {
            if since.is_some_and(|since_ns| now_ns - since_ns >= PROBE_LIMIT_NS) {
                *since = None;
                self.site.handle_abort(now_ns, probe_ticket(resource));
                control.handle_probed(now, resource, Probed::Failed);
            }
        }
        while let Some(resource) = control.poll_probe(now) {
            let needs = events.probes.get(resource.index()).map_or(&[][..], Vec::as_slice);
            if needs.iter().any(|need| failing[need.station]) {
                control.handle_probed(now, resource, Probed::Failed);
                continue;
            }
            let visits =
                needs.iter().map(|need| Visit { station: need.station, work_ns: need.mean_ns as f64 }).collect();
            probing[resource.index()] = Some(now_ns);
            self.site.handle_started(now_ns, probe_ticket(resource), visits);
        }
        for resource in (0..windows.len() as u16).map(ResourceId) {
            let classes = (0..self.scenario.admission.classes.len() as u16).map(ClassId);
            let waiting = classes.map(|class| self.admission.waiting(class, resource)).any(|waiting| waiting > 0);
            control.handle_load(now, resource, Busy { running: self.admission.running(resource), waiting });
        }
        let mut changed = false;
        while let Some(change) = control.poll_window(now) {
            changed = true;
            self.admission.handle_window(change.resource, change.window);
            count_window(&mut windows[change.resource.index()], self.scenario.warm_up_ns, now_ns, Some(change.window));
        }
        changed
    }

    /// Removes a request from all collections.
    fn take(&mut self, ticket: Ticket) -> Option<InFlight> {
        let request = self.requests.get_mut(ticket.0 as usize)?.take()?;
        if let Some(at_ns) = request.gives_up_ns {
            self.patience.remove(&(at_ns, ticket));
        }
        Some(request)
    }

    fn end(&mut self, now_ns: u64, request: &InFlight, end: End) {
        let load = self.load(request.client);
        self.count(now_ns, load, |gauge| match request.started_ns {
            Some(_) => gauge.running -= 1,
            None => gauge.waiting -= 1,
        });
        let &InFlight { client, arrived_ns, started_ns, .. } = request;
        let Load { class, resource, .. } = *load;
        let number = self.clients[client].load;
        let request = FinishedRequest { load: number, class, resource, arrived_ns, started_ns, end_ns: now_ns, end };
        self.tell(now_ns, load, client, request);
    }

    /// Counts a finished request, and lets its user continue.
    fn tell(&mut self, now_ns: u64, load: &Load, client: usize, request: FinishedRequest) {
        if now_ns >= self.scenario.warm_up_ns {
            self.report.cell_mut(load.class, load.resource).add(&request);
        }
        (self.sink)(request);
        if matches!(load.demand, Demand::Closed { .. }) {
            self.ask_later(now_ns, client);
        }
    }

    fn ask_later(&mut self, now_ns: u64, client: usize) {
        let mean_ns = match self.load(client).demand {
            Demand::Open { per_second } => 1e9 / per_second,
            Demand::Closed { think_ns, .. } => think_ns as f64,
        };
        let gap_ns = exponential(mean_ns, &mut self.clients[client].random) as u64;
        let load = self.load(client);
        let silence = load.silent_ns.clone().filter(|silent| silent.contains(&now_ns.saturating_add(gap_ns)));
        let at_ns = match (silence, load.demand) {
            (None, _) => now_ns.saturating_add(gap_ns),
            (Some(silent), Demand::Closed { .. }) => silent.end,
            // Random arrivals have no memory: they continue at the end of the silence.
            (Some(silent), Demand::Open { .. }) => silent.end.saturating_add(gap_ns),
        };
        self.due.push(Reverse((at_ns, client)));
    }

    fn load(&self, client: usize) -> &'a Load {
        &self.scenario.loads[self.clients[client].load]
    }

    fn count(&mut self, now_ns: u64, load: &Load, change: impl FnOnce(&mut Gauge)) {
        let gauge = &mut self.gauges[load.class.index()][load.resource.index()];
        let tally = self.report.cell_mut(load.class, load.resource);
        let from_ns = gauge.since_ns.max(self.scenario.warm_up_ns);
        tally.add_time(gauge.waiting, gauge.running, now_ns.saturating_sub(from_ns));
        gauge.since_ns = now_ns;
        change(gauge);
    }

    fn close(mut self, until_ns: u64) -> Report {
        for window in &mut self.adjusting.windows {
            count_window(window, self.scenario.warm_up_ns, until_ns, None);
            window.0.mean /= self.scenario.measured_ns as f64;
            self.report.windows.push(window.0);
        }
        for load in &self.scenario.loads {
            self.count(until_ns, load, |_| {});
        }
        for number in 0..self.scenario.stations.len() {
            if let Some((_, present, capacity)) = self.site.station(until_ns, number) {
                self.report.stations.push(StationUse { present, capacity });
            }
        }
        self.report
    }
}

impl Adjusting<'_> {
    fn next_ns(&self) -> Option<u64> {
        let happens_ns = self.events.at_site.get(self.happened).map(|event| event.at_ns);
        let adjusts_ns = self.control.as_ref().and_then(|control| control.poll_timeout()).map(Instant::as_ns);
        let probes_ns = self.probing.iter().flatten().map(|since_ns| since_ns + PROBE_LIMIT_NS).min();
        [happens_ns, adjusts_ns, probes_ns].into_iter().flatten().min()
    }

    /// Handles the end of a probing request; returns false if it was an ordinary one.
    fn probed(&mut self, end_ns: u64, ticket: Ticket) -> bool {
        let number = (u32::MAX - ticket.0) as usize;
        let Some(since_ns) = self.probing.get_mut(number).and_then(Option::take) else { return false };
        if let Some(control) = &mut self.control {
            let probed = Probed::Answered { service_ns: end_ns - since_ns };
            control.handle_probed(Instant::from_ns(end_ns), ResourceId(number as u16), probed);
        }
        true
    }
}

fn count_window((it, window, since_ns): &mut (WindowUse, u32, u64), warm_up_ns: u64, now_ns: u64, next: Option<u32>) {
    let counted_ns = now_ns.saturating_sub((*since_ns).max(warm_up_ns));
    it.mean += f64::from(*window) * counted_ns as f64;
    *since_ns = now_ns;
    let Some(next) = next else { return };
    if now_ns < warm_up_ns {
        (it.least, it.most) = (next, next);
    } else {
        (it.least, it.most, it.changes) = (it.least.min(next), it.most.max(next), it.changes + 1);
    }
    *window = next;
}

impl Law {
    pub(super) fn draw(self, mean_ns: u64, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Fixed => mean_ns as f64,
            Self::Exponential => exponential(mean_ns as f64, random),
            Self::Spread(per_cent) => {
                let deviation = f64::from(per_cent) / 100.0;
                let variance = libm::log(1.0 + deviation * deviation);
                let normal: f64 = StandardNormal.sample(random);
                mean_ns as f64 * libm::exp(normal * libm::sqrt(variance) - variance / 2.0)
            }
        }
    }
}

fn exponential(mean: f64, random: &mut ChaCha8Rng) -> f64 {
    let unit: f64 = Exp1.sample(random);
    unit * mean
}

/// The tickets of probing requests, far from those of other requests, which are small.
fn probe_ticket(resource: ResourceId) -> Ticket {
    Ticket(u32::MAX - u32::from(resource.0))
}

fn ticket(request: RequestId) -> Ticket {
    // The index fits: there are fewer than 2^32 requests.
    Ticket(request.index() as u32)
}
