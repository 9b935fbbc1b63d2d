//! Gateways with real admission, and a ledger, joined by messages that take time, under a clock of the test.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use std::println;

use proptest::prelude::*;

use super::*;
use crate::{
    Instant,
    admission::{Admission, Arrival, Decision, RequestId, ResourceId, Settings},
    class::{Class, ClassId},
};

extern crate std;

const MS: u64 = 1_000_000;

/// One resource type and a window of `window` slots; each gateway admits by `policy`.
struct World {
    now: u64,
    ledger: Option<Ledger>,
    cells: Vec<CellSettings>,
    gateways: Vec<Gateway>,
    /// Messages on their way, by arrival.
    messages: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    /// The state of the generator of service times.
    chance: u64,
    delay: u64,
    service: Vec<u64>,
    most_running: u32,
    finished: Vec<u64>,
    system_ns: Vec<u64>,
    asks: u64,
    /// Where clients ask again as soon as they have their answer, by class; empty: they do not.
    again: Vec<usize>,
}

enum Message {
    Ask(usize, u64, Ask),
    Reply(usize, u64, Reply),
    Notice(usize),
    Done(usize, RequestId),
}

struct Gateway {
    admission: Admission,
    holder: Holder,
    classes: u16,
    /// It can reach the store.
    online: bool,
    frozen: bool,
    asked: Option<u64>,
    started: Vec<u32>,
    born: BTreeMap<usize, (ClassId, u64)>,
}

impl World {
    fn new(gateways: usize, window: u32, policy: Policy, classes: Vec<Class>) -> Self {
        let cell = CellSettings {
            window,
            adjusted: false,
            division: Division::of(policy),
            classes: classes.iter().map(|class| ClassSettings::of(policy, class)).collect(),
        };
        let cells = vec![cell];
        let count = classes.len();
        let make = |_| Gateway {
            admission: Admission::new(Settings::multi_resource(classes.clone(), policy, &[window])).expect("sound"),
            holder: Holder::new(Instant::ORIGIN, Times::default(), &cells),
            classes: count as u16,
            online: true,
            frozen: false,
            asked: None,
            started: vec![0; count],
            born: BTreeMap::new(),
        };
        Self {
            now: 0,
            ledger: Some(Ledger::new(Instant::ORIGIN, Times::default().lease_ns, cells.clone())),
            gateways: (0..gateways).map(make).collect(),
            cells,
            messages: BTreeMap::new(),
            sequence: 0,
            chance: 1,
            delay: MS / 4,
            service: vec![20 * MS; count],
            most_running: 0,
            finished: vec![0; count],
            system_ns: vec![0; count],
            asks: 0,
            again: vec![],
        }
    }

