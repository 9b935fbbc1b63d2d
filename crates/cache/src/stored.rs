//! The head of a stored response, with what the rules made of it: how long it is fresh, when it may be used stale, which
//! requests it answers (RFC 9111).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::{directives::Directives, vary::Vary};

/// The part of its age at which a response goes stale that says nothing of it (RFC 9111, section 4.2.2).
const HEURISTIC_PART: u64 = 10;
/// The longest such time.
const MOST_HEURISTIC_MS: u64 = 24 * 3600 * 1000;
/// Most tags of a response, and bytes of one.
const MOST_TAGS: usize = 128;
const MOST_TAG_BYTES: usize = 128;

/// The fields that name the tags of a response, for purging: as Cloudflare and Fastly call them.
const TAGS: [HeaderName; 2] = [HeaderName::from_static("cache-tag"), HeaderName::from_static("surrogate-key")];

/// The rules of a route for storing responses of its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How long a response is fresh that says nothing of it, where its status allows that. `None`: a tenth of the time since
    /// its last change, if it tells that.
    pub lifetime: Option<Duration>,
    /// How long stale responses are used while a new one is fetched, where they do not say so themselves.
    pub stale_while_revalidate: Duration,
    /// How long stale responses are used when there is no new one, where they do not say so themselves.
    pub stale_if_error: Duration,
    /// Whether responses that set a cookie are stored.
    pub cookies: bool,
}

/// A request, as far as it decides about storing.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The method.
    pub method: &'a Method,
    /// All fields.
    pub headers: &'a HeaderMap,
    /// Whether the request was let in because of its user, by any means that the origin may know of.
    pub is_of_user: bool,
}

/// When a response came, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// When the request was sent.
    pub asked_ms: u64,
    /// When the head was there.
    pub now_ms: u64,
}

/// The head of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The status.
    pub status: StatusCode,
    /// All fields, as the origin sent them; `Date` was added if there was none.
    pub headers: HeaderMap,
    /// The fields of requests that it depends on, with their values.
    pub vary: Vary,
    /// By which it can be purged.
    pub tags: Box<[Box<str>]>,
    /// How long the site worked on it, in microseconds.
    pub cost_us: u64,
    pub(crate) received_ms: u64,
    pub(crate) initial_age_ms: u64,
    pub(crate) lifetime_ms: u64,
    pub(crate) while_revalidate_ms: u64,
    pub(crate) if_error_ms: u64,
    /// The origin forbids to use it stale.
    pub(crate) never_stale: bool,
}

/// The freshness of a stored response at a time, and the uses that it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The age, for `Age`.
    pub age_s: u64,
    /// Seconds until it is stale; negative: since it is.
    pub left_s: i64,
    /// It may be used.
    pub is_fresh: bool,
    /// It may be used while a new one is fetched.
    pub while_revalidate: bool,
    /// It may be used if there is no new one.
    pub if_error: bool,
    /// The origin does not forbid to use it stale.
    pub may_be_stale: bool,
}

