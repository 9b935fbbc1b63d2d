//! The requests of a run, drawn from a seed: time, file and size.

mod offered;
mod shares;

use std::{fmt, str::FromStr};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Poisson};
use serde::{Deserialize, Serialize};

use self::offered::Offered;
pub use self::shares::{Shares, SharesError, assign_groups};
use crate::{
    pattern::{Pattern, Unit},
    rate::Link,
    sizes::FileSet,
    wire::WireModel,
};

/// A request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When to send it, in nanoseconds since the start of the run, independent of earlier requests.
    pub at_ns: u64,
    /// Number of the file.
    pub file: u32,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Number of the client group.
    #[serde(default)]
    pub group: u16,
}

/// How a nominal load, or a nominal rate of requests, becomes a number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadMatch {
    /// The bytes of *this* sequence match the load over the whole run, as in the papers when they scale a
    /// trace. Under a heavy tail this keeps short runs comparable: otherwise a minute at 10 Mbit/s strays by
    /// 10 %. Requests per second: exactly their number.
    #[default]
    Sequence,
    /// A Poisson process whose *expected* bytes, or number, match the load.
    Expectation,
}

impl FromStr for LoadMatch {
    type Err = LoadMatchError;

    fn from_str(text: &str) -> Result<Self, LoadMatchError> {
        match text {
            "sequence" => Ok(Self::Sequence),
            "expectation" => Ok(Self::Expectation),
            _ => Err(LoadMatchError(text.to_owned())),
        }
    }
}

/// The text is not the name of a [`LoadMatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadMatchError(String);

impl fmt::Display for LoadMatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not say how a load is met: use `sequence` or `expectation`", self.0)
    }
}

impl std::error::Error for LoadMatchError {}

/// The parameters of a sequence.
#[derive(Clone, Debug)]
pub struct Recipe<'a> {
    /// The files to request.
    pub files: &'a FileSet,
    /// The link. Where its rate changes, the requests follow: a load is a fraction of the current rate.
    pub link: &'a Link,
    /// The load, or the requests per second, over time.
    pub pattern: &'a Pattern,
    /// Time over which requests are sent, in nanoseconds.
    pub duration_ns: u64,
    /// The cost of a request on the link.
    pub wire: WireModel,
    /// How the number of requests follows from the load.
    pub load_match: LoadMatch,
}

impl Recipe<'_> {
    /// Draws the requests: a Poisson process whose intensity follows the load, with sizes independent of the
    /// times.
    ///
    /// Given their number, the arrivals of a Poisson process are independent and distributed as its
    /// intensity. So the number is found first and the times are drawn after. Sizes and times come from
    /// separate streams of the seed.
    pub fn draw(&self, seed: u64) -> Vec<Request> {
        let visits = self.draw_visits(seed, 1.0, || 1);
        let at_and_file = visits.at_ns.into_iter().zip(visits.files);
        at_and_file.map(|(at_ns, file)| Request { at_ns, file, size_bytes: self.size_of(file), group: 0 }).collect()
    }

    /// Draws visits of several requests each, `mean_length` on average. Their starts are a Poisson process.
    pub(crate) fn draw_visits(&self, seed: u64, mean_length: f64, mut length: impl FnMut() -> usize) -> Visits {
        let offered = Offered::new(self.link, self.pattern, self.duration_ns);
        let cost = |size_bytes| match self.pattern.unit() {
            Unit::Load => self.wire.bytes_for(size_bytes).max(1),
            Unit::RequestsPerSecond => 1,
        };
        let expected_requests = offered.total() / self.files.mean_of(cost);
        let mut times = stream(seed, TIMES);
        let mut source = self.files.requests(expected_requests.ceil() as usize, stream(seed, FILES));
        let mut visits = Visits::default();
        match self.load_match {
            LoadMatch::Sequence => {
                let mut sum = 0.0;
                while sum < offered.total() {
                    let added = visits.push(length(), &mut source, |file| cost(self.size_of(file)));
                    // Always taking, or always dropping, the last request would favour or exclude large ones.
                    if sum + added > offered.total() && sum + added - offered.total() >= offered.total() - sum {
                        visits.pop();
                        break;
                    }
                    sum += added;
                }
            }
            LoadMatch::Expectation => {
                // A Poisson law refuses only a mean that is not positive: then there is nothing to send.
                let law = Poisson::new(expected_requests / mean_length);
                for _ in 0..law.map_or(0, |law| law.sample(&mut times) as usize) {
                    visits.push(length(), &mut source, |_| 0);
                }
            }
        }
        let mut places: Vec<f64> = visits.ends.iter().map(|_| times.random::<f64>() * offered.total()).collect();
        places.sort_unstable_by(f64::total_cmp);
        let last_ns = self.duration_ns.saturating_sub(1);
        visits.at_ns = places.into_iter().map(|place| (offered.when(place) as u64).min(last_ns)).collect();
        visits
    }

    pub(crate) fn size_of(&self, file: u32) -> u64 {
        self.files.sizes_bytes()[file as usize]
    }
}

