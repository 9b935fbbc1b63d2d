//! A gateway's side: the slots that it has, and when it asks again.

use alloc::{vec, vec::Vec};

use super::{CellAsk, CellSettings, Reply, alone};
use crate::{share::WHOLE, time::Instant};

/// How many gateways are assumed before the store has said it.
const UNKNOWN_GATEWAYS: u32 = 4;
/// Over how many answers parts are smoothed.
const SMOOTHING: u32 = 4;
/// So many asks may follow each other at once after a quiet time.
const BURST: u64 = 8;
/// Most time between two asks on account of changes, in the mean.
const MOST_GAP_NS: u64 = 70_000_000;
/// While an ask is under way for less than this, no request starts that the store does not know of.
const FREEZE_NS: u64 = 50_000_000;
/// A gateway with at least so many slots does not ask at once when requests begin to wait, or slots become free. The
/// next request that ends, or comes, may change that. It asks after the time in which so many requests end, ...
const PATIENT_FROM_SLOTS: u32 = 12;
const PATIENCE_REQUESTS: u64 = 2;
/// ... and after this time at the latest.
const MOST_PATIENCE_NS: u64 = 2_000_000;
/// Units of a smoothed part in a thousandth, so that nothing is lost by rounding.
const FINE: u32 = WHOLE / 1000;

/// Times of a lease, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a lease is good for, from the moment at which it was asked for.
    pub lease_ns: u64,
    /// Time between two asks while nothing changes. With many gateways it is longer.
    pub every_ns: u64,
    /// Mean time between two asks on account of changes, for each gateway that there is: so the store has a bounded load.
    pub gap_ns: u64,
    /// After that an ask without an answer counts as lost.
    pub timeout_ns: u64,
}

impl Times {
    /// The times of a gateway in operation.
    pub const DEFAULT: Self =
        Self { lease_ns: 1_000_000_000, every_ns: 100_000_000, gap_ns: 250_000, timeout_ns: 400_000_000 };
}

impl Default for Times {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The slots of a gateway. After every `handle_*` call, ask [`Holder::poll_ask`], and again at
/// [`Holder::poll_timeout`].
#[derive(Clone, Debug)]
pub struct Holder {
    times: Times,
    cells: Vec<Cell>,
    gateways: u32,
    /// The number of the last answer.
    seen: u64,
    /// When the leases end; `None` without any.
    until: Option<Instant>,
    asked_at: Option<Instant>,
    /// The asks so far, one after the other with their gap between them, end here.
    paid_until: Instant,
    /// An ask is under way.
    pending: bool,
    /// When it was first known that the store does not answer, since it did last.
    failed_at: Option<Instant>,
    leads: bool,
    /// The next regular ask.
    due: Instant,
    /// Something has changed that the store should know at once.
    changed: bool,
    /// How long the site takes for a request in the mean, as far as it is known.
    service_ns: u64,
}

#[derive(Clone, Debug)]
struct Cell {
    window: u32,
    slots: u32,
    /// By class, smoothed.
    parts: Vec<u32>,
    /// The same, times what weights are to be multiplied by.
    weights: Vec<u32>,
    wanted: bool,
    /// Requests that ran at the last ask: the store counts their slots as taken, even beyond those granted.
    known_running: u32,
    /// Requests of each class at the last ask.
    known: Vec<u32>,
    /// Requests wait, and all slots are in use.
    short: bool,
    /// Slots are free, and no request waits.
    idle: bool,
    /// When to tell the store of that, if it lasts.
    patient_until: Option<Instant>,
    /// The store knows that requests wait.
    known_short: bool,
    /// The store knows of slots without a request.
    known_idle: bool,
}

impl Holder {
    /// A gateway that has not asked yet. It asks at once.
    pub fn new(now: Instant, times: Times, cells: &[CellSettings]) -> Self {
        Self {
            times,
            cells: cells.iter().map(Cell::new).collect(),
            gateways: UNKNOWN_GATEWAYS,
            seen: 0,
            until: None,
            asked_at: None,
            paid_until: now,
            pending: false,
            failed_at: None,
            leads: false,
            due: now,
            changed: false,
            service_ns: 0,
        }
    }

    /// How long the site takes for a request in the mean.
    pub fn handle_service(&mut self, mean_ns: u64) {
        self.service_ns = mean_ns;
    }

    /// Uses other cells from now on. Leases of the old ones are given up, and the store is asked at once, or as soon as the
    /// ask that is under way has ended. The answer to that one is about the old cells, and does not count.
    pub fn handle_settings(&mut self, now: Instant, cells: &[CellSettings]) {
        self.cells = cells.iter().map(Cell::new).collect();
        self.until = None;
        self.asked_at = None;
        self.due = now;
        self.changed = true;
    }

