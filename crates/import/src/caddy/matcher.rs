//! Matchers: which requests a directive is for.

use std::collections::HashMap;

use super::values;
use crate::{draft::Settings, syntax::Directive};

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    All,
    /// Paths that begin with it; without a slash at its end, the path itself and all below it.
    Prefix(String),
    Exactly(String),
    Expression(String),
}

/// The requests that a matcher takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Paths of all clients.
    Paths(Vec<Pattern>),
    /// Paths, of clients that have one of these addresses, or none of them.
    Clients { paths: Vec<Pattern>, networks: Vec<String>, are_excluded: bool },
    /// No request of this site.
    None,
    /// There is no counterpart, for this reason.
    Unknown(String),
}

/// Named matchers, by their names with the `@`.
pub type Named<'a> = HashMap<&'a str, &'a Directive>;

impl Pattern {
    /// A path as Caddy matches it: exactly, but for `*`.
    pub fn read(path: &str) -> Self {
        match path.strip_suffix('*') {
            _ if path == "*" || path == "/*" => Self::All,
            Some(prefix) if !prefix.contains('*') && prefix.starts_with('/') => Self::Prefix(prefix.to_owned()),
            None if !path.contains('*') => Self::Exactly(path.to_owned()),
            _ => {
                let begin = if path.starts_with('/') { "^" } else { "" };
                let end = if path.ends_with('*') { "" } else { "$" };
                let inner = path.trim_end_matches('*').trim_start_matches(|c| begin.is_empty() && c == '*');
                let parts: Vec<String> = inner.split('*').map(regex::escape).collect();
                Self::Expression(format!("{begin}{}{end}", parts.join("[^/]*")))
            }
        }
    }

    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        match self {
            Self::All => settings.set("path", "/"),
            Self::Prefix(path) => settings.set("path", path.as_str()),
            Self::Exactly(path) => settings.set("path-regex", format!("^{}$", regex::escape(path))),
            Self::Expression(expression) => settings.set("path-regex", expression.as_str()),
        }
        settings
    }

    /// The place among directives of one name: longer paths first, what takes all last.
    pub fn order(&self) -> (u8, usize) {
        match self {
            Self::Exactly(path) => (0, usize::MAX - path.len()),
            Self::Prefix(path) => (1, usize::MAX - path.len()),
            Self::Expression(_) => (2, 0),
            Self::All => (3, 0),
        }
    }

    fn path(&self) -> Option<&str> {
        match self {
            Self::Prefix(path) | Self::Exactly(path) => Some(path),
            Self::All | Self::Expression(_) => None,
        }
    }

    /// Whether each path of the other is one of this, as far as that is plain.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Prefix(outer), Self::Prefix(inner)) => inner.starts_with(outer.as_str()),
            (Self::Prefix(outer), Self::Exactly(inner)) => {
                inner.starts_with(outer.as_str()) || outer.ends_with('/') && inner == outer.trim_end_matches('/')
            }
            _ => self == other,
        }
    }

    /// This pattern inside of a block for `outer`, from whose paths `stripped` was taken. `None`: it has no plain form.
    pub fn within(self, outer: &Self, stripped: &str) -> Option<Self> {
        let whole = match self {
            Self::All => return Some(outer.clone()),
            Self::Prefix(path) => Self::Prefix(format!("{stripped}{path}")),
            Self::Exactly(path) => Self::Exactly(format!("{stripped}{path}")),
            Self::Expression(_) if !stripped.is_empty() || *outer != Self::All => return None,
            expression => expression,
        };
        outer.covers(&whole).then_some(whole)
    }

    /// The prefix in place of this one where `stripped` is taken away and `added` put in front; `None`: it stays.
    pub fn replaced(&self, stripped: &str, added: &str) -> Result<Option<String>, ()> {
        if stripped.is_empty() && added.is_empty() {
            return Ok(None);
        }
        let path = match self {
            Self::All => "/",
            Self::Prefix(path) => path,
            _ => return Err(()),
        };
        let rest = path.strip_prefix(stripped).ok_or(())?;
        Ok(Some(format!("{added}{}", if rest.is_empty() { "/" } else { rest })))
    }

    /// The prefix in place of one below this one, where `replaced`, in TOML, takes the place of this one.
    pub fn replaced_below(&self, replaced: &str, below: &Self) -> Option<String> {
        let outer = match self {
            Self::All => "/",
            Self::Prefix(path) => path,
            _ => return None,
        };
        match below {
            Self::Prefix(path) if path.ends_with('/') => {
                Some(format!("{}{}", replaced.trim_matches('"'), path.strip_prefix(outer)?))
            }
            _ => None,
        }
    }

    /// A prefix of which a part is replaced ends in a slash.
    pub fn with_slash(self) -> Self {
        match self {
            Self::Prefix(path) if !path.ends_with('/') => Self::Prefix(format!("{path}/")),
            other => other,
        }
    }

    /// The paths of a request for a handler that takes its prefix away.
    pub fn stripped(&self) -> Option<&str> {
        self.path().map(|path| path.trim_end_matches('/'))
    }
}

