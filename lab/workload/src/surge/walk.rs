//! Temporal locality: the order in which files are requested.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use super::law::LogNormal;

/// Stack distances are distinguished up to here. At SURGE's parameters one in 16,000 is longer.
const REACH: usize = 96;
/// The stack is cut off here if the files below have had their requests.
const DEPTH: usize = 256;
/// Mean number of requests of all files between two for an active file. It is smaller only for very popular
/// files that are active all the time. Found by trying 8 to 32; the next three constants were found in the
/// same way.
const SPACING: f64 = 32.0;
/// Least number of active files, while any file waits.
const LEAST_ACTIVE: usize = 4;
/// Weight of a file being one request behind, against a distance that is one request short.
const URGENCY: f64 = 0.3;
/// Fraction of a file's requests that counts like one request when it is behind.
const TOLERANCE: f64 = 0.0003;

/// The order in which files are requested: each as often as its popularity says, at stack distances of a
/// lognormal law.
///
/// A requested file goes to the top of a stack. The depth at which it is found the next time is its stack
/// distance (1 for the same file twice in a row). Under a law as short as SURGE's only about twenty files at
/// the top are ever requested again, while Zipf's law spreads the requests over all files. Barford and
/// Crovella reconcile the two over a whole run: a file that has had its requests gives way to others. They
/// pick a file near the drawn distance, by the requests that it has left. Here the choice is wider, and
/// accounts are kept of the distances:
///
/// - Requests come in *rounds*; in each, every file has its share of them, to within one. A file becomes
///   active at a random time, early enough to have all its requests, and is active until it has had them.
/// - At each step a distance is drawn, and its account is credited. Then an active file is taken, and the
///   account of its real distance is debited. The file is the one whose distance best balances the accounts,
///   as a cumulative distribution. A part of the weight is on how far the file is behind.
///
/// So shares are exact, and distances follow their law about as closely as a random sample would. In rounds
/// of 16,000 and more the error is mostly within 1 % (Kolmogorov-Smirnov; at most 1.5 % in 24 seeds). In
/// rounds of 2,000, where every third request is for a new file, it is 2 to 5 %. Shorter rounds have too few
/// distances to follow a law.
///
/// A step costs some hundreds of additions; the start of a round O(n log n).
#[derive(Debug)]
pub(crate) struct Walk {
    law: LogNormal,
    rng: ChaCha12Rng,
    /// Cumulative popularity of the files.
    ends: Vec<f64>,
    /// Requests in a round.
    round: u64,
    /// Requests of this round so far.
    made: u64,
    files: Vec<File>,
    /// When files become active in this round; the last entry is the next.
    waiting: Vec<(f64, u32)>,
    active: usize,
    /// Files in the order of their last requests, with the top last. It contains all active files.
    stack: Vec<u32>,
    /// For each distance: times drawn less times used. Longer ones count as the longest.
    accounts: [i64; REACH + 1],
}

/// The state of a file in its round.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// Its requests in the round.
    share: u64,
    /// Its requests that are left. The file is active if there are some and it is on the stack.
    left: u64,
    /// Requests of all files over which its own are spread.
    span: f64,
    /// When it became active.
    since: u64,
    is_active: bool,
}

impl Walk {
    /// For files of these popularities. `expected` is the total number of requests, 0 if unknown. A round has
    /// that length, or is so long that the least popular file has about one request.
    pub(crate) fn new(
        popularity: impl Iterator<Item = f64>,
        law: LogNormal,
        expected: usize,
        rng: ChaCha12Rng,
    ) -> Self {
        let mut least = 1.0;
        let mut end = 0.0;
        let ends: Vec<f64> = popularity
            .map(|share| {
                if share > 0.0 {
                    least = f64::min(least, share);
                }
                end += share;
                end
            })
            .collect();
        let round = if expected > 0 { expected as u64 } else { (1.0 / least).ceil().min(1e8) as u64 };
        let mut walk = Self {
            law,
            rng,
            files: vec![File::default(); ends.len()],
            ends,
            round,
            made: 0,
            waiting: Vec::new(),
            active: 0,
            stack: Vec::new(),
            accounts: [0; REACH + 1],
        };
        walk.begin_round();
        walk
    }