    /// A window has another size.
    pub fn handle_window(&mut self, cell: usize, window: u32) {
        if let Some(cell) = self.cells.get_mut(cell) {
            cell.window = window.max(1);
        }
    }

    /// Slots of a cell that the gateway may use now: by its lease; if the store does not answer, its equal part. While an
    /// ask is under way, they are those in use when it was sent: the store may just be giving the others away.
    pub fn slots(&self, now: Instant, cell: usize) -> u32 {
        let slots = self.holds(now, cell);
        match self.cells.get(cell) {
            Some(it) if self.pending && self.thaws(now).is_some() && self.is_leased(now) => slots.min(it.known_running),
            _ => slots,
        }
    }

    /// Whether there was more demand than slots when the store answered last.
    pub fn is_wanted(&self, cell: usize) -> bool {
        self.cells.get(cell).is_some_and(|it| it.wanted)
    }

    /// When slots may be used again although no answer has come.
    pub fn thaws(&self, now: Instant) -> Option<Instant> {
        let at = self.asked_at.filter(|_| self.pending)?.add_ns(FREEZE_NS);
        (now < at).then_some(at)
    }

    /// Slots of a cell that the gateway has now, by its lease or as its equal part.
    pub fn holds(&self, now: Instant, cell: usize) -> u32 {
        let Some(it) = self.cells.get(cell) else { return 0 };
        match self.is_leased(now) {
            true => it.slots,
            false => match self.failed_at {
                // By now the leases of all others have ended, too.
                Some(at) if now >= at.add_ns(self.times.lease_ns) => alone(it.window, self.gateways),
                Some(_) => it.slots.min(alone(it.window, self.gateways)),
                // It has just begun, or was stopped for a while: it is not known that the store is gone.
                None => 0,
            },
        }
    }

    /// The part of each class's requests in a cell that is at this gateway, smoothed, and more if the class is owed something
    /// ([`crate::share::Share::handle_parts`]); empty without a lease.
    pub fn parts(&self, now: Instant, cell: usize) -> &[u32] {
        match self.cells.get(cell) {
            Some(it) if self.is_leased(now) => &it.weights,
            _ => &[],
        }
    }

    /// Whether a lease is in force.
    pub fn is_leased(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The end of the leases, if they are in force.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// How many gateways there are, as far as it is known.
    pub fn gateways(&self) -> u32 {
        self.gateways
    }

    /// Whether this gateway adjusts the windows of the site.
    pub fn leads(&self, now: Instant) -> bool {
        self.leads && self.is_leased(now)
    }

    /// All slots of a cell.
    pub fn window(&self, cell: usize) -> u32 {
        self.cells.get(cell).map_or(0, |cell| cell.window)
    }

    /// The number of the last answer.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The requests of a cell have changed.
    pub fn handle_load(&mut self, now: Instant, cell: usize, running: u32, waiting: u32) {
        let slots = self.holds(now, cell);
        let Some(it) = self.cells.get_mut(cell) else { return };
        let (was_short, was_idle) = (it.short, it.idle);
        it.short = waiting > 0 && running >= slots;
        it.idle = waiting == 0 && running < slots;
        it.known_short &= waiting > 0;
        it.known_idle &= it.idle;
        let returned = running.max(slots) < it.known_running.max(slots);
        // More than the next requests that end, or come, will mend.
        let (few, free) = (slots.div_ceil(4).max(1), slots.saturating_sub(running));
        let much = waiting > few || it.idle && free > few;
        let unknown = it.short && !it.known_short || it.wanted && it.idle && !it.known_idle;
        let patience_ns = match slots {
            PATIENT_FROM_SLOTS.. => self.service_ns.saturating_mul(PATIENCE_REQUESTS) / u64::from(slots),
            _ => 0,
        };
        let is_same = was_short == it.short && was_idle == it.idle;
        it.patient_until = match it.patient_until.filter(|_| is_same) {
            _ if !unknown => None,
            Some(until) => Some(until),
            None => Some(now.add_ns(patience_ns.min(MOST_PATIENCE_NS))),
        };
        self.changed |= returned || unknown && (much || slots == 0);
    }

    /// The requests of each class in a cell, before [`Holder::handle_load`]. While slots are wanted, the store is told at once
    /// when a class has more than twice as many as the store knows, or less than half.
    pub fn handle_classes(&mut self, cell: usize, requests: &[u32]) {
        let Some(it) = self.cells.get(cell).filter(|it| it.wanted) else { return };
        let few = it.slots.div_ceil(4).max(2);
        let is_much = |(&now, &known): (&u32, &u32)| now.max(known) > 2 * now.min(known) + few;
        self.changed |= requests.iter().zip(&it.known).any(is_much);
    }

    /// The store says that slots are free for this gateway, or that others want some.
    pub fn handle_notice(&mut self) {
        for it in &mut self.cells {
            it.wanted = true;
            self.changed |= it.short || it.idle;
        }
    }

    /// Much more is wanted than the store knows.
    pub fn handle_more(&mut self) {
        self.changed = true;
    }

    /// Whether the store is to be asked now. Then build the ask, and call [`Holder::handle_asked`].
    pub fn poll_ask(&self, now: Instant) -> bool {
        self.poll_timeout().is_some_and(|at| at <= now)
    }

    /// When [`Holder::poll_ask`] is true if nothing happens before; `None` while an ask is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.pending || self.cells.is_empty() {
            return None;
        }
        let earliest = Instant::from_ns(self.paid_until.as_ns().saturating_sub((BURST - 1) * self.gap_ns()));
        // A store that does not answer is asked no more often than one that does.
        if self.failed_at.is_some() {
            return Some(self.due);
        }
        let patient_until = self.cells.iter().filter_map(|it| it.patient_until).min();
        let changed_at = if self.changed { Some(earliest) } else { patient_until.map(|until| until.max(earliest)) };
        Some(changed_at.map_or(self.due, |at| at.min(self.due)))
    }