impl Stored {
    /// The head of a response that may be stored; `None`: it may not.
    pub fn of(
        asking: Asking<'_>,
        status: StatusCode,
        headers: &HeaderMap,
        received: Received,
        rules: &Rules,
    ) -> Option<Self> {
        // Parts are not stored, and neither is a 304, which is about another response.
        if asking.method != Method::GET
            || status.is_informational()
            || matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED)
            || Directives::of(asking.headers).no_store
        {
            return None;
        }
        let (directives, _) = Directives::targeted(headers);
        let no_store = directives.no_store && !(directives.must_understand && is_understood(status));
        if no_store || directives.private || (directives.must_understand && !is_understood(status)) {
            return None;
        }
        let may_be_shared = directives.public || directives.s_maxage_s.is_some() || directives.must_revalidate;
        if (asking.is_of_user || asking.headers.contains_key(header::AUTHORIZATION)) && !may_be_shared {
            return None;
        }
        if headers.contains_key(header::SET_COOKIE) && !rules.cookies {
            return None;
        }
        let vary = Vary::of(headers, asking.headers)?;
        let mut headers = headers.clone();
        if !headers.contains_key(header::DATE) {
            headers.insert(header::DATE, date_value(received.now_ms));
        }
        let mut stored = Self {
            status,
            tags: tags(&headers),
            headers,
            vary,
            cost_us: 0,
            received_ms: 0,
            initial_age_ms: 0,
            lifetime_ms: 0,
            while_revalidate_ms: 0,
            if_error_ms: 0,
            never_stale: false,
        };
        stored.assess(asking, received, rules);
        (stored.lifetime_ms > 0 || stored.can_be_validated()).then_some(stored)
    }

    /// The same after a 304 with these fields.
    pub fn updated(&self, asking: Asking<'_>, by: &HeaderMap, received: Received, rules: &Rules) -> Self {
        let mut updated = self.clone();
        let kept = [
            header::CONTENT_LENGTH,
            header::CONTENT_ENCODING,
            header::CONTENT_RANGE,
            header::TRANSFER_ENCODING,
            header::VARY,
            header::AGE,
        ];
        // The age is that of the new answer.
        updated.headers.remove(header::AGE);
        for name in by.keys().filter(|name| !kept.contains(name) || *name == header::AGE) {
            updated.headers.remove(name);
            for value in by.get_all(name) {
                updated.headers.append(name, value.clone());
            }
        }
        if !by.contains_key(header::DATE) {
            updated.headers.insert(header::DATE, date_value(received.now_ms));
        }
        updated.tags = tags(&updated.headers);
        updated.assess(asking, received, rules);
        updated
    }

    /// Whether the new head of a 304 still allows that it is stored.
    pub fn may_stay(&self) -> bool {
        let (directives, _) = Directives::targeted(&self.headers);
        !directives.no_store && !directives.private
    }

    fn assess(&mut self, asking: Asking<'_>, received: Received, rules: &Rules) {
        let (directives, is_targeted) = Directives::targeted(&self.headers);
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        let date_ms = date(&self.headers, &header::DATE).unwrap_or(received.now_ms);
        let apparent_ms = received.now_ms.saturating_sub(date_ms);
        let delay_ms = received.now_ms.saturating_sub(received.asked_ms);
        let told_ms = age(&self.headers).map_or(0, |seconds| ms(seconds).saturating_add(delay_ms));
        // A `Date` has whole seconds, so a young response may look almost a second older than it is.
        let apparent_ms = if apparent_ms < 2000 { 0 } else { apparent_ms };
        self.initial_age_ms = apparent_ms.max(told_ms);
        self.received_ms = received.now_ms;
        let explicit = directives.s_maxage_s.or(directives.max_age_s).map(ms).or_else(|| {
            // A malformed or repeated date lies in the past (RFC 9111, section 5.3).
            let has = !is_targeted && self.headers.contains_key(header::EXPIRES);
            has.then(|| date(&self.headers, &header::EXPIRES).map_or(0, |expires| expires.saturating_sub(date_ms)))
        });
        let lifetime_ms = match explicit {
            Some(lifetime_ms) => lifetime_ms,
            None if !(directives.public || is_heuristic(self.status)) => 0,
            // A response that states no lifetime may be made for the user of a session.
            None if asking.headers.contains_key(header::COOKIE) && !directives.public => 0,
            None if says_no_cache(&self.headers) => 0,
            None => match rules.lifetime {
                Some(lifetime) => as_ms(lifetime),
                None => {
                    let modified_ms = date(&self.headers, &header::LAST_MODIFIED).unwrap_or(date_ms);
                    (date_ms.saturating_sub(modified_ms) / HEURISTIC_PART).min(MOST_HEURISTIC_MS)
                }
            },
        };
        self.lifetime_ms = if directives.no_cache { 0 } else { lifetime_ms };
        let never_stale = directives.no_cache || directives.must_revalidate || directives.s_maxage_s.is_some();
        self.never_stale = never_stale;
        let window = |said: Option<u64>, otherwise: Duration| match never_stale {
            true => 0,
            false => said.map_or(as_ms(otherwise), ms),
        };
        self.while_revalidate_ms = window(directives.stale_while_revalidate_s, rules.stale_while_revalidate);
        self.if_error_ms = window(directives.stale_if_error_s, rules.stale_if_error);
    }

    /// Its freshness at `now_ms`, and the uses that it allows.
    pub fn freshness(&self, now_ms: u64) -> Freshness {
        let age_ms = self.initial_age_ms.saturating_add(now_ms.saturating_sub(self.received_ms));
        let until = |extra_ms: u64| age_ms < self.lifetime_ms.saturating_add(extra_ms);
        let left_ms = self.lifetime_ms as i128 - age_ms as i128;
        Freshness {
            age_s: age_ms / 1000,
            left_s: i64::try_from(left_ms.div_euclid(1000)).unwrap_or(i64::MAX),
            is_fresh: until(0),
            while_revalidate: self.while_revalidate_ms > 0 && until(self.while_revalidate_ms),
            if_error: self.if_error_ms > 0 && until(self.if_error_ms),
            may_be_stale: !self.never_stale,
        }
    }

    /// Whether requests that came while it was fetched may have it: it is fresh for a time.
    pub fn is_shared_at_once(&self) -> bool {
        self.lifetime_ms > self.initial_age_ms
    }

    /// Whether the origin can say that it is still right.
    pub fn can_be_validated(&self) -> bool {
        self.headers.contains_key(header::ETAG) || self.headers.contains_key(header::LAST_MODIFIED)
    }

    /// Makes a request conditional: the origin answers 304 if this response is still right.
    pub fn validate(&self, request: &mut HeaderMap) {
        remove_conditions(request);
        for (from, to) in [(header::ETAG, header::IF_NONE_MATCH), (header::LAST_MODIFIED, header::IF_MODIFIED_SINCE)] {
            if let Some(value) = self.headers.get(from) {
                request.insert(to, value.clone());
            }
        }
    }

    /// Its bytes in memory, without the body.
    pub(crate) fn head_bytes(&self) -> u64 {
        let fields = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum::<usize>();
        (fields + self.vary.bytes() + self.tags.iter().map(|tag| tag.len() + 16).sum::<usize>() + 256) as u64
    }
}

