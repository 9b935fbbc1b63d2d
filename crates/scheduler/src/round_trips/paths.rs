//! The shortest round trip of each client, and of its neighbours.

use alloc::collections::BTreeMap;

use crate::time::{Instant, MS};

/// The shortest round trips of clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    clients: Shortest,
    /// Of neighbours together.
    neighbours: Shortest,
}

/// By number.
#[derive(Clone, Debug, Default)]
struct Shortest {
    bases: BTreeMap<u64, Base>,
    /// When the first one was seen.
    began: Option<Instant>,
    /// When old ones were last taken out.
    pruned: Instant,
}

/// The shortest round trip, in this window of time and the one before.
#[derive(Clone, Copy, Debug)]
struct Base {
    window_began: Instant,
    shortest_ns: u64,
    shortest_before_ns: u64,
    known_from: Instant,
    /// Until then the shortest one is a guess: the first one was taken to have the excess that was guessed.
    guessed_until: Instant,
}

/// How much longer a round trip is than the shortest one of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub ns: u64,
    /// Whether the shortest one is guessed.
    pub is_guessed: bool,
}

/// Neighbours differ in so many of the lowest bits of their number.
const NEIGHBOUR_BITS: u32 = 16;
const WINDOW_NS: u64 = 15_000 * MS;
/// So many are known at most. Old ones are taken out so often.
const MOST: usize = 4096;
const PRUNE_NS: u64 = 1_000 * MS;
/// A round trip is compared with those of its neighbours when they have been known for the first of these times. It is
/// compared with those of its own client when that has been known for the second. A client that came a moment ago may have
/// met nothing but a queue.
const NEIGHBOURS_KNOWN_NS: u64 = 20 * MS;
const CLIENT_KNOWN_NS: u64 = 2_000 * MS;

impl Paths {
    /// Whether a round trip of this client has been seen.
    pub fn has_seen(&self, path: u64) -> bool {
        self.clients.bases.contains_key(&path)
    }

    /// The excess of a round trip over the shortest one of its client, or of its neighbours. `None` if neither is known. A
    /// client that is new, and has no neighbours, is taken to have the excess that is guessed, if one is.
    pub fn above_shortest(&mut self, now: Instant, path: u64, rtt_ns: u64, guess_ns: Option<u64>) -> Option<Excess> {
        let of_neighbours = self.neighbours.above(now, path >> NEIGHBOUR_BITS, rtt_ns, NEIGHBOURS_KNOWN_NS, None);
        let guess_ns = guess_ns.filter(|_| of_neighbours.is_none()).map(|guess_ns| guess_ns.min(rtt_ns));
        self.clients.above(now, path, rtt_ns, CLIENT_KNOWN_NS, guess_ns).or(of_neighbours)
    }

    /// All round trips have become longer by this.
    pub fn handle_longer(&mut self, by_ns: u64) {
        for base in self.clients.bases.values_mut().chain(self.neighbours.bases.values_mut()) {
            base.shortest_ns = base.shortest_ns.saturating_add(by_ns);
            base.shortest_before_ns = base.shortest_before_ns.saturating_add(by_ns);
        }
    }
}

