//! The results as numbers.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use super::{
    curves::Curves,
    gateway::Programs,
    measured::Measured,
    outage,
    outcome::{self, End, Outcome},
    plan::Plan,
    stats::{self, Settle, Settled, Span, mean},
    subject::Subject,
    users::Alone,
    windows,
};
use crate::run::machine;

/// The start of the experiment and its versions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunStart {
    pub(super) unix_s: u64,
    pub(super) command: String,
    pub(super) versions: Vec<String>,
    pub(super) quick: bool,
}

impl RunStart {
    pub(super) fn now(programs: &Programs, plan: &Plan, quick: bool) -> Self {
        let mut versions = machine::machine();
        for version in plan.subjects.iter().filter_map(|subject| programs.version(subject)) {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        Self { unix_s: unix_s(), command: machine::command(), versions, quick }
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) begun: RunStart,
    pub(super) given: Parameters,
    /// Each page of the site without a gateway, before all runs.
    pub(super) site_alone: BTreeMap<String, Alone>,
    pub(super) rows: Vec<Row>,
    /// Subjects that could not be measured, and why.
    pub(super) failed: Vec<(String, String)>,
    #[serde(skip)]
    pub(super) curves: Vec<Curves>,
}

/// The parameters of the experiment.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    pub(super) site: String,
    pub(super) pages: Vec<String>,
    pub(super) classes: Vec<String>,
    pub(super) users: usize,
    /// Number of users of each class for each page.
    pub(super) users_each: Vec<usize>,
    pub(super) targets: Vec<f64>,
    pub(super) seed: u64,
    pub(super) think_s: f64,
    pub(super) timeout_s: f64,
    pub(super) seconds: u32,
    pub(super) warm_up_s: u32,
    pub(super) last_s: u32,
    pub(super) silence: Option<(u32, u32)>,
    pub(super) drain_s: u32,
    pub(super) window_s: u32,
    pub(super) tolerance: f64,
    pub(super) cut: Option<(u32, u32)>,
}

/// The results of a subject.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) subject: String,
    /// Short and unique.
    pub(super) label: String,
    pub(super) share: Option<String>,
    pub(super) kind: Kind,
    /// All requests of the whole run, counted by their ends, for each class.
    pub(super) ends: Vec<BTreeMap<String, usize>>,
    /// Requests of the whole run without an answer when `drain` was over.
    pub(super) never_answered: usize,
    /// Over all pages and classes, after the warm-up.
    pub(super) all: Sums,
    /// By page.
    pub(super) pages: Vec<PageRow>,
    /// By class.
    pub(super) classes: Vec<Sums>,
    /// By class and page.
    pub(super) groups: Vec<Vec<Sums>>,
    /// Ratios in the last part.
    pub(super) ratios: Ratios,
    /// Settling after the silence, or after the warm-up without one.
    pub(super) settled: Settled,
    pub(super) cut: Option<CutRow>,
    /// Errors that users met, other than refusals, with their counts; the first few.
    pub(super) reasons: Vec<(String, usize)>,
}

/// The comparisons to which subjects belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Uncontrolled,
    Single,
    Multi,
    Other,
}

/// Sums over requests that ended in a part of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sums {
    /// Answers per second.
    pub(super) throughput: f64,
    /// Mean seconds from a request to its complete answer; requests that users gave up count with the time
    /// until then.
    pub(super) system_s: Option<f64>,
    /// Whether users gave up requests, so that the mean is a lower bound.
    pub(super) is_bound: bool,
    /// Mean seconds of the pages' own times, over answers that report them.
    pub(super) service_s: Option<f64>,
    /// Mean of the rest of the same answers' system times.
    pub(super) queueing_s: Option<f64>,
    /// Mean number of pages running at once.
    pub(super) running: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct PageRow {
    #[serde(flatten)]
    pub(super) sums: Sums,
    /// The window as given.
    pub(super) window: Option<u32>,
    pub(super) bound: Option<String>,
    /// The window as the gateway reported it, after the warm-up.
    pub(super) adjusted: Option<windows::Adjusted>,
    pub(super) alone: Option<Alone>,
}

