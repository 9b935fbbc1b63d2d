//! A client's TCP: received data and the times of its acknowledgements.

use std::collections::BTreeMap;

/// An acknowledgement of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// All bytes before this offset of the stream have arrived.
    pub next: u64,
    /// The range of out-of-order data with the latest segment.
    pub sack: Option<(u64, u64)>,
    /// The segment was a duplicate.
    pub duplicate: bool,
}

/// A client's side of a connection's stream.
#[derive(Debug)]
pub(super) struct Receiver {
    segment_bytes: u64,
    /// All bytes before this offset have arrived.
    next: u64,
    /// The offset acknowledged last.
    told: u64,
    /// Received ranges beyond `next`, from start to end.
    islands: BTreeMap<u64, u64>,
    /// Acknowledgements that are still sent at once.
    quick: u32,
    /// The client answers what it receives with requests of its own (Linux calls that ping-pong): then only every second full
    /// segment is acknowledged at once. A request acknowledges the rest.
    answers: bool,
    last_ns: u64,
    delayed_until_ns: Option<u64>,
}

/// Linux acknowledges this many segments one by one at the start, and after a pause (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// A pause has the length of the least retransmission time-out.
const PAUSE_NS: u64 = 200_000_000;
/// The delay of an acknowledgement (`TCP_ATO_MIN`).
const DELAY_NS: u64 = 40_000_000;

impl Receiver {
    pub fn new(segment_bytes: u32) -> Self {
        Self {
            segment_bytes: u64::from(segment_bytes),
            next: 0,
            told: 0,
            islands: BTreeMap::new(),
            quick: QUICK_ACKS,
            answers: false,
            last_ns: 0,
            delayed_until_ns: None,
        }
    }

    /// All bytes before this offset of the stream have arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A segment arrived; returns the immediate acknowledgement, if any.
    pub fn handle_data(&mut self, now_ns: u64, seq: u64, payload_bytes: u32, pushed: bool) -> Option<Ack> {
        let end = seq + u64::from(payload_bytes);
        if now_ns.saturating_sub(self.last_ns) > PAUSE_NS {
            self.quick = QUICK_ACKS;
        }
        self.last_ns = now_ns;
        if end <= self.next || self.islands.range(..=seq).next_back().is_some_and(|(_, &to)| end <= to) {
            return Some(self.tell(None, true));
        }
        if seq > self.next {
            let island = self.join(seq, end);
            return Some(self.tell(Some(island), false));
        }
        let filled = !self.islands.is_empty();
        self.next = end;
        while let Some(entry) = self.islands.first_entry().filter(|entry| *entry.key() <= self.next) {
            self.next = self.next.max(entry.remove());
        }
        // A reader that has emptied the socket acknowledges the end of the peer's write at once.
        let at_once = !self.answers && (pushed || self.quick > 0);
        if filled || at_once || self.next - self.told > self.segment_bytes {
            return Some(self.tell(None, false));
        }
        self.delayed_until_ns.get_or_insert(now_ns + DELAY_NS);
        None
    }

    /// The client sends a request; returns what it acknowledges that was not acknowledged before.
    pub fn handle_request(&mut self, now_ns: u64) -> Option<Ack> {
        self.answers |= self.next > 0 && now_ns < self.last_ns + DELAY_NS;
        (self.next > self.told).then(|| self.tell(None, false))
    }

