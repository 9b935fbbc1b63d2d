//! Measures the rules for windows: random sites and loads, a site like the paper's, and the search for its
//! knee.
//!
//! `cargo run --release -p serpent-simulator --example windows` prints the figures; tests check a part of
//! them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use scheduler::{
    admission::{ResourceId, Settings},
    class::{Class, ClassId},
    control::{self, Found, Measured, Method, Probing, ProbingSettings, Search, Step, Window},
    share::Policy,
};

use super::{Curve, Demand, Event, EventKind, Events, Law, Load, Need, Report, Scenario, Site, Station, Visit};
use crate::Ticket;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A site and its load, drawn at random.
#[derive(Clone, Debug)]
pub struct World {
    /// The scenario, without windows.
    pub scenario: Scenario,
    /// The curves of the stations. There is one station per resource type, and perhaps one that all requests
    /// pass first.
    pub curves: Vec<Curve>,
    /// The first window of each resource type, also drawn at random.
    pub first: Vec<u32>,
    /// Requests per second of all types that the stations could serve if only their own capacity limited
    /// them.
    pub per_second: f64,
}

/// The result of a rule in a world.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Throughput relative to the best fixed windows.
    pub of_best: f64,
    /// The same for the type with the worst result.
    pub worst_type: f64,
    /// The best fixed windows.
    pub best: Vec<u32>,
    /// The mean windows of the rule.
    pub windows: Vec<f64>,
    /// Changes of windows per 1,000 requests.
    pub changes: f64,
    /// Whether every window was always within the operator's limits, and never 0.
    pub within: bool,
}

impl World {
    /// The world of this seed.
    pub fn random(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let types = random.random_range(1..=3usize);
        let mut curves: Vec<Curve> = (0..types).map(|_| curve(&mut random)).collect();
        let front = types > 1 && random.random_bool(0.5);
        if front {
            let servers = random.random_range(2..=8);
            curves.push(Curve::Knee(Station { servers, knee: 4 * servers, thrash: 0.02 }));
        }
        let (mut loads, mut total, mut slowest) = (Vec::new(), 0.0, f64::INFINITY);
        for (resource, curve) in curves[..types].iter().enumerate() {
            // From 5 to 100 ms, uniform in the logarithm.
            let mean_ns = 5e6 * libm::pow(20.0, random.random::<f64>());
            let most = (1..200).map(|n| curve.capacity(n)).fold(0.0, f64::max);
            let per_second = most * 1e9 / mean_ns;
            total += per_second;
            slowest = per_second.min(slowest);
            let routes = random.random_range(1..=3u32);
            let closed = random.random_bool(0.6);
            // Below, at, and above saturation.
            let offered = random.random_range(0.6..2.0);
            for _ in 0..routes {
                let own_ns = mean_ns * if routes > 1 { random.random_range(0.3..3.0) } else { 1.0 };
                let law = match random.random_range(0..4) {
                    0 => Law::Fixed,
                    1 => Law::Spread(random.random_range(30..200)),
                    _ => Law::Exponential,
                };
                let mut needs = vec![Need { station: resource, mean_ns: own_ns as u64, law }];
                if front {
                    let part = random.random_range(0.02..0.2);
                    needs.insert(0, Need { station: types, mean_ns: (own_ns * part) as u64, law: Law::Exponential });
                }
                let demand = if closed {
                    let think_ns = random.random_range(200 * MS..2 * SECOND);
                    let users = per_second * offered * (think_ns as f64 / 1e9) / f64::from(routes) + 10.0;
                    Demand::Closed { users: users as u32 + 10, think_ns }
                } else {
                    Demand::Open { per_second: per_second * offered / f64::from(routes) * mean_ns / own_ns }
                };
                let resource = ResourceId(resource as u16);
                loads.push(Load { class: ClassId(0), resource, needs, demand, patience_ns: None, silent_ns: None });
            }
        }
        let first = (0..types).map(|_| libm::pow(64.0, random.random::<f64>()) as u32).collect();
        let span_ns = 1e9 * f64::max(10_000.0 * types as f64 / total, 4_000.0 / slowest);
        let span_ns = span_ns as u64;
        let class = Class { most_waiting: 200, ..Class::default() };
        let scenario = Scenario {
            stations: vec![Station::SINGLE; curves.len()],
            loads,
            admission: Settings::multi_resource(vec![class], Policy::Weighted, &vec![1; types]),
            warm_up_ns: span_ns,
            measured_ns: span_ns,
            seed,
        };
        Self { scenario, curves, first, per_second: total }
    }

