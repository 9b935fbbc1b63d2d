//! The table of a point.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{
    outcome::End,
    stats::{interval::Estimate, stretch::Matching},
};

use crate::experiment::Measure;

/// The table of a point.
#[derive(Debug, Serialize)]
pub struct PointReport {
    /// Its label.
    pub label: String,
    /// The varied settings, with their values at this point.
    pub values: BTreeMap<String, String>,
    /// All conditions, as TOML.
    pub setting: String,
    /// Number of requests that count, on average over the seeds.
    pub requests: f64,
    /// Requested wire bytes over the capacity of the link while requests are sent, on average over the seeds.
    pub load: f64,
    /// A row for each subject that has a cell, trusted or not, the first subject first.
    pub rows: Vec<Row>,
    /// The same requests on a bare link, under shortest remaining first and under equal shares.
    pub ideal: Vec<IdealRow>,
    /// The reason why the ideal is only a bound; empty where it serves the same requests on the same link.
    pub ideal_is_bound: String,
}

/// A subject at a point. Values are means over the seeds, ratios are geometric means over pairs of cells, and
/// counts are sums over the seeds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The seeds with a trusted cell. Seeds in `invalid` are left out, and all other fields are over these
    /// seeds.
    pub seeds: Vec<u64>,
    /// All measures that the subject has.
    pub measures: BTreeMap<Measure, Estimate>,
    /// Mean response time of the requests that completed.
    pub whole_mean_ms: Option<Estimate>,
    /// Ratio of the mean response time to that of exact SRPT on a bare link.
    pub over_ideal: Option<Estimate>,
    /// Ratio of the mean response time of the largest 1 % of the requests to that of the first subject.
    pub largest_percent_ratio: Option<Estimate>,
    /// The same ratio for the very largest requests.
    pub very_largest_ratio: Option<Estimate>,
    /// The way in which requests were matched for the starvation stretch.
    pub matching: Option<Matching>,
    /// Number of requests, by how they ended.
    pub ends: BTreeMap<End, usize>,
    /// Requests that never completed, without an error.
    pub incomplete: usize,
    /// Requests that failed.
    pub errors: usize,
    /// Packets dropped because the bottleneck's queue was full.
    pub queue_drops: u64,
    /// SYNs that the clients sent again.
    pub syn_retransmitted: u64,
    /// SYNs that the server dropped, where it was sampled.
    pub syn_drops: Option<u64>,
    /// Connections dropped before they were accepted.
    pub listen_drops: u64,
    /// Segments that the server sent again.
    pub segments_retransmitted: u64,
    /// System calls of the server per request, where they were counted.
    pub system_calls_per_request: Option<Estimate>,
    /// The largest resident memory of the server, in bytes, where it was sampled.
    pub resident_bytes: Option<u64>,
    /// Whether it was simulated.
    pub simulated: bool,
    /// Whether dropped packets and repeated segments were counted. If not, they are zero here and have no
    /// meaning.
    pub has_packets: bool,
    /// Seeds whose cell must not be trusted, with reasons. They are left out of all values.
    pub invalid: Vec<(u64, Vec<String>)>,
}

/// The ideal at a point.
#[derive(Debug, Serialize)]
pub struct IdealRow {
    /// Name of the ideal.
    pub name: &'static str,
    /// Measures of its response times.
    pub measures: BTreeMap<Measure, Estimate>,
}

/// Names of the ideals.
pub(super) const IDEALS: [&str; 2] = ["exact SRPT, bare link", "even shares (PS), bare link"];

impl PointReport {
    /// The reason why the point has no numbers, if it has none.
    pub(super) fn has_nothing(&self) -> Option<&'static str> {
        match self.rows.iter().any(|row| !row.seeds.is_empty()) {
            true => None,
            false if self.rows.is_empty() => Some("not measured"),
            false => Some("no measurement of it can be trusted"),
        }
    }
}
