//! The limit of a route or a site, and its use so far.

use std::{
    collections::HashMap,
    convert::Infallible,
    hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::{
    allowance::{Allowance, Share, Spenders},
    at_once::{AtOnce, Permit},
    bucket::Bucket,
    config::{ByteRate, Limit, LimitBy, Rate},
    who::Who,
};

/// Clients whose rate is remembered, some hundred bytes each. Beyond it, those not seen of late are forgotten, and
/// start anew with a full bucket.
const MOST_REMEMBERED: usize = 65_536;

/// Clients that others are told of at once.
const MOST_TOLD: usize = 10_000;

/// A limit of a route or a site, and its use so far.
#[derive(Debug)]
pub struct Limiter {
    limit: Limit,
    rate: Option<Rated>,
    at_once: AtOnce,
    bytes: Option<Bytes>,
    hashes: RandomState,
    shared: OnceLock<Shared>,
}

/// The state for other gateways, where several have one limit together.
#[derive(Debug)]
struct Shared {
    /// The same at all of them.
    secret: u64,
    /// Requests since they were last told.
    spent: Mutex<HashMap<Who, u32>>,
    /// Clients with bytes since they were last told.
    spenders: Spenders,
}

/// The grants of a request while it is under way.
#[derive(Debug, Default)]
pub struct Granted {
    /// Its place among those that a client may have at once, where they are limited.
    pub permit: Option<Permit>,
    /// Its share of the bytes of the client, where they are limited.
    pub share: Option<Share>,
}

#[derive(Debug)]
struct Bytes {
    rate: ByteRate,
    of_clients: Cache<Who, Arc<Allowance>>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too many are under way. When one is over, the client knows.
    AtOnce,
    /// Too many have come; there is room for one more after this time.
    Rate(Duration),
}

#[derive(Debug)]
struct Rated {
    bucket: Bucket,
    /// The moment from which times are counted.
    epoch: Instant,
    /// When the bucket of each client is full again.
    full_ns: Cache<Who, Arc<AtomicU64>>,
}

impl Limiter {
    /// An unused limit.
    pub fn new(limit: &Limit, now: Instant) -> Self {
        let rated = |rate: Rate| Rated { bucket: Bucket::new(&rate), epoch: now, full_ns: Cache::new(MOST_REMEMBERED) };
        let bytes = limit.bytes.map(|rate| Bytes { rate, of_clients: Cache::new(MOST_REMEMBERED) });
        Self {
            limit: limit.clone(),
            rate: limit.rate.map(rated),
            at_once: AtOnce::default(),
            bytes,
            hashes: RandomState::new(),
            shared: OnceLock::new(),
        }
    }

    /// The properties by which requests are counted together; empty: all are counted together.
    pub fn by(&self) -> &[LimitBy] {
        &self.limit.by
    }

    /// Makes a [`Who::Hash`] of this limit. Its key is secret, so clients cannot choose texts with equal hashes.
    pub fn hasher(&self) -> DefaultHasher {
        match self.shared.get() {
            Some(shared) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(shared.secret);
                hasher
            }
            None => self.hashes.build_hasher(),
        }
    }

    /// Has the limit together with other gateways from now on. They have the same secret. See [`Limiter::take_spent`] and
    /// [`Limiter::spend`], the same for bytes, and [`Limiter::tell_at_once`] and [`Limiter::hear_at_once`].
    pub fn share(&self, secret: u64) {
        let _ = self.shared.set(Shared { secret, spent: Mutex::default(), spenders: Spenders::default() });
        if self.limit.at_once.is_some() {
            self.at_once.share();
        }
    }

    /// The requests of each client that are under way here, of at most so many clients, to tell others; `None` if they need
    /// not know.
    pub fn tell_at_once(&self, most: usize) -> Option<Vec<(Who, u32)>> {
        self.at_once.is_shared().then(|| self.at_once.tell(most))
    }

    /// The requests that are under way at others.
    pub fn hear_at_once(&self, counts: impl Iterator<Item = (Who, u32)>, now: Instant) {
        self.at_once.hear(counts, now);
    }

    /// The bytes that each client was sent since the last call, to tell others.
    pub fn take_spent_bytes(&self) -> Vec<(Who, u64)> {
        let spenders = self.shared.get().map(|shared| std::mem::take(&mut *shared.spenders.lock()));
        spenders.iter().flatten().filter_map(|spender| spender.take_spent()).collect()
    }

    /// Others have sent a client bytes.
    pub fn spend_bytes(&self, who: Who, bytes: u64, now: Instant) {
        if let Some(of) = &self.bytes {
            self.allowance(of, who, now).spend(bytes, now);
        }
    }

    /// The time in which a client that was sent all it may have at once has that again; `None` without a rate of bytes.
    pub fn bytes_fill_in(&self) -> Option<Duration> {
        self.bytes.as_ref().map(|bytes| Allowance::fills_in(&bytes.rate))
    }

    fn allowance(&self, bytes: &Bytes, who: Who, now: Instant) -> Arc<Allowance> {
        let new = || {
            Ok::<_, Infallible>(match self.shared.get() {
                Some(shared) => Allowance::told(bytes.rate, now, who, shared.spenders.clone()),
                None => Allowance::new(bytes.rate, now),
            })
        };
        let Ok(allowance) = bytes.of_clients.get_or_insert_with(&who, new);
        allowance
    }

    /// The requests that were let in since the last call, to tell others. Of more than 10,000 clients in that time the
    /// others hear nothing.
    pub fn take_spent(&self) -> Vec<(Who, u32)> {
        let spent = self.shared.get().map(|shared| std::mem::take(&mut *shared.spent.lock()));
        spent.into_iter().flatten().collect()
    }

    /// Others have let requests in.
    pub fn spend(&self, who: Who, requests: u32, now: Instant) {
        if let Some(rated) = &self.rate {
            rated.spend(who, requests, now);
        }
    }

    /// The time in which an empty bucket fills; `None` without a rate.
    pub fn fills_in(&self) -> Option<Duration> {
        self.rate.as_ref().map(|rated| Duration::from_nanos(rated.bucket.whole_ns()))
    }

    /// The rate of requests, if it is limited.
    pub fn rate(&self) -> Option<&Rate> {
        self.limit.rate.as_ref()
    }

    /// Counts a request. The caller keeps the grants until the request is over.
    ///
    /// # Errors
    /// The client has had what it may have. Such a request costs it nothing.
    pub fn begin(&self, who: Who, now: Instant) -> Result<Granted, Refused> {
        let begin = |most| self.at_once.begin(who, most).ok_or(Refused::AtOnce);
        let permit = self.limit.at_once.map(begin).transpose()?;
        if let Some(rated) = &self.rate {
            rated.take(who, now).map_err(|wait_ns| Refused::Rate(Duration::from_nanos(wait_ns)))?;
            if let Some(shared) = self.shared.get() {
                let mut spent = shared.spent.lock();
                if spent.len() < MOST_TOLD || spent.contains_key(&who) {
                    *spent.entry(who).or_default() += 1;
                }
            }
        }
        let share = self.bytes.as_ref().map(|bytes| self.allowance(bytes, who, now).share());
        Ok(Granted { permit, share })
    }
}

