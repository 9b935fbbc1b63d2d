//! Queues that are none of the uplink's making.
//!
//! One is on the way to the server, where acknowledgements wait behind downloads of others. Another is before the link
//! itself, where uploads of other hosts keep it full. Both stand whatever is sent here. A queue that shows soon after such
//! a one is probably the same. It is, as long as the link carries all that is sent.

use alloc::vec::Vec;

use super::{IDLE_MOST, RoundTrips, Sample, Whose, elsewhere::Elsewhere};
use crate::time::{Instant, MS};

/// A queue that shows is looked at for so long. It is of others if the link carries this part of what is sent.
const LOOKS_NS: u64 = 300 * MS;
const CARRIES: f64 = 0.85;
/// Where clients are new, a queue that shows is looked at from so long before on. It is compared with the queues of links
/// down to this part of the rate.
const BEFORE_NS: u64 = 200 * MS;
const SLOWEST: f64 = 0.5;
/// Clients are new if most round trips of this time are of such.
const NEW_OVER_NS: u64 = 1_000 * MS;
/// The carried rate is measured over this time, or over the time of so many chunks if that is longer.
const CARRIED_OVER_NS: u64 = 100 * MS;
const CARRIED_CHUNKS: u64 = 12;

impl RoundTrips {
    /// How much longer round trips may be than those of paths that are known, since a queue of others was found.
    pub fn elsewhere_ns(&self, now: Instant) -> u64 {
        self.elsewhere.filter(|it| it.is_recent(now)).map_or(0, |it| it.most_ns())
    }

    /// Whether a queue of others was found lately.
    pub fn is_elsewhere(&self, now: Instant) -> bool {
        self.elsewhere.is_some_and(|it| it.is_recent(now))
    }

    /// The same of one that is surely of others.
    pub fn is_surely_elsewhere(&self, now: Instant) -> bool {
        self.elsewhere.is_some_and(|it| it.is_sure && it.is_recent(now))
    }

    /// A queue of this length has shown since then. `bits` is the rate of the link, in bits per second.
    pub fn whose(&mut self, now: Instant, since: Instant, queue_ns: u64, bits: f64) -> Whose {
        let before = Instant::from_ns(since.as_ns().saturating_sub(BEFORE_NS));
        if self.are_guessed(before) && self.stands_beside(before, SLOWEST * bits, bits) {
            // It does not follow from what was sent. Probably the paths are longer than they were guessed to be.
            self.learn_paths(now, before, queue_ns, false);
            return Whose::Others;
        }
        let Some(it) = self.elsewhere.filter(|it| it.is_remembered(now)) else {
            return Whose::Ours;
        };
        if now.ns_since(since) < LOOKS_NS {
            return Whose::NotKnown;
        }
        let least = CARRIES * bits.min(self.sent_bits(now, since));
        if self.most_carried(now, since).is_none_or(|carried| carried <= least) {
            return Whose::Ours;
        }
        self.elsewhere = Some(Elsewhere { at: now, queue_ns: queue_ns.max(it.queue_ns), ..it });
        Whose::Others
    }

    /// The highest rate that the link has surely carried over some time since then, in bits per second.
    pub fn most_carried(&self, now: Instant, since: Instant) -> Option<f64> {
        let chunks_s = (CARRIED_CHUNKS * 8 * self.chunk_bytes) as f64 / self.sent_bits(now, since);
        let over_ns = CARRIED_OVER_NS.max((chunks_s * 1e9) as u64);
        let starts = (0..).map(|n| since.add_ns(n * over_ns / 2)).take_while(|from| from.add_ns(over_ns) <= now);
        let carried = starts.filter_map(|from| {
            let came = self.samples.iter().filter(|it| from <= it.at && it.at <= from.add_ns(over_ns));
            let slope = self.measured(from, came, false)?;
            Some(slope.bits - 2.0 * slope.error)
        });
        carried.max_by(f64::total_cmp)
    }

    /// Whether most round trips of the last second are of clients that came a moment ago.
    pub fn are_clients_new(&self, now: Instant) -> bool {
        self.are_guessed(Instant::from_ns(now.as_ns().saturating_sub(NEW_OVER_NS)))
    }

    /// Whether what most packets met that have come back since then is guessed, because their clients are new.
    pub fn are_guessed(&self, since: Instant) -> bool {
        let recent = self.samples.iter().rev().take_while(|it| it.at >= since);
        recent.map(|it| if it.is_guessed { 1 } else { -1 }).sum::<i32>() > 0
    }

