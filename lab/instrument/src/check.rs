//! `serpent-lab check`: the instrument measures itself on this machine, before its measurements of others are
//! believed.

mod flows;
mod generator;
mod path;

use std::{fmt, path::PathBuf, process::ExitCode};

use clap::{Args, builder::RangedU64ValueParser};
use workload::{rate::Rate, stats::percentile};

use crate::{
    LabError,
    bed::{Cpu, Emulation},
};

/// Measure the instrument itself, in network namespaces on this machine.
///
/// Measures round-trip times of the emulated path while many TCP flows are on it, loss set against loss
/// measured, and the lateness of the load generator. Each is compared with the needs of an experiment; the
/// exit code is 1 if one fails. Let nothing else run meanwhile: other load is measured too.
///
/// Needs root, iproute2 and, as a subject, nginx. Touches nothing outside its own namespaces.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The emulator of the path.
    #[arg(long, default_value = "auto")]
    pub emulation: Emulation,

    /// TCP flows on the path while round trips are measured.
    #[arg(long, default_value_t = 500, value_name = "FLOWS", value_parser = RangedU64ValueParser::<usize>::new().range(1..=5_000))]
    pub flows: usize,

    /// Rate of these flows together, in frames.
    #[arg(long, default_value = "90mbit", value_name = "RATE")]
    pub rate: Rate,

    /// Round-trip time of the path, in milliseconds.
    #[arg(long, default_value_t = 90.0, value_name = "MS")]
    pub rtt: f64,

    /// Losses to set, in percent.
    #[arg(long, default_value = "1,5,15", value_delimiter = ',', value_name = "PERCENT,...")]
    pub losses: Vec<f64>,

    /// Requests per second of the load generator.
    #[arg(long, default_value_t = 5000, value_name = "REQUESTS", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub requests: u32,

    /// The server that answers them: any subject of an experiment.
    #[arg(long, default_value = "nginx", value_name = "SUBJECT")]
    pub subject: crate::subject::Subject,

    /// The program to measure where that is Serpent. Default: `serpent` beside this program, then in the folders of `PATH`.
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Seconds for which flows and requests are sent.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub seconds: u32,

    /// Seed of losses and of the requests' times.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Does all checks and prints them. Returns [`ExitCode::FAILURE`] if one fails.
pub fn run(args: CheckArgs) -> Result<ExitCode, LabError> {
    let mut rows = vec![path::round_trips(&args)?];
    for &percent in &args.losses {
        rows.push(path::loss(&args, percent / 100.0)?);
    }
    rows.push(generator::lateness(&args)?);
    for row in &rows {
        println!("{row}");
    }
    Ok(if rows.iter().all(|row| row.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A check and its result.
#[derive(Debug)]
struct Row {
    what: String,
    seen: String,
    /// The required bound.
    bound: String,
    holds: bool,
    /// Notes, for example about other programs that ran.
    notes: Vec<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds" } else { "DOES NOT HOLD" };
        write!(f, "{}\n    {}\n    {verdict}: {}", self.what, self.seen, self.bound)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n    {note}"))
    }
}

/// Median, 99th percentile and largest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    /// Computed from at least one value.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { p50: percentile(&values, 0.5), p99: percentile(&values, 0.99), max: percentile(&values, 1.0) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms", self.p50, self.p99, self.max)
    }
}

/// The load of the machine, by this program and by others.
fn machine(cpu: &Cpu, took_s: f64) -> String {
    let cores = |us: u64| us as f64 / 1e6 / took_s.max(1e-9);
    format!("machine busy {:.2} cores, stolen {:.2}", cores(cpu.machine_us), cores(cpu.stolen_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_extremes() {
        let spread = Spread::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(spread, Spread { p50: 50.0, p99: 99.0, max: 100.0 });
    }

    #[test]
    fn a_row_says_whether_it_holds() {
        let row = Row {
            what: "loss".to_owned(),
            seen: "5.1 %".to_owned(),
            bound: "within 5 %".to_owned(),
            holds: false,
            notes: vec!["machine busy".to_owned()],
        };
        assert_eq!(row.to_string(), "loss\n    5.1 %\n    DOES NOT HOLD: within 5 %\n    machine busy");
    }
}
