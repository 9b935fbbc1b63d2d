//! Paths as patterns match them.

use std::borrow::Cow;

/// A request's path for routes and rules: decoded, and with empty and dot segments resolved. `None`: it is no
/// path or not UTF-8, so no pattern matches it. `%2F` and `%25` stay encoded, because a slash within a name
/// does not separate names.
pub fn decoded_path(raw: &str) -> Option<Cow<'_, str>> {
    files::pattern_path(raw)
}

/// Encodes a path from [`decoded_path`], or a part of one, for a request target.
pub fn encoded_path(decoded: &str) -> Cow<'_, str> {
    files::encode_pattern_path(decoded)
}
