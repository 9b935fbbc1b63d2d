//! Laws of sizes: shares, moments up to a size, quantiles.

use rand::{Rng, RngExt};
use workload::sizes::{FileSet, HeavyTail};

use super::{
    TheoryError,
    part::{Law, Part},
};

/// The powers with sums for atoms: x^-1 to x^3.
const POWERS: [i32; 5] = [-1, 0, 1, 2, 3];
/// The largest size and the largest ratio of sizes: far beyond any file, and safe to square in a double.
const LARGEST: f64 = 1e15;

/// A law of request sizes, on the positive numbers. The caller chooses the unit; the command line uses bytes.
///
/// It has any number of single sizes (a log, a set of files), or laws with a density above them, or both:
/// [`HeavyTail`] raises all smaller sizes to the least. Moments up to a size are closed forms, so that
/// nothing is lost at the far end of a heavy tail, where most of the bytes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    atoms: Atoms,
    /// By size, without overlap, all above the atoms.
    parts: Vec<Part>,
}

impl Sizes {
    /// Bounded Pareto: density proportional to x^(-alpha - 1) from `min` to `max`. "Analysis of SRPT
    /// Scheduling: Investigating Unfairness" (Bansal, Harchol-Balter 2001) and "Web Servers Under Overload:
    /// How Scheduling Can Help" have alpha 1.1.
    ///
    /// # Errors
    ///
    /// Unless 0 < `alpha` <= 10 and 0 < `min` < `max` <= 10^15.
    pub fn bounded_pareto(alpha: f64, min: f64, max: f64) -> Result<Self, TheoryError> {
        if !(alpha > 0.0 && alpha <= 10.0) {
            return Err(TheoryError::Parameter {
                what: "the exponent of a bounded Pareto law",
                given: alpha,
                allowed: "above 0, at most 10",
            });
        }
        if !(min >= 1.0 / LARGEST && min.is_finite()) {
            return Err(TheoryError::Parameter { what: "the least size", given: min, allowed: "above 0" });
        }
        if !(max > min && max <= LARGEST) {
            return Err(TheoryError::Parameter {
                what: "the largest size",
                given: max,
                allowed: "above the least, at most 10^15",
            });
        }
        Ok(Self::part(Law::Pareto { alpha, from: min, until: max }))
    }

    /// Lognormal: the logarithm is normal with standard deviation `sigma` around that of `median`.
    ///
    /// # Errors
    ///
    /// Unless 0 < `median` <= 10^15 and 0.01 <= `sigma` <= 4.
    pub fn lognormal(median: f64, sigma: f64) -> Result<Self, TheoryError> {
        if !(1.0 / LARGEST..=LARGEST).contains(&median) {
            return Err(TheoryError::Parameter {
                what: "the median size",
                given: median,
                allowed: "above 0, at most 10^15",
            });
        }
        if !(0.01..=4.0).contains(&sigma) {
            return Err(TheoryError::Parameter {
                what: "sigma of a lognormal law",
                given: sigma,
                allowed: "from 0.01 to 4",
            });
        }
        Ok(Self::part(Law::Lognormal { mu: median.ln(), sigma, from: 0.0, until: f64::INFINITY }))
    }

    /// Exponential with this mean.
    ///
    /// # Errors
    ///
    /// Unless 0 < `mean` <= 10^15.
    pub fn exponential(mean: f64) -> Result<Self, TheoryError> {
        if !(1.0 / LARGEST..=LARGEST).contains(&mean) {
            return Err(TheoryError::Parameter {
                what: "the mean size",
                given: mean,
                allowed: "above 0, at most 10^15",
            });
        }
        Ok(Self::part(Law::Exponential { mean }))
    }

    /// A single size.
    ///
    /// # Errors
    ///
    /// Unless 0 < `size` <= 10^15.
    pub fn fixed(size: f64) -> Result<Self, TheoryError> {
        Self::empirical([(size, 1.0)])
    }

