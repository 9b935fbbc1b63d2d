//! The field `Via` (RFC 9110, section 7.6.3).

use http::{HeaderMap, HeaderValue, Version, header::VIA};

/// The name of this proxy in `Via`.
const PSEUDONYM: &[u8] = b"serpent";

/// This proxy's entry in `Via`, which names the protocol of the sender.
pub fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_09 | Version::HTTP_10 => "1.0 serpent",
        Version::HTTP_2 => "2.0 serpent",
        _ => "1.1 serpent",
    })
}

/// How often a message has passed through this proxy or others of its name, counted in `Via`.
pub fn passes(headers: &HeaderMap) -> usize {
    let is_own = |entry: &&[u8]| {
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(PSEUDONYM))
    };
    let entries = |value: &HeaderValue| value.as_bytes().split(|&byte| byte == b',').filter(is_own).count();
    headers.get_all(VIA).iter().map(entries).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_through_proxies_of_this_name_are_counted() {
        let table: &[(&[&'static str], usize)] = &[
            (&[], 0),
            (&["1.1 fred", "serpent"], 0),
            (&["1.1 serpent, HTTP/2.0  Serpent (a comment) ,1.0\tserpent", "1.1 serpent"], 4),
            (&["1.1 serpents, 1.1 serpent:80"], 0),
        ];
        for (values, times) in table {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::SERVER, HeaderValue::from_static("1.1 serpent"));
            for value in *values {
                headers.append(VIA, HeaderValue::from_static(value));
            }
            assert_eq!(passes(&headers), *times, "{values:?}");
        }
    }
}
