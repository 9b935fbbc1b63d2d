//! Requests a page repeatedly, at planned times or with a fixed number at once. Results are counted over one
//! interval.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use scheduler::control::Measured;
use server::upstream::probe::{Answer, Fault, Probe, ProbeError};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Longest time until a set stop flag is noticed.
const TICK: Duration = Duration::from_millis(100);
/// Longest silence, with requests in progress, of a site whose first answer came at once.
const SILENCE: Duration = Duration::from_secs(5);
/// Number of failed requests in a row after which the site counts as gone.
const GONE: u32 = 5;
/// Longest silence of a slower site, as a multiple of the time of its first answer.
const SILENT_TIMES: u32 = 10;

/// The result of one request.
pub type RequestResult = Result<Answer, ProbeError>;

/// A function that requests the page.
pub type Page = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = RequestResult> + Send>> + Send + Sync>;

/// Makes the function that requests an upstream's page, with a time limit.
pub fn page(probe: Probe, timeout: Duration) -> Page {
    let probe = Arc::new(probe);
    Arc::new(move || {
        let probe = probe.clone();
        Box::pin(async move { probe.ask(timeout).await })
    })
}

/// Limits that protect the site.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most requests at the site at once. Further ones wait here.
    pub outstanding: usize,
    /// Largest share of requests that may end in errors.
    pub most_errors: f64,
    /// Longest silence with requests in progress.
    pub silence: Duration,
    /// Set when the probe must stop.
    pub stop: Arc<AtomicBool>,
}

impl Limits {
    /// Adapts the limits to a site whose first answer took this long.
    pub fn after_first_answer(self, took: Duration) -> Self {
        Self { silence: SILENCE.max(took.saturating_mul(SILENT_TIMES)), ..self }
    }
}

/// Waits until the stop flag is set.
pub async fn stopped(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        tokio::time::sleep(TICK).await;
    }
}

/// The reason why the site must not be asked any more.
#[derive(Debug)]
pub enum Halt {
    /// The stop flag was set.
    Interrupted,
    /// The site answers nothing.
    Silent {
        /// Duration of the silence.
        silence: Duration,
    },
    /// The site accepts no connections, or breaks all of them off.
    Gone {
        /// The error.
        error: String,
    },
    /// The site did not finish the requests.
    NotDone {
        /// Number of unfinished requests.
        requests: u64,
    },
    /// The site cannot be asked, by a fault of Serpent or of the operator.
    Broken(ProbeError),
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Silent { silence } => {
                write!(f, "the site answered nothing for {:.1} s with requests under way", silence.as_secs_f64())
            }
            Self::Gone { error } => write!(f, "the site does not answer: {error}"),
            Self::NotDone { requests } => write!(
                f,
                "the site was not done in time with {requests} of the requests it had taken: let it rest, then give it \
                 more time (--timeout) or fewer at once (--outstanding)"
            ),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

/// Requests at planned times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Requests a second, evenly spaced.
    pub per_second: u32,
    /// Number of requests at the beginning that do not count.
    pub warm: u32,
    /// Number of requests that count.
    pub counted: u32,
}

impl Plan {
    /// Makes a plan for some seconds, the first quarter of which does not count. The plan is longer if fewer
    /// than `least` requests would count.
    pub fn new(per_second: u32, seconds: f64, least: u32) -> Self {
        let within = |seconds: f64| (seconds * f64::from(per_second)).ceil() as u32;
        let counted = within(0.75 * seconds).max(least).max(1);
        Self { per_second, warm: within(0.25 * seconds).max(1), counted }
    }

    /// Number of all requests.
    pub fn requests(self) -> u32 {
        self.warm.saturating_add(self.counted)
    }
}

/// The measurement at one rate.
#[derive(Clone, Debug)]
pub struct RateMeasurement {
    /// The rate.
    pub per_second: u32,
    /// The counts.
    pub measured: Measured,
    /// Length of the counted interval in seconds.
    pub seconds: f64,
    /// Median of the service times.
    pub median_ns: u64,
    /// Their 95th percentile.
    pub p95_ns: u64,
    /// Counted requests that waited here, because too many were at the site.
    pub held: u64,
    /// Largest lateness of a request that did not have to wait here. It is the fault of this machine.
    pub late_ns: u64,
    /// The first error.
    pub error: Option<String>,
}