/// The classes' mean system times over that of the first.
#[derive(Debug, Serialize)]
pub(super) struct Ratios {
    /// Means of all requests, as in the paper.
    pub(super) plain: Vec<Option<f64>>,
    /// Each request's time divided by the usual one of its page.
    pub(super) alike: Vec<Option<f64>>,
    /// By page.
    pub(super) pages: Vec<Vec<Option<f64>>>,
}

/// Results before, during and after the outage of the database.
#[derive(Debug, Serialize)]
pub(super) struct CutRow {
    pub(super) done: outage::OutageTimes,
    /// By page: answers per second in the three parts.
    pub(super) throughput: Vec<[f64; 3]>,
    /// By page: seconds from the database's start until it was back.
    pub(super) back_after_s: Vec<Option<u32>>,
    /// The page that needs the database: ends of its requests in the three parts.
    pub(super) ends: [BTreeMap<String, usize>; 3],
}

/// The fraction of its throughput at which a page is back.
pub(super) const BACK: f64 = 0.9;
/// Number of reasons shown.
const REASONS: usize = 5;

impl Report {
    pub(super) fn new(plan: &Plan, begun: RunStart, site_alone: BTreeMap<String, Alone>) -> Self {
        let given = Parameters {
            site: plan.site.url.clone(),
            pages: plan.pages.iter().map(|page| page.name.clone()).collect(),
            classes: plan.classes.iter().map(|class| class.name.clone()).collect(),
            users: plan.users(),
            users_each: plan.classes.iter().map(|class| class.users).collect(),
            targets: plan.targets(),
            seed: plan.seed,
            think_s: plan.think_s,
            timeout_s: plan.timeout_s,
            seconds: plan.seconds,
            warm_up_s: plan.warm_up_s,
            last_s: plan.last_s,
            silence: plan.silence,
            drain_s: plan.drain_s,
            window_s: plan.window_s,
            tolerance: plan.tolerance,
            cut: plan.cut.as_ref().map(|cut| (cut.from_s, cut.until_s)),
        };
        Self { begun, given, site_alone, rows: Vec::new(), failed: Vec::new(), curves: Vec::new() }
    }

    /// Adds a subject, measured or failed.
    pub(super) fn take(&mut self, plan: &Plan, subject: &Subject, measured: Result<&Measured, String>) {
        match measured {
            Ok(measured) => {
                let mut row = Row::new(plan, subject, measured);
                let same = self.rows.iter().filter(|other| other.subject_label() == row.label).count();
                if same > 0 {
                    row.label += &format!(" #{}", same + 1);
                }
                self.curves.push(Curves::new(plan, measured));
                self.rows.push(row);
            }
            Err(reason) => self.failed.push((subject.to_string(), reason)),
        }
    }

    /// Whether all subjects were measured.
    pub(super) fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    /// The row to compare with: of several, the one with the best throughput.
    pub(super) fn baseline(&self, kind: Kind) -> Option<&Row> {
        let of_kind = self.rows.iter().filter(|row| row.kind == kind);
        of_kind.max_by(|a, b| a.all.throughput.total_cmp(&b.all.throughput))
    }
}

