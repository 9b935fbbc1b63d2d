//! A run: clients, gateway and site, from event to event.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use scheduler::{
    Instant,
    admission::{Admission, Arrival, Decision, RequestId, ResourceId},
    class::ClassId,
};

use super::{Demand, Law, Load, Report, Scenario, ScenarioError, Site, StationUse, Visit};
use crate::Ticket;

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Number of its load in the scenario.
    pub load: usize,
    /// Its class.
    pub class: ClassId,
    /// Its resource type.
    pub resource: ResourceId,
    /// When it came, in nanoseconds since the start.
    pub arrived_ns: u64,
    /// When it was let in; `None` if it was not.
    pub started_ns: Option<u64>,
    /// When it ended.
    pub end_ns: u64,
    /// How.
    pub end: End,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The site did its work.
    Done,
    /// The gateway refused it.
    Refused,
    /// Its client gave it up.
    Gone,
}

/// Runs a scenario that was checked.
pub(super) fn run(scenario: &Scenario, sink: impl FnMut(Passage)) -> Result<Report, ScenarioError> {
    let until_ns = scenario.warm_up_ns + scenario.measured_ns;
    let mut run = Run::new(scenario, sink)?;
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
    /// Who asks: each open load, and each user of a closed one.
    clients: Vec<Client>,
    /// When each asks next: time and number of the client.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// When clients that wait lose patience.
    patience: BTreeSet<(u64, Ticket)>,
    /// By ticket, which is the index of the request's name.
    requests: Vec<Option<Asked>>,
    /// By class and resource type.
    gauges: Vec<Vec<Gauge>>,
}

struct Client {
    load: usize,
    random: ChaCha8Rng,
}

struct Asked {
    id: RequestId,
    client: usize,
    arrived_ns: u64,
    started_ns: Option<u64>,
    gives_up_ns: Option<u64>,
    visits: Vec<Visit>,
}

/// How many there are now, and since when.
#[derive(Clone, Copy, Default)]
struct Gauge {
    waiting: u64,
    running: u64,
    since_ns: u64,
}

impl<'a, F: FnMut(Passage)> Run<'a, F> {
    fn new(scenario: &'a Scenario, sink: F) -> Result<Self, ScenarioError> {
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
        };
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
        [due_ns, gives_up_ns, decides_ns, self.site.poll_timeout()].into_iter().flatten().min()
    }

    fn turn(&mut self, now_ns: u64) {
        while let Some((ticket, end_ns)) = self.site.poll_end(now_ns) {
            if let Some(asked) = self.take(ticket) {
                self.admission.handle_finished(Instant::from_ns(end_ns), asked.id);
                self.end(end_ns, &asked, End::Done);
            }
        }
        while let Some(&(_, ticket)) = self.patience.first().filter(|(at_ns, _)| *at_ns <= now_ns) {
            // Taking it takes it out of `patience`.
            let Some(asked) = self.take(ticket) else { break };
            if asked.started_ns.is_some() {
                self.site.handle_abort(now_ns, ticket);
            }
            self.admission.handle_gone(asked.id);
            self.end(now_ns, &asked, End::Gone);
        }
        while let Some(&Reverse((_, client))) = self.due.peek().filter(|Reverse((at_ns, _))| *at_ns <= now_ns) {
            self.due.pop();
            self.ask(now_ns, client);
        }
        while let Some(decision) = self.admission.poll_decision(Instant::from_ns(now_ns)) {
            match decision {
                Decision::Start(start) => self.start(now_ns, ticket(start.request)),
                Decision::Refuse { request, .. } => {
                    if let Some(asked) = self.take(ticket(request)) {
                        self.end(now_ns, &asked, End::Refused);
                    }
                }
            }
        }
    }

    fn ask(&mut self, now_ns: u64, client: usize) {
        let load = self.load(client);
        let random = &mut self.clients[client].random;
        let draw = |need: &super::Need| Visit { station: need.station, work_ns: need.law.draw(need.mean_ns, random) };
        let visits = load.needs.iter().map(draw).collect();
        let expected_ns = Some(load.needs.iter().fold(0, |sum: u64, need| sum.saturating_add(need.mean_ns)));
        if matches!(load.demand, Demand::Open { .. }) {
            self.ask_later(now_ns, client);
        }
        let Load { class, resource, .. } = *load;
        let arrival = Arrival { class, resource, client: client as u64, expected_ns };
        let arrived = self.admission.handle_arrived(Instant::from_ns(now_ns), arrival);
        let Ok(id) = arrived else {
            self.tell(
                now_ns,
                load,
                client,
                Passage {
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
            Some(Asked { id, client, arrived_ns: now_ns, started_ns: None, gives_up_ns, visits });
        self.count(now_ns, load, |gauge| gauge.waiting += 1);
    }

    fn start(&mut self, now_ns: u64, ticket: Ticket) {
        let Some(asked) = &mut self.requests[ticket.0 as usize] else { return };
        asked.started_ns = Some(now_ns);
        let (client, visits) = (asked.client, std::mem::take(&mut asked.visits));
        self.site.handle_started(now_ns, ticket, visits);
        self.count(now_ns, self.load(client), |gauge| {
            gauge.waiting -= 1;
            gauge.running += 1;
        });
    }

    /// Takes a request out of all that is kept of those under way.
    fn take(&mut self, ticket: Ticket) -> Option<Asked> {
        let asked = self.requests.get_mut(ticket.0 as usize)?.take()?;
        if let Some(at_ns) = asked.gives_up_ns {
            self.patience.remove(&(at_ns, ticket));
        }
        Some(asked)
    }

    fn end(&mut self, now_ns: u64, asked: &Asked, end: End) {
        let load = self.load(asked.client);
        self.count(now_ns, load, |gauge| match asked.started_ns {
            Some(_) => gauge.running -= 1,
            None => gauge.waiting -= 1,
        });
        let &Asked { client, arrived_ns, started_ns, .. } = asked;
        let Load { class, resource, .. } = *load;
        let number = self.clients[client].load;
        let passage = Passage { load: number, class, resource, arrived_ns, started_ns, end_ns: now_ns, end };
        self.tell(now_ns, load, client, passage);
    }

    /// A request has ended: it counts, and its user goes on.
    fn tell(&mut self, now_ns: u64, load: &Load, client: usize, passage: Passage) {
        if now_ns >= self.scenario.warm_up_ns {
            self.report.cell_mut(load.class, load.resource).add(&passage);
        }
        (self.sink)(passage);
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
            // What comes at random has no memory: from the end on it is as it was.
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

impl Law {
    fn draw(self, mean_ns: u64, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Fixed => mean_ns as f64,
            Self::Exponential => exponential(mean_ns as f64, random),
        }
    }
}

fn exponential(mean: f64, random: &mut ChaCha8Rng) -> f64 {
    let unit: f64 = Exp1.sample(random);
    unit * mean
}

fn ticket(request: RequestId) -> Ticket {
    // The index of a name fits: it is that of a request among fewer than 2^32.
    Ticket(request.index() as u32)
}
