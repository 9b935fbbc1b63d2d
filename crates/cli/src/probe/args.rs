//! The command line of `serpent probe`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use scheduler::control::Search;

use crate::values::{self, Named, named};

/// The site, and the limits of the probe.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  serpent probe /etc/serpent.toml                  Measure, show what would be written, and ask
  serpent probe /etc/serpent.toml --resource disk --ceiling 50 --dry-run
  serpent probe shop.toml --search both --knee --out probed
  serpent probe shop.toml --yes --write            Where there is nobody to ask

A resource has a page in the configuration file:

  [admission.resources]
  disk = { probe = \"/disk.php?cost=12\", upstream = \"shop\" }

The page should need of its resource what its requests need on average. The site must have nothing
else to do meanwhile: probe it before it is in use, or at night. It is asked for more than it can do
for as long as a rate lasts, at one resource after the other.")]
pub struct ProbeArgs {
    /// The configuration file
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,

    /// Resource to probe, may be repeated [default: all that have a page]
    #[arg(long, value_name = "NAME")]
    pub resource: Vec<String>,

    /// How the search changes the rate
    #[arg(long, value_name = "HOW", value_parser = named::<SearchBy>(), default_value = "doubling", help_heading = "Measuring")]
    pub search: SearchBy,

    /// Seconds at each rate, the first quarter of which does not count
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "20", help_heading = "Measuring")]
    pub seconds_per_rate: f64,

    /// Least number of counted requests at each rate, however long they take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), default_value = "40", help_heading = "Measuring")]
    pub least_requests: u32,

    /// Afterwards measure with as many requests at once as the window has, with one fewer, and with two more
    #[arg(long, help_heading = "Measuring")]
    pub knee: bool,

    /// Host name in the requests [default: the upstream's own]
    #[arg(long, value_name = "NAME", help_heading = "Measuring")]
    pub host: Option<String>,

    /// Most requests a second
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=100_000), default_value = "1000", help_heading = "Protection of the site")]
    pub ceiling: u32,

    /// Most requests at the site at once; further ones wait here
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "64", help_heading = "Protection of the site")]
    pub outstanding: u32,

    /// Longest time for an answer; a longer one is an error
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30s", help_heading = "Protection of the site")]
    pub timeout: Duration,

    /// Probe a site on another machine without asking for confirmation
    #[arg(long, help_heading = "Protection of the site")]
    pub yes: bool,

    /// Folder for every measured rate (TSV) and a plot of each resource (SVG); made if missing
    #[arg(long, value_name = "FOLDER", help_heading = "Results")]
    pub out: Option<PathBuf>,

    /// Write windows and bounds into the configuration file, without asking
    #[arg(long, conflicts_with = "dry_run", help_heading = "Results")]
    pub write: bool,

    /// Only show what would be written
    #[arg(long, help_heading = "Results")]
    pub dry_run: bool,
}

/// The searches to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchBy {
    /// One search.
    One(Search),
    /// Both, one after the other, side by side in the result.
    Both,
}

impl SearchBy {
    /// The searches, in their order.
    pub fn searches(self) -> Vec<Search> {
        match self {
            Self::One(search) => vec![search],
            Self::Both => vec![Search::Doubling, Search::Steps],
        }
    }
}

impl Named for SearchBy {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::One(Search::Doubling),
            Search::Doubling.name(),
            "Doubled until the site falls behind, then halfway: few measurements, up to twice of what the site can do",
        ),
        (
            Self::One(Search::Steps),
            Search::Steps.name(),
            "One more a second each time, as the paper has it: as many measurements as requests a second",
        ),
        (Self::Both, "both", "Both; what `doubling` finds is written, or else what `steps` does"),
    ];
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds from 0.1 to 3600")),
    }
}
