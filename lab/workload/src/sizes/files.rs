//! A finite set of files that represents a distribution of sizes.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::HeavyTail;
use crate::surge::{LogNormal, Walk};

/// A finite set of files with their popularity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSet {
    sizes_bytes: Vec<u64>,
    /// Cumulative popularity; the last is 1.
    ends: Vec<f64>,
    /// Law of the stack distances. `None` makes all requests independent.
    locality: Option<LogNormal>,
}

impl FileSet {
    /// Makes at least `count` files (four or more) for `sizes`. Each file represents a slice of the
    /// distribution and has the slice's popularity.
    ///
    /// Half of the files divide the body, a quarter the rest up to the largest 1 %, and a quarter the largest
    /// 1 %. There slices are thin, because most bytes are there. A file has the mean size of its slice, so
    /// the mean is kept; the last file has the largest size.
    pub fn new(sizes: &HeavyTail, count: usize) -> Self {
        let quarter = count.div_ceil(4).max(1);
        let knee = sizes.body_share.min(0.99);
        let mut ends = Vec::with_capacity(4 * quarter);
        for (from, to, files) in [(0.0, knee, 2 * quarter), (knee, 0.99, quarter), (0.99, 1.0, quarter)] {
            if from < to {
                ends.extend((1..=files).map(|i| from + (to - from) * i as f64 / files as f64));
            }
        }
        let mut from = 0.0;
        let mut sizes_bytes: Vec<u64> = ends
            .iter()
            .map(|&to| {
                let size = sizes.mean_between(from, to).round() as u64;
                from = to;
                size
            })
            .collect();
        if let (Some(last), Some(end)) = (sizes_bytes.last_mut(), ends.last_mut()) {
            *last = sizes.max_bytes as u64;
            *end = 1.0;
        }
        Self { sizes_bytes, ends, locality: None }
    }

    /// One file that gets all requests.
    pub fn fixed(size_bytes: u64) -> Self {
        Self { sizes_bytes: vec![size_bytes], ends: vec![1.0], locality: None }
    }

    /// Files with relative weights: `(size in bytes, weight)`. `None` unless the weights are finite, none is
    /// negative and one is above 0.
    pub fn weighted(files: &[(u64, f64)]) -> Option<Self> {
        let sum: f64 = files.iter().map(|&(_, weight)| weight).sum();
        if !(sum > 0.0 && sum.is_finite()) || files.iter().any(|&(_, weight)| weight < 0.0) {
            return None;
        }
        let mut end = 0.0;
        let mut ends: Vec<f64> = files
            .iter()
            .map(|&(_, weight)| {
                end += weight / sum;
                end
            })
            .collect();
        // The rounding error below 1 goes to the last file with a weight above 0.
        let last = files.iter().rposition(|&(_, weight)| weight > 0.0)?;
        ends[last..].fill(1.0);
        Some(Self { sizes_bytes: files.iter().map(|&(size, _)| size).collect(), ends, locality: None })
    }

    /// These files, requested with this law of stack distances.
    pub(crate) fn with_locality(self, law: LogNormal) -> Self {
        Self { locality: Some(law), ..self }
    }

    /// The sizes, by file number, in bytes.
    pub fn sizes_bytes(&self) -> &[u64] {
        &self.sizes_bytes
    }