    fn at(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    fn send(&mut self, after: u64, message: Message) {
        self.sequence += 1;
        self.messages.insert((self.now + after, self.sequence), message);
    }

    fn arrive(&mut self, gateway: usize, class: u16) {
        let now = self.at();
        let it = &mut self.gateways[gateway];
        let arrival =
            Arrival { class: ClassId(class), resource: ResourceId(0), client: 0, expected_ns: None, within_ns: None };
        if let Ok(id) = it.admission.handle_arrived(now, arrival) {
            it.born.insert(id.index(), (ClassId(class), self.now));
        }
        self.pump(gateway);
    }

    fn pump(&mut self, at: usize) {
        let now = self.at();
        let it = &mut self.gateways[at];
        if it.frozen {
            return;
        }
        let (slots, parts) = (it.holder.slots(now, 0), it.holder.parts(now, 0).to_vec());
        it.admission.handle_lease(ResourceId(0), slots, &parts);
        let mut started = Vec::new();
        while let Some(decision) = it.admission.poll_decision(now) {
            match decision {
                Decision::Start(start) => {
                    it.started[start.class.index()] += 1;
                    started.push((start.request, start.class));
                }
                Decision::Refuse { request, .. } => drop(it.born.remove(&request.index())),
            }
        }
        let waiting: usize = (0..it.classes).map(|class| it.admission.waiting(ClassId(class), ResourceId(0))).sum();
        let of_class = |class: u16| {
            let (class, resource) = (ClassId(class), ResourceId(0));
            it.admission.running_of(class, resource) + it.admission.waiting(class, resource) as u32
        };
        let of_classes: Vec<u32> = (0..it.classes).map(of_class).collect();
        it.holder.handle_classes(0, &of_classes);
        it.holder.handle_load(now, 0, it.admission.running(ResourceId(0)), waiting as u32);
        let ask = it.holder.poll_ask(now).then(|| {
            let demand = |class| Demand {
                running: it.admission.running_of(ClassId(class), ResourceId(0)),
                waiting: it.admission.waiting(ClassId(class), ResourceId(0)) as u32,
            };
            let cell = CellAsk {
                holds: it.holder.slots(now, 0),
                demands: (0..it.classes).map(demand).collect(),
                started: it.started.iter_mut().map(core::mem::take).collect(),
                ..CellAsk::default()
            };
            let cells = vec![cell];
            it.holder.handle_asked(now, &cells);
            it.asked = Some(self.now);
            let (seen, gateways) = (it.holder.seen(), it.holder.gateways());
            Ask { seen, gateways, linger_ns: 200 * MS, keep_ns: 0, cells }
        });
        let online = it.online;
        for (request, class) in started {
            let service = self.service[class.index()];
            self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let jitter = (self.chance >> 33) % (service / 2);
            self.send(service * 3 / 4 + jitter, Message::Done(at, request));
        }
        if let Some(ask) = ask
            && online
        {
            self.asks += 1;
            self.send(self.delay, Message::Ask(at, self.now, ask));
        }
        let running: u32 = self.gateways.iter().map(|it| it.admission.running(ResourceId(0))).sum();
        self.most_running = self.most_running.max(running);
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask(from, asked_at, ask) => {
                let now = self.at();
                let Some(ledger) = &mut self.ledger else { return };
                let reply = ledger.handle_ask(now, GatewayId(from as u32), ask);
                let mut notices = Vec::new();
                while let Some(notice) = ledger.poll_notice() {
                    notices.push(notice);
                }
                self.send(self.delay, Message::Reply(from, asked_at, reply));
                for notice in notices {
                    match notice {
                        Notice::Free(GatewayId(to)) => self.send(self.delay, Message::Notice(to as usize)),
                        Notice::Wanted => {
                            for to in 0..self.gateways.len() {
                                self.send(self.delay, Message::Notice(to));
                            }
                        }
                    }
                }
            }
            Message::Reply(to, asked_at, reply) => {
                let it = &mut self.gateways[to];
                if it.online && !it.frozen && it.asked == Some(asked_at) {
                    it.holder.handle_reply(Instant::from_ns(asked_at), &reply);
                    it.asked = None;
                    self.pump(to);
                }
            }
            Message::Notice(to) => {
                if self.gateways[to].online {
                    self.gateways[to].holder.handle_notice();
                    self.pump(to);
                }
            }
            Message::Done(at, request) => {
                let now = self.at();
                let it = &mut self.gateways[at];
                if let Some((class, born)) = it.born.remove(&request.index()) {
                    self.finished[class.index()] += 1;
                    self.system_ns[class.index()] += self.now - born;
                }
                let class = it.admission.class(request);
                it.admission.handle_finished(now, request);
                self.pump(at);
                if let Some(class) = class
                    && let Some(&again) = self.again.get(class.index())
                {
                    self.arrive(again, class.0);
                }
            }
        }
    }

    /// Lets a millisecond pass.
    fn step(&mut self) {
        let until = self.now + MS;
        while let Some(entry) = self.messages.first_entry().filter(|it| it.key().0 <= until) {
            let ((at, _), message) = entry.remove_entry();
            self.now = self.now.max(at);
            self.deliver(message);
        }
        self.now = until;
        for at in 0..self.gateways.len() {
            let it = &mut self.gateways[at];
            if it.asked.is_some_and(|asked| self.now - asked > it.holder.timeout_ns()) {
                it.asked = None;
                it.holder.handle_failed(Instant::from_ns(self.now));
            }
            self.pump(at);
        }
    }

