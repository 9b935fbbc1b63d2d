//! Compares several runs.

use std::fmt;

use chart::{Table, aligned};
use serde::Serialize;
use workload::stats::interval::{self, Estimate};

use super::{
    measures::{with_interval, written},
    model::{Report, at},
};
use crate::{experiment::Measure, record::Simulated};

/// Several runs. The others are compared with the first.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The runs, in the order of the command line.
    pub runs: Vec<ComparedRun>,
    /// One for each point, subject and measure that the first run and another have.
    pub rows: Vec<ComparedRow>,
    /// Points and subjects that only some of the runs have.
    pub only_in_some: Vec<String>,
}

/// A run that is compared.
#[derive(Debug, Serialize)]
pub struct ComparedRun {
    /// Its directory.
    pub directory: String,
    /// Title of its experiment.
    pub title: String,
    /// The command that made it.
    pub command: String,
    /// Versions of the kernel, the processors and the programs.
    pub versions: Vec<String>,
    /// Beginning, in seconds since 1970.
    pub began_unix_s: u64,
    /// The simulation's model; `None` if the run was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Measurements that must not be trusted.
    pub invalid: usize,
    /// Measurements that are missing.
    pub missing: usize,
}

/// A measure of a subject at a point.
#[derive(Debug, Serialize)]
pub struct ComparedRow {
    /// Label of the point.
    pub point: String,
    /// The subject.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// Its value in each run, in the order of the runs; `None` where a run does not have it.
    pub values: Vec<Option<Estimate>>,
    /// Each run compared with the first; `None` for the first itself, and where a value is missing.
    pub differences: Vec<Option<Difference>>,
}

/// The difference of a run's value from that of the first run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference divided by the first run's value.
    pub relative: f64,
    /// The ratio to the first run's value with its interval, computed seed by seed, where both runs have the
    /// same seeds.
    pub ratio: Option<Estimate>,
    /// Whether the difference is within the half width of the wider interval; `None` if neither value has an
    /// interval.
    pub within_interval: Option<bool>,
}

/// The measures that are compared.
const COMPARED: [Measure; 8] = [
    Measure::MeanMs,
    Measure::Gain,
    Measure::Slowdown,
    Measure::P50Ms,
    Measure::P99Ms,
    Measure::LargestPercentMs,
    Measure::LinkUse,
    Measure::CpuUs,
];

impl Comparison {
    /// Compares the other runs with the first. Points are matched by their labels, and subjects by their
    /// names.
    pub fn new(reports: &[Report]) -> Self {
        let mut comparison =
            Self { runs: reports.iter().map(ComparedRun::new).collect(), rows: Vec::new(), only_in_some: Vec::new() };
        for (point, subject) in places(reports) {
            let having = reports.iter().filter(|report| value(report, &point, &subject, Measure::MeanMs).is_some());
            let having: Vec<&str> = having.map(|report| report.directory.as_str()).collect();
            if having.len() < reports.len() {
                let runs = if having.is_empty() { "none".to_owned() } else { having.join(", ") };
                comparison.only_in_some.push(format!("{}: measured in {runs}", at(&point, &subject)));
            }
            for measure in COMPARED {
                let row = ComparedRow::new(reports, &point, &subject, measure);
                if row.differences.iter().any(Option::is_some) {
                    comparison.rows.push(row);
                }
            }
        }
        comparison
    }

    /// Number of differences that are larger than the intervals.
    pub fn beyond(&self) -> usize {
        let all = self.rows.iter().flat_map(|row| row.differences.iter().flatten());
        all.filter(|difference| difference.within_interval == Some(false)).count()
    }

    /// Number of differences that can be judged by an interval.
    pub fn judged(&self) -> usize {
        let all = self.rows.iter().flat_map(|row| row.differences.iter().flatten());
        all.filter(|difference| difference.within_interval.is_some()).count()
    }
}

