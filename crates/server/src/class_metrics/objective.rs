//! Objectives, watched over a window that slides by tenths.
//!
//! Workers only count. The watcher reads the counters regularly and keeps the readings of the last window.
//! The window's values are the differences between the newest and the oldest reading.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use histogram::Histogram;

use crate::config::Objective;

/// Number of steps in which a window slides.
const PARTS: u32 = 10;
/// Shortest window. A shorter one would contain too few requests.
const LEAST_WINDOW: Duration = Duration::from_secs(1);

/// A reading of the counters that objectives use.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub responses: u64,
    /// Refused, or answered 5xx.
    pub failed: u64,
    /// Requests with a counted system time, and the sum of these times.
    pub timed: u64,
    pub sum_us: u64,
    pub fine: Option<Histogram>,
}

/// One objective, and whether it is met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The measured quantity.
    pub kind: GoalKind,
    /// The promised limit: seconds, or the part of requests that may fail.
    pub target: f64,
    /// The value over the last window; `None`: it had no requests.
    pub value: Option<f64>,
    /// The numbers behind the value, to be added up over gateways: requests of the window, and a sum. The sum is that
    /// of their times in seconds, or how many of them failed, or how many took longer than a percentile may.
    pub counted: (u64, f64),
    /// Whether it is met. Without requests it stays as before. `None`: not known yet.
    pub met: Option<bool>,
}

/// The quantity of an objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalKind {
    /// The mean system time.
    Mean,
    /// A percentile, in percent, of the system time.
    Percentile(f64),
    /// The part of requests that fail.
    ErrorRate,
}

impl fmt::Display for GoalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Percentile(percent) => write!(f, "p{percent}"),
            Self::ErrorRate => f.write_str("error_rate"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    objective: Objective,
    /// The oldest first. The first one is a window old, or the oldest available.
    readings: VecDeque<(Instant, Reading)>,
    goals: Vec<Goal>,
}

impl Watch {
    /// Starts with a first reading.
    pub fn begin(&mut self, now: Instant, reading: Reading) {
        self.readings.push_back((now, reading));
    }

    /// Changes the objective.
    pub fn follow(&mut self, objective: Objective) {
        if self.objective == objective {
            return;
        }
        let seconds = |time: Duration| time.as_secs_f64();
        let goal = |kind, target| Goal { kind, target, value: None, counted: (0, 0.0), met: None };
        self.goals = [
            objective.mean.map(|mean| goal(GoalKind::Mean, seconds(mean))),
            objective.percentile.map(|(percent, most)| goal(GoalKind::Percentile(percent), seconds(most))),
            objective.error_rate.map(|rate| goal(GoalKind::ErrorRate, rate)),
        ]
        .into_iter()
        .flatten()
        .collect();
        self.objective = objective;
    }

    /// Checks the objective against a new reading, and logs when it becomes met or missed.
    pub fn look(&mut self, now: Instant, class: &str, reading: Reading) {
        let window = self.objective.window.max(LEAST_WINDOW);
        while self.readings.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.readings.pop_front();
        }
        let Some((_, before)) = self.readings.front() else { return };
        for goal in &mut self.goals {
            goal.value = value(goal.kind, before, &reading);
            goal.counted = counted(goal, before, &reading);
            let Some(value) = goal.value else { continue };
            let met = value <= goal.target;
            let (objective, target) = (goal.kind, goal.target);
            match (goal.met.replace(met), met) {
                (None | Some(true), false) => {
                    tracing::warn!(class, %objective, value, target, "a class does not have what was promised to it");
                }
                (Some(false), true) => {
                    tracing::info!(class, %objective, value, target, "a class has what was promised to it again");
                }
                _ => {}
            }
        }
        let (last, _) = self.readings.back().expect("there is a first one");
        if now.saturating_duration_since(*last) >= window / PARTS {
            self.readings.push_back((now, reading));
        }
    }

    pub fn goals(&self) -> Vec<Goal> {
        self.goals.clone()
    }
}

/// The value between two readings; `None` without requests.
fn value(kind: GoalKind, before: &Reading, now: &Reading) -> Option<f64> {
    let part = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    match kind {
        GoalKind::Mean => {
            part(now.sum_us.saturating_sub(before.sum_us), now.timed.saturating_sub(before.timed)).map(|us| us / 1e6)
        }
        GoalKind::ErrorRate => {
            part(now.failed.saturating_sub(before.failed), now.responses.saturating_sub(before.responses))
        }
        GoalKind::Percentile(percent) => {
            let since = now.fine.as_ref()?.wrapping_sub(before.fine.as_ref()?).ok()?;
            let bucket = since.quantile_bucket((percent / 100.0).clamp(0.0, 1.0)).ok()??;
            // The exact value within the bucket is unknown. The lower end never reports a met objective as
            // missed.
            Some(bucket.start() as f64 / 1e6)
        }
    }
}

