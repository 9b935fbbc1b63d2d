//! Counters of a server at work. Each worker counts with relaxed atomics of its own; a scrape adds them up.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use heads::GrpcStatus;
use http::StatusCode;
use parking_lot::Mutex;
use recent::{BySize, Comparison, History, LastSent, Orders, SIZE_NAMES, SizeTotal, Slowest};

use crate::gate::response::SendOutcome;

/// Upper bounds of the response time's buckets, in microseconds: from a file in memory to a minute of waiting.
pub(crate) const RESPONSE_TIME_BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
    15_000_000, 60_000_000,
];

/// The counters of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) started: SystemTime,
    /// The same moment by the clock that is never set.
    pub(crate) began: tokio::time::Instant,
    pub(crate) workers: Vec<Arc<WorkerMetrics>>,
    pub(crate) log_lines_dropped: Arc<AtomicU64>,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    /// Whether the last one worked; the start is the first one.
    pub(crate) last_reload_worked: AtomicBool,
    /// When the configuration in force was loaded, in seconds since 1970.
    pub(crate) last_reload_s: AtomicU64,
    pub(crate) certificate_reloads_ok: AtomicU64,
    pub(crate) certificate_reloads_failed: AtomicU64,
    /// Asks for slots of a site with several gateways, and those that failed.
    pub(crate) lease_asks: AtomicU64,
    pub(crate) lease_failures: AtomicU64,
    /// Requests under limits, of which other gateways were told.
    pub(crate) limit_requests_told: AtomicU64,
    /// Counts of spans that were exported, dropped or refused, and of failed exports.
    pub(crate) spans: Arc<traces::Counts>,
    /// Tasks that must never end, and did.
    pub(crate) tasks_restarted: Arc<AtomicU64>,
    /// The readings of the last hour, which the page of the admin address shows.
    pub(crate) history: Mutex<History>,
    pub(crate) slowest: Slowest,
    pub(crate) last_sent: LastSent,
    pub(crate) comparison: Mutex<Option<Comparison>>,
    /// How other orders are computed.
    pub(crate) orders: OnceLock<Orders>,
    /// When the page was last looked at, in seconds since 1970.
    pub(crate) looked_at_s: AtomicU64,
    /// Whether there is an admin address, so that these can be seen.
    pub(crate) are_shown: AtomicBool,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            started: SystemTime::now(),
            began: tokio::time::Instant::now(),
            workers: (0..workers).map(|_| Arc::default()).collect(),
            log_lines_dropped: Arc::default(),
            reloads_ok: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            last_reload_worked: AtomicBool::new(true),
            last_reload_s: AtomicU64::new(UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())),
            certificate_reloads_ok: AtomicU64::new(0),
            certificate_reloads_failed: AtomicU64::new(0),
            lease_asks: AtomicU64::new(0),
            lease_failures: AtomicU64::new(0),
            limit_requests_told: AtomicU64::new(0),
            spans: Arc::default(),
            tasks_restarted: Arc::default(),
            history: Mutex::default(),
            slowest: Slowest::default(),
            last_sent: LastSent::default(),
            comparison: Mutex::default(),
            orders: OnceLock::new(),
            looked_at_s: AtomicU64::new(0),
            are_shown: AtomicBool::new(false),
        }
    }

    /// Counts a reload.
    pub(crate) fn reloaded(&self, worked: bool) {
        self.last_reload_worked.store(worked, Relaxed);
        if worked {
            self.reloads_ok.fetch_add(1, Relaxed);
            let now_s = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
            self.last_reload_s.store(now_s, Relaxed);
        } else {
            self.reloads_failed.fetch_add(1, Relaxed);
        }
    }

    /// Response times by size, of all workers.
    pub(crate) fn by_size(&self) -> [SizeTotal; SIZE_NAMES.len()] {
        let mut by_size = [SizeTotal::default(); SIZE_NAMES.len()];
        for worker in &self.workers {
            by_size.iter_mut().zip(worker.by_size.totals()).for_each(|(sum, of_worker)| *sum += of_worker);
        }
        by_size
    }

    /// The sum of a counter over the workers.
    pub(crate) fn sum(&self, counter: impl Fn(&WorkerMetrics) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| counter(worker).load(Relaxed)).sum()
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    /// Responses by hundreds of their status, from 1xx on.
    pub(crate) responses: [AtomicU64; 5],
    /// Calls of gRPC by the number of their status.
    pub(crate) grpc_calls: [AtomicU64; GrpcStatus::COUNT],
    pub(crate) incomplete: AtomicU64,
    pub(crate) body_bytes: AtomicU64,
    /// Response times by bucket, the last one without bound.
    pub(crate) response_time: [AtomicU64; RESPONSE_TIME_BOUNDS_US.len() + 1],
    pub(crate) response_time_sum_us: AtomicU64,
    pub(crate) by_size: BySize,
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    /// How often accepting stopped because of the limit on connections.
    pub(crate) accept_pauses: AtomicU64,
    /// Connections closed at once because of `limits.connections-per-client`.
    pub(crate) client_connections_refused: AtomicU64,
    /// Connections of proxies without a sound header of the PROXY protocol.
    pub(crate) proxy_headers_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    /// HTTP/2 connections that were cut because their client flooded them.
    pub(crate) http2_floods: AtomicU64,
    /// How often a client had to wait until it was read from.
    pub(crate) reads_delayed: AtomicU64,
}

impl WorkerMetrics {
    /// Counts a response that has ended.
    pub(crate) fn record(&self, status: StatusCode, outcome: &SendOutcome, response_time: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.responses[class].fetch_add(1, Relaxed);
        self.body_bytes.fetch_add(outcome.body_bytes, Relaxed);
        if !outcome.complete {
            self.incomplete.fetch_add(1, Relaxed);
        }
        let us = u64::try_from(response_time.as_micros()).unwrap_or(u64::MAX);
        let bucket = RESPONSE_TIME_BOUNDS_US.partition_point(|&bound| bound < us);
        self.response_time[bucket].fetch_add(1, Relaxed);
        self.response_time_sum_us.fetch_add(us, Relaxed);
        self.by_size.record(outcome.body_bytes, response_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_counted_once_in_its_bucket() {
        let metrics = WorkerMetrics::default();
        let ended = tokio::time::Instant::now();
        let (send_time, first) = (Duration::ZERO, None);
        let outcome = SendOutcome { body_bytes: 7, complete: false, send_time, first, ended, slowdown: None };
        for (us, bucket) in [(0, 0), (100, 0), (101, 1), (60_000_000, 15), (60_000_001, 16)] {
            let before = metrics.response_time[bucket].load(Relaxed);
            metrics.record(StatusCode::NOT_FOUND, &outcome, Duration::from_micros(us));
            assert_eq!(metrics.response_time[bucket].load(Relaxed), before + 1, "{us}");
        }
        assert_eq!(metrics.responses[3].load(Relaxed), 5);
        assert_eq!(metrics.body_bytes.load(Relaxed), 35);
        assert_eq!(metrics.incomplete.load(Relaxed), 5);
    }
}
