//! The requests of a run, drawn from a seed: when, which file, how large.

use std::{fmt, str::FromStr};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Poisson};
use serde::{Deserialize, Serialize};

use crate::{pattern::Pattern, rate::Link, sizes::FileSet, wire::WireModel};

/// A request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When to send it, in nanoseconds since the start of the run, whatever became of the requests before it.
    pub at_ns: u64,
    /// Number of the file.
    pub file: u32,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Number of the client group that asks.
    #[serde(default)]
    pub group: u16,
}

/// How a nominal load becomes a number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadMatch {
    /// As many requests as make the bytes of *this* sequence equal the load over the whole run, as the papers do when they
    /// scale a trace. Under a heavy tail it is what keeps short runs comparable: a minute at 10 Mbit/s strays by 10 %.
    #[default]
    Sequence,
    /// As many as a Poisson process gives whose *expected* bytes equal the load.
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

/// A text that names no [`LoadMatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadMatchError(String);

impl fmt::Display for LoadMatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not say how a load is met: use `sequence` or `expectation`", self.0)
    }
}

impl std::error::Error for LoadMatchError {}

/// What a sequence is drawn from.
#[derive(Clone, Debug)]
pub struct Recipe<'a> {
    /// The files asked for.
    pub files: &'a FileSet,
    /// The link. Where its rate changes, the requests follow: a load is a fraction of the rate at the time.
    pub link: &'a Link,
    /// How the load moves.
    pub pattern: &'a Pattern,
    /// Time over which requests are sent, in nanoseconds.
    pub duration_ns: u64,
    /// What a request costs the link.
    pub wire: WireModel,
    /// How the load is met.
    pub load_match: LoadMatch,
}

impl Recipe<'_> {
    /// Draws the requests: a Poisson process whose intensity follows the load, sizes independent of the times.
    ///
    /// Given their number, the arrivals of a Poisson process are independent and spread as its intensity, so the number is
    /// found first and the times are drawn after. Sizes and times come from separate streams of the seed.
    pub fn draw(&self, seed: u64) -> Vec<Request> {
        let offered = Offered::new(self.link, self.pattern, self.duration_ns);
        let mut times = ChaCha12Rng::seed_from_u64(seed);
        let mut sizes = ChaCha12Rng::seed_from_u64(seed);
        sizes.set_stream(1);

        let files = match self.load_match {
            LoadMatch::Sequence => self.draw_bytes(offered.total_bytes(), &mut sizes),
            LoadMatch::Expectation => {
                let mean_bytes = self.files.mean_of(|size| self.wire.bytes_for(size));
                let expected = offered.total_bytes() / mean_bytes;
                // A Poisson law refuses only a mean that is not positive: then there is nothing to send.
                let count = Poisson::new(expected).map_or(0, |law| law.sample(&mut times) as usize);
                (0..count).map(|_| self.files.draw(&mut sizes)).collect()
            }
        };
        let mut at: Vec<f64> = files.iter().map(|_| times.random::<f64>() * offered.total_bytes()).collect();
        at.sort_unstable_by(f64::total_cmp);
        at.into_iter()
            .zip(files)
            .map(|(bytes, file)| Request {
                at_ns: offered.when(bytes) as u64,
                file,
                size_bytes: self.files.sizes_bytes()[file as usize],
                group: 0,
            })
            .collect()
    }

    /// Files whose wire bytes come as near to `bytes` as the last one allows.
    fn draw_bytes(&self, bytes: f64, rng: &mut ChaCha12Rng) -> Vec<u32> {
        let mut files = Vec::new();
        let mut sum = 0.0;
        loop {
            let file = self.files.draw(rng);
            let next = sum + self.wire.bytes_for(self.files.sizes_bytes()[file as usize]) as f64;
            if next >= bytes {
                // Always taking, or always leaving, the one that crosses would favour or shun the large ones.
                if next - bytes < bytes - sum {
                    files.push(file);
                }
                return files;
            }
            files.push(file);
            sum = next;
        }
    }
}

/// Bytes asked for since the start, as a function of time: load times rate, summed up.
struct Offered {
    /// `(until_ns, bytes asked for until then)`, rising; the first is (0, 0).
    corners: Vec<(f64, f64)>,
}

impl Offered {
    fn new(link: &Link, pattern: &Pattern, duration_ns: u64) -> Self {
        let mut corners = vec![(0.0, 0.0)];
        let mut bytes = 0.0;
        for (from_ns, until_ns, load) in pattern.phases().take_while(|&(from, ..)| from < duration_ns) {
            let until_ns = until_ns.min(duration_ns);
            let cuts = link.changes().iter().map(|&(at, _)| at).filter(|&at| from_ns < at && at < until_ns);
            let mut from_ns = from_ns;
            for cut in cuts.chain([until_ns]) {
                bytes += load * (link.capacity_at(cut as f64) - link.capacity_at(from_ns as f64));
                corners.push((cut as f64, bytes));
                from_ns = cut;
            }
        }
        Self { corners }
    }

    fn total_bytes(&self) -> f64 {
        self.corners[self.corners.len() - 1].1
    }

    /// When the given bytes have been asked for.
    fn when(&self, bytes: f64) -> f64 {
        let after = self.corners.partition_point(|&(_, until)| until <= bytes).clamp(1, self.corners.len() - 1);
        let ((from_ns, from), (until_ns, until)) = (self.corners[after - 1], self.corners[after]);
        if until <= from { from_ns } else { from_ns + (until_ns - from_ns) * (bytes - from) / (until - from) }
    }
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
        // Exponential gaps: a share 1 - 1/e lies below the mean, and the squared coefficient of variation is 1.
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
}
