//! Plots response time or slowdown over size.

use std::{fs, path::Path};

use chart::{Axis, Kind, Plot, PlotPoint, Series, Shape, Unit, svg_file};
use instrument::report::png;

use super::{
    args::{PlotOf, TheoryArgs},
    question::{AtSize, Cell, Demand, Failure, Question},
};

/// Number of sizes on a line: too many for a marker on each.
const POINTS: usize = 161;
/// Requests that a simulated size needs to be shown.
const LEAST_REQUESTS: u64 = 30;

/// Writes the plots that were asked for.
pub(super) fn write(args: &TheoryArgs, question: &Question, cells: &[Cell]) -> Result<(), Failure> {
    if args.svg.is_none() && args.png.is_none() {
        return Ok(());
    }
    if question.laws.len() * question.demands.len() > 1 {
        return Err(Failure::Asked(
            "a plot is of one law of sizes and one load: give one each with --sizes and --load or --overload"
                .to_owned(),
        ));
    }
    let plot = plot(question, cells, args.plot)?;
    let write =
        |file: &Path, bytes: &[u8]| fs::write(file, bytes).map_err(|error| Failure::File(file.to_owned(), error));
    if let Some(file) = &args.svg {
        write(file, svg_file(&plot).as_bytes())?;
    }
    if let Some(file) = &args.png {
        write(file, &png(&plot).map_err(Failure::Drawing)?)?;
    }
    Ok(())
}

fn plot(question: &Question, cells: &[Cell], of: PlotOf) -> Result<Plot, Failure> {
    let (what, unit) = match of {
        PlotOf::Response => ("mean response time", "mean response time (ms)"),
        PlotOf::Slowdown => ("mean slowdown", "mean slowdown (response time over time alone)"),
    };
    let y = |bytes: f64, response_s: f64| match of {
        PlotOf::Response => response_s * 1e3,
        PlotOf::Slowdown => response_s * question.bytes_per_second() / bytes,
    };
    let mut series = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let curve = question.over_sizes(cell.index, POINTS)?;
        let points =
            curve.iter().map(|at: &AtSize| PlotPoint { x: at.bytes, y: y(at.bytes, at.response_s), interval: None });
        series.push(Series {
            name: cell.policy.to_owned(),
            kind: Kind::Measured(number),
            shape: Shape::Line,
            points: points.collect(),
        });
        let Some(simulated) = &cell.simulated else { continue };
        let seen = simulated.by_size.iter().filter(|bin| bin.requests >= LEAST_REQUESTS);
        series.push(Series {
            name: format!("{}, simulated", cell.policy),
            kind: Kind::Published(number),
            shape: Shape::Marks,
            points: seen
                .map(|bin| PlotPoint { x: bin.bytes, y: y(bin.bytes, bin.response_s), interval: None })
                .collect(),
        });
    }
    let (title, load) = match &question.demands[..] {
        [Demand::Overload(pattern)] => (
            format!("Approximate {what} by size"),
            format!("load {}, on average {:.2}", pattern.name(), pattern.mean()),
        ),
        demands => {
            let loads =
                demands.iter().filter_map(|demand| if let Demand::Load(load) = demand { Some(*load) } else { None });
            (format!("{what} by size").replacen('m', "M", 1), format!("M/GI/1, load {}", loads.sum::<f64>()))
        }
    };
    let law = question.laws.first().map_or("", |law| &law.name);
    Ok(Plot {
        title,
        subtitle: format!("{load}; {law}; {}", question.link.first_rate()),
        x: Axis { label: "size".to_owned(), log: true, unit: Unit::Bytes, ..Axis::default() },
        y: Axis { label: unit.to_owned(), log: true, ..Axis::default() },
        series,
    })
}
