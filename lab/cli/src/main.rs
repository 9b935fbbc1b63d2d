//! The program `serpent-lab`: the command line of the instrument, of the simulator and of theory.
//!
//! It measures the program `serpent` as a separate process, and shares no code with it but `output.rs`.

#![forbid(unsafe_code)]

mod args;
#[cfg(test)]
mod documented;
mod simulate;
mod theory;

// Shared with `serpent`: results, error messages, completions, manual pages.
#[path = "../../../crates/cli/src/output.rs"]
mod output;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use instrument::LabError;

use args::{Cli, Command};
use output::{FAILURE, USAGE, complain, print};
use theory::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::List => shown(instrument::experiment::list()),
        Command::Run(args) => done(instrument::run::run(&args)),
        Command::Report(args) => done(instrument::report::run(*args)),
        Command::Compare(args) => done(instrument::report::compare(*args)),
        Command::Show { name } => shown(instrument::experiment::show(&name)),
        Command::Uplink(args) => done(instrument::uplink::run(*args)),
        Command::Site(args) => done(instrument::site::run(*args)),
        Command::Check(args) => done(instrument::check::run(*args)),
        Command::Simulate(args) => done(simulate::simulate(&args)),
        Command::Theory(args) => match theory::theory(&args) {
            Ok(said) => print(said.as_bytes()),
            Err(failure @ Failure::Asked(_)) => complain(USAGE, &format!("error: {failure}")),
            Err(failure) => complain(FAILURE, &format!("error: {failure}")),
        },
        Command::Completions { shell } => output::completions(Cli::command(), shell),
        Command::Man { out } => output::manual(Cli::command(), out.as_deref()),
    }
}

fn done(result: Result<ExitCode, LabError>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error @ LabError::Request(_)) => complain(USAGE, &format!("error: {error}")),
        Err(error) => complain(FAILURE, &format!("error: {error}")),
    }
}

fn shown(result: Result<impl AsRef<[u8]>, LabError>) -> ExitCode {
    done(result.map(|text| print(text.as_ref())))
}