/// Pairs of point and subject of all runs, those of the first run first.
fn places(reports: &[Report]) -> Vec<(String, String)> {
    let mut places = Vec::new();
    for report in reports {
        for point in &report.points {
            for subject in &report.subjects {
                let place = (point.label.clone(), subject.clone());
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    places
}

fn value(report: &Report, point: &str, subject: &str, measure: Measure) -> Option<Estimate> {
    let point = report.points.iter().find(|known| known.label == point)?;
    point.rows.iter().find(|row| row.subject == subject)?.measures.get(&measure).copied()
}

/// The values by seed, for a measure that a cell has alone.
fn by_seed(report: &Report, point: &str, subject: &str, measure: Measure) -> Vec<(u64, f64)> {
    let cells = report.cells.iter().filter(|cell| {
        cell.is_sound() && report.points[cell.point].label == point && report.subjects[cell.subject] == subject
    });
    cells.filter_map(|cell| Some((cell.seed, cell.value(measure)?))).collect()
}

impl ComparedRow {
    fn new(reports: &[Report], point: &str, subject: &str, measure: Measure) -> Self {
        let values: Vec<Option<Estimate>> = reports.iter().map(|r| value(r, point, subject, measure)).collect();
        let seeds: Vec<Vec<(u64, f64)>> = reports.iter().map(|r| by_seed(r, point, subject, measure)).collect();
        let difference = |number: usize| {
            let (first, other) = (values.first().copied().flatten()?, values[number]?);
            (number > 0).then(|| Difference::new(&first, &other, &seeds[0], &seeds[number]))
        };
        Self {
            point: point.to_owned(),
            subject: subject.to_owned(),
            measure,
            differences: (0..values.len()).map(difference).collect(),
            values,
        }
    }
}

impl Difference {
    fn new(first: &Estimate, other: &Estimate, first_seeds: &[(u64, f64)], other_seeds: &[(u64, f64)]) -> Self {
        let difference = other.value - first.value;
        let reach = [first, other].into_iter().filter_map(Estimate::half_width).reduce(f64::max);
        let pairs: Option<Vec<(f64, f64)>> = other_seeds
            .iter()
            .map(|&(seed, value)| Some((value, first_seeds.iter().find(|&&(known, _)| known == seed)?.1)))
            .collect();
        Self {
            relative: if difference == 0.0 { 0.0 } else { difference / first.value },
            ratio: pairs.and_then(|pairs| interval::ratio(&pairs)),
            within_interval: reach.map(|reach| difference.abs() <= reach),
        }
    }

    /// The text for tables: `+3.1 %, within`.
    pub(super) fn text(&self) -> String {
        let judged = match self.within_interval {
            Some(true) => ", within",
            Some(false) => ", BEYOND",
            None => "",
        };
        format!("{:+.1} %{judged}", self.relative * 100.0)
    }
}

impl ComparedRun {
    fn new(report: &Report) -> Self {
        Self {
            directory: report.directory.clone(),
            title: report.experiment.title.clone(),
            command: report.command.clone(),
            versions: report.versions.clone(),
            began_unix_s: report.began_unix_s,
            simulated: report.simulated.clone(),
            seeds: report.seeds.clone(),
            invalid: report.invalid().count(),
            missing: report.missing.len(),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, run) in self.runs.iter().enumerate() {
            write!(f, "{}: {}, {}", number + 1, run.directory, run.command)?;
            writeln!(f, "; {} not valid, {} missing", run.invalid, run.missing)?;
            if let Some(simulated) = &run.simulated {
                writeln!(f, "   SIMULATED: {}", simulated.name)?;
            }
        }
        if self.rows.is_empty() {
            writeln!(f, "the runs have no point and subject in common")?;
        } else {
            writeln!(f, "{}\n", self.verdict())?;
            self.by_place().iter().try_for_each(|table| {
                writeln!(f, "{}", table.caption)?;
                aligned(f, table)?;
                writeln!(f)
            })?;
        }
        self.only_in_some.iter().try_for_each(|line| writeln!(f, "only in some: {line}"))
    }
}

impl Comparison {
    /// A sentence about how many of the differences mean something.
    pub(super) fn verdict(&self) -> String {
        match (self.beyond(), self.judged()) {
            (_, 0) => "With a single seed there are no confidence intervals, so no difference can be judged".to_owned(),
            (beyond, judged) => {
                format!("{beyond} of {judged} differences from run 1 are larger than the confidence intervals")
            }
        }
    }

    /// A table of the measures for each point and subject: narrower than one of all.
    fn by_place(&self) -> Vec<Table> {
        let whole = self.table();
        let mut tables: Vec<Table> = Vec::new();
        for mut row in whole.rows {
            let place = row.remove(0);
            match tables.iter_mut().find(|table| table.caption == place) {
                Some(table) => table.rows.push(row),
                None => {
                    let head = whole.head[1..].to_vec();
                    tables.push(Table { caption: place, head, rows: vec![row], words: &[] });
                }
            }
        }
        tables
    }

    /// The table, as texts.
    pub(super) fn table(&self) -> Table {
        let mut head = vec!["point, subject".to_owned(), "measure".to_owned()];
        for number in 1..=self.runs.len() {
            let simulated = self.runs[number - 1].simulated.as_ref();
            head.push(format!("run {number}{}", if simulated.is_some() { ", simulated" } else { "" }));
            if number > 1 {
                head.push(format!("{number} over 1"));
            }
        }
        let dash = || "-".to_owned();
        let line = |row: &ComparedRow| {
            let mut line = vec![at(&row.point, &row.subject), super::measures::name(row.measure).to_owned()];
            for (number, (value, difference)) in row.values.iter().zip(&row.differences).enumerate() {
                let value = value.as_ref().map(|value| with_interval(value, |v| written(row.measure, v)));
                line.push(value.unwrap_or_else(dash));
                if number > 0 {
                    line.push(difference.as_ref().map_or_else(dash, Difference::text));
                }
            }
            line
        };
        Table {
            caption: "The same point, subject and measure in each run, and each run's difference from the first"
                .to_owned(),
            head,
            rows: self.rows.iter().map(line).collect(),
            words: &[1],
        }
    }
}