    /// Returns the next file.
    pub(crate) fn next_file(&mut self) -> u32 {
        if self.made == self.round {
            self.begin_round();
        }
        let is_due = |&mut (at, _): &mut (f64, u32)| self.active < LEAST_ACTIVE || at <= self.made as f64;
        let number = match self.waiting.pop_if(is_due) {
            Some((_, new)) => self.bring_in(new),
            None => self.come_back(),
        };
        self.stack.push(number);
        let file = &mut self.files[number as usize];
        file.left -= 1;
        if file.left == 0 {
            file.is_active = false;
            self.active -= 1;
        }
        if self.stack.len() > DEPTH && !self.files[self.stack[0] as usize].is_active {
            self.stack.remove(0);
        }
        self.made += 1;
        number
    }

    /// Makes the first request of a file in the round, which has no distance.
    fn bring_in(&mut self, number: u32) -> u32 {
        // It may still be on the stack from the round before.
        self.stack.retain(|&other| other != number);
        let file = &mut self.files[number as usize];
        (file.is_active, file.since) = (true, self.made);
        self.active += 1;
        number
    }

    /// Takes an active file from the stack. One exists, since a round ends when all files have had their
    /// requests.
    fn come_back(&mut self) -> u32 {
        let drawn = self.law.draw(&mut self.rng).ceil().clamp(1.0, REACH as f64) as usize;
        self.accounts[drawn] += 1;
        let wanted = self.wanted();
        let (mut best, mut best_score) = (1, f64::NEG_INFINITY);
        let mut active_above = 0;
        for (depth, &number) in (1..).zip(self.stack.iter().rev()) {
            let file = &self.files[number as usize];
            if !file.is_active {
                continue;
            }
            let score = wanted[depth.min(REACH)] + URGENCY * file.behind(self.made);
            if score > best_score {
                (best, best_score) = (depth, score);
            }
            active_above += 1;
            if active_above == self.active {
                break;
            }
        }
        self.accounts[best.min(REACH)] -= 1;
        self.stack.remove(self.stack.len() - best)
    }

    /// For each distance, the improvement of the balance if it is used: the sum, over it and all longer ones,
    /// of the squares of the cumulative accounts. Short distances weigh more, as in a sum over logarithms.
    fn wanted(&self) -> [f64; REACH + 1] {
        let mut wanted = [0.0; REACH + 1];
        let mut up_to = 0;
        for (distance, (wanted, account)) in wanted.iter_mut().zip(self.accounts).enumerate().skip(1) {
            up_to += account;
            // Half of x^2 - (x - 1)^2.
            *wanted = (up_to as f64 - 0.5) / distance as f64;
        }
        for distance in (1..REACH).rev() {
            wanted[distance] += wanted[distance + 1];
        }
        wanted
    }

    /// Gives every file its requests of the round, and the time when it becomes active.
    fn begin_round(&mut self) {
        self.made = 0;
        let round = self.round as f64;
        // Equidistant points with a random start are laid over the files side by side. Each file gets its
        // share rounded up or down, on average its exact share, and neighbours in size compensate each other.
        let offset: f64 = self.rng.random();
        let mut from = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let points = (end * round - offset).ceil().max(0.0) as u64;
            // The last file takes the rounding error.
            let until = if index + 1 == self.ends.len() { self.round } else { points.clamp(from, self.round) };
            let share = until - from;
            let span = (share as f64 * SPACING).min(round);
            self.files[index] = File { share, left: share, span, since: 0, is_active: false };
            if share > 0 {
                self.waiting.push((self.rng.random::<f64>() * (round - span), index as u32));
            }
            from = until;
        }
        self.waiting.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    }
}