    fn events(&self, control: Option<control::Settings>) -> Events {
        let curve = |(station, &curve): (usize, &Curve)| Event {
            at_ns: 0,
            kind: EventKind::Curve { station, curve, pace: 1.0 },
        };
        Events { control, probes: Vec::new(), at_site: self.curves.iter().enumerate().map(curve).collect() }
    }

    /// Runs with these windows, for a part of the time.
    pub fn fixed(&self, windows: &[u32], part: f64) -> Report {
        let mut scenario = self.scenario.clone();
        scenario.admission.windows = windows.iter().copied().map(Some).collect();
        scenario.measured_ns = (scenario.measured_ns as f64 * part) as u64;
        scenario.warm_up_ns = scenario.measured_ns / 8;
        scenario.run_with(&self.events(None), |_| {}).expect("the scenario is sound")
    }

    /// The best fixed windows found by a search from the stations' own best, one type after the other. Also
    /// returns the throughput with them over the whole time.
    pub fn best(&self) -> (Vec<u32>, Report) {
        const TRIED: [u32; 22] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 19, 22, 26, 31, 37, 45, 54, 64, 80];
        let mut places: Vec<usize> = (0..self.first.len())
            .map(|it| {
                TRIED.iter().position(|&tried| tried as usize >= self.curves[it].best()).unwrap_or(TRIED.len() - 1)
            })
            .collect();
        let windows = |places: &[usize]| places.iter().map(|&place| TRIED[place]).collect::<Vec<_>>();
        let throughput = |places: &[usize]| self.fixed(&windows(places), 0.25).all().per_second();
        let mut most = throughput(&places);
        for _ in 0..2 {
            let before = places.clone();
            for it in 0..places.len() {
                for up in [true, false] {
                    loop {
                        let mut next = places.clone();
                        next[it] = if up { next[it] + 1 } else { next[it].wrapping_sub(1) };
                        if next[it] >= TRIED.len() {
                            break;
                        }
                        let had = throughput(&next);
                        if had <= most {
                            break;
                        }
                        (places, most) = (next, had);
                    }
                }
            }
            if places == before {
                break;
            }
        }
        let report = self.fixed(&windows(&places), 1.0);
        (windows(&places), report)
    }

    /// Runs a rule in this world, for comparison with the best fixed windows.
    pub fn trial(&self, method: Method, best: &(Vec<u32>, Report)) -> Trial {
        let limits = |&first: &u32| Some(Window { most: 200, ..Window::new(first) });
        let windows: Vec<_> = self.first.iter().map(limits).collect();
        let control = control::Settings::new(method, windows);
        let mut scenario = self.scenario.clone();
        scenario.admission.windows = self.first.iter().copied().map(Some).collect();
        let report = scenario.run_with(&self.events(Some(control)), |_| {}).expect("the scenario is sound");
        let of_type = |report: &Report, it: u16| report.resource(ResourceId(it)).per_second();
        let worst = (0..self.first.len() as u16).map(|it| of_type(&report, it) / of_type(&best.1, it));
        let changes: u32 = report.windows.iter().map(|it| it.changes).sum();
        Trial {
            of_best: report.all().per_second() / best.1.all().per_second(),
            worst_type: worst.fold(f64::INFINITY, f64::min),
            best: best.0.clone(),
            windows: report.windows.iter().map(|it| it.mean).collect(),
            changes: f64::from(changes) * 1e3 / report.all().done as f64,
            within: report.windows.iter().all(|it| it.least >= 1 && it.most <= 200),
        }
    }
}

fn curve(random: &mut ChaCha8Rng) -> Curve {
    match random.random_range(0..3) {
        0 => {
            let servers = random.random_range(1..=8);
            let knee = servers + random.random_range(0..16);
            Curve::Knee(Station { servers, knee, thrash: random.random_range(0.01..0.2) })
        }
        1 => Curve::Seeks {
            gain: random.random_range(0.0..1.5),
            knee: random.random_range(1..=24),
            floor: random.random_range(0.1..0.7),
        },
        _ => {
            let wait = random.random_range(0.0..0.3);
            let best: f64 = random.random_range(2.0..30.0);
            Curve::Locks { wait, conflict: (1.0 - wait) / (best * best) }
        }
    }
}

/// The gateway before the site of [`paper`].
#[derive(Clone, Debug, PartialEq)]
pub enum Gateway {
    /// No gateway: all requests go through.
    Uncontrolled,
    /// One window for all requests.
    Single(u32),
    /// A window for each type, adjusted by a rule.
    Multi(control::Settings),
}

