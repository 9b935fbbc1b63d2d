//! How long a response may be kept, by its media type: `Cache-Control` and `Expires` (RFC 9111, sections 5.2 and 5.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::media_type::TypePattern;

/// How long responses may be kept, by their media type.
#[derive(Clone, Debug, Default)]
pub struct Expires {
    /// By type, the most precise pattern first. `None`: nothing is said of such a type.
    by_type: Vec<(TypePattern, Option<Freshness>)>,
    /// Of all other types.
    otherwise: Option<Freshness>,
    /// Whether what the origin says is replaced.
    pub overrides_origin: bool,
    /// Whether the field `Expires` is written, too.
    pub writes_date: bool,
}

/// How long a response may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The value of `Cache-Control`.
    pub cache_control: HeaderValue,
    /// For how long from now; zero: it is stale at once. `None`: only `cache_control` says something.
    pub lifetime: Option<Duration>,
}

impl Expires {
    /// `otherwise` holds for types of no pattern.
    pub fn new(mut by_type: Vec<(TypePattern, Option<Freshness>)>, otherwise: Option<Freshness>) -> Self {
        by_type.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.precision()));
        Self { by_type, otherwise, ..Self::default() }
    }

    /// Whether no response gets a field.
    pub fn is_empty(&self) -> bool {
        self.otherwise.is_none() && self.by_type.iter().all(|(_, freshness)| freshness.is_none())
    }

    /// Writes the fields into the head of a response. `content_type` stands for the field `Content-Type` of a response that
    /// has none. `now` is read only where a date is written.
    pub fn apply(
        &self,
        status: StatusCode,
        content_type: Option<&HeaderValue>,
        headers: &mut HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) {
        let is_said = headers.contains_key(header::CACHE_CONTROL) || headers.contains_key(header::EXPIRES);
        if !suits(status) || (is_said && !self.overrides_origin) {
            return;
        }
        let kind = headers.get(header::CONTENT_TYPE).or(content_type).and_then(|kind| kind.to_str().ok());
        let Some(freshness) = self.of(status, kind).cloned() else { return };
        headers.remove(header::PRAGMA);
        headers.insert(header::CACHE_CONTROL, freshness.cache_control);
        match freshness.lifetime.filter(|_| self.writes_date) {
            None => drop(headers.remove(header::EXPIRES)),
            Some(lifetime) => drop(headers.insert(header::EXPIRES, date(lifetime, now))),
        }
    }

    /// The freshness of a response of this type.
    fn of(&self, status: StatusCode, kind: Option<&str>) -> Option<&Freshness> {
        let matching = kind.and_then(|kind| self.by_type.iter().find(|(pattern, _)| pattern.matches(kind)));
        match matching {
            Some((_, freshness)) => freshness.as_ref(),
            // The cache has the response that is confirmed, with its type and what was said of it.
            None if status == StatusCode::NOT_MODIFIED && kind.is_none() && !self.by_type.is_empty() => None,
            None => self.otherwise.as_ref(),
        }
    }
}

