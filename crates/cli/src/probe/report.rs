//! Shows the results as tables, and writes them to files.

use std::{
    fmt::{self, Write as _},
    fs, io,
    path::Path,
};

use chart::{Axis, Kind, Plot, PlotPoint, Series, Shape, Table, aligned, svg_file};
use scheduler::control::Found;

use super::{
    search::{AtOnce, End, REPEATS, Searched},
    write::rounded,
};
use crate::values;

/// Lateness above which the prober did not send as planned.
const LATE_NS: u64 = 50_000_000;

/// All measurements of a resource.
#[derive(Debug)]
pub struct Probed {
    /// The resource.
    pub resource: String,
    /// The address of its page.
    pub whereabouts: String,
    /// The searches, one after the other.
    pub searches: Vec<Searched>,
    /// The measurements around the window.
    pub knee: Vec<AtOnce>,
}

impl Probed {
    /// The result that counts: that of the first search with a result.
    pub fn found(&self) -> Option<Found> {
        self.searches.iter().find_map(Searched::found)
    }
}

/// Formats the measurements as text.
pub fn text(probed: &Probed) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", Aligned(&table(probed)));
    for searched in &probed.searches {
        for line in remarks(searched) {
            let _ = writeln!(out, "  {}: {line}", searched.search);
        }
    }
    if !probed.knee.is_empty() {
        let _ = writeln!(out, "{}", Aligned(&knee(probed)));
    }
    out
}

fn table(probed: &Probed) -> Table {
    let row = |searched: &Searched| {
        let (found, how) = match &searched.end {
            End::Done(found) => (Some(*found), "found"),
            End::Stopped(_, best) => (*best, "not confirmed"),
            End::Halted(_, best) => (*best, "not confirmed"),
        };
        let (how, cell) = match found {
            Some(_) => (how, ""),
            None => ("nothing", "-"),
        };
        let number = |text: &dyn Fn(Found) -> String| found.map_or_else(|| cell.to_owned(), text);
        let at = |found: Found| searched.rates.iter().rev().find(|rate| rate.per_second == found.per_second);
        vec![
            searched.search.to_string(),
            how.to_owned(),
            number(&|found| found.window.to_string()),
            number(&|found| values::show_duration(rounded(found.bound_ns))),
            number(&|found| found.per_second.to_string()),
            number(&|found| at(found).map_or_else(String::new, |rate| format!("{:.1}", rate.throughput()))),
            searched.rates.len().to_string(),
        ]
    };
    Table {
        caption: format!("{}: {}", probed.resource, probed.whereabouts),
        head: ["search", "", "window", "bound", "rate", "answers/s", "measurements"].map(str::to_owned).into(),
        rows: probed.searches.iter().map(row).collect(),
        words: &[1],
    }
}

/// Remarks on a search beside its numbers.
fn remarks(searched: &Searched) -> Vec<String> {
    let mut remarks = Vec::new();
    match &searched.end {
        End::Done(found) if found.at_ceiling => {
            remarks
                .push("the site kept up with the highest rate that is allowed (--ceiling): it may do more".to_owned());
        }
        End::Done(_) => {}
        End::Stopped(stop, _) => {
            let error = searched.rates.last().and_then(|rate| rate.error.as_ref());
            let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
            remarks.push(format!("{stop}{error}"));
        }
        End::Halted(halt, _) => remarks.push(halt.to_string()),
    }
    let held: u64 = searched.rates.iter().map(|rate| rate.held).sum();
    if held > 0 {
        remarks.push(format!(
            "{held} requests waited here, because no more may be at the site at once (--outstanding, or `max-connections`)"
        ));
    }
    let late = searched.rates.iter().filter(|rate| rate.late_ns > LATE_NS).count();
    if late > 0 {
        remarks.push(format!(
            "at {late} of the rates a request was sent more than 50 ms too late, because this machine was busy: rather probe \
             from another one"
        ));
    }
    remarks
}

