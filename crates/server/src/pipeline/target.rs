//! The path of a request: decoded for routes and programs, and as an upstream gets it.

use std::borrow::Cow;

use http::{HeaderValue, header, request::Parts};

use crate::classify::{decoded_path, encoded_path};

/// A path, decoded once for routes and programs ([`decoded_path`]). A path that an upstream may take for `/admin` must
/// not pass a route for `/admin` in disguise.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    raw: &'a str,
    decoded: Cow<'a, str>,
}

/// A broken escape, a NUL, what is no UTF-8, or more `..` than there are parents: the client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPath;

impl<'a> Target<'a> {
    /// Reads the path component of a request target.
    pub(crate) fn parse(raw: &'a str) -> Result<Self, BadPath> {
        decoded_path(raw).map(|decoded| Self { raw, decoded }).ok_or(BadPath)
    }

    /// A path that need not be decoded: the site has no routes.
    pub(crate) fn unread(raw: &'a str) -> Self {
        Self { raw, decoded: Cow::Borrowed(raw) }
    }

    /// The path that patterns are matched against.
    pub(crate) fn decoded(&self) -> &str {
        &self.decoded
    }

    /// The path for an upstream: as it came, unless it had dot segments. `replaced`: what takes the place of a prefix, and the
    /// rest behind that.
    pub(crate) fn forwarded(&self, replaced: Option<(&str, &str)>) -> Cow<'a, str> {
        let Some((prefix, rest)) = replaced else {
            return if climbs(self.raw) {
                Cow::Owned(encoded_path(&self.decoded).into_owned())
            } else {
                Cow::Borrowed(self.raw)
            };
        };
        let rest = encoded_path(rest);
        Cow::Owned(match (prefix.ends_with('/'), rest.strip_prefix('/')) {
            (_, None) if rest.is_empty() => prefix.to_owned(),
            (true, Some(rest)) => format!("{prefix}{rest}"),
            (false, None) => format!("{prefix}/{rest}"),
            _ => format!("{prefix}{rest}"),
        })
    }
}

/// Whether there are dot segments, in whatever writing.
fn climbs(raw: &str) -> bool {
    let is_dots = |segment: &str| {
        let left = segment.replace("%2e", ".").replace("%2E", ".");
        left == "." || left == ".."
    };
    let may = |segment: &&str| matches!(segment.as_bytes().first(), Some(b'.' | b'%'));
    raw.split('/').filter(may).any(is_dots)
}

/// The host as the client asked for it, with its port.
pub(crate) fn host_and_port(parts: &Parts) -> Box<str> {
    let field = || parts.headers.get(header::HOST).and_then(|host: &HeaderValue| host.to_str().ok());
    parts.uri.authority().map(http::uri::Authority::as_str).or_else(field).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_gets_the_path_as_it_came_unless_it_climbs() {
        for (raw, path) in [
            ("/a//b%20c", "/a//b%20c"),
            ("/a%2Fb", "/a%2Fb"),
            ("/x/../a%2fb%20c", "/a%2Fb%20c"),
            ("/x/%2E%2e/y", "/y"),
            ("/.well-known/x", "/.well-known/x"),
            ("/x/../%3Fa%25", "/%3Fa%25"),
        ] {
            assert_eq!(Target::parse(raw).unwrap().forwarded(None), path, "{raw}");
        }
        for (raw, prefix, rest, path) in [
            ("/api/v1", "/", "/v1", "/v1"),
            ("/api/v1", "/base", "/v1", "/base/v1"),
            ("/api/", "/base/", "", "/base/"),
            ("/api", "/", "", "/"),
            ("/api/a%20b", "/", "/a b", "/a%20b"),
            ("/api/x/..//y", "/z", "/y", "/z/y"),
            ("/api/v1", "/base", "v1", "/base/v1"),
        ] {
            assert_eq!(Target::parse(raw).unwrap().forwarded(Some((prefix, rest))), path, "{raw}");
        }
    }
}
