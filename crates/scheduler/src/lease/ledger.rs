//! The store's side: who holds how many slots.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec,
    vec::Vec,
};

use super::{
    Ask, CellAsk, CellSettings, Division, Grant, Others, Reply, Tally, account::Account, alone, divide::divide,
};
use crate::time::Instant;

/// Most that a gateway can be ahead of or behind its exact part, in slots.
const MOST_CREDIT: f64 = 2.0;
/// An amount this near to a whole slot counts as a whole slot.
const NEARLY: f64 = 1e-6;
/// Credit is counted in slots over this time.
const CREDIT_NS: f64 = 100_000_000.0;
/// With so many gateways each asks so seldom that its requests may change much in between.
const MANY: u32 = 32;
/// For this time no other gateway is told of the slot that a gateway was told of.
const TOLD_NS: u64 = 1_000_000;
/// The least time between two calls to all gateways to give back what they do not use: so much for each gateway, and
/// within these bounds.
const WANTED_GAP_NS: u64 = 50_000;
const WANTED_LEAST_NS: u64 = 2_000_000;
const WANTED_MOST_NS: u64 = 50_000_000;

/// By then each gateway that reaches a ledger without memory has asked it, if it was there before. If none holds a lease of
/// before, there were none.
const LISTEN_NS: u64 = 300_000_000;

/// Number of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayId(pub u32);

/// A message of the store that is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Slots are free for this gateway: it should ask now.
    Free(GatewayId),
    /// Others want slots: a gateway that has some without a request should ask now.
    Wanted,
}

/// The leases of the gateways of a site. All amounts are added up as they change, so that an ask costs as much with a
/// thousand gateways as with two.
#[derive(Clone, Debug)]
pub struct Ledger {
    lease_ns: u64,
    cells: Vec<Cell>,
    gateways: BTreeMap<GatewayId, Gateway>,
    /// By the end of the lease, and after that by the end of what was in flight.
    ends: BTreeSet<(Instant, GatewayId)>,
    doubt: Doubt,
    last: Option<Instant>,
    called_at: Option<Instant>,
    /// The gateway that adjusts the windows.
    leader: Option<GatewayId>,
    notices: VecDeque<Notice>,
}

#[derive(Clone, Debug)]
struct Cell {
    settings: CellSettings,
    /// Requests of each class at all gateways.
    demands: Vec<f64>,
    /// Of these, the ones that run.
    running: u32,
    /// Finished at gateways that do not lead, since the one that leads has asked.
    finished: Tally,
    /// Slots that no other gateway may have.
    held: u32,
    /// Slots held beyond the requests that run.
    idle: u32,
    /// Gateways whose equal part is kept for them.
    keepers: u32,
    /// Gateways that got less than their part, in the order of their turn.
    denied: VecDeque<GatewayId>,
    /// Gateways that got their part and could use more, in the order of their turn.
    short: VecDeque<GatewayId>,
    /// Gateways that were told of free slots and have not asked since, and when.
    told: VecDeque<(Instant, GatewayId)>,
    /// The gateways know that slots are wanted.
    called: bool,
    account: Account,
}

#[derive(Clone, Debug)]
struct Gateway {
    number: u64,
    asked_at: Instant,
    ends: Instant,
    lapsed: bool,
    linger_ns: u64,
    keep_ns: u64,
    /// Its connection has ended.
    closed: bool,
    cells: Vec<Held>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    ask: CellAsk,
    slots: u32,
    /// How far it is behind its exact part, in slots for [`CREDIT_NS`].
    credit: f64,
    /// Its equal part is kept for it.
    kept: bool,
}

/// The ledger may have forgotten leases.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    /// By then all of them have ended.
    until: Instant,
    /// If none has been heard of by then, there were none. `None`: there were some.
    listens_until: Option<Instant>,
}

/// The conditions of a grant beside the state of the cell.
#[derive(Clone, Copy)]
struct Bounds {
    /// Most slots.
    most: u32,
    /// How many gateways there are.
    gateways: u32,
    /// There are many gateways, so that each asks seldom, and since its last ask this one has had time to finish its
    /// requests and begin others.
    slow: bool,
}

impl CellAsk {
    fn running(&self) -> u32 {
        self.demands.iter().map(|it| it.running).sum()
    }

    fn demand(&self) -> u32 {
        self.demands.iter().map(|it| it.running + it.waiting).sum()
    }
}

impl Held {
    fn held(&self) -> u32 {
        self.slots.max(self.ask.running())
    }

    fn idle(&self) -> u32 {
        self.slots.saturating_sub(self.ask.running())
    }
}

impl Cell {
    fn add(&mut self, it: &Held) {
        for (all, its) in self.demands.iter_mut().zip(&it.ask.demands) {
            *all += f64::from(its.running + its.waiting);
        }
        self.running += it.ask.running();
        self.held += it.held();
        self.idle += it.idle();
        self.keepers += u32::from(it.kept);
    }

