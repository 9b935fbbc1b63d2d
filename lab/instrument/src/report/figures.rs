//! Makes the plots that an experiment asks for from a report's numbers.

use std::collections::{BTreeMap, BTreeSet};

use chart::{Axis, Kind, Plot, PlotPoint, Series, Shape, Unit};
use workload::{
    rate::Rate,
    stats::{
        interval::Estimate,
        series::{Moments, size_bin_start},
    },
};

use super::{
    cell::{BUCKETS, CellReport, Series as Cells, of_point},
    measures,
    model::Report,
    point::{IDEALS, PointReport},
    published::{self, PublishedRow},
};
use crate::{
    experiment::{Figure, FigureKind, Measure},
    record::RunRecord,
};

mod server;

/// Returns all plots, and the plots that could not be made, with reasons.
pub(super) fn plots(report: &Report, run: &RunRecord) -> (Vec<Plot>, Vec<String>) {
    let (mut plots, mut refused) = (Vec::new(), Vec::new());
    for figure in &run.experiment.figures {
        let made = Maker { report, run, figure }.plots();
        let shown: Vec<Plot> = made.into_iter().filter(Plot::has_values).collect();
        if shown.is_empty() {
            refused.push(format!("“{}”: {}", figure.title, reason(report, figure)));
        }
        plots.extend(shown);
    }
    plots.extend(beside_published(report, &plots));
    if report.simulated.is_some() {
        // A plot may be shown alone, without the report that tells that it was simulated.
        let of_subjects = plots.iter_mut().flat_map(|plot| &mut plot.series).filter(|series| series.kind.is_measured());
        of_subjects.for_each(|series| series.name += ", simulated");
    }
    (plots, refused)
}

/// Published values that no figure of the experiment draws, beside those of this run: a plot for each measure.
fn beside_published(report: &Report, drawn: &[Plot]) -> Vec<Plot> {
    let is_drawn = |row: &PublishedRow| {
        let of_subject = report.subjects.iter().position(|subject| *subject == row.subject).map(Kind::Published);
        let of_row = |plot: &Plot| {
            let has_series = plot.series.iter().any(|series| Some(series.kind) == of_subject);
            has_series && plot.y.label == measures::name(row.measure)
        };
        row.relative_to.is_none() && row.group.is_empty() && drawn.iter().any(of_row)
    };
    let measure = |row: &PublishedRow| (row.measure, row.relative_to.clone(), row.group.clone());
    let (mut measures, mut plots) = (Vec::new(), Vec::new());
    for row in report.published.iter().filter(|row| !is_drawn(row)) {
        if !measures.contains(&measure(row)) {
            measures.push(measure(row));
        }
    }
    for key in measures {
        let rows: Vec<_> = report.published.iter().filter(|row| measure(row) == key && row.ours.is_some()).collect();
        let mut categories: Vec<String> = Vec::new();
        for row in &rows {
            let label = if row.point.is_empty() { "all" } else { &row.point };
            if !categories.iter().any(|known| known == label) {
                categories.push(label.to_owned());
            }
        }
        let place = |row: &PublishedRow| {
            let label = if row.point.is_empty() { "all" } else { &row.point };
            categories.iter().position(|known| known == label).map_or(0.0, |place| place as f64)
        };
        let (measure, relative_to, group) = key;
        let over = relative_to.map(|other| format!(" over {other}'s")).unwrap_or_default();
        let of = if group.is_empty() { String::new() } else { format!(", {group}") };
        let mut plot = Plot {
            title: format!("Published beside {}", if report.simulated.is_some() { "simulated" } else { "measured" }),
            subtitle: String::new(),
            x: Axis { categories: categories.clone(), ..Axis::default() },
            y: Axis { label: format!("{}{over}{of}", measures::name(measure)), ..Axis::default() },
            series: Vec::new(),
        };
        for (number, subject) in report.subjects.iter().enumerate() {
            let of_subject = || rows.iter().filter(|row| row.subject == *subject);
            let ours = of_subject().filter_map(|row| Some(plot_point(place(row), row.ours.as_ref()?))).collect();
            let (kind, shape) = (Kind::Measured(number), Shape::Bars);
            plot.push(Series { name: subject.clone(), kind, shape, points: ours });
            let published = of_subject().map(|row| published_point(place(row), row)).collect();
            let (name, kind) = (format!("published for {subject}"), Kind::Published(number));
            plot.push(Series { name, kind, shape: Shape::Marks, points: published });
        }
        plots.push(plot);
    }
    plots.retain(Plot::has_values);
    plots
}