fn knee(probed: &Probed) -> Table {
    let window = probed.found().map(|found| found.window);
    let of_window = probed.knee.iter().find(|at_once| Some(at_once.at_once) == window);
    let base = of_window.map_or(0.0, |at_once| at_once.throughput().0);
    let row = |at_once: &AtOnce| {
        let (median, least, most) = at_once.throughput();
        let change = if base > 0.0 && !at_once.times.is_empty() { 100.0 * (median / base - 1.0) } else { f64::NAN };
        vec![
            at_once.at_once.to_string(),
            format!("{median:.2}"),
            if change.is_nan() { "-".to_owned() } else { format!("{change:+.1} %") },
            format!("{least:.2} to {most:.2}"),
            format!("{:.1}", at_once.service_ms()),
            at_once.times.len().to_string(),
        ]
    };
    Table {
        caption: format!("{}: so many at once, medians of {REPEATS} measurements in turns", probed.resource),
        head: ["at once", "answers/s", "to the window", "least to most", "ms", "measurements"]
            .map(str::to_owned)
            .into(),
        rows: probed.knee.iter().map(row).collect(),
        words: &[],
    }
}

struct Aligned<'a>(&'a Table);

impl fmt::Display for Aligned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.0.caption)?;
        aligned(f, self.0)
    }
}

/// Writes every rate and the plots into a folder, which is made if missing.
pub fn write(folder: &Path, all: &[Probed]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("rates.tsv"), tsv(all))?;
    for probed in all {
        for (what, plot) in plots(probed) {
            fs::write(folder.join(format!("{}-{what}.svg", probed.resource)), svg_file(&plot))?;
        }
    }
    Ok(())
}

fn tsv(all: &[Probed]) -> String {
    let mut out = "resource\tsearch\tper_second\tseconds\tsent\tanswered\terrors\tanswers_per_second\tmean_running\t\
                   mean_ms\tmedian_ms\tp95_ms\theld\tlate_ms\n"
        .to_owned();
    let ms = |ns: u64| ns as f64 / 1e6;
    for probed in all {
        for searched in &probed.searches {
            for rate in &searched.rates {
                let measured = &rate.measured;
                let _ = writeln!(
                    out,
                    "{}\t{}\t{}\t{:.3}\t{}\t{}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{}\t{:.3}",
                    probed.resource,
                    searched.search,
                    rate.per_second,
                    rate.seconds,
                    measured.sent,
                    measured.answered,
                    measured.errors,
                    rate.throughput(),
                    measured.running,
                    ms(measured.service_ns),
                    ms(rate.median_ns),
                    ms(rate.p95_ns),
                    rate.held,
                    ms(rate.late_ns)
                );
            }
        }
    }
    out
}

/// Throughput and service time over the rate.
fn plots(probed: &Probed) -> [(&'static str, Plot); 2] {
    let series = |of: &dyn Fn(&super::load::RateMeasurement) -> f64| -> Vec<Series> {
        let one = |(number, searched): (usize, &Searched)| {
            let mut points: Vec<_> = searched
                .rates
                .iter()
                .filter(|rate| rate.measured.answered > 0)
                .map(|rate| PlotPoint { x: f64::from(rate.per_second), y: of(rate), interval: None })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series { name: searched.search.to_string(), kind: Kind::Measured(number), shape: Shape::Line, points }
        };
        probed.searches.iter().enumerate().map(one).collect()
    };
    let plot = |title: &str, label: &str, series| Plot {
        title: format!("{}: {title}", probed.resource),
        subtitle: probed.whereabouts.clone(),
        x: Axis { label: "requests a second".to_owned(), ..Axis::default() },
        y: Axis { label: label.to_owned(), ..Axis::default() },
        series,
    };
    [
        (
            "throughput",
            plot("throughput by rate", "answers a second", series(&super::load::RateMeasurement::throughput)),
        ),
        (
            "service-time",
            plot(
                "service time by rate",
                "mean service time (ms)",
                series(&|rate| rate.measured.service_ns as f64 / 1e6),
            ),
        ),
    ]
}
