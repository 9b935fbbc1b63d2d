//! The metrics as Prometheus reads them (OpenMetrics text).

mod leases;
mod number;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::UNIX_EPOCH,
};

use heads::GrpcStatus;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use recent::{SIZE_NAMES, SizeTotal};
use scheduler::{admission::ClassStats, correction::Doubt};

use self::number::encode_number;
use super::{certificates, process::Process};
use crate::{
    admission::{LeaseStats, ResourceStats},
    class_metrics::{ClassCounters, Goal, GoalKind, TimesTotal, Totals},
    metrics::{RESPONSE_TIME_BOUNDS_US, WorkerMetrics},
    state::{ConfigSnapshot, ServerState},
    uplink::{LineStats, UplinkStats},
    upstream::{Health, ServerMode, ServerStats, UpstreamStats},
};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics at this moment.
pub(super) fn text(state: &ServerState) -> String {
    let mut registry = Registry::default();
    registry.sub_registry_with_prefix("serpent").register_collector(Box::new(Sample::take(state)));
    registry.register_collector(Box::new(Process::take(state.metrics.started)));
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
    grpc_calls: [u64; GrpcStatus::COUNT],
    response_time: Vec<u64>,
    response_time_sum_s: f64,
    counters: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, u64)>,
    uplink: UplinkStats,
    classes: Vec<OfClass>,
    resources: Vec<ResourceStats>,
    leases: Option<LeaseStats>,
    line: Option<LineStats>,
    by_size: [SizeTotal; SIZE_NAMES.len()],
    upstreams: Vec<UpstreamStats>,
    /// Of classes that have servers of their own, by number.
    class_names: Vec<Arc<str>>,
    /// By site, in seconds since 1970.
    certificate_ends: Vec<(String, u64)>,
}

/// One reading of a class's counters.
#[derive(Debug)]
struct OfClass {
    name: Arc<str>,
    stats: ClassStats,
    uplink_bytes: u64,
    totals: Totals,
    goals: Vec<Goal>,
}