impl RateMeasurement {
    /// Answers per second.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.measured.answered as f64 / self.seconds } else { 0.0 }
    }
}

/// The measurement with a fixed number of requests at once.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// Answers per second.
    pub throughput: f64,
    /// Mean service time.
    pub service_ns: u64,
    /// The first error, if too many requests ended in errors.
    pub errors: Option<String>,
}

/// Sends requests at planned times, and waits until the site has finished all of them. `seen` gets the number
/// of requests that have ended.
///
/// # Errors
/// If the site must not be asked any more.
pub async fn at_rate(page: &Page, plan: Plan, limits: &Limits, seen: &dyn Fn(u64)) -> Result<RateMeasurement, Halt> {
    let mut generator = Generator::new(page, limits);
    let measured = generator.measure(plan, seen).await;
    generator.under_way.shutdown().await;
    measured
}

/// Keeps a fixed number of requests at the site for some time, the first quarter of which does not count.
///
/// # Errors
/// If the site must not be asked any more.
pub async fn at_once(page: &Page, at_once: u32, lasts: Duration, limits: &Limits) -> Result<ClosedLoop, Halt> {
    let mut generator = Generator::new(page, limits);
    let measured = generator.keep(at_once, lasts).await;
    generator.under_way.shutdown().await;
    measured
}

/// Sends requests to the site and counts their results. Dropping it gives up the requests in progress.
struct Generator<'a> {
    page: &'a Page,
    limits: &'a Limits,
    under_way: JoinSet<Ended>,
    tally: Tally,
    /// Time of the last sign of life, or of the last moment without requests in progress.
    heard: Instant,
}

struct Ended {
    /// Duration from the planned time.
    service: Duration,
    asked: RequestResult,
}

impl<'a> Generator<'a> {
    fn new(page: &'a Page, limits: &'a Limits) -> Self {
        Self { page, limits, under_way: JoinSet::new(), tally: Tally::default(), heard: Instant::now() }
    }

    /// Sends requests at planned times, and waits until all have finished.
    async fn measure(&mut self, plan: Plan, seen: &dyn Fn(u64)) -> Result<RateMeasurement, Halt> {
        let gap = Duration::from_secs_f64(1.0 / f64::from(plan.per_second.max(1)));
        let start = Instant::now();
        // The interval begins and ends halfway between two requests.
        let planned = |number: u32| start + gap / 2 + gap * number;
        let (begin, end) = (start + gap * plan.warm, start + gap * plan.requests());
        let too_many = self.limits.most_errors * f64::from(plan.requests());

        let mut held: VecDeque<Instant> = VecDeque::new();
        let (mut next, mut waited, mut late) = (0, 0, Duration::ZERO);
        loop {
            while self.under_way.len() < self.limits.outstanding.max(1) {
                let Some(planned) = held.pop_front() else { break };
                self.ask(planned);
            }
            let plans = if next < plan.requests() { planned(next) } else { end };
            let due = if self.tally.has_begun() { plans } else { plans.min(begin) };
            // Requests that have ended are counted before the interval ends, so that a slow prober does not
            // make the site look slow.
            if self.handle_next(due).await?.is_some() {
                seen(self.tally.ended);
                if self.tally.errors as f64 > too_many {
                    break;
                }
                continue;
            }
            let now = Instant::now();
            if now < due {
                continue;
            }
            if !self.tally.has_begun() && due == begin {
                self.tally.begin(now, end);
            } else if next < plan.requests() {
                self.tally.planned(now);
                next += 1;
                if self.under_way.len() < self.limits.outstanding.max(1) {
                    late = late.max(now - due);
                    self.ask(due);
                } else {
                    waited += 1;
                    held.push_back(due);
                }
            } else {
                break;
            }
        }
        self.tally.end(Instant::now());
        self.leave(seen).await?;
        let tally = &self.tally;
        let (median_ns, p95_ns) = tally.percentiles();
        Ok(RateMeasurement {
            per_second: plan.per_second,
            measured: tally.measured(),
            seconds: tally.seconds,
            median_ns,
            p95_ns,
            held: waited,
            late_ns: nanos(late),
            error: tally.error.clone(),
        })
    }

