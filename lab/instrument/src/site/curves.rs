//! The curves of a subject over time.

use super::{
    measured::Measured,
    outcome::Outcome,
    plan::Plan,
    stats::{self, Span},
    windows::WindowReading,
};

/// The curves of a subject over time.
#[derive(Debug)]
pub(super) struct Curves {
    /// By class: time, and mean system time in ms of the requests that ended in the window before.
    pub(super) system_ms: Vec<Vec<(f64, f64)>>,
    /// By page and class.
    pub(super) of_pages: Vec<Vec<Vec<(f64, f64)>>>,
    /// Mean number of running pages in each bucket.
    pub(super) running: Vec<(f64, f64)>,
    /// By page: answers per second in each bucket.
    pub(super) throughput: Vec<Vec<(f64, f64)>>,
    /// By page: adjusted windows.
    pub(super) windows: Vec<Vec<(f64, f64)>>,
}

/// Most points on a line.
const POINTS: u32 = 180;

impl Curves {
    pub(super) fn new(plan: &Plan, measured: &Measured) -> Self {
        let outcomes = &measured.outcomes[..];
        let (pages, classes) = (0..plan.pages.len(), 0..plan.classes.len());
        let bucket_s = plan.seconds.div_ceil(POINTS);
        let sliding = |of: &dyn Fn(&Outcome) -> bool| sliding(outcomes, plan, bucket_s, of);
        let middle = |bucket: usize| (bucket as f64 + 0.5) * f64::from(bucket_s);
        let running = stats::running(outcomes.iter(), plan.seconds, bucket_s).unwrap_or_default();
        Self {
            system_ms: classes.clone().map(|class| sliding(&|o| o.class == class)).collect(),
            of_pages: pages
                .clone()
                .map(|page| classes.clone().map(|class| sliding(&|o| o.page == page && o.class == class)).collect())
                .collect(),
            running: running.into_iter().enumerate().map(|(bucket, mean)| (middle(bucket), mean)).collect(),
            windows: pages
                .clone()
                .map(|page| {
                    let of = |seen: &WindowReading| Some((seen.at_s, f64::from(seen.windows[page]?)));
                    measured.windows.iter().filter_map(of).collect()
                })
                .collect(),
            throughput: pages.map(|page| in_buckets(outcomes, plan, bucket_s, page)).collect(),
        }
    }
}

fn sliding(outcomes: &[Outcome], plan: &Plan, step_s: u32, of: &dyn Fn(&Outcome) -> bool) -> Vec<(f64, f64)> {
    // Sums per step, so that each window does not scan all requests.
    let mut steps: Vec<(u32, f64)> = vec![(0, 0.0); plan.seconds.div_ceil(step_s) as usize];
    let whole = Span::new(0, plan.seconds);
    for outcome in whole.of(outcomes).filter(|outcome| of(outcome)) {
        if let (Some(system_s), Some(step)) =
            (outcome.system_s(), steps.get_mut((outcome.ended_s() / f64::from(step_s)) as usize))
        {
            *step = (step.0 + 1, step.1 + system_s);
        }
    }
    let width = plan.window_s.div_ceil(step_s).max(1) as usize;
    let at = |end: usize| {
        let window = &steps[end.saturating_sub(width)..end];
        let (count, sum) = window.iter().fold((0, 0.0), |all, step| (all.0 + step.0, all.1 + step.1));
        (count > 0).then(|| (end as f64 * f64::from(step_s), sum / f64::from(count) * 1e3))
    };
    (1..=steps.len()).filter_map(at).collect()
}

fn in_buckets(outcomes: &[Outcome], plan: &Plan, bucket_s: u32, page: usize) -> Vec<(f64, f64)> {
    let of = |bucket: u32| {
        let span = Span::new(bucket * bucket_s, ((bucket + 1) * bucket_s).min(plan.seconds));
        let answered = stats::throughput(span.of(outcomes).filter(|outcome| outcome.page == page), span);
        ((span.from_s + span.until_s) / 2.0, answered)
    };
    (0..plan.seconds.div_ceil(bucket_s)).map(of).collect()
}
