//! What became of each request, and the file of it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use serde::Serialize;

use super::plan::Plan;
use crate::LabError;

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Number of the user.
    pub(super) user: usize,
    /// Number of the user's class.
    pub(super) class: usize,
    /// Number of the page.
    pub(super) page: usize,
    /// When it was sent, in seconds from the beginning of the run.
    pub(super) at_s: f64,
    /// From then until its end: the system time of an answer, and else for how long it was waited for.
    pub(super) took_s: f64,
    pub(super) end: End,
    /// The time that the page itself took, as it says.
    pub(super) page_s: Option<f64>,
    /// Of an unfinished request that was answered after all, after the end of the run: from when it was sent until then.
    pub(super) late_s: Option<f64>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// With a whole answer of this status, 200 to 299.
    Answered(u16),
    /// With 502, 503 or 504: somebody on the way, or the site, would not or could not.
    Refused(u16),
    /// With another status.
    Wrong(u16),
    /// The user's patience was over.
    TimedOut,
    /// No connection, or it broke.
    Failed(String),
    /// The run was over.
    Unfinished,
}

impl End {
    /// By the status of a whole answer.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Answered(status),
            502..=504 => Self::Refused(status),
            _ => Self::Wrong(status),
        }
    }

    /// How it is called where requests are counted.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Answered(_) => "answered".to_owned(),
            Self::Refused(status) | Self::Wrong(status) => status.to_string(),
            Self::TimedOut => "timed out".to_owned(),
            Self::Failed(_) => "failed".to_owned(),
            Self::Unfinished => "unfinished".to_owned(),
        }
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Answered(status) | Self::Refused(status) | Self::Wrong(status) => Some(*status),
            _ => None,
        }
    }
}

impl Outcome {
    /// When it ended, in seconds from the beginning of the run.
    pub(super) fn ended_s(&self) -> f64 {
        self.at_s + self.took_s
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.end, End::Answered(_))
    }

    /// Its system time, or the least that it can be: who lost patience would have waited for longer. `None` of one that got no
    /// page, soon or late, and of one that the end of the run cut off: what ended before is a fair sample without it.
    pub(super) fn system_s(&self) -> Option<f64> {
        matches!(self.end, End::Answered(_) | End::TimedOut).then_some(self.took_s)
    }

    /// When the page began and ended, if it says how long it took.
    pub(super) fn ran_s(&self) -> Option<(f64, f64)> {
        let until = self.at_s + self.late_s.unwrap_or(self.took_s);
        // What the page counts begins after the request was sent, whatever the clocks' grain.
        self.page_s.map(|page_s| ((until - page_s).max(self.at_s), until))
    }
}

/// How many requests ended how.
pub(super) fn counted<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.end.name()).or_default() += 1;
    }
    counts
}

/// Writes the requests, a JSON object a line.
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

/// An outcome as other programs read it: names for numbers, and milliseconds.
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
