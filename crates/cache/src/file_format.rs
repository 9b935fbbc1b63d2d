//! The form of a stored response in a file: a fixed beginning with lengths and checksums, the head, the body. A file
//! that is cut off or damaged anywhere is not read as a response.

use std::io::{self, Read};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{stored::Stored, vary::Vary};

/// The first bytes of each file. The number counts changes of the form; files of another form are dropped.
const MAGIC: [u8; 8] = *b"SRPCACH1";
/// Magic, length of the head, length of the body, checksums of the head, the body and of these numbers.
const START_BYTES: usize = 8 + 4 + 8 + 4 + 4 + 4;
/// Heads of origins are far smaller.
const MOST_HEAD_BYTES: u32 = 4 * 1024 * 1024;

/// The head of a file, which stands before the body.
#[derive(Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) key: Box<str>,
    pub(crate) stored: Stored,
    pub(crate) body_bytes: u64,
    body_checksum: u32,
}

impl Head {
    /// The length of the file.
    pub(crate) fn file_bytes(&self, head_bytes: u64) -> u64 {
        START_BYTES as u64 + head_bytes + self.body_bytes
    }
}

/// The bytes of a file before the body.
pub(crate) fn write(key: &str, stored: &Stored, body: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(1024);
    put(&mut head, key.as_bytes());
    head.extend_from_slice(&stored.status.as_u16().to_le_bytes());
    for number in [
        stored.cost_us,
        stored.received_ms,
        stored.initial_age_ms,
        stored.lifetime_ms,
        stored.while_revalidate_ms,
        stored.if_error_ms,
        u64::from(stored.never_stale),
        stored.headers.len() as u64,
        stored.vary.0.len() as u64,
    ] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    for (name, value) in &stored.headers {
        put(&mut head, name.as_str().as_bytes());
        put(&mut head, value.as_bytes());
    }
    for (name, value) in &stored.vary.0 {
        put(&mut head, name.as_str().as_bytes());
        put(&mut head, value);
    }
    for tag in &stored.tags {
        put(&mut head, tag.as_bytes());
    }
    let mut file = Vec::with_capacity(START_BYTES + head.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&(head.len() as u32).to_le_bytes());
    file.extend_from_slice(&(body.len() as u64).to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
    file.extend_from_slice(&head);
    file
}

/// Reads the part of a file before the body, and says how many bytes the head has.
pub(crate) fn read_head(file: &mut impl Read) -> io::Result<(Head, u64)> {
    let mut start = [0; START_BYTES];
    file.read_exact(&mut start)?;
    let mut rest = &start[..];
    let magic = rest.split_off(..8).unwrap_or_default();
    let (Some(head_bytes), Some(body_bytes), Some(head_checksum), Some(body_checksum), Some(checksum)) =
        (u32(&mut rest), u64(&mut rest), u32(&mut rest), u32(&mut rest), u32(&mut rest))
    else {
        return Err(damaged());
    };
    let is_sound = checksum == crc32fast::hash(&start[..START_BYTES - 4]);
    if magic != MAGIC || !is_sound || head_bytes > MOST_HEAD_BYTES {
        return Err(damaged());
    }
    let mut head = vec![0; head_bytes as usize];
    file.read_exact(&mut head)?;
    if crc32fast::hash(&head) != head_checksum {
        return Err(damaged());
    }
    let (key, stored) = parse(&head).ok_or_else(damaged)?;
    Ok((Head { key, stored, body_bytes, body_checksum }, u64::from(head_bytes)))
}

/// Reads all of a file. `most_bytes` is the largest body that is read.
pub(crate) fn read(file: &mut impl Read, most_bytes: u64) -> io::Result<(Head, Bytes)> {
    let (head, _) = read_head(file)?;
    if head.body_bytes > most_bytes {
        return Err(damaged());
    }
    let mut body = Vec::with_capacity(usize::try_from(head.body_bytes).map_err(io::Error::other)?);
    file.take(head.body_bytes).read_to_end(&mut body)?;
    let is_whole = body.len() as u64 == head.body_bytes && file.read(&mut [0])? == 0;
    if !is_whole || crc32fast::hash(&body) != head.body_checksum {
        return Err(damaged());
    }
    Ok((head, body.into()))
}

fn parse(mut head: &[u8]) -> Option<(Box<str>, Stored)> {
    let key = str::from_utf8(take(&mut head)?).ok()?.into();
    let status = StatusCode::from_u16(u16::from_le_bytes(head.split_off(..2)?.try_into().ok()?)).ok()?;
    let mut numbers = [0; 9];
    for number in &mut numbers {
        *number = u64(&mut head)?;
    }
    let [
        cost_us,
        received_ms,
        initial_age_ms,
        lifetime_ms,
        while_revalidate_ms,
        if_error_ms,
        never_stale,
        fields,
        varying,
    ] = numbers;
    let mut headers = HeaderMap::new();
    for _ in 0..fields {
        let name = HeaderName::from_bytes(take(&mut head)?).ok()?;
        headers.try_append(name, HeaderValue::from_bytes(take(&mut head)?).ok()?).ok()?;
    }
    let mut vary = Vec::new();
    for _ in 0..varying {
        let name = HeaderName::from_bytes(take(&mut head)?).ok()?;
        vary.push((name, take(&mut head)?.into()));
    }
    let mut tags = Vec::new();
    while !head.is_empty() {
        tags.push(str::from_utf8(take(&mut head)?).ok()?.into());
    }
    let stored = Stored {
        status,
        headers,
        vary: Vary(vary.into()),
        tags: tags.into(),
        cost_us,
        received_ms,
        initial_age_ms,
        lifetime_ms,
        while_revalidate_ms,
        if_error_ms,
        never_stale: never_stale != 0,
    };
    Some((key, stored))
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    to.extend_from_slice(bytes);
}

fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32(from)? as usize;
    from.split_off(..len)
}

