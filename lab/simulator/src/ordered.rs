//! Any order of the scheduler on an ideal link, preemptive to the byte.

use scheduler::{
    Chunk, Instant, JobId, Order, Pacing, Path, Size, Uplink,
    uplink::{Grant, Settings},
};
use workload::{rate::Link, sequence::Request, wire::WireModel};

use crate::{Ended, Model, Ticket, exact_link::ExactLink, table};

/// An ideal link scheduled by [`scheduler::Uplink`]: no packets, no distance, no run-ahead.
///
/// Sizes are wire bytes, [`WireModel::bytes_for`]. The first request in order has the link until all its
/// bytes are sent or an event occurs. Then it gives back the bytes that have not begun, and the scheduler
/// chooses again. A byte in flight is sent whole. So the link is busy while a request is present, and every
/// byte is sent once.
///
/// Under [`Order::Fair`], [`Order::Las`], [`Order::Stert`] and [`Order::QuickFix`] a job's place gets worse
/// while it is served. Under the guard other jobs' places improve with time. In these cases a turn ends after
/// [`QUANTUM_BYTES`], or after the bytes of [`Chunk::Bytes`] in the settings. The other orders need no turns:
/// [`Pacing::EXACT`].
#[derive(Clone, Debug)]
pub struct Ordered {
    line: ExactLink,
    wire: WireModel,
    uplink: Uplink,
    /// By ticket.
    jobs: Vec<Job>,
    /// By the scheduler's job id.
    tickets: Vec<Ticket>,
    current: Option<Current>,
}

/// Bytes of a turn where an order needs turns: a segment's payload.
pub const QUANTUM_BYTES: u64 = 1448;

#[derive(Clone, Copy, Debug)]
struct Job {
    name: JobId,
    left_bytes: u64,
    first_byte_ns: Option<u64>,
}

/// The request on the link.
#[derive(Clone, Copy, Debug)]
struct Current {
    ticket: Ticket,
    bytes: u64,
    /// When its first byte will have been sent, if none was sent before.
    first_byte_ns: Option<u64>,
}

impl Ordered {
    /// An idle link. Uses order, guard and `small_bytes` of `settings`, and `pacing` as described above. The
    /// rate is the link's, and overhead is already in the wire bytes.
    pub fn new(link: &Link, wire: &WireModel, settings: Settings) -> Self {
        let line = ExactLink::new(link);
        let settings = Settings {
            rate: Some(line.scheduler_rate()),
            segment_overhead_bytes: 0,
            small_bytes: wire.bytes_for(settings.small_bytes),
            pacing: pacing(&settings),
            ..settings
        };
        Self { line, wire: *wire, uplink: Uplink::new(settings), jobs: Vec::new(), tickets: Vec::new(), current: None }
    }

    /// The scheduler, for inspection.
    pub fn uplink(&self) -> &Uplink {
        &self.uplink
    }

    /// Carries out a grant at `now_ns`, when the link is free.
    fn begin(&mut self, now_ns: u64, grant: Grant) {
        self.line.begin(now_ns, grant.bytes);
        self.has_begun(grant);
    }

    /// Carries out a grant exactly when the transmission before ends.
    fn follow(&mut self, grant: Grant) {
        self.line.follow(grant.bytes);
        self.has_begun(grant);
    }

    fn has_begun(&mut self, grant: Grant) {
        let ticket = self.tickets[grant.job.index()];
        let untouched = self.jobs[ticket.0 as usize].first_byte_ns.is_none();
        let first_byte_ns = untouched.then(|| self.line.first_byte_ns());
        self.current = Some(Current { ticket, bytes: grant.bytes, first_byte_ns });
        self.uplink.handle_free_at(Instant::from_ns(self.line.end_ns()));
    }

    /// Takes back the bytes on the link that have not begun by `now_ns`. `None`: the link is idle, or its
    /// last byte is in flight.
    fn cut(&mut self, now_ns: u64) -> Option<Ticket> {
        let Current { ticket, bytes, first_byte_ns } = self.current?;
        let begun = self.line.cut(now_ns);
        if begun == bytes {
            return None;
        }
        self.current = None;
        let job = &mut self.jobs[ticket.0 as usize];
        job.left_bytes -= begun;
        if begun > 0 {
            job.first_byte_ns = job.first_byte_ns.or(first_byte_ns);
        }
        self.uplink.handle_unused(job.name, bytes - begun);
        self.uplink.handle_free_at(Instant::from_ns(self.line.end_ns()));
        Some(ticket)
    }

