//! A file in the form in which it is sent: its bytes or their source, and all headers, computed in advance.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, header};

use super::{
    body::Source,
    conditional::{Validators, format_date},
    negotiate::Coding,
};

/// The last second of the year 9999, the latest date that a header can express.
const LAST_DATE_S: u64 = 253_402_300_799;

/// The properties by which states of a file are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Length in bytes.
    pub size: u64,
    modified_s: i64,
    modified_ns: i64,
    /// Change time: it moves even if the modification time was set back.
    changed_s: i64,
    changed_ns: i64,
}

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
    /// Headers of a 304.
    pub not_modified_headers: HeaderMap,
    etag: HeaderValue,
    modified_s: u64,
}

/// The data for a representation's headers, beside the file's own state.
pub(crate) struct Description<'a> {
    pub coding: Coding,
    pub varies: bool,
    pub content_type: HeaderValue,
    pub cache_control: Option<&'a HeaderValue>,
    /// The current time.
    pub now: SystemTime,
}

impl Stamp {
    /// The state of a file.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        }
    }

    /// Whether this was last modified in an earlier second than `other`. Whole seconds are compared, because
    /// some compressors copy only these of the original's time.
    pub fn older_than(&self, other: &Self) -> bool {
        self.modified_s < other.modified_s
    }

    /// Whether the file was modified less than `window` before `now`.
    pub fn modified_within(&self, window: Duration, now: SystemTime) -> bool {
        let now_ns = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
        let modified_ns = i128::from(self.modified_s) * 1_000_000_000 + i128::from(self.modified_ns);
        (0..window.as_nanos() as i128).contains(&(now_ns - modified_ns))
    }

    /// A strong entity tag. The inode is hashed, so that it is not revealed.
    fn etag(&self, coding: Coding) -> String {
        let mut mixed = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a, 64 bits
        let fields = [self.modified_s as u64, self.modified_ns as u64, self.inode];
        for byte in fields.iter().flat_map(|field| field.to_le_bytes()) {
            mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let suffix = coding.suffix().replace('.', "-");
        format!("\"{:x}-{mixed:016x}{suffix}\"", self.size)
    }
}

impl Representation {
    /// Computes the headers. The source must have exactly the size of the stamp.
    pub fn new(stamp: Stamp, source: Source, description: Description<'_>) -> Self {
        let Description { coding, varies, content_type, cache_control, now } = description;
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // A date must not be later than its own response (RFC 9110, section 8.8.2.1).
        let modified_s = u64::try_from(stamp.modified_s).unwrap_or(0).min(now_s).min(LAST_DATE_S);
        let etag = header_value(stamp.etag(coding));

        let mut shared = HeaderMap::with_capacity(8);
        shared.insert(header::LAST_MODIFIED, header_value(format_date(modified_s)));
        shared.insert(header::ETAG, etag.clone());
        if varies {
            shared.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if let Some(value) = cache_control {
            shared.insert(header::CACHE_CONTROL, value.clone());
        }
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(header::CONTENT_TYPE, content_type.clone());
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(stamp.size));
        headers.extend(shared.clone());
        if let Some(value) = coding.header() {
            headers.insert(header::CONTENT_ENCODING, value);
        }
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Self { stamp, varies, source, content_type, headers, not_modified_headers: shared, etag, modified_s }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.stamp.size
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
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            device: 1,
            inode: 2,
            size: 3,
            modified_s: 1_000_000_000,
            modified_ns: 5,
            changed_s: 1_000_000_001,
            changed_ns: 6,
        }
    }

    fn represent(stamp: Stamp, now_s: u64) -> Representation {
        let description = Description {
            coding: Coding::Gzip,
            varies: true,
            content_type: HeaderValue::from_static("text/plain"),
            cache_control: Some(&HeaderValue::from_static("no-cache")),
            now: UNIX_EPOCH + Duration::from_secs(now_s),
        };
        Representation::new(stamp, Source::Memory(bytes::Bytes::from_static(b"abc")), description)
    }

    #[test]
    fn the_tag_changes_with_size_time_inode_and_coding() {
        let etag = stamp().etag(Coding::Identity);
        assert!(etag.starts_with("\"3-") && etag.ends_with('"'), "strong: {etag}");
        assert_eq!(stamp().etag(Coding::Identity), etag);
        assert_ne!(Stamp { size: 4, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { modified_ns: 6, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { modified_s: 6, ..stamp() }.etag(Coding::Identity), etag);
        assert_ne!(Stamp { inode: 6, ..stamp() }.etag(Coding::Identity), etag);
        let by_coding: std::collections::HashSet<_> = Coding::ALL.map(|coding| stamp().etag(coding)).into();
        assert_eq!(by_coding.len(), Coding::COUNT);
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
        assert_eq!(pairs(&representation.not_modified_headers), shared);
        let mut all = vec!["content-type: text/plain".to_owned(), "content-length: 3".to_owned()];
        all.extend(shared);
        all.extend(["content-encoding: gzip".to_owned(), "accept-ranges: bytes".to_owned()]);
        assert_eq!(pairs(&representation.headers), all);
    }

    #[test]
    fn times_outside_of_what_a_header_can_say_are_brought_within() {
        let future = Stamp { modified_s: 3_000_000_000, ..stamp() };
        assert_eq!(represent(future, 2_000_000_000).modified_s, 2_000_000_000);
        assert_eq!(represent(Stamp { modified_s: -5, ..stamp() }, 2_000_000_000).modified_s, 0);
        assert_eq!(represent(Stamp { modified_s: i64::MAX, ..stamp() }, u64::MAX >> 2).modified_s, LAST_DATE_S);
    }

    #[test]
    fn age_is_told_in_whole_seconds_between_siblings_and_exactly_against_the_clock() {
        assert!(!Stamp { modified_ns: 0, ..stamp() }.older_than(&stamp()));
        assert!(Stamp { modified_s: 999_999_999, ..stamp() }.older_than(&stamp()));
        let at = |ns| UNIX_EPOCH + Duration::from_secs(1_000_000_000) + Duration::from_nanos(ns);
        let window = Duration::from_nanos(100);
        assert!(stamp().modified_within(window, at(5)));
        assert!(stamp().modified_within(window, at(104)));
        assert!(!stamp().modified_within(window, at(105)));
        assert!(!stamp().modified_within(window, at(4)), "a time in the future is not recent");
    }
}
