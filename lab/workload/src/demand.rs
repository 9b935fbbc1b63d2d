//! The deciding part of a load generator: which client requests which file, and when. It has no clock and no
//! sockets.
//!
//! Call [`Demand::poll_request`] until it returns `None`, and send each request. Wait until
//! [`Demand::poll_timeout`] or until a request ends, and report ends to [`Demand::handle_end`]. Then begin
//! again. The times passed in must never go back; then the returned times do not either.
//!
//! A user that waits for answers has one request under way at a time, on any number of connections. A user of
//! SURGE requests the next file of a page when the one before it has arrived.

mod agenda;
mod sessions;
mod users;

pub use self::{
    agenda::Due,
    sessions::{SessionLaw, SessionLawError, Sessions},
    users::Users,
};
use crate::{
    sequence::{Recipe, Request, Shares},
    surge::Site,
};

/// A source of requests. Every call is O(log n) in the number of waiting users.
#[derive(Debug)]
pub enum Demand {
    /// Times fixed before the run, independent of the responses (open loop).
    Sequence(Sequence),
    /// SURGE's user equivalents, which wait for a response before the next request (closed loop).
    Users(Box<Users>),
    /// Sessions that begin independently of each other, each waiting for its responses (partly open loop).
    Sessions(Sessions),
}

/// Requests sorted by time.
#[derive(Debug)]
pub struct Sequence {
    requests: Vec<Request>,
    next: usize,
}

impl Demand {
    /// Open loop: sends these requests, which are sorted by time.
    pub fn sequence(requests: Vec<Request>) -> Self {
        debug_assert!(requests.is_sorted_by_key(|request| request.at_ns));
        Self::Sequence(Sequence { requests, next: 0 })
    }

    /// Closed loop: this many users of a site, divided among the groups by their shares. No request begins
    /// from `until_ns` on.
    ///
    /// Users do not begin together: each begins its first page at a random time in the first 1.6 s. That is
    /// the median of the inactive OFF times in `site`'s parameters. A user's files and silences come from its
    /// own stream of the seed. They depend on the number of users, and on no event of the run.
    pub fn users(site: &Site, users: u32, shares: &Shares, until_ns: u64, seed: u64) -> Self {
        Self::Users(Box::new(Users::new(site, users, shares, until_ns, seed)))
    }

    /// Partly open loop: sessions whose requests would match the recipe if responses took no time. No session
    /// begins from the recipe's `duration_ns` on. Each session belongs to a group, with the shares as
    /// probabilities.
    pub fn sessions(recipe: &Recipe<'_>, law: &SessionLaw, shares: &Shares, seed: u64) -> Self {
        Self::Sessions(Sessions::new(recipe, law, shares, seed))
    }

    /// Time of the next request, in nanoseconds since the start. `None` if the rest waits for ends of
    /// requests, or all is done.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Sequence(sequence) => sequence.requests.get(sequence.next).map(|request| request.at_ns),
            Self::Users(users) => users.poll_timeout(),
            Self::Sessions(sessions) => sessions.poll_timeout(),
        }
    }

    /// Returns the next request that is due by now.
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

    /// Reports the end of this user's request. After a failed request the user goes on as after an answered
    /// one.
    pub fn handle_end(&mut self, user: u32, now_ns: u64) {
        match self {
            Self::Sequence(_) => debug_assert!(false, "nobody waits in open loop: user {user} at {now_ns} ns"),
            Self::Users(users) => users.handle_end(user, now_ns),
            Self::Sessions(sessions) => sessions.handle_end(user, now_ns),
        }
    }
}

#[cfg(test)]
mod tests;
