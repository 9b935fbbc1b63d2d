use workload::sequence::Request;

/// Id of a request within a simulation, chosen by the caller; free again when the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The request.
    pub ticket: Ticket,
    /// When its first byte arrived, in nanoseconds since the start.
    pub first_byte_ns: u64,
    /// When its last byte arrived, in nanoseconds since the start.
    pub end_ns: u64,
}

/// Serves requests: a link or a site, together with its scheduler.
///
/// A state machine. Times passed in never go back. Before each event at `now_ns`, and at every
/// [`Model::poll_timeout`], the caller calls [`Model::poll_end`] until it returns `None`.
pub trait Model {
    /// A client sends a request.
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request);

    /// A client gives up an unfinished request.
    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket);

    /// Time of the next internal event, in nanoseconds since the start. It need not be an end.
    fn poll_timeout(&self) -> Option<u64>;

    /// Advances to `now_ns` at most, and stops at the first complete response on the way. `None` means that
    /// no more responses end up to and at `now_ns`, and the model is at that time.
    fn poll_end(&mut self, now_ns: u64) -> Option<Ended>;
}
