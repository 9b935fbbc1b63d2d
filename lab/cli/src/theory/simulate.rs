//! Runs simulations beside the closed forms, on all processors.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use simulator::theory::check::{BySize, Run, Simulated, half_width, simulate};
use workload::pattern::Pattern;

use super::question::{Beside, Cell, CellIndex, Demand, Question};

/// Confidence of each interval alone.
const CONFIDENCE: f64 = 0.95;

/// Simulates each of the cells with each of the seeds.
pub(super) fn beside(cells: &mut [Cell], question: &Question, seeds: u64, requests: u64) {
    let runs: Vec<(usize, u64)> = (0..cells.len()).flat_map(|cell| (1..=seeds).map(move |seed| (cell, seed))).collect();
    let indexes: Vec<CellIndex> = cells.iter().map(|cell| cell.index).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); cells.len()]));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(runs.len()) {
            scope.spawn(|| {
                while let Some(&(cell, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let simulated = one(question, indexes[cell], requests, seed);
                    // A poisoned lock is safe here: the results that other threads have stored are whole.
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done[cell].push((seed, simulated));
                }
            });
        }
    });
    for (cell, mut runs) in cells.iter_mut().zip(done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())) {
        // Results are summed in the order of the seeds, so that the sum does not depend on timing.
        runs.sort_unstable_by_key(|&(seed, _)| seed);
        let runs: Vec<Simulated> = runs.into_iter().map(|(_, simulated)| simulated).collect();
        cell.simulated = Some(summed_up(&runs, cell.mean_s));
    }
}

fn one(question: &Question, index: CellIndex, requests: u64, seed: u64) -> Simulated {
    let constant;
    let pattern = match &question.demands[index.demand] {
        // The simulation needs a pattern, so a constant load becomes one.
        Demand::Load(load) => {
            constant = Pattern::constant(*load);
            constant.as_ref()
        }
        Demand::Overload(pattern) => Some(pattern),
    };
    let sizes = &question.laws[index.law].sizes;
    let run = pattern.map(|pattern| Run { sizes, pattern, link: &question.link, requests, seed });
    run.map_or_else(Simulated::default, |run| simulate(&run, &question.policies[index.policy]))
}

fn summed_up(runs: &[Simulated], closed_s: f64) -> Beside {
    let count = runs.len() as f64;
    let means: Vec<f64> = runs.iter().map(|run| run.mean_s).collect();
    let mean_s = means.iter().sum::<f64>() / count;
    let half_width_s = half_width(&means, CONFIDENCE).unwrap_or(f64::INFINITY);
    Beside {
        mean_s,
        half_width_s,
        slowdown: runs.iter().map(|run| run.slowdown).sum::<f64>() / count,
        deviation: closed_s / mean_s - 1.0,
        within: (closed_s - mean_s).abs() <= half_width_s,
        seeds: runs.len() as u64,
        requests: runs.iter().map(|run| run.requests).sum(),
        by_size: over_runs(runs),
    }
}

/// Merges the bins of all runs, each weighted with its requests.
fn over_runs(runs: &[Simulated]) -> Vec<BySize> {
    let mut all: Vec<BySize> = Vec::new();
    let mut bins: Vec<BySize> = runs.iter().flat_map(|run| run.by_size.iter().copied()).collect();
    bins.sort_unstable_by(|a, b| a.bytes.total_cmp(&b.bytes));
    for bin in bins {
        let last = all.last_mut().filter(|last| same_bin(last.bytes, bin.bytes));
        match last {
            Some(last) => {
                let (before, new) = (last.requests as f64, bin.requests as f64);
                let weighted = |a: f64, b: f64| (a * before + b * new) / (before + new);
                last.bytes = weighted(last.bytes, bin.bytes);
                last.response_s = weighted(last.response_s, bin.response_s);
                last.requests += bin.requests;
            }
            None => all.push(bin),
        }
    }
    all
}

fn same_bin(a: f64, b: f64) -> bool {
    let bin = |bytes: f64| (bytes.log10() * simulator::theory::check::BINS_A_DECADE) as i64;
    bin(a) == bin(b)
}
