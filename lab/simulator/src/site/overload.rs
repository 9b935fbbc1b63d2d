//! Goodput under overload: how many answers reach clients that still wait for them.
//!
//! The server's own admission stands before a site with a fixed number of slots. Clients come at
//! random, wait, give up when their patience ends, and some ask again. The model is as hard as reality:
//!
//! - The site finishes a request that it has begun, whether or not its client is still there. Such work is wasted.
//! - The gateway looks once a second whether the client of a waiting request is there, and when the request has its turn.
//! - Nothing tells how patient a client is.
//!
//! [`Setup::bound`] is what is possible: the load, but no more than the site can do, times the part of clients that are
//! more patient than the service is long. [`Results::goodput`] is measured against that.
//!
//! ```
//! use scheduler::admission::QueueOrder;
//! use serpent_simulator::site::overload::{Patience, Setup};
//!
//! let twice = Setup { load: 2.0, patience: Patience::Fixed { s: 10.0 }, ..Setup::PLAIN };
//! let of = |order| Setup { order, ..twice.clone() }.run().goodput / twice.bound();
//! assert!(of(QueueOrder::Fifo) < 0.1);
//! assert!(of(QueueOrder::Adaptive) > 0.95);
//! ```

use std::{cmp::Reverse, collections::BinaryHeap, fmt};

use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use scheduler::{
    Instant,
    admission::{Admission, Arrival, Decision, QueueOrder, RequestId, ResourceId, Settings},
    class::{Class, ClassId},
    share::Policy,
};

const S: f64 = 1e9;
/// Mean time that the site takes for a request, exponentially distributed.
const SERVICE_S: f64 = 0.4;
const SLOTS: u32 = 12;
/// How often the gateway looks whether the client of a waiting request is there.
const LOOK_NS: u64 = 1_000_000_000;
/// A client that asks again does so at most so many times.
const TRIES: u32 = 3;
/// Weights of the classes, and their deadlines in seconds ([`Policy::Edf`]).
const CLASSES: [(u32, u64); 3] = [(4, 1), (2, 2), (1, 4)];

/// A load, clients, and how the gateway is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Requests that come, retries aside, over those that the site can do.
    pub load: f64,
    /// How long clients wait.
    pub patience: Patience,
    /// Clients that have got no answer ask again, one to three seconds later, at most three times.
    pub retries: bool,
    /// The order of each class.
    pub order: QueueOrder,
    /// The share between three classes that come equally often; `None`: there is one class.
    pub share: Option<Policy>,
    /// As in the server's settings.
    pub most_wait_ns: Option<u64>,
    /// Simulated time; the first fifth of it does not count.
    pub seconds: u32,
    /// Decides everything that is random.
    pub seed: u64,
}

/// How long clients wait until they give up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Patience {
    /// All for so many seconds.
    Fixed {
        /// Seconds.
        s: f64,
    },
    /// Each for a time that is uniform between 1 and 30 s.
    Uniform,
    /// A quarter each for 1, 3, 10 and 30 s.
    Mixed,
    /// For ever.
    Endless,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Answers to clients that were there, over what the site can do.
    pub goodput: f64,
    /// Their mean response time in seconds.
    pub mean_s: f64,
    /// Of the requests that the site did, the part whose clients had left.
    pub wasted: f64,
    /// Requests that started before one of their class that had come earlier and started later, over all that started.
    pub overtook: f64,
}

impl Setup {
    /// The server's defaults: one class, requests wait for 30 s at most.
    pub const PLAIN: Self = Self {
        load: 1.0,
        patience: Patience::Endless,
        retries: false,
        order: QueueOrder::Adaptive,
        share: None,
        most_wait_ns: Some(30_000_000_000),
        seconds: 500,
        seed: 1,
    };

    /// Goodput, over what the site can do, where no request waits and the site is as busy as it can be by this load.
    pub fn bound(&self) -> f64 {
        self.load.min(1.0) * self.patience.outlasts_service()
    }

    /// Runs it.
    ///
    /// # Panics
    /// If the load is not a positive number.
    pub fn run(&self) -> Results {
        assert!(self.load > 0.0 && self.load.is_finite(), "a load is above 0");
        let until_ns = u64::from(self.seconds) * 1_000_000_000;
        let mut world = World::new(self, until_ns / 5);
        world.push(0, Event::Comes);
        while let Some(Reverse((now_ns, _, event))) = world.due.pop().filter(|Reverse((at_ns, ..))| *at_ns <= until_ns)
        {
            world.happens(now_ns, event);
            world.decide(now_ns);
            world.alarm(now_ns);
        }
        world.outcome((until_ns - until_ns / 5) as f64 / S)
    }
}

