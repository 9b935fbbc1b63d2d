//! The queue before the bottleneck's link: bands, fair queueing with CoDel, or PIE. It chooses the frame that leaves next.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{connection::ConnectionId, frame::Frame};

/// How the bottleneck's queue chooses the frame that leaves next, and those that are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// First in, first out, within each band. A frame that finds the queue full is dropped.
    #[default]
    Fifo,
    /// FQ-CoDel (RFC 8290), as home routers have it: connections in turns, those that are new or sparse first; CoDel (RFC
    /// 8289) drops from connections that queue. Each connection has a queue of its own, as if hashes never met.
    FairCodel,
    /// PIE (RFC 8033) with the constants of cable modems (RFC 8034): one queue, whose arrivals are dropped by chance.
    Pie,
}

/// Frames that wait.
#[derive(Debug)]
pub(super) enum Queue {
    Bands { bands: Vec<VecDeque<Frame>>, most: usize },
    FairCodel(FairCodel),
    Pie(Box<Pie>),
}

/// A frame, and when it came.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    came_ns: u64,
    frame: Frame,
}

const MTU_BYTES: u32 = 1514;
const MS: u64 = 1_000_000;

impl Queue {
    /// At most `most` frames wait: in each band, or in all. `mtu_ns` is the time of a full frame on the link.
    pub fn new(queueing: Queueing, most: usize, bands: usize, mtu_ns: u64, seed: u64) -> Self {
        match queueing {
            Queueing::Fifo => Self::Bands { bands: vec![VecDeque::new(); bands.max(1)], most },
            Queueing::FairCodel => Self::FairCodel(FairCodel::new(most, mtu_ns)),
            Queueing::Pie => Self::Pie(Box::new(Pie::new(most, seed))),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Bands { bands, .. } => bands.iter().all(VecDeque::is_empty),
            Self::FairCodel(queue) => queue.waiting == 0,
            Self::Pie(queue) => queue.frames.is_empty(),
        }
    }

    /// Whether there is place for another frame of this band.
    pub fn has_place(&self, band: u8) -> bool {
        match self {
            Self::Bands { bands, most } => bands[usize::from(band).min(bands.len() - 1)].len() < *most,
            Self::FairCodel(queue) => queue.waiting < queue.most,
            Self::Pie(queue) => queue.frames.len() < queue.most,
        }
    }

    /// Takes a frame. If it is dropped, or another for it, that goes to `dropped`.
    pub fn push(&mut self, now_ns: u64, band: u8, frame: Frame, dropped: &mut Vec<Frame>) {
        match self {
            Self::Bands { bands, most } => {
                let at = usize::from(band).min(bands.len() - 1);
                if bands[at].len() < *most {
                    bands[at].push_back(frame);
                } else {
                    dropped.push(frame);
                }
            }
            Self::FairCodel(queue) => queue.push(now_ns, frame, dropped),
            Self::Pie(queue) => queue.push(now_ns, frame, dropped),
        }
    }

    /// The frame that leaves. Those that are dropped first go to `dropped`.
    pub fn pop(&mut self, now_ns: u64, dropped: &mut Vec<Frame>) -> Option<Frame> {
        match self {
            Self::Bands { bands, .. } => bands.iter_mut().find_map(VecDeque::pop_front),
            Self::FairCodel(queue) => queue.pop(now_ns, dropped),
            Self::Pie(queue) => queue.pop(now_ns),
        }
    }
}

/// Deficit round robin between connections, and CoDel within each.
#[derive(Debug)]
pub(super) struct FairCodel {
    /// By the place of the connection; the places of those that left are used again.
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    waiting: usize,
    most: usize,
    target_ns: u64,
}

#[derive(Debug, Default)]
struct Flow {
    frames: VecDeque<Waiting>,
    bytes: u64,
    deficit_bytes: i64,
    is_listed: bool,
    codel: Codel,
}

impl FairCodel {
    fn new(most: usize, mtu_ns: u64) -> Self {
        // On a slow link one frame takes longer than CoDel's target, so OpenWrt's scripts raise it.
        let target_ns = (5 * MS).max(mtu_ns * 3 / 2);
        Self { flows: Vec::new(), new: VecDeque::new(), old: VecDeque::new(), waiting: 0, most, target_ns }
    }

