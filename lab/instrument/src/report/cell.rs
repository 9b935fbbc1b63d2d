//! The report on one measurement (a cell) in numbers.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{
    ideal,
    outcome::Outcome,
    sequence::Request,
    stats::{
        Measured, Observation, Summary,
        alone::AloneTimes,
        observe, series,
        series::Moments,
        stretch::{Stretch, stretch},
        summarise,
    },
};

use super::conditions::Conditions;
use crate::{
    bed::{Calibration, WanFacts},
    experiment::Measure,
    record::{Alone, CellRecord, Counted, Sampled},
};

/// The numbers of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// Number of the cell in the run's directory.
    pub number: usize,
    /// Index of its point in the run's list.
    pub point: usize,
    /// Index of its subject.
    pub subject: usize,
    /// Its seed.
    pub seed: u64,
    /// Reasons why it must not be trusted; empty if it may be.
    pub invalid: Vec<String>,
    /// The command that was measured, or a description of what was simulated in its place.
    pub command: String,
    /// For a simulation: the counters in [`CellReport::costs`] that were counted. The others are zero and
    /// have no meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Counted>,
    /// Calibration of the test bed before the run; `None` if there was none.
    pub calibration: Option<Calibration>,
    /// Counts of the lab's own emulator of distance and loss, if it made the path.
    pub wan: Option<WanFacts>,
    /// Single requests on the idle test bed.
    pub alone: Vec<Alone>,
    /// Seconds from the start to the last byte, or until the cell was given up.
    pub took_s: f64,
    /// Remarks that matter for judging the cell.
    pub notes: Vec<String>,
    /// Its requests.
    pub measured: Measured,
    /// Its requests by client group.
    pub groups: BTreeMap<u16, Measured>,
    /// Starvation stretch against the first subject under the same seed; `None` for the first subject itself.
    pub stretch: Option<Stretch>,
    /// The same requests on a bare link.
    pub ideal: Ideal,
    /// Costs, from the counters of the test bed.
    pub costs: Costs,
    /// The data for plots.
    #[serde(skip)]
    pub(super) series: Series,
    #[serde(skip)]
    pub(super) samples: Vec<Sampled>,
}

/// The same requests on a bare link: exact, without handshakes, packets or distance.
#[derive(Clone, Debug, Serialize)]
pub struct Ideal {
    /// Requested wire bytes over the capacity of the link while requests are sent.
    pub load: f64,
    /// Results under shortest remaining first.
    pub srpt: Summary,
    /// Results under an equal share for each response.
    pub ps: Summary,
    #[serde(skip)]
    pub(super) srpt_series: Series,
    #[serde(skip)]
    pub(super) ps_series: Series,
}

/// The costs of a run, and counts of its problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Bytes through the bottleneck over what it could carry, while requests were sent.
    pub link_use: f64,
    /// Megabytes that passed the bottleneck.
    pub wire_megabytes: f64,
    /// Packets dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// SYNs that the clients sent again.
    pub syn_retransmitted: u64,
    /// SYNs that the server dropped because a queue was full, where it was sampled.
    pub syn_drops: Option<u64>,
    /// Connections that the server's kernel dropped before they were accepted.
    pub listen_drops: u64,
    /// Segments that the server sent again.
    pub segments_retransmitted: u64,
    /// Connections that the server's TCP gave up.
    pub aborted_on_timeout: u64,
    /// Processor time of the server per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// System calls of the server per request, where they were counted.
    pub system_calls_per_request: Option<f64>,
    /// The largest resident memory of the server, in bytes, where it was sampled.
    pub resident_bytes: Option<u64>,
    /// Most requests in progress at once.
    pub most_concurrent: usize,
}

/// Response times, grouped by the x axes of the plots.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub(super) by_size: BTreeMap<u32, Moments>,
    pub(super) by_percentile: Vec<Moments>,
    pub(super) over_time: BTreeMap<u64, Moments>,
    pub(super) distribution: Vec<(f64, f64)>,
}

/// Number of buckets; each is half a percent wide.
pub(super) const BUCKETS: usize = 200;
const SECOND_NS: u64 = 1_000_000_000;

