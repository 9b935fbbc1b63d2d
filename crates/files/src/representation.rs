//! A file in the form in which it is sent: its bytes or their source, and all headers, computed in advance.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};

use super::{
    body::Source,
    conditional::{Validators, format_date},
    copies::Original,
    negotiate::Coding,
    stamp::Stamp,
};

/// The last second of the year 9999, the latest date that a header can express.
const LAST_DATE_S: u64 = 253_402_300_799;

/// One representation of a file: the file itself, or a precompressed sibling.
#[derive(Debug)]
pub(crate) struct Representation {
    /// The state of the file that this was made from.
    pub stamp: Stamp,
    /// Whether other codings exist.
    pub varies: bool,
    /// The bytes, or the file with them.
    pub source: Source,
    /// `Content-Type`, also of the parts of a multipart answer.
    pub content_type: HeaderValue,
    /// Headers of a 200.
    pub headers: HeaderMap,
    /// Whether a 304 carries the type as an extension.
    pub tells_type: bool,
    /// Its bytes, where copies may be made of them.
    pub original: Option<Original>,
    etag: HeaderValue,
    modified_s: u64,
}

/// The data for a representation's headers, beside the file's own state.
pub(crate) struct Description<'a> {
    pub coding: Coding,
    pub varies: bool,
    pub content_type: HeaderValue,
    pub cache_control: Option<&'a HeaderValue>,
    pub tells_type: bool,
    pub server_name: Option<&'a HeaderValue>,
    /// Whether it is kept in memory, so that its bytes are known to be those of its state.
    pub is_kept: bool,
    /// The current time.
    pub now: SystemTime,
}

impl Representation {
    /// Computes the headers. The source must have exactly the size of the stamp.
    pub fn new(stamp: Stamp, source: Source, description: Description<'_>) -> Self {
        let Description { coding, varies, content_type, cache_control, tells_type, server_name, is_kept, now } =
            description;
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // A date must not be later than its own response (RFC 9110, section 8.8.2.1).
        let modified_s = u64::try_from(stamp.modified_s).unwrap_or(0).min(now_s).min(LAST_DATE_S);
        let etag = header_value(stamp.etag(coding));

        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(header::CONTENT_TYPE, content_type.clone());
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(stamp.size));
        headers.insert(header::LAST_MODIFIED, header_value(format_date(modified_s)));
        headers.insert(header::ETAG, etag.clone());
        if varies {
            headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if let Some(value) = cache_control {
            headers.insert(header::CACHE_CONTROL, value.clone());
        }
        if let Some(value) = coding.header() {
            headers.insert(header::CONTENT_ENCODING, value);
        }
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(name) = server_name {
            headers.insert(header::SERVER, name.clone());
        }
        let original = source.bytes().filter(|_| is_kept).map(|bytes| Original::new(stamp, bytes.clone()));
        Self {
            stamp,
            varies,
            source,
            content_type,
            // A copy has room for its fields alone. Many representations are kept.
            headers: headers.clone(),
            tells_type,
            original,
            etag,
            modified_s,
        }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.stamp.size
    }

    /// Headers of a 304: those of a 200 that it has as well (RFC 9110, section 15.4.5).
    pub fn not_modified_headers(&self) -> HeaderMap {
        let also = [header::LAST_MODIFIED, header::ETAG, header::VARY, header::CACHE_CONTROL];
        also.into_iter().filter_map(|name| self.headers.get(&name).cloned().map(|value| (name, value))).collect()
    }

    /// The values for evaluating conditional requests.
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_s: self.modified_s }
    }
}

fn header_value(text: String) -> HeaderValue {
    // Generated dates and tags are plain ASCII.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stamp() -> Stamp {
        Stamp::modified_in_tests(1_000_000_000)
    }

    fn represent(stamp: Stamp, now_s: u64) -> Representation {
        let description = Description {
            coding: Coding::Gzip,
            varies: true,
            content_type: HeaderValue::from_static("text/plain"),
            cache_control: Some(&HeaderValue::from_static("no-cache")),
            tells_type: false,
            server_name: None,
            is_kept: true,
            now: UNIX_EPOCH + Duration::from_secs(now_s),
        };
        Representation::new(stamp, Source::Memory(bytes::Bytes::from_static(b"abc")), description)
    }

    #[test]
    fn a_200_carries_everything_and_a_304_only_what_a_cache_needs() {
        let representation = represent(stamp(), 2_000_000_000);
        let pairs = |headers: &HeaderMap| {
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect::<Vec<_>>()
        };
        let etag = stamp().etag(Coding::Gzip);
        let shared = [
            "last-modified: Sun, 09 Sep 2001 01:46:40 GMT".to_owned(),
            format!("etag: {etag}"),
            "vary: Accept-Encoding".to_owned(),
            "cache-control: no-cache".to_owned(),
        ];
        assert_eq!(pairs(&representation.not_modified_headers()), shared);
        let mut all = vec!["content-type: text/plain".to_owned(), "content-length: 3".to_owned()];
        all.extend(shared);
        all.extend(["content-encoding: gzip".to_owned(), "accept-ranges: bytes".to_owned()]);
        assert_eq!(pairs(&representation.headers), all);
    }

    #[test]
    fn times_outside_of_what_a_header_can_say_are_brought_within() {
        let future = Stamp::modified_in_tests(3_000_000_000);
        assert_eq!(represent(future, 2_000_000_000).modified_s, 2_000_000_000);
        assert_eq!(represent(Stamp::modified_in_tests(-5), 2_000_000_000).modified_s, 0);
        assert_eq!(represent(Stamp::modified_in_tests(i64::MAX), u64::MAX >> 2).modified_s, LAST_DATE_S);
    }
}
