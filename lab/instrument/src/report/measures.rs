//! Names and formats of measures, and their estimates over seeds.

use workload::stats::{
    Measured,
    interval::{self, Bound, Estimate},
};

use super::cell::{CellReport, value_of};
use crate::experiment::Measure;

/// All measures, in the order of tables.
pub(super) const ALL: [Measure; 19] = [
    Measure::MeanMs,
    Measure::Gain,
    Measure::Slowdown,
    Measure::SlowdownGain,
    Measure::P50Ms,
    Measure::P95Ms,
    Measure::P99Ms,
    Measure::VarianceMs2,
    Measure::SquaredVariation,
    Measure::FirstByteMs,
    Measure::LargestPercentMs,
    Measure::VeryLargestMs,
    Measure::Starved,
    Measure::WorstStretch,
    Measure::Incomplete,
    Measure::Errors,
    Measure::Throughput,
    Measure::LinkUse,
    Measure::CpuUs,
];

/// The name of a measure for an axis or a sentence, with its unit.
pub(super) fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::MeanMs => "mean response time (ms)",
        Measure::Slowdown => "mean slowdown",
        Measure::VarianceMs2 => "variance of the response time (ms²)",
        Measure::SquaredVariation => "squared coefficient of variation",
        Measure::P50Ms => "median response time (ms)",
        Measure::P95Ms => "95th percentile of the response time (ms)",
        Measure::P99Ms => "99th percentile of the response time (ms)",
        Measure::FirstByteMs => "mean time to the first byte (ms)",
        Measure::LargestPercentMs => "mean response time of the largest 1 % (ms)",
        Measure::VeryLargestMs => "mean response time of the very largest (ms)",
        Measure::Throughput => "responses per second",
        Measure::LinkUse => "share of the link used",
        Measure::Incomplete => "share of requests incomplete",
        Measure::Errors => "share of requests failed",
        Measure::Gain => "gain in mean response time (×)",
        Measure::SlowdownGain => "gain in mean slowdown (×)",
        Measure::Starved => "share of requests starved",
        Measure::WorstStretch => "largest starvation stretch (×)",
        Measure::CpuUs => "CPU per request (µs)",
    }
}

/// The name of a measure in an experiment's file.
pub(super) fn key(measure: Measure) -> String {
    let written = serde_json::to_value(measure).ok();
    written.as_ref().and_then(|value| value.as_str()).unwrap_or_else(|| name(measure)).to_owned()
}

/// Estimates a measure of a subject over its seeds. `baseline` are the first subject's cells. `None` if the
/// subject does not have the measure.
pub(super) fn estimate(measure: Measure, cells: &[&CellReport], baseline: &[&CellReport]) -> Option<Estimate> {
    if let Measure::Gain | Measure::SlowdownGain = measure {
        if cells.first()?.subject == 0 {
            return None;
        }
        let pairs = paired(cells, baseline, |cell| Some(&cell.measured));
        return gain(measure, &pairs);
    }
    // A seed without a value, because the first subject's cell is missing, does not affect the other seeds.
    let values: Vec<f64> = cells.iter().filter_map(|cell| cell.value(measure)).collect();
    let bound = match measure {
        Measure::Starved | Measure::WorstStretch => {
            let unknown = cells.iter().filter_map(|cell| cell.stretch).any(|s| s.unknown + s.unmatched > 0);
            if unknown { Bound::Either } else { Bound::Exact }
        }
        measure => bound(measure, cells.iter().map(|cell| &cell.measured)),
    };
    interval::mean(&values).map(|estimate| estimate.with_bound(bound))
}

/// Estimates a measure of a client group over the seeds.
pub(super) fn estimate_of_group(
    measure: Measure,
    group: u16,
    cells: &[&CellReport],
    baseline: &[&CellReport],
) -> Option<Estimate> {
    if let Measure::Gain | Measure::SlowdownGain = measure {
        let pairs = paired(cells, baseline, |cell| cell.groups.get(&group));
        return gain(measure, &pairs).filter(|_| cells.first().is_some_and(|cell| cell.subject != 0));
    }
    let measured: Vec<&Measured> = cells.iter().filter_map(|cell| cell.groups.get(&group)).collect();
    let values: Option<Vec<f64>> = measured.iter().map(|measured| value_of(measured, measure)).collect();
    let bound = bound(measure, measured.iter().copied());
    interval::mean(&values?).map(|estimate| estimate.with_bound(bound))
}

/// Estimates, seed by seed, the ratio of a measure of some cells to that of others. The measure is that of
/// one client group, or of all clients.
pub(super) fn estimate_of_ratio(
    measure: Measure,
    group: Option<u16>,
    cells: &[&CellReport],
    others: &[&CellReport],
) -> Option<Estimate> {
    let value = |cell: &CellReport| match group {
        Some(group) => cell.groups.get(&group).and_then(|measured| value_of(measured, measure)),
        None => cell.value(measure),
    };
    let other = |seed: u64| others.iter().find(|cell| cell.seed == seed);
    let pairs: Vec<(f64, f64)> =
        cells.iter().filter_map(|cell| Some((value(cell)?, value(other(cell.seed)?)?))).collect();
    interval::ratio(&pairs).map(|estimate| estimate.with_bound(bound_of_ratio(cells, others)))
}

