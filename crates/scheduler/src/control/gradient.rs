//! A controller by the ratio of the least to the recent service time, as Envoy's adaptive concurrency filter
//! is documented ("Gradient controller"). It is here for comparison: the formula and the defaults are
//! Envoy's.
//!
//! ```text
//! gradient = (minRTT + B) / sampleRTT              B: 25 % of minRTT; the gradient is held between 0.5 and 2
//! limit    = gradient * limit + sqrt(gradient * limit)
//! ```
//!
//! sampleRTT is the median of the service times of 100 ms. minRTT is the median of 50 requests. It is
//! measured every minute, and after five intervals at the least limit, with at most 3 requests running.
//!
//! Two differences: Envoy refuses requests above the limit, while here they wait. Envoy also draws the times
//! of its measurements at random; here there is no randomness.

use alloc::vec::Vec;

use super::{
    controller::{Change, Controller, Finished, Reason},
    settings::{Settings, Window},
};
use crate::{admission::ResourceId, time::Instant};

const INTERVAL_NS: u64 = 100_000_000;
const MEASURE_EVERY_NS: u64 = 60_000_000_000;
const MEASURED: usize = 50;
const LEAST_LIMIT: u32 = 3;
const BUFFER: f64 = 0.25;
const AT_LEAST_MOST: u32 = 5;
/// Samples kept per interval. The median of the first thousands stands for the median of all.
const KEPT: usize = 4096;

#[derive(Debug)]
pub(super) struct Gradient {
    types: Vec<Option<Type>>,
}

#[derive(Debug)]
struct Type {
    limits: Window,
    limit: f64,
    told: u32,
    least_ns: f64,
    /// Service times of the interval under way, or of the measurement of minRTT.
    samples_ns: Vec<u64>,
    phase: Phase,
    at_least: u32,
    measure_at: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// minRTT is being measured; requests that started before `since` do not count.
    Measuring {
        since: Option<Instant>,
    },
    Following {
        until: Instant,
    },
}

impl Gradient {
    pub fn new(settings: &Settings) -> Self {
        let of = |window: &Option<Window>| {
            let limits = (*window)?;
            Some(Type {
                limits,
                limit: f64::from(limits.first),
                told: limits.first,
                least_ns: 0.0,
                samples_ns: Vec::new(),
                phase: Phase::Measuring { since: None },
                at_least: 0,
                measure_at: Instant::ORIGIN,
            })
        };
        Self { types: settings.windows.iter().map(of).collect() }
    }
}

impl Controller for Gradient {
    fn handle_finished(&mut self, now: Instant, finished: &Finished) {
        let Some(Some(it)) = self.types.get_mut(finished.resource.index()) else { return };
        if !finished.done || it.samples_ns.len() >= KEPT {
            return;
        }
        match it.phase {
            Phase::Measuring { since: Some(since) } => {
                if now.ns_since(since) >= finished.service_ns {
                    it.samples_ns.push(finished.service_ns);
                }
                if it.samples_ns.len() >= MEASURED {
                    it.least_ns = median(&mut it.samples_ns).unwrap_or(0) as f64;
                    it.samples_ns.clear();
                    it.measure_at = now.add_ns(MEASURE_EVERY_NS);
                    it.at_least = 0;
                    it.phase = Phase::Following { until: now.add_ns(INTERVAL_NS) };
                }
            }
            Phase::Measuring { since: None } => {}
            Phase::Following { .. } => it.samples_ns.push(finished.service_ns),
        }
    }

    fn poll_window(&mut self, now: Instant) -> Option<Change> {
        self.types.iter_mut().zip((0..).map(ResourceId)).find_map(|(it, resource)| {
            let it = it.as_mut()?;
            let reason = it.turn(now);
            let window = match it.phase {
                Phase::Measuring { .. } => LEAST_LIMIT.min(it.limit as u32),
                Phase::Following { .. } => it.limit as u32,
            };
            let window = it.limits.clamp(window.max(1));
            (window != it.told).then(|| {
                it.told = window;
                Change { resource, window, reason }
            })
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = |it: &Type| match it.phase {
            Phase::Measuring { since: Some(_) } => None,
            Phase::Measuring { since: None } => Some(Instant::ORIGIN),
            Phase::Following { until } => Some(until.min(it.measure_at)),
        };
        self.types.iter().flatten().filter_map(next).min()
    }

    fn window(&self, resource: ResourceId) -> Option<u32> {
        Some(self.types.get(resource.index())?.as_ref()?.told)
    }
}

impl Type {
    fn turn(&mut self, now: Instant) -> Reason {
        match self.phase {
            Phase::Measuring { since: None } => {
                self.phase = Phase::Measuring { since: Some(now) };
                Reason::Least
            }
            Phase::Measuring { .. } => Reason::Least,
            Phase::Following { .. } if now >= self.measure_at || self.at_least >= AT_LEAST_MOST => {
                self.samples_ns.clear();
                self.phase = Phase::Measuring { since: Some(now) };
                Reason::Least
            }
            Phase::Following { until } if now >= until => {
                self.phase = Phase::Following { until: now.add_ns(INTERVAL_NS) };
                if let Some(sample_ns) = median(&mut self.samples_ns) {
                    let gradient = ((1.0 + BUFFER) * self.least_ns / sample_ns.max(1) as f64).clamp(0.5, 2.0);
                    let limit = gradient * self.limit;
                    let least = self.limits.clamp(LEAST_LIMIT);
                    let limit = (limit + libm::sqrt(limit)).min(f64::from(self.limits.most));
                    self.limit = limit.max(f64::from(least));
                    self.at_least = if self.limit as u32 <= least { self.at_least + 1 } else { 0 };
                    self.samples_ns.clear();
                }
                Reason::Ratio
            }
            Phase::Following { .. } => Reason::Ratio,
        }
    }
}

fn median(samples_ns: &mut [u64]) -> Option<u64> {
    let middle = samples_ns.len() / 2;
    (!samples_ns.is_empty()).then(|| *samples_ns.select_nth_unstable(middle).1)
}
