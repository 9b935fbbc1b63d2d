//! `limit`: a client gets so many requests answered, in the long run and at once.
//!
//! A refused request costs no token, no slot, and nothing of its body is read.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::{HeaderName, HeaderValue, StatusCode, header};
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::{
    at_once::{AtOnce, Who},
    bucket::Bucket,
    ruling::{Guarded, Ruling},
};
use crate::config::{self, LimitBy};
use files::error_page;

/// Clients whose rate is remembered, some hundred bytes each. Beyond it, those not seen of late are forgotten, and
/// start anew with a full bucket.
const MOST_REMEMBERED: usize = 65_536;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// When a client may come again that has too many requests under way: it knows better than the server.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// A limit of a route or a site, and its use so far.
#[derive(Debug)]
pub(crate) struct Limiter {
    by: LimitBy,
    rate: Option<Rated>,
    at_once: Option<AtOnce>,
}

#[derive(Debug)]
struct Rated {
    bucket: Bucket,
    /// `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    policy: HeaderValue,
    /// The moment from which times are counted.
    epoch: Instant,
    /// When the bucket of each client is full again.
    full_ns: Cache<Who, Arc<AtomicU64>>,
}

impl Limiter {
    pub(crate) fn new(limit: &config::Limit) -> Self {
        let rated = |rate: config::Rate| {
            let policy = format!("\"rate\";q={};w={}", rate.requests, rate.window.as_secs());
            Rated {
                bucket: Bucket::new(&rate),
                policy: HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("")),
                epoch: Instant::now(),
                full_ns: Cache::new(MOST_REMEMBERED),
            }
        };
        let at_once = limit.at_once.map(AtOnce::new);
        Self { by: limit.by, rate: limit.rate.map(rated), at_once }
    }

    /// Counts a request, or refuses it.
    pub(super) fn check(&self, request: &Guarded<'_>) -> Ruling {
        let who = self.who(request);
        let permit = match self.at_once.as_ref().map(|at_once| at_once.begin(who)) {
            None => None,
            Some(Some(permit)) => Some(permit),
            Some(None) => {
                let mut response = error_page(StatusCode::TOO_MANY_REQUESTS);
                response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S);
                return Ruling::Answer(response);
            }
        };
        if let Some(rated) = &self.rate
            && let Err(wait_ns) = rated.take(who, request.now)
        {
            let wait_s = wait_ns.div_ceil(1_000_000_000);
            let mut response = error_page(StatusCode::TOO_MANY_REQUESTS);
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, wait_s.into());
            headers.insert(RATE_LIMIT_POLICY, rated.policy.clone());
            if let Ok(left) = HeaderValue::try_from(format!("\"rate\";r=0;t={wait_s}")) {
                headers.insert(RATE_LIMIT, left);
            }
            return Ruling::Answer(response);
        }
        permit.map_or(Ruling::GoesOn, Ruling::GoesOnWith)
    }

    fn who(&self, request: &Guarded<'_>) -> Who {
        let client = match request.client {
            // A client with one IPv6 address of a network usually has all of it.
            IpAddr::V6(client) => Ipv6Addr::from(u128::from(client) >> 64 << 64).into(),
            client => client,
        };
        match self.by {
            LimitBy::Client => Who::Address(client),
            LimitBy::Class => Who::Class(request.class.0),
            LimitBy::Key => request.classifier.key(request.parts).map_or(Who::Address(client), Who::Key),
        }
    }
}

impl Rated {
    /// Takes a token of a client. Returns the time in ns until there is one, if there is none.
    fn take(&self, who: Who, now: Instant) -> Result<(), u64> {
        let now_ns = u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        let new = || Ok::<_, std::convert::Infallible>(Arc::default());
        let Ok(full_ns) = self.full_ns.get_or_insert_with(&who, new);
        let mut wait_ns = 0;
        let take = |full_ns| self.bucket.take(full_ns, now_ns).inspect_err(|ns| wait_ns = *ns).ok();
        full_ns.fetch_update(Relaxed, Relaxed, take).map(drop).map_err(|_| wait_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;

    fn who(number: u8) -> Who {
        Who::Address(IpAddr::from([192, 0, 2, number]))
    }

    fn rated(limiter: &Limiter) -> &Rated {
        limiter.rate.as_ref().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_client_has_a_bucket_of_its_own() {
        let rate = config::Rate {
            requests: NonZeroU32::new(1).unwrap(),
            window: Duration::from_secs(60),
            burst: NonZeroU32::new(2).unwrap(),
        };
        let limiter = Limiter::new(&config::Limit { by: LimitBy::Client, rate: Some(rate), at_once: None });
        let now = Instant::now();
        for client in [1, 2] {
            assert_eq!(rated(&limiter).take(who(client), now), Ok(()));
            assert_eq!(rated(&limiter).take(who(client), now), Ok(()));
            assert_eq!(rated(&limiter).take(who(client), now), Err(60_000_000_000));
        }
        assert_eq!(rated(&limiter).take(who(1), now + Duration::from_secs(60)), Ok(()));
    }
}
