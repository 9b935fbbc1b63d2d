//! Conditional requests: which of 200, 304 and 412 (RFC 9110, section 13.2.2), and whether a range still
//! holds (13.1.5).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, header};

/// The values by which a representation is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub etag: &'a [u8],
    /// `Last-Modified`, in seconds since 1970.
    pub modified_s: u64,
}

/// The result of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as if there were no preconditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the preconditions in the order of RFC 9110 section 13.2.2.
pub(crate) fn evaluate(headers: &HeaderMap, current: Validators<'_>) -> Verdict {
    if headers.contains_key(header::IF_MATCH) {
        if !any_tag(headers, &header::IF_MATCH, |tag| !tag.weak && tag.opaque == current.etag) {
            return Verdict::Failed;
        }
    } else if let Some(date_s) = date(headers, &header::IF_UNMODIFIED_SINCE)
        && current.modified_s > date_s
    {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        // Weak comparison: an intermediary may have added `W/` to our tag, and the cached representation is
        // still the same.
        if any_tag(headers, &header::IF_NONE_MATCH, |tag| tag.opaque == current.etag) {
            return Verdict::NotModified;
        }
    } else if let Some(date_s) = date(headers, &header::IF_MODIFIED_SINCE)
        && current.modified_s <= date_s
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether the `Range` header may be honoured: there is no `If-Range`, or it names exactly the current
/// representation.
pub(crate) fn range_holds(headers: &HeaderMap, current: Validators<'_>) -> bool {
    let mut values = headers.get_all(header::IF_RANGE).iter();
    let Some(value) = values.next() else { return true };
    if values.next().is_some() {
        return false;
    }
    let value = value.as_bytes().trim_ascii();
    match value.first() {
        Some(b'"') => value == current.etag,
        Some(b'W') if value.starts_with(b"W/") => false,
        _ => parse_date(value) == Some(current.modified_s),
    }
}

/// An entity tag of a condition.
pub(crate) struct Tag<'a> {
    pub weak: bool,
    /// The tag with its quotes.
    pub opaque: &'a [u8],
}

/// Whether the list has `*` or a tag for which `matches` holds. Text after a malformed member is ignored,
/// because its members cannot be separated.
pub(crate) fn any_tag(headers: &HeaderMap, name: &HeaderName, matches: impl Fn(Tag<'_>) -> bool) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut rest = value.as_bytes().trim_ascii();
        if rest == b"*" {
            return true;
        }
        loop {
            while let [b',' | b' ' | b'\t', tail @ ..] = rest {
                rest = tail;
            }
            let (weak, tagged) = match rest.strip_prefix(b"W/") {
                Some(tagged) => (true, tagged),
                None => (false, rest),
            };
            let Some(inner) = tagged.strip_prefix(b"\"") else { return false };
            let Some(length) = inner.iter().position(|byte| *byte == b'"') else { return false };
            if matches(Tag { weak, opaque: &tagged[..length + 2] }) {
                return true;
            }
            rest = &inner[length + 1..];
        }
    })
}

/// The date of a header in seconds since 1970. A repeated or malformed header is ignored, as the RFC
/// requires.
pub(crate) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { parse_date(value.as_bytes()) }
}

