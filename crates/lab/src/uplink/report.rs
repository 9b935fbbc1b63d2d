//! The numbers, and the table made of them.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{
    ideal,
    outcome::{End, Outcome},
    sequence::Request,
    stats::{Sample, Summary, median, percentile, summarise},
    wire::WireModel,
};

use super::{
    UplinkArgs,
    measure::{Experiment, Facts, Run},
    plan::Plan,
};
use crate::bed::BedConfig;

mod table;

/// All that is known of an experiment; printed as tables, written as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What to type to do it again.
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
    accounting: super::Accounting,
    load_match: workload::sequence::LoadMatch,
    wire: WireModel,
    max_lateness_ms: f64,
    seeds: Vec<u64>,
}

/// What a seed asks for, and the best that any server could do.
#[derive(Debug, Serialize)]
struct SequenceReport {
    seed: u64,
    requests: usize,
    body_bytes: u64,
    wire_bytes: u64,
    /// Wire bytes over what the link can carry while requests are sent.
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
    /// Why the run must not be trusted; empty if it may be.
    invalid: Vec<String>,
    /// All requests; those that have no response time enter with their time so far, a lower bound.
    all: Summary,
    /// Mean of the responses that came whole.
    done_mean_ms: f64,
    first_byte_mean_ms: f64,
    unfinished: usize,
    errors: BTreeMap<End, usize>,
    lateness_p99_ms: f64,
    lateness_max_ms: f64,
    head_bytes: f64,
    /// Bytes through the bottleneck over what it could carry, while requests were sent.
    link_use: f64,
    cpu_us_per_request: f64,
    windows_ms: Vec<f64>,
    facts: Facts,
}

/// One subject over all seeds: medians, and for ratios the medians of the ratios seed by seed.
#[derive(Debug, Serialize)]
struct Row {
    subject: String,
    mean_ms: f64,
    /// Baseline's mean over this one's: how many times shorter people wait.
    gain: f64,
    /// Mean over the ideal's.
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
    pub(super) fn new(plan: &Plan, experiment: &Experiment) -> Self {
        let idle_ms = idle_ms(experiment);
        let sequences: Vec<SequenceReport> =
            plan.args.seeds.iter().zip(&experiment.sequences).map(|(&seed, r)| sequence(plan, seed, r)).collect();
        let runs: Vec<RunReport> = experiment.runs.iter().map(|run| run_report(plan, run, idle_ms)).collect();
        let rows = (0..plan.subjects.len())
            .map(|number| {
                // Seed by seed, subject by subject: every n-th run is of the same subject.
                let of = |number: usize| runs.iter().skip(number).step_by(plan.subjects.len());
                row(&of(number).collect::<Vec<_>>(), &of(0).collect::<Vec<_>>(), &sequences)
            })
            .collect();
        Self { command: command(), versions: versions(plan), setting: setting(plan), idle_ms, sequences, rows, runs }
    }

    /// Whether every run may be trusted.
    pub(super) fn all_valid(&self) -> bool {
        self.runs.iter().all(|run| run.invalid.is_empty())
    }
}

fn setting(plan: &Plan) -> Setting {
    let UplinkArgs { keepalive, accounting, load_match, max_lateness, .. } = plan.args;
    Setting {
        bed: plan.bed.clone(),
        pattern: plan.pattern.name().to_owned(),
        seconds: plan.duration.as_secs_f64(),
        drain_seconds: plan.drain.as_secs_f64(),
        rate_changes: plan.link.changes().iter().map(|&(at, rate)| (at as f64 / 1e9, rate.bits_per_second())).collect(),
        keep_alive: keepalive,
        files: plan.files.sizes_bytes().len(),
        accounting,
        load_match,
        wire: plan.wire,
        max_lateness_ms: max_lateness,
        seeds: plan.args.seeds.clone(),
    }
}

/// The least, because whatever made a request on the idle bed slower was not the bed. Of all runs, so that subjects share it.
fn idle_ms(experiment: &Experiment) -> f64 {
    let smallest = experiment.runs.iter().filter_map(|run| run.facts.alone.first());
    smallest.map(|alone| alone.least_ms - alone.wire_ms).reduce(f64::min).unwrap_or(0.0).max(0.0)
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
    plan.windows_s().into_iter().map(mean).collect()
}

fn run_report(plan: &Plan, run: &Run, idle_ms: f64) -> RunReport {
    let outcomes = &run.outcomes;
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
    // What was never sent (given up before its time) has no lateness.
    let sent = outcomes.iter().filter(|outcome| outcome.sent_ns > 0);
    let mut lateness: Vec<f64> = sent.map(|outcome| outcome.lateness_ns() as f64 / 1e6).collect();
    lateness.sort_unstable_by(f64::total_cmp);
    let first_bytes = outcomes.iter().filter_map(|o| Some((o.first_byte_ns?.saturating_sub(o.at_ns)) as f64 / 1e6));
    let answered = first_bytes.clone().count();

    let mut report = RunReport {
        seed: run.seed,
        subject: plan.subjects[run.subject].to_string(),
        invalid: Vec::new(),
        all: summarise(&outcomes.iter().map(sample).collect::<Vec<_>>()),
        done_mean_ms: mean_of(&mut done.iter().map(|outcome| outcome.response_ns() as f64 / 1e6), done.len()),
        first_byte_mean_ms: mean_of(&mut first_bytes.clone(), answered),
        unfinished: outcomes.iter().filter(|outcome| outcome.end == End::Unfinished).count(),
        errors,
        lateness_p99_ms: percentile(&lateness, 0.99),
        lateness_max_ms: percentile(&lateness, 1.0),
        head_bytes: mean_of(&mut done.iter().map(|outcome| f64::from(outcome.head_bytes)), done.len()),
        link_use: run.facts.qdisc_while_sending.bytes as f64 / plan.link.capacity_at(plan.duration.as_nanos() as f64),
        cpu_us_per_request: run.facts.cpu.server_us as f64 / outcomes.len().max(1) as f64,
        windows_ms: windows(plan, outcomes.iter().map(|o| (o.at_ns, o.response_ns() as f64))),
        facts: run.facts.clone(),
    };
    report.invalid = invalid(&report, plan.args.max_lateness);
    report
}

/// Why a run must not be trusted.
fn invalid(run: &RunReport, max_lateness_ms: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    if run.lateness_p99_ms > max_lateness_ms {
        reasons.push(format!(
            "1 % of the requests were sent more than {:.2} ms late (limit {max_lateness_ms} ms): the generator was too slow",
            run.lateness_p99_ms
        ));
    }
    if let Some(faults) = run.errors.get(&End::ClientFault) {
        reasons.push(format!("{faults} requests could not be sent by the generator itself"));
    }
    if run.all.count == 0 {
        reasons.push("no request was asked for".to_owned());
    }
    reasons
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

fn command() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// Kernel, processors, and the version that each measured program prints of itself.
fn versions(plan: &Plan) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model);
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let mut versions = vec![
        format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        format!("{cores} x {}", model.unwrap_or("unknown processor").trim()),
    ];
    for subject in &plan.subjects {
        if let Some(version) = subject.version(&plan.serpent).filter(|version| !versions.contains(version)) {
            versions.push(version);
        }
    }
    versions
}