    /// The transmission ended at `end_ns`: the end of its request, or of its turn.
    fn turn_is_over(&mut self, end_ns: u64) -> Option<Ended> {
        let Current { ticket, bytes, first_byte_ns } = self.current.take()?;
        let now = Instant::from_ns(end_ns);
        let job = &mut self.jobs[ticket.0 as usize];
        job.left_bytes -= bytes;
        job.first_byte_ns = job.first_byte_ns.or(first_byte_ns);
        if job.left_bytes == 0 {
            self.uplink.handle_finished(now, job.name, true);
            return Some(Ended {
                ticket,
                first_byte_ns: job.first_byte_ns.map_or(end_ns, |at| at.min(end_ns)),
                end_ns,
            });
        }
        if let Some(grant) = self.uplink.handle_wants(now, job.name, job.left_bytes) {
            self.follow(grant);
        }
        None
    }

    fn is_busy(&self) -> bool {
        self.current.is_some() || self.uplink.poll_timeout().is_some()
    }
}

impl Model for Ordered {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        let now = Instant::from_ns(now_ns);
        let bytes = self.wire.bytes_for(request.size_bytes);
        let name = self.uplink.handle_started(now, Size::Known(bytes), Path::UNKNOWN);
        table::put(&mut self.tickets, name.index(), ticket);
        table::put(&mut self.jobs, ticket.0 as usize, Job { name, left_bytes: bytes, first_byte_ns: None });
        if let Some(grant) = self.uplink.handle_wants(now, name, bytes) {
            self.begin(now_ns, grant);
        } else if let Some(ticket) = self.cut(now_ns) {
            let Job { name, left_bytes, .. } = self.jobs[ticket.0 as usize];
            let grant = self.uplink.handle_wants(now, name, left_bytes);
            debug_assert_eq!(grant, None, "somebody else waits");
        }
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        if self.current.is_some_and(|current| current.ticket == ticket) {
            self.cut(now_ns);
            self.current = None;
        }
        self.uplink.handle_finished(Instant::from_ns(now_ns), self.jobs[ticket.0 as usize].name, false);
    }

    fn poll_timeout(&self) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        Some(self.line.poll_timeout())
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            let end_ns = if self.is_busy() { self.line.end_ns() } else { u64::MAX };
            match self.line.change_ns().filter(|&change_ns| change_ns < end_ns) {
                Some(change_ns) if change_ns <= now_ns => {
                    self.line.change();
                    self.uplink.handle_rate(Instant::from_ns(change_ns), Some(self.line.scheduler_rate()));
                    self.uplink.handle_free_at(Instant::from_ns(self.line.end_ns()));
                }
                None if end_ns <= now_ns && self.is_busy() => {
                    let ended = self.turn_is_over(end_ns);
                    if self.current.is_none()
                        && let Some(grant) = self.uplink.poll_grant(Instant::from_ns(end_ns))
                    {
                        self.follow(grant);
                    }
                    if ended.is_some() {
                        return ended;
                    }
                }
                _ => return None,
            }
        }
    }
}

