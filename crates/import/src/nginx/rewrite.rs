//! `rewrite`: a route of its own, in front of the one of its location.

use super::{
    location::{Pattern, starts_with},
    state::Translation,
    values,
};
use crate::{
    draft::{Section, Settings, from, table},
    syntax::Directive,
};

/// Expressions that are found in every path.
const EVERY_PATH: &[&str] = &["^", "^/", "/", ".", ".*", "^.*", "^.*$", ".*$", "^/.*", "^/.*$"];

/// The same, and the new path may have the old one in it.
const EVERY_PATH_IN_A_GROUP: &[&str] = &["(.*)", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$"];

/// Whether an expression is found in every path.
pub(super) fn every_path(expression: &str) -> bool {
    EVERY_PATH.contains(&expression) || EVERY_PATH_IN_A_GROUP.contains(&expression)
}

/// Which paths a `rewrite` is about.
struct Found {
    pattern: Pattern,
    /// Those that it is not about.
    unless: Option<String>,
    /// Whether it is about all paths of its location.
    is_all: bool,
}

impl Translation<'_> {
    /// The routes of all `rewrite` of a location, and whether no path is left behind them.
    pub(super) fn rewrites(&mut self, location: &Directive, pattern: &Pattern) -> (Vec<(Pattern, Section)>, bool) {
        let mut routes = Vec::new();
        for rewrite in location.inner().iter().filter(|inner| inner.name == "rewrite") {
            let Some((route, is_all)) = self.rewrite_in(rewrite, Some(pattern)) else { continue };
            routes.push(route);
            if is_all {
                return (routes, true);
            }
        }
        (routes, false)
    }

    /// The route of a `rewrite` for all paths.
    pub(super) fn rewrite(&mut self, rewrite: &Directive) -> Option<(Pattern, Section)> {
        Some(self.rewrite_in(rewrite, None)?.0)
    }

    /// The route of a `rewrite`, and whether it takes all paths of its location.
    fn rewrite_in(&mut self, rewrite: &Directive, location: Option<&Pattern>) -> Option<((Pattern, Section), bool)> {
        match route(rewrite, location) {
            Ok(route) => Some(route),
            Err(reason) => {
                self.leave(rewrite, reason);
                None
            }
        }
    }

    /// A `rewrite` in front of `proxy_pass` that puts another prefix in place of the location's.
    pub(super) fn prefix(&mut self, rewrite: &Directive, pattern: &Pattern, settings: &mut Settings) {
        match pattern.prefix().and_then(|prefix| replaced_prefix(prefix, rewrite.arg(0), rewrite.arg(1))) {
            Some(replaced) => settings.set("replace-prefix", replaced),
            None => self.leave(rewrite, "of the path that an upstream sees only the prefix changes (`replace-prefix`)"),
        }
    }
}

/// What takes the place of a prefix, if a `rewrite` changes that alone.
fn replaced_prefix(prefix: &str, expression: &str, to: &str) -> Option<String> {
    let base = prefix.trim_end_matches('/');
    let before = to.strip_suffix("$1").filter(|before| !values::has_variable(before))?;
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    let behind = expression.strip_prefix(base).or_else(|| expression.strip_prefix(&regex::escape(base)))?;
    let replaced = match behind.strip_suffix('$').unwrap_or(behind) {
        "/(.*)" | "/?(.*)" => before.strip_suffix('/')?,
        // The slash is in the group.
        "(.*)" | "(/.*)" => before,
        _ => return None,
    };
    (replaced.is_empty() || replaced.starts_with('/')).then(|| match prefix.ends_with('/') {
        true => format!("{replaced}/"),
        false if replaced.is_empty() => "/".to_owned(),
        false => replaced.to_owned(),
    })
}

/// The address of a redirect that begins with the first part of the path. `expression`: what the part was found by.
pub(super) fn whole_address(expression: &str, target: &str) -> Result<String, String> {
    // A path begins with a slash, and an address that begins with two of them is of another host.
    let is_begin = ["^(/", "^(.*", "^(.+"].iter().any(|begin| expression.starts_with(begin));
    match target.starts_with("{1}") && is_begin {
        true => Ok(format!("{{scheme}}://{{host}}{target}")),
        false => Err("a part of the path leaves open where clients are sent: begin with `/`".to_owned()),
    }
}

