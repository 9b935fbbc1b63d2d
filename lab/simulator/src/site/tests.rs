mod closed_forms;

use std::collections::BTreeMap;

use proptest::prelude::*;
use scheduler::{
    admission::{QueueOrder, ResourceId, Settings, SettingsError},
    class::{Class, ClassId},
    share::Policy,
};

use super::*;
use crate::Ticket;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn need(station: usize, mean_ms: u64, law: Law) -> Need {
    Need { station, mean_ns: mean_ms * MS, law }
}

fn load(class: u16, resource: u16, needs: Vec<Need>, demand: Demand) -> Load {
    Load { class: ClassId(class), resource: ResourceId(resource), needs, demand, patience_ns: None, silent_ns: None }
}

fn scenario(stations: Vec<Station>, loads: Vec<Load>, admission: Settings) -> Scenario {
    Scenario { stations, loads, admission, warm_up_ns: 5 * SECOND, measured_ns: 40 * SECOND, seed: 1 }
}

fn finished(scenario: &Scenario) -> (Report, Vec<FinishedRequest>) {
    let mut all = Vec::new();
    let report = scenario.run(|request| all.push(request)).unwrap();
    (report, all)
}

/// Three classes with 25 users each for processor, disk and database, as in "Multiple-resource Request
/// Scheduling Algorithms for Proportional System-time Differentiation at Website Gateway", section 4; the
/// site itself is different.
fn two_tier_site(admission: Settings) -> Scenario {
    let stations = vec![
        Station { servers: 2, knee: 16, thrash: 0.02 },
        Station { servers: 1, knee: 4, thrash: 0.05 },
        Station { servers: 2, knee: 6, thrash: 0.05 },
    ];
    let mut loads = Vec::new();
    for class in 0..3 {
        for resource in 0..3 {
            // All requests start at the processor; the first type needs nothing else.
            let needs = match resource {
                0 => vec![need(0, 40, Law::Exponential)],
                1 => vec![need(0, 5, Law::Exponential), need(1, 30, Law::Exponential)],
                _ => vec![need(0, 5, Law::Exponential), need(2, 60, Law::Exponential)],
            };
            loads.push(load(class, resource, needs, Demand::Closed { users: 25, think_ns: SECOND }));
        }
    }
    scenario(stations, loads, admission)
}

#[test]
fn windows_by_resource_beat_one_window_and_that_beats_none() {
    let classes = vec![Class::default(); 3];
    let run = |admission| two_tier_site(admission).run(|_| {}).unwrap().all();
    let uncontrolled = run(Settings::uncontrolled(classes.clone(), 3, Policy::Weighted));
    let single = [4, 6, 8, 10, 12, 16]
        .into_iter()
        .map(|window| run(Settings::single_window(classes.clone(), 3, Policy::Weighted, window)).per_second())
        .fold(0.0, f64::max);
    let multi = run(Settings::multi_resource(classes, Policy::Weighted, &[4, 4, 6]));
    assert!(single > 1.3 * uncontrolled.per_second(), "{single:.1}/s, {:.1}/s", uncontrolled.per_second());
    assert!(multi.per_second() > 1.2 * single, "{:.1}/s, {single:.1}/s", multi.per_second());
    assert!(multi.system_ms() < 0.75 * uncontrolled.system_ms());
}

#[test]
fn the_important_class_does_not_notice_the_overload_of_the_other() {
    let one_at_a_time = || {
        let low = Class { most_waiting: 20, ..Class::default() };
        Settings::multi_resource(vec![Class::default(), low], Policy::Strict, &[1])
    };
    let needs = || vec![need(0, 10, Law::Fixed)];
    let high = load(0, 0, needs(), Demand::Open { per_second: 30.0 });
    let low = load(1, 0, needs(), Demand::Open { per_second: 200.0 });
    let (_, alone) = finished(&scenario(vec![Station::SINGLE], vec![high.clone()], one_at_a_time()));
    let (report, both) = finished(&scenario(vec![Station::SINGLE], vec![high, low], one_at_a_time()));
    let ends: BTreeMap<u64, u64> = alone.iter().map(|it| (it.arrived_ns, it.end_ns)).collect();
    let mut seen = 0;
    for it in both.iter().filter(|it| it.load == 0) {
        // At most the rest of one low request later, since running requests are not interrupted; and a
        // nanosecond of rounding.
        assert!(ends.get(&it.arrived_ns).is_some_and(|end_ns| it.end_ns <= end_ns + 10 * MS + 1), "{it:?}");
        seen += 1;
    }
    assert!(seen > 1000, "{seen}");
    let (high, low) = (report.class(ClassId(0)), report.class(ClassId(1)));
    assert!((low.per_second() + high.per_second() - 100.0).abs() < 0.5, "the site is never idle");
    assert!(low.refused > 100 * 40);
}

