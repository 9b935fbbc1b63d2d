//! Sessions that begin independently, and wait for responses within.

use std::fmt;

use rand::RngExt;

use super::agenda::{Agenda, Due, ns};
use crate::sequence::{Recipe, Request, SESSIONS, Shares, assign_groups, stream};

/// The law of the length of a session and its pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionLaw {
    requests: f64,
    think_s: f64,
}

impl SessionLaw {
    /// The number of requests is geometric with mean `requests`. The pause between a response and the next
    /// request is exponential with mean `think_s` seconds.
    ///
    /// # Errors
    ///
    /// Fewer than one request or more than a million; a time that is negative or not finite.
    pub fn new(requests: f64, think_s: f64) -> Result<Self, SessionLawError> {
        if !(1.0..=1e6).contains(&requests) {
            return Err(SessionLawError::Requests(requests));
        }
        if !(0.0..1e9).contains(&think_s) {
            return Err(SessionLawError::Think(think_s));
        }
        Ok(Self { requests, think_s })
    }
}

/// Parameters that are out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SessionLawError {
    /// The mean number of requests.
    Requests(f64),
    /// The mean time between an answer and the next request.
    Think(f64),
}

impl fmt::Display for SessionLawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(mean) => write!(f, "sessions of {mean} requests on average: give 1 to 1000000"),
            Self::Think(mean) => write!(f, "a think time of {mean} s on average: give 0 or more seconds"),
        }
    }
}

impl std::error::Error for SessionLawError {}

/// Sessions: see [`super::Demand::sessions`]. They are drawn before the run; responses only shift their
/// times.
#[derive(Debug)]
pub struct Sessions {
    /// The first request of each session, in order of time.
    first: Vec<Request>,
    /// For each session, the end of its requests in `rest`; those of the next session begin there.
    ends: Vec<usize>,
    /// The later requests of each session: file, size, and pause after the previous response.
    rest: Vec<Later>,
    /// For each session, its next request in `rest`.
    next: Vec<usize>,
    /// Sessions that have begun.
    begun: usize,
    /// Sessions that have a planned time for their next request.
    agenda: Agenda,
}

#[derive(Clone, Copy, Debug)]
struct Later {
    file: u32,
    size_bytes: u64,
    think_ns: u64,
}

impl Sessions {
    pub(super) fn new(recipe: &Recipe<'_>, law: &SessionLaw, shares: &Shares, seed: u64) -> Self {
        let mut rng = stream(seed, SESSIONS);
        let goes_on = 1.0 - 1.0 / law.requests;
        // The number of trials until the first stop, by inverting the geometric law.
        let visits = recipe.draw_visits(seed, law.requests, || {
            let u: f64 = 1.0 - rng.random::<f64>();
            if goes_on > 0.0 { 1 + (u.ln() / goes_on.ln()).min(1e9) as usize } else { 1 }
        });
        let mut sessions = Self {
            first: Vec::with_capacity(visits.ends.len()),
            ends: Vec::with_capacity(visits.ends.len()),
            rest: Vec::new(),
            next: Vec::with_capacity(visits.ends.len()),
            begun: 0,
            agenda: Agenda::new(recipe.duration_ns),
        };
        let mut begin = 0;
        for (&at_ns, &end) in visits.at_ns.iter().zip(&visits.ends) {
            let file = visits.files[begin];
            sessions.first.push(Request { at_ns, file, size_bytes: recipe.size_of(file), group: 0 });
            sessions.next.push(sessions.rest.len());
            sessions.rest.extend(visits.files[begin + 1..end].iter().map(|&file| {
                let think_s = -(1.0 - rng.random::<f64>()).ln() * law.think_s;
                Later { file, size_bytes: recipe.size_of(file), think_ns: ns(think_s) }
            }));
            sessions.ends.push(sessions.rest.len());
            begin = end;
        }
        assign_groups(&mut sessions.first, shares, seed);
        sessions
    }

    fn next_begin_ns(&self) -> Option<u64> {
        self.first.get(self.begun).map(|request| request.at_ns)
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        [self.next_begin_ns(), self.agenda.next_ns()].into_iter().flatten().min()
    }

    pub(super) fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        if let Some(begin_ns) = self.next_begin_ns()
            && self.agenda.next_ns().is_none_or(|other_ns| begin_ns <= other_ns)
            && begin_ns <= now_ns
        {
            let session = self.begun;
            self.begun += 1;
            return Some(Due { request: self.first[session], user: Some(session as u32) });
        }
        let (at_ns, session) = self.agenda.take(now_ns)?;
        let index = session as usize;
        let Later { file, size_bytes, .. } = self.rest[self.next[index]];
        self.next[index] += 1;
        let group = self.first[index].group;
        Some(Due { request: Request { at_ns, file, size_bytes, group }, user: Some(session) })
    }

    pub(super) fn handle_end(&mut self, session: u32, now_ns: u64) {
        let index = session as usize;
        let Some(&end) = self.ends.get(index) else {
            debug_assert!(false, "there is no session {session}");
            return;
        };
        if self.next[index] < end {
            self.agenda.add(now_ns.saturating_add(self.rest[self.next[index]].think_ns), session);
        }
    }
}
