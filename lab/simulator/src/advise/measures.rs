//! Measures response times under several policies side by side, request by request, in constant memory.

use hdrhistogram::Histogram;
use workload::stats::interval;

use super::{
    Policy,
    report::{Distribution, Interval, Loser, Losers, PolicyPrediction, SizeClass},
    sizes::{CLASSES, bounds, class, decades},
};

/// Number of equal parts, by time, of the requests. Confidence intervals come from the differences between
/// parts.
pub(super) const PARTS: usize = 10;
/// Significant digits of percentiles.
const DIGITS: u8 = 3;
/// The largest value that the histograms tell apart: half a year in microseconds.
const LARGEST: u64 = 1 << 44;
/// Histogram steps per unit of slowdown.
const SLOWDOWN_STEPS: f64 = 1000.0;
/// A request loses if it takes this many times as long and this much longer. Smaller losses are not noticed.
const LOSES_BY: f64 = 1.1;
const LOSES_BY_NS: u64 = 1_000_000;

/// A request that has ended under every policy. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured<'a> {
    pub(super) size_bytes: u64,
    pub(super) wire_bytes: u64,
    /// The number of the part, below [`PARTS`], that the request belongs to.
    pub(super) part: usize,
    /// Response time of the same response alone on the whole uplink.
    pub(super) alone_ns: f64,
    /// Response time under each policy, fair sharing first.
    pub(super) response_ns: &'a [u64],
}

/// Sums over requests.
#[derive(Clone, Debug)]
pub(super) struct Measures {
    /// Sizes from which a request belongs to the largest 1 %, to the largest 0.1 %, and to the largest of
    /// all.
    large_from_bytes: [u64; 3],
    requests: u64,
    wire_bytes: f64,
    classes: [Count; CLASSES],
    large: [Count; 3],
    policies: Vec<OfPolicy>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    requests: u64,
    wire_bytes: f64,
}

#[derive(Clone, Debug)]
struct OfPolicy {
    response_us: Histogram<u32>,
    slowdown: Histogram<u32>,
    sum_ns: f64,
    sum_slowdown: f64,
    by_class_ns: [f64; CLASSES],
    by_large_ns: [f64; 3],
    by_part_ns: [f64; PARTS],
    losers: u64,
    longer_ns: f64,
    worst: Option<Loser>,
    latest: Option<Loser>,
}

