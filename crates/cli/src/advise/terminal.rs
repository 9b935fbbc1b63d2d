//! Formats the advice for a terminal, or for 80 columns without one.

use std::fmt::{self, Write as _};

use chart::{Table, aligned, paragraph};
use simulator::advise::{Advice, report::Level, words};

use super::{dates, tables};

/// The whole advice as text.
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", paragraph("", &advice.recommendation.headline));
    facts(&mut out, advice);
    let shown = tables::shown(advice);
    let today = advice.predictions.first().filter(|prediction| !prediction.overloaded);
    let mut show = |table: &Table| {
        let _ = write!(out, "\n{}", Aligned(table));
    };
    if let Some(today) = today {
        show(&tables::times(today));
    }
    show(&tables::growth(advice));
    if let Some(shown) = shown {
        if shown.growth != 1.0 {
            show(&tables::times(shown));
        }
        show(&tables::sizes(shown));
        show(&tables::losers(shown));
    }
    list(&mut out, advice.recommendation.heading(), &advice.recommendation.reasons);
    if let Some(configuration) = &advice.recommendation.configuration {
        out += "\n";
        for line in configuration.lines() {
            let _ = writeln!(out, "{}", format!("    {line}").trim_end());
        }
    }
    list(&mut out, &format!("How sure: {}", level(advice)), &advice.certainty.reasons);
    list(&mut out, "What the model leaves out", &advice.leaves_out);
    out
}

/// The level of certainty in words.
pub fn level(advice: &Advice) -> &'static str {
    match advice.certainty.level {
        Level::High => "high, as far as the model goes",
        Level::Medium => "medium",
        Level::Low => "low",
    }
}

/// Facts about the log, each with a name and a text.
pub fn known(advice: &Advice) -> Vec<(&'static str, String)> {
    let (log, sizes, load) = (&advice.log, &advice.sizes, &advice.load);
    let assumed = if log.has_sizes { "" } else { "ASSUMED: " };
    let mut known = vec![
        ("Log", format!("{} ({})", log.files.join(", "), log.formats.join("; "))),
        (
            "Requests",
            format!("{}, {} to {}", log.requests, dates::minute(log.first_unix_s), dates::minute(log.last_unix_s)),
        ),
        (
            "Sizes",
            format!(
                "{assumed}mean {}, median {}, 99th percentile {}, largest {}; the largest 1 % carry {} of the bytes; {} have no body",
                words::bytes(sizes.mean_bytes),
                words::bytes(sizes.p50_bytes as f64),
                words::bytes(sizes.p99_bytes as f64),
                words::bytes(sizes.largest_bytes as f64),
                words::percent(sizes.bytes_in_largest_percent),
                words::percent(sizes.empty)
            ),
        ),
        (
            "Load",
            format!(
                "{} of {} on average, {} in the busiest hour (from {})",
                words::percent(load.mean),
                words::rate(advice.uplink_bits_per_second),
                words::percent(load.peak),
                dates::minute(load.peak_from_unix_s)
            ),
        ),
    ];
    if log.outside_window > 0 {
        known.push(("Window", format!("{} records lie outside", log.outside_window)));
    }
    let simulated = &advice.simulated;
    if !simulated.whole {
        let hours: f64 = simulated.spans_unix_s.iter().map(|(from, until)| (until - from) / 3600.0).sum();
        let text =
            format!("the {hours:.0} busiest hours, with {} requests, because the log is long", simulated.requests);
        known.push(("Simulated", text));
    }
    known.extend(log.notes.iter().map(|note| ("Note", note.clone())));
    known
}

fn facts(out: &mut String, advice: &Advice) {
    for (name, text) in known(advice) {
        let _ = writeln!(out, "{}", paragraph(&format!("{name:<11}"), &text));
    }
}

fn list(out: &mut String, head: &str, lines: &[String]) {
    let _ = writeln!(out, "\n{head}");
    for line in lines {
        let _ = writeln!(out, "{}", paragraph("  - ", line));
    }
}

struct Aligned<'a>(&'a Table);

impl fmt::Display for Aligned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", paragraph("", &self.0.caption))?;
        aligned(f, self.0)
    }
}
