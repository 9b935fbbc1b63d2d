//! Whether a queue that a client met is that of the uplink, or that of the client's own line.
//!
//! The line of a client is often slower than the uplink. Then TCP makes a queue before it, and all round trips to this
//! client are long. The queue of the uplink meets all clients, and becomes shorter by one second in a second at most. So
//! it is refuted by a packet of another client that was sent later by `d`, and met less than that queue minus `d`.
//!
//! A queue that is not refuted counts, with an exception. If another client met far less a moment before, the queue waits
//! until another client meets one at the same time. Where queues were refuted lately, each one waits.

use alloc::collections::VecDeque;

use super::sample::Sample;
use crate::time::{Instant, MS};

/// What is known of the clients that meet queues.
#[derive(Clone, Debug, Default)]
pub(super) struct Voices {
    last_path: Option<u64>,
    /// When two round trips in a row were of two clients.
    differed_at: Option<Instant>,
    /// Queues that no other client has met yet, the oldest first.
    alone: VecDeque<Sample>,
    /// When queues were refuted last, the newest first.
    refuted: [Option<Instant>; REFUTED_OFTEN],
}

/// What other clients say of a queue.
enum Verdict {
    Counts,
    /// Others meet it, too.
    Confirmed,
    Alone,
    Refuted,
}

/// With other clients in this time, a client is one of several; and so long a queue waits to be confirmed.
const KEEP_NS: u64 = 2_000 * MS;
/// A shorter excess is no queue, whoever meets it.
const QUEUE_LEAST_NS: u64 = 2 * MS;
/// So many round trips are looked through, and of those of other clients that were sent before, so many.
const LOOKS_THROUGH: usize = 128;
const BEFORE_MOST: usize = 8;
/// A queue of the uplink grows by so many seconds in a second, if the link has become so much slower.
const GROWS_MOST: u64 = 3;
/// If so many queues were refuted within this time, some clients have slow lines.
const REFUTED_OFTEN: usize = 3;
const REFUTED_NS: u64 = 10_000 * MS;

impl Voices {
    /// Whether other clients have a say in what this round trip met. Each one is asked for, in the order of time.
    pub fn doubts(&mut self, new: &Sample) -> bool {
        if self.last_path.replace(new.path).is_some_and(|before| before != new.path) {
            self.differed_at = Some(new.at);
        }
        let is_one_of_several = self.differed_at.is_some_and(|at| new.at.ns_since(at) <= KEEP_NS);
        is_one_of_several && new.above_ns.is_some_and(|above_ns| above_ns > QUEUE_LEAST_NS)
    }

    /// Adds a round trip to those that count, with those that it confirms, unless it has to wait or is refuted. `level_ns`:
    /// how far round trips are above the shortest without a queue.
    pub fn handle_doubted(&mut self, new: Sample, level_ns: u64, counted: &mut VecDeque<Sample>) {
        let now = new.at;
        let is_old = |it: &Sample| now.ns_since(it.at) > KEEP_NS;
        while self.alone.len() > LOOKS_THROUGH || self.alone.front().is_some_and(is_old) {
            self.alone.pop_front();
        }
        match self.verdict(&new, 2 * level_ns + QUEUE_LEAST_NS, counted) {
            Verdict::Refuted => {
                self.refuted.rotate_right(1);
                self.refuted[0] = Some(now);
            }
            Verdict::Alone => self.alone.push_back(new),
            Verdict::Confirmed => {
                let (confirmed, alone): (VecDeque<_>, _) = self.alone.iter().partition(|it| is_confirmed(it, &new));
                self.alone = alone;
                for it in confirmed {
                    let place = counted.partition_point(|other| other.at <= it.at);
                    counted.insert(place, it);
                }
                counted.push_back(new);
            }
            Verdict::Counts => counted.push_back(new),
        }
    }

    /// The queues that no other client has met yet.
    pub fn alone(&self) -> impl Iterator<Item = &Sample> {
        self.alone.iter()
    }

    /// Forgets those.
    pub fn clear(&mut self) {
        self.alone.clear();
    }

