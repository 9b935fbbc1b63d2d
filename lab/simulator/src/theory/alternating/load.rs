//! Requests under a load that changes over time, in steps of constant load.

use workload::pattern::{Pattern, Unit};

use super::super::{
    TheoryError,
    quadrature::{edges, shares},
    sizes::Sizes,
};

/// Steps in a period.
pub(super) const STEPS: f64 = 4000.0;

/// Most periods before the state is taken as it is: near a load of 1 it hardly converges.
pub(super) const MOST_PERIODS: usize = 400;

/// A state is periodic when it changes by less than this share over a period.
pub(super) const PERIODIC: f64 = 1e-5;

/// Size classes per decade that represent the law.
const CLASSES_A_DECADE: f64 = 10.0;

/// Requests with sizes of a law, under a periodic load.
#[derive(Clone, Debug)]
pub struct Alternating {
    pub(super) sizes: Sizes,
    pub(super) grid: Grid,
    /// `(size, share)`, by size.
    pub(super) classes: Vec<(f64, f64)>,
}

impl Alternating {
    /// Requests of `sizes` under `pattern`. A second equals `units_per_second` units of size.
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

    /// The mean over all requests of a function of the size.
    pub(super) fn mean_of(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.classes.iter().map(|&(size, share)| share * of(size)).sum()
    }
}

/// A few sizes that represent all: the mean of each slice between two edges with its share, so that the mean
/// is kept.
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
    // Slices with less than a millionth of the requests and of the bytes are omitted.
    let counting = slices.into_iter().filter(|&(_, share, sum)| share > 1e-6 || sum > 1e-6 * sizes.mean());
    counting.map(|(_, share, sum)| (sum / share, share)).collect()
}

/// A period in steps of constant load.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// Ends of the steps, from 0 on; one more than there are steps.
    pub(super) edges: Vec<f64>,
    /// The load in each step.
    pub(super) loads: Vec<f64>,
    /// The integral of the load up to each edge.
    pub(super) offered: Vec<f64>,
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

    pub(super) fn steps(&self) -> usize {
        self.loads.len()
    }

    pub(super) fn period(&self) -> f64 {
        self.edges[self.steps()]
    }

    pub(super) fn offered_in_period(&self) -> f64 {
        self.offered[self.steps()]
    }

    /// `(length, load)` of a step; step numbers continue over periods.
    pub(super) fn step(&self, number: usize) -> (f64, f64) {
        let place = number % self.steps();
        (self.edges[place + 1] - self.edges[place], self.loads[place])
    }

    /// When a step begins.
    pub(super) fn begin(&self, number: usize) -> f64 {
        (number / self.steps()) as f64 * self.period() + self.edges[number % self.steps()]
    }

    /// The step that contains `t`.
    pub(super) fn at(&self, t: f64) -> usize {
        let periods = (t / self.period()).floor().max(0.0);
        let within = t - periods * self.period();
        let place = self.edges.partition_point(|&edge| edge <= within).saturating_sub(1).min(self.steps() - 1);
        periods as usize * self.steps() + place
    }

    /// The integral of the load from 0 to `t`.
    pub(super) fn offered_until(&self, t: f64) -> f64 {
        let step = self.at(t);
        let periods = (step / self.steps()) as f64;
        periods * self.offered_in_period()
            + self.offered[step % self.steps()]
            + self.step(step).1 * (t - self.begin(step))
    }

    pub(super) fn mean_load(&self) -> f64 {
        self.offered_in_period() / self.period()
    }
}
