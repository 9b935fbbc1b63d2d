//! The parts of an advice: plain data, the same for a terminal, a page and a program.
//!
//! Times since 1970 are in seconds UTC, and response times are in milliseconds. Sizes are those of bodies, in
//! bytes. Loads and shares are fractions. A slowdown is the response time over that of the same response
//! alone on the whole uplink.

use serde::Serialize;

/// The load at which scheduling is judged, if the plan reaches it: busy, but not yet full.
const BUSY: f64 = 0.8;

/// Version of the serialized form. It changes when the form changes.
pub const FORMAT: u32 = 1;

/// The whole advice about a log and an uplink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// [`FORMAT`].
    pub format: u32,
    /// Rate of the uplink, as given.
    pub uplink_bits_per_second: u64,
    /// Share of the uplink's rate that Serpent uses. Fair sharing uses the whole rate, as other servers do.
    pub utilisation: f64,
    /// Seed of the random choices for facts that the log does not tell.
    pub seed: u64,
    /// Facts about the log.
    pub log: LogFacts,
    /// The sizes of its responses.
    pub sizes: SizeFacts,
    /// The load that the log puts on the uplink.
    pub load: LoadFacts,
    /// The part of the log that was simulated.
    pub simulated: Simulated,
    /// The response times, today first, then by growing load.
    pub predictions: Vec<Prediction>,
    /// The effect of the times within a stamp. Missing where stamps are fine.
    pub spreading: Option<Spreading>,
    /// The recommendation.
    pub recommendation: Recommendation,
    /// The certainty of the recommendation.
    pub certainty: Certainty,
    /// Facts that the model leaves out, a sentence each.
    pub leaves_out: Vec<String>,
}

/// Facts about the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogFacts {
    /// The files, in the order of their times.
    pub files: Vec<String>,
    /// Their formats, each once.
    pub formats: Vec<String>,
    /// Number of requests, within the window.
    pub requests: u64,
    /// Records outside the requested window.
    pub outside_window: u64,
    /// Lines that are no records.
    pub broken_lines: u64,
    /// Time of the first request.
    pub first_unix_s: f64,
    /// Time of the last request.
    pub last_unix_s: f64,
    /// Resolution of the log's times, in seconds.
    pub tick_s: f64,
    /// Whether the log tells sizes. If not, sizes are assumed.
    pub has_sizes: bool,
    /// Share of the successful responses whose size the log does not tell. They count as empty unless sizes
    /// are assumed.
    pub answers_without_size: f64,
    /// Remarks on the reading of the files.
    pub notes: Vec<String>,
}

/// The sizes of a site's responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeFacts {
    /// Mean over all responses, empty ones included.
    pub mean_bytes: f64,
    /// Median size of the responses with a body.
    pub p50_bytes: u64,
    /// 90th percentile.
    pub p90_bytes: u64,
    /// 99th percentile.
    pub p99_bytes: u64,
    /// The largest size.
    pub largest_bytes: u64,
    /// Share of the responses that have no body: 304, errors.
    pub empty: f64,
    /// Share of the bytes that belongs to the largest 1 % of the responses with a body.
    pub bytes_in_largest_percent: f64,
    /// Shares by size, in steps of 1, 2, 5. The first entry is for responses without a body.
    pub histogram: Vec<SizeShare>,
}

/// The share of the responses within a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeShare {
    /// The smallest size.
    pub from_bytes: u64,
    /// The first size above the range.
    pub below_bytes: u64,
    /// Share of the requests.
    pub requests: f64,
    /// Share of the bytes on the uplink, heads and segment headers included.
    pub bytes: f64,
}

/// The load of the uplink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadFacts {
    /// Mean over the whole window.
    pub mean: f64,
    /// In the busiest hour.
    pub peak: f64,
    /// Beginning of the busiest hour.
    pub peak_from_unix_s: f64,
    /// Length of the busiest hour, in seconds. It is less than an hour in a shorter log.
    pub peak_s: f64,
    /// Share of the bytes on the uplink that no log tells and that are estimated: heads and segment headers.
    pub estimated: f64,
    /// Length of the periods that follow, in seconds.
    pub period_s: f64,
    /// Load over time. Periods without a request are left out.
    pub over_time: Vec<LoadPeriod>,
}

/// Load in a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadPeriod {
    /// Beginning of the period.
    pub from_unix_s: f64,
    /// Requests in it.
    pub requests: u64,
    /// Load that these requests put on the uplink.
    pub load: f64,
}

/// The part of the log that was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// Whether this is the whole log. Otherwise it is the busiest hours.
    pub whole: bool,
    /// Number of requests.
    pub requests: u64,
    /// Beginning and end of each part, in seconds since 1970.
    pub spans_unix_s: Vec<(f64, f64)>,
}

/// Response times at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Factor by which the traffic of the log is multiplied: its times are divided by it. 1 is today's
    /// traffic.
    pub growth: f64,
    /// Load of the uplink in today's busiest hour, times the growth.
    pub peak_load: f64,
    /// Load over the simulated parts, without the time between them.
    pub load: f64,
    /// Requests simulated.
    pub requests: u64,
    /// Whether so many responses were in progress at once that real clients would have given up. Then there
    /// are no figures.
    pub overloaded: bool,
    /// Most requests in progress at once, under the policy with the highest number.
    pub most_at_once: u64,
    /// Results by policy, in the order of [`Policy::ALL`](super::Policy::ALL). The others are compared with
    /// the first.
    pub policies: Vec<PolicyPrediction>,
}

