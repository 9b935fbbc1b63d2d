//! What the paper measured beside what we did.

use serde::Serialize;
use workload::stats::interval::Estimate;

use super::model::PointReport;
use crate::experiment::{Measure, Published, PublishedValue};

/// A published value and ours.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedRow {
    /// Label of the point.
    pub point: String,
    /// The subject of ours that stands for the paper's.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// What the paper gives.
    pub published: PublishedValue,
    /// Where in the paper.
    pub place: String,
    /// What we measured; `None` if that cell is missing or does not have the measure.
    pub ours: Option<Estimate>,
    /// Ours over the published value; over the nearer end of a range, and 1 within it.
    pub ratio: Option<f64>,
    /// Whether the published value, or a part of the range, lies in our confidence interval.
    pub within_interval: Option<bool>,
}

/// A row for each published value and each point that it belongs to. A point that is not in the run (the short form leaves
/// some out) has a row without a value of ours.
pub(super) fn rows(published: &[Published], points: &[PointReport]) -> Vec<PublishedRow> {
    let mut rows = Vec::new();
    for value in published {
        let of: Vec<&PointReport> =
            points.iter().filter(|point| value.point.is_empty() || point.label == value.point).collect();
        if of.is_empty() {
            rows.push(row(value, value.point.clone(), None));
        }
        for point in of {
            let subject = point.rows.iter().find(|row| row.subject == value.subject);
            let ours = subject.and_then(|row| row.measures.get(&value.measure)).copied();
            rows.push(row(value, point.label.clone(), ours));
        }
    }
    rows
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
        published: value.value,
        place: value.place.clone(),
        ratio: ours.map(|ours| ratio(ours.value)).filter(|ratio| ratio.is_finite()),
        within_interval: ours.and_then(|ours| ours.interval).map(|(from, to)| from <= high && low <= to),
        ours,
    }
}

/// Least and greatest, whichever way round they were written.
pub(super) fn ends(value: PublishedValue) -> (f64, f64) {
    match value {
        PublishedValue::One(value) => (value, value),
        PublishedValue::Range(a, b) => (a.min(b), a.max(b)),
    }
}

#[cfg(test)]
mod tests {
    use workload::stats::interval::Bound;

    use super::*;

    fn published(value: PublishedValue) -> Published {
        let (point, place) = ("load 0.8".to_owned(), "figure 3".to_owned());
        Published { point, subject: "srpt".to_owned(), measure: Measure::Gain, value, place }
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

    #[test]
    fn a_value_whose_point_was_not_measured_is_listed_without_ours() {
        let rows = rows(&[published(PublishedValue::One(8.0))], &[]);
        assert_eq!((rows.len(), rows[0].ours, rows[0].ratio), (1, None, None));
        assert_eq!(rows[0].point, "load 0.8");
    }
}