impl Rated {
    /// Takes tokens that a client has spent elsewhere.
    fn spend(&self, who: Who, requests: u32, now: Instant) {
        let now_ns = u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        let Ok(full_ns) = self.full_ns.get_or_insert_with(&who, || Ok::<_, Infallible>(Arc::default()));
        let _ = full_ns.fetch_update(Relaxed, Relaxed, |full_ns| Some(self.bucket.spend(full_ns, requests, now_ns)));
    }

    /// Takes a token of a client. Returns the time in ns until there is one, if there is none.
    fn take(&self, who: Who, now: Instant) -> Result<(), u64> {
        let now_ns = u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        let Ok(full_ns) = self.full_ns.get_or_insert_with(&who, || Ok::<_, Infallible>(Arc::default()));
        let mut wait_ns = 0;
        let take = |full_ns| self.bucket.take(full_ns, now_ns).inspect_err(|ns| wait_ns = *ns).ok();
        full_ns.fetch_update(Relaxed, Relaxed, take).map(drop).map_err(|_| wait_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn who(number: u8) -> Who {
        Who::client([192, 0, 2, number].into())
    }

    #[test]
    fn each_client_has_a_bucket_of_its_own() {
        let minute = Duration::from_secs(60);
        let rate = Rate { requests: number(1), window: minute, burst: number(2) };
        let now = Instant::now();
        let limiter =
            Limiter::new(&Limit { by: [LimitBy::Client].into(), rate: Some(rate), at_once: None, bytes: None }, now);
        let begin = |client, now| limiter.begin(who(client), now).map(|granted| granted.permit.is_some());
        for client in [1, 2] {
            assert_eq!(begin(client, now), Ok(false));
            assert_eq!(begin(client, now), Ok(false));
            assert_eq!(begin(client, now), Err(Refused::Rate(minute)));
        }
        assert_eq!(begin(1, now + minute), Ok(false));
    }

    #[test]
    fn what_others_have_let_in_counts_and_they_are_told_what_was_let_in_here() {
        let minute = Duration::from_secs(60);
        let rate = Rate { requests: number(1), window: minute, burst: number(3) };
        let now = Instant::now();
        let limit = Limit { by: [LimitBy::Client].into(), rate: Some(rate), at_once: None, bytes: None };
        let (here, there) = (Limiter::new(&limit, now), Limiter::new(&limit, now));
        for limiter in [&here, &there] {
            limiter.share(7);
        }
        let begin = |limiter: &Limiter| limiter.begin(who(1), now).map(drop);
        assert_eq!((begin(&here), begin(&here)), (Ok(()), Ok(())));
        assert_eq!(here.take_spent(), [(who(1), 2)]);
        assert_eq!(here.take_spent(), []);
        there.spend(who(1), 2, now);
        assert_eq!((begin(&there), begin(&there)), (Ok(()), Err(Refused::Rate(minute))));
        // However much they say, the bucket is empty and no more.
        there.spend(who(1), u32::MAX, now);
        assert_eq!(there.begin(who(1), now).map(drop), Err(Refused::Rate(minute)));
        assert_eq!(here.hasher().finish(), there.hasher().finish(), "they know a client by the same number");
        assert_eq!(there.fills_in(), Some(3 * minute));
    }

    #[test]
    fn two_gateways_that_hear_of_each_other_send_a_client_its_rate_together() {
        let bytes = |number| std::num::NonZeroU64::new(number).unwrap();
        let rate = ByteRate { bytes_per_second: bytes(1_000_000), burst_bytes: bytes(100_000) };
        let limit = Limit { by: [LimitBy::Client].into(), rate: None, at_once: None, bytes: Some(rate) };
        let start = Instant::now();
        let limiters = [Limiter::new(&limit, start), Limiter::new(&limit, start)];
        limiters.iter().for_each(|limiter| limiter.share(7));
        let begin = |limiter: &Limiter| limiter.begin(who(1), start).map(|granted| granted.share.unwrap()).unwrap();
        let shares = limiters.each_ref().map(begin);
        let (mut sent, mut next) = ([0_u64; 2], [start; 2]);
        for ms in 0..20_000_u32 {
            let now = start + Duration::from_millis(ms.into());
            for at in 0..2 {
                if now >= next[at] {
                    // Each has more to send than it may.
                    match shares[at].available(u64::MAX / 2, now) {
                        Ok(may) => {
                            shares[at].take(may, now);
                            sent[at] += may;
                        }
                        Err(again) => next[at] = again,
                    }
                }
            }
            if ms % 100 == 99 {
                let told = limiters.each_ref().map(|limiter| limiter.take_spent_bytes());
                for (limiter, told) in limiters.iter().zip(told.iter().rev()) {
                    told.iter().for_each(|&(who, bytes)| limiter.spend_bytes(who, bytes, now));
                }
            }
        }
        let all = sent[0] + sent[1];
        assert!((19_000_000..=21_000_000).contains(&all), "{sent:?}");
        assert!(sent.iter().all(|&sent| sent > 8_000_000), "{sent:?}");
        assert_eq!(limiters[0].bytes_fill_in(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_request_that_is_refused_by_its_rate_is_not_under_way() {
        let rate = Rate { requests: number(1), window: Duration::from_secs(1), burst: number(2) };
        let now = Instant::now();
        let limit = Limit { by: [LimitBy::Client].into(), rate: Some(rate), at_once: Some(number(3)), bytes: None };
        let limiter = Limiter::new(&limit, now);
        let begin = || limiter.begin(who(1), now).map(|granted| granted.permit.unwrap());
        let _kept = (begin().unwrap(), begin().unwrap());
        for _ in 0..5 {
            assert!(matches!(begin(), Err(Refused::Rate(_))));
        }
    }
}
