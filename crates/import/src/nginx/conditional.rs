//! `if` and `limit_except`: routes for some requests, and what stays closed where they have no counterpart.

use super::{
    condition::{When, entries},
    guards::refuses,
    location::Pattern,
    state::Translation,
    values,
};
use crate::{
    draft::{Section, from, list, table},
    syntax::Directive,
};

/// Why a route is closed, above it.
const CLOSED: &str =
    "CLOSED: nginx guards it by what follows, which is not translated. Write its counterpart, then open it:";

impl<'a> Translation<'a> {
    /// The routes of an `if`, in front of those for the same paths. `None`: it has no counterpart, which is said.
    pub(super) fn conditional(
        &mut self,
        directive: &'a Directive,
        pattern: &Pattern,
    ) -> Option<Vec<(Pattern, Section)>> {
        match self.routes_of_if(directive, pattern) {
            Ok(routes) => Some(routes),
            Err(reason) => {
                self.leave(directive, reason);
                None
            }
        }
    }

    fn routes_of_if(&mut self, directive: &'a Directive, pattern: &Pattern) -> Result<Vec<(Pattern, Section)>, String> {
        let done: Vec<&Directive> = directive.inner().iter().filter(|one| one.name != "break").collect();
        let [action] = done[..] else {
            return Err("an `if` is translated that has one `return` or `rewrite`".to_owned());
        };
        let mut routes = Vec::new();
        match action.name.as_str() {
            "return" => {
                for (when, answer) in self.answers(directive, action)? {
                    let of_path = match &when.path {
                        None => pattern.clone(),
                        Some(path) if *pattern == Pattern::Prefix("/".to_owned()) => Pattern::Expression(path.clone()),
                        Some(_) => return Err("a route has one pattern, and the location has its own".to_owned()),
                    };
                    let refuses = refuses(&answer);
                    let settings = if refuses { of_path.settings_of_refusal() } else { of_path.settings() };
                    let mut section = Section { settings, ..Section::new("[[site.route]]") };
                    section.comment.push(from(&directive.place));
                    when.write(&mut section.settings);
                    if !self.answer(&answer, &mut section.settings) {
                        return Err("its answer has no counterpart".to_owned());
                    }
                    routes.push((of_path, section));
                }
            }
            "rewrite" if *pattern == Pattern::Prefix("/".to_owned()) => {
                for when in self.condition(directive)? {
                    if when.path.is_some() {
                        return Err("a route has one pattern, and the rewrite has its own".to_owned());
                    }
                    let (of_path, mut section) =
                        self.rewrite(action).ok_or_else(|| "its rewrite has no counterpart".to_owned())?;
                    when.write(&mut section.settings);
                    routes.push((of_path, section));
                }
            }
            _ => return Err("an `if` is translated that has one `return` or `rewrite`".to_owned()),
        }
        Ok(routes)
    }

    /// The answers of a `return` in an `if`: one for each condition, or one for each entry of the map that has its address.
    fn answers(&mut self, directive: &Directive, answer: &Directive) -> Result<Vec<(When, Directive)>, String> {
        let condition = directive.args.join(" ");
        let asked = condition.trim_matches(['(', ')', ' ']).split_whitespace().next().unwrap_or_default().to_owned();
        let is_given = answer.args.last().is_some_and(|target| values::has_variable(target) && *target == asked);
        let Some(map) = self.map_of(&asked).filter(|_| is_given) else {
            let found = self.condition(directive)?;
            return Ok(found.into_iter().map(|when| (when, answer.clone())).collect());
        };
        if !condition.trim_matches(['(', ')', ' ']).trim_end_matches([' ', '=', '!', '"', '\'']).eq(&asked) {
            return Err("a map of addresses is asked whether it has one".to_owned());
        }
        let of_entry = |value: String| {
            let mut answer = answer.clone();
            if let Some(target) = answer.args.last_mut() {
                *target = value;
            }
            answer
        };
        let (entries, default) = entries(map)?;
        if !default.is_empty() {
            return Err("this map has a value for all other requests".to_owned());
        }
        self.maps_used.insert(asked);
        Ok(entries.into_iter().map(|entry| (entry.when, of_entry(entry.value))).collect())
    }

    /// `limit_except GET { deny all; }`: the route that refuses other methods. `None`: it has no counterpart, which is said.
    pub(super) fn limit_except(&mut self, directive: &'a Directive, pattern: &Pattern) -> Option<(Pattern, Section)> {
        let denies = matches!(directive.inner(), [one] if one.name == "deny" && one.args == ["all"]);
        let plain = directive.args.iter().all(|method| method.bytes().all(|b| b.is_ascii_uppercase()));
        if !denies || !plain || directive.args.is_empty() {
            self.leave(
                directive,
                "a route refuses methods for all clients: `unless = { method = [...] }` and `respond`",
            );
            return None;
        }
        let mut methods: Vec<&str> = directive.args.iter().map(String::as_str).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        let mut section = Section { settings: pattern.settings_of_refusal(), ..Section::new("[[site.route]]") };
        if section.settings.has("unless") {
            self.leave(directive, "a route has one exception, and the expression has its own");
            return None;
        }
        section.comment.push(from(&directive.place));
        section.settings.set("unless", table([("method", list(methods))]));
        section.settings.write("respond", "403".to_owned(), None);
        Some((pattern.clone(), section))
    }

    /// A route that answers 403, in place of one whose guard is not translated.
    pub(super) fn closed(&mut self, guard: &Directive, pattern: &Pattern) -> (Pattern, Section) {
        self.notes.close(guard);
        let mut section = Section { settings: pattern.settings_of_refusal(), ..Section::new("[[site.route]]") };
        section.settings.write("respond", "403".to_owned(), None);
        section.comment.extend([CLOSED.to_owned(), format!("{}: {guard}", guard.place)]);
        (pattern.clone(), section)
    }

    /// Closes a site whose guard is not translated.
    pub(super) fn close_site(&mut self, guard: &Directive, site: &mut Section) {
        self.notes.close(guard);
        // The root of the file system is always there.
        let closed = table([("file", "/".into())]);
        site.settings.replace("maintenance", closed);
        site.comment.extend([CLOSED.to_owned(), format!("{}: {guard} (`maintenance` below)", guard.place)]);
    }
}
