//! The server's pacer before a bottleneck whose rate may differ from the pacer's setting.

use std::collections::VecDeque;

use scheduler::{
    Instant, JobId, Path, Size, Uplink,
    uplink::{Grant, Reason, Settings},
};
use workload::{rate::Link, sequence::Request, wire::WireModel};

use crate::{Ended, Model, Ticket, exact_link::ExactLink, table};

/// [`scheduler::Uplink`] as the server drives it, with its rate, chunks and run-ahead. Behind it is a FIFO
/// bottleneck with the link's own rate.
///
/// The rate in the settings is the pacer's estimate. If it is too low the link idles; if it is too high a
/// queue grows at the bottleneck, where no order holds. The queue is unbounded, and sockets accept all
/// granted bytes. Bytes at the bottleneck cannot be taken back, even when the client gives up. Handshakes and
/// acknowledgements ([`WireModel::control_bytes`]) are on the link when the request comes, and are charged to
/// the pacer.
///
/// TCP is not modelled. Its windows would hold back part of the bytes that are in the bottleneck's queue
/// here.
#[derive(Clone, Debug)]
pub struct Paced {
    line: ExactLink,
    wire: WireModel,
    uplink: Uplink,
    now_ns: u64,
    /// By ticket.
    jobs: Vec<Job>,
    /// By the scheduler's job id.
    tickets: Vec<Ticket>,
    serial: u64,
    /// Frames at the bottleneck; the first is being sent.
    queue: VecDeque<Sent>,
    /// Recorded decisions; `None` if they are not recorded.
    decisions: Option<Vec<Decision>>,
}

/// A decision of the pacer: job, bytes, time and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// In nanoseconds since the start.
    pub at_ns: u64,
    /// The request.
    pub ticket: Ticket,
    /// Payload bytes.
    pub bytes: u64,
    /// Why this job was chosen.
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    /// Distinguishes this request from others with the same ticket; 0 for none.
    serial: u64,
    /// The scheduler's id while it has the job.
    name: Option<JobId>,
    left_bytes: u64,
    first_byte_ns: Option<u64>,
}

/// Bytes given to the bottleneck at one time.
#[derive(Clone, Copy, Debug)]
struct Sent {
    wire_bytes: u64,
    ticket: Ticket,
    /// 0 for bytes of no response.
    serial: u64,
    last: bool,
}

impl Paced {
    /// An idle link. Uses all of `settings`, with the rate as the pacer's estimate. Paths have the segments
    /// of `wire`.
    pub fn new(link: &Link, wire: &WireModel, settings: Settings) -> Self {
        Self {
            line: ExactLink::new(link),
            wire: *wire,
            uplink: Uplink::new(settings),
            now_ns: 0,
            jobs: Vec::new(),
            tickets: Vec::new(),
            serial: 0,
            queue: VecDeque::new(),
            decisions: None,
        }
    }

    /// Records decisions until they are taken: memory grows with them.
    pub fn with_decisions(mut self) -> Self {
        self.decisions = Some(Vec::new());
        self
    }

    /// The decisions since the last call; empty unless they are recorded.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.decisions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The scheduler. An experiment may inspect it, or report events that a server would observe.
    pub fn uplink_mut(&mut self) -> &mut Uplink {
        &mut self.uplink
    }

    /// Carries out grants until there are no more.
    fn pump(&mut self, first: Option<Grant>) {
        let now = Instant::from_ns(self.now_ns);
        let mut grant = first.or_else(|| self.uplink.poll_grant(now));
        while let Some(Grant { job: name, bytes, reason, .. }) = grant {
            let ticket = self.tickets[name.index()];
            if let Some(decisions) = &mut self.decisions {
                decisions.push(Decision { at_ns: self.now_ns, ticket, bytes, reason });
            }
            let job = &mut self.jobs[ticket.0 as usize];
            job.left_bytes -= bytes;
            let (left_bytes, serial) = (job.left_bytes, job.serial);
            let segments = bytes.div_ceil(self.wire.segment_bytes.max(1));
            let wire_bytes = bytes + segments * self.wire.overhead_bytes;
            grant = if left_bytes == 0 {
                job.name = None;
                self.uplink.handle_finished(now, name, true);
                None
            } else {
                self.uplink.handle_wants(now, name, left_bytes)
            };
            self.send(Sent { wire_bytes, ticket, serial, last: left_bytes == 0 });
            grant = grant.or_else(|| self.uplink.poll_grant(now));
        }
    }

