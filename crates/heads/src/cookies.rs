//! The cookies of a request.

use http::{HeaderMap, header};

/// Names and values of a request's cookies (RFC 6265, section 5.4), as bytes; quotes around a value are not
/// part of it. HTTP/2 clients may spread them over several fields.
pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = headers.get_all(header::COOKIE).iter();
    let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        (!name.is_empty()).then_some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn cookies_of_all_fields_are_found_without_their_quotes() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; b=\"two\";c; =d"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=3"));
        let found: Vec<_> = cookies(&headers).collect();
        assert_eq!(found, [(&b"a"[..], &b"1"[..]), (b"b", b"two"), (b"a", b"3")]);
    }
}