/// Visits: the start and the files of each.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    /// The start of each visit, in order.
    pub(crate) at_ns: Vec<u64>,
    /// For each visit, the end of its files in `files`; those of the next visit begin there.
    pub(crate) ends: Vec<usize>,
    /// The files of all visits, one visit after the other.
    pub(crate) files: Vec<u32>,
}

impl Visits {
    /// Adds a visit and returns the sum of its costs.
    fn push(&mut self, length: usize, source: impl Iterator<Item = u32>, cost: impl Fn(u32) -> u64) -> f64 {
        let begin = self.files.len();
        self.files.extend(source.take(length));
        self.ends.push(self.files.len());
        self.files[begin..].iter().map(|&file| cost(file) as f64).sum()
    }

    fn pop(&mut self) {
        self.ends.pop();
        self.files.truncate(self.ends.last().copied().unwrap_or(0));
    }
}

/// Streams of a seed: draws for one purpose do not depend on the number of draws for another.
pub(crate) const TIMES: u64 = 0;
pub(crate) const FILES: u64 = 1;
pub(crate) const GROUPS: u64 = 2;
pub(crate) const SESSIONS: u64 = 3;
pub(crate) const SITE: u64 = 4;
/// The stream of user 0; those of the other users follow.
pub(crate) const USERS: u64 = 1 << 32;

