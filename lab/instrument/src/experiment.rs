//! An experiment, as its file describes it.

mod changes;
mod keys;
mod list;
mod points;
mod read;
mod shipped;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use self::changes::from_flags;
pub use self::{
    changes::{Changes, seeds},
    list::{list, show},
    shipped::SHIPPED,
};

/// A parsed experiment file. The keys of `quick`, `sweep` and `--set` are dotted paths into
/// [`Setting`](crate::setting::Setting), or `seeds`, `subjects`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name for `lab run`.
    pub name: String,
    /// A title of one line.
    pub title: String,
    /// The source that it repeats: paper, section, figures. Empty for an original experiment.
    #[serde(default)]
    pub source: String,
    /// Expected results and necessary differences from the paper, in a few sentences.
    #[serde(default)]
    pub notes: String,
    /// Servers to compare; the first is the baseline.
    pub subjects: Vec<String>,
    /// Seeds; each is a separate run for every subject.
    #[serde(default = "default_seeds")]
    pub seeds: Vec<u64>,
    /// The conditions common to all points; see [`Setting`](crate::setting::Setting).
    #[serde(default)]
    pub setting: toml::Table,
    /// The varied keys with their values. Several keys make every combination.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// Points that differ in several keys, each with a label; combined with the sweep.
    #[serde(default)]
    pub points: Vec<NamedPoint>,
    /// The changes of the short form.
    #[serde(default)]
    pub quick: Quick,
    /// Plots of the report.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Values published in the paper.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A point with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedPoint {
    /// Its name in reports.
    pub label: String,
    /// The values that it sets.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

/// The short form, of about a minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// The settings that it changes.
    pub set: BTreeMap<String, toml::Value>,
    /// Its seeds, if different.
    pub seeds: Option<Vec<u64>>,
    /// Its subjects, if different.
    pub subjects: Option<Vec<String>>,
    /// Its sweep, if different.
    pub sweep: Option<BTreeMap<String, Vec<toml::Value>>>,
    /// Labels of the named points that it keeps, if not all.
    pub points: Option<Vec<String>>,
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Its title, with the corresponding figure of the paper.
    pub title: String,
    /// The kind of plot.
    pub kind: FigureKind,
    /// The measure on its axis, for kinds with a choice.
    #[serde(default)]
    pub measure: Measure,
    /// For [`FigureKind::OverSweep`]: the key on the x axis. By default the first varied key.
    #[serde(default)]
    pub over: Option<String>,
    /// Labels of the points to plot, for kinds with a plot per point; all if empty.
    #[serde(default)]
    pub points: Vec<String>,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// The kinds of plots. Each has one line or bar per subject, and where available the ideal and the published
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A measure over the varied key.
    OverSweep,
    /// A measure for each point, as bars.
    Bars,
    /// Mean response time over the size of the response, in bins [x, 1.2x].
    BySize,
    /// A measure over the percentile of the size of the response, in 200 buckets of 0.5 %.
    BySizePercentile,
    /// Mean response time of the requests that began in each second.
    OverTime,
    /// The server's connections, queues and drops over time.
    ServerOverTime,
    /// Fraction of the requests that took longer, over the response time.
    Distribution,
    /// A measure for each group of clients, as bars.
    ByGroup,
    /// Starvation stretch over the varied key: the fraction of requests slower than under the first subject,
    /// and by how much.
    Stretch,
}

/// A measure of a subject at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Mean response time, in milliseconds.
    #[default]
    MeanMs,
    /// Mean slowdown.
    Slowdown,
    /// Variance of the response time, in square milliseconds.
    VarianceMs2,
    /// Squared coefficient of variation of the response time.
    SquaredVariation,
    /// Median response time, in milliseconds.
    P50Ms,
    /// 95th percentile.
    P95Ms,
    /// 99th percentile.
    P99Ms,
    /// Mean time to the first byte.
    FirstByteMs,
    /// Mean response time of the largest 1 % of the responses.
    LargestPercentMs,
    /// Mean response time of the responses of the largest size.
    VeryLargestMs,
    /// Answers per second.
    Throughput,
    /// Bits through the bottleneck over its capacity.
    LinkUse,
    /// Fraction of the requests that are incomplete without an error.
    Incomplete,
    /// Fraction of the requests that failed.
    Errors,
    /// Mean response time of the first subject over that of this one.
    Gain,
    /// Mean slowdown of the first subject over that of this one.
    SlowdownGain,
    /// Fraction of the requests that took longer than under the first subject.
    Starved,
    /// The largest stretch of these requests.
    WorstStretch,
    /// Processor time of the server per request, in microseconds.
    CpuUs,
}

/// A value published in the paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Label of its point; empty for all.
    #[serde(default)]
    pub point: String,
    /// The subject that corresponds to the paper's.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// The group of clients; all groups if empty.
    #[serde(default)]
    pub group: String,
    /// If given, the value is a ratio: this subject's measure over that of `relative_to`.
    #[serde(default)]
    pub relative_to: Option<String>,
    /// The value, or the least and the greatest of a range.
    pub value: PublishedValue,
    /// The place in the paper.
    #[serde(default)]
    pub place: String,
}

/// A published value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PublishedValue {
    /// One value.
    One(f64),
    /// Least and greatest.
    Range(f64, f64),
}

fn default_seeds() -> Vec<u64> {
    vec![1, 2, 3]
}
