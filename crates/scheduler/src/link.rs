//! The pacer's model of the uplink: a queue at the bottleneck that drains at a known rate.
//!
//! Bytes sent at the bottleneck's own rate leave no queue there, and only bytes that are not queued there can
//! still be reordered here. So the model keeps one number: the time when the bottleneck will have sent all
//! bytes given to it. More may be sent when that time is near. Near enough means that the link does not run
//! dry while the driver wakes up. Far enough means that a small response that comes a moment later finds the
//! link almost free.
//!
//! This is a token bucket of depth `ahead`, expressed without tokens.

mod typical;

use self::typical::TypicalSize;
use crate::{time::Instant, units::Rate};

/// The model of the bottleneck's queue.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    rate: Option<Rate>,
    free_at: Instant,
    /// When the link would have sent all granted bytes if there were no others; never after `free_at`.
    granted_free_at: Instant,
    pacing: Pacing,
    ahead_ns: u64,
    charged_bytes: u64,
    chunk_bytes: u64,
    typical: TypicalSize,
}

/// How far ahead and in which portions grants are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// How far grants may run ahead of the bottleneck: the time that a driver may take to wake up.
    pub ahead_ns: u64,
    /// How much further ahead a grant is given at the time that was announced for it, if bytes without a grant went out
    /// meanwhile.
    pub slack_ns: u64,
    /// How much earlier than announced a grant is given that is shorter than a chunk, in percent of the time by which it is
    /// shorter. It counts when the driver comes for another reason: a response begins or ends.
    pub early_percent: u64,
    /// Payload of one grant.
    pub chunk: Chunk,
}

/// Payload of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The bytes that the link carries in 350 us, in whole segments, at most 1 MiB; at least two segments, or three where the
    /// link carries these in 4 ms. Half a chunk more, if nothing is left then.
    ByRate,
    /// As much, or more where a typical response is large: a third of one, as far as the link carries that in 4 ms, or a
    /// twelfth of one.
    BySizes,
    /// At most this many bytes, whatever the rate.
    Bytes(u64),
}

impl Pacing {
    /// The pacing of the server.
    pub const SERVER: Self = Self { ahead_ns: 500_000, slack_ns: 200_000, early_percent: 150, chunk: Chunk::BySizes };
    /// The pacing of the theory: grants are given when the link is free, for all bytes asked for. The driver
    /// takes back unsent bytes when a job with precedence comes ([`crate::Uplink::handle_unused`]), so
    /// service is preemptive to the byte.
    pub const EXACT: Self = Self { ahead_ns: 0, slack_ns: 0, early_percent: 0, chunk: Chunk::Bytes(u64::MAX) };
}

impl Link {
    /// Makes an idle link. `rate` is the usable rate of the bottleneck; `None` means no limit.
    pub fn new(rate: Option<Rate>, pacing: Pacing) -> Self {
        let mut link = Self {
            rate: None,
            free_at: Instant::ORIGIN,
            granted_free_at: Instant::ORIGIN,
            pacing,
            ahead_ns: 0,
            charged_bytes: 0,
            chunk_bytes: 0,
            typical: TypicalSize::default(),
        };
        link.set_rate(Instant::ORIGIN, rate);
        link
    }

