//! The run: events in the order of their times.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use scheduler::{
    Instant,
    lease::{GatewayId, Ledger, Notice, cells},
};

use super::{
    agenda::{Agenda, Event, Life},
    arrivals::{Arrivals, exponential},
    fault::FaultKind,
    gateway::{Gateway, Job},
    measures::{ClassMeasures, InUse, Measures},
    setup::{Demand, Setup},
};

const SECOND: u64 = 1_000_000_000;
/// When requests begin to come: by then a new store knows all gateways, and divides everything.
const BEGIN_NS: u64 = 2 * SECOND;
/// Lives of a gateway that its number in the store has room for.
const MOST_LIVES: u32 = 1 << 10;
/// Requests of a gateway that is gone may go on for this long ([`scheduler::lease::Member`]).
const LINGER_NS: u64 = 1_500_000_000;

impl Setup {
    /// Simulates it.
    pub fn run(&self) -> Measures {
        World::new(self, self.gateways.max(1), true).run()
    }

    /// Simulates one gateway with the whole window and no store, with the same requests.
    pub fn run_alone(&self) -> Measures {
        let alone = Self { faults: Vec::new(), ..self.clone() };
        World::new(&alone, 1, false).run()
    }
}

/// The state of a run.
#[derive(Debug)]
pub(super) struct World<'a> {
    setup: &'a Setup,
    now_ns: u64,
    agenda: Agenda,
    arrivals: Arrivals,
    /// Of the network.
    random: ChaCha8Rng,
    gateways: Vec<Gateway>,
    /// `None`: it is gone.
    store: Option<Ledger>,
    /// By fault: the memory of the store some time before it.
    copies: Vec<Option<Ledger>>,
    /// Number of faults under way that concern the store: none may end before the last one does.
    away: u32,
    /// Until when the effects of faults are felt.
    faulty_until_ns: u64,
    /// Requests at the site, those of killed gateways too.
    running: u32,
    waiting: u32,
    counts: Counts,
}

#[derive(Debug)]
struct Counts {
    classes: Vec<ClassMeasures>,
    sound: InUse,
    faulty: InUse,
    unused_slot_ns: u128,
    /// By gateway, since when it has had waiting requests and none at the site, and for how long in all.
    starved: Vec<(Option<u64>, u64)>,
    /// By gateway: asks in the second under way, and in which.
    asks_now: Vec<(u64, u32)>,
    asks_most: u32,
    asks: u64,
    messages: u64,
    lost: u64,
    followed_ns: Option<u64>,
}