pub(crate) fn stream(seed: u64, number: u64) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(number);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rate::Rate, sizes::HeavyTail};

    const SECOND: u64 = 1_000_000_000;

    fn files() -> FileSet {
        FileSet::new(&HeavyTail::WORLD_CUP, 1000)
    }

    fn link(mbit: u64) -> Link {
        Link::constant(Rate::from_bits_per_second(mbit * 1_000_000).unwrap())
    }

    fn recipe<'a>(files: &'a FileSet, link: &'a Link, pattern: &'a Pattern, seconds: u64) -> Recipe<'a> {
        Recipe {
            files,
            link,
            pattern,
            duration_ns: seconds * SECOND,
            wire: WireModel::PER_CONNECTION,
            load_match: LoadMatch::Sequence,
        }
    }

    fn wire_bytes<'a>(requests: impl IntoIterator<Item = &'a Request>) -> f64 {
        requests.into_iter().map(|r| WireModel::PER_CONNECTION.bytes_for(r.size_bytes)).sum::<u64>() as f64
    }

    #[test]
    fn a_seed_decides_everything() {
        let (files, link, pattern) = (files(), link(10), Pattern::constant(0.8).unwrap());
        let recipe = recipe(&files, &link, &pattern, 20);
        assert_eq!(recipe.draw(1), recipe.draw(1));
        assert_ne!(recipe.draw(1), recipe.draw(2));
        assert!(recipe.draw(1).is_sorted_by_key(|r| r.at_ns));
        assert!(recipe.draw(1).last().unwrap().at_ns < 20 * SECOND);
    }

    #[test]
    fn a_matched_load_is_met_by_each_sequence() {
        let (files, link, pattern) = (files(), link(10), Pattern::constant(0.8).unwrap());
        for seed in 0..20 {
            let load = wire_bytes(&recipe(&files, &link, &pattern, 60).draw(seed)) / (60.0 * 1_250_000.0);
            // The last request may be the largest, 2 MB: half of that is 1.4 % of the run.
            assert!((load - 0.8).abs() < 0.014, "seed {seed}: {load}");
        }
    }

    #[test]
    fn an_expected_load_is_met_on_average() {
        let (files, link, pattern) = (files(), link(100), Pattern::constant(0.5).unwrap());
        let recipe = Recipe { load_match: LoadMatch::Expectation, ..recipe(&files, &link, &pattern, 60) };
        let loads: Vec<f64> = (0..20).map(|seed| wire_bytes(&recipe.draw(seed)) / (60.0 * 12_500_000.0)).collect();
        let mean = loads.iter().sum::<f64>() / 20.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        assert!(loads.iter().any(|load| (load - 0.5).abs() > 0.002), "single sequences stray");
    }

    #[test]
    fn arrivals_are_poisson() {
        let (files, link, pattern) = (files(), link(100), Pattern::constant(0.8).unwrap());
        let requests = recipe(&files, &link, &pattern, 60).draw(3);
        let gaps: Vec<f64> = requests.windows(2).map(|w| (w[1].at_ns - w[0].at_ns) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // Exponential gaps: a share 1 - 1/e lies below the mean, and the squared coefficient of variation is
        // 1.
        let below = gaps.iter().filter(|&&gap| gap < mean).count() as f64 / gaps.len() as f64;
        assert!((below - 0.632).abs() < 0.01, "{below}");
        let variation = gaps.iter().map(|gap| (gap / mean - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variation - 1.0).abs() < 0.05, "{variation}");
    }

    #[test]
    fn the_load_follows_the_pattern() {
        let (files, link, pattern) = (files(), link(100), Pattern::named("w1").unwrap());
        let requests = recipe(&files, &link, &pattern, 100).draw(1);
        let in_low = requests.iter().filter(|r| r.at_ns % (50 * SECOND) < 25 * SECOND).count() as f64;
        let share = in_low / requests.len() as f64;
        assert!((share - 0.2 / 1.4).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_load_follows_the_links_rate() {
        let (files, pattern) = (files(), Pattern::constant(0.8).unwrap());
        let link = link(20).then(30 * SECOND, Rate::from_bits_per_second(10_000_000).unwrap()).unwrap();
        let requests = recipe(&files, &link, &pattern, 60).draw(1);
        let early = requests.iter().filter(|r| r.at_ns < 30 * SECOND).count() as f64 / requests.len() as f64;
        assert!((early - 2.0 / 3.0).abs() < 0.02, "{early}");
    }

    #[test]
    fn a_silent_phase_gets_no_request() {
        let (files, link, pattern) = (files(), link(100), "1s@0,1s@1".parse().unwrap());
        let requests = recipe(&files, &link, &pattern, 10).draw(1);
        assert!(!requests.is_empty());
        assert!(requests.iter().all(|r| r.at_ns % (2 * SECOND) >= SECOND));
    }

    #[test]
    fn the_load_follows_a_ramp() {
        let (files, link, pattern) = (files(), link(100), "60s@0-1".parse().unwrap());
        let requests = recipe(&files, &link, &pattern, 60).draw(1);
        // The integral of a ramp from 0 is proportional to the square of the time; its inverse of uniform
        // values gives the times.
        let n = requests.len() as f64;
        let place = |request: &Request| (request.at_ns as f64 / 60e9).powi(2);
        let worst = (0..requests.len())
            .map(|i| (place(&requests[i]) - i as f64 / n).abs().max((place(&requests[i]) - (i + 1) as f64 / n).abs()));
        // Kolmogorov-Smirnov at 1 %.
        assert!(worst.fold(0.0, f64::max) < 1.63 / n.sqrt());
    }

    #[test]
    fn requests_per_second_are_counted_whatever_their_size() {
        let (files, pattern) = (files(), "30s@10/s,30s@50-150/s".parse().unwrap());
        let (slow, fast) = (link(1), link(100));
        let requests = recipe(&files, &slow, &pattern, 60).draw(1);
        assert_eq!(requests.len(), 300 + 3000);
        assert_eq!(requests, recipe(&files, &fast, &pattern, 60).draw(1), "whatever the link");
        let early = requests.iter().filter(|r| r.at_ns < 30 * SECOND).count() as f64;
        assert!((early - 300.0).abs() < 4.0 * 300_f64.sqrt(), "{early}");

        let recipe = Recipe { load_match: LoadMatch::Expectation, ..recipe(&files, &fast, &pattern, 60) };
        let counts: Vec<f64> = (0..20).map(|seed| recipe.draw(seed).len() as f64).collect();
        let mean = counts.iter().sum::<f64>() / 20.0;
        // The mean of twenty Poisson counts, to four standard deviations.
        assert!((mean - 3300.0).abs() < 4.0 * (3300.0_f64 / 20.0).sqrt(), "{mean}");
        assert!(counts.iter().any(|&count| count != mean));
    }

    #[test]
    fn a_pattern_that_is_silent_for_the_whole_run_gives_nothing() {
        let (files, link, pattern) = (files(), link(100), "60s@0,60s@1".parse().unwrap());
        for load_match in [LoadMatch::Sequence, LoadMatch::Expectation] {
            assert!(Recipe { load_match, ..recipe(&files, &link, &pattern, 10) }.draw(1).is_empty());
        }
    }

    #[test]
    fn surges_files_come_in_open_loop_at_the_load_and_in_their_order() {
        let site = crate::surge::Site::new(&crate::surge::Surge::default(), 1000, 1).unwrap();
        let (link, pattern) = (link(10), Pattern::constant(0.8).unwrap());
        let requests = recipe(site.file_set(), &link, &pattern, 60).draw(3);
        let load = wire_bytes(&requests) / (60.0 * 1_250_000.0);
        // Half of the largest file, 3 MB, is 2 % of the run.
        assert!((load - 0.8).abs() < 0.02, "{load}");
        // Temporal locality: among independent requests, every other file would be deeper than a hundred
        // others.
        let near = requests
            .iter()
            .enumerate()
            .skip(20)
            .filter(|&(i, request)| requests[i - 20..i].iter().any(|other| other.file == request.file))
            .count() as f64;
        assert!(near / requests.len() as f64 > 0.7, "{near} of {}", requests.len());
    }
}
