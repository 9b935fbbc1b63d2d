//! The uplink as the pacer sees it: a queue at the bottleneck that drains at a known rate.
//!
//! What was sent at the bottleneck's own rate leaves no queue there, and what has no queue there can still be put in
//! order here. So the model keeps one number, the moment when the bottleneck will have sent all that it was given, and
//! more may be sent when that moment is near: near enough that the link never runs dry while the driver wakes up, far
//! enough that a small response which comes a moment later finds the link all but free.
//!
//! This is a token bucket of depth `ahead`, written without tokens.

use crate::{time::Instant, units::Rate};

/// The bottleneck's queue, on paper.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    rate: Option<Rate>,
    free_at: Instant,
    pacing: Pacing,
    ahead_ns: u64,
    charged_bytes: u64,
    chunk_bytes: u64,
}

/// How finely leave is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// How far ahead of the bottleneck leave may run: the time that a driver may take to wake up.
    pub ahead_ns: u64,
    /// Payload of one grant.
    pub chunk: Chunk,
}

/// Payload of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// What the link carries in 350 us, in whole segments, two at least and 1 MiB at most.
    ByRate,
    /// So many bytes at most, whatever the rate.
    Bytes(u64),
}

impl Pacing {
    /// As the server has it.
    pub const SERVER: Self = Self { ahead_ns: 500_000, chunk: Chunk::ByRate };
    /// As on paper: leave is given when the link is free, for all that is asked for. Whoever drives it takes back what was
    /// not sent when somebody comes who goes first ([`crate::Uplink::handle_unused`]), so that service is preemptive to the byte.
    pub const EXACT: Self = Self { ahead_ns: 0, chunk: Chunk::Bytes(u64::MAX) };
}

impl Link {
    /// A link that is idle. `rate` is what may be used of the bottleneck; `None` means without limit.
    pub fn new(rate: Option<Rate>, pacing: Pacing) -> Self {
        let mut link =
            Self { rate: None, pacing, free_at: Instant::ORIGIN, ahead_ns: 0, charged_bytes: 0, chunk_bytes: 0 };
        link.set_rate(Instant::ORIGIN, rate);
        link
    }

    /// The link turns out to be faster or slower: what is queued on paper takes that much less or more time, and none
    /// without a limit.
    pub fn set_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.set(now, rate, self.pacing);
    }

    /// The same, and grants are of another size from here on.
    pub fn set(&mut self, now: Instant, rate: Option<Rate>, pacing: Pacing) {
        match (self.rate, rate) {
            (Some(old), Some(new)) => {
                let queued_ns = self.free_at.ns_since(now);
                self.free_at = now.add_ns(new.ns_for(old.bytes_in(queued_ns)));
            }
            (_, None) => self.free_at = Instant::ORIGIN,
            (None, Some(_)) => {}
        }
        (self.rate, self.pacing) = (rate, pacing);
        self.chunk_bytes = match self.pacing.chunk {
            Chunk::ByRate => u64::from(rate.map_or(CHUNK_MAX_BYTES, chunk_bytes)),
            Chunk::Bytes(bytes) => bytes.max(1),
        };
        self.ahead_ns = rate.map_or(0, |_| self.pacing.ahead_ns);
    }

    /// Whether more may be sent now.
    pub fn has_room(&self, now: Instant) -> bool {
        self.rate.is_none() || self.free_at.ns_since(now) <= self.ahead_ns
    }

    /// When more may be sent.
    pub fn room_at(&self) -> Instant {
        Instant::from_ns(self.free_at.as_ns().saturating_sub(self.ahead_ns))
    }

    /// Payload that is granted at a time.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// So many bytes, as they are on the wire, were given to the link.
    pub fn charge(&mut self, now: Instant, wire_bytes: u64) {
        self.charged_bytes += wire_bytes;
        if let Some(rate) = self.rate {
            self.free_at = self.free_at.max(now).add_ns(rate.ns_for(wire_bytes));
        }
    }

    /// So many bytes were given to it for which nobody asked leave. They hold back those who ask by [`UNASKED_NS`] at most: a
    /// flood of them must not stop everybody else long after it has passed.
    pub fn charge_unasked(&mut self, now: Instant, wire_bytes: u64) {
        let free_at = self.free_at;
        self.charge(now, wire_bytes);
        self.free_at = self.free_at.min(now.add_ns(UNASKED_NS)).max(free_at);
    }

    /// So many of the bytes charged before were not given to it after all.
    pub fn refund(&mut self, wire_bytes: u64) {
        self.charged_bytes = self.charged_bytes.saturating_sub(wire_bytes);
        if let Some(rate) = self.rate {
            self.free_at = Instant::from_ns(self.free_at.as_ns().saturating_sub(rate.ns_for(wire_bytes)));
        }
    }

    /// The link was seen: then it will have sent all that it was given.
    pub fn set_free_at(&mut self, at: Instant) {
        if self.rate.is_some() {
            self.free_at = at;
        }
    }

    /// When it will have sent all that it was given.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// All that was ever charged.
    pub fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }
}