    /// A queue of this length is of others. The round trips of packets that were sent since then are taken as those without a
    /// queue. That is not sure where most of them are guessed.
    pub fn learn_paths(&mut self, now: Instant, since: Instant, queue_ns: u64, is_sure: bool) {
        let excess = |it: &Sample| Some((it.at, it.above_ns.filter(|_| it.sent_at >= since)?));
        let seen: Vec<(Instant, u64)> = self.samples.iter().filter_map(excess).collect();
        let is_sure = is_sure && !self.are_guessed(since);
        let shortest_ns = seen.iter().map(|&(_, above_ns)| above_ns).min().unwrap_or(0);
        self.paths.handle_longer(shortest_ns);
        self.strangers.handle_longer(shortest_ns);
        self.elsewhere = Some(Elsewhere { at: now, queue_ns: shortest_ns.max(queue_ns), is_sure });
        self.level.take();
        let latest = seen.into_iter().rev().take(IDLE_MOST).rev();
        self.idle = latest.map(|(at, above_ns)| (at, (above_ns - shortest_ns) as i64)).collect();
        self.samples.clear();
        self.voices.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Load, RoundTrip, RttKind},
        *,
    };

    /// 8 Mbit/s are sent for so long, and a packet of every 10 ms meets this queue.
    fn sends(from: Instant, seen: &mut RoundTrips, ms: u64, queue_ms: impl Fn(u64) -> u64) -> Instant {
        let mut came: Vec<(u64, u64)> = (0..ms / 10).map(|n| (10 * n + queue_ms(10 * n), queue_ms(10 * n))).collect();
        came.sort_unstable();
        let mut came = came.into_iter().peekable();
        for at_ms in 0..ms {
            let now = from.add_ns(at_ms * MS);
            let sent_bytes = now.as_ns() / 1_000;
            seen.handle_load(now, Load { sent_bytes, room_at: now, waits: true, chunk_bytes: 4_344 });
            while let Some((_, queue_ms)) = came.next_if(|(came_ms, _)| *came_ms <= at_ms) {
                let round_trip = RoundTrip { path: 7, ns: (1 + queue_ms) * MS, kind: RttKind::Handshake, age_ns: 0 };
                seen.handle_round_trip(now, round_trip, 0);
            }
        }
        from.add_ns(ms * MS)
    }

    /// Two seconds without a queue, and then a quarter of a second with one of 50 ms, which is surely of others or not.
    fn with_queue(is_sure: bool) -> (RoundTrips, Instant) {
        let mut seen = RoundTrips::default();
        let since = sends(Instant::from_ns(MS), &mut seen, 2_200, |_| 0);
        let now = sends(since, &mut seen, 250, |_| 50);
        seen.learn_paths(now, since, 50 * MS, is_sure);
        (seen, now)
    }

    const BITS: f64 = 8e6;

    /// For 400 ms, 8 Mbit/s are sent to a link of 10 Mbit/s. Every 20 ms a packet meets this queue, which is guessed or not.
    /// Whose queue it is.
    fn whose(is_guessed: bool, above_ms: impl Fn(u64) -> u64) -> (Whose, RoundTrips, Instant) {
        let mut seen = RoundTrips::default();
        let since = sends(Instant::from_ns(MS), &mut seen, 2_200, |_| 0);
        for ms in (0..400).step_by(20) {
            let (sent_at, above_ns) = (since.add_ns(ms * MS), above_ms(ms) * MS);
            seen.handle_load(
                sent_at,
                Load { sent_bytes: sent_at.as_ns() / 1_000, room_at: sent_at, waits: true, chunk_bytes: 4_344 },
            );
            let delivered_bytes = (sent_at.as_ns() / 1_000) as f64;
            seen.samples.push_back(Sample { is_guessed, delivered_bytes, ..Sample::met(9, sent_at, above_ns) });
        }
        let now = since.add_ns(450 * MS);
        (seen.whose(now, since.add_ns(200 * MS), 30 * MS, 1.25 * BITS), seen, now)
    }

    #[test]
    fn where_clients_are_new_a_queue_that_does_not_follow_from_what_was_sent_is_a_longer_path() {
        let (whose_it_is, seen, now) = whose(true, |_| 30);
        assert_eq!(whose_it_is, Whose::Others);
        assert_eq!((seen.is_elsewhere(now), seen.is_surely_elsewhere(now)), (true, false));
        assert_eq!(whose(false, |_| 30).0, Whose::Ours, "these clients are known");
        assert_eq!(whose(true, |ms| ms / 10).0, Whose::Ours, "a link of 7.3 Mbit/s has such a queue");
    }

    #[test]
    fn a_queue_of_others_is_remembered_for_ten_seconds_and_may_grow() {
        let (seen, found_at) = with_queue(true);
        let later = found_at.add_ns(9_000 * MS);
        assert_eq!((seen.is_surely_elsewhere(later), seen.elsewhere_ns(later)), (true, 100 * MS));
        let late = found_at.add_ns(11_000 * MS);
        assert_eq!((seen.is_elsewhere(late), seen.elsewhere_ns(late)), (false, 0));
        let (seen, found_at) = with_queue(false);
        assert_eq!((seen.is_elsewhere(found_at), seen.is_surely_elsewhere(found_at)), (true, false));
        assert_eq!(seen.elsewhere_ns(found_at), 25 * MS);
    }

    #[test]
    fn one_that_grows_is_still_of_others_while_the_link_carries_what_is_sent() {
        let (mut seen, since) = with_queue(true);
        let now = sends(since, &mut seen, 400, |_| 200);
        assert_eq!(seen.whose(since.add_ns(100 * MS), since, 150 * MS, BITS), Whose::NotKnown);
        assert_eq!(seen.whose(now, since, 150 * MS, BITS), Whose::Others);
        assert_eq!(seen.elsewhere_ns(now), 300 * MS, "it has grown to this");
        assert!(seen.is_elsewhere(since.add_ns(10_100 * MS)), "it was found again");
    }

    #[test]
    fn one_is_ours_if_the_link_carries_less_than_is_sent_or_if_none_was_surely_of_others() {
        let (mut seen, since) = with_queue(true);
        // Half of what is sent passes.
        let now = sends(since, &mut seen, 800, |ms| 50 + ms);
        let carried = seen.most_carried(now, since).unwrap() / 1e6;
        assert!((3.5..4.5).contains(&carried), "{carried:.2} Mbit/s");
        assert_eq!(seen.whose(now, since, 150 * MS, BITS), Whose::Ours);
        let (mut seen, since) = with_queue(false);
        let now = sends(since, &mut seen, 400, |_| 200);
        assert_eq!(seen.whose(now, since, 150 * MS, BITS), Whose::Ours);
        let (mut seen, since) = with_queue(true);
        let late = sends(since.add_ns(21_000 * MS), &mut seen, 400, |_| 50);
        assert_eq!(seen.whose(late, late.add_ns(0), 50 * MS, BITS), Whose::Ours, "that was long ago");
    }
}
