//! Runs a simulation: a source of requests, a model that serves them, and clients with patience.

use std::collections::BTreeSet;

use slab::Slab;
use workload::{demand::Due, outcome::End};

use crate::{Ended, Model, Served, Source, Ticket};

/// Patience and retries of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    /// Nanoseconds after which a request is given up, from each attempt. `None`: clients wait for ever.
    pub abort_after_ns: Option<u64>,
    /// Number of immediate retries of a request that was given up. The response time counts from the first
    /// attempt.
    pub retries: u32,
}

impl Clients {
    /// Clients that wait for ever.
    pub const PATIENT: Self = Self { abort_after_ns: None, retries: 0 };
}

/// Totals of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests with a complete response.
    pub served: u64,
    /// Requests that their client gave up for good.
    pub aborted: u64,
    /// Requests under way at the end of the simulation.
    pub unfinished: u64,
    /// Time of the last event, in nanoseconds since the start.
    pub last_ns: u64,
    /// The most requests under way at one time; memory is proportional to it.
    pub most_present: usize,
}

/// Serves the requests of `source` by `model`, and passes each finished request to `sink`.
///
/// The simulation ends when no events are left, or at `until_ns`. Events at that time still count, and
/// requests under way after it are [`End::Unfinished`]. A retry is a new request to the model, and its
/// [`Served`] counts from the first attempt. At equal times, complete responses come first, then clients that
/// give up, then new requests. For incomplete requests the model does not report the first byte, so
/// `first_byte_ns` is `None`.
///
/// An event costs O(log n) beside the cost of source and model. Only requests under way are stored.
pub fn run(
    source: &mut impl Source,
    model: &mut impl Model,
    clients: &Clients,
    until_ns: Option<u64>,
    sink: impl FnMut(Served),
) -> Totals {
    run_groups(source, model, std::slice::from_ref(clients), until_ns, sink)
}

/// As [`run`], with the clients of each group, indexed by group number. Further groups use the last entry. If
/// empty, all clients are patient.
pub fn run_groups(
    source: &mut impl Source,
    model: &mut impl Model,
    groups: &[Clients],
    until_ns: Option<u64>,
    sink: impl FnMut(Served),
) -> Totals {
    let mut run =
        Run { groups, present: Slab::new(), patience: BTreeSet::new(), now_ns: 0, totals: Totals::default(), sink };
    run.serve(source, model, until_ns.unwrap_or(u64::MAX));
    run.give_up_the_rest(until_ns);
    run.totals
}

struct Run<'a, F> {
    groups: &'a [Clients],
    /// By ticket.
    present: Slab<InFlight>,
    /// When clients lose patience: exactly the present ones with a limit.
    patience: BTreeSet<(u64, Ticket)>,
    now_ns: u64,
    totals: Totals,
    sink: F,
}

/// A request under way.
struct InFlight {
    due: Due,
    attempts: u32,
    gives_up_ns: Option<u64>,
}

