//! `redirect` of a route: where its requests are sent.

use std::fmt;

use http::{HeaderValue, StatusCode, Uri};

use crate::classify::encoded_path;

/// Sends requests to another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    target: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{host}`: the host that the client asked for, without port.
    Host,
    /// `{path}`: the path as it came.
    Path,
    /// `{query}`: `?` and the query, or nothing.
    Query,
    /// `{rest}`: the path behind the prefix of the route.
    Rest,
}

/// The target as it is written in the configuration.
impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Scheme => f.write_str("{scheme}"),
            Piece::Host => f.write_str("{host}"),
            Piece::Path => f.write_str("{path}"),
            Piece::Query => f.write_str("{query}"),
            Piece::Rest => f.write_str("{rest}"),
        })
    }
}

/// Why a target is none. The text tells the operator what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTarget(String);

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTarget {}

impl Redirect {
    /// The status where none is given: the client comes here again next time.
    pub const DEFAULT_STATUS: StatusCode = StatusCode::FOUND;
    /// The statuses that send a client elsewhere (RFC 9110, section 15.4).
    pub const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

    /// Reads a target: an absolute path, or an address with `http://`, `https://` or `{scheme}://`, with the placeholders
    /// `{scheme}`, `{host}`, `{path}`, `{query}`, `{uri}` (path and query) and `{rest}`.
    ///
    /// # Errors
    /// An unknown placeholder, a character that an address cannot have, or a beginning that leaves open where clients are sent.
    pub fn new(target: &str, status: StatusCode) -> Result<Self, BadTarget> {
        if let Some(wrong) = target.chars().find(|it| !it.is_ascii_graphic() || matches!(it, '"' | '<' | '>' | '\\')) {
            return Err(BadTarget(format!("an address cannot have {wrong:?}: write it with %-escapes")));
        }
        let mut pieces = Vec::new();
        let mut rest = target;
        while let Some((text, behind)) = rest.split_once('{') {
            let (name, behind) =
                behind.split_once('}').ok_or_else(|| BadTarget(format!("`{{{behind}` has no `}}` at its end")))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(text.to_owned()));
            }
            match name {
                "scheme" => pieces.push(Piece::Scheme),
                "host" => pieces.push(Piece::Host),
                "path" => pieces.push(Piece::Path),
                "query" => pieces.push(Piece::Query),
                "uri" => pieces.extend([Piece::Path, Piece::Query]),
                "rest" => pieces.push(Piece::Rest),
                _ => {
                    let known = "`{scheme}`, `{host}`, `{path}`, `{query}`, `{uri}` and `{rest}`";
                    return Err(BadTarget(format!("there is no `{{{name}}}`; there are {known}")));
                }
            }
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        let is_path = target.starts_with('/') && !target.starts_with("//");
        let has_host = |behind: &str| !behind.is_empty() && !behind.starts_with(['/', '?', '#']);
        let known_host = |behind: &str| has_host(behind) && (!behind.starts_with('{') || behind.starts_with("{host}"));
        let behind = ["http://", "https://", "{scheme}://"].iter().find_map(|scheme| target.strip_prefix(scheme));
        if !is_path && !behind.is_some_and(known_host) {
            let help = "begin with `/`, or with `https://` and a host, which may be `{host}`";
            return Err(BadTarget(format!("`{target}` leaves open where clients are sent: {help}")));
        }
        Ok(Self { status, target: pieces })
    }

    /// The `Location` for a request. `host` has no port; `rest` is the decoded path behind the prefix of the route.
    ///
    /// A path that a client chose never becomes part of the host: a slash comes before it where none is.
    pub(crate) fn location(&self, uri: &Uri, scheme: &str, host: &str, rest: &str) -> HeaderValue {
        let mut location = String::new();
        for piece in &self.target {
            match piece {
                Piece::Text(text) => location.push_str(text),
                Piece::Scheme => location.push_str(scheme),
                Piece::Host => location.push_str(host),
                Piece::Path => push_path(&mut location, uri.path()),
                Piece::Rest => push_path(&mut location, &encoded_path(rest)),
                Piece::Query => {
                    if let Some(query) = uri.query() {
                        location.push('?');
                        location.push_str(query);
                    }
                }
            }
        }
        // Browsers take `//host`, and `/\host`, for another host.
        if location.starts_with('/') {
            let path = location.trim_start_matches(['/', '\\']).to_owned();
            location.truncate(1);
            location.push_str(&path);
        }
        // Path and host were checked with the head, so this is sound.
        HeaderValue::try_from(location).unwrap_or(HeaderValue::from_static("/"))
    }
}

/// Appends a path that the client chose. It cannot change the host before it.
fn push_path(location: &mut String, path: &str) {
    let is_behind_host = location.find("://").is_some_and(|at| !location[at + 3..].contains('/'));
    if is_behind_host && !path.is_empty() && !path.starts_with('/') {
        location.push('/');
    }
    location.push_str(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(target: &str, uri: &str, rest: &str) -> String {
        let redirect = Redirect::new(target, Redirect::DEFAULT_STATUS).unwrap();
        redirect.location(&uri.parse().unwrap(), "http", "a.example", rest).to_str().unwrap().to_owned()
    }

    #[test]
    fn placeholders_stand_for_parts_of_the_request() {
        for (target, uri, rest, expected) in [
            ("https://{host}{uri}", "/a%20b?c=d", "/b", "https://a.example/a%20b?c=d"),
            ("{scheme}://new.example{path}", "/a?b", "/a", "http://new.example/a"),
            ("/new{rest}{query}", "/old/x%20y?z", "/x y", "/new/x%20y?z"),
            ("/new{rest}{query}", "/old", "", "/new"),
            ("/gone", "/old", "", "/gone"),
        ] {
            assert_eq!(location(target, uri, rest), expected, "{target}");
        }
    }

    #[test]
    fn no_client_chooses_the_host() {
        for (target, uri, rest, expected) in [
            ("/{rest}", "/old//evil.example", "/evil.example", "/evil.example"),
            ("/{rest}", "/old/\\evil.example", "\\evil.example", "/%5Cevil.example"),
            ("https://new.example{rest}", "/old/.evil.example", ".evil.example", "https://new.example/.evil.example"),
            ("https://new.example{rest}", "/old/@evil.example", "@evil.example", "https://new.example/@evil.example"),
            ("https://{host}{path}", "//evil.example", "", "https://a.example//evil.example"),
        ] {
            assert_eq!(location(target, uri, rest), expected, "{target}");
        }
        for target in
            ["//new.example", "{path}", "{rest}/x", "https://{path}", "https:///x", "https://", "ftp://a", "new", ""]
        {
            assert!(Redirect::new(target, Redirect::DEFAULT_STATUS).is_err(), "{target}");
        }
    }

    #[test]
    fn a_wrong_target_is_explained() {
        for (target, message) in [
            ("/{paht}", "there is no `{paht}`; there are"),
            ("/{path", "has no `}`"),
            ("/a b", "an address cannot have ' '"),
            ("/ä", "an address cannot have 'ä'"),
        ] {
            let error = Redirect::new(target, Redirect::DEFAULT_STATUS).unwrap_err().to_string();
            assert!(error.contains(message), "{target}: {error}");
        }
    }
}
