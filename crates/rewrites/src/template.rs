//! Targets of redirects and rewrites: a text with parts of the request put in.

use std::fmt;

use classify::{PathPattern, encoded_path};
use http::Uri;
use regex::Regex;

/// The target of a redirect or a rewrite.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
    /// The regular expression whose groups are put in, where there are any.
    regex: Option<Regex>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{host}`: the host that the client asked for, without port.
    Host,
    /// `{path}`: the path as it came.
    Path,
    /// `{query}`: `?` and the query, or nothing; `&` and the query behind another query.
    Query,
    /// `{rest}`: the path behind the prefix of the route.
    Rest,
    /// `{1}`, `{name}`: a group of the route's regular expression.
    Group {
        number: usize,
        name: String,
    },
}

/// The parts of a request that are put in.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The target of the request.
    pub uri: &'a Uri,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Without port.
    pub host: &'a str,
    /// The decoded path.
    pub path: &'a str,
    /// The decoded path behind the prefix of the route.
    pub rest: &'a str,
}

/// The target as it is written in the configuration.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Scheme => f.write_str("{scheme}"),
            Piece::Host => f.write_str("{host}"),
            Piece::Path => f.write_str("{path}"),
            Piece::Query => f.write_str("{query}"),
            Piece::Rest => f.write_str("{rest}"),
            Piece::Group { name, .. } => write!(f, "{{{name}}}"),
        })
    }
}

/// Why a target is none. The text tells the operator what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTarget(pub(crate) String);

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTarget {}

impl Template {
    /// Reads a target. Its placeholders are `{scheme}`, `{host}`, `{path}`, `{query}`, `{uri}` (path and query) and
    /// `{rest}`. If the pattern of the route is a regular expression, its groups are placeholders, too.
    ///
    /// # Errors
    /// An unknown placeholder, or a character that an address cannot have.
    pub(crate) fn new(target: &str, pattern: &PathPattern) -> Result<Self, BadTarget> {
        if let Some(wrong) = target.chars().find(|it| !it.is_ascii_graphic() || matches!(it, '"' | '<' | '>' | '\\')) {
            return Err(BadTarget(format!("an address cannot have {wrong:?}: write it with %-escapes")));
        }
        let regex = match pattern {
            PathPattern::Regex(regex) => Some(regex),
            PathPattern::Prefix(_) | PathPattern::Glob(_) => None,
        };
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
                    let number = regex.and_then(|regex| group(regex, name)).ok_or_else(|| unknown(name, regex))?;
                    pieces.push(Piece::Group { number, name: name.to_owned() });
                }
            }
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        let has_groups = pieces.iter().any(|piece| matches!(piece, Piece::Group { .. }));
        Ok(Self { pieces, regex: regex.filter(|_| has_groups).cloned() })
    }

    /// The target for a request. It is of printable ASCII. A path that a client chose never becomes part of the host: a
    /// slash comes before it where none is. Nor does it add to a query that stands before it.
    pub(crate) fn fill(&self, source: &Source<'_>) -> String {
        let groups = self.regex.as_ref().and_then(|regex| regex.captures(source.path));
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Scheme => filled.push_str(source.scheme),
                Piece::Host => filled.push_str(source.host),
                Piece::Path => push_path(&mut filled, source.uri.path()),
                Piece::Rest => push_path(&mut filled, &encoded_path(source.rest)),
                Piece::Group { number, .. } => {
                    let group = groups.as_ref().and_then(|groups| groups.get(*number));
                    push_path(&mut filled, &encoded_path(group.map_or("", |group| group.as_str())));
                }
                Piece::Query => {
                    if let Some(query) = source.uri.query() {
                        filled.push(if filled.contains('?') { '&' } else { '?' });
                        filled.push_str(query);
                    }
                }
            }
        }
        // Browsers take `//host`, and `/\host`, for another host.
        if filled.starts_with('/') {
            let path = filled.trim_start_matches(['/', '\\']).to_owned();
            filled.truncate(1);
            filled.push_str(&path);
        }
        filled
    }
}

