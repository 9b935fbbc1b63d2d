//! The plots: the paper's figures 7 to 13, and the throughput around a stop of the database.

use chart::{Axis, Kind, Plot, PlotPoint, Series, Shape};

use super::report::{Kind as Subject, Report};

pub(super) fn plots(report: &Report) -> Vec<Plot> {
    let mut plots = compared(report);
    plots.push(running(report));
    for (number, row) in report.rows.iter().enumerate() {
        let curves = &report.curves[number];
        plots.push(system_times(report, &curves.system_ms, figure(row.kind, row.share.as_deref()), &row.label));
        for (page, of_page) in report.given.pages.iter().zip(&curves.of_pages) {
            plots.push(system_times(report, of_page, "", &format!("{}, page {page}", row.label)));
        }
        let by_page = |curves: &[Vec<(f64, f64)>]| {
            let names = report.given.pages.iter();
            names.zip(curves).enumerate().map(|(n, (name, points))| line(n, name.clone(), points)).collect()
        };
        plots.push(plot(
            "Windows, as the gateway says",
            &row.label,
            "requests at the site at once",
            by_page(&curves.windows),
        ));
        if row.cut.is_some() {
            let series = by_page(&curves.throughput);
            plots.push(plot("Throughput around the stop of the database", &row.label, "answers a second", series));
        }
    }
    plots.retain(|plot| plot.series.iter().any(|series| !series.points.is_empty()));
    plots
}

/// The figure of the paper that corresponds to a subject's.
fn figure(kind: Subject, share: Option<&str>) -> &'static str {
    match (kind, share) {
        (Subject::Multi, Some("wtp")) => " (the paper's figure 7)",
        (Subject::Multi, Some("pwad")) => " (the paper's figure 8)",
        (Subject::Multi, Some("mdp")) => " (the paper's figure 9)",
        _ => "",
    }
}

fn system_times(report: &Report, classes: &[Vec<(f64, f64)>], figure: &str, of: &str) -> Plot {
    let names = report.given.classes.iter();
    let series = names.zip(classes).enumerate().map(|(n, (name, points))| line(n, name.clone(), points)).collect();
    let title = format!("Mean system time of the last {} s by class{figure}", report.given.window_s);
    plot(&title, of, "mean system time (ms)", series)
}

fn running(report: &Report) -> Plot {
    let rows = report.rows.iter().zip(&report.curves).enumerate();
    let series = rows.map(|(n, (row, curves))| line(n, row.label.clone(), &curves.running)).collect();
    plot("Number running at the site (the paper's figure 13)", "", "pages that run at once", series)
}

/// Bars of all subjects side by side.
fn compared(report: &Report) -> Vec<Plot> {
    let bars = |title: &str, y: &str, series: Vec<(String, Vec<Option<f64>>)>| {
        let of = |(number, (name, values)): (usize, (String, Vec<Option<f64>>))| Series {
            name,
            kind: Kind::Measured(number),
            shape: Shape::Bars,
            points: values
                .into_iter()
                .enumerate()
                .filter_map(|(x, y)| Some(PlotPoint { x: x as f64, y: y?, interval: None }))
                .collect(),
        };
        let categories = report.rows.iter().map(|row| row.label.clone()).collect();
        let series = series.into_iter().enumerate().map(of).collect();
        Plot { x: Axis { categories, ..Axis::default() }, ..plot(title, "", y, series) }
    };
    let rows = &report.rows;
    let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    let all = ("all".to_owned(), rows.iter().map(|row| Some(row.all.throughput)).collect());
    let by_page = report.given.pages.iter().enumerate().map(|(page, name)| {
        (name.clone(), rows.iter().map(|row| Some(row.pages[page].sums.throughput)).collect::<Vec<_>>())
    });
    let mut plots = vec![
        bars("Throughput (the paper's figure 10)", "answers a second", std::iter::once(all).chain(by_page).collect()),
        bars(
            "Service and queueing time (the paper's figure 12)",
            "mean time (ms)",
            vec![
                ("service time".to_owned(), rows.iter().map(|row| ms(row.all.service_s)).collect()),
                ("queueing time".to_owned(), rows.iter().map(|row| ms(row.all.queueing_s)).collect()),
            ],
        ),
    ];
    let mut singles: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.kind == Subject::Single)
        .filter_map(|row| Some((f64::from(row.pages.first()?.window?), row.all.throughput)))
        .collect();
    singles.sort_by(|a, b| a.0.total_cmp(&b.0));
    if singles.len() > 1 {
        let mut over = plot(
            "Throughput of a single window (in the place of figure 11)",
            "the paper varies the bound on the service time, from which its window follows",
            "answers a second",
            vec![line(0, "single".to_owned(), &singles)],
        );
        over.x.label = "window".to_owned();
        plots.insert(1, over);
    }
    plots
}

fn plot(title: &str, subtitle: &str, y: &str, series: Vec<Series>) -> Plot {
    Plot {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        x: Axis { label: "time (s)".to_owned(), ..Axis::default() },
        y: Axis { label: y.to_owned(), ..Axis::default() },
        series,
    }
}

fn line(number: usize, name: String, points: &[(f64, f64)]) -> Series {
    let points = points.iter().map(|&(x, y)| PlotPoint { x, y, interval: None }).collect();
    Series { name, kind: Kind::Measured(number), shape: Shape::Line, points }
}