#[test]
fn throughput_follows_the_weights_while_all_classes_want_more() {
    let classes = [4, 2, 1].map(|weight| Class { weight, ..Class::default() });
    for order in [QueueOrder::Fifo, QueueOrder::FairAmongClients] {
        let classes = classes.iter().map(|class| Class { order, ..*class }).collect();
        let demand = Demand::Closed { users: 60, think_ns: 100 * MS };
        let loads = (0..3).map(|class| load(class, 0, vec![need(0, 10, Law::Exponential)], demand)).collect();
        let admission = Settings::multi_resource(classes, Policy::Weighted, &[4]);
        let (report, _) = finished(&scenario(vec![Station { servers: 4, ..Station::SINGLE }], loads, admission));
        let all = report.all().per_second();
        assert!((all - 400.0).abs() < 10.0, "{all}");
        for (class, part) in [(0, 4.0 / 7.0), (1, 2.0 / 7.0), (2, 1.0 / 7.0)] {
            let had = report.class(ClassId(class)).per_second() / all;
            assert!(
                (had / part - 1.0).abs() < 0.005,
                "{order:?}: class {class} had {had:.4} of all, {part:.4} is its part"
            );
        }
    }
}

#[test]
fn one_seed_decides_everything_and_what_clients_ask_for_does_not_depend_on_the_gateway() {
    let classes = vec![Class { most_wait_ns: Some(200 * MS), ..Class::default() }; 2];
    let needs = vec![need(0, 10, Law::Exponential)];
    let mut first = scenario(
        vec![Station { servers: 1, knee: 2, thrash: 0.2 }],
        vec![
            load(0, 0, needs.clone(), Demand::Open { per_second: 80.0 }),
            load(1, 0, needs, Demand::Closed { users: 20, think_ns: 500 * MS }),
        ],
        Settings::multi_resource(classes.clone(), Policy::Strict, &[2]),
    );
    first.loads[1].patience_ns = Some(300 * MS);
    let (_, passed) = finished(&first);
    assert_eq!(finished(&first).1, passed);
    let moments = |passed: &[FinishedRequest]| {
        let open = passed.iter().filter(|it| it.load == 0 && it.arrived_ns < 40 * SECOND);
        let mut moments: Vec<u64> = open.map(|it| it.arrived_ns).collect();
        moments.sort_unstable();
        moments
    };
    let other = Scenario { admission: Settings::multi_resource(classes, Policy::Weighted, &[1]), ..first.clone() };
    assert_eq!(moments(&finished(&other).1), moments(&passed));
    let (_, of_other_seed) = finished(&Scenario { seed: 2, ..first });
    assert_ne!(moments(&of_other_seed), moments(&passed));
}

#[test]
fn every_request_ends_once_and_counts_once() {
    let classes = vec![Class { most_waiting: 5, ..Class::default() }];
    let one_load = load(0, 0, vec![need(0, 20, Law::Exponential)], Demand::Open { per_second: 50.0 });
    let mut one = scenario(
        vec![Station { servers: 1, knee: 2, thrash: 0.3 }],
        [60, 250].map(|ms| Load { patience_ns: Some(ms * MS), ..one_load.clone() }).to_vec(),
        Settings::multi_resource(classes, Policy::Strict, &[4]),
    );
    one.warm_up_ns = 0;
    let (report, passed) = finished(&one);
    let tally = report.cell(ClassId(0), ResourceId(0)).unwrap();
    let of = |end: End, started: bool| {
        passed.iter().filter(|it| it.end == end && it.started_ns.is_some() == started).count() as u64
    };
    assert_eq!(tally.done, of(End::Done, true));
    assert_eq!(tally.refused, of(End::Refused, false));
    assert_eq!((tally.gone_waiting, tally.gone_running), (of(End::Gone, false), of(End::Gone, true)));
    let counts = [tally.done, tally.refused, tally.gone_waiting, tally.gone_running];
    assert!(counts.iter().all(|&n| n > 50), "{counts:?}");
    assert!(passed.iter().all(|it| it.end_ns - it.arrived_ns <= 250 * MS), "nobody waits beyond patience");
    // Little's law: the mean number in the site is the rate of admission times the time in the site.
    let in_site_ns: u64 = passed.iter().filter_map(|it| Some(it.end_ns - it.started_ns?)).sum();
    assert!((tally.running() - in_site_ns as f64 / one.measured_ns as f64).abs() < 0.01);
    assert!((report.stations[0].present - tally.running()).abs() < 1e-3, "one station is the site");
}

