//! A question to the theory, and its answer: a cell for each distribution, load and policy.

use std::{fmt, io, path::PathBuf};

use scheduler::bands::BandPlan;
use serde::Serialize;
use simulator::theory::{Alternating, Policy, Queue, Sizes, TheoryError, check::BySize};
use workload::{pattern::Pattern, rate::Link};

use super::args::{Law, TheoryArgs, law};

/// Shares of the requests at whose sizes a table is evaluated. For a distribution without a largest size, the
/// last share is `NEARLY_ALL`.
pub(super) const SHARES: [f64; 6] = [0.1, 0.5, 0.9, 0.99, 0.999, 1.0];

const NEARLY_ALL: f64 = 0.9999;

const POLICIES: [&str; 5] = ["ps", "srpt", "fb", "fcfs", "bands"];

const POLICIES_OF_OVERLOAD: [&str; 2] = ["ps", "srpt"];

const LOADS: [f64; 2] = [0.5, 0.8];

const CHECKED_LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];

const CHECKED_LAWS: [&str; 4] = ["bounded-pareto:1.1,500,2e6", "lognormal:3000,1.3", "exponential:10000", "world-cup"];

/// The reason why nothing was computed or written.
#[derive(Debug)]
pub enum Failure {
    /// The request makes no sense.
    Asked(String),
    /// A file cannot be written.
    File(PathBuf, io::Error),
    /// A plot cannot be drawn.
    Drawing(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(text) => f.write_str(text),
            Self::File(file, error) => write!(f, "cannot write `{}`: {error}", file.display()),
            Self::Drawing(reason) => write!(f, "cannot draw the plot: {reason}"),
        }
    }
}

impl From<TheoryError> for Failure {
    fn from(error: TheoryError) -> Self {
        Self::Asked(error.to_string())
    }
}

/// A complete request: every flag has a value.
pub(super) struct Question {
    pub laws: Vec<Law>,
    pub demands: Vec<Demand>,
    pub policies: Vec<Policy>,
    pub link: Link,
}

/// The demand on the link.
#[derive(Clone, Debug)]
pub(super) enum Demand {
    Load(f64),
    Overload(Pattern),
}

/// A distribution, a load and a policy, with the results. Times are in seconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub sizes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<String>,
    pub policy: &'static str,
    pub mean_s: f64,
    /// Infinite if the mean does not exist. JSON has no infinity, so it is written as `null`.
    pub slowdown: f64,
    pub by_size: Vec<AtSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Beside>,
    /// Position of the cell in its question.
    #[serde(skip)]
    pub index: CellIndex,
}

/// The results of simulations beside a closed form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Beside {
    /// Mean over the seeds of the mean response time, in seconds.
    pub mean_s: f64,
    /// Half of the width of its 95 % confidence interval.
    pub half_width_s: f64,
    /// Mean over the seeds of the mean slowdown.
    pub slowdown: f64,
    /// Ratio of the closed form to the simulation, minus 1.
    pub deviation: f64,
    /// Whether the closed form lies in the interval.
    pub within: bool,
    /// Number of seeds simulated.
    pub seeds: u64,
    /// Number of requests counted, over all seeds.
    pub requests: u64,
    /// Results by size, over all seeds.
    pub by_size: Vec<BySize>,
}

/// Indexes into the lists of a [`Question`].
#[derive(Clone, Copy, Debug)]
pub(super) struct CellIndex {
    pub law: usize,
    pub demand: usize,
    pub policy: usize,
}

/// A size, and the expected results of its requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AtSize {
    /// Share of the requests that are smaller.
    pub share: f64,
    pub bytes: f64,
    pub response_s: f64,
    pub slowdown: f64,
}

impl Question {
    pub fn new(args: &TheoryArgs) -> Result<Self, Failure> {
        let whole_table = args.check && args.overload.is_none();
        let laws = match &args.sizes[..] {
            [] if whole_table && args.load.is_empty() => CHECKED_LAWS.iter().map(|text| law(text)).collect(),
            [] => law("world-cup").map(|law| vec![law]),
            given => Ok(given.to_vec()),
        };
        let laws = laws.map_err(Failure::Asked)?;
        let demands = match (&args.overload, &args.load[..]) {
            (Some(pattern), _) => vec![Demand::Overload(pattern.clone())],
            (None, []) if whole_table && args.sizes.is_empty() => CHECKED_LOADS.map(Demand::Load).into(),
            (None, []) => LOADS.map(Demand::Load).into(),
            (None, given) => given.iter().copied().map(Demand::Load).collect(),
        };
        let plan = match args.cutoffs.clone() {
            none if none.is_empty() => None,
            given => Some(BandPlan::new(given).map_err(|error| Failure::Asked(format!("--cutoffs: {error}")))?),
        };
        let names: Vec<&str> = match &args.policies[..] {
            [] if args.overload.is_some() => POLICIES_OF_OVERLOAD.into(),
            [] => POLICIES.into(),
            given => given.iter().map(|name| name.trim()).collect(),
        };
        let policies: Result<Vec<Policy>, _> =
            names.into_iter().map(|name| Policy::named(name, plan.as_ref())).collect();
        let policies = policies.map_err(|error| Failure::Asked(error.to_string()))?;
        if let Some(policy) = policies.iter().find(|policy| !matches!(policy, Policy::Ps | Policy::Srpt))
            && args.overload.is_some()
        {
            return Err(Failure::Asked(format!(
                "there is no approximation of `{policy}` under a load that changes: --overload goes with ps and srpt"
            )));
        }
        Ok(Self { laws, demands, policies, link: Link::constant(args.uplink) })
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.link.first_rate().bytes_per_second()
    }

