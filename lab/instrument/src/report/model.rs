//! The numbers of a run that every form of the report shows.

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

/// The table of a point.
#[derive(Debug, Serialize)]
pub struct PointReport {
    /// Its label.
    pub label: String,
    /// The varied settings, with their values at this point.
    pub values: BTreeMap<String, String>,
    /// All conditions, as TOML.
    pub setting: String,
    /// Number of requests that count, on average over the seeds.
    pub requests: f64,
    /// Requested wire bytes over the capacity of the link while requests are sent, on average over the seeds.
    pub load: f64,
    /// A row for each subject that has a cell, trusted or not, the first subject first.
    pub rows: Vec<Row>,
    /// The same requests on a bare link, under shortest remaining first and under equal shares.
    pub ideal: Vec<IdealRow>,
    /// The reason why the ideal is only a bound; empty where it serves the same requests on the same link.
    pub ideal_is_bound: String,
}

/// A subject at a point. Values are means over the seeds, ratios are geometric means over pairs of cells, and
/// counts are sums over the seeds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The seeds with a trusted cell. Seeds in `invalid` are left out, and all other fields are over these
    /// seeds.
    pub seeds: Vec<u64>,
    /// All measures that the subject has.
    pub measures: BTreeMap<Measure, Estimate>,
    /// Mean response time of the requests that completed.
    pub whole_mean_ms: Option<Estimate>,
    /// Ratio of the mean response time to that of exact SRPT on a bare link.
    pub over_ideal: Option<Estimate>,
    /// Ratio of the mean response time of the largest 1 % of the requests to that of the first subject.
    pub largest_percent_ratio: Option<Estimate>,
    /// The same ratio for the very largest requests.
    pub very_largest_ratio: Option<Estimate>,
    /// The way in which requests were matched for the starvation stretch.
    pub matching: Option<Matching>,
    /// Number of requests, by how they ended.
    pub ends: BTreeMap<End, usize>,
    /// Requests that never completed, without an error.
    pub incomplete: usize,
    /// Requests that failed.
    pub errors: usize,
    /// Packets dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// SYNs that the clients sent again.
    pub syn_retransmitted: u64,
    /// SYNs that the server dropped, where it was sampled.
    pub syn_drops: Option<u64>,
    /// Connections dropped before they were accepted.
    pub listen_drops: u64,
    /// Segments that the server sent again.
    pub segments_retransmitted: u64,
    /// System calls of the server per request, where they were counted.
    pub system_calls_per_request: Option<Estimate>,
    /// The largest resident memory of the server, in bytes, where it was sampled.
    pub resident_bytes: Option<u64>,
    /// Whether it was simulated.
    pub simulated: bool,
    /// Whether dropped packets and repeated segments were counted. If not, they are zero here and have no
    /// meaning.
    pub has_packets: bool,
    /// Seeds whose cell must not be trusted, with reasons. They are left out of all values.
    pub invalid: Vec<(u64, Vec<String>)>,
}

/// The ideal at a point.
#[derive(Debug, Serialize)]
pub struct IdealRow {
    /// Name of the ideal.
    pub name: &'static str,
    /// Measures of its response times.
    pub measures: BTreeMap<Measure, Estimate>,
}

/// Names of the ideals.
pub(super) const IDEALS: [&str; 2] = ["exact SRPT, bare link", "even shares (PS), bare link"];

impl Report {
    /// A sentence on the short form, because the experiment's description is written for the long one.
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

    /// Reads and sums up a run cell by cell, so that the outcomes of a point are never all in memory.
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
            // In a simulation the paths always equal their settings.
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

impl PointReport {
    /// The reason why the point has no numbers, if it has none.
    pub(super) fn has_nothing(&self) -> Option<&'static str> {
        match self.rows.iter().any(|row| !row.seeds.is_empty()) {
            true => None,
            false if self.rows.is_empty() => Some("not measured"),
            false => Some("no measurement of it can be trusted"),
        }
    }
}

/// The sound cells of a point.
pub(super) fn of_point(cells: &[CellReport], point: usize) -> Vec<&CellReport> {
    cells.iter().filter(|cell| cell.point == point && cell.is_sound()).collect()
}

fn read_cells(dir: &mut RunDir, conditions: &[Conditions]) -> Vec<CellReport> {
    let expected: Vec<Cell> = dir.record().cells().collect();
    let mut cells = Vec::new();
    // Cells are ordered by point, then seed, then subject. The subjects of one seed have the same requests.
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
    /// Outcomes of the first subject, if they may be trusted.
    baseline: Option<Vec<Outcome>>,
    /// The ideal of the same requests, if all subjects have the same. It is not taken from a failed run,
    /// which may lack requests.
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

    // One cell of each seed: the first subject's, or the next one that is present.
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

/// Makes the row of a subject. `all` are its cells, at least one; `baseline` are the sound cells of the first
/// subject.
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
