//! Policies that the scheduler does not have: those that rank a request once, or by its remaining size.

use std::collections::BTreeSet;

use workload::{rate::Rate, sequence::Request};

use crate::{Ended, Model, Ticket, theory::Policy};

/// A link that serves the request with the smallest rank until it is done. A preemptive policy also stops it
/// when a smaller rank comes. Of equal ranks, the earliest goes first.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    policy: Policy,
    rate: Rate,
    /// Rank, order of arrival, ticket.
    waiting: BTreeSet<(u64, u64, Ticket)>,
    /// By ticket.
    jobs: Vec<Job>,
    sequence: u64,
    now_ns: f64,
    /// The served request, and when it will be done.
    served: Option<(Ticket, f64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Job {
    size_bytes: u64,
    sequence: u64,
    left_ns: f64,
    first_byte_ns: Option<u64>,
}

impl Ranked {
    pub(super) fn new(rate: Rate, policy: Policy) -> Self {
        Self { policy, rate, waiting: BTreeSet::new(), jobs: Vec::new(), sequence: 0, now_ns: 0.0, served: None }
    }

    fn rank(&self, job: &Job) -> u64 {
        match &self.policy {
            Policy::Psjf | Policy::Sjf => job.size_bytes,
            Policy::PreemptivePriority(plan) | Policy::Priority(plan) => plan.band(job.size_bytes).into(),
            Policy::Bands(plan) => plan.band((job.left_ns / self.rate.ns_for(1.0)).ceil() as u64).into(),
            Policy::Ps | Policy::Fcfs | Policy::Srpt | Policy::Fb => 0,
        }
    }

    fn preempts(&self) -> bool {
        matches!(self.policy, Policy::Psjf | Policy::PreemptivePriority(_) | Policy::Bands(_))
    }

    fn wait(&mut self, ticket: Ticket) {
        let job = self.jobs[ticket.0 as usize];
        self.waiting.insert((self.rank(&job), job.sequence, ticket));
    }

    fn serve_next(&mut self) {
        if self.served.is_none()
            && let Some((_, _, ticket)) = self.waiting.pop_first()
        {
            let job = &mut self.jobs[ticket.0 as usize];
            job.first_byte_ns = job.first_byte_ns.or(Some(self.now_ns.ceil() as u64));
            self.served = Some((ticket, self.now_ns + job.left_ns));
        }
    }

    /// Puts the served request back among the waiting ones, with its remaining size.
    fn interrupt(&mut self) {
        if let Some((ticket, end_ns)) = self.served.take() {
            self.jobs[ticket.0 as usize].left_ns = end_ns - self.now_ns;
            self.wait(ticket);
        }
    }
}

impl Model for Ranked {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        self.now_ns = self.now_ns.max(now_ns as f64);
        let place = ticket.0 as usize;
        if self.jobs.len() <= place {
            self.jobs.resize(place + 1, Job::default());
        }
        self.jobs[place] = Job {
            size_bytes: request.size_bytes,
            sequence: self.sequence,
            left_ns: self.rate.ns_for(request.size_bytes as f64),
            first_byte_ns: None,
        };
        self.sequence += 1;
        self.wait(ticket);
        if self.preempts() {
            self.interrupt();
        }
        self.serve_next();
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.now_ns = self.now_ns.max(now_ns as f64);
        if self.served.is_some_and(|(served, _)| served == ticket) {
            self.served = None;
        }
        self.waiting.retain(|&(_, _, waiting)| waiting != ticket);
        self.serve_next();
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.served.map(|(_, end_ns)| end_ns.ceil() as u64)
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        let (ticket, end_ns) = self.served.filter(|(_, end_ns)| end_ns.ceil() as u64 <= now_ns)?;
        self.now_ns = end_ns;
        self.served = None;
        self.serve_next();
        let end_ns = end_ns.ceil() as u64;
        Some(Ended { ticket, first_byte_ns: self.jobs[ticket.0 as usize].first_byte_ns.unwrap_or(end_ns), end_ns })
    }
}
