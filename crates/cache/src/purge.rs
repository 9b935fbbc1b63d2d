//! Which stored responses are given up, and the keys by which they are found.

/// A purge: the stored responses that are given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Of this host only, with its port if it is not the usual one.
    pub host: Option<String>,
    /// Which responses: all, or those of a path, a prefix or a tag.
    pub what: What,
}

/// Which responses of a host are given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum What {
    /// All.
    #[default]
    All,
    /// Those of this path, whatever their query.
    Path(String),
    /// Those whose path begins like this.
    Prefix(String),
    /// Those with this tag (`Cache-Tag`, `Surrogate-Key`).
    Tag(String),
}

/// The parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    host: &'a str,
    path: &'a str,
}

/// The key of a target: the same for all requests that ask for the same.
pub fn key(scheme: &str, host: &str, path_and_query: &str) -> String {
    let mut key = String::with_capacity(scheme.len() + host.len() + path_and_query.len() + 3);
    key.push_str(scheme);
    key.push_str("://");
    let at = key.len();
    key.push_str(host);
    key[at..].make_ascii_lowercase();
    key.push_str(path_and_query);
    key
}

pub(crate) fn target_of(key: &str) -> Target<'_> {
    let rest = key.split_once("://").map_or("", |(_, rest)| rest);
    let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Target { host, path: target.split('?').next().unwrap_or_default() }
}

impl Purge {
    pub(crate) fn is_by_tag(&self) -> bool {
        matches!(self.what, What::Tag(_))
    }

    pub(crate) fn matches(&self, target: Target<'_>, tags: &[Box<str>]) -> bool {
        self.host.as_ref().is_none_or(|host| host.eq_ignore_ascii_case(target.host))
            && match &self.what {
                What::All => true,
                What::Path(path) => target.path == path,
                What::Prefix(prefix) => target.path.starts_with(prefix),
                What::Tag(tag) => tags.iter().any(|other| **other == **tag),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_by_host_path_prefix_or_tag() {
        let key = key("https", "Example.org:8443", "/a/b?c=/d");
        let target = target_of(&key);
        assert_eq!(target, Target { host: "example.org:8443", path: "/a/b" });
        let tags = ["t".into()];
        for (host, what, expected) in [
            (None, What::All, true),
            (Some("EXAMPLE.org:8443"), What::All, true),
            (Some("example.org"), What::All, false),
            (None, What::Path("/a/b".into()), true),
            (None, What::Path("/a".into()), false),
            (None, What::Prefix("/a".into()), true),
            (None, What::Prefix("/b".into()), false),
            (None, What::Tag("t".into()), true),
            (None, What::Tag("u".into()), false),
        ] {
            let purge = Purge { host: host.map(Into::into), what };
            assert_eq!(purge.matches(target, &tags), expected, "{purge:?}");
        }
    }
}
