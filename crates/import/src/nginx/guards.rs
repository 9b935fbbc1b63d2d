//! Directives that may refuse requests.

use crate::syntax::Directive;

/// The first directive in a block that may refuse requests, a `return` with an error included.
pub(super) fn guard_in(block: &[Directive]) -> Option<&Directive> {
    block.iter().find(|inner| is_guard(inner) || refuses(inner))
}

/// Whether a directive is a `return` with an error.
pub(super) fn refuses(directive: &Directive) -> bool {
    directive.name == "return" && directive.arg(0).parse::<u16>().is_ok_and(|status| status >= 400)
}

/// Whether a directive may refuse requests, so that they must not get through without it.
pub(super) fn is_guard(directive: &Directive) -> bool {
    let denies = |inner: &Directive| refuses(inner) || inner.name == "deny";
    let is_on = directive.arg(0) != "off";
    match directive.name.as_str() {
        // Whether a file is there is no matter of who asks.
        "if" => !asks_for_a_file(directive) && directive.inner().iter().any(denies),
        "limit_except" => true,
        "deny" => true,
        "auth_basic" | "auth_request" | "auth_pam" | "auth_ldap" | "auth_digest" | "modsecurity" => is_on,
        "internal" | "secure_link" => true,
        name => {
            name.starts_with("auth_jwt") && is_on || name.starts_with("access_by_lua") || name.starts_with("js_access")
        }
    }
}

fn asks_for_a_file(directive: &Directive) -> bool {
    let condition = directive.args.join(" ");
    let condition = condition.trim_start_matches(['(', ' ', '!']);
    ["-f", "-d", "-e", "-x"].iter().any(|test| condition.starts_with(test))
}

/// Whether a guard has a counterpart wherever it stands, so that the translation of its block has it.
pub(super) fn is_translated_guard(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "deny" | "auth_basic" | "auth_request" | "internal")
}