    /// Observed sizes, each with its count, or any relative weight.
    ///
    /// # Errors
    ///
    /// A size not above 0 or above 10^15; a weight that is negative or not finite; no weight above 0.
    pub fn empirical(counts: impl IntoIterator<Item = (f64, f64)>) -> Result<Self, TheoryError> {
        let mut counts: Vec<(f64, f64)> = counts.into_iter().filter(|&(_, weight)| weight != 0.0).collect();
        if let Some(&(given, _)) = counts.iter().find(|(size, _)| !(*size >= 1.0 / LARGEST && *size <= LARGEST)) {
            return Err(TheoryError::Parameter { what: "a size", given, allowed: "above 0, at most 10^15" });
        }
        if let Some(&(_, given)) = counts.iter().find(|(_, weight)| !(*weight > 0.0 && weight.is_finite())) {
            return Err(TheoryError::Parameter { what: "the weight of a size", given, allowed: "0 or above" });
        }
        if counts.is_empty() {
            return Err(TheoryError::NoSizes);
        }
        counts.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let sum: f64 = counts.iter().map(|&(_, weight)| weight).sum();
        Ok(Self { atoms: Atoms::new(counts.into_iter().map(|(size, weight)| (size, weight / sum))), parts: Vec::new() })
    }

    /// The files of a set, weighted by popularity.
    ///
    /// # Errors
    ///
    /// A requested file that is empty: it takes no time, so it has no slowdown.
    pub fn files(files: &FileSet) -> Result<Self, TheoryError> {
        Self::empirical(files.sizes_bytes().iter().map(|&size| size as f64).zip(files.popularity()))
    }

    /// The law of [`HeavyTail`] itself, not of the files that represent it.
    pub fn heavy_tail(sizes: &HeavyTail) -> Self {
        // The body's deviation follows from its two given quantiles.
        let knee_z = -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 * sizes.body_share);
        let (mu, sigma) = (sizes.median_bytes.ln(), (sizes.knee_bytes / sizes.median_bytes).ln() / knee_z);
        let body = |from, share| Part { share, law: Law::Lognormal { mu, sigma, from, until: sizes.knee_bytes } };
        // The part of the body below the least size is raised to it.
        let inside = body(0.0, sizes.body_share).above(sizes.min_bytes);
        let tail = Law::Pareto { alpha: sizes.alpha, from: sizes.knee_bytes, until: sizes.max_bytes };
        Self {
            atoms: Atoms::new([(sizes.min_bytes, sizes.body_share - inside)]),
            parts: vec![body(sizes.min_bytes, inside), Part { share: 1.0 - sizes.body_share, law: tail }],
        }
    }

    fn part(law: Law) -> Self {
        Self { atoms: Atoms::default(), parts: vec![Part { share: 1.0, law }] }
    }

    /// P(X > x).
    pub fn share_above(&self, x: f64) -> f64 {
        self.atoms.above(x) + self.parts.iter().map(|part| part.above(x)).sum::<f64>()
    }

    /// E\[X^k\], for k from -1 to 3. Infinite for k = -1 where small sizes are too likely, as with an
    /// exponential law.
    pub fn moment(&self, k: i32) -> f64 {
        self.moment_up_to(k, f64::INFINITY)
    }

    /// E\[X\].
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// E\[X^k; X <= x\]: the integral of t^k dF(t) up to and with x, for k from -1 to 3.
    pub fn moment_up_to(&self, k: i32, x: f64) -> f64 {
        self.atoms.moment(k, self.atoms.sizes.partition_point(|&size| size <= x)) + self.moment_of_parts(k, x)
    }

    /// E\[X^k; X < x\]: the same without x itself, which matters where a single size has its own share.
    pub fn moment_below(&self, k: i32, x: f64) -> f64 {
        self.atoms.moment(k, self.atoms.sizes.partition_point(|&size| size < x)) + self.moment_of_parts(k, x)
    }

    /// E\[min(X, x)^k\], for k from 1 to 3.
    pub fn moment_capped(&self, k: i32, x: f64) -> f64 {
        let above = self.share_above(x);
        // A cap beyond all sizes may be infinite, and infinity times zero is NaN.
        self.moment_up_to(k, x) + if above > 0.0 { x.powi(k) * above } else { 0.0 }
    }

    fn moment_of_parts(&self, k: i32, x: f64) -> f64 {
        self.parts.iter().map(|part| part.moment_up_to(k, x)).sum()
    }

    /// The size below which a fraction `q` of the requests lies.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut rest = q.clamp(0.0, 1.0) - self.atoms.share();
        if rest <= 0.0 && !self.atoms.sizes.is_empty() {
            return self.atoms.quantile(q);
        }
        for part in &self.parts {
            if rest <= part.share {
                return part.quantile(rest / part.share);
            }
            rest -= part.share;
        }
        // Shares add up to 1 except for rounding.
        self.parts.last().map_or_else(|| self.atoms.quantile(1.0), |part| part.quantile(1.0))
    }

    /// Draws a random size.
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        self.quantile(rng.random())
    }

    /// Single sizes with their shares, by size: `(size, share)`.
    pub(super) fn atoms(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.atoms.sizes.iter().copied().zip(self.atoms.shares.iter().copied())
    }

    /// Laws with a density.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Single sizes, and the running sums of their powers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Atoms {
    sizes: Vec<f64>,
    shares: Vec<f64>,
    /// Sums of share times x^-1, x^0 ... x^3 over the first n atoms.
    sums: Vec<[f64; POWERS.len()]>,
    /// Share of all atoms but the first n.
    above: Vec<f64>,
}

