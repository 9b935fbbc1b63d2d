//! Counts the outcomes of each class's requests, and watches whether its objective is met.
//!
//! Workers count with relaxed atomics, each in its own shard as far as there are enough; readers add the
//! shards up. Counters belong to a class's name and survive changes of the configuration for as long as the
//! name does.

mod objective;

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{self, Relaxed},
        },
    },
    time::{Duration, Instant},
};

use drivers::admission::ServiceTimes;
use histogram::{AtomicHistogram, Histogram};
use http::StatusCode;
use parking_lot::Mutex;
use scheduler::{admission::Refusal, class::ClassId};

pub use self::objective::{Goal, GoalKind};
use self::objective::{Reading, Watch};
use crate::{
    config::{ClassConfig, Classes, Objective},
    metrics::RESPONSE_TIME_BOUNDS_US,
};

/// Bits of precision of a system time for percentiles: exact to 1 part in 64.
const GROUPING_POWER: u8 = 6;
/// Largest counted system time, in bits of microseconds: 19 hours. Longer ones count as this long.
const MAX_VALUE_POWER: u8 = 36;

/// The counters of all classes, by the class numbers of one configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClassMetrics {
    classes: Arc<[(ClassCounters, Objective)]>,
    shards: usize,
}

/// The counters of one class, whatever its number is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClassCounters(Arc<OfClass>);

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub struct ClassOutcome {
    /// How long it waited for a slot; `None` if it needed none.
    pub waited: Option<Duration>,
    /// How long the site took, if known and not yet counted by its slot
    /// ([`drivers::admission::Slot::counted`]).
    pub service: Option<Duration>,
    /// Time from the request's arrival to the end of its response.
    pub system_time: Duration,
    /// The status of the response.
    pub status: StatusCode,
    /// The reason for which it was refused, if it was.
    pub refused: Option<Refusal>,
    /// Whether this server, or its site, is at fault: a status of 5xx, or one of gRPC that says the same.
    pub failed: bool,
    /// Whether the client has received the whole response.
    pub complete: bool,
}

/// The counters of a class at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    /// By the first digit of the status, from 1xx on.
    pub(crate) responses: [u64; 5],
    pub(crate) incomplete: u64,
    /// Refused, or failed by the fault of this server or its site.
    pub(crate) failed: u64,
    pub(crate) waiting: TimesTotal,
    pub(crate) service: TimesTotal,
    pub(crate) system: TimesTotal,
}

/// Counted times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TimesTotal {
    /// One count for each bucket of [`RESPONSE_TIME_BOUNDS_US`]; the last bucket is unbounded.
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) sum_us: u64,
}

const BUCKETS: usize = RESPONSE_TIME_BOUNDS_US.len() + 1;

#[derive(Debug)]
struct OfClass {
    name: Arc<str>,
    shards: Box<[Shard]>,
    watch: Mutex<Watch>,
}

/// The counters of some workers, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    responses: [AtomicU64; 5],
    incomplete: AtomicU64,
    failed: AtomicU64,
    waiting: Times,
    service: Times,
    system: Times,
    /// System times again, with enough precision for percentiles.
    fine: AtomicHistogram,
}

