//! The program `serpent`: the command line and the configuration file. The crates below do the work.
//!
//! It is a library only for the fuzz targets, which link with it. Its interface is not stable.

#![forbid(unsafe_code)]

mod advise;
mod args;
#[cfg(target_os = "linux")]
mod attach;
mod check;
mod config;
#[cfg(test)]
mod documented;
mod explain;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod greeting;
mod import;
mod inherited;
mod kept_rate;
mod key;
mod lab;
mod log;
mod open_files;
mod orders;
mod other_servers;
mod output;
mod probe;
mod serve;
mod spelling;
mod upgrade;
mod values;

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use args::{Cli, Command};
use clap::CommandFactory as _;
use failure::Failure;
use output::{USAGE, complain, print};

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    let cli = Cli::parse_or_exit();
    match log::filter(&cli.log) {
        Ok(filter) => {
            let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log::Target);
            // Its message about a line that cannot be written goes to standard error, and panics where that is closed.
            let subscriber = subscriber.log_internal_errors(false);
            subscriber.with_ansi(io::stderr().is_terminal()).map_event_format(log::Bounded::new).init();
        }
        Err(error) => {
            return complain(USAGE, &format!("error: --log (or SERPENT_LOG) cannot be read: {error}"));
        }
    }
    exit(match cli.command {
        Command::Serve(args) => serve::serve(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::check(&args).map_err(Failure::Configuration).map(|checked| {
            if let Some(warnings) = checked.warnings {
                complain(0, &warnings.to_string());
            }
            print(checked.summary.as_bytes())
        }),
        Command::Explain(args) => explain::explain(&args).map(|text| print(text.as_bytes())),
        Command::Import(args) => import::import(&args).map(|text| print(text.as_bytes())),
        Command::Key(args) => key::key(&args).map(|made| {
            if let Some(key) = made.key {
                complain(0, &format!("the key, shown this once: {key}"));
            }
            print(made.line.as_bytes())
        }),
        Command::Advise(args) => advise::advise(&args).map(|text| print(text.as_bytes())),
        Command::Probe(args) => probe::probe(&args),
        #[cfg(target_os = "linux")]
        Command::Attach(args) => attach::attach(&args).map(|text| print(text.as_bytes())),
        #[cfg(target_os = "linux")]
        Command::Detach(args) => attach::detach(&args).map(|text| print(text.as_bytes())),
        Command::Lab(args) => Err(Failure::Run(lab::run(None, &args))),
        Command::Simulate(args) => Err(Failure::Run(lab::run(Some("simulate"), &args))),
        Command::Theory(args) => Err(Failure::Run(lab::run(Some("theory"), &args))),
        Command::Completions { shell } => Ok(output::completions(Cli::command(), shell)),
        Command::Man { out } => Ok(output::manual(Cli::command(), out.as_deref())),
    })
}

/// The exit code of a command. A failure is written to standard error.
fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| complain(failure.code(), &failure.to_string()))
}
