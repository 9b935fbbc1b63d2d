//! Gateways with real uplinks, and a ledger, joined by messages that take time, under a clock of the test.

use proptest::prelude::*;

use super::*;
use crate::{
    class::ClassId,
    job::{JobId, Path, Size},
    lease::{GatewayId, Ledger, Notice},
    order::Order,
    uplink::{ClassShare, Settings, Uplink},
};

const US: u64 = 1_000;
/// A message takes so long each way.
const DELAY_US: u64 = 250;
/// Time goes on in steps of this.
const STEP_US: u64 = 50;
/// A slow client takes a chunk in this time: a little less than a fifth of the line.
const SLOW_US: u64 = 2_000;

/// Gateways that send through one line, and their store.
struct World {
    now_us: u64,
    ledger: Option<Ledger>,
    gateways: Vec<Gateway>,
    /// When, to or from which gateway, and what.
    messages: Vec<(u64, usize, Message)>,
    /// The first ask of a gateway that was cut off.
    late: Option<(GatewayId, Ask)>,
    /// Most parts leased at any time.
    most: u32,
    asks: u32,
}

struct Gateway {
    line: Line,
    uplink: Uplink,
    /// Downloads without an end.
    downloads: Vec<(JobId, usize)>,
    /// Responses whose grant was sent, and that ask again.
    served: Vec<JobId>,
    /// A download whose client takes a chunk each [`SLOW_US`]; when it asks again.
    slow: Option<JobId>,
    slow_at: Option<Instant>,
    /// Files under way, and those that have ended, by their numbers.
    files: Vec<(JobId, usize)>,
    ended: Vec<usize>,
    /// The gateway reaches the store.
    online: bool,
    /// Wire bytes sent until the last look.
    counted: u64,
    counted_of: Vec<u64>,
}

enum Message {
    Ask(Instant, Ask),
    Reply(Instant, Reply),
    Notice,
    Failed,
}

fn whole() -> Rate {
    "100mbit".parse().unwrap()
}

impl World {
    fn new(gateways: usize, policy: Policy, weights: &[u32]) -> Self {
        let classes: Vec<_> = weights.iter().map(|&weight| Class { weight, ..Class::default() }).collect();
        let gateway = |_| {
            let mut uplink = Uplink::new(Settings::default());
            if !classes.is_empty() {
                let share = ClassShare { policy, classes: classes.clone(), slots: None };
                uplink.handle_share(Instant::ORIGIN, Some(share), &[]).unwrap();
            }
            Gateway {
                line: Line::new(Instant::ORIGIN, Times::DEFAULT, whole(), policy, &classes),
                uplink,
                downloads: vec![],
                served: vec![],
                slow: None,
                slow_at: None,
                files: vec![],
                ended: vec![],
                online: true,
                counted: 0,
                counted_of: vec![0; classes.len()],
            }
        };
        let gateways: Vec<_> = (0..gateways).map(gateway).collect();
        let cells = vec![gateways[0].line.cell().clone()];
        let ledger = Some(Ledger::new(Instant::ORIGIN, Times::DEFAULT.lease_ns, cells));
        let mut world = Self { now_us: 0, ledger, gateways, messages: vec![], late: None, most: 0, asks: 0 };
        // The ledger listens first whether there are leases of before.
        world.pass(1_500);
        world
    }

    fn now(&self) -> Instant {
        Instant::from_ns(self.now_us * US)
    }

    fn send(&mut self, gateway: usize, message: Message) {
        self.messages.push((self.now_us + DELAY_US, gateway, message));
    }

    /// Sets how many downloads of a class a gateway has.
    fn downloads(&mut self, gateway: usize, class: usize, count: usize) {
        let now = self.now();
        let it = &mut self.gateways[gateway];
        let has: Vec<_> = it.downloads.iter().filter(|(_, of)| *of == class).map(|(job, _)| *job).collect();
        for job in has.iter().skip(count) {
            it.uplink.handle_finished(now, *job, false);
            it.downloads.retain(|(other, _)| other != job);
            it.served.retain(|other| other != job);
        }
        for _ in has.len()..count {
            let job = it.uplink.handle_started_of(now, ClassId(class as u16), Size::Unknown, Path::UNKNOWN);
            it.downloads.push((job, class));
            it.served.push(job);
        }
    }

