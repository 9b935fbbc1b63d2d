//! Prints how closely shares of delay meet their ratios: the tables of docs/delay-shares.md.
//!
//!     cargo run --release -p serpent-simulator --example delays

use scheduler::share::Policy;
use serpent_simulator::site::{
    Law,
    delays::{Arrivals, Delays, Setup},
};

const POLICIES: [Policy; 4] = [Policy::Wtp, Policy::Pwad, Policy::Mdp, Policy::Ratio];
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// The pause of the paper's test.
const PAUSE: Option<(u64, u64)> = Some((570, 660));
const BACK_S: u64 = 660;

fn main() {
    println!("Seeds {SEEDS:?}, service times exponential\n");
    println!("The paper's test, without its pause: 30 minutes, the first two do not count\n");
    println!(
        "| share | long run | 120 s to 300 s | last 10 minutes | of 30 s, worst | within 5 % | service times alone, worst | of 10 s, worst | within 10 % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for policy in POLICIES {
        let runs = runs(Setup { policy, ..Setup::PAPER });
        let (short, shorter) =
            (each(&runs, |it| it.sliding(30, 120, 1800)), each(&runs, |it| it.sliding(10, 120, 1800)));
        let noise = each(&runs, |it| it.noise(30, 120, 1800));
        println!(
            "| {policy} | {} | {} | {} | {} | {} | {} | {} | {} |",
            ratios(&runs, 120, 1800),
            ratios(&runs, 120, 300),
            ratios(&runs, 1200, 1800),
            per_cent(worst(short.iter().map(|it| it.worst()))),
            per_cent(mean(short.iter().map(|it| it.within(0.05)))),
            per_cent(worst(noise.iter().map(|it| it.worst()))),
            per_cent(worst(shorter.iter().map(|it| it.worst()))),
            per_cent(mean(shorter.iter().map(|it| it.within(0.1)))),
        );
    }

    println!("\nThe paper's test: the first class is silent from 570 s for 90 s\n");
    println!(
        "| share | last 10 minutes | the 5 minutes from 5 s after it is back: of 30 s, worst | within 5 % | any 30 s within 5 % after, s | any 10 s within 10 % after, s |"
    );
    println!("|---|---|---|---|---|---|");
    for policy in POLICIES {
        let runs = runs(Setup { policy, silent_s: PAUSE, ..Setup::PAPER });
        let after = each(&runs, |it| it.sliding(30, BACK_S + 5, BACK_S + 305));
        let settled = |window_s: u64, bound: f64| {
            let seconds = each(&runs, |it| it.settled_s(BACK_S, window_s, bound, BACK_S + 300 + window_s));
            let shown = seconds.iter().map(|&s| if s > 300 { "> 300".to_owned() } else { s.to_string() });
            shown.collect::<Vec<_>>().join(", ")
        };
        println!(
            "| {policy} | {} | {} | {} | {} | {} |",
            ratios(&runs, 1200, 1800),
            per_cent(worst(after.iter().map(|it| it.worst()))),
            per_cent(mean(after.iter().map(|it| it.within(0.05)))),
            settled(30, 0.05),
            settled(10, 0.1),
        );
    }

    println!("\nBy type, no pause\n");
    println!(
        "| share | type | slots | mean delays, s | long run | of 30 s, worst | within 5 % | service times alone, worst | last class: left in 30 s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for policy in [Policy::Wtp, Policy::Mdp, Policy::Ratio] {
        for number in 0..3 {
            // The other types have no users, so only one type is measured.
            let mut setup = Setup { policy, ..Setup::PAPER };
            let this = setup.types[number];
            setup.types = [this; 3];
            let runs = runs_of_one(setup);
            let short = each(&runs, |it| it.sliding(30, 120, 1800));
            let noise = each(&runs, |it| it.noise(30, 120, 1800));
            let mean_s = |class: usize| mean(runs.iter().map(|it| it.mean_s(120, 1800)[class]));
            let left = mean(runs.iter().map(|it| it.done(120, 1800)[2] as f64 / 1680.0 * 30.0));
            println!(
                "| {policy} | {} | {} | {:.2}, {:.2}, {:.2} | {} | {} | {} | {} | {left:.0} |",
                number + 1,
                this.window,
                mean_s(0),
                mean_s(1),
                mean_s(2),
                ratios(&runs, 120, 1800),
                per_cent(worst(short.iter().map(|it| it.worst()))),
                per_cent(mean(short.iter().map(|it| it.within(0.05)))),
                per_cent(worst(noise.iter().map(|it| it.worst()))),
            );
        }
    }

    println!("\nOther loads, no pause; within 5 %: of any 30 s\n");
    print!("| load | due |");
    for policy in POLICIES {
        print!(" {policy} | within 5 % |");
    }
    println!("\n|---|---|{}", "---|---|".repeat(POLICIES.len()));
    for (name, setup) in [
        ("25, 25, 25 users, services all equal", Setup { law: Law::Fixed, ..Setup::PAPER }),
        ("25, 25, 25 users who think 2 s", users([25, 25, 25], 2000)),
        ("50, 20, 5 users", users([50, 20, 5], 100)),
        ("10, 25, 40 users", users([10, 25, 40], 100)),
        ("the same", Setup { ratios: [1, 1, 1], ..Setup::PAPER }),
        ("the same", Setup { ratios: [2, 3, 4], ..Setup::PAPER }),
        ("random, 1:1:1, 95 % of capacity", random([0.95 / 3.0; 3])),
        ("random, 6:3:1, 95 %", random([0.57, 0.285, 0.095])),
        ("random, 1:3:6, 95 %", random([0.095, 0.285, 0.57])),
        ("random, 1:1:1, 85 %", random([0.85 / 3.0; 3])),
        ("the same", Setup { ratios: [4, 5, 6], ..random([0.85 / 3.0; 3]) }),
        ("random, 1:1:1, 70 %", random([0.7 / 3.0; 3])),
        ("random, 1:1:1, 120 %, 10 minutes", Setup { until_s: 600, ..random([0.4; 3]) }),
    ] {
        let due = setup.ratios.map(|ratio| f64::from(ratio) / f64::from(setup.ratios[0]));
        print!("| {name} | 1:{}:{} |", due[1], due[2]);
        for policy in POLICIES {
            let runs = runs(Setup { policy, ..setup });
            let within = mean(runs.iter().map(|it| it.sliding(30, 120, setup.until_s).within(0.05)));
            print!(" {} | {} |", ratios(&runs, 120, setup.until_s), per_cent(within));
        }
        println!();
    }

    println!("\nWhat no order can do: the first class strictly before the second, and that before the third\n");
    println!("| load | by strict |\n|---|---|");
    for part in [0.95, 0.85, 0.7, 0.5] {
        let runs = runs(Setup { policy: Policy::Strict, ..random([part / 3.0; 3]) });
        println!("| random, 1:1:1, {:.0} % | {} |", 100.0 * part, ratios(&runs, 120, 1800));
    }
}

