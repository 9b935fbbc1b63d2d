//! The bytes that all responses of a client may have together.
//!
//! While a response waits for bytes, it does not ask the uplink for leave to send, so other clients have the uplink. Of the
//! waiting responses of one client, the one with the least left is served first.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{config::ByteRate, who::Who};

/// A response that waits is given the bytes of so much time at once, so that it is not woken for each packet...
const PORTION: Duration = Duration::from_millis(20);
/// ... but no less than a packet, and no more than a chunk.
const LEAST_PORTION_BYTES: u64 = 1_460;
const MOST_PORTION_BYTES: u64 = 64 * 1024;
/// A response that others go before asks again after this.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// A response that does not ask again in time waits for its client. Others do not wait for it.
const LATE_AFTER_NS: u128 = 10_000_000;

/// Others tell of their bytes some times a second. Without a debt, what they sent of this gateway's part would be
/// forgotten.
const MOST_DEBT: Duration = Duration::from_secs(1);

/// The bytes of a client.
#[derive(Debug)]
pub struct Allowance {
    rate: ByteRate,
    /// The moment from which times are counted.
    epoch: Instant,
    state: Mutex<State>,
    /// Where several gateways have one limit together.
    told: Option<Unreported>,
}

/// Bytes that other gateways have not heard of.
#[derive(Debug)]
struct Unreported {
    who: Who,
    /// Bytes since they were last told.
    bytes: AtomicU64,
    list: Spenders,
}

/// Clients whose bytes others have not heard of.
pub(crate) type Spenders = Arc<Mutex<Vec<Arc<Allowance>>>>;

#[derive(Debug, Default)]
struct State {
    /// When all of the burst is there again, after `epoch`.
    full_ns: u128,
    /// Of each response that waits, how much is left and its number; and when it asks again, after `epoch`.
    waiting: BTreeMap<(u64, u64), u128>,
    next_number: u64,
}

/// The share of a response in the bytes of its client.
#[derive(Debug)]
pub struct Share {
    allowance: Arc<Allowance>,
    number: u64,
    /// As it stands among those that wait.
    waits_with: Mutex<Option<u64>>,
}

impl Allowance {
    /// A full allowance.
    pub fn new(rate: ByteRate, now: Instant) -> Arc<Self> {
        Arc::new(Self { rate, epoch: now, state: Mutex::default(), told: None })
    }

    /// A full allowance of a client of which others are to hear.
    pub(crate) fn told(rate: ByteRate, now: Instant, who: Who, list: Spenders) -> Arc<Self> {
        let told = Some(Unreported { who, bytes: AtomicU64::new(0), list });
        Arc::new(Self { rate, epoch: now, state: Mutex::default(), told })
    }

    /// The client, and its bytes since the last call.
    pub(crate) fn take_spent(&self) -> Option<(Who, u64)> {
        self.told.as_ref().map(|told| (told.who, told.bytes.swap(0, Relaxed)))
    }

    /// Others have sent bytes. At worst nothing is left for [`MOST_DEBT`].
    pub(crate) fn spend(&self, bytes: u64, now: Instant) {
        let now_ns = now.saturating_duration_since(self.epoch).as_nanos();
        let mut state = self.state.lock();
        let latest_ns = now_ns + self.ns(self.rate.burst_bytes.get()) + MOST_DEBT.as_nanos();
        let then_ns = state.full_ns.max(now_ns) + self.ns(bytes);
        // A debt of this gateway's own stays.
        state.full_ns = then_ns.min(latest_ns.max(state.full_ns));
    }

    /// The time in which all of the burst comes back.
    pub(crate) fn fills_in(rate: &ByteRate) -> Duration {
        Duration::from_secs_f64(rate.burst_bytes.get() as f64 / rate.bytes_per_second.get() as f64)
    }

    /// The share of another response.
    pub fn share(self: Arc<Self>) -> Share {
        let number = {
            let mut state = self.state.lock();
            state.next_number += 1;
            state.next_number
        };
        Share { allowance: self, number, waits_with: Mutex::new(None) }
    }