    /// Begins a file of a class at every gateway.
    fn file(&mut self, number: usize, class: u16, bytes: u64) {
        let now = self.now();
        for it in &mut self.gateways {
            let job = it.uplink.handle_started_of(now, ClassId(class), Size::Known(bytes), Path::UNKNOWN);
            it.files.push((job, number));
            it.served.push(job);
        }
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms * 1000 / STEP_US {
            self.now_us += STEP_US;
            let now = self.now();
            let (due, later): (Vec<_>, Vec<_>) =
                core::mem::take(&mut self.messages).into_iter().partition(|it| it.0 <= self.now_us);
            self.messages = later;
            for (_, gateway, message) in due {
                self.deliver(now, gateway, message);
            }
            for at in 0..self.gateways.len() {
                if let Some(ask) = self.gateways[at].turn(now) {
                    self.asks += 1;
                    self.send(at, Message::Ask(now, ask));
                }
            }
            let leased = self.gateways.iter().filter(|it| it.online).map(|it| it.line.holder.slots(now, 0)).sum();
            self.most = self.most.max(leased);
        }
    }

    fn deliver(&mut self, now: Instant, gateway: usize, message: Message) {
        match message {
            Message::Ask(asked_at, ask) => {
                let (true, Some(ledger)) = (self.gateways[gateway].online, &mut self.ledger) else {
                    self.late.get_or_insert((GatewayId(gateway as u32), ask));
                    self.messages.push((self.now_us + 400_000, gateway, Message::Failed));
                    return;
                };
                let reply = ledger.handle_ask(now, GatewayId(gateway as u32), ask);
                let notices: Vec<_> = core::iter::from_fn(|| ledger.poll_notice()).collect();
                self.send(gateway, Message::Reply(asked_at, reply));
                for notice in notices {
                    match notice {
                        Notice::Free(to) => self.send(to.0 as usize, Message::Notice),
                        Notice::Wanted => (0..self.gateways.len()).for_each(|to| self.send(to, Message::Notice)),
                    }
                }
            }
            Message::Reply(asked_at, reply) => self.gateways[gateway].line.handle_reply(asked_at, &reply),
            Message::Notice => self.gateways[gateway].line.handle_notice(),
            Message::Failed => self.gateways[gateway].line.handle_failed(now),
        }
    }

    /// The rate of each gateway since the last look, in thousandths of the whole line.
    fn rates(&mut self, over_ms: u64) -> Vec<u64> {
        let parts = |gateway: &mut Gateway| {
            let sent = gateway.uplink.stats().charged_bytes;
            let bytes = sent - core::mem::replace(&mut gateway.counted, sent);
            (bytes as f64 * 8.0 * 1e6 / over_ms as f64 / whole().bits_per_second() as f64).round() as u64
        };
        self.gateways.iter_mut().map(parts).collect()
    }

    /// Lets time pass, and returns the rate of each gateway meanwhile, in thousandths of the whole line.
    fn measure(&mut self, ms: u64) -> Vec<u64> {
        self.rates(1);
        self.pass(ms);
        self.rates(ms)
    }

    /// The same by class, over all gateways.
    fn measure_classes(&mut self, ms: u64) -> Vec<f64> {
        let bytes = |world: &Self| -> Vec<u64> {
            let classes = 0..world.gateways[0].counted_of.len() as u16;
            let sum = |class| world.gateways.iter().map(|it| it.uplink.class_stats(ClassId(class)).charged_bytes).sum();
            classes.map(sum).collect()
        };
        let before = bytes(self);
        self.pass(ms);
        let sent: Vec<_> = bytes(self).iter().zip(before).map(|(after, before)| (after - before) as f64).collect();
        let all: f64 = sent.iter().sum();
        sent.into_iter().map(|it| it / all).collect()
    }
}

