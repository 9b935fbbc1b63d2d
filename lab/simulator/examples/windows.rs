//! Prints the results of the rules for windows: the tables of docs/windows.md.
//!
//!     cargo run --release -p serpent-simulator --example windows
//!
//! The arguments select parts, the number of random sites and the first seed:
//! `windows probing paper outage random 1000 from 1`.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use scheduler::{
    admission::ResourceId,
    control::{Method, Search, Settings, Window},
};
use serpent_simulator::site::{
    Curve, Law, Need, Report,
    windows::{Gateway, PAPER, Situation, Trial, World, knee, outage, paper, paper_needs, probe},
};

const SEEDS: u64 = 5;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wants = |part: &str| args.is_empty() || args.iter().any(|arg| arg == part);
    let mut numbers = args.iter().filter_map(|arg| arg.parse::<u64>().ok());
    let (worlds, from) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(1));
    if wants("probing") {
        probing();
    }
    if wants("paper") {
        compare();
    }
    if wants("outage") {
        outages();
    }
    if wants("random") {
        random(from..=from + worlds.max(1) - 1);
    }
}

fn probing() {
    println!("The search beside the knee of the model, seed 1\n");
    println!("| station | most, requests/s | with | search | found, requests/s | window | bound, ms | measurements |");
    println!("|---|---|---|---|---|---|---|---|");
    let ms = 1_000_000;
    let mut stations: Vec<(String, Curve, Vec<Need>)> = ["processor", "disk", "database"]
        .into_iter()
        .enumerate()
        .map(|(it, name)| {
            let mut needs = paper_needs(it);
            needs.drain(..needs.len() - 1);
            needs[0].station = 0;
            (format!("{name} of the site above"), PAPER[it], needs)
        })
        .collect();
    for (law, name) in [(Law::Fixed, "equal work"), (Law::Exponential, "exponential")] {
        let locks = Curve::Locks { wait: 0.02, conflict: 0.002 };
        stations.push((format!("database, 10 ms, {name}"), locks, vec![Need { station: 0, mean_ns: 10 * ms, law }]));
    }
    for (name, curve, needs) in stations {
        let (most, with) = knee(&curve, needs[0].mean_ns);
        for search in Search::ALL {
            let (found, steps) = probe(&[curve], &needs, search, 1);
            println!(
                "| {name} | {most:.1} | {with} | {search} | {} | {} | {} | {steps} |",
                found.per_second,
                found.window,
                found.bound_ns / 1_000_000
            );
        }
    }
    println!();
}

/// Windows and bounds of the paper's site, by probing.
fn probed() -> Vec<Window> {
    (0..3)
        .map(|it| {
            let (found, _) = probe(&PAPER, &paper_needs(it), Search::Doubling, 1);
            println!(
                "{}: window {}, bound {} ms",
                ["processor", "disk", "database"][it],
                found.window,
                found.bound_ns / 1_000_000
            );
            Window { bound_ns: Some(found.bound_ns), ..Window::new(found.window) }
        })
        .collect()
}

fn compare() {
    println!("A site like the paper's, windows by probing, mean of seeds 1 to {SEEDS}\n");
    let windows = probed();
    let multi =
        |method, windows: &[Window]| Gateway::Multi(Settings::new(method, windows.iter().copied().map(Some).collect()));
    let single = most(&[4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40], Gateway::Single);
    let best = best_fixed();
    let far: Vec<Window> = windows.iter().map(|_| Window::new(40)).collect();
    let gateways = [
        ("uncontrolled".to_owned(), Gateway::Uncontrolled),
        (format!("single window, best by sweep {single}"), Gateway::Single(single)),
        ("`fixed`, by probing".to_owned(), multi(Method::Fixed, &windows)),
        (format!("`fixed`, best by sweep {best:?}"), multi(Method::Fixed, &best.map(Window::new))),
        ("`probe`".to_owned(), multi(Method::Probe, &windows)),
        ("`probe`, bounds from the best".to_owned(), multi(Method::Probe, &bounded(best))),
        ("`gradient`".to_owned(), multi(Method::Gradient, &windows)),
        ("`knee`".to_owned(), multi(Method::Knee, &windows)),
        ("`knee`, from 40 each".to_owned(), multi(Method::Knee, &far)),
    ];
    println!("\n| gateway | situation | requests/s | by type | system time, ms | mean windows | least to most |");
    println!("|---|---|---|---|---|---|---|");
    for situation in Situation::ALL {
        for (name, gateway) in &gateways {
            let reports: Vec<Report> = (1..=SEEDS).map(|seed| paper(gateway, situation, seed)).collect();
            let mean = |of: &dyn Fn(&Report) -> f64| reports.iter().map(of).sum::<f64>() / reports.len() as f64;
            let by_type =
                [0, 1, 2].map(|it| format!("{:.1}", mean(&|report| report.resource(ResourceId(it)).per_second())));
            let controlled = !reports[0].windows.is_empty();
            let windows =
                (0..3).filter(|_| controlled).map(|it| format!("{:.1}", mean(&|report| report.windows[it].mean)));
            let ranges = (0..3).filter(|_| controlled).map(|it| {
                let least = reports.iter().map(|report| report.windows[it].least).min().unwrap_or(0);
                let most = reports.iter().map(|report| report.windows[it].most).max().unwrap_or(0);
                format!("{least}-{most}")
            });
            println!(
                "| {name} | {} | {:.1} | {} | {:.0} | {} | {} |",
                format!("{situation:?}").to_lowercase(),
                mean(&|report| report.all().per_second()),
                by_type.join(", "),
                mean(&|report| report.all().system_ms()),
                windows.collect::<Vec<_>>().join(", "),
                ranges.collect::<Vec<_>>().join(", "),
            );
        }
    }
    println!();
}

