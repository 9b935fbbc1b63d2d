//! `location @name`: a route of its own, which only other routes lead to.

use crate::syntax::Directive;

/// Whether this is the name of a location of the server that passes requests on to an upstream.
pub(super) fn is_named_route(name: &str, levels: &[&[Directive]]) -> bool {
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let passes = |inner: &Directive| matches!(inner.name.as_str(), "proxy_pass" | "grpc_pass");
    let is_it = |it: &Directive| it.name == "location" && it.args == [name] && it.inner().iter().any(passes);
    name.strip_prefix('@').is_some_and(is_plain) && levels.get(1).is_some_and(|server| server.iter().any(is_it))
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
