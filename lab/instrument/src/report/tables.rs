//! The tables of a report as texts, shared by the terminal and the page.

use chart::{Plot, Series, Table};
use workload::stats::interval::Estimate;

use super::{
    cell::CellReport,
    measures::{self, number, percent, with_interval, written},
    model::Report,
    paths::PathReport,
    point::{PointReport, Row},
    published,
};
use crate::experiment::Measure;

/// A column: its heading and its value.
type Column = (&'static str, fn(&Row) -> String);

const TIMES: [Column; 11] = [
    ("mean ms", |row| value(row, Measure::MeanMs, true)),
    ("gain", |row| value(row, Measure::Gain, true)),
    ("/ideal", |row| written_or_dash(row.over_ideal.as_ref(), |ratio| format!("{ratio:.2}×"))),
    ("slowdown", |row| value(row, Measure::Slowdown, true)),
    ("gain in slowdown", |row| value(row, Measure::SlowdownGain, true)),
    ("p50", |row| value(row, Measure::P50Ms, false)),
    ("p95", |row| value(row, Measure::P95Ms, false)),
    ("p99", |row| value(row, Measure::P99Ms, false)),
    ("C²", |row| value(row, Measure::SquaredVariation, false)),
    ("largest 1 %", |row| with_ratio(row, Measure::LargestPercentMs, row.largest_percent_ratio.as_ref())),
    ("very largest", |row| with_ratio(row, Measure::VeryLargestMs, row.very_largest_ratio.as_ref())),
];

const COSTS: [Column; 13] = [
    ("first byte", |row| value(row, Measure::FirstByteMs, false)),
    ("starved", |row| value(row, Measure::Starved, false)),
    ("worst", |row| value(row, Measure::WorstStretch, false)),
    ("incomplete", |row| row.incomplete.to_string()),
    ("errors", |row| row.errors.to_string()),
    ("link use", |row| value(row, Measure::LinkUse, false)),
    ("queue drops", |row| if_counted(row, row.queue_drops)),
    ("retransm.", |row| if_counted(row, row.segments_retransmitted)),
    ("SYN retr.", |row| if row.simulated { dash() } else { row.syn_retransmitted.to_string() }),
    ("SYN drops", |row| row.syn_drops.map_or_else(dash, |drops| drops.to_string())),
    ("CPU µs", |row| value(row, Measure::CpuUs, false)),
    ("calls", |row| row.system_calls_per_request.as_ref().map_or_else(dash, |calls| number(calls.value))),
    ("memory MB", |row| row.resident_bytes.map_or_else(dash, |bytes| number(bytes as f64 / 1e6))),
];

fn if_counted(row: &Row, packets: u64) -> String {
    if row.has_packets { packets.to_string() } else { dash() }
}

fn value(row: &Row, measure: Measure, interval: bool) -> String {
    let Some(estimate) = row.measures.get(&measure) else { return dash() };
    let shown = Estimate { interval: estimate.interval.filter(|_| interval), ..*estimate };
    with_interval(&shown, |value| written(measure, value))
}

fn written_or_dash(estimate: Option<&Estimate>, written: impl Fn(f64) -> String) -> String {
    estimate.map_or_else(dash, |estimate| format!("{}{}", measures::sign(estimate.bound), written(estimate.value)))
}

fn with_ratio(row: &Row, measure: Measure, ratio: Option<&Estimate>) -> String {
    let value = value(row, measure, false);
    if ratio.is_none() { value } else { format!("{value} ({})", written_or_dash(ratio, |r| format!("{r:.2}×"))) }
}

/// The table of response times, with those of the ideals below.
pub(super) fn times(point: &PointReport) -> Table {
    let mut table = of_rows(point, &TIMES);
    table.caption = "Response times in ms: mean over the seeds [95 % confidence interval]".to_owned();
    for ideal in &point.ideal {
        let of = |measure: Measure| ideal.measures.get(&measure).map_or_else(dash, |e| number(e.value));
        // An ideal has no gain, and no ratio to itself.
        table.rows.push(vec![
            ideal.name.to_owned(),
            of(Measure::MeanMs),
            dash(),
            dash(),
            of(Measure::Slowdown),
            dash(),
            of(Measure::P50Ms),
            of(Measure::P95Ms),
            of(Measure::P99Ms),
            of(Measure::SquaredVariation),
            of(Measure::LargestPercentMs),
            of(Measure::VeryLargestMs),
        ]);
    }
    table
}

/// The table of costs, starvation and drops.
pub(super) fn costs(point: &PointReport) -> Table {
    let mut caption = "Costs and troubles: shares and times are means over the seeds, counts are sums".to_owned();
    if point.rows.iter().any(|row| !row.simulated) {
        caption += "; CPU and system calls are for a request, memory is the most that was resident";
    }
    // A simulation lacks columns that only a test bed has, and they are left out.
    let had = |column: &&Column| point.rows.iter().any(|row| !row.simulated || column.1(row) != dash());
    let columns: Vec<Column> = COSTS.iter().filter(had).copied().collect();
    Table { caption, ..of_rows(point, &columns) }
}

fn of_rows(point: &PointReport, columns: &[Column]) -> Table {
    let name = |row: &Row| match (row.seeds.len(), row.invalid.len()) {
        (_, 0) => row.subject.clone(),
        (0, _) => format!("{} NOT VALID", row.subject),
        (valid, invalid) => format!("{} ({valid} of {} VALID)", row.subject, valid + invalid),
    };
    let of = |row: &Row, column: &Column| if row.seeds.is_empty() { dash() } else { column.1(row) };
    let line = |row: &Row| std::iter::once(name(row)).chain(columns.iter().map(|column| of(row, column))).collect();
    Table {
        caption: String::new(),
        head: std::iter::once("subject").chain(columns.iter().map(|&(name, _)| name)).map(str::to_owned).collect(),
        rows: point.rows.iter().map(line).collect(),
        words: &[],
    }
}

/// Requests that did not complete, a line for each subject that has any.
pub(super) fn troubles(point: &PointReport) -> Vec<String> {
    let rows = point.rows.iter().filter(|row| row.incomplete + row.errors > 0);
    rows.map(|row| {
        let ends: Vec<String> = row.ends.iter().map(|(end, count)| format!("{count} {end:?}")).collect();
        let whole = row.whole_mean_ms.as_ref().map_or_else(dash, |e| with_interval(e, number));
        format!("{}: {}; mean of those that came whole: {whole} ms", row.subject, ends.join(", "))
    })
    .collect()
}

/// The table of the paper's measurements beside those of this run.
pub(super) fn published(report: &Report) -> Table {
    published_with(report, |measure| measures::name(measure).to_owned(), |place| place.to_owned())
}

/// The same table for a terminal. Measures have the names of experiment files, and places are numbers that
/// refer to the returned list.
pub(super) fn published_narrow(report: &Report) -> (Table, Vec<String>) {
    let mut places: Vec<&str> = Vec::new();
    for row in &report.published {
        if !places.contains(&row.place.as_str()) {
            places.push(&row.place);
        }
    }
    let number = |place: &str| places.iter().position(|known| *known == place).map_or(0, |number| number + 1);
    let table = published_with(report, measures::key, |place| format!("[{}]", number(place)));
    let places = places.iter().map(|place| format!("[{}] {place}", number(place))).collect();
    (table, places)
}

fn published_with(report: &Report, name: impl Fn(Measure) -> String, place: impl Fn(&str) -> String) -> Table {
    let row = |row: &published::PublishedRow| {
        // A ratio of measures has no unit.
        let shown = |value: f64| match row.relative_to {
            Some(_) => format!("{value:.3}×"),
            None => written(row.measure, value),
        };
        let (low, high) = published::ends(row.published);
        let group = if row.group.is_empty() { String::new() } else { format!(", {}", row.group) };
        let over = row.relative_to.as_ref().map(|other| format!(" over {other}'s")).unwrap_or_default();
        vec![
            if row.point.is_empty() { "all".to_owned() } else { row.point.clone() },
            row.subject.clone(),
            format!("{}{over}{group}", name(row.measure)),
            if low < high { format!("{} to {}", shown(low), shown(high)) } else { shown(low) },
            row.ours.as_ref().map_or_else(|| "no value".to_owned(), |ours| with_interval(ours, shown)),
            row.ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")),
            row.within_interval.map_or_else(dash, |within| if within { "yes" } else { "no" }.to_owned()),
            place(&row.place),
        ]
    };
    let ours = if report.simulated.is_some() { "simulated" } else { "measured" };
    let head = ["point", "subject", "measure", "published", ours, "ratio", "in our interval", "where"];
    Table {
        caption: format!(
            "Published beside {ours}: the ratio is ours over the published value, or over the nearer end of its range"
        ),
        head: head.map(str::to_owned).to_vec(),
        rows: report.published.iter().map(row).collect(),
        words: &[1, 2, 7],
    }
}

/// The table of the settings of paths and their measurements.
pub(super) fn paths(report: &Report) -> Table {
    let both = |set: String, measured: Option<String>| format!("{set} / {}", measured.unwrap_or_else(dash));
    let row = |row: &PathReport| {
        let points = match row.points.as_slice() {
            all if all.len() == report.points.len() => "all".to_owned(),
            [] => dash(),
            [only] => only.clone(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
        };
        let seen = row.measured.as_ref();
        let line = row.set.rate.map_or_else(dash, |set| {
            both(set.to_string(), seen.and_then(|seen| seen.line_bits_per_second).map(megabits))
        });
        vec![
            row.group.clone(),
            points,
            row.emulation.to_owned(),
            both(number(row.set.rtt_ms), seen.map(|seen| number(seen.rtt_median_ms))),
            both(number(row.set.jitter_ms), seen.map(|seen| number(seen.rtt_deviation_ms))),
            both(percent(row.set.loss), seen.map(|seen| percent(seen.loss))),
            line,
            both(row.link.to_string(), Some(megabits(row.link_bits_per_second))),
            row.lateness_us.map_or_else(dash, |(p99, max)| format!("{p99:.0} / {max:.0}")),
        ]
    };
    let head =
        ["group", "points", "emulation", "RTT ms", "deviation ms", "loss", "own line", "link", "late µs p99 / max"];
    Table {
        caption:
            "Paths: set / measured on the idle bed (RTT as the median), and how late our own emulator was under load"
                .to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: report.paths.iter().map(row).collect(),
        words: &[1, 2],
    }
}

fn megabits(bits_per_second: f64) -> String {
    format!("{:.2} Mbit/s", bits_per_second / 1e6)
}

/// The table of all measurements.
pub(super) fn cells(report: &Report) -> Table {
    let alone = |cell: &CellReport| {
        let alone = cell.alone.iter().map(|a| format!("{} B {:.2}/{:.2}", a.size_bytes, a.measured_ms, a.wire_ms));
        alone.collect::<Vec<_>>().join(", ")
    };
    let requests = |cell: &CellReport| {
        vec![
            cell.number.to_string(),
            report.points[cell.point].label.clone(),
            report.subjects[cell.subject].clone(),
            cell.seed.to_string(),
            cell.measured.all.count.to_string(),
            number(cell.measured.all.mean_ms),
            format!("{:.3}", cell.ideal.load),
        ]
    };
    let bed = |cell: &CellReport| {
        let calibrated = cell.calibration.as_ref();
        vec![
            format!("{:.3}", cell.measured.lateness_p99_ms),
            format!("{:.2}", cell.measured.lateness_max_ms),
            format!("{:.0}", cell.measured.head_bytes),
            calibrated.map_or_else(dash, |c| format!("{:.1} % of the rate, {}", c.rate_ratio * 100.0, c.congestion)),
            calibrated.map_or_else(dash, |c| format!("{:.0}", c.mean_frame_bytes)),
        ]
    };
    let end =
        |cell: &CellReport| vec![cell.costs.most_concurrent.to_string(), format!("{:.1}", cell.took_s), alone(cell)];
    let of_requests = &["cell", "point", "subject", "seed", "requests", "mean ms", "load"][..];
    let of_bed = &["late p99 ms", "late max ms", "head B", "calibrated", "frame B"][..];
    let caption = "Every measurement by itself".to_owned();
    let names = |parts: &[&[&str]]| parts.concat().into_iter().map(str::to_owned).collect::<Vec<String>>();
    match report.simulated {
        Some(_) => Table {
            caption,
            head: names(&[of_requests, &["concurrent", "took s", "alone: simulated/wire ms"]]),
            rows: report.cells.iter().map(|cell| [requests(cell), end(cell)].concat()).collect(),
            words: &[1, 2, 9],
        },
        None => Table {
            caption,
            head: names(&[of_requests, of_bed, &["concurrent", "took s", "alone: measured/wire ms"]]),
            rows: report.cells.iter().map(|cell| [requests(cell), bed(cell), end(cell)].concat()).collect(),
            words: &[1, 2, 10, 14],
        },
    }
}

/// Most values of x in a plot's table. With more, only `--json` has them.
const PLOT_ROWS: usize = 80;

/// The table of a plot's numbers. `None` if there are too many to read.
pub(super) fn of_plot(plot: &Plot) -> Option<Table> {
    let mut places: Vec<f64> = plot.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    places.sort_unstable_by(f64::total_cmp);
    places.dedup();
    if places.len() > PLOT_ROWS {
        return None;
    }
    let x = if plot.x.label.is_empty() { "point" } else { &plot.x.label };
    let row = |&place: &f64| {
        let value = |series: &Series| {
            let point = series.points.iter().find(|point| point.x == place)?;
            Some(match point.interval {
                Some((low, high)) => format!("{} [{}, {}]", number(point.y), number(low), number(high)),
                None => number(point.y),
            })
        };
        let values = plot.series.iter().map(|series| value(series).unwrap_or_else(dash));
        std::iter::once(plot.x.written(place)).chain(values).collect()
    };
    Some(Table {
        caption: format!("{}: {}", plot.title, plot.y.label),
        head: std::iter::once(x.to_owned()).chain(plot.series.iter().map(|series| series.name.clone())).collect(),
        rows: places.iter().map(row).collect(),
        words: &[],
    })
}

fn dash() -> String {
    "-".to_owned()
}
