//! What the page shows of the last hour.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use recent::{ClassReading, Comparison, Point, Reading, ResourcePoint, SIZE_NAMES, SizeTotal};
use scheduler::correction::Doubt;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::state::ServerState;

const INTERVAL: Duration = Duration::from_secs(1);
/// So many seconds are between two comparisons with fair sharing.
const COMPARED_EVERY: u64 = 10;

/// Takes a reading every second.
pub(super) async fn watch(state: Arc<ServerState>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for second in 0_u64.. {
        interval.tick().await;
        let reading = reading(&state);
        state.metrics.history.lock().record(reading);
        if second.is_multiple_of(COMPARED_EVERY) && state.metrics.are_shown.load(Relaxed) {
            let state = state.clone();
            let _ = tokio::task::spawn_blocking(move || compare(&state)).await;
        }
    }
}

/// Says what the last responses would have had under fair sharing.
fn compare(state: &ServerState) {
    let (sent, rate) = (state.metrics.last_sent.list(), state.uplink.stats().rate_bits_per_second);
    let other_mean_s = state.metrics.fair_sharing.get().zip(rate).and_then(|(mean_s, rate)| mean_s(&sent, rate));
    *state.metrics.comparison.lock() = other_mean_s.and_then(|mean_s| Comparison::new(&sent, mean_s));
}

/// [`show`], for the page, which asks every second.
pub(super) fn answer(state: &ServerState, after_s: f64) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(show(state, after_s).to_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The present, and what is newer than `after_s` of the last five minutes and of the last hour.
fn show(state: &ServerState, after_s: f64) -> Value {
    let now_s = now_s();
    let snapshot = state.snapshot.load();
    let uplink = state.uplink.stats();
    let doubt = uplink.rate_doubt.map(|doubt| match doubt {
        Doubt::TooHigh => "too high",
        Doubt::TooLow => "too low",
    });
    let names: Vec<_> = (0..snapshot.sites.count()).map(|site| snapshot.sites.names_of(site)).collect();
    let newer = |point: &&Point| point.at_s > after_s;
    let history = state.metrics.history.lock();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now_s": now_s,
        "started_s": seconds(state.metrics.started),
        "sites": names,
        "uplink": {
            "order": snapshot.uplink().order.to_string(),
            "rate_bits_per_second": uplink.rate_bits_per_second,
            "doubt": doubt,
        },
        "comparison": *state.metrics.comparison.lock(),
        "sizes": SIZE_NAMES,
        "seconds": history.seconds().filter(newer).collect::<Vec<_>>(),
        "steps": history.steps().filter(newer).collect::<Vec<_>>(),
        "slowest": state.metrics.slowest.list(now_s as u64),
    })
}

fn reading(state: &ServerState) -> Reading {
    let metrics = &state.metrics;
    let uplink = state.uplink.stats();
    let snapshot = state.snapshot.load();
    let admission = snapshot.admission.stats();
    let class = |counters: &crate::class_metrics::ClassCounters| {
        let totals = counters.totals();
        let stats = admission.classes.iter().find(|(name, _)| name == counters.name());
        let stats = stats.map(|(_, stats)| *stats).unwrap_or_default();
        ClassReading {
            name: counters.name().clone(),
            waiting: stats.waiting,
            running: stats.running,
            refused: stats.refused_full + stats.refused_waited + stats.refused_late,
            system_times: SizeTotal { count: totals.system.buckets.iter().sum(), sum_us: totals.system.sum_us },
        }
    };
    // A single resource without a window of its own has all slots.
    let total = snapshot.classes.admission.total.filter(|_| admission.resources.len() == 1).map(Into::into);
    let resources = admission.resources.iter().map(|it| ResourcePoint {
        name: it.name.clone(),
        window: it.window.or(total),
        running: it.running,
    });
    Reading {
        at_s: now_s(),
        uplink_bytes: uplink.charged_bytes,
        rate_bits_per_second: uplink.rate_bits_per_second,
        waiting: uplink.waiting,
        under_way: uplink.jobs,
        responses: std::array::from_fn(|class| metrics.sum(|worker| &worker.responses[class])),
        incomplete: metrics.sum(|worker| &worker.incomplete),
        by_size: metrics.by_size(),
        classes: snapshot.class_metrics.iter().map(class).collect(),
        resources: resources.collect(),
    }
}

fn now_s() -> f64 {
    seconds(SystemTime::now())
}

/// Seconds since 1970, to the millisecond: a number of so few digits comes back as it was told, whoever reads it.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}
