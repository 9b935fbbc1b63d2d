//! A load that changes over time and may be above 1 for a while: response time as a function of size under PS and SRPT.
//!
//! "Web Servers Under Overload: How Scheduling Can Help", section 6.3, evaluates such a queue (M/GI/1, alternating periods of
//! overload and low load, Bounded Pareto sizes with alpha 1.1) with an approximation, and refers for it to Bansal,
//! Harchol-Balter, "Scheduling Solutions for Coping with Transient Overload", CMU-CS-01-134, 2001, without giving it. **What stands
//! here is derived anew**, from what section 6.2 says happens: under SRPT requests below the size at which the load of the
//! smaller ones reaches 1 go on as if nothing were, larger ones wait until the overload is over and the backlog of what is
//! smaller has gone; under sharing everybody's rate falls as the number present grows.
//!
//! The random queue is replaced by its mean, which follows a differential equation that has two properties: under a constant
//! load below 1 it rests at the mean of the steady state, exactly (so that the closed forms of [`super::Queue`] come out); and far
//! above 1 it grows as the fluid limit does. That is the pointwise stationary fluid flow approximation (Wang, Tipper, Banerjee,
//! "A Simple Approximation for Modeling Nonstationary Queues", INFOCOM 1996).
//!
//! - [`Sharing`]: each of n present, and one more, has 1 / (1 + n) of the link. Steady state: n = rho / (1 - rho). Fluid limit: that
//!   of Jean-Marie, Robert, "On the Transient Behavior of the Processor Sharing Queue", Queueing Systems 17, 1994.
//! - [`Shortest`]: for each size x, the work V of requests up to x grows with their load and falls with V / (V + a), a = E\[X^2; X <=
//!   x\] / (2 E\[X; X <= x\]). A request waits until that work is done and what came meanwhile, and is then only interrupted by
//!   what is smaller than its rest. Steady state: Schrage and Miller's formula.
//!
//! What is lost is the chance in the load itself: a phase of 25 s in which a few of the largest requests come is another than one
//! in which none do. How far off it is stands in the table that `serpent-lab theory --overload w1 --check` prints.

mod sharing;
mod shortest;

use workload::pattern::{Pattern, Unit};

pub use self::{sharing::Sharing, shortest::Shortest};
use super::{
    Sizes, TheoryError,
    quadrature::{edges, shares},
};

/// Steps in a period.
const STEPS: f64 = 4000.0;
/// Periods after which a state that still changes is taken as it is: loads so near 1 that the mean over a period hardly falls.
const MOST_PERIODS: usize = 400;
/// A state is periodic when it changes by less than this share over a period.
const PERIODIC: f64 = 1e-5;
/// Classes of sizes that stand for the law, in a decade.
const CLASSES_A_DECADE: f64 = 10.0;

/// Requests of given sizes under a load that repeats itself.
#[derive(Clone, Debug)]
pub struct Alternating {
    sizes: Sizes,
    grid: Grid,
    /// `(size, share)`, by size.
    classes: Vec<(f64, f64)>,
}

impl Alternating {
    /// Requests of `sizes` under `pattern`, whose seconds are worth `units_per_second` units of size.
    ///
    /// # Errors
    ///
    /// [`TheoryError::Load`] unless the load's mean is above 0 and below 1.
    pub fn new(sizes: Sizes, pattern: &Pattern, units_per_second: f64) -> Result<Self, TheoryError> {
        let load_of = match pattern.unit() {
            Unit::Load => 1.0,
            Unit::RequestsPerSecond => sizes.mean() / units_per_second,
        };
        let mean = pattern.mean() * load_of;
        if !(mean > 0.0 && mean < 1.0) {
            return Err(TheoryError::Load(mean));
        }
        let (classes, grid) = (classes(&sizes), Grid::new(pattern, load_of, units_per_second));
        Ok(Self { sizes, grid, classes })
    }