impl<'a> World<'a> {
    pub fn new(setup: &'a Setup, gateways: u32, leased: bool) -> Self {
        let count = gateways as usize;
        let make = |gateway| Gateway::new(setup, leased, Life { gateway, number: 0 }, 0);
        let mut world = Self {
            setup,
            now_ns: 0,
            agenda: Agenda::default(),
            arrivals: Arrivals::new(setup, count),
            random: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6761_7465),
            gateways: (0..count).map(make).collect(),
            store: None,
            copies: vec![None; setup.faults.len()],
            away: 0,
            faulty_until_ns: 0,
            running: 0,
            waiting: 0,
            counts: Counts {
                classes: vec![ClassMeasures::new(); setup.classes.len()],
                sound: InUse::default(),
                faulty: InUse::default(),
                unused_slot_ns: 0,
                starved: vec![(None, 0); count],
                asks_now: vec![(0, 0); count],
                asks_most: 0,
                asks: 0,
                messages: 0,
                lost: 0,
                followed_ns: None,
            },
        };
        world.store = leased.then(|| world.new_store());
        match setup.demand {
            Demand::Open { .. } => {
                let first_ns = BEGIN_NS + world.arrivals.gap_ns();
                world.agenda.add(first_ns, Event::Arrival);
            }
            Demand::Users { each, first_from_ns } => {
                // For one gateway alone all users of all gateways.
                for user in 0..each as usize * setup.gateways as usize {
                    let gateway = user % count;
                    let at_ns = if user % setup.gateways as usize == 0 { first_from_ns } else { 0 };
                    for class in 0..setup.classes.len() as u16 {
                        world.agenda.add(at_ns, Event::User { gateway, class });
                    }
                }
            }
        }
        for (number, fault) in setup.faults.iter().enumerate() {
            world.agenda.add(fault.during_ns.start, Event::Begin(number));
            world.agenda.add(fault.during_ns.end, Event::End(number));
            if let FaultKind::Store(Some(before_ns)) = fault.kind {
                world.agenda.add(fault.during_ns.start.saturating_sub(before_ns), Event::Copy(number));
            }
        }
        for gateway in 0..count {
            world.poll(gateway);
        }
        world
    }

    pub fn run(mut self) -> Measures {
        while let Some((at_ns, event)) = self.agenda.take(self.setup.until_ns) {
            self.pass(at_ns);
            self.handle(event);
        }
        self.pass(self.setup.until_ns);
        self.measures()
    }

    fn measures(self) -> Measures {
        let measured_ns = self.setup.until_ns.saturating_sub(self.setup.warm_up_ns).max(1);
        let Counts {
            classes,
            sound,
            faulty,
            unused_slot_ns,
            starved,
            asks_most,
            asks,
            messages,
            lost,
            followed_ns,
            ..
        } = self.counts;
        let until_ns = self.setup.until_ns;
        let starved_ns = starved.iter().map(|&(since, ns)| ns + since.map_or(0, |since| until_ns - since)).max();
        Measures {
            classes,
            sound,
            faulty,
            unused: unused_slot_ns as f64 / measured_ns as f64 / f64::from(self.setup.window),
            starved_worst: starved_ns.unwrap_or(0) as f64 / measured_ns as f64,
            asks: asks as f64 * 1e9 / measured_ns as f64 / self.gateways.len() as f64,
            asks_most,
            messages: messages as f64 * 1e9 / measured_ns as f64,
            lost,
            followed_ns,
            measured_ns,
        }
    }

    fn new_store(&self) -> Ledger {
        let settings = scheduler::admission::Settings::multi_resource(
            self.setup.classes.clone(),
            self.setup.policy,
            &[self.setup.window],
        );
        let cells = cells(&settings, false).into_iter().map(|(_, cell)| cell).collect();
        Ledger::new(Instant::from_ns(self.now_ns), self.setup.times.lease_ns, cells)
    }

    fn is_measured(&self) -> bool {
        self.now_ns >= self.setup.warm_up_ns
    }

    /// Lets time pass.
    fn pass(&mut self, to_ns: u64) {
        let from_ns = self.now_ns.max(self.setup.warm_up_ns);
        if to_ns > from_ns {
            let for_ns = to_ns - from_ns;
            let in_use = match from_ns < self.faulty_until_ns {
                true => &mut self.counts.faulty,
                false => &mut self.counts.sound,
            };
            in_use.add(self.running, self.setup.window, for_ns);
            let free = self.setup.window.saturating_sub(self.running).min(self.waiting);
            self.counts.unused_slot_ns += u128::from(free) * u128::from(for_ns);
        }
        self.now_ns = to_ns;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                let request = self.arrivals.request(self.now_ns);
                let next_ns = self.arrivals.gap_ns();
                self.agenda.add(self.now_ns.saturating_add(next_ns), Event::Arrival);
                self.arrive(request.gateway, request.class, request.service_ns);
            }
            Event::User { gateway, class } => {
                let service_ns = self.arrivals.service_ns();
                self.arrive(gateway, class, service_ns);
            }
            Event::Done { at, request, service_ns } => {
                self.running -= 1;
                self.deliver(at, Event::Done { at, request, service_ns });
            }
            Event::Ask { of, asked_ns, ask } => self.ask(of, asked_ns, ask),
            Event::Reply { to, .. } | Event::Notice { to } => {
                if !self.gateways[to.gateway].split {
                    self.deliver(to, event);
                }
            }
            Event::Refused { to: of, .. } | Event::Timer { of, .. } => self.deliver(of, event),
            Event::Begin(number) => self.begin(number),
            Event::End(number) => self.end(number),
            Event::Copy(number) => self.copies[number].clone_from(&self.store),
        }
    }

    /// A request comes. If its gateway is down, another one gets it.
    fn arrive(&mut self, gateway: usize, class: u16, service_ns: u64) {
        let count = self.gateways.len();
        let Some(gateway) = (0..count).map(|step| (gateway + step) % count).find(|&it| self.gateways[it].up) else {
            self.counts.lost += 1;
            return;
        };
        let job = Job { class, born_ns: self.now_ns, service_ns };
        match self.gateways[gateway].handle_arrived(self.now_ns, job) {
            // It has come even to a gateway that stands still.
            Ok(()) => self.waiting += 1,
            Err(()) => self.counts.lost += 1,
        }
        if self.gateways[gateway].standing.is_none() {
            self.poll(gateway);
        }
    }

    /// Something happens to a gateway: now, or when it goes on.
    fn deliver(&mut self, to: Life, event: Event) {
        let it = &mut self.gateways[to.gateway];
        if it.life != to || !it.up {
            return;
        }
        if let Some(standing) = &mut it.standing {
            standing.push(event);
            return;
        }
        match event {
            Event::Reply { asked_ns, reply, .. } => it.handle_reply(asked_ns, &reply),
            Event::Refused { asked_ns, .. } => it.handle_refused(self.now_ns, asked_ns),
            Event::Notice { .. } => it.handle_notice(),
            Event::Done { request, service_ns, .. } => {
                if let Some(job) = it.handle_done(self.now_ns, request, service_ns) {
                    if self.is_measured() {
                        self.counts.classes[usize::from(job.class)].add(self.now_ns - job.born_ns);
                    }
                    if matches!(self.setup.demand, Demand::Users { .. }) {
                        self.agenda.add(self.now_ns, Event::User { gateway: to.gateway, class: job.class });
                    }
                }
            }
            Event::Timer { at_ns, .. } => {
                // Another timer has been set instead.
                if it.timer_ns != Some(at_ns) {
                    return;
                }
                it.timer_ns = None;
            }
            _ => unreachable!("nothing else happens to a gateway"),
        }
        self.poll(to.gateway);
    }

    fn poll(&mut self, gateway: usize) {
        let it = &mut self.gateways[gateway];
        let did = it.poll(self.now_ns);
        let (life, split, running, waiting) = (it.life, it.split, it.running(), it.waiting());
        self.running += did.started.len() as u32;
        self.waiting -= did.started.len() as u32 + did.refused as u32;
        self.counts.lost += did.refused;
        for (request, Job { service_ns, .. }) in did.started {
            self.agenda.add(self.now_ns + service_ns, Event::Done { at: life, request, service_ns });
        }
        self.look(gateway, running, waiting);
        if let Some(ask) = did.ask {
            self.count_ask(gateway);
            let asked_ns = self.now_ns;
            if self.store.is_none() && !split {
                let at_ns = asked_ns + 2 * self.setup.network.delay_ns;
                self.agenda.add(at_ns, Event::Refused { to: life, asked_ns });
            } else {
                self.send(split, Event::Ask { of: life, asked_ns, ask });
            }
        }
        let it = &mut self.gateways[gateway];
        if let Some(at_ns) = it.poll_timeout(self.now_ns)
            && it.timer_ns.is_none_or(|set| at_ns < set)
        {
            it.timer_ns = Some(at_ns);
            self.agenda.add(at_ns.max(self.now_ns), Event::Timer { of: life, at_ns });
        }
    }

    /// Looks whether a gateway starves, and whether the first one has its part.
    fn look(&mut self, gateway: usize, running: u32, waiting: u32) {
        let (since, all_ns) = &mut self.counts.starved[gateway];
        if running == 0 && waiting > 0 {
            *since = since.or(Some(self.now_ns.max(self.setup.warm_up_ns)));
        } else if let Some(since) = since.take() {
            *all_ns += self.now_ns.saturating_sub(since);
        }
        if let Demand::Users { first_from_ns, .. } = self.setup.demand
            && gateway == 0
            && self.now_ns >= first_from_ns
            && self.counts.followed_ns.is_none()
            && f64::from(running) >= (0.9 * f64::from(self.setup.window) / self.gateways.len() as f64).floor().max(1.0)
        {
            self.counts.followed_ns = Some(self.now_ns - first_from_ns);
        }
    }

    fn count_ask(&mut self, gateway: usize) {
        if self.is_measured() {
            let second = self.now_ns / SECOND;
            let (of, asks) = &mut self.counts.asks_now[gateway];
            *asks = if *of == second { *asks + 1 } else { 1 };
            *of = second;
            self.counts.asks_most = self.counts.asks_most.max(*asks);
            self.counts.asks += 1;
        }
    }

    /// Sends a message between a gateway and the store.
    fn send(&mut self, split: bool, message: Event) {
        let network = self.setup.network;
        self.counts.messages += u64::from(self.is_measured());
        let lost = network.loss > 0.0 && self.random.random::<f64>() < network.loss;
        let jitter_ns = (exponential(&mut self.random) * network.jitter_ns as f64) as u64;
        if !lost && !split {
            self.agenda.add(self.now_ns + network.delay_ns + jitter_ns, message);
        }
    }

    fn ask(&mut self, of: Life, asked_ns: u64, ask: scheduler::lease::Ask) {
        if self.gateways[of.gateway].split {
            return;
        }
        let Some(store) = &mut self.store else {
            self.agenda.add(self.now_ns + self.setup.network.delay_ns, Event::Refused { to: of, asked_ns });
            return;
        };
        let reply = store.handle_ask(Instant::from_ns(self.now_ns), id(of), ask);
        let notices: Vec<Notice> = std::iter::from_fn(|| store.poll_notice()).collect();
        self.send(false, Event::Reply { to: of, asked_ns, reply });
        for notice in notices {
            let to: Vec<Life> = match notice {
                Notice::Free(to) => {
                    let life = self.gateways[(to.0 / MOST_LIVES) as usize].life;
                    vec![life]
                }
                Notice::Wanted => self.gateways.iter().map(|it| it.life).collect(),
            };
            for to in to {
                let split = self.gateways[to.gateway].split;
                self.send(split, Event::Notice { to });
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let fault = &self.setup.faults[number];
        let settle_ns = 2 * self.setup.times.lease_ns + LINGER_NS;
        self.faulty_until_ns = self.faulty_until_ns.max(fault.during_ns.end.saturating_add(settle_ns));
        match &fault.kind {
            FaultKind::Split(of) => of.clone().for_each(|it| self.gateways[it as usize].split = true),
            FaultKind::Pause(of) => drop(self.gateways[*of as usize].standing.get_or_insert_default()),
            FaultKind::Kill(of) => {
                let it = &mut self.gateways[*of as usize];
                it.up = false;
                let waiting = it.waiting();
                self.waiting -= waiting;
                self.counts.lost += u64::from(waiting + it.running());
                self.look(*of as usize, 0, 0);
            }
            FaultKind::Store(_) => {
                self.store = None;
                self.away += 1;
            }
        }
    }

    fn end(&mut self, number: usize) {
        match &self.setup.faults[number].kind {
            FaultKind::Split(of) => of.clone().for_each(|it| self.gateways[it as usize].split = false),
            FaultKind::Pause(of) => {
                let events = self.gateways[*of as usize].standing.take().unwrap_or_default();
                for event in events {
                    if let Event::Done { at, .. } = event {
                        self.deliver(at, event);
                    } else {
                        self.agenda.add(self.now_ns, event);
                    }
                }
                self.poll(*of as usize);
            }
            FaultKind::Kill(of) => {
                let gateway = *of as usize;
                let old = self.gateways[gateway].life;
                let life = Life { number: old.number + 1, ..old };
                self.gateways[gateway] = Gateway::new(self.setup, true, life, self.now_ns);
                if let Demand::Users { each, .. } = self.setup.demand {
                    for class in 0..self.setup.classes.len() as u16 {
                        (0..each).for_each(|_| self.agenda.add(self.now_ns, Event::User { gateway, class }));
                    }
                }
                self.poll(gateway);
            }
            FaultKind::Store(memory) => {
                self.away -= 1;
                if self.away == 0 {
                    let mut copy = memory.and_then(|_| self.copies[number].take());
                    if let Some(copy) = &mut copy {
                        copy.handle_moved(Instant::from_ns(self.now_ns));
                    }
                    self.store = Some(copy.unwrap_or_else(|| self.new_store()));
                }
            }
        }
    }
}

/// The number of a gateway in the store: another one after each beginning.
fn id(of: Life) -> GatewayId {
    GatewayId(of.gateway as u32 * MOST_LIVES + of.number % MOST_LIVES)
}
