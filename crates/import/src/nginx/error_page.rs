//! `error_page`: pages in place of errors.

use toml_edit::Value;

use super::{
    named::goes_on_to,
    state::{Translation, in_force},
    values,
};
use crate::{
    draft::{Settings, table},
    syntax::Directive,
};

impl<'a> Translation<'a> {
    /// `error_page` of a server.
    pub(super) fn error_pages(&mut self, levels: &[&'a [Directive]], root: Option<&str>, settings: &mut Settings) {
        let mut pages: Vec<(String, Value)> = Vec::new();
        for directive in in_force(levels, "error_page") {
            let [statuses @ .., target] = &directive.args[..] else { continue };
            if root.is_some() && goes_on_to(directive, levels).is_some() {
                continue;
            }
            if statuses.iter().any(|one| one.starts_with('=')) {
                self.leave(directive, "an error keeps its status, and has a page, not another answer");
                continue;
            }
            match page(target, levels, root) {
                Ok(page) => {
                    for status in statuses {
                        if !pages.iter().any(|(other, _)| other == status) {
                            pages.push((status.clone(), page.as_str().into()));
                        }
                    }
                }
                Err(reason) => self.leave(directive, reason),
            }
        }
        self.has_error_pages = !pages.is_empty();
        if self.has_error_pages {
            settings.set("error-pages", table(pages));
        }
    }
}

/// The page that a target of `error_page` stands for, as `error-pages` names it. An error is the reason why there is none.
fn page(target: &str, levels: &[&[Directive]], root: Option<&str>) -> Result<String, &'static str> {
    let location = location_of(target, levels);
    let own = |name: &str| location.and_then(|it| it.inner().iter().find(|inner| inner.name == name));
    let path = if target.starts_with('@') {
        let location = location.ok_or("the location that it names is not there")?;
        if let [answer] = location.inner()
            && answer.name == "return"
            && let [_, text] = &answer.args[..]
            && !values::has_variable(text)
        {
            return Ok(format!("text:{text}"));
        }
        let only = location.inner().iter().all(|it| matches!(it.name.as_str(), "root" | "rewrite" | "internal"));
        match own("rewrite").map(|rewrite| &rewrite.args[..]) {
            Some([_, path, flag]) if only && flag == "break" => path.as_str(),
            _ => return Err("an error has a page: a file or a text, and no other answer"),
        }
    } else {
        target
    };
    if !path.starts_with('/') || values::has_variable(path) {
        return Err("an error keeps its status, and its page is a file or a text");
    }
    if path.ends_with(".php") {
        return Err("an error page is a file, and this is a script; `fallback` leads to one");
    }
    match (own("root").map(|root| root.arg(0)), root) {
        (Some(own), Some(root)) if own == root => Ok(path.to_owned()),
        (Some(own), _) if !values::has_variable(own) => Ok(format!("file:{}{path}", own.trim_end_matches('/'))),
        (None, Some(_)) => Ok(path.to_owned()),
        _ => Err("neither the site nor a location has a root that could have the file"),
    }
}

/// `location = PATH` or `location @NAME` of a server.
fn location_of<'a>(target: &str, levels: &[&'a [Directive]]) -> Option<&'a Directive> {
    levels.last()?.iter().find(|it| {
        it.name == "location"
            && match &it.args[..] {
                [name] => name.starts_with('@') && name == target,
                [modifier, path] => modifier == "=" && path == target,
                _ => false,
            }
    })
}

/// Whether a location is there for `error_page` alone, and has no route.
pub(super) fn is_error_page(location: &Directive, levels: &[&[Directive]]) -> bool {
    let target = location.args.last().map_or("", String::as_str);
    let Some(server) = levels.get(..2) else { return false };
    let is_named = in_force(server, "error_page").iter().any(|it| it.args.last().is_some_and(|last| last == target));
    let is_plain = location.inner().iter().all(|it| matches!(it.name.as_str(), "root" | "internal"));
    is_named
        && (is_plain && location.args.len() == 2 && location.arg(0) == "="
            || target.starts_with('@') && page(target, server, Some("")).is_ok())
}
