//! Parts of lines that several formats share.

use std::borrow::Cow;

use super::Method;

/// An unsigned decimal number and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| {
        byte.is_ascii_digit().then_some(())?;
        sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

/// Removes the fragment of a target.
pub(super) fn without_fragment(mut target: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if let Some(end) = memchr::memchr(b'#', &target) {
        match &mut target {
            Cow::Borrowed(bytes) => *bytes = &bytes[..end],
            Cow::Owned(bytes) => bytes.truncate(end),
        }
    }
    target
}

/// Reads method and target of a request line such as `GET /a b.html HTTP/1.0`. Targets may hold spaces, and
/// the protocol may be missing. A lone `-` is not a request.
pub(super) fn request_line(line: &[u8]) -> (Option<Method>, Option<&[u8]>) {
    let line = line.trim_ascii();
    if line.is_empty() || line == b"-" {
        return (None, None);
    }
    let Some(space) = memchr::memchr(b' ', line) else { return (Some(Method::from_bytes(line)), None) };
    let (method, rest) = (&line[..space], line[space..].trim_ascii_start());
    let target = match memchr::memrchr(b' ', rest) {
        Some(last) if rest[last + 1..].starts_with(b"HTTP/") => rest[..last].trim_ascii_end(),
        None if rest.starts_with(b"HTTP/") => b"",
        _ => rest,
    };
    (Some(Method::from_bytes(method)), (!target.is_empty()).then_some(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_are_read_as_servers_wrote_them() {
        for (line, method, target) in [
            ("GET /a HTTP/1.0", Some(Method::Get), Some("/a")),
            ("GET /a", Some(Method::Get), Some("/a")),
            ("GET /apollo/ 13.html HTTP/1.0", Some(Method::Get), Some("/apollo/ 13.html")),
            ("GET /a b", Some(Method::Get), Some("/a b")),
            ("HEAD  /a  HTTP/1.1", Some(Method::Head), Some("/a")),
            ("get /a HTTP/1.1", Some(Method::Other), Some("/a")),
            ("GET HTTP/1.1", Some(Method::Get), None),
            ("GET", Some(Method::Get), None),
            ("\\x16\\x03\\x01", Some(Method::Other), None),
            ("-", None, None),
            ("", None, None),
        ] {
            assert_eq!(request_line(line.as_bytes()), (method, target.map(str::as_bytes)), "{line}");
        }
    }

    #[test]
    fn numbers_are_digits_and_nothing_else() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "-", "-1", "1.5", "18446744073709551616", "99999999999999999999", "1e3", " 1"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
