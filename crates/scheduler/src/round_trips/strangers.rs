//! The queue that clients meet who were never seen before, by the round trips of all of them together.
//!
//! The first round trip of one client says nothing, because the client may be far. But clients come from near and far in
//! the same mixture at all times. So if the round trips of many are longer than they were before, there is a queue.
//!
//! What is added to all of them is certain only as far as chance does not explain it. What one client met in particular is
//! somewhere between that and what its own round trip would show if all clients were equally far. If round trips differ no
//! more than they did without a queue, the distances of the clients explain the differences. If they differ far more, the
//! queue comes and goes, and each round trip shows it.

use alloc::{collections::VecDeque, vec::Vec};

use crate::time::{Instant, MS};

/// The first round trips of clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Strangers {
    /// The last ones in nanoseconds, and when they came, the newest last.
    recent: VecDeque<(Instant, u64)>,
    window: Window,
    window_before: Window,
}

/// What came in a window of time.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Instant,
    clients: u32,
    /// The shortest typical round trips.
    shortest: Option<Typical>,
}

/// The quartiles of some round trips, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Typical {
    quarter_ns: u64,
    half_ns: u64,
    three_quarters_ns: u64,
}

/// So many round trips count at most, none older than this, and so many at least.
const MOST: usize = 24;
const LEAST: usize = 8;
const RECENT_NS: u64 = 2_000 * MS;
const WINDOW_NS: u64 = 15_000 * MS;
/// They tell when so many clients came. Where clients are few, the first ones are all that ever come.
const CLIENTS_LEAST: u32 = 48;
/// So many standard errors of the first quartile are no queue.
const ERRORS: f64 = 2.0;
/// So many times the usual distance between the quartiles is explained by the clients.
const SPREADS: f64 = 1.5;

impl Strangers {
    /// Takes the first round trip of a client. Returns the queue that it probably met, in nanoseconds. `None` if there were
    /// too few others.
    pub fn handle(&mut self, now: Instant, rtt_ns: u64) -> Option<u64> {
        self.recent.push_back((now, rtt_ns));
        if now.ns_since(self.window.began) >= WINDOW_NS {
            self.window_before = core::mem::replace(&mut self.window, Window { began: now, ..Window::default() });
        }
        self.window.clients += 1;
        while self.recent.len() > MOST || self.recent.front().is_some_and(|(at, _)| now.ns_since(*at) > RECENT_NS) {
            self.recent.pop_front();
        }
        let typical = Typical::of(self.recent.iter().map(|&(_, rtt_ns)| rtt_ns))?;
        if self.window.shortest.is_none_or(|shortest| typical.quarter_ns < shortest.quarter_ns) {
            self.window.shortest = Some(typical);
        }
        if self.window.clients + self.window_before.clients < CLIENTS_LEAST {
            return None;
        }
        let windows = [self.window.shortest, self.window_before.shortest];
        let shortest = windows.into_iter().flatten().min_by_key(|it| it.quarter_ns)?;
        let error_ns = shortest.spread_ns() / libm::sqrt(self.recent.len() as f64);
        let added_ns = typical.quarter_ns.saturating_sub(shortest.quarter_ns) as f64;
        let of_all_ns = (added_ns - ERRORS * error_ns).max(0.0);
        let of_itself_ns = rtt_ns.saturating_sub(shortest.half_ns) as f64;
        let explained = SPREADS * shortest.spread_ns() / typical.spread_ns().max(1.0);
        let counts_itself = (1.0 - explained * explained).max(0.0);
        Some((of_all_ns + counts_itself * (of_itself_ns - of_all_ns)) as u64)
    }

    /// All round trips have become longer by this.
    pub fn handle_longer(&mut self, by_ns: u64) {
        for it in [&mut self.window.shortest, &mut self.window_before.shortest].into_iter().flatten() {
            for ns in [&mut it.quarter_ns, &mut it.half_ns, &mut it.three_quarters_ns] {
                *ns = ns.saturating_add(by_ns);
            }
        }
    }
}

impl Typical {
    /// `None` if they are too few.
    fn of(rtts_ns: impl Iterator<Item = u64>) -> Option<Self> {
        let mut rtts_ns: Vec<u64> = rtts_ns.collect();
        rtts_ns.sort_unstable();
        let n = rtts_ns.len();
        (n >= LEAST).then(|| Self {
            quarter_ns: rtts_ns[n / 4],
            half_ns: rtts_ns[n / 2],
            three_quarters_ns: rtts_ns[3 * n / 4],
        })
    }

    fn spread_ns(&self) -> f64 {
        (self.three_quarters_ns - self.quarter_ns) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new client comes every 10 ms, as far away as `far_ms` says of its number, and meets this queue. The queues that the
    /// last 100 of so many are thought to have met, in milliseconds.
    fn thought_ms(clients: u64, far_ms: fn(u64) -> u64, queue_ms: fn(u64) -> u64) -> Vec<u64> {
        let mut strangers = Strangers::default();
        let thought = (0..clients).map(|n| {
            let at = Instant::from_ns(10 * n * MS);
            strangers.handle(at, (far_ms(n) + queue_ms(n)) * MS).map(|ns| ns / MS)
        });
        let mut thought: Vec<_> = thought.collect();
        thought.drain(..thought.len().saturating_sub(100));
        thought.into_iter().flatten().collect()
    }

    /// From 5 to 200 ms, in no order.
    fn anywhere_ms(n: u64) -> u64 {
        5 + (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9) % 196
    }

    fn mean(numbers: &[u64]) -> f64 {
        numbers.iter().sum::<u64>() as f64 / numbers.len() as f64
    }

    #[test]
    fn a_few_show_nothing() {
        let least = u64::from(CLIENTS_LEAST);
        assert!(thought_ms(least - 1, |_| 5, |_| 0).is_empty());
        assert_eq!(thought_ms(least, |_| 5, |_| 0), [0]);
    }

    #[test]
    fn distances_are_no_queue() {
        let thought = thought_ms(1_000, anywhere_ms, |_| 0);
        assert!(mean(&thought) < 10.0, "{thought:?}");
    }

    #[test]
    fn a_queue_that_all_meet_shows_whatever_their_distances() {
        let thought = thought_ms(1_000, anywhere_ms, |n| if n < 900 { 0 } else { 150 });
        let settled = mean(&thought[MOST..]);
        assert!((80.0..180.0).contains(&settled), "{thought:?}");
        let nearby = thought_ms(1_000, |_| 5, |n| if n < 900 { 0 } else { 150 });
        assert!(nearby[MOST..].iter().all(|ms| *ms == 150), "{nearby:?}");
    }

    #[test]
    fn each_round_trip_shows_a_queue_that_comes_and_goes_where_clients_are_equally_far() {
        let queue_ms = |n: u64| 20 * (n % 20).saturating_sub(9);
        let thought = thought_ms(1_000, |_| 5, queue_ms);
        let off_ms = (900..1_000).zip(&thought).map(|(n, ms)| queue_ms(n).abs_diff(*ms)).max();
        assert!(off_ms.is_some_and(|ms| ms <= 10), "{thought:?}");
    }

    #[test]
    fn a_mixture_that_has_changed_is_the_usual_one_after_two_windows() {
        let clients = 2 * WINDOW_NS / (10 * MS) + 600;
        let thought = thought_ms(clients, |n| if n < 300 { 5 } else { 100 }, |_| 0);
        assert!(thought.iter().all(|ms| *ms == 0), "{thought:?}");
        let early = thought_ms(600, |n| if n < 300 { 5 } else { 100 }, |_| 0);
        assert_eq!(mean(&early), 95.0);
    }
}