/// The matcher of a directive, and its other arguments. `hosts` are those of the site.
pub fn of<'d>(directive: &'d Directive, named: &Named<'_>, hosts: &[String]) -> (Match, &'d [String]) {
    let (first, rest) = match directive.args.split_first() {
        Some((first, rest)) => (first.as_str(), rest),
        None => return (Match::Paths(vec![Pattern::All]), &[]),
    };
    match first.chars().next() {
        Some('@') => match named.get(first) {
            Some(definition) => (defined(definition, hosts), rest),
            None => (Match::Unknown(format!("there is no matcher `{first}`")), rest),
        },
        Some('/' | '*') => (Match::Paths(vec![Pattern::read(first)]), rest),
        _ => (Match::Paths(vec![Pattern::All]), &directive.args),
    }
}

/// The hosts that matchers tell apart, each set once.
pub fn hosts_of(named: &Named<'_>) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut definitions: Vec<_> = named.values().collect();
    definitions.sort_by_key(|definition| &definition.place);
    for (kind, values) in definitions.into_iter().flat_map(|definition| conditions(definition)) {
        let values: Vec<String> = values.iter().map(|host| host.to_ascii_lowercase()).collect();
        if kind == "host" && !all.contains(&values) {
            all.push(values);
        }
    }
    all
}

/// The conditions of a matcher, all of which must hold.
fn conditions(definition: &Directive) -> Vec<(&str, Vec<String>)> {
    match definition.args.split_first() {
        Some((kind, values)) => vec![(kind, values.to_vec())],
        None => definition.inner().iter().map(|line| (line.name.as_str(), line.args.clone())).collect(),
    }
}

fn defined(definition: &Directive, hosts: &[String]) -> Match {
    let mut paths: Option<Vec<Pattern>> = None;
    let mut clients: Option<(Vec<String>, bool)> = None;
    for (kind, values) in conditions(definition) {
        match (kind, values.first().map_or("", String::as_str)) {
            ("path", _) if paths.is_none() => paths = Some(values.iter().map(|path| Pattern::read(path)).collect()),
            ("path_regexp", _) if paths.is_none() => {
                let expression = values.last().cloned().unwrap_or_default();
                if regex::Regex::new(&expression).is_err() {
                    return Match::Unknown("this regular expression cannot be read".to_owned());
                }
                paths = Some(vec![Pattern::Expression(expression)]);
            }
            ("host", _) => {
                let is_one = |host: &String| values.iter().any(|value| value.eq_ignore_ascii_case(host));
                if hosts.is_empty() || !hosts.iter().all(is_one) {
                    return Match::None;
                }
            }
            ("remote_ip" | "client_ip", _) if clients.is_none() => clients = Some((networks(&values), false)),
            ("not", "remote_ip" | "client_ip") if clients.is_none() => clients = Some((networks(&values[1..]), true)),
            ("protocol", "https") => {}
            ("header" | "header_regexp" | "method" | "query" | "vars" | "expression" | "protocol" | "tls", _) => {
                return Match::Unknown(format!(
                    "a route is chosen by path, not by `{kind}`; rules put requests into classes by header, method and \
                     query"
                ));
            }
            ("file", _) => return Match::Unknown("files are looked for by `try_files` only".to_owned()),
            ("not", _) => return Match::Unknown("only addresses are negated: `allow` and `deny`".to_owned()),
            _ => return Match::Unknown(format!("the matcher `{kind}` has no counterpart")),
        }
    }
    let paths = paths.unwrap_or_else(|| vec![Pattern::All]);
    match clients {
        None => Match::Paths(paths),
        Some((networks, are_excluded)) => Match::Clients { paths, networks, are_excluded },
    }
}

fn networks(values: &[String]) -> Vec<String> {
    let each = |value: &String| match value.as_str() {
        "private_ranges" => values::PRIVATE.map(str::to_owned).to_vec(),
        "forwarded" => Vec::new(),
        value => vec![value.to_owned()],
    };
    values.iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_exactly_but_for_stars() {
        for (path, pattern) in [
            ("*", Pattern::All),
            ("/api/*", Pattern::Prefix("/api/".into())),
            ("/api*", Pattern::Prefix("/api".into())),
            ("/health", Pattern::Exactly("/health".into())),
            ("*.php", Pattern::Expression("\\.php$".into())),
            ("/a/*/b", Pattern::Expression("^/a/[^/]*/b$".into())),
            ("/a/*/b*", Pattern::Expression("^/a/[^/]*/b".into())),
        ] {
            assert_eq!(Pattern::read(path), pattern, "{path}");
        }
    }

    #[test]
    fn patterns_in_blocks_are_whole_paths() {
        let api = Pattern::Prefix("/api/".into());
        let inner = Pattern::Prefix("/v1/".into());
        assert_eq!(inner.clone().within(&api, "/api"), Some(Pattern::Prefix("/api/v1/".into())));
        assert_eq!(inner.within(&api, ""), None);
        assert_eq!(Pattern::All.within(&api, ""), Some(api.clone()));
        assert_eq!(api.replaced("/api", ""), Ok(Some("/".into())));
        assert_eq!(api.replaced("/api", "/v2"), Ok(Some("/v2/".into())));
        assert_eq!(api.replaced("", "/v2"), Ok(Some("/v2/api/".into())));
        assert_eq!(Pattern::All.replaced("", ""), Ok(None));
        assert_eq!(Pattern::Exactly("/a".into()).replaced("/a", ""), Err(()));
    }
}