impl Row {
    fn new(plan: &Plan, subject: &Subject, measured: &Measured) -> Self {
        let outcomes = &measured.outcomes[..];
        let (counted, last) = (plan.counted(), plan.last());
        let (pages, classes) = (plan.pages.len(), plan.classes.len());
        let sums = |of: &dyn Fn(&&Outcome) -> bool| Sums::new(outcomes, counted, of);
        let all = sums(&|_| true);
        let page_row = |page: usize| {
            let name = &plan.pages[page].name;
            let window = subject.window_of(name);
            PageRow {
                sums: sums(&|outcome| outcome.page == page),
                window: window.map(|(window, _)| window),
                adjusted: windows::adjusted(&measured.windows, page, counted),
                bound: window.and_then(|(_, bound)| bound.map(str::to_owned)),
                alone: measured.alone.get(name).copied(),
            }
        };
        let usual_s = stats::usual_s(last.of(outcomes), pages);
        let settle = Settle {
            since_s: plan.silence.map_or(plan.warm_up_s, |(_, until_s)| until_s),
            until_s: plan.seconds,
            window_s: plan.window_s,
            tolerance: plan.tolerance,
        };
        let plain = vec![1.0; pages];
        Self {
            subject: subject.to_string(),
            label: subject.label(),
            share: subject.share().map(str::to_owned),
            kind: match subject {
                Subject::Uncontrolled => Kind::Uncontrolled,
                Subject::Single { .. } => Kind::Single,
                Subject::Multi { .. } => Kind::Multi,
                Subject::Direct | Subject::HaProxy { .. } => Kind::Other,
            },
            ends: (0..classes).map(|class| outcome::counted(outcomes.iter().filter(|o| o.class == class))).collect(),
            never_answered: outcomes.iter().filter(|o| o.end == End::Unfinished && o.late_s.is_none()).count(),
            all,
            pages: (0..pages).map(page_row).collect(),
            classes: (0..classes).map(|class| sums(&|outcome| outcome.class == class)).collect(),
            groups: (0..classes)
                .map(|class| (0..pages).map(|page| sums(&|o| o.class == class && o.page == page)).collect())
                .collect(),
            ratios: Ratios {
                plain: stats::ratios(last.of(outcomes), classes, &plain),
                alike: stats::ratios(last.of(outcomes), classes, &usual_s),
                pages: (0..pages)
                    .map(|page| stats::ratios(last.of(outcomes).filter(move |o| o.page == page), classes, &plain))
                    .collect(),
            },
            settled: settle.measure(outcomes, &plan.targets(), &usual_s),
            cut: measured.cut.and_then(|done| CutRow::new(plan, outcomes, done)),
            reasons: reasons(outcomes),
        }
    }

    /// The label without the number added to it.
    fn subject_label(&self) -> &str {
        self.label.split(" #").next().unwrap_or_default()
    }
}

impl Sums {
    fn new(outcomes: &[Outcome], span: Span, of: &dyn Fn(&&Outcome) -> bool) -> Self {
        let mine = || span.of(outcomes).filter(of);
        let parts = || mine().filter(|o| o.is_answered()).filter_map(|o| Some((o.page_s?, o.took_s)));
        Self {
            throughput: stats::throughput(mine(), span),
            system_s: mean(mine().filter_map(Outcome::system_s)),
            is_bound: mine().any(|outcome| outcome.end == End::TimedOut),
            service_s: mean(parts().map(|(page_s, _)| page_s)),
            queueing_s: mean(parts().map(|(page_s, took_s)| (took_s - page_s).max(0.0))),
            // Requests that ended later also ran then.
            running: stats::running_in(outcomes.iter().filter(of), span),
        }
    }
}

impl CutRow {
    fn new(plan: &Plan, outcomes: &[Outcome], done: outage::OutageTimes) -> Option<Self> {
        let cut = plan.cut.as_ref()?;
        let before = Span::new(plan.warm_up_s, cut.from_s);
        let spans = [before, Span::new(cut.from_s, cut.until_s), Span::new(cut.until_s, plan.seconds)];
        let of = |page: usize, span: Span| span.of(outcomes).filter(move |outcome| outcome.page == page);
        let pages = 0..plan.pages.len();
        let throughput: Vec<[f64; 3]> =
            pages.map(|page| spans.map(|span| stats::throughput(of(page, span), span))).collect();
        let back = |(page, [before, ..]): (usize, &[f64; 3])| {
            stats::back_after_s(outcomes, page, BACK * before, cut.until_s, plan.seconds, plan.window_s)
        };
        Some(Self {
            done,
            back_after_s: throughput.iter().enumerate().map(back).collect(),
            throughput,
            ends: spans.map(|span| outcome::counted(of(cut.page, span))),
        })
    }
}

/// The most frequent reasons first.
fn reasons(outcomes: &[Outcome]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let End::Failed(reason) = &outcome.end {
            *counts.entry(reason).or_default() += 1;
        }
    }
    let mut reasons: Vec<(String, usize)> = counts.into_iter().map(|(reason, n)| (reason.to_owned(), n)).collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons.truncate(REASONS);
    reasons
}
