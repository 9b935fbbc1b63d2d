//! A run in numbers: what every form of the report shows.

use std::collections::BTreeMap;

use chart::Plot;
use serde::Serialize;
use workload::{
    outcome::{End, Outcome},
    stats::{
        alone::AloneTimes,
        interval::{self, Bound, Estimate},
        stretch::Matching,
    },
};

use super::{
    cell::{CellReport, Ideal, value_of_summary},
    conditions::Conditions,
    input::{RunDir, Unusable},
    measures::{self, ALL},
    paths::{self, PathReport},
    published::{self, PublishedRow},
};
use crate::{
    LabError,
    experiment::{Experiment, Measure},
    record::{Point, Simulated},
    setting::Setting,
    store::Cell,
};

/// The layout of the JSON: it changes when a field changes its meaning or goes.
pub const FORMAT: u32 = 1;

/// All that a report says, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The directory it was made from.
    pub directory: String,
    /// The experiment, with everything that flags changed.
    pub experiment: Experiment,
    /// Whether it is the short form.
    pub quick: bool,
    /// What to type to do it again.
    pub command: String,
    /// Kernel, processors, programs.
    pub versions: Vec<String>,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// By what it was simulated; `None` if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The subjects; the first is the one the others are compared with.
    pub subjects: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Cells that a whole run has.
    pub expected_cells: usize,
    /// Cells that are not there, or cannot be used.
    pub missing: Vec<MissingCell>,
    /// Files that are there and cannot be used.
    pub unusable: Vec<Unusable>,
    /// What the ways between server and clients were, beside what they were to be.
    pub paths: Vec<PathReport>,
    /// By point: the tables.
    pub points: Vec<PointReport>,
    /// What the paper measured, beside ours.
    pub published: Vec<PublishedRow>,
    /// Every measurement by itself.
    pub cells: Vec<CellReport>,
    /// The plots, as the numbers they are drawn from.
    pub figures: Vec<Plot>,
    /// What was asked to be plotted and is not, with the reason.
    pub not_plotted: Vec<String>,
}

/// A cell that the report lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingCell {
    /// Label of its point.
    pub point: String,
    /// Its subject.
    pub subject: String,
    /// Its seed.
    pub seed: u64,
}

/// The table of a point.
#[derive(Debug, Serialize)]
pub struct PointReport {
    /// What it is called.
    pub label: String,
    /// What is varied, and its value here.
    pub values: BTreeMap<String, String>,
    /// All conditions, as TOML.
    pub setting: String,
    /// Requests that count, on average over the seeds.
    pub requests: f64,
    /// Wire bytes asked for over what the link can carry while requests are sent, on average over the seeds.
    pub load: f64,
    /// A row for each subject that has a cell, be it one that must not be trusted, the first subject first.
    pub rows: Vec<Row>,
    /// The same requests on a bare link: shortest remaining first, and shared evenly.
    pub ideal: Vec<IdealRow>,
    /// Why the ideal is no more than a bound; empty where it is the same requests on the same link.
    pub ideal_is_bound: String,
}

/// A subject at a point. Values are means over the seeds, ratios geometric means pair by pair, sums are over the seeds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The seeds that it was measured with, but for those in `invalid`: all else here is over these.
    pub seeds: Vec<u64>,
    /// Every measure that it has.
    pub measures: BTreeMap<Measure, Estimate>,
    /// Mean response time of those requests alone that came whole.
    pub whole_mean_ms: Option<Estimate>,
    /// Mean response time over that of exact SRPT on a bare link.
    pub over_ideal: Option<Estimate>,
    /// Mean response time of the largest 1 % over that of the first subject.
    pub largest_percent_ratio: Option<Estimate>,
    /// The same of the very largest.
    pub very_largest_ratio: Option<Estimate>,
    /// How requests were matched for the starvation stretch.
    pub matching: Option<Matching>,
    /// Requests, by how they ended.
    pub ends: BTreeMap<End, usize>,
    /// Requests that never came whole, without an error.
    pub incomplete: usize,
    /// Requests that failed.
    pub errors: usize,
    /// Packets that found no place in the bottleneck's queue.
    pub queue_drops: u64,
    /// SYNs that the clients sent again.
    pub syn_retransmitted: u64,
    /// SYNs that the server dropped, where it was sampled.
    pub syn_drops: Option<u64>,
    /// Connections dropped before they were accepted.
    pub listen_drops: u64,
    /// Segments that the server sent again.
    pub segments_retransmitted: u64,
    /// System calls of the server for a request, where they were counted.
    pub system_calls_per_request: Option<Estimate>,
    /// The most memory of the server that was resident, in bytes, where it was sampled.
    pub resident_bytes: Option<u64>,
    /// Whether it was simulated.
    pub simulated: bool,
    /// Whether packets dropped and segments sent again were counted; if not these are zero here and say nothing.
    pub has_packets: bool,
    /// Seeds whose cell must not be trusted, with the reasons. They are left out of all values.
    pub invalid: Vec<(u64, Vec<String>)>,
}