/// Removes the conditions and the range from a request, so that it asks for all of a response.
pub fn remove_conditions(request: &mut HeaderMap) {
    for name in [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ] {
        request.remove(name);
    }
}

/// Whether a response to this method makes what is stored for its target invalid (RFC 9111, section 4.4).
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
        && (status.is_success() || status.is_redirection())
}

/// The tags of a response: words between commas or spaces.
fn tags(headers: &HeaderMap) -> Box<[Box<str>]> {
    let lines = TAGS.into_iter().flat_map(|name| headers.get_all(name)).filter_map(|line| line.to_str().ok());
    let words = lines.flat_map(|line| line.split([',', ' ', '\t']));
    words.filter(|word| !word.is_empty() && word.len() <= MOST_TAG_BYTES).take(MOST_TAGS).map(Into::into).collect()
}

/// `Pragma: no-cache` counts where nothing else is said.
fn says_no_cache(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::CACHE_CONTROL)
        && headers.get(header::PRAGMA).is_some_and(|pragma| pragma.as_bytes().eq_ignore_ascii_case(b"no-cache"))
}

/// Statuses that may be stored without being told so (RFC 9110, section 15.1).
fn is_heuristic(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose rules about storing are kept here.
fn is_understood(status: StatusCode) -> bool {
    is_heuristic(status) || matches!(status.as_u16(), 302 | 303 | 307 | 400 | 403 | 500 | 502 | 503 | 504)
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `Age`: the first number counts, and what is no number does not (RFC 9111, section 5.1).
fn age(headers: &HeaderMap) -> Option<u64> {
    let first = headers.get(header::AGE)?.to_str().ok()?.split(',').next()?.trim();
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| first.parse().unwrap_or(u64::from(u32::MAX)).min(u64::from(u32::MAX)))
}

/// A date of a field that is there once, in milliseconds since 1970.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let date = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    date.duration_since(std::time::UNIX_EPOCH).ok().map(as_ms)
}

