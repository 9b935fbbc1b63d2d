//! The readings of the last hour, and the present state, for the page.

use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use recent::{ClassReading, Comparison, Point, Reading, ResourcePoint, SIZE_NAMES, SentResponse, SizeTotal};
use scheduler::correction::Doubt;
use serde_json::{Value, json};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    certificates, maintenance, servers,
    shown::{all_admission, all_classes, changes, version},
};
use crate::{admission::Adjusted, class_metrics::Goal, state::ServerState};

const INTERVAL: Duration = Duration::from_secs(1);
/// So many seconds are between two comparisons with other orders: least and most.
const COMPARED_EVERY: (u64, u64) = (10, 60);
/// In between, comparisons take one part in so many of a processor's time.
const COMPARED_OF: u32 = 1_000;
/// They are made while the page is open, and for so many seconds after.
const LOOKED_AT: u64 = 60;
/// Responses that are compared: the simulations take some 40 ms of a processor.
const COMPARED: usize = 10_000;

/// Takes a reading every second.
pub(super) async fn watch(state: Arc<ServerState>, told: watch::Sender<()>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut comparing, mut compared): (Option<JoinHandle<Duration>>, u64) = (None, 0);
    let mut pause = 0;
    for second in 0_u64.. {
        interval.tick().await;
        let reading = reading(&state);
        state.metrics.history.lock().record(reading);
        told.send_replace(());
        let is_looked_at = state.metrics.looked_at_s.load(Relaxed) + LOOKED_AT > now_s() as u64;
        if let Some(done) = comparing.take_if(|it| it.is_finished()) {
            pause = pause_after(done.join().unwrap_or_default());
        }
        if second >= compared + pause && is_looked_at && comparing.is_none() {
            compared = second;
            let state = state.clone();
            comparing = thread::Builder::new().name("orders".into()).spawn(move || timed(|| compare(&state))).ok();
        }
    }
}

/// Seconds from the begin of a comparison that took so long to the next.
fn pause_after(used: Duration) -> u64 {
    let (least, most) = COMPARED_EVERY;
    (used * COMPARED_OF).as_secs().clamp(least, most)
}

/// How long something takes on this thread: of the processor's time, where that can be had.
fn timed(act: impl FnOnce()) -> Duration {
    #[cfg(target_os = "linux")]
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    #[cfg(not(target_os = "linux"))]
    let now = {
        let start = std::time::Instant::now();
        move || start.elapsed()
    };
    let start = now();
    act();
    now().saturating_sub(start)
}

/// Says what the last responses would have had under other orders. Takes long, with what the processors have left.
fn compare(state: &ServerState) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
    let metrics = &state.metrics;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = ns(metrics.began.elapsed());
    let mut sent = metrics.last_sent.list(COMPARED);
    // Of the time before these, responses are missing that have ended.
    let first_ns = if sent.len() == COMPARED { sent[0].ready_ns } else { 0 };
    let under_way = state.uplink.under_way().into_iter().map(|(since, body_bytes)| SentResponse {
        ready_ns: until_ns.saturating_sub(ns(since)),
        body_bytes,
        send_ns: None,
    });
    sent.extend(under_way.filter(|sent| sent.ready_ns >= first_ns));
    sent.sort_by_key(|sent| sent.ready_ns);
    let rate = state.uplink.stats().rate_bits_per_second;
    let others = metrics.orders.get().zip(rate).map(|(orders, rate)| orders(&sent, rate, until_ns));
    let order = state.snapshot.load().uplink().order.to_string();
    *metrics.comparison.lock() = Comparison::new(order, &sent, until_ns, others.unwrap_or_default());
}

