//! Processor sharing: an ideal link shared equally by all present requests.

use std::collections::BTreeSet;

use workload::{
    rate::{Link, Rate},
    sequence::Request,
    wire::WireModel,
};

use crate::{Ended, Model, Ticket, table};

/// An ideal link that all present requests share equally and infinitely finely.
///
/// Virtual time counts bytes and runs at one over the number of present requests. A request leaves when
/// virtual time has grown by its wire bytes ([`WireModel::bytes_for`]) since its arrival. So the order of
/// departures is known at arrival, and every event costs O(log n). Internal times are real numbers; an end is
/// reported at the next whole nanosecond.
#[derive(Clone, Debug)]
pub struct ProcessorSharing {
    wire: WireModel,
    rate: Rate,
    changes: Vec<(u64, Rate)>,
    changed: usize,
    /// The time of the virtual time: the start of the busy period, and nanoseconds since then. So neither
    /// loses precision in a long simulation.
    busy_since_ns: u64,
    elapsed_ns: f64,
    virtual_bytes: f64,
    sequence: u64,
    /// Virtual departure time as bits of a positive number, which keep the order; then the order of arrival.
    present: BTreeSet<(u64, u64, Ticket)>,
    /// By ticket.
    jobs: Vec<Job>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    leaves: u64,
    sequence: u64,
    first_byte_ns: u64,
}

/// Times this close to a whole nanosecond count as equal to it.
const ROUNDING_NS: f64 = 1e-3;

impl ProcessorSharing {
    /// An idle link.
    pub fn new(link: &Link, wire: &WireModel) -> Self {
        Self {
            wire: *wire,
            rate: link.first_rate(),
            changes: link.changes().to_vec(),
            changed: 0,
            busy_since_ns: 0,
            elapsed_ns: 0.0,
            virtual_bytes: 0.0,
            sequence: 0,
            present: BTreeSet::new(),
            jobs: Vec::new(),
        }
    }

    /// Number of present requests.
    pub fn present(&self) -> usize {
        self.present.len()
    }

    /// Real nanoseconds that a byte of virtual time takes.
    fn ns_for(&self, virtual_bytes: f64) -> f64 {
        self.rate.ns_for(virtual_bytes * self.present.len() as f64)
    }

    fn advance(&mut self, elapsed_ns: f64) {
        if elapsed_ns > self.elapsed_ns {
            self.virtual_bytes += (elapsed_ns - self.elapsed_ns) / self.ns_for(1.0);
            self.elapsed_ns = elapsed_ns;
        }
    }

    fn advance_to(&mut self, now_ns: u64) {
        if !self.present.is_empty() {
            self.advance(now_ns.saturating_sub(self.busy_since_ns) as f64);
        }
    }

    /// When the first request leaves if no event comes before: since the start of the busy period, and in
    /// whole nanoseconds.
    fn next_end(&self) -> Option<(f64, u64)> {
        let &(leaves, ..) = self.present.first()?;
        let left_bytes = (f64::from_bits(leaves) - self.virtual_bytes).max(0.0);
        let elapsed_ns = self.elapsed_ns + self.ns_for(left_bytes);
        Some((elapsed_ns, self.at_ns(elapsed_ns)))
    }

    fn at_ns(&self, elapsed_ns: f64) -> u64 {
        self.busy_since_ns.saturating_add((elapsed_ns - ROUNDING_NS).ceil() as u64)
    }

    fn change_ns(&self) -> Option<u64> {
        self.changes.get(self.changed).map(|&(at_ns, _)| at_ns)
    }
}

impl Model for ProcessorSharing {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        if self.present.is_empty() {
            (self.busy_since_ns, self.elapsed_ns, self.virtual_bytes) = (now_ns, 0.0, 0.0);
        }
        self.advance_to(now_ns);
        let bytes = self.wire.bytes_for(request.size_bytes) as f64;
        let leaves = (self.virtual_bytes + bytes).to_bits();
        let sequence = self.sequence;
        self.sequence += 1;
        self.present.insert((leaves, sequence, ticket));
        // If no arrival or departure comes before.
        let first_byte_ns = self.at_ns(self.elapsed_ns + self.ns_for(bytes.min(1.0)));
        table::put(&mut self.jobs, ticket.0 as usize, Job { leaves, sequence, first_byte_ns });
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.advance_to(now_ns);
        let Job { leaves, sequence, .. } = self.jobs[ticket.0 as usize];
        self.present.remove(&(leaves, sequence, ticket));
    }

    fn poll_timeout(&self) -> Option<u64> {
        let (_, end_ns) = self.next_end()?;
        Some(self.change_ns().map_or(end_ns, |change_ns| change_ns.min(end_ns)))
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            let next = self.next_end();
            match self.change_ns().filter(|&change_ns| next.is_none_or(|(_, end_ns)| change_ns < end_ns)) {
                Some(change_ns) if change_ns <= now_ns => {
                    self.advance_to(change_ns);
                    self.rate = self.changes[self.changed].1;
                    self.changed += 1;
                }
                Some(_) => return None,
                None => {
                    let (elapsed_ns, end_ns) = next.filter(|&(_, end_ns)| end_ns <= now_ns)?;
                    self.advance(elapsed_ns);
                    let (leaves, _, ticket) = self.present.pop_first()?;
                    self.virtual_bytes = f64::from_bits(leaves);
                    let first_byte_ns = self.jobs[ticket.0 as usize].first_byte_ns.min(end_ns);
                    return Some(Ended { ticket, first_byte_ns, end_ns });
                }
            }
        }
    }
}
