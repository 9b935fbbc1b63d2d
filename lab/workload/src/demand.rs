//! Who asks for what, and when: the part of a load generator that decides, without clock or sockets.
//!
//! Call [`Demand::poll_request`] until it gives `None`, send what it gave; wait until [`Demand::poll_timeout`] or until a
//! request ends, tell [`Demand::handle_end`]; begin again. The times passed in never go back; then those given never do either.
//!
//! Somebody who waits for answers has one request under way at a time, whatever the connections: a user of SURGE asks for the
//! next file of a page when the one before it has come.

mod sessions;
mod users;

use std::{cmp::Reverse, collections::BinaryHeap};

pub use self::{
    sessions::{SessionLaw, SessionLawError, Sessions},
    users::Users,
};
use crate::{
    sequence::{Recipe, Request, Shares},
    surge::Site,
};

/// A source of requests. Every call is O(log n) in those who wait.
#[derive(Debug)]
pub enum Demand {
    /// Moments decided before the run, whatever becomes of the requests (open loop).
    Sequence(Sequence),
    /// SURGE's user equivalents, who wait for an answer before they ask again (closed loop).
    Users(Box<Users>),
    /// Sessions that come whatever becomes of the others, each waiting for its answers (partly open).
    Sessions(Sessions),
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

    /// This many users of a site, who begin nothing from `until_ns` on. The groups have them by their shares.
    ///
    /// Users do not begin together: each begins its first page at a random moment of the first 1.6 s, which is the median of
    /// the inactive OFF times (of those in `site`'s parameters). What a user asks for, and how long it is silent, comes from streams of the seed of its own: it depends on the
    /// number of users, and on nothing that happens in the run.
    pub fn users(site: &Site, users: u32, shares: &Shares, until_ns: u64, seed: u64) -> Self {
        Self::Users(Box::new(Users::new(site, users, shares, until_ns, seed)))
    }

    /// Sessions whose requests together are what the recipe asks for, if answers took no time; none is begun from the recipe's
    /// `duration_ns` on. Each session belongs to a group, with the shares as probabilities.
    pub fn sessions(recipe: &Recipe<'_>, law: &SessionLaw, shares: &Shares, seed: u64) -> Self {
        Self::Sessions(Sessions::new(recipe, law, shares, seed))
    }

    /// The moment of the next request, in nanoseconds since the start. `None` if none comes by itself: what is left waits for
    /// the end of others, or all is done.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Sequence(sequence) => sequence.requests.get(sequence.next).map(|request| request.at_ns),
            Self::Users(users) => users.poll_timeout(),
            Self::Sessions(sessions) => sessions.poll_timeout(),
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
            Self::Users(users) => users.poll_request(now_ns),
            Self::Sessions(sessions) => sessions.poll_request(now_ns),
        }
    }

    /// The request of this user has ended, well or not. A user whose request failed goes on as if it had been answered.
    pub fn handle_end(&mut self, user: u32, now_ns: u64) {
        match self {
            Self::Sequence(_) => debug_assert!(false, "nobody waits in open loop: user {user} at {now_ns} ns"),
            Self::Users(users) => users.handle_end(user, now_ns),
            Self::Sessions(sessions) => sessions.handle_end(user, now_ns),
        }
    }
}

/// Those who will ask at a known moment before the time is up.
#[derive(Debug)]
struct Agenda {
    /// `(at_ns, who)`; of equal moments the lower number first.
    moments: BinaryHeap<Reverse<(u64, u32)>>,
    until_ns: u64,
}

impl Agenda {
    fn new(until_ns: u64) -> Self {
        Self { moments: BinaryHeap::new(), until_ns }
    }

    /// `who` will ask then; dropped if that is too late.
    fn add(&mut self, at_ns: u64, who: u32) {
        if at_ns < self.until_ns {
            self.moments.push(Reverse((at_ns, who)));
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.moments.peek().map(|&Reverse((at_ns, _))| at_ns)
    }

    /// Who asks by now, and when it was to.
    fn take(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.moments.pop().map(|Reverse(moment)| moment)
    }
}

/// A time in seconds as nanoseconds; what is out of range is the longest.
fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests;