/// The statuses that nginx's `expires` holds for, and 304, which confirms a response of such a status.
fn suits(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

fn date(lifetime: Duration, now: impl FnOnce() -> SystemTime) -> HeaderValue {
    /// The last second of the year 9999. No later date can be written.
    const LAST_S: u64 = 253_402_300_799;
    let at = match lifetime {
        // As nginx writes it.
        Duration::ZERO => UNIX_EPOCH + Duration::from_secs(1),
        lifetime => {
            let now_s = now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            UNIX_EPOCH + Duration::from_secs(now_s.saturating_add(lifetime.as_secs()).min(LAST_S))
        }
    };
    HeaderValue::try_from(httpdate::fmt_http_date(at)).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 784_111_777;

    fn freshness(value: &'static str, lifetime_s: Option<u64>) -> Option<Freshness> {
        let lifetime = lifetime_s.map(Duration::from_secs);
        Some(Freshness { cache_control: HeaderValue::from_static(value), lifetime })
    }

    fn expires() -> Expires {
        let pattern = |text| TypePattern::parse(text).unwrap();
        Expires::new(
            vec![
                (pattern("text/*"), freshness("max-age=60", Some(60))),
                (pattern("text/html"), freshness("no-cache", Some(0))),
                (pattern("image/*"), freshness("public", None)),
                (pattern("image/svg+xml"), None),
            ],
            freshness("max-age=1", Some(1)),
        )
    }

    /// The two fields afterwards.
    fn applied(expires: &Expires, status: u16, fields: &[(&'static str, &str)]) -> [Option<String>; 2] {
        let mut headers: HeaderMap =
            fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let now = || UNIX_EPOCH + Duration::from_secs(NOW_S);
        expires.apply(StatusCode::from_u16(status).unwrap(), None, &mut headers, now);
        ["cache-control", "expires"].map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_most_precise_pattern_counts_and_the_default_for_all_other_types() {
        for (kind, value) in [
            ("text/css; charset=utf-8", Some("max-age=60")),
            ("TEXT/HTML", Some("no-cache")),
            ("image/png", Some("public")),
            ("image/svg+xml", None),
            ("application/json", Some("max-age=1")),
        ] {
            assert_eq!(applied(&expires(), 200, &[("content-type", kind)])[0].as_deref(), value, "{kind}");
        }
        assert_eq!(applied(&expires(), 200, &[])[0].as_deref(), Some("max-age=1"), "a response without a type");
        assert!(!expires().is_empty() && Expires::default().is_empty());
    }

    #[test]
    fn a_date_is_written_only_if_asked_for_and_stale_responses_have_one_of_the_past() {
        let date =
            |kind| applied(&Expires { writes_date: true, ..expires() }, 200, &[("content-type", kind)])[1].clone();
        assert_eq!(date("text/css").as_deref(), Some("Sun, 06 Nov 1994 08:50:37 GMT"));
        assert_eq!(date("text/html").as_deref(), Some("Thu, 01 Jan 1970 00:00:01 GMT"));
        assert_eq!(date("image/png"), None, "no lifetime is known");
        assert_eq!(applied(&expires(), 200, &[("content-type", "text/css")])[1], None);
        let long = Expires { writes_date: true, ..Expires::new(Vec::new(), freshness("x", Some(u64::MAX))) };
        assert_eq!(applied(&long, 200, &[])[1].as_deref(), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
    }

    #[test]
    fn what_the_origin_says_stays_unless_it_is_overridden() {
        let css = ("content-type", "text/css");
        for said in [("cache-control", "no-store"), ("expires", "0")] {
            let kept = applied(&expires(), 200, &[css, said]);
            assert!(kept.iter().flatten().eq([said.1]), "{kept:?}");
            let overriding = Expires { overrides_origin: true, ..expires() };
            assert_eq!(applied(&overriding, 200, &[css, said]), [Some("max-age=60".to_owned()), None]);
            let svg = ("content-type", "image/svg+xml");
            assert!(applied(&overriding, 200, &[svg, said]).iter().flatten().eq([said.1]), "off is off");
        }
    }

    #[test]
    fn errors_say_nothing_and_a_304_only_what_is_sure() {
        for status in [400, 401, 404, 416, 500, 503] {
            assert_eq!(applied(&expires(), status, &[("content-type", "text/css")])[0], None, "{status}");
        }
        for status in [200, 204, 206, 301, 308] {
            assert!(applied(&expires(), status, &[("content-type", "text/css")])[0].is_some(), "{status}");
        }
        assert_eq!(applied(&expires(), 304, &[])[0], None, "its type is not known");
        let for_all = Expires::new(Vec::new(), freshness("max-age=1", Some(1)));
        assert_eq!(applied(&for_all, 304, &[])[0].as_deref(), Some("max-age=1"));
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("text/css");
        expires().apply(StatusCode::NOT_MODIFIED, Some(&kind), &mut headers, || UNIX_EPOCH);
        assert_eq!(headers["cache-control"], "max-age=60");
        assert!(!headers.contains_key("content-type"));
    }
}
