//! Compares simulations with closed forms: simulated engines that serve requests, beside the formulas.
//!
//! [`ProcessorSharing`] and [`Ordered`] serve PS, SRPT, FB and FCFS, and so the production scheduler is tested. A
//! small queue of this module serves the policies that the scheduler does not have. Requests are a seeded
//! Poisson process. Sizes are rounded to whole bytes, unlike in the formulas; below about a hundred bytes
//! this shows.

mod ranked;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use scheduler::{Chunk, Order, Pacing, uplink::Settings};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use workload::{
    pattern::{Pattern, Unit},
    rate::Link,
    sequence::Request,
    wire::WireModel,
};

use self::ranked::Ranked;
use super::{Policy, Sizes};
use crate::{Clients, Model, Ordered, ProcessorSharing, Served, Stream, run};

const NS_PER_S: f64 = 1e9;
/// Bins per decade of sizes.
pub const BINS_A_DECADE: f64 = 8.0;
/// Turns of FB in a request of mean size: requests with equal attained service share in steps of this size.
const TURNS_A_REQUEST: f64 = 40.0;

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The law of the sizes, in bytes.
    pub sizes: &'a Sizes,
    /// The load over time.
    pub pattern: &'a Pattern,
    /// The link that serves them.
    pub link: &'a Link,
    /// Expected number of requests, which determines the length of the run. A changing load is simulated for
    /// whole periods, at least three.
    pub requests: u64,
    /// Seed of arrival times and sizes.
    pub seed: u64,
}

/// The results of a simulation. It counts requests that came after the first tenth, in which the queue fills,
/// and before the last tenth, which has no later arrivals. For a changing load it excludes the first and the
/// last period.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Simulated {
    /// Mean response time, in seconds.
    pub mean_s: f64,
    /// Mean of response time over the time that the request takes alone.
    pub slowdown: f64,
    /// Requests counted.
    pub requests: u64,
    /// By size, in rising order.
    pub by_size: Vec<BySize>,
}

/// Requests of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BySize {
    /// Their mean size, in bytes.
    pub bytes: f64,
    /// Their mean response time, in seconds.
    pub response_s: f64,
    /// Number of requests.
    pub requests: u64,
}

/// Simulates a policy. The same arguments give the same result.
pub fn simulate(run: &Run<'_>, policy: &Policy) -> Simulated {
    let (link, wire) = (run.link, &WireModel::BODY_ONLY);
    let ordered = |order, pacing| Ordered::new(link, wire, Settings { order, pacing, ..Settings::default() });
    match policy {
        Policy::Ps => serve(run, ProcessorSharing::new(link, wire)),
        Policy::Srpt => serve(run, ordered(Order::Srpt, Pacing::EXACT)),
        Policy::Fcfs => serve(run, ordered(Order::Fifo, Pacing::EXACT)),
        Policy::Fb => {
            let turn = (run.sizes.mean() / TURNS_A_REQUEST).ceil().max(1.0) as u64;
            serve(run, ordered(Order::Las, Pacing { chunk: Chunk::Bytes(turn), ..Pacing::EXACT }))
        }
        Policy::Psjf | Policy::Sjf | Policy::Bands(_) | Policy::PreemptivePriority(_) | Policy::Priority(_) => {
            serve(run, Ranked::new(link.first_rate(), policy.clone()))
        }
    }
}

/// Half the width of the confidence interval of the mean of `values`, by Student's t. `None` with fewer than
/// two values.
pub fn half_width(values: &[f64], confidence: f64) -> Option<f64> {
    let count = values.len() as f64;
    let law = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(law.inverse_cdf(1.0 - (1.0 - confidence) / 2.0) * (variance / count).sqrt())
}