    /// Changes the rate. The bytes queued in the model then take less or more time, and none without a limit.
    pub fn set_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.set(now, rate, self.pacing);
    }

    /// Changes the rate and the size of later grants.
    pub fn set(&mut self, now: Instant, rate: Option<Rate>, pacing: Pacing) {
        for free_at in [&mut self.free_at, &mut self.granted_free_at] {
            match (self.rate, rate) {
                (Some(old), Some(new)) => *free_at = now.add_ns(new.ns_for(old.bytes_in(free_at.ns_since(now)))),
                (_, None) => *free_at = Instant::ORIGIN,
                (None, Some(_)) => {}
            }
        }
        (self.rate, self.pacing) = (rate, pacing);
        self.set_chunk();
        self.ahead_ns = rate.map_or(0, |_| self.pacing.ahead_ns);
    }

    /// A response of this size begins.
    pub fn handle_size(&mut self, bytes: u64) {
        self.typical.handle_size(bytes);
        self.set_chunk();
    }

    fn set_chunk(&mut self) {
        let of_rate = |typical_bytes| self.rate.map_or(CHUNK_MAX_BYTES, |rate| chunk_bytes(rate, typical_bytes));
        self.chunk_bytes = match self.pacing.chunk {
            Chunk::ByRate => u64::from(of_rate(0)),
            Chunk::BySizes => u64::from(of_rate(self.typical.bytes().unwrap_or(0))),
            Chunk::Bytes(bytes) => bytes.max(1),
        };
    }

    /// Whether a driver that comes now, for whatever reason, may send these payload bytes.
    pub fn has_room(&self, now: Instant, bytes: u64) -> bool {
        let Some(rate) = self.rate else { return true };
        let shorter_bytes = self.chunk_bytes.saturating_sub(bytes);
        let early_ns = rate.ns_for(shorter_bytes).saturating_mul(self.pacing.early_percent) / 100;
        self.free_at.ns_since(now) <= self.ahead_ns.saturating_add(early_ns)
    }

    /// When more may be sent, whatever its size.
    pub fn room_at(&self) -> Instant {
        Instant::from_ns(self.free_at.as_ns().saturating_sub(self.ahead_ns))
    }

    /// The time of a grant, in nanoseconds; 0 without a limit.
    pub fn chunk_ns(&self) -> u64 {
        self.rate.map_or(0, |rate| rate.ns_for(self.chunk_bytes))
    }

    /// Payload of one grant, as a rule.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Payload of the longest grant.
    pub fn longest_grant_bytes(&self) -> u64 {
        self.chunk_bytes.saturating_add(self.rest_bytes())
    }

    /// Payload of a grant to a job that wants so much. A short rest goes with the chunk before it: it would cost a wake-up of
    /// the driver, and few jobs could overtake it.
    pub fn grant_bytes(&self, wanted_bytes: u64) -> u64 {
        if wanted_bytes <= self.longest_grant_bytes() { wanted_bytes } else { self.chunk_bytes }
    }

    /// The longest rest that goes with the chunk before it.
    fn rest_bytes(&self) -> u64 {
        match self.pacing.chunk {
            Chunk::ByRate | Chunk::BySizes => self.chunk_bytes / 2,
            Chunk::Bytes(_) => 0,
        }
    }

    /// Records granted bytes, counted as on the wire.
    pub fn charge(&mut self, now: Instant, wire_bytes: u64) {
        self.charged_bytes += wire_bytes;
        if let Some(rate) = self.rate {
            for free_at in [&mut self.free_at, &mut self.granted_free_at] {
                *free_at = (*free_at).max(now).add_ns(rate.ns_for(wire_bytes));
            }
        }
    }

    /// Records bytes that went out without a grant. They delay grants by [`UNGRANTED_NS`] at most, compared
    /// with a link that carries granted bytes alone: a flood of them must not stop all jobs long after it has
    /// passed.
    pub fn charge_ungranted(&mut self, now: Instant, wire_bytes: u64) {
        self.charged_bytes += wire_bytes;
        if let Some(rate) = self.rate {
            let latest = self.granted_free_at.max(now).add_ns(UNGRANTED_NS);
            let free_at = self.free_at.max(now).add_ns(rate.ns_for(wire_bytes));
            self.free_at = free_at.min(latest).max(self.free_at);
        }
    }

    /// Takes back granted bytes that were charged but not given to the link.
    pub fn refund(&mut self, wire_bytes: u64) {
        self.charged_bytes = self.charged_bytes.saturating_sub(wire_bytes);
        if let Some(rate) = self.rate {
            for free_at in [&mut self.free_at, &mut self.granted_free_at] {
                *free_at = Instant::from_ns(free_at.as_ns().saturating_sub(rate.ns_for(wire_bytes)));
            }
        }
    }

    /// Sets the time when the link will have sent all bytes, for a driver that observes it.
    pub fn set_free_at(&mut self, at: Instant) {
        if self.rate.is_some() {
            self.free_at = at;
            self.granted_free_at = self.granted_free_at.min(at);
        }
    }

    /// When the link will have sent all bytes given to it.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Total of bytes charged.
    pub fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }
}

/// The longest delay that bytes without a grant cause to grants.
const UNGRANTED_NS: u64 = 1_000_000_000;

/// Payload of a full segment on Ethernet with TCP timestamps.
pub(crate) const SEGMENT_BYTES: u32 = 1448;

