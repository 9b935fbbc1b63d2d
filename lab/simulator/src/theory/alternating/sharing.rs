//! Processor sharing under a changing load.

use super::load::{Alternating, MOST_PERIODS, PERIODIC, STEPS};

/// Most load of requests that come and go within one step: they are counted one step late.
const LOAD_WITHIN_A_STEP: f64 = 0.4;

/// Processor sharing, in its periodic state.
///
/// All present requests are served equally, so one clock is enough: S(t), the *service* by time t of a
/// request that is always present. A request of size x that comes at u ends at t with S(t) = S(u) + x.
#[derive(Clone, Debug)]
pub struct Sharing<'a> {
    of: &'a Alternating,
    /// `(time, service, number present)` over one period, from its start to the start of the next.
    period: Vec<(f64, f64, f64)>,
}

impl<'a> Sharing<'a> {
    pub(super) fn new(of: &'a Alternating) -> Self {
        let mut run = Run::new(of);
        let mut before = run.period();
        for _ in 1..MOST_PERIODS {
            let period = run.period();
            let settled = {
                let (most, change) = (most_present(&period), (most_present(&period) - most_present(&before)).abs());
                change <= PERIODIC * most && (run.last().2 - period[0].2).abs() <= PERIODIC * most
            };
            before = period;
            if settled {
                break;
            }
        }
        Self { of, period: before }
    }

    /// Mean response time of a request of size `x`, over all arrival times.
    pub fn response(&self, x: f64) -> f64 {
        let offered = |i: usize| self.of.grid.offered_until(self.period[i].0 - self.period[0].0);
        let mut sum = 0.0;
        let mut place = 0;
        for i in 1..self.period.len() {
            let ((t0, s0, _), (t1, s1, _)) = (self.period[i - 1], self.period[i]);
            let end = self.when_served(f64::midpoint(s0, s1) + x, &mut place);
            sum += (offered(i) - offered(i - 1)) * (end - f64::midpoint(t0, t1));
        }
        sum / self.of.grid.offered_in_period()
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

    /// The largest mean number of present requests at any time.
    pub fn most_present(&self) -> f64 {
        most_present(&self.period)
    }

    /// The time of a service, for a repeated period. Must be called with rising `service`; `place` keeps the
    /// position.
    fn when_served(&self, service: f64, place: &mut usize) -> f64 {
        let (first, last) = (self.period[0], self.period[self.period.len() - 1]);
        let (length, served) = (last.0 - first.0, last.1 - first.1);
        let periods = ((service - first.1) / served).floor().max(0.0);
        let within = service - periods * served;
        if self.period[*place].1 > within {
            *place = 0;
        }
        while *place + 2 < self.period.len() && self.period[*place + 1].1 <= within {
            *place += 1;
        }
        let ((t0, s0, _), (t1, s1, _)) = (self.period[*place], self.period[*place + 1]);
        periods * length + t0 + (t1 - t0) * (within - s0) / (s1 - s0)
    }
}

fn most_present(period: &[(f64, f64, f64)]) -> f64 {
    period.iter().map(|&(_, _, present)| present).fold(0.0, f64::max)
}

/// Simulates the queue from empty.
struct Run<'a> {
    of: &'a Alternating,
    /// `(time, service, integral of the load)` so far.
    past: Vec<(f64, f64, f64)>,
    /// For each class, the position in the past of the arrivals that have just received its size.
    places: Vec<usize>,
    present: f64,
    /// The largest step in service.
    most_service: f64,
}

impl<'a> Run<'a> {
    fn new(of: &'a Alternating) -> Self {
        let most_load = of.grid.loads.iter().copied().fold(0.0, f64::max);
        let mean = of.sizes.mean();
        let within = |size: f64| most_load * of.sizes.moment_up_to(1, size) / mean;
        let fitting = of.classes.iter().map(|&(size, _)| size).take_while(|&size| within(size) <= LOAD_WITHIN_A_STEP);
        let most_service = fitting.last().unwrap_or(of.classes[0].0 * LOAD_WITHIN_A_STEP / most_load.max(1.0));
        Self { of, past: vec![(0.0, 0.0, 0.0)], places: vec![0; of.classes.len()], present: 0.0, most_service }
    }

    fn last(&self) -> (f64, f64, f64) {
        let (time, service, _) = self.past[self.past.len() - 1];
        (time, service, self.present)
    }

    /// Advances by a period, and returns it.
    fn period(&mut self) -> Vec<(f64, f64, f64)> {
        let grid = &self.of.grid;
        let mut period = vec![self.last()];
        let start = period[0].0;
        let mut step = 0;
        while step < grid.steps() {
            let (time, service, offered) = self.past[self.past.len() - 1];
            let end = start + grid.edges[step + 1];
            // A new request, and so every request, shares with those present and itself.
            let slowness = 1.0 + self.present;
            let most = (self.most_service * slowness).min(grid.period() / STEPS);
            let until = if end - time <= most * 1.000_001 { end } else { time + most };
            self.past.push((until, service + (until - time) / slowness, offered + grid.loads[step] * (until - time)));
            self.present = self.count();
            period.push(self.last());
            if until >= end {
                step += 1;
            }
        }
        period
    }

    /// The number present: of each class, the arrivals since the service was less by its size.
    fn count(&mut self) -> f64 {
        let (_, service, offered) = self.past[self.past.len() - 1];
        let per_offered = 1.0 / self.of.sizes.mean();
        let classes = self.of.classes.iter().zip(&mut self.places);
        let counts = classes.map(|(&(size, share), place)| {
            let since = service - size;
            while *place + 2 < self.past.len() && self.past[*place + 1].1 <= since {
                *place += 1;
            }
            let ((_, s0, o0), (_, s1, o1)) = (self.past[*place], self.past[*place + 1]);
            let offered_then = if since <= 0.0 { 0.0 } else { o0 + (o1 - o0) * (since - s0) / (s1 - s0) };
            share * (offered - offered_then)
        });
        per_offered * counts.sum::<f64>()
    }
}
