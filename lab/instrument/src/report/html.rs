//! The report as one HTML file without scripts or external resources. It is well-formed XML, so that it can
//! be checked.

use askama::Template;
use chart::{Plot, Table, inline_svg};
use time::{UtcDateTime, macros::format_description};

use super::{compare::Comparison, model::Report, tables};
use crate::LabError;

/// Makes the page of a run.
pub(super) fn page(report: &Report) -> Result<String, LabError> {
    let figures = report.figures.iter().enumerate().map(|(number, plot)| Figure::new(number + 1, plot));
    let page = ReportPage {
        report,
        began: date(report.began_unix_s),
        seeds: list(&report.seeds),
        invalid: report.invalid().collect(),
        points: report.points.iter().map(PointTables::new).collect(),
        published: tables::published(report),
        paths: tables::paths(report),
        figures: figures.collect(),
        cells: tables::cells(report),
        notes: report.notes().collect(),
        settings: settings(report),
        length: report.length(),
        experiment: toml::to_string_pretty(&report.experiment)
            .unwrap_or_else(|error| format!("# cannot be shown: {error}")),
    };
    page.render().map_err(|error| LabError::Io("cannot make the page".to_owned(), std::io::Error::other(error)))
}

/// Makes the page of a comparison.
pub(super) fn comparison(comparison: &Comparison) -> Result<String, LabError> {
    let page = ComparisonPage {
        comparison,
        table: comparison.table(),
        began: comparison.runs.iter().map(|run| date(run.began_unix_s)).collect(),
    };
    page.render().map_err(|error| LabError::Io("cannot make the page".to_owned(), std::io::Error::other(error)))
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    report: &'a Report,
    began: String,
    seeds: String,
    invalid: Vec<String>,
    points: Vec<PointTables<'a>>,
    published: Table,
    paths: Table,
    figures: Vec<Figure>,
    cells: Table,
    notes: Vec<String>,
    /// Names of the points that share a setting, and the setting as TOML.
    settings: Vec<(String, &'a str)>,
    experiment: String,
    length: String,
}

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparisonPage<'a> {
    comparison: &'a Comparison,
    table: Table,
    began: Vec<String>,
}

struct PointTables<'a> {
    label: &'a str,
    facts: String,
    has_nothing: Option<&'static str>,
    times: Table,
    costs: Table,
    troubles: Vec<String>,
    ideal_is_bound: &'a str,
}

impl<'a> PointTables<'a> {
    fn new(point: &'a super::PointReport) -> Self {
        Self {
            label: if point.label.is_empty() { "All" } else { &point.label },
            facts: format!("{:.0} requests a seed, load {:.3} counted on the wire", point.requests, point.load),
            has_nothing: point.has_nothing(),
            times: tables::times(point),
            costs: tables::costs(point),
            troubles: tables::troubles(point),
            ideal_is_bound: &point.ideal_is_bound,
        }
    }
}

struct Figure {
    svg: String,
    caption: String,
    numbers: Option<Table>,
}

impl Figure {
    fn new(number: usize, plot: &Plot) -> Self {
        Self { svg: inline_svg(plot, number), caption: caption(plot, number), numbers: tables::of_plot(plot) }
    }
}

/// The caption of a plot, which has its title in itself.
pub(crate) fn caption(plot: &Plot, number: usize) -> String {
    let over = if plot.x.label.is_empty() { String::new() } else { format!(" over {}", plot.x.label) };
    format!("Figure {number}: {}{over}.", plot.y.label)
}

/// Converts a text to HTML. Words between backticks become code.
pub(crate) fn marked(text: &str) -> String {
    let mut html = String::new();
    let parts: Vec<&str> = text.split('`').collect();
    for (number, part) in parts.iter().enumerate() {
        let opens = number % 2 == 1;
        // A backtick without a partner stays a backtick.
        let closed = number + 1 < parts.len();
        html += match (opens, closed) {
            (true, true) => "<code>",
            (true, false) => "`",
            (false, _) => "",
        };
        for character in part.chars() {
            match character {
                '&' => html += "&amp;",
                '<' => html += "&lt;",
                '>' => html += "&gt;",
                '"' => html += "&quot;",
                other => html.push(other),
            }
        }
        if opens && closed {
            html += "</code>";
        }
    }
    html
}

/// Lists each distinct setting once, with the names of all points that share it.
fn settings(report: &Report) -> Vec<(String, &str)> {
    let mut settings: Vec<(String, &str)> = Vec::new();
    for point in &report.points {
        let label = if point.label.is_empty() { "All" } else { &point.label };
        match settings.iter_mut().find(|(_, toml)| *toml == point.setting) {
            Some((names, _)) => *names = format!("{names}; {label}"),
            None => settings.push((label.to_owned(), &point.setting)),
        }
    }
    settings
}

fn list(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// A date in UTC, to the second.
pub(crate) fn date(unix_s: u64) -> String {
    let moment = i64::try_from(unix_s).ok().and_then(|s| UtcDateTime::from_unix_timestamp(s).ok());
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    moment.and_then(|moment| moment.format(format).ok()).unwrap_or_else(|| format!("{unix_s} s after 1970"))
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn words_between_backticks_become_code_and_everything_else_is_text() {
        assert_eq!(marked("take `a<b`, or \"c\" & d"), "take <code>a&lt;b</code>, or &quot;c&quot; &amp; d");
        assert_eq!(marked("`a` and `b"), "<code>a</code> and `b");
        assert_eq!(marked("plain"), "plain");
    }
}
