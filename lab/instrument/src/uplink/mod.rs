//! `serpent-lab uplink`: response times behind a busy uplink, for several servers and the same requests.

mod args;
mod experiment;
mod measured;
mod report;

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use workload::outcome::Outcome;

pub use self::args::UplinkArgs;
use self::measured::{Measured, Run};
use crate::{
    LabError,
    experiment::Changes,
    run::{self, Runner, Servers},
    store::Cell,
    subject::serpent_binary,
};

/// Runs the experiment and prints its report. Returns [`ExitCode::FAILURE`] if a run is invalid; the report
/// shows which.
pub fn run(args: UplinkArgs) -> Result<ExitCode, LabError> {
    let servers = Servers { serpent: serpent_binary(args.serpent.as_deref())?, port: args.port };
    let record = run::new_record(args.experiment()?, &Changes::default(), &servers, None)?;
    let runner = Runner::new(&record, servers)?;
    if let Some(dir) = &args.outcomes {
        std::fs::create_dir_all(dir).map_err(LabError::io(format!("cannot make {}", dir.display())))?;
    }
    let mut runs = Vec::new();
    let cells: Vec<Cell> = record.cells_in_turn().collect();
    runner.measure(&record, &cells, &[], &mut |cell, outcomes| {
        if let Some(dir) = &args.outcomes {
            write_outcomes(&dir.join(format!("seed{}-{}.jsonl", cell.seed, cell.subject)), &outcomes)?;
        }
        runs.push(Run { cell, outcomes });
        Ok(())
    })?;
    runs.sort_unstable_by_key(|run| run.cell.number);
    let measured = Measured { record: &record, plan: runner.plan(0), runs: &runs, files: args.files };
    let report = report::Report::new(&measured)?;
    print!("{}", chart::wrapped(&report.to_string()));
    if let Some(path) = &args.json {
        let json =
            serde_json::to_string_pretty(&report).map_err(|error| LabError::Io(error.to_string(), error.into()))?;
        std::fs::write(path, json + "\n").map_err(LabError::io(format!("cannot write {}", path.display())))?;
    }
    Ok(if report.all_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_outcomes(path: &Path, outcomes: &[Outcome]) -> Result<(), LabError> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for outcome in outcomes {
            serde_json::to_writer(&mut file, outcome)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().map_err(LabError::io(format!("cannot write {}", path.display())))
}
