//! The users of a demand in the order of their next requests.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::sequence::Request;

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The request. Its `at_ns` is the planned time, from which the response time counts.
    pub request: Request,
    /// The user to pass to [`Demand::handle_end`](super::Demand::handle_end). `None` in open loop, where no user waits.
    pub user: Option<u32>,
}

/// Users that have a planned time for their next request, before the end of the run.
#[derive(Debug)]
pub(super) struct Agenda {
    /// `(at_ns, user)`; at equal times the lower number goes first.
    pub moments: BinaryHeap<Reverse<(u64, u32)>>,
    pub until_ns: u64,
}

impl Agenda {
    pub fn new(until_ns: u64) -> Self {
        Self { moments: BinaryHeap::new(), until_ns }
    }

    /// Plans a request of `who`; ignored after the end of the run.
    pub fn add(&mut self, at_ns: u64, who: u32) {
        if at_ns < self.until_ns {
            self.moments.push(Reverse((at_ns, who)));
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.moments.peek().map(|&Reverse((at_ns, _))| at_ns)
    }

    /// The next user that is due by now, and its planned time.
    pub fn take(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.moments.pop().map(|Reverse(moment)| moment)
    }
}

/// Seconds as nanoseconds, clamped to the range of `u64`.
pub(super) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
