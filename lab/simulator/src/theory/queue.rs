//! The M/GI/1 queue: Poisson arrivals, independent sizes, one link.
//!
//! Notation: arrivals come at rate lambda, sizes X have distribution F, the load is rho = lambda E\[X\]. The
//! load of the requests up to size x is rho(x) = lambda E\[X; X <= x\], and that of those below it is
//! rho(x-). The two are equal unless a single size has a share of its own; then the formulas are those of the
//! textbooks. Requests of equal rank are served in the order of arrival.

use super::{
    Sizes, TheoryError,
    policy::Policy,
    quadrature::{edges, integral, shares},
};

/// A link with the sizes and the rate of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    sizes: Sizes,
    load: f64,
    /// Arrivals per unit of time.
    lambda: f64,
}

impl Queue {
    /// A queue of requests of these sizes, at the rate that gives the load.
    ///
    /// # Errors
    ///
    /// [`TheoryError::Load`] unless 0 < `load` < 1.
    pub fn new(sizes: Sizes, load: f64) -> Result<Self, TheoryError> {
        if !(load > 0.0 && load < 1.0) {
            return Err(TheoryError::Load(load));
        }
        let lambda = load / sizes.mean();
        Ok(Self { sizes, load, lambda })
    }

    /// The law of the sizes.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Arrivals per unit of time.
    pub fn arrivals(&self) -> f64 {
        self.lambda
    }

    /// Applies a policy.
    pub fn solve(&self, policy: &Policy) -> Solved<'_> {
        let edges = edges(&self.sizes, policy.cutoffs());
        let mut solved = Solved { queue: self, policy: policy.clone(), edges, residence: Vec::new() };
        if *policy == Policy::Srpt {
            solved.residence = self.residence(&solved.edges);
        }
        solved
    }

    /// rho(x).
    fn load_up_to(&self, x: f64) -> f64 {
        self.lambda * self.sizes.moment_up_to(1, x)
    }

    /// rho(x-).
    fn load_below(&self, x: f64) -> f64 {
        self.lambda * self.sizes.moment_below(1, x)
    }

    /// (lambda / 2) E\[X^2; X <= x\].
    fn half_square_up_to(&self, x: f64) -> f64 {
        self.lambda / 2.0 * self.sizes.moment_up_to(2, x)
    }

    /// (lambda / 2) E\[X^2\]: mean remaining work in service, the numerator of Pollaczek and Khinchine's
    /// formula.
    fn half_square(&self) -> f64 {
        self.lambda / 2.0 * self.sizes.moment(2)
    }

    /// The integral of 1 / (1 - rho(t)) from 0 to each edge.
    fn residence(&self, edges: &[f64]) -> Vec<f64> {
        let mut sum = edges.first().copied().unwrap_or_default();
        let mut sums = vec![sum];
        for cell in edges.windows(2) {
            sum += self.residence_within(cell[0], cell[1]);
            sums.push(sum);
        }
        sums
    }

    /// The same from `low` to `high` within one cell.
    fn residence_within(&self, low: f64, high: f64) -> f64 {
        let slowness = |t: f64| 1.0 / (1.0 - self.load_below(t));
        // Without parts, the load between two single sizes is constant.
        if self.sizes.parts().is_empty() {
            return (high - low) * slowness(f64::midpoint(low, high));
        }
        integral(low, high, slowness)
    }
}

/// A queue under a policy.
#[derive(Clone, Debug)]
pub struct Solved<'a> {
    queue: &'a Queue,
    policy: Policy,
    /// Edges of the integration cells.
    edges: Vec<f64>,
    /// Under [`Policy::Srpt`], the integral of 1 / (1 - rho(t)) up to each edge.
    residence: Vec<f64>,
}

