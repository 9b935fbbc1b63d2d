//! The plots of advice, in the lab's form.

use chart::{Axis, Kind, Plot, PlotPoint, Series, Shape, Unit};
use simulator::advise::{Advice, report::Prediction, words};

use super::{dates, tables};

/// All plots that have data.
pub fn all(advice: &Advice) -> Vec<Plot> {
    let mut plots = vec![sizes(advice), load(advice)];
    if advice.predictions.iter().filter(|prediction| !prediction.overloaded).count() > 1 {
        plots.push(growth(advice, "Mean response time, if traffic grows", "mean response time (ms)", |of| {
            of.response_ms.mean
        }));
        plots.push(growth(advice, "Mean slowdown, if traffic grows", "mean slowdown", |of| of.slowdown.mean));
    }
    plots.extend(tables::shown(advice).map(gain));
    plots
}

fn point(x: f64, y: f64) -> PlotPoint {
    PlotPoint { x, y, interval: None }
}

fn line(name: &str, kind: Kind, points: Vec<PlotPoint>) -> Series {
    Series { name: name.to_owned(), kind, shape: Shape::Line, points }
}

fn sizes(advice: &Advice) -> Plot {
    let (mut requests, mut bytes) = (Vec::new(), Vec::new());
    let (mut of_requests, mut of_bytes) = (0.0, 0.0);
    for share in &advice.sizes.histogram {
        of_requests += share.requests;
        of_bytes += share.bytes;
        // Responses without a body are drawn at the left edge.
        let x = share.below_bytes.min(advice.sizes.largest_bytes).max(1) as f64;
        requests.push(point(x, of_requests));
        bytes.push(point(x, of_bytes));
    }
    Plot {
        title: "Sizes: what is no larger".to_owned(),
        subtitle: if advice.log.has_sizes { String::new() } else { "assumed: the log tells no sizes".to_owned() },
        x: Axis { label: "size of the body".to_owned(), log: true, unit: Unit::Bytes, ..Axis::default() },
        y: Axis { label: "share".to_owned(), unit: Unit::Percent, ..Axis::default() },
        series: vec![
            line("requests", Kind::Measured(0), requests),
            line("bytes on the uplink", Kind::Measured(1), bytes),
        ],
    }
}

/// The load over time. Periods without a request are missing from the list and count as zero.
fn load(advice: &Advice) -> Plot {
    let load = &advice.load;
    let begun_s = load.over_time.first().map_or(0.0, |period| period.from_unix_s);
    let ended_s = load.over_time.last().map_or(0.0, |period| period.from_unix_s);
    let (unit_s, unit) = if ended_s - begun_s > 4.0 * 86_400.0 { (86_400.0, "days") } else { (3600.0, "hours") };
    let mut points: Vec<PlotPoint> = Vec::new();
    let mut expected_s = begun_s;
    for period in &load.over_time {
        let place = |at_s: f64| (at_s + load.period_s / 2.0 - begun_s) / unit_s;
        if period.from_unix_s > expected_s + load.period_s / 2.0 {
            points.push(point(place(expected_s), 0.0));
            points.push(point(place(period.from_unix_s - load.period_s), 0.0));
        }
        points.push(point(place(period.from_unix_s), period.load));
        expected_s = period.from_unix_s + load.period_s;
    }
    let period = match load.period_s {
        60.0 => "minute by minute".to_owned(),
        3600.0 => "hour by hour".to_owned(),
        seconds => format!("every {:.0} minutes", seconds / 60.0),
    };
    let full = [points.first(), points.last()].into_iter().flatten().map(|at| point(at.x, 1.0)).collect();
    Plot {
        title: "Load of the uplink over time".to_owned(),
        subtitle: format!("{}, {period}", words::rate(advice.uplink_bits_per_second)),
        x: Axis { label: format!("{unit} since {}", dates::minute(begun_s)), ..Axis::default() },
        y: Axis { label: "load".to_owned(), unit: Unit::Percent, ..Axis::default() },
        series: vec![line("load", Kind::Measured(1), points), line("full", Kind::Ideal(1), full)],
    }
}

fn growth(
    advice: &Advice,
    title: &str,
    label: &str,
    value: fn(&simulator::advise::report::PolicyPrediction) -> f64,
) -> Plot {
    let known: Vec<&Prediction> = advice.predictions.iter().filter(|prediction| !prediction.overloaded).collect();
    let names =
        known.first().map(|first| first.policies.iter().map(|of| of.policy).collect::<Vec<_>>()).unwrap_or_default();
    let series = names.iter().enumerate().map(|(number, name)| {
        let points = known.iter().map(|prediction| point(prediction.peak_load, value(&prediction.policies[number])));
        line(&tables::described(name), Kind::Measured(number), points.collect())
    });
    Plot {
        title: title.to_owned(),
        subtitle: words::rate(advice.uplink_bits_per_second),
        x: Axis { label: "load of the uplink in its busiest hour (the first is today)".to_owned(), ..Axis::default() },
        y: Axis { label: label.to_owned(), log: true, ..Axis::default() },
        series: series.collect(),
    }
}

fn gain(prediction: &Prediction) -> Plot {
    // Classes with few requests show chance, not the effect of size, so they are left out.
    let enough = (prediction.requests / 5000).clamp(3, 30);
    let others = prediction.policies.iter().enumerate().skip(1);
    let mut series: Vec<Series> = others
        .map(|(number, of)| {
            let classes = of.fine_by_size.iter().filter(|class| class.requests >= enough && class.from_bytes > 0);
            let middle = |from: u64, below: Option<u64>| (from as f64 * below.unwrap_or(from) as f64).sqrt();
            let points = classes.map(|class| point(middle(class.from_bytes, class.below_bytes), class.over_fair));
            line(&tables::described(of.policy), Kind::Measured(number), points.collect())
        })
        .collect();
    let ends = series.first().map(|first| [first.points.first(), first.points.last()]).unwrap_or_default();
    let one = ends.into_iter().flatten().map(|at| point(at.x, 1.0)).collect();
    series.push(line("as long as under fair sharing", Kind::Ideal(0), one));
    Plot {
        title: "Who gains and who loses".to_owned(),
        subtitle: format!(
            "{} times today's traffic, load {:.2} in the busiest hour",
            words::digits(prediction.growth),
            prediction.peak_load
        ),
        x: Axis { label: "size of the body".to_owned(), log: true, unit: Unit::Bytes, ..Axis::default() },
        y: Axis { label: "mean response time over that under fair sharing".to_owned(), log: true, ..Axis::default() },
        series,
    }
}