#[test]
fn what_cannot_be_run_says_why() {
    let good = two_tier_site(Settings::multi_resource(vec![Class::default(); 3], Policy::Strict, &[1, 1, 1]));
    assert_eq!(good.check(), Ok(()));
    let with = |change: fn(&mut Scenario)| {
        let mut scenario = good.clone();
        change(&mut scenario);
        scenario.run(|_| {}).unwrap_err()
    };
    assert_eq!(with(|it| it.admission.classes.clear()), ScenarioError::Admission(SettingsError::Classes));
    assert_eq!(with(|it| it.stations[1].servers = 0), ScenarioError::Station(1));
    assert_eq!(with(|it| it.stations[2].thrash = f64::NAN), ScenarioError::Station(2));
    assert_eq!(with(|it| it.loads[3].needs[0].station = 3), ScenarioError::Need(3));
    assert_eq!(with(|it| it.loads[4].resource = ResourceId(3)), ScenarioError::Queue(4));
    assert_eq!(with(|it| it.loads[5].demand = Demand::Open { per_second: 0.0 }), ScenarioError::Demand(5));
    assert_eq!(with(|it| it.loads[5].demand = Demand::Open { per_second: f64::NAN }), ScenarioError::Demand(5));
    assert_eq!(with(|it| it.loads[5].demand = Demand::Closed { users: 1, think_ns: 0 }), ScenarioError::Demand(5));
    assert_eq!(with(|it| it.measured_ns = 0), ScenarioError::Time);
    assert_eq!(with(|it| it.warm_up_ns = u64::MAX), ScenarioError::Time);
    // Only checked, not run: it would take too long.
    let mut crowded = good.clone();
    crowded.loads[5].demand = Demand::Open { per_second: 1.1e9 };
    assert_eq!(crowded.check(), Err(ScenarioError::Demand(5)));
}

/// Processor sharing by its definition: each request's remaining work is reduced step by step.
fn shared_plainly(station: &Station, jobs: &[(u64, f64)]) -> Vec<f64> {
    let mut ends = vec![f64::NAN; jobs.len()];
    let mut left: Vec<f64> = jobs.iter().map(|job| job.1).collect();
    let mut now = 0.0;
    while ends.iter().any(|end| end.is_nan()) {
        let here: Vec<usize> = (0..jobs.len()).filter(|&i| ends[i].is_nan() && jobs[i].0 as f64 <= now).collect();
        let comes = jobs.iter().map(|job| job.0 as f64).filter(|at| *at > now).fold(f64::INFINITY, f64::min);
        let pace = if here.is_empty() { 0.0 } else { station.capacity(here.len()) / here.len() as f64 };
        let first = here.iter().map(|&i| left[i]).fold(f64::INFINITY, f64::min);
        let step = (comes - now).min(first / pace);
        now += step;
        for &i in &here {
            left[i] -= step * pace;
            if left[i] < 1e-6 {
                ends[i] = now;
            }
        }
    }
    ends
}

proptest! {
    #[test]
    fn a_station_is_processor_sharing_by_its_definition(
        jobs in prop::collection::vec((0u64..1_000_000, 1.0f64..500_000.0), 1..20),
        servers in 1u32..4,
        knee in 0u32..6,
        thrash in 0.0f64..1.0,
    ) {
        let mut jobs = jobs;
        jobs.sort_by_key(|job| job.0);
        let station = Station { servers, knee, thrash };
        let mut site = Site::new(&[station]).unwrap();
        let mut ends = vec![0; jobs.len()];
        for (i, &(at_ns, work_ns)) in jobs.iter().enumerate() {
            while let Some((Ticket(it), end_ns)) = site.poll_end(at_ns) {
                ends[it as usize] = end_ns;
            }
            site.handle_started(at_ns, Ticket(i as u32), vec![Visit { station: 0, work_ns }]);
        }
        while let Some((Ticket(it), end_ns)) = site.poll_end(u64::MAX) {
            ends[it as usize] = end_ns;
        }
        for (end_ns, expected_ns) in ends.iter().zip(shared_plainly(&station, &jobs)) {
            // Each end is rounded up to the nanosecond. The work of that time may be missing later, at the
            // slowest pace.
            let (n, pace) = (jobs.len() as f64, station.capacity(jobs.len()) / jobs.len() as f64);
            prop_assert!((*end_ns as f64 - expected_ns).abs() <= 1.0 + n / pace, "{end_ns}, {expected_ns}");
        }
    }

    #[test]
    fn who_is_given_up_takes_nothing_any_more(works in prop::collection::vec(1.0f64..1e6, 2..10), at_ns in 0u64..2_000_000) {
        let mut site = Site::new(&[Station::SINGLE, Station::SINGLE]).unwrap();
        let visits = |work_ns| vec![Visit { station: 0, work_ns }, Visit { station: 1, work_ns }];
        for (i, &work_ns) in works.iter().enumerate() {
            site.handle_started(0, Ticket(i as u32), visits(work_ns));
        }
        let mut ended = 0;
        while site.poll_end(at_ns).is_some() {
            ended += 1;
        }
        for i in 0..works.len() {
            site.handle_abort(at_ns, Ticket(i as u32));
        }
        prop_assert!(ended <= works.len());
        prop_assert_eq!((site.poll_timeout(), site.poll_end(u64::MAX)), (None, None));
        prop_assert_eq!(site.station(at_ns, 0).map(|it| it.0), Some(0));
    }
}

