//! Guesses the queue that the first packet of a new client has met.
//!
//! The queue of the link is the same for all clients. So that packet met what packets of other clients met that were sent
//! at the same time. The ones that have come back were sent earlier, and the queue has changed since. Packets of one client
//! that were sent one after the other tell how it changes.
//!
//! Where clients send one packet each, all of them would have the queue that the first ones were guessed to have met. Then
//! the guess is what new clients show together.

use alloc::vec::Vec;

use super::sample::Sample;
use crate::time::{Instant, MS};

/// The guess is the median of so many round trips, or of fewer, if there are enough.
const MOST: usize = 5;
const LEAST: usize = 3;
/// So many round trips at most tell how the queue changes. There are so many pairs of one client at least, and the two
/// packets of a pair were sent so far apart in the mean.
const TREND_OF: usize = 32;
const PAIRS_LEAST: u32 = 2;
const APART_NS: f64 = 5.0 * MS as f64;
/// A guess is far longer than the round trip if it is longer by one part in so many.
const LONGER_PART: u64 = 4;
/// The queue grows and shrinks by so many seconds in a second at most.
const TREND_MOST: f64 = 1.0;

/// An excess, and the packet that had it.
struct Met {
    path: u64,
    /// How long before the one in question it was sent, in nanoseconds; less than zero if later.
    before_ns: f64,
    above_ns: f64,
    is_guessed: bool,
}

/// The excess of a packet that was sent then, whatever its path, in nanoseconds. `None` if too few tell. `recent`: round
/// trips of the last moments, the newest first. `rtt_ns`: that of the packet itself. `of_strangers_ns`: what new clients
/// show together.
pub(super) fn excess_ns<'a>(
    recent: impl Iterator<Item = &'a Sample>,
    sent_at: Instant,
    rtt_ns: u64,
    of_strangers_ns: Option<u64>,
) -> Option<u64> {
    let before_ns = |at: Instant| sent_at.as_ns() as f64 - at.as_ns() as f64;
    let met = recent.take(TREND_OF).filter_map(|it| {
        let above_ns = it.above_ns? as f64;
        Some(Met { path: it.path, before_ns: before_ns(it.sent_at), above_ns, is_guessed: it.is_guessed })
    });
    let met: Vec<Met> = met.collect();
    let are_known = met.iter().take(MOST).filter(|it| !it.is_guessed).count() >= LEAST;
    let trend = trend(&met);
    if of_strangers_ns.is_some() && !are_known && trend.is_none() {
        return of_strangers_ns;
    }
    let trend = trend.unwrap_or(0.0);
    let mut then: Vec<f64> = met.iter().take(MOST).map(|it| it.above_ns + trend * it.before_ns).collect();
    then.sort_unstable_by(f64::total_cmp);
    let guess_ns = (then.len() >= LEAST).then(|| then[then.len() / 2].max(0.0) as u64)?;
    // A queue that one client met, and this packet did not, was that of the client's own line.
    let are_of_one = || met.iter().take(MOST).all(|it| it.path == met[0].path);
    if guess_ns > rtt_ns + rtt_ns / LONGER_PART && are_of_one() { of_strangers_ns } else { Some(guess_ns) }
}

