//! Prints what a cache saves by what it gives up first: the tables of docs/guide/cache.md.
//!
//!     cargo run --release -p serpent-cache --example eviction [-- LOG]
//!
//! LOG: an access log in the Common Log Format, plain text, such as that of NASA. A log has no service times, so they
//! are drawn for its objects from the same law as those of the made-up requests. The law is lognormal with a median of
//! 5 ms and a sigma of 1.5, independent of the size.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, LogNormal, Zipf};

#[path = "eviction/policies.rs"]
mod policies;

use policies::{Policy, Saved, Wanted, saved};

const OBJECTS: u64 = 20_000;
const REQUESTS: usize = 400_000;
const SEEDS: [u64; 3] = [1, 2, 3];

fn main() {
    let made: Vec<_> = SEEDS.iter().map(|seed| made_up(*seed)).collect();
    print("Zipf 0.9", &made);
    if let Some(path) = std::env::args().nth(1) {
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        print(&path, &SEEDS.map(|seed| of_log(&String::from_utf8_lossy(&text), seed)));
    }
}

/// Objects of lognormal sizes, wanted by the law of Zipf.
fn made_up(seed: u64) -> Vec<Wanted> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (sizes, times) = (LogNormal::new(9.0, 1.4).expect("finite"), times());
    let objects: Vec<_> = (0..OBJECTS)
        .map(|object| Wanted {
            object,
            bytes: (sizes.sample(&mut random) as u64).clamp(100, 4 << 20),
            service_us: times.sample(&mut random) as u64,
        })
        .collect();
    let popular = Zipf::new(OBJECTS as f64, 0.9).expect("positive");
    (0..REQUESTS).map(|_| objects[popular.sample(&mut random) as usize - 1]).collect()
}

fn times() -> LogNormal<f64> {
    LogNormal::new(8.5, 1.5).expect("finite")
}

/// The answered GET requests of a log, without queries.
fn of_log(text: &str, seed: u64) -> Vec<Wanted> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let times = times();
    let mut objects: HashMap<&str, Wanted> = HashMap::new();
    let mut requests = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('"');
        let (Some(_), Some(request), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let Some(target) = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()) else { continue };
        let mut rest = rest.split_whitespace();
        let (status, bytes) = (rest.next(), rest.next().and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0));
        if !matches!(status, Some("200" | "304")) || target.contains('?') {
            continue;
        }
        let next = objects.len() as u64;
        let object = objects.entry(target).or_insert_with(|| Wanted {
            object: next,
            bytes: 0,
            service_us: times.sample(&mut random) as u64,
        });
        object.bytes = object.bytes.max(bytes);
        if object.bytes > 0 {
            requests.push(*object);
        }
    }
    requests
}

fn print(name: &str, traces: &[Vec<Wanted>]) {
    let objects: HashMap<_, _> = traces[0].iter().map(|wanted| (wanted.object, wanted.bytes)).collect();
    let all_bytes = objects.values().sum::<u64>();
    println!(
        "{name}: {} requests for {} objects of {:.0} MB, seeds {SEEDS:?}\n",
        traces[0].len(),
        objects.len(),
        all_bytes as f64 / 1e6
    );
    println!("| memory, of all objects | policy | requests | bytes | service time |\n|---|---|---|---|---|");
    for part in [0.01, 0.05, 0.2] {
        for policy in Policy::ALL {
            let all: Vec<_> =
                traces.iter().map(|trace| saved(policy, (all_bytes as f64 * part) as u64, trace)).collect();
            let mean = |of: fn(&Saved) -> f64| 100.0 * all.iter().map(of).sum::<f64>() / all.len() as f64;
            println!(
                "| {:.0} % | {} | {:.1} % | {:.1} % | {:.1} % |",
                100.0 * part,
                policy.name(),
                mean(|it| it.requests),
                mean(|it| it.bytes),
                mean(|it| it.service)
            );
        }
    }
    println!();
}
