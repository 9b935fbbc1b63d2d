//! Prints what orders make of overload, by the patience of clients: the tables of docs/overload.md.
//!
//!     cargo run --release -p serpent-simulator --example overload

use scheduler::{admission::QueueOrder, share::Policy};
use serpent_simulator::site::overload::{Patience, Results, Setup};

const LOADS: [f64; 5] = [0.9, 1.0, 1.2, 2.0, 3.0];
const FIXED: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0];

fn main() {
    let fixed = FIXED.map(|s| Patience::Fixed { s });
    let all: Vec<_> = fixed.into_iter().chain([Patience::Uniform, Patience::Mixed, Patience::Endless]).collect();
    for retries in [false, true] {
        println!("One class, {} (seed {})\n", if retries { "retries" } else { "no retries" }, Setup::PLAIN.seed);
        println!("| patience | {} |", LOADS.map(|load| format!("load {load}")).join(" | "));
        println!("|---|{}", "---|".repeat(LOADS.len()));
        for patience in all.iter().copied() {
            let cells = LOADS.map(|load| {
                let setup = Setup { load, patience, retries, ..Setup::PLAIN };
                let (adaptive, fifo) = both(&setup);
                let part = |got: &Results| 100.0 * got.goodput / setup.bound();
                format!(
                    "**{:.0}**, {:.1} s; {:.0}, {:.1} s",
                    part(&adaptive),
                    adaptive.mean_s,
                    part(&fifo),
                    fifo.mean_s
                )
            });
            println!("| {patience} | {} |", cells.join(" | "));
        }
        println!();
    }
    println!("Three classes, retries, twice the load\n");
    println!("| share | {} |", all[..8].iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(8));
    for policy in Policy::ALL {
        let cells = all[..8].iter().map(|&patience| {
            let setup = Setup { load: 2.0, patience, retries: true, share: Some(policy), ..Setup::PLAIN };
            let (adaptive, fifo) = both(&setup);
            format!("**{:.0}**; {:.0}", 100.0 * adaptive.goodput / setup.bound(), 100.0 * fifo.goodput / setup.bound())
        });
        println!("| `{policy}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn both(setup: &Setup) -> (Results, Results) {
    let of = |order| Setup { order, ..setup.clone() }.run();
    (of(QueueOrder::Adaptive), of(QueueOrder::Fifo))
}