#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl ClassMetrics {
    /// Makes counters at zero. `workers`: the number of threads that count.
    pub fn new(classes: &Classes, workers: usize) -> Self {
        let shards = workers.clamp(1, 16);
        Self { classes: Arc::from([]), shards }.renewed(classes)
    }

    /// The same counters under the numbers of changed classes.
    pub fn renewed(&self, classes: &Classes) -> Self {
        let of_class = |class: &ClassConfig| {
            let known = self.iter().find(|it| *it.0.name == *class.name);
            let counters = known.cloned().unwrap_or_else(|| ClassCounters::new(&class.name, self.shards));
            (counters, class.objective)
        };
        Self { classes: classes.classes.iter().map(of_class).collect(), shards: self.shards }
    }

    /// The counters of a class, or of the last class if there is none of this number.
    pub fn of(&self, class: ClassId) -> &ClassCounters {
        let (counters, _) =
            self.classes.get(class.index()).or(self.classes.last()).expect("there is at least one class");
        counters
    }

    /// Counts the outcome of a request.
    pub fn record(&self, class: ClassId, outcome: &ClassOutcome) {
        self.of(class).record(outcome);
    }

    /// All counters, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClassCounters> {
        self.classes.iter().map(|(counters, _)| counters)
    }

    /// Checks the objectives. Called about every second.
    pub(crate) fn watch(&self, now: Instant) {
        for (class, objective) in self.classes.iter() {
            let reading = class.reading();
            let mut watch = class.0.watch.lock();
            watch.follow(*objective);
            watch.look(now, &class.0.name, reading);
        }
    }
}

impl ClassCounters {
    fn new(name: &str, shards: usize) -> Self {
        let shards = (0..shards).map(|_| Shard::new()).collect();
        let counters = Self(Arc::new(OfClass { name: name.into(), shards, watch: Mutex::default() }));
        counters.0.watch.lock().begin(Instant::now(), counters.reading());
        counters
    }

    /// The class's name.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Counts the outcome of a request.
    pub fn record(&self, outcome: &ClassOutcome) {
        let shard = self.shard();
        let hundred = usize::from(outcome.status.as_u16() / 100).clamp(1, 5) - 1;
        let refused = outcome.refused.is_some();
        if !refused {
            if let Some(waited) = outcome.waited {
                shard.waiting.add(waited);
            }
            if let Some(service) = outcome.service {
                shard.service.add(service);
            }
            let us = shard.system.add(outcome.system_time);
            // Fails only above the largest value.
            let _ = shard.fine.increment(us.min((1 << MAX_VALUE_POWER) - 1));
        }
        if !outcome.complete {
            shard.incomplete.fetch_add(1, Relaxed);
        }
        shard.responses[hundred].fetch_add(1, Relaxed);
        if refused || outcome.failed {
            // Written last and read first, so that no reader sees more failures than responses.
            shard.failed.fetch_add(1, Ordering::Release);
        }
    }

    /// Where a slot of the site reports its service time.
    pub(crate) fn service_times(&self) -> Arc<dyn ServiceTimes> {
        self.0.clone()
    }

    /// The objectives of the class, and whether they are met.
    pub fn goals(&self) -> Vec<Goal> {
        self.0.watch.lock().goals()
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for shard in &self.0.shards {
            totals.failed += shard.failed.load(Ordering::Acquire);
            let add = |total: &mut u64, counter: &AtomicU64| *total += counter.load(Relaxed);
            totals.responses.iter_mut().zip(&shard.responses).for_each(|(total, counter)| add(total, counter));
            add(&mut totals.incomplete, &shard.incomplete);
            for (total, times) in [
                (&mut totals.waiting, &shard.waiting),
                (&mut totals.service, &shard.service),
                (&mut totals.system, &shard.system),
            ] {
                total.buckets.iter_mut().zip(&times.buckets).for_each(|(total, counter)| add(total, counter));
                add(&mut total.sum_us, &times.sum_us);
            }
        }
        totals
    }

    fn reading(&self) -> Reading {
        let totals = self.totals();
        let mut fine: Option<Histogram> = None;
        for shard in &self.0.shards {
            let of_shard = shard.fine.load();
            fine = match fine {
                // Both have the same form and are far from overflowing.
                Some(sum) => sum.wrapping_add(&of_shard).ok(),
                None => Some(of_shard),
            };
        }
        Reading {
            responses: totals.responses.iter().sum(),
            failed: totals.failed,
            timed: totals.system.buckets.iter().sum(),
            sum_us: totals.system.sum_us,
            fine,
        }
    }

    fn shard(&self) -> &Shard {
        self.0.shard()
    }
}