impl Gateway {
    fn turn(&mut self, now: Instant) -> Option<Ask> {
        for job in core::mem::take(&mut self.served) {
            if self.slow == Some(job) {
                match *self.slow_at.get_or_insert(now.add_ns(SLOW_US * US)) {
                    at if now < at => {
                        self.served.push(job);
                        continue;
                    }
                    _ => self.slow_at = None,
                }
            }
            let bytes = self.uplink.remaining_bytes(job).unwrap_or(u64::MAX);
            if bytes == 0 {
                self.uplink.handle_finished(now, job, true);
                let at = self.files.iter().position(|(of, _)| *of == job).unwrap();
                self.ended.push(self.files.swap_remove(at).1);
                continue;
            }
            if self.uplink.handle_wants(now, job, bytes).is_some() {
                self.served.push(job);
            }
        }
        let Self { line, uplink, .. } = self;
        let of_all = uplink.share().is_none().then(|| uplink.stats());
        line.observe(now, |class| match of_all {
            Some(all) => Seen { waiting: all.waiting, sent_bytes: all.charged_bytes },
            None => {
                let its = uplink.class_stats(ClassId(class as u16));
                Seen { waiting: its.waiting, sent_bytes: its.charged_bytes }
            }
        });
        if uplink.settings().rate != Some(line.rate(now)) {
            uplink.handle_rate(now, Some(line.rate(now)));
        }
        uplink.handle_parts(line.parts(now));
        while let Some(grant) = uplink.poll_grant(now) {
            self.served.push(grant.job);
        }
        line.poll_ask(now)
    }
}

/// Whether numbers are within so many of others.
fn near(numbers: &[u64], others: &[u64], most: u64) -> bool {
    numbers.iter().zip(others).all(|(number, other)| number.abs_diff(*other) <= most)
}

#[test]
fn a_gateway_that_alone_sends_has_the_whole_line_and_gives_it_up_within_milliseconds() {
    let mut world = World::new(2, Policy::Weighted, &[]);
    world.downloads(0, 0, 1);
    world.pass(10);
    let rates = world.measure(200);
    assert!(near(&rates, &[1000, 0], 5), "{rates:?}");
    world.downloads(1, 0, 1);
    world.pass(10);
    let rates = world.measure(200);
    assert!(near(&rates, &[500, 500], 15), "{rates:?}");
    // In proportion to the responses.
    world.downloads(0, 0, 3);
    world.pass(110);
    let rates = world.measure(400);
    assert!(near(&rates, &[750, 250], 20), "{rates:?}");
    world.downloads(0, 0, 0);
    world.pass(50);
    let rates = world.measure(400);
    assert!(near(&rates, &[0, 1000], 15), "{rates:?}");
    assert!(world.most <= PARTS, "{}", world.most);
}

#[test]
fn classes_share_the_line_over_all_gateways() {
    // Downloads of each class at each gateway, and the parts of the classes.
    for (downloads, weights, policy, expected) in [
        ([[2, 0], [0, 20]], [3, 1], Policy::Weighted, [0.75, 0.25]),
        ([[1, 1], [1, 0]], [3, 1], Policy::Weighted, [0.75, 0.25]),
        ([[5, 1], [1, 8]], [1, 1], Policy::Weighted, [0.5, 0.5]),
        ([[2, 0], [0, 20]], [1, 1], Policy::Strict, [1.0, 0.0]),
        ([[1, 3], [0, 20]], [1, 1], Policy::Strict, [1.0, 0.0]),
    ] {
        let mut world = World::new(2, policy, &weights);
        for (gateway, of_gateway) in downloads.iter().enumerate() {
            for (class, &count) in of_gateway.iter().enumerate() {
                world.downloads(gateway, class, count);
            }
        }
        world.pass(500);
        let parts = world.measure_classes(1_000);
        let is_near = parts.iter().zip(expected).all(|(part, expected)| (part - expected).abs() < 0.02);
        assert!(is_near, "{policy} {downloads:?}: {parts:?}");
        let rates: u64 = world.measure(500).iter().sum();
        assert!((980..=1005).contains(&rates), "{policy} {downloads:?}: {rates}");
        assert!(world.most <= PARTS, "{}", world.most);
    }
}

#[test]
fn without_the_store_each_gateway_has_an_equal_part_and_with_it_again_what_it_needs() {
    let mut world = World::new(4, Policy::Weighted, &[]);
    world.downloads(0, 0, 5);
    world.downloads(1, 0, 5);
    world.pass(100);
    let memory = world.ledger.take();
    world.pass(2_500);
    let rates = world.measure(500);
    assert!(near(&rates, &[250, 250, 0, 0], 5), "{rates:?}");
    assert!(world.most <= PARTS, "{}", world.most);
    drop(memory);
    let cells = vec![world.gateways[0].line.cell().clone()];
    world.ledger = Some(Ledger::new(world.now(), Times::DEFAULT.lease_ns, cells));
    world.pass(1_500);
    let rates = world.measure(500);
    assert!(near(&rates, &[500, 500, 0, 0], 15), "{rates:?}");
    assert!(world.most <= PARTS, "{}", world.most);
}

