//! Requests: when they come, to which gateway, and how long the site works on them.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::setup::{Demand, Law, Placement, Setup, Shape};

/// A request that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub class: u16,
    pub gateway: usize,
    pub service_ns: u64,
}

/// The requests of a setup. The same numbers are drawn for each request, whatever the number of gateways.
#[derive(Debug)]
pub(super) struct Arrivals {
    random: ChaCha8Rng,
    /// Mean time between two, in nanoseconds.
    every_ns: f64,
    law: Law,
    /// Sums of the parts of the classes.
    mix: Vec<f64>,
    placement: Placement,
    /// Sums of the parts of the gateways, if they differ.
    skew: Vec<f64>,
    gateways: usize,
}

impl Arrivals {
    pub fn new(setup: &Setup, gateways: usize) -> Self {
        let per_second = match setup.demand {
            Demand::Open { load } => load * f64::from(setup.window) / setup.service.mean_ns as f64,
            Demand::Users { .. } => 1e-18,
        };
        Self {
            random: ChaCha8Rng::seed_from_u64(setup.seed),
            every_ns: 1.0 / per_second,
            law: setup.service,
            mix: sums(setup.mix.iter().copied()),
            placement: setup.placement,
            skew: sums((1..=gateways).map(|number| 1.0 / number as f64)),
            gateways,
        }
    }

    /// Nanoseconds until the next request.
    pub fn gap_ns(&mut self) -> u64 {
        (exponential(&mut self.random) * self.every_ns).min(1e18) as u64
    }

    /// A request that comes now.
    pub fn request(&mut self, now_ns: u64) -> Request {
        let (class, place): (f64, f64) = (self.random.random(), self.random.random());
        let service_ns = self.service_ns();
        let class = pick(&self.mix, class);
        let every_from = |first: usize, step: usize| {
            let of = (self.gateways - first).div_ceil(step);
            first + step * ((place * of as f64) as usize).min(of - 1)
        };
        let gateway = match self.placement {
            _ if self.gateways == 1 => 0,
            Placement::Even => every_from(0, 1),
            Placement::Skewed => pick(&self.skew, place),
            Placement::ByClass => every_from(class % self.gateways, self.mix.len().min(self.gateways)),
            Placement::Moving(every_ns) => every_from((now_ns / every_ns.max(1)) as usize % 2, 2),
        };
        Request { class: class as u16, gateway, service_ns }
    }

    /// How long the site works on a request.
    pub fn service_ns(&mut self) -> u64 {
        let mean_ns = self.law.mean_ns as f64;
        let ns = match self.law.shape {
            Shape::Fixed => mean_ns,
            Shape::Exponential => exponential(&mut self.random) * mean_ns,
            Shape::Even => (0.5 + self.random.random::<f64>()) * mean_ns,
        };
        (ns as u64).max(1)
    }
}

/// A draw of the exponential law with mean 1.
pub(super) fn exponential(random: &mut ChaCha8Rng) -> f64 {
    -libm::log1p(-random.random::<f64>())
}

fn sums(parts: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    parts
        .map(|part| {
            sum += part;
            sum
        })
        .collect()
}

/// The part in which `at`, from 0 to 1, falls.
fn pick(sums: &[f64], at: f64) -> usize {
    let all = sums.last().copied().unwrap_or(1.0);
    sums.partition_point(|&sum| sum <= at * all).min(sums.len() - 1)
}