    fn ns(&self, bytes: u64) -> u128 {
        u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.bytes_per_second.get())
    }

    /// The bytes that are there.
    fn there(&self, state: &State, now_ns: u128) -> u64 {
        let missing_ns = state.full_ns.saturating_sub(now_ns);
        let missing = missing_ns * u128::from(self.rate.bytes_per_second.get()) / 1_000_000_000;
        self.rate.burst_bytes.get().saturating_sub(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    /// The least that a response is given, unless that is all of it.
    fn portion_bytes(&self) -> u64 {
        let bytes = u128::from(self.rate.bytes_per_second.get()) * PORTION.as_nanos() / 1_000_000_000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        bytes.clamp(LEAST_PORTION_BYTES, MOST_PORTION_BYTES).min(self.rate.burst_bytes.get())
    }
}

impl Share {
    /// The bytes that a response with so many left may send now.
    ///
    /// # Errors
    /// None; when to ask again.
    pub fn available(&self, left_bytes: u64, now: Instant) -> Result<u64, Instant> {
        let Allowance { epoch, state, .. } = &*self.allowance;
        let mut state = state.lock();
        let mut waits_with = self.waits_with.lock();
        if let Some(left) = waits_with.take() {
            state.waiting.remove(&(left, self.number));
        }
        let now_ns = now.saturating_duration_since(*epoch).as_nanos();
        let (there, needed) =
            (self.allowance.there(&state, now_ns), self.allowance.portion_bytes().min(left_bytes.max(1)));
        while let Some(first) = state.waiting.first_entry().filter(|first| *first.get() + LATE_AFTER_NS < now_ns) {
            first.remove();
        }
        let goes_first = state.waiting.first_key_value().is_none_or(|(first, _)| (left_bytes, self.number) < *first);
        if goes_first && there >= needed {
            return Ok(there);
        }
        let wait_ns = self.allowance.ns(needed.saturating_sub(there)).max(ASK_AGAIN_AFTER.as_nanos());
        state.waiting.insert((left_bytes, self.number), now_ns + wait_ns);
        *waits_with = Some(left_bytes);
        Err(now + Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    /// Bytes of the response were sent, or have leave to be.
    pub fn take(&self, bytes: u64, now: Instant) {
        let Allowance { epoch, state, .. } = &*self.allowance;
        let now_ns = now.saturating_duration_since(*epoch).as_nanos();
        let ns = self.allowance.ns(bytes);
        {
            let mut state = state.lock();
            state.full_ns = state.full_ns.max(now_ns) + ns;
        }
        if let Some(told) = &self.allowance.told
            && bytes > 0
            && told.bytes.fetch_add(bytes, Relaxed) == 0
        {
            told.list.lock().push(self.allowance.clone());
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(left) = self.waits_with.get_mut().take() {
            self.allowance.state.lock().waiting.remove(&(left, self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn allowance(bytes_per_second: u64, burst_bytes: u64) -> (Arc<Allowance>, Instant) {
        let number = |number| NonZeroU64::new(number).unwrap();
        let rate = ByteRate { bytes_per_second: number(bytes_per_second), burst_bytes: number(burst_bytes) };
        let now = Instant::now();
        (Allowance::new(rate, now), now)
    }

    /// Sends as much as may be sent until a time; returns the bytes.
    fn sent(share: &Share, left: u64, mut now: Instant, until: Instant) -> u64 {
        let mut bytes = 0;
        while now < until && bytes < left {
            match share.available(left - bytes, now) {
                Ok(may) => {
                    let may = may.min(left - bytes);
                    share.take(may, now);
                    bytes += may;
                }
                Err(at) => {
                    assert!(at > now);
                    now = at;
                }
            }
        }
        bytes
    }

    #[test]
    fn after_the_burst_the_rate_holds() {
        for (rate, burst) in [(1_000, 1_000), (1_000_000, 5_000_000), (50_000, 10), (1_000_000_000, 1_000)] {
            let (allowance, start) = allowance(rate, burst);
            let share = allowance.share();
            let seconds = 20;
            let bytes = sent(&share, u64::MAX / 2, start, start + Duration::from_secs(seconds));
            let most = burst + rate * seconds;
            assert!(bytes <= most && (burst < 1_460 || bytes >= most - most / 20), "{rate} {burst}: {bytes} of {most}");
            if burst < 1_460 {
                assert!(bytes > 0, "a small burst does not end everything: {rate} {burst}");
            }
        }
    }

    #[test]
    fn responses_of_a_client_share_it_and_the_shortest_goes_first() {
        let (allowance, start) = allowance(10_000, 10_000);
        let (large, small) = (allowance.clone().share(), allowance.share());
        large.take(10_000, start);
        let at = large.available(1_000_000, start).unwrap_err();
        let small_at = small.available(3_000, start).unwrap_err();
        let later = at.max(small_at);
        assert!(large.available(1_000_000, later).is_err(), "the other waits, and has less left");
        assert!(small.available(3_000, later).is_ok());
        small.take(1_460, later);
        drop(small);
        let once_more = later + Duration::from_secs(1);
        assert!(large.available(1_000_000, once_more).unwrap() > 1_460, "nobody else waits");
    }

    #[test]
    fn nobody_waits_for_a_response_that_does_not_come_in_time() {
        let (allowance, start) = allowance(10_000, 10_000);
        let (large, small) = (allowance.clone().share(), allowance.share());
        large.take(10_000, start);
        let at = small.available(3_000, start).unwrap_err();
        assert!(large.available(1_000_000, at).is_err());
        assert!(large.available(1_000_000, at + Duration::from_millis(50)).is_ok());
        assert!(small.available(3_000, at + Duration::from_millis(50)).is_ok(), "it may still come");
    }

    #[test]
    fn nothing_overflows() {
        let (allowance, start) = allowance(1, u64::MAX);
        let share = allowance.share();
        assert_eq!(share.available(u64::MAX, start), Ok(u64::MAX));
        share.take(u64::MAX, start);
        share.take(u64::MAX, start);
        let at = share.available(u64::MAX, start).unwrap_err();
        assert!(at > start);
    }
}
