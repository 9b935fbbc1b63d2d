//! Whose a short queue is, packet by packet.
//!
//! The queue of a link follows from what was sent: each grant makes it longer, and after a pause it is gone. A queue that
//! others keep before the link stands in pauses, too, and what is sent here comes on top of it. BBR keeps such a one.

use alloc::vec::Vec;

use super::{RoundTrips, Sample, link_queue::Queue};
use crate::time::{Instant, MS};

/// So many packets tell.
const LEAST: usize = 5;
/// A longer queue does not follow from what was sent: TCP holds back a part of that.
const LONGEST_NS: u64 = 60 * MS;
/// A rate of more than this part of the known one is near enough to it.
const NEAR: f64 = 0.85;
/// A queue is of others if that leaves less than this part of the error that a slower link leaves.
const FITS_BETTER: f64 = 0.5;
/// So many rates from the shown to the known one are tried.
const RATES: u32 = 5;

impl RoundTrips {
    /// Whether a short queue that has shown since then is one that others keep before a link of the `known` rate. If so, that
    /// explains what packets met far better than any link from the `shown` rate to that one does, in bits per second.
    pub fn stands_beside(&self, since: Instant, shown: f64, known: f64) -> bool {
        let recent = self.samples.iter().rev().take_while(|it| it.at >= since);
        let mut packets: Vec<(&Sample, f64)> = recent.filter_map(|it| Some((it, it.above_ns? as f64))).collect();
        packets.sort_unstable_by_key(|(it, _)| it.sent_at);
        let is_long = packets.iter().any(|(_, met_ns)| *met_ns > LONGEST_NS as f64);
        if packets.len() < LEAST || is_long || shown > NEAR * known {
            return false;
        }
        let (first, first_ns) = packets[0];
        let of_others = self.beyond_own(&packets, first.own_ns as f64, known);
        let mean_ns = of_others.iter().sum::<f64>() / of_others.len() as f64;
        let error_ns = |left: &[f64], stands_ns: f64| left.iter().map(|it| (it - stands_ns).abs()).sum::<f64>();
        let slower = (0..RATES).map(|step| {
            let bits = shown * libm::pow(known / shown, f64::from(step) / f64::from(RATES - 1));
            error_ns(&self.beyond_own(&packets, first_ns, bits), 0.0)
        });
        error_ns(&of_others, mean_ns) < FITS_BETTER * slower.fold(f64::INFINITY, f64::min)
    }

    /// How much more each packet met, in nanoseconds, than what was sent here makes of a link of this rate, in bits per second.
    /// The first one met `first_ns` of that.
    fn beyond_own(&self, packets: &[(&Sample, f64)], first_ns: f64, bits: f64) -> Vec<f64> {
        let Some((first, _)) = packets.first() else { return Vec::new() };
        let begins = Queue { at: first.sent_at, sent_bytes: first.delivered_bytes, ns: first_ns };
        let queues = self.queues_ns(bits, begins, packets.iter().map(|(it, _)| it.sent_at));
        packets.iter().zip(queues).map(|((_, met_ns), queue_ns)| met_ns - queue_ns).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Load, RoundTrip, RttKind},
        *,
    };

    /// Every 40 ms, five grants are sent in 15 ms: 4.3 Mbit/s in the mean. Others keep a queue of this length before a link of
    /// this rate, for the last 400 ms. Whether it seems to stand beside one of 10 Mbit/s, though another rate was shown.
    fn stands(mbit: f64, others_ms: u64, shown_mbit: f64) -> bool {
        const GRANT_BYTES: u64 = 4_344;
        const SINCE_MS: u64 = 2_200;
        let mut seen = RoundTrips::default();
        let (mut sent_bytes, mut queue_ms) = (0, 0.0);
        let mut under_way: Vec<(u64, u64)> = Vec::new();
        for ms in 0..SINCE_MS + 400 {
            let now = Instant::from_ns(ms * MS);
            queue_ms = f64::max(queue_ms - 1.0, 0.0);
            let is_since = ms >= SINCE_MS;
            if is_since && ms % 40 < 15 && ms % 3 == 0 {
                sent_bytes += GRANT_BYTES;
                queue_ms += (8 * GRANT_BYTES) as f64 / (mbit * 1e3);
            }
            let load = Load { sent_bytes, room_at: now, waits: is_since, chunk_bytes: GRANT_BYTES };
            seen.handle_load(now, load);
            if ms % 7 == 0 {
                let rtt_ms = 1 + queue_ms as u64 + if is_since { others_ms } else { 0 };
                under_way.push((ms + rtt_ms, rtt_ms));
            }
            while let Some(at) = under_way.iter().position(|(back_ms, _)| *back_ms <= ms) {
                let (_, rtt_ms) = under_way.remove(at);
                let it = RoundTrip { path: 7, ns: rtt_ms * MS, kind: RttKind::Handshake, age_ns: 0 };
                seen.handle_round_trip(now, it, 0);
            }
        }
        seen.stands_beside(Instant::from_ns((SINCE_MS + 10) * MS), shown_mbit * 1e6, 10e6)
    }

    #[test]
    fn a_short_queue_that_does_not_follow_from_what_was_sent_is_of_others() {
        assert!(stands(10.0, 7, 4.3), "4.3 Mbit/s passed, as no more was sent");
        assert!(!stands(10.0, 7, 9.0), "that is near the known rate");
        assert!(!stands(10.0, 80, 4.3), "so long a one is not looked at");
    }

    #[test]
    fn the_queue_of_a_slower_link_follows_from_what_was_sent() {
        for mbit in [4.5, 5.0, 6.0, 7.0] {
            assert!(!stands(mbit, 0, 4.3), "{mbit} Mbit/s");
        }
    }
}
