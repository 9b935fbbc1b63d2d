//! The files of a site and their popularity.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::parameters::{Surge, SurgeError, file_sizes};
use crate::{
    sequence::{SITE, stream},
    sizes::FileSet,
};

/// A site: files whose sizes follow one law and whose popularity follows another, matched so that the sizes
/// of the *requests* follow a third.
///
/// Files are numbered by size, from the smallest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    surge: Surge,
    files: FileSet,
}

impl Site {
    /// A site of this many files. The seed decides the sizes.
    ///
    /// The sizes are a stratified sample: one from each of equally many slices of the law. So even a site of
    /// few files follows the law for any seed. The smallest and the largest size are the bounds.
    ///
    /// # Errors
    ///
    /// The errors of [`Surge::check`]; no files, or more than 20,000: the time of matching grows with the
    /// square of their number.
    pub fn new(surge: &Surge, files: usize, seed: u64) -> Result<Self, SurgeError> {
        surge.check()?;
        if !(1..=20_000).contains(&files) {
            return Err(SurgeError::Files(files));
        }
        let law = file_sizes(surge)?;
        let mut rng = stream(seed, SITE);
        let mut sizes_bytes: Vec<u64> = (0..files)
            .map(|slice| law.quantile((slice as f64 + rng.random::<f64>()) / files as f64).round() as u64)
            .collect();
        sizes_bytes[0] = surge.min_bytes;
        sizes_bytes[files - 1] = surge.max_bytes;

        let wanted = wanted_popularity(surge, &sizes_bytes);
        let popularity: Vec<f64> = (1..=files).map(|rank| (rank as f64).powf(-surge.popularity_exponent)).collect();
        let mut matched = matched(&wanted, &popularity);
        refine(&mut matched, &wanted, &sizes_bytes, &mut rng);
        let weights: Vec<(u64, f64)> = sizes_bytes.into_iter().zip(matched).collect();
        // Zipf's weights are positive; only an absurd exponent makes their sum invalid.
        let exponent = SurgeError::NotPositive { name: "popularity-exponent", value: surge.popularity_exponent };
        let files = FileSet::weighted(&weights).ok_or(exponent)?.with_locality(surge.stack_distance);
        Ok(Self { surge: surge.clone(), files })
    }

    /// The sizes, by file number, in bytes.
    pub fn sizes_bytes(&self) -> &[u64] {
        self.files.sizes_bytes()
    }

    /// The files with their popularity and temporal locality, for requests in open loop.
    pub fn file_set(&self) -> &FileSet {
        &self.files
    }

    /// The parameters of the site.
    pub fn surge(&self) -> &Surge {
        &self.surge
    }
}

/// The popularity that each file would get if popularity were free. It is the probability, under the law of
/// request sizes, between the midpoints (on a logarithmic scale) to its neighbours.
fn wanted_popularity(surge: &Surge, sizes_bytes: &[u64]) -> Vec<f64> {
    let max = surge.max_bytes as f64;
    let mut from = 0.0;
    (0..sizes_bytes.len())
        .map(|file| {
            let until = sizes_bytes.get(file + 1).map_or(1.0, |&next| {
                surge.request_bytes.cdf_below((sizes_bytes[file] as f64 * next as f64).sqrt(), max)
            });
            until - std::mem::replace(&mut from, until)
        })
        .collect()
}