/// The number of a group, by its number or its name.
fn group(regex: &Regex, name: &str) -> Option<usize> {
    match name.parse::<usize>() {
        Ok(number) => (number < regex.captures_len()).then_some(number),
        Err(_) => regex.capture_names().position(|known| known == Some(name)),
    }
}

fn unknown(name: &str, regex: Option<&Regex>) -> BadTarget {
    let groups = match regex.map(|regex| regex.captures_len() - 1) {
        None => " (and the groups of a `path-regex`)".to_owned(),
        Some(0) => ", and `path-regex` has no group".to_owned(),
        Some(groups) => format!(", and {groups} of `path-regex`, as in `{{1}}`"),
    };
    let known = "`{scheme}`, `{host}`, `{path}`, `{query}`, `{uri}` and `{rest}`";
    BadTarget(format!("there is no `{{{name}}}`; there are {known}{groups}"))
}

/// Appends a path that the client chose. It cannot change the host or the query before it.
fn push_path(filled: &mut String, path: &str) {
    if filled.contains('?') {
        for letter in path.chars() {
            match letter {
                '&' => filled.push_str("%26"),
                '+' => filled.push_str("%2B"),
                ';' => filled.push_str("%3B"),
                '=' => filled.push_str("%3D"),
                _ => filled.push(letter),
            }
        }
        return;
    }
    let is_behind_host = filled.find("://").is_some_and(|at| !filled[at + 3..].contains('/'));
    if is_behind_host && !path.is_empty() && !path.starts_with('/') {
        filled.push('/');
    }
    filled.push_str(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_regular_expression_are_put_in() {
        let regex = PathPattern::Regex(Regex::new("(?s)^/(?<year>[0-9]+)/(.*?)(\\.html)?$").unwrap());
        let fill = |target: &str, uri: &str, path: &str| {
            let uri = uri.parse().unwrap();
            let source = Source { uri: &uri, scheme: "http", host: "a.example", path, rest: path };
            Template::new(target, &regex).unwrap().fill(&source)
        };
        for (target, uri, path, expected) in [
            ("/{2}/{year}{3}", "/2024/a.html", "/2024/a.html", "/a/2024.html"),
            ("/{2}{3}", "/2024/a", "/2024/a", "/a"),
            ("{0}", "/2024/a", "/2024/a", "/2024/a"),
            ("/a.php?y={1}{query}", "/2024/a?b=c", "/2024/a", "/a.php?y=2024&b=c"),
            ("/a.php?y={1}{query}", "/2024/a", "/2024/a", "/a.php?y=2024"),
            // The text of a client stays within its place.
            ("/a.php?p={2}", "/2024/x%26admin=1+1", "/2024/x&admin=1+1", "/a.php?p=x%26admin%3D1%2B1"),
            ("/{2}", "/2024/%0d%0aSet-Cookie:a", "/2024/\r\nSet-Cookie:a", "/%0D%0ASet-Cookie:a"),
            ("/{2}", "/2024//evil.example", "/2024//evil.example", "/evil.example"),
            ("https://b.example{2}", "/2024/.evil.example", "/2024/.evil.example", "https://b.example/.evil.example"),
        ] {
            assert_eq!(fill(target, uri, path), expected, "{target} {path}");
        }
        for (target, message) in [
            ("/{4}", "there is no `{4}`; there are"),
            ("/{month}", "and 3 of `path-regex`, as in `{1}`"),
            ("/{-1}", "there is no `{-1}`"),
        ] {
            let error = Template::new(target, &regex).unwrap_err().to_string();
            assert!(error.contains(message), "{target}: {error}");
        }
        let prefix = PathPattern::Prefix("/".to_owned());
        assert!(Template::new("/{1}", &prefix).is_err(), "a prefix has no groups");
    }
}
