//! Byte ranges (RFC 9110, section 14).
//!
//! Requests are bounded as section 14.2 advises. A header with more than [`MAX_RANGES`] ranges is ignored.
//! Ranges that overlap, or lie closer together than the size of a part's head, are joined. So an answer never
//! has a byte of the file twice. Parts keep the order of the request.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
};

use bytes::Bytes;
use http::HeaderMap;

/// Most ranges in one request. No honest client asks for more, and each costs a read and a part's head.
pub(crate) const MAX_RANGES: usize = 64;

/// Ranges with a gap below this many bytes are joined: two parts would cost more than the gap.
const JOIN_GAP_BYTES: u64 = 80;

/// The ranges that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// The whole representation: there is no `Range` header, or it is ignored.
    Whole,
    /// One range or more, none empty, none overlapping.
    Parts(Vec<Range<u64>>),
    /// No existing bytes: 416.
    Unsatisfiable,
}

/// Parses the `Range` header for a representation of `size` bytes.
pub(crate) fn resolve(headers: &HeaderMap, size: u64) -> Ranges {
    let mut values = headers.get_all(http::header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Ranges::Whole };
    let Some((unit, set)) = value.to_str().ok().and_then(|value| value.split_once('=')) else { return Ranges::Whole };
    if !unit.trim_ascii().eq_ignore_ascii_case("bytes") {
        return Ranges::Whole;
    }
    let mut wanted = Vec::new();
    let mut specs = 0;
    for spec in set.split(',').map(str::trim_ascii).filter(|spec| !spec.is_empty()) {
        specs += 1;
        if specs > MAX_RANGES {
            return Ranges::Whole;
        }
        match resolve_one(spec, size) {
            // A suffix of an empty file is satisfiable, but has no form in Content-Range.
            Some(One::Satisfiable(range)) if range.is_empty() => return Ranges::Whole,
            Some(One::Satisfiable(range)) => wanted.push(range),
            Some(One::Unsatisfiable) => {}
            None => return Ranges::Whole,
        }
    }
    match (specs, wanted.is_empty()) {
        (0, _) => Ranges::Whole,
        (_, true) => Ranges::Unsatisfiable,
        (_, false) => Ranges::Parts(join(wanted)),
    }
}

/// The `Content-Range` of one part.
pub(crate) fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// The framing of a `multipart/byteranges` body: the bytes before each part, and after the last.
#[derive(Debug)]
pub(crate) struct Multipart {
    /// The value of `Content-Type`.
    pub content_type: String,
    /// The bytes before each range, and the range.
    pub parts: Vec<(Bytes, Range<u64>)>,
    /// The bytes after the last range.
    pub tail: Bytes,
}

impl Multipart {
    /// Frames `ranges` of a representation of `size` bytes and the given type.
    pub fn new(ranges: Vec<Range<u64>>, size: u64, part_type: &[u8]) -> Self {
        // Unpredictable for the file's author, so that no file can contain it. Each RandomState has keys of
        // its own.
        let boundary = format!("{:016x}{:016x}", random_u64(), random_u64());
        let parts = ranges
            .into_iter()
            .map(|range| {
                let mut head = format!("\r\n--{boundary}\r\nContent-Type: ").into_bytes();
                head.extend_from_slice(part_type);
                head.extend_from_slice(
                    format!("\r\nContent-Range: {}\r\n\r\n", content_range(&range, size)).as_bytes(),
                );
                (Bytes::from(head), range)
            })
            .collect();
        Self {
            content_type: format!("multipart/byteranges; boundary={boundary}"),
            parts,
            tail: Bytes::from(format!("\r\n--{boundary}--\r\n")),
        }
    }
}

enum One {
    Satisfiable(Range<u64>),
    Unsatisfiable,
}

/// Parses `first-last`, `first-` or `-suffix`; `None` if it is malformed.
fn resolve_one(spec: &str, size: u64) -> Option<One> {
    let (first, last) = spec.split_once('-')?;
    let (first, last) = (first.trim_ascii(), last.trim_ascii());
    if first.is_empty() {
        let length = number(last)?;
        return Some(if length == 0 {
            One::Unsatisfiable
        } else {
            One::Satisfiable(size.saturating_sub(length)..size)
        });
    }
    let first = number(first)?;
    let end = if last.is_empty() {
        size
    } else {
        let last = number(last)?;
        if last < first {
            return None;
        }
        last.saturating_add(1).min(size)
    };
    Some(if first < size { One::Satisfiable(first..end) } else { One::Unsatisfiable })
}

/// Parses a number of any length; above 64 bits it counts as infinite.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// Joins ranges that overlap or nearly touch; each takes the place of its first member.
fn join(wanted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut by_start: Vec<(usize, Range<u64>)> = wanted.into_iter().enumerate().collect();
    by_start.sort_by_key(|(_, range)| range.start);
    let mut joined: Vec<(usize, Range<u64>)> = Vec::with_capacity(by_start.len());
    for (place, range) in by_start {
        match joined.last_mut() {
            Some((first_place, last)) if range.start <= last.end.saturating_add(JOIN_GAP_BYTES) => {
                last.end = last.end.max(range.end);
                *first_place = place.min(*first_place);
            }
            _ => joined.push((place, range)),
        }
    }
    joined.sort_by_key(|(place, _)| *place);
    joined.into_iter().map(|(_, range)| range).collect()
}

fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::RANGE};
    use proptest::prelude::*;

    use super::*;

    fn ranges(value: &str, size: u64) -> Ranges {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(value).unwrap());
        resolve(&headers, size)
    }

    fn parts(parts: &[(u64, u64)]) -> Ranges {
        Ranges::Parts(parts.iter().map(|(start, end)| *start..*end).collect())
    }

    #[test]
    fn single_ranges() {
        for (value, expected) in [
            ("bytes=0-499", parts(&[(0, 500)])),
            ("bytes=500-999", parts(&[(500, 1000)])),
            ("bytes=-500", parts(&[(9500, 10_000)])),
            ("bytes=9500-", parts(&[(9500, 10_000)])),
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=-1", parts(&[(9999, 10_000)])),
            ("bytes=-20000", parts(&[(0, 10_000)])),
            ("bytes=0-99999999999999999999999", parts(&[(0, 10_000)])),
            ("Bytes= 1-2 ", parts(&[(1, 3)])),
            ("bytes=10000-", Ranges::Unsatisfiable),
            ("bytes=99999999999999999999999-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
        ] {
            assert_eq!(ranges(value, 10_000), expected, "{value}");
        }
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in [
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=2-1",
            "bytes=1-2,x",
            "bytes=+1-2",
            "items=0-1",
            "bytes=1--2",
            "bytes=0x1-2",
            "0-1",
        ] {
            assert_eq!(ranges(value, 10_000), Ranges::Whole, "{value}");
        }
        let mut twice = HeaderMap::new();
        twice.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        twice.append(RANGE, HeaderValue::from_static("bytes=2-3"));
        assert_eq!(resolve(&twice, 10), Ranges::Whole);
    }

    #[test]
    fn several_ranges_stay_in_the_order_asked_for() {
        assert_eq!(ranges("bytes=5000-5999,0-0", 10_000), parts(&[(5000, 6000), (0, 1)]));
        assert_eq!(ranges("bytes=0-0, ,20000-, -1", 10_000), parts(&[(0, 1), (9999, 10_000)]));
    }

    #[test]
    fn overlapping_and_near_ranges_are_joined() {
        assert_eq!(ranges("bytes=0-99,50-149", 10_000), parts(&[(0, 150)]));
        assert_eq!(ranges("bytes=0-99,100-199", 10_000), parts(&[(0, 200)]));
        assert_eq!(ranges("bytes=0-99,150-199", 10_000), parts(&[(0, 200)]));
        assert_eq!(ranges("bytes=5000-,0-1,4990-", 10_000), parts(&[(4990, 10_000), (0, 2)]));
        let all_over_again = format!("bytes={}", ["0-"; MAX_RANGES].join(","));
        assert_eq!(ranges(&all_over_again, 10_000), parts(&[(0, 10_000)]));
    }

    #[test]
    fn too_many_ranges_are_ignored() {
        let many = format!("bytes={}", vec!["0-0"; MAX_RANGES + 1].join(","));
        assert_eq!(ranges(&many, 10_000), Ranges::Whole);
    }

    #[test]
    fn an_empty_file_has_no_first_byte_but_every_suffix() {
        assert_eq!(ranges("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(ranges("bytes=0-0", 0), Ranges::Unsatisfiable);
        assert_eq!(ranges("bytes=-5", 0), Ranges::Whole);
    }

    #[test]
    fn parts_are_framed_with_one_boundary() {
        let framed = Multipart::new(vec![0..1, 500..600], 1000, b"text/plain");
        let boundary = framed.content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        assert_eq!(boundary.len(), 32);
        assert_eq!(
            framed.parts[1].0,
            format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 500-599/1000\r\n\r\n")
        );
        assert_eq!(framed.tail, format!("\r\n--{boundary}--\r\n"));
        assert_ne!(Multipart::new(vec![0..1, 2..3], 4, b"").content_type, framed.content_type);
    }

    proptest! {
        #[test]
        fn no_byte_outside_the_file_and_none_twice(
            specs in prop::collection::vec(
                (prop::option::of(0u64..3000), prop::option::of(0u64..3000)).prop_map(|(first, last)| {
                    let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
                    format!("{}-{}", text(first), text(last))
                }),
                0..80,
            ),
            size in 0u64..2500,
        ) {
            if let Ranges::Parts(parts) = ranges(&format!("bytes={}", specs.join(",")), size) {
                prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES);
                let mut sorted = parts.clone();
                sorted.sort_by_key(|range| range.start);
                prop_assert!(sorted.iter().all(|range| range.start < range.end && range.end <= size));
                prop_assert!(sorted.windows(2).all(|pair| pair[0].end + JOIN_GAP_BYTES < pair[1].start));
                // Every requested byte is in a part.
                for spec in &specs {
                    if let Some(One::Satisfiable(wanted)) = resolve_one(spec, size) {
                        prop_assert!(parts.iter().any(|part| part.start <= wanted.start && wanted.end <= part.end));
                    }
                }
            }
        }

        #[test]
        fn any_header_is_read_without_a_panic(value in "[ -~]{0,60}", size in any::<u64>()) {
            ranges(&value, size);
            ranges(&format!("bytes={value}"), size);
        }
    }
}
