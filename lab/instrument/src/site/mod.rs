//! `serpent-lab site`: gateways before a real site of several resources, and users that wait for answers.
//!
//! The experiments of "Multiple-resource Request Scheduling Algorithms for Proportional System-time
//! Differentiation at Website Gateway", chapter 4.

mod args;
mod config;
mod curves;
mod figures;
mod gateway;
mod measured;
mod outage;
mod outcome;
mod outcome_file;
mod page;
mod plan;
mod report;
mod shown;
mod stats;
mod subject;
mod tables;
mod target;
#[cfg(test)]
mod tests;
mod users;
mod windows;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use time::{UtcDateTime, macros::format_description};
use tokio::{runtime::Runtime, time::Instant};

pub use self::args::SiteArgs;
use self::{
    gateway::{Gateway, Programs},
    measured::Measured,
    outage::Database,
    plan::{Plan, refused},
    report::{Report, RunStart},
    subject::Subject,
};
use crate::{
    LabError,
    progress::{Progress, note},
    run::{machine, stop_on_signals},
    subject::serpent_binary,
    temporary,
};

/// Runs the experiment and prints its report. Returns [`ExitCode::FAILURE`] if a subject could not be
/// measured; the report shows which.
pub fn run(args: SiteArgs) -> Result<ExitCode, LabError> {
    let plan = Plan::new(&args)?;
    let programs = Programs { serpent: serpent_binary(args.serpent.as_deref())?, port: args.port };
    let begun = RunStart::now(&programs, &plan, args.quick);
    let dir = args.out.clone().unwrap_or_else(|| default_dir(begun.unix_s));
    if args.dry_run {
        return dry_run(&plan, &programs, &dir);
    }
    plan.subjects.iter().try_for_each(|subject| programs.have(subject))?;
    let stop = stop_on_signals()?;
    machine::raise_descriptor_limit();
    temporary::remove_stale();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(LabError::io("cannot start the users"))?;
    // Before the folder is made, so that an impossible run leaves nothing behind.
    let alone = runtime.block_on(users::ask_each(&plan, plan.site.address))?;
    let alone = alone.map_err(|reason| no_site(&plan, &reason))?;
    let dir = make_dir(&dir)?;
    note(&format!("{} subjects, {} users, into {}", plan.subjects.len(), plan.users(), dir.display()));
    let mut experiment = Experiment { plan: &plan, programs: &programs, dir, runtime, stop: &stop };
    let mut report = Report::new(&plan, begun, alone);
    let measured = experiment.measure(&mut report);
    report.write(&experiment.dir)?;
    print!("{}", chart::wrapped(&report.to_string()));
    note(&format!("{} shows it with its plots", experiment.dir.join(shown::PAGE).display()));
    measured?;
    Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Experiment<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    dir: PathBuf,
    runtime: Runtime,
    stop: &'a AtomicBool,
}

impl Experiment<'_> {
    /// Measures one subject after the other, and stores each when it is complete.
    fn measure(&mut self, report: &mut Report) -> Result<(), LabError> {
        let expected_s = self.plan.subjects.iter().map(|_| f64::from(self.plan.seconds));
        let mut progress = Progress::new(expected_s, self.plan.subjects.len());
        for (number, subject) in self.plan.subjects.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            progress.begin(&subject.to_string());
            match self.subject(number, subject) {
                Ok(measured) => report.take(self.plan, subject, Ok(&measured)),
                Err(_) if self.stop.load(Ordering::Relaxed) => return Err(LabError::Interrupted),
                // Other subjects may succeed.
                Err(LabError::Subject(reason)) => {
                    progress.say(&format!("{subject}: NOT MEASURED: {reason}"));
                    report.take(self.plan, subject, Err(reason));
                }
                Err(error) => return Err(error),
            }
            progress.end();
        }
        Ok(())
    }

    fn subject(&self, number: usize, subject: &Subject) -> Result<Measured, LabError> {
        let stem = file_stem(number, subject);
        let mut gateway = Gateway::start(self.plan, subject, self.programs, &self.dir.join(&stem))?;
        let mut database = Database::new(self.plan.cut.as_ref());
        let (alone, outcomes, cut, windows) = self.runtime.block_on(async {
            let alone = users::ask_each(self.plan, gateway.address).await?.map_err(LabError::Subject)?;
            let began = Instant::now() + Duration::from_millis(10);
            let asked = users::run(self.plan, gateway.address, began, self.stop);
            let watched = async { Ok(windows::watch(self.plan, gateway.admin, began).await) };
            let (outcomes, cut, windows) = tokio::try_join!(asked, database.stop_and_start(began), watched)?;
            Ok::<_, LabError>((alone, outcomes, cut, windows))
        })?;
        let ended = gateway.has_ended();
        gateway.stop();
        let file = self.dir.join(format!("{stem}.ndjson"));
        outcome_file::write(&file, self.plan, &outcomes)?;
        if let Some(reason) = ended {
            return Err(LabError::Subject(reason));
        }
        Ok(Measured { outcomes, alone, cut, windows })
    }
}

fn dry_run(plan: &Plan, programs: &Programs, dir: &Path) -> Result<ExitCode, LabError> {
    let dir = make_dir(dir)?;
    for (number, subject) in plan.subjects.iter().enumerate() {
        if let Some(file) = gateway::write_only(plan, subject, programs, &dir.join(file_stem(number, subject)))? {
            println!("{}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn no_site(plan: &Plan, reason: &str) -> LabError {
    let url = &plan.site.url;
    refused(format!(
        "the site at {url} cannot be measured: {reason}. Start it (`examples/two-tier/site start`), or say where it is by --site \
         and what its pages are by --page"
    ))
}

/// Makes the folder, which may hold only one run.
fn make_dir(dir: &Path) -> Result<PathBuf, LabError> {
    if dir.join(shown::PAGE).exists() {
        return Err(refused(format!("{} holds a run already: give another folder by --out", dir.display())));
    }
    fs::create_dir_all(dir).map_err(LabError::io(format!("cannot make {}", dir.display())))?;
    Ok(dir.to_owned())
}

/// A file name of number and label.
fn file_stem(number: usize, subject: &Subject) -> String {
    format!("{}-{}", number + 1, subject.label().replace(' ', "-"))
}

fn default_dir(unix_s: u64) -> PathBuf {
    let began = UtcDateTime::from_unix_timestamp(unix_s as i64).unwrap_or(UtcDateTime::UNIX_EPOCH);
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let stamp = began.format(format).unwrap_or_else(|_| unix_s.to_string());
    Path::new("serpent-lab").join(format!("site-{stamp}"))
}
