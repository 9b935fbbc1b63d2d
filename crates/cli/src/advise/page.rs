//! The advice as one HTML file without scripts or external resources, in the style of the lab's report.

use askama::Template;
use chart::{Plot, Table, inline_svg};
use simulator::advise::{Advice, report::Verdict, words};

use super::{figures, tables, terminal};
use crate::failure::Failure;

/// The page.
pub fn page(advice: &Advice, command: &str) -> Result<String, Failure> {
    let shown = tables::shown(advice);
    let today = advice.predictions.first().filter(|prediction| !prediction.overloaded);
    let mut sections = Vec::new();
    sections.extend(today.map(tables::times));
    sections.extend(shown.filter(|shown| shown.growth != 1.0).map(tables::times));
    let page = Page {
        advice,
        rate: words::rate(advice.uplink_bits_per_second),
        warns: advice.recommendation.verdict == Verdict::Overloaded,
        level: terminal::level(advice),
        known: terminal::known(advice),
        growth: tables::growth(advice),
        times: sections,
        classes: shown.map(|shown| vec![tables::sizes(shown), tables::losers(shown)]).unwrap_or_default(),
        figures: figures::all(advice).iter().enumerate().map(|(number, plot)| Figure::new(number + 1, plot)).collect(),
        command,
    };
    page.render().map_err(|error| Failure::Run(format!("cannot make the page: {error}")))
}

#[derive(Template)]
#[template(path = "advice.html")]
struct Page<'a> {
    advice: &'a Advice,
    rate: String,
    warns: bool,
    level: &'static str,
    known: Vec<(&'static str, String)>,
    growth: Table,
    times: Vec<Table>,
    classes: Vec<Table>,
    figures: Vec<Figure>,
    command: &'a str,
}

struct Figure {
    svg: String,
    caption: String,
}

impl Figure {
    fn new(number: usize, plot: &Plot) -> Self {
        let of = if plot.subtitle.is_empty() { String::new() } else { format!(" ({})", plot.subtitle) };
        Self { svg: inline_svg(plot, number), caption: format!("Figure {number}. {}{of}.", plot.title) }
    }
}