impl Prediction {
    /// Whether the load of the busiest hour is at most the load at which scheduling is judged.
    pub fn is_not_yet_full(&self) -> bool {
        is_not_yet_full(self.peak_load)
    }

    /// The prediction for a policy, by its name.
    pub(super) fn policy(&self, name: &str) -> Option<&PolicyPrediction> {
        self.policies.iter().find(|it| it.policy == name)
    }
}

/// Whether a peak of this load is at most [`BUSY`], within rounding.
pub(super) fn is_not_yet_full(peak_load: f64) -> bool {
    peak_load <= BUSY * 1.001
}

/// Response times under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyPrediction {
    /// Name of the policy.
    pub policy: &'static str,
    /// Response times.
    pub response_ms: Distribution,
    /// Slowdowns.
    pub slowdown: Distribution,
    /// The mean over that under fair sharing, with its 95 % confidence interval over ten parts of the time
    /// (jackknife).
    pub mean_over_fair: Interval,
    /// Requests that take longer than under fair sharing.
    pub losers: Losers,
    /// Results by size, in steps of ten. Empty classes are left out.
    pub by_size: Vec<SizeClass>,
    /// Results by size, in steps of 1, 2, 5. Empty classes are left out.
    pub fine_by_size: Vec<SizeClass>,
    /// The largest 1 %, the largest 0.1 %, and the responses as large as the largest.
    pub largest: Vec<SizeClass>,
}

/// A distribution in a few numbers. Percentiles have three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A value and its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Requests that take longer than they would under fair sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Losers {
    /// Share of the requests that take more than a tenth, and more than a millisecond, longer.
    pub share: f64,
    /// Mean extra time of these requests, in milliseconds.
    pub mean_longer_ms: f64,
    /// The losing request with the largest ratio to its time under fair sharing.
    pub worst: Option<Loser>,
    /// The losing request with the most extra time.
    pub latest: Option<Loser>,
}

/// A request that takes longer than under fair sharing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Loser {
    /// Size of its body.
    pub size_bytes: u64,
    /// Its response time under fair sharing.
    pub fair_ms: f64,
    /// Its response time under this policy.
    pub response_ms: f64,
}

impl Loser {
    /// Ratio of the response time to that under fair sharing.
    pub fn stretch(&self) -> f64 {
        if self.fair_ms > 0.0 { self.response_ms / self.fair_ms } else { 1.0 }
    }

    /// Extra time compared with fair sharing, in milliseconds.
    pub fn longer_ms(&self) -> f64 {
        self.response_ms - self.fair_ms
    }
}

/// The responses within a range of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeClass {
    /// The smallest size.
    pub from_bytes: u64,
    /// The first size above the range. Missing for the largest class.
    pub below_bytes: Option<u64>,
    /// Number of requests.
    pub requests: u64,
    /// Share of the requests.
    pub share: f64,
    /// Share of the bytes on the uplink.
    pub bytes: f64,
    /// Mean response time under fair sharing.
    pub fair_ms: f64,
    /// Mean response time.
    pub mean_ms: f64,
    /// Ratio of the mean response time to that under fair sharing.
    pub over_fair: f64,
}

/// The effect of the times within a stamp, measured by repeating one scenario with other spreads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spreading {
    /// Growth of the scenario that was repeated.
    pub growth: f64,
    /// The spreads that were tried.
    pub tried: Vec<Tried>,
}

/// The result of one way to spread times within a stamp.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Description of the spread.
    pub spread: String,
    /// Mean response time under fair sharing.
    pub fair_mean_ms: f64,
    /// Mean response time under srpt.
    pub srpt_mean_ms: f64,
}

/// The benefit of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The log holds more bytes than this uplink can carry, so it is not the log of this uplink.
    Overloaded,
    /// No noticeable benefit.
    Nothing,
    /// A small benefit, or one at times.
    Little,
    /// A large benefit.
    Worthwhile,
}

/// The recommended order, guard and configuration, with reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The benefit of scheduling today.
    pub verdict: Verdict,
    /// The verdict in a sentence.
    pub headline: String,
    /// Reasons, and the requests that gain, a sentence each.
    pub reasons: Vec<String>,
    /// Name of the recommended order.
    pub order: &'static str,
    /// Stretch of the guard, if a guard is worth its cost.
    pub guard: Option<f64>,
    /// The part that enforces the order: `server` or `kernel`.
    pub enforce: &'static str,
    /// Borders between the kernel's bands, learned from the sizes of the log.
    pub cutoffs_bytes: Vec<u64>,
    /// A configuration file for the recommendation. None where scheduling is worthwhile neither today nor
    /// with more traffic.
    pub configuration: Option<String>,
}

impl Recommendation {
    /// The heading above the reasons and the configuration.
    pub fn heading(&self) -> &'static str {
        match (self.verdict, &self.configuration) {
            (Verdict::Worthwhile | Verdict::Little, _) => "Recommended",
            (Verdict::Nothing, None) => "Recommended: nothing to change",
            (Verdict::Nothing, Some(_)) => "Recommended: nothing to change today; with more traffic, this",
            (Verdict::Overloaded, _) => "If this is the uplink of the log after all",
        }
    }
}

/// How certain the advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// At best the direction of the effect is certain.
    Low,
    /// The direction and the rough amount are certain.
    Medium,
    /// The advice is as certain as the model allows.
    High,
}

/// The certainty of the advice, with reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certainty {
    /// The level of the weakest reason.
    pub level: Level,
    /// Reasons, a sentence each.
    pub reasons: Vec<String>,
}