/// The ideal at a point.
#[derive(Debug, Serialize)]
pub struct IdealRow {
    /// Which.
    pub name: &'static str,
    /// What response times come to.
    pub measures: BTreeMap<Measure, Estimate>,
}

/// The ideals' names.
pub(super) const IDEALS: [&str; 2] = ["exact SRPT, bare link", "even shares (PS), bare link"];

impl Report {
    /// What a short form measured: its description is written for the long one.
    pub(super) fn short_form(&self) -> String {
        let times = self.points.iter().filter_map(|point| toml::from_str::<Setting>(&point.setting).ok());
        let times: Vec<(f64, f64)> = times.map(|setting| (setting.time.seconds, setting.time.drain_s)).collect();
        let range = |of: fn(&(f64, f64)) -> f64| {
            let (low, high) = times.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), s| (l.min(s), h.max(s)));
            if low < high { format!("{low} to {high}") } else { high.to_string() }
        };
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        format!(
            "This is the short form: {} and {}, {} s of requests and at most {} s to finish them.{}",
            plural(self.points.len(), "point"),
            plural(self.seeds.len(), "seed"),
            range(|time| time.0),
            range(|time| time.1),
            if self.experiment.notes.is_empty() { "" } else { " The following describes the long form." }
        )
    }

    /// Reads and sums up a run, cell by cell: a point's outcomes are not all in memory at once.
    pub(super) fn new(mut dir: RunDir) -> Result<Self, LabError> {
        let mut conditions = Vec::new();
        for point in &dir.record().points {
            conditions.push(Conditions::new(point).map_err(|reason| {
                LabError::Request(format!("{}, point `{}`: {reason}", dir.path().display(), point.label))
            })?);
        }
        let cells = read_cells(&mut dir, &conditions);
        let run = dir.record();
        let points: Vec<PointReport> = run
            .points
            .iter()
            .enumerate()
            .map(|(number, point)| {
                let of_point: Vec<&CellReport> = cells.iter().filter(|cell| cell.point == number).collect();
                point_report(point, &conditions[number], &of_point, &run.subjects)
            })
            .collect();
        let missing = run.cells().filter(|cell| !dir.cells.contains_key(&cell.number)).map(|cell| MissingCell {
            point: run.points[cell.point].label.clone(),
            subject: run.subjects[cell.subject].clone(),
            seed: cell.seed,
        });
        let mut report = Self {
            format: FORMAT,
            directory: dir.path().display().to_string(),
            experiment: run.experiment.clone(),
            quick: run.quick,
            command: run.command.clone(),
            versions: run.versions.clone(),
            began_unix_s: run.began_unix_s,
            simulated: run.simulated.clone(),
            subjects: run.subjects.clone(),
            seeds: run.seeds.clone(),
            expected_cells: run.cells_count(),
            missing: missing.collect(),
            unusable: dir.unusable.clone(),
            // A simulation has no ways that could be other than they were set.
            paths: if run.simulated.is_some() { Vec::new() } else { paths::rows(run, &cells) },
            published: published::rows(run, &points, &cells),
            points,
            cells,
            figures: Vec::new(),
            not_plotted: Vec::new(),
        };
        (report.figures, report.not_plotted) = super::figures::plots(&report, run);
        Ok(report)
    }

    /// Cells that must not be trusted, in a line each.
    pub(super) fn invalid(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter(|cell| !cell.is_sound()).map(|cell| {
            let point = &self.points[cell.point].label;
            let subject = &self.subjects[cell.subject];
            format!("{}, seed {}: {}", at(point, subject), cell.seed, cell.invalid.join("; "))
        })
    }

    /// Cells with notes, in a line each.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter(|cell| !cell.notes.is_empty()).map(|cell| {
            let point = &self.points[cell.point].label;
            let subject = &self.subjects[cell.subject];
            format!("{}, seed {}: {}", at(point, subject), cell.seed, cell.notes.join("; "))
        })
    }
}

