//! Temporal locality: in which order files are asked for.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use super::LogNormal;

/// Stack distances are told apart up to here. At SURGE's parameters one in 16,000 is longer.
const REACH: usize = 96;
/// The stack is cut off here if what lies there has had its requests.
const DEPTH: usize = 256;
/// Requests of all files, on average, between two of a file that is active; fewer only for files so popular that they are
/// active throughout and must be asked for more often. Found by trying 8 to 32, as were the next three.
const SPACING: f64 = 32.0;
/// Files that are active at least, while any wait to be.
const LEAST_ACTIVE: usize = 4;
/// What it weighs that a file is a request behind, against a distance that is short of a request.
const URGENCY: f64 = 0.3;
/// Share of its requests that a file may be behind by as if it were one request.
const TOLERANCE: f64 = 0.0003;

/// The order in which files are asked for: each as often as its popularity says, and at stack distances of a lognormal law.
///
/// A file asked for is put on top of a stack; the depth at which it is found the next time is its stack distance (1 for the
/// same file twice in a row). Under a law as short as SURGE's only some twenty files at the top are ever asked for again, while
/// Zipf's law wants the requests spread over all. Barford and Crovella reconcile the two over a whole run: a file that has had
/// its requests gives way to others. They take a file from near the distance that was drawn, by the requests that it has
/// left; here the choice is wider, and the distances are kept account of:
///
/// - Requests come in *rounds*; in each, every file has its share of them, to within one. It becomes active at a random time,
///   early enough to have them all, and is active until it has had them.
/// - At each step a distance is drawn, and its account is credited. Then some active file is taken, and the account of the
///   distance at which it lay is debited. Taken is the file whose distance brings the accounts, as a cumulative distribution,
///   best into balance, with some weight on how far it is behind.
///
/// So shares are exact, and distances follow their law about as closely as a sample of it would: in rounds of 16,000 and more
/// mostly to within 1 % (Kolmogorov-Smirnov; 1.5 % at most in 24 seeds). In rounds of 2,000, where every third request is for a file
/// that is new, it is 2 to 5 %, and shorter ones have too few distances to speak of a law.
///
/// A step costs some hundreds of additions; the beginning of a round O(n log n).
#[derive(Debug)]
pub(crate) struct Walk {
    law: LogNormal,
    rng: ChaCha12Rng,
    /// Share of the requests that ask for this file or one before it.
    ends: Vec<f64>,
    /// Requests in a round.
    round: u64,
    /// Requests of this round so far.
    made: u64,
    files: Vec<File>,
    /// When files become active in this round; the next is last.
    waiting: Vec<(f64, u32)>,
    active: usize,
    /// Files in the order in which they were last asked for; the top is last. All that are active are here.
    stack: Vec<u32>,
    /// For each distance: times that it was drawn, less those that it was used. Longer ones are counted as the longest.
    accounts: [i64; REACH + 1],
}

/// A file in its round.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// Requests that it has in the round.
    share: u64,
    /// Of these, those still to come. It is active if there are some and it is on the stack.
    left: u64,
    /// Requests of all files over which its own are spread.
    span: f64,
    /// When it became active.
    since: u64,
    is_active: bool,
}

impl Walk {
    /// For files of these popularities. `expected` is the number of requests that will be asked for, 0 if it is not known; a
    /// round is that long, and otherwise so long that the least popular file has about one request.
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

    /// The next file.
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

    /// A file's first request of the round, which has no distance.
    fn bring_in(&mut self, number: u32) -> u32 {
        // It may lie there from the round before.
        self.stack.retain(|&other| other != number);
        let file = &mut self.files[number as usize];
        (file.is_active, file.since) = (true, self.made);
        self.active += 1;
        number
    }

    /// Takes an active file from the stack. There is one: a round is over when all have had their requests.
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

    /// For each distance, how much less out of balance the accounts are once it has been used: the sum, over it and all
    /// longer ones, of the squares of the accounts up to there. Short distances weigh more, as in a sum over logarithms.
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

    /// Gives every file its requests of the round, and decides when it becomes active.
    fn begin_round(&mut self) {
        self.made = 0;
        let round = self.round as f64;
        // Points at equal distances from a random first one, over the files laid side by side: each file gets the whole number
        // below or above its share, on average its share, and neighbours in size make up for each other.
        let offset: f64 = self.rng.random();
        let mut from = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let points = (end * round - offset).ceil().max(0.0) as u64;
            // The last takes what rounding left.
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
    /// Requests that it should have had by now, less those that it had; relative to its share if that is large.
    fn behind(&self, made: u64) -> f64 {
        let planned = (made - self.since) as f64 * self.share as f64 / self.span;
        (planned - (self.share - self.left) as f64) / (1.0 + self.share as f64 * TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sequence::stream, surge::Surge};

    /// Zipf's law over this many files, in an order that has nothing to do with their numbers.
    fn zipf(files: usize) -> Vec<f64> {
        let sum: f64 = (1..=files).map(|rank| 1.0 / rank as f64).sum();
        // 7919 is prime and divides none of the numbers of files here.
        (0..files).map(|file| 1.0 / ((file * 7919 % files) + 1) as f64 / sum).collect()
    }

    fn walk(files: usize, expected: usize, seed: u64) -> Walk {
        Walk::new(zipf(files).into_iter(), Surge::default().stack_distance, expected, stream(seed, 0))
    }

    /// Stack distances by looking them up in a list of all that was asked for; those asked for the first time have none.
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

    /// The greatest distance between the distribution of whole numbers and the law of which they are rounded up.
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
            // Stratified, so nearer than independent draws; to four of their standard deviations.
            assert!((count - share * 200_000.0).abs() < 4.0 * (share * 200_000.0).sqrt(), "{file}: {count}");
        }
    }

    #[test]
    fn popular_files_are_asked_for_throughout() {
        let numbers = walk(2000, 16_000, 2).take(16_000);
        let favourite = zipf(2000).iter().position(|&share| share > 0.12).unwrap();
        for part in numbers.chunks(1_000) {
            let count = part.iter().filter(|&&number| number as usize == favourite).count();
            // Its share is 122; more at first, while few others are active.
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