    pub fn cells(&self) -> Result<Vec<Cell>, Failure> {
        let mut cells = Vec::new();
        for law in 0..self.laws.len() {
            for demand in 0..self.demands.len() {
                for policy in 0..self.policies.len() {
                    cells.push(self.cell(CellIndex { law, demand, policy })?);
                }
            }
        }
        Ok(cells)
    }

    fn cell(&self, index: CellIndex) -> Result<Cell, Failure> {
        let Law { name, sizes } = &self.laws[index.law];
        let (means, by_size) = self.evaluate(index, &SHARES.map(|share| (share, size_at(sizes, share))))?;
        let (load, overload) = match &self.demands[index.demand] {
            Demand::Load(load) => (Some(*load), None),
            Demand::Overload(pattern) => (None, Some(pattern.name().to_owned())),
        };
        Ok(Cell {
            sizes: name.clone(),
            load,
            overload,
            policy: self.policies[index.policy].name(),
            mean_s: means.response / self.bytes_per_second(),
            slowdown: means.slowdown,
            by_size,
            simulated: None,
            index,
        })
    }

    /// Evaluates a cell at sizes evenly spaced in the logarithm.
    pub fn over_sizes(&self, index: CellIndex, points: usize) -> Result<Vec<AtSize>, Failure> {
        let sizes = &self.laws[index.law].sizes;
        let (least, nearly_least, last) = (size_at(sizes, 0.0), size_at(sizes, 0.001), size_at(sizes, 1.0));
        // If a distribution begins near zero, its smallest requests hardly differ, so the range starts above
        // them.
        let first = if least > nearly_least / 1e3 { least } else { nearly_least };
        let at = (0..points).map(|i| first * (last / first).powf(i as f64 / (points - 1) as f64));
        let at: Vec<(f64, f64)> = at.map(|x| (1.0 - sizes.share_above(x), x)).collect();
        self.evaluate(index, &at).map(|(_, by_size)| by_size)
    }

    /// Computes the means, in bytes of the link's time, and the expected results at the given shares and
    /// sizes.
    fn evaluate(&self, index: CellIndex, at: &[(f64, f64)]) -> Result<(Means, Vec<AtSize>), Failure> {
        let sizes = self.laws[index.law].sizes.clone();
        let policy = &self.policies[index.policy];
        let by_size = |response: &dyn Fn(f64) -> f64| {
            let at = at.iter().map(|&(share, bytes)| {
                let response = response(bytes);
                AtSize { share, bytes, response_s: response / self.bytes_per_second(), slowdown: response / bytes }
            });
            at.collect()
        };
        match &self.demands[index.demand] {
            Demand::Load(load) => {
                let queue = Queue::new(sizes, *load)?;
                let solved = queue.solve(policy);
                let means = Means { response: solved.mean_response(), slowdown: solved.mean_slowdown() };
                Ok((means, by_size(&|x| solved.response(x))))
            }
            Demand::Overload(pattern) => {
                let alternating = Alternating::new(sizes, pattern, self.bytes_per_second())?;
                if *policy == Policy::Ps {
                    let sharing = alternating.sharing();
                    let means = Means { response: sharing.mean_response(), slowdown: sharing.mean_slowdown() };
                    Ok((means, by_size(&|x| sharing.response(x))))
                } else {
                    let shortest = alternating.shortest();
                    let means = Means { response: shortest.mean_response(), slowdown: shortest.mean_slowdown() };
                    Ok((means, by_size(&|x| shortest.response(x))))
                }
            }
        }
    }
}

/// Means over all requests.
struct Means {
    response: f64,
    slowdown: f64,
}

fn size_at(sizes: &Sizes, share: f64) -> f64 {
    let size = sizes.quantile(share);
    if size.is_finite() { size } else { sizes.quantile(NEARLY_ALL) }
}