/// The longest time by which bytes that need no leave hold back those that do.
const UNASKED_NS: u64 = 1_000_000_000;

/// Payload of a full segment on Ethernet with TCP timestamps.
pub(crate) const SEGMENT_BYTES: u32 = 1448;

/// A grant never exceeds this, so that one connection cannot keep a worker to itself.
const CHUNK_MAX_BYTES: u32 = 1 << 20;

/// A grant is worth this much time on the link: the time by which a small response can be late because a large one is
/// being sent. Shorter costs more system calls, longer costs response time; see docs/DEFAULTS.md.
const CHUNK_NS: u64 = 350_000;

/// Payload granted at a time: two segments at least (one delayed acknowledgement), whole segments always.
pub(crate) fn chunk_bytes(rate: Rate) -> u32 {
    let segments = rate.bytes_in(CHUNK_NS) / u64::from(SEGMENT_BYTES);
    let most = u64::from(CHUNK_MAX_BYTES / SEGMENT_BYTES);
    SEGMENT_BYTES * segments.clamp(2, most) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn the_chunk_follows_the_rate() {
        assert_eq!(chunk_bytes(rate("10mbit")), 2 * 1448);
        assert_eq!(chunk_bytes(rate("100mbit")), 3 * 1448);
        assert_eq!(chunk_bytes(rate("1gbit")), 30 * 1448);
        assert_eq!(chunk_bytes(Rate::MAX), (1 << 20) / 1448 * 1448);
        assert_eq!(chunk_bytes(Rate::MIN), 2 * 1448);
    }

    #[test]
    fn an_idle_link_saves_nothing_up() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        let late = Instant::from_ns(1000 * MS);
        link.charge(late, 12_500);
        assert!(!link.has_room(late));
        assert_eq!(link.room_at().ns_since(late), 10 * MS - link.ahead_ns);
    }

    #[test]
    fn a_refund_makes_room_again() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        link.charge(Instant::ORIGIN, 12_500);
        link.refund(12_500);
        assert!(link.has_room(Instant::ORIGIN));
        assert_eq!(link.charged_bytes(), 0);
    }

    #[test]
    fn a_new_rate_stretches_what_is_queued() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        link.charge(Instant::ORIGIN, 12_500);
        link.set_rate(Instant::ORIGIN, Some(rate("5mbit")));
        assert_eq!(link.room_at().as_ns(), 20 * MS - link.ahead_ns);
    }

    #[test]
    fn changed_settings_stretch_what_is_queued_once() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        link.charge(Instant::ORIGIN, 12_500);
        link.set(Instant::ORIGIN, Some(rate("7mbit")), Pacing::EXACT);
        assert_eq!(link.room_at().as_ns(), rate("7mbit").ns_for(12_500));
        assert_eq!(link.chunk_bytes(), u64::MAX);
    }

    #[test]
    fn a_flood_of_what_needs_no_leave_is_forgotten_within_a_second() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::EXACT);
        for _ in 0..1000 {
            link.charge_unasked(Instant::ORIGIN, 1_250_000);
        }
        assert_eq!(link.free_at().as_ns(), 1_000 * MS, "and not a thousand seconds");
        assert_eq!(link.charged_bytes(), 1_250_000_000, "all of it is counted");
        // What was queued with leave is not forgotten with it.
        link.charge(Instant::ORIGIN, 2_500_000);
        link.charge_unasked(Instant::from_ns(MS), 1_250);
        assert_eq!(link.free_at().as_ns(), 3_000 * MS);
    }

    #[test]
    fn what_was_seen_of_the_link_counts_and_not_what_was_reckoned() {
        let mut link = Link::new(Some(rate("3mbit")), Pacing::EXACT);
        for _ in 0..3 {
            link.charge(Instant::ORIGIN, 1);
        }
        assert_eq!(link.room_at().as_ns(), 8_001, "each byte is rounded up");
        link.set_free_at(Instant::from_ns(8_000));
        assert!(link.has_room(Instant::from_ns(8_000)) && !link.has_room(Instant::from_ns(7_999)));
        let mut unlimited = Link::new(None, Pacing::EXACT);
        unlimited.set_free_at(Instant::from_ns(8_000));
        assert!(unlimited.has_room(Instant::ORIGIN));
    }

    #[test]
    fn without_a_rate_there_is_always_room() {
        let mut link = Link::new(None, Pacing::SERVER);
        link.charge(Instant::ORIGIN, u64::MAX / 2);
        assert!(link.has_room(Instant::ORIGIN));
    }

    #[test]
    fn lifting_the_limit_forgets_the_queue_for_good() {
        let (mut link, now) = (Link::new(Some(Rate::MIN), Pacing::SERVER), Instant::from_ns(MS));
        link.charge(now, 1_000_000);
        link.set_rate(now, None);
        assert_eq!(link.room_at(), Instant::ORIGIN, "whatever the clock says, there is room");
        link.set_rate(now, Some(rate("1gbit")));
        assert!(link.has_room(now), "1000 s of queue at 8 kbit/s must not come back");
    }
}
