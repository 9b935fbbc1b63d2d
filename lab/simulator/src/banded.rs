//! Priority bands in place of an exact order, on an ideal link.

use std::collections::BTreeSet;

use scheduler::{Instant, JobId, Order, Pacing, Path, Size, Uplink, bands::BandPlan, uplink::Settings};
use workload::{rate::Link, sequence::Request, wire::WireModel};

use crate::{Ended, Model, Ticket, exact_link::ExactLink, ordered::QUANTUM_BYTES, table};

/// An ideal link with strict priority among bands: a kernel's priorities without their imperfections.
///
/// A request's band follows from its remaining work, in the measure of its order ([`Uplink::measure`]) and in
/// wire bytes. A lower band goes first, at once and to the byte: unsent bytes are taken back when a request
/// of a lower band comes. Within a band requests take turns of [`QUANTUM_BYTES`], in the order in which they
/// entered it. A request that is preempted in its turn gets the rest of the turn later, before the requests
/// behind it.
///
/// **Distance to the exact order.** Take [`Order::Srpt`] and a band for every number of remaining bytes (one
/// byte per band; [`BandPlan`] has at most 255). Then two requests of one band have equal work left. The one
/// that has begun leaves the band with its next byte, and of equals the earlier is first. That is exact SRPT,
/// response for response. Bands for all sizes of the *requests* are not enough, since the remaining work of a
/// large response lies between the sizes.
#[derive(Clone, Debug)]
pub struct Banded {
    line: ExactLink,
    wire: WireModel,
    plan: BandPlan,
    /// Counts the bytes served to each request, and measures by the order. No job ever waits in it.
    uplink: Uplink,
    /// By ticket.
    jobs: Vec<Job>,
    /// Band, turn, ticket.
    waiting: BTreeSet<(u8, u64, Ticket)>,
    turns: u64,
    current: Option<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    name: JobId,
    left_bytes: u64,
    band: u8,
    turn: u64,
    turn_left_bytes: u64,
    first_byte_ns: Option<u64>,
}

/// The request on the link.
#[derive(Clone, Copy, Debug)]
struct Current {
    ticket: Ticket,
    bytes: u64,
}

/// Converts cutoffs from response bytes, as in the server, to bytes on the wire, as in [`Banded`]. A response
/// then begins in the band that the server would choose. Orders that do not measure bytes keep their cutoffs.
pub fn on_wire(plan: &BandPlan, order: Order, wire: &WireModel) -> BandPlan {
    /// Larger than any response.
    const MOST_BYTES: u64 = 1 << 48;
    if !matches!(order, Order::Srpt | Order::Las) {
        return plan.clone();
    }
    let mut cutoffs: Vec<u64> = plan.cutoffs().iter().map(|&cutoff| wire.bytes_for(cutoff.min(MOST_BYTES))).collect();
    cutoffs.dedup();
    BandPlan::new(cutoffs).unwrap_or_else(|_| plan.clone())
}

impl Banded {
    /// An idle link with these bands, in the measure used here: see [`on_wire`]. Uses order and `small_bytes`
    /// of `settings`. [`Order::Fsp`] has no measure for bands, so all its requests share one band.
    pub fn new(link: &Link, wire: &WireModel, settings: Settings, plan: BandPlan) -> Self {
        let line = ExactLink::new(link);
        let settings = Settings {
            order: settings.order,
            rate: Some(line.scheduler_rate()),
            segment_overhead_bytes: 0,
            small_bytes: wire.bytes_for(settings.small_bytes),
            guard_stretch: None,
            pacing: Pacing::EXACT,
        };
        Self {
            line,
            wire: *wire,
            plan,
            uplink: Uplink::new(settings),
            jobs: Vec::new(),
            waiting: BTreeSet::new(),
            turns: 0,
            current: None,
        }
    }

