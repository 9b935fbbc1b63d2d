use workload::sequence::Request;

/// Name of a request within a simulation, chosen by whoever runs it; free again when the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// A response that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose.
    pub ticket: Ticket,
    /// When its first byte arrived, in nanoseconds since the start.
    pub first_byte_ns: u64,
    /// And its last.
    pub end_ns: u64,
}

/// What serves requests: a link or a site, with whoever decides on it.
///
/// A state machine. Times passed in never go back. Before anything is told that happens at `now_ns`, [`Model::poll_end`] is
/// asked until it gives `None`, and so it is at every [`Model::poll_timeout`].
pub trait Model {
    /// A client asks.
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request);

    /// A client gives up a request that has not ended.
    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket);

    /// When something happens by itself, in nanoseconds since the start. It need not be an end.
    fn poll_timeout(&self) -> Option<u64>;

    /// Goes on to `now_ns` at most, and stops at the first response that has come whole on the way. `None`: nothing more
    /// ends up to and at `now_ns`, where the model now stands.
    fn poll_end(&mut self, now_ns: u64) -> Option<Ended>;
}