impl<F: FnMut(Served)> Run<'_, F> {
    fn serve(&mut self, source: &mut impl Source, model: &mut impl Model, until_ns: u64) {
        loop {
            let impatient_ns = self.patience.first().map(|&(at_ns, _)| at_ns);
            let next_ns = [model.poll_timeout(), source.poll_timeout(), impatient_ns].into_iter().flatten().min();
            let Some(next_ns) = next_ns.filter(|&next_ns| next_ns <= until_ns) else { return };
            self.now_ns = self.now_ns.max(next_ns);
            // One end at a time: the user that waited may send a new request before the next.
            if let Some(ended) = model.poll_end(self.now_ns) {
                self.ended(ended, source);
                continue;
            }
            debug_assert!(model.poll_timeout().is_none_or(|at_ns| at_ns > self.now_ns), "a model that stands still");
            while let Some(&(_, ticket)) = self.patience.first().filter(|(at_ns, _)| *at_ns <= self.now_ns) {
                self.gives_up(ticket, source, model);
            }
            while let Some(due) = source.poll_request(self.now_ns) {
                let ticket = ticket(self.present.insert(InFlight { due, attempts: 0, gives_up_ns: None }));
                self.asks(ticket, model);
            }
        }
    }

    fn asks(&mut self, ticket: Ticket, model: &mut impl Model) {
        self.totals.most_present = self.totals.most_present.max(self.present.len());
        self.totals.last_ns = self.now_ns;
        let asked = &mut self.present[ticket.0 as usize];
        asked.attempts += 1;
        let clients = of_group(self.groups, asked.due.request.group);
        asked.gives_up_ns = clients.abort_after_ns.map(|ns| self.now_ns.saturating_add(ns.max(1)));
        if let Some(at_ns) = asked.gives_up_ns {
            self.patience.insert((at_ns, ticket));
        }
        model.handle_request(self.now_ns, ticket, &asked.due.request);
    }

    fn gives_up(&mut self, ticket: Ticket, source: &mut impl Source, model: &mut impl Model) {
        model.handle_abort(self.now_ns, ticket);
        let asked = &mut self.present[ticket.0 as usize];
        if let Some(at_ns) = asked.gives_up_ns.take() {
            self.patience.remove(&(at_ns, ticket));
        }
        let clients = of_group(self.groups, asked.due.request.group);
        if asked.attempts <= clients.retries {
            self.asks(ticket, model);
        } else {
            self.totals.aborted += 1;
            self.over(ticket, End::Aborted, None, self.now_ns, source);
        }
    }

    fn ended(&mut self, ended: Ended, source: &mut impl Source) {
        self.totals.served += 1;
        self.over(ended.ticket, End::Done, Some(ended.first_byte_ns), ended.end_ns, source);
    }

    fn over(&mut self, ticket: Ticket, end: End, first_byte_ns: Option<u64>, end_ns: u64, source: &mut impl Source) {
        let asked = self.take(ticket);
        self.totals.last_ns = self.totals.last_ns.max(end_ns);
        if let Some(user) = asked.due.user {
            source.handle_end(user, end_ns);
        }
        (self.sink)(asked.served(end, first_byte_ns, end_ns));
    }

    fn take(&mut self, ticket: Ticket) -> InFlight {
        let asked = self.present.remove(ticket.0 as usize);
        if let Some(at_ns) = asked.gives_up_ns {
            self.patience.remove(&(at_ns, ticket));
        }
        asked
    }

    /// Ends the simulation, at `until_ns` or because no events are left.
    fn give_up_the_rest(&mut self, until_ns: Option<u64>) {
        let end_ns = until_ns.unwrap_or(self.now_ns);
        for asked in self.present.drain() {
            self.totals.unfinished += 1;
            self.totals.last_ns = end_ns;
            (self.sink)(asked.served(End::Unfinished, None, end_ns));
        }
    }
}

impl InFlight {
    fn served(&self, end: End, first_byte_ns: Option<u64>, end_ns: u64) -> Served {
        let attempts = u16::try_from(self.attempts).unwrap_or(u16::MAX);
        Served { request: self.due.request, first_byte_ns, end_ns, end, attempts }
    }
}

fn of_group(groups: &[Clients], group: u16) -> Clients {
    groups.get(usize::from(group)).or(groups.last()).copied().unwrap_or(Clients::PATIENT)
}

