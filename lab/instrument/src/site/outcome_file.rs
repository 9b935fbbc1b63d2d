//! The file of all outcomes.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use serde::Serialize;

use super::{
    outcome::{End, Outcome},
    plan::Plan,
};
use crate::LabError;

/// Writes the requests, one JSON object per line.
pub(super) fn write(file: &Path, plan: &Plan, outcomes: &[Outcome]) -> Result<(), LabError> {
    let all = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        for outcome in outcomes {
            serde_json::to_writer(&mut out, &Line::new(plan, outcome))?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    all().map_err(LabError::io(format!("cannot write {}", file.display())))
}

/// An outcome for other programs: names instead of numbers, and milliseconds.
#[derive(Serialize)]
struct Line<'a> {
    user: usize,
    class: &'a str,
    page: &'a str,
    at_s: f64,
    took_ms: f64,
    end: &'static str,
    status: Option<u16>,
    page_ms: Option<f64>,
    late_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn new(plan: &'a Plan, outcome: &'a Outcome) -> Self {
        let rounded = |value: f64| (value * 1e6).round() / 1e6;
        let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
        let (end, reason) = match &outcome.end {
            End::Answered(_) => ("answered", None),
            End::Refused(_) => ("refused", None),
            End::Wrong(_) => ("wrong", None),
            End::TimedOut => ("timed-out", None),
            End::Failed(reason) => ("failed", Some(reason.as_str())),
            End::Unfinished => ("unfinished", None),
        };
        Self {
            user: outcome.user,
            class: &plan.classes[outcome.class].name,
            page: &plan.pages[outcome.page].name,
            at_s: rounded(outcome.at_s),
            took_ms: ms(outcome.took_s),
            end,
            status: outcome.end.status(),
            page_ms: outcome.page_s.map(ms),
            late_ms: outcome.late_s.map(ms),
            reason,
        }
    }
}
