//! The network paths between server and clients: their settings, and their measurements before each run.

use serde::Serialize;
use workload::rate::Rate;

use super::cell::{CellReport, of_point};
use crate::{bed::PathCalibration, record::RunRecord, setting::PathSetting};

/// The network path of a client group. Points with the same path share one report. Values are means over the
/// sound cells.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// The group's name; `all clients` if there are no groups.
    pub group: String,
    /// Labels of the points.
    pub points: Vec<String>,
    /// The emulator of the path: `own`, `netem`, or `none` where only a link joins clients and bottleneck.
    pub emulation: &'static str,
    /// The setting of the path.
    pub set: PathSetting,
    /// The measured path; `None` if it was not probed.
    pub measured: Option<MeasuredPath>,
    /// Set rate of the bottleneck.
    pub link: Rate,
    /// Measured rate of the bottleneck.
    pub link_bits_per_second: f64,
    /// Lateness of packets in the lab's own emulator under load, in microseconds: the 99th percentile and the
    /// maximum, over all groups together, in the worst cell.
    pub lateness_us: Option<(f64, f64)>,
}

/// Measurements of a path on the idle test bed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredPath {
    /// Median round-trip time of small packets.
    pub rtt_median_ms: f64,
    /// Standard deviation of the round-trip time.
    pub rtt_deviation_ms: f64,
    /// Share of packets lost, over the packets of all cells together.
    pub loss: f64,
    /// Rate of the group's own line, if it is below that of the bottleneck.
    pub line_bits_per_second: Option<f64>,
}

/// Returns a row for each distinct path of each group.
pub(super) fn rows(run: &RunRecord, cells: &[CellReport]) -> Vec<PathReport> {
    let mut rows: Vec<(PathReport, Vec<&CellReport>, usize)> = Vec::new();
    for (point_number, point) in run.points.iter().enumerate() {
        let cells: Vec<&CellReport> = of_point(cells, point_number);
        if cells.is_empty() {
            continue;
        }
        let (link, groups) = (point.setting.link.rate, &point.setting.groups);
        for number in 0..groups.len().max(1) {
            let group = groups.get(number).map_or("all clients", |group| &group.name);
            let set = groups.get(number).map(|group| group.path.clone()).unwrap_or_default();
            let emulation = match &cells[0].wan {
                Some(_) => "own",
                None if groups.iter().any(|group| !group.path.is_none()) => "netem",
                None => "none",
            };
            let same =
                |row: &PathReport| (&*row.group, row.emulation, &row.set, row.link) == (group, emulation, &set, link);
            match rows.iter_mut().find(|(row, _, known)| *known == number && same(row)) {
                Some((row, of_row, _)) => {
                    row.points.push(point.label.clone());
                    of_row.extend(&cells);
                }
                None => {
                    let (group, points) = (group.to_owned(), vec![point.label.clone()]);
                    let empty = PathReport {
                        group,
                        points,
                        emulation,
                        set,
                        measured: None,
                        link,
                        link_bits_per_second: 0.0,
                        lateness_us: None,
                    };
                    rows.push((empty, cells.clone(), number));
                }
            }
        }
    }
    rows.into_iter().map(|(row, cells, number)| row.seen(&cells, number)).collect()
}

impl PathReport {
    fn seen(self, cells: &[&CellReport], number: usize) -> Self {
        let paths = cells
            .iter()
            .filter_map(|cell| cell.calibration.as_ref())
            .flat_map(|known| &known.paths)
            .filter(|path| path.group == number);
        let late =
            cells.iter().filter_map(|cell| cell.wan.as_ref()).map(|wan| (wan.lateness_p99_us, wan.lateness_max_us));
        Self {
            measured: MeasuredPath::new(&paths.collect::<Vec<_>>()),
            link_bits_per_second: mean(
                cells.iter().filter_map(|cell| cell.calibration.as_ref()).map(|known| known.rate_bits_per_second),
            )
            .unwrap_or(0.0),
            lateness_us: late.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))),
            ..self
        }
    }
}

impl MeasuredPath {
    fn new(paths: &[&PathCalibration]) -> Option<Self> {
        let packets: usize = paths.iter().map(|path| path.packets).sum();
        let lost: f64 = paths.iter().map(|path| path.loss * path.packets as f64).sum();
        Some(Self {
            rtt_median_ms: mean(paths.iter().map(|path| path.rtt_median_ms))?,
            rtt_deviation_ms: mean(paths.iter().map(|path| path.rtt_deviation_ms))?,
            loss: lost / packets.max(1) as f64,
            line_bits_per_second: mean(paths.iter().filter_map(|path| path.rate_bits_per_second)),
        })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}
