//! The waiting requests of one class, in order.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{RequestId, Turn};
use crate::time::Instant;

/// Which request of a class goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fifo,
    /// First come, first served, until the oldest has waited for half as long as clients are willing to; then last come, first
    /// served, until it has not. How long that is, is learned from those that leave (`patience.rs` beside this file), and is
    /// never more than [`crate::class::Class::most_wait_ns`]. Where no client leaves
    /// and none waits for half of that, this is [`QueueOrder::Fifo`].
    Adaptive,
    /// Shortest expected service first.
    Shortest,
    /// [`QueueOrder::Adaptive`] with a fixed limit: last come, first served, while the oldest has waited for longer than
    /// `after_ns` nanoseconds. Under overload not all can be served in time, and those who came last still wait for it.
    LifoUnderOverload {
        /// The wait that means overload.
        after_ns: u64,
    },
    /// Everybody in turn: clients by their keys, each client's requests as they came.
    FairAmongClients,
}

/// A place among the waiting: those who are not late first, then by the order's number, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub late: bool,
    pub place: u64,
    pub id: RequestId,
}

/// What orders look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks {
    pub id: RequestId,
    pub arrived: Instant,
    pub expected_ns: u64,
    pub client: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    order: QueueOrder,
    line: BTreeSet<Rank>,
    rounds: Rounds,
}

impl Queue {
    pub fn new(order: QueueOrder) -> Self {
        Self { order, line: BTreeSet::new(), rounds: Rounds::default() }
    }

    pub fn len(&self) -> usize {
        self.line.len()
    }

    pub fn insert(&mut self, asks: &Asks) -> Rank {
        let place = match self.order {
            QueueOrder::Fifo => 0,
            QueueOrder::Shortest => asks.expected_ns,
            QueueOrder::Adaptive | QueueOrder::LifoUnderOverload { .. } => asks.arrived.as_ns(),
            QueueOrder::FairAmongClients => self.rounds.join(asks.client),
        };
        let rank = Rank { late: false, place, id: asks.id };
        self.line.insert(rank);
        self.rounds.bound(self.line.len());
        rank
    }

    /// Puts a request behind all that are not late.
    pub fn set_late(&mut self, rank: Rank) -> Rank {
        let late = Rank { late: true, ..rank };
        if self.line.remove(&rank) {
            self.line.insert(late);
        }
        late
    }

    /// Takes out a request that goes now.
    pub fn take(&mut self, rank: Rank, client: u64) {
        self.line.remove(&rank);
        if self.order == QueueOrder::FairAmongClients {
            self.rounds.serve(client, rank.place);
            self.rounds.bound(self.line.len());
        }
    }

    /// Takes out a request that is not to be served.
    pub fn withdraw(&mut self, rank: Rank, client: u64) {
        self.line.remove(&rank);
        if self.order == QueueOrder::FairAmongClients {
            self.rounds.leave(client);
            self.rounds.bound(self.line.len());
        }
    }

    /// Who goes next. `patience_ns` is how long clients are willing to wait ([`QueueOrder::Adaptive`]).
    pub fn first(&self, now: Instant, patience_ns: Option<u64>) -> Option<(Rank, Turn)> {
        let first = *self.line.first()?;
        if self.line.len() == 1 {
            return Some((first, Turn::Only));
        }
        if self.is_overloaded(now, patience_ns) {
            return Some((self.newest_in_time().unwrap_or(first), Turn::Newest));
        }
        Some((first, Turn::First))
    }

    /// Who would go last if nobody else came: whoever is refused when there are too many.
    pub fn last(&self, now: Instant, patience_ns: Option<u64>) -> Option<Rank> {
        if !self.is_overloaded(now, patience_ns) {
            return self.line.last().copied();
        }
        self.late().next().or_else(|| self.line.first()).copied()
    }

    /// Only an order that turns round has an overload.
    fn is_overloaded(&self, now: Instant, patience_ns: Option<u64>) -> bool {
        let after_ns = match self.order {
            QueueOrder::LifoUnderOverload { after_ns } => Some(after_ns),
            // The other half is for the service, and for those that are less patient.
            QueueOrder::Adaptive => patience_ns.map(|patience_ns| patience_ns / 2),
            QueueOrder::Fifo | QueueOrder::Shortest | QueueOrder::FairAmongClients => None,
        };
        let Some(after_ns) = after_ns else { return false };
        // By arrival, so the oldest stands first among those in time, or first among the late.
        let oldest = self.line.first().into_iter().chain(self.late().next());
        oldest
            .map(|rank| now.ns_since(Instant::from_ns(rank.place)))
            .max()
            .is_some_and(|waited_ns| waited_ns > after_ns)
    }

    /// The newest of those who are not late, or, if all are, of all.
    fn newest_in_time(&self) -> Option<Rank> {
        self.line.range(..FIRST_LATE).next_back().or_else(|| self.line.last()).copied()
    }

    fn late(&self) -> impl Iterator<Item = &Rank> {
        self.line.range(FIRST_LATE..)
    }
}

/// Stands before all that are late, and behind all others.
const FIRST_LATE: Rank = Rank { late: true, place: 0, id: RequestId { sequence: 0, index: 0 } };

/// Turns among clients: each request belongs to a round, a client has one request in each, and rounds are served one after
/// the other. A newcomer joins the round being served.
#[derive(Clone, Debug, Default)]
struct Rounds {
    current: u64,
    /// Clients whose next request does not belong to the current round.
    clients: BTreeMap<u64, Client>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    next_round: u64,
    waiting: u32,
}