/// For each seed that both have, the first subject's cell and this subject's cell.
fn paired<'a>(
    cells: &[&'a CellReport],
    baseline: &[&'a CellReport],
    of: impl Fn(&'a CellReport) -> Option<&'a Measured>,
) -> Vec<(&'a Measured, &'a Measured)> {
    let base = |seed: u64| baseline.iter().copied().find(|cell| cell.seed == seed);
    cells.iter().filter_map(|cell| Some((of(base(cell.seed)?)?, of(cell)?))).collect()
}

fn gain(measure: Measure, pairs: &[(&Measured, &Measured)]) -> Option<Estimate> {
    let value = |measured: &Measured| match measure {
        Measure::SlowdownGain => measured.all.mean_slowdown,
        _ => measured.all.mean_ms,
    };
    let values: Vec<(f64, f64)> = pairs.iter().map(|&(base, ours)| (value(base), value(ours))).collect();
    let any = |of: fn(&(&Measured, &Measured)) -> usize| pairs.iter().any(|pair| of(pair) > 0);
    let bound = ratio_bound(any(|pair| pair.0.bounds()), any(|pair| pair.1.bounds()));
    interval::ratio(&values).map(|estimate| estimate.with_bound(bound))
}

/// The kind of bound that the ratio of this subject's value to the first one's is.
pub(super) fn bound_of_ratio(cells: &[&CellReport], baseline: &[&CellReport]) -> Bound {
    let any = |cells: &[&CellReport]| cells.iter().any(|cell| cell.measured.bounds() > 0);
    ratio_bound(any(cells), any(baseline))
}

fn ratio_bound(above_is_bound: bool, below_is_bound: bool) -> Bound {
    match (above_is_bound, below_is_bound) {
        (false, false) => Bound::Exact,
        (true, false) => Bound::AtLeast,
        (false, true) => Bound::AtMost,
        (true, true) => Bound::Either,
    }
}

fn bound<'a>(measure: Measure, mut measured: impl Iterator<Item = &'a Measured>) -> Bound {
    match measure {
        Measure::MeanMs
        | Measure::Slowdown
        | Measure::P50Ms
        | Measure::P95Ms
        | Measure::P99Ms
        | Measure::LargestPercentMs
        | Measure::VeryLargestMs => {
            if measured.any(|m| m.bounds() > 0) {
                Bound::AtLeast
            } else {
                Bound::Exact
            }
        }
        Measure::VarianceMs2 | Measure::SquaredVariation => {
            if measured.any(|m| m.bounds() > 0) {
                Bound::Either
            } else {
                Bound::Exact
            }
        }
        Measure::FirstByteMs => {
            if measured.any(|m| m.without_first_byte > 0) {
                Bound::AtLeast
            } else {
                Bound::Exact
            }
        }
        // Counts and shares are exact; ratios have bounds of their own.
        Measure::Throughput
        | Measure::LinkUse
        | Measure::Incomplete
        | Measure::Errors
        | Measure::Gain
        | Measure::SlowdownGain
        | Measure::Starved
        | Measure::WorstStretch
        | Measure::CpuUs => Bound::Exact,
    }
}

/// Formats a measure's value for tables.
pub(super) fn written(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Gain | Measure::SlowdownGain | Measure::WorstStretch => format!("{value:.2}×"),
        Measure::LinkUse | Measure::Incomplete | Measure::Errors | Measure::Starved => percent(value),
        _ => number(value),
    }
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 9.95 { format!("{percent:.1} %") } else { format!("{percent:.2} %") }
}

/// Formats a number with four significant digits, and without an exponent below a million.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e6).contains(&magnitude) {
        format!("{value:.2e}")
    } else {
        let decimals = (3 - magnitude.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{value:.decimals$}")
    }
}

/// The sign before a value that contains lower bounds.
pub(super) fn sign(bound: Bound) -> &'static str {
    match bound {
        Bound::Exact => "",
        Bound::AtLeast => "≥ ",
        Bound::AtMost => "≤ ",
        Bound::Either => "~ ",
    }
}

/// Formats a value and its interval: `≥ 12.3 [11.0, 13.6]`.
pub(super) fn with_interval(estimate: &Estimate, written: impl Fn(f64) -> String) -> String {
    let value = format!("{}{}", sign(estimate.bound), written(estimate.value));
    match estimate.interval {
        Some((low, high)) => format!("{value} [{}, {}]", written(low), written(high)),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let shown = [0.0, 0.012_345, 1.234_56, 12.3456, 1234.56, 123_456.7, 1_234_567.0].map(number);
        assert_eq!(shown, ["0", "0.01235", "1.235", "12.35", "1235", "123457", "1.23e6"]);
        assert_eq!(written(Measure::Gain, 3.456), "3.46×");
        assert_eq!([0.0, 0.0123, 0.5].map(percent), ["0.0 %", "1.23 %", "50.0 %"]);
    }

    #[test]
    fn bounds_of_ratios_point_the_right_way() {
        // The first subject never finished some requests, so its true mean is larger, and so is the gain over
        // it.
        assert_eq!(ratio_bound(true, false), Bound::AtLeast);
        assert_eq!(ratio_bound(false, true), Bound::AtMost);
        let estimate = Estimate { value: 2.0, interval: Some((1.0, 4.0)), seeds: 3, bound: Bound::AtLeast };
        assert_eq!(with_interval(&estimate, number), "≥ 2.000 [1.000, 4.000]");
    }

    #[test]
    fn every_measure_is_in_the_table_once() {
        let mut all = ALL.to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), ALL.len());
        // The last variant of the enumeration, so that a new one is not forgotten.
        assert_eq!(all.last(), Some(&Measure::CpuUs));
    }
}
