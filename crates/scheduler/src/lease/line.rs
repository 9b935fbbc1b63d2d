//! One line of several gateways: each sends at a part of its rate, by leases.
//!
//! The rate is divided as the slots of a window are, in [`PARTS`] equal parts. A gateway asks for parts by the responses
//! that wait for leave to send, by class: each counts as more than the whole line. So a gateway has parts in proportion
//! to its waiting responses, by class as the policy says: what they would have if all responses of the line shared it
//! evenly. Within a gateway the order decides. A gateway whose responses never wait asks for what it sends, and a
//! little more.
//!
//! A gateway without parts still sends the first chunk of a response at once, because the pacer has room for one when
//! it is idle. By the time it asks leave for the next one, the store has answered as a rule.
//!
//! A gateway's ask follows its load upward at once and downward after [`SPAN_NS`]. Between two chunks a response does
//! not wait, and the parts must not go back and forth for that.

use alloc::{vec, vec::Vec};

use super::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division, Grant, Holder, Reply, Times};
use crate::{class::Class, share::Policy, time::Instant, units::Rate};

/// The parts of a line.
pub const PARTS: u32 = 1000;
/// The most that was wanted in the current span of this length and the one before counts.
const SPAN_NS: u64 = 25_000_000;
/// Parts that a waiting response asks for: more than there are, so that a gateway that has them all is still known as one
/// that could use more.
const PARTS_OF_RESPONSE: u32 = 2 * PARTS;
/// Most waiting responses of a class that count, so that no sum overflows.
const MOST_RESPONSES: usize = 1_000;
/// Where no response waits, so much is asked for, in eighths of what was sent.
const HEADROOM_EIGHTHS: u64 = 10;
/// How long the equal part of a silent gateway is kept, unless its connection with the store has ended. A gateway that
/// is cut off sends at that part. The network mends most faults by then. A machine without power looks the same to the
/// store, so its part of the line is not used until then.
const KEEP_NS: u64 = 10_000_000_000;

/// A gateway's part of a line. After every `handle_*` call: [`Line::rate`] and [`Line::poll_ask`]; again at
/// [`Line::poll_timeout`].
#[derive(Clone, Debug)]
pub struct Line {
    holder: Holder,
    cell: CellSettings,
    /// The rate of the whole line.
    whole: Rate,
    /// By class.
    loads: Vec<Load>,
    span_began: Instant,
    /// Parts that were asked for last, and responses that waited then.
    asked: u32,
    told: u32,
    /// Parts that all other gateways ask for, as the last answer shows.
    others: u32,
}

/// The load of a class at this gateway.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Most responses that waited at once, in this span and the one before.
    waiting: [usize; 2],
    /// Bytes sent in these spans.
    sent: [u64; 2],
    /// Bytes sent in all.
    sent_bytes: u64,
}

/// The state of a class at this gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Responses that wait for leave.
    pub waiting: usize,
    /// Wire bytes sent so far; from 0 again after a change of classes.
    pub sent_bytes: u64,
}

impl Line {
    /// A gateway that has no part yet of a line with this rate. `classes` is empty if they do not share the line.
    pub fn new(now: Instant, times: Times, whole: Rate, policy: Policy, classes: &[Class]) -> Self {
        let cell = cell(policy, classes);
        let holder = Holder::new(now, times, core::slice::from_ref(&cell));
        let loads = vec![Load::default(); cell.classes.len()];
        Self { holder, cell, whole, loads, span_began: now, asked: 0, told: 0, others: 0 }
    }

    /// The rate or the classes have changed. The lease stays if the classes are the same.
    pub fn handle_settings(&mut self, now: Instant, whole: Rate, policy: Policy, classes: &[Class]) {
        self.whole = whole;
        let cell = cell(policy, classes);
        if cell != self.cell {
            self.loads = vec![Load::default(); cell.classes.len()];
            self.holder.handle_settings(now, core::slice::from_ref(&cell));
            self.cell = cell;
        }
    }

    /// The one cell of asks and answers.
    pub fn cell(&self) -> &CellSettings {
        &self.cell
    }

    /// The leases.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// How many classes share the line.
    pub fn classes(&self) -> usize {
        self.loads.len()
    }

    /// Looks at what each class wants now.
    pub fn observe(&mut self, now: Instant, seen: impl Fn(usize) -> Seen) {
        let spans = now.ns_since(self.span_began) / SPAN_NS;
        self.span_began = self.span_began.add_ns(spans * SPAN_NS);
        for (class, load) in self.loads.iter_mut().enumerate() {
            let seen = seen(class);
            for _ in 0..spans.min(2) {
                (load.waiting, load.sent) = ([0, load.waiting[0]], [0, load.sent[0]]);
            }
            load.waiting[0] = load.waiting[0].max(seen.waiting);
            load.sent[0] += seen.sent_bytes.checked_sub(load.sent_bytes).unwrap_or(seen.sent_bytes);
            load.sent_bytes = seen.sent_bytes;
        }
        let (wanted, waiting) = (self.wanted().sum::<u32>(), self.waiting());
        let running = wanted.min(self.holder.holds(now, 0));
        self.holder.handle_load(now, 0, running, wanted - running);
        if waiting >= (2 * self.told).max(1) {
            self.holder.handle_more();
        }
    }