    /// Lets time pass, with so many requests waiting at each gateway in each class.
    fn saturated(&mut self, ms: u64, backlog: &[&[usize]]) {
        for _ in 0..ms {
            for (gateway, classes) in backlog.iter().enumerate() {
                for (class, &most) in classes.iter().enumerate() {
                    while self.gateways[gateway].admission.waiting(ClassId(class as u16), ResourceId(0)) < most {
                        self.arrive(gateway, class as u16);
                    }
                }
            }
            self.step();
        }
    }

    fn running(&self, gateway: usize) -> u32 {
        self.gateways[gateway].admission.running(ResourceId(0))
    }

    fn forget_counts(&mut self) {
        self.finished.fill(0);
        self.system_ns.fill(0);
        self.most_running = 0;
        self.asks = 0;
    }
}

fn weighted(weights: &[u32]) -> Vec<Class> {
    weights.iter().map(|&weight| Class { weight, most_waiting: 100_000, ..Class::default() }).collect()
}

#[test]
fn equal_gateways_fill_the_window_and_never_exceed_it() {
    for gateways in [1, 2, 4, 8] {
        let mut world = World::new(gateways, 10, Policy::Weighted, weighted(&[1]));
        let backlog = vec![&[20_usize][..]; gateways];
        world.saturated(1500, &backlog);
        world.forget_counts();
        world.saturated(10_000, &backlog);
        // 10 slots of 20 ms: 500 a second.
        println!("{gateways}: {} of 5000, most {}, asks {}", world.finished[0], world.most_running, world.asks);
        assert!(world.finished[0] >= 4850, "{gateways}: {}", world.finished[0]);
        assert!(world.most_running <= 10, "{gateways}: {}", world.most_running);
    }
}

#[test]
fn an_answer_about_cells_of_before_a_change_does_not_count() {
    let cell = |window| CellSettings { window, adjusted: false, division: Division::Weighted, classes: vec![] };
    let mut holder = Holder::new(Instant::ORIGIN, Times::default(), &[cell(10)]);
    let ask = [CellAsk::default()];
    holder.handle_asked(Instant::ORIGIN, &ask);
    let now = Instant::from_ns(MS);
    holder.handle_settings(now, &[cell(3)]);
    let grant = |slots| Reply { number: 1, gateways: 1, leads: true, cells: vec![Grant { slots, ..Grant::default() }] };
    holder.handle_reply(Instant::ORIGIN, &grant(10));
    assert_eq!((holder.slots(now, 0), holder.is_leased(now)), (0, false));
    assert!(holder.poll_ask(now), "it asks again at once");
    holder.handle_asked(now, &ask);
    holder.handle_reply(now, &grant(3));
    assert_eq!((holder.slots(now, 0), holder.is_leased(now)), (3, true));
}

#[test]
fn a_class_that_the_store_does_not_know_here_has_no_part_and_a_tiny_part_is_one() {
    let cell = CellSettings { window: 10, adjusted: false, division: Division::Weighted, classes: vec![] };
    let mut holder = Holder::new(Instant::ORIGIN, Times::default(), &[cell]);
    let mut ask = |parts: &[u32], factors: &[u32], waiting: [u32; 3]| {
        let demands = waiting.map(|waiting| Demand { running: 0, waiting }).to_vec();
        holder.handle_asked(Instant::ORIGIN, &[CellAsk { demands, ..CellAsk::default() }]);
        let grant = Grant { parts: parts.to_vec(), factors: factors.to_vec(), ..Grant::default() };
        holder.handle_reply(Instant::ORIGIN, &Reply { cells: vec![grant], ..Reply::default() });
        holder.parts(Instant::ORIGIN, 0).to_vec()
    };
    assert_eq!(ask(&[0, 500, 0], &[], [0, 3, 1]), [0, 32_000, 1]);
    assert_eq!(ask(&[1000, 500, 0], &[1000, 2000, 500], [7, 3, 1]), [64_000, 64_000, 1]);
    assert_eq!(ask(&[0, 100, 0], &[2000, 1000, 500], [0, 3, 1]), [0, 25_600, 1], "parts are smoothed");
}

