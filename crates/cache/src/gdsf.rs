//! The eviction policy: Greedy Dual-Size Frequency (Cherkasova, 1998), where the cost of an entry is how long the site
//! worked on it.
//!
//! The worth of an entry is `inflation + uses * cost / size`. The entry that is worth least goes, and `inflation` is
//! its worth from then on. So an entry that is not used any more loses its worth compared with newer ones.
//!
//! A use only writes to the entry's own [`Rank`]: the queue has a lower bound of each worth, and is put right when the
//! entry comes up. So uses need no exclusive access, and yet the entry that goes is the same.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// The worth of an entry, from which it is computed.
#[derive(Debug)]
pub struct Rank {
    uses: AtomicU32,
    /// The inflation at the last use, as the bits of an `f64`.
    inflation: AtomicU64,
    /// Cost by size.
    density: f64,
    /// The worth in the queue, as the bits of an `f64`.
    queued: AtomicU64,
}

/// A queue of entries by worth. Entries are numbers; their ranks are with the caller.
#[derive(Debug, Default)]
pub struct Gdsf {
    queue: BTreeSet<(Worth, u64)>,
    inflation: f64,
}

/// A worth, which is never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Worth(f64);

impl Eq for Worth {}

impl Ord for Worth {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Worth {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Rank {
    fn worth(&self) -> f64 {
        f64::from_bits(self.inflation.load(Relaxed)) + f64::from(self.uses.load(Relaxed)) * self.density
    }

    /// How often the entry was used.
    pub fn uses(&self) -> u32 {
        self.uses.load(Relaxed)
    }
}

impl Gdsf {
    /// Takes in an entry that was used so often. The cost is in any unit, the same for all.
    pub fn insert(&mut self, id: u64, uses: u32, cost: u64, size_bytes: u64) -> Rank {
        let rank = Rank {
            uses: AtomicU32::new(uses.max(1)),
            inflation: AtomicU64::new(self.inflation.to_bits()),
            density: cost.max(1) as f64 / size_bytes.max(1) as f64,
            queued: AtomicU64::new(0),
        };
        self.queue_at(id, &rank);
        rank
    }

    /// The entry was used.
    pub fn touch(&self, rank: &Rank) {
        let _ = rank.uses.fetch_update(Relaxed, Relaxed, |uses| uses.checked_add(1));
        rank.inflation.store(self.inflation.to_bits(), Relaxed);
    }

    /// The entry is gone.
    pub fn remove(&mut self, id: u64, rank: &Rank) {
        self.queue.remove(&(Worth(f64::from_bits(rank.queued.load(Relaxed))), id));
    }

    /// Takes the entry out that is worth least. `rank` gives the rank of an entry that was inserted and not removed.
    pub fn pop<'a>(&mut self, rank: impl Fn(u64) -> Option<&'a Rank>) -> Option<u64> {
        loop {
            let (queued, id) = self.queue.pop_first()?;
            let Some(rank) = rank(id) else { continue };
            let worth = rank.worth();
            if worth <= queued.0 {
                self.inflation = self.inflation.max(worth);
                return Some(id);
            }
            self.queue_at(id, rank);
        }
    }

    fn queue_at(&mut self, id: u64, rank: &Rank) {
        let worth = rank.worth();
        rank.queued.store(worth.to_bits(), Relaxed);
        self.queue.insert((Worth(worth), id));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert { cost: u64, size: u64 },
        Touch(usize),
        Remove(usize),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..1000_u64, 1..1000_u64).prop_map(|(cost, size)| Step::Insert { cost, size }),
            4 => any::<usize>().prop_map(Step::Touch),
            1 => any::<usize>().prop_map(Step::Remove),
            2 => Just(Step::Pop),
        ]
    }

    proptest! {
        /// The lazy queue gives up what a plain reading of the definition gives up.
        #[test]
        fn the_least_worth_goes(steps in prop::collection::vec(step(), 1..200)) {
            let mut queue = Gdsf::default();
            let mut ranks: HashMap<u64, Rank> = HashMap::new();
            let mut plain: Vec<(u64, f64, f64, u32)> = Vec::new();
            let mut inflation = 0.0_f64;
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Insert { cost, size } => {
                        ranks.insert(next, queue.insert(next, 1, cost, size));
                        let density = cost as f64 / size as f64;
                        plain.push((next, density, inflation + density, 1));
                        next += 1;
                    }
                    Step::Touch(at) if !plain.is_empty() => {
                        let at = at % plain.len();
                        let entry = &mut plain[at];
                        entry.3 += 1;
                        entry.2 = inflation + f64::from(entry.3) * entry.1;
                        queue.touch(&ranks[&entry.0]);
                    }
                    Step::Remove(at) if !plain.is_empty() => {
                        let (id, ..) = plain.remove(at % plain.len());
                        queue.remove(id, &ranks.remove(&id).unwrap());
                    }
                    Step::Pop => {
                        let least = plain.iter().map(|entry| entry.2).min_by(f64::total_cmp);
                        let popped = queue.pop(|id| ranks.get(&id));
                        prop_assert_eq!(popped.is_some(), least.is_some());
                        if let (Some(id), Some(least)) = (popped, least) {
                            let at = plain.iter().position(|entry| entry.0 == id).unwrap();
                            prop_assert_eq!(plain[at].2, least);
                            plain.remove(at);
                            ranks.remove(&id);
                            inflation = inflation.max(least);
                        }
                    }
                    Step::Touch(_) | Step::Remove(_) => {}
                }
                prop_assert_eq!(queue.len(), plain.len());
            }
        }
    }
}