impl Atoms {
    /// `shares` by size; equal sizes become one.
    fn new(shares: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut atoms = Self { sums: vec![[0.0; POWERS.len()]], ..Self::default() };
        for (size, share) in shares.into_iter().filter(|&(_, share)| share > 0.0) {
            match (atoms.sizes.last(), atoms.shares.last_mut()) {
                (Some(&last), Some(of_last)) if last == size => *of_last += share,
                _ => {
                    atoms.sizes.push(size);
                    atoms.shares.push(share);
                }
            }
        }
        let mut sums = [0.0; POWERS.len()];
        for (size, share) in atoms.sizes.iter().zip(&atoms.shares) {
            for (sum, power) in sums.iter_mut().zip(POWERS) {
                *sum += share * size.powi(power);
            }
            atoms.sums.push(sums);
        }
        atoms.above = vec![0.0; atoms.shares.len() + 1];
        for i in (0..atoms.shares.len()).rev() {
            atoms.above[i] = atoms.above[i + 1] + atoms.shares[i];
        }
        atoms
    }

    fn share(&self) -> f64 {
        self.above.first().copied().unwrap_or_default()
    }

    fn above(&self, x: f64) -> f64 {
        self.above.get(self.sizes.partition_point(|&size| size <= x)).copied().unwrap_or_default()
    }

    /// The moment of the first `count` atoms.
    fn moment(&self, k: i32, count: usize) -> f64 {
        self.sums.get(count).map_or(0.0, |sums| sums[(k - POWERS[0]) as usize])
    }

