//! Records of the logs of the 1998 World Cup web site (M. Arlitt and T. Jin, "1998 World Cup Web Site Access
//! Logs", 1998).
//!
//! A record has twenty bytes, big-endian: time, client, object and size with four bytes each, then method,
//! status, type of the file and server with one byte each. Method, type and status are positions in the lists
//! below. The upper two bits of the status are the version of HTTP.

use super::{Method, Name, Reason, Record};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 20;

/// Methods by their number.
const METHODS: [Method; 9] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Trace,
    Method::Options,
    Method::Connect,
    Method::Other,
];

/// Statuses by their number: the first status of each run, and the length of the run. The last, "other", is 0
/// here.
const STATUSES: [(u16, u8); 6] = [(100, 2), (200, 7), (300, 6), (400, 16), (500, 6), (0, 1)];

/// Types of files by their number.
const TYPES: [&str; 13] = [
    "html",
    "image",
    "audio",
    "video",
    "java",
    "formatted",
    "dynamic",
    "text",
    "compressed",
    "programs",
    "directory",
    "icl",
    "other",
];

/// Reads a record. The class is the type of the file. A size of 2^32 - 1 means no size.
pub fn parse(bytes: &[u8]) -> Result<Record<'static>, Reason> {
    let bytes: &[u8; RECORD_BYTES] =
        bytes.try_into().map_err(|_| "the record is cut off: it has fewer than 20 bytes")?;
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Record {
        number: 0,
        at_ns: u64::from(word(0)) * 1_000_000_000,
        tick_ns: 1_000_000_000,
        client: Some(Name::Number(word(4).into())),
        object: Some(Name::Number(word(8).into())),
        size_bytes: Some(word(12)).filter(|&size| size != u32::MAX).map(u64::from),
        method: Some(*METHODS.get(usize::from(bytes[16])).ok_or("the method is none of the nine")?),
        status: Some(status(bytes[17] & 0x3f).ok_or("the status is none of the list")?),
        class: Some(
            TYPES.get(usize::from(bytes[18])).ok_or("the type of the file is none of the list")?.as_bytes().into(),
        ),
    })
}

/// Whether these bytes are records: every whole one can be read, and each is within a day of the one before.
pub(super) fn looks_like(head: &[u8]) -> bool {
    let mut last: Option<u64> = None;
    let mut whole = head.chunks_exact(RECORD_BYTES).take(200);
    whole.len() > 0
        && whole.all(|bytes| {
            let at_ns = parse(bytes).map(|record| record.at_ns);
            let near = at_ns.is_ok_and(|at| at > 0 && last.is_none_or(|last| at.abs_diff(last) <= 86_400_000_000_000));
            last = at_ns.ok();
            near
        })
}

fn status(place: u8) -> Option<u16> {
    let mut first = 0;
    for (status, count) in STATUSES {
        if place < first + count {
            return Some(status + u16::from(place - first));
        }
        first += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(words: [u32; 4], last: [u8; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).chain(last).collect()
    }

    #[test]
    fn a_record_of_the_first_day() {
        // 30 April 1998, 21:30:17 GMT; HTTP/1.0 in the upper bits of the status.
        let record = parse(&bytes([893_971_817, 5, 17, 1839], [0, 0x40 | 2, 1, 0x63])).unwrap();
        let expected = Record {
            number: 0,
            at_ns: 893_971_817_000_000_000,
            tick_ns: 1_000_000_000,
            object: Some(Name::Number(17)),
            client: Some(Name::Number(5)),
            size_bytes: Some(1839),
            status: Some(200),
            method: Some(Method::Get),
            class: Some(b"image"[..].into()),
        };
        assert_eq!(record, expected);
    }

    #[test]
    fn statuses_have_their_places() {
        for (place, expected) in [
            (0, 100),
            (1, 101),
            (2, 200),
            (8, 206),
            (9, 300),
            (13, 304),
            (14, 305),
            (15, 400),
            (19, 404),
            (30, 415),
            (31, 500),
            (36, 505),
            (37, 0),
        ] {
            assert_eq!(status(place), Some(expected), "{place}");
        }
        assert_eq!(status(38), None);
    }

    #[test]
    fn what_is_in_no_list_is_broken() {
        assert_eq!(parse(&bytes([1; 4], [9, 2, 0, 0])), Err("the method is none of the nine"));
        assert_eq!(parse(&bytes([1; 4], [0, 38, 0, 0])), Err("the status is none of the list"));
        assert_eq!(parse(&bytes([1; 4], [0, 2, 13, 0])), Err("the type of the file is none of the list"));
        assert_eq!(parse(&[0; 19]), Err("the record is cut off: it has fewer than 20 bytes"));
        assert_eq!(parse(&bytes([1, 1, 1, u32::MAX], [0, 2, 0, 0])).unwrap().size_bytes, None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(any in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&any);
            looks_like(&any);
        }

        #[test]
        fn a_written_record_reads_back(words in any::<[u32; 4]>(), method in 0_u8..9, version in 0_u8..4, status in 0_u8..38, kind in 0_u8..13) {
            let record = parse(&bytes(words, [method, version << 6 | status, kind, 0])).unwrap();
            prop_assert_eq!(record.at_ns, u64::from(words[0]) * 1_000_000_000);
            prop_assert_eq!((record.client, record.object), (Some(Name::Number(words[1].into())), Some(Name::Number(words[2].into()))));
            prop_assert_eq!(record.size_bytes.is_some(), words[3] != u32::MAX);
            prop_assert_eq!(record.method, Some(METHODS[usize::from(method)]));
        }
    }
}
