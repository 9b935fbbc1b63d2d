//! The waiting requests of one class, in order.

use alloc::collections::{BTreeMap, BTreeSet};

use super::decision::{RequestId, Turn};
use crate::{class::QueueOrder, time::Instant};

/// A position in the queue: requests that are not late first, then by the order's key, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub late: bool,
    pub key: u64,
    pub id: RequestId,
}

/// A request as the orders see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedRequest {
    pub id: RequestId,
    pub arrived: Instant,
    /// The same for all where deadlines do not decide.
    pub deadline_ns: u64,
    pub expected_ns: u64,
    pub client: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    order: QueueOrder,
    ranks: BTreeSet<Rank>,
    rounds: Rounds,
}

impl Queue {
    pub fn new(order: QueueOrder) -> Self {
        Self { order, ranks: BTreeSet::new(), rounds: Rounds::default() }
    }

    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    pub fn insert(&mut self, request: &QueuedRequest) -> Rank {
        let key = match self.order {
            QueueOrder::Fifo => request.deadline_ns,
            QueueOrder::Shortest => request.expected_ns,
            QueueOrder::Adaptive | QueueOrder::LifoUnderOverload { .. } => request.arrived.as_ns(),
            QueueOrder::FairAmongClients => self.rounds.join(request.client),
        };
        let rank = Rank { late: false, key, id: request.id };
        self.ranks.insert(rank);
        self.rounds.bound(self.ranks.len());
        rank
    }

    /// Puts a request behind all that are not late.
    pub fn set_late(&mut self, rank: Rank) -> Rank {
        let late = Rank { late: true, ..rank };
        if self.ranks.remove(&rank) {
            self.ranks.insert(late);
        }
        late
    }

    /// Removes a request that starts now.
    pub fn take(&mut self, rank: Rank, client: u64) {
        self.ranks.remove(&rank);
        if self.order == QueueOrder::FairAmongClients {
            self.rounds.serve(client, rank.key);
            self.rounds.bound(self.ranks.len());
        }
    }

    /// Removes a request that will not be served.
    pub fn withdraw(&mut self, rank: Rank, client: u64) {
        self.ranks.remove(&rank);
        if self.order == QueueOrder::FairAmongClients {
            self.rounds.leave(client);
            self.rounds.bound(self.ranks.len());
        }
    }

    /// The request that starts next. `patience_ns` is how long clients are willing to wait ([`QueueOrder::Adaptive`]).
    pub fn first(&self, now: Instant, patience_ns: Option<u64>) -> Option<(Rank, Turn)> {
        let first = *self.ranks.first()?;
        if self.ranks.len() == 1 {
            return Some((first, Turn::Only));
        }
        if self.is_overloaded(now, patience_ns) {
            return Some((self.newest_in_time().unwrap_or(first), Turn::Newest));
        }
        Some((first, Turn::First))
    }

    /// The request that would be served last. It is the one to refuse when the queue is too long.
    pub fn last(&self, now: Instant, patience_ns: Option<u64>) -> Option<Rank> {
        if !self.is_overloaded(now, patience_ns) {
            return self.ranks.last().copied();
        }
        self.late().next().or_else(|| self.ranks.first()).copied()
    }

    /// Whether the queue is served newest first now. Only some orders ever are.
    fn is_overloaded(&self, now: Instant, patience_ns: Option<u64>) -> bool {
        let after_ns = match self.order {
            QueueOrder::LifoUnderOverload { after_ns } => Some(after_ns),
            // The other half is for the service, and for clients that are less patient.
            QueueOrder::Adaptive => patience_ns.map(|patience_ns| patience_ns / 2),
            QueueOrder::Fifo | QueueOrder::Shortest | QueueOrder::FairAmongClients => None,
        };
        let Some(after_ns) = after_ns else { return false };
        // Sorted by arrival, so the oldest is the first of those in time, or the first of the late.
        let oldest = self.ranks.first().into_iter().chain(self.late().next());
        oldest.map(|rank| now.ns_since(Instant::from_ns(rank.key))).max().is_some_and(|waited_ns| waited_ns > after_ns)
    }

    /// The newest request that is not late, or the newest of all if all are late.
    fn newest_in_time(&self) -> Option<Rank> {
        self.ranks.range(..FIRST_LATE).next_back().or_else(|| self.ranks.last()).copied()
    }

    fn late(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.range(FIRST_LATE..)
    }
}

/// The rank between the requests in time and the late ones.
const FIRST_LATE: Rank = Rank { late: true, key: 0, id: RequestId { sequence: 0, index: 0 } };

/// Turns among clients. Each request belongs to a round, and a client has one request in each round. Rounds are served one
/// after the other. A new client joins the current round.
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

    /// Forgets clients without waiting requests. A client is remembered for the rest of the round in which it was served.
    /// A round ends when it has seen more than twice as many clients as there are waiting requests.
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

    fn request(sequence: u64, client: u64) -> QueuedRequest {
        let arrived = Instant::from_ns(sequence);
        QueuedRequest { id: RequestId { sequence, index: 0 }, arrived, deadline_ns: 0, expected_ns: 0, client }
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
        clients.chars().zip(1..).map(|(client, i)| (queue.insert(&request(i, client as u64)), client)).collect()
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
                waiting.push((queue.insert(&request(i, 'B' as u64)), 'B'));
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
        let again = queue.insert(&request(9, 'B' as u64));
        let all: Vec<_> = waiting.into_iter().chain([(again, 'B')]).collect();
        assert_eq!(served(&mut queue, &all, Instant::ORIGIN), "ABAA");
    }

    #[test]
    fn clients_that_come_once_are_forgotten() {
        let mut queue = Queue::new(QueueOrder::FairAmongClients);
        let mut rank = queue.insert(&request(1, 0));
        for i in 1..10_000 {
            let next = queue.insert(&request(i + 1, i));
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