    fn quantile(&self, q: f64) -> f64 {
        let place = self.sums.partition_point(|sums| sums[1] < q).saturating_sub(1);
        self.sizes[place.min(self.sizes.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    fn laws() -> Vec<(&'static str, Sizes)> {
        vec![
            ("bounded Pareto", Sizes::bounded_pareto(1.1, 512.0, 1e7).unwrap()),
            ("Pareto whose exponent is a power", Sizes::bounded_pareto(2.0, 1.0, 1e3).unwrap()),
            ("lognormal", Sizes::lognormal(3000.0, 1.3).unwrap()),
            ("exponential", Sizes::exponential(5000.0).unwrap()),
            ("empirical", Sizes::empirical([(3.0, 5.0), (1.0, 2.0), (3.0, 1.0), (10.0, 2.0)]).unwrap()),
            ("World Cup", Sizes::heavy_tail(&HeavyTail::WORLD_CUP)),
            ("NASA", Sizes::heavy_tail(&HeavyTail::NASA)),
        ]
    }

    fn close(a: f64, b: f64, tolerance: f64) -> bool {
        (a - b).abs() <= tolerance * b.abs()
    }

    #[test]
    fn textbook_moments() {
        let exponential = Sizes::exponential(2.0).unwrap();
        for (k, moment) in [(0, 1.0), (1, 2.0), (2, 8.0), (3, 48.0)] {
            assert!(close(exponential.moment(k), moment, 1e-12), "{k}");
        }
        assert_eq!(exponential.moment(-1), f64::INFINITY);
        // E[min(X, x)] = mean (1 - exp(-x / mean)).
        assert!(close(exponential.moment_capped(1, 3.0), 2.0 * (1.0 - (-1.5_f64).exp()), 1e-12));

        let lognormal = Sizes::lognormal(10.0, 0.5).unwrap();
        for k in [-1, 1, 2, 3] {
            let moment = 10_f64.powi(k) * (0.125 * f64::from(k * k)).exp();
            assert!(close(lognormal.moment(k), moment, 1e-12), "{k}");
        }

        // Alpha 1 from 1 to 10: density (10/9) x^-2, mean (10/9) ln 10, E[X^2] = 10.
        let pareto = Sizes::bounded_pareto(1.0, 1.0, 10.0).unwrap();
        assert!(close(pareto.mean(), 10.0 / 9.0 * 10_f64.ln(), 1e-12) && close(pareto.moment(2), 10.0, 1e-12));

        let seen = Sizes::empirical([(3.0, 5.0), (1.0, 2.0), (3.0, 1.0), (10.0, 2.0)]).unwrap();
        assert!(close(seen.mean(), 4.0, 1e-12) && close(seen.moment(2), 25.6, 1e-12));
        assert!(close(seen.moment_up_to(1, 3.0), 2.0, 1e-12) && close(seen.moment_below(1, 3.0), 0.2, 1e-12));
        assert!(close(seen.moment_capped(1, 2.0), 1.8, 1e-12) && close(seen.share_above(3.0), 0.2, 1e-12));
    }

    #[test]
    fn the_moments_of_the_built_in_sizes_are_those_of_their_own_closed_forms() {
        for sizes in [HeavyTail::WORLD_CUP, HeavyTail::NASA] {
            let law = Sizes::heavy_tail(&sizes);
            assert!(close(law.mean(), sizes.mean(), 1e-9), "{} {}", law.mean(), sizes.mean());
            for q in [0.01, 0.3, 0.5, 0.9, 0.93, 0.999] {
                assert!(close(law.quantile(q), sizes.quantile(q), 1e-7), "{q}");
            }
            let at = sizes.quantile(0.97);
            assert!(close(law.moment_up_to(1, at), 0.97 * sizes.mean_between(0.0, 0.97), 1e-9));
        }
    }

    #[test]
    fn shares_quantiles_and_moments_belong_together() {
        for (name, law) in laws() {
            assert!(close(law.share_above(0.0), 1.0, 1e-12), "{name}");
            for q in [1e-6, 0.1, 0.5, 0.9, 0.999_99] {
                let x = law.quantile(q);
                assert!(1.0 - law.share_above(x) >= q - 1e-9, "{name} {q}");
                assert!(close(law.moment_up_to(0, x) + law.share_above(x), 1.0, 1e-9), "{name} {q}");
                for k in 1..=3 {
                    let capped = law.moment_capped(k, x);
                    assert!(capped <= law.moment(k) * (1.0 + 1e-12), "{name} {q} {k}");
                    assert!(law.moment_below(k, x) <= law.moment_up_to(k, x), "{name} {q} {k}");
                    // d/dx E[min(X, x)^k] = k x^(k-1) P(X > x).
                    let step = x * 1e-5;
                    let slope = (law.moment_capped(k, x + step) - capped) / step;
                    let expected = f64::from(k) * x.powi(k - 1) * law.share_above(x);
                    assert!(
                        (slope - expected).abs() <= 1e-3 * expected + 1e-4 * capped / x,
                        "{name} {q} {k}: {slope} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_drawn_has_the_laws_mean_and_shares() {
        for (name, law) in laws() {
            let mut rng = ChaCha12Rng::seed_from_u64(4);
            let count = 40_000;
            // With a cap, the mean of a heavy tail converges.
            let (cap, median) = (law.quantile(0.95), law.quantile(0.5));
            let (mut sum, mut above) = (0.0, 0.0);
            for _ in 0..count {
                let x = law.sample(&mut rng);
                sum += x.min(cap);
                above += f64::from(u8::from(x > median));
            }
            let n = f64::from(count);
            let (mean, expected) = (sum / n, law.moment_capped(1, cap));
            let error = ((law.moment_capped(2, cap) - expected * expected) / n).sqrt();
            assert!((mean - expected).abs() < 4.0 * error, "{name}: {mean} {expected}");
            assert!((above / n - law.share_above(median)).abs() < 4.0 * 0.5 / n.sqrt(), "{name}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (law, hint) in [
            (Sizes::bounded_pareto(0.0, 1.0, 2.0), "exponent"),
            (Sizes::bounded_pareto(1.1, 0.0, 2.0), "least"),
            (Sizes::bounded_pareto(1.1, 5.0, 2.0), "largest"),
            (Sizes::bounded_pareto(f64::NAN, 1.0, 2.0), "exponent"),
            (Sizes::lognormal(-1.0, 1.0), "median"),
            (Sizes::lognormal(1.0, 9.0), "sigma"),
            (Sizes::exponential(f64::INFINITY), "mean"),
            (Sizes::fixed(0.0), "a size"),
            (Sizes::empirical([(1.0, -1.0)]), "weight"),
            (Sizes::empirical([(1.0, 0.0)]), "no sizes"),
        ] {
            let error = law.unwrap_err().to_string();
            assert!(error.contains(hint), "{hint}: {error}");
        }
    }
}
