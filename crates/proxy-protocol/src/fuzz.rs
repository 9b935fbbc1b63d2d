//! The body of the fuzz target `proxy_protocol`.

use crate::{Header, MOST_BYTES, Progress, Version, read, write};

/// However the first bytes of a connection are cut, the same header is found at the same place, or the same mistake; no
/// byte behind it is needed; and what is found reads the same when it is written down.
///
/// # Panics
///
/// When that does not hold.
pub fn proxy_protocol(bytes: &[u8]) {
    let whole = read(bytes);
    for end in 0..bytes.len().min(MOST_BYTES + 1) {
        let part = read(&bytes[..end]);
        match (part, whole) {
            (Ok(Progress::Incomplete), Ok(Progress::Complete(_, len))) => assert!(end < len, "complete at {end}"),
            (Ok(Progress::Incomplete), _) => {}
            (part, whole) => assert_eq!(part, whole, "cut at {end}"),
        }
    }
    if let Ok(Progress::Incomplete) = whole {
        assert!(bytes.len() < MOST_BYTES, "a header without end");
    }
    if let Ok(Progress::Complete(header, len)) = whole {
        assert!(len <= bytes.len() && len <= MOST_BYTES);
        let ends = match header {
            Header::Local => None,
            Header::Proxied(ends) => Some(ends),
        };
        for version in [Version::V1, Version::V2] {
            let mut written = Vec::new();
            write(version, ends, &mut written);
            let behind = written.len();
            written.extend_from_slice(b"GET / HTTP/1.1\r\n");
            assert_eq!(read(&written), Ok(Progress::Complete(header, behind)), "{version:?}");
        }
    }
}
