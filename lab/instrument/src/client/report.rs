//! The reports of a connection: the progress of its responses, and its own state.

use workload::outcome::End;

/// A connection's report on a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Number of the request among those under way.
    pub(super) ask: usize,
    /// Progress of its response.
    pub(super) progress: Progress,
    /// Its state.
    pub(super) what: RequestState,
}

/// Progress of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) answered: bool,
    pub(super) head_bytes: u32,
    pub(super) body_bytes: u64,
}

/// The state of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Still under way.
    UnderWay,
    /// The response is complete.
    Done,
    /// The server closed or refused before it processed the request, so it may be retried.
    Unseen,
    /// It failed; with a reason, where the end does not tell it.
    Failed(End, Option<String>),
}

/// The state of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Nothing to do before the next event.
    Open,
    /// The turn was used up; there is more to read.
    More,
    /// Closed, and every request on it was reported.
    Closed,
}

/// Bytes read from a connection before others have their turn and due requests are sent: about 0.1 ms.
pub(super) const BYTES_A_TURN: usize = 1 << 18;
