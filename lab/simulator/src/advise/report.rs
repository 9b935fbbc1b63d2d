//! What advice is made of: plain data, the same for a terminal, a page and a program.
//!
//! Times since 1970 are in seconds UTC, response times in milliseconds, sizes are bodies in bytes, loads and shares are
//! fractions. A slowdown is the response time over that of the same response alone on the whole uplink.

use serde::Serialize;

use super::plan::is_not_yet_full;

/// Number of this form; another number is another form.
pub const FORMAT: u32 = 1;

/// All that is said about a log and an uplink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// [`FORMAT`].
    pub format: u32,
    /// The uplink, as given.
    pub uplink_bits_per_second: u64,
    /// What of it Serpent uses; fair sharing as other servers do it uses all.
    pub utilisation: f64,
    /// Seed of what the log does not tell.
    pub seed: u64,
    /// What was read.
    pub log: LogFacts,
    /// The sizes in it.
    pub sizes: SizeFacts,
    /// The load that it is of the uplink.
    pub load: LoadFacts,
    /// What of it was simulated.
    pub simulated: Simulated,
    /// The response times, today first, then by growing load.
    pub predictions: Vec<Prediction>,
    /// What the times within a stamp matter; missing where stamps are fine.
    pub spreading: Option<Spreading>,
    /// What to do.
    pub recommendation: Recommendation,
    /// How sure that is.
    pub certainty: Certainty,
    /// What the model leaves out, a sentence each.
    pub leaves_out: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogFacts {
    /// The files, in the order of their times.
    pub files: Vec<String>,
    /// Their formats, each once.
    pub formats: Vec<String>,
    /// Requests that are looked at.
    pub requests: u64,
    /// Records outside the window that was asked for.
    pub outside_window: u64,
    /// Lines that are no records.
    pub broken_lines: u64,
    /// Time of the first request.
    pub first_unix_s: f64,
    /// Time of the last request.
    pub last_unix_s: f64,
    /// How finely times are written, in seconds.
    pub tick_s: f64,
    /// Whether the log tells sizes; if not they are assumed.
    pub has_sizes: bool,
    /// Share of the successful answers whose size the log does not tell; they count as empty unless sizes are assumed.
    pub answers_without_size: f64,
    /// What a person should know of how they were read.
    pub notes: Vec<String>,
}

/// The sizes of a site's responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeFacts {
    /// Mean over all responses, empty ones too.
    pub mean_bytes: f64,
    /// Half of those with a body are no larger.
    pub p50_bytes: u64,
    /// Nine in ten.
    pub p90_bytes: u64,
    /// 99 in a hundred.
    pub p99_bytes: u64,
    /// The largest.
    pub largest_bytes: u64,
    /// Share of the responses that have no body: 304, errors.
    pub empty: f64,
    /// Share of the bytes that the largest 1 % of those with a body carry.
    pub bytes_in_largest_percent: f64,
    /// Shares by size, in steps of 1, 2, 5; the first is that of responses without a body.
    pub histogram: Vec<SizeShare>,
}

/// Those of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeShare {
    /// The smallest size.
    pub from_bytes: u64,
    /// The first size that is too large.
    pub below_bytes: u64,
    /// Share of the requests.
    pub requests: f64,
    /// Share of what goes over the uplink, heads and segment headers included.
    pub bytes: f64,
}

/// The load of the uplink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadFacts {
    /// Over the whole time that is looked at.
    pub mean: f64,
    /// In the busiest hour.
    pub peak: f64,
    /// When that began.
    pub peak_from_unix_s: f64,
    /// How long it is, in seconds: less than an hour in a shorter log.
    pub peak_s: f64,
    /// Share of the bytes on the uplink that no log tells, and that are estimated: heads and segment headers.
    pub estimated: f64,
    /// Length of the periods that follow, in seconds.
    pub period_s: f64,
    /// Load over time. Periods without a request have none.
    pub over_time: Vec<LoadPeriod>,
}

/// Load in a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadPeriod {
    /// When it began.
    pub from_unix_s: f64,
    /// Requests in it.
    pub requests: u64,
    /// What of the uplink they take.
    pub load: f64,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// Whether that is all there is; otherwise the busiest hours.
    pub whole: bool,
    /// Requests.
    pub requests: u64,
    /// Beginning and end of each part, in seconds since 1970.
    pub spans_unix_s: Vec<(f64, f64)>,
}

/// Response times at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// What the traffic of the log is multiplied by: its times are divided by it. 1 is today.
    pub growth: f64,
    /// Load of the uplink in the busiest hour of today, times the growth.
    pub peak_load: f64,
    /// Load over what is simulated, without what lies between its parts.
    pub load: f64,
    /// Requests simulated.
    pub requests: u64,
    /// Whether so many waited at once that nobody would have gone on waiting; then there are no figures.
    pub overloaded: bool,
    /// Most requests under way at once, under whichever policy had most.
    pub most_at_once: u64,
    /// By policy, in the order of [`Policy::ALL`](super::Policy::ALL); the first is what it is compared with.
    pub policies: Vec<PolicyPrediction>,
}

