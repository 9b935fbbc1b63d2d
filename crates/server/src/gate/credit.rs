//! How long a client may keep the socket of its connection full: the least rate at which it has to take bytes.
//!
//! A client has a credit of time, `limits.write-timeout` at most. A full socket uses it up, and acknowledged bytes bring it back,
//! one second for as many bytes as the least rate has. So a client that takes nothing is given up after that time, one slower than
//! the least rate a little later, and one at the least rate never. Time in which the socket has room costs nothing: the
//! response waits for the order or for its origin then.

use std::time::Duration;

use tokio::time::Instant;

/// What a client has acknowledged is looked at when its socket becomes full, if the last look is older than this.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// A client's credit.
#[derive(Debug)]
pub(super) struct Credit {
    most: Duration,
    /// At the last look.
    left: Duration,
    looked: Instant,
    /// Of what is left, used up since the last look, before `full_since`.
    used: Duration,
    full_since: Option<Instant>,
    acked_bytes: Option<u64>,
    is_slow: bool,
}

/// The client, as a look at its credit finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It takes enough.
    Goes,
    /// It has used up a quarter of its credit; said once until it has all of it again.
    Slow,
    /// It has no credit left.
    Over,
}

impl Credit {
    /// All of it.
    pub(super) fn new(most: Duration, now: Instant, acked_bytes: Option<u64>) -> Self {
        Self { most, left: most, looked: now, used: Duration::ZERO, full_since: None, acked_bytes, is_slow: false }
    }

    /// The socket is full. `acked_bytes` asks what the client has acknowledged; the rate is in bytes a second, and zero
    /// stands for none: then any byte brings back all.
    pub(super) fn handle_full(&mut self, now: Instant, rate: u64, acked_bytes: impl FnOnce() -> Option<u64>) {
        if self.full_since.is_some() {
            return;
        }
        if now.saturating_duration_since(self.looked) >= LOOK_AFTER {
            self.settle(now, rate, acked_bytes());
        }
        self.full_since = Some(now);
    }

    /// The socket has room, or the response waits for something of ours.
    pub(super) fn handle_room(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.full_since.take() {
            self.used += now().saturating_duration_since(since);
            if self.acked_bytes.is_none() {
                // Where the system does not tell, room is the only sign.
                (self.left, self.used) = (self.most, Duration::ZERO);
            }
        }
    }

    /// When to look next, while the socket is full.
    pub(super) fn poll_timeout(&self, now: Instant) -> Instant {
        let until = if self.is_slow { Duration::ZERO } else { self.slow_at() };
        self.full_since.unwrap_or(now) + self.left.saturating_sub(self.used + until)
    }

    /// What has become of the client's credit.
    pub(super) fn handle_look(&mut self, now: Instant, rate: u64, acked_bytes: Option<u64>) -> Look {
        self.settle(now, rate, acked_bytes);
        if self.left.is_zero() {
            return Look::Over;
        }
        if self.left <= self.slow_at() && !self.is_slow {
            self.is_slow = true;
            return Look::Slow;
        }
        Look::Goes
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

    /// A client whose socket is full but for a moment after each `every_s` seconds, when it has taken `bytes`: after how many
    /// seconds it is found slow and given up, within an hour.
    fn fate(rate: u64, bytes: u64, every_s: u64) -> (Option<u64>, Option<u64>) {
        let start = Instant::now();
        let mut credit = Credit::new(TIMEOUT, start, Some(0));
        let (mut acked, mut slow) = (0, None);
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if second > 0 && second % every_s == 0 {
                acked += bytes;
                credit.handle_room(|| now);
            }
            credit.handle_full(now, rate, || Some(acked));
            while credit.poll_timeout(now) <= now {
                match credit.handle_look(now, rate, Some(acked)) {
                    Look::Goes => {}
                    Look::Slow => slow = slow.or(Some(second)),
                    Look::Over => return (slow, Some(second)),
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
        let mut credit = Credit::new(TIMEOUT, start, Some(0));
        credit.handle_full(start, 240, || Some(0));
        credit.handle_room(|| start + Duration::from_secs(20));
        // An hour at full speed.
        let full = start + Duration::from_secs(3600);
        credit.handle_full(full, 240, || Some(1 << 40));
        let over = full + TIMEOUT;
        assert_eq!(credit.handle_look(full + TIMEOUT / 4, 240, Some(1 << 40)), Look::Slow);
        assert_eq!(credit.poll_timeout(full + TIMEOUT / 4), over);
        assert_eq!(credit.handle_look(over, 240, Some(1 << 40)), Look::Over);
    }

    #[test]
    fn time_in_which_the_socket_has_room_costs_nothing() {
        let start = Instant::now();
        let mut credit = Credit::new(TIMEOUT, start, Some(0));
        let mut now = start;
        for _ in 0..50 {
            credit.handle_full(now, 240, || Some(0));
            now += Duration::from_secs(1);
            credit.handle_room(|| now);
            now += Duration::from_secs(100);
        }
        credit.handle_full(now, 240, || Some(0));
        assert_eq!(credit.handle_look(now + Duration::from_secs(9), 240, Some(0)), Look::Slow);
        assert_eq!(credit.handle_look(now + Duration::from_secs(10), 240, Some(0)), Look::Over);
    }
}