/// The last responses, as a table that `serpent advise` reads like a log. Takes some milliseconds.
pub(super) fn responses(state: &ServerState) -> Response<Full<Bytes>> {
    let began_us = state.metrics.started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let mut text = "at_us,size_bytes\n".to_owned();
    for sent in state.metrics.last_sent.list(usize::MAX) {
        let _ = writeln!(text, "{},{}", began_us + u128::from(sent.ready_ns / 1000), sent.body_bytes);
    }
    let mut response = Response::new(Full::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// [`show`], for a page that asks every second.
pub(super) fn answer(state: &ServerState, after_s: f64) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(show(state, after_s).0.to_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The time in a query `after=TIME`, from which on points are asked for.
pub(super) fn after_s(query: Option<&str>) -> f64 {
    query.and_then(|query| query.strip_prefix("after=")?.parse().ok()).unwrap_or_default()
}

/// All that the page shows: the present, and what is newer than `after_s` of the last five minutes and of the last
/// hour. Also the time of the newest point.
pub(super) fn show(state: &ServerState, after_s: f64) -> (Value, f64) {
    let now_s = now_s();
    state.metrics.looked_at_s.store(now_s as u64, Relaxed);
    let snapshot = state.snapshot.load();
    let uplink = state.uplink.stats();
    let doubt = uplink.rate_doubt.map(|doubt| match doubt {
        Doubt::TooHigh => "too high",
        Doubt::TooLow => "too low",
        Doubt::NotFound => "not found",
    });
    let names: Vec<_> = (0..snapshot.sites.count()).map(|site| snapshot.sites.names_of(site)).collect();
    let newer = |point: &&Point| point.at_s > after_s;
    let version = version(state, &snapshot);
    let history = state.metrics.history.lock();
    let last_s = history.seconds().last().map_or(after_s, |point| point.at_s);
    let value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now_s": now_s,
        "started_s": seconds(state.metrics.started),
        "sites": names,
        "maintenance": maintenance::all(&snapshot)["sites"],
        "uplink": {
            "order": snapshot.uplink().order.to_string(),
            "rate_bits_per_second": uplink.rate_bits_per_second,
            "doubt": doubt,
        },
        "comparison": state.metrics.comparison.lock().clone(),
        "sizes": SIZE_NAMES,
        "seconds": history.seconds().filter(newer).collect::<Vec<_>>(),
        "steps": history.steps().filter(newer).collect::<Vec<_>>(),
        "slowest": state.metrics.slowest.list(now_s as u64),
        "etag": version.to_str().ok(),
        "can_change": snapshot.admin_token.is_some(),
        "classes": all_classes(&snapshot),
        "admission": all_admission(&snapshot),
        "upstreams": servers::all(&snapshot)["upstreams"],
        "certificates": certificates::all(&snapshot)["certificates"],
        "decisions": snapshot.admission.decisions().iter().map(|it| decision(now_s, it)).collect::<Vec<_>>(),
        "changes": changes(state),
    });
    (value, last_s)
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
            met: met(&counters.goals()),
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

fn decision(now_s: f64, it: &Adjusted) -> Value {
    json!({
        "at_s": now_s - it.ago.as_secs_f64(),
        "resource": &*it.resource,
        "from": it.from,
        "to": it.to,
        "why": it.reason.to_string(),
    })
}

/// Whether all objectives that can be judged are met; `None`: there are none.
fn met(goals: &[Goal]) -> Option<bool> {
    goals.iter().filter_map(|goal| goal.met).reduce(|one, other| one && other)
}

fn now_s() -> f64 {
    seconds(SystemTime::now())
}

/// Seconds since 1970, to the millisecond: every reader gets a number of so few digits back unchanged.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_take_a_thousandth_of_a_processor_within_the_bounds() {
        let ms = |ms| pause_after(Duration::from_millis(ms));
        assert_eq!((ms(0), ms(10), ms(25), ms(60), ms(900)), (10, 10, 25, 60, 60));
        let used = timed(|| {
            (0..1_000_000).for_each(|it| {
                std::hint::black_box(it);
            })
        });
        assert!(!used.is_zero(), "what was done took no time");
    }
}
