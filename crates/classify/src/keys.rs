//! Key values: a file of lines `LEVEL HASH`, with SHA-256 in hexadecimal. The keys themselves are not stored.
//!
//! *Invariant.* The time of a look-up reveals nothing about the existing keys. They are looked up by a keyed
//! hash of their hash, with a random secret, and compared in constant time.

use std::{collections::HashMap, fmt, path::Path};

use aws_lc_rs::{constant_time, digest, hmac};
use http::{HeaderName, Uri, header, request::Parts};

use crate::{
    blind::random_key,
    error::{ClassifierError, read},
};

/// Most values of a request that are tried in each place of a key: a hash costs more than a comma.
const MOST_TRIED: usize = 4;

/// The keys of a file, by their hashes.
pub struct Keys {
    blind: hmac::Key,
    levels: HashMap<[u8; 32], (Hash, Box<str>)>,
}

type Hash = [u8; 32];

impl Keys {
    /// Reads a file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it cannot be parsed.
    pub fn read(path: &Path) -> Result<Self, ClassifierError> {
        Self::parse(&read(path)?).map_err(|message| ClassifierError { path: path.to_owned(), message })
    }

    /// Parses the text of a file: lines `LEVEL HASH`, empty lines, and comments after `#`.
    ///
    /// # Errors
    /// The problem, and its line.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut keys = Self { blind: random_key(), levels: HashMap::new() };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let wrong = |what: &str| format!("line {number}: {what}");
            let line = std::str::from_utf8(line).map_err(|_| wrong("it is not UTF-8"))?;
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(level) = words.next() else { continue };
            let (Some(hash), None) = (words.next(), words.next()) else {
                return Err(wrong("it must be a level and a hash, as `serpent key` writes it"));
            };
            // An invalid hash may be a key, so it is not shown.
            let hash = unhex(hash).ok_or_else(|| wrong("the hash is not SHA-256 in hexadecimal (64 digits)"))?;
            if keys.levels.insert(keys.blinded(&hash), (hash, level.into())).is_some() {
                return Err(wrong("its key has stood in an earlier line"));
            }
        }
        Ok(keys)
    }

    /// The level of a key.
    pub fn level(&self, key: &[u8]) -> Option<&str> {
        self.find(key).map(|(_, level)| &**level)
    }

    /// The hash of a key, and its level.
    fn find(&self, key: &[u8]) -> Option<&(Hash, Box<str>)> {
        let hash = sha256(key);
        let found = self.levels.get(&self.blinded(&hash))?;
        constant_time::verify_slices_are_equal(&found.0, &hash).ok()?;
        Some(found)
    }

    /// The level of a request: that of the first value that is a key.
    pub(crate) fn level_of(&self, parts: &Parts, header: Option<&HeaderName>, query: Option<&str>) -> Option<&str> {
        self.of_request(parts, header, query).map(|(_, level)| &**level)
    }

    /// The first value of a request that is a key: its hash, and its level.
    pub(crate) fn of_request(
        &self,
        parts: &Parts,
        header: Option<&HeaderName>,
        query: Option<&str>,
    ) -> Option<&(Hash, Box<str>)> {
        let in_header = header.into_iter().flat_map(|name| {
            parts.headers.get_all(name).iter().take(MOST_TRIED).map(move |value| key_in(name, value.as_bytes()))
        });
        let mut in_header = in_header.flatten();
        if let Some(found) = in_header.find_map(|key| self.find(key)) {
            return Some(found);
        }
        in_query(&parts.uri, query?).take(MOST_TRIED).find_map(|key| self.find(key.as_bytes()))
    }

    fn blinded(&self, hash: &Hash) -> [u8; 32] {
        hmac::sign(&self.blind, hash).as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("keys", &self.levels.len()).finish_non_exhaustive()
    }
}

/// The stored form of a key.
pub fn hash(key: &[u8]) -> String {
    sha256(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key in a field. In `Authorization` it follows `Bearer`.
fn key_in<'a>(name: &HeaderName, value: &'a [u8]) -> Option<&'a [u8]> {
    let value = value.trim_ascii();
    if name != header::AUTHORIZATION {
        return Some(value);
    }
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key.trim_ascii())
}