/// The best windows under steady load, one type after the other, twice.
fn best_fixed() -> [u32; 3] {
    let mut best = [8, 6, 7];
    for it in [0, 1, 2, 0, 1, 2] {
        best[it] = most(&[2, 3, 4, 5, 6, 7, 8, 10], |window| {
            let mut windows = best;
            windows[it] = window;
            let windows = windows.iter().map(|&window| Some(Window::new(window))).collect();
            Gateway::Multi(Settings::new(Method::Fixed, windows))
        });
    }
    best
}

/// The bounds are the mean service times under these windows, which would not be known beforehand.
fn bounded(windows: [u32; 3]) -> Vec<Window> {
    let fixed = Settings::new(Method::Fixed, windows.map(|window| Some(Window::new(window))).to_vec());
    let report = paper(&Gateway::Multi(fixed), Situation::Steady, 99);
    let bound = |it: u16| (report.resource(ResourceId(it)).service_ms() * 1e6) as u64;
    (0..3).map(|it| Window { bound_ns: Some(bound(it)), ..Window::new(windows[usize::from(it)]) }).collect()
}

/// The window with the highest throughput under steady load.
fn most(tried: &[u32], gateway: impl Fn(u32) -> Gateway) -> u32 {
    let throughput = |&window: &u32| (paper(&gateway(window), Situation::Steady, 99).all().per_second(), window);
    tried.iter().map(throughput).max_by(|a, b| a.0.total_cmp(&b.0)).map_or(1, |(_, window)| window)
}

fn outages() {
    println!("The database gone for 20 s, seed 1\n");
    println!(
        "| rule | how | requests/s before | after | window when it went, and when it came back |\n|---|---|---|---|---|"
    );
    for method in Method::ALL {
        for (errors, how) in [(false, "stands still"), (true, "errors")] {
            let it = outage(method, errors, 1);
            println!(
                "| `{method}` | {how} | {:.1} | {:.1} | {}, {} |",
                it.before, it.after, it.windows[0], it.windows[1]
            );
        }
    }
    println!();
}

fn random(seeds: RangeInclusive<u64>) {
    const METHODS: [Method; 3] = [Method::Knee, Method::Gradient, Method::Fixed];
    let next = AtomicU64::new(*seeds.start());
    let work = || {
        let mut done: Vec<(u64, Vec<Trial>)> = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > *seeds.end() {
                return done;
            }
            let world = World::random(seed);
            let best = world.best();
            done.push((seed, METHODS.iter().map(|&method| world.trial(method, &best)).collect()));
            if seed.is_multiple_of(50) {
                eprintln!("{seed} of {}", seeds.end());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no world fails")).collect::<Vec<_>>()
    });
    done.sort_by_key(|(seed, _)| *seed);
    println!("Random sites and loads, seeds {seeds:?}: throughput over that of the best fixed windows\n");
    println!(
        "| rule | worst | 1 % | 10 % | median | within 5 % | within 10 % | within 20 % | worst type of all | a type below a half | windows out of limits | changes for 1,000 requests, median |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (it, method) in METHODS.iter().enumerate() {
        let sorted = |of: &dyn Fn(&Trial) -> f64| {
            let mut all: Vec<f64> = done.iter().map(|(_, trials)| of(&trials[it])).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (all, types, changes) = (sorted(&|it| it.of_best), sorted(&|it| it.worst_type), sorted(&|it| it.changes));
        let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
        let share = |least: f64| 100.0 * all.iter().filter(|&&it| it >= least).count() as f64 / all.len() as f64;
        println!(
            "| `{method}` | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} % | {:.1} % | {:.1} % | {:.3} | {} | {} | {:.1} |",
            all[0],
            at(0.01),
            at(0.1),
            at(0.5),
            share(0.95),
            share(0.9),
            share(0.8),
            types[0],
            types.iter().filter(|&&it| it < 0.5).count(),
            done.iter().filter(|(_, trials)| !trials[it].within).count(),
            changes[changes.len() / 2],
        );
    }
    println!(
        "\nThe worst of `knee`, and all with a type below a half; *later* is with four times as long to settle\n\n| seed | of the best | worst type | first windows | best windows | its windows | later | worst type later |\n|---|---|---|---|---|---|---|---|"
    );
    done.sort_by(|a, b| a.1[0].of_best.total_cmp(&b.1[0].of_best));
    for (number, (seed, trials)) in done.iter().enumerate() {
        let it = &trials[0];
        if number >= 10 && it.worst_type >= 0.5 {
            continue;
        }
        let mut world = World::random(*seed);
        let best = (it.best.clone(), world.fixed(&it.best, 1.0));
        world.scenario.warm_up_ns *= 4;
        let later = world.trial(Method::Knee, &best);
        println!(
            "| {seed} | {:.3} | {:.3} | {:?} | {:?} | {:.1?} | {:.3} | {:.3} |",
            it.of_best, it.worst_type, world.first, it.best, it.windows, later.of_best, later.worst_type
        );
    }
}
