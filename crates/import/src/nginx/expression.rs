//! Regular expressions of locations and rewrites: what they find, and the same confined to a location.

use super::values;

/// Expressions that are found in every path.
pub(super) const EVERY_PATH: &[&str] = &["^", "^/", "/", ".", ".*", "^.*", "^.*$", ".*$", "^/.*", "^/.*$"];

/// The same, and the new path may have the old one in it.
pub(super) const EVERY_PATH_IN_A_GROUP: &[&str] = &["(.*)", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$"];

/// Whether an expression is found in every path.
pub(super) fn every_path(expression: &str) -> bool {
    EVERY_PATH.contains(&expression) || EVERY_PATH_IN_A_GROUP.contains(&expression)
}

/// The expression of all paths that begin with this one.
pub(super) fn starts_with(path: &str) -> String {
    format!("^{}", regex::escape(path))
}

/// The prefix that a `rewrite` puts in place of this one, if it changes that alone.
pub(super) fn replaced_prefix(prefix: &str, expression: &str, to: &str) -> Option<String> {
    let base = prefix.trim_end_matches('/');
    let before = to.strip_suffix("$1").filter(|before| !values::has_variable(before))?;
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    let of_base = |base: &str| {
        let behind = expression.strip_prefix(base).or_else(|| expression.strip_prefix(&regex::escape(base)))?;
        Some(behind.to_owned()).filter(|behind| behind.starts_with(['(', '/']))
    };
    // `/a(.*)` in the location `/a/b/` changes the begin of the prefix alone.
    let ends = base.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    let (kept, behind) =
        std::iter::once(base.len()).chain(ends.collect::<Vec<_>>().into_iter().rev()).find_map(|end| {
            of_base(&base[..end])
                .filter(|behind| end == base.len() || behind.starts_with('('))
                .map(|it| (&base[end..], it))
        })?;
    let behind = behind.as_str();
    let replaced = match behind.strip_suffix('$').unwrap_or(behind) {
        "/(.*)" | "/?(.*)" => before.strip_suffix('/')?,
        // The slash is in the group.
        "(.*)" | "(/.*)" => before,
        _ => return None,
    };
    let is_path = replaced.is_empty() || replaced.starts_with('/');
    let replaced = format!("{replaced}{kept}");
    is_path.then(|| match prefix.ends_with('/') {
        true => format!("{replaced}/"),
        false if replaced.is_empty() => "/".to_owned(),
        false => replaced,
    })
}

/// The address of a redirect that begins with the first part of the path. `expression`: what the part was found by.
pub(super) fn whole_address(expression: &str, target: &str) -> Result<String, String> {
    // A path begins with a slash, and an address that begins with two of them is of another host.
    let is_begin = ["^(/", "^(.*", "^(.+"].iter().any(|begin| expression.starts_with(begin));
    // A part may be empty. The text behind it then must not make the name of the host longer.
    let ends_host = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?']) || rest.starts_with("{query}");
    let has_slash = expression.strip_prefix("^(.*/)").is_some_and(|rest| !rest.starts_with(['?', '*', '{']));
    match target.strip_prefix("{1}").filter(|rest| is_begin && (has_slash || ends_host(rest))) {
        Some(_) => Ok(format!("{{scheme}}://{{host}}{target}")),
        None => Err("a part of the path leaves open where clients are sent: begin with `/`".to_owned()),
    }
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
    for slash in ["", "/"] {
        if let (false, Some(begin), Some(rest)) = (
            has_choice,
            escaped.strip_prefix(slash),
            anchored.strip_prefix(slash).and_then(|it| it.strip_prefix("(.*)")),
        ) {
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
            if before.ends_with('\\') || before.rfind('[') > before.rfind(']') {
                // It is text here, or may be.
                return None;
            }
            wider = format!("{before}{}", &behind[end_of_group(behind)? + 1..]);
        }
    }
    (wider != expression).then_some(wider)
}

/// An expression that begins with `^`, plain letters, and what must not follow (`(?!…)`): without that, and what it
/// leaves out.
pub(super) fn without_look_ahead(expression: &str) -> Option<(String, String)> {
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
            ("", "^/a|^/b", Err(())),
            ("\u{e9}", "^/(.*)|x", Err(())),
        ] {
            let found = within(prefix, written);
            assert_eq!(found.as_deref().map_err(|_| ()), confined, "{written} in {prefix}");
            if let Ok(found) = found {
                regex::Regex::new(&found).unwrap();
            }
        }
    }

    #[test]
    fn an_address_stays_at_its_host() {
        for (expression, target, is_sound) in [
            ("^(.*)/index.html$", "{1}/", true),
            ("^(/.*)/index.html$", "{1}", true),
            ("^(.*/)index.php/(.*)", "{1}{2}", true),
            ("^(.*)/to/(.*)$", "{1}{2}", false),
            ("^(/x)?(.*)$", "{1}{2}", false),
            ("^(.*/)?to(.*)$", "{1}{2}", false),
            ("^/(.*)$", "{1}/", false),
            ("^(.*)$", "{2}/", false),
        ] {
            assert_eq!(whole_address(expression, target).is_ok(), is_sound, "{expression} {target}");
        }
    }

    #[test]
    fn what_is_found_without_looking_around_is_more_or_nothing() {
        for (written, wider) in [
            (r"/(\.(?!well-known).*)", Some(r"/(\..*)")),
            ("^/a(?=b(?!c))d", Some("^/ad")),
            ("(?<!x)y", Some("y")),
            (r"\(?!x(?=y)", None),
            ("[(?!](?=y)", None),
            ("(?!x", None),
            ("a(b)", None),
        ] {
            assert_eq!(without_looking_around(written).as_deref(), wider, "{written}");
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
            ("/api/admin/", "/api(.*)", "$1", Some("/admin/")),
            ("/api/admin", "^/api(/.*)$", "/v1$1", Some("/v1/admin")),
            ("/api/admin/", "^/ap(.*)", "$1", None),
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
