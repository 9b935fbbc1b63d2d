//! `serpent-lab report` and `serpent-lab compare`: show the results of runs from their folders.
//!
//! - `input` reads the usable part of a run's directory.
//! - `cell` and `summary` sum it up, by measurement and by point. `model` and `point` hold the result.
//! - `measures` and `published` define the values.
//! - `paths` compares the measured network paths with their settings.
//! - `figures` makes the plots that the experiment asks for, and `png` their bitmap files.
//! - `terminal` and `html` show everything to people; `--json` gives it to programs.
//! - [`compare`] compares several runs.

mod cell;
mod compare;
mod conditions;
pub(crate) mod figures;
mod html;
mod input;
mod measures;
mod model;
mod paths;
mod png;
mod point;
mod published;
mod summary;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use chart::wrapped;
use clap::Args;
use serde::Serialize;

pub(crate) use self::html::{caption, date, marked};
use self::input::RunDir;
pub use self::{
    cell::{CellReport, Costs, Ideal},
    compare::{ComparedRow, ComparedRun, Comparison, Difference},
    input::Unusable,
    model::{FORMAT, MissingCell, Report},
    paths::PathReport,
    png::png,
    point::{IdealRow, PointReport, Row},
    published::{ALL_POINTS, PublishedRow},
};
use crate::LabError;

/// Show the results of a run: tables here, and pages, plots and numbers in files.
///
/// Means are over the seeds, with 95 % confidence intervals (Student's t). Gains are compared seed by seed. A
/// request that never completed counts with the time that the client waited for it, which is a lower bound
/// and is marked. An interrupted run is reported as far as it got.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Directory that `serpent-lab run` or `serpent-lab simulate` has written, or those of all parts (`--shard`).
    #[arg(value_name = "DIR", required = true, num_args = 1..)]
    pub dirs: Vec<PathBuf>,

    /// Write one page with everything, which needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write every number, for programs.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write every plot as a PNG file to this directory.
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,

    /// Write every plot as an SVG file to this directory.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

/// Compare several runs of an experiment, point by point and subject by subject.
///
/// A difference smaller than the confidence intervals has no meaning; a larger one is marked.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Directories that `serpent-lab run` has written; the others are compared with the first.
    #[arg(required = true, num_args = 2..)]
    pub dirs: Vec<PathBuf>,

    /// Write one page with the comparison.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write every number, for programs.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Reports on a run. Returns [`ExitCode::FAILURE`] if nothing in it can be used, or if a measurement must not
/// be trusted; the report names it. Parts that an interrupted run lacks are listed and are no failure.
pub fn run(args: ReportArgs) -> Result<ExitCode, LabError> {
    let report = Report::new(RunDir::join(&args.dirs)?)?;
    print!("{}", wrapped(&terminal::Shown(&report).to_string()));
    if let Some(file) = &args.html {
        write(file, html::page(&report)?)?;
    }
    if let Some(file) = &args.json {
        write(file, to_json(&report)?)?;
    }
    for (number, plot) in report.figures.iter().enumerate() {
        let stem = plot.file_stem(number + 1);
        if let Some(dir) = &args.svg {
            write(&dir.join(format!("{stem}.svg")), chart::svg_file(plot))?;
        }
        if let Some(dir) = &args.png {
            let png = png::png(plot)
                .map_err(|reason| LabError::Io(format!("cannot draw {stem}.png"), std::io::Error::other(reason)))?;
            write(&dir.join(format!("{stem}.png")), png)?;
        }
    }
    let sound = !report.cells.is_empty() && report.cells.iter().all(CellReport::is_sound);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares runs. Returns [`ExitCode::FAILURE`] if they have nothing in common.
pub fn compare(args: CompareArgs) -> Result<ExitCode, LabError> {
    let reports: Vec<Report> = args.dirs.iter().map(|dir| Report::read(dir)).collect::<Result<_, _>>()?;
    let comparison = Comparison::new(&reports);
    print!("{}", wrapped(&comparison.to_string()));
    if let Some(file) = &args.html {
        write(file, html::comparison(&comparison)?)?;
    }
    if let Some(file) = &args.json {
        write(file, to_json(&comparison)?)?;
    }
    Ok(if comparison.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Report {
    /// Reads a run's directory and sums it up.
    pub fn read(dir: &Path) -> Result<Self, LabError> {
        Self::new(RunDir::join(&[dir.to_owned()])?)
    }
}

fn to_json(value: &impl Serialize) -> Result<String, LabError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|error| LabError::Io("cannot write as JSON".to_owned(), error.into()))
}

/// Writes a file and makes its missing parent directories.
fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<(), LabError> {
    if let Some(above) = file.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above).map_err(LabError::io(format!("cannot make {}", above.display())))?;
    }
    fs::write(file, content).map_err(LabError::io(format!("cannot write {}", file.display())))
}