/// An event at the site of [`paper`] during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// No event. Measured from 5 to 30 minutes.
    Steady,
    /// After 10 minutes the users of the disk fall silent, and as many other users send requests with three
    /// times the work to the database. Measured from then to 30 minutes.
    Shift,
    /// After 10 minutes conflicts of the database's locks cost four times as much, and the disk has half of
    /// its pace. Measured from then to 30 minutes.
    Change,
}

impl Situation {
    /// All situations.
    pub const ALL: [Self; 3] = [Self::Steady, Self::Shift, Self::Change];
}

/// The stations of [`paper`]: processor, disk, database.
pub const PAPER: [Curve; 3] = [
    Curve::Knee(Station { servers: 2, knee: 8, thrash: 0.04 }),
    Curve::Seeks { gain: 0.5, knee: 6, floor: 0.25 },
    Curve::Locks { wait: 0.1, conflict: 0.02 },
];

/// The needs of a request of each type. All begin at the processor.
pub fn paper_needs(resource: usize) -> Vec<Need> {
    let need = |station, mean_ms: u64, law| Need { station, mean_ns: mean_ms * MS, law };
    match resource {
        0 => vec![need(0, 80, Law::Exponential)],
        1 => vec![need(0, 5, Law::Exponential), need(1, 60, Law::Spread(150))],
        _ => vec![need(0, 5, Law::Exponential), need(2, 100, Law::Exponential)],
    }
}

/// A site like the paper's: 3 classes of 25 users for each of 3 types, with a mean think time of a second.
/// [`PAPER`] models its back end, a web server, PHP and MySQL; the paper does not give the work of its
/// requests.
pub fn paper(gateway: &Gateway, situation: Situation, seed: u64) -> Report {
    let classes = vec![Class::default(); 3];
    let demand = Demand::Closed { users: 25, think_ns: SECOND };
    let load = |class: u16, resource: usize, needs| Load {
        class: ClassId(class),
        resource: ResourceId(resource as u16),
        needs,
        demand,
        patience_ns: None,
        silent_ns: None,
    };
    let mut loads: Vec<Load> = Vec::new();
    for resource in 0..3 {
        loads.extend((0..3).map(|class| load(class, resource, paper_needs(resource))));
    }
    // The users with heavy database requests are silent at first.
    let mut heavy = paper_needs(2);
    heavy[1].mean_ns *= 3;
    loads.extend((0..3).map(|class| load(class, 2, heavy.clone())));
    let (admission, control) = match gateway {
        Gateway::Uncontrolled => (Settings::uncontrolled(classes, 3, Policy::Weighted), None),
        Gateway::Single(window) => (Settings::single_window(classes, 3, Policy::Weighted, *window), None),
        Gateway::Multi(control) => {
            let first: Vec<u32> =
                control.windows.iter().map(|window| window.map_or(1, |window| window.first)).collect();
            (Settings::multi_resource(classes, Policy::Weighted, &first), Some(control.clone()))
        }
    };
    let from_ns = if situation == Situation::Steady { 300 * SECOND } else { 600 * SECOND };
    let curve = |at_ns, station, curve, pace| Event { at_ns, kind: EventKind::Curve { station, curve, pace } };
    let asking = |at_ns, load, asking| Event { at_ns, kind: EventKind::Asking { load, asking } };
    let mut events: Vec<Event> = (0..3).map(|station| curve(0, station, PAPER[station], 1.0)).collect();
    events.extend((9..12).map(|load| asking(0, load, false)));
    match situation {
        Situation::Steady => {}
        Situation::Shift => {
            events.extend((3..6).map(|load| asking(from_ns, load, false)));
            events.extend((9..12).map(|load| asking(from_ns, load, true)));
        }
        Situation::Change => {
            events.push(curve(from_ns, 1, PAPER[1], 0.5));
            events.push(curve(from_ns, 2, Curve::Locks { wait: 0.1, conflict: 0.08 }, 1.0));
        }
    }
    let scenario = Scenario {
        stations: vec![Station::SINGLE; 3],
        loads,
        admission,
        warm_up_ns: from_ns,
        measured_ns: 1800 * SECOND - from_ns,
        seed,
    };
    let events = Events { control, probes: (0..3).map(paper_needs).collect(), at_site: events };
    scenario.run_with(&events, |_| {}).expect("the scenario is sound")
}

/// Searches the capacity of a site for one type of requests: returns the result and the number of
/// measurements.
///
/// Each measurement takes 40 s, of which the first 10 do not count.
pub fn probe(curves: &[Curve], needs: &[Need], search: Search, seed: u64) -> (Found, u32) {
    let mut probing = Probing::new(ProbingSettings::new(search, 2000)).expect("the settings are sound");
    loop {
        match probing.poll_step() {
            Step::Measure { per_second } => {
                let seed = seed ^ u64::from(probing.steps()) << 32;
                probing.handle_measured(&measure(curves, needs, per_second, seed));
            }
            Step::Done(found) => return (found, probing.steps()),
            Step::Stopped { stop, best } => panic!("{stop}: {best:?}"),
        }
    }
}