/// Users of each class for each type, and their think time.
fn users(users: [u32; 3], think_ms: u64) -> Setup {
    Setup { arrivals: Arrivals::Users(users, think_ms * 1_000_000), ..Setup::PAPER }
}

/// Random arrivals; each class offers this fraction of a type's capacity.
fn random(parts: [f64; 3]) -> Setup {
    Setup { arrivals: Arrivals::Random(parts), ..Setup::PAPER }
}

fn runs(setup: Setup) -> Vec<Delays> {
    SEEDS.iter().map(|&seed| Setup { seed, ..setup }.run()).collect()
}

fn runs_of_one(setup: Setup) -> Vec<Delays> {
    SEEDS.iter().map(|&seed| Setup { seed, ..setup }.run_first_type()).collect()
}

fn each<T>(runs: &[Delays], of: impl Fn(&Delays) -> T) -> Vec<T> {
    runs.iter().map(of).collect()
}

/// The mean over the seeds.
fn ratios(runs: &[Delays], from_s: u64, to_s: u64) -> String {
    let of_class = |class: usize| mean(runs.iter().map(|it| it.ratios(from_s, to_s)[class]));
    format!("1:{:.3}:{:.3}", of_class(1), of_class(2))
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn worst(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

fn per_cent(part: f64) -> String {
    if part < 10.0 { format!("{:.1} %", 100.0 * part) } else { "> 1000 %".to_owned() }
}