#[test]
fn fewer_slots_than_gateways_go_round() {
    let mut world = World::new(4, 1, Policy::Weighted, weighted(&[1]));
    let backlog = vec![&[5_usize][..]; 4];
    world.saturated(3000, &backlog);
    world.forget_counts();
    let mut served = [0; 4];
    for _ in 0..8000 {
        world.saturated(1, &backlog);
        for (gateway, served) in served.iter_mut().enumerate() {
            *served += world.running(gateway);
        }
    }
    println!("{served:?} most {} finished {}", world.most_running, world.finished[0]);
    assert!(world.most_running <= 1);
    assert!(world.finished[0] >= 360, "of 400: {}", world.finished[0]);
    assert!(served.iter().all(|&it| it >= 1000), "{served:?}");
}

#[test]
fn weights_hold_over_the_whole_site() {
    for backlog in [
        [[40_usize, 40, 40], [40, 40, 40]],
        [[40, 0, 0], [0, 40, 40]],
        [[40, 10, 0], [0, 40, 80]],
        [[10, 10, 10], [80, 80, 80]],
    ] {
        let mut world = World::new(2, 14, Policy::Weighted, weighted(&[4, 2, 1]));
        let backlog: Vec<&[usize]> = backlog.iter().map(|it| &it[..]).collect();
        world.saturated(2000, &backlog);
        world.forget_counts();
        world.saturated(20_000, &backlog);
        let unit = world.finished.iter().sum::<u64>() as f64 / 7.0;
        let parts: Vec<f64> = world.finished.iter().map(|&it| it as f64 / unit).collect();
        println!("{backlog:?}: {parts:.3?} sum {} most {}", world.finished.iter().sum::<u64>(), world.most_running);
        for (part, weight) in parts.iter().zip([4.0, 2.0, 1.0]) {
            assert!((part / weight - 1.0).abs() < 0.02, "{backlog:?}: {parts:?}");
        }
    }
}

#[test]
fn load_that_moves_is_followed() {
    let mut world = World::new(2, 10, Policy::Weighted, weighted(&[1]));
    world.saturated(2000, &[&[20], &[0]]);
    assert_eq!((world.running(0), world.running(1)), (10, 0));
    world.saturated(300, &[&[0], &[20]]);
    world.forget_counts();
    world.saturated(1000, &[&[0], &[20]]);
    assert!(world.finished[0] >= 485, "{}", world.finished[0]);
    assert!(world.most_running <= 10);
}

#[test]
fn weights_hold_while_the_requests_move_from_gateway_to_gateway() {
    let mut world = World::new(4, 12, Policy::Weighted, weighted(&[4, 2, 1]));
    let at = |busy: usize| -> Vec<&'static [usize]> {
        (0..4).map(|gateway| if gateway == busy { &[24, 24, 24][..] } else { &[0, 0, 0][..] }).collect()
    };
    world.saturated(2000, &at(0));
    world.forget_counts();
    for turn in 0..20 {
        world.saturated(1000, &at(turn % 4));
    }
    let [gold, silver, plain] = world.finished[..] else { unreachable!() };
    println!("moved: {gold} {silver} {plain}, {} asks", world.asks);
    let ratio = |of: u64| of as f64 / plain as f64;
    assert!((ratio(gold) / 4.0 - 1.0).abs() < 0.02, "{}", ratio(gold));
    assert!((ratio(silver) / 2.0 - 1.0).abs() < 0.02, "{}", ratio(silver));
}

/// Where the clients of a class ask in each second.
type Place = fn(usize, u16) -> usize;