    /// Adds a request to the waiting ones, in its current band.
    fn wait(&mut self, now_ns: u64, ticket: Ticket) {
        let job = &mut self.jobs[ticket.0 as usize];
        if job.turn_left_bytes == 0 {
            (job.turn, job.turn_left_bytes) = (self.turns, QUANTUM_BYTES);
            self.turns += 1;
        }
        let measure = self.uplink.measure(Instant::from_ns(now_ns), job.name);
        job.band = measure.map_or(1, |measure| self.plan.band(measure));
        self.waiting.insert((job.band, job.turn, ticket));
    }

    /// Puts the first waiting request on the link, which is free at `at_ns`; returns its bytes.
    fn next(&mut self, at_ns: u64) -> Option<u64> {
        let (_, _, ticket) = self.waiting.pop_first()?;
        let at = Instant::from_ns(at_ns);
        let job = &self.jobs[ticket.0 as usize];
        let mut bytes = job.left_bytes.min(job.turn_left_bytes);
        if self.uplink.settings().order == Order::Las {
            // This measure grows byte by byte: the turn ends where the band ends.
            let attained = self.uplink.attained_bytes(job.name);
            let cutoffs = self.plan.cutoffs();
            let next = cutoffs.get(cutoffs.partition_point(|&cutoff| cutoff <= attained));
            bytes = next.map_or(bytes, |&cutoff| bytes.min(cutoff - attained));
        }
        self.uplink.handle_free_at(at);
        let grant = self.uplink.handle_wants(at, job.name, bytes);
        debug_assert_eq!(grant.map(|grant| grant.bytes), Some(bytes), "nobody waits in the uplink, and it is free");
        self.current = Some(Current { ticket, bytes });
        Some(bytes)
    }

    fn served(&mut self, ticket: Ticket, bytes: u64) {
        let job = &mut self.jobs[ticket.0 as usize];
        job.left_bytes -= bytes;
        job.turn_left_bytes -= bytes;
    }

    fn sees_first_byte(&mut self) {
        if let Some(Current { ticket, .. }) = self.current {
            let job = &mut self.jobs[ticket.0 as usize];
            job.first_byte_ns = job.first_byte_ns.or(Some(self.line.first_byte_ns()));
        }
    }

    /// Takes back the bytes on the link that have not begun by `now_ns`. `None`: the link is idle, or its
    /// last byte is in flight.
    fn cut(&mut self, now_ns: u64) -> Option<Ticket> {
        let Current { ticket, bytes } = self.current?;
        let begun = self.line.cut(now_ns);
        if begun == bytes {
            return None;
        }
        self.current = None;
        self.uplink.handle_unused(self.jobs[ticket.0 as usize].name, bytes - begun);
        self.served(ticket, begun);
        if self.uplink.attained_bytes(self.jobs[ticket.0 as usize].name) == 0 {
            self.jobs[ticket.0 as usize].first_byte_ns = None;
        }
        Some(ticket)
    }

    fn is_busy(&self) -> bool {
        self.current.is_some() || !self.waiting.is_empty()
    }
}

impl Model for Banded {
    fn handle_request(&mut self, now_ns: u64, ticket: Ticket, request: &Request) {
        let left_bytes = self.wire.bytes_for(request.size_bytes);
        let name = self.uplink.handle_started(Instant::from_ns(now_ns), Size::Known(left_bytes), Path::UNKNOWN);
        let job = Job { name, left_bytes, band: 1, turn: 0, turn_left_bytes: 0, first_byte_ns: None };
        table::put(&mut self.jobs, ticket.0 as usize, job);
        let taken_off = self.cut(now_ns);
        self.wait(now_ns, ticket);
        if let Some(taken_off) = taken_off {
            self.wait(now_ns, taken_off);
        }
        if self.current.is_none()
            && self.line.end_ns() <= now_ns
            && let Some(bytes) = self.next(now_ns)
        {
            self.line.begin(now_ns, bytes);
            self.sees_first_byte();
        }
    }

