//! The outcome of each request.

use std::collections::BTreeMap;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Number of the user.
    pub(super) user: usize,
    /// Number of the user's class.
    pub(super) class: usize,
    /// Number of the page.
    pub(super) page: usize,
    /// When it was sent, in seconds from the start of the run.
    pub(super) at_s: f64,
    /// Seconds from then until its end: the system time of an answer, or else the time waited.
    pub(super) took_s: f64,
    pub(super) end: End,
    /// The time that the page reports for itself, in seconds.
    pub(super) page_s: Option<f64>,
    /// For an unfinished request that was answered after the end of the run: seconds from sending to that
    /// answer.
    pub(super) late_s: Option<f64>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// A complete answer with this status, 200 to 299.
    Answered(u16),
    /// 502, 503 or 504: a gateway or the site refused or failed.
    Refused(u16),
    /// Another status.
    Wrong(u16),
    /// The user gave up.
    TimedOut,
    /// The connection failed or broke.
    Failed(String),
    /// The run ended.
    Unfinished,
}

impl End {
    /// The end for the status of a complete answer.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Answered(status),
            502..=504 => Self::Refused(status),
            _ => Self::Wrong(status),
        }
    }

    /// Its name in counts.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Answered(_) => "answered".to_owned(),
            Self::Refused(status) | Self::Wrong(status) => status.to_string(),
            Self::TimedOut => "timed out".to_owned(),
            Self::Failed(_) => "failed".to_owned(),
            Self::Unfinished => "unfinished".to_owned(),
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Answered(status) | Self::Refused(status) | Self::Wrong(status) => Some(*status),
            _ => None,
        }
    }
}

impl Outcome {
    /// When it ended, in seconds from the start of the run.
    pub(super) fn ended_s(&self) -> f64 {
        self.at_s + self.took_s
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.end, End::Answered(_))
    }

    /// Its system time, or a lower bound if the user gave up. `None` if it got no page, or if the end of the
    /// run cut it off: the requests that ended before are a fair sample without it.
    pub(super) fn system_s(&self) -> Option<f64> {
        matches!(self.end, End::Answered(_) | End::TimedOut).then_some(self.took_s)
    }

    /// When the page began and ended, if it reports its time.
    pub(super) fn ran_s(&self) -> Option<(f64, f64)> {
        let until = self.at_s + self.late_s.unwrap_or(self.took_s);
        // The page's own time begins after the request was sent; clocks may be too coarse to show it.
        self.page_s.map(|page_s| ((until - page_s).max(self.at_s), until))
    }
}

/// Counts requests by their ends.
pub(super) fn counted<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.end.name()).or_default() += 1;
    }
    counts
}