fn u32(from: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(from.split_off(..4)?.try_into().ok()?))
}

fn u64(from: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(from.split_off(..8)?.try_into().ok()?))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")
}

#[cfg(test)]
pub(crate) mod tests {
    use http::Method;
    use proptest::prelude::*;

    use super::*;
    use crate::stored::{Asking, Received, Rules};

    pub(crate) fn stored() -> Stored {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("cache-control", "max-age=60"),
            ("x-a", "1"),
            ("x-a", "\u{e4}2"),
            ("vary", "accept"),
            ("cache-tag", "t1 t2"),
        ] {
            headers.append(
                name,
                HeaderValue::from_str(value).unwrap_or(HeaderValue::from_bytes(value.as_bytes()).unwrap()),
            );
        }
        let mut request = HeaderMap::new();
        request.insert("accept", HeaderValue::from_static("text/html"));
        let asking = Asking { method: &Method::GET, headers: &request, is_of_user: false };
        let received = Received { asked_ms: 1_000_000, now_ms: 1_000_100 };
        Stored::of(asking, StatusCode::OK, &headers, received, &Rules::default()).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let mut file = write("http://a/b", &stored(), b"the body");
        file.extend_from_slice(b"the body");
        let (head, body) = read(&mut &file[..], 100).unwrap();
        assert_eq!((&*head.key, &head.stored, &body[..]), ("http://a/b", &stored(), &b"the body"[..]));
        let (again, head_bytes) = read_head(&mut &file[..]).unwrap();
        assert_eq!(again.file_bytes(head_bytes), file.len() as u64);
        assert!(read(&mut &file[..], 7).is_err(), "larger than is wanted");
    }

    proptest! {
        #[test]
        fn no_damage_passes(at in any::<prop::sample::Index>(), bit in 0..8_u32, cut in any::<prop::sample::Index>()) {
            let mut file = write("http://a/b", &stored(), b"the body");
            file.extend_from_slice(b"the body");
            let cut = cut.index(file.len());
            prop_assert!(read(&mut &file[..cut], 100).is_err());
            let mut longer = file.clone();
            longer.push(0);
            prop_assert!(read(&mut &longer[..], 100).is_err());
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
            prop_assert!(read(&mut &file[..], 100).is_err());
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(&mut &bytes[..], 100).is_err());
            let _ = parse(&bytes);
        }
    }
}
