//! The paper's measurements beside those of this run.

use serde::Serialize;
use workload::stats::interval::{self, Bound, Estimate};

use super::{
    cell::{CellReport, of_point},
    measures,
    point::PointReport,
};
use crate::{
    experiment::{Measure, Published, PublishedValue},
    record::{Point, RunRecord},
};

/// A published value and the value of this run.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedRow {
    /// Label of the point; [`ALL_POINTS`] for the mean over all points.
    pub point: String,
    /// The subject of this run that stands for the paper's.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// The group of clients; empty for all clients.
    pub group: String,
    /// For a ratio, the subject whose measure is the denominator.
    pub relative_to: Option<String>,
    /// The published value.
    pub published: PublishedValue,
    /// The place in the paper.
    pub place: String,
    /// The value of this run; `None` if the cell is missing, must not be trusted or lacks the measure.
    pub ours: Option<Estimate>,
    /// Ratio of this run's value to the published one. For a range it is the ratio to the nearer end, and 1
    /// within the range.
    pub ratio: Option<f64>,
    /// Whether the published value, or a part of the range, lies in this run's confidence interval.
    pub within_interval: Option<bool>,
}

/// The label of a row that is the mean over all points.
pub const ALL_POINTS: &str = "mean over all points";

/// Returns a row for each published value and each of its points. A point that is not in the run (the short
/// form leaves some out) has a row without a value of this run. A ratio published for all points is probably
/// their mean, so it has a row for the mean too.
pub(super) fn rows(run: &RunRecord, points: &[PointReport], cells: &[CellReport]) -> Vec<PublishedRow> {
    let mut rows = Vec::new();
    for value in &run.experiment.published {
        let of: Vec<usize> =
            (0..points.len()).filter(|&number| value.point.is_empty() || points[number].label == value.point).collect();
        if of.is_empty() {
            rows.push(row(value, value.point.clone(), None));
        }
        let ours: Vec<Option<Estimate>> = of.iter().map(|&number| ours(value, run, number, points, cells)).collect();
        if of.len() > 1 && value.relative_to.is_some() {
            rows.push(row(value, ALL_POINTS.to_owned(), over_points(value, run, cells)));
        }
        for (number, ours) in of.into_iter().zip(ours) {
            rows.push(row(value, points[number].label.clone(), ours));
        }
    }
    rows
}

fn ours(
    value: &Published,
    run: &RunRecord,
    point: usize,
    points: &[PointReport],
    cells: &[CellReport],
) -> Option<Estimate> {
    let group = group(value, &run.points[point])?;
    if value.relative_to.is_none() && group.is_none() {
        let row = points[point].rows.iter().find(|row| row.subject == value.subject)?;
        return row.measures.get(&value.measure).copied();
    }
    let of = |name: &str| of_subject(run, cells, point, name);
    match &value.relative_to {
        Some(other) => measures::estimate_of_ratio(value.measure, group, &of(&value.subject), &of(other)),
        None => {
            let baseline: Vec<&CellReport> = run.subjects.first().map(|first| of(first)).unwrap_or_default();
            measures::estimate_of_group(value.measure, group?, &of(&value.subject), &baseline)
        }
    }
}

/// The geometric mean of a ratio over all points, for each seed that has all of them.
fn over_points(value: &Published, run: &RunRecord, cells: &[CellReport]) -> Option<Estimate> {
    let other = value.relative_to.as_deref()?;
    let mut bound = Bound::Exact;
    let mut of_seed = |seed: u64| -> Option<(f64, f64)> {
        let mut logarithms = 0.0;
        for (number, point) in run.points.iter().enumerate() {
            let [ours, theirs] = [value.subject.as_str(), other].map(|name| {
                let mut cells = of_subject(run, cells, number, name);
                cells.retain(|cell| cell.seed == seed);
                cells
            });
            let ratio = measures::estimate_of_ratio(value.measure, group(value, point)?, &ours, &theirs)?;
            if ratio.bound != Bound::Exact {
                bound = if bound == Bound::Exact || bound == ratio.bound { ratio.bound } else { Bound::Either };
            }
            logarithms += ratio.value.ln();
        }
        Some(((logarithms / run.points.len() as f64).exp(), 1.0))
    };
    let ratios: Vec<(f64, f64)> = run.seeds.iter().filter_map(|&seed| of_seed(seed)).collect();
    interval::ratio(&ratios).map(|estimate| estimate.with_bound(bound))
}

fn of_subject<'a>(run: &RunRecord, cells: &'a [CellReport], point: usize, name: &str) -> Vec<&'a CellReport> {
    of_point(cells, point).into_iter().filter(|cell| run.subjects[cell.subject] == name).collect()
}

/// The number of the value's group: `Some(None)` for all clients, `None` if there is no such group.
fn group(value: &Published, point: &Point) -> Option<Option<u16>> {
    if value.group.is_empty() {
        return Some(None);
    }
    let number = point.setting.groups.iter().position(|group| group.name == value.group)?;
    Some(Some(u16::try_from(number).ok()?))
}

fn row(value: &Published, point: String, ours: Option<Estimate>) -> PublishedRow {
    let (low, high) = ends(value.value);
    let ratio = |ours: f64| match ours {
        _ if ours < low => ours / low,
        _ if ours > high => ours / high,
        _ => 1.0,
    };
    PublishedRow {
        point,
        subject: value.subject.clone(),
        measure: value.measure,
        group: value.group.clone(),
        relative_to: value.relative_to.clone(),
        published: value.value,
        place: value.place.clone(),
        ratio: ours.map(|ours| ratio(ours.value)).filter(|ratio| ratio.is_finite()),
        within_interval: ours.and_then(|ours| ours.interval).map(|(from, to)| from <= high && low <= to),
        ours,
    }
}

/// The lower and the upper end, in whichever order they are written.
pub(super) fn ends(value: PublishedValue) -> (f64, f64) {
    match value {
        PublishedValue::One(value) => (value, value),
        PublishedValue::Range(a, b) => (a.min(b), a.max(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(value: PublishedValue) -> Published {
        let (point, place) = ("load 0.8".to_owned(), "figure 3".to_owned());
        let (subject, group) = ("srpt".to_owned(), String::new());
        Published { point, subject, measure: Measure::Gain, group, relative_to: None, value, place }
    }

    fn ratio_of(value: PublishedValue, ours: f64) -> (f64, bool) {
        let ours = Estimate { value: ours, interval: Some((ours - 0.5, ours + 0.5)), seeds: 3, bound: Bound::Exact };
        let row = row(&published(value), String::new(), Some(ours));
        (row.ratio.unwrap(), row.within_interval.unwrap())
    }

    #[test]
    fn ours_is_held_against_the_nearer_end_of_a_range() {
        assert_eq!(ratio_of(PublishedValue::Range(3.0, 8.0), 4.0), (1.0, true));
        assert_eq!(ratio_of(PublishedValue::Range(8.0, 3.0), 12.0), (1.5, false));
        assert_eq!(ratio_of(PublishedValue::Range(3.0, 8.0), 1.5), (0.5, false));
        assert_eq!(ratio_of(PublishedValue::One(2.0), 2.4), (1.2, true));
    }
}