    fn push(&mut self, now_ns: u64, frame: Frame, dropped: &mut Vec<Frame>) {
        let at = Self::flow_of(frame.connection);
        if self.flows.len() <= at {
            self.flows.resize_with(at + 1, Flow::default);
        }
        let flow = &mut self.flows[at];
        flow.frames.push_back(Waiting { came_ns: now_ns, frame });
        flow.bytes += u64::from(frame.bytes);
        self.waiting += 1;
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit_bytes = i64::from(MTU_BYTES);
            self.new.push_back(at);
        }
        if self.waiting > self.most
            && let Some(fattest) = self.flows.iter_mut().max_by_key(|flow| flow.bytes)
            && let Some(first) = fattest.take()
        {
            self.waiting -= 1;
            dropped.push(first.frame);
        }
    }

    fn pop(&mut self, now_ns: u64, dropped: &mut Vec<Frame>) -> Option<Frame> {
        loop {
            let is_new = !self.new.is_empty();
            let at = *self.new.front().or(self.old.front())?;
            let list = if is_new { &mut self.new } else { &mut self.old };
            let flow = &mut self.flows[at];
            if flow.deficit_bytes <= 0 {
                flow.deficit_bytes += i64::from(MTU_BYTES);
                list.pop_front();
                self.old.push_back(at);
                continue;
            }
            let before = flow.frames.len();
            let taken = flow.pop(now_ns, self.target_ns, dropped);
            self.waiting -= before - flow.frames.len();
            if let Some(frame) = taken {
                flow.deficit_bytes -= i64::from(frame.bytes);
                return Some(frame);
            }
            list.pop_front();
            // A new connection waits for a turn of the others before it counts as new again.
            if is_new && !self.old.is_empty() {
                self.old.push_back(at);
            } else {
                flow.is_listed = false;
            }
        }
    }

    /// Frames of other senders are one flow.
    fn flow_of(connection: ConnectionId) -> usize {
        if connection == ConnectionId::default() { 0 } else { connection.place as usize + 1 }
    }
}

impl Flow {
    fn take(&mut self) -> Option<Waiting> {
        let first = self.frames.pop_front()?;
        self.bytes -= u64::from(first.frame.bytes);
        Some(first)
    }

    /// CoDel's dequeue (RFC 8289, section 5).
    fn pop(&mut self, now_ns: u64, target_ns: u64, dropped: &mut Vec<Frame>) -> Option<Frame> {
        let (mut first, mut is_late) = self.look(now_ns, target_ns);
        if self.codel.drops {
            if !is_late {
                self.codel.drops = false;
            }
            while self.codel.drops && now_ns >= self.codel.next_ns {
                dropped.extend(first.map(|it| it.frame));
                self.codel.count += 1;
                (first, is_late) = self.look(now_ns, target_ns);
                if is_late {
                    self.codel.next_ns = Codel::after(self.codel.next_ns, self.codel.count);
                } else {
                    self.codel.drops = false;
                }
            }
        } else if is_late {
            dropped.extend(first.map(|it| it.frame));
            (first, _) = self.look(now_ns, target_ns);
            let Codel { count, last_count, next_ns, .. } = self.codel;
            let was_recent = now_ns < next_ns + 16 * Codel::INTERVAL_NS;
            let count = if count > last_count + 1 && was_recent { count - last_count } else { 1 };
            let next_ns = Codel::after(now_ns, count);
            self.codel = Codel { drops: true, count, last_count: count, next_ns, ..self.codel };
        }
        first.map(|it| it.frame)
    }

    /// The first frame, and whether the queue was above the target for an interval.
    fn look(&mut self, now_ns: u64, target_ns: u64) -> (Option<Waiting>, bool) {
        let Some(first) = self.take() else {
            self.codel.above_until_ns = None;
            return (None, false);
        };
        if now_ns - first.came_ns < target_ns || self.bytes <= u64::from(MTU_BYTES) {
            self.codel.above_until_ns = None;
            return (Some(first), false);
        }
        let until_ns = *self.codel.above_until_ns.get_or_insert(now_ns + Codel::INTERVAL_NS);
        (Some(first), now_ns >= until_ns)
    }
}