/// Upper limit of a grant, so that one connection cannot keep a worker to itself.
const CHUNK_MAX_BYTES: u32 = 1 << 20;

/// Time that a grant takes on the link: the time by which a large response can delay a small one. Shorter
/// grants cost more system calls, longer ones response time; see docs/DEFAULTS.md.
const CHUNK_NS: u64 = 350_000;

/// Where responses are large, a grant may be longer, because it delays a typical response by little in proportion. It is at
/// most this part of one within this time on the link, and at most the smaller part where that takes longer.
const PART_OF_TYPICAL: u64 = 3;
const SHORT_NS: u64 = 4_000_000;
const SMALL_PART_OF_TYPICAL: u64 = 12;

/// Payload of one grant where a typical response has so many bytes: at least two segments (one delayed acknowledgement), or
/// three where they are short, and always whole segments.
pub(crate) fn chunk_bytes(rate: Rate, typical_bytes: u64) -> u32 {
    let segment_bytes = u64::from(SEGMENT_BYTES);
    let within_bytes = (typical_bytes / PART_OF_TYPICAL).min(rate.bytes_in(SHORT_NS));
    let part_bytes = within_bytes.max(typical_bytes / SMALL_PART_OF_TYPICAL);
    let segments = (rate.bytes_in(CHUNK_NS) / segment_bytes).max((part_bytes + segment_bytes / 2) / segment_bytes);
    let most = u64::from(CHUNK_MAX_BYTES / SEGMENT_BYTES);
    let least = if rate.bytes_in(SHORT_NS) >= 3 * segment_bytes { 3 } else { 2 };
    SEGMENT_BYTES * segments.clamp(least, most) as u32
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
        assert_eq!(chunk_bytes(rate("8mbit"), 0), 2 * 1448);
        assert_eq!(chunk_bytes(rate("10mbit"), 0), 3 * 1448, "4 ms");
        assert_eq!(chunk_bytes(rate("100mbit"), 0), 3 * 1448);
        assert_eq!(chunk_bytes(rate("1gbit"), 0), 30 * 1448);
        assert_eq!(chunk_bytes(Rate::MAX, 0), (1 << 20) / 1448 * 1448);
        assert_eq!(chunk_bytes(Rate::MIN, 0), 2 * 1448);
    }

    #[test]
    fn where_responses_are_large_the_chunk_is_larger() {
        let segments = |link, typical_bytes| chunk_bytes(rate(link), typical_bytes) / 1448;
        assert_eq!(segments("10mbit", 3_000), 3);
        assert_eq!(segments("100mbit", 45_000), 10, "a third");
        assert_eq!(segments("10mbit", 15_000), 3, "4 ms");
        assert_eq!(segments("10mbit", 100_000), 6, "a twelfth");
        assert_eq!(segments("1gbit", 1_000), 30);
        assert_eq!(chunk_bytes(Rate::MIN, u64::MAX), (1 << 20) / 1448 * 1448);
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        (0..64).for_each(|_| link.handle_size(100_000));
        assert_eq!(link.chunk_bytes(), 6 * 1448);
        link.set_rate(Instant::ORIGIN, Some(rate("100mbit")));
        assert_eq!(link.chunk_bytes(), 23 * 1448);
    }

    #[test]
    fn a_short_rest_goes_with_the_chunk_before_it() {
        let link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        assert_eq!(link.chunk_bytes(), 4_344);
        assert_eq!([4_344, 6_516, 6_517].map(|wanted_bytes| link.grant_bytes(wanted_bytes)), [4_344, 6_516, 4_344]);
        let fixed = Link::new(Some(rate("10mbit")), Pacing { chunk: Chunk::Bytes(4_344), ..Pacing::SERVER });
        assert_eq!(fixed.grant_bytes(4_345), 4_344);
    }

    #[test]
    fn a_short_grant_needs_less_room() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        let ns = |bytes| rate("10mbit").ns_for(bytes);
        link.charge(Instant::ORIGIN, 10_000);
        let from = |bytes| Instant::from_ns(ns(10_000) - link.ahead_ns - ns(link.chunk_bytes() - bytes) * 3 / 2);
        for bytes in [1_000, 3_000, 4_344] {
            assert!(
                link.has_room(from(bytes), bytes) && !link.has_room(Instant::from_ns(from(bytes).as_ns() - 1), bytes)
            );
        }
        assert_eq!(from(4_344), link.room_at());
        assert!(!link.has_room(Instant::from_ns(link.room_at().as_ns() - 1), u64::MAX));
    }

    #[test]
    fn an_idle_link_saves_nothing_up() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        let late = Instant::from_ns(1000 * MS);
        link.charge(late, 12_500);
        assert!(!link.has_room(late, u64::MAX));
        assert_eq!(link.room_at().ns_since(late), 10 * MS - link.ahead_ns);
    }

    #[test]
    fn a_refund_makes_room_again() {
        let mut link = Link::new(Some(rate("10mbit")), Pacing::SERVER);
        link.charge(Instant::ORIGIN, 12_500);
        link.refund(12_500);
        assert!(link.has_room(Instant::ORIGIN, u64::MAX));
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
            link.charge_ungranted(Instant::ORIGIN, 1_250_000);
        }
        assert_eq!(link.free_at().as_ns(), 1_000 * MS, "and not a thousand seconds");
        assert_eq!(link.charged_bytes(), 1_250_000_000, "all of it is counted");
        // Bytes queued by grants are kept.
        link.charge(Instant::ORIGIN, 2_500_000);
        link.charge_ungranted(Instant::from_ns(MS), 1_250);
        assert_eq!(link.free_at().as_ns(), 3_000 * MS);
    }

    #[test]
    fn bytes_without_a_grant_are_charged_however_long_the_grant_before_them() {
        for granted_ms in [705, 3_000] {
            let mut link = Link::new(Some(rate("8mbit")), Pacing::EXACT);
            link.charge(Instant::ORIGIN, granted_ms * 1_000);
            link.charge_ungranted(Instant::ORIGIN, 296_000);
            assert_eq!(link.free_at().as_ns(), (granted_ms + 296) * MS);
            link.charge_ungranted(Instant::ORIGIN, 2_000_000);
            assert_eq!(link.free_at().as_ns(), (granted_ms + 1_000) * MS, "a flood delays the next grant by 1 s");
            // Bytes that the limit forgot do not come back with a refund, at another rate, or 100 ms later.
            let now = Instant::from_ns(100 * MS);
            link.refund(500_000);
            link.set_rate(now, Some(rate("4mbit")));
            assert_eq!(link.free_at().ns_since(now), 2 * (granted_ms - 500 + 1_000 - 100) * MS);
            link.charge_ungranted(now, 1);
            assert_eq!(link.free_at().ns_since(now), 2 * (granted_ms - 500 + 1_000 - 100) * MS);
        }
    }

    #[test]
    fn what_was_seen_of_the_link_counts_and_not_what_was_reckoned() {
        let mut link = Link::new(Some(rate("3mbit")), Pacing::EXACT);
        for _ in 0..3 {
            link.charge(Instant::ORIGIN, 1);
        }
        assert_eq!(link.room_at().as_ns(), 8_001, "each byte is rounded up");
        link.set_free_at(Instant::from_ns(8_000));
        assert!(link.has_room(Instant::from_ns(8_000), 1) && !link.has_room(Instant::from_ns(7_999), 1));
        let mut unlimited = Link::new(None, Pacing::EXACT);
        unlimited.set_free_at(Instant::from_ns(8_000));
        assert!(unlimited.has_room(Instant::ORIGIN, 1));
    }

    #[test]
    fn without_a_rate_there_is_always_room() {
        let mut link = Link::new(None, Pacing::SERVER);
        link.charge(Instant::ORIGIN, u64::MAX / 2);
        assert!(link.has_room(Instant::ORIGIN, u64::MAX));
    }

    #[test]
    fn lifting_the_limit_forgets_the_queue_for_good() {
        let (mut link, now) = (Link::new(Some(Rate::MIN), Pacing::SERVER), Instant::from_ns(MS));
        link.charge(now, 1_000_000);
        link.set_rate(now, None);
        assert_eq!(link.room_at(), Instant::ORIGIN, "whatever the clock says, there is room");
        link.set_rate(now, Some(rate("1gbit")));
        assert!(link.has_room(now, u64::MAX), "1000 s of queue at 8 kbit/s must not come back");
    }
}