impl Solved<'_> {
    /// E\[T(x)\]: mean response time of a request of size `x`.
    pub fn response(&self, x: f64) -> f64 {
        match &self.policy {
            Policy::Ps => self.processor_sharing(x),
            Policy::Fcfs => self.first_come(x),
            Policy::Srpt => self.shortest_remaining(x),
            Policy::Fb => self.least_attained(x),
            Policy::Psjf => self.preemptive_shortest(x),
            Policy::Sjf => self.shortest(x),
            Policy::Bands(plan) => self.bands(x, plan.cutoffs()),
            Policy::PreemptivePriority(plan) => self.preemptive_priority(x, plan.cutoffs()),
            Policy::Priority(plan) => self.priority(x, plan.cutoffs()),
        }
    }

    /// E\[T(x)\] / x.
    pub fn slowdown(&self, x: f64) -> f64 {
        self.response(x) / x
    }

    /// E\[T\]: mean response time over all requests.
    pub fn mean_response(&self) -> f64 {
        shares(&self.queue.sizes, &self.edges).map(|(x, share)| share * self.response(x)).sum()
    }

    /// E\[T / X\]: mean slowdown over all requests. Infinite where very small requests are so likely, and
    /// wait so long, that no mean exists.
    pub fn mean_slowdown(&self) -> f64 {
        if self.policy.delays_the_smallest() && self.queue.sizes.moment(-1).is_infinite() {
            return f64::INFINITY;
        }
        shares(&self.queue.sizes, &self.edges).map(|(x, share)| share * self.slowdown(x)).sum()
    }

    /// x / (1 - rho). Sakata, Noguchi, Oizumi, "An Analysis of the M/G/1 Queue under Round-Robin Scheduling",
    /// Operations Research 19, 1971; for exponential sizes Kleinrock, "Time-Shared Systems: A Theoretical
    /// Treatment", Journal of the ACM 14, 1967.
    fn processor_sharing(&self, x: f64) -> f64 {
        x / (1.0 - self.queue.load)
    }

    /// x + (lambda / 2) E\[X^2\] / (1 - rho). Pollaczek, "Ueber eine Aufgabe der Wahrscheinlichkeitstheorie",
    /// Mathematische Zeitschrift 32, 1930; Khinchine, "Mathematical Theory of a Stationary Queue",
    /// Matematicheskii Sbornik 39, 1932.
    fn first_come(&self, x: f64) -> f64 {
        x + self.queue.half_square() / (1.0 - self.queue.load)
    }

    /// (lambda / 2) (E\[X^2; X <= x\] + x^2 P(X > x)) / ((1 - rho(x-)) (1 - rho(x))) + the integral of dt /
    /// (1 - rho(t)) from 0 to x.
    ///
    /// Schrage, Miller, "The Queue M/G/1 with the Shortest Remaining Processing Time Discipline", Operations
    /// Research 14, 1966; cited by "Implementation of SRPT Scheduling in Web Servers". The first term is the
    /// wait until first served. It is the work present that goes first, where a larger request counts with
    /// the x that it has left when it overtakes. The second is the time from then on, in which only requests
    /// smaller than the remainder interrupt.
    fn shortest_remaining(&self, x: f64) -> f64 {
        let queue = self.queue;
        let ahead = queue.lambda / 2.0 * queue.sizes.moment_capped(2, x);
        ahead / ((1.0 - queue.load_below(x)) * (1.0 - queue.load_up_to(x))) + self.residence(x)
    }

    fn residence(&self, x: f64) -> f64 {
        match self.edges.partition_point(|&edge| edge <= x).checked_sub(1) {
            None => x,
            Some(cell) => self.residence[cell] + self.queue.residence_within(self.edges[cell], x),
        }
    }

    /// (lambda / 2) E\[min(X, x)^2\] / (1 - r)^2 + x / (1 - r), with r = lambda E\[min(X, x)\]. Schrage, "The
    /// Queue M/G/1 with Feedback to Lower Priority Queues", Management Science 13, 1967: up to x units of
    /// every request's service go first.
    fn least_attained(&self, x: f64) -> f64 {
        let idle = 1.0 - self.queue.lambda * self.queue.sizes.moment_capped(1, x);
        self.queue.lambda / 2.0 * self.queue.sizes.moment_capped(2, x) / (idle * idle) + x / idle
    }

    /// (lambda / 2) E\[X^2; X <= x\] / ((1 - rho(x-)) (1 - rho(x))) + x / (1 - rho(x-)). Wierman,
    /// Harchol-Balter, "Classifying Scheduling Policies with Respect to Unfairness in an M/GI/1", SIGMETRICS
    /// 2003, cited by "Web Servers Under Overload: How Scheduling Can Help"; it is preemptive priority with a
    /// class for each size.
    fn preemptive_shortest(&self, x: f64) -> f64 {
        let (below, up_to) = (self.queue.load_below(x), self.queue.load_up_to(x));
        self.queue.half_square_up_to(x) / ((1.0 - below) * (1.0 - up_to)) + x / (1.0 - below)
    }

    /// x + (lambda / 2) E\[X^2\] / ((1 - rho(x-)) (1 - rho(x))). Phipps, "Machine Repair as a Priority
    /// Waiting-Line Problem", Operations Research 4, 1956: Cobham's formula with a class for each size.
    fn shortest(&self, x: f64) -> f64 {
        x + self.queue.half_square() / ((1.0 - self.queue.load_below(x)) * (1.0 - self.queue.load_up_to(x)))
    }

    /// Schrage and Miller's argument, where the rank of a remainder is its band. With c the end of x's band
    /// and b its beginning:
    ///
    /// (lambda / 2) (E\[X^2; X < c\] + c^2 P(X >= c)) / ((1 - rho(b)) (1 - rho(c))) + the integral from 0 to
    /// x of dt / (1 - rho(b(t)))
    ///
    /// where rho counts smaller sizes, and b(t) is the beginning of the band of t. A request present in the
    /// band goes first with all its work left there. A larger one reaches the band only when the bands up to
    /// it are empty, and is then its first. With more cutoffs it becomes SRPT. It was not found in the
    /// literature; the derivation is ours, and is checked by simulation.
    fn bands(&self, x: f64, cutoffs: &[u64]) -> f64 {
        let queue = self.queue;
        let (begin, end) = band(x, cutoffs);
        // A cap at the end of the band counts sizes as large as the end, and larger, with the end itself.
        let ahead = queue.lambda / 2.0 * queue.sizes.moment_capped(2, end);
        let wait = ahead / ((1.0 - queue.load_below(begin)) * (1.0 - queue.load_below(end)));
        let ends = cutoffs.iter().map(|&cutoff| cutoff as f64).take_while(|&cutoff| cutoff <= begin).chain([x]);
        let mut from = 0.0;
        let mut residence = 0.0;
        for until in ends {
            residence += (until - from) / (1.0 - queue.load_below(from));
            from = until;
        }
        wait + residence
    }

    /// (lambda / 2) E\[X^2; up to the band\] / ((1 - s') (1 - s)) + x / (1 - s'). Here s is the load of the
    /// bands up to the request's, and s' the same without its own band. White, Christie, "Queuing with
    /// Preemptive Priorities or with Breakdown", Operations Research 6, 1958; for any number of classes
    /// Conway, Maxwell, Miller, "Theory of Scheduling", 1967, chapter 8.
    fn preemptive_priority(&self, x: f64, cutoffs: &[u64]) -> f64 {
        let queue = self.queue;
        let (begin, end) = band(x, cutoffs);
        let (before, with) = (queue.load_below(begin), queue.load_below(end));
        queue.lambda / 2.0 * queue.sizes.moment_below(2, end) / ((1.0 - before) * (1.0 - with)) + x / (1.0 - before)
    }

    /// x + (lambda / 2) E\[X^2\] / ((1 - s') (1 - s)), s and s' as under preemption. Cobham, "Priority
    /// Assignment in Waiting Line Problems", Operations Research 2, 1954.
    fn priority(&self, x: f64, cutoffs: &[u64]) -> f64 {
        let (begin, end) = band(x, cutoffs);
        let (before, with) = (self.queue.load_below(begin), self.queue.load_below(end));
        x + self.queue.half_square() / ((1.0 - before) * (1.0 - with))
    }
}

/// Beginning and end of the band of a size: a size equal to a cutoff is above it.
fn band(x: f64, cutoffs: &[u64]) -> (f64, f64) {
    let place = cutoffs.partition_point(|&cutoff| cutoff as f64 <= x);
    let begin = place.checked_sub(1).map_or(0.0, |before| cutoffs[before] as f64);
    (begin, cutoffs.get(place).map_or(f64::INFINITY, |&cutoff| cutoff as f64))
}

#[cfg(test)]
mod tests;
