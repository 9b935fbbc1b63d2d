//! The arguments of `serpent-lab check`.

use std::path::PathBuf;

use clap::{Args, builder::RangedU64ValueParser};
use workload::rate::Rate;

use crate::bed::Emulation;

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
