//! Random sequences of events: the invariants of admission hold, for every share and every order, beside a plain
//! account of who waits and who runs.

extern crate std;

use alloc::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

const CLASSES: usize = 3;
const RESOURCES: usize = 3;

/// A random event. A request is picked by a number, modulo the requests there are.
#[derive(Clone, Debug)]
enum Event {
    Arrived(Arrival),
    Finished { pick: usize },
    Gone { pick: usize },
    Window { resource: u16, window: u32 },
    Total { total: u32 },
    Settings { settings: Settings, moves: Moves },
    Passed { ns: u64 },
    Back { ns: u64 },
}

fn class() -> impl Strategy<Value = Class> {
    let order = select(
        &[
            QueueOrder::Fifo,
            QueueOrder::Adaptive,
            QueueOrder::Shortest,
            QueueOrder::LifoUnderOverload { after_ns: 300 },
            QueueOrder::FairAmongClients,
        ][..],
    );
    let limits = (option::weighted(0.3, 1u32..4), option::weighted(0.5, 0u64..2000), 0u32..6);
    (1u32..6, 0u32..2, limits, option::weighted(0.5, 0u64..3000), order).prop_map(
        |(weight, reserved_slots, (most_running, most_wait_ns, most_waiting), deadline_ns, order)| Class {
            weight,
            delay_ratio: weight,
            reserved_slots,
            most_running,
            deadline_ns,
            order,
            most_waiting,
            most_wait_ns,
        },
    )
}

/// Settings of all kinds, but usable ones.
fn settings() -> impl Strategy<Value = Settings> {
    let windows = vec(option::weighted(0.6, 1u32..8), 1..=RESOURCES);
    let late = select(&[Late::Serve, Late::Refuse][..]);
    (vec(class(), 1..=CLASSES), windows, option::weighted(0.5, 1u32..12), select(&Policy::ALL[..]), late)
        .prop_map(|(classes, windows, total, policy, late)| Settings {
            windows,
            total,
            late,
            delay_window_ns: 2000,
            ..Settings::uncontrolled(classes, 0, policy)
        })
        .prop_filter("contradicts itself", |settings| settings.check().is_ok())
}