fn in_query<'a>(uri: &'a Uri, name: &'a str) -> impl Iterator<Item = std::borrow::Cow<'a, str>> {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).filter(move |(key, _)| key == name).map(|(_, value)| value)
}

fn sha256(key: &[u8]) -> Hash {
    digest::digest(&digest::SHA256, key).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn unhex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `printf %s secret | sha256sum`
    const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn keys() -> Keys {
        let other = hash(b"other").to_uppercase();
        let text = format!("# keys\n\n gold\t{SECRET}  # of the shop\r\nsilver {other}\nsilver {}", hash(b"third"));
        Keys::parse(text.as_bytes()).expect("a good file")
    }

    fn parts(target: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_key_has_the_level_of_its_hash() {
        let keys = keys();
        assert_eq!(keys.level(b"secret"), Some("gold"));
        assert_eq!(keys.level(b"other"), Some("silver"));
        assert_eq!(keys.level(b"third"), Some("silver"));
        for other in [&b"Secret"[..], b"", b"secret ", SECRET.as_bytes(), b"gold"] {
            assert_eq!(keys.level(other), None);
        }
        assert_eq!(hash(b"secret"), SECRET);
    }

    #[test]
    fn a_key_is_found_where_it_may_stand() {
        let keys = keys();
        let header = HeaderName::from_static("x-api-key");
        let level = |target, fields: &[(&str, &str)]| {
            keys.level_of(&parts(target, fields), Some(&header), Some("key")).map(str::to_owned)
        };
        assert_eq!(level("/", &[("x-api-key", " secret ")]).as_deref(), Some("gold"));
        assert_eq!(level("/", &[("x-api-key", "wrong"), ("x-api-key", "other")]).as_deref(), Some("silver"));
        assert_eq!(level("/?a=b&key=secre%74", &[]).as_deref(), Some("gold"));
        assert_eq!(level("/?key=other", &[("x-api-key", "secret")]).as_deref(), Some("gold"));
        assert_eq!(level("/?key=other", &[("x-api-key", "wrong")]).as_deref(), Some("silver"));
        assert_eq!(level("/?other=secret", &[("authorization", "Bearer secret")]), None);
        assert_eq!(level(&format!("/?{}key=secret", "key=x&".repeat(MOST_TRIED)), &[]), None, "no work without end");
        let bearer = |value| {
            keys.level_of(&parts("/?key=secret", &[("authorization", value)]), Some(&header::AUTHORIZATION), None)
                .is_some()
        };
        assert!(bearer("Bearer secret") && bearer("bearer  secret"));
        assert!(!bearer("secret") && !bearer("Basic secret"));
    }

    #[test]
    fn what_is_no_key_file_is_refused_with_its_line() {
        for (text, message) in [
            ("\ngold", "line 2: it must be a level and a hash"),
            ("gold secret", "line 1: the hash is not SHA-256"),
            ("# x\ngold 00 11", "line 2: it must be a level and a hash"),
            (&format!("gold {}", SECRET.replace('2', "g")), "line 1: the hash is not"),
            (&format!("gold {SECRET}\nsilver {SECRET}"), "line 2: its key has stood in an earlier line"),
            (SECRET, "line 1: it must be"),
        ] {
            let error = Keys::parse(text.as_bytes()).expect_err(text);
            assert!(error.starts_with(message), "{error}");
            assert!(!error.contains("secret") && !error.contains(SECRET), "it may be a key: {error}");
        }
        assert_eq!(Keys::parse(b"\xff x").err().as_deref(), Some("line 1: it is not UTF-8"));
        assert!(!format!("{:?}", keys()).contains("gold"));
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "([a-z#]{0,3}[ \t]?[0-9a-fg\u{e9}]{62,66}\n?){0,3}".prop_map(String::into_bytes),
        ]) {
            let _ = Keys::parse(&text);
        }
    }
}
