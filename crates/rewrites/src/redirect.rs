//! `redirect` and `rewrite` of a route: where its requests are sent, and as which path they go on.

use std::fmt;

use classify::PathPattern;
use http::{HeaderValue, StatusCode, uri::PathAndQuery};

use crate::template::{BadTarget, Source, Template};

/// Sends requests to another address.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The status: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    target: Template,
}

/// Has requests go on with another path.
#[derive(Clone, Debug)]
pub struct Rewrite {
    target: Template,
}

/// The target as it is written in the configuration.
impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

/// The target as it is written in the configuration.
impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Redirect {
    /// The status where none is given: the client comes here again next time.
    pub const DEFAULT_STATUS: StatusCode = StatusCode::FOUND;
    /// The statuses that send a client elsewhere (RFC 9110, section 15.4).
    pub const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

    /// To the same address with TLS, on this port. The method stays.
    pub fn to_https(port: u16) -> Self {
        let target = match port {
            443 => "https://{host}{uri}".to_owned(),
            port => format!("https://{{host}}:{port}{{uri}}"),
        };
        let every = PathPattern::Prefix(String::new());
        Self::new(&target, StatusCode::PERMANENT_REDIRECT, &every).expect("a target that is known to be sound")
    }

    /// Reads a target: an absolute path, or an address with `http://`, `https://` or `{scheme}://`, with placeholders and
    /// the groups of the pattern.
    ///
    /// # Errors
    /// An unknown placeholder, a character that an address cannot have, or a beginning that leaves open where clients are sent.
    pub fn new(target: &str, status: StatusCode, pattern: &PathPattern) -> Result<Self, BadTarget> {
        let template = Template::new(target, pattern)?;
        let has_host = |behind: &str| !behind.is_empty() && !behind.starts_with(['/', '?', '#']);
        let known_host = |behind: &str| has_host(behind) && (!behind.starts_with('{') || behind.starts_with("{host}"));
        let behind = ["http://", "https://", "{scheme}://"].iter().find_map(|scheme| target.strip_prefix(scheme));
        if !is_path(target) && !behind.is_some_and(known_host) {
            let help = match target.parse::<u16>() {
                Ok(_) => "give the address; the status stands in `redirect-status`",
                Err(_) => "begin with `/`, or with `https://` and a host, which may be `{host}`",
            };
            return Err(BadTarget(format!("`{target}` leaves open where clients are sent: {help}")));
        }
        Ok(Self { status, target: template })
    }

    /// The `Location` for a request.
    pub fn location(&self, source: &Source<'_>) -> HeaderValue {
        // Path and host were checked with the head, so this is sound.
        HeaderValue::try_from(self.target.fill(source)).unwrap_or(HeaderValue::from_static("/"))
    }
}

impl Rewrite {
    /// Reads a target: an absolute path, which may have a query, with placeholders and the groups of the pattern.
    ///
    /// # Errors
    /// An unknown placeholder, or no path.
    pub fn new(target: &str, pattern: &PathPattern) -> Result<Self, BadTarget> {
        let template = Template::new(target, pattern)?;
        if !is_path(target) || target.contains('#') {
            return Err(BadTarget(format!("`{target}` is no path of this site: begin with `/`, and leave out `#`")));
        }
        Ok(Self { target: template })
    }

    /// The path for a request; `None`: it is too long to be one.
    pub fn path(&self, source: &Source<'_>) -> Option<PathAndQuery> {
        PathAndQuery::try_from(self.target.fill(source)).ok()
    }
}

fn is_path(target: &str) -> bool {
    target.starts_with('/') && !target.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> PathPattern {
        PathPattern::Prefix("/old".to_owned())
    }

    fn location(target: &str, uri: &str, rest: &str) -> String {
        let redirect = Redirect::new(target, Redirect::DEFAULT_STATUS, &prefix()).unwrap();
        let uri = uri.parse().unwrap();
        let source = Source { uri: &uri, scheme: "http", host: "a.example", path: uri.path(), rest };
        redirect.location(&source).to_str().unwrap().to_owned()
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
            assert!(Redirect::new(target, Redirect::DEFAULT_STATUS, &prefix()).is_err(), "{target}");
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
            let error = Redirect::new(target, Redirect::DEFAULT_STATUS, &prefix()).unwrap_err().to_string();
            assert!(error.contains(message), "{target}: {error}");
        }
    }

    #[test]
    fn a_rewrite_stays_on_the_site() {
        for target in ["https://a.example/", "//a", "a", "", "{path}", "/a#b"] {
            assert!(Rewrite::new(target, &prefix()).is_err(), "{target}");
        }
        let rewrite = Rewrite::new("/index.php?path={rest}{query}", &prefix()).unwrap();
        let uri = "/old/a?b".parse().unwrap();
        let source = Source { uri: &uri, scheme: "http", host: "", path: "/old/a", rest: "/a" };
        assert_eq!(rewrite.path(&source).unwrap(), "/index.php?path=/a&b");
    }
}