/// A point may have no name, where it is the only one.
pub(super) fn at(point: &str, subject: &str) -> String {
    if point.is_empty() { subject.to_owned() } else { format!("{point}, {subject}") }
}

impl PointReport {
    /// Why there are no numbers of it, if there are none.
    pub(super) fn has_nothing(&self) -> Option<&'static str> {
        match self.rows.iter().any(|row| !row.seeds.is_empty()) {
            true => None,
            false if self.rows.is_empty() => Some("not measured"),
            false => Some("no measurement of it can be trusted"),
        }
    }
}

/// Those cells of a point that may be trusted.
pub(super) fn of_point(cells: &[CellReport], point: usize) -> Vec<&CellReport> {
    cells.iter().filter(|cell| cell.point == point && cell.is_sound()).collect()
}

fn read_cells(dir: &mut RunDir, conditions: &[Conditions]) -> Vec<CellReport> {
    let expected: Vec<Cell> = dir.record().cells().collect();
    let mut cells = Vec::new();
    // Points outermost, then seeds, then subjects: the subjects of one seed have the same requests.
    for of_point in expected.chunk_by(|a, b| a.point == b.point) {
        let point = of_point[0].point;
        let records = of_point.iter().filter_map(|cell| dir.cells.get(&cell.number));
        let records = records.filter(|record| record.facts.invalid.is_empty());
        let alone = conditions[point].alone(&dir.record().points[point], records);
        for of_seed in of_point.chunk_by(|a, b| a.seed == b.seed) {
            let mut row = RowOfSeed { conditions: &conditions[point], alone: &alone, baseline: None, ideal: None };
            cells.extend(of_seed.iter().filter_map(|cell| row.read(dir, cell)));
        }
    }
    cells
}

/// The subjects of a point under one seed, read one after the other.
struct RowOfSeed<'a> {
    conditions: &'a Conditions,
    alone: &'a AloneTimes,
    /// Outcomes of the first subject, if they can be trusted.
    baseline: Option<Vec<Outcome>>,
    /// Of the same requests, where all subjects have the same; not of a run that failed, which may lack some.
    ideal: Option<Ideal>,
}

impl RowOfSeed<'_> {
    fn read(&mut self, dir: &mut RunDir, cell: &Cell) -> Option<CellReport> {
        let outcomes = dir.outcomes(cell.number)?;
        let record = dir.cells.get(&cell.number)?;
        let ideal = match self.ideal.as_ref().filter(|_| self.conditions.open_loop) {
            Some(ideal) => ideal.clone(),
            None => Ideal::new(&outcomes, self.conditions),
        };
        let baseline = self.baseline.as_deref();
        let report = CellReport::new(record, &outcomes, baseline, self.conditions, self.alone, ideal);
        if report.is_sound() {
            self.ideal = Some(report.ideal.clone());
            if cell.subject == 0 {
                self.baseline = Some(outcomes);
            }
        }
        Some(report)
    }
}

fn point_report(point: &Point, conditions: &Conditions, cells: &[&CellReport], subjects: &[String]) -> PointReport {
    let of = |subject: usize| cells.iter().copied().filter(|cell| cell.subject == subject).collect::<Vec<_>>();
    let mut baseline = of(0);
    baseline.retain(|cell| cell.is_sound());
    let rows = subjects.iter().enumerate().map(|(number, subject)| (subject, of(number)));
    let rows = rows.filter(|(_, cells)| !cells.is_empty()).map(|(subject, cells)| row(subject, &cells, &baseline));
    let rows: Vec<Row> = rows.collect();

    // One cell of each seed: the first subject's, or where it is missing the next one's.
    let mut of_seeds: BTreeMap<u64, &CellReport> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.is_sound()) {
        of_seeds.entry(cell.seed).or_insert(cell);
    }
    let mean = |value: &dyn Fn(&CellReport) -> f64| {
        of_seeds.values().map(|cell| value(cell)).sum::<f64>() / of_seeds.len().max(1) as f64
    };
    let pick = [|cell: &CellReport| cell.ideal.srpt.clone(), |cell: &CellReport| cell.ideal.ps.clone()];
    let ideal = IDEALS.into_iter().zip(pick).map(|(name, pick)| {
        let summaries: Vec<_> = of_seeds.values().map(|cell| pick(cell)).collect();
        let estimate = |measure: Measure| {
            let values: Option<Vec<f64>> = summaries.iter().map(|s| value_of_summary(s, measure)).collect();
            interval::mean(&values?)
        };
        IdealRow { name, measures: ALL.into_iter().filter_map(|m| Some((m, estimate(m)?))).collect() }
    });
    PointReport {
        label: point.label.clone(),
        values: point.values.clone(),
        setting: toml::to_string_pretty(&point.setting).unwrap_or_else(|error| format!("# cannot be shown: {error}")),
        requests: mean(&|cell| cell.measured.all.count as f64),
        load: mean(&|cell| cell.ideal.load),
        ideal: if of_seeds.is_empty() { Vec::new() } else { ideal.collect() },
        ideal_is_bound: conditions.ideal_is_bound.clone(),
        rows,
    }
}

