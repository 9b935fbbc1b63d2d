//! `location @name`: a route of its own, which only other routes lead to.

use super::{expression::every_path, values};
use crate::syntax::Directive;

/// Whether this is the name of a location of the server that passes requests on to an upstream.
pub(super) fn is_named_route(name: &str, levels: &[&[Directive]]) -> bool {
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let passes = |inner: &Directive| matches!(inner.name.as_str(), "proxy_pass" | "grpc_pass");
    let is_it = |it: &Directive| it.name == "location" && it.args == [name] && it.inner().iter().any(passes);
    name.strip_prefix('@').is_some_and(is_plain) && levels.get(1).is_some_and(|server| server.iter().any(is_it))
}

/// The one path to which the location of this name sends all requests; the query stays.
pub(super) fn only_path(name: &str, levels: &[&[Directive]]) -> Option<String> {
    let is_it = |it: &&Directive| it.name == "location" && it.args == [name];
    let location = levels.get(1)?.iter().find(is_it)?;
    match location.inner() {
        [rewrite] if rewrite.name == "rewrite" && every_path(rewrite.arg(0)) => {
            let is_within = rewrite.args.get(2).is_none_or(|flag| flag == "last");
            Some(rewrite.arg(1)).filter(|to| is_within && to.starts_with('/')).and_then(|to| values::target(to).ok())
        }
        _ => None,
    }
}

/// `fallback` to the route of a location with a name.
pub(super) fn fallback_to(name: &str) -> String {
    format!("/{name}{{path}}")
}

/// `error_page 404 = @NAME`: the route that answers where there is no file.
pub(super) fn goes_on_to<'a>(directive: &'a Directive, levels: &[&[Directive]]) -> Option<&'a str> {
    match &directive.args[..] {
        [status, equals, target] if status == "404" && equals == "=" => {
            Some(target.as_str()).filter(|target| is_named_route(target, levels))
        }
        _ => None,
    }
}
