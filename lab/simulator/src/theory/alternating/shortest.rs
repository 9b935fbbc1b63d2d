//! Shortest remaining processing time under a changing load.

use super::load::{Alternating, MOST_PERIODS, PERIODIC};

/// Arrival times per period that represent all.
const ARRIVALS: usize = 500;

/// Shortest remaining processing time, in its periodic state.
#[derive(Clone, Debug)]
pub struct Shortest<'a> {
    of: &'a Alternating,
    /// `(size, share of the load below it)` in rising order from 0; the share holds from this size to the
    /// next.
    ranks: Vec<(f64, f64)>,
}

impl<'a> Shortest<'a> {
    pub(super) fn new(of: &'a Alternating) -> Self {
        let mean = of.sizes.mean();
        let (first, last) = (of.classes[0].0, of.classes[of.classes.len() - 1].0);
        // Below the least sizes nothing interrupts. Where single sizes have shares, the steps are at those
        // sizes.
        let steps = ((last / first).log10() * 24.0).ceil().max(1.0) as usize;
        let step = (last / first).ln() / steps as f64;
        let mut sizes: Vec<f64> = (0..=steps).map(|i| first * (step * i as f64).exp()).collect();
        sizes.extend(of.classes.iter().map(|&(size, _)| size));
        sizes.push(0.0);
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.dedup();
        let next = sizes.iter().skip(1).copied().chain([last]);
        let ranks = sizes
            .iter()
            .zip(next)
            .map(|(&size, next)| (size, of.sizes.moment_below(1, f64::midpoint(size, next)) / mean));
        Self { of, ranks: ranks.collect() }
    }

    /// Mean response time of a request of size `x`, over all arrival times.
    pub fn response(&self, x: f64) -> f64 {
        let grid = &self.of.grid;
        let sizes = &self.of.sizes;
        let mean = sizes.mean();
        let (up_to, below) = (sizes.moment_up_to(1, x) / mean, sizes.moment_below(1, x) / mean);
        let work = self.work(x, up_to);
        // Larger requests that have x left when they overtake. They reach it only while no smaller work is
        // left, which is a share 1 - rho(x) of a period.
        let mean_load = grid.mean_load();
        let overtaken = mean_load / mean * x * x * sizes.share_above(x) / (2.0 * (1.0 - mean_load * up_to));

        let (mut sum, mut weights) = (0.0, 0.0);
        let stride = (grid.steps() / ARRIVALS).max(1);
        for step in (0..grid.steps()).step_by(stride) {
            let (length, load) = grid.step(step);
            let arrival = grid.begin(step) + length / 2.0;
            let weight = load * length;
            let start = Clock::new(self, arrival).after(work[step] + overtaken, below);
            sum += weight * (self.end(x, start) - arrival);
            weights += weight;
        }
        sum / weights
    }

    /// The mean response time divided by the size.
    pub fn slowdown(&self, x: f64) -> f64 {
        self.response(x) / x
    }

    /// Mean response time over all requests.
    pub fn mean_response(&self) -> f64 {
        self.of.mean_of(|x| self.response(x))
    }

    /// Mean slowdown, response time divided by size, over all requests.
    pub fn mean_slowdown(&self) -> f64 {
        self.of.mean_of(|x| self.slowdown(x))
    }

    /// Mean work of requests up to `x`, in the middle of each step; `share` is their share of the load.
    pub(super) fn work(&self, x: f64, share: f64) -> Vec<f64> {
        let (grid, sizes) = (&self.of.grid, &self.of.sizes);
        if share <= 0.0 {
            return vec![0.0; grid.steps()];
        }
        let scale = sizes.moment_up_to(2, x) / (2.0 * sizes.moment_up_to(1, x));
        let mut work = vec![0.0; grid.steps()];
        let mut now = 0.0;
        for _ in 0..MOST_PERIODS {
            let before: f64 = now;
            for (step, middle) in work.iter_mut().enumerate() {
                let (length, load) = grid.step(step);
                // An implicit step, because small requests come and go many times in a step. The rest W at
                // its end satisfies W = with + length * -W / (W + scale), a quadratic equation.
                let with = now + length * load * share;
                let b = scale + length - with;
                let root = (b * b + 4.0 * scale * with).sqrt();
                let end = if b > 0.0 { 2.0 * scale * with / (root + b) } else { (root - b) / 2.0 };
                *middle = if length > scale { end } else { f64::midpoint(now, end) };
                now = end;
            }
            let most = work.iter().copied().fold(now, f64::max);
            if (now - before).abs() <= PERIODIC * most {
                break;
            }
        }
        work
    }

    /// When a request of size `x` ends that is first served at `start`.
    fn end(&self, x: f64, start: f64) -> f64 {
        let mut clock = Clock::new(self, start);
        let mut rest = x;
        for &(size, smaller) in self.ranks[..self.ranks.partition_point(|&(size, _)| size < x)].iter().rev() {
            clock.go(rest - size, smaller);
            rest = size;
        }
        clock.now
    }
}

/// A position in the steps of a load, with the work of other requests.
struct Clock<'a> {
    of: &'a Alternating,
    step: usize,
    now: f64,
    /// Work of other requests that goes first.
    ahead: f64,
}

impl<'a> Clock<'a> {
    fn new(shortest: &Shortest<'a>, now: f64) -> Self {
        Self { of: shortest.of, step: shortest.of.grid.at(now), now, ahead: 0.0 }
    }

    /// When `ahead`, and all later arrivals of a share `smaller` of the load, are done.
    fn after(mut self, ahead: f64, smaller: f64) -> f64 {
        self.go(ahead, smaller);
        self.now
    }

    /// Advances until `service` units are served beside a share `smaller` of the load, which goes first.
    fn go(&mut self, mut service: f64, smaller: f64) {
        loop {
            let (length, load) = self.of.grid.step(self.step);
            let end = self.of.grid.begin(self.step) + length;
            let room = (end - self.now).max(0.0);
            let rate = 1.0 - load * smaller;
            let needed = self.ahead + service;
            if rate > 0.0 && needed <= rate * room {
                self.now += needed / rate;
                self.ahead = 0.0;
                return;
            }
            // The remaining capacity goes to the backlog of the other requests first.
            self.ahead -= rate * room;
            if self.ahead < 0.0 {
                service += self.ahead;
                self.ahead = 0.0;
            }
            self.now = end;
            self.step += 1;
        }
    }
}