    /// Under processor sharing.
    pub fn sharing(&self) -> Sharing<'_> {
        Sharing::new(self)
    }

    /// Under shortest remaining processing time.
    pub fn shortest(&self) -> Shortest<'_> {
        Shortest::new(self)
    }

    /// The mean over all requests of what is known by size.
    fn mean_of(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.classes.iter().map(|&(size, share)| share * of(size)).sum()
    }
}

/// Few sizes that stand for all: the mean of each slice between two edges, with its share, so that the mean is kept.
fn classes(sizes: &Sizes) -> Vec<(f64, f64)> {
    let edges = edges(sizes, &[]);
    let mut slices: Vec<(i64, f64, f64)> = Vec::new();
    let mut sorted: Vec<(f64, f64)> = shares(sizes, &edges).collect();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    for (size, share) in sorted {
        let slice = (size.log10() * CLASSES_A_DECADE).floor() as i64;
        match slices.last_mut() {
            Some((last, shares, sum)) if *last == slice => {
                *shares += share;
                *sum += share * size;
            }
            _ => slices.push((slice, share, share * size)),
        }
    }
    // What is one in a million, of the requests and of the bytes, is left out.
    let counting = slices.into_iter().filter(|&(_, share, sum)| share > 1e-6 || sum > 1e-6 * sizes.mean());
    counting.map(|(_, share, sum)| (sum / share, share)).collect()
}

/// A period in steps of constant load.
#[derive(Clone, Debug)]
struct Grid {
    /// Ends of the steps, from 0 on; one more than there are steps.
    edges: Vec<f64>,
    /// The load in each step.
    loads: Vec<f64>,
    /// The integral of the load up to each edge.
    offered: Vec<f64>,
}

impl Grid {
    fn new(pattern: &Pattern, load_of: f64, units_per_second: f64) -> Self {
        let units = |ns: u64| ns as f64 / 1e9 * units_per_second;
        let period_ns = pattern.period_ns();
        let mut grid = Self { edges: vec![0.0], loads: Vec::new(), offered: vec![0.0] };
        for span in pattern.spans().take_while(|span| span.from_ns < period_ns) {
            let (from, until) = (units(span.from_ns), units(span.until_ns));
            let steps = ((span.until_ns - span.from_ns) as f64 / period_ns as f64 * STEPS).ceil();
            for i in 0..steps as usize {
                let middle = (i as f64 + 0.5) / steps;
                let load = load_of * (span.from + (span.to - span.from) * middle);
                let end = from + (until - from) * (i + 1) as f64 / steps;
                let offered = grid.offered[grid.loads.len()] + load * (end - grid.edges[grid.loads.len()]);
                grid.edges.push(end);
                grid.loads.push(load);
                grid.offered.push(offered);
            }
        }
        grid
    }

    fn steps(&self) -> usize {
        self.loads.len()
    }

    fn period(&self) -> f64 {
        self.edges[self.steps()]
    }

    fn offered_in_period(&self) -> f64 {
        self.offered[self.steps()]
    }

    /// `(length, load)` of a step, the periods following each other.
    fn step(&self, number: usize) -> (f64, f64) {
        let place = number % self.steps();
        (self.edges[place + 1] - self.edges[place], self.loads[place])
    }

    /// When a step begins.
    fn begin(&self, number: usize) -> f64 {
        (number / self.steps()) as f64 * self.period() + self.edges[number % self.steps()]
    }

    /// The step that `t` lies in.
    fn at(&self, t: f64) -> usize {
        let periods = (t / self.period()).floor().max(0.0);
        let within = t - periods * self.period();
        let place = self.edges.partition_point(|&edge| edge <= within).saturating_sub(1).min(self.steps() - 1);
        periods as usize * self.steps() + place
    }

    /// The integral of the load from 0 to `t`.
    fn offered_until(&self, t: f64) -> f64 {
        let step = self.at(t);
        let periods = (step / self.steps()) as f64;
        periods * self.offered_in_period()
            + self.offered[step % self.steps()]
            + self.step(step).1 * (t - self.begin(step))
    }

    fn mean_load(&self) -> f64 {
        self.offered_in_period() / self.period()
    }
}

#[cfg(test)]
mod tests;
