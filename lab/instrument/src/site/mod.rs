//! `serpent-lab site`: gateways before a real site of several resources, and users that wait for answers.
//!
//! The experiments of "Multiple-resource Request Scheduling Algorithms for Proportional System-time
//! Differentiation at Website Gateway", chapter 4.

mod config;
mod figures;
mod gateway;
mod outage;
mod outcome;
mod page;
mod plan;
mod report;
mod stats;
mod subject;
mod tables;
#[cfg(test)]
mod tests;
mod users;
mod windows;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use time::{UtcDateTime, macros::format_description};
use tokio::{runtime::Runtime, time::Instant};

use self::{
    gateway::{Gateway, Programs},
    outage::Database,
    plan::{Plan, refused},
    report::{Measured, Report, RunStart},
    stats::Span,
    subject::Subject,
};
use crate::{
    LabError,
    progress::Progress,
    run::{machine, stop_on_signals},
    subject::serpent_binary,
    temporary,
};

/// Measure gateways before a real site: the waiting times of classes, and the site's throughput.
///
/// Users of three classes request the site's pages, one page each, wait for the whole answer, think, and
/// repeat. The same users use each gateway in turn. The site must already run (see `examples/two-tier`), and
/// its pages report their own time; gateways are started and stopped here. Without --quick each subject takes
/// 30 minutes, as in the paper's experiment.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Subjects:
  uncontrolled                            Serpent without windows
  direct                                  nobody: the users ask the site itself
  single:slots=N[,share=SHARE][,windows=METHOD]
                                          Serpent with one window for all pages; probe is not for it
  multi:PAGE=N,...[,share=SHARE][,windows=METHOD][,KEY=VALUE,...]
                                          Serpent with a window for each page, N, N/LEAST-MOST,
                                          N@BOUND or N/LEAST-MOST@BOUND; other keys of `[admission]`:
                                          probe-every, probe-after, shrink-above, grow-below, delay-window
  haproxy:PAGE=N,...[,share=strict]       HAProxy, a backend with maxconn N for each page
SHARE: wtp (the default), pwad, mdp, ratio, weighted, strict.
METHOD: fixed (the default), probe, knee, gradient; probe needs bounds, which `serpent probe` measures.

Examples:
  examples/two-tier/site start
  serpent-lab site --quick --out quick
  serpent-lab site --subject uncontrolled --subject multi:cpu=1,disk=2,db=8,share=ratio --seconds 600
  serpent-lab site --quick --subject multi:cpu=1,disk=2,db=8 --stop-database 120..140 \\
                   --stop-command 'examples/two-tier/site stop-database' \\
                   --start-command 'examples/two-tier/site start-database'")]
pub struct SiteArgs {
    /// The site.
    #[arg(long, default_value = "http://127.0.0.1:8091", value_name = "URL")]
    pub site: String,

    /// A page, named by the resource that it mainly needs; may be repeated, and then replaces all defaults.
    #[arg(long, value_name = "NAME=PATH", default_values = ["cpu=/cpu.php", "disk=/disk.php", "db=/db.php"])]
    pub page: Vec<String>,

    /// A gateway between the users and the site; may be repeated, and they are measured in this order.
    /// Default: all that the paper compares, and others; with --quick fewer of them.
    #[arg(long, value_name = "SUBJECT")]
    pub subject: Vec<String>,

    /// The short form, of 3.5 minutes for each subject. It shows the direction: do not quote its numbers.
    #[arg(long)]
    pub quick: bool,

    /// Classes, the most important first.
    #[arg(long, default_value = "gold,silver,bronze", value_delimiter = ',', value_name = "NAME,...")]
    pub classes: Vec<String>,

    /// The header field with a user's class.
    #[arg(long, default_value = "X-Class", value_name = "NAME")]
    pub class_field: String,

    /// The target ratios of the classes' delays, in whole numbers.
    #[arg(long, default_value = "1,2,4", value_delimiter = ',', value_name = "NUMBER,...")]
    pub ratios: Vec<u32>,

    /// Users for each page: one number per class, or one for all.
    #[arg(long, default_value = "25", value_delimiter = ',', value_name = "N,...")]
    pub users: Vec<usize>,

    /// Mean think time of a user in seconds, exponentially distributed. The paper does not give it.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub think: f64,

    /// A user's patience, in seconds.
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    pub timeout: f64,

    /// Length of a run. Default: 1800, with --quick 210.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u32>,

    /// Length of the warm-up, which does not count. Default: 60, of shorter runs a tenth.
    #[arg(long, value_name = "SECONDS")]
    pub warm_up: Option<u32>,

    /// Length of the last part, from which the ratios of the classes are computed. Default: a third.
    #[arg(long, value_name = "SECONDS")]
    pub last: Option<u32>,

    /// The period in which the first class is silent, or `off`. Default: 570..660, of shorter runs the third
    /// seventh.
    #[arg(long, value_name = "FROM..UNTIL")]
    pub silence: Option<String>,

    /// Length of the time windows for ratios and moving means. Default: 30, of shorter runs a fourteenth.
    #[arg(long, value_name = "SECONDS")]
    pub window: Option<u32>,

    /// Largest error of a settled ratio, in per cent.
    #[arg(long, default_value_t = 25.0, value_name = "PERCENT")]
    pub tolerance: f64,

    /// Seconds to wait after the end until the site has finished its requests.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub drain: u32,

    /// Seed of the users' think times.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub seed: u64,

    /// Stop the database at the first of two times, and start it at the second.
    #[arg(long, value_name = "FROM..UNTIL", requires = "stop_command", requires = "start_command")]
    pub stop_database: Option<String>,

    /// Shell command that stops it.
    #[arg(long, value_name = "COMMAND", requires = "stop_database")]
    pub stop_command: Option<String>,

    /// Shell command that starts it. It also runs if the experiment is stopped in between.
    #[arg(long, value_name = "COMMAND", requires = "stop_database")]
    pub start_command: Option<String>,

    /// The page that needs the database.
    #[arg(long, default_value = "db", value_name = "NAME")]
    pub database: String,

    /// Folder for the report (report.html, report.json), the requests and the gateways' configurations.
    /// Default: serpent-lab/site-TIME here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// The program to measure. Default: `serpent` beside this program, then in the folders of `PATH`.
    #[arg(long, value_name = "PROGRAM")]
    pub serpent: Option<PathBuf>,

    /// Port of the gateway on 127.0.0.1. Default: any free one.
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// Only write the gateways' configurations.
    #[arg(long)]
    pub dry_run: bool,
}

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
    eprintln!("{} subjects, {} users, into {}", plan.subjects.len(), plan.users(), dir.display());
    let mut experiment = Experiment { plan: &plan, programs: &programs, dir, runtime, stop: &stop };
    let mut report = Report::new(&plan, begun, alone);
    let measured = experiment.measure(&mut report);
    report.write(&experiment.dir)?;
    print!("{report}");
    eprintln!("{} shows it with its plots", experiment.dir.join(report::PAGE).display());
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
        outcome::write(&file, self.plan, &outcomes)?;
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
    if dir.join(report::PAGE).exists() {
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

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
