//! `serpent-lab check`: the instrument measures itself on this machine, before its measurements of others are
//! believed.

mod args;
mod flows;
mod generator;
mod path;
mod row;

use std::process::ExitCode;

pub use self::args::CheckArgs;
use crate::LabError;

/// Does all checks and prints them. Returns [`ExitCode::FAILURE`] if one fails.
pub fn run(args: CheckArgs) -> Result<ExitCode, LabError> {
    let mut rows = vec![path::round_trips(&args)?];
    for &percent in &args.losses {
        rows.push(path::loss(&args, percent / 100.0)?);
    }
    rows.push(generator::lateness(&args)?);
    for row in &rows {
        println!("{}", chart::wrapped(&row.to_string()));
    }
    Ok(if rows.iter().all(|row| row.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