impl Series {
    fn new(observations: &[Observation]) -> Self {
        Self {
            by_size: series::by_size(observations),
            by_percentile: series::by_size_percentile(observations, BUCKETS),
            over_time: series::over_time(observations, SECOND_NS),
            distribution: series::distribution(observations),
        }
    }
}

impl Ideal {
    /// Makes the series. All requests take part in the load, but only those that count are summed up.
    pub(super) fn new(outcomes: &[Outcome], conditions: &Conditions) -> Self {
        let Conditions { link, wire, from_ns, until_ns, .. } = conditions;
        let mut requests: Vec<Request> = outcomes
            .iter()
            .map(|o| Request { at_ns: o.at_ns, file: o.file, size_bytes: o.size_bytes, group: o.group })
            .collect();
        requests.sort_by_key(|request| request.at_ns);
        let bare = |response_ns: Vec<f64>| -> Vec<Observation> {
            let counted = requests.iter().zip(response_ns).filter(|(request, _)| request.at_ns >= *from_ns);
            counted
                .map(|(request, response_ns)| Observation {
                    at_ns: request.at_ns,
                    size_bytes: request.size_bytes,
                    group: request.group,
                    response_ns,
                    alone_ns: link.rate_at(request.at_ns).ns_for(wire.bytes_for(request.size_bytes) as f64),
                    first_byte_ns: None,
                    whole: true,
                })
                .collect()
        };
        let (srpt, ps) = (bare(ideal::srpt(&requests, link, wire)), bare(ideal::ps(&requests, link, wire)));
        let wire_bytes: u64 = requests.iter().map(|request| wire.bytes_for(request.size_bytes)).sum();
        Self {
            load: wire_bytes as f64 / link.capacity_at(*until_ns as f64),
            srpt: summarise(&srpt.iter().map(Observation::sample).collect::<Vec<_>>()),
            ps: summarise(&ps.iter().map(Observation::sample).collect::<Vec<_>>()),
            srpt_series: Series::new(&srpt),
            ps_series: Series::new(&ps),
        }
    }
}

impl CellReport {
    /// Makes the report on a cell. `baseline` are the outcomes of the first subject under the same seed. It
    /// is `None` for the first subject itself, and if its outcomes are missing or not to be trusted.
    pub(super) fn new(
        record: &CellRecord,
        outcomes: &[Outcome],
        baseline: Option<&[Outcome]>,
        conditions: &Conditions,
        alone: &AloneTimes,
        ideal: Ideal,
    ) -> Self {
        let Conditions { from_ns, until_ns, .. } = *conditions;
        let measured = Measured::new(outcomes, from_ns, until_ns, alone);
        let mut by_group: BTreeMap<u16, Vec<Outcome>> = BTreeMap::new();
        for outcome in outcomes {
            by_group.entry(outcome.group).or_default().push(*outcome);
        }
        let mut notes = record.facts.notes.clone();
        let mut invalid = record.facts.invalid.clone();
        if invalid.is_empty() && measured.all.count == 0 {
            invalid.push("no request counts: none was planned after the warm-up".to_owned());
        }
        for group in by_group.keys().filter(|&&group| invalid.is_empty() && !alone.knows(group)) {
            notes.push(format!(
                "no single request of group {group} was measured on the idle bed: its slowdown is over wire time"
            ));
        }
        let stretch = baseline.map(|base| stretch(outcomes, base, from_ns, conditions.open_loop)).transpose();
        let stretch = stretch.unwrap_or_else(|refused| {
            notes.push(format!("no starvation stretch: {refused}"));
            None
        });
        Self {
            number: record.number,
            point: record.point,
            subject: record.subject,
            seed: record.seed,
            invalid,
            notes,
            command: record.facts.command.clone(),
            simulated: record.facts.simulated,
            calibration: Some(record.facts.calibration.clone()).filter(|_| record.facts.simulated.is_none()),
            wan: record.facts.wan.clone(),
            alone: record.facts.alone.clone(),
            took_s: record.facts.took_s,
            groups: by_group
                .into_iter()
                .map(|(group, outcomes)| (group, Measured::new(&outcomes, from_ns, until_ns, alone)))
                .collect(),
            stretch,
            ideal,
            costs: Costs::new(record, outcomes.len(), conditions),
            series: Series::new(&observe(outcomes, from_ns, alone)),
            samples: record.facts.samples.clone(),
            measured,
        }
    }