fn date_value(now_ms: u64) -> HeaderValue {
    // Later than the year 9999 no date can be written.
    let now = Duration::from_millis(now_ms.min(253_402_300_799_000));
    let text = httpdate::fmt_http_date(std::time::UNIX_EPOCH + now);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn stored_by(
        rules: &Rules,
        request: &[(&'static str, &str)],
        status: u16,
        fields: &[(&'static str, &str)],
    ) -> Option<Stored> {
        let request = headers(request);
        let asking = Asking { method: &Method::GET, headers: &request, is_of_user: false };
        let received = Received { asked_ms: NOW_MS, now_ms: NOW_MS };
        Stored::of(asking, StatusCode::from_u16(status).unwrap(), &headers(fields), received, rules)
    }

    fn stored(request: &[(&'static str, &str)], status: u16, fields: &[(&'static str, &str)]) -> Option<Stored> {
        stored_by(&Rules::default(), request, status, fields)
    }

    /// How long a response is fresh, in seconds; `None`: it is not stored.
    fn fresh_s(request: &[(&'static str, &str)], status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let stored = stored(request, status, fields)?;
        Some(stored.lifetime_ms.saturating_sub(stored.initial_age_ms) / 1000)
    }

    fn at(offset_s: i64) -> String {
        date_value((NOW_MS as i64 + offset_s * 1000) as u64).to_str().unwrap().to_owned()
    }

    #[test]
    fn how_long_a_response_is_fresh_is_said_by_the_first_of_four() {
        let ago = at(-1000);
        let (past, soon) = (at(-10), at(60));
        for (fields, expected) in [
            (&[("cache-control", "max-age=60, s-maxage=10"), ("expires", &soon)][..], Some(10)),
            (&[("cache-control", "max-age=30"), ("expires", &soon)], Some(30)),
            (&[("cache-control", "max-age=30"), ("expires", "0")], Some(30)),
            (&[("expires", &soon)], Some(60)),
            (&[("expires", &past)], None),
            (&[("expires", "0"), ("etag", "\"a\"")], Some(0)),
            (&[("expires", &soon), ("expires", &soon)], None),
            (&[("last-modified", &ago)], Some(100)),
            (&[("last-modified", &ago), ("pragma", "no-cache")], Some(0)),
            (&[("etag", "\"a\"")], Some(0)),
            (&[], None),
            (&[("cache-control", "max-age=60"), ("age", "50")], Some(10)),
            (&[("cache-control", "max-age=60"), ("age", "70, 0")], Some(0)),
            (&[("cache-control", "max-age=60"), ("age", "50.0")], Some(60)),
            (&[("cache-control", "max-age=60"), ("date", &past)], Some(50)),
            (&[("cache-control", "no-store"), ("cdn-cache-control", "max-age=5")], Some(5)),
            (&[("cache-control", "max-age=60"), ("cdn-cache-control", "no-store")], None),
            (&[("expires", &soon), ("cdn-cache-control", "foo")], None),
        ] {
            let found = fresh_s(&[], 200, fields);
            // A lifetime of 0 without anything to validate by is not stored.
            assert_eq!(found, expected, "{fields:?}");
        }
    }

    #[test]
    fn what_is_for_one_user_is_not_stored() {
        let fresh = ("cache-control", "max-age=60");
        assert!(stored(&[], 200, &[fresh]).is_some());
        for (request, fields) in [
            (&[][..], &[("cache-control", "private, max-age=60")][..]),
            (&[], &[("cache-control", "private=\"x\", max-age=60")]),
            (&[], &[("cache-control", "no-store, max-age=60")]),
            (&[], &[fresh, ("set-cookie", "a=b")]),
            (&[], &[fresh, ("vary", "accept, *")]),
            (&[("authorization", "Basic x")], &[fresh]),
            (&[("cache-control", "no-store")], &[fresh]),
        ] {
            assert!(stored(request, 200, fields).is_none(), "{request:?} {fields:?}");
        }
        for said in ["public, max-age=60", "s-maxage=60", "must-revalidate, max-age=60"] {
            assert!(stored(&[("authorization", "Basic x")], 200, &[("cache-control", said)]).is_some(), "{said}");
        }
        let cookies = Rules { cookies: true, ..Rules::default() };
        assert!(stored_by(&cookies, &[], 200, &[fresh, ("set-cookie", "a=b")]).is_some());
        let ago = at(-1000);
        assert_eq!(fresh_s(&[("cookie", "a=b")], 200, &[("last-modified", &ago)]), Some(0), "a guess is no permission");
        assert_eq!(fresh_s(&[("cookie", "a=b")], 200, &[fresh]), Some(60));
    }

    #[test]
    fn the_status_says_whether_a_guess_is_allowed() {
        let ago = at(-1000);
        for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
            assert_eq!(fresh_s(&[], status, &[("last-modified", &ago)]), Some(100), "{status}");
        }
        for status in [201, 202, 302, 403, 500, 503, 599] {
            assert_eq!(fresh_s(&[], status, &[("last-modified", &ago)]), Some(0), "{status}");
            assert_eq!(fresh_s(&[], status, &[("cache-control", "max-age=9")]), Some(9), "{status}");
        }
        assert_eq!(fresh_s(&[], 599, &[("last-modified", &ago), ("cache-control", "public")]), Some(100));
        assert_eq!(fresh_s(&[], 206, &[("cache-control", "max-age=9")]), None);
        assert_eq!(fresh_s(&[], 200, &[("cache-control", "max-age=9, no-store, must-understand")]), Some(9));
        assert_eq!(fresh_s(&[], 599, &[("cache-control", "max-age=9, no-store, must-understand")]), None);
        let own = Rules { lifetime: Some(Duration::from_secs(7)), ..Rules::default() };
        assert_eq!(stored_by(&own, &[], 200, &[]).unwrap().lifetime_ms, 7000);
        assert!(stored_by(&own, &[], 503, &[]).is_none());
    }

    #[test]
    fn a_stale_response_is_used_where_it_or_its_route_says_so() {
        let own = Rules {
            stale_while_revalidate: Duration::from_secs(5),
            stale_if_error: Duration::from_secs(50),
            ..Rules::default()
        };
        let found = |rules: &Rules, said: &str, after_s: u64| {
            let freshness = stored_by(rules, &[], 200, &[("cache-control", said)]).unwrap();
            let freshness = freshness.freshness(NOW_MS + after_s * 1000);
            (freshness.is_fresh, freshness.while_revalidate, freshness.if_error)
        };
        let none = Rules::default();
        assert_eq!(found(&none, "max-age=10", 9), (true, false, false));
        assert_eq!(found(&none, "max-age=10", 10), (false, false, false));
        assert_eq!(found(&own, "max-age=10", 12), (false, true, true));
        assert_eq!(found(&own, "max-age=10", 15), (false, false, true));
        assert_eq!(found(&own, "max-age=10", 60), (false, false, false));
        assert_eq!(found(&own, "max-age=10, stale-while-revalidate=20, stale-if-error=0", 25), (false, true, false));
        for said in ["must-revalidate", "proxy-revalidate", "s-maxage=10"] {
            assert_eq!(found(&own, &format!("max-age=10, {said}"), 12), (false, false, false), "{said}");
        }
    }

    #[test]
    fn a_304_replaces_fields_but_not_those_about_the_body() {
        let before = stored(
            &[],
            200,
            &[
                ("cache-control", "max-age=1"),
                ("etag", "\"a\""),
                ("content-length", "36"),
                ("x-a", "1"),
                ("x-a", "2"),
                ("x-b", "1"),
                ("age", "100"),
            ],
        )
        .unwrap();
        let by = headers(&[
            ("cache-control", "max-age=9"),
            ("content-length", "10"),
            ("x-a", "3"),
            ("x-c", "4"),
            ("x-c", "5"),
        ]);
        let none = HeaderMap::new();
        let asking = Asking { method: &Method::GET, headers: &none, is_of_user: false };
        let now_ms = NOW_MS + 60_000;
        let after = before.updated(asking, &by, Received { asked_ms: now_ms, now_ms }, &Rules::default());
        let all = |name: &str| after.headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("x-a"), ["3"]);
        assert_eq!(all("x-b"), ["1"]);
        assert_eq!(all("x-c"), ["4", "5"]);
        assert_eq!(all("content-length"), ["36"]);
        assert!(after.freshness(now_ms + 8000).is_fresh && !after.freshness(now_ms + 9000).is_fresh);
    }

    #[test]
    fn tags_are_words_of_two_fields() {
        let tagged =
            stored(&[], 200, &[("cache-control", "max-age=1"), ("cache-tag", "a, b"), ("surrogate-key", "c d")])
                .unwrap();
        assert_eq!(tagged.tags.iter().map(|tag| &**tag).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    proptest! {
        #[test]
        fn freshness_never_comes_back(
            max_age in 0..100_u64, swr in 0..100_u64, sie in 0..100_u64, age in 0..100_u64, steps in prop::collection::vec(0..60_000_u64, 1..20),
        ) {
            let said = format!("max-age={max_age}, stale-while-revalidate={swr}, stale-if-error={sie}");
            let stored = stored(&[], 200, &[("cache-control", &said), ("age", &age.to_string()), ("etag", "\"a\"")]).unwrap();
            let (mut now_ms, mut before) = (NOW_MS, stored.freshness(NOW_MS));
            for step in steps {
                now_ms += step;
                let now = stored.freshness(now_ms);
                prop_assert!(now.age_s >= before.age_s && now.left_s <= before.left_s);
                prop_assert!(before.is_fresh || !now.is_fresh);
                prop_assert!(before.while_revalidate || !now.while_revalidate);
                prop_assert!(before.if_error || !now.if_error);
                prop_assert_eq!(now.is_fresh, now.left_s > 0 || (now.left_s == 0 && now.is_fresh));
                before = now;
            }
        }
    }
}
