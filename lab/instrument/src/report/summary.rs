//! Sums up the cells of a run.

use std::collections::BTreeMap;

use workload::{
    outcome::Outcome,
    stats::{
        alone::AloneTimes,
        interval::{self, Bound},
    },
};

use super::{
    cell::{CellReport, Ideal, value_of_summary},
    conditions::Conditions,
    figures,
    input::RunDir,
    measures::{self, ALL},
    model::{FORMAT, MissingCell, Report},
    paths,
    point::{IDEALS, IdealRow, PointReport, Row},
    published,
};
use crate::{LabError, experiment::Measure, record::Point, store::Cell};

impl Report {
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
            flags: run.flags.clone(),
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
        (report.figures, report.not_plotted) = figures::plots(&report, run);
        Ok(report)
    }
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