impl File {
    /// Planned requests by now less requests made; relative to its share if that is large.
    fn behind(&self, made: u64) -> f64 {
        let planned = (made - self.since) as f64 * self.share as f64 / self.span;
        (planned - (self.share - self.left) as f64) / (1.0 + self.share as f64 * TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sequence::stream, surge::Surge};

    /// Zipf's law over this many files, in an order unrelated to their numbers.
    fn zipf(files: usize) -> Vec<f64> {
        let sum: f64 = (1..=files).map(|rank| 1.0 / rank as f64).sum();
        // 7919 is prime and divides none of the file counts here.
        (0..files).map(|file| 1.0 / ((file * 7919 % files) + 1) as f64 / sum).collect()
    }

    fn walk(files: usize, expected: usize, seed: u64) -> Walk {
        Walk::new(zipf(files).into_iter(), Surge::default().stack_distance, expected, stream(seed, 0))
    }

    /// Stack distances found by searching a list of all requests; first requests have none.
    fn distances(numbers: &[u32]) -> Vec<usize> {
        let mut stack: Vec<u32> = Vec::new();
        let mut distances = Vec::new();
        for &number in numbers {
            if let Some(place) = stack.iter().rposition(|&other| other == number) {
                distances.push(stack.len() - place);
                stack.remove(place);
            }
            stack.push(number);
        }
        distances
    }

    /// The greatest distance between the distribution of integers and the law whose values they round up.
    fn kolmogorov_smirnov(values: &[usize], law: LogNormal) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let at_most = |x: usize| sorted.partition_point(|&value| value <= x) as f64 / sorted.len() as f64;
        (1..=3000).map(|x| (at_most(x) - law.cdf(x as f64)).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn stack_distances_are_lognormal() {
        for seed in 0..3 {
            let numbers = walk(2000, 16_000, seed).take(16_000);
            let distances = distances(&numbers);
            assert!(distances.len() > 13_000);
            let distance = kolmogorov_smirnov(&distances, Surge::default().stack_distance);
            // The critical value at the 1 % level, which assumes independent draws.
            assert!(distance < 1.628 / (distances.len() as f64).sqrt(), "seed {seed}: {distance}");
        }
    }

    #[test]
    fn the_order_is_not_that_of_independent_requests() {
        let popularity = zipf(2000);
        let mut rng = stream(1, 0);
        let weighted: Vec<(u64, f64)> = popularity.iter().map(|&share| (1, share)).collect();
        let files = crate::sizes::FileSet::weighted(&weighted).unwrap();
        let numbers: Vec<u32> = (0..16_000).map(|_| files.draw(&mut rng)).collect();
        assert!(kolmogorov_smirnov(&distances(&numbers), Surge::default().stack_distance) > 0.5);
    }

    #[test]
    fn every_file_has_its_share_of_each_round() {
        for (files, round) in [(2000, 16_000), (2000, 900), (100, 5_000), (1, 50), (7, 3)] {
            let mut walk = walk(files, round, 4);
            for _ in 0..2 {
                let numbers = walk.take(round);
                for (file, share) in zipf(files).into_iter().enumerate() {
                    let count = numbers.iter().filter(|&&number| number as usize == file).count() as f64;
                    assert!((count - share * round as f64).abs() < 1.0 + 1e-9, "{files} {round} {file}: {count}");
                }
            }
        }
    }

    #[test]
    fn over_many_short_rounds_every_file_has_its_popularity() {
        // Rounds of 20 requests for 100 files: most have none in most rounds.
        let mut walk = walk(100, 20, 4);
        let numbers = walk.take(200_000);
        for (file, share) in zipf(100).into_iter().enumerate() {
            let count = numbers.iter().filter(|&&number| number as usize == file).count() as f64;
            // Stratified, so closer than independent draws; the limit is four of their standard deviations.
            assert!((count - share * 200_000.0).abs() < 4.0 * (share * 200_000.0).sqrt(), "{file}: {count}");
        }
    }

    #[test]
    fn popular_files_are_asked_for_throughout() {
        let numbers = walk(2000, 16_000, 2).take(16_000);
        let favourite = zipf(2000).iter().position(|&share| share > 0.12).unwrap();
        for part in numbers.chunks(1_000) {
            let count = part.iter().filter(|&&number| number as usize == favourite).count();
            // Its share is 122; more at first, while few other files are active.
            assert!((60..250).contains(&count), "{count}");
        }
    }

    #[test]
    fn a_round_whose_length_is_not_told_has_every_file() {
        let mut walk = walk(300, 0, 1);
        let round = walk.round as usize;
        // 300 times the sum of 1/r up to 300.
        assert_eq!(round, 1885);
        let mut numbers = walk.take(round);
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() > 295, "{}", numbers.len());
    }

    impl Walk {
        fn take(&mut self, count: usize) -> Vec<u32> {
            (0..count).map(|_| self.next_file()).collect()
        }
    }
}
