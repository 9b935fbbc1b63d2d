//! Plots of the server's side over time: connections, the queues before `accept`, and drops.

use std::collections::BTreeMap;

use super::{Axis, CellReport, Figure, Kind, Plot, PlotPoint, PointReport, Series, Shape};
use crate::record::Sampled;

/// A plot's name, its axis label, and its value.
type Shown = (&'static str, &'static str, fn(&Sampled) -> u64);

/// Makes three plots of a point from one seed: the seed that was sampled with the most subjects. Times of
/// different runs do not belong in one plot.
pub(super) fn plots(figure: &Figure, point: &PointReport, cells: &[&CellReport], subjects: &[String]) -> Vec<Plot> {
    let mut subjects_of: BTreeMap<u64, usize> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| !cell.samples.is_empty()) {
        *subjects_of.entry(cell.seed).or_default() += 1;
    }
    let Some((seed, _)) = subjects_of.into_iter().rev().max_by_key(|&(_, subjects)| subjects) else {
        return Vec::new();
    };
    let measures: [Shown; 3] = [
        ("connections", "connections established", |s| s.established),
        ("queues", "half-open and waiting to be accepted", |s| s.syn_queue + s.accept_queue),
        ("drops", "SYNs, connections and packets dropped so far", |s| s.syn_drops + s.listen_overflows + s.queue_drops),
    ];
    let plot = |(what, label, value): Shown| {
        let mut plot = Plot {
            title: format!("{}: {what}", figure.title),
            subtitle: format!("{}{}seed {seed}", point.label, if point.label.is_empty() { "" } else { ", " }),
            x: Axis { label: "time (s)".to_owned(), ..Axis::default() },
            // Most values are zero most of the time, and zero has no position on a logarithmic axis.
            y: Axis { label: label.to_owned(), ..Axis::default() },
            series: Vec::new(),
        };
        for cell in cells.iter().filter(|cell| cell.seed == seed) {
            let points = cell.samples.iter().map(|s| PlotPoint { x: s.at_s, y: value(s) as f64, interval: None });
            let (points, kind) = (points.collect(), Kind::Measured(cell.subject));
            plot.push(Series { name: subjects[cell.subject].clone(), kind, shape: Shape::Line, points });
        }
        plot
    };
    measures.map(plot).into()
}
