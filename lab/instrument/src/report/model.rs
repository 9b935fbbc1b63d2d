//! The numbers of a run that every form of the report shows.

use chart::Plot;
use serde::Serialize;

use super::{cell::CellReport, input::Unusable, paths::PathReport, point::PointReport, published::PublishedRow};
use crate::{experiment::Experiment, record::Simulated, setting::Setting};

/// Version of the JSON layout. It changes when a field is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// A whole report, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The directory from which the report was made.
    pub directory: String,
    /// The experiment, with all changes by flags.
    pub experiment: Experiment,
    /// Whether the short form was run.
    pub quick: bool,
    /// The other changes by flags, as they are written: `--set time.seconds=20`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The command that repeats the run.
    pub command: String,
    /// Versions of the kernel, the processors and the programs.
    pub versions: Vec<String>,
    /// Beginning of the run, in seconds since 1970.
    pub began_unix_s: u64,
    /// The simulation's model; `None` if the run was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The subjects. The others are compared with the first.
    pub subjects: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Number of cells in a whole run.
    pub expected_cells: usize,
    /// Cells that are missing or unusable.
    pub missing: Vec<MissingCell>,
    /// Cells whose files are present but not usable.
    pub unusable: Vec<Unusable>,
    /// The network paths between server and clients: measured values beside the settings.
    pub paths: Vec<PathReport>,
    /// The tables, by point.
    pub points: Vec<PointReport>,
    /// The paper's measurements beside those of this run.
    pub published: Vec<PublishedRow>,
    /// Every measurement separately.
    pub cells: Vec<CellReport>,
    /// The plots as plain numbers.
    pub figures: Vec<Plot>,
    /// Plots that were asked for but could not be made, with reasons.
    pub not_plotted: Vec<String>,
}

/// A cell that is missing from the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingCell {
    /// Label of its point.
    pub point: String,
    /// Its subject.
    pub subject: String,
    /// Its seed.
    pub seed: u64,
}

impl Report {
    /// The length of the run: the short form or the full one, and how flags changed it. The experiment's description is
    /// written for the full length.
    pub(super) fn length(&self) -> String {
        let times = self.points.iter().filter_map(|point| toml::from_str::<Setting>(&point.setting).ok());
        let times: Vec<(f64, f64)> = times.map(|setting| (setting.time.seconds, setting.time.drain_s)).collect();
        let range = |of: fn(&(f64, f64)) -> f64| {
            let (low, high) = times.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), s| (l.min(s), h.max(s)));
            if low < high { format!("{low} to {high}") } else { high.to_string() }
        };
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let mut text = format!(
            "This is the {}: {} and {}, {} s of requests and at most {} s to finish them.",
            self.form(),
            plural(self.points.len(), "point"),
            plural(self.seeds.len(), "seed"),
            range(|time| time.0),
            range(|time| time.1),
        );
        if !self.missing.is_empty() {
            let made = self.expected_cells - self.missing.len();
            text += &format!(" Only {made} of its {} measurements are here.", self.expected_cells);
        }
        if self.is_changed() && !self.experiment.notes.is_empty() {
            text += " The following describes the full length.";
        }
        text
    }

    /// The form that was run: `short form`, `full length`, or one of them with the flags that changed it.
    pub(super) fn form(&self) -> String {
        match (self.quick, self.flags.is_empty()) {
            (true, true) => "short form".to_owned(),
            (false, true) => "full length".to_owned(),
            (true, false) => format!("short form, changed by `{}`", self.flags.join(" ")),
            (false, false) => format!("full form, changed by `{}`", self.flags.join(" ")),
        }
    }

    /// Whether something else was run than the file of the experiment says.
    pub(super) fn is_changed(&self) -> bool {
        self.quick || !self.flags.is_empty()
    }

    /// Cells that must not be trusted, one line each.
    pub(super) fn invalid(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter(|cell| !cell.is_sound()).map(|cell| {
            let point = &self.points[cell.point].label;
            let subject = &self.subjects[cell.subject];
            format!("{}, seed {}: {}", at(point, subject), cell.seed, cell.invalid.join("; "))
        })
    }

    /// Cells with notes, one line each.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter(|cell| !cell.notes.is_empty()).map(|cell| {
            let point = &self.points[cell.point].label;
            let subject = &self.subjects[cell.subject];
            format!("{}, seed {}: {}", at(point, subject), cell.seed, cell.notes.join("; "))
        })
    }
}

/// The place of a cell in words. A point has no name if it is the only one.
pub(super) fn at(point: &str, subject: &str) -> String {
    if point.is_empty() { subject.to_owned() } else { format!("{point}, {subject}") }
}
