//! `auth_request`: another server says whether a request goes on.

use toml_edit::Value;

use super::{
    state::{Translation, in_force, one_in_force},
    upstream::{Target, idle_timeout},
};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

/// The start of the name of a variable that holds a field of the server's answer.
const FIELD: &str = "$upstream_http_";

impl<'a> Translation<'a> {
    /// `auth_request` of a site or of a route (`levels`), with the locations and fields of all blocks around it (`all`).
    pub(super) fn forward_auth(
        &mut self,
        levels: &[&'a [Directive]],
        all: &[&'a [Directive]],
        settings: &mut Settings,
    ) {
        let copied = copied_fields(all);
        // A route that copies fields says so itself.
        let outer = || one_in_force(all, "auth_request").filter(|ask| !copied.is_empty() && ask.arg(0) != "off");
        let Some(ask) = one_in_force(levels, "auth_request").or_else(outer) else { return };
        if ask.arg(0) == "off" {
            return settings.set("forward-auth", "off");
        }
        let Some(location) = all.iter().rev().find_map(|level| location_of(level, ask.arg(0))) else {
            self.unguarded = Some(ask);
            return self.leave(ask, "the location that it names is not there, or passes on to no server");
        };
        let Some(pass) = location.inner().iter().find(|inner| inner.name == "proxy_pass") else { return };
        let within = [all, &[location.inner()]].concat();
        let Some(Target { name, path, .. }) = self.target(pass, &within) else {
            self.unguarded = Some(ask);
            return;
        };
        if let Some(time) = idle_timeout(&within)
            && self.upstream_setting(&name, "idle-timeout", time.into())
        {
            self.leave(ask, "the servers that are asked have another `idle-timeout` from a location before");
        }
        let path = path.unwrap_or_else(|| ask.arg(0).to_owned());
        let mut table_of: Vec<(&str, Value)> = vec![("upstream", name.into()), ("path", path.into())];
        if !copied.is_empty() {
            table_of.push(("copy-headers", list(copied)));
        }
        let to_client = in_force(all, "add_header").into_iter().filter(|field| is_copied(field, all));
        let to_client: Vec<&str> = to_client.map(|field| field.arg(0)).collect();
        if !to_client.is_empty() {
            table_of.push(("client-headers", list(to_client)));
        }
        settings.set("forward-auth", table(table_of));
        for field in location.inner().iter().filter(|inner| inner.name == "proxy_set_header") {
            let is_about_body = matches!(field.arg(0).to_ascii_lowercase().as_str(), "content-length" | "host");
            if !is_about_body && !field.arg(0).to_ascii_lowercase().starts_with("x-forwarded-") {
                self.leave(
                    field,
                    "the server is told of the request in `X-Forwarded-Method`, `-Uri`, `-Host`, `-Proto` and `-For`",
                );
            }
        }
    }
}

/// Whether a location is there for `auth_request` alone, and has no route.
pub(super) fn is_for_auth(location: &Directive, levels: &[&[Directive]]) -> bool {
    let is_internal = location.inner().iter().any(|inner| inner.name == "internal");
    let path = location.args.last().map_or("", String::as_str);
    is_internal && levels.iter().any(|level| asks(level, path))
}

fn asks(level: &[Directive], path: &str) -> bool {
    level.iter().any(|it| (it.name == "auth_request" && it.arg(0) == path) || asks(it.inner(), path))
}

/// The location that `auth_request` names, if it passes on to a server.
fn location_of<'a>(level: &'a [Directive], path: &str) -> Option<&'a Directive> {
    level.iter().find(|it| {
        it.name == "location"
            && it.args.last().is_some_and(|last| last == path)
            && it.inner().iter().any(|inner| inner.name == "proxy_pass")
    })
}

/// The fields of the answer that the request gets: `auth_request_set $user $upstream_http_remote_user`, and
/// `proxy_set_header Remote-User $user`.
fn copied_fields<'a>(all: &[&'a [Directive]]) -> Vec<&'a str> {
    let set = in_force(all, "proxy_set_header").into_iter();
    set.filter(|field| is_copied(field, all)).map(|field| field.arg(0)).collect()
}

/// Whether `proxy_set_header` or `add_header` copies a field of the answer to `auth_request` of the same name.
pub(super) fn is_copied(field: &Directive, all: &[&[Directive]]) -> bool {
    let (name, variable) = (field.arg(0).to_ascii_lowercase().replace('-', "_"), field.arg(1));
    in_force(all, "auth_request_set")
        .into_iter()
        .any(|set| set.arg(0) == variable && set.arg(1).strip_prefix(FIELD) == Some(&name))
}