    /// The mean time between two asks on account of changes.
    fn gap_ns(&self) -> u64 {
        self.times.gap_ns.saturating_mul(u64::from(self.gateways)).min(MOST_GAP_NS)
    }

    /// The time between two asks while nothing changes.
    fn every_ns(&self) -> u64 {
        let of_all = self.times.gap_ns.saturating_mul(u64::from(self.gateways)).min(self.times.lease_ns / 4);
        self.times.every_ns.max(of_all)
    }

    /// The store is asked, and is told this by cell.
    pub fn handle_asked(&mut self, now: Instant, cells: &[CellAsk]) {
        self.pending = true;
        self.changed = false;
        self.asked_at = Some(now);
        self.due = now.add_ns(self.every_ns());
        self.paid_until = self.paid_until.max(now).add_ns(self.gap_ns());
        for (cell, ask) in self.cells.iter_mut().zip(cells) {
            cell.known_running = ask.demands.iter().map(|it| it.running).sum();
            cell.known = ask.demands.iter().map(|it| it.running + it.waiting).collect();
            cell.known_short = ask.demands.iter().any(|it| it.waiting > 0);
            cell.known_idle = !cell.known_short;
            cell.patient_until = None;
        }
    }

    /// The store has answered an ask that was sent at `asked_at`.
    pub fn handle_reply(&mut self, asked_at: Instant, reply: &Reply) {
        (self.pending, self.failed_at) = (false, None);
        if self.asked_at != Some(asked_at) || reply.cells.len() != self.cells.len() {
            return;
        }
        self.seen = reply.number;
        self.gateways = reply.gateways.max(1);
        let led = core::mem::replace(&mut self.leads, reply.leads);
        self.until = Some(asked_at.add_ns(self.times.lease_ns));
        for (cell, grant) in self.cells.iter_mut().zip(&reply.cells) {
            cell.slots = grant.slots;
            cell.wanted = grant.wanted;
            // The gateway that leads has the newest window itself.
            if !(led && self.leads) {
                cell.window = grant.window.max(1);
            }
            let factors = grant.factors.iter().copied().chain(core::iter::repeat(1000));
            cell.parts.resize(grant.parts.len(), 0);
            cell.weights.clear();
            for (at, (&newest, factor)) in grant.parts.iter().zip(factors).enumerate() {
                // Few requests make a part that is mostly chance. Without any it says nothing.
                cell.parts[at] = match (cell.known.get(at), cell.parts[at]) {
                    (Some(0), _) => 0,
                    (_, 0) => (newest * FINE).max(1),
                    (_, before) => ((before * (SMOOTHING - 1) + newest * FINE) / SMOOTHING).max(1),
                };
                let part = cell.parts[at];
                cell.weights.push((part * factor / 1000).max(part.min(1)));
            }
        }
    }

    /// An ask has failed, or its answer is late. The leases stay until their end.
    pub fn handle_failed(&mut self, now: Instant) {
        self.pending = false;
        // If this comes much later than the time-out, then the gateway itself stood still.
        let late_ns = self.asked_at.map_or(0, |at| now.ns_since(at));
        if late_ns <= self.times.timeout_ns.saturating_mul(2) {
            self.failed_at.get_or_insert(now);
        }
    }

    /// After this time an ask counts as lost.
    pub fn timeout_ns(&self) -> u64 {
        self.times.timeout_ns
    }
}

impl Cell {
    fn new(settings: &CellSettings) -> Self {
        Self {
            window: settings.window.max(1),
            slots: 0,
            parts: vec![],
            weights: vec![],
            wanted: false,
            known_running: 0,
            known: vec![],
            short: false,
            idle: false,
            patient_until: None,
            known_short: false,
            known_idle: false,
        }
    }
}
