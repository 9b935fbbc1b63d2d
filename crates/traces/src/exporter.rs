//! Batches of spans, and attempts that are made again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

pub use crate::client::OpenError;
use crate::{
    client::{Answer, Client},
    config::{Parents, TracesConfig},
    context::Context,
    otlp,
    queue::Queue,
    span::Trace,
};

/// Pauses between attempts double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the last spans may take when the server stops.
const LAST: Duration = Duration::from_secs(3);
/// Messages about a collector that does not take spans are at least so far apart.
const QUIET: Duration = Duration::from_secs(60);
/// Longest message of a collector that is told.
const MOST_MESSAGE_CHARS: usize = 200;

/// The counts of spans by their end, and of failed requests to the collector.
#[derive(Debug, Default)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub exported: AtomicU64,
    /// Spans that found no room in the queue, or were left when the server stopped or had another collector.
    pub dropped: AtomicU64,
    /// Spans that the collector has refused.
    pub refused: AtomicU64,
    /// Requests to the collector that failed.
    pub failures: AtomicU64,
}

/// Traces of requests, and the way to the collector. Clones share all.
#[derive(Clone)]
pub struct Traces {
    inner: Arc<Inner>,
}

struct Inner {
    config: TracesConfig,
    client: Client,
    queue: Queue,
    counts: Arc<Counts>,
}

impl Traces {
    /// Reads what the configuration names; blocks.
    ///
    /// # Errors
    /// The authorities that the collector's certificate may be from cannot be read.
    pub fn open(config: &TracesConfig, counts: Arc<Counts>) -> Result<Self, OpenError> {
        let client = Client::new(config)?;
        Ok(Self { inner: Arc::new(Inner { config: config.clone(), client, queue: Queue::default(), counts }) })
    }

    /// How it was opened.
    pub fn config(&self) -> &TracesConfig {
        &self.inner.config
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The trace of a request with these fields. `is_trusted`: whether its peer is a trusted proxy.
    pub fn begin(&self, headers: &HeaderMap, is_trusted: impl FnOnce() -> bool) -> Context {
        let is_believed = match self.inner.config.parents {
            Parents::Trusted => is_trusted(),
            Parents::All => true,
            Parents::None => false,
        };
        Context::begin(headers, is_believed, self.inner.config.sample)
    }

    /// Takes the spans of a request, which are made only if there is room for them. Never waits.
    pub fn record(&self, spans: u64, make: impl FnOnce() -> Trace) {
        let Inner { queue, counts, .. } = &*self.inner;
        if !queue.has_room() {
            counts.dropped.fetch_add(spans, Relaxed);
            return;
        }
        if !queue.push(make()) {
            counts.dropped.fetch_add(spans, Relaxed);
        }
    }

    /// Sends spans until `ends` is ready, and then what is left, for which there is a limit in time. One task calls it, once.
    pub async fn drive(&self, ends: impl Future<Output = ()>) {
        let Inner { queue, counts, .. } = &*self.inner;
        let mut sending = Sending { inner: &self.inner, state: State::Taken, told_at: None, unsent: None };
        tokio::select! {
            () = sending.run() => {}
            () = ends => {}
        }
        queue.close();
        // A collector that has not answered to the last batch is not waited for.
        if matches!(sending.state, State::Taken) {
            let _ = timeout(LAST, sending.rest()).await;
        }
        let unsent = sending.unsent.take().map_or(0, |(_, spans)| spans);
        let left = std::iter::from_fn(|| queue.take(true)).map(|(_, spans)| spans).sum::<usize>() + unsent;
        counts.dropped.fetch_add(left as u64, Relaxed);
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

/// How the collector has dealt with the last batch.
enum State {
    /// It has answered for good.
    Taken,
    /// So many attempts have failed since.
    Failing(u32),
}

/// The outcome of an attempt to send a batch.
enum Step {
    /// The collector has answered for good to so many spans.
    Sent(usize),
    /// It has not; the next attempt may be made after so long.
    Failed(Duration),
    /// There is no batch.
    Nothing,
}

/// The exporter at work. A future of it may be dropped at any time; a batch that was not taken stays in `unsent`.
struct Sending<'a> {
    inner: &'a Inner,
    state: State,
    told_at: Option<Instant>,
    /// The batch under way, with the number of its spans.
    unsent: Option<(Bytes, usize)>,
}

impl Sending<'_> {
    /// Sends forever: full batches at once, and what else waits when its time has come.
    async fn run(&mut self) {
        let mut interval = tokio::time::interval(self.inner.config.interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut due = tokio::select! {
                _ = interval.tick() => self.inner.queue.spans(),
                () = self.inner.queue.filled() => 0,
            };
            loop {
                match self.next(due > 0).await {
                    Step::Sent(spans) => due = due.saturating_sub(spans),
                    Step::Failed(pause) => sleep(pause).await,
                    Step::Nothing => break,
                }
            }
        }
    }

    /// Sends what is left, as long as the collector answers.
    async fn rest(&mut self) {
        while let Step::Sent(_) = self.next(true).await {}
    }

    /// Sends a batch: the one that was not taken, a full one, or, if `is_due`, what else waits.
    async fn next(&mut self, is_due: bool) -> Step {
        let Inner { config, client, queue, counts } = self.inner;
        if self.unsent.is_none() {
            let Some((batch, spans)) = queue.take(is_due) else { return Step::Nothing };
            self.unsent = Some((otlp::request(&config.service_name, batch).into(), spans));
        }
        let Some((body, batch_spans)) = self.unsent.clone() else { return Step::Nothing };
        let spans = batch_spans as u64;
        let refused = match client.send(body).await {
            Answer::Taken(answer) => otlp::refused(&answer).map(|(refused, message)| {
                let message: String = message.chars().take(MOST_MESSAGE_CHARS).collect();
                (refused.min(spans), format!("it refuses {refused} of {spans} spans: {message:?}"))
            }),
            Answer::Refused(error) => {
                counts.failures.fetch_add(1, Relaxed);
                Some((spans, error))
            }
            Answer::Again(error, after) => {
                counts.failures.fetch_add(1, Relaxed);
                self.tell(&error);
                let failed = match self.state {
                    State::Taken => 0,
                    State::Failing(failed) => failed,
                };
                self.state = State::Failing(failed.saturating_add(1));
                let pause = FIRST_PAUSE.saturating_mul(1 << failed.min(8)).min(LONGEST_PAUSE);
                return Step::Failed(after.unwrap_or(pause).max(FIRST_PAUSE));
            }
        };
        self.unsent = None;
        let was_failing = matches!(std::mem::replace(&mut self.state, State::Taken), State::Failing(_));
        let of_refused = refused.as_ref().map_or(0, |(refused, _)| *refused);
        counts.exported.fetch_add(spans - of_refused, Relaxed);
        counts.refused.fetch_add(of_refused, Relaxed);
        match refused {
            Some((_, error)) => self.tell(&error),
            None if was_failing => {
                tracing::info!(collector = %config.endpoint, "tracing: the collector takes spans again");
            }
            None => {}
        }
        Step::Sent(batch_spans)
    }

    fn tell(&mut self, error: &str) {
        if self.told_at.is_none_or(|at| at.elapsed() >= QUIET) {
            let collector = &self.inner.config.endpoint;
            tracing::warn!(%collector, error, "tracing: the collector does not take spans; requests are served as before");
            self.told_at = Some(Instant::now());
        }
    }
}