impl Shortest {
    /// A path is known after this time. One with a guess for its first round trip is known at once, but none is before the first
    /// ones are.
    fn above(
        &mut self,
        now: Instant,
        number: u64,
        rtt_ns: u64,
        known_ns: u64,
        guess_ns: Option<u64>,
    ) -> Option<Excess> {
        if self.bases.len() >= MOST && !self.bases.contains_key(&number) {
            if now.ns_since(self.pruned) >= PRUNE_NS {
                self.pruned = now;
                self.bases.retain(|_, base| now.ns_since(base.window_began) < WINDOW_NS);
            }
            if self.bases.len() >= MOST {
                return guess_ns.map(|ns| Excess { ns, is_guessed: true });
            }
        }
        let first_known = self.began.get_or_insert(now).add_ns(known_ns);
        let base = self.bases.entry(number).or_insert(Base {
            window_began: now,
            shortest_ns: rtt_ns - guess_ns.unwrap_or(0),
            shortest_before_ns: u64::MAX,
            guessed_until: if guess_ns.is_some() { now.add_ns(known_ns) } else { now },
            known_from: if guess_ns.is_some() { now.max(first_known) } else { now.add_ns(known_ns) },
        });
        if now.ns_since(base.window_began) >= WINDOW_NS {
            base.shortest_before_ns = base.shortest_ns;
            base.shortest_ns = rtt_ns;
            base.window_began = now;
        }
        base.shortest_ns = base.shortest_ns.min(rtt_ns);
        let shortest_ns = base.shortest_ns.min(base.shortest_before_ns);
        let is_guessed = now < base.guessed_until;
        (now >= base.known_from).then(|| Excess { ns: rtt_ns - shortest_ns, is_guessed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEIGHBOURHOOD: u64 = 5 << NEIGHBOUR_BITS;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * MS)
    }

    #[test]
    fn a_client_is_compared_with_its_neighbours_until_it_is_known_itself() {
        let mut paths = Paths::default();
        let mut above_ms = |now_ms, host, rtt_ms: u64| {
            let above = paths.above_shortest(at(now_ms), NEIGHBOURHOOD + host, rtt_ms * MS, None);
            above.map(|above| above.ns / MS)
        };
        assert_eq!(above_ms(0, 1, 10), None, "nobody is known");
        assert_eq!(above_ms(100, 2, 40), Some(30), "a neighbour is");
        assert_eq!(above_ms(1_000, 2, 41), Some(31));
        assert_eq!(above_ms(2_200, 2, 45), Some(5), "so is the client");
        assert_eq!(above_ms(2_200, 1, 12), Some(2));
        assert_eq!(above_ms(2_200, 1 << NEIGHBOUR_BITS, 90), None, "others are no neighbours");
    }

    fn known(ms: u64) -> Option<Excess> {
        Some(Excess { ns: ms * MS, is_guessed: false })
    }

    #[test]
    fn a_client_that_is_new_has_the_excess_that_is_guessed() {
        let mut paths = Paths::default();
        let mut above = |now_ms, client: u64, rtt_ms: u64, guess_ms: u64| {
            let above = paths.above_shortest(at(now_ms), client << NEIGHBOUR_BITS, rtt_ms * MS, Some(guess_ms * MS));
            above.map(|above| (above.ns / MS, above.is_guessed))
        };
        assert_eq!(above(0, 1, 30, 10), None, "none is known before the first one is");
        assert_eq!(above(3_000, 1, 32, 90), Some((12, false)), "that one is known by now");
        assert_eq!(above(3_000, 2, 90, 12), Some((12, true)));
        assert_eq!(above(4_000, 2, 98, 90), Some((20, true)));
        assert_eq!(above(5_000, 2, 98, 90), Some((20, false)));
        assert_eq!(above(5_000, 3, 15, 20), Some((15, true)), "it cannot have more than all");
    }

    #[test]
    fn the_shortest_is_forgotten_after_two_windows() {
        let mut paths = Paths::default();
        let window_ms = WINDOW_NS / MS;
        paths.above_shortest(at(0), 7, 10 * MS, None);
        assert_eq!(paths.above_shortest(at(window_ms), 7, 30 * MS, None), known(20));
        assert_eq!(paths.above_shortest(at(2 * window_ms), 7, 31 * MS, None), known(1));
    }

    #[test]
    fn clients_that_are_too_many_are_unknown_until_others_are_old() {
        let mut paths = Paths::default();
        for client in 0..MOST as u64 {
            paths.above_shortest(at(0), client << NEIGHBOUR_BITS, 10 * MS, None);
        }
        let late = 1_000_000 << NEIGHBOUR_BITS;
        paths.above_shortest(at(2_000), late, 10 * MS, None);
        assert_eq!(paths.above_shortest(at(2_100), late, 10 * MS, None), None);
        let guessed = Excess { ns: 4 * MS, is_guessed: true };
        assert_eq!(paths.above_shortest(at(2_100), late, 10 * MS, Some(4 * MS)), Some(guessed));
        assert_eq!(paths.above_shortest(at(2_100), 0, 13 * MS, None), known(3), "those that are known stay so");
        let later_ms = WINDOW_NS / MS + 2_500;
        paths.above_shortest(at(later_ms), late, 10 * MS, None);
        assert_eq!(paths.above_shortest(at(later_ms + 100), late, 14 * MS, None), known(4));
    }
}
