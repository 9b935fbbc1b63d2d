//! Prints the promises of shares beside measurements: the tables of docs/classes.md.
//!
//!     cargo run --release -p serpent-simulator --example shares

use scheduler::share::Policy;
use serpent_simulator::site::{
    listen_stage::Setup,
    promises::{Holdings, Kind, WEIGHTS, capacity, deadlines, weighted},
};

fn main() {
    println!("Weighted {WEIGHTS:?}, while all want more: largest deviation from a class's part\n");
    println!("| slots | requests | of any 1,000 | of any 100 |\n|---|---|---|---|");
    for window in [1, 4, 8, 16, 30] {
        let parts = weighted(window, 1);
        println!("| {window} | {} | {:.2} % | {:.2} % |", parts.requests, 100.0 * parts.of_1000, 100.0 * parts.of_100);
    }

    println!("\nCapacity {WEIGHTS:?}\n");
    println!(
        "| share | slots | reserved | first class | moments | off by at most, slots (all wait) | over by at most, slots | free though somebody waits | given wrongly | reserve missing |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for policy in [Policy::Shared, Policy::Fixed] {
        for (window, reserved, busy) in
            [(7, 0, true), (10, 0, true), (16, 0, true), (50, 0, true), (16, 0, false), (50, 0, false), (16, 2, false)]
        {
            if policy == Policy::Fixed && reserved > 0 {
                continue;
            }
            let Holdings { moments, off_slots, over_slots, idle, wronged, reserve_missed, .. } =
                capacity(policy, window, [reserved, 0, 0], busy, 1);
            let comes = if busy { "wants more" } else { "comes and goes" };
            let off = if busy { format!("{off_slots:.2}") } else { "-".to_owned() };
            let idle = 100.0 * idle as f64 / moments as f64;
            println!(
                "| {policy} | {window} | {reserved} | {comes} | {moments} | {off} | {over_slots:.2} | {idle:.1} % | {wronged} | {reserve_missed} |"
            );
        }
    }

    println!("\nEarliest deadline first, against all orders tried\n");
    println!(
        "| requests | instances | possible, no slot kept free | met | possible, slots kept free at will | met |\n|---|---|---|---|---|---|"
    );
    for kind in Kind::ALL {
        let kept = deadlines(kind, 20_000, 1);
        let per_cent = |met: u64, possible: u64| 100.0 * met as f64 / possible as f64;
        println!(
            "| {} | {} | {} | {:.2} % | {} | {:.2} % |",
            match kind {
                Kind::Together => "all there, any length, one slot",
                Kind::EqualInStep => "equal length, at multiples of it, 1 to 3 slots",
                Kind::Equal => "equal length, at any time, 1 to 3 slots",
                Kind::Any => "any length, at any time, one slot",
            },
            kept.instances,
            kept.possible_working,
            per_cent(kept.met_working, kept.possible_working),
            kept.possible,
            per_cent(kept.met, kept.possible),
        );
    }

    println!("\nThe high class slower than the low one\n");
    println!(
        "| gateway | each, requests/s | answered/s, high and low | mean of those, ms | seconds in which high was slower | high overtaken by a later low | low begun while high waited |"
    );
    println!("|---|---|---|---|---|---|---|");
    let with = [
        ("the paper's", Setup::PAPER),
        ("ours", Setup::OURS),
        ("ours, with its queue before the classifier", Setup { listen: Setup::PAPER.listen, ..Setup::OURS }),
        ("ours, with its window", Setup { window: Setup::PAPER.window, ..Setup::OURS }),
    ];
    for (name, setup) in with {
        for per_second in [30.0, 55.0, 75.0, 150.0, 300.0] {
            let it = Setup { per_second, ..setup }.run();
            let [high, low] = it.answered_per_second;
            println!(
                "| {name} | {per_second} | {high:.1}, {low:.1} | {:.0}, {:.0} | {} of {} | {:.1} % | {} |",
                it.mean_ms[0],
                it.mean_ms[1],
                it.slower_seconds,
                it.seconds,
                100.0 * it.overtaken as f64 / it.high as f64,
                it.passed_by,
            );
        }
    }
}