/// An error is the reason why there is no route.
fn route(rewrite: &Directive, location: Option<&Pattern>) -> Result<((Pattern, Section), bool), String> {
    let [from_path, to, flags @ ..] = &rewrite.args[..] else {
        return Err("it has an expression and a path".to_owned());
    };
    let target = values::template(to.trim_end_matches('?'))?;
    // nginx appends the query of the request, unless a `?` ends the new path.
    let query =
        if to.ends_with('?') || target.contains("{query}") || target.contains("{uri}") { "" } else { "{query}" };
    if target.contains('?') && !query.is_empty() {
        return Err("the query of the request cannot be appended to a query that is given".to_owned());
    }
    let has_groups = target.as_bytes().windows(2).any(|two| two[0] == b'{' && two[1].is_ascii_digit());
    let Found { pattern, unless, is_all } = found(from_path, location, has_groups)?;
    let mut section = Section { settings: pattern.settings(), ..Section::new("[[site.route]]") };
    section.comment.push(from(&rewrite.place));
    if let Some(unless) = unless {
        if section.settings.has("unless") {
            return Err("a route has one exception".to_owned());
        }
        section.settings.set("unless", table([("path-regex", unless.into())]));
    }
    let flag = flags.first().map(String::as_str);
    let is_elsewhere = ["http://", "https://", "{scheme}://"].iter().any(|scheme| target.starts_with(scheme));
    let name = if is_elsewhere || matches!(flag, Some("permanent" | "redirect")) { "redirect" } else { "rewrite" };
    let target = match target.starts_with('{') && !is_elsewhere && !target.starts_with("{uri}") {
        false => target,
        true if name == "redirect" => whole_address(from_path, &target)?,
        true => return Err("the new path begins with a part of the old one: begin with `/`".to_owned()),
    };
    match flag {
        Some("permanent") => section.settings.write("redirect-status", "301".to_owned(), None),
        Some("redirect") | None | Some("last" | "break") => {}
        Some(_) => return Err("this flag is not known".to_owned()),
    }
    section.settings.set(name, format!("{target}{query}"));
    Ok(((pattern, section), is_all))
}

/// Which paths of a location the expression of a `rewrite` is about. `has_groups`: the new path has parts of the old one.
fn found(written: &str, location: Option<&Pattern>, has_groups: bool) -> Result<Found, String> {
    if EVERY_PATH.contains(&written) && !has_groups {
        let pattern = location.cloned().unwrap_or(Pattern::Prefix("/".to_owned()));
        return Ok(Found { pattern, unless: None, is_all: true });
    }
    let (expression, unless) = match without_look_ahead(written) {
        Some((expression, unless)) => (values::regex(&expression, false)?, Some(values::regex(&unless, false)?)),
        None => (values::regex(written, false)?, None),
    };
    let is_all = unless.is_none() && EVERY_PATH_IN_A_GROUP.contains(&written);
    let some = |pattern| Ok(Found { pattern, unless: unless.clone(), is_all });
    let Some(location) = location else { return some(Pattern::Expression(expression)) };
    if EVERY_PATH.contains(&expression.as_str()) && !has_groups {
        return some(location.clone());
    }
    let expression = match location {
        Pattern::Exactly(path) => match regex::Regex::new(&expression).is_ok_and(|found| found.is_match(path)) {
            true if !has_groups => return Ok(Found { pattern: location.clone(), unless: None, is_all: true }),
            true if expression.starts_with(&starts_with(path)) => expression,
            true => return Err("write the new path of this one path without groups".to_owned()),
            false => return Err("it does not match the path of its location".to_owned()),
        },
        Pattern::Prefix(path) | Pattern::PrefixFirst(path) => within(path, &expression)?,
        Pattern::Expression(of_location) | Pattern::Inner { expression: of_location, .. } => {
            let before = expression.strip_suffix(of_location.as_str());
            if before.is_none_or(|before| before.contains('|')) {
                return Err("a route has one expression, and the location has its own".to_owned());
            }
            expression
        }
        Pattern::Part { .. } | Pattern::Named(_) => expression,
    };
    some(Pattern::Part { expression, location: Box::new(location.clone()) })
}

/// The expression, confined to paths that begin with a prefix. An error is the reason why that cannot be written.
pub(super) fn within(prefix: &str, expression: &str) -> Result<String, String> {
    let (flags, bare) = match expression.strip_prefix("(?i)") {
        Some(bare) => ("(?i)", bare),
        None => ("", expression),
    };
    let escaped = regex::escape(prefix);
    let has_choice = has_choice(bare);
    let anchored = bare.strip_prefix('^');
    if prefix == "/"
        || !has_choice && anchored.is_some_and(|rest| rest.starts_with(&escaped) || rest.starts_with(prefix))
    {
        return Ok(expression.to_owned());
    }
    let Some(anchored) = anchored else {
        if bare.replace("[^", "").contains('^') {
            return Err("it begins with `^` in a part only".to_owned());
        }
        return Ok(match has_choice || !flags.is_empty() {
            true => format!("^{escaped}.*(?{}:{bare})", flags.trim_matches(['(', '?', ')'])),
            false => format!("^{escaped}.*{bare}"),
        });
    };
    // All of the path in a group.
    let whole = [("(.*)", escaped.as_str()), ("/(.*)", &escaped[1..])];
    for (group, begin) in whole.into_iter().filter(|_| !has_choice) {
        if let Some(rest) = anchored.strip_prefix(group) {
            let slash = &group[..group.len() - "(.*)".len()];
            return Ok(format!("{flags}^{slash}({begin}.*){rest}"));
        }
    }
    Err("its expression does not begin with the path of its location".to_owned())
}

