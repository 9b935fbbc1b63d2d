//! Formats the report for a terminal.

use std::fmt;

use chart::{aligned, command, paragraph};

use super::{model::Report, point::PointReport, tables};

/// A report that is printed to a terminal.
pub(super) struct Shown<'a>(pub(super) &'a Report);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        head(f, report)?;
        report.points.iter().try_for_each(|point| self::point(f, point))?;
        if !report.published.is_empty() {
            let (published, places) = tables::published_narrow(report);
            writeln!(f, "\n{}", published.caption)?;
            aligned(f, &published)?;
            places.iter().try_for_each(|place| writeln!(f, "  {place}"))?;
        }
        let paths = tables::paths(report);
        if !paths.rows.is_empty() {
            writeln!(f, "\n{}", paths.caption)?;
            aligned(f, &paths)?;
        }
        remarks(f, report)
    }
}

fn head(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let experiment = &report.experiment;
    let form = if report.is_changed() { format!(" ({})", report.form()) } else { String::new() };
    writeln!(f, "{}", paragraph("", &format!("{}{form}", experiment.title)))?;
    if !experiment.source.is_empty() {
        writeln!(f, "repeats {}", experiment.source)?;
    }
    writeln!(f, "{}", command(&report.command))?;
    writeln!(f, "{}", report.versions.join(", "))?;
    if let Some(simulated) = &report.simulated {
        writeln!(f, "SIMULATED: {}. Nothing here was measured", simulated.name)?;
        simulated.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))?;
    }
    let seeds = report.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    writeln!(
        f,
        "seeds {seeds}: means over them, [95 % confidence interval]; gains seed by seed over the first subject"
    )?;
    for line in report.invalid() {
        writeln!(f, "NOT VALID, left out: {line}")?;
    }
    if !report.missing.is_empty() {
        let (missing, all) = (report.missing.len(), report.expected_cells);
        writeln!(
            f,
            "INCOMPLETE: {missing} of {all} measurements are missing: the run was stopped, or is still going on, or parts of it are not here"
        )?;
    }
    for file in &report.unusable {
        writeln!(f, "NOT READ: cell {}: {}", file.cell, file.reason)?;
    }
    Ok(())
}

fn point(f: &mut fmt::Formatter<'_>, point: &PointReport) -> fmt::Result {
    let label = if point.label.is_empty() { "all" } else { &point.label };
    if let Some(why) = point.has_nothing() {
        return writeln!(f, "\n{label}: {why}");
    }
    writeln!(f, "\n{label}: {:.0} requests a seed, wire load {:.3}", point.requests, point.load)?;
    aligned(f, &tables::times(point))?;
    if !point.ideal_is_bound.is_empty() {
        writeln!(f, "  the ideal is a bound here: {}", point.ideal_is_bound)?;
    }
    aligned(f, &tables::costs(point))?;
    tables::troubles(point).iter().try_for_each(|line| writeln!(f, "  {line}"))
}

fn remarks(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if report.points.iter().flat_map(|point| &point.rows).any(|row| row.incomplete + row.errors > 0) {
        writeln!(f, "\n≥ ≤ ~: requests that never came whole have entered with the time they were waited for")?;
    }
    for line in report.notes() {
        writeln!(f, "note: {line}")?;
    }
    for line in &report.not_plotted {
        writeln!(f, "not plotted: {line}")?;
    }
    writeln!(f, "\n{}", paragraph("", &report.length()))?;
    let notes = report.experiment.notes.split("\n\n").filter(|part| !part.trim().is_empty());
    notes.into_iter().try_for_each(|part| writeln!(f, "\n{}", paragraph("", part)))
}
