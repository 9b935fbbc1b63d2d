//! The command line of `serpent-lab simulate`.

use std::{fmt, num::NonZeroUsize, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};
use instrument::{experiment::Changes, shard::Shard};

use super::{flags::Flags, gateways::GatewaysArgs};

/// The conditions to simulate, the model, and the folder for the results.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  serpent-lab simulate srpt-over-load --quick
  serpent-lab simulate srpt-over-load --out predicted && serpent-lab compare measured predicted
  serpent-lab simulate --load 0.5,0.8,0.9 --orders fair,srpt,fsp --seconds 600 --seeds 1-5
  serpent-lab simulate --pattern w1 --rate 100mbit --model bare
  serpent-lab simulate --trace access.log --load 0.8,0.95 --orders fair,srpt
  serpent-lab simulate --resume predicted

`serpent-lab report` and `serpent-lab compare` take the folder as they take that of a measurement."
)]
pub struct SimulateArgs {
    #[command(subcommand)]
    pub command: Option<SimulateCommand>,

    /// Name of a shipped experiment, or an experiment file; without one, flags give the conditions
    #[arg(value_name = "NAME|FILE")]
    pub experiment: Option<String>,

    #[command(flatten)]
    pub changes: Changes,

    /// Model of the uplink [default: packets]
    ///
    /// `packets`: packets, handshakes, round trips, congestion windows and a queue at the bottleneck. `bare`:
    /// a link without packets, exact to the byte. `bands`: a bare link with a few priorities in place of an
    /// exact order. `paced`, `paced=FACTOR`: Serpent's pacer in front of a queue. The pacer sends at FACTOR
    /// times the rate that the server is told. That is the link's rate, or RATE for a subject with
    /// `uplink=RATE`. Without FACTOR it sends at the server's utilisation of that rate, 0.995 by default.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<ModelChoice>,

    /// Folder for the results [default: serpent-lab/NAME-simulated-UTCTIME here]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Simulate one of N parts only, I from 0 to N - 1; `serpent-lab report` joins them
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,

    /// Continue a simulation that was stopped
    #[arg(long, value_name = "DIR", conflicts_with_all = ["experiment", "quick", "seeds", "subjects", "set", "out", "model", "shard", "Flags"])]
    pub resume: Option<PathBuf>,

    /// The program that reads the configuration file of a subject with `config=FILE` [default: `serpent`
    /// beside this program, then in the folders of PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Number of simulations at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,

    #[command(flatten)]
    pub flags: Flags,
}

/// What is simulated without an experiment of the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum SimulateCommand {
    Gateways(Box<GatewaysArgs>),
}

/// A model of the uplink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelChoice {
    /// Packets, paths, congestion windows.
    Packets,
    /// A link without packets, exact to the byte.
    Bare,
    /// A bare link with priority bands in place of exact orders.
    Bands,
    /// Serpent's pacer in front of a queue. The factor is its sending rate over the rate that the server is
    /// told; if not given, it is the server's utilisation.
    Paced(Option<f64>),
}

impl ModelChoice {
    /// The name in reports.
    pub fn title(self) -> String {
        match self {
            Self::Packets => "packet model".to_owned(),
            Self::Bare => "bare link, without packets".to_owned(),
            Self::Bands => "priority bands on a bare link, without packets".to_owned(),
            Self::Paced(None) => "pacer before a queue, without packets".to_owned(),
            Self::Paced(Some(factor)) => {
                format!("pacer that sends at {factor} times the rate it is told, before a queue, without packets")
            }
        }
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets => f.write_str("packets"),
            Self::Bare => f.write_str("bare"),
            Self::Bands => f.write_str("bands"),
            Self::Paced(None) => f.write_str("paced"),
            Self::Paced(Some(factor)) => write!(f, "paced={factor}"),
        }
    }
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = |text: &str| match text.parse::<f64>() {
            // With a factor outside this range, the queue is never ordered or the link is nearly idle.
            Ok(factor) if (0.01..=100.0).contains(&factor) => Ok(Self::Paced(Some(factor))),
            _ => Err(format!("`{text}` is no factor: give a number from 0.01 to 100, as in `paced=1.1`")),
        };
        match text.split_once('=') {
            Some(("paced", text)) => factor(text),
            None if text == "packets" => Ok(Self::Packets),
            None if text == "bare" => Ok(Self::Bare),
            None if text == "bands" => Ok(Self::Bands),
            None if text == "paced" => Ok(Self::Paced(None)),
            _ => Err(format!("`{text}` is no model: use packets, bare, bands, paced or paced=FACTOR")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_model_can_be_typed_again() {
        for text in ["packets", "bare", "bands", "paced", "paced=1.1"] {
            assert_eq!(text.parse::<ModelChoice>().unwrap().to_string(), text);
        }
        for text in ["", "packet", "paced=", "paced=0", "paced=NaN", "paced=-1", "bare=1", "paced=1000"] {
            assert!(text.parse::<ModelChoice>().is_err(), "{text}");
        }
    }
}
