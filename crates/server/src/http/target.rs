//! The path of a request as an upstream gets it, and whether the request goes that far.

use std::{borrow::Cow, ops::ControlFlow};

use http::{HeaderMap, HeaderValue, header::MAX_FORWARDS};

use crate::classify::{decoded_path, encoded_path};

/// A path, decoded once for routes and programs ([`decoded_path`]). What an upstream may take for `/admin` must not pass a route
/// for `/admin` in disguise.
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

    /// What patterns are matched against.
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

/// Counts this server in the `Max-Forwards` of an OPTIONS request (RFC 9110, section 7.6.2). `Break`: the request must not
/// be passed on. A value that is no number stays as it is; of several values the least holds.
pub(super) fn forwards(headers: &mut HeaderMap) -> ControlFlow<()> {
    let number = |value: &HeaderValue| {
        let digits = value.as_bytes();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        // One that is too large stands for the largest.
        is_number.then(|| value.to_str().ok().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX))
    };
    let Some(left) = headers.get_all(MAX_FORWARDS).iter().filter_map(number).min() else {
        return ControlFlow::Continue(());
    };
    let Some(left) = left.checked_sub(1) else { return ControlFlow::Break(()) };
    headers.insert(MAX_FORWARDS, left.into());
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_passed_on_as_often_as_it_says() {
        for (said, left) in [
            (&[][..], Some(&[][..])),
            (&["0"], None),
            (&["00"], None),
            (&["1"], Some(&["0"])),
            (&["10"], Some(&["9"])),
            (&["99999999999999999999"], Some(&["18446744073709551614"])),
            (&["x"], Some(&["x"])),
            (&["-1"], Some(&["-1"])),
            (&[""], Some(&[""])),
            (&["3", "2"], Some(&["1"])),
            (&["3", "0"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(MAX_FORWARDS, HeaderValue::from_static(value));
            }
            let goes_on = forwards(&mut headers).is_continue();
            let found: Vec<_> = headers.get_all(MAX_FORWARDS).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(goes_on.then_some(&*found), left, "{said:?}");
        }
    }

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
