//! Simulations compared with theory, over ten fixed seeds.

use workload::stats;

use super::*;

/// The name of a figure, its expected value, and the function that reads it from a report.
type Claim<'a> = (&'a str, f64, &'a dyn Fn(&Report) -> f64);

/// Each expected value must lie within one and a half times the 95 % confidence interval over the seeds, and
/// the interval must be narrow enough to be meaningful.
fn agrees(scenario: &Scenario, claims: &[Claim<'_>]) {
    let reports: Vec<Report> = (0..10).map(|seed| Scenario { seed, ..scenario.clone() }.run(|_| {}).unwrap()).collect();
    for (what, expected, measure) in claims {
        let of_seeds: Vec<f64> = reports.iter().map(measure).collect();
        let estimate = stats::interval::mean(&of_seeds).unwrap();
        let half = estimate.half_width().unwrap();
        assert!(half < 0.1 * expected, "{what}: {estimate:?} says too little");
        assert!((estimate.value - expected).abs() < 1.5 * half, "{what}: {estimate:?}, expected {expected}");
    }
}

fn uncontrolled() -> Settings {
    Settings::uncontrolled(vec![Class::default()], 1, Policy::Strict)
}

fn window(window: u32, classes: Vec<Class>) -> Settings {
    Settings::multi_resource(classes, Policy::Strict, &[window])
}

fn open(stations: Vec<Station>, law: Law, per_second: f64, admission: Settings) -> Scenario {
    scenario(stations, vec![load(0, 0, vec![need(0, 10, law)], Demand::Open { per_second })], admission)
}

/// Probabilities of 0, 1, 2 ... in the stationary birth and death process with these rates up and down.
fn birth_and_death(most: usize, up: impl Fn(usize) -> f64, down: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut chances = vec![1.0];
    for n in 1..=most {
        chances.push(chances[n - 1] * up(n - 1) / down(n));
    }
    let all: f64 = chances.iter().sum();
    chances.iter().map(|chance| chance / all).collect()
}

fn mean_of(chances: &[f64], of: impl Fn(usize) -> f64) -> f64 {
    chances.iter().enumerate().map(|(n, chance)| chance * of(n)).sum()
}

/// M/G/1-PS: E[T] = E[S] / (1 - load), whatever the law of S (Kleinrock, "Queueing Systems", volume II,
/// section 4.4).
#[test]
fn a_shared_server_is_as_fast_for_every_law_of_service() {
    for law in [Law::Exponential, Law::Fixed] {
        let one = open(vec![Station::SINGLE], law, 50.0, uncontrolled());
        agrees(&one, &[("system time", 10.0 / 0.5, &|report| report.all().system_ms())]);
    }
}

/// M/M/m by Erlang's C. It holds for shared as for separate servers, since the number of requests is the same
/// process.
#[test]
fn several_servers() {
    let chances = birth_and_death(500, |_| 240.0, |n| 100.0 * n.min(3) as f64);
    let present = mean_of(&chances, |n| n as f64);
    let one = open(vec![Station { servers: 3, ..Station::SINGLE }], Law::Exponential, 240.0, uncontrolled());
    agrees(
        &one,
        &[
            ("system time", present / 0.24, &|report| report.all().system_ms()),
            ("servers busy", 2.4, &|report| report.stations[0].capacity),
        ],
    );
}

/// A thrashing station behind a window and a bounded queue is a birth and death process: with `n` requests it
/// does c(min(n, window)).
#[test]
fn a_thrashing_station_behind_a_window_and_a_bounded_queue() {
    let station = Station { servers: 2, knee: 3, thrash: 0.25 };
    for (slots, most_waiting) in [(3u32, 12u32), (10, 5)] {
        let (slots_n, most) = (slots as usize, (slots + most_waiting) as usize);
        let chances = birth_and_death(most, |_| 220.0, |n| 100.0 * station.capacity(n.min(slots_n)));
        let class = Class { most_waiting, ..Class::default() };
        let one = open(vec![station], Law::Exponential, 220.0, window(slots, vec![class]));
        let refused = chances[most];
        let running = mean_of(&chances, |n| n.min(slots_n) as f64);
        let waiting = mean_of(&chances, |n| n.saturating_sub(slots_n) as f64);
        // The last two by Little's law.
        let through = (1.0 - refused) * 0.22;
        agrees(
            &one,
            &[
                ("refused", refused * 220.0, &|report| report.all().refused as f64 / 40.0),
                ("throughput", through * 1e3, &|report| report.all().per_second()),
                ("running", running, &|report| report.all().running()),
                ("waiting", waiting, &|report| report.all().waiting()),
                ("service", running / through, &|report| report.all().service_ms()),
                ("queueing", waiting / through, &|report| report.all().queueing_ms()),
            ],
        );
    }
}

/// Users with think times before a windowed station: the machine-repair model.
#[test]
fn users_before_a_thrashing_station_with_a_window() {
    let station = Station { servers: 1, knee: 1, thrash: 0.1 };
    for slots in [1u32, 4, 12] {
        let capacity = |n: usize| station.capacity(n.min(slots as usize));
        let chances = birth_and_death(12, |n| (12 - n) as f64 / 0.1, |n| 100.0 * capacity(n));
        let through = mean_of(&chances, |n| 100.0 * capacity(n));
        let demand = Demand::Closed { users: 12, think_ns: 100 * MS };
        let loads = vec![load(0, 0, vec![need(0, 10, Law::Exponential)], demand)];
        let one = scenario(vec![station], loads, window(slots, vec![Class::default()]));
        let present = mean_of(&chances, |n| n as f64);
        agrees(
            &one,
            &[
                ("throughput", through, &|report| report.all().per_second()),
                ("system time", present / through * 1e3, &|report| report.all().system_ms()),
            ],
        );
    }
}

/// With a window of 1 the site is a single server: M/G/1 by Pollaczek and Khinchine.
#[test]
fn a_window_of_one_is_a_single_server_first_come_first_served() {
    for (law, second_moment) in [(Law::Fixed, 1.0), (Law::Exponential, 2.0)] {
        let one = open(vec![Station::SINGLE], law, 50.0, window(1, vec![Class::default()]));
        let wait_ms = 0.5 * second_moment * 10.0 / 2.0 / 0.5;
        agrees(&one, &[("queueing", wait_ms, &|report| report.all().queueing_ms())]);
    }
    // Alone in the site, a request takes what it needs.
    let one = open(vec![Station::SINGLE], Law::Fixed, 50.0, window(1, vec![Class::default()]));
    assert!((one.run(|_| {}).unwrap().all().service_ms() - 10.0).abs() < 1e-5);
}

/// M/G/1 with priorities and without preemption. The mean wait of class i is R / ((1 - load of the classes
/// before) (1 - load of the classes before and its own)). Cobham, "Priority Assignment in Waiting Line
/// Problems", 1954.
#[test]
fn strict_priority_behind_a_window_of_one() {
    let needs = vec![need(0, 10, Law::Exponential)];
    let loads = [25.0, 30.0].into_iter().zip(0..);
    let loads = loads.map(|(per_second, class)| load(class, 0, needs.clone(), Demand::Open { per_second })).collect();
    let one = scenario(vec![Station::SINGLE], loads, window(1, vec![Class::default(); 2]));
    let residual_ms = 0.55 * 10.0;
    agrees(
        &one,
        &[
            ("first", residual_ms / 0.75, &|report| report.class(ClassId(0)).queueing_ms()),
            ("second", residual_ms / (0.75 * 0.45), &|report| report.class(ClassId(1)).queueing_ms()),
        ],
    );
}

/// Exact mean value analysis of two kinds of users and shared stations (Reiser and Lavenberg, "Mean-Value
/// Analysis of Closed Multichain Queuing Networks", 1980). Returns throughput per second and system time in
/// seconds of both kinds.
fn mean_values(users: [usize; 2], think: [f64; 2], work: [[f64; 3]; 2]) -> ([f64; 2], [f64; 2]) {
    let mut present = vec![vec![[0.0; 3]; users[1] + 1]; users[0] + 1];
    let mut last = ([0.0; 2], [0.0; 2]);
    for a in 0..=users[0] {
        for b in 0..=users[1] {
            let here = [a, b];
            let (mut through, mut system, mut found) = ([0.0; 2], [0.0; 2], [0.0; 3]);
            for kind in [0, 1].into_iter().filter(|&kind| here[kind] > 0) {
                // An arriving user sees the network as it would be without that user.
                let others = if kind == 0 { present[a - 1][b] } else { present[a][b - 1] };
                let stays: [f64; 3] = std::array::from_fn(|station| work[kind][station] * (1.0 + others[station]));
                system[kind] = stays.iter().sum();
                through[kind] = here[kind] as f64 / (think[kind] + system[kind]);
                (0..3).for_each(|station| found[station] += through[kind] * stays[station]);
            }
            present[a][b] = found;
            last = (through, system);
        }
    }
    last
}

#[test]
fn a_network_of_processor_disk_and_database_with_two_kinds_of_users() {
    let work_ms = [[20, 30, 5], [5, 10, 40]];
    let (users, think_ms) = ([8, 5], [300, 100]);
    let seconds = |ms: u64| ms as f64 / 1e3;
    let (through, system) =
        mean_values(users, think_ms.map(seconds), work_ms.map(|of_kind: [u64; 3]| of_kind.map(seconds)));
    let loads = [0, 1].map(|kind| {
        let needs = work_ms[kind].into_iter().enumerate();
        let needs = needs.map(|(station, mean_ms)| need(station, mean_ms, Law::Exponential)).collect();
        let demand = Demand::Closed { users: users[kind] as u32, think_ns: think_ms[kind] * MS };
        load(kind as u16, 0, needs, demand)
    });
    let admission = Settings::uncontrolled(vec![Class::default(); 2], 1, Policy::Strict);
    let one = scenario(vec![Station::SINGLE; 3], loads.to_vec(), admission);
    let of = |report: &Report, kind: u16| report.class(ClassId(kind));
    agrees(
        &one,
        &[
            ("throughput of the first", through[0], &|report| of(report, 0).per_second()),
            ("throughput of the second", through[1], &|report| of(report, 1).per_second()),
            ("system time of the first", system[0] * 1e3, &|report| of(report, 0).system_ms()),
            ("system time of the second", system[1] * 1e3, &|report| of(report, 1).system_ms()),
        ],
    );
}
