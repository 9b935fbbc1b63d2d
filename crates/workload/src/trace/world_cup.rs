//! Records of the 1998 World Cup web site's logs (M. Arlitt and T. Jin, "1998 World Cup Web Site Access Logs", 1998).
//!
//! Twenty bytes each, big-endian: time, client, object and size of four bytes, then method, status, type of the file and server
//! of one. Method, type and status are places in the lists below; the upper two bits of the status are the version of HTTP.

use super::{Method, Name, Reason, Record};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 20;

/// Places of the methods.
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

/// Places of the statuses: the first of each run, and how many there are. The last, "other", is 0 here.
const STATUSES: [(u16, u8); 6] = [(100, 2), (200, 7), (300, 6), (400, 16), (500, 6), (0, 1)];

/// Places of the types of files.
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

/// Reads a record. The class is the type of the file; a size of 2^32 - 1 is none.
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

/// Whether these are records: all that are whole can be read, and each is within a day of the one before.
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
