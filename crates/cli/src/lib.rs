//! The program `serpent`: the command line and the configuration file. What they ask for is done by the crates below.
//!
//! It is a library only so that the fuzz targets can be linked with it: it promises nothing to others.

#![forbid(unsafe_code)]

mod advise;
mod args;
mod check;
mod config;
#[cfg(test)]
mod documented;
mod elsewhere;
mod exit;
mod explain;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod key;
mod lab;
mod log;
mod open_files;
mod paperwork;
mod probe;
mod serve;
mod uplink;
mod values;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use args::{Cli, Command};
use exit::{FAILURE, USAGE};

/// Does what the command line says.
pub fn run() -> ExitCode {
    let cli = Cli::parse_or_exit();
    match log::filter(&cli.log) {
        Ok(filter) => {
            let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
            subscriber.with_ansi(io::stderr().is_terminal()).map_event_format(log::Bounded::new).init();
        }
        Err(error) => {
            return complain(USAGE, &format!("error: --log (or SERPENT_LOG) cannot be read: {error}"));
        }
    }
    match cli.command {
        Command::Serve(args) => match serve::serve(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                let (code, said) = failure.told();
                complain(code, &said)
            }
        },
        Command::Check(args) => match check::check(&args) {
            Ok(checked) => {
                if let Some(warnings) = checked.warnings {
                    complain(0, &warnings.to_string());
                }
                print(checked.summary.as_bytes())
            }
            Err(problems) => complain(USAGE, &problems.to_string()),
        },
        Command::Explain(args) => match explain::explain(&args) {
            Ok(said) => print(said.as_bytes()),
            Err(explain::Failure::Usage(said)) => complain(USAGE, &format!("error: {said}")),
            Err(explain::Failure::Configuration(problems)) => complain(USAGE, &problems.to_string()),
        },
        Command::Key(args) => match key::key(&args) {
            Ok(made) => {
                if let Some(key) = made.key {
                    complain(0, &format!("the key, shown this once: {key}"));
                }
                print(made.line.as_bytes())
            }
            Err(key::Failure::Usage(said)) => complain(USAGE, &format!("error: {said}")),
            Err(key::Failure::Run(said)) => complain(FAILURE, &format!("error: {said}")),
        },
        Command::Advise(args) => match advise::advise(&args) {
            Ok(said) => print(said.as_bytes()),
            Err(advise::Failure::Usage(said)) => complain(USAGE, &format!("error: {said}")),
            Err(advise::Failure::Run(said)) => complain(FAILURE, &format!("error: {said}")),
        },
        Command::Probe(args) => match probe::probe(&args) {
            Ok(code) => code,
            Err(probe::Failure::Usage(said)) => complain(USAGE, &format!("error: {said}")),
            Err(probe::Failure::Configuration(problems)) => complain(USAGE, &problems.to_string()),
            Err(probe::Failure::Run(said)) => complain(FAILURE, &format!("error: {said}")),
        },
        Command::Uplink(command) => match uplink::uplink(command) {
            Ok(said) => print(said.as_bytes()),
            Err(error) => complain(FAILURE, &format!("error: {error}")),
        },
        Command::Lab(args) => complain(FAILURE, &format!("error: {}", lab::run(None, &args))),
        Command::Simulate(args) => complain(FAILURE, &format!("error: {}", lab::run(Some("simulate"), &args))),
        Command::Theory(args) => complain(FAILURE, &format!("error: {}", lab::run(Some("theory"), &args))),
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

/// Prints a result. A reader that has seen enough (`| head`) is not a failure.
fn print(bytes: &[u8]) -> ExitCode {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(FAILURE, &format!("error: cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn complain(code: u8, text: &str) -> ExitCode {
    // If standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
    ExitCode::from(code)
}
