//! Future events, sorted by time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::{connection::ConnectionId, frame::Cargo, receiver::Ack};

/// An event of the packet model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A frame leaves the bottleneck.
    Link,
    /// There may be room for another grant.
    Gate,
    /// A frame of another sender comes to the bottleneck.
    Other,
    /// Uploads of others begin.
    Uploads,
    /// An upload has nothing more to send.
    UploadEnds(ConnectionId),
    /// A SYN has reached the server.
    Syn(ConnectionId),
    /// The client's wait for a SYN-ACK has timed out.
    SynTimeout(ConnectionId),
    /// A request has reached the server, with an acknowledgement; the first one also ends the handshake.
    Request(ConnectionId, Option<Ack>),
    /// The server has the answer ready.
    Answer(ConnectionId),
    /// A frame has reached its client.
    Arrived(ConnectionId, Cargo),
    /// An acknowledgement has reached the server.
    Acked(ConnectionId, Ack),
    /// The server looks whether the last bytes of a response were acknowledged.
    Look(ConnectionId),
    ServerTimeout(ConnectionId),
    ClientTimeout(ConnectionId),
    /// The client has closed after its last response.
    Closed(ConnectionId),
    /// The client has given up.
    Gone(ConnectionId),
}

/// Events by time; events at the same time keep the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Agenda {
    pub fn add(&mut self, at_ns: u64, event: Event) {
        self.heap.push(Reverse(Entry { at_ns, number: self.added, event }));
        self.added += 1;
    }

    pub fn poll_timeout(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }

    /// The next event by `now_ns`, and its time.
    pub fn take(&mut self, now_ns: u64) -> Option<(u64, Event)> {
        if self.poll_timeout()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(Entry { at_ns, event, .. })| (at_ns, event))
    }
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}