    /// Slots that are kept for gateways that may be cut off. With more gateways than before they are fewer, so that no
    /// gateway has less than its equal part.
    fn kept(&self, gateways: u32) -> u32 {
        self.keepers.saturating_mul(alone(self.settings.window, gateways)).min(self.settings.window)
    }

    /// Takes the window that the leading gateway sets, and returns the requests at the others for it. The finished
    /// requests of another gateway are counted.
    fn lead(&mut self, leads: bool, ask: &CellAsk) -> Others {
        if !leads {
            self.finished.add(ask.finished);
            return Others::default();
        }
        if self.settings.adjusted {
            self.settings.window = ask.window.max(1);
        }
        let all: f64 = self.demands.iter().sum();
        let finished = core::mem::take(&mut self.finished);
        Others { running: self.running, waiting: all as u32 - self.running, finished }
    }

    fn subtract(&mut self, it: &Held) {
        for (all, its) in self.demands.iter_mut().zip(&it.ask.demands) {
            *all -= f64::from(its.running + its.waiting);
        }
        self.running -= it.ask.running();
        self.held -= it.held();
        self.idle -= it.idle();
        self.keepers -= u32::from(it.kept);
    }

    /// A gateway no longer waits for slots.
    fn leave(&mut self, now: Instant, id: GatewayId) {
        self.denied.retain(|&other| other != id);
        self.short.retain(|&other| other != id);
        self.forget_told(now, id);
    }

    /// Forgets that a gateway was told of free slots, and what is long ago.
    fn forget_told(&mut self, now: Instant, id: GatewayId) {
        self.told.retain(|&(at, other)| other != id && now.ns_since(at) < TOLD_NS);
    }
}

impl Doubt {
    fn new(now: Instant, lease_ns: u64) -> Self {
        Self { since: now, until: now.add_ns(lease_ns), listens_until: Some(now.add_ns(LISTEN_NS)) }
    }

    fn is_at(&self, now: Instant) -> bool {
        now < self.listens_until.unwrap_or(self.until).min(self.until)
    }
}

impl Ledger {
    /// Makes a ledger without memory.
    pub fn new(now: Instant, lease_ns: u64, cells: Vec<CellSettings>) -> Self {
        let empty = |settings: CellSettings| Cell {
            account: Account::new(now, settings.classes.len()),
            demands: vec![0.0; settings.classes.len()],
            settings,
            running: 0,
            finished: Tally::default(),
            held: 0,
            idle: 0,
            keepers: 0,
            denied: VecDeque::new(),
            short: VecDeque::new(),
            told: VecDeque::new(),
            called: false,
        };
        Self {
            lease_ns,
            cells: cells.into_iter().map(empty).collect(),
            gateways: BTreeMap::new(),
            ends: BTreeSet::new(),
            doubt: Doubt::new(now, lease_ns),
            last: None,
            called_at: None,
            leader: None,
            notices: VecDeque::new(),
        }
    }

