//! What packets meet of the queue that the pacer's own grants make.

use super::RoundTrips;
use crate::{
    time::{Instant, MS},
    units::Rate,
};

/// The part that they meet is worked out from the round trips of this time, if there are so many.
const PART_OVER_NS: u64 = 1_000 * MS;
const PART_LEAST: u32 = 8;
/// A link is far faster if packets of this time, and so many at least, met less than one part in so many of it. It has to be
/// this long in the mean, and the pacer has to have sent at this part of its rate.
const FASTER_OVER_NS: u64 = 300 * MS;
const FASTER_LEAST: u64 = 20;
const FASTER_MEETS: u64 = 30;
const FASTER_OWN_NS: u64 = MS;
const FASTER_SENT: f64 = 0.85;

impl RoundTrips {
    /// The part of the pacer's own queue that round trips of the last second met. On a link of the pacer's rate a
    /// grant has just passed when the next one comes, and they meet half of it or more. On a much faster link each grant
    /// passes quickly, and they meet hardly any. `None` where few came, or where other things made them wait.
    pub fn own_queue_part(&self, now: Instant) -> Option<f64> {
        let level_ns = self.level_ns(now) as f64;
        let (mut packets, mut waited_ns, mut own_ns) = (0, 0.0, 0.0);
        let (mut of_waited, mut of_both, mut of_own) = (0.0, 0.0, 0.0);
        for it in self.samples.iter().rev().take_while(|it| now.ns_since(it.at) <= PART_OVER_NS) {
            let (Some(above_ns), 1..) = (it.above_ns, it.own_ns) else { continue };
            let (waited, own) = (above_ns as f64 - level_ns, it.own_ns as f64);
            packets += 1;
            waited_ns += waited;
            own_ns += own;
            of_waited += waited * waited;
            of_both += waited * own;
            of_own += own * own;
        }
        let part = waited_ns / own_ns;
        let squares = of_waited - 2.0 * part * of_both + part * part * of_own;
        let is_noisy = squares * f64::from(packets) > own_ns * own_ns;
        (packets >= PART_LEAST && !is_noisy).then_some(part)
    }

    /// Whether packets of the last moments met nearly nothing of it, though the pacer sent at this rate, in bits per second.
    /// Then the link is several times as fast. Where it lets bursts pass, they meet nothing either.
    pub fn is_far_faster(&self, now: Instant, bits: f64) -> bool {
        let since = Instant::from_ns(now.as_ns().saturating_sub(FASTER_OVER_NS));
        // On a fast link a grant makes no queue of this length.
        if self.chunk_ns(Rate::clamped(bits)) < FASTER_OWN_NS || self.sent_bits(now, since) < FASTER_SENT * bits {
            return false;
        }
        let (mut packets, mut waited_ns, mut own_ns) = (0, 0, 0);
        for it in self.samples.iter().rev().take_while(|it| it.at >= since) {
            let (Some(above_ns), 1.., false) = (it.above_ns, it.own_ns, it.is_guessed) else { continue };
            packets += 1;
            waited_ns += above_ns;
            own_ns += it.own_ns;
        }
        packets >= FASTER_LEAST && own_ns > packets * FASTER_OWN_NS && waited_ns * FASTER_MEETS < own_ns
    }
}