    /// Fraction of the requests for each file, by number.
    pub fn popularity(&self) -> impl Iterator<Item = f64> + '_ {
        let mut from = 0.0;
        self.ends.iter().map(move |&end| end - std::mem::replace(&mut from, end))
    }

    /// Draws a file number, independent of all others.
    pub fn draw(&self, rng: &mut ChaCha12Rng) -> u32 {
        let u: f64 = rng.random();
        self.ends.partition_point(|&end| end <= u).min(self.ends.len() - 1) as u32
    }

    /// An endless stream of file numbers. Files of a [`crate::surge::Site`] have its temporal locality, and
    /// within `expected` requests exactly their popularity. All others are independent.
    pub fn requests(&self, expected: usize, rng: ChaCha12Rng) -> FileRequests<'_> {
        let source = match self.locality {
            None => Source::Independent(Box::new(rng)),
            Some(law) => Source::Local(Box::new(Walk::new(self.popularity(), law, expected, rng))),
        };
        FileRequests { files: self, source }
    }

    /// Mean of `cost(size_bytes)` over requests.
    pub fn mean_of(&self, cost: impl Fn(u64) -> u64) -> f64 {
        self.sizes_bytes.iter().zip(self.popularity()).map(|(&size, share)| cost(size) as f64 * share).sum()
    }
}

/// An endless stream of requested file numbers: see [`FileSet::requests`].
#[derive(Debug)]
pub struct FileRequests<'a> {
    files: &'a FileSet,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Independent(Box<ChaCha12Rng>),
    Local(Box<Walk>),
}

impl Iterator for FileRequests<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(match &mut self.source {
            Source::Independent(rng) => self.files.draw(rng),
            Source::Local(walk) => walk.next_file(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::stream;

    const SIZES: HeavyTail = HeavyTail::WORLD_CUP;

    #[test]
    fn files_keep_the_mean_and_the_largest() {
        for sizes in [SIZES, HeavyTail::NASA] {
            let files = FileSet::new(&sizes, 2000);
            assert_eq!(files.sizes_bytes().len(), 2000);
            assert_eq!(*files.sizes_bytes().last().unwrap(), sizes.max_bytes as u64);
            assert!(files.sizes_bytes().is_sorted());
            assert!((files.mean_of(|size| size) / sizes.mean() - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn a_body_that_reaches_into_the_largest_percent_leaves_no_file_without_a_size() {
        let sizes = HeavyTail::new(41.0, 1000.0, 60_000.0, 0.995, 1.1, 2e6).unwrap();
        let files = FileSet::new(&sizes, 2000);
        assert!(files.sizes_bytes().iter().all(|&size| size >= 41));
        assert!((files.mean_of(|size| size) / sizes.mean() - 1.0).abs() < 1e-2);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let files = FileSet::new(&SIZES, 1000);
        let mut sizes: Vec<u64> =
            files.requests(0, stream(7, 0)).take(200_000).map(|file| files.sizes_bytes()[file as usize]).collect();
        sizes.sort_unstable();
        // Kolmogorov-Smirnov at the 0.1 % level is 1.95/sqrt(n) = 0.0044; the slices themselves are up to
        // 0.0018 wide.
        for q in [0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999] {
            let at_most = sizes.partition_point(|&s| s as f64 <= SIZES.quantile(q)) as f64 / sizes.len() as f64;
            assert!((at_most - q).abs() < 0.0044 + 0.0018, "{q}: {at_most}");
        }
    }

    #[test]
    fn one_file_is_all_there_is() {
        let files = FileSet::fixed(1035);
        assert!(files.requests(10, stream(1, 0)).take(10).all(|file| file == 0));
        assert_eq!((files.sizes_bytes(), files.mean_of(|size| size)), (&[1035][..], 1035.0));
    }

    #[test]
    fn weights_are_shares_of_the_requests() {
        let files = FileSet::weighted(&[(10, 1.0), (20, 0.0), (30, 3.0), (40, 0.0)]).unwrap();
        assert_eq!(files.popularity().collect::<Vec<_>>(), [0.25, 0.0, 0.75, 0.0]);
        assert_eq!(files.mean_of(|size| size), 25.0);
        assert!(files.requests(0, stream(1, 0)).take(1000).all(|file| file == 0 || file == 2));
        for none in [&[][..], &[(1, 0.0)], &[(1, -1.0), (1, 2.0)], &[(1, f64::NAN)], &[(1, f64::INFINITY)]] {
            assert_eq!(FileSet::weighted(none), None, "{none:?}");
        }
    }
}