fn published_point(x: f64, row: &PublishedRow) -> PlotPoint {
    let (low, high) = published::ends(row.published);
    PlotPoint { x, y: (low + high) / 2.0, interval: (low < high).then_some((low, high)) }
}

fn reason(report: &Report, figure: &Figure) -> &'static str {
    match figure.kind {
        _ if report.cells.is_empty() => "nothing was measured yet",
        _ if !report.cells.iter().any(CellReport::is_sound) => "no measurement can be trusted",
        FigureKind::ServerOverTime => "the server's side was not sampled",
        FigureKind::OverSweep if report.points.iter().all(|point| point.values.is_empty()) => "nothing is varied",
        FigureKind::ByGroup if !shows(figure.kind, figure.measure) => "this measure is not known by group",
        _ if !shows(figure.kind, figure.measure) => {
            "this measure is not known by size or over time: use mean-ms, slowdown, first-byte-ms, variance-ms2 or squared-variation"
        }
        _ => "the run has no values for it",
    }
}

/// Whether a kind of figure can show a measure. Some kinds show measures of their own, whatever the
/// experiment asks for.
pub(crate) fn shows(kind: FigureKind, measure: Measure) -> bool {
    match kind {
        FigureKind::BySize | FigureKind::BySizePercentile | FigureKind::OverTime => matches!(
            measure,
            Measure::MeanMs
                | Measure::Slowdown
                | Measure::FirstByteMs
                | Measure::VarianceMs2
                | Measure::SquaredVariation
        ),
        FigureKind::ByGroup => {
            !matches!(measure, Measure::Starved | Measure::WorstStretch | Measure::LinkUse | Measure::CpuUs)
        }
        FigureKind::OverSweep
        | FigureKind::Bars
        | FigureKind::ServerOverTime
        | FigureKind::Distribution
        | FigureKind::Stretch => true,
    }
}

struct Maker<'a> {
    report: &'a Report,
    run: &'a RunRecord,
    figure: &'a Figure,
}

