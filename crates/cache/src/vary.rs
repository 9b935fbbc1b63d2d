//! `Vary`: which fields of a request a response depends on (RFC 9111, section 4.1).

use http::{HeaderMap, HeaderName, header};

/// Most fields that a response may depend on.
const MOST_FIELDS: usize = 16;

/// The fields of requests that a response depends on, with the values that it was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vary(pub(crate) Box<[(HeaderName, Box<[u8]>)]>);

impl Vary {
    /// That of a response to a request with these fields; `None`: it is right for no other request (`*`), or depends on too
    /// many fields.
    pub(crate) fn of(response: &HeaderMap, request: &HeaderMap) -> Option<Self> {
        let mut found: Vec<(HeaderName, Box<[u8]>)> = Vec::new();
        for line in response.get_all(header::VARY) {
            for name in line.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if name.is_empty() {
                    continue;
                }
                if name == b"*" || found.len() == MOST_FIELDS {
                    return None;
                }
                let name = HeaderName::from_bytes(name).ok()?;
                if !found.iter().any(|(other, _)| *other == name) {
                    let value = value(request, &name);
                    found.push((name, value));
                }
            }
        }
        Some(Self(found.into()))
    }

    /// Whether a request with these fields may have the response.
    pub fn matches(&self, request: &HeaderMap) -> bool {
        self.0.iter().all(|(name, made_for)| value(request, name) == *made_for)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum()
    }
}

/// A value in a form in which fields that mean the same are equal: lines are one, and there is no space at commas.
/// Languages and codings have no case.
fn value(request: &HeaderMap, name: &HeaderName) -> Box<[u8]> {
    let mut lines = request.get_all(name).iter().peekable();
    if lines.peek().is_none() {
        return Box::default();
    }
    // A field that is there is not like one that is missing, even if it is empty.
    let mut value = vec![b'='];
    for (at, member) in lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).enumerate() {
        if at > 0 {
            value.push(b',');
        }
        value.extend_from_slice(member.trim_ascii());
    }
    if matches!(*name, header::ACCEPT_LANGUAGE | header::ACCEPT_ENCODING) {
        value.make_ascii_lowercase();
    }
    value.into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_response_is_for_requests_with_the_same_fields() {
        let made_for = headers(&[("foo", "1, 2"), ("accept-language", "en, De"), ("other", "x")]);
        let vary = Vary::of(&headers(&[("vary", "Foo,accept-language"), ("vary", "baz")]), &made_for).unwrap();
        for (request, expected) in [
            (&[("foo", "1, 2"), ("accept-language", "en, De"), ("other", "y")][..], true),
            (&[("foo", "1 ,2"), ("accept-language", "EN,de")], true),
            (&[("foo", "1"), ("foo", "2"), ("accept-language", "en,de")], true),
            (&[("foo", "2, 1"), ("accept-language", "en, De")], false),
            (&[("foo", "1, 2")], false),
            (&[("foo", "1, 2"), ("accept-language", "en, De"), ("baz", "")], false),
        ] {
            assert_eq!(vary.matches(&headers(request)), expected, "{request:?}");
        }
        for star in [&[("vary", "*")][..], &[("vary", "foo, *")], &[("vary", ""), ("vary", "*")]] {
            assert_eq!(Vary::of(&headers(star), &made_for), None, "{star:?}");
        }
        assert!(Vary::of(&HeaderMap::new(), &made_for).unwrap().matches(&HeaderMap::new()));
    }
}