fn measure(curves: &[Curve], needs: &[Need], per_second: u32, seed: u64) -> Measured {
    const FROM_NS: u64 = 10 * SECOND;
    const UNTIL_NS: u64 = 40 * SECOND;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut site = Site::new(&vec![Station::SINGLE; curves.len()]).expect("the stations are sound");
    for (station, &curve) in curves.iter().enumerate() {
        site.handle_curve(0, station, curve, 1.0).expect("the curves are sound");
    }
    let mut began: Vec<u64> = Vec::new();
    let (mut measured, mut service_ns, mut running_ns) =
        (Measured { sent: 0, answered: 0, errors: 0, service_ns: 0, running: 0.0, grew: false }, 0u128, 0u128);
    let mut ended = 0u64;
    loop {
        let sends_ns = began.len() as u64 * SECOND / u64::from(per_second);
        let now_ns = sends_ns.min(UNTIL_NS);
        while let Some((ticket, end_ns)) = site.poll_end(now_ns) {
            let began_ns = began[ticket.0 as usize];
            ended += 1;
            running_ns += u128::from(end_ns.max(FROM_NS) - began_ns.max(FROM_NS));
            if end_ns >= FROM_NS {
                measured.answered += 1;
                service_ns += u128::from(end_ns - began_ns);
            }
            began[ticket.0 as usize] = u64::MAX;
        }
        if sends_ns >= UNTIL_NS {
            break;
        }
        let draw = |need: &Need| Visit { station: need.station, work_ns: need.law.draw(need.mean_ns, &mut random) };
        let visits = needs.iter().map(draw).collect();
        measured.sent += u64::from(sends_ns >= FROM_NS);
        site.handle_started(sends_ns, Ticket(began.len() as u32), visits);
        began.push(sends_ns);
    }
    // Requests that are still there ran until the end.
    for &began_ns in began.iter().filter(|&&began_ns| began_ns != u64::MAX) {
        running_ns += u128::from(UNTIL_NS - began_ns.max(FROM_NS));
    }
    debug_assert!(ended <= began.len() as u64);
    measured.service_ns = (service_ns / u128::from(measured.answered.max(1))) as u64;
    measured.running = running_ns as f64 / (UNTIL_NS - FROM_NS) as f64;
    measured
}

/// The capacity of a site of one station for such requests, and the number of requests that reaches it.
pub fn knee(curve: &Curve, mean_ns: u64) -> (f64, usize) {
    (curve.capacity(curve.best()) * 1e9 / mean_ns as f64, curve.best())
}

/// The windows of [`PAPER`]'s database during an outage of 20 s.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Database requests per second, from 5 to 3 minutes before it.
    pub before: f64,
    /// The same from 10 s to 2 minutes after it.
    pub after: f64,
    /// Its window when the outage began, and when it ended.
    pub windows: [u32; 2],
}

