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
    /// Round trips that are [`CLIENT_KNOWN_NS`] apart, and when the last of them came.
    visits: u32,
    visited: Instant,
    /// Of recent visits, the part that began with a round trip hardly longer than the shortest one.
    as_short: f64,
}

/// How much longer a round trip is than the shortest one of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub ns: u64,
    /// Whether the shortest one is guessed.
    pub is_guessed: bool,
}

/// A round trip beside others of its client or of its neighbours.
struct Compared {
    /// `None` if they are not known yet.
    excess: Option<Excess>,
    /// Hardly longer than the shortest one.
    is_short: bool,
    visits: u32,
    /// Whether the last visit begins with it.
    begins_visit: bool,
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
/// Neighbours are equally far if this part of so many visits begins with a round trip as short as the shortest one, but for a
/// little. Then a client is compared with itself from this visit on: each of two or three may have met a queue.
const ALIKE_PART: f64 = 0.125;
const ALIKE_OF: f64 = 64.0;
const AS_SHORT_NS: u64 = MS / 4;
const ALIKE_VISITS: u32 = 4;

impl Paths {
    /// Whether a round trip of this client has been seen.
    pub fn has_seen(&self, path: u64) -> bool {
        self.clients.bases.contains_key(&path)
    }

    /// The excess of a round trip over the shortest one of its client, or of its neighbours. `None` if neither is known. A
    /// client that is new, and has no neighbours, is taken to have the excess that is guessed, if one is.
    pub fn above_shortest(&mut self, now: Instant, path: u64, rtt_ns: u64, guess_ns: Option<u64>) -> Option<Excess> {
        let neighbours = self.neighbours.compare(now, path >> NEIGHBOUR_BITS, rtt_ns, NEIGHBOURS_KNOWN_NS, None);
        let guess_ns = guess_ns.filter(|_| neighbours.excess.is_none()).map(|guess_ns| guess_ns.min(rtt_ns));
        let client = self.clients.compare(now, path, rtt_ns, CLIENT_KNOWN_NS, guess_ns);
        let (first, second) = if self.prefers_neighbours(path, &neighbours, &client) {
            (neighbours, client)
        } else {
            (client, neighbours)
        };
        first.excess.or(second.excess)
    }

    /// Whether the client is to be compared with its neighbours: it has come seldom, and they are equally far, as this round trip
    /// and earlier ones show.
    fn prefers_neighbours(&mut self, path: u64, neighbours: &Compared, client: &Compared) -> bool {
        let came_seldom = client.visits < ALIKE_VISITS;
        if !came_seldom && !client.begins_visit {
            return false;
        }
        let Some(base) = self.neighbours.bases.get_mut(&(path >> NEIGHBOUR_BITS)) else { return false };
        if client.begins_visit {
            base.as_short += (if neighbours.is_short { 1.0 } else { 0.0 } - base.as_short) / ALIKE_OF;
        }
        came_seldom && base.as_short >= ALIKE_PART
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
    fn compare(&mut self, now: Instant, number: u64, rtt_ns: u64, known_ns: u64, guess_ns: Option<u64>) -> Compared {
        if self.bases.len() >= MOST && !self.bases.contains_key(&number) {
            if now.ns_since(self.pruned) >= PRUNE_NS {
                self.pruned = now;
                self.bases.retain(|_, base| now.ns_since(base.window_began) < WINDOW_NS);
            }
            if self.bases.len() >= MOST {
                let excess = guess_ns.map(|ns| Excess { ns, is_guessed: true });
                return Compared { excess, is_short: false, visits: 0, begins_visit: false };
            }
        }
        let first_known = self.began.get_or_insert(now).add_ns(known_ns);
        let base = self.bases.entry(number).or_insert(Base {
            window_began: now,
            shortest_ns: rtt_ns - guess_ns.unwrap_or(0),
            shortest_before_ns: u64::MAX,
            guessed_until: if guess_ns.is_some() { now.add_ns(known_ns) } else { now },
            known_from: if guess_ns.is_some() { now.max(first_known) } else { now.add_ns(known_ns) },
            visits: 0,
            visited: now,
            as_short: 0.0,
        });
        if now.ns_since(base.window_began) >= WINDOW_NS {
            base.shortest_before_ns = base.shortest_ns;
            base.shortest_ns = rtt_ns;
            base.window_began = now;
        }
        base.shortest_ns = base.shortest_ns.min(rtt_ns);
        let shortest_ns = base.shortest_ns.min(base.shortest_before_ns);
        let begins_visit = base.visits == 0 || now.ns_since(base.visited) >= CLIENT_KNOWN_NS;
        if begins_visit {
            base.visits = base.visits.saturating_add(1);
            base.visited = now;
        }
        let excess = Excess { ns: rtt_ns - shortest_ns, is_guessed: now < base.guessed_until };
        Compared {
            excess: (now >= base.known_from).then_some(excess),
            is_short: excess.ns <= AS_SHORT_NS,
            visits: base.visits,
            begins_visit,
        }
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
    fn where_neighbours_are_alike_one_that_met_a_queue_is_compared_with_them() {
        // On its visits a client meets a queue. Before them, some of its neighbours meet the same one, and others none.
        let above_ms = |all: usize, with_queue: usize, visits: u64| {
            let mut paths = Paths::default();
            let neighbour = |n: usize| NEIGHBOURHOOD + 1 + n as u64;
            for n in 0..400 {
                let rtt_ms = if n % all < with_queue { 60 } else { 10 };
                paths.above_shortest(at(n as u64), neighbour(n), rtt_ms * MS, None);
            }
            let mut visit =
                |n| paths.above_shortest(at(1_000 + 2_500 * n), NEIGHBOURHOOD, 60 * MS, None).map(|it| it.ns / MS);
            (0..visits).filter_map(&mut visit).last()
        };
        assert_eq!(above_ms(4, 3, 2), Some(50), "a quarter met no queue");
        assert_eq!(above_ms(4, 3, 3), Some(50));
        assert_eq!(above_ms(4, 3, 4), Some(0), "by now it is known to be farther");
        assert_eq!(above_ms(50, 49, 2), Some(0), "one in fifty is near");
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
