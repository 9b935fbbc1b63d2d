//! Who asks for what, and when: the part of a load generator that decides, without clock or sockets.
//!
//! Call [`Demand::poll_request`] until it gives `None`, send what it gave; wait until [`Demand::poll_timeout`] or until a
//! request ends, tell [`Demand::handle_end`]; begin again.

use crate::sequence::Request;

/// A source of requests.
#[derive(Debug)]
pub enum Demand {
    /// Moments decided before the run, whatever becomes of the requests (open loop).
    Sequence(Sequence),
}

/// Requests by time.
#[derive(Debug)]
pub struct Sequence {
    requests: Vec<Request>,
    next: usize,
}

/// A request whose moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The request; its `at_ns` is the planned moment, from which its response time counts.
    pub request: Request,
    /// Who asks, to be told of the end. `None` in open loop, where nobody waits.
    pub user: Option<u32>,
}

impl Demand {
    /// These requests, which are sorted by time.
    pub fn sequence(requests: Vec<Request>) -> Self {
        debug_assert!(requests.is_sorted_by_key(|request| request.at_ns));
        Self::Sequence(Sequence { requests, next: 0 })
    }

    /// The moment of the next request, in nanoseconds since the start. `None` if none comes by itself: what is left waits for
    /// the end of others, or all is done.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Sequence(sequence) => sequence.requests.get(sequence.next).map(|request| request.at_ns),
        }
    }

    /// A request that is due by now, each once.
    pub fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        match self {
            Self::Sequence(sequence) => {
                let request = *sequence.requests.get(sequence.next)?;
                (request.at_ns <= now_ns).then(|| {
                    sequence.next += 1;
                    Due { request, user: None }
                })
            }
        }
    }

    /// The request of this user has ended, well or not.
    pub fn handle_end(&mut self, user: u32, now_ns: u64) {
        match self {
            Self::Sequence(_) => debug_assert!(false, "nobody waits in open loop: user {user} at {now_ns} ns"),
        }
    }

    /// Whether no request will ever come again, whatever ends.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Sequence(sequence) => sequence.next == sequence.requests.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_gives_each_request_once_and_in_time() {
        let request = |at_ns| Request { at_ns, file: 0, size_bytes: 1, group: 0 };
        let mut demand = Demand::sequence(vec![request(5), request(5), request(9)]);
        assert_eq!((demand.poll_timeout(), demand.poll_request(4)), (Some(5), None));
        assert_eq!(demand.poll_request(5), Some(Due { request: request(5), user: None }));
        assert_eq!(demand.poll_request(7).map(|due| due.request.at_ns), Some(5));
        assert_eq!((demand.poll_request(7), demand.poll_timeout(), demand.is_over()), (None, Some(9), false));
        assert!(demand.poll_request(9).is_some() && demand.is_over());
        assert_eq!(demand.poll_timeout(), None);
    }
}