impl Measures {
    pub(super) fn new(policies: usize, large_from_bytes: [u64; 3]) -> Self {
        let (classes, large) = ([Count::default(); CLASSES], [Count::default(); 3]);
        let policies = (0..policies).map(|_| OfPolicy::default()).collect();
        Self { large_from_bytes, requests: 0, wire_bytes: 0.0, classes, large, policies }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn wire_bytes(&self) -> f64 {
        self.wire_bytes
    }

    pub(super) fn add(&mut self, measured: Measured<'_>) {
        let Measured { size_bytes, wire_bytes, part, alone_ns, response_ns } = measured;
        let class = class(size_bytes);
        let count = Count { requests: 1, wire_bytes: wire_bytes as f64 };
        self.requests += 1;
        self.wire_bytes += count.wire_bytes;
        self.classes[class].add(count);
        let large = self.large_from_bytes.map(|from| size_bytes >= from);
        for (sum, _) in self.large.iter_mut().zip(large).filter(|(_, is)| *is) {
            sum.add(count);
        }
        let fair_ns = response_ns[0];
        for (of, &ns) in self.policies.iter_mut().zip(response_ns) {
            let (ns_f, slowdown) = (ns as f64, (ns as f64 / alone_ns.max(1.0)).max(1.0));
            of.response_us.saturating_record((ns / 1000).max(1));
            of.slowdown.saturating_record((slowdown * SLOWDOWN_STEPS) as u64);
            of.sum_ns += ns_f;
            of.sum_slowdown += slowdown;
            of.by_class_ns[class] += ns_f;
            of.by_part_ns[part.min(PARTS - 1)] += ns_f;
            for (sum, _) in of.by_large_ns.iter_mut().zip(large).filter(|(_, is)| *is) {
                *sum += ns_f;
            }
            if ns_f > fair_ns as f64 * LOSES_BY && ns - fair_ns > LOSES_BY_NS {
                of.lost(Loser { size_bytes, fair_ms: fair_ns as f64 / 1e6, response_ms: ns_f / 1e6 });
            }
        }
    }

    /// Returns the results, one prediction for each policy.
    pub(super) fn finish(&self, policies: &[Policy]) -> Vec<PolicyPrediction> {
        policies.iter().zip(&self.policies).map(|(policy, of)| self.prediction(policy.name(), of)).collect()
    }

    fn prediction(&self, policy: &'static str, of: &OfPolicy) -> PolicyPrediction {
        let requests = self.requests.max(1) as f64;
        let fair = &self.policies[0];
        let of_class = |classes: std::ops::Range<usize>| {
            let sum = |sums: &[f64; CLASSES]| sums[classes.clone()].iter().sum();
            let mut count = Count::default();
            self.classes[classes.clone()].iter().for_each(|&of| count.add(of));
            let below = bounds(classes.end - 1).1;
            self.size_class(bounds(classes.start).0, Some(below), count, sum(&fair.by_class_ns), sum(&of.by_class_ns))
        };
        let of_large = |i: usize| {
            self.size_class(self.large_from_bytes[i], None, self.large[i], fair.by_large_ns[i], of.by_large_ns[i])
        };
        let quantiles = |histogram: &Histogram<u32>, mean: f64, step: f64| Distribution {
            mean,
            p50: histogram.value_at_quantile(0.5) as f64 / step,
            p95: histogram.value_at_quantile(0.95) as f64 / step,
            p99: histogram.value_at_quantile(0.99) as f64 / step,
        };
        PolicyPrediction {
            policy,
            response_ms: quantiles(&of.response_us, of.sum_ns / requests / 1e6, 1e3),
            slowdown: quantiles(&of.slowdown, of.sum_slowdown / requests, SLOWDOWN_STEPS),
            mean_over_fair: ratio(&of.by_part_ns, &fair.by_part_ns),
            losers: Losers {
                share: of.losers as f64 / requests,
                mean_longer_ms: of.longer_ns / of.losers.max(1) as f64 / 1e6,
                worst: of.worst,
                latest: of.latest,
            },
            by_size: decades().map(of_class).filter(|class| class.requests > 0).collect(),
            fine_by_size: (0..CLASSES).map(|class| of_class(class..class + 1)).filter(|c| c.requests > 0).collect(),
            largest: (0..3).map(of_large).filter(|class| class.requests > 0).collect(),
        }
    }

    fn size_class(
        &self,
        from_bytes: u64,
        below_bytes: Option<u64>,
        count: Count,
        fair_ns: f64,
        sum_ns: f64,
    ) -> SizeClass {
        let requests = count.requests.max(1) as f64;
        SizeClass {
            from_bytes,
            below_bytes,
            requests: count.requests,
            share: count.requests as f64 / self.requests.max(1) as f64,
            bytes: count.wire_bytes / self.wire_bytes.max(1.0),
            fair_ms: fair_ns / requests / 1e6,
            mean_ms: sum_ns / requests / 1e6,
            over_fair: if fair_ns > 0.0 { sum_ns / fair_ns } else { 1.0 },
        }
    }
}

impl Count {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.wire_bytes += other.wire_bytes;
    }
}

impl Default for OfPolicy {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LARGEST, DIGITS).expect("bounds and digits are sound");
        Self {
            response_us: histogram(),
            slowdown: histogram(),
            sum_ns: 0.0,
            sum_slowdown: 0.0,
            by_class_ns: [0.0; CLASSES],
            by_large_ns: [0.0; 3],
            by_part_ns: [0.0; PARTS],
            losers: 0,
            longer_ns: 0.0,
            worst: None,
            latest: None,
        }
    }
}

impl OfPolicy {
    fn lost(&mut self, loser: Loser) {
        self.losers += 1;
        self.longer_ns += loser.longer_ms() * 1e6;
        if self.worst.is_none_or(|worst| loser.stretch() > worst.stretch()) {
            self.worst = Some(loser);
        }
        if self.latest.is_none_or(|latest| loser.longer_ms() > latest.longer_ms()) {
            self.latest = Some(loser);
        }
    }
}

/// Returns the ratio of two sums and its 95 % confidence interval, by the jackknife. The jackknife leaves out
/// one part after the other and takes the mean of the pseudo-values, with Student's t. Source: B. Efron and
/// C. Stein, "The Jackknife Estimate of Variance", Annals of Statistics 9, 1981.
fn ratio(parts: &[f64; PARTS], of: &[f64; PARTS]) -> Interval {
    let (sum, of_sum): (f64, f64) = (parts.iter().sum(), of.iter().sum());
    if of_sum <= 0.0 {
        return Interval { value: 1.0, low: 1.0, high: 1.0 };
    }
    let value = sum / of_sum;
    let without = |(part, of_part): (&f64, &f64)| {
        let rest = of_sum - of_part;
        let without = if rest > 0.0 { (sum - part) / rest } else { value };
        PARTS as f64 * value - (PARTS - 1) as f64 * without
    };
    let pseudo: Vec<f64> = parts.iter().zip(of).map(without).collect();
    let (low, high) = interval::mean(&pseudo).and_then(|mean| mean.interval).unwrap_or((value, value));
    Interval { value, low: low.clamp(0.0, value), high: high.max(value) }
}