    fn send(&mut self, sent: Sent) {
        self.queue.push_back(sent);
        if self.queue.len() == 1 {
            self.line.begin(self.now_ns, sent.wire_bytes);
            self.sees_first_byte();
        }
    }

    fn sees_first_byte(&mut self) {
        let Some(sent) = self.queue.front() else { return };
        let job = &mut self.jobs[sent.ticket.0 as usize];
        if job.serial == sent.serial && job.first_byte_ns.is_none() {
            job.first_byte_ns = Some(self.line.first_byte_ns());
        }
    }

    /// The frame at the bottleneck was sent, at `end_ns`.
    fn sent(&mut self, end_ns: u64) -> Option<Ended> {
        let sent = self.queue.pop_front()?;
        if let Some(next) = self.queue.front() {
            self.line.follow(next.wire_bytes);
            self.sees_first_byte();
        }
        let job = &mut self.jobs[sent.ticket.0 as usize];
        if !sent.last || job.serial != sent.serial {
            return None;
        }
        job.serial = 0;
        let first_byte_ns = job.first_byte_ns.map_or(end_ns, |at_ns| at_ns.min(end_ns));
        Some(Ended { ticket: sent.ticket, first_byte_ns, end_ns })
    }

    /// When the next grant is possible; not before now.
    fn leave_ns(&self) -> Option<u64> {
        self.uplink.poll_timeout().map(|at| at.as_ns().max(self.now_ns))
    }
}

