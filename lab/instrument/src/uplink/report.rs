//! The results of the experiment; tables are made of them.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{
    ideal,
    outcome::{End, Outcome},
    sequence::Request,
    stats::{Sample, Summary, median, percentile, summarise},
    wire::WireModel,
};

use super::measured::{Measured, Run};
use crate::{LabError, bed::BedConfig, plan::Plan, record::Facts, setting::Accounting};

mod table;

/// All results of an experiment; printed as tables, written as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The command that repeats the experiment.
    command: String,
    versions: Vec<String>,
    setting: Setting,
    /// Least time of the smallest request on the idle bed beyond its wire time: part of every time alone.
    idle_ms: f64,
    sequences: Vec<SequenceReport>,
    rows: Vec<Row>,
    runs: Vec<RunReport>,
}

#[derive(Debug, Serialize)]
struct Setting {
    bed: BedConfig,
    pattern: String,
    seconds: f64,
    drain_seconds: f64,
    /// `[from second, bits per second]` of each change of the rate.
    rate_changes: Vec<(f64, u64)>,
    keep_alive: bool,
    files: usize,
    accounting: Accounting,
    load_match: workload::sequence::LoadMatch,
    wire: WireModel,
    max_lateness_ms: f64,
    seeds: Vec<u64>,
}

/// The requests of a seed, and the ideal results for them.
#[derive(Debug, Serialize)]
struct SequenceReport {
    seed: u64,
    requests: usize,
    body_bytes: u64,
    wire_bytes: u64,
    /// Wire bytes over the link's capacity while requests are sent.
    load: f64,
    ideal_srpt: Summary,
    ideal_ps: Summary,
    windows_srpt_ms: Vec<f64>,
}

/// One subject under one seed.
#[derive(Debug, Serialize)]
struct RunReport {
    seed: u64,
    subject: String,
    /// Why the run is invalid; empty if it is valid.
    invalid: Vec<String>,
    /// All requests; incomplete ones count with their time so far, a lower bound.
    all: Summary,
    /// Mean of the complete responses.
    done_mean_ms: f64,
    first_byte_mean_ms: f64,
    unfinished: usize,
    errors: BTreeMap<End, usize>,
    lateness_p99_ms: f64,
    lateness_max_ms: f64,
    head_bytes: f64,
    /// Bytes through the bottleneck over its capacity, while requests were sent.
    link_use: f64,
    cpu_us_per_request: f64,
    windows_ms: Vec<f64>,
    facts: Facts,
}

/// One subject over all seeds: medians, and for ratios the medians of the ratios per seed.
#[derive(Debug, Serialize)]
struct Row {
    subject: String,
    mean_ms: f64,
    /// Baseline's mean over this one's: how many times shorter users wait.
    gain: f64,
    /// Mean over the ideal's mean.
    over_ideal: f64,
    slowdown: f64,
    slowdown_gain: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    largest_percent_ms: f64,
    /// This one's over the baseline's.
    largest_percent_ratio: f64,
    very_largest_ms: f64,
    very_largest_ratio: f64,
    /// Sums over the seeds.
    unfinished: usize,
    errors: usize,
    syn_retransmitted: u64,
    segments_retransmitted: u64,
    aborted_on_timeout: u64,
    listen_drops: u64,
    queue_drops: u64,
    /// Medians again.
    wire_megabytes: f64,
    link_use: f64,
    cpu_us_per_request: f64,
    most_concurrent: f64,
}

impl Report {
    pub(super) fn new(measured: &Measured<'_>) -> Result<Self, LabError> {
        let &Measured { record, plan, runs, .. } = measured;
        let idle_ms = idle_ms(runs);
        let sequences =
            record.seeds.iter().map(|&seed| Ok(sequence(plan, seed, &plan.requests(seed)?.unwrap_or_default())));
        let sequences = sequences.collect::<Result<Vec<_>, LabError>>()?;
        let runs: Vec<RunReport> = runs.iter().map(|run| run_report(measured, run, idle_ms)).collect();
        let rows = (0..record.subjects.len())
            .map(|number| {
                // Sorted by seed, then subject: every n-th run is of the same subject.
                let of = |number: usize| runs.iter().skip(number).step_by(record.subjects.len());
                row(&of(number).collect::<Vec<_>>(), &of(0).collect::<Vec<_>>(), &sequences)
            })
            .collect();
        let (command, versions) = (record.command.clone(), record.versions.clone());
        Ok(Self { command, versions, setting: setting(measured), idle_ms, sequences, rows, runs })
    }