#[test]
fn clients_that_move_have_their_weights() {
    let places: [(&str, f64, Place); 5] = [
        ("all to the next gateway every second", 0.01, |second, _| second),
        ("all to the next gateway every 3 s", 0.01, |second, _| second / 3),
        ("silver and plain change places", 0.02, |second, class| {
            usize::from(class > 0) * (second + usize::from(class > 1))
        }),
        ("gold and the others change places", 0.03, |second, class| second + usize::from(class == 0)),
        ("each class at its own pace", 0.03, |second, class| second / (1 + usize::from(class)) + usize::from(class)),
    ];
    for (name, most, place) in places {
        for gateways in [2, 4, 8] {
            let world = closed(gateways, 40, |second, class| place(second, class) % gateways);
            let plain = world.finished[2] as f64;
            let (gold, silver) = (world.finished[0] as f64 / plain, world.finished[1] as f64 / plain);
            let asks = world.asks as f64 / 40.0 / gateways as f64;
            println!("{name}, {gateways}: {gold:.3} {silver:.3}, {asks:.1} asks/s each");
            assert!((gold / 4.0 - 1.0).abs() < most && (silver / 2.0 - 1.0).abs() < most, "{name}: {gold} {silver}");
            assert!(world.finished.iter().sum::<u64>() > 40 * 600 * 99 / 100 && world.most_running <= 12);
            assert!(asks < 40.0, "{name}: {asks}");
        }
    }
}

/// 24 clients of each class always have a request under way. A client asks at the place of the second in which it has
/// its answer.
fn closed(gateways: usize, seconds: usize, place: impl Fn(usize, u16) -> usize) -> World {
    let mut world = World::new(gateways, 12, Policy::Weighted, weighted(&[4, 2, 1]));
    world.again = (0..3).map(|class| place(0, class)).collect();
    for class in 0..3 {
        (0..24).for_each(|_| world.arrive(place(0, class), class));
    }
    (0..2000).for_each(|_| world.step());
    world.forget_counts();
    for second in 1..=seconds {
        world.again = (0..3).map(|class| place(second, class)).collect();
        (0..1000).for_each(|_| world.step());
    }
    world
}

#[test]
fn without_the_store_each_has_its_equal_part() {
    let mut world = World::new(4, 10, Policy::Weighted, weighted(&[1]));
    let backlog = vec![&[20_usize][..]; 4];
    world.saturated(2000, &backlog);
    world.ledger = None;
    world.saturated(1500, &backlog);
    for gateway in 0..4 {
        assert_eq!(world.running(gateway), 2);
    }
    // The store is back, without memory.
    world.forget_counts();
    world.ledger = Some(Ledger::new(world.at(), Times::default().lease_ns, world.cells.clone()));
    world.saturated(3000, &backlog);
    assert!(world.most_running <= 10, "{}", world.most_running);
    world.forget_counts();
    world.saturated(10_000, &backlog);
    assert!(world.finished[0] >= 4850, "{}", world.finished[0]);
}

#[test]
fn the_slots_of_a_gateway_that_is_gone_are_used_by_others() {
    let mut world = World::new(2, 10, Policy::Weighted, weighted(&[1]));
    let backlog: [&[usize]; 2] = [&[20], &[20]];
    world.saturated(2000, &backlog);
    world.gateways[1].frozen = true;
    world.gateways[1].online = false;
    for _ in 0..2000 {
        world.saturated(1, &[&[20], &[]]);
        if world.running(0) == 10 {
            break;
        }
    }
    assert_eq!(world.running(0), 10);
    // It is back after a pause, and its lease has ended.
    world.gateways[1].frozen = false;
    world.gateways[1].online = true;
    world.forget_counts();
    world.saturated(3000, &backlog);
    assert!(world.most_running <= 10, "{}", world.most_running);
    assert_eq!((world.running(0), world.running(1)), (5, 5));
}

#[test]
fn delays_keep_their_ratios_over_gateways_with_different_classes() {
    let classes: Vec<Class> =
        [1, 2, 4].iter().map(|&delay_ratio| Class { delay_ratio, most_waiting: 100_000, ..Class::default() }).collect();
    // Of each class 150 requests a second for 10 slots of 20 ms, then fewer, so that queues form and go.
    let all: &[[u64; 3]] = &[[150, 150, 150]];
    let one = ratios(all, &classes);
    for rates in [[[75, 75, 75], [75, 75, 75]], [[150, 20, 100], [0, 130, 50]]] {
        let several = ratios(&rates, &classes);
        for (several, one) in several.iter().zip(&one) {
            assert!((several / one - 1.0).abs() < 0.03, "{rates:?}: {several} beside {one} of one gateway");
        }
    }
}

