//! The metrics as Prometheus reads them (OpenMetrics text).

use std::{fmt, sync::atomic::Ordering::Relaxed, time::UNIX_EPOCH};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use crate::{
    metrics::{RESPONSE_TIME_BOUNDS_US, WorkerMetrics},
    serve::Shared,
    uplink::UplinkStats,
};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics at this moment.
pub(super) fn text(shared: &Shared) -> String {
    let mut registry = Registry::with_prefix("serpent");
    registry.register_collector(Box::new(Sample::take(shared)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// One reading of all counters.
#[derive(Debug)]
struct Sample {
    start_time_s: f64,
    responses: [u64; 5],
    response_time: Vec<u64>,
    response_time_sum_s: f64,
    counters: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, u64)>,
    uplink: UplinkStats,
}

impl Sample {
    fn take(shared: &Shared) -> Self {
        let metrics = &shared.metrics;
        let sum = |counter: fn(&WorkerMetrics) -> &std::sync::atomic::AtomicU64| metrics.sum(counter);
        // Closed before accepted: the difference is never below zero.
        let closed = sum(|worker| &worker.closed);
        let accepted = sum(|worker| &worker.accepted);
        let uplink = shared.uplink.stats();
        let cache = shared.live.load().cache.stats();
        let counters = vec![
            ("responses_incomplete", "Responses cut off, by the client or by us", sum(|worker| &worker.incomplete)),
            ("response_body_bytes", "Body bytes taken by sockets", sum(|worker| &worker.body_bytes)),
            ("connections_accepted", "Connections accepted", accepted),
            ("accept_errors", "Failed attempts to accept a connection", sum(|worker| &worker.accept_errors)),
            ("accept_pauses", "Times accepting paused at limits.connections", sum(|worker| &worker.accept_pauses)),
            ("tls_handshakes_failed", "TLS handshakes failed or too slow", sum(|worker| &worker.handshakes_failed)),
            ("log_lines_dropped", "Access log lines dropped", metrics.log_lines_dropped.load(Relaxed)),
            ("config_reloads", "Configurations taken over while running", metrics.reloads_ok.load(Relaxed)),
            ("config_reloads_failed", "Configurations refused while running", metrics.reloads_failed.load(Relaxed)),
            ("certificate_reloads", "Changed certificates taken over", metrics.certificate_reloads_ok.load(Relaxed)),
            (
                "certificate_reloads_failed",
                "Changed certificates that cannot be used",
                metrics.certificate_reloads_failed.load(Relaxed),
            ),
            ("cache_hits", "Requests for files answered from memory at once", cache.hits),
            ("cache_misses", "Requests for files for which the file system was asked", cache.misses),
            ("uplink_charged_bytes", "Wire bytes charged to the uplink", uplink.charged_bytes),
            ("uplink_grants", "Times a response was given leave to write", uplink.grants),
            ("uplink_guarded", "Responses put ahead because they waited too long", uplink.guarded),
        ];
        let gauges = vec![
            ("connections_open", "Connections open", accepted.saturating_sub(closed)),
            ("cache_bytes", "Bytes in the cache", cache.bytes),
            ("cache_entries", "Entries of the cache", cache.entries),
            ("uplink_responses", "Responses under way", uplink.jobs as u64),
            ("uplink_waiting", "Responses waiting for leave to write", uplink.waiting as u64),
        ];
        Self {
            start_time_s: metrics.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            responses: std::array::from_fn(|class| metrics.sum(|worker| &worker.responses[class])),
            response_time: (0..=RESPONSE_TIME_BOUNDS_US.len())
                .map(|bucket| metrics.sum(|worker| &worker.response_time[bucket]))
                .collect(),
            response_time_sum_s: sum(|worker| &worker.response_time_sum_us) as f64 / 1e6,
            counters,
            gauges,
            uplink,
        }
    }
}

impl Collector for Sample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family =
            encoder.encode_descriptor("responses", "Responses by class of status", None, MetricType::Counter)?;
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(self.responses) {
            ConstCounter::new(count).encode(family.encode_family(&[("status", *class)])?)?;
        }
        let mut histogram = encoder.encode_descriptor(
            "response_time_seconds",
            "From the request's last byte to the response's last byte taken by the socket",
            None,
            MetricType::Histogram,
        )?;
        let bounds = RESPONSE_TIME_BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.response_time.iter().copied()).collect();
        let count = self.response_time.iter().sum();
        histogram.encode_histogram::<NoLabelSet>(self.response_time_sum_s, count, &buckets, None)?;
        for &(name, help, value) in &self.counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        for &(name, help, value) in &self.gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        if let Some(rate) = self.uplink.rate_bits_per_second {
            let gauge = ConstGauge::new(i64::try_from(rate).unwrap_or(i64::MAX));
            let help = "The rate paced at, in bits per second on the wire; absent while not paced";
            gauge.encode(encoder.encode_descriptor("uplink_rate_bits_per_second", help, None, MetricType::Gauge)?)?;
        }
        let gauge = ConstGauge::new(self.start_time_s);
        let help = "When this process started, in seconds since 1970";
        gauge.encode(encoder.encode_descriptor("start_time_seconds", help, None, MetricType::Gauge)?)
    }
}