    /// Keeps a fixed number at once, and waits until all have finished.
    async fn keep(&mut self, at_once: u32, lasts: Duration) -> Result<ClosedLoop, Halt> {
        let start = Instant::now();
        let (begin, end) = (start + lasts / 4, start + lasts);
        loop {
            while self.under_way.len() < at_once as usize {
                let now = Instant::now();
                self.tally.planned(now);
                self.ask(now);
            }
            let due = if self.tally.has_begun() { end } else { begin };
            if self.handle_next(due).await?.is_some() {
                // The share counts as if there were at least a hundred requests.
                if self.tally.errors as f64 > self.limits.most_errors * self.tally.ended.max(100) as f64 {
                    break;
                }
            }
            // The check is made for every answer, however fast answers come.
            let now = Instant::now();
            if self.tally.has_begun() && now >= end {
                break;
            } else if !self.tally.has_begun() && now >= begin {
                self.tally.begin(now, end);
            }
        }
        self.tally.end(Instant::now());
        self.leave(&|_| {}).await?;
        let tally = &self.tally;
        let measured = tally.measured();
        let errors = tally.errors as f64 > self.limits.most_errors * tally.ended.max(100) as f64;
        let throughput = if tally.seconds > 0.0 { measured.answered as f64 / tally.seconds } else { 0.0 };
        let errors = tally.error.clone().filter(|_| errors);
        Ok(ClosedLoop { throughput, service_ns: measured.service_ns, errors })
    }

    fn ask(&mut self, planned: Instant) {
        if self.under_way.is_empty() {
            self.heard = Instant::now();
        }
        self.tally.begins(Instant::now());
        let asking = (self.page)();
        self.under_way.spawn(async move {
            let asked = asking.await;
            Ended { service: planned.elapsed(), asked }
        });
    }

    /// Waits for the next request to end, for at most a short time and not beyond `until`. Returns `Some` if
    /// one has ended.
    async fn handle_next(&mut self, until: Instant) -> Result<Option<()>, Halt> {
        if self.limits.stop.load(Relaxed) {
            return Err(Halt::Interrupted);
        }
        let silence = self.heard.elapsed();
        if !self.under_way.is_empty() && silence > self.limits.silence {
            return Err(Halt::Silent { silence });
        }
        let until = until.min(Instant::now() + TICK);
        let ended = tokio::select! {
            biased;
            Some(ended) = self.under_way.join_next() => ended,
            () = sleep_until(until) => return Ok(None),
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Ok(None),
            },
        };
        self.heard = Instant::now();
        self.tally.ends(self.heard);
        match ended.asked {
            Ok(answer) => {
                self.tally.in_a_row = 0;
                if answer.is_page() {
                    self.tally.answered(ended.service);
                } else {
                    self.tally.failed(&|| format!("status {}", answer.status.as_u16()));
                }
            }
            Err(error) if error.fault() != Fault::Site => return Err(Halt::Broken(error)),
            Err(error) => {
                self.tally.in_a_row += 1;
                if self.tally.in_a_row >= GONE {
                    return Err(Halt::Gone { error: error.to_string() });
                }
                self.tally.late += u64::from(matches!(error, ProbeError::TimedOut { .. }));
                self.tally.failed(&|| error.to_string());
            }
        }
        Ok(Some(()))
    }

    /// Waits until the site has finished all requests. Every request has a time limit.
    async fn leave(&mut self, seen: &dyn Fn(u64)) -> Result<(), Halt> {
        let late = self.tally.late;
        while !self.under_way.is_empty() {
            if self.handle_next(Instant::now() + TICK).await?.is_some() {
                seen(self.tally.ended);
            }
        }
        match self.tally.late - late {
            0 => Ok(()),
            requests => Err(Halt::NotDone { requests }),
        }
    }
}