impl Prediction {
    /// Whether its busiest hour is no busier than where scheduling is judged.
    pub fn is_not_yet_full(&self) -> bool {
        is_not_yet_full(self.peak_load)
    }
}

/// Response times under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyPrediction {
    /// Its name.
    pub policy: &'static str,
    /// Response times.
    pub response_ms: Distribution,
    /// Slowdowns.
    pub slowdown: Distribution,
    /// The mean over that under fair sharing, and its 95 % confidence interval over ten parts of the time (jackknife).
    pub mean_over_fair: Interval,
    /// Those who lose.
    pub losers: Losers,
    /// By size, in steps of ten; empty classes are left out.
    pub by_size: Vec<SizeClass>,
    /// By size, in steps of 1, 2, 5; empty classes are left out.
    pub fine_by_size: Vec<SizeClass>,
    /// The largest 1 %, the largest 0.1 %, and those as large as the largest.
    pub largest: Vec<SizeClass>,
}

/// A distribution in a few numbers; percentiles to three digits.
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

/// A value and where it may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// Not below.
    pub low: f64,
    /// Not above.
    pub high: f64,
}

/// Requests that take longer than they would under fair sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Losers {
    /// Share of the requests that take more than a tenth, and more than a millisecond, longer.
    pub share: f64,
    /// Of these the mean of how much longer, in milliseconds.
    pub mean_longer_ms: f64,
    /// The request that takes most times as long, of those that lose.
    pub worst: Option<Loser>,
    /// The one that takes longest longer.
    pub latest: Option<Loser>,
}

/// A request that takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Loser {
    /// Its body.
    pub size_bytes: u64,
    /// Its response time under fair sharing.
    pub fair_ms: f64,
    /// And under this policy.
    pub response_ms: f64,
}

impl Loser {
    /// How many times as long it takes.
    pub fn stretch(&self) -> f64 {
        if self.fair_ms > 0.0 { self.response_ms / self.fair_ms } else { 1.0 }
    }

    /// How much longer, in milliseconds.
    pub fn longer_ms(&self) -> f64 {
        self.response_ms - self.fair_ms
    }
}

/// Responses of a class of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeClass {
    /// The smallest size.
    pub from_bytes: u64,
    /// The first size that is too large; missing for the largest.
    pub below_bytes: Option<u64>,
    /// Requests.
    pub requests: u64,
    /// Share of the requests.
    pub share: f64,
    /// Share of what goes over the uplink.
    pub bytes: f64,
    /// Mean response time under fair sharing.
    pub fair_ms: f64,
    /// Mean response time.
    pub mean_ms: f64,
    /// The one over the other.
    pub over_fair: f64,
}

/// What the times within a stamp matter: the mean response time under srpt over that under fair sharing, and the latter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spreading {
    /// The growth at which this was tried.
    pub growth: f64,
    /// Ways of spreading tried.
    pub tried: Vec<Tried>,
}

/// A way of spreading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Which.
    pub spread: String,
    /// Mean response time under fair sharing.
    pub fair_mean_ms: f64,
    /// Mean response time under srpt.
    pub srpt_mean_ms: f64,
}

/// What scheduling would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The log holds more than this uplink can carry: it is not the uplink of this log.
    Overloaded,
    /// Nothing that anybody would notice.
    Nothing,
    /// A little, or only at times.
    Little,
    /// Much.
    Worthwhile,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// What scheduling would do today.
    pub verdict: Verdict,
    /// The same in a sentence.
    pub headline: String,
    /// Why, and for whom; a sentence each.
    pub reasons: Vec<String>,
    /// Name of the order.
    pub order: &'static str,
    /// The guard, if one is worth its cost.
    pub guard: Option<f64>,
    /// `server` or `kernel`.
    pub enforce: &'static str,
    /// Borders between bands, learned from the sizes of the log.
    pub cutoffs_bytes: Vec<u64>,
    /// A configuration file that does it. None where scheduling is worth it neither today nor with more traffic.
    pub configuration: Option<String>,
}

impl Recommendation {
    /// What the reasons and the configuration are, as a heading.
    pub fn heading(&self) -> &'static str {
        match (self.verdict, &self.configuration) {
            (Verdict::Worthwhile | Verdict::Little, _) => "Recommended",
            (Verdict::Nothing, None) => "Recommended: nothing to change",
            (Verdict::Nothing, Some(_)) => "Recommended: nothing to change today; with more traffic, this",
            (Verdict::Overloaded, _) => "If this is the uplink of the log after all",
        }
    }
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The direction, if that.
    Low,
    /// The direction, and about how much.
    Medium,
    /// As far as the model goes.
    High,
}

/// How sure it is, and why not more so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certainty {
    /// In a word: that of the weakest reason.
    pub level: Level,
    /// What it rests on, a sentence each.
    pub reasons: Vec<String>,
}
