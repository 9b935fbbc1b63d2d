//! Integrals over sizes: cells that grow with the size, and the Gauss-Legendre rule in each.
//!
//! Sizes of the web span seven decades, and the formulas change over all of them equally, so cells are
//! uniform in the logarithm. A cell ends at every jump: at a single size with a share, at the end of a law,
//! at a cutoff.

use super::sizes::Sizes;

/// Cells per decade. With eight places in each, twice as many change no mean by more than rounding.
const CELLS_A_DECADE: f64 = 16.0;

/// Half of the places and weights of the rule with eight places on [-1, 1]. The other half is their mirror
/// image. The rule is exact up to degree 15 (Abramowitz and Stegun, "Handbook of Mathematical Functions",
/// 1964, table 25.4).
const GAUSS_LEGENDRE: [(f64, f64); 4] = [
    (0.183_434_642_495_649_8, 0.362_683_783_378_362),
    (0.525_532_409_916_329, 0.313_706_645_877_887_29),
    (0.796_666_477_413_626_7, 0.222_381_034_453_374_47),
    (0.960_289_856_497_536_2, 0.101_228_536_290_376_26),
];

/// The integral of `f` from `low` to `high`.
pub(super) fn integral(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
    places(low, high).map(|(x, weight)| weight * f(x)).sum()
}

/// Places within a cell, each with the length that it represents.
pub(super) fn places(low: f64, high: f64) -> impl Iterator<Item = (f64, f64)> {
    let (middle, half) = (f64::midpoint(low, high), (high - low) / 2.0);
    GAUSS_LEGENDRE
        .into_iter()
        .flat_map(move |(x, weight)| [(middle - half * x, half * weight), (middle + half * x, half * weight)])
}

/// Ends of the cells over all relevant sizes, in rising order.
pub(super) fn edges(sizes: &Sizes, cutoffs: &[u64]) -> Vec<f64> {
    let mut edges: Vec<f64> = sizes.atoms().map(|(size, _)| size).collect();
    for part in sizes.parts() {
        let (from, until) = part.span();
        edges.push(from);
        // For a span that begins at zero, the lowest cell reaches down to here.
        let first = if from > 0.0 { from } else { until * 1e-14 };
        let cells = ((until / first).log10() * CELLS_A_DECADE).ceil().max(1.0);
        let step = (until / first).ln() / cells;
        edges.extend((0..cells as usize).map(|i| first * (step * i as f64).exp()));
        edges.push(until);
    }
    edges.sort_unstable_by(f64::total_cmp);
    let (low, high) = (edges.first().copied().unwrap_or_default(), edges.last().copied().unwrap_or_default());
    edges.extend(cutoffs.iter().map(|&cutoff| cutoff as f64).filter(|cutoff| (low..high).contains(cutoff)));
    edges.sort_unstable_by(f64::total_cmp);
    edges.dedup();
    edges
}

/// Sizes, each with the share that it represents: sums over them are integrals dF.
pub(super) fn shares<'a>(sizes: &'a Sizes, edges: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    let cells = edges.windows(2).flat_map(move |cell| {
        let (low, high) = (cell[0], cell[1]);
        let middle = f64::midpoint(low, high);
        let covering = sizes.parts().iter().filter(move |part| {
            let (from, until) = part.span();
            (from..until).contains(&middle)
        });
        covering.flat_map(move |part| places(low, high).map(|(x, length)| (x, length * part.density(x))))
    });
    sizes.atoms().chain(cells)
}

#[cfg(test)]
mod tests {
    use workload::sizes::HeavyTail;

    use super::*;

    #[test]
    fn the_rule_is_exact_up_to_degree_15_and_not_beyond() {
        for degree in 0..=15 {
            let exact = (3_f64.powi(degree + 1) - 1.0) / f64::from(degree + 1);
            assert!((integral(1.0, 3.0, |x| x.powi(degree)) / exact - 1.0).abs() < 1e-13, "{degree}");
        }
        let beyond = integral(-1.0, 1.0, |x| x.powi(16)) / (2.0 / 17.0) - 1.0;
        assert!(beyond.abs() > 1e-6, "{beyond}");
    }

    #[test]
    fn sums_over_the_shares_are_the_closed_moments() {
        for sizes in [
            Sizes::bounded_pareto(1.1, 332.0, 1e10).unwrap(),
            Sizes::lognormal(3000.0, 2.5).unwrap(),
            Sizes::exponential(4.0).unwrap(),
            Sizes::empirical([(1.0, 3.0), (7.0, 1.0)]).unwrap(),
            Sizes::heavy_tail(&HeavyTail::WORLD_CUP),
        ] {
            let edges = edges(&sizes, &[1, 5000]);
            assert!(edges.is_sorted() && edges.windows(2).all(|pair| pair[0] < pair[1]));
            for k in 0..=2 {
                let sum: f64 = shares(&sizes, &edges).map(|(x, share)| share * x.powi(k)).sum();
                assert!((sum / sizes.moment(k) - 1.0).abs() < 1e-11, "{sizes:?} {k}: {sum} {}", sizes.moment(k));
            }
        }
    }
}