/// The database fails for 20 s, from minute 20 on. It stands still, or with `errors` every request ends in an
/// error.
pub fn outage(method: Method, errors: bool, seed: u64) -> Outage {
    let gone_ns = 1200 * SECOND;
    let back_ns = gone_ns + 20 * SECOND;
    let windows = [8, 8, 8].map(|first| Some(Window { bound_ns: Some(1200 * MS), ..Window::new(first) }));
    let control = control::Settings::new(method, windows.to_vec());
    let load = |class: u16, resource: usize| Load {
        class: ClassId(class),
        resource: ResourceId(resource as u16),
        needs: paper_needs(resource),
        demand: Demand::Closed { users: 25, think_ns: SECOND },
        patience_ns: None,
        silent_ns: None,
    };
    let curve = |at_ns, station, pace| Event { at_ns, kind: EventKind::Curve { station, curve: PAPER[station], pace } };
    let mut events: Vec<Event> = (0..3).map(|station| curve(0, station, 1.0)).collect();
    if errors {
        events.extend(
            [(gone_ns, true), (back_ns, false)]
                .map(|(at_ns, failing)| Event { at_ns, kind: EventKind::Failing { station: 2, failing } }),
        );
    } else {
        events.extend([curve(gone_ns, 2, 0.0), curve(back_ns, 2, 1.0)]);
    }
    let scenario = |from_ns, until_ns| Scenario {
        stations: vec![Station::SINGLE; 3],
        loads: (0..9).map(|it| load(it / 3, usize::from(it % 3))).collect(),
        admission: Settings::multi_resource(vec![Class::default(); 3], Policy::Weighted, &[8, 8, 8]),
        warm_up_ns: from_ns,
        measured_ns: until_ns - from_ns,
        seed,
    };
    let events = Events { control: Some(control), probes: (0..3).map(paper_needs).collect(), at_site: events };
    let run = |from_ns, until_ns| scenario(from_ns, until_ns).run_with(&events, |_| {}).expect("the scenario is sound");
    let database = ResourceId(2);
    let window = |at_ns| run(at_ns, at_ns + MS).windows[2].most;
    Outage {
        before: run(gone_ns - 300 * SECOND, gone_ns - 180 * SECOND).resource(database).per_second(),
        after: run(back_ns + 10 * SECOND, back_ns + 120 * SECOND).resource(database).per_second(),
        windows: [window(gone_ns - MS), window(back_ns + 10 * MS)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stays_near_the_best_fixed_windows_in_random_sites() {
        for seed in 1..=5 {
            let world = World::random(seed);
            let trial = world.trial(Method::Knee, &world.best());
            assert!(trial.within, "{seed}: {trial:?}");
            assert!(trial.of_best > 0.85 && trial.worst_type > 0.5, "{seed}: {trial:?}");
        }
    }

    #[test]
    fn ours_is_not_held_up_by_slow_types_by_work_in_step_or_by_a_silent_site() {
        // In these worlds an earlier version reached a third to two thirds; the best windows are those of the
        // table.
        for (seed, best) in [(227, &[8, 19, 9][..]), (561, &[5, 12]), (833, &[7]), (962, &[9])] {
            let world = World::random(seed);
            let trial = world.trial(Method::Knee, &(best.to_vec(), world.fixed(best, 1.0)));
            assert!(trial.of_best > 0.85, "{seed}: {trial:?}");
        }
    }

    #[test]
    fn every_rule_keeps_within_the_limits_and_lets_every_type_through() {
        for seed in 13..=14 {
            let world = World::random(seed);
            let best = (world.first.clone(), world.fixed(&world.first, 1.0));
            for method in [Method::Fixed, Method::Knee, Method::Gradient] {
                let trial = world.trial(method, &best);
                assert!(trial.within && trial.worst_type > 0.1, "{seed} {method}: {trial:?}");
                assert!(method != Method::Fixed || trial.changes == 0.0, "{seed}: {trial:?}");
            }
        }
    }

    #[test]
    fn a_resource_that_was_gone_for_twenty_seconds_is_used_as_before() {
        for errors in [false, true] {
            let it = outage(Method::Knee, errors, 1);
            assert!(it.after > 0.9 * it.before, "{it:?}");
            assert!(it.windows[0].abs_diff(it.windows[1]) <= 1 + it.windows[0] / 4, "{it:?}");
        }
    }

    #[test]
    fn both_searches_find_the_knee_of_a_site_of_equal_work() {
        let curve = Curve::Locks { wait: 0.02, conflict: 0.002 };
        let needs = [Need { station: 0, mean_ns: 40 * MS, law: Law::Fixed }];
        let (most, with) = knee(&curve, 40 * MS);
        let (steps, of_steps) = probe(&[curve], &needs, Search::Steps, 1);
        let (doubling, of_doubling) = probe(&[curve], &needs, Search::Doubling, 1);
        for found in [steps, doubling] {
            assert!((f64::from(found.per_second) / most - 1.0).abs() < 0.06, "{found:?}, {most:.1}/s");
            assert!(found.window as usize <= 2 * with, "{found:?}, {with}");
        }
        assert!(5 * of_doubling < of_steps, "{of_doubling}, {of_steps}");
    }

    #[test]
    fn windows_of_their_own_serve_more_than_none_and_a_shift_of_the_mix_is_no_congestion() {
        let control = |method| {
            let windows = vec![Some(Window { bound_ns: Some(SECOND), ..Window::new(7) }); 3];
            Gateway::Multi(control::Settings::new(method, windows))
        };
        let per_second = |gateway: &Gateway| paper(gateway, Situation::Shift, 1).all().per_second();
        let (uncontrolled, ours) = (per_second(&Gateway::Uncontrolled), per_second(&control(Method::Knee)));
        let fixed = per_second(&control(Method::Fixed));
        assert!(ours > 1.3 * uncontrolled && ours > 0.93 * fixed, "{uncontrolled:.1}, {fixed:.1}, {ours:.1}");
    }
}