/// By how many seconds in a second the queue grows, by packets of the same client. 0 if too few tell, and `None` if no two are
/// of one client.
fn trend(met: &[Met]) -> Option<f64> {
    let (mut pairs, mut of_time, mut of_both) = (0, 0.0, 0.0);
    for (n, it) in met.iter().enumerate() {
        for other in met[n + 1..].iter().filter(|other| other.path == it.path) {
            let (apart_ns, longer_ns) = (other.before_ns - it.before_ns, it.above_ns - other.above_ns);
            pairs += 1;
            of_time += apart_ns * apart_ns;
            of_both += apart_ns * longer_ns;
        }
    }
    let tells = pairs >= PAIRS_LEAST && of_time > APART_NS * APART_NS * f64::from(pairs);
    let trend = if tells { (of_both / of_time).clamp(-TREND_MOST, TREND_MOST) } else { 0.0 };
    (pairs > 0).then_some(trend)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets are sent every 10 ms, to two clients in turn, and meet this queue. The guess for one that is sent after
    /// 100 ms, in milliseconds.
    fn guess_ms(packets: u64, queue_ms: fn(u64) -> u64) -> Option<u64> {
        let at = |ms: u64| Instant::from_ns(1_000 * MS + ms * MS);
        let sample = |n: u64| Sample::met(n % 2, at(10 * n), queue_ms(10 * n) * MS);
        let mut samples: Vec<Sample> = (0..packets).map(sample).collect();
        samples.sort_by_key(|it| it.at);
        excess_ns(samples.iter().rev(), at(100), 1_000 * MS, None).map(|ns| ns / MS)
    }

    #[test]
    fn a_queue_that_stands_is_met_by_all() {
        assert_eq!(guess_ms(10, |_| 50), Some(50));
        assert_eq!([2, 3].map(|packets| guess_ms(packets, |_| 50)), [None, Some(50)]);
    }

    #[test]
    fn a_queue_that_changes_is_as_long_as_it_has_become_since() {
        assert_eq!(guess_ms(10, |sent_ms| sent_ms / 2), Some(50));
        assert_eq!(guess_ms(10, |sent_ms| 80 - sent_ms / 2), Some(30));
        assert_eq!(guess_ms(10, |sent_ms| (90 - sent_ms) / 2), Some(0), "it is gone");
    }

    #[test]
    fn clients_of_one_packet_each_have_what_new_ones_show_together() {
        let guess_ms = |clients: u64, is_guessed| {
            let sample = |n: u64| Sample { is_guessed, ..Sample::met(n % clients, Instant::from_ns(n * MS), 20 * MS) };
            let samples: Vec<Sample> = (0..8).map(sample).collect();
            excess_ns(samples.iter().rev(), Instant::from_ns(8 * MS), 1_000 * MS, Some(90 * MS)).map(|ns| ns / MS)
        };
        assert_eq!(guess_ms(8, true), Some(90));
        assert_eq!(guess_ms(8, false), Some(20), "their paths are known");
        assert_eq!(guess_ms(7, true), Some(20), "one has sent two");
        assert_eq!(excess_ns([].iter(), Instant::from_ns(MS), MS, Some(7)), Some(7));
    }

    #[test]
    fn a_queue_that_one_client_met_and_another_cannot_have_met_is_none_of_the_link() {
        let guess_ms = |clients: u64, rtt_ms: u64| {
            let sample = |n: u64| Sample::met(n % clients, Instant::from_ns(10 * n * MS), 55 * MS);
            let samples: Vec<Sample> = (0..6).map(sample).collect();
            excess_ns(samples.iter().rev(), Instant::from_ns(60 * MS), rtt_ms * MS, None).map(|ns| ns / MS)
        };
        assert_eq!([20, 44, 75].map(|rtt_ms| guess_ms(1, rtt_ms)), [None, Some(55), Some(55)]);
        assert_eq!(guess_ms(2, 20), Some(55), "two have met it");
    }

    #[test]
    fn packets_of_different_clients_show_no_trend() {
        let met = |path, before_ms: f64, above_ms: f64| Met {
            path,
            before_ns: before_ms * 1e6,
            above_ns: above_ms * 1e6,
            is_guessed: false,
        };
        assert_eq!(trend(&[met(1, 20.0, 5.0), met(2, 10.0, 50.0), met(3, 0.0, 90.0)]), None);
        let grows = [met(1, 20.0, 5.0), met(1, 10.0, 8.0), met(1, 0.0, 11.0), met(2, 0.0, 90.0)];
        assert!(trend(&grows).is_some_and(|trend| (trend - 0.3).abs() < 1e-9));
        assert_eq!(
            trend(&[met(1, 2.0, 5.0), met(1, 1.0, 9.0), met(1, 0.0, 13.0)]),
            Some(0.0),
            "they were sent at once"
        );
        assert_eq!(trend(&[met(1, 20.0, 5.0), met(1, 10.0, 45.0), met(1, 0.0, 85.0)]), Some(1.0));
    }
}
