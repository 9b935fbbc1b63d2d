//! The choice between servers that can take a request: one file for each rule.
//!
//! The rules are pure. A rule sees the candidates, and a turn, a random number or a key. It returns the index of a
//! candidate. It has no clock, no I/O and no state. Which servers are candidates is decided in `choice`.

pub(crate) mod budget;
pub(crate) mod hash;
pub(crate) mod least_loaded;
pub(crate) mod power_of_two;
pub(crate) mod round_robin;
pub(crate) mod slow_start;

/// A server that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Requests under way.
    pub(crate) load: u32,
    /// Its part of the requests, relative to the other candidates. Never 0.
    pub(crate) weight: u32,
    /// A number that stays the same over restarts, for [`hash`].
    pub(crate) identity: u64,
}

impl Candidate {
    /// Whether it has less to do for its weight.
    fn is_less_loaded(&self, than: &Self) -> bool {
        u64::from(self.load) * u64::from(than.weight) < u64::from(than.load) * u64::from(self.weight)
    }
}

/// The first candidate where the sum of the weights passes `point`, which is below the sum of all weights.
fn at_point(candidates: &[Candidate], point: u64) -> Option<usize> {
    let mut sum = 0;
    candidates.iter().position(|candidate| {
        sum += u64::from(candidate.weight);
        point < sum
    })
}

fn total_weight(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|candidate| u64::from(candidate.weight)).sum()
}

/// A number below `below`, from a random one.
fn scaled(random: u64, below: u64) -> u64 {
    ((u128::from(random) * u128::from(below)) >> 64) as u64
}

#[cfg(test)]
mod testing {
    use super::Candidate;

    /// Idle candidates of these weights.
    pub(super) fn idle(weights: &[u32]) -> Vec<Candidate> {
        weights.iter().zip(1..).map(|(&weight, identity)| Candidate { load: 0, weight, identity }).collect()
    }
}