impl Model for Paced {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        self.now_ns = now_ns;
        let now = Instant::from_ns(now_ns);
        let left_bytes = self.wire.head_bytes + request.size_bytes;
        let mss_bytes = u32::try_from(self.wire.segment_bytes).unwrap_or(Path::UNKNOWN.mss_bytes);
        let path = Path { mss_bytes, ..Path::UNKNOWN };
        self.serial += 1;
        let name = self.uplink.handle_started(now, Size::Known(left_bytes), path);
        let job = Job { serial: self.serial, name: Some(name), left_bytes, first_byte_ns: None };
        table::put(&mut self.jobs, ticket.0 as usize, job);
        table::put(&mut self.tickets, name.index(), ticket);
        if self.wire.control_bytes > 0 {
            self.uplink.handle_ungranted(now, self.wire.control_bytes);
            self.send(Sent { wire_bytes: self.wire.control_bytes, ticket, serial: 0, last: false });
        }
        let grant = self.uplink.handle_wants(now, name, left_bytes);
        self.pump(grant);
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        self.now_ns = now_ns;
        let job = &mut self.jobs[ticket.0 as usize];
        job.serial = 0;
        if let Some(name) = job.name.take() {
            self.uplink.handle_finished(Instant::from_ns(now_ns), name, false);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        let line_ns = (!self.queue.is_empty()).then(|| self.line.poll_timeout());
        line_ns.into_iter().chain(self.leave_ns()).min()
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            let end_ns = if self.queue.is_empty() { u64::MAX } else { self.line.end_ns() };
            let leave_ns = self.leave_ns().unwrap_or(u64::MAX);
            let change_ns = self.line.change_ns().unwrap_or(u64::MAX);
            let next_ns = end_ns.min(leave_ns).min(change_ns);
            if next_ns > now_ns || next_ns == u64::MAX {
                self.now_ns = now_ns;
                return None;
            }
            self.now_ns = next_ns;
            if next_ns == end_ns {
                if let Some(ended) = self.sent(end_ns) {
                    return Some(ended);
                }
            } else if next_ns == change_ns {
                self.line.change();
            } else {
                self.pump(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use scheduler::Order;
    use workload::{
        pattern::Pattern,
        sequence::{LoadMatch, Recipe},
        sizes::{FileSet, HeavyTail},
    };

    use super::*;
    use crate::{Clients, Ordered, Stream, run};

    /// A byte takes a microsecond.
    fn link() -> Link {
        Link::constant("8mbit".parse().unwrap())
    }

    /// Requests at a load of 0.8; every tenth is a hundred times as large as the others.
    fn requests() -> Vec<Request> {
        let size = |i: u64| if i.is_multiple_of(10) { 60_000 } else { 600 };
        let mut at_ns = 0;
        (0..3_000)
            .map(|i| {
                at_ns += i * 7_919 % 16_350 * 1_000;
                Request { at_ns, file: i as u32, size_bytes: size(i), group: 0 }
            })
            .collect()
    }

    fn settings(order: Order, rate: &str) -> Settings {
        Settings { order, rate: rate.parse().ok(), ..Settings::default() }
    }

    fn mean_ms(model: &mut impl Model) -> f64 {
        let requests = requests();
        let mut sum_ns = 0;
        let mut source = Stream::new(requests.iter().copied());
        let totals = run(&mut source, model, &Clients::PATIENT, None, |served| sum_ns += served.response_ns());
        assert_eq!(totals.served, requests.len() as u64);
        sum_ns as f64 / requests.len() as f64 / 1e6
    }

    #[test]
    fn a_rate_too_high_leaves_the_order_to_the_bottleneck_and_one_too_low_lets_it_rest() {
        let wire = WireModel::PER_CONNECTION;
        let paced = |rate| mean_ms(&mut Paced::new(&link(), &wire, settings(Order::Srpt, rate)));
        let exact = mean_ms(&mut Ordered::new(&link(), &wire, settings(Order::Srpt, "")));
        let fifo = mean_ms(&mut Ordered::new(&link(), &wire, settings(Order::Fifo, "")));
        let [low, right, high, none] = ["7mbit", "7.92mbit", "16mbit", ""].map(paced);
        assert!(exact < right && right < exact * 1.5, "{right} for {exact}");
        assert!(low > right, "{low} for {right}");
        assert!(high > 2.0 * right, "{high} for {right}");
        assert!(
            (none / fifo - 1.0).abs() < 0.05,
            "{none} for {fifo}: handshakes are ahead of their responses, no more"
        );
    }

    #[test]
    fn handshakes_do_not_let_fair_sharing_on_paper_run_ahead_of_the_link() {
        let (link, wire) = (Link::constant("10mbit".parse().unwrap()), WireModel::PER_CONNECTION);
        let (files, pattern) = (FileSet::new(&HeavyTail::WORLD_CUP, 400), Pattern::constant(0.8).unwrap());
        let recipe = Recipe {
            files: &files,
            link: &link,
            pattern: &pattern,
            duration_ns: 60_000_000_000,
            wire,
            load_match: LoadMatch::Sequence,
        };
        let requests = recipe.draw(1);
        let mean_ms = |order| {
            let (mut pacer, mut sum_ns) = (Paced::new(&link, &wire, settings(order, "9.7mbit")), 0);
            let mut source = Stream::new(requests.iter().copied());
            run(&mut source, &mut pacer, &Clients::PATIENT, None, |served| sum_ns += served.response_ns());
            sum_ns as f64 / requests.len() as f64 / 1e6
        };
        let [srpt, fsp, fair] = [Order::Srpt, Order::Fsp, Order::Fair].map(mean_ms);
        assert!(fsp < srpt * 1.1 && fsp * 1.5 < fair, "fsp {fsp} ms, srpt {srpt} ms, fair {fair} ms");
    }

    #[test]
    fn without_a_pacer_and_without_handshakes_it_is_first_come_first_served_to_the_nanosecond() {
        let wire = WireModel::KEPT_ALIVE;
        let unpaced = mean_ms(&mut Paced::new(&link(), &wire, settings(Order::Srpt, "")));
        let fifo = mean_ms(&mut Ordered::new(&link(), &wire, settings(Order::Fifo, "")));
        // Chunks of 1 MiB are whole responses here.
        assert_eq!(unpaced, fifo);
    }

    #[test]
    fn what_is_at_the_bottleneck_goes_out_though_its_client_has_gone() {
        let ask = |at_ns, file| Request { at_ns, file, size_bytes: 10_000, group: file as u16 };
        let groups = [Clients { abort_after_ns: Some(1_000_000), retries: 0 }, Clients::PATIENT];
        let mut model = Paced::new(&link(), &WireModel::BODY_ONLY, settings(Order::Srpt, ""));
        let mut source = Stream::new([ask(0, 0), ask(2_000_000, 1)].into_iter());
        let mut ends = Vec::new();
        crate::run_groups(&mut source, &mut model, &groups, None, |it| ends.push((it.request.file, it.end_ns)));
        assert_eq!(ends, [(0, 1_000_000), (1, 20_000_000)]);
    }
}