fn moves() -> impl Strategy<Value = Moves> {
    (vec(0..CLASSES as u16 + 1, 0..=CLASSES), vec(0..RESOURCES as u16 + 1, 0..=RESOURCES)).prop_map(
        |(classes, resources)| Moves {
            classes: classes.into_iter().map(ClassId).collect(),
            resources: resources.into_iter().map(ResourceId).collect(),
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let arrival = (0..CLASSES as u16, 0..RESOURCES as u16, 0..4u64, option::of(0..1000u64)).prop_map(
        |(class, resource, client, expected_ns)| {
            Event::Arrived(Arrival {
                class: ClassId(class),
                resource: ResourceId(resource),
                client,
                expected_ns,
                within_ns: None,
            })
        },
    );
    prop_oneof![
        20 => arrival,
        10 => any::<usize>().prop_map(|pick| Event::Finished { pick }),
        4 => any::<usize>().prop_map(|pick| Event::Gone { pick }),
        2 => (0..RESOURCES as u16, 0..8u32).prop_map(|(resource, window)| Event::Window { resource, window }),
        1 => (0..12u32).prop_map(|total| Event::Total { total }),
        1 => (settings(), moves()).prop_map(|(settings, moves)| Event::Settings { settings, moves }),
        10 => (0..500u64).prop_map(|ns| Event::Passed { ns }),
        // So long that it says something about the patience of those who leave.
        1 => (0..40_000_000_000u64).prop_map(|ns| Event::Passed { ns }),
        1 => (0..500u64).prop_map(|ns| Event::Back { ns }),
    ]
}

/// The plain account.
struct World {
    admission: Admission,
    now: Instant,
    waiting: BTreeMap<RequestId, Known>,
    running: BTreeMap<RequestId, Known>,
    log: Vec<Decision>,
    came: u64,
    ended: u64,
    /// Limits were lowered under those who wait.
    overlong: bool,
}

#[derive(Clone, Copy)]
struct Known {
    class: ClassId,
    resource: ResourceId,
    /// By its class's limit when it came.
    expires: Option<Instant>,
}

impl World {
    fn new(settings: Settings) -> Self {
        Self {
            admission: Admission::new(settings).unwrap(),
            now: Instant::from_ns(10_000),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            log: Vec::new(),
            came: 0,
            ended: 0,
            overlong: false,
        }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Arrived(arrival) => {
                if let Ok(id) = self.admission.handle_arrived(self.now, *arrival) {
                    self.came += 1;
                    let limit_ns = self.admission.settings().classes[arrival.class.index()].most_wait_ns;
                    let expires = limit_ns.map(|ns| self.now.add_ns(ns));
                    let known = Known { class: arrival.class, resource: arrival.resource, expires };
                    assert!(self.waiting.insert(id, known).is_none());
                }
            }
            Event::Finished { pick } => {
                if let Some(&id) = self.running.keys().nth(pick % self.running.len().max(1)) {
                    self.running.remove(&id);
                    self.ended += 1;
                    self.admission.handle_finished(self.now, id);
                    // Twice is once.
                    self.admission.handle_finished(self.now, id);
                }
            }
            Event::Gone { pick } => {
                let all: Vec<_> = self.running.keys().chain(self.waiting.keys()).copied().collect();
                if let Some(&id) = all.get(pick % all.len().max(1)) {
                    self.running.remove(&id);
                    self.waiting.remove(&id);
                    self.ended += 1;
                    self.admission.handle_gone(self.now, id);
                }
            }
            Event::Window { resource, window } => self.admission.handle_window(ResourceId(*resource), *window),
            Event::Total { total } => self.admission.handle_total(*total),
            Event::Settings { settings, moves } => {
                self.admission.handle_settings(settings.clone(), moves).unwrap();
                let moved = |to: Option<usize>, old: usize, of: usize| to.unwrap_or(old).min(of - 1) as u16;
                for it in self.waiting.values_mut().chain(self.running.values_mut()) {
                    let (class, resource) = (it.class.index(), it.resource.index());
                    let to = moves.classes.get(class).map(|it| it.index());
                    it.class = ClassId(moved(to, class, settings.classes.len()));
                    let to = moves.resources.get(resource).map(|it| it.index());
                    it.resource = ResourceId(moved(to, resource, settings.windows.len()));
                }
                self.overlong = true;
            }
            Event::Passed { ns } => self.now = self.now.add_ns(*ns),
            // A clock that was set back.
            Event::Back { ns } => self.now = Instant::from_ns(self.now.as_ns().saturating_sub(*ns)),
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(decision) = self.admission.poll_decision(self.now) {
            self.log.push(decision);
            match decision {
                Decision::Refuse { request, .. } => {
                    self.ended += 1;
                    assert!(self.waiting.remove(&request).is_some(), "refused is who waits");
                }
                Decision::Start(start) => {
                    let it = self.waiting.remove(&start.request).expect("started is who waits");
                    assert_eq!((it.class, it.resource), (start.class, start.resource));
                    assert!(self.has_room(it), "a window was exceeded");
                    self.running.insert(start.request, it);
                }
            }
        }
        self.check();
    }

    fn window(&self, resource: ResourceId) -> Option<u32> {
        self.admission.settings().windows[resource.index()]
    }

    /// Whether one more of this type and class may run, as far as numbers go.
    fn has_room(&self, it: Known) -> bool {
        let settings = self.admission.settings();
        let of_type = self.running.values().filter(|other| other.resource == it.resource).count();
        let of_class = self.running.values().filter(|other| other.class == it.class).count();
        self.window(it.resource).is_none_or(|window| of_type < window as usize)
            && settings.total.is_none_or(|total| self.running.len() < total as usize)
            && settings.classes[it.class.index()].most_running.is_none_or(|most| of_class < most as usize)
    }

    fn check(&mut self) {
        let settings = self.admission.settings();
        let reserves = settings.policy == Policy::Shared && settings.classes.iter().any(|it| it.reserved_slots > 0);
        let conserves = settings.policy != Policy::Fixed && !reserves;
        let mut queues: BTreeMap<_, usize> = BTreeMap::new();
        for it in self.waiting.values() {
            assert!(!conserves || !self.has_room(*it), "a slot is free, and somebody waits for it");
            assert!(it.expires.is_none_or(|at| self.now < at), "it waits beyond its limit");
            let common = self.window(it.resource).is_none();
            *queues.entry((it.class, if common { None } else { Some(it.resource) })).or_default() += 1;
        }
        let fits = queues.iter().all(|((class, _), &n)| n <= settings.classes[class.index()].most_waiting as usize);
        assert!(fits || self.overlong, "a queue is too long");
        self.overlong &= !fits;
        for class in (0..settings.classes.len()).map(|it| ClassId(it as u16)) {
            let stats = self.admission.class_stats(class);
            assert_eq!(stats.waiting, self.waiting.values().filter(|it| it.class == class).count());
            assert_eq!(stats.running, self.running.values().filter(|it| it.class == class).count());
        }
        // Nothing is kept of those who are gone.
        let admission = &self.admission;
        assert_eq!(admission.requests.len(), self.waiting.len() + self.running.len());
        assert!(admission.expiries.len() <= self.waiting.len());
        assert!(admission.latest_starts.len() <= self.waiting.len());
        assert!(admission.overfull.is_empty());
        let waiting = admission.requests.iter().filter(|(_, it)| matches!(it.state, RequestState::Waiting(_)));
        let arrived_ns: u128 = waiting.map(|(_, it)| u128::from(it.arrived.as_ns())).sum();
        assert_eq!(admission.lanes.iter().flat_map(|lane| &lane.arrived_ns).sum::<u128>(), arrived_ns);
        assert!(admission.poll_timeout().is_none_or(|at| at > self.now));
        assert_eq!(self.came, self.ended + (self.waiting.len() + self.running.len()) as u64);
    }
}

fn run(settings: &Settings, events: &[Event]) -> Vec<Decision> {
    let mut world = World::new(settings.clone());
    for event in events {
        world.happens(event);
    }
    // In any state: if the site goes on, every request gets an answer.
    for _ in 0..world.running.len() + world.waiting.len() {
        world.happens(&Event::Finished { pick: 0 });
    }
    assert!(world.waiting.is_empty() && world.running.is_empty(), "somebody starved");
    world.log
}

/// Classes and windows of these settings, with this order for all, and requests that wait as long as they must.
fn patient(settings: &Settings, order: QueueOrder) -> Settings {
    let classes = settings.classes.iter().map(|class| Class { order, most_wait_ns: None, ..*class }).collect();
    Settings { classes, ..settings.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn where_no_client_leaves_the_adaptive_order_is_that_of_arrival(
        settings in settings(),
        events in vec(event(), 1..250),
    ) {
        let events: Vec<_> = (events.into_iter())
            .filter(|event| !matches!(event, Event::Gone { .. } | Event::Settings { .. } | Event::Back { .. }))
            .collect();
        let by = |order| run(&patient(&settings, order), &events);
        prop_assert_eq!(by(QueueOrder::Adaptive), by(QueueOrder::Fifo));
    }

    #[test]
    fn the_invariants_hold_and_the_same_events_give_the_same_decisions(
        settings in settings(),
        events in vec(event(), 1..250),
    ) {
        let decisions = run(&settings, &events);
        prop_assert_eq!(decisions, run(&settings, &events));
    }
}