/// Mean system times of the later classes over that of the first, at 0.98 of what the site can do.
fn ratios(rates: &[[u64; 3]], classes: &[Class]) -> Vec<f64> {
    let of_seeds: Vec<_> = (1..=6).map(|seed| ratios_of(rates, classes, seed)).collect();
    let mean = |class: usize| of_seeds.iter().map(|it| it[class]).sum::<f64>() / of_seeds.len() as f64;
    println!("{rates:?}: {:.3} {:.3}", mean(0), mean(1));
    vec![mean(0), mean(1)]
}

/// The same for one seed.
fn ratios_of(rates: &[[u64; 3]], classes: &[Class], seed: u64) -> Vec<f64> {
    let mut world = World::new(rates.len(), 10, Policy::Ratio, classes.to_vec());
    let mut random = seed;
    for ms in 0..120_000_u64 {
        for class in 0..classes.len() {
            let mut draw = |of: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % of
            };
            // The same requests for any number of gateways. 1.09 of the load, so that the site is just below saturation.
            let all: u64 = rates.iter().map(|rates| rates[class]).sum();
            let (comes, mut place) = (all * 1090 > draw(1_000_000), draw(all));
            let gateway = rates.iter().position(|rates| match place.checked_sub(rates[class]) {
                Some(rest) => {
                    place = rest;
                    false
                }
                None => true,
            });
            if comes {
                world.arrive(gateway.expect("one of them"), class as u16);
            }
        }
        if ms == 10_000 {
            world.forget_counts();
        }
        world.step();
    }
    let means: Vec<f64> =
        world.system_ns.iter().zip(&world.finished).map(|(&ns, &n)| ns as f64 / n as f64 / 1e6).collect();
    println!("{rates:?}: {means:.1?} ms, {:.3} {:.3}", means[1] / means[0], means[2] / means[0]);
    means[1..].iter().map(|mean| mean / means[0]).collect()
}

proptest! {
    /// Granted slots and running requests are never more than the window, whatever gateways ask for and whenever.
    #[test]
    fn grants_never_exceed_the_window(
        window in 1_u32..20,
        events in prop::collection::vec((0_u32..6, 0_u64..400, 0_u32..12, 0_u32..30, 0_u32..30), 1..200),
    ) {
        let cells = vec![CellSettings {
            window,
            adjusted: false,
            division: Division::Weighted,
            classes: [3, 1].map(|weight| ClassSettings { weight, reserve: 0 }).to_vec(),
        }];
        let mut ledger = Ledger::new(Instant::ORIGIN, 1000 * MS, cells);
        let mut now = 0;
        let mut holds: BTreeMap<u32, (u32, u64, u64)> = BTreeMap::new();
        for (id, pass, running, gold, plain) in events {
            now += pass * MS;
            let (slots, until, seen) = holds.get(&id).copied().unwrap_or((0, 0, 0));
            let slots = if until > now { slots } else { 0 };
            let running = running.min(slots);
            let demands = vec![Demand { running, waiting: gold }, Demand { running: 0, waiting: plain }];
            let ask = Ask { seen, gateways: 6, linger_ns: 0, keep_ns: 0, cells: vec![CellAsk { holds: slots, demands, ..CellAsk::default() }] };
            let reply = ledger.handle_ask(Instant::from_ns(now), GatewayId(id), ask);
            holds.insert(id, (reply.cells[0].slots, now + 1000 * MS, reply.number));
            let granted: u32 = holds.values().filter(|it| it.1 > now).map(|it| it.0).sum();
            prop_assert!(granted <= window, "{granted} of {window}");
            prop_assert!(ledger.held(0) <= window);
        }
    }
}
