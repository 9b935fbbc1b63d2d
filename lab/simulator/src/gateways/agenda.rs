//! Future events, sorted by time.

use std::collections::BTreeMap;

use scheduler::{
    admission::RequestId,
    lease::{Ask, Reply},
};

/// An event. A number of a gateway comes with how often it has begun: events of before its end mean nothing to it.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The next request of the random stream comes.
    Arrival,
    /// A user of a class comes to a gateway.
    User { gateway: usize, class: u16 },
    /// An ask has reached the store.
    Ask { of: Life, asked_ns: u64, ask: Ask },
    /// An answer has reached its gateway.
    Reply { to: Life, asked_ns: u64, reply: Reply },
    /// A notice has reached its gateway.
    Notice { to: Life },
    /// The store has refused the connection.
    Refused { to: Life, asked_ns: u64 },
    /// The site has done a request.
    Done { at: Life, request: RequestId, service_ns: u64 },
    /// A gateway wants to look at the time.
    Timer { of: Life, at_ns: u64 },
    /// A fault begins.
    Begin(usize),
    /// A fault ends.
    End(usize),
    /// The memory of the store is copied for later.
    Copy(usize),
}

/// A gateway from one beginning to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub gateway: usize,
    pub number: u32,
}

/// Events by time; events of one time keep the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(u64, u64), Event>,
    added: u64,
}

impl Agenda {
    pub fn add(&mut self, at_ns: u64, event: Event) {
        self.events.insert((at_ns, self.added), event);
        self.added += 1;
    }

    /// The next event by `until_ns`, and its time.
    pub fn take(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        let entry = self.events.first_entry().filter(|entry| entry.key().0 <= until_ns)?;
        let ((at_ns, _), event) = entry.remove_entry();
        Some((at_ns, event))
    }
}