fn serve(run_of: &Run<'_>, mut model: impl Model) -> Simulated {
    let arrivals = Arrivals::new(run_of);
    let counted = arrivals.counted_ns.clone();
    let bytes_per_second = run_of.link.first_rate().bytes_per_second();
    let mut simulated = Simulated::default();
    let mut bins: Vec<BySize> = Vec::new();
    let (mut sum_s, mut sum_slowdown) = (0.0, 0.0);
    run(&mut Stream::new(arrivals), &mut model, &Clients::PATIENT, None, |served: Served| {
        if !counted.contains(&served.request.at_ns) {
            return;
        }
        let (bytes, response_s) = (served.request.size_bytes as f64, served.response_ns() as f64 / NS_PER_S);
        sum_s += response_s;
        sum_slowdown += response_s * bytes_per_second / bytes;
        simulated.requests += 1;
        let bin = (bytes.log10() * BINS_A_DECADE) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, BySize::default());
        }
        bins[bin].bytes += bytes;
        bins[bin].response_s += response_s;
        bins[bin].requests += 1;
    });
    let count = simulated.requests as f64;
    simulated.mean_s = sum_s / count;
    simulated.slowdown = sum_slowdown / count;
    let seen = bins.into_iter().filter(|bin| bin.requests > 0);
    simulated.by_size = seen
        .map(|bin| {
            let count = bin.requests as f64;
            BySize { bytes: bin.bytes / count, response_s: bin.response_s / count, ..bin }
        })
        .collect();
    simulated
}

/// A Poisson process whose rate follows a pattern.
struct Arrivals<'a> {
    sizes: &'a Sizes,
    spans: Box<dyn Iterator<Item = workload::pattern::Span> + 'a>,
    span: workload::pattern::Span,
    /// Requests per second at a level of 1.
    per_level: f64,
    at_s: f64,
    end_ns: u64,
    counted_ns: std::ops::Range<u64>,
    times: ChaCha12Rng,
    drawn: ChaCha12Rng,
}

impl<'a> Arrivals<'a> {
    fn new(run: &Run<'a>) -> Self {
        let per_level = match run.pattern.unit() {
            Unit::Load => run.link.first_rate().bytes_per_second() / run.sizes.mean(),
            Unit::RequestsPerSecond => 1.0,
        };
        let seconds = run.requests as f64 / (per_level * run.pattern.mean());
        let (end_ns, counted_ns) = if run.pattern.is_constant() {
            let end_ns = (seconds * NS_PER_S) as u64;
            (end_ns, end_ns / 10..end_ns / 10 * 9)
        } else {
            let period_ns = run.pattern.period_ns();
            let periods = (seconds * NS_PER_S / period_ns as f64).ceil().max(3.0) as u64;
            (periods * period_ns, period_ns..(periods - 1) * period_ns)
        };
        // Times do not depend on the number of sizes drawn.
        let mut drawn = ChaCha12Rng::seed_from_u64(run.seed);
        drawn.set_stream(1);
        let mut spans: Box<dyn Iterator<Item = _>> = Box::new(run.pattern.spans());
        let nothing = workload::pattern::Span { from_ns: 0, until_ns: 0, from: 0.0, to: 0.0 };
        Self {
            sizes: run.sizes,
            span: spans.next().unwrap_or(nothing),
            spans,
            per_level,
            at_s: 0.0,
            end_ns,
            counted_ns,
            times: ChaCha12Rng::seed_from_u64(run.seed),
            drawn,
        }
    }

    /// The next arrival: draws times at the phase's greatest rate, and keeps them with the probability of the
    /// current rate.
    fn next_s(&mut self) -> f64 {
        loop {
            let span = self.span;
            let most = span.from.max(span.to) * self.per_level;
            let (from_s, until_s) = (span.from_ns as f64 / NS_PER_S, span.until_ns as f64 / NS_PER_S);
            let gap_s = -(-self.times.random::<f64>()).ln_1p() / most;
            // A process without memory may restart where the phase ends; a rate of 0 has an infinite gap.
            if self.at_s + gap_s < until_s {
                self.at_s += gap_s;
                let level = span.from + (span.to - span.from) * (self.at_s - from_s) / (until_s - from_s);
                if span.from == span.to || self.times.random::<f64>() * most < level * self.per_level {
                    return self.at_s;
                }
                continue;
            }
            self.at_s = until_s;
            match self.spans.next() {
                Some(next) => self.span = next,
                None => return f64::INFINITY,
            }
        }
    }
}

impl Iterator for Arrivals<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let at_ns = (self.next_s() * NS_PER_S) as u64;
        (at_ns < self.end_ns).then(|| {
            let size_bytes = self.sizes.sample(&mut self.drawn).round().max(1.0) as u64;
            Request { at_ns, file: 0, size_bytes, group: 0 }
        })
    }
}

#[cfg(test)]
mod tests;