/// Whether an expression is a choice between several.
fn has_choice(expression: &str) -> bool {
    let (mut depth, mut escaped, mut in_class) = (0, false, false);
    expression.chars().any(|c| {
        match (std::mem::take(&mut escaped), c) {
            (true, _) => {}
            (false, '\\') => escaped = true,
            (false, '[') => in_class = true,
            (false, ']') => in_class = false,
            (false, '(') if !in_class => depth += 1,
            (false, ')') if !in_class => depth -= 1,
            (false, '|') => return depth == 0 && !in_class,
            _ => {}
        }
        false
    })
}

/// The place of the bracket that closes a group, in the text behind the one that opens it.
fn end_of_group(behind: &str) -> Option<usize> {
    let (mut depth, mut escaped) = (1, false);
    behind.char_indices().find_map(|(at, c)| {
        match (std::mem::take(&mut escaped), c) {
            (true, _) => {}
            (false, '\\') => escaped = true,
            (false, '(') => depth += 1,
            (false, ')') => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// An expression that is found in more texts, because it does not look around; `None`: the one given does not, either.
pub(super) fn without_looking_around(expression: &str) -> Option<String> {
    let mut wider = expression.to_owned();
    for kind in ["(?!", "(?=", "(?<!", "(?<="] {
        while let Some((before, behind)) = wider.split_once(kind) {
            wider = format!("{before}{}", &behind[end_of_group(behind)? + 1..]);
        }
    }
    (wider != expression).then_some(wider)
}

/// An expression that begins with `^`, plain letters, and what must not follow (`(?!…)`): without that, and what it leaves out.
fn without_look_ahead(expression: &str) -> Option<(String, String)> {
    let (before, behind) = expression.split_once("(?!")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '\\');
    if !before.strip_prefix('^')?.chars().all(is_plain) {
        return None;
    }
    let end = end_of_group(behind)?;
    Some((format!("{before}{}", &behind[end + 1..]), format!("{before}(?:{})", &behind[..end])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_confined_to_a_prefix_or_there_is_a_reason() {
        for (prefix, written, confined) in [
            ("/", r"\.php$", Ok(r"\.php$")),
            ("/a/", r"\.php$", Ok(r"^/a/.*\.php$")),
            ("/a/", r"(?i)\.(jpg|png)$", Ok(r"^/a/.*(?i:\.(jpg|png)$)")),
            ("/a/", r"\.x$|\.y$", Ok(r"^/a/.*(?:\.x$|\.y$)")),
            ("/a/", "^/a/b/(.*)$", Ok("^/a/b/(.*)$")),
            ("/a.b/", r"^/a\.b/(.*)$", Ok(r"^/a\.b/(.*)$")),
            ("/a/", "^(.*)$", Ok("^(/a/.*)$")),
            ("/a/", "^/(.*)$", Ok("^/(a/.*)$")),
            ("/a/", "^/a/(b|c)$", Ok("^/a/(b|c)$")),
            ("/a/", "^/a/b|^/c", Err(())),
            ("/a/", "^/a/b(x)|^/c", Err(())),
            ("/a/", "^/b/(.*)$", Err(())),
            ("/a/", "(^/x|y)", Err(())),
        ] {
            let found = within(prefix, written);
            assert_eq!(found.as_deref().map_err(|_| ()), confined, "{written} in {prefix}");
            if let Ok(found) = found {
                regex::Regex::new(&found).unwrap();
            }
        }
    }

    #[test]
    fn what_an_upstream_sees_in_place_of_a_prefix() {
        for (prefix, expression, to, replaced) in [
            ("/api/", "^/api/(.*)$", "/$1", Some("/")),
            ("/api/", "^/api/(.*)$", "/v1/$1", Some("/v1/")),
            ("/api", "^/api/(.*)$", "/v1/$1", Some("/v1")),
            ("/api", "/api/(.*)", "/$1", Some("/")),
            ("/api", "^/api/?(.*)$", "/$1", Some("/")),
            ("/api", "^/api(/.*)$", "$1", Some("/")),
            ("/api/", "^/api(.*)$", "/v1$1", Some("/v1/")),
            ("/a.b/", r"^/a\.b/(.*)$", "/$1", Some("/")),
            ("/api/", "^/other/(.*)$", "/$1", None),
            ("/api/", "^/api/([0-9]+)$", "/n/$1", None),
            ("/api/", "^/api/(.*)$", "/$uri/$1", None),
            ("/api/", "^/api/(.*)$", "/v1-$1", None),
        ] {
            assert_eq!(replaced_prefix(prefix, expression, to).as_deref(), replaced, "{expression} in {prefix}");
        }
    }

    #[test]
    fn what_must_not_follow_is_an_exception() {
        let both = |expression: &str, unless: &str| Some((expression.to_owned(), unless.to_owned()));
        for (written, found) in [
            ("^/(?!static)(.*)$", both("^/(.*)$", "^/(?:static)")),
            (r"^/(?!index|ocs\/v[12]|.+\/x(_y)?\/p)", both("^/", r"^/(?:index|ocs\/v[12]|.+\/x(_y)?\/p)")),
            (r"^/(?!a\))b", both("^/b", r"^/(?:a\))")),
            ("/(?!a)", None),
            ("^/.*(?!a)", None),
            ("^/(?!a", None),
            ("^/a", None),
        ] {
            assert_eq!(without_look_ahead(written), found, "{written}");
        }
    }
}