/// The state of CoDel for one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Codel {
    drops: bool,
    count: u32,
    last_count: u32,
    next_ns: u64,
    /// The queue is above the target. If it still is at this time, frames are dropped.
    above_until_ns: Option<u64>,
}

impl Codel {
    const INTERVAL_NS: u64 = 100 * MS;

    fn after(at_ns: u64, count: u32) -> u64 {
        at_ns + (Self::INTERVAL_NS as f64 / f64::from(count).sqrt()) as u64
    }
}

/// PIE: arrivals are dropped with a probability that follows the delay of the queue.
#[derive(Debug)]
pub(super) struct Pie {
    frames: VecDeque<Waiting>,
    bytes: u64,
    most: usize,
    drop_probability: f64,
    delay_ns: u64,
    burst_ns: u64,
    next_update_ns: u64,
    dice: ChaCha8Rng,
}

impl Pie {
    const TARGET_NS: u64 = 10 * MS;
    const UPDATE_NS: u64 = 16 * MS;
    const BURST_NS: u64 = 142 * MS;
    /// Per second of delay above the target, and per second that it grew.
    const GAINS: [f64; 2] = [0.25, 2.5];

    fn new(most: usize, seed: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        dice.set_stream(PIE_STREAM);
        let frames = VecDeque::new();
        let (burst_ns, next_update_ns) = (Self::BURST_NS, Self::UPDATE_NS);
        Self { frames, bytes: 0, most, drop_probability: 0.0, delay_ns: 0, burst_ns, next_update_ns, dice }
    }

    fn push(&mut self, now_ns: u64, frame: Frame, dropped: &mut Vec<Frame>) {
        self.update(now_ns);
        let is_calm = self.delay_ns < Self::TARGET_NS / 2 && self.drop_probability < 0.2;
        let is_exempt = self.burst_ns > 0 || is_calm || self.bytes <= 2 * u64::from(MTU_BYTES);
        // One draw for each frame, so that runs with the same seed stay alike.
        let draw: f64 = self.dice.random();
        if self.frames.len() >= self.most || (!is_exempt && draw < self.drop_probability) {
            dropped.push(frame);
            return;
        }
        self.frames.push_back(Waiting { came_ns: now_ns, frame });
        self.bytes += u64::from(frame.bytes);
    }

    fn pop(&mut self, now_ns: u64) -> Option<Frame> {
        self.update(now_ns);
        let first = self.frames.pop_front()?;
        self.bytes -= u64::from(first.frame.bytes);
        Some(first.frame)
    }

    /// The updates that were due since the last frame (RFC 8033, section 4.2).
    fn update(&mut self, now_ns: u64) {
        while self.next_update_ns <= now_ns {
            let came_ns = self.frames.front().map_or(self.next_update_ns, |first| first.came_ns);
            let delay_ns = self.next_update_ns.saturating_sub(came_ns);
            let seconds = |ns: u64| ns as f64 / 1e9;
            let change = Self::GAINS[0] * (seconds(delay_ns) - seconds(Self::TARGET_NS))
                + Self::GAINS[1] * (seconds(delay_ns) - seconds(self.delay_ns));
            // The lower the probability, the smaller its steps.
            let scale = match self.drop_probability {
                p if p < 0.000_001 => 2048.0,
                p if p < 0.000_01 => 512.0,
                p if p < 0.000_1 => 128.0,
                p if p < 0.001 => 32.0,
                p if p < 0.01 => 8.0,
                p if p < 0.1 => 2.0,
                _ => 1.0,
            };
            let change = (change / scale).min(if self.drop_probability >= 0.1 { 0.02 } else { f64::MAX });
            self.drop_probability = (self.drop_probability + change).clamp(0.0, 1.0);
            if delay_ns == 0 && self.delay_ns == 0 {
                self.drop_probability *= 0.98;
            }
            let is_quiet =
                self.drop_probability == 0.0 && delay_ns < Self::TARGET_NS / 2 && self.delay_ns < Self::TARGET_NS / 2;
            self.burst_ns = if is_quiet { Self::BURST_NS } else { self.burst_ns.saturating_sub(Self::UPDATE_NS) };
            self.delay_ns = delay_ns;
            self.next_update_ns += Self::UPDATE_NS;
        }
    }
}

