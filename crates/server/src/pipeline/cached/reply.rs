//! Responses that are made of stored ones, and what they say of the cache.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use cache::{Found, FoundBody, Freshness, Stored};
use files::FileBody;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{pipeline::answer_body::AnswerBody, shared_cache::SharedCache};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Statuses for which a stale response may be used in place of the answer (RFC 5861, section 4).
pub(super) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// The response to a request with these fields, which may be for a head only, from a stored one. `how` says why it is
/// used, in the words of RFC 9211. `None`: its body cannot be read.
pub(super) async fn respond(
    (fields, is_head): (&HeaderMap, bool),
    shared: &SharedCache,
    found: Found,
    freshness: Freshness,
    how: &str,
) -> Option<Response<AnswerBody>> {
    let Found { entry, stored, body } = found;
    let body = match body {
        FoundBody::OnDisk(file) => FoundBody::Whole(shared.read(entry, file).await?),
        other => other,
    };
    let mut response = from_stored(&stored, fields, body, is_head);
    finish(&mut response, &stored, freshness);
    tell(response.headers_mut(), format_args!("serpent; {how}; ttl={}", freshness.left_s));
    Some(response)
}

/// A response of what is stored, by the conditions and ranges of a request.
pub(super) fn from_stored(stored: &Stored, fields: &HeaderMap, body: FoundBody, is_head: bool) -> Response<AnswerBody> {
    let mut kept = stored.headers.clone();
    // `Age`, `Cache-Status` and one of a transform.
    kept.reserve(3);
    if stored.status.is_success()
        && let Some(status) = files::precondition(&kept, fields)
    {
        return files::without_body(status, kept).map(Into::into);
    }
    match body {
        FoundBody::Whole(bytes) => {
            // HEAD has no ranges (RFC 9110, section 14.2).
            let none = HeaderMap::new();
            let ranges = if is_head { &none } else { fields };
            files::whole_or_ranges(stored.status, kept, bytes, ranges).map(Into::into)
        }
        FoundBody::Filling(reader) => {
            let body = if is_head { FileBody::empty().into() } else { AnswerBody::Stored(reader) };
            let mut response = Response::new(body);
            *response.status_mut() = stored.status;
            *response.headers_mut() = kept;
            response
        }
        FoundBody::OnDisk(_) => unreachable!("it was read"),
    }
}

/// Adds the age. An error of ours, such as 416, has none.
pub(super) fn finish(response: &mut Response<AnswerBody>, stored: &Stored, freshness: Freshness) {
    let status = response.status();
    if status == stored.status || status.is_success() || status == StatusCode::NOT_MODIFIED {
        response.headers_mut().insert(header::AGE, HeaderValue::from(freshness.age_s));
    }
}

/// Says what the cache has done (RFC 9211), behind what caches before it said.
pub(super) fn tell(headers: &mut HeaderMap, text: std::fmt::Arguments<'_>) {
    // About as long as it gets.
    let mut value = String::with_capacity(64);
    let _ = value.write_fmt(text);
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(CACHE_STATUS, value);
    }
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