impl ServiceTimes for OfClass {
    fn record_service(&self, service: Duration) {
        self.shard().service.add(service);
    }
}

impl OfClass {
    /// The shard of this thread.
    fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Relaxed);
        }
        let shards = &self.shards;
        &shards[MINE.with(|mine| mine % shards.len())]
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            responses: Default::default(),
            incomplete: AtomicU64::default(),
            failed: AtomicU64::default(),
            waiting: Times::default(),
            service: Times::default(),
            system: Times::default(),
            fine: AtomicHistogram::new(GROUPING_POWER, MAX_VALUE_POWER).expect("a form that the crate knows"),
        }
    }
}

impl Times {
    /// Adds a time and returns it in microseconds.
    fn add(&self, time: Duration) -> u64 {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[RESPONSE_TIME_BOUNDS_US.partition_point(|&bound| bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
        us
    }
}

impl TimesTotal {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean in seconds.
    pub(crate) fn mean_s(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_us as f64 / 1e6 / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn classes(names: &[&str]) -> Classes {
        let mut classes = Classes::one();
        let template = classes.classes[0].clone();
        let named = |name: &&str| ClassConfig { name: (*name).to_owned(), ..template.clone() };
        classes.classes = names.iter().map(named).collect();
        classes
    }

    fn outcome(status: StatusCode) -> ClassOutcome {
        ClassOutcome {
            waited: Some(Duration::from_millis(3)),
            service: None,
            system_time: Duration::from_millis(20),
            status,
            refused: None,
            failed: status.is_server_error(),
            complete: true,
        }
    }

    #[test]
    fn an_outcome_is_counted_once_where_it_belongs() {
        let metrics = ClassMetrics::new(&classes(&["gold", "plain"]), 2);
        metrics.record(ClassId(0), &outcome(StatusCode::OK));
        metrics.record(ClassId(0), &ClassOutcome { complete: false, ..outcome(StatusCode::BAD_GATEWAY) });
        metrics.of(ClassId(0)).service_times().record_service(Duration::from_millis(7));
        let refused = ClassOutcome { refused: Some(Refusal::QueueFull), ..outcome(StatusCode::TOO_MANY_REQUESTS) };
        metrics.record(ClassId(0), &refused);
        let gold = metrics.of(ClassId(0)).totals();
        assert_eq!((gold.responses, gold.incomplete, gold.failed), ([0, 1, 0, 1, 1], 1, 2));
        assert_eq!((gold.waiting.count(), gold.waiting.sum_us), (2, 6_000), "who is refused has not waited to get in");
        assert_eq!((gold.system.count(), gold.system.mean_s()), (2, Some(0.02)));
        assert_eq!((gold.service.count(), gold.service.buckets[6]), (1, 1));
        assert_eq!(metrics.of(ClassId(1)).totals(), Totals::default());
    }

    #[test]
    fn all_threads_count() {
        let metrics = ClassMetrics::new(&classes(&["all"]), 3);
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| (0..100).for_each(|_| metrics.record(ClassId(0), &outcome(StatusCode::OK))));
            }
        });
        assert_eq!(metrics.of(ClassId(0)).totals().responses[1], 500);
    }

    #[test]
    fn counters_stay_with_their_name() {
        let old = ClassMetrics::new(&classes(&["gold", "plain"]), 1);
        old.record(ClassId(1), &outcome(StatusCode::OK));
        let new = old.renewed(&classes(&["plain", "silver"]));
        // A response that began before the change ends after it.
        old.record(ClassId(1), &outcome(StatusCode::OK));
        assert_eq!(new.of(ClassId(0)).totals().responses[1], 2);
        assert_eq!(new.of(ClassId(1)).totals().responses[1], 0);
        let again = new.renewed(&classes(&["gold"]));
        assert_eq!(again.of(ClassId(0)).totals().responses[1], 0, "a class that was gone begins anew");
    }
}
