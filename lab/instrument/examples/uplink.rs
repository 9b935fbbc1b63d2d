//! `serpent lab uplink` on its own: `cargo run --release -p serpent-instrument --example uplink -- --subjects nginx`.

use std::process::ExitCode;

use clap::Parser;
use serpent_instrument::uplink::UplinkArgs;

#[derive(Parser)]
#[command(name = "uplink")]
struct Cli {
    #[command(flatten)]
    args: UplinkArgs,
}

fn main() -> ExitCode {
    serpent_instrument::uplink::run(Cli::parse().args).unwrap_or_else(|error| {
        eprintln!("uplink: {error}");
        ExitCode::FAILURE
    })
}
