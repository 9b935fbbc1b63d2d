//! A page asked for again and again: at planned moments, or so many at once. What comes of it is counted over one interval.

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

/// How long it takes to notice that somebody wants it to stop.
const TICK: Duration = Duration::from_millis(100);
/// So long a site may be silent, with requests under way, that has done one at first in no time.
const SILENCE: Duration = Duration::from_secs(5);
/// So many requests one after the other that come to nothing, and it is not asked any more.
const GONE: u32 = 5;
/// One that took longer may be silent for so many times as long.
const SILENT_TIMES: u32 = 10;

/// What came of one question.
pub type Asked = Result<Answer, ProbeError>;

/// Asks for the page.
pub type Page = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Asked> + Send>> + Send + Sync>;

/// The page of an upstream, with a limit on its time.
pub fn page(probe: Probe, timeout: Duration) -> Page {
    let probe = Arc::new(probe);
    Arc::new(move || {
        let probe = probe.clone();
        Box::pin(async move { probe.ask(timeout).await })
    })
}

/// What protects the site.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests at the site at once; more of them wait here.
    pub outstanding: usize,
    /// The largest part of requests that may end in errors.
    pub most_errors: f64,
    /// The longest silence with requests under way.
    pub silence: Duration,
    /// Somebody wants it to stop.
    pub stop: Arc<AtomicBool>,
}

impl Limits {
    /// For a site whose first answer took so long.
    pub fn heard(self, took: Duration) -> Self {
        Self { silence: SILENCE.max(took.saturating_mul(SILENT_TIMES)), ..self }
    }
}

/// Until somebody wants it to stop.
pub async fn stopped(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        tokio::time::sleep(TICK).await;
    }
}

/// Why the site is not to be asked any more.
#[derive(Debug)]
pub enum Halt {
    /// Somebody said so.
    Interrupted,
    /// It answers nothing.
    Silent {
        /// For so long.
        silence: Duration,
    },
    /// It takes no connections, or breaks all of them off.
    Gone {
        /// How.
        error: String,
    },
    /// It was not done with what it had been asked for.
    NotDone {
        /// So many requests.
        requests: u64,
    },
    /// It cannot be asked, by our fault or the operator's.
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

/// Requests at planned moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many in a second, evenly.
    pub per_second: u32,
    /// The first of them, that do not count.
    pub warm: u32,
    /// Those that do.
    pub counted: u32,
}

impl Plan {
    /// For some seconds, the first quarter of which does not count; but longer where fewer than `least` requests would.
    pub fn new(per_second: u32, seconds: f64, least: u32) -> Self {
        let within = |seconds: f64| (seconds * f64::from(per_second)).ceil() as u32;
        let counted = within(0.75 * seconds).max(least).max(1);
        Self { per_second, warm: within(0.25 * seconds).max(1), counted }
    }

    /// All of its requests.
    pub fn requests(self) -> u32 {
        self.warm.saturating_add(self.counted)
    }
}

/// What was measured at a rate.
#[derive(Clone, Debug)]
pub struct Rate {
    /// The rate.
    pub per_second: u32,
    /// What counts.
    pub measured: Measured,
    /// Seconds in which it was counted.
    pub seconds: f64,
    /// Median of the service times.
    pub median_ns: u64,
    /// Their 95th percentile.
    pub p95_ns: u64,
    /// Requests of these that waited here, because too many were at the site.
    pub held: u64,
    /// How late a request was sent at most that did not have to wait here: by our own fault.
    pub late_ns: u64,
    /// The first error.
    pub error: Option<String>,
}

impl Rate {
    /// Answers a second.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.measured.answered as f64 / self.seconds } else { 0.0 }
    }
}

/// What was measured with so many requests at once.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Answers a second.
    pub throughput: f64,
    /// Mean service time.
    pub service_ns: u64,
    /// Too many of them were errors; the first of these.
    pub errors: Option<String>,
}

/// Asks at planned moments, and waits until the site is done with all of it. `seen` is told how many have ended.
///
/// # Errors
/// The site must not be asked any more.
pub async fn at_rate(page: &Page, plan: Plan, limits: &Limits, seen: &dyn Fn(u64)) -> Result<Rate, Halt> {
    let mut site = Site::new(page, limits);
    let measured = site.measure(plan, seen).await;
    site.under_way.shutdown().await;
    measured
}

/// Keeps so many requests at the site, for a time of which the first quarter does not count.
///
/// # Errors
/// The site must not be asked any more.
pub async fn at_once(page: &Page, at_once: u32, lasts: Duration, limits: &Limits) -> Result<Closed, Halt> {
    let mut site = Site::new(page, limits);
    let measured = site.keep(at_once, lasts).await;
    site.under_way.shutdown().await;
    measured
}

/// The site, and what it is asked for at the moment. With it, all of that is given up.
struct Site<'a> {
    page: &'a Page,
    limits: &'a Limits,
    under_way: JoinSet<Ended>,
    tally: Tally,
    /// When it was last heard of, or had nothing to say.
    heard: Instant,
}

struct Ended {
    /// From the planned moment.
    service: Duration,
    asked: Asked,
}

impl<'a> Site<'a> {
    fn new(page: &'a Page, limits: &'a Limits) -> Self {
        Self { page, limits, under_way: JoinSet::new(), tally: Tally::default(), heard: Instant::now() }
    }

    /// At planned moments, and until it is done with all of it.
    async fn measure(&mut self, plan: Plan, seen: &dyn Fn(u64)) -> Result<Rate, Halt> {
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
            // Whoever has ended is counted before the interval does: a machine that is late is no site that is.
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
        Ok(Rate {
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

    /// So many at once, and until it is done with all of them.
    async fn keep(&mut self, at_once: u32, lasts: Duration) -> Result<Closed, Halt> {
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
                // Of the first hundred, one.
                if self.tally.errors as f64 > self.limits.most_errors * self.tally.ended.max(100) as f64 {
                    break;
                }
            }
            // However fast answers come.
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
        Ok(Closed { throughput, service_ns: measured.service_ns, errors })
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

    /// Waits for the next that ends, or until a moment, or for a short time; `Some` if one has ended.
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

    /// Waits until the site is done with all of it. Every request has a limit on its time.
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

/// More than that times as many at the site at the end of the interval as at its beginning, and one more, is growth.
const GROWTH: f64 = 1.5;

/// What is counted. Errors count whenever they are.
#[derive(Default)]
struct Tally {
    /// When it began and is to end.
    interval: Option<(Instant, Instant)>,
    over: bool,
    seconds: f64,
    sent: u64,
    /// Service times of those answered within the interval.
    service_ns: Vec<u64>,
    ended: u64,
    errors: u64,
    /// Of them, those that took too long.
    late: u64,
    /// Those that came to nothing since the last answer.
    in_a_row: u32,
    error: Option<String>,
    /// Requests at the site, and since when.
    running: usize,
    /// These, and those that should be.
    present: usize,
    since: Option<Instant>,
    /// Requests at the site times seconds.
    area: f64,
    /// Requests that are or should be there times seconds, in the first and in the last quarter of the interval.
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

    /// Time passes, in which nothing has changed.
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