/// The number of requests at the site counts as growing if it ends above this multiple of its start, plus
/// one.
const GROWTH: f64 = 1.5;

/// The counts. Errors count at any time, also outside the interval.
#[derive(Default)]
struct Tally {
    /// Beginning and planned end of the interval.
    interval: Option<(Instant, Instant)>,
    over: bool,
    seconds: f64,
    sent: u64,
    /// Service times of requests answered within the interval.
    service_ns: Vec<u64>,
    ended: u64,
    errors: u64,
    /// Number of errors that were time-outs.
    late: u64,
    /// Number of failed requests since the last answer.
    in_a_row: u32,
    error: Option<String>,
    /// Number of requests at the site, valid since `since`.
    running: usize,
    /// Number of requests at the site or waiting here to be sent.
    present: usize,
    since: Option<Instant>,
    /// Requests at the site, integrated over seconds.
    area: f64,
    /// Requests present, integrated over seconds, in the first and in the last quarter of the interval.
    quarters: [f64; 2],
}

impl Tally {
    fn has_begun(&self) -> bool {
        self.interval.is_some()
    }

    fn counts(&self) -> bool {
        self.has_begun() && !self.over
    }

    fn begin(&mut self, now: Instant, end: Instant) {
        (self.interval, self.since) = (Some((now, end)), Some(now));
    }

    fn end(&mut self, now: Instant) {
        self.passes(now);
        self.seconds = self.interval.map_or(0.0, |(begin, _)| (now - begin).as_secs_f64());
        self.over = true;
    }

    /// Adds the time since the last change to the integrals.
    fn passes(&mut self, now: Instant) {
        let (false, Some((begin, end)), Some(since)) = (self.over, self.interval, self.since.replace(now)) else {
            return;
        };
        self.area += (now - since).as_secs_f64() * self.running as f64;
        let quarter = end.saturating_duration_since(begin) / 4;
        for (sum, from) in self.quarters.iter_mut().zip([begin, begin + 3 * quarter]) {
            let within = now.min(from + quarter).saturating_duration_since(since.max(from));
            *sum += within.as_secs_f64() * self.present as f64;
        }
    }

    fn planned(&mut self, now: Instant) {
        self.passes(now);
        self.present += 1;
        self.sent += u64::from(self.counts());
    }

    fn begins(&mut self, now: Instant) {
        self.passes(now);
        self.running += 1;
    }

    fn ends(&mut self, now: Instant) {
        self.passes(now);
        self.running = self.running.saturating_sub(1);
        self.present = self.present.saturating_sub(1);
        self.ended += 1;
    }

    fn answered(&mut self, service: Duration) {
        if self.counts() {
            self.service_ns.push(nanos(service));
        }
    }

    fn failed(&mut self, why: &dyn Fn() -> String) {
        self.errors += 1;
        self.error.get_or_insert_with(why);
    }

    fn measured(&self) -> Measured {
        let answered = self.service_ns.len() as u64;
        let service_ns = self.service_ns.iter().map(|&ns| u128::from(ns)).sum::<u128>() / u128::from(answered.max(1));
        let quarter_s =
            self.interval.map_or(0.0, |(begin, end)| end.saturating_duration_since(begin).as_secs_f64()) / 4.0;
        let [first, last] = self.quarters;
        Measured {
            sent: self.sent,
            answered,
            errors: self.errors,
            service_ns: u64::try_from(service_ns).unwrap_or(u64::MAX),
            running: if self.seconds > 0.0 { self.area / self.seconds } else { 0.0 },
            grew: last > GROWTH * first + quarter_s,
        }
    }

    fn percentiles(&self) -> (u64, u64) {
        let mut sorted = self.service_ns.clone();
        sorted.sort_unstable();
        let at = |part: f64| {
            let place = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        (at(0.5), at(0.95))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