/// `all` are the cells of one subject, at least one; `baseline` those of the first one that may be trusted.
fn row(subject: &str, all: &[&CellReport], baseline: &[&CellReport]) -> Row {
    let is_baseline = all[0].subject == 0;
    let cells: Vec<&CellReport> = all.iter().copied().filter(|cell| cell.is_sound()).collect();
    let cells = cells.as_slice();
    let sum = |value: &dyn Fn(&CellReport) -> u64| cells.iter().map(|cell| value(cell)).sum::<u64>();
    let mut ends = BTreeMap::new();
    for (&end, &count) in cells.iter().flat_map(|cell| &cell.measured.ends) {
        *ends.entry(end).or_insert(0) += count;
    }
    let pairs = |value: &dyn Fn(&CellReport) -> f64| -> Vec<(f64, f64)> {
        let base = |seed: u64| baseline.iter().find(|cell| cell.seed == seed);
        cells.iter().filter_map(|cell| Some((value(cell), value(base(cell.seed)?)))).collect()
    };
    let over_baseline = |value: &dyn Fn(&CellReport) -> f64| {
        let bound = measures::bound_of_ratio(cells, baseline);
        interval::ratio(&pairs(value)).filter(|_| !is_baseline).map(|estimate| estimate.with_bound(bound))
    };
    let to_ideal: Vec<(f64, f64)> =
        cells.iter().map(|cell| (cell.measured.all.mean_ms, cell.ideal.srpt.mean_ms)).collect();
    let whole: Vec<f64> =
        cells.iter().filter(|cell| cell.measured.whole.count > 0).map(|cell| cell.measured.whole.mean_ms).collect();
    let calls: Vec<f64> = cells.iter().filter_map(|cell| cell.costs.system_calls_per_request).collect();
    let any_bound = if cells.iter().any(|cell| cell.measured.bounds() > 0) { Bound::AtLeast } else { Bound::Exact };
    Row {
        subject: subject.to_owned(),
        seeds: cells.iter().map(|cell| cell.seed).collect(),
        measures: ALL.into_iter().filter_map(|m| Some((m, measures::estimate(m, cells, baseline)?))).collect(),
        whole_mean_ms: interval::mean(&whole),
        over_ideal: interval::ratio(&to_ideal).map(|estimate| estimate.with_bound(any_bound)),
        largest_percent_ratio: over_baseline(&|cell| cell.measured.all.largest_percent_ms),
        very_largest_ratio: over_baseline(&|cell| cell.measured.all.very_largest_ms),
        matching: cells.iter().find_map(|cell| cell.stretch.map(|stretch| stretch.matching)),
        ends,
        incomplete: cells.iter().map(|cell| cell.measured.incomplete()).sum(),
        errors: cells.iter().map(|cell| cell.measured.errors()).sum(),
        queue_drops: sum(&|cell| cell.costs.queue_drops),
        syn_retransmitted: sum(&|cell| cell.costs.syn_retransmitted),
        syn_drops: cells.iter().map(|cell| cell.costs.syn_drops).sum(),
        listen_drops: sum(&|cell| cell.costs.listen_drops),
        segments_retransmitted: sum(&|cell| cell.costs.segments_retransmitted),
        system_calls_per_request: interval::mean(&calls),
        resident_bytes: cells.iter().filter_map(|cell| cell.costs.resident_bytes).max(),
        simulated: all.iter().any(|cell| cell.simulated.is_some()),
        has_packets: all.iter().all(|cell| cell.simulated.is_none_or(|has| has.packets)),
        invalid: all.iter().filter(|cell| !cell.is_sound()).map(|cell| (cell.seed, cell.invalid.clone())).collect(),
    }
}