    /// Whether every run is valid.
    pub(super) fn all_valid(&self) -> bool {
        self.runs.iter().all(|run| run.invalid.is_empty())
    }
}

fn setting(measured: &Measured<'_>) -> Setting {
    let plan = measured.plan;
    let asked = plan.setting();
    Setting {
        bed: plan.bed.clone(),
        pattern: plan.pattern().map(|pattern| pattern.name().to_owned()).unwrap_or_default(),
        seconds: plan.duration.as_secs_f64(),
        drain_seconds: plan.drain.as_secs_f64(),
        rate_changes: plan.link.changes().iter().map(|&(at, rate)| (at as f64 / 1e9, rate.bits_per_second())).collect(),
        keep_alive: asked.clients.requests_per_connection != 1,
        files: measured.files,
        accounting: asked.count.accounting,
        load_match: asked.count.load_match,
        wire: plan.wire,
        max_lateness_ms: asked.count.max_lateness_ms,
        seeds: measured.record.seeds.clone(),
    }
}

/// The least, because delays of a request on the idle bed have causes outside of the bed. Over all runs, so
/// that subjects share it.
fn idle_ms(runs: &[Run]) -> f64 {
    let smallest = runs.iter().filter_map(|run| run.cell.facts.alone.first());
    smallest.map(|alone| alone.least_ms - alone.wire_ms).reduce(f64::min).unwrap_or(0.0).max(0.0)
}

/// Periods whose response times are shown separately: before, just after and well after each change of the
/// rate. Pairs of seconds; empty if the rate does not change.
pub(super) fn windows_s(plan: &Plan) -> Vec<(f64, f64)> {
    const SETTLING_S: f64 = 10.0;
    if plan.link.changes().is_empty() {
        return Vec::new();
    }
    let mut cuts = vec![0.0];
    for &(at, _) in plan.link.changes() {
        let at = at as f64 / 1e9;
        cuts.extend([at, at + SETTLING_S]);
    }
    cuts.push(plan.duration.as_secs_f64());
    cuts.windows(2).map(|pair| (pair[0], pair[1])).filter(|(from, until)| from < until).collect()
}

fn sequence(plan: &Plan, seed: u64, requests: &[Request]) -> SequenceReport {
    let wire_bytes: u64 = requests.iter().map(|r| plan.wire.bytes_for(r.size_bytes)).sum();
    let srpt = ideal::srpt(requests, &plan.link, &plan.wire);
    let samples = |times: &[f64]| -> Vec<Sample> {
        let alone_ns = |r: &Request| plan.link.rate_at(r.at_ns).ns_for(plan.wire.bytes_for(r.size_bytes) as f64);
        let sample = |(r, &response_ns): (&Request, &f64)| Sample {
            size_bytes: r.size_bytes,
            response_ns,
            alone_ns: alone_ns(r),
        };
        requests.iter().zip(times).map(sample).collect()
    };
    SequenceReport {
        seed,
        requests: requests.len(),
        body_bytes: requests.iter().map(|r| r.size_bytes).sum(),
        wire_bytes,
        load: wire_bytes as f64 / plan.link.capacity_at(plan.duration.as_nanos() as f64),
        ideal_srpt: summarise(&samples(&srpt)),
        ideal_ps: summarise(&samples(&ideal::ps(requests, &plan.link, &plan.wire))),
        windows_srpt_ms: windows(plan, requests.iter().map(|r| r.at_ns).zip(srpt)),
    }
}

/// Mean response times, in milliseconds, of the requests planned within each window of the plan.
fn windows(plan: &Plan, at_and_response_ns: impl Iterator<Item = (u64, f64)> + Clone) -> Vec<f64> {
    let mean = |(from, until): (f64, f64)| {
        let inside = at_and_response_ns.clone().filter(|&(at, _)| (from..until).contains(&(at as f64 / 1e9)));
        let (sum, count) = inside.fold((0.0, 0usize), |(sum, count), (_, ns)| (sum + ns, count + 1));
        sum / count.max(1) as f64 / 1e6
    };
    windows_s(plan).into_iter().map(mean).collect()
}