impl Patience {
    fn draw_s(self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Fixed { s } => s,
            Self::Uniform => random.random_range(1.0..30.0),
            Self::Mixed => [1.0, 3.0, 10.0, 30.0][random.random_range(0..4)],
            Self::Endless => f64::INFINITY,
        }
    }

    /// The part of clients that would get an answer if no request waited.
    fn outlasts_service(self) -> f64 {
        let of = |patience_s: f64| 1.0 - libm::exp(-patience_s / SERVICE_S);
        match self {
            Self::Fixed { s } => of(s),
            Self::Uniform => (0..29_000).map(|ms| of(1.0 + f64::from(ms) / 1e3)).sum::<f64>() / 29_000.0,
            Self::Mixed => [1.0, 3.0, 10.0, 30.0].map(of).iter().sum::<f64>() / 4.0,
            Self::Endless => 1.0,
        }
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { s } => write!(f, "{s} s"),
            Self::Uniform => f.write_str("1 to 30 s"),
            Self::Mixed => f.write_str("1, 3, 10 or 30 s"),
            Self::Endless => f.write_str("endless"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A new client comes.
    Comes,
    /// A client asks again: its class, and how often it has asked.
    Again { class: u16, tries: u32 },
    /// The gateway looks after the client of a request.
    Looks { request: usize },
    /// The site is done with a request.
    Done { request: usize },
    /// The admission's time.
    Alarm,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: RequestId,
    class: u16,
    tries: u32,
    arrived_ns: u64,
    leaves_ns: u64,
    waits: bool,
}

struct World<'a> {
    setup: &'a Setup,
    warm_up_ns: u64,
    admission: Admission,
    random: ChaCha8Rng,
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    alarm_ns: Option<u64>,
    requests: Vec<Request>,
    /// By [`RequestId::index`], its place in `requests`.
    named: Vec<usize>,
    answered: u64,
    response_s: f64,
    started: u64,
    overtook: u64,
    /// By class, the newest that started.
    newest: Vec<Option<RequestId>>,
    done: u64,
    wasted: u64,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, warm_up_ns: u64) -> Self {
        let class = |(weight, deadline_s): (u32, u64)| Class {
            weight,
            delay_ratio: 5 - weight,
            deadline_ns: Some(deadline_s * 1_000_000_000),
            order: setup.order,
            most_wait_ns: setup.most_wait_ns,
            ..Class::default()
        };
        let classes: Vec<_> = CLASSES.map(class).into_iter().take(if setup.share.is_some() { 3 } else { 1 }).collect();
        let (count, policy) = (classes.len(), setup.share.unwrap_or(Policy::Strict));
        let settings = Settings::single_window(classes, 1, policy, SLOTS);
        Self {
            setup,
            warm_up_ns,
            admission: Admission::new(settings).expect("there are slots for all classes"),
            random: ChaCha8Rng::seed_from_u64(setup.seed),
            due: BinaryHeap::new(),
            sequence: 0,
            alarm_ns: None,
            requests: Vec::new(),
            named: Vec::new(),
            answered: 0,
            response_s: 0.0,
            started: 0,
            overtook: 0,
            newest: vec![None; count],
            done: 0,
            wasted: 0,
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.due.push(Reverse((at_ns, self.sequence, event)));
    }

    fn happens(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Comes => {
                let gap_s: f64 = self.exponential() * SERVICE_S / (f64::from(SLOTS) * self.setup.load);
                self.push(now_ns + (gap_s * S) as u64, Event::Comes);
                let class = self.random.random_range(0..self.newest.len()) as u16;
                self.asks(now_ns, class, 1);
            }
            Event::Again { class, tries } => self.asks(now_ns, class, tries),
            Event::Looks { request } => {
                let it = self.requests[request];
                if it.waits && it.leaves_ns <= now_ns {
                    self.leaves(now_ns, request);
                }
            }
            Event::Done { request } => {
                let it = self.requests[request];
                self.admission.handle_finished(Instant::from_ns(now_ns), it.id);
                let there = now_ns < it.leaves_ns;
                if now_ns >= self.warm_up_ns {
                    self.done += 1;
                    self.wasted += u64::from(!there);
                    if there {
                        self.answered += 1;
                        self.response_s += (now_ns - it.arrived_ns) as f64 / S;
                    }
                }
                if !there {
                    self.asks_again(it.leaves_ns.max(now_ns), it);
                }
            }
            Event::Alarm => self.alarm_ns = None,
        }
    }

    fn asks(&mut self, now_ns: u64, class: u16, tries: u32) {
        let patience_ns = (self.setup.patience.draw_s(&mut self.random) * S) as u64;
        let arrival =
            Arrival { class: ClassId(class), resource: ResourceId(0), client: 0, expected_ns: None, within_ns: None };
        let Ok(id) = self.admission.handle_arrived(Instant::from_ns(now_ns), arrival) else { return };
        let request = self.requests.len();
        let leaves_ns = now_ns.saturating_add(patience_ns);
        self.requests.push(Request { id, class, tries, arrived_ns: now_ns, leaves_ns, waits: true });
        if self.named.len() <= id.index() {
            self.named.resize(id.index() + 1, 0);
        }
        self.named[id.index()] = request;
        let looks_ns = patience_ns.div_ceil(LOOK_NS).saturating_mul(LOOK_NS);
        self.push(now_ns.saturating_add(looks_ns), Event::Looks { request });
    }

    /// The gateway sees that a client has left.
    fn leaves(&mut self, now_ns: u64, request: usize) {
        let it = &mut self.requests[request];
        it.waits = false;
        let it = *it;
        self.admission.handle_gone(Instant::from_ns(now_ns), it.id);
        self.asks_again(now_ns, it);
    }

    fn asks_again(&mut self, now_ns: u64, Request { class, tries, .. }: Request) {
        if self.setup.retries && tries <= TRIES {
            let pause_s = self.random.random_range(1.0..3.0);
            self.push(now_ns + (pause_s * S) as u64, Event::Again { class, tries: tries + 1 });
        }
    }

    fn decide(&mut self, now_ns: u64) {
        while let Some(decision) = self.admission.poll_decision(Instant::from_ns(now_ns)) {
            match decision {
                Decision::Refuse { request, .. } => {
                    let request = self.named[request.index()];
                    self.requests[request].waits = false;
                    self.asks_again(now_ns, self.requests[request]);
                }
                Decision::Start(start) => {
                    let request = self.named[start.request.index()];
                    if self.requests[request].leaves_ns <= now_ns {
                        self.leaves(now_ns, request);
                        continue;
                    }
                    self.requests[request].waits = false;
                    let newest = &mut self.newest[start.class.index()];
                    self.started += 1;
                    self.overtook += u64::from(newest.is_some_and(|newest| newest > start.request));
                    *newest = (*newest).max(Some(start.request));
                    let service_ns = (self.exponential() * SERVICE_S * S) as u64;
                    self.push(now_ns + service_ns, Event::Done { request });
                }
            }
        }
    }

    fn alarm(&mut self, now_ns: u64) {
        let Some(at_ns) = self.admission.poll_timeout().map(Instant::as_ns) else { return };
        if self.alarm_ns.is_none_or(|alarm_ns| at_ns < alarm_ns) {
            self.alarm_ns = Some(at_ns);
            self.push(at_ns.max(now_ns), Event::Alarm);
        }
    }

    fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.random)
    }

    fn outcome(self, seconds: f64) -> Results {
        Results {
            goodput: self.answered as f64 / seconds * SERVICE_S / f64::from(SLOTS),
            mean_s: self.response_s / self.answered as f64,
            wasted: self.wasted as f64 / self.done.max(1) as f64,
            overtook: self.overtook as f64 / self.started.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCES: [Patience; 8] = [
        Patience::Fixed { s: 1.0 },
        Patience::Fixed { s: 2.0 },
        Patience::Fixed { s: 5.0 },
        Patience::Fixed { s: 10.0 },
        Patience::Fixed { s: 20.0 },
        Patience::Fixed { s: 30.0 },
        Patience::Uniform,
        Patience::Mixed,
    ];

    #[test]
    fn whatever_the_patience_goodput_stays_within_a_twentieth_of_what_is_possible_at_two_and_three_times_the_load() {
        for patience in PATIENCES {
            for (load, retries) in [(2.0, false), (2.0, true), (3.0, false), (3.0, true)] {
                let setup = Setup { load, patience, retries, seconds: 200, ..Setup::PLAIN };
                let part = setup.run().goodput / setup.bound();
                assert!(part > 0.95, "{patience}, load {load}, retries {retries}: {part:.3} of what is possible");
            }
        }
    }

    #[test]
    fn under_every_share_goodput_stays_within_a_twentieth_of_what_is_possible_at_twice_the_load() {
        for policy in Policy::ALL {
            for patience in [Patience::Fixed { s: 2.0 }, Patience::Fixed { s: 10.0 }, Patience::Mixed] {
                let share = Some(policy);
                let setup = Setup { load: 2.0, patience, retries: true, share, seconds: 200, ..Setup::PLAIN };
                let part = setup.run().goodput / setup.bound();
                assert!(part > 0.95, "{policy}, {patience}: {part:.3} of what is possible");
            }
        }
    }

    #[test]
    fn a_site_that_is_not_overloaded_serves_patient_clients_in_the_order_of_arrival() {
        for load in [0.5, 0.9] {
            let of = |order| Setup { load, order, seconds: 200, ..Setup::PLAIN }.run();
            let adaptive = of(QueueOrder::Adaptive);
            assert_eq!(adaptive, of(QueueOrder::Fifo));
            assert!(adaptive.overtook == 0.0 && adaptive.wasted == 0.0, "{adaptive:?}");
        }
    }

    #[test]
    fn in_the_order_of_arrival_goodput_collapses() {
        let setup = Setup { load: 2.0, patience: Patience::Fixed { s: 10.0 }, order: QueueOrder::Fifo, ..Setup::PLAIN };
        let Results { goodput, wasted, .. } = setup.run();
        assert!(goodput < 0.15 && wasted > 0.8, "{goodput:.3} {wasted:.3}");
    }
}
