//! A trial: two windows of one resource type, compared by the throughput under each.

use alloc::{vec, vec::Vec};

use super::tally::Tally;
use crate::time::{Instant, SECOND_NS};

/// A wider window pays if the log of the throughput grows by at least this part of the growth of the log of
/// the window.
const PAYS: f64 = 0.04;
/// Number of standard errors by which a difference must exceed its threshold.
const CERTAIN: f64 = 2.0;
/// A trial ends when the standard error is as small as this, or as the gain that the wider window must show.
/// A smaller difference matters little, or is found later with closer windows.
const FINE: f64 = 0.03;
/// Least number of requests in a quarter of a trial. A quarter also has at least as many requests as the
/// window.
pub(super) const QUARTER: u32 = 30;
/// Without waiting requests, a narrower window must improve the log of the throughput by more than this to be
/// kept.
const GAINS: f64 = 0.05;
/// Least part of the time in which a type must be short of slots for its throughput to say something of its
/// window.
pub(super) const SHORT: f64 = 0.5;
/// The same for another type, for its throughput to count in a trial.
const CONCERNED: f64 = 0.3;

#[derive(Debug)]
pub(super) struct Trial {
    pub of: usize,
    /// The narrower and the wider window, and the index of the one in force before.
    pub windows: [u32; 2],
    pub before: usize,
    /// The wider window was in force before, and in the last round no requests waited for it.
    pub free: bool,
    /// The trial is a step towards the configured first window. It has two quarters only.
    pub approaches: bool,
    /// Number of the quarter, 0 to 3.
    pub quarter: usize,
    /// Requests of the type that do not count yet, because they began under the other window.
    pub settling: u32,
    /// Requests that end now count.
    pub counts: bool,
    pub left: u32,
    /// Work done, by quarter and type.
    pub quarters: [Vec<Tally>; 4],
    /// Work done in all earlier rounds, by window and type.
    pub sums: [Vec<Tally>; 2],
    /// Rounds whose two halves contradicted each other.
    pub contradictions: u32,
    /// When the trial ends without a result.
    pub until: Instant,
}

/// The result of a trial so far.
pub(super) enum Verdict {
    Open,
    /// The window with this index is better.
    Better(usize),
    /// There were too few requests for a result.
    Idle,
    /// The rounds contradict themselves again and again.
    Nothing,
}

impl Trial {
    pub fn new(of: usize, window: u32, other: u32, types: usize) -> Self {
        let windows = [window.min(other), window.max(other)];
        let tallies = || vec![Tally::default(); types];
        Self {
            of,
            before: usize::from(windows[1] == window),
            windows,
            free: false,
            approaches: false,
            quarter: 0,
            settling: 0,
            counts: false,
            left: 0,
            quarters: [tallies(), tallies(), tallies(), tallies()],
            sums: [tallies(), tallies()],
            contradictions: 0,
            until: Instant::ORIGIN,
        }
    }

    /// Index of the window in force in the quarter: A B B A, where A is the window in force before.
    pub fn arm(&self) -> usize {
        match self.quarter {
            0 | 3 => self.before,
            _ => 1 - self.before,
        }
    }

    /// Judges a step towards the first window after two quarters.
    pub fn step(&self) -> Verdict {
        let better = compare(self.of, &self.quarters[0], &self.quarters[1]).is_some_and(|(gain, error)| gain > error);
        Verdict::Better(usize::from(better))
    }

    /// Judges the trial after four quarters.
    pub fn round(&mut self) -> Verdict {
        let (narrow, wide) = if self.before == 0 { ([0, 3], [1, 2]) } else { ([1, 2], [0, 3]) };
        let half = |half: usize| compare(self.of, &self.quarters[narrow[half]], &self.quarters[wide[half]]);
        let halves = half(0).zip(half(1));
        let contradict = halves.is_some_and(|((first, of_first), (second, of_second))| {
            (first - second).abs() > 2.0 * CERTAIN * libm::sqrt(of_first * of_first + of_second * of_second)
        });
        if contradict {
            self.contradictions += 1;
        }
        for (arm, quarters) in [narrow, wide].into_iter().enumerate() {
            for quarter in quarters {
                for (sum, tally) in self.sums[arm].iter_mut().zip(&mut self.quarters[quarter]) {
                    let tally = core::mem::take(tally);
                    if !contradict {
                        sum.merge(&tally);
                    }
                }
            }
        }
        if contradict {
            return if self.contradictions > 3 { Verdict::Nothing } else { Verdict::Open };
        }
        let [narrow_short, wide_short] = [0, 1].map(|arm: usize| {
            let own = &self.sums[arm][self.of];
            own.short_ns >= SHORT * own.ns
        });
        // As found in the trial, since it may have changed after the trial began.
        self.free = self.before == 1 && !wide_short;
        if self.before == 0 && !narrow_short {
            return Verdict::Idle;
        }
        let Some((gain, error)) = compare(self.of, &self.sums[0], &self.sums[1]) else { return Verdict::Nothing };
        let wider = libm::log(f64::from(self.windows[1]) / f64::from(self.windows[0]));
        let pays = if self.free { -GAINS } else { PAYS * wider };
        if gain - CERTAIN * error > pays {
            Verdict::Better(1)
        } else if gain + CERTAIN * error < pays {
            Verdict::Better(0)
        } else if error < if self.free { FINE } else { FINE.max(pays) } {
            Verdict::Better(self.before)
        } else {
            Verdict::Open
        }
    }

    /// How long a quarter may take before the trial is given up.
    pub fn patience_ns(&self, mean_ns: f64, window: u32, gap_ns: f64) -> u64 {
        let requests = f64::from(self.settling + self.left);
        let typical_ns = (mean_ns / f64::from(window)).max(gap_ns) * requests + mean_ns;
        (10.0 * typical_ns) as u64 + 5 * SECOND_NS
    }
}

/// Returns the gain in throughput of the second window, as a logarithm over all types concerned, and its
/// standard error.
///
/// A type that serves fewer requests than the one on trial has less weight; its noise would hide the rest.
fn compare(of: usize, narrow: &[Tally], wide: &[Tally]) -> Option<(f64, f64)> {
    let gain_of = |number: usize| {
        let (a, b) = (&narrow[number], &wide[number]);
        let counts = a.requests.min(b.requests) >= 5 && a.ns > 0.0 && b.ns > 0.0;
        counts.then(|| (libm::log((b.worth / b.ns) / (a.worth / a.ns)), a.variance() + b.variance()))
    };
    let (mut gain, of_own) = gain_of(of)?;
    let mut variance = of_own;
    for number in (0..narrow.len()).filter(|&number| number != of) {
        let short = |tally: &Tally| tally.short_ns > CONCERNED * tally.ns;
        if let Some((its_gain, its_variance)) = gain_of(number)
            && (short(&narrow[number]) || short(&wide[number]))
            && its_gain * its_gain > its_variance
        {
            let weight = (of_own / its_variance).min(1.0);
            gain += weight * its_gain;
            variance += weight * weight * its_variance;
        }
    }
    Some((gain, libm::sqrt(variance)))
}

pub(super) fn quarter_of(window: u32) -> u32 {
    QUARTER.max(window)
}

/// Requests until the site has settled at another window: as many as must leave, and half of those that stay.
pub(super) fn settling_of(windows: [u32; 2]) -> u32 {
    windows[1] - windows[0] / 2
}
