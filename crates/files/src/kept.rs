//! Answers from a response that is kept whole, for example by a cache: conditions and ranges are evaluated as for a file.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::{
    FileBody,
    body::Source,
    conditional::{Validators, any_tag, date, range_holds},
    pages::error_page,
    range::{Multipart, Ranges, content_range, resolve},
    respond::is_plain,
};

/// Whether the preconditions of a GET or HEAD leave anything to send of a response with these fields: 304, or 412. The time
/// of a response that does not tell its last change is its `Date` (RFC 9111, section 4.3.2).
pub fn precondition(kept: &HeaderMap, request: &HeaderMap) -> Option<StatusCode> {
    if is_plain(request) {
        return None;
    }
    let etag = kept.get(header::ETAG).map(|etag| etag.as_bytes().trim_ascii());
    let is_weak = etag.is_some_and(|etag| etag.starts_with(b"W/"));
    let opaque = etag.map(|etag| etag.strip_prefix(b"W/").unwrap_or(etag));
    let is_same = |tag: &[u8]| opaque == Some(tag);
    let modified_s = date(kept, &header::LAST_MODIFIED);
    if request.contains_key(header::IF_MATCH) {
        if !any_tag(request, &header::IF_MATCH, |tag| !tag.weak && !is_weak && is_same(tag.opaque)) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if let (Some(date_s), Some(modified_s)) = (date(request, &header::IF_UNMODIFIED_SINCE), modified_s)
        && modified_s > date_s
    {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = if request.contains_key(header::IF_NONE_MATCH) {
        any_tag(request, &header::IF_NONE_MATCH, |tag| is_same(tag.opaque))
    } else {
        let modified_s = modified_s.or_else(|| date(kept, &header::DATE));
        let since_s = date(request, &header::IF_MODIFIED_SINCE);
        modified_s.zip(since_s).is_some_and(|(modified_s, since_s)| modified_s <= since_s)
    };
    is_known.then_some(StatusCode::NOT_MODIFIED)
}

/// The 304 or 412 in place of a response with these fields.
pub fn without_body(status: StatusCode, mut kept: HeaderMap) -> Response<FileBody> {
    if status != StatusCode::NOT_MODIFIED {
        return error_page(status);
    }
    // Fields about a body that is not sent (RFC 9110, section 15.4.5).
    let of_body: Vec<HeaderName> = kept
        .keys()
        .filter(|name| name.as_str().starts_with("content-") && **name != header::CONTENT_LOCATION)
        .cloned()
        .collect();
    let others = [header::CONTENT_SECURITY_POLICY, header::CONTENT_SECURITY_POLICY_REPORT_ONLY];
    for name in of_body.iter().filter(|name| !others.contains(name)) {
        kept.remove(name);
    }
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = status;
    *response.headers_mut() = kept;
    response
}

/// All of a kept response, or the ranges of it that a GET asks for. A precondition was evaluated before.
pub fn whole_or_ranges(
    status: StatusCode,
    mut kept: HeaderMap,
    body: Bytes,
    request: &HeaderMap,
) -> Response<FileBody> {
    let size = body.len() as u64;
    if status != StatusCode::NO_CONTENT {
        kept.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    }
    let has_range = status == StatusCode::OK && request.contains_key(header::RANGE);
    let ranges = match has_range && holds(&kept, request) {
        true => resolve(request, size),
        false => Ranges::Whole,
    };
    let (status, body) = match ranges {
        Ranges::Whole => (status, FileBody::from(body)),
        Ranges::Unsatisfiable => {
            let mut response = error_page(StatusCode::RANGE_NOT_SATISFIABLE);
            response.headers_mut().insert(header::CONTENT_RANGE, text(format!("bytes */{size}")));
            return response;
        }
        Ranges::Parts(mut parts) => {
            let source = Source::Memory(body);
            let body = if parts.len() == 1 {
                let range = parts.remove(0);
                kept.insert(header::CONTENT_RANGE, text(content_range(&range, size)));
                FileBody::range(&source, range)
            } else {
                let kind =
                    kept.get(header::CONTENT_TYPE).map_or(&b"application/octet-stream"[..], HeaderValue::as_bytes);
                let Multipart { content_type, parts, tail } = Multipart::new(parts, size, kind);
                kept.insert(header::CONTENT_TYPE, text(content_type));
                FileBody::parts(&source, parts, tail)
            };
            kept.insert(header::CONTENT_LENGTH, HeaderValue::from(body.remaining_bytes()));
            (StatusCode::PARTIAL_CONTENT, body)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = kept;
    response
}

/// Whether a range still holds. A weak tag never does.
fn holds(kept: &HeaderMap, request: &HeaderMap) -> bool {
    // `If-Range` has one tag, which never is empty or weak.
    let etag = kept.get(header::ETAG).map_or(&b""[..], HeaderValue::as_bytes);
    let modified_s = date(kept, &header::LAST_MODIFIED).unwrap_or(u64::MAX);
    range_holds(request, Validators { etag, modified_s })
}

fn text(text: String) -> HeaderValue {
    // Generated numbers and words.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn a_kept_response_answers_conditions() {
        const NOT_MODIFIED: Option<StatusCode> = Some(StatusCode::NOT_MODIFIED);
        const FAILED: Option<StatusCode> = Some(StatusCode::PRECONDITION_FAILED);
        for (kept, request, expected) in [
            (&[("etag", "\"a\"")][..], &[("if-none-match", "\"b\", \"a\"")][..], NOT_MODIFIED),
            (&[("etag", "W/\"a\"")], &[("if-none-match", "\"a\"")], NOT_MODIFIED),
            (&[("etag", "\"a\"")], &[("if-none-match", "W/\"a\"")], NOT_MODIFIED),
            (
                &[("etag", "\"a\""), ("last-modified", DATE)],
                &[("if-none-match", "\"b\""), ("if-modified-since", DATE)],
                None,
            ),
            (&[], &[("if-none-match", "\"\"")], None),
            (&[("last-modified", DATE)], &[("if-modified-since", DATE)], NOT_MODIFIED),
            (&[("last-modified", DATE)], &[("if-modified-since", EARLIER)], None),
            (&[("date", DATE)], &[("if-modified-since", DATE)], NOT_MODIFIED),
            (&[("etag", "W/\"a\"")], &[("if-match", "\"a\"")], FAILED),
            (&[("etag", "\"a\"")], &[("if-match", "\"a\"")], None),
            (&[("last-modified", DATE)], &[("if-unmodified-since", EARLIER)], FAILED),
            (&[], &[], None),
        ] {
            assert_eq!(precondition(&headers(kept), &headers(request)), expected, "{kept:?} {request:?}");
        }
    }

    #[test]
    fn a_304_has_nothing_about_a_body() {
        let kept =
            headers(&[("content-length", "3"), ("content-type", "a/b"), ("content-location", "/a"), ("etag", "\"a\"")]);
        let response = without_body(StatusCode::NOT_MODIFIED, kept);
        assert_eq!(response.headers(), &headers(&[("content-location", "/a"), ("etag", "\"a\"")]));
    }

    #[test]
    fn ranges_are_cut_from_a_whole_response() {
        let kept = headers(&[("etag", "\"a\""), ("content-type", "text/plain")]);
        let ask = |status: u16, request: &[(&'static str, &'static str)]| {
            let status = StatusCode::from_u16(status).unwrap();
            let response = whole_or_ranges(status, kept.clone(), "0123456789".into(), &headers(request));
            let length = response.headers()["content-length"].to_str().unwrap().parse::<u64>().unwrap();
            let range = response.headers().get("content-range").map(|it| it.to_str().unwrap().to_owned());
            (response.status().as_u16(), length == response.body().remaining_bytes(), length, range)
        };
        let part = (206, true, 2, Some("bytes 2-3/10".to_owned()));
        assert_eq!(ask(200, &[("range", "bytes=2-3")]), part);
        assert_eq!(ask(200, &[("range", "bytes=2-3"), ("if-range", "\"a\"")]), part);
        assert_eq!(ask(200, &[("range", "bytes=2-3"), ("if-range", "\"b\"")]), (200, true, 10, None));
        assert_eq!(ask(200, &[("range", "bytes=2-3"), ("if-range", DATE)]), (200, true, 10, None));
        assert_eq!(ask(404, &[("range", "bytes=2-3")]), (404, true, 10, None));
        let (status, _, _, range) = ask(200, &[("range", "bytes=10-")]);
        assert_eq!((status, range.as_deref()), (416, Some("bytes */10")));
        let (status, is_right, length, range) = ask(200, &[("range", "bytes=0-0,9-9")]);
        assert!(status == 206 && is_right && length > 2 || range.is_some(), "close ranges are joined");
    }
}
