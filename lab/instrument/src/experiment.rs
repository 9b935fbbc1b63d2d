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

/// An experiment file, read. The keys of `quick` and `sweep`, and those of `--set`, are dotted paths into
/// [`Setting`](crate::setting::Setting), or `seeds`, `subjects`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name, by which `lab run` knows it.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it repeats: paper, section, figures. Empty for one's own.
    #[serde(default)]
    pub source: String,
    /// What to look for, and where it must differ from the paper; a few sentences.
    #[serde(default)]
    pub notes: String,
    /// Servers to compare; the first is the one the others are compared with.
    pub subjects: Vec<String>,
    /// Seeds, each a run of its own for every subject.
    #[serde(default = "default_seeds")]
    pub seeds: Vec<u64>,
    /// The conditions that all points share, as [`Setting`](crate::setting::Setting) has them.
    #[serde(default)]
    pub setting: toml::Table,
    /// What is varied: for each key its values. Several keys make every combination.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// Points that differ in more than one key, each with a label; combined with the sweep.
    #[serde(default)]
    pub points: Vec<NamedPoint>,
    /// What the short form changes.
    #[serde(default)]
    pub quick: Quick,
    /// Plots that the report shows.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// What the paper measured.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A point with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedPoint {
    /// What reports call it.
    pub label: String,
    /// What it changes.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

/// The short form, of about a minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// What it changes in the setting.
    pub set: BTreeMap<String, toml::Value>,
    /// Its seeds, if others.
    pub seeds: Option<Vec<u64>>,
    /// Its subjects, if others.
    pub subjects: Option<Vec<String>>,
    /// Its sweep, if another.
    pub sweep: Option<BTreeMap<String, Vec<toml::Value>>>,
    /// Labels of the named points that it keeps, if not all.
    pub points: Option<Vec<String>>,
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Its title; which figure of the paper it stands beside.
    pub title: String,
    /// What it shows.
    pub kind: FigureKind,
    /// The measure on its axis, for the kinds that have a choice.
    #[serde(default)]
    pub measure: Measure,
    /// For [`FigureKind::OverSweep`]: the key on the x axis. The first that is varied, if not given.
    #[serde(default)]
    pub over: Option<String>,
    /// Labels of the points that it shows, where a plot is made for each point; all if empty.
    #[serde(default)]
    pub points: Vec<String>,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// What a plot shows; one line or bar for each subject, and where they can be had the ideal and the published values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A measure over what is varied.
    OverSweep,
    /// A measure for each point, as bars.
    Bars,
    /// Mean response time over the size of the response, in bins [x, 1.2x].
    BySize,
    /// A measure over the percentile of the response's size, 200 buckets of 0.5 %.
    BySizePercentile,
    /// Mean response time of the requests begun in each second.
    OverTime,
    /// The server's connections, queues and drops over time.
    ServerOverTime,
    /// Share of the requests that took longer, over the response time.
    Distribution,
    /// A measure for each group of clients, as bars.
    ByGroup,
    /// Starvation stretch over what is varied: share of requests slower than under the first subject, and by how much.
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
    /// Bits through the bottleneck over what it could carry.
    LinkUse,
    /// Share of the requests that never came whole, without errors.
    Incomplete,
    /// Share of the requests that failed.
    Errors,
    /// Mean response time of the first subject over this one's.
    Gain,
    /// Mean slowdown of the first subject over this one's.
    SlowdownGain,
    /// Share of the requests that took longer than under the first subject.
    Starved,
    /// How much longer the worst of those took.
    WorstStretch,
    /// Processor time of the server for a request, in microseconds.
    CpuUs,
}

/// A value that the paper gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Label of the point that it belongs to; empty for all.
    #[serde(default)]
    pub point: String,
    /// The subject of ours that stands for the paper's.
    pub subject: String,
    /// The measure.
    pub measure: Measure,
    /// The group of clients that it is of; all of them if empty.
    #[serde(default)]
    pub group: String,
    /// If given, the value is no measure by itself but a ratio: this subject's measure over that one's.
    #[serde(default)]
    pub relative_to: Option<String>,
    /// The value, or the least and the greatest where the paper gives a range.
    pub value: PublishedValue,
    /// Where in the paper.
    #[serde(default)]
    pub place: String,
}

/// A published value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PublishedValue {
    /// One value.
    One(f64),
    /// From, to.
    Range(f64, f64),
}

fn default_seeds() -> Vec<u64> {
    vec![1, 2, 3]
}
