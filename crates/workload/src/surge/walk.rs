//! Temporal locality: in which order files are asked for.

use std::collections::VecDeque;

use rand::{RngExt, seq::SliceRandom};
use rand_chacha::ChaCha12Rng;

use super::LogNormal;

/// Files that are being asked for at one time. More make long stack distances possible; fewer let the rest of the files
/// come up more evenly. A lognormal distance at SURGE's parameters is above it once in a thousand times.
const ACTIVE: usize = 48;
/// Distances drawn ahead, from which one is taken that suits.
const AHEAD: usize = 32;
/// Steps after which a distance that suited nothing is used for what is nearest to it.
const PATIENCE: u64 = 128;
/// The stack is cut off here, below the reach of any file that is still active.
const DEPTH: usize = 8 * ACTIVE;

/// The order in which files are asked for: each as often as its popularity says, and at the stack distances of a lognormal law.
///
/// A file asked for is put on top of a stack; the depth at which it is found the next time is its stack distance (1 for the
/// same file twice in a row). Barford and Crovella draw a distance and look for a file near it that has requests left. Here the
/// requests are divided into *rounds*, and in each round every file has its number of requests, to within one:
///
/// - A few dozen files are active. When one has had its requests, the next comes in; it had no stack distance before.
/// - Distances are drawn a few dozen ahead, and each step uses one at whose depth an active file lies. So which file comes
///   is chosen among several, yet the distances *used* are those drawn: their law is kept to within those still ahead.
/// - Files so popular that they must be active throughout go first when they are behind their share of the round; the others
///   take the oldest distance that fits.
///
/// O(1) a request, apart from the beginning of a round.
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
    /// Files that are still to come in this round; the next is last.
    waiting: Vec<u32>,
    /// Files in the order in which they were last asked for; the top is last.
    stack: Vec<u32>,
    /// How many files are active.
    active: usize,
    /// Files that are active throughout the round.
    steady: Vec<u32>,
    /// Distances drawn, and the step at which each was; the oldest first.
    ahead: VecDeque<(u64, u64)>,
    step: u64,
}

/// A file in its round.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// Requests that it has in the round.
    share: u64,
    /// Of these, those still to come.
    left: u64,
    /// Whether it has come in, and has requests left.
    is_active: bool,
    is_steady: bool,
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
        Self {
            law,
            rng,
            files: vec![File::default(); ends.len()],
            ends,
            round,
            made: 0,
            waiting: Vec::new(),
            stack: Vec::new(),
            active: 0,
            steady: Vec::new(),
            ahead: VecDeque::new(),
            step: 0,
        }
    }

    /// The next file.
    pub(crate) fn next_file(&mut self) -> u32 {
        if self.made == self.round || self.step == 0 {
            self.begin_round();
        }
        let file = match self.waiting.pop() {
            Some(new) if self.active < ACTIVE => self.bring_in(new),
            waiting => {
                self.waiting.extend(waiting);
                self.come_back()
            }
        };
        self.stack.push(file);
        if self.stack.len() > DEPTH && !self.files[self.stack[0] as usize].is_active {
            self.stack.remove(0);
        }
        let entry = &mut self.files[file as usize];
        entry.left = entry.left.saturating_sub(1);
        if entry.left == 0 {
            entry.is_active = false;
            self.active -= 1;
        }
        self.made += 1;
        self.step += 1;
        file
    }

    fn bring_in(&mut self, file: u32) -> u32 {
        self.files[file as usize].is_active = true;
        self.active += 1;
        // It may lie there from the round before.
        self.stack.retain(|&other| other != file);
        file
    }

    /// Takes an active file from the stack, at a distance that was drawn.
    fn come_back(&mut self) -> u32 {
        while self.ahead.len() < AHEAD {
            let distance = self.law.draw(&mut self.rng).ceil().clamp(1.0, 1e15) as u64;
            self.ahead.push_back((distance, self.step));
        }
        let is_due = |distance: u64| -> Option<(f64, u32)> {
            let file = *self.stack.get(self.stack.len().checked_sub(distance as usize)?)?;
            let entry = self.files[file as usize];
            // What a steady file is behind by; the others are never behind, nor ahead.
            let behind = if entry.is_steady {
                entry.share as f64 * (self.made as f64 / self.round as f64) - (entry.share - entry.left) as f64
            } else {
                0.0
            };
            entry.is_active.then_some((behind, file))
        };
        let is_impatient = self.ahead[0].1 + PATIENCE < self.step;
        let mut best: Option<(f64, usize)> = None;
        for (index, &(distance, _)) in self.ahead.iter().enumerate() {
            if let Some((behind, _)) = is_due(distance)
                && best.is_none_or(|(most, _)| behind > most)
            {
                best = Some((behind, index));
            }
        }
        let (index, depth) = match best {
            Some((_, index)) if !is_impatient => (index, self.ahead[index].0 as usize),
            _ => (0, self.active_depth_near(self.ahead[0].0)),
        };
        self.ahead.remove(index);
        self.stack.remove(self.stack.len() - depth)
    }

    /// The depth nearest to `distance` at which an active file lies. There is one while a round is not over.
    fn active_depth_near(&self, distance: u64) -> usize {
        let depths =
            (1..=self.stack.len()).filter(|depth| self.files[self.stack[self.stack.len() - depth] as usize].is_active);
        depths.min_by_key(|&depth| (depth as u64).abs_diff(distance)).unwrap_or(1)
    }

    /// Gives every file its requests of the round, and decides the order in which files come in.
    fn begin_round(&mut self) {
        self.made = 0;
        // Points at equal distances from a random first one, over the files laid side by side: each file gets the whole number
        // below or above its share, on average its share, and neighbours in size make up for each other.
        let offset: f64 = self.rng.random();
        let points_before = |place: f64| (place * self.round as f64 - offset).ceil().max(0.0) as u64;
        let mut from = 0;
        for (file, &end) in self.files.iter_mut().zip(&self.ends) {
            let until = points_before(end).min(self.round).max(from);
            *file = File { share: until - from, left: until - from, is_active: false, is_steady: false };
            from = until;
        }
        // What rounding cost.
        if let Some(last) = self.files.last_mut() {
            last.share += self.round - from;
            last.left = last.share;
        }
        for file in &mut self.files {
            file.is_steady = file.share * ACTIVE as u64 > self.round;
        }
        let _ = &self.steady;
        let steady: u64 = self.files.iter().filter(|f| f.is_steady).map(|f| f.share).sum();
        let places = (ACTIVE - self.files.iter().filter(|f| f.is_steady).count().min(ACTIVE - 1)) as f64;
        let rate = (self.round - steady) as f64 / self.round as f64 / places;
        self.waiting = (0..self.files.len() as u32).filter(|&f| self.files[f as usize].share > 0).collect();
        self.waiting.shuffle(&mut self.rng);
        let mut keyed: Vec<(f64, u32)> = self
            .waiting
            .iter()
            .map(|&f| {
                let file = self.files[f as usize];
                if file.is_steady {
                    return (-1.0, f);
                }
                let takes = file.share as f64 / rate;
                (self.rng.random::<f64>() * (self.round as f64 - takes).max(0.0), f)
            })
            .collect();
        keyed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        self.waiting = keyed.into_iter().map(|(_, f)| f).collect();
        self.active = 0;
    }
}
