//! `limit`: a client gets so many requests answered, in the long run and at once.
//!
//! A refused request costs no token, no slot, and nothing of its body is read.

use std::hash::{Hash as _, Hasher as _};

use http::{HeaderName, HeaderValue, StatusCode, header};
use limits::{LimitBy, Limiter, Refused, Who};

use super::ruling::{Guarded, Ruling};
use files::error_page;

/// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// When a client may come again that has too many requests under way: it knows better than the server.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// Counts a request, or refuses it.
pub(super) fn check(limiter: &Limiter, request: &Guarded<'_>) -> Ruling {
    let refused = match limiter.begin(who(limiter, request), request.now.into_std()) {
        Ok(granted) => return Ruling::GoesOnWith(granted),
        Err(refused) => refused,
    };
    let mut response = error_page(StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers_mut();
    match refused {
        Refused::AtOnce => drop(headers.insert(header::RETRY_AFTER, RETRY_AFTER_S)),
        Refused::Rate(wait) => {
            let wait_s = wait.as_nanos().div_ceil(1_000_000_000) as u64;
            headers.insert(header::RETRY_AFTER, wait_s.into());
            let policy = limiter.rate().map(|rate| format!("\"rate\";q={};w={}", rate.requests, rate.window.as_secs()));
            let left = format!("\"rate\";r=0;t={wait_s}");
            for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, Some(left))] {
                if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
                    headers.insert(name, value);
                }
            }
        }
    }
    Ruling::Answer(response)
}

fn who(limiter: &Limiter, request: &Guarded<'_>) -> Who {
    let key = || request.classifier.key(request.parts).map_or_else(|| Who::client(request.client), Who::Key);
    match limiter.by() {
        [] => Who::All,
        [LimitBy::Client] => Who::client(request.client),
        [LimitBy::Class] => Who::Class(request.class.0),
        [LimitBy::Key] => key(),
        several => {
            let mut hasher = limiter.hasher();
            for by in several {
                match by {
                    LimitBy::Client => Who::client(request.client).hash(&mut hasher),
                    LimitBy::Class => request.class.0.hash(&mut hasher),
                    LimitBy::Key => key().hash(&mut hasher),
                    LimitBy::Path => request.path.hash(&mut hasher),
                    LimitBy::Header(name) => match request.parts.headers.get(&**name) {
                        Some(_) => request.parts.headers.get_all(&**name).iter().for_each(|it| it.hash(&mut hasher)),
                        None => Who::client(request.client).hash(&mut hasher),
                    },
                }
            }
            Who::Hash(hasher.finish())
        }
    }
}