    /// When a delayed acknowledgement is due.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.delayed_until_ns
    }

    /// The delayed acknowledgement, if it is due.
    pub fn handle_timeout(&mut self, now_ns: u64) -> Option<Ack> {
        self.delayed_until_ns.filter(|&at_ns| at_ns <= now_ns)?;
        self.answers = false;
        Some(self.tell(None, false))
    }

    fn tell(&mut self, sack: Option<(u64, u64)>, duplicate: bool) -> Ack {
        self.quick = self.quick.saturating_sub(1);
        self.told = self.next;
        self.delayed_until_ns = None;
        Ack { next: self.next, sack, duplicate }
    }

    fn join(&mut self, mut from: u64, mut to: u64) -> (u64, u64) {
        if let Some((&before, &until)) = self.islands.range(..=from).next_back().filter(|(_, until)| **until >= from) {
            (from, to) = (before, to.max(until));
        }
        while let Some((&after, &until)) = self.islands.range(from..=to).next() {
            self.islands.remove(&after);
            to = to.max(until);
        }
        self.islands.insert(from, to);
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ack(next: u64) -> Option<Ack> {
        Some(Ack { next, sack: None, duplicate: false })
    }

    #[test]
    fn the_first_segments_are_acknowledged_one_by_one_and_then_every_second() {
        let mut receiver = Receiver::new(1000);
        for i in 0..16 {
            assert_eq!(receiver.handle_data(i, i * 1000, 1000, false), ack((i + 1) * 1000));
        }
        assert_eq!(receiver.handle_data(16, 16_000, 1000, false), None);
        assert_eq!(receiver.poll_timeout(), Some(16 + 40 * MS));
        assert_eq!(receiver.handle_data(17, 17_000, 1000, false), ack(18_000));
        assert_eq!(receiver.poll_timeout(), None);
        assert_eq!(receiver.handle_data(18, 18_000, 500, true), ack(18_500), "the write ended");
        assert_eq!(receiver.handle_data(19, 18_500, 1000, false), None);
        assert_eq!(receiver.handle_timeout(19 + 40 * MS), ack(19_500));
        assert_eq!(receiver.handle_data(500 * MS, 19_500, 1000, false), ack(20_500), "after a pause");
    }

    #[test]
    fn a_client_that_asks_again_at_once_acknowledges_with_its_requests() {
        let mut receiver = Receiver::new(1000);
        assert_eq!(receiver.handle_request(0), None);
        assert_eq!(receiver.handle_data(MS, 0, 500, true), ack(500), "the first response");
        assert_eq!(receiver.handle_request(2 * MS), None, "acknowledged already");
        assert_eq!(receiver.handle_data(3 * MS, 500, 500, true), None);
        assert_eq!(receiver.handle_request(5 * MS), ack(1000));
        assert_eq!(receiver.poll_timeout(), None);
        assert_eq!(receiver.handle_data(6 * MS, 1000, 1000, false), None);
        assert_eq!(receiver.handle_data(7 * MS, 2000, 1000, false), ack(3000), "two segments");
        assert_eq!(receiver.handle_data(7 * MS, 3000, 500, true), None);
        assert_eq!(receiver.handle_timeout(47 * MS), ack(3500), "it asked for nothing more");
        assert_eq!(receiver.handle_data(50 * MS, 3500, 500, true), ack(4000));
    }

    #[test]
    fn what_comes_out_of_order_is_told_and_kept() {
        let mut receiver = Receiver::new(10);
        let sacked = |next, from, to| Some(Ack { next, sack: Some((from, to)), duplicate: false });
        assert_eq!(receiver.handle_data(0, 10, 10, false), sacked(0, 10, 20));
        assert_eq!(receiver.handle_data(0, 30, 10, false), sacked(0, 30, 40));
        assert_eq!(receiver.handle_data(0, 20, 10, false), sacked(0, 10, 40));
        assert_eq!(receiver.handle_data(0, 20, 10, false), Some(Ack { next: 0, sack: None, duplicate: true }));
        assert_eq!(receiver.handle_data(0, 50, 10, false), sacked(0, 50, 60));
        assert_eq!(receiver.handle_data(0, 0, 10, false), ack(40));
        assert_eq!(receiver.handle_data(0, 40, 10, false), ack(60));
        assert_eq!(receiver.handle_data(0, 0, 10, false), Some(Ack { next: 60, sack: None, duplicate: true }));
    }
}