#[test]
fn what_is_cut_off_keeps_its_equal_part_and_no_more_than_the_line_is_in_use_for_ten_seconds() {
    let mut world = World::new(3, Policy::Weighted, &[]);
    world.downloads(0, 0, 3);
    world.downloads(1, 0, 1);
    world.pass(300);
    // The one that is cut off holds 0, 250 or 750 of a thousand.
    for cut in [2, 1, 0] {
        world.gateways[cut].online = false;
        world.late = None;
        let others = world.gateways.iter().filter(|it| it.online && !it.downloads.is_empty()).count() as u64;
        let mut most = 0;
        for _ in 0..45 {
            most = most.max(world.measure(100).iter().sum());
        }
        assert!(most <= 1015, "{cut}: {most}");
        let rates = world.measure(500);
        let of = |at: usize, downloads: u64, of_all: u64| match at {
            _ if world.gateways[at].downloads.is_empty() => 0,
            _ if at == cut => 333,
            _ => 667 * if others == 1 { 1 } else { downloads } / if others == 1 { 1 } else { of_all },
        };
        assert!(near(&rates, &[of(0, 3, 4), of(1, 1, 4), 0], 15), "{cut}: {rates:?}");
        world.gateways[cut].online = true;
        // An ask that was on its way all the time arrives first, and its answer does not.
        let ((id, ask), now) = (world.late.take().unwrap(), world.now());
        world.ledger.as_mut().unwrap().handle_ask(now, id, ask);
        for _ in 0..6 {
            let sum: u64 = world.measure(100).iter().sum();
            assert!(sum <= 1015, "{cut} is back: {sum}");
        }
        let rates = world.measure(500);
        assert!(near(&rates, &[750, 250, 0], 15), "{cut} is back: {rates:?}");
    }
    assert!(world.most <= PARTS, "{}", world.most);
    // Longer than that, and it counts as gone. It still sends.
    world.gateways[1].online = false;
    world.pass(11_500);
    let rates = world.measure(500);
    assert!(near(&rates, &[1000, 333, 0], 15), "the bound is that: {rates:?}");
    world.gateways[1].online = true;
    // It has a lease that the store knows nothing of, so nothing more is granted for a second.
    world.pass(2_000);
    let rates = world.measure(500);
    assert!(near(&rates, &[750, 250, 0], 15), "{rates:?}");
}

#[test]
fn the_part_of_a_gateway_whose_connection_has_ended_goes_to_the_others_with_its_lease() {
    let mut world = World::new(2, Policy::Weighted, &[]);
    world.downloads(0, 0, 1);
    world.downloads(1, 0, 1);
    world.pass(100);
    world.downloads(1, 0, 0);
    world.gateways[1].online = false;
    world.ledger.as_mut().unwrap().handle_closed(GatewayId(1));
    // An ask may be on its way.
    world.pass(1);
    world.ledger.as_mut().unwrap().handle_closed(GatewayId(1));
    world.pass(1_150);
    let rates = world.measure(500);
    assert!(near(&rates, &[1000, 0], 15), "{rates:?}");
}

#[test]
fn a_gateway_that_comes_while_all_others_are_cut_off_has_its_equal_part() {
    let mut world = World::new(2, Policy::Weighted, &[]);
    world.downloads(0, 0, 1);
    // Only the first one was ever there.
    world.gateways[1].online = false;
    let now = world.now();
    world.ledger.as_mut().unwrap().handle_left(now, GatewayId(1));
    world.pass(500);
    world.gateways[0].online = false;
    world.pass(3_000);
    world.gateways[1].line = Line::new(world.now(), Times::DEFAULT, whole(), Policy::Weighted, &[]);
    world.gateways[1].online = true;
    world.downloads(1, 0, 1);
    world.pass(1_500);
    let rates = world.measure(500);
    assert!(rates[1].abs_diff(500) <= 10, "{rates:?}");
}

