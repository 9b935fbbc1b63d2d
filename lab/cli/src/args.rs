//! The command line of `serpent-lab`. Its commands and flags are kept stable.

use std::path::PathBuf;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};
use clap_complete::Shell;

use crate::{simulate::SimulateArgs, theory::TheoryArgs};

/// The laboratory of Serpent: measures servers against each other, simulates them, and computes results of
/// queueing theory.
///
/// Measuring needs root, `ip` and `tc`. It happens in network namespaces of this machine and touches nothing
/// outside them. Simulating and computing need no privileges.
#[derive(Debug, Parser)]
#[command(
    name = "serpent-lab",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_long_help = "\
Examples:
  serpent-lab list                            List the experiments that come with this program
  serpent-lab run srpt-over-load --quick      Measure one of them in its short form
  serpent-lab simulate srpt-over-load         Simulate the same
  serpent-lab theory --load 0.8               Compute what closed forms say

Exit codes:
  0  success
  1  failure at run time, or a measurement that is not valid
  2  error in the command line or the experiment")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the experiments that come with this program, and how long they take
    List,
    /// Run an experiment: one that comes with this program, or a file of your own
    ///
    /// Every server gets the same requests, once for each point and seed, in network namespaces made for the
    /// purpose. Each measurement is saved when it is done, so a run may be stopped (Ctrl-C) and resumed
    /// without losing any.
    #[command(after_long_help = "\
Examples:
  serpent-lab run srpt-over-load --quick
  serpent-lab run srpt-over-load --set link.rate=100mbit --seeds 1,2,3,4,5
  serpent-lab run ./mine.toml --subjects nginx,serpent:srpt --out results
  serpent-lab run --resume results")]
    Run(Box<instrument::run::RunArgs>),
    /// Show the results of a run: tables here, and pages, plots and numbers in files
    Report(Box<instrument::report::ReportArgs>),
    /// Compare several runs of an experiment
    Compare(Box<instrument::report::CompareArgs>),
    /// Print the file of an experiment, to be copied and changed
    Show {
        /// Its name
        #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(instrument::experiment::SHIPPED.iter().map(|(name, _)| *name)), hide_possible_values = true)]
        name: String,
    },
    /// Response times behind a busy uplink: Serpent in any order against nginx or any command
    Uplink(Box<instrument::uplink::UplinkArgs>),
    /// Gateways in front of a real site of several resources: how long each class waits, and how much the
    /// site does
    Site(Box<instrument::site::SiteArgs>),
    /// Check whether the instrument itself is exact enough on this machine
    Check(Box<instrument::check::CheckArgs>),
    /// Simulate an experiment of the lab, or conditions given by flags
    ///
    /// Every server gets the same requests as in a measurement, once for each point and seed. A simulation
    /// has no network, takes a small part of the time and needs no privileges. Results are saved in the lab's
    /// form, and shown with the same tables and plots.
    Simulate(Box<SimulateArgs>),
    /// Compute response time and slowdown by policy, load and size, from queueing theory
    ///
    /// The results are closed forms for one link with random arrivals and independent sizes (M/GI/1). Nothing
    /// is measured, and nothing simulated unless --check adds simulations for comparison. docs/theory.md has
    /// the formulas and their sources.
    Theory(Box<TheoryArgs>),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write all manual pages into a folder
    Man {
        /// Folder for `serpent-lab.1`, `serpent-lab-run.1` and so on; made if missing
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