/// The stream of a seed that decides what PIE drops. The lanes have those from 0 on, other senders the last.
const PIE_STREAM: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use super::{super::frame::Cargo, *};

    fn frame(place: u32) -> Frame {
        Frame { connection: ConnectionId { place, generation: 1 }, bytes: MTU_BYTES, cargo: Cargo::Bare }
    }

    /// A connection sends a frame every millisecond for six seconds, and the link carries one in 1.5 ms. Returns the median
    /// wait of the last second in milliseconds, and the number of frames that were dropped.
    fn overload(queueing: Queueing) -> (u64, usize) {
        let mut queue = Queue::new(queueing, 10_000, 1, 3 * MS / 2, 1);
        let (mut dropped, mut came, mut waits) = (Vec::new(), VecDeque::new(), Vec::new());
        for step in 0..12_000_u64 {
            let now_ns = step * MS / 2;
            if step % 2 == 0 {
                let before = dropped.len();
                queue.push(now_ns, 0, frame(1), &mut dropped);
                if dropped.len() == before {
                    came.push_back(now_ns);
                }
            }
            if step % 3 == 0 {
                let before = dropped.len();
                let left = queue.pop(now_ns, &mut dropped);
                came.drain(..dropped.len() - before);
                let came_ns = left.and_then(|_| came.pop_front());
                waits.extend(came_ns.filter(|_| step > 10_000).map(|came_ns| (now_ns - came_ns) / MS));
            }
        }
        waits.sort_unstable();
        (waits[waits.len() / 2], dropped.len())
    }

    #[test]
    fn who_sends_more_than_the_link_carries_loses_frames_before_the_queue_is_full() {
        assert_eq!(overload(Queueing::Fifo).1, 0);
        let (wait_ms, dropped) = overload(Queueing::Pie);
        assert!((5..=30).contains(&wait_ms) && (1_700..2_100).contains(&dropped), "{wait_ms} ms, {dropped} dropped");
        // CoDel takes long to drop enough of a sender that does not slow down.
        let (wait_ms, dropped) = overload(Queueing::FairCodel);
        assert!(3 * wait_ms < 2 * overload(Queueing::Fifo).0 && dropped > 500, "{wait_ms} ms, {dropped} dropped");
    }

    #[test]
    fn a_new_connection_does_not_wait_for_those_that_queue() {
        let next = |queueing| {
            let mut queue = Queue::new(queueing, 1_000, 1, MS, 1);
            let mut dropped = Vec::new();
            (0..20).for_each(|_| queue.push(0, 0, frame(1), &mut dropped));
            // Its first turn is over.
            let _ = (queue.pop(MS, &mut dropped), queue.pop(2 * MS, &mut dropped));
            queue.push(2 * MS, 0, frame(2), &mut dropped);
            queue.pop(3 * MS, &mut dropped).map(|frame| frame.connection.place)
        };
        assert_eq!([Queueing::Fifo, Queueing::FairCodel, Queueing::Pie].map(next), [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn connections_take_turns_and_the_one_that_queues_most_loses_where_all_is_full() {
        let mut queue = Queue::new(Queueing::FairCodel, 7, 1, MS, 1);
        let mut dropped = Vec::new();
        for place in [1, 1, 1, 1, 1, 2, 2, 3] {
            queue.push(0, 0, frame(place), &mut dropped);
        }
        assert_eq!(dropped.iter().map(|frame| frame.connection.place).collect::<Vec<_>>(), [1]);
        let left: Vec<u32> = std::iter::from_fn(|| queue.pop(0, &mut dropped)).map(|it| it.connection.place).collect();
        assert_eq!(left, [1, 2, 3, 1, 2, 1, 1]);
        assert!(queue.is_empty());
    }
}