#[test]
fn curves_do_most_where_they_say() {
    let locks = Curve::Locks { wait: 0.1, conflict: 0.02 };
    // sqrt(0.9 / 0.02) = 6.7
    assert_eq!(locks.best(), 7);
    let disk = Curve::Seeks { gain: 0.5, knee: 6, floor: 0.25 };
    assert_eq!(disk.best(), 6);
    assert!((disk.capacity(1) - 1.0).abs() < 1e-12 && (disk.capacity(6) - (1.0 + 0.5 * 5.0 / 6.0)).abs() < 1e-12);
    assert!((disk.capacity(6_000_000) / disk.capacity(6) - 0.25).abs() < 1e-3);
    assert_eq!(Curve::Knee(Station { servers: 3, knee: 5, thrash: 0.1 }).best(), 3);
    assert_eq!([locks, disk].map(|curve| curve.capacity(0)), [0.0, 0.0]);
}

#[test]
fn what_happens_in_a_course_happens_then() {
    let one = load(0, 0, vec![need(0, 10, Law::Fixed)], Demand::Open { per_second: 20.0 });
    let one =
        scenario(vec![Station::SINGLE], vec![one], Settings::uncontrolled(vec![Class::default()], 1, Policy::Strict));
    let ends = |kind: &[(u64, EventKind)]| {
        let events = kind.iter().map(|&(second, kind)| Event { at_ns: second * SECOND, kind }).collect();
        let mut ends: Vec<FinishedRequest> = Vec::new();
        one.run_with(&Events { at_site: events, ..Events::default() }, |request| ends.push(request)).unwrap();
        ends
    };
    let between = |ends: &[FinishedRequest], from: u64, to: u64, end: End| {
        ends.iter().filter(|it| it.end == end && (from * SECOND..to * SECOND).contains(&it.end_ns)).count()
    };
    let curve = Curve::Knee(Station::SINGLE);
    let still = ends(&[
        (10, EventKind::Curve { station: 0, curve, pace: 0.0 }),
        (20, EventKind::Curve { station: 0, curve, pace: 1.0 }),
    ]);
    assert_eq!(between(&still, 10, 20, End::Done), 0);
    assert!(between(&still, 20, 25, End::Done) > 250, "kind waited is done");
    let failing = ends(&[
        (10, EventKind::Failing { station: 0, failing: true }),
        (20, EventKind::Failing { station: 0, failing: false }),
    ]);
    assert!(between(&failing, 10, 20, End::Failed) > 150 && between(&failing, 11, 20, End::Done) == 0);
    assert_eq!(between(&failing, 0, 10, End::Failed) + between(&failing, 20, 45, End::Failed), 0);
    let silent = ends(&[(10, EventKind::Asking { load: 0, asking: false })]);
    assert_eq!(between(&silent, 11, 45, End::Done), 0);
    let refused = |kind| {
        let events = Events { at_site: vec![Event { at_ns: 0, kind }], ..Events::default() };
        one.run_with(&events, |_| {}).unwrap_err()
    };
    assert_eq!(refused(EventKind::Failing { station: 1, failing: true }), ScenarioError::Event(0));
    assert_eq!(refused(EventKind::Asking { load: 1, asking: true }), ScenarioError::Event(0));
    assert_eq!(refused(EventKind::Curve { station: 0, curve, pace: -1.0 }), ScenarioError::Event(0));
    let no_curve = Curve::Seeks { gain: 0.1, knee: 0, floor: 0.5 };
    assert_eq!(refused(EventKind::Curve { station: 0, curve: no_curve, pace: 1.0 }), ScenarioError::Station(0));
}