impl Maker<'_> {
    fn plots(&self) -> Vec<Plot> {
        match self.figure.kind {
            FigureKind::OverSweep => self.over_sweep(self.figure.measure),
            FigureKind::Stretch => {
                [Measure::Starved, Measure::WorstStretch].into_iter().flat_map(|m| self.over_sweep(m)).collect()
            }
            FigureKind::Bars => vec![self.bars()],
            FigureKind::ByGroup => self.each_point(|point, cells| vec![self.by_group(point, cells)]),
            FigureKind::BySize => self.each_point(|point, cells| vec![self.by_size(point, cells)]),
            FigureKind::BySizePercentile => self.each_point(|point, cells| vec![self.by_percentile(point, cells)]),
            FigureKind::OverTime => self.each_point(|point, cells| vec![self.over_time(point, cells)]),
            FigureKind::Distribution => self.each_point(|point, cells| vec![self.distribution(point, cells)]),
            FigureKind::ServerOverTime => {
                self.each_point(|point, cells| server::plots(self.figure, point, cells, &self.report.subjects))
            }
        }
    }

    fn each_point(&self, make: impl Fn(&PointReport, &[&CellReport]) -> Vec<Plot>) -> Vec<Plot> {
        let shown = |label: &String| self.figure.points.is_empty() || self.figure.points.contains(label);
        let points = self.report.points.iter().enumerate().filter(|(_, point)| shown(&point.label));
        points.flat_map(|(number, point)| make(point, &of_point(&self.report.cells, number))).collect()
    }

    fn plot(&self, subtitle: String, x: Axis, y_label: String) -> Plot {
        let y = Axis { label: y_label, log: self.figure.log, ..Axis::default() };
        Plot { title: self.figure.title.clone(), subtitle, x, y, series: Vec::new() }
    }

    fn measure_plot(&self, subtitle: String, x: Axis, measure: Measure) -> Plot {
        let mut plot = self.plot(subtitle, x, measures::name(measure).to_owned());
        if let Measure::LinkUse | Measure::Incomplete | Measure::Errors | Measure::Starved = measure {
            plot.y.unit = Unit::Percent;
        }
        plot
    }

    /// Makes a plot for each combination of the other varied settings.
    fn over_sweep(&self, measure: Measure) -> Vec<Plot> {
        let points = &self.report.points;
        let Some(key) = self.figure.over.clone().or_else(|| points.first()?.values.keys().next().cloned()) else {
            return Vec::new();
        };
        let mut combinations: Vec<(String, Vec<&PointReport>)> = Vec::new();
        for point in points.iter().filter(|point| point.values.contains_key(&key)) {
            let others = point.values.iter().filter(|(other, _)| **other != key);
            let others = others.map(|(key, value)| format!("{} {value}", short(key))).collect::<Vec<_>>().join(", ");
            match combinations.iter_mut().find(|(known, _)| *known == others) {
                Some((_, of)) => of.push(point),
                None => combinations.push((others, vec![point])),
            }
        }
        let make = |(others, of): (String, Vec<&PointReport>)| {
            let (x, places) = sweep_axis(&key, &of);
            let at: Vec<(f64, &PointReport)> = places.into_iter().zip(of).collect();
            let mut plot = self.measure_plot(others, x, measure);
            plot.series = self.over(&at, measure, Shape::Line);
            plot
        };
        combinations.into_iter().map(make).collect()
    }

    fn bars(&self) -> Plot {
        let shown = |point: &&PointReport| self.figure.points.is_empty() || self.figure.points.contains(&point.label);
        let points: Vec<&PointReport> = self.report.points.iter().filter(shown).collect();
        let categories = points.iter().map(|point| point.label.clone()).collect();
        let x = Axis { categories, ..Axis::default() };
        let at: Vec<(f64, &PointReport)> = points.into_iter().enumerate().map(|(i, p)| (i as f64, p)).collect();
        let mut plot = self.measure_plot(String::new(), x, self.figure.measure);
        plot.series = self.over(&at, self.figure.measure, Shape::Bars);
        plot
    }

    /// Makes the series of subjects, ideals and published values over points at the given positions.
    fn over(&self, at: &[(f64, &PointReport)], measure: Measure, shape: Shape) -> Vec<Series> {
        let mut all = Vec::new();
        for (number, subject) in self.report.subjects.iter().enumerate() {
            let value = |point: &PointReport| {
                point.rows.iter().find(|row| row.subject == *subject)?.measures.get(&measure).copied()
            };
            let points = at.iter().filter_map(|&(x, point)| Some(plot_point(x, &value(point)?))).collect();
            all.push(Series { name: subject.clone(), kind: Kind::Measured(number), shape, points });
        }
        let ideal_shape = if shape == Shape::Bars { Shape::Marks } else { Shape::Line };
        for (number, name) in IDEALS.into_iter().enumerate() {
            let value = |point: &PointReport| point.ideal.get(number)?.measures.get(&measure).map(|e| e.value);
            let points = at.iter().filter_map(|&(x, p)| Some(PlotPoint { x, y: value(p)?, interval: None })).collect();
            all.push(Series { name: name.to_owned(), kind: Kind::Ideal(number), shape: ideal_shape, points });
        }
        for (number, subject) in self.report.subjects.iter().enumerate() {
            let rows = self.report.published.iter().filter(|row| {
                row.subject == *subject && row.measure == measure && row.relative_to.is_none() && row.group.is_empty()
            });
            let points = rows.filter_map(|row| {
                let &(x, _) = at.iter().find(|(_, point)| point.label == row.point)?;
                Some(published_point(x, row))
            });
            let (kind, points) = (Kind::Published(number), points.collect());
            all.push(Series { name: format!("published for {subject}"), kind, shape: Shape::Marks, points });
        }
        all.retain(|series: &Series| !series.points.is_empty());
        all
    }

    fn by_group(&self, point: &PointReport, cells: &[&CellReport]) -> Plot {
        let groups: BTreeSet<u16> = cells.iter().flat_map(|cell| cell.groups.keys().copied()).collect();
        let setting = self.run.points.iter().find(|known| known.label == point.label).map(|known| &known.setting);
        let name = |group: &u16| {
            let named = setting.and_then(|setting| setting.groups.get(usize::from(*group)));
            named.map_or_else(|| format!("group {group}"), |named| named.name.clone())
        };
        let x = Axis { categories: groups.iter().map(name).collect(), ..Axis::default() };
        let mut plot = self.measure_plot(point.label.clone(), x, self.figure.measure);
        let baseline = of_subject(cells, 0);
        for (number, subject) in self.report.subjects.iter().enumerate() {
            let cells = of_subject(cells, number);
            let estimate = |group| measures::estimate_of_group(self.figure.measure, group, &cells, &baseline);
            let points =
                groups.iter().enumerate().filter_map(|(i, &group)| Some(plot_point(i as f64, &estimate(group)?)));
            let (points, kind) = (points.collect(), Kind::Measured(number));
            plot.push(Series { name: subject.clone(), kind, shape: Shape::Bars, points });
        }
        plot
    }

    fn by_size(&self, point: &PointReport, cells: &[&CellReport]) -> Plot {
        let x = Axis { label: "size of the response".to_owned(), log: true, unit: Unit::Bytes, ..Axis::default() };
        let mut plot = self.measure_plot(point.label.clone(), x, self.figure.measure);
        // The middle of a bin on a logarithmic axis.
        let middle = |bin: u32| (size_bin_start(bin) * size_bin_start(bin + 1)).sqrt();
        self.lines(&mut plot, cells, |series| {
            series.by_size.iter().map(|(&bin, moments)| (middle(bin), *moments)).collect()
        });
        plot
    }

    fn by_percentile(&self, point: &PointReport, cells: &[&CellReport]) -> Plot {
        let x = Axis { label: "percentile of the response's size".to_owned(), ..Axis::default() };
        let mut plot = self.measure_plot(point.label.clone(), x, self.figure.measure);
        let middle = |bucket: usize| (bucket as f64 + 0.5) * 100.0 / BUCKETS as f64;
        self.lines(&mut plot, cells, |series| {
            series.by_percentile.iter().enumerate().map(|(bucket, moments)| (middle(bucket), *moments)).collect()
        });
        plot
    }

    fn over_time(&self, point: &PointReport, cells: &[&CellReport]) -> Plot {
        let x = Axis { label: "planned at (s)".to_owned(), ..Axis::default() };
        let mut plot = self.measure_plot(point.label.clone(), x, self.figure.measure);
        self.lines(&mut plot, cells, |series| {
            series.over_time.iter().map(|(&second, moments)| (second as f64 + 0.5, *moments)).collect()
        });
        plot
    }

    /// Adds a line for each subject and ideal, from the requests of all seeds together.
    fn lines(&self, plot: &mut Plot, cells: &[&CellReport], of: impl Fn(&Cells) -> Vec<(f64, Moments)>) {
        if !shows(self.figure.kind, self.figure.measure) {
            return;
        }
        let line = |cells: &[&Cells]| -> Vec<PlotPoint> {
            // Positions of different runs are either bit-identical or different, so their bits serve as keys.
            // They are positive, so the keys have the same order.
            let mut sums: BTreeMap<u64, Moments> = BTreeMap::new();
            for (x, moments) in cells.iter().flat_map(|series| of(series)) {
                sums.entry(x.to_bits()).or_default().merge(&moments);
            }
            let known = sums.into_iter().filter(|(_, moments)| moments.count > 0);
            let value = |moments: &Moments| of_moments(moments, self.figure.measure);
            known.filter_map(|(x, m)| Some(PlotPoint { x: f64::from_bits(x), y: value(&m)?, interval: None })).collect()
        };
        self.all_lines(plot, cells, line);
    }

    fn distribution(&self, point: &PointReport, cells: &[&CellReport]) -> Plot {
        let x = Axis { label: "response time (ms)".to_owned(), log: true, ..Axis::default() };
        let mut plot = self.plot(point.label.clone(), x, "share of requests that took longer".to_owned());
        plot.y.log = true;
        plot.y.unit = Unit::Percent;
        self.all_lines(&mut plot, cells, |cells| {
            // For each share, the mean over the seeds of the time that this share exceeds.
            let mut times: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for &(ms, share) in cells.iter().flat_map(|series| &series.distribution) {
                times.entry(share.to_bits()).or_default().push(ms);
            }
            let of_all = times.into_iter().rev().filter(|(_, times)| times.len() == cells.len());
            let point = |(share, times): (u64, Vec<f64>)| {
                let x = times.iter().sum::<f64>() / times.len() as f64;
                PlotPoint { x, y: f64::from_bits(share), interval: None }
            };
            of_all.map(point).collect()
        });
        plot
    }

    fn all_lines(&self, plot: &mut Plot, cells: &[&CellReport], line: impl Fn(&[&Cells]) -> Vec<PlotPoint>) {
        for (number, subject) in self.report.subjects.iter().enumerate() {
            let series: Vec<&Cells> = of_subject(cells, number).iter().map(|cell| &cell.series).collect();
            let (points, kind) = (line(&series), Kind::Measured(number));
            plot.push(Series { name: subject.clone(), kind, shape: Shape::Line, points });
        }
        // One cell of each seed has the ideal of its requests.
        let mut of_seeds: BTreeMap<u64, &CellReport> = BTreeMap::new();
        for cell in cells {
            of_seeds.entry(cell.seed).or_insert(cell);
        }
        let picks =
            [|cell: &CellReport| cell.ideal.srpt_series.clone(), |cell: &CellReport| cell.ideal.ps_series.clone()];
        for (number, (name, pick)) in IDEALS.into_iter().zip(picks).enumerate() {
            let series: Vec<Cells> = of_seeds.values().map(|cell| pick(cell)).collect();
            let points = line(&series.iter().collect::<Vec<_>>());
            plot.push(Series { name: name.to_owned(), kind: Kind::Ideal(number), shape: Shape::Line, points });
        }
    }
}