    /// `spare_ns`: a shorter queue may be jitter.
    fn verdict(&self, new: &Sample, spare_ns: u64, counted: &VecDeque<Sample>) -> Verdict {
        let Some(queue_ns) = new.above_ns.filter(|above_ns| *above_ns > spare_ns) else { return Verdict::Counts };
        let of_others = || counted.iter().rev().take(LOOKS_THROUGH).filter(|it| it.path != new.path);
        let met_ns = |it: &Sample| it.above_ns.unwrap_or(it.rtt_ns) + spare_ns;
        let mut later = of_others().take_while(|it| it.at >= new.sent_at).filter(|it| it.sent_at >= new.sent_at);
        if later.any(|it| met_ns(it) + it.sent_at.ns_since(new.sent_at) < queue_ns) {
            return Verdict::Refuted;
        }
        let are_slow_lines = self.refuted[REFUTED_OFTEN - 1].is_some_and(|at| new.at.ns_since(at) <= REFUTED_NS);
        let before = of_others().filter(|it| it.sent_at <= new.sent_at).take(BEFORE_MOST);
        let most_ns = before.map(|it| met_ns(it) + GROWS_MOST * new.sent_at.ns_since(it.sent_at)).min();
        let met_queue = |it: &&Sample| it.above_ns.is_some_and(|above_ns| above_ns > spare_ns);
        let mut with_queue = of_others().filter(met_queue).chain(&self.alone);
        if !are_slow_lines && most_ns.is_none_or(|most_ns| queue_ns <= most_ns)
            || with_queue.any(|it| is_confirmed(it, new))
        {
            Verdict::Confirmed
        } else {
            Verdict::Alone
        }
    }
}

/// Whether two clients have met a queue at the same time.
fn is_confirmed(one: &Sample, other: &Sample) -> bool {
    let passed_at = |it: &Sample| it.sent_at.add_ns(it.above_ns.unwrap_or(0));
    one.path != other.path && one.sent_at <= passed_at(other) && other.sent_at <= passed_at(one)
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    /// The samples that count after these, each with its client, when it was sent, and its queue, in milliseconds. Level 0.
    fn counted(met: &[(u64, u64, u64)]) -> Vec<(u64, u64)> {
        let (mut voices, mut samples) = (Voices::default(), VecDeque::new());
        let mut all: Vec<Sample> =
            met.iter().map(|&(path, sent_ms, queue_ms)| sample(path, sent_ms, queue_ms)).collect();
        all.sort_by_key(|it| it.at);
        for it in all {
            if voices.doubts(&it) {
                voices.handle_doubted(it, 0, &mut samples);
            } else {
                samples.push_back(it);
            }
        }
        let is_in_order = samples.iter().zip(samples.iter().skip(1)).all(|(a, b)| a.at <= b.at);
        assert!(is_in_order);
        samples.iter().map(|it| (it.path, it.sent_at.as_ns() / MS)).collect()
    }

    fn sample(path: u64, sent_ms: u64, queue_ms: u64) -> Sample {
        Sample::met(path, Instant::from_ns(sent_ms * MS), queue_ms * MS)
    }

    #[test]
    fn a_client_alone_has_nobody_to_contradict_it() {
        assert_eq!(counted(&[(1, 0, 0), (1, 10, 300), (1, 20, 0)]).len(), 3);
    }

    #[test]
    fn a_queue_that_a_later_packet_of_another_client_did_not_meet_is_not_the_uplinks() {
        assert_eq!(counted(&[(1, 0, 0), (2, 1, 0), (1, 10, 300), (2, 30, 0)]), [(1, 0), (2, 1), (2, 30)]);
        // It may have passed by then.
        assert_eq!(counted(&[(1, 0, 0), (2, 1, 0), (1, 10, 20), (2, 40, 0)]).len(), 4);
        assert_eq!(counted(&[(1, 0, 0), (2, 1, 0), (1, 10, 300), (1, 30, 0)]).len(), 3, "one does not refute itself");
    }

    #[test]
    fn a_queue_that_grew_faster_than_the_uplinks_can_waits_for_another_client_that_met_it() {
        let before = [(1, 0, 0), (2, 100, 0)];
        let with = |more: &[(u64, u64, u64)]| counted(&[&before, more].concat());
        assert_eq!(with(&[(1, 150, 140)]).len(), 3, "a link of a quarter of the rate may have made it");
        assert_eq!(with(&[(1, 150, 300)]), [(1, 0), (2, 100)]);
        assert_eq!(with(&[(1, 150, 300), (2, 250, 250)]).len(), 4);
        assert_eq!(with(&[(1, 150, 300), (2, 500, 250)]), [(1, 0), (2, 100), (2, 500)], "that one began later");
    }

    #[test]
    fn where_clients_have_slow_lines_each_queue_waits_for_another_client() {
        let mut met = vec![(1, 0, 0), (2, 1, 0)];
        met.extend((1..=3).flat_map(|n| [(1, 1_000 * n, 300), (2, 1_000 * n + 30, 0)]));
        let count = counted(&met).len();
        met.push((1, 3_350, 140));
        assert_eq!(counted(&met).len(), count);
        met.push((2, 3_400, 200));
        assert_eq!(counted(&met).len(), count + 2);
    }
}
