//! The resolved configuration of a classifier.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use heads::ForwardedField;
use http::{HeaderName, Method};
use ipnet::IpNet;
use scheduler::{admission::ResourceId, class::ClassId};

/// The classes and the rules that assign requests to them.
#[derive(Clone, Debug)]
pub struct ClassifierConfig {
    /// The names of the classes, the most important first. Never empty.
    pub classes: Vec<String>,
    /// The class of requests that no rule matches.
    pub default: ClassId,
    /// The rules that assign classes; the first match counts.
    pub rules: Vec<Rule>,
    /// The file of names and passwords, in the format of Apache's `htpasswd`.
    pub users: Option<PathBuf>,
    /// Key values.
    pub keys: Option<KeysConfig>,
    /// The cookie by which a session keeps its class.
    pub session: Option<SessionConfig>,
    /// The proxies whose statement about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The field with that statement. Only one is believed, because a proxy that writes one field passes on
    /// the client's own text in the other.
    pub forwarded: ForwardedField,
}

impl Default for ClassifierConfig {
    /// One class for all requests.
    fn default() -> Self {
        Self {
            classes: vec!["default".to_owned()],
            default: ClassId(0),
            rules: Vec::new(),
            users: None,
            keys: None,
            session: None,
            trusted_proxies: Vec::new(),
            forwarded: ForwardedField::default(),
        }
    }
}

/// A rule: all conditions must hold.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name: the configured one, or `rule N` counted from 1.
    pub name: String,
    /// The class of matching requests.
    pub class: ClassId,
    /// The resource that they mainly need, instead of their route's.
    pub resource: Option<ResourceId>,
    /// Conditions; an empty list matches everything.
    pub conditions: Vec<Condition>,
    /// Whether a session takes this class if it is more important than the session's ("add to basket").
    /// Otherwise the session keeps its class.
    pub raises_session: bool,
}

/// A condition; it holds if one of its values does.
#[derive(Clone, Debug)]
pub enum Condition {
    /// Host names, in lower case, without port; `*.example.org` for those below.
    Host(Vec<String>),
    /// Paths.
    Path(Vec<PathPattern>),
    /// File extensions of the path, in lower case, without dot.
    Extension(Vec<String>),
    /// Methods.
    Method(Vec<Method>),
    /// A key of the query, and its values.
    Query(String, ValueMatch),
    /// A header field, and its values.
    Header(HeaderName, ValueMatch),
    /// A cookie, and its values.
    Cookie(String, ValueMatch),
    /// This server's addresses that the connection came to; port 0 stands for any.
    Destination(Vec<SocketAddr>),
    /// Clients' addresses.
    Client(Vec<IpNet>),
    /// Users with a correct password; an empty list stands for any user.
    User(Vec<String>),
    /// Trusted client certificates, by common name or DNS name of the subject; an empty list stands for any.
    Certificate(Vec<String>),
    /// Levels of key values; an empty list stands for any.
    Key(Vec<String>),
}

/// Values of a key. If it occurs several times, one match is enough.
#[derive(Clone, Debug)]
pub enum ValueMatch {
    /// The key is present.
    Present,
    /// The value is one of these.
    OneOf(Vec<String>),
    /// A regular expression matches in the value.
    Regex(regex::Regex),
}

/// Key values (API keys): a file with a line `LEVEL HASH` each, with SHA-256 in hexadecimal, made by `serpent
/// key`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysConfig {
    /// The file.
    pub file: PathBuf,
    /// The header field with the key.
    pub header: Option<HeaderName>,
    /// The query parameter with the key.
    pub query: Option<String>,
}

/// The cookie by which a session keeps its class.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Its name.
    pub cookie: String,
    /// The file with the signing secret, of at least 32 bytes; `None`: a random one, lost when the process
    /// ends.
    pub secret: Option<PathBuf>,
    /// How long a class is kept.
    pub lifetime: Duration,
    /// Whether the cookie is sent only over TLS (`Secure`).
    pub secure: bool,
}

/// A pattern of request paths, which are decoded and have their dot segments resolved.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// Paths that start with a prefix, which must end at a path segment. `/api` matches `/api` and `/api/x`
    /// but not `/apis`; `/api/` matches paths below it.
    Prefix(String),
    /// Paths that a glob matches as a whole.
    Glob(globset::GlobMatcher),
    /// Paths in which a regular expression matches.
    Regex(regex::Regex),
}

impl PathPattern {
    /// Returns the rest of a path from [`decoded_path`](crate::decoded_path) behind the prefix; `None`: the
    /// pattern does not match. The rest behind `/api` is empty or starts with a slash; behind `/api/` it does
    /// not. Globs and regular expressions remove nothing.
    pub fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self {
            Self::Prefix(prefix) => {
                let rest = path.strip_prefix(prefix.as_str())?;
                let ends_a_segment = prefix.is_empty() || prefix.ends_with('/') || rest.is_empty();
                (ends_a_segment || rest.starts_with('/')).then_some(rest)
            }
            Self::Glob(glob) => glob.is_match(path).then_some(path),
            Self::Regex(regex) => regex.is_match(path).then_some(path),
        }
    }

    /// The pattern's text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Prefix(prefix) => prefix,
            Self::Glob(glob) => glob.glob().glob(),
            Self::Regex(regex) => regex.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_a_segment() {
        for (prefix, path, rest) in [
            ("/api", "/api", Some("")),
            ("/api", "/api/", Some("/")),
            ("/api", "/api/x", Some("/x")),
            ("/api", "/apis", None),
            ("/api", "/v1/api", None),
            ("/api", "/API", None),
            ("/api/", "/api", None),
            ("/api/", "/api/", Some("")),
            ("/api/", "/api/x/y", Some("x/y")),
            ("/", "/", Some("")),
            ("/", "/x", Some("x")),
            ("", "/x", Some("/x")),
        ] {
            assert_eq!(PathPattern::Prefix(prefix.to_owned()).matches(path), rest, "{prefix} {path}");
        }
    }

    #[test]
    fn a_glob_matches_the_whole_path_and_a_regular_expression_a_part() {
        let glob = |text| {
            let glob = globset::GlobBuilder::new(text).literal_separator(true).build().expect("a glob");
            PathPattern::Glob(glob.compile_matcher())
        };
        assert_eq!(glob("/img/*.png").matches("/img/a.png"), Some("/img/a.png"));
        assert_eq!(glob("/img/*.png").matches("/img/x/a.png"), None);
        assert_eq!(glob("/img/*.png").matches("/old/img/a.png"), None);
        assert_eq!(glob("/**/*.png").matches("/img/x/a.png"), Some("/img/x/a.png"));
        let regex = PathPattern::Regex(regex::Regex::new("^/v[0-9]+/").expect("an expression"));
        assert_eq!(regex.matches("/v12/x"), Some("/v12/x"));
        assert_eq!(regex.matches("/x/v12/"), None);
        assert_eq!((glob("/a*").as_str(), regex.as_str()), ("/a*", "^/v[0-9]+/"));
    }
}