/// Requests between two readings, and the sum that makes the value of a goal.
fn counted(goal: &Goal, before: &Reading, now: &Reading) -> (u64, f64) {
    let timed = now.timed.saturating_sub(before.timed);
    match goal.kind {
        GoalKind::Mean => (timed, now.sum_us.saturating_sub(before.sum_us) as f64 / 1e6),
        GoalKind::ErrorRate => {
            (now.responses.saturating_sub(before.responses), now.failed.saturating_sub(before.failed) as f64)
        }
        GoalKind::Percentile(_) => {
            let fine = now.fine.as_ref().zip(before.fine.as_ref());
            let since = fine.and_then(|(now, before)| now.wrapping_sub(before).ok());
            let longer = |start_us: u64| start_us as f64 / 1e6 > goal.target;
            let over: u64 = (since.iter().flat_map(|since| since.iter()))
                .filter(|bucket| longer(bucket.start()))
                .map(|bucket| bucket.count())
                .sum();
            (timed, over as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use scheduler::{admission::Refusal, class::ClassId};

    use super::{
        super::{ClassMetrics, ClassOutcome, tests::classes},
        *,
    };

    fn promised(objective: Objective) -> (ClassMetrics, Instant) {
        let mut classes = classes(&["gold"]);
        classes.classes[0].objective = objective;
        (ClassMetrics::new(&classes, 1), Instant::now())
    }

    fn serve(metrics: &ClassMetrics, ms: u64, status: StatusCode, refused: Option<Refusal>) {
        let system_time = Duration::from_millis(ms);
        let failed = status.is_server_error();
        let outcome =
            ClassOutcome { waited: None, service: None, system_time, status, refused, failed, complete: true };
        metrics.record(ClassId(0), &outcome);
    }

    fn goal(metrics: &ClassMetrics) -> Goal {
        metrics.of(ClassId(0)).goals()[0]
    }

    fn after(start: Instant, s: u64) -> Instant {
        start + Duration::from_secs(s)
    }

    #[test]
    fn the_mean_is_that_of_the_last_window() {
        let mean = Some(Duration::from_millis(100));
        let window = Duration::from_secs(20);
        let (metrics, start) = promised(Objective { mean, window, ..Objective::default() });
        metrics.watch(start);
        assert_eq!((goal(&metrics).value, goal(&metrics).met), (None, None), "nobody has asked for anything");
        for ms in [100, 300] {
            serve(&metrics, ms, StatusCode::OK, None);
        }
        for s in 1..=10 {
            metrics.watch(after(start, s));
            assert_eq!((goal(&metrics).value, goal(&metrics).met), (Some(0.2), Some(false)));
        }
        serve(&metrics, 20, StatusCode::OK, None);
        metrics.watch(after(start, 11));
        assert_eq!(goal(&metrics).value, Some(0.14));
        // The slow requests leave the window first.
        metrics.watch(after(start, 23));
        assert_eq!((goal(&metrics).value, goal(&metrics).met), (Some(0.02), Some(true)));
        metrics.watch(after(start, 60));
        metrics.watch(after(start, 61));
        assert_eq!((goal(&metrics).value, goal(&metrics).met), (None, Some(true)), "as it was last");
    }

    #[test]
    fn a_percentile_is_found_to_one_part_in_64() {
        let percentile = Some((95.0, Duration::from_millis(250)));
        let window = Duration::from_secs(60);
        let (metrics, start) = promised(Objective { percentile, window, ..Objective::default() });
        for ms in 1..=100 {
            serve(&metrics, ms * 2, StatusCode::OK, None);
        }
        metrics.watch(after(start, 1));
        let value = goal(&metrics).value.unwrap();
        assert!((0.187..=0.190).contains(&value), "{value}");
        assert_eq!(goal(&metrics).met, Some(true));
        for _ in 0..6 {
            serve(&metrics, 900, StatusCode::OK, None);
        }
        metrics.watch(after(start, 2));
        assert_eq!(goal(&metrics).met, Some(false), "6 of 106 are too slow");
        assert_eq!(goal(&metrics).counted, (106, 6.0));
        assert_eq!(goal(&metrics).kind.to_string(), "p95");
    }

    #[test]
    fn a_percentile_that_is_just_kept_is_kept() {
        let most = Duration::from_micros(499_777);
        let window = Duration::from_secs(60);
        let objective = Objective { percentile: Some((50.0, most)), window, ..Objective::default() };
        let (metrics, start) = promised(objective);
        let outcome = ClassOutcome {
            waited: None,
            service: None,
            system_time: most,
            status: StatusCode::OK,
            refused: None,
            failed: false,
            complete: true,
        };
        metrics.record(ClassId(0), &outcome);
        metrics.watch(after(start, 1));
        assert_eq!(goal(&metrics).met, Some(true));
    }

    #[test]
    fn refusals_and_errors_of_ours_are_failures_and_those_of_clients_are_not() {
        let window = Duration::from_secs(60);
        let (metrics, start) = promised(Objective { error_rate: Some(0.5), window, ..Objective::default() });
        serve(&metrics, 1, StatusCode::NOT_FOUND, None);
        serve(&metrics, 1, StatusCode::BAD_GATEWAY, None);
        metrics.watch(after(start, 1));
        assert_eq!((goal(&metrics).value, goal(&metrics).met), (Some(0.5), Some(true)));
        serve(&metrics, 1, StatusCode::TOO_MANY_REQUESTS, Some(Refusal::QueueFull));
        serve(&metrics, 1, StatusCode::SERVICE_UNAVAILABLE, Some(Refusal::WaitedTooLong));
        metrics.watch(after(start, 2));
        assert_eq!((goal(&metrics).value, goal(&metrics).met), (Some(0.75), Some(false)));
    }

    #[test]
    fn a_changed_promise_is_judged_by_what_is_known_already() {
        let window = Duration::from_secs(60);
        let (metrics, start) = promised(Objective { window, ..Objective::default() });
        serve(&metrics, 80, StatusCode::OK, None);
        metrics.watch(after(start, 1));
        assert!(metrics.of(ClassId(0)).goals().is_empty());
        let mut classes = classes(&["gold"]);
        classes.classes[0].objective =
            Objective { mean: Some(Duration::from_millis(50)), window, ..Objective::default() };
        let metrics = metrics.renewed(&classes);
        metrics.watch(after(start, 2));
        assert_eq!(goal(&metrics).met, Some(false));
    }
}