impl Rounds {
    fn join(&mut self, key: u64) -> u64 {
        let client = self.clients.entry(key).or_insert(Client { next_round: 0, waiting: 0 });
        let round = client.next_round.max(self.current);
        client.next_round = round.saturating_add(1);
        client.waiting += 1;
        round
    }

    fn serve(&mut self, key: u64, round: u64) {
        self.current = self.current.max(round);
        if let Some(client) = self.clients.get_mut(&key) {
            client.waiting = client.waiting.saturating_sub(1);
        }
    }

    fn leave(&mut self, key: u64) {
        if let Some(client) = self.clients.get_mut(&key) {
            client.waiting = client.waiting.saturating_sub(1);
            // It was not served, so it still has a turn.
            client.next_round = client.next_round.saturating_sub(1);
        }
    }

    /// Forgets clients that have nobody waiting. They are remembered for the rest of the round in which they were served; a
    /// round that has seen twice as many clients as there are waiting is over.
    fn bound(&mut self, waiting: usize) {
        if self.clients.len() <= 2 * waiting + 64 {
            return;
        }
        let current = self.current;
        self.clients.retain(|_, client| client.waiting > 0 || client.next_round > current);
        if self.clients.len() > 2 * waiting + 64 {
            self.current += 1;
            self.clients.retain(|_, client| client.waiting > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::String, vec::Vec};

    use super::*;

    fn asks(sequence: u64, client: u64) -> Asks {
        let arrived = Instant::from_ns(sequence);
        Asks { id: RequestId { sequence, index: 0 }, arrived, expected_ns: 0, client }
    }

    /// Serves all that wait; each as the letter of its client.
    fn served(queue: &mut Queue, clients: &[(Rank, char)], now: Instant) -> String {
        let mut letters = String::new();
        while let Some((rank, _)) = queue.first(now, None) {
            let (_, client) = clients.iter().find(|(of, _)| of.id == rank.id).unwrap();
            queue.take(rank, *client as u64);
            letters.push(*client);
        }
        letters
    }

    fn fill(queue: &mut Queue, clients: &str) -> Vec<(Rank, char)> {
        clients.chars().zip(1..).map(|(client, i)| (queue.insert(&asks(i, client as u64)), client)).collect()
    }

    #[test]
    fn clients_take_turns_however_much_one_of_them_asks() {
        let mut queue = Queue::new(QueueOrder::FairAmongClients);
        let waiting = fill(&mut queue, "AAAAABBC");
        assert_eq!(served(&mut queue, &waiting, Instant::ORIGIN), "ABCABAAA");
    }

    #[test]
    fn a_client_that_asks_again_when_it_is_served_does_not_shut_the_others_out() {
        let mut queue = Queue::new(QueueOrder::FairAmongClients);
        let mut waiting = fill(&mut queue, "AAAB");
        let mut letters = String::new();
        for i in 100..106 {
            let (rank, _) = queue.first(Instant::ORIGIN, None).unwrap();
            let client = waiting.iter().find(|(of, _)| of.id == rank.id).unwrap().1;
            queue.take(rank, client as u64);
            letters.push(client);
            if client == 'B' {
                waiting.push((queue.insert(&asks(i, 'B' as u64)), 'B'));
            }
        }
        assert_eq!(letters, "ABABAB");
    }

    #[test]
    fn a_client_that_gave_up_keeps_its_turn() {
        let mut queue = Queue::new(QueueOrder::FairAmongClients);
        let waiting = fill(&mut queue, "AAABB");
        queue.withdraw(waiting[3].0, 'B' as u64);
        queue.withdraw(waiting[4].0, 'B' as u64);
        let again = queue.insert(&asks(9, 'B' as u64));
        let all: Vec<_> = waiting.into_iter().chain([(again, 'B')]).collect();
        assert_eq!(served(&mut queue, &all, Instant::ORIGIN), "ABAA");
    }

    #[test]
    fn clients_that_come_once_are_forgotten() {
        let mut queue = Queue::new(QueueOrder::FairAmongClients);
        let mut rank = queue.insert(&asks(1, 0));
        for i in 1..10_000 {
            let next = queue.insert(&asks(i + 1, i));
            queue.take(rank, i - 1);
            rank = next;
            assert!(queue.rounds.clients.len() <= 2 * queue.len() + 65);
        }
    }

    #[test]
    fn who_waited_too_long_turns_the_line_round() {
        let order = QueueOrder::LifoUnderOverload { after_ns: 100 };
        let mut queue = Queue::new(order);
        let waiting = fill(&mut queue, "ABC");
        assert_eq!(
            queue.first(Instant::from_ns(50), None).map(|(rank, turn)| (rank.id.sequence, turn)),
            Some((1, Turn::First))
        );
        assert_eq!(queue.last(Instant::from_ns(50), None).map(|rank| rank.id.sequence), Some(3));
        assert_eq!(queue.last(Instant::from_ns(102), None).map(|rank| rank.id.sequence), Some(1));
        assert_eq!(served(&mut queue, &waiting, Instant::from_ns(102)), "CBA");
    }

    #[test]
    fn under_overload_too_the_late_go_behind_those_in_time() {
        let mut queue = Queue::new(QueueOrder::LifoUnderOverload { after_ns: 100 });
        let mut waiting = fill(&mut queue, "ABCD");
        waiting[1].0 = queue.set_late(waiting[1].0);
        waiting[3].0 = queue.set_late(waiting[3].0);
        assert_eq!(queue.last(Instant::from_ns(500), None).map(|rank| rank.id.sequence), Some(2));
        assert_eq!(served(&mut queue, &waiting, Instant::from_ns(500)), "CADB");
    }
}