/// Assigns the popularities so that their cumulative sums follow those of `wanted` as closely as their grain
/// allows. `popularities` are in falling order; both are relative. Returns the popularity of each file.
///
/// This is Barford and Crovella's matching problem, solved greedily from the most popular. Each popularity
/// takes the shortest run of neighbours that together still want that amount, and uses up their want. It goes
/// to the free file nearest to the middle of the run. So it is the centre of the sizes it represents, and an
/// error stays within half of it.
fn matched(wanted: &[f64], popularities: &[f64]) -> Vec<f64> {
    let least = popularities.last().copied().unwrap_or(0.0);
    let scale: f64 = popularities.iter().sum::<f64>() / wanted.iter().sum::<f64>();
    // Every file gets at least the least popularity. Where that exceeds its want, the next files want less.
    let mut over = 0.0;
    let mut wanted: Vec<f64> = wanted
        .iter()
        .map(|want| {
            let rest = want * scale - least - over;
            over = f64::max(-rest, 0.0);
            rest.max(0.0)
        })
        .collect();
    let mut given: Vec<Option<f64>> = vec![None; wanted.len()];
    for &whole in popularities {
        let popularity = whole - least;
        let (first, last) = shortest_run(&wanted, &given, popularity);
        let mut rest = popularity;
        let mut middle = first;
        for (file, want) in (first..).zip(&mut wanted[first..=last]) {
            let used = want.min(rest);
            *want -= used;
            rest -= used;
            if rest >= popularity / 2.0 {
                middle = file + 1;
            }
        }
        let nearest = (first..=last).filter(|&file| given[file].is_none()).min_by_key(|&file| file.abs_diff(middle));
        if let Some(file) = nearest {
            given[file] = Some(whole);
        }
    }
    given.into_iter().map(|given| given.unwrap_or(0.0)).collect()
}

/// Exchanges the popularities of pairs of files while that brings the cumulative sums closer to those of
/// `wanted`.
///
/// [`matched`] goes by falling popularity and ignores how many files are left where. So a percent of the
/// requests goes to somewhat too large files, which shifts the mean size by as much. The error minimised here
/// is relative to the fraction of larger requests, and summed over the logarithm of the size. So each octave
/// of sizes, and its bytes, count equally.
fn refine(given: &mut [f64], wanted: &[f64], sizes_bytes: &[u64], rng: &mut ChaCha12Rng) {
    const TRIES_PER_FILE: usize = 100;
    let files = given.len();
    if files < 2 {
        return;
    }
    let scale = wanted.iter().sum::<f64>() / given.iter().sum::<f64>();
    // At the boundary after each file: the weight of an error, summed from the left.
    let (mut below, mut weight) = (0.0, vec![0.0; files + 1]);
    for file in 0..files - 1 {
        below += wanted[file];
        let above = f64::max(1.0 - below, 1e-9);
        let width = (sizes_bytes[file + 1].max(1) as f64 / sizes_bytes[file].max(1) as f64).ln();
        weight[file + 1] = weight[file] + width / (above * above);
    }
    weight[files] = weight[files - 1];
    // The weighted errors, summed in the same way.
    let mut errors = vec![0.0; files + 1];
    let sum_up = |given: &[f64], errors: &mut [f64]| {
        let mut error = 0.0;
        for file in 0..files {
            error += given[file] * scale - wanted[file];
            errors[file + 1] = errors[file] + (weight[file + 1] - weight[file]) * error;
        }
    };
    sum_up(given, &mut errors);
    for _ in 0..TRIES_PER_FILE * files {
        let (a, b) = (rng.random_range(0..files), rng.random_range(0..files));
        let (left, right) = (a.min(b), a.max(b));
        // An exchange shifts every error from the left file to the one before the right file by the same
        // amount.
        let moved = (given[right] - given[left]) * scale;
        let change = moved * (2.0 * (errors[right] - errors[left]) + moved * (weight[right] - weight[left]));
        if change < 0.0 {
            given.swap(left, right);
            sum_up(given, &mut errors);
        }
    }
}

