//! Packets under way, each with its time of arrival at the other end.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Packets in the order of their arrival times; equal ones in the order in which they entered.
#[derive(Debug)]
pub(super) struct DelayLine<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    entered: u64,
    capacity: usize,
}

impl<T> DelayLine<T> {
    /// At most `capacity` packets are on their way.
    pub(super) fn new(capacity: usize) -> Self {
        Self { heap: BinaryHeap::new(), entered: 0, capacity }
    }

    pub(super) fn is_full(&self) -> bool {
        self.heap.len() >= self.capacity
    }

    /// Adds a packet.
    ///
    /// # Panics
    ///
    /// If the line is full.
    pub(super) fn push(&mut self, due_ns: u64, packet: T) {
        assert!(!self.is_full(), "the caller asks first");
        self.heap.push(Reverse(Entry { due_ns, number: self.entered, packet }));
        self.entered += 1;
    }

    /// When the next packet is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        Some(self.heap.peek()?.0.due_ns)
    }

    /// The next packet due by now, and the time at which it was due.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.due_ns, entry.packet))
    }
}

#[derive(Debug)]
struct Entry<T> {
    due_ns: u64,
    number: u64,
    packet: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_when_they_are_due_and_not_before() {
        let mut line = DelayLine::new(10);
        for (due_ns, packet) in [(30, 'c'), (10, 'a'), (20, 'b')] {
            line.push(due_ns, packet);
        }
        assert_eq!((line.next_due_ns(), line.pop_due(9)), (Some(10), None));
        assert_eq!(line.pop_due(25), Some((10, 'a')));
        assert_eq!(line.pop_due(25), Some((20, 'b')));
        assert_eq!((line.pop_due(25), line.next_due_ns()), (None, Some(30)));
        assert_eq!((line.pop_due(30), line.next_due_ns()), (Some((30, 'c')), None));
    }

    #[test]
    fn packets_due_together_keep_their_order() {
        let mut line = DelayLine::new(100);
        (0..100).for_each(|packet| line.push(7, packet));
        let order: Vec<i32> = std::iter::from_fn(|| Some(line.pop_due(7)?.1)).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_line_says_so() {
        let mut line = DelayLine::new(1);
        line.push(1, ());
        assert!(line.is_full());
        line.pop_due(1);
        assert!(!line.is_full());
    }
}
