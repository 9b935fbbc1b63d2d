//! Access control: addresses, passwords, certificates, limits.

use std::net::IpAddr;

use toml_edit::Value;

use super::{
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

impl<'a> Translation<'a> {
    /// `allow`, `deny`, `auth_basic`, `auth_request`, `ssl_verify_client`, `limit_req`, `limit_conn` of a site or of a
    /// route; a route that has none takes those of its site. The file of users may stand further out (`all`).
    pub(super) fn access(&mut self, levels: &[&'a [Directive]], all: &[&'a [Directive]], settings: &mut Settings) {
        let addresses = self.addresses(levels);
        let mut required: Vec<(&str, Value)> = Vec::new();
        if let Some(realm) = one_in_force(levels, "auth_basic").filter(|realm| realm.arg(0) != "off") {
            self.password(all, realm, &mut required);
        }
        if let Some(verify) = one_in_force(levels, "ssl_verify_client").filter(|verify| verify.arg(0) == "on") {
            if one_in_force(all, "ssl_client_certificate").is_some() {
                required.push(("certificate", true.into()));
            } else {
                self.leave(verify, "`ssl_client_certificate` is missing");
            }
        }
        let satisfy = one_in_force(levels, "satisfy").filter(|satisfy| satisfy.arg(0) == "any");
        let any = satisfy.is_some();
        if let Some(satisfy) =
            satisfy.filter(|_| one_in_force(all, "auth_request").is_some_and(|ask| ask.arg(0) != "off"))
        {
            self.leave(satisfy, "what `auth_request` asks is needed besides: `forward-auth` holds for all clients");
        }
        let Addresses { allow, deny, others } = addresses;
        if any && !required.is_empty() && !allow.is_empty() && !others {
            required.push(("client", list(allow)));
            required.push(("satisfy", "any".into()));
            let deny: Vec<&str> = deny.into_iter().filter(|net| *net != "all").collect();
            if !deny.is_empty() {
                settings.set("deny", list(deny));
            }
        } else if !others && allow.is_empty() && !deny.is_empty() {
            settings.set("deny", list(["0.0.0.0/0", "::/0"]));
        } else {
            if !allow.is_empty() && !others {
                settings.set("allow", list(allow));
            }
            let deny: Vec<&str> = deny.into_iter().filter(|net| *net != "all").collect();
            if !deny.is_empty() {
                settings.set("deny", list(deny));
            }
        }
        if !required.is_empty() {
            settings.set("require", table(required));
        } else if one_in_force(levels, "auth_basic").is_some() && levels.len() < all.len() {
            settings.set("require", "off");
        }
        self.forward_auth(levels, all, settings);
        self.limit(levels, settings);
    }

    fn password(&mut self, levels: &[&'a [Directive]], realm: &'a Directive, required: &mut Vec<(&str, Value)>) {
        let Some(file) = one_in_force(levels, "auth_basic_user_file") else {
            self.unguarded = Some(realm);
            return self.leave(realm, "`auth_basic_user_file` is missing");
        };
        match self.users {
            Some(other) if other != file.arg(0) => {
                self.leave(
                    file,
                    format!("there is one file of users for all sites, here {other}; name its users in `require`"),
                );
            }
            _ => self.users = Some(file.arg(0)),
        }
        required.push(("user", true.into()));
        let plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
        match realm.arg(0) {
            text if !text.is_empty() && text.chars().all(plain) => required.push(("realm", text.into())),
            _ => self.leave(realm, "the name of a realm is printable ASCII"),
        }
    }

    fn addresses(&mut self, levels: &[&'a [Directive]]) -> Addresses<'a> {
        let of = |level: &&'a [Directive]| {
            level.iter().filter(|one| matches!(one.name.as_str(), "allow" | "deny")).collect::<Vec<_>>()
        };
        let rules = levels.iter().rev().map(of).find(|rules| !rules.is_empty()).unwrap_or_default();
        let mut addresses = Addresses { allow: Vec::new(), deny: Vec::new(), others: true };
        if let (Some(field), false) = (self.lost_address, rules.iter().all(|rule| rule.arg(0) == "all")) {
            // The addresses would be compared with that of the proxy.
            self.unguarded = self.unguarded.or(Some(field));
        }
        for rule in rules {
            // In nginx the first one with an address counts, and here the smallest.
            let earlier = if rule.name == "allow" { &addresses.deny } else { &addresses.allow };
            if rule.arg(0) != "all" && earlier.iter().any(|net| covers(net, rule.arg(0))) {
                self.leave(rule, "it has no effect: a line before it has all of its addresses");
                continue;
            }
            match (rule.name.as_str(), rule.arg(0)) {
                (_, "unix:") => self.leave(rule, "clients come over IP"),
                ("allow", "all") => return addresses,
                ("deny", "all") => {
                    addresses.others = false;
                    addresses.deny.push("all");
                    return addresses;
                }
                ("allow", net) => addresses.allow.push(net),
                (_, net) => addresses.deny.push(net),
            }
        }
        addresses
    }

    fn limit(&mut self, levels: &[&'a [Directive]], settings: &mut Settings) {
        let mut limit: Vec<(&str, Value)> = Vec::new();
        let mut counted: Option<Vec<String>> = None;
        for directive in in_force(levels, "limit_req").into_iter().chain(in_force(levels, "limit_conn")) {
            let value = |name: &str| directive.args.iter().find_map(|arg| arg.strip_prefix(name));
            let of_rate = directive.name == "limit_req";
            let zone = if of_rate { value("zone=") } else { directive.args.first().map(String::as_str) };
            let Some((rate, by)) = zone.and_then(|zone| self.zones.get(zone)).cloned() else {
                self.leave(directive, "its zone is not declared");
                continue;
            };
            let Some(by) = by else { continue };
            if counted.as_ref().is_some_and(|counted| *counted != by) {
                self.leave(directive, "a limit counts in one way; that of the first one is taken");
                continue;
            }
            if limit.iter().any(|(name, _)| *name == if of_rate { "rate" } else { "at-once" }) {
                self.leave(directive, "there is one limit of a kind; the first one is taken");
                continue;
            }
            match (of_rate, rate) {
                (true, Some(rate)) => {
                    counted = Some(by);
                    limit.push(("rate", rate.into()));
                    // nginx counts the requests beyond the first.
                    let burst: i64 = value("burst=").and_then(|burst| burst.parse().ok()).unwrap_or(0);
                    limit.push(("burst", (burst + 1).into()));
                }
                (true, None) => self.leave(directive, "its zone has no rate"),
                (false, _) => match directive.arg(1).parse::<i64>() {
                    Ok(count) => {
                        counted = Some(by);
                        limit.push(("at-once", count.into()));
                    }
                    Err(_) => self.leave(directive, "the number cannot be read"),
                },
            }
        }
        if let Some(by) = counted {
            limit.extend(written(&by).map(|by| ("by", by)));
            settings.set("limit", table(limit));
        }
    }

    /// `client_max_body_size` of a route, if it is another one than that of the whole server.
    pub(super) fn body_size_of(&mut self, levels: &[&'a [Directive]]) -> Option<String> {
        let size = match one_in_force(levels, "client_max_body_size") {
            Some(directive) => self.body_size(directive)?,
            // That of nginx, where another server has its own.
            None => self.limits.has("request-body").then(|| "1MiB".to_owned())?,
        };
        let of_all = Value::from(size.as_str()).to_string();
        (self.limits.text_of("request-body") != Some(of_all.trim())).then_some(size)
    }

    /// The largest `client_max_body_size` of the servers becomes that of all; a route may have another.
    pub(super) fn largest_body(&mut self, http: &'a [Directive]) {
        let servers = http.iter().filter(|one| one.name == "server").flat_map(Directive::inner);
        let sizes = http.iter().chain(servers).filter(|one| one.name == "client_max_body_size");
        let largest = sizes.filter_map(|one| Some((values::bytes(one.arg(0))?, one))).max_by_key(|(bytes, _)| *bytes);
        if let Some(size) = largest.and_then(|(_, directive)| self.body_size(directive)) {
            self.limits.set("request-body", size);
        }
    }

    /// `client_max_body_size`, for a route or for the server.
    pub(super) fn body_size(&mut self, directive: &Directive) -> Option<String> {
        match values::size(directive.arg(0)) {
            Some(size) if !size.starts_with('0') => Some(size),
            _ => {
                self.leave(directive, "every request body has a limit: give `limits.request-body` a large one");
                None
            }
        }
    }
}

/// Whether a network of nginx has all addresses of another.
fn covers(net: &str, other: &str) -> bool {
    let read = |text: &str| {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let (all, value) = match address.parse().ok()? {
            IpAddr::V4(address) => (32, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let bits = bits.map_or(Some(all), |bits| bits.parse::<u32>().ok()).filter(|bits| *bits <= all)?;
        Some((all, value, bits))
    };
    let (Some((kind, value, bits)), Some((other_kind, other, other_bits))) = (read(net), read(other)) else {
        return false;
    };
    let differ = value ^ other;
    kind == other_kind && bits <= other_bits && (bits == 0 || differ >> (128 - bits) == 0)
}

/// The keys by which a zone counts, as `limit.by` has them. An error is the reason why they have no counterpart.
pub(super) fn counted_by(key: &str) -> Result<Vec<String>, String> {
    let mut by = Vec::new();
    let [before, names @ ..] = &key.split('$').collect::<Vec<_>>()[..] else { return Ok(by) };
    for name in names {
        let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
        let one = match name {
            "binary_remote_addr" | "remote_addr" => "client".to_owned(),
            "uri" | "document_uri" | "request_uri" => "path".to_owned(),
            // A limit belongs to a site anyway.
            "server_name" => continue,
            _ => match name.strip_prefix("http_").filter(|name| *name != "host") {
                Some(field) if field.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    format!("header {}", field.replace('_', "-"))
                }
                _ => {
                    return Err(format!(
                        "`${name}`: requests are counted by client, path, header field, API key or class (`limit`, `by`)"
                    ));
                }
            },
        };
        by.push(one);
    }
    if !before.is_empty() || names.is_empty() {
        return Err("requests that are counted together have something in common, which a variable names".to_owned());
    }
    Ok(by)
}

/// How counting by a key of nginx differs from counting by its counterpart, if it does.
pub(super) fn counts_otherwise(key: &str) -> Option<&'static str> {
    if key.contains("$http_") {
        Some("requests without the field are counted by client; nginx does not count them")
    } else if key.contains("request_uri") {
        Some("requests are counted by path, without the query")
    } else if !key.contains("addr") {
        Some("each site, and each route with a limit of its own, counts for itself")
    } else {
        None
    }
}

/// `limit.by`, unless it is the default.
fn written(by: &[String]) -> Option<Value> {
    match by {
        [] => Some("all".into()),
        [one] if one == "client" => None,
        [one] => Some(one.as_str().into()),
        several => Some(list(several)),
    }
}

/// `allow` and `deny` up to the first `all`.
struct Addresses<'a> {
    allow: Vec<&'a str>,
    deny: Vec<&'a str>,
    /// Whether clients of no list are let in.
    others: bool,
}
