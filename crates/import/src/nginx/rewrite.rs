//! `rewrite`: a route of its own, in front of the one of its location.

use super::{
    expression::{
        EVERY_PATH, EVERY_PATH_IN_A_GROUP, replaced_prefix, starts_with, whole_address, within, without_look_ahead,
    },
    location::Pattern,
    state::Translation,
    values,
};
use crate::{
    draft::{Section, Settings, from, table},
    syntax::Directive,
};

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
    /// `is_guarded`: not all requests may pass the location.
    pub(super) fn rewrites(
        &mut self,
        location: &Directive,
        pattern: &Pattern,
        is_guarded: bool,
    ) -> (Vec<(Pattern, Section)>, bool) {
        let mut routes = Vec::new();
        for rewrite in location.inner().iter().filter(|inner| inner.name == "rewrite") {
            if is_guarded && rewrite.arg(2) == "break" {
                // nginx stays in the location, and its guards hold. Here another route would answer.
                self.leave(rewrite, "what guards the location would not hold for the new path");
                continue;
            }
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
