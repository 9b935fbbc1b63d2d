use scheduler::bands::BandPlan;
use workload::sizes::{FileSet, HeavyTail};

use super::*;
use crate::{Banded, theory::Queue};

const LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.85];
/// Probability that all intervals of a table together cover the true values.
const TOGETHER: f64 = 0.99;
/// Error from whole bytes, whole nanoseconds and turns of finite length.
const NUMERICAL: f64 = 0.005;

fn link() -> Link {
    Link::constant("100mbit".parse().unwrap())
}

fn laws() -> [Sizes; 4] {
    // Bounded at a thousand times the least size, so that short runs settle; the command's own table has the
    // whole tail.
    [
        Sizes::bounded_pareto(1.1, 1e3, 1e6).unwrap(),
        Sizes::lognormal(5e3, 1.0).unwrap(),
        Sizes::exponential(1e4).unwrap(),
        Sizes::files(&FileSet::new(&HeavyTail { max_bytes: 300_000.0, ..HeavyTail::WORLD_CUP }, 40)).unwrap(),
    ]
}

/// Closed form, mean of the simulations, and half of the interval's width, in seconds.
fn compare(sizes: &Sizes, load: f64, policy: &Policy, requests: u64, cells: usize) -> (f64, f64, f64) {
    let (link, pattern) = (link(), Pattern::constant(load).unwrap());
    let means: Vec<f64> = (1..=8)
        .map(|seed| simulate(&Run { sizes, pattern: &pattern, link: &link, requests, seed }, policy).mean_s)
        .collect();
    let closed =
        Queue::new(sizes.clone(), load).unwrap().solve(policy).mean_response() / link.first_rate().bytes_per_second();
    let confidence = 1.0 - (1.0 - TOGETHER) / cells as f64;
    (closed, means.iter().sum::<f64>() / means.len() as f64, half_width(&means, confidence).unwrap())
}

#[test]
fn simulated_and_closed_agree_for_5_policies_4_laws_and_4_loads() {
    for name in ["ps", "srpt", "fb", "fcfs", "bands"] {
        let policy = Policy::named(name, None).unwrap();
        let mut deviations = Vec::new();
        for (number, sizes) in laws().iter().enumerate() {
            for load in LOADS {
                let (closed, simulated, half) = compare(sizes, load, &policy, 1_500, 80);
                assert!(
                    (simulated - closed).abs() <= half + NUMERICAL * closed,
                    "{name}, law {number}, load {load}: {simulated} simulated, {closed} closed, within {half}"
                );
                deviations.push(simulated / closed - 1.0);
            }
        }
        // Intervals that cover a whole table are wide; the errors must not all have one direction.
        let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
        assert!(mean.abs() < 0.12, "{name} is off by {mean} on average: {deviations:?}");
    }
}

#[test]
fn policies_that_the_scheduler_does_not_have_agree_too() {
    let plan = BandPlan::new(vec![4_000, 20_000]).unwrap();
    for policy in [
        Policy::Psjf,
        Policy::Sjf,
        Policy::Bands(plan.clone()),
        Policy::PreemptivePriority(plan.clone()),
        Policy::Priority(plan),
    ] {
        // An interval of a few percent, so that a wrong term would show.
        let (closed, simulated, half) = compare(&Sizes::exponential(1e4).unwrap(), 0.7, &policy, 15_000, 5);
        assert!(half < 0.12 * closed, "{policy}: {half} of {closed} says nothing");
        assert!((simulated - closed).abs() <= half + NUMERICAL * closed, "{policy}: {simulated} {closed} {half}");
    }
}

#[test]
fn bands_of_the_engine_agree_where_a_turn_is_a_whole_request() {
    // Turns within a band are one segment each; below that size the engine serves as the formula says.
    let sizes = Sizes::bounded_pareto(1.1, 100.0, 1400.0).unwrap();
    let plan = BandPlan::new(vec![150, 300, 700]).unwrap();
    let (link, pattern) = (link(), Pattern::constant(0.8).unwrap());
    let means: Vec<f64> = (1..=4)
        .map(|seed| {
            let run = Run { sizes: &sizes, pattern: &pattern, link: &link, requests: 20_000, seed };
            serve(&run, Banded::new(&link, &WireModel::BODY_ONLY, Settings::default(), plan.clone())).mean_s
        })
        .collect();
    let queue = Queue::new(sizes, 0.8).unwrap();
    let closed = queue.solve(&Policy::Bands(plan)).mean_response() / link.first_rate().bytes_per_second();
    let (mean, half) = (means.iter().sum::<f64>() / 4.0, half_width(&means, 0.99).unwrap());
    assert!(half < 0.15 * closed, "{half} of {closed} says nothing");
    assert!((mean - closed).abs() <= half + NUMERICAL * closed, "{mean} {closed} {half}");
}

