//! The program `serpent-lab`: the command line of the instrument, of the simulator and of theory.
//!
//! It measures the program `serpent` as a separate process, and imports none of its code.

#![forbid(unsafe_code)]

mod args;
#[cfg(test)]
mod documented;
mod paperwork;
mod simulate;
mod theory;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use instrument::LabError;

use args::{Cli, Command};
use theory::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Failure at run time.
const FAILURE: u8 = 1;
/// Error in the command line or the experiment. clap uses the same code.
const USAGE: u8 = 2;

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
        Command::Completions { shell } => print(&paperwork::completions(shell)),
        Command::Man { out: None } => match paperwork::man_page() {
            Ok(page) => print(&page),
            Err(error) => complain(FAILURE, &format!("error: the manual page cannot be made: {error}")),
        },
        Command::Man { out: Some(folder) } => match paperwork::man_pages(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(FAILURE, &format!("error: cannot write manual pages into `{}`: {error}", folder.display()))
            }
        },
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

/// Prints a result. It is no failure if the reader closes the pipe early (`| head`).
fn print(bytes: &[u8]) -> ExitCode {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(FAILURE, &format!("error: cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn complain(code: u8, text: &str) -> ExitCode {
    // If standard error is closed, the message is lost, but the exit code remains.
    let _ = writeln!(io::stderr().lock(), "{text}");
    ExitCode::from(code)
}