fn of_subject<'a>(cells: &[&'a CellReport], subject: usize) -> Vec<&'a CellReport> {
    cells.iter().copied().filter(|cell| cell.subject == subject).collect()
}

fn plot_point(x: f64, estimate: &Estimate) -> PlotPoint {
    PlotPoint { x, y: estimate.value, interval: estimate.interval }
}

fn of_moments(moments: &Moments, measure: Measure) -> Option<f64> {
    Some(match measure {
        Measure::FirstByteMs => return moments.first_byte_ms(),
        Measure::Slowdown => moments.mean_slowdown,
        Measure::VarianceMs2 => moments.variance_ms2(),
        Measure::SquaredVariation => moments.squared_variation(),
        _ => moments.mean_ms,
    })
}

/// The last part of a dotted key, the name that people use.
fn short(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, last)| last)
}

/// Makes the axis of a key and the position of each point on it. Numbers and rates stand on a scale, other
/// values side by side.
fn sweep_axis(key: &str, points: &[&PointReport]) -> (Axis, Vec<f64>) {
    let values: Vec<&str> = points.iter().map(|point| point.values.get(key).map_or("", String::as_str)).collect();
    let label = short(key).replace('-', " ");
    let numbers: Option<Vec<f64>> =
        values.iter().map(|value| value.parse().ok().filter(|v: &f64| v.is_finite())).collect();
    if let Some(numbers) = numbers {
        // The axis is logarithmic if values grow by factors: at least three values, each at least half as
        // large again as the one before.
        let grows = numbers.len() >= 3 && numbers.windows(2).all(|pair| pair[0] > 0.0 && pair[1] >= 1.5 * pair[0]);
        return (
            Axis { label, log: grows && numbers[numbers.len() - 1] > 20.0 * numbers[0], ..Axis::default() },
            numbers,
        );
    }
    let rates: Option<Vec<f64>> =
        values.iter().map(|value| Some(value.parse::<Rate>().ok()?.bits_per_second() as f64)).collect();
    if let Some(rates) = rates {
        return (Axis { label, unit: Unit::BitsPerSecond, log: true, ..Axis::default() }, rates);
    }
    let mut categories: Vec<String> = Vec::new();
    let places = values.iter().map(|value| {
        let known = categories.iter().position(|category| category == value);
        known.unwrap_or_else(|| {
            categories.push((*value).to_owned());
            categories.len() - 1
        }) as f64
    });
    let places = places.collect();
    (Axis { label, categories, ..Axis::default() }, places)
}