    /// A gateway asks. The cells of the ask are those of the ledger.
    pub fn handle_ask(&mut self, now: Instant, id: GatewayId, ask: Ask) -> Reply {
        // No gateway asked for so long that all leases have ended; or the clock was set forward, and they have not.
        if self.last.is_some_and(|last| now.ns_since(last) > self.lease_ns) {
            self.doubt = Doubt::new(now, self.lease_ns);
        }
        self.last = Some(now);
        self.expire(now, id);
        let old = self.gateways.remove(&id);
        if let Some(old) = &old {
            self.ends.remove(&(old.ends, id));
            for (cell, held) in self.cells.iter_mut().zip(&old.cells) {
                cell.subtract(held);
            }
        }
        let number = old.as_ref().map_or(0, |old| old.number);
        let holds = ask.cells.iter().any(|cell| cell.holds > 0);
        if holds && ask.seen > number {
            // The gateway has an answer that the ledger does not know of.
            let until = self.doubt.until.max(now.add_ns(self.lease_ns));
            self.doubt = Doubt { since: self.doubt.since, until, listens_until: None };
        } else if holds && old.as_ref().is_some_and(|old| old.asked_at < self.doubt.since) {
            self.doubt.listens_until = None;
        }
        let number = number.max(ask.seen) + 1;
        let gateways = self.gateways.len() as u32 + 1;
        let unsure = self.doubt.is_at(now);
        let most_gateways = if unsure { gateways.max(ask.gateways) } else { gateways };
        let has_leader = self.leader.is_some_and(|it| self.gateways.get(&it).is_some_and(|it| !it.lapsed));
        if !has_leader {
            self.leader = Some(id);
        }
        let leads = self.leader == Some(id);
        let slow = gateways >= MANY && old.as_ref().is_some_and(|old| now.ns_since(old.asked_at) >= ask.linger_ns / 4);
        let mut held = Vec::with_capacity(self.cells.len());
        let mut grants = Vec::with_capacity(self.cells.len());
        for (at, its) in ask.cells.into_iter().enumerate() {
            let had = old.as_ref().map(|old| {
                let periods = now.ns_since(old.asked_at) as f64 / CREDIT_NS;
                (&old.cells[at], periods)
            });
            let others = self.cells[at].lead(leads, &its);
            let most = match unsure {
                false => u32::MAX,
                // A lease of before may not have been told yet.
                true if self.doubt.listens_until.is_some() => {
                    its.holds.max(alone(self.cells[at].settings.window, most_gateways))
                }
                true => its.holds,
            };
            let was_kept = had.is_some_and(|(held, _)| held.kept);
            let (mut it, mut grant) = self.grant(now, id, at, its, had, Bounds { most, gateways, slow });
            grant.others = others;
            if was_kept {
                // The ask may have been on its way for long. Then its answer arrives nowhere, and the gateway goes on at its
                // equal part until it asks again.
                let cell = &self.cells[at];
                let window = cell.settings.window;
                it.slots = it.slots.max(alone(window, gateways).min(window.saturating_sub(cell.held)));
            }
            self.cells[at].add(&it);
            self.tell(now, at, gateways);
            held.push(it);
            grants.push(grant);
        }
        let ends = now.add_ns(self.lease_ns);
        self.ends.insert((ends, id));
        let Ask { linger_ns, keep_ns, .. } = ask;
        self.gateways.insert(
            id,
            Gateway { number, asked_at: now, ends, lapsed: false, linger_ns, keep_ns, closed: false, cells: held },
        );
        // Those that have not asked yet since the ledger forgot them are still there.
        Reply { number, gateways: most_gateways, leads, cells: grants }
    }

    /// Another process has this memory from now on, perhaps without what was written last: a replica that became the master,
    /// or a store that was started again.
    pub fn handle_moved(&mut self, now: Instant) {
        self.doubt = Doubt { listens_until: None, ..Doubt::new(now, self.lease_ns) };
        self.last = Some(now);
    }

    /// Slots of a cell, in use or not.
    pub fn window(&self, cell: usize) -> u32 {
        self.cells[cell].settings.window
    }

    /// A gateway ends, and has no request under way.
    pub fn handle_left(&mut self, now: Instant, id: GatewayId) {
        self.forget(now, id);
    }

    /// The store has noticed that the connection of a gateway has ended.
    pub fn handle_closed(&mut self, id: GatewayId) {
        if let Some(gateway) = self.gateways.get_mut(&id) {
            gateway.closed = true;
        }
    }

    /// The next message to gateways. Ask until `None`.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Slots of a cell that gateways hold.
    pub fn held(&self, cell: usize) -> u32 {
        self.cells[cell].held
    }

