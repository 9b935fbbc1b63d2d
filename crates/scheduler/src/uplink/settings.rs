//! The settings of the uplink scheduler.

use crate::{
    job::{Guard, Job, Path, Rank, Turn},
    link::Pacing,
    order::Order,
    priority::Priority,
    units::Rate,
};

/// Reads a stretch for [`Settings::guard_stretch`]: a number from 1 on. `None` for any other text.
pub fn read_stretch(text: &str) -> Option<f64> {
    text.parse().ok().filter(|stretch: &f64| stretch.is_finite() && *stretch >= 1.0)
}

/// Settings of the uplink scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The order of service within a class.
    pub order: Order,
    /// The usable rate of the bottleneck, in wire bytes; `None` for no limit.
    pub rate: Option<Rate>,
    /// Bytes of a segment on the wire beside its payload.
    pub segment_overhead_bytes: u32,
    /// The cutoff of [`Order::QuickFix`].
    pub small_bytes: u64,
    /// A job that takes longer than this multiple of its time under fair sharing goes ahead of all others.
    pub guard_stretch: Option<f64>,
    /// How far ahead and in which portions grants are given.
    pub pacing: Pacing,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            order: Order::Srpt,
            rate: None,
            // Ethernet 14 bytes, IPv4 20, TCP with timestamps 32.
            segment_overhead_bytes: 66,
            small_bytes: 1024,
            guard_stretch: None,
            pacing: Pacing::SERVER,
        }
    }
}

impl Settings {
    /// Whether the order or the guard needs simulated fair sharing.
    pub(super) fn needs_fair_sharing(&self) -> bool {
        self.order == Order::Fsp || self.guard_stretch.is_some()
    }

    /// The place of a job after `served_bytes`.
    pub(super) fn rank(&self, it: &Job, served_bytes: u64) -> Rank {
        let unguarded = it.guard != Guard::Ahead;
        let key = if unguarded { self.order.key(it, served_bytes, self.rate, self.small_bytes) } else { it.sequence };
        Rank { unguarded, late: it.late, key, sequence: it.sequence }
    }

    /// The turn of a job among others of its group.
    pub(super) fn turn(&self, it: &Job) -> Turn {
        let Priority { urgency, incremental } = it.member.map(|member| member.priority).unwrap_or_default();
        let round_bytes = it.member.filter(|_| incremental).map_or(0, |member| member.round_bytes);
        Turn { urgency, incremental, round_bytes, rank: self.rank(it, it.attained_bytes) }
    }

    /// Bytes of a payload on the wire. Short segments cost more: 12 % at 536 bytes, 5 % at 1448.
    pub(super) fn wire_bytes(&self, path: &Path, payload_bytes: u64) -> u64 {
        let segments = payload_bytes.div_ceil(path.segment_bytes());
        payload_bytes.saturating_add(segments.saturating_mul(u64::from(self.segment_overhead_bytes)))
    }

    /// The rate of the simulated link of fair sharing.
    pub(super) fn simulated_rate(&self) -> Rate {
        self.rate.unwrap_or(Rate::MAX)
    }
}