/// The shortest run of files that together want `amount` and include a free one; of equally short ones, the
/// one that wants most. All files, if they want less.
fn shortest_run(wanted: &[f64], given: &[Option<f64>], amount: f64) -> (usize, usize) {
    let mut best = ((0, wanted.len() - 1), usize::MAX, 0.0);
    let (mut first, mut sum, mut free) = (0, 0.0, 0);
    for last in 0..wanted.len() {
        sum += wanted[last];
        free += usize::from(given[last].is_none());
        loop {
            let (shorter_sum, shorter_free) = (sum - wanted[first], free - usize::from(given[first].is_none()));
            if shorter_sum < amount || shorter_free == 0 {
                break;
            }
            (sum, free) = (shorter_sum, shorter_free);
            first += 1;
        }
        let length = last - first;
        if sum >= amount && free > 0 && (length < best.1 || (length == best.1 && sum > best.2)) {
            best = ((first, last), length, sum);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::{sequence::stream, surge::Pareto};

    /// Sites of the thesis's size, for three seeds.
    static SITES: LazyLock<Vec<Site>> =
        LazyLock::new(|| (1..4).map(|seed| Site::new(&Surge::default(), 2000, seed).unwrap()).collect());

    /// Probability of a file of at most `x` bytes: the lognormal body, and above 133 KB the Pareto tail with
    /// the rest. Written independently from the table, with the same bounds.
    fn file_size_cdf(x: f64) -> f64 {
        let body = |x: f64| 0.5 * libm::erfc(-(x.ln() - 9.357) / 1.318 / std::f64::consts::SQRT_2);
        let (knee, max) = (133_000.0, 3e6_f64);
        if x < 77.0 {
            0.0
        } else if x <= knee {
            body(x)
        } else {
            let above = |x: f64| (knee / x).powf(1.1);
            body(knee) + (1.0 - body(knee)) * (1.0 - above(x.min(max))) / (1.0 - above(max))
        }
    }

    #[test]
    fn file_sizes_follow_body_and_tail() {
        for site in SITES.iter() {
            let sizes = site.sizes_bytes();
            assert_eq!((sizes.len(), sizes[0], sizes[1999]), (2000, 77, 3_000_000));
            assert!(sizes.is_sorted());
            let distances = sizes.iter().enumerate().map(|(i, &size)| {
                let expected = file_size_cdf(size as f64);
                (expected - i as f64 / 2000.0).abs().max((expected - (i + 1) as f64 / 2000.0).abs())
            });
            // Kolmogorov-Smirnov at 1 % allows a sample of this size 0.036. A stratified sample is off by at
            // most a slice and by its two ends, which are the bounds.
            let worst = distances.fold(0.0, f64::max);
            assert!(worst < 2.0 / 2000.0, "{worst}");
        }
        assert_ne!(SITES[0].sizes_bytes(), SITES[1].sizes_bytes());
        assert_eq!(Site::new(&Surge::default(), 50, 9), Site::new(&Surge::default(), 50, 9));
    }

    #[test]
    fn popularity_is_zipfs() {
        for site in SITES.iter() {
            let mut popularity: Vec<f64> = site.file_set().popularity().collect();
            popularity.sort_unstable_by(|a, b| b.total_cmp(a));
            for (rank, share) in (1..).zip(&popularity) {
                assert!((share * f64::from(rank) / popularity[0] - 1.0).abs() < 1e-6, "{rank}");
            }
        }
    }

    /// Sizes of requests: Pareto from 1000 B, exponent 1, up to 3 MB. Written independently.
    fn request_size_cdf(x: f64) -> f64 {
        if x < 1000.0 { 0.0 } else { (1.0 - 1000.0 / x) / (1.0 - 1000.0 / 3e6) }
    }

    #[test]
    fn drawing_by_popularity_gives_the_request_sizes() {
        for site in SITES.iter() {
            let (mut before, mut worst) = (0.0, (0.0, 0));
            let mut most_popular = 0.0;
            for (share, &size) in site.file_set().popularity().zip(site.sizes_bytes()) {
                let expected = request_size_cdf(size as f64);
                let distance = f64::max((expected - before).abs(), (expected - before - share).abs());
                if distance > worst.0 {
                    worst = (distance, size);
                }
                if size > 10_000 {
                    // Above the grain of the popular files: an error relative to the fraction above.
                    let (left, expected_left) = (1.0 - before - share, 1.0 - expected);
                    assert!(
                        (left - expected_left).abs() < 0.05 * expected_left + 2e-4,
                        "{size}: {left} {expected_left}"
                    );
                }
                before += share;
                most_popular = f64::max(most_popular, share);
            }
            // A law without jumps cannot be met better than to half of the largest jump: 12 % of the requests
            // go to one file.
            assert!((0.122..0.123).contains(&most_popular), "{most_popular}");
            assert!(worst.0 < most_popular / 2.0 + 0.01, "{worst:?}");
            let mean = 1000.0 * 3000_f64.ln() / (1.0 - 1.0 / 3000.0);
            let matched_mean = site.file_set().mean_of(|size| size);
            assert!((matched_mean / mean - 1.0).abs() < 0.03, "{matched_mean} {mean}");
        }
    }

    #[test]
    fn what_is_asked_for_in_open_loop_has_the_request_sizes() {
        let site = &SITES[0];
        let count = 20_000;
        let files = site.file_set();
        let mut sizes: Vec<u64> =
            files.requests(count, stream(5, 1)).take(count).map(|file| files.sizes_bytes()[file as usize]).collect();
        sizes.sort_unstable();
        for (x, tolerance) in [(2_000.0, 0.01), (5_000.0, 0.01), (20_000.0, 0.003), (100_000.0, 0.001), (1e6, 0.0003)] {
            let at_most = sizes.partition_point(|&size| size as f64 <= x) as f64 / count as f64;
            // Between two popular files the law passes through their jumps, so the tolerance is that of the
            // matching.
            let expected = request_size_cdf(x);
            assert!((at_most - expected).abs() < tolerance + 0.01 * (1.0 - expected), "{x}: {at_most} {expected}");
        }
    }

    #[test]
    fn matching_by_hand() {
        // Two small files want most, the large ones little. The popular go to the small, in the middle of the
        // sizes they represent.
        let given = matched(&[0.4, 0.4, 0.1, 0.1], &[0.4, 0.4, 0.1, 0.1]);
        assert_eq!(given, [0.4, 0.4, 0.1, 0.1]);
        let given = matched(&[0.1, 0.1, 0.4, 0.4], &[0.4, 0.4, 0.1, 0.1]);
        assert_eq!(given, [0.1, 0.1, 0.4, 0.4]);
        // One popularity equals the want of three files: it goes to the middle one.
        let given = matched(&[0.2, 0.2, 0.2, 0.1], &[0.6, 0.05, 0.05, 0.0]);
        assert_eq!(given[1], 0.6, "{given:?}");
    }

    #[test]
    fn sites_of_few_files_and_of_none() {
        for files in [1, 2, 3, 10] {
            let site = Site::new(&Surge::default(), files, 1).unwrap();
            assert_eq!(site.sizes_bytes().len(), files);
            assert!((site.file_set().popularity().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        assert_eq!(Site::new(&Surge::default(), 0, 1), Err(SurgeError::Files(0)));
    }

    #[test]
    fn parameters_that_make_no_site_are_refused_by_name() {
        let surge = Surge::default;
        let wrong = [
            (Surge { popularity_exponent: 0.0, ..surge() }, "popularity-exponent"),
            (Surge { embedded: Pareto { scale: 1.0, shape: f64::NAN }, ..surge() }, "embedded"),
            (Surge { request_bytes: Pareto { scale: 4e6, shape: 1.0 }, ..surge() }, "request-bytes"),
            (Surge { min_bytes: 0, ..surge() }, "bytes"),
            (Surge { max_bytes: 100_000, ..surge() }, "bytes"),
            (Surge { tail_bytes: Pareto { scale: 5_000.0, shape: 1.1 }, ..surge() }, "knee 5000"),
        ];
        for (surge, hint) in wrong {
            let error = Site::new(&surge, 100, 1).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn parameters_are_read_by_name_and_the_rest_is_the_thesiss() {
        let surge: Surge = serde_json::from_str(r#"{"max-bytes": 2000000}"#).unwrap();
        assert_eq!(surge, Surge { max_bytes: 2_000_000, ..Surge::default() });
        assert!(serde_json::from_str::<Surge>(r#"{"max": 1}"#).is_err());
    }
}