impl Sample {
    fn take(state: &ServerState) -> Self {
        let metrics = &state.metrics;
        let sum = |counter: fn(&WorkerMetrics) -> &std::sync::atomic::AtomicU64| metrics.sum(counter);
        // Closed before accepted: the difference is never below zero.
        let closed = sum(|worker| &worker.closed);
        let accepted = sum(|worker| &worker.accepted);
        let uplink = state.uplink.stats();
        let cache = state.snapshot.load().cache.stats();
        let copies = state.snapshot.load().cache.copies().stats();
        let store = state.snapshot.load().store.stats();
        let shared = state.snapshot.load().shared_cache.clone();
        let (stored, requests) = (shared.store.stats(), &shared.counts);
        let snapshot = state.snapshot.load();
        let admission = snapshot.admission.stats();
        let of_acme = |counter: fn(&acme::Counters) -> &std::sync::atomic::AtomicU64| {
            snapshot.acme.as_ref().map_or(0, |acme| counter(acme.counters()).load(Relaxed))
        };
        let (obtained, failed) = (of_acme(|it| &it.obtained), of_acme(|it| &it.failed));
        let ends = snapshot.tls.iter().flat_map(|tls| tls.ends());
        let certificate_ends =
            ends.map(|(site, end_s)| (certificates::site_name(&snapshot, site).to_owned(), end_s)).collect();
        let traced = &metrics.spans;
        let spans = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed);
        let counters = vec![
            ("responses_incomplete", "Responses cut off, by the client or by us", sum(|worker| &worker.incomplete)),
            (
                "responses_stalled",
                "Responses of which the client took too little for a quarter of limits.write-timeout",
                uplink.stalled,
            ),
            (
                "responses_given_up",
                "Responses cut off because the client took too little for limits.write-timeout",
                uplink.given_up,
            ),
            ("response_body_bytes", "Body bytes taken by sockets", sum(|worker| &worker.body_bytes)),
            ("connections_accepted", "Connections accepted", accepted),
            ("accept_errors", "Failed attempts to accept a connection", sum(|worker| &worker.accept_errors)),
            ("accept_pauses", "Times accepting paused at limits.connections", sum(|worker| &worker.accept_pauses)),
            (
                "client_connections_refused",
                "Connections closed at once because of limits.connections-per-client",
                sum(|worker| &worker.client_connections_refused),
            ),
            (
                "proxy_headers_refused",
                "Connections from networks of proxy-protocol without a sound header in time",
                sum(|worker| &worker.proxy_headers_refused),
            ),
            ("tls_handshakes_failed", "TLS handshakes failed or too slow", sum(|worker| &worker.handshakes_failed)),
            (
                "http2_floods",
                "HTTP/2 connections cut because their client flooded them with control frames",
                sum(|worker| &worker.http2_floods),
            ),
            (
                "reads_delayed",
                "Times a client was read from behind what was under way",
                sum(|worker| &worker.reads_delayed),
            ),
            ("log_lines_dropped", "Access log lines dropped", metrics.log_lines_dropped.load(Relaxed)),
            (
                "error_log_lines_dropped",
                "Messages that the error log did not take",
                access_log::messages_dropped().load(Relaxed),
            ),
            ("trace_spans_exported", "Spans that the collector has taken", spans(&traced.exported)),
            (
                "trace_spans_dropped",
                "Spans that found no room, because the collector is slow or gone",
                spans(&traced.dropped),
            ),
            ("trace_spans_refused", "Spans that the collector has refused", spans(&traced.refused)),
            ("trace_export_failures", "Requests to the collector that failed", spans(&traced.failures)),
            ("config_reloads", "Configurations taken over while running", metrics.reloads_ok.load(Relaxed)),
            ("config_reloads_failed", "Configurations refused while running", metrics.reloads_failed.load(Relaxed)),
            ("certificate_reloads", "Changed certificates taken over", metrics.certificate_reloads_ok.load(Relaxed)),
            (
                "certificate_reloads_failed",
                "Changed certificates that cannot be used",
                metrics.certificate_reloads_failed.load(Relaxed),
            ),
            ("lease_asks", "Asks for slots of a site with several gateways", metrics.lease_asks.load(Relaxed)),
            (
                "limit_requests_told",
                "Requests under limits, of which other gateways were told",
                metrics.limit_requests_told.load(Relaxed),
            ),
            ("lease_failures", "Asks that the store did not answer", metrics.lease_failures.load(Relaxed)),
            (
                "tasks_restarted",
                "Times the pacer, admission or the checks of upstreams ended and were started anew",
                metrics.tasks_restarted.load(Relaxed),
            ),
            ("certificates_obtained", "Certificates obtained from the authority", obtained),
            ("certificates_failed", "Attempts to obtain a certificate that failed", failed),
            ("cache_hits", "Requests for files answered from memory at once", cache.hits),
            ("cache_misses", "Requests for files for which the file system was asked", cache.misses),
            ("compressed_hits", "Requests answered from a compressed file in memory", copies.hits),
            ("compressed_misses", "Requests for which a file was compressed to be kept", copies.misses),
            ("shared_cache_hits", "Requests answered from a fresh stored response", requests.hits.load(Relaxed)),
            ("shared_cache_stale", "Requests answered from a stale stored response", requests.stale.load(Relaxed)),
            ("shared_cache_misses", "Requests for which the site was asked", requests.misses.load(Relaxed)),
            (
                "shared_cache_revalidated",
                "Stored responses of which the site said that they are still right",
                requests.revalidated.load(Relaxed),
            ),
            (
                "shared_cache_collapsed",
                "Requests answered by what another request had asked for",
                requests.collapsed.load(Relaxed),
            ),
            ("shared_cache_passed", "Requests that the cache has nothing to do with", requests.passed.load(Relaxed)),
            ("shared_cache_stored", "Responses stored", stored.stored),
            ("shared_cache_evicted", "Stored responses given up for lack of room", stored.evicted),
            ("shared_cache_purged", "Stored responses purged or made invalid", stored.purged),
            ("shared_cache_disk_failures", "Reads and writes of the cache's disk that failed", stored.disk_failures),
            ("body_files_full", "Bodies that had to wait because limits.body-files was used up", store.refused),
            ("uplink_charged_bytes", "Wire bytes charged to the uplink", uplink.charged_bytes),
            ("uplink_grants", "Times a response was given leave to write", uplink.grants),
            (
                "uplink_timer_failures",
                "Failures of the pacer's timer, after which a coarser one does its work",
                uplink.timer_failures,
            ),
            ("uplink_guarded", "Responses put ahead because they waited too long", uplink.guarded),
        ];
        let gauges = vec![
            ("connections_open", "Connections open", accepted.saturating_sub(closed)),
            ("body_file_bytes", "Bytes of bodies in temporary files", store.file_bytes),
            ("cache_bytes", "Bytes in the cache", cache.bytes),
            ("cache_entries", "Entries of the cache", cache.entries),
            ("compressed_bytes", "Bytes of compressed files in memory", copies.bytes),
            ("compressed_entries", "Compressed files in memory", copies.entries),
            (
                "config_last_reload_successful",
                "1 if the last configuration was taken over, 0 if it was refused",
                metrics.last_reload_worked.load(Relaxed).into(),
            ),
            (
                "config_last_reload_success_timestamp_seconds",
                "When the configuration in force was loaded, in seconds since 1970",
                metrics.last_reload_s.load(Relaxed),
            ),
            ("shared_cache_entries", "Stored responses", stored.entries),
            ("shared_cache_memory_bytes", "Bytes of stored responses in memory", stored.memory_bytes),
            ("shared_cache_disk_bytes", "Bytes of stored responses on disk", stored.disk_bytes),
            ("uplink_responses", "Responses under way", uplink.jobs as u64),
            ("uplink_waiting", "Responses waiting for leave to write", uplink.waiting as u64),
        ];
        Self {
            start_time_s: metrics.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            responses: std::array::from_fn(|class| metrics.sum(|worker| &worker.responses[class])),
            grpc_calls: std::array::from_fn(|status| metrics.sum(|worker| &worker.grpc_calls[status])),
            response_time: (0..=RESPONSE_TIME_BOUNDS_US.len())
                .map(|bucket| metrics.sum(|worker| &worker.response_time[bucket]))
                .collect(),
            response_time_sum_s: sum(|worker| &worker.response_time_sum_us) as f64 / 1e6,
            counters,
            gauges,
            uplink,
            classes: classes(&state.snapshot.load(), &state.uplink.class_bytes()),
            certificate_ends,
            by_size: metrics.by_size(),
            upstreams: snapshot.upstreams.stats(),
            class_names: snapshot.names.clone(),
            resources: admission.resources,
            leases: admission.leases,
            line: state.uplink.line_stats(),
        }
    }

    /// Encodes the metrics of resources, with a value for each.
    fn encode_resources(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Number = fn(&ResourceStats) -> Option<u64>;
        let families: [(&str, &str, MetricType, Number); 3] = [
            (
                "resource_window",
                "Requests let in at once for a resource; absent without a limit of its own",
                MetricType::Gauge,
                |it| it.window.map(u64::from),
            ),
            (
                "resource_running",
                "Requests at the site; those of resources without a limit of their own together",
                MetricType::Gauge,
                |it| Some(it.running.into()),
            ),
            ("resource_window_changes", "Times a window was adjusted", MetricType::Counter, |it| {
                Some(it.window_changes)
            }),
        ];
        for (name, help, kind, number) in families {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for resource in &self.resources {
                let Some(number) = number(resource) else { continue };
                let labels = [("resource", &*resource.name)];
                encode_number(kind, number, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes the metrics by the size of responses.
    fn encode_sizes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "size_responses",
            "Responses by the size of their body",
            None,
            MetricType::Counter,
        )?;
        for (size, total) in SIZE_NAMES.iter().zip(&self.by_size) {
            ConstCounter::new(total.count).encode(family.encode_family(&[("size", *size)])?)?;
        }
        let help = "The sum of their response times";
        let mut family = encoder.encode_descriptor("size_response_time_seconds", help, None, MetricType::Counter)?;
        for (size, total) in SIZE_NAMES.iter().zip(&self.by_size) {
            ConstCounter::new(total.sum_us as f64 / 1e6).encode(family.encode_family(&[("size", *size)])?)?;
        }
        Ok(())
    }

    /// Encodes the metrics of upstreams, of their servers, and of the names of these.
    fn encode_upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Number = fn(&ServerStats) -> u64;
        let families: [(&str, &str, MetricType, Number); 7] = [
            ("upstream_healthy", "Whether a server is well: 1 or 0", MetricType::Gauge, |it| {
                u64::from(it.health == Health::Healthy)
            }),
            (
                "upstream_enabled",
                "Whether the operator lets a server have new clients: 1 or 0",
                MetricType::Gauge,
                |it| u64::from(it.mode == ServerMode::Enabled),
            ),
            ("upstream_weight", "The weight of a server", MetricType::Gauge, |it| it.weight.into()),
            ("upstream_in_flight", "Requests that a server has", MetricType::Gauge, |it| it.in_flight.into()),
            ("upstream_connections", "Open connections to a server", MetricType::Gauge, |it| it.connections.into()),
            ("upstream_requests", "Requests sent to a server, and attempts to send one", MetricType::Counter, |it| {
                it.requests
            }),
            ("upstream_failures", "Requests that failed by the server's fault", MetricType::Counter, |it| it.failures),
        ];
        for (name, help, kind, number) in families {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for upstream in &self.upstreams {
                for server in &upstream.servers {
                    let class = server.class.and_then(|class| self.class_names.get(class)).map_or("", |name| &**name);
                    let labels = [("upstream", &*upstream.name), ("server", &*server.server), ("class", class)];
                    encode_number(kind, number(server), family.encode_family(&labels)?)?;
                }
            }
        }
        type OfUpstream = fn(&UpstreamStats) -> u64;
        let families: [(&str, &str, OfUpstream); 6] = [
            ("upstream_retries", "Times a request was sent to another server", |it| it.retries),
            ("upstream_retries_refused", "Times the budget did not allow that", |it| it.retries_refused),
            ("upstream_hedges", "Slow requests sent to a second server, too", |it| it.hedges[0]),
            ("upstream_hedges_won", "Those whose answer came first", |it| it.hedges[1]),
            ("upstream_hedges_refused", "Slow requests for which budget or slots did not allow that", |it| {
                it.hedges[2]
            }),
            ("upstream_look_ups_failed", "Look-ups of names of servers that found nothing", |it| it.look_ups_failed),
        ];
        for (name, help, number) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for upstream in &self.upstreams {
                let labels = [("upstream", &*upstream.name)];
                encode_number(MetricType::Counter, number(upstream), family.encode_family(&labels)?)?;
            }
        }
        let help = "Whether the last look-up of a name of servers found them: 1 or 0";
        let mut family = encoder.encode_descriptor("upstream_name_found", help, None, MetricType::Gauge)?;
        for upstream in &self.upstreams {
            for name in &upstream.names {
                let labels = [("upstream", &*upstream.name), ("name", &*name.name)];
                encode_number(MetricType::Gauge, name.problem.is_none().into(), family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes the metrics of classes, with a value for each.
    fn encode_classes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Number = fn(&OfClass) -> u64;
        let gauges: [(&str, &str, Number); 2] = [
            ("class_waiting", "Requests that wait for a slot", |it| it.stats.waiting as u64),
            ("class_running", "Requests that hold a slot", |it| it.stats.running as u64),
        ];
        for (name, help, number) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for class in &self.classes {
                let gauge = ConstGauge::new(i64::try_from(number(class)).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&[("class", &*class.name)])?)?;
            }
        }
        let counters: [(&str, &str, Number); 5] = [
            ("class_arrived", "Requests that wanted a slot", |it| it.stats.arrived),
            ("class_started", "Requests that were given a slot", |it| it.stats.started),
            ("class_finished", "Requests that the site is done with", |it| it.stats.finished),
            ("class_responses_incomplete", "Responses cut off, by the client or by us", |it| it.totals.incomplete),
            ("class_uplink_bytes", "Wire bytes charged while the uplink was shared between classes", |it| {
                it.uplink_bytes
            }),
        ];
        for (name, help, number) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for class in &self.classes {
                ConstCounter::new(number(class)).encode(family.encode_family(&[("class", &*class.name)])?)?;
            }
        }
        type Kinds = &'static [(&'static str, Number)];
        let by_kind: [(&str, &str, &str, Kinds); 3] = [
            (
                "class_refused",
                "Requests that were not let in",
                "reason",
                &[
                    ("queue_full", |it| it.stats.refused_full),
                    ("waited_too_long", |it| it.stats.refused_waited),
                    ("too_late", |it| it.stats.refused_late),
                ],
            ),
            (
                "class_abandoned",
                "Requests that were given up, while they waited or while they held a slot",
                "state",
                &[("waiting", |it| it.stats.gone_waiting), ("running", |it| it.stats.gone_running)],
            ),
            (
                "class_responses",
                "Responses by class of status",
                "status",
                &[
                    ("1xx", |it| it.totals.responses[0]),
                    ("2xx", |it| it.totals.responses[1]),
                    ("3xx", |it| it.totals.responses[2]),
                    ("4xx", |it| it.totals.responses[3]),
                    ("5xx", |it| it.totals.responses[4]),
                ],
            ),
        ];
        for (name, help, label, kinds) in by_kind {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for class in &self.classes {
                for (kind, number) in kinds {
                    let labels = [("class", &*class.name), (label, *kind)];
                    ConstCounter::new(number(class)).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        type Times = fn(&Totals) -> &TimesTotal;
        let times: [(&str, &str, Times); 3] = [
            ("class_waiting_time_seconds", "How long requests that were let in waited for it", |it| &it.waiting),
            ("class_service_time_seconds", "How long requests held their slots", |it| &it.service),
            ("class_system_time_seconds", "From arrival to the end of the response, refused ones left out", |it| {
                &it.system
            }),
        ];
        for (name, help, times) in times {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for class in &self.classes {
                let TimesTotal { buckets, sum_us } = times(&class.totals);
                family.encode_family(&[("class", &*class.name)])?.encode_histogram::<NoLabelSet>(
                    *sum_us as f64 / 1e6,
                    buckets.iter().sum(),
                    &bounded(buckets),
                    None,
                )?;
            }
        }
        self.encode_objectives(encoder)
    }

    fn encode_objectives(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let goals: Vec<_> = self
            .classes
            .iter()
            .flat_map(|class| class.goals.iter().map(|goal| (&*class.name, goal.kind.to_string(), goal)))
            .collect();
        let mut family = encoder.encode_descriptor(
            "class_objective_met",
            "Whether a class has what was promised to it: 1 or 0; absent before its first request",
            None,
            MetricType::Gauge,
        )?;
        for (class, kind, goal) in &goals {
            if let Some(met) = goal.met {
                let labels = [("class", *class), ("objective", kind)];
                ConstGauge::new(i64::from(met)).encode(family.encode_family(&labels)?)?;
            }
        }
        type Value = fn(&Goal) -> Option<f64>;
        let is_rate = |goal: &Goal| goal.kind == GoalKind::ErrorRate;
        let values: [(&str, &str, bool, Value); 4] = [
            ("class_objective_seconds", "System time over the last window", false, |it| it.value),
            ("class_objective_target_seconds", "System time promised", false, |it| Some(it.target)),
            ("class_objective_error_ratio", "Part of requests that failed over the last window", true, |it| it.value),
            ("class_objective_target_error_ratio", "Part of requests that may fail", true, |it| Some(it.target)),
        ];
        for (name, help, of_rates, value) in values {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (class, kind, goal) in goals.iter().filter(|(_, _, goal)| is_rate(goal) == of_rates) {
                if let Some(value) = value(goal) {
                    let labels = &[("class", *class), ("objective", kind)];
                    ConstGauge::new(value).encode(family.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn classes(snapshot: &ConfigSnapshot, uplink_bytes: &[(Arc<str>, u64)]) -> Vec<OfClass> {
    let stats = snapshot.admission.stats().classes;
    let of_class = |counters: &ClassCounters| {
        let name = counters.name().clone();
        let stats = stats.iter().find(|(it, _)| *it == name).map(|(_, stats)| *stats).unwrap_or_default();
        let uplink_bytes = uplink_bytes.iter().find(|(it, _)| *it == name).map_or(0, |(_, bytes)| *bytes);
        OfClass { name, stats, uplink_bytes, totals: counters.totals(), goals: counters.goals() }
    };
    snapshot.class_metrics.iter().map(of_class).collect()
}

/// Counts with the upper bounds of their buckets, in seconds.
fn bounded(counts: &[u64]) -> Vec<(f64, u64)> {
    let bounds = RESPONSE_TIME_BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
    bounds.zip(counts.iter().copied()).collect()
}

impl Collector for Sample {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family =
            encoder.encode_descriptor("responses", "Responses by class of status", None, MetricType::Counter)?;
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(self.responses) {
            ConstCounter::new(count).encode(family.encode_family(&[("status", *class)])?)?;
        }
        let mut family =
            encoder.encode_descriptor("grpc_calls", "Calls of gRPC by their status", None, MetricType::Counter)?;
        for (number, count) in (0..).zip(self.grpc_calls) {
            let name = GrpcStatus::numbered(number).map_or("", GrpcStatus::name);
            ConstCounter::new(count).encode(family.encode_family(&[("status", name)])?)?;
        }
        let mut histogram = encoder.encode_descriptor(
            "response_time_seconds",
            "From the request's last byte to the response's last byte taken by the socket",
            None,
            MetricType::Histogram,
        )?;
        let buckets = bounded(&self.response_time);
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
        if let Some(rate) = self.uplink.device_rate_bits_per_second {
            let gauge = ConstGauge::new(i64::try_from(rate).unwrap_or(i64::MAX));
            let help =
                "The rate that the kernel holds the server's device to, where the rate is found; absent without one";
            let name = "uplink_device_rate_bits_per_second";
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "uplink_rate_doubted",
            "1 where round trips show that the given rate of the uplink is too high or too low, or show no rate",
            None,
            MetricType::Gauge,
        )?;
        for (reason, doubt) in
            [("too-high", Doubt::TooHigh), ("too-low", Doubt::TooLow), ("not-found", Doubt::NotFound)]
        {
            let gauge = ConstGauge::new(i64::from(self.uplink.rate_doubt == Some(doubt)));
            gauge.encode(family.encode_family(&[("reason", reason)])?)?;
        }
        let mut family = encoder.encode_descriptor("build_info", "The version that runs", None, MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(family.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)?;
        self.encode_sizes(&mut encoder)?;
        self.encode_upstreams(&mut encoder)?;
        self.encode_classes(&mut encoder)?;
        self.encode_resources(&mut encoder)?;
        leases::encode(self.leases.as_ref(), self.line, &mut encoder)?;
        let help = "When the certificate of a site ends, in seconds since 1970";
        let mut family = encoder.encode_descriptor("certificate_end_seconds", help, None, MetricType::Gauge)?;
        for (site, end_s) in &self.certificate_ends {
            let gauge = ConstGauge::new(i64::try_from(*end_s).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("site", &**site)])?)?;
        }
        let gauge = ConstGauge::new(self.start_time_s);
        let help = "When this process started, in seconds since 1970";
        gauge.encode(encoder.encode_descriptor("start_time_seconds", help, None, MetricType::Gauge)?)
    }
}
