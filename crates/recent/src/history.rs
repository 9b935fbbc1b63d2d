//! The numbers of the last hour.

use std::{array, collections::VecDeque, sync::Arc};

use serde::Serialize;

use crate::by_size::{SIZE_NAMES, SizeTotal};

/// Points of a second that are kept: five minutes.
const SECONDS: usize = 300;
/// Readings between two points of the last hour.
const STEP: u32 = 10;
/// Points of the last hour.
const STEPS: usize = 360;

/// All counters at a moment. Counts only ever grow, but for those of a class that is new.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The moment, in seconds since 1970.
    pub at_s: f64,
    /// Wire bytes charged to the uplink.
    pub uplink_bytes: u64,
    /// The rate that the uplink is paced at, in bits per second.
    pub rate_bits_per_second: Option<u64>,
    /// Responses that wait for their turn.
    pub waiting: usize,
    /// Responses under way.
    pub under_way: usize,
    /// Responses by hundreds of their status, from 1xx on.
    pub responses: [u64; 5],
    /// Responses cut off.
    pub incomplete: u64,
    /// Response times by size.
    pub by_size: [SizeTotal; SIZE_NAMES.len()],
    /// The classes.
    pub classes: Vec<ClassReading>,
    /// Resources of the site.
    pub resources: Vec<ResourcePoint>,
}

/// The counters of a class.
#[derive(Clone, Debug, Default)]
pub struct ClassReading {
    /// Its name.
    pub name: Arc<str>,
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests that hold one.
    pub running: usize,
    /// Requests that were not let in.
    pub refused: u64,
    /// Its responses and their system times.
    pub system_times: SizeTotal,
    /// Whether its objectives are met; `None`: it has none, or no requests.
    pub met: Option<bool>,
}

/// A resource of the site.
#[derive(Clone, Debug, Serialize)]
pub struct ResourcePoint {
    /// Its name.
    pub name: Arc<str>,
    /// Requests let in at once, if there is a limit.
    pub window: Option<u32>,
    /// Requests at the site.
    pub running: u32,
}

/// The measures of the time between two readings.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The later moment, in seconds since 1970.
    pub at_s: f64,
    /// Wire bits per second.
    pub uplink_bits_per_second: f64,
    /// The rate that the uplink is paced at, in bits per second.
    pub rate_bits_per_second: Option<u64>,
    /// Responses that wait for their turn.
    pub waiting: usize,
    /// Responses under way.
    pub under_way: usize,
    /// Responses per second.
    pub responses_per_second: f64,
    /// Those of status 5xx.
    pub errors_per_second: f64,
    /// Those that were cut off.
    pub incomplete_per_second: f64,
    /// The mean response time by size, in seconds; `None`: there was no response of that size.
    pub response_time_s: [Option<f64>; SIZE_NAMES.len()],
    /// Responses per second by size.
    pub size_per_second: [f64; SIZE_NAMES.len()],
    /// The classes at the later moment.
    pub classes: Vec<ClassPoint>,
    /// Resources of the site at the later moment.
    pub resources: Vec<ResourcePoint>,
}

/// A class between two readings.
#[derive(Clone, Debug, Serialize)]
pub struct ClassPoint {
    /// Its name.
    pub name: Arc<str>,
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests that hold one.
    pub running: usize,
    /// Requests per second that were not let in.
    pub refused_per_second: f64,
    /// Responses per second.
    pub responses_per_second: f64,
    /// The mean system time, in seconds; `None`: no response has ended.
    pub system_time_s: Option<f64>,
    /// Whether its objectives are met; `None`: it has none, or no requests.
    pub met: Option<bool>,
}

/// The last five minutes by the second, and the last hour by ten seconds. Older points are forgotten.
#[derive(Debug, Default)]
pub struct History {
    last: Option<Reading>,
    last_step: Option<Reading>,
    readings: u32,
    seconds: VecDeque<Point>,
    steps: VecDeque<Point>,
}

impl History {
    /// Takes a reading; to be called every second.
    pub fn record(&mut self, reading: Reading) {
        if let Some(last) = &self.last {
            keep(&mut self.seconds, SECONDS, between(last, &reading));
        }
        if self.readings.is_multiple_of(STEP) {
            if let Some(last) = &self.last_step {
                keep(&mut self.steps, STEPS, between(last, &reading));
            }
            self.last_step = Some(reading.clone());
        }
        self.readings = (self.readings + 1) % STEP;
        self.last = Some(reading);
    }

    /// The points of the last five minutes, the oldest first.
    pub fn seconds(&self) -> impl Iterator<Item = &Point> {
        self.seconds.iter()
    }

    /// The points of the last hour, the oldest first.
    pub fn steps(&self) -> impl Iterator<Item = &Point> {
        self.steps.iter()
    }
}

fn keep(points: &mut VecDeque<Point>, most: usize, point: Point) {
    if points.len() == most {
        points.pop_front();
    }
    points.push_back(point);
}