    fn handle_abort(&mut self, now_ns: u64, ticket: Ticket) {
        if self.current.is_some_and(|current| current.ticket == ticket) {
            self.cut(now_ns);
            self.current = None;
        }
        let Job { name, band, turn, .. } = self.jobs[ticket.0 as usize];
        self.waiting.remove(&(band, turn, ticket));
        self.uplink.handle_finished(Instant::from_ns(now_ns), name, false);
    }

    fn poll_timeout(&self) -> Option<u64> {
        if !self.is_busy() {
            return None;
        }
        Some(self.line.poll_timeout())
    }

    fn poll_end(&mut self, now_ns: u64) -> Option<Ended> {
        loop {
            let is_busy = self.is_busy();
            let end_ns = if is_busy { self.line.end_ns() } else { u64::MAX };
            match self.line.change_ns().filter(|&change_ns| change_ns < end_ns) {
                Some(change_ns) if change_ns <= now_ns => {
                    self.line.change();
                    self.uplink.handle_rate(Instant::from_ns(change_ns), Some(self.line.scheduler_rate()));
                }
                None if end_ns <= now_ns && is_busy => {
                    let over = self.current.take();
                    let mut ended = None;
                    if let Some(Current { ticket, bytes }) = over {
                        self.served(ticket, bytes);
                        let Job { name, left_bytes, first_byte_ns, .. } = self.jobs[ticket.0 as usize];
                        if left_bytes == 0 {
                            self.uplink.handle_finished(Instant::from_ns(end_ns), name, true);
                            let first_byte_ns = first_byte_ns.map_or(end_ns, |at_ns| at_ns.min(end_ns));
                            ended = Some(Ended { ticket, first_byte_ns, end_ns });
                        } else {
                            self.wait(end_ns, ticket);
                        }
                    }
                    if let Some(bytes) = self.next(end_ns) {
                        self.line.follow(bytes);
                        self.sees_first_byte();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clients, Stream, run};

    #[test]
    fn cutoffs_of_a_server_divide_bodies_and_not_their_bytes_on_the_wire() {
        let (wire, plan) = (WireModel::PER_CONNECTION, BandPlan::new(vec![1_000, 100_000]).unwrap());
        for order in [Order::Srpt, Order::Las] {
            let on_wire = on_wire(&plan, order, &wire);
            for (body_bytes, band) in [(0, 1), (999, 1), (1_000, 2), (99_999, 2), (100_000, 3)] {
                assert_eq!(on_wire.band(wire.bytes_for(body_bytes)), band, "{order}: {body_bytes}");
            }
        }
        for order in [Order::QuickFix, Order::Srrt] {
            assert_eq!(on_wire(&plan, order, &wire), plan, "{order} measures no bytes");
        }
        let beyond = BandPlan::new(vec![1_000, u64::MAX - 1, u64::MAX]).unwrap();
        assert_eq!(on_wire(&beyond, Order::Srpt, &wire).cutoffs().len(), 2, "the two largest mean the same");
    }

    #[test]
    fn small_means_what_the_settings_say_and_the_size_of_the_file() {
        let settings = Settings { order: Order::QuickFix, small_bytes: 5_000, ..Settings::default() };
        let wire = WireModel { head_bytes: 2_000, ..WireModel::BODY_ONLY };
        let plan = BandPlan::first(settings.order, None);
        // A byte takes a microsecond.
        let mut model = Banded::new(&Link::constant("8mbit".parse().unwrap()), &wire, settings, plan);
        let requests = [9_000, 5_000, 4_999].map(|size_bytes| Request { at_ns: 0, file: 0, size_bytes, group: 0 });
        let mut ends = Vec::new();
        run(&mut Stream::new(requests.into_iter()), &mut model, &Clients::PATIENT, None, |served| {
            ends.push((served.request.size_bytes, served.end_ns));
        });
        assert_eq!(ends[0], (4_999, 6_999_000), "5000 are not small, and 4999 wait for nobody");
    }
}
