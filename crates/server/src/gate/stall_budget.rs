//! How long a client may keep the transport of its connection full. That enforces the least rate at which it has to
//! take bytes.
//!
//! A client has a budget of time, `limits.write-timeout` at most. A full transport uses it up. Acknowledged bytes bring
//! it back: one second for as many bytes as the least rate has in a second. So a client that takes nothing is given up
//! after that time, a client slower than the least rate a little later, and a client at the least rate never. Time in
//! which the transport has room costs nothing, because the response waits for the order or for its origin then.

use std::time::Duration;

use tokio::time::Instant;

/// The acknowledged bytes are looked at when the transport becomes full, if the last look is older than this.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The time that a client has left.
#[derive(Debug)]
pub(super) struct StallBudget {
    most: Duration,
    /// The budget at the last look.
    left: Duration,
    looked: Instant,
    /// Time used up between the last look and `full_since`.
    used: Duration,
    full_since: Option<Instant>,
    acked_bytes: Option<u64>,
    is_slow: bool,
}

/// How fast a client takes bytes, by its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Fast enough.
    Enough,
    /// It has used up a quarter of its budget. Told once, until it has all of it again.
    Slow,
    /// It has used up its budget.
    TooSlow,
}

impl StallBudget {
    /// The whole budget.
    pub(super) fn new(most: Duration, now: Instant, acked_bytes: Option<u64>) -> Self {
        Self { most, left: most, looked: now, used: Duration::ZERO, full_since: None, acked_bytes, is_slow: false }
    }

    /// The transport is full. `acked_bytes` asks what the client has acknowledged. The rate is in bytes a second; zero
    /// stands for none, and then any byte brings back the whole budget.
    pub(super) fn handle_full(&mut self, now: Instant, rate: u64, acked_bytes: impl FnOnce() -> Option<u64>) {
        if self.full_since.is_some() {
            return;
        }
        if now.saturating_duration_since(self.looked) >= LOOK_AFTER {
            self.settle(now, rate, acked_bytes());
        }
        self.full_since = Some(now);
    }

    /// The transport has room, or the response waits for leave.
    pub(super) fn handle_room(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.full_since.take() {
            self.used += now().saturating_duration_since(since);
            if self.acked_bytes.is_none() {
                // Where the transport does not tell what was acknowledged, room is the only sign.
                (self.left, self.used) = (self.most, Duration::ZERO);
            }
        }
    }

    /// When to look next, while the transport is full.
    pub(super) fn poll_timeout(&self, now: Instant) -> Instant {
        let until = if self.is_slow { Duration::ZERO } else { self.slow_at() };
        self.full_since.unwrap_or(now) + self.left.saturating_sub(self.used + until)
    }

    /// Looks at the budget.
    pub(super) fn handle_look(&mut self, now: Instant, rate: u64, acked_bytes: Option<u64>) -> Pace {
        self.settle(now, rate, acked_bytes);
        if self.left.is_zero() {
            return Pace::TooSlow;
        }
        if self.left <= self.slow_at() && !self.is_slow {
            self.is_slow = true;
            return Pace::Slow;
        }
        Pace::Enough
    }

    fn slow_at(&self) -> Duration {
        self.most - self.most / 4
    }

    fn settle(&mut self, now: Instant, rate: u64, acked_bytes: Option<u64>) {
        if let Some(since) = &mut self.full_since {
            self.used += now.saturating_duration_since(*since);
            *since = now;
        }
        let before = std::mem::replace(&mut self.acked_bytes, acked_bytes);
        let taken = acked_bytes.zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        let earned = match rate {
            0 if taken > 0 => self.most,
            0 => Duration::ZERO,
            rate => Duration::from_millis(taken.saturating_mul(1000) / rate),
        };
        self.left = self.left.saturating_add(earned).saturating_sub(self.used).min(self.most);
        self.used = Duration::ZERO;
        self.looked = now;
        self.is_slow &= self.left < self.most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Simulates an hour with a client that takes `bytes` every `every_s` seconds and keeps its transport full in
    /// between. Returns after how many seconds it is found slow and given up.
    fn fate(rate: u64, bytes: u64, every_s: u64) -> (Option<u64>, Option<u64>) {
        let start = Instant::now();
        let mut budget = StallBudget::new(TIMEOUT, start, Some(0));
        let (mut acked, mut slow) = (0, None);
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if second > 0 && second % every_s == 0 {
                acked += bytes;
                budget.handle_room(|| now);
            }
            budget.handle_full(now, rate, || Some(acked));
            while budget.poll_timeout(now) <= now {
                match budget.handle_look(now, rate, Some(acked)) {
                    Pace::Enough => {}
                    Pace::Slow => slow = slow.or(Some(second)),
                    Pace::TooSlow => return (slow, Some(second)),
                }
            }
        }
        (slow, None)
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_after_the_timeout_and_a_slow_one_later() {
        assert_eq!(fate(240, 0, 3600), (Some(15), Some(60)));
        assert_eq!(fate(240, 1, 59), (Some(15), Some(61)), "a byte a minute brings next to nothing back");
        assert_eq!(fate(240, 120, 1), (Some(30), Some(120)), "at half the least rate");
        assert_eq!(fate(240, 240, 1), (None, None), "at the least rate");
        let (slow, over) = fate(240, 50 * 240, 50);
        assert_eq!((slow, over), (Some(15), None), "at the least rate, in lumps");
    }

    #[test]
    fn without_a_least_rate_any_byte_is_enough() {
        assert_eq!(fate(0, 1, 59).1, None);
        assert_eq!(fate(0, 0, 3600).1, Some(60));
    }

    #[test]
    fn a_client_that_was_fast_has_no_more_than_the_timeout() {
        let start = Instant::now();
        let mut budget = StallBudget::new(TIMEOUT, start, Some(0));
        budget.handle_full(start, 240, || Some(0));
        budget.handle_room(|| start + Duration::from_secs(20));
        // An hour at full speed.
        let full = start + Duration::from_secs(3600);
        budget.handle_full(full, 240, || Some(1 << 40));
        let over = full + TIMEOUT;
        assert_eq!(budget.handle_look(full + TIMEOUT / 4, 240, Some(1 << 40)), Pace::Slow);
        assert_eq!(budget.poll_timeout(full + TIMEOUT / 4), over);
        assert_eq!(budget.handle_look(over, 240, Some(1 << 40)), Pace::TooSlow);
    }

    #[test]
    fn time_in_which_the_socket_has_room_costs_nothing() {
        let start = Instant::now();
        let mut budget = StallBudget::new(TIMEOUT, start, Some(0));
        let mut now = start;
        for _ in 0..50 {
            budget.handle_full(now, 240, || Some(0));
            now += Duration::from_secs(1);
            budget.handle_room(|| now);
            now += Duration::from_secs(100);
        }
        budget.handle_full(now, 240, || Some(0));
        assert_eq!(budget.handle_look(now + Duration::from_secs(9), 240, Some(0)), Pace::Slow);
        assert_eq!(budget.handle_look(now + Duration::from_secs(10), 240, Some(0)), Pace::TooSlow);
    }
}