    /// Whether the cell may be trusted. Only sound cells enter means, ratios and plots; the others count as
    /// missing.
    pub(super) fn is_sound(&self) -> bool {
        self.invalid.is_empty()
    }

    /// The value of a measure that one cell has alone, or request by request against the first subject.
    /// Ratios of means need a pair of cells, so they have no value here.
    pub(super) fn value(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::LinkUse => Some(self.costs.link_use).filter(|_| self.simulated.is_none_or(|has| has.link_bytes)),
            Measure::CpuUs => Some(self.costs.cpu_us_per_request).filter(|_| self.simulated.is_none()),
            Measure::Starved => self.stretch.map(|stretch| stretch.starved),
            Measure::WorstStretch => self.stretch.map(|stretch| stretch.worst),
            of_requests => value_of(&self.measured, of_requests),
        }
    }
}

/// The value of a measure that follows from requests alone.
pub(super) fn value_of(measured: &Measured, measure: Measure) -> Option<f64> {
    let share = |count: usize| count as f64 / measured.all.count.max(1) as f64;
    match measure {
        Measure::FirstByteMs => Some(measured.first_byte_ms),
        Measure::Throughput => Some(measured.throughput_per_s),
        Measure::Incomplete => Some(share(measured.incomplete())),
        Measure::Errors => Some(share(measured.errors())),
        of_times => value_of_summary(&measured.all, of_times),
    }
    .filter(|_| measured.all.count > 0)
}

/// The value of a measure that follows from response times alone, including those of an ideal.
pub(super) fn value_of_summary(summary: &Summary, measure: Measure) -> Option<f64> {
    Some(match measure {
        Measure::MeanMs => summary.mean_ms,
        Measure::Slowdown => summary.mean_slowdown,
        Measure::VarianceMs2 => summary.variance_ms2,
        Measure::SquaredVariation => summary.squared_variation,
        Measure::P50Ms => summary.p50_ms,
        Measure::P95Ms => summary.p95_ms,
        Measure::P99Ms => summary.p99_ms,
        Measure::LargestPercentMs => summary.largest_percent_ms,
        Measure::VeryLargestMs => summary.very_largest_ms,
        Measure::FirstByteMs
        | Measure::Throughput
        | Measure::LinkUse
        | Measure::Incomplete
        | Measure::Errors
        | Measure::Gain
        | Measure::SlowdownGain
        | Measure::Starved
        | Measure::WorstStretch
        | Measure::CpuUs => return None,
    })
}

impl Costs {
    fn new(record: &CellRecord, requests: usize, conditions: &Conditions) -> Self {
        let facts = &record.facts;
        let each = |sum: u64| sum as f64 / requests.max(1) as f64;
        let capacity = conditions.link.capacity_at(conditions.until_ns as f64);
        Self {
            link_use: if capacity > 0.0 { facts.qdisc_while_sending.bytes as f64 / capacity } else { 0.0 },
            wire_megabytes: facts.qdisc.bytes as f64 / 1e6,
            queue_drops: facts.qdisc.drops,
            syn_retransmitted: facts.client_tcp.get("TCPSynRetrans"),
            syn_drops: facts.samples.last().map(|last| last.syn_drops),
            listen_drops: facts.server_tcp.get("ListenDrops"),
            segments_retransmitted: facts.server_tcp.get("RetransSegs"),
            aborted_on_timeout: facts.server_tcp.get("TCPAbortOnTimeout"),
            cpu_us_per_request: each(facts.cpu.server_us),
            system_calls_per_request: facts.system_calls.map(each),
            resident_bytes: facts.samples.iter().map(|sample| sample.resident_bytes).max(),
            most_concurrent: facts.most_concurrent,
        }
    }
}

/// The sound cells of a point.
pub(super) fn of_point(cells: &[CellReport], point: usize) -> Vec<&CellReport> {
    cells.iter().filter(|cell| cell.point == point && cell.is_sound()).collect()
}
