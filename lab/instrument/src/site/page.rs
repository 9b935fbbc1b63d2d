//! The report as an HTML page, like all pages of the lab: one file, no script, no external resources.

use askama::Template;
use chart::{Plot, Table, inline_svg};

use super::{figures, report::Report, tables};
use crate::{
    LabError,
    report::{caption, date, marked},
};

pub(super) const TITLE: &str = "Gateways in front of a site of several resources";
pub(super) const SOURCE: &str = "\"Multiple-resource Request Scheduling Algorithms for Proportional System-time Differentiation at \
                                 Website Gateway\", chapter 4";

pub(super) fn page(report: &Report) -> Result<String, LabError> {
    let figure = |(number, plot): (usize, &Plot)| {
        let number = number + 1;
        (inline_svg(plot, number), caption(plot, number))
    };
    let mut tables = tables::all(report);
    tables.push(tables::groups(report));
    tables.retain(|table| !table.rows.is_empty());
    let page = SitePage {
        report,
        title: TITLE,
        source: SOURCE,
        began: date(report.begun.unix_s),
        asked: tables::asked(report),
        subjects: tables::subjects(report),
        tables,
        figures: figures::plots(report).iter().enumerate().map(figure).collect(),
        notes: tables::notes(report),
    };
    page.render().map_err(|error| LabError::Io("cannot make the page".to_owned(), std::io::Error::other(error)))
}

#[derive(Template)]
#[template(path = "site.html")]
struct SitePage<'a> {
    report: &'a Report,
    title: &'static str,
    source: &'static str,
    began: String,
    asked: Vec<String>,
    subjects: Table,
    tables: Vec<Table>,
    /// Drawing and caption.
    figures: Vec<(String, String)>,
    notes: Vec<String>,
}
