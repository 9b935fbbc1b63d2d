//! Records whose time jumps ahead of all before them. The jump is real where a log pauses, and false where a
//! line is damaged. The following records decide, so such a record is held back until they have come.

use std::collections::VecDeque;

use super::MAX_DISORDER_NS;

/// A record that is held back.
#[derive(Debug)]
pub(super) struct Held {
    /// Number of its line or record.
    pub(super) number: u64,
    /// Its time in nanoseconds.
    pub(super) at_ns: u64,
    /// Its line, or its bytes in a binary format.
    pub(super) piece: Vec<u8>,
}

/// The records that are held back, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    /// The latest confirmed time.
    latest_ns: Option<u64>,
    held: VecDeque<Held>,
}

/// Number of held records, the jump included, from which on a jump counts as real if none contradicts it.
const CONFIRMED: usize = 4;

impl Jumps {
    /// Removes the next held record that a record of this time contradicts. The new record's time is back
    /// where the log was before the jump.
    pub(super) fn pop_contradicted(&mut self, at_ns: u64) -> Option<Held> {
        if self.latest_ns.is_some_and(|latest_ns| latest_ns > at_ns.saturating_add(MAX_DISORDER_NS)) {
            // The new record is itself far behind the log, so it contradicts nothing.
            return None;
        }
        let wrong = self.held.iter().position(|held| held.at_ns > at_ns.saturating_add(MAX_DISORDER_NS))?;
        self.held.remove(wrong)
    }

    /// Whether a record of this time must be held back. Records that it contradicts must have been removed
    /// before. If the record is not held back, its time counts as confirmed.
    pub(super) fn must_hold(&mut self, at_ns: u64) -> bool {
        let must_hold = !self.held.is_empty() || self.is_jump(at_ns);
        if !must_hold {
            self.latest_ns = self.latest_ns.max(Some(at_ns));
        }
        must_hold
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.held.push_back(held);
    }

    /// Removes the next held record that is confirmed.
    pub(super) fn pop_sure(&mut self) -> Option<Held> {
        let first = self.held.front()?;
        if self.held.len() < CONFIRMED && self.is_jump(first.at_ns) { None } else { self.pop() }
    }

    /// Removes the next held record at the end of the log, where no record can contradict it any more.
    pub(super) fn pop(&mut self) -> Option<Held> {
        let first = self.held.pop_front()?;
        self.latest_ns = self.latest_ns.max(Some(first.at_ns));
        Some(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether this time is a jump. The first record counts as one, because it may be damaged too.
    fn is_jump(&self, at_ns: u64) -> bool {
        self.latest_ns.is_none_or(|latest_ns| at_ns > latest_ns.saturating_add(MAX_DISORDER_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, from 1, of the records that were accepted and of those that were contradicted.
    fn sorted(hours: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut jumps = Jumps::default();
        let (mut through, mut contradicted) = (Vec::new(), Vec::new());
        for (number, &hour) in (1..).zip(hours) {
            let at_ns = hour * MAX_DISORDER_NS;
            contradicted.extend(std::iter::from_fn(|| jumps.pop_contradicted(at_ns)).map(|held| held.number));
            if jumps.must_hold(at_ns) {
                jumps.hold(Held { number, at_ns, piece: Vec::new() });
            } else {
                through.push(number);
            }
            through.extend(std::iter::from_fn(|| jumps.pop_sure()).map(|held| held.number));
            assert!(jumps.held.len() < CONFIRMED);
        }
        through.extend(std::iter::from_fn(|| jumps.pop()).map(|held| held.number));
        (through, contradicted)
    }

    #[test]
    fn one_wrong_time_ahead_is_found_wherever_it_is() {
        for wrong in 0..9 {
            let mut hours = [5; 10];
            hours[wrong] = 500;
            let right = (1..=10).filter(|&number| number != wrong as u64 + 1).collect();
            assert_eq!(sorted(&hours), (right, vec![wrong as u64 + 1]));
        }
    }

    #[test]
    fn pauses_are_no_wrong_times_and_every_record_keeps_its_place() {
        for hours in [&[1, 1, 20, 20, 20, 20, 20][..], &[1, 3, 5, 7, 9, 11, 13], &[1, 1, 1, 20], &[1, 9]] {
            assert_eq!(sorted(hours), ((1..=hours.len() as u64).collect(), vec![]), "{hours:?}");
        }
    }

    #[test]
    fn a_wrong_time_behind_contradicts_nothing() {
        let hours = [100, 100, 100, 100, 100, 103, 2, 106, 109, 112];
        assert_eq!(sorted(&hours), ((1..=10).collect(), vec![]));
    }
}