fn parse_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(value).ok()?.trim_ascii()).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// A time in the format of `Last-Modified`.
pub(crate) fn format_date(seconds: u64) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CURRENT: Validators<'static> = Validators { etag: b"\"abc\"", modified_s: 784_111_777 };
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const SAME_RFC850: &str = "Sunday, 06-Nov-94 08:49:37 GMT";
    const SAME_ASCTIME: &str = "Sun Nov  6 08:49:37 1994";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn verdict(pairs: &[(HeaderName, &'static str)]) -> Verdict {
        evaluate(&headers(pairs), CURRENT)
    }

    #[test]
    fn each_precondition_alone() {
        use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        for (name, value, expected) in [
            (IF_MATCH, "\"abc\"", Verdict::Proceed),
            (IF_MATCH, "*", Verdict::Proceed),
            (IF_MATCH, "\"x\", \"abc\"", Verdict::Proceed),
            (IF_MATCH, "\"x,\\\",\"abc\"", Verdict::Proceed),
            (IF_MATCH, "W/\"abc\"", Verdict::Failed),
            (IF_MATCH, "\"x\"", Verdict::Failed),
            (IF_MATCH, "abc", Verdict::Failed),
            (IF_MATCH, "", Verdict::Failed),
            (IF_NONE_MATCH, "\"abc\"", Verdict::NotModified),
            (IF_NONE_MATCH, "W/\"abc\"", Verdict::NotModified),
            (IF_NONE_MATCH, " ,\"x\" ,, W/\"abc\"", Verdict::NotModified),
            (IF_NONE_MATCH, "*", Verdict::NotModified),
            (IF_NONE_MATCH, "\"x\"", Verdict::Proceed),
            (IF_NONE_MATCH, "\"abc", Verdict::Proceed),
            (IF_MODIFIED_SINCE, BEFORE, Verdict::Proceed),
            (IF_MODIFIED_SINCE, SAME, Verdict::NotModified),
            (IF_MODIFIED_SINCE, SAME_RFC850, Verdict::NotModified),
            (IF_MODIFIED_SINCE, SAME_ASCTIME, Verdict::NotModified),
            (IF_MODIFIED_SINCE, AFTER, Verdict::NotModified),
            (IF_MODIFIED_SINCE, "yesterday", Verdict::Proceed),
            (IF_UNMODIFIED_SINCE, BEFORE, Verdict::Failed),
            (IF_UNMODIFIED_SINCE, SAME, Verdict::Proceed),
            (IF_UNMODIFIED_SINCE, AFTER, Verdict::Proceed),
            (IF_UNMODIFIED_SINCE, "tomorrow", Verdict::Proceed),
        ] {
            assert_eq!(verdict(&[(name.clone(), value)]), expected, "{name}: {value}");
        }
    }

    #[test]
    fn tags_take_precedence_over_dates() {
        use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        assert_eq!(verdict(&[(IF_MATCH, "\"abc\""), (IF_UNMODIFIED_SINCE, BEFORE)]), Verdict::Proceed);
        assert_eq!(verdict(&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, AFTER)]), Verdict::Proceed);
        assert_eq!(verdict(&[(IF_NONE_MATCH, "\"abc\""), (IF_MODIFIED_SINCE, BEFORE)]), Verdict::NotModified);
    }

    #[test]
    fn a_failed_match_ends_before_the_others_are_looked_at() {
        use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        assert_eq!(verdict(&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"abc\"")]), Verdict::Failed);
        assert_eq!(verdict(&[(IF_MATCH, "\"abc\""), (IF_NONE_MATCH, "\"abc\"")]), Verdict::NotModified);
        assert_eq!(verdict(&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AFTER)]), Verdict::Failed);
    }

    #[test]
    fn several_lines_are_one_list_but_two_dates_are_none() {
        use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
        assert_eq!(verdict(&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"abc\"")]), Verdict::NotModified);
        assert_eq!(verdict(&[(IF_MODIFIED_SINCE, AFTER), (IF_MODIFIED_SINCE, AFTER)]), Verdict::Proceed);
    }

    #[test]
    fn a_range_holds_only_for_exactly_what_the_client_has() {
        let holds = |value| range_holds(&headers(&[(header::IF_RANGE, value)]), CURRENT);
        assert!(range_holds(&headers(&[]), CURRENT));
        assert!(holds("\"abc\""));
        assert!(holds(SAME));
        for value in ["W/\"abc\"", "\"x\"", BEFORE, AFTER, "nonsense", "*", ""] {
            assert!(!holds(value), "{value}");
        }
    }
}