fn ticket(index: usize) -> Ticket {
    Ticket(u32::try_from(index).expect("fewer than 2^32 requests under way"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use workload::sequence::Request;

    use super::*;
    use crate::Stream;

    /// Answers each request after as many nanoseconds as it has bytes, independent of others.
    #[derive(Default)]
    struct Delay {
        ends: BTreeSet<(u64, Ticket)>,
        by_ticket: BTreeMap<Ticket, u64>,
        told: Vec<(u64, &'static str)>,
    }

    impl Model for Delay {
        fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
            self.told.push((now_ns, "request"));
            assert_eq!(self.by_ticket.insert(ticket, now_ns + request.size_bytes), None, "a ticket that is in use");
            self.ends.insert((now_ns + request.size_bytes, ticket));
        }

        fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
            self.told.push((now_ns, "abort"));
            let end_ns = self.by_ticket.remove(&ticket).expect("only what is here is given up");
            self.ends.remove(&(end_ns, ticket));
        }

        fn poll_timeout(&self) -> Option<u64> {
            self.ends.first().map(|&(end_ns, _)| end_ns)
        }

        fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
            let &(end_ns, ticket) = self.ends.first().filter(|(end_ns, _)| *end_ns <= now_ns)?;
            self.ends.pop_first();
            self.by_ticket.remove(&ticket);
            Some(Ended { ticket, first_byte_ns: end_ns, end_ns })
        }
    }

    fn request(at_ns: u64, size_bytes: u64, group: u16) -> Request {
        Request { at_ns, file: 0, size_bytes, group }
    }

    fn serve(requests: &[Request], groups: &[Clients], until_ns: Option<u64>) -> (Vec<Served>, Totals, Delay) {
        let (mut model, mut served) = (Delay::default(), Vec::new());
        let mut source = Stream::new(requests.iter().copied());
        let totals = run_groups(&mut source, &mut model, groups, until_ns, |it| served.push(it));
        (served, totals, model)
    }

    #[test]
    fn a_request_that_is_given_up_is_asked_again_at_once_and_counts_from_the_first_time() {
        let clients = Clients { abort_after_ns: Some(10), retries: 2 };
        let (served, totals, model) = serve(&[request(5, 11, 0)], &[clients], None);
        let told = [(5, "request"), (15, "abort"), (15, "request"), (25, "abort"), (25, "request"), (35, "abort")];
        assert_eq!(model.told, told);
        assert_eq!((served[0].end, served[0].attempts, served[0].response_ns()), (End::Aborted, 3, 30));
        assert_eq!(totals, Totals { aborted: 1, last_ns: 35, most_present: 1, ..Totals::default() });
    }

    #[test]
    fn what_ends_in_the_moment_in_which_patience_does_has_come_whole() {
        let clients = Clients { abort_after_ns: Some(10), retries: 0 };
        let (served, ..) = serve(&[request(0, 10, 0), request(0, 11, 0)], &[clients], None);
        assert_eq!([served[0].end, served[1].end], [End::Done, End::Aborted]);
    }

    #[test]
    fn each_group_has_its_own_patience_and_those_beyond_have_the_last() {
        let groups = [Clients::PATIENT, Clients { abort_after_ns: Some(10), retries: 0 }];
        let (served, ..) = serve(&[request(0, 99, 0), request(0, 99, 1), request(0, 99, 2)], &groups, None);
        let ends: Vec<_> = served.iter().map(|it| (it.request.group, it.end, it.end_ns)).collect();
        assert_eq!(ends, [(1, End::Aborted, 10), (2, End::Aborted, 10), (0, End::Done, 99)]);
        assert_eq!(serve(&[request(0, 99, 0)], &[], None).1.served, 1);
    }

    #[test]
    fn what_is_under_way_when_the_time_is_up_is_unfinished_and_what_ends_then_is_not() {
        let requests = [request(0, 20, 0), request(0, 21, 0), request(20, 5, 0), request(21, 1, 0)];
        let (served, totals, _) = serve(&requests, &[], Some(20));
        assert_eq!((served[0].end, served[0].end_ns), (End::Done, 20));
        assert!(served[1..].iter().all(|it| (it.end, it.end_ns) == (End::Unfinished, 20)));
        assert_eq!((totals.served, totals.unfinished), (1, 2), "the last was never asked for");
    }

    /// Requests ten bytes, waits, and requests again at the time of the answer.
    struct InTurn(u64, Option<u64>);

    impl Source for InTurn {
        fn poll_timeout(&self) -> Option<u64> {
            self.1
        }

        fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
            let at_ns = self.1.take_if(|at_ns| *at_ns <= now_ns)?;
            Some(Due { request: request(at_ns, 10, 0), user: Some(7) })
        }

        fn handle_end(&mut self, user: u32, now_ns: u64) {
            assert_eq!(user, 7);
            self.0 -= 1;
            self.1 = (self.0 > 0).then_some(now_ns);
        }
    }

    #[test]
    fn who_waits_for_answers_is_told_of_each() {
        let (mut model, mut ends) = (Delay::default(), Vec::new());
        run(&mut InTurn(4, Some(3)), &mut model, &Clients::PATIENT, None, |it| ends.push(it.end_ns));
        assert_eq!(ends, [13, 23, 33, 43]);
    }
}