fn pacing(settings: &Settings) -> Pacing {
    let moves = matches!(settings.order, Order::Fair | Order::Las | Order::Stert | Order::QuickFix);
    let chunk = match settings.pacing.chunk {
        Chunk::Bytes(bytes) if bytes < u64::MAX => Chunk::Bytes(bytes),
        _ if moves || settings.guard_stretch.is_some() => Chunk::Bytes(QUANTUM_BYTES),
        _ => Chunk::Bytes(u64::MAX),
    };
    Pacing { chunk, ..Pacing::EXACT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clients, ProcessorSharing, Stream, Totals, run};

    const BODY: WireModel = WireModel::BODY_ONLY;
    const MS: u64 = 1_000_000;

    /// A byte takes a microsecond.
    fn link() -> Link {
        Link::constant("8mbit".parse().unwrap())
    }

    fn request(at_ns: u64, size_bytes: u64, group: u16) -> Request {
        Request { at_ns, file: 0, size_bytes, group }
    }

    /// Sizes in the order of their ends, with the ends.
    fn serve(requests: &[Request], model: &mut impl Model) -> (Vec<(u64, u64)>, Totals) {
        let mut ends = Vec::new();
        let mut source = Stream::new(requests.iter().copied());
        let totals =
            run(&mut source, model, &Clients::PATIENT, None, |it| ends.push((it.request.size_bytes, it.end_ns)));
        (ends, totals)
    }

    fn ordered(order: Order) -> Ordered {
        Ordered::new(&link(), &BODY, Settings { order, ..Settings::default() })
    }

    #[test]
    fn who_has_less_left_goes_first_after_the_byte_in_flight() {
        // At 200.5 us the 201st of 1000 bytes is in flight. 100 go before the 799 left, then 798 do, and 800
        // do not.
        let requests =
            [request(0, 1000, 0), request(200_500, 100, 0), request(201_000, 798, 0), request(201_000, 800, 0)];
        let (ends, totals) = serve(&requests, &mut ordered(Order::Srpt));
        assert_eq!(ends, [(100, 301_000), (798, 1_099_000), (1000, 1_898_000), (800, 2_698_000)]);
        assert_eq!(totals.most_present, 4);
    }

    #[test]
    fn each_order_does_as_its_name_says() {
        let requests = [request(0, 6_000, 0), request(MS, 3_000, 0), request(2 * MS, 500, 0)];
        for (order, first, last) in [
            (Order::Fifo, 6_000, 500),
            (Order::Srpt, 500, 6_000),
            (Order::Fair, 500, 6_000),
            (Order::Las, 500, 6_000),
            (Order::Fsp, 500, 6_000),
            (Order::QuickFix, 500, 6_000),
        ] {
            let (ends, _) = serve(&requests, &mut ordered(order));
            assert_eq!((ends[0].0, ends[2].0), (first, last), "{order}: {ends:?}");
        }
        let (srpt, _) = serve(&requests, &mut ordered(Order::Srpt));
        let (quick, _) = serve(&requests, &mut ordered(Order::QuickFix));
        assert_eq!(quick[0], srpt[0], "a small one goes before all large ones, whoever has a turn");
    }

    #[test]
    fn small_means_the_size_of_the_file_and_not_its_bytes_on_the_wire() {
        let wire = WireModel { head_bytes: 2_000, ..BODY };
        let settings = Settings { order: Order::QuickFix, small_bytes: 1_000, ..Settings::default() };
        let requests = [request(0, 5_000, 0), request(0, 1_000, 0), request(0, 999, 0)];
        let (ends, _) = serve(&requests, &mut Ordered::new(&link(), &wire, settings));
        assert_eq!(ends[0], (999, 2_999_000), "1000 are not small, and 999 wait for nobody");
    }

    #[test]
    fn the_guard_brings_a_starved_response_to_its_end() {
        // The link is full of small requests that always go first.
        let mut requests = vec![request(0, 20_000, 0)];
        requests.extend((0..2_000).map(|i| request(i * 100_000, 100, 0)));
        let end_of_the_large = |model: &mut dyn FnMut() -> Vec<(u64, u64)>| {
            model().into_iter().find(|&(size, _)| size == 20_000).map(|(_, end_ns)| end_ns).unwrap()
        };
        let guarded = Settings { guard_stretch: Some(2.0), ..Settings::default() };
        let guarded = || Ordered::new(&link(), &BODY, guarded);
        let starved = end_of_the_large(&mut || serve(&requests, &mut ordered(Order::Srpt)).0);
        let fair = end_of_the_large(&mut || serve(&requests, &mut ProcessorSharing::new(&link(), &BODY)).0);
        let ended = end_of_the_large(&mut || serve(&requests, &mut guarded()).0);
        assert_eq!(starved, 220 * MS, "last of all");
        // Late by the turns and bytes in flight at its time.
        assert!(ended <= 2 * fair + 2 * QUANTUM_BYTES * 1_000, "{ended} for {fair}");
    }

    #[test]
    fn memory_is_for_those_present_and_not_for_those_who_were() {
        let requests: Vec<Request> = (0..20_000).map(|i| request(i * 800_000, 100 + i * 7_919 % 900, 0)).collect();
        let mut model = ordered(Order::Srpt);
        let (_, totals) = serve(&requests, &mut model);
        assert!(totals.most_present < 50, "{totals:?}");
        assert!(model.jobs.len() <= totals.most_present && model.tickets.len() <= totals.most_present);
        assert_eq!((model.uplink.stats().jobs, model.uplink.stats().waiting), (0, 0));
    }
}