fn between(before: &Reading, after: &Reading) -> Point {
    // Clocks of the day may be set.
    let elapsed_s = (after.at_s - before.at_s).max(1e-3);
    let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / elapsed_s;
    let responses = |reading: &Reading| reading.responses.iter().sum();
    let sizes: [_; SIZE_NAMES.len()] = array::from_fn(|at| (before.by_size[at], after.by_size[at]));
    let class = |after: &ClassReading| {
        let before = before.classes.iter().find(|before| before.name == after.name).cloned().unwrap_or_default();
        ClassPoint {
            name: after.name.clone(),
            waiting: after.waiting,
            running: after.running,
            refused_per_second: per_second(before.refused, after.refused),
            responses_per_second: per_second(before.system_times.count, after.system_times.count),
            system_time_s: mean_s(before.system_times, after.system_times),
            met: after.met,
        }
    };
    Point {
        at_s: after.at_s,
        uplink_bits_per_second: 8.0 * per_second(before.uplink_bytes, after.uplink_bytes),
        rate_bits_per_second: after.rate_bits_per_second,
        waiting: after.waiting,
        under_way: after.under_way,
        responses_per_second: per_second(responses(before), responses(after)),
        errors_per_second: per_second(before.responses[4], after.responses[4]),
        incomplete_per_second: per_second(before.incomplete, after.incomplete),
        response_time_s: sizes.map(|(before, after)| mean_s(before, after)),
        size_per_second: sizes.map(|(before, after)| per_second(before.count, after.count)),
        classes: after.classes.iter().map(class).collect(),
        resources: after.resources.clone(),
    }
}

fn mean_s(before: SizeTotal, after: SizeTotal) -> Option<f64> {
    let count = after.count.checked_sub(before.count).filter(|&count| count > 0)?;
    Some(after.sum_us.saturating_sub(before.sum_us) as f64 / 1e6 / count as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(at_s: u32, responses: u64) -> Reading {
        let total = SizeTotal { count: responses, sum_us: responses * 2_000 };
        let met = (responses > 20).then_some(responses < 100);
        let class = ClassReading { name: "gold".into(), system_times: total, met, ..ClassReading::default() };
        Reading {
            at_s: at_s.into(),
            uplink_bytes: responses * 1_000,
            responses: [0, responses, 0, 0, 0],
            by_size: [total, SizeTotal::default(), SizeTotal::default(), SizeTotal::default(), SizeTotal::default()],
            classes: vec![class],
            ..Reading::default()
        }
    }

    #[test]
    fn points_are_what_happened_between_readings() {
        let mut history = History::default();
        history.record(reading(100, 5));
        assert_eq!(history.seconds().count(), 0);
        history.record(reading(102, 25));
        let point = history.seconds().next().expect("a point");
        assert_eq!((point.responses_per_second, point.uplink_bits_per_second), (10.0, 80_000.0));
        assert_eq!(point.response_time_s, [Some(0.002), None, None, None, None]);
        assert_eq!(point.size_per_second, [10.0, 0.0, 0.0, 0.0, 0.0]);
        let class = &point.classes[0];
        assert_eq!((class.responses_per_second, class.system_time_s, class.met), (10.0, Some(0.002), Some(true)));
        history.record(reading(103, 200));
        assert_eq!(history.seconds().last().map(|it| it.classes[0].met), Some(Some(false)));
    }

    #[test]
    fn a_class_that_is_new_or_counts_anew_and_a_clock_that_goes_back_do_no_harm() {
        let mut history = History::default();
        history.record(reading(100, 5));
        history.record(Reading { classes: Vec::new(), ..reading(101, 5) });
        history.record(reading(90, 9));
        history.record(reading(91, 2));
        let points: Vec<_> = history.seconds().collect();
        assert_eq!(points[1].classes[0].system_time_s, Some(0.002));
        assert!(points[1].responses_per_second.is_finite());
        assert_eq!((points[2].responses_per_second, points[2].classes[0].system_time_s), (0.0, None));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_both_views_have_seen_the_same(counts in prop::collection::vec(0..50u64, 1..5_000)) {
            let mut history = History::default();
            let mut total = 0;
            for (at, count) in counts.iter().enumerate() {
                total += count;
                history.record(reading(at as u32, total));
            }
            prop_assert_eq!(history.seconds().count(), (counts.len() - 1).min(SECONDS));
            prop_assert_eq!(history.steps().count(), ((counts.len() - 1) / STEP as usize).min(STEPS));
            // Seen by ten seconds is what was seen by the second.
            if let Some(step) = history.steps().last() {
                let end = step.at_s;
                let of_step: Vec<_> = history.seconds().filter(|it| it.at_s > end - 10.0 && it.at_s <= end).collect();
                let sum: f64 = of_step.iter().map(|it| it.responses_per_second).sum();
                prop_assert_eq!(of_step.len(), 10);
                prop_assert!((sum - 10.0 * step.responses_per_second).abs() < 1e-6);
            }
        }
    }
}