    fn grant(
        &mut self,
        now: Instant,
        id: GatewayId,
        at: usize,
        ask: CellAsk,
        had: Option<(&Held, f64)>,
        bounds: Bounds,
    ) -> (Held, Grant) {
        let Bounds { most, gateways, slow } = bounds;
        let cell = &mut self.cells[at];
        let window = cell.settings.window;
        let kept = cell.kept(gateways);
        let divided = window - kept;
        let mut demands = cell.demands.clone();
        for (all, its) in demands.iter_mut().zip(&ask.demands) {
            *all += f64::from(its.running + its.waiting);
        }
        let all: f64 = demands.iter().sum();
        let demand = ask.demand();
        let available = divided.saturating_sub(cell.held);
        cell.forget_told(now, id);
        let wanted = all > f64::from(divided);
        let (division, classes) = (cell.settings.division, &cell.settings.classes);
        let by_class = if wanted { divide(f64::from(divided), division, classes, &demands) } else { demands.clone() };
        let mut factors = vec![];
        if division == Division::Weighted {
            let wants = by_class.iter().zip(&demands).map(|(gets, demand)| gets < demand);
            factors = cell.account.settle(now, f64::from(window), classes, wants, &ask.started);
        }
        let mut exact = 0.0;
        let mut parts = Vec::with_capacity(demands.len());
        for (i, its) in ask.demands.iter().enumerate() {
            let its = f64::from(its.running + its.waiting);
            let part = if demands[i] > 0.0 { its / demands[i] } else { 1.0 / f64::from(gateways) };
            exact += by_class[i] * part;
            parts.push((part * 1000.0 + 0.5) as u32);
        }
        let credit = match had {
            Some((held, periods)) if wanted => {
                (held.credit + (exact - f64::from(held.slots)) * periods).clamp(-MOST_CREDIT, MOST_CREDIT)
            }
            _ => 0.0,
        };
        let claim = exact + credit + NEARLY;
        let floor = |slots: f64| if slots > 0.0 { slots as u32 } else { 0 };
        // A slot that it has stays until it is one behind, so that slots do not move with each ask.
        let has = had.map_or(0, |(held, _)| held.slots);
        let whole = floor(claim).max(floor(claim + 1.0).min(has));
        let slots = if wanted {
            // Free slots beyond that are lent to the gateway that asks, half of them at a time, unless others lack
            // some of their part.
            let nobody_else = cell.denied.iter().all(|&other| other == id);
            let beyond = if nobody_else { available.saturating_sub(whole).div_ceil(2) } else { 0 };
            (whole + beyond).min(demand)
        } else {
            // One part of the rest stays with the store, for the gateway that needs it first.
            let spare = (f64::from(divided) - all) / (f64::from(gateways) + 1.0);
            ((exact + spare + NEARLY) as u32).max(demand)
        };
        // Its requests may soon be twice as many, and it will not ask in time.
        let ahead = if slow { (window / gateways).min(demand.saturating_mul(2)) } else { 0 };
        let slots = slots.max(ahead).min(available).min(most);
        // A gateway that was denied some before keeps its turn.
        let (is_denied, is_short) = (slots < demand && slots < whole, slots < demand && slots >= whole);
        for (queue, is_in) in [(&mut cell.denied, is_denied), (&mut cell.short, is_short)] {
            if !is_in {
                queue.retain(|&other| other != id);
            } else if !queue.contains(&id) {
                queue.push_back(id);
            }
        }
        if slots < demand {
            let every_ns = (WANTED_GAP_NS * u64::from(gateways)).clamp(WANTED_LEAST_NS, WANTED_MOST_NS);
            let due = self.called_at.is_none_or(|at| now.ns_since(at) >= every_ns);
            // Requests have moved to this gateway, and others still have the slots that they had for them.
            let moved = 4 * whole.saturating_sub(slots) >= window.max(12);
            if due && (cell.idle > 0 || !cell.called || moved) {
                self.called_at = Some(now);
                cell.called = true;
                self.notices.push_back(Notice::Wanted);
            }
        } else if !wanted {
            cell.called = false;
        }
        (
            Held { ask, slots, credit, kept: false },
            Grant { slots, parts, factors, wanted, window, others: Others::default() },
        )
    }

    /// Tells as many gateways as slots are free, beside those that were told already.
    fn tell(&mut self, now: Instant, at: usize, gateways: u32) {
        let cell = &mut self.cells[at];
        for _ in cell.kept(gateways) + cell.held + cell.told.len() as u32..cell.settings.window {
            let Some(id) = cell.denied.pop_front().or_else(|| cell.short.pop_front()) else { return };
            cell.told.push_back((now, id));
            self.notices.push_back(Notice::Free(id));
        }
    }

    /// Ends leases, and what was in flight in those that ended before.
    fn expire(&mut self, now: Instant, asks: GatewayId) {
        while let Some(&(ends, id)) = self.ends.first().filter(|(ends, _)| *ends <= now) {
            let gateway = self.gateways.get_mut(&id).expect("each end belongs to a gateway");
            if gateway.lapsed || id == asks {
                if id == asks {
                    // It is here again, and says itself what it holds.
                    self.ends.remove(&(ends, id));
                    continue;
                }
                self.forget(now, id);
                continue;
            }
            self.ends.remove(&(ends, id));
            gateway.lapsed = true;
            let kept = gateway.keep_ns > 0 && !gateway.closed;
            gateway.ends = ends.add_ns(if kept { gateway.keep_ns } else { gateway.linger_ns });
            self.ends.insert((gateway.ends, id));
            for (cell, held) in self.cells.iter_mut().zip(&mut gateway.cells) {
                cell.subtract(held);
                // Its waiting requests are gone with it.
                (held.slots, held.kept) = (0, kept);
                for demand in &mut held.ask.demands {
                    demand.waiting = 0;
                    demand.running *= u32::from(!kept);
                }
                cell.add(held);
            }
            let gateways = self.gateways.len() as u32;
            for at in 0..self.cells.len() {
                self.cells[at].leave(now, id);
                self.tell(now, at, gateways);
            }
        }
    }

    fn forget(&mut self, now: Instant, id: GatewayId) {
        let Some(gateway) = self.gateways.remove(&id) else { return };
        self.ends.remove(&(gateway.ends, id));
        for (at, held) in gateway.cells.iter().enumerate() {
            self.cells[at].subtract(held);
            self.cells[at].leave(now, id);
            self.tell(now, at, self.gateways.len() as u32);
        }
    }
}
