//! A piece of a law of sizes, with closed forms for the formulas.

use std::f64::consts::{PI, SQRT_2};

use statrs::function::{erf::erfc_inv, gamma::gamma_lr};

/// Beyond this many standard deviations of the logarithm, a lognormal is zero in double precision, even times
/// a power of the size.
const LOGNORMAL_REACH: f64 = 13.0;
/// Beyond this many means the same holds for an exponential.
const EXPONENTIAL_REACH: f64 = 60.0;

/// A law without atoms, and its share of all requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) share: f64,
    pub(super) law: Law,
}

/// Laws without atoms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Law {
    /// P(X > x) proportional to x^-alpha - until^-alpha.
    Pareto { alpha: f64, from: f64, until: f64 },
    /// ln X normal, given that X lies between the two ends.
    Lognormal { mu: f64, sigma: f64, from: f64, until: f64 },
    /// P(X > x) = exp(-x / mean).
    Exponential { mean: f64 },
}

impl Part {
    /// Share of all requests that belong to this part and are larger than `x`.
    pub(super) fn above(&self, x: f64) -> f64 {
        self.share
            * match self.law {
                Law::Pareto { alpha, from, until } => {
                    let x = x.clamp(from, until);
                    powers(-alpha, x, until) / powers(-alpha, from, until)
                }
                Law::Lognormal { mu, sigma, from, until } => {
                    let [x, low, high] = [x.clamp(from, until), from, until].map(|x| (x.ln() - mu) / sigma);
                    normal_between(x, high) / normal_between(low, high)
                }
                Law::Exponential { mean } => (-x.max(0.0) / mean).exp(),
            }
    }

    /// The integral of t^k over the part of the law up to `x`, for k from -1 to 3.
    pub(super) fn moment_up_to(&self, k: i32, x: f64) -> f64 {
        let power = f64::from(k);
        self.share
            * match self.law {
                Law::Pareto { alpha, from, until } => {
                    // The density is proportional to t^(-alpha - 1).
                    powers(power - alpha, from, x.clamp(from, until)) / powers(-alpha, from, until)
                }
                Law::Lognormal { mu, sigma, from, until } => {
                    let [x, low, high] = [x.clamp(from, until), from, until].map(|x| (x.ln() - mu) / sigma);
                    let shift = power * sigma;
                    (power * mu + shift * shift / 2.0).exp() * normal_between(low - shift, x - shift)
                        / normal_between(low, high)
                }
                Law::Exponential { .. } if x <= 0.0 => 0.0,
                Law::Exponential { .. } if k < 0 => f64::INFINITY,
                Law::Exponential { mean } => {
                    let factorial: f64 = (1..=k).map(f64::from).product();
                    mean.powi(k) * factorial * gamma_lr(power + 1.0, (x / mean).min(1e9))
                }
            }
    }

    /// The density at `x`, which lies within the part.
    pub(super) fn density(&self, x: f64) -> f64 {
        self.share
            * match self.law {
                Law::Pareto { alpha, from, until } => x.powf(-alpha - 1.0) / powers(-alpha, from, until),
                Law::Lognormal { mu, sigma, from, until } => {
                    let [z, low, high] = [x, from, until].map(|x| (x.ln() - mu) / sigma);
                    (-z * z / 2.0).exp() / ((2.0 * PI).sqrt() * sigma * x) / normal_between(low, high)
                }
                Law::Exponential { mean } => (-x / mean).exp() / mean,
            }
    }

    /// The size below which a fraction `q` of this part lies.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        let q = q.clamp(0.0, 1.0);
        match self.law {
            Law::Pareto { alpha, from, until } => {
                let floor = (from / until).powf(alpha);
                (from * ((1.0 - q) * (1.0 - floor) + floor).powf(-1.0 / alpha)).clamp(from, until)
            }
            Law::Lognormal { mu, sigma, from, until } => {
                let [low, high] = [from, until].map(|x| normal_above((x.ln() - mu) / sigma));
                let z = SQRT_2 * erfc_inv(2.0 * (low + (high - low) * q));
                (mu + sigma * z).exp().clamp(from, until)
            }
            Law::Exponential { mean } => -mean * (-q).ln_1p(),
        }
    }

    /// The range in which the part is not negligible.
    pub(super) fn span(&self) -> (f64, f64) {
        match self.law {
            Law::Pareto { from, until, .. } => (from, until),
            Law::Lognormal { mu, sigma, from, until } => {
                let reach = LOGNORMAL_REACH * sigma;
                (from.max((mu - reach).exp()), until.min((mu + reach).exp()))
            }
            Law::Exponential { mean } => (0.0, EXPONENTIAL_REACH * mean),
        }
    }
}

/// The integral of t^(power - 1) from `low` to `high`, through `expm1`, which keeps precision where the power
/// is near zero.
fn powers(power: f64, low: f64, high: f64) -> f64 {
    let octaves = (high / low).ln();
    if power == 0.0 { octaves } else { low.powf(power) * (power * octaves).exp_m1() / power }
}

/// Fraction of a standard normal above `z`.
fn normal_above(z: f64) -> f64 {
    0.5 * libm::erfc(z / SQRT_2)
}

/// Fraction of a standard normal between two values, computed from the side on which it is small.
fn normal_between(low: f64, high: f64) -> f64 {
    if low > 0.0 { normal_above(low) - normal_above(high) } else { normal_above(-high) - normal_above(-low) }
}
