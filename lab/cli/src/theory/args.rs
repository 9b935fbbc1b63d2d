//! The command line of `serpent-lab theory`.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use simulator::theory::Sizes;
use workload::{pattern::Pattern, sizes::HeavyTail};

/// The sizes, loads and policies to compute.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  serpent-lab theory --sizes world-cup --load 0.5,0.8,0.9
  serpent-lab theory --sizes bounded-pareto:1.1,332,1e10 --load 0.5 --policies ps,srpt \\
                 --plot slowdown --svg unfairness.svg
  serpent-lab theory --sizes bounded-pareto:1.1,500,2e6 --overload w1 --svg overload.svg
  serpent-lab theory --check        5 policies, 4 laws of sizes, 4 loads: simulated against closed form

Laws of sizes, in bytes: bounded-pareto:ALPHA,MIN,MAX   lognormal:MEDIAN,SIGMA   exponential:MEAN
fixed:SIZE   world-cup   nasa")]
pub struct TheoryArgs {
    /// Distribution of the sizes, may be repeated [default: world-cup; for --check alone four distributions]
    #[arg(long, value_name = "LAW", value_parser = law)]
    pub sizes: Vec<Law>,

    /// Loads above 0 and below 1, separated by commas [default: 0.5,0.8; for --check alone 0.3,0.5,0.7,0.9]
    #[arg(long, value_name = "LOADS", value_delimiter = ',')]
    pub load: Vec<f64>,

    /// A load that changes, below 1 on average: w1 to w10, or seconds and loads as in 25s@0.2,25s@1.2
    ///
    /// This is an approximation, and only for `ps` and `srpt`.
    #[arg(long, value_name = "PATTERN", conflicts_with = "load")]
    pub overload: Option<Pattern>,

    /// Policies, separated by commas [default: ps,srpt,fb,fcfs,bands; with --overload ps,srpt]
    ///
    /// ps, srpt, fb (or las), psjf, sjf, fcfs; bands (by bytes left), preemptive-priority and priority (by
    /// size).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub policies: Vec<String>,

    /// Cutoffs between bands, in bytes, separated by commas [default: 1000,2000,5000,50000]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub cutoffs: Vec<u64>,

    /// Rate of the uplink, which turns bytes into times
    #[arg(long, value_name = "RATE", default_value = "10mbit")]
    pub uplink: workload::rate::Rate,

    /// Also simulate, and show the difference
    #[arg(long, help_heading = "Simulation")]
    pub check: bool,

    /// Number of simulations of each case, whose means give a confidence interval; their seeds are 1, 2, 3
    /// and so on
    #[arg(long, value_name = "N", default_value = "10", requires = "check", help_heading = "Simulation", value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub seeds: u64,

    /// Requests in each simulation
    #[arg(long, value_name = "N", default_value = "100000", requires = "check", help_heading = "Simulation", value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub requests: u64,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// The value that a plot shows over the size
    #[arg(long, value_name = "response|slowdown", value_enum, default_value = "response", help_heading = "Output")]
    pub plot: PlotOf,

    /// Write a plot of one distribution and one load as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub svg: Option<PathBuf>,

    /// Write the same plot as PNG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub png: Option<PathBuf>,
}

/// A distribution of sizes, with its written form.
#[derive(Clone, Debug)]
pub struct Law {
    /// The written form.
    pub(super) name: String,
    /// The distribution.
    pub(super) sizes: Sizes,
}

/// The value that a plot shows over the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PlotOf {
    /// Mean response time
    Response,
    /// Mean response time over the time that the request takes alone
    Slowdown,
}

/// Parses a distribution of sizes: `bounded-pareto:1.1,332,1e10`, `lognormal:3000,1.3`, `exponential:1e4`,
/// `fixed:1500`, `world-cup`, `nasa`.
pub fn law(text: &str) -> Result<Law, String> {
    let (kind, numbers) = text.split_once(':').unwrap_or((text, ""));
    let numbers: Vec<&str> = numbers.split(',').map(str::trim).filter(|number| !number.is_empty()).collect();
    let number = |place: usize| {
        let text: &str = numbers[place];
        f64::from_str(text).map_err(|_| format!("`{text}` is not a number"))
    };
    let expects = |count: usize, form: &str| {
        if numbers.len() == count { Ok(()) } else { Err(format!("`{text}`: write `{form}`, in bytes")) }
    };
    let sizes = match kind {
        "bounded-pareto" => {
            expects(3, "bounded-pareto:ALPHA,MIN,MAX")?;
            Sizes::bounded_pareto(number(0)?, number(1)?, number(2)?)
        }
        "lognormal" => {
            expects(2, "lognormal:MEDIAN,SIGMA")?;
            Sizes::lognormal(number(0)?, number(1)?)
        }
        "exponential" => {
            expects(1, "exponential:MEAN")?;
            Sizes::exponential(number(0)?)
        }
        "fixed" => {
            expects(1, "fixed:SIZE")?;
            Sizes::fixed(number(0)?)
        }
        "world-cup" => {
            expects(0, "world-cup")?;
            Ok(Sizes::heavy_tail(&HeavyTail::WORLD_CUP))
        }
        "nasa" => {
            expects(0, "nasa")?;
            Ok(Sizes::heavy_tail(&HeavyTail::NASA))
        }
        _ => {
            return Err(format!(
                "`{text}` is not a law of sizes: use bounded-pareto:ALPHA,MIN,MAX, lognormal:MEDIAN,SIGMA, \
                 exponential:MEAN, fixed:SIZE, world-cup or nasa"
            ));
        }
    };
    let sizes = sizes.map_err(|error| error.to_string())?;
    Ok(Law { name: text.to_owned(), sizes })
}