fn run_report(measured: &Measured<'_>, run: &Run, idle_ms: f64) -> RunReport {
    let plan = measured.plan;
    let Run { cell, outcomes } = run;
    let facts = &cell.facts;
    let sample = |outcome: &Outcome| Sample {
        size_bytes: outcome.size_bytes,
        response_ns: outcome.response_ns() as f64,
        alone_ns: plan.link.rate_at(outcome.at_ns).ns_for(plan.wire.bytes_for(outcome.size_bytes) as f64)
            + idle_ms * 1e6,
    };
    let done: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.end == End::Done).collect();
    let mean_of = |values: &mut dyn Iterator<Item = f64>, count: usize| values.sum::<f64>() / count.max(1) as f64;
    let mut errors = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.end.is_error()) {
        *errors.entry(outcome.end).or_insert(0) += 1;
    }
    // Requests that were never sent (given up before their time) have no lateness.
    let sent = outcomes.iter().filter(|outcome| outcome.sent_ns > 0);
    let mut lateness: Vec<f64> = sent.map(|outcome| outcome.lateness_ns() as f64 / 1e6).collect();
    lateness.sort_unstable_by(f64::total_cmp);
    let first_bytes = outcomes.iter().filter_map(|o| Some((o.first_byte_ns?.saturating_sub(o.at_ns)) as f64 / 1e6));
    let answered = first_bytes.clone().count();

    RunReport {
        seed: cell.seed,
        subject: measured.record.subjects[cell.subject].clone(),
        invalid: facts.invalid.clone(),
        all: summarise(&outcomes.iter().map(sample).collect::<Vec<_>>()),
        done_mean_ms: mean_of(&mut done.iter().map(|outcome| outcome.response_ns() as f64 / 1e6), done.len()),
        first_byte_mean_ms: mean_of(&mut first_bytes.clone(), answered),
        unfinished: outcomes.iter().filter(|outcome| outcome.end == End::Unfinished).count(),
        errors,
        lateness_p99_ms: percentile(&lateness, 0.99),
        lateness_max_ms: percentile(&lateness, 1.0),
        head_bytes: mean_of(&mut done.iter().map(|outcome| f64::from(outcome.head_bytes)), done.len()),
        link_use: facts.qdisc_while_sending.bytes as f64 / plan.link.capacity_at(plan.duration.as_nanos() as f64),
        cpu_us_per_request: facts.cpu.server_us as f64 / outcomes.len().max(1) as f64,
        windows_ms: windows(plan, outcomes.iter().map(|o| (o.at_ns, o.response_ns() as f64))),
        facts: facts.clone(),
    }
}

fn row(runs: &[&RunReport], baseline: &[&RunReport], sequences: &[SequenceReport]) -> Row {
    let of = |value: &dyn Fn(&RunReport) -> f64| median(runs.iter().map(|run| value(run)));
    let over_baseline = |value: &dyn Fn(&RunReport) -> f64| {
        median(runs.iter().zip(baseline).map(|(run, base)| value(run) / value(base)))
    };
    let sum = |value: &dyn Fn(&RunReport) -> u64| runs.iter().map(|run| value(run)).sum::<u64>();
    Row {
        subject: runs.first().map(|run| run.subject.clone()).unwrap_or_default(),
        mean_ms: of(&|run| run.all.mean_ms),
        gain: 1.0 / over_baseline(&|run| run.all.mean_ms),
        over_ideal: median(runs.iter().zip(sequences).map(|(run, s)| run.all.mean_ms / s.ideal_srpt.mean_ms)),
        slowdown: of(&|run| run.all.mean_slowdown),
        slowdown_gain: 1.0 / over_baseline(&|run| run.all.mean_slowdown),
        p50_ms: of(&|run| run.all.p50_ms),
        p95_ms: of(&|run| run.all.p95_ms),
        p99_ms: of(&|run| run.all.p99_ms),
        largest_percent_ms: of(&|run| run.all.largest_percent_ms),
        largest_percent_ratio: over_baseline(&|run| run.all.largest_percent_ms),
        very_largest_ms: of(&|run| run.all.very_largest_ms),
        very_largest_ratio: over_baseline(&|run| run.all.very_largest_ms),
        unfinished: runs.iter().map(|run| run.unfinished).sum(),
        errors: runs.iter().flat_map(|run| run.errors.values()).sum(),
        syn_retransmitted: sum(&|run| run.facts.client_tcp.get("TCPSynRetrans")),
        segments_retransmitted: sum(&|run| run.facts.server_tcp.get("RetransSegs")),
        aborted_on_timeout: sum(&|run| run.facts.server_tcp.get("TCPAbortOnTimeout")),
        listen_drops: sum(&|run| run.facts.server_tcp.get("ListenDrops")),
        queue_drops: sum(&|run| run.facts.qdisc.drops),
        wire_megabytes: of(&|run| run.facts.qdisc.bytes as f64 / 1e6),
        link_use: of(&|run| run.link_use),
        cpu_us_per_request: of(&|run| run.cpu_us_per_request),
        most_concurrent: of(&|run| run.facts.most_concurrent as f64),
    }
}