    /// The rate that the gateway may send at.
    pub fn rate(&self, now: Instant) -> Rate {
        let parts = self.holder.slots(now, 0).min(PARTS);
        self.whole.scaled(f64::from(parts) / f64::from(PARTS))
    }

    /// The rate of the whole line.
    pub fn whole(&self) -> Rate {
        self.whole
    }

    /// The part of each class's waiting responses that is at this gateway, for [`crate::share::Share::handle_parts`].
    pub fn parts(&self, now: Instant) -> &[u32] {
        self.holder.parts(now, 0)
    }

    /// The ask that is due now. The caller then reports its answer or failure.
    pub fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        if !self.holder.poll_ask(now) {
            return None;
        }
        let holds = self.holder.holds(now, 0);
        let mut left = holds;
        let demand = |wanted: u32| {
            let running = wanted.min(left);
            left -= running;
            Demand { running, waiting: wanted - running }
        };
        (self.asked, self.told) = (self.wanted().sum(), self.waiting());
        let demands = self.wanted().map(demand).collect();
        let cells = vec![CellAsk { window: PARTS, holds, demands, ..CellAsk::default() }];
        self.holder.handle_asked(now, &cells);
        // Nothing of a gateway that is gone goes on: what it sent has left.
        let (seen, gateways) = (self.holder.seen(), self.holder.gateways());
        Some(Ask { seen, gateways, linger_ns: 0, keep_ns: KEEP_NS, cells })
    }

    /// When to look again if nothing happens before.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        [self.holder.poll_timeout(), self.holder.until(now), self.holder.thaws(now)].into_iter().flatten().min()
    }

    /// The store has answered the ask of `asked_at`.
    pub fn handle_reply(&mut self, asked_at: Instant, reply: &Reply) {
        self.holder.handle_reply(asked_at, reply);
        // A part is a thousandth of all that is asked for, so one of 0 is a half at most.
        if let [Grant { parts, .. }] = &*reply.cells
            && let [part] = **parts
        {
            let (asked, twice) = (u64::from(self.asked), u64::from(2 * part).max(1));
            self.others = u32::try_from(asked * 2000_u64.saturating_sub(twice) / twice).unwrap_or(u32::MAX);
        }
    }

    /// An ask has failed, or its answer is late.
    pub fn handle_failed(&mut self, now: Instant) {
        self.holder.handle_failed(now);
    }

    /// The store says that an ask is worth its while.
    pub fn handle_notice(&mut self) {
        self.holder.handle_notice();
    }

    /// Responses that wait for leave, of all classes.
    fn waiting(&self) -> u32 {
        self.loads.iter().map(Load::waiting).sum()
    }

    /// The parts that each class asks for. If gateways ask for more than the line, each gets a part of it in
    /// proportion. A gateway without waiting responses then asks for more than it needs, so that its part is what it
    /// needs. It never asks for more than a waiting response would.
    fn wanted(&self) -> impl Iterator<Item = u32> {
        let bytes_of_span = self.whole.bytes_in(SPAN_NS).max(1);
        let alone = self.loads.len() == 1;
        self.loads.iter().map(move |load| {
            let sent = load.sent[0].max(load.sent[1]).min(bytes_of_span);
            let needs =
                (sent * u64::from(PARTS) * HEADROOM_EIGHTHS / 8).div_ceil(bytes_of_span).min(u64::from(PARTS) - 1);
            let beside = u64::from(self.others) * needs / (u64::from(PARTS) - needs);
            let sending = needs.max(beside.min(u64::from(PARTS_OF_RESPONSE))) as u32;
            // Small differences are not worth a message.
            let same = alone && sending > 0 && sending.abs_diff(self.asked) <= self.asked / 16;
            (load.waiting() * PARTS_OF_RESPONSE).max(if same { self.asked } else { sending })
        })
    }
}

impl Load {
    /// Responses that wait for leave.
    fn waiting(&self) -> u32 {
        self.waiting[0].max(self.waiting[1]).min(MOST_RESPONSES) as u32
    }
}

fn cell(policy: Policy, classes: &[Class]) -> CellSettings {
    let mut classes: Vec<_> = classes.iter().map(|class| ClassSettings::of(policy, class)).collect();
    if classes.is_empty() {
        classes.push(ClassSettings { weight: 1, reserve: 0 });
    }
    CellSettings { window: PARTS, adjusted: false, division: Division::of(policy), classes }
}

#[cfg(test)]
mod tests;
