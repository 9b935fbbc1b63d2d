//! `proxy_cache` and what belongs to it: responses of upstreams that are stored.

use toml_edit::Value;

use super::{
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Settings, table},
    syntax::Directive,
};

/// Keys that differ from the one of Serpent in nothing that a site can see: scheme, host, path and query.
const USUAL_KEYS: &[&str] = &[
    "$scheme$proxy_host$request_uri",
    "$scheme$host$request_uri",
    "$scheme$proxy_host$uri$is_args$args",
    "$scheme$host$uri$is_args$args",
    "$scheme$request_method$host$request_uri",
    "$scheme://$host$request_uri",
];

/// Conditions of nginx that keep requests out of the cache. Serpent keeps these out as well, or answers them anew.
const HARMLESS: &[&str] =
    &["$http_upgrade", "$http_authorization", "$http_pragma", "$http_cache_control", "$http_range", "0", ""];

impl<'a> Translation<'a> {
    /// `cache` of a route with an upstream.
    pub(super) fn cache(&mut self, levels: &[&'a [Directive]], settings: &mut Settings) {
        let Some(zone) = one_in_force(levels, "proxy_cache").filter(|zone| zone.arg(0) != "off") else { return };
        // Answers for some requests must not be given to others.
        let keeps_out = ["proxy_no_cache", "proxy_cache_bypass"].into_iter().find_map(|name| {
            let rule = one_in_force(levels, name)?;
            rule.args.iter().any(|variable| !HARMLESS.contains(&variable.as_str())).then_some(rule)
        });
        let of_client = one_in_force(levels, "proxy_cache_key").filter(|key| {
            ["$cookie_", "$http_", "$arg_", "$remote_"].iter().any(|variable| key.arg(0).contains(variable))
        });
        if let Some(rule) = keeps_out.or(of_client) {
            return self.leave(rule, "nothing is stored: which requests have answers of their own has no counterpart");
        }
        let mut parts: Vec<(&str, Value)> = Vec::new();
        for valid in in_force(levels, "proxy_cache_valid") {
            let (time, codes) = match &valid.args[..] {
                [codes @ .., time] => (values::time(time), codes),
                [] => (None, &[][..]),
            };
            let is_of_all = codes.is_empty() || codes.iter().any(|code| code == "200" || code == "any");
            match time.filter(|_| is_of_all && !parts.iter().any(|(name, _)| *name == "lifetime")) {
                Some(time) => parts.push(("lifetime", time.into())),
                None => self.leave(valid, "`cache.lifetime` is one time for all responses that say nothing themselves"),
            }
        }
        let stale = one_in_force(levels, "proxy_cache_use_stale");
        let uses = |word: &str| stale.is_some_and(|stale| stale.args.iter().any(|arg| arg.starts_with(word)));
        // How long nginx keeps what is not used, if its zone says nothing else.
        let kept = self.cache_zones.get(zone.arg(0)).cloned().unwrap_or_else(|| "10m".to_owned());
        if uses("error") || uses("timeout") || uses("http_5") {
            parts.push(("stale-if-error", kept.clone().into()));
        }
        let is_renewed = one_in_force(levels, "proxy_cache_background_update").is_some_and(|it| it.arg(0) == "on");
        if uses("updating") && is_renewed {
            parts.push(("stale-while-revalidate", kept.into()));
        }
        if let Some(key) = one_in_force(levels, "proxy_cache_key").filter(|key| !USUAL_KEYS.contains(&key.arg(0))) {
            self.leave(key, "responses are stored by scheme, host, path, query and the fields in `Vary`");
        }
        match parts.is_empty() {
            true => settings.set("cache", true),
            false => settings.set("cache", table(parts)),
        }
    }

    /// `proxy_cache_path`: how long a zone keeps what is not used. Its directory stays nginx's own.
    pub(super) fn cache_path(&mut self, directive: &'a Directive) {
        let value = |name: &str| directive.args.iter().find_map(|arg| arg.strip_prefix(name));
        if let Some(zone) = value("keys_zone=").and_then(|zone| zone.split(':').next())
            && let Some(inactive) = value("inactive=").and_then(values::time)
        {
            self.cache_zones.insert(zone, inactive);
        }
        self.leave(
            directive,
            "responses are kept in memory; `shared-cache.directory` names a directory for them, another than nginx's",
        );
    }
}