#[test]
fn each_size_agrees_with_its_own_closed_form() {
    let sizes = Sizes::empirical([(2e3, 6.0), (1e4, 3.0), (6e4, 1.0)]).unwrap();
    let (link, pattern) = (link(), Pattern::constant(0.7).unwrap());
    for policy in [Policy::Ps, Policy::Srpt, Policy::Fb, Policy::Psjf] {
        let runs: Vec<Simulated> = (1..=4)
            .map(|seed| {
                simulate(&Run { sizes: &sizes, pattern: &pattern, link: &link, requests: 10_000, seed }, &policy)
            })
            .collect();
        let queue = Queue::new(sizes.clone(), 0.7).unwrap();
        for (place, size) in [2e3, 1e4, 6e4].into_iter().enumerate() {
            let closed = queue.solve(&policy).response(size) / link.first_rate().bytes_per_second();
            let means: Vec<f64> = runs.iter().map(|run| run.by_size[place].response_s).collect();
            let (mean, half) = (means.iter().sum::<f64>() / 4.0, half_width(&means, 1.0 - 0.01 / 12.0).unwrap());
            assert_eq!(runs[0].by_size[place].bytes, size);
            assert!((mean - closed).abs() <= half + 0.01 * closed, "{policy} {size}: {mean} {closed} {half}");
        }
    }
}

#[test]
fn a_seed_decides_everything_and_the_load_is_as_asked() {
    let (link, sizes) = (link(), Sizes::exponential(1e4).unwrap());
    for text in ["5s@0.6", "1s@0.2,1s@1", "1s@0-1.2"] {
        let pattern: Pattern = text.parse().unwrap();
        let run = |seed| Run { sizes: &sizes, pattern: &pattern, link: &link, requests: 20_000, seed };
        assert_eq!(simulate(&run(1), &Policy::Fcfs), simulate(&run(1), &Policy::Fcfs));
        assert_ne!(simulate(&run(1), &Policy::Fcfs), simulate(&run(2), &Policy::Fcfs));
        let arrivals = Arrivals::new(&run(1));
        let seconds = arrivals.end_ns as f64 / NS_PER_S;
        let bytes: u64 = arrivals.map(|request| request.size_bytes).sum();
        let load = bytes as f64 / seconds / link.first_rate().bytes_per_second();
        // Of 20 000 and more exponential sizes: four standard errors are 0.04.
        assert!((load / 0.6 - 1.0).abs() < 0.04, "{text}: {load}");
    }
}

#[test]
fn the_approximation_of_an_overload_is_near_what_is_simulated() {
    // Light tails, so that a short run is significant. Under sharing the approximation is good. Under SRPT
    // sizes near the one at which the load is 1 wait less than it says, and with exponential sizes many are.
    let (link, sizes) = (Link::constant("1mbit".parse().unwrap()), Sizes::exponential(2e3).unwrap());
    let pattern: Pattern = "25s@0.2,25s@1.2".parse().unwrap();
    let w1 = crate::theory::Alternating::new(sizes.clone(), &pattern, 125_000.0).unwrap();
    let run = Run { sizes: &sizes, pattern: &pattern, link: &link, requests: 40_000, seed: 1 };
    let (sharing, shortest) = (w1.sharing().mean_response(), w1.shortest().mean_response());
    for (policy, mean, off) in [(Policy::Ps, sharing, 0.2), (Policy::Srpt, shortest, 0.35)] {
        let simulated = simulate(&run, &policy).mean_s;
        let approximate = mean / 125_000.0;
        assert!((approximate / simulated - 1.0).abs() < off, "{policy}: {approximate} {simulated}");
    }
}
