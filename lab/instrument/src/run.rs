//! `serpent-lab run`: measures an experiment cell by cell into a folder. Simulations share parts of it.

mod alone;
mod cell;
pub(crate) mod machine;
mod measurement;
mod runner;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use time::{UtcDateTime, macros::format_description};

pub use self::{machine::stop_on_signals, runner::parse_subjects};
pub(crate) use self::{measurement::Servers, runner::Runner};
use crate::{
    LabError,
    experiment::{Changes, Experiment},
    progress::note,
    record::{RunRecord, Simulated},
    report::{self, ReportArgs},
    shard::Shard,
    store::{Cell, Run, Writer},
    subject::serpent_binary,
};

/// The arguments of `serpent-lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Name of a shipped experiment, or an experiment file
    #[arg(value_name = "NAME|FILE", required_unless_present = "resume")]
    pub experiment: Option<String>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the comment would become part of the help")]
    pub changes: Changes,

    /// Folder for what is measured [default: serpent-lab/NAME-UTCTIME here]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Measure one of N parts only, I from 0 to N - 1; `serpent-lab report` joins them
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,

    /// Go on with a run that was stopped, after its last whole measurement
    #[arg(long, value_name = "DIR", conflicts_with_all = ["experiment", "quick", "seeds", "subjects", "set", "out", "shard"])]
    pub resume: Option<PathBuf>,

    /// The program to measure [default: `serpent` beside this program, then in the folders of PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Port that the servers listen on
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
}

/// Runs an experiment, or the rest of one, and prints its table. Returns [`ExitCode::FAILURE`] if a
/// measurement is invalid; the table shows which.
pub fn run(args: &RunArgs) -> Result<ExitCode, LabError> {
    let servers = Servers { serpent: serpent_binary(args.serpent.as_deref())?, port: args.port };
    let (writer, notes, runner) = match (&args.resume, &args.experiment) {
        (Some(dir), _) => {
            let writer = Writer::resume(dir)?;
            writer.run().record().check_resumable(dir, false)?;
            let notes = still_the_same(writer.run().record(), &servers)?;
            let runner = Runner::new(writer.run().record(), servers)?;
            (writer, notes, runner)
        }
        (None, name) => {
            let experiment = Experiment::find(name.as_deref().unwrap_or_default())?.changed(&args.changes)?;
            let record = new_record(experiment, &args.changes, &servers, args.shard)?;
            // Before the folder is made, so that an impossible run leaves nothing behind.
            let runner = Runner::new(&record, servers)?;
            let dir = args.out.clone().unwrap_or_else(|| default_dir(&record));
            (Writer::create(&dir, record)?, Vec::new(), runner)
        }
    };
    let run = writer.run();
    note(&format!(
        "{}: {} measurements into {}",
        run.record().experiment.name,
        run.record().cells_of_part().count(),
        run.dir().display()
    ));
    notes.iter().for_each(|text| note(&format!("note: {text}")));
    let todo: Vec<Cell> = run.record().cells_of_part().filter(|cell| !run.has_cell(cell.number)).collect();
    let measured = runner.measure(run.record(), &todo, &notes, &mut |cell, outcomes| writer.keep(&cell, &outcomes));
    if let Err(error) = measured {
        note(&format!("what was measured is kept; `{}` goes on", run.record().resume_command(run.dir())));
        return Err(error);
    }
    finish(run)
}

/// The record of a new run that begins now.
pub(crate) fn new_record(
    experiment: Experiment,
    changes: &Changes,
    servers: &Servers,
    shard: Option<Shard>,
) -> Result<RunRecord, LabError> {
    let subjects = parse_subjects(&experiment.subjects)?;
    record(experiment, changes, machine::versions(&subjects, &servers.serpent), None, shard)
}

/// The record of a new simulation that begins now; `versions` describe the simulator.
///
/// # Errors
/// [`LabError::Request`] if the experiment has an invalid point.
pub fn simulated_record(
    experiment: Experiment,
    changes: &Changes,
    versions: Vec<String>,
    simulated: Simulated,
    shard: Option<Shard>,
) -> Result<RunRecord, LabError> {
    record(experiment, changes, versions, Some(simulated), shard)
}

fn record(
    experiment: Experiment,
    changes: &Changes,
    versions: Vec<String>,
    simulated: Option<Simulated>,
    shard: Option<Shard>,
) -> Result<RunRecord, LabError> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(RunRecord {
        quick: changes.quick,
        flags: changes.flags(),
        command: machine::command(),
        versions,
        began_unix_s: began.as_secs(),
        points: experiment.points()?,
        subjects: experiment.subjects.clone(),
        seeds: experiment.seeds.clone(),
        experiment,
        simulated,
        shard,
    })
}

/// Changes since the run began that do not prevent its continuation.
fn still_the_same(record: &RunRecord, servers: &Servers) -> Result<Vec<String>, LabError> {
    Ok(changed_versions(record, &machine::versions(&parse_subjects(&record.subjects)?, &servers.serpent)))
}

/// A note if the versions differ from those at the start of the run.
pub fn changed_versions(record: &RunRecord, now: &[String]) -> Vec<String> {
    let only_in = |these: &[String], those: &[String]| {
        let only: Vec<&str> = these.iter().filter(|one| !those.contains(one)).map(String::as_str).collect();
        only.join(", ")
    };
    let (before, after) = (only_in(&record.versions, now), only_in(now, &record.versions));
    if before.is_empty() && after.is_empty() {
        Vec::new()
    } else {
        vec![format!("resumed under other conditions: [{before}] became [{after}]")]
    }
}

/// The default folder of a run: `serpent-lab/NAME-UTCTIME` in the current one.
pub fn default_dir(record: &RunRecord) -> PathBuf {
    let began = UtcDateTime::from_unix_timestamp(record.began_unix_s as i64).unwrap_or(UtcDateTime::UNIX_EPOCH);
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let stamp = began.format(format).unwrap_or_else(|_| record.began_unix_s.to_string());
    let simulated = if record.simulated.is_some() { "-simulated" } else { "" };
    let part = record.shard.map(|Shard { index, of }| format!("-part-{index}-of-{of}")).unwrap_or_default();
    Path::new("serpent-lab").join(format!("{}{simulated}-{stamp}{part}", record.experiment.name))
}

/// Prints the run's tables, and writes its page into its folder. Of a part it only says what it is. Returns
/// [`ExitCode::FAILURE`] if a measurement is invalid.
///
/// # Errors
/// The folder is no longer readable, or the page cannot be written.
pub fn finish(run: &Run) -> Result<ExitCode, LabError> {
    if let Some(shard) = run.record().shard {
        let invalid = run.cells()?.iter().filter(|cell| !cell.facts.invalid.is_empty()).count();
        let (count, dir) = (run.record().cells_of_part().count(), run.dir().display());
        println!("part {shard}: {count} of {} measurements, {invalid} not valid, in {dir}", run.record().cells_count());
        eprintln!("`serpent-lab report DIR...` joins the folders of all parts");
        return Ok(if invalid == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let page = run.dir().join("report.html");
    let shown =
        ReportArgs { dirs: vec![run.dir().to_owned()], html: Some(page.clone()), json: None, png: None, svg: None };
    let code = report::run(shown)?;
    note(&format!("{} shows it with its plots", page.display()));
    Ok(code)
}