#[test]
fn a_steady_load_costs_about_ten_asks_a_second() {
    for downloads in [[1, 1], [20, 30], [1, 0]] {
        let mut world = World::new(2, Policy::Weighted, &[]);
        world.downloads(0, 0, downloads[0]);
        world.downloads(1, 0, downloads[1]);
        world.pass(1_000);
        world.asks = 0;
        world.pass(5_000);
        assert!(world.asks <= 2 * 5 * 20, "{downloads:?}: {}", world.asks);
    }
}

#[test]
fn a_gateway_whose_clients_are_slow_leaves_what_they_do_not_take() {
    let mut world = World::new(2, Policy::Weighted, &[]);
    world.downloads(0, 0, 1);
    let now = world.now();
    let it = &mut world.gateways[1];
    it.slow = Some(it.uplink.handle_started(now, Size::Unknown, Path::UNKNOWN));
    it.served.extend(it.slow);
    let asks = world.asks;
    world.pass(1_000);
    let rates = world.measure(2_000);
    // It could take 180 of a thousand, and asks for a quarter more. The rest is the other one's.
    assert!(rates[0] >= 770 && rates[1] >= 165 && world.most <= PARTS, "{rates:?}");
    assert!(world.asks - asks <= 2 * 3 * 30, "{}", world.asks - asks);
}

/// The order in which files end at gateways that send through one line.
fn ends(gateways: usize, order: Order, deadlines_ms: Option<[u64; 2]>) -> Vec<Vec<usize>> {
    let mut world = World::new(gateways, Policy::Weighted, &[]);
    let now = world.now();
    let classes: Vec<_> = (deadlines_ms.iter().flatten())
        .map(|ms| Class { deadline_ns: Some(ms * 1_000_000), ..Class::default() })
        .collect();
    for it in &mut world.gateways {
        it.uplink.handle_settings(now, Settings { order, ..*it.uplink.settings() });
        if !classes.is_empty() {
            let share = ClassShare { policy: Policy::Edf, classes: classes.clone(), slots: None };
            it.uplink.handle_share(now, Some(share), &[]).unwrap();
            it.line.handle_settings(now, whole(), Policy::Edf, &classes);
        }
    }
    if !classes.is_empty() {
        let cells = vec![world.gateways[0].line.cell().clone()];
        world.ledger = Some(Ledger::new(now, Times::DEFAULT.lease_ns, cells));
        world.pass(1_500);
    }
    for (number, bytes) in [2_000_000, 500_000, 1_000_000].into_iter().enumerate() {
        world.file(number, u16::from(number == 2), bytes);
    }
    world.pass(20);
    world.file(3, 0, 20_000);
    world.pass(100 + 300 * gateways as u64);
    assert!(world.most <= PARTS, "{}", world.most);
    world.gateways.iter().map(|it| it.ended.clone()).collect()
}

#[test]
fn each_gateway_keeps_its_order_on_its_part_of_the_line() {
    // Stert goes by the rate at which a response was sent so far, which is another one here.
    for order in Order::ALL.into_iter().filter(|order| *order != Order::Stert) {
        let alone = ends(1, order, None);
        assert_eq!(ends(2, order, None), vec![alone[0].clone(); 2], "{order}");
    }
    assert_eq!(ends(2, Order::Srpt, None), [[3, 1, 2, 0]; 2]);
    assert_eq!(ends(2, Order::Fifo, None), [[0, 1, 2, 3]; 2]);
    // The file that may take a second goes before those that may take a minute, though it is not the shortest.
    assert_eq!(ends(2, Order::Srpt, Some([60_000, 1_000])), [[2, 3, 1, 0]; 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However downloads come and go: no part of the line is leased twice, and all of it is in use a moment later.
    #[test]
    fn no_part_is_leased_twice(
        events in prop::collection::vec((0_usize..3, 0_usize..2, 0_usize..6, 0_u64..60), 1..20),
    ) {
        let mut world = World::new(3, Policy::Weighted, &[2, 1]);
        for (gateway, class, count, ms) in events {
            world.downloads(gateway, class, count);
            world.pass(ms);
        }
        world.downloads(0, 0, 1);
        world.pass(300);
        let sum: u64 = world.measure(200).iter().sum();
        prop_assert!((970..=1010).contains(&sum), "{sum}");
        prop_assert!(world.most <= PARTS, "{}", world.most);
    }
}
