//! How nginx shares requests out between servers, and when it asks another one.

use toml_edit::Value;

use super::{state::Translation, values};
use crate::{
    draft::{Settings, list, table},
    syntax::Directive,
};

/// A server of a group, with what the group's settings get from it.
pub(super) struct Server {
    /// Its URL.
    pub url: String,
    weight: Option<i64>,
    backup: bool,
}

impl Server {
    /// A server without parameters.
    pub(super) fn plain(url: String) -> Self {
        Self { url, weight: None, backup: false }
    }
}

/// The value of `servers`: texts, or tables where one has parameters.
pub(super) fn servers(all: Vec<Server>) -> Value {
    if all.iter().all(|server| server.weight.is_none() && !server.backup) {
        return list(all.into_iter().map(|server| server.url));
    }
    let one = |server: Server| {
        if server.weight.is_none() && !server.backup {
            return Value::from(server.url);
        }
        let weight = server.weight.map(|weight| ("weight", Value::from(weight)));
        let backup = server.backup.then(|| ("backup", Value::from(true)));
        table([("url", Value::from(server.url))].into_iter().chain(weight).chain(backup))
    };
    Value::Array(all.into_iter().map(one).collect())
}

impl<'a> Translation<'a> {
    /// A `server` of an `upstream`. `None`: it is not used, which is said.
    pub(super) fn server_of_group(
        &mut self,
        directive: &'a Directive,
        url: String,
        settings: &mut Settings,
    ) -> Option<Server> {
        let mut server = Server::plain(url);
        let mut other = Vec::new();
        for option in directive.args.get(1..).unwrap_or_default() {
            match option.split_once('=').unwrap_or((option, "")) {
                ("down", _) => {
                    self.leave(directive, "a server that is not used is left out of the list");
                    return None;
                }
                ("backup", "") => server.backup = true,
                ("weight", weight) if weight.parse().is_ok_and(|weight: i64| (1..=1_000).contains(&weight)) => {
                    server.weight = weight.parse().ok();
                }
                ("max_fails", "0") => settings.write("passive.failures", "\"off\"".to_owned(), None),
                ("max_fails", count) => settings.write("passive.failures", count.to_owned(), None),
                ("max_conns", "0") | ("resolve", "") => {}
                ("max_conns", count) => settings.write("max-connections", count.to_owned(), None),
                ("fail_timeout", time) if values::time(time).is_some() => {
                    settings.set("passive.pause", values::time(time)?);
                }
                ("slow_start", time) if values::time(time).is_some() => {
                    settings.set("slow-start", values::time(time)?);
                }
                _ => other.push(option.as_str()),
            }
        }
        if !other.is_empty() {
            self.leave(
                directive,
                format!("a server here has a weight and may be a backup (`{}` is left out)", other.join(" ")),
            );
        }
        Some(server)
    }

    /// The rule of an `upstream`.
    pub(super) fn rule_of_group(&mut self, directive: &'a Directive, settings: &mut Settings) {
        match (directive.name.as_str(), directive.arg(0)) {
            ("ip_hash", _) => settings.set("balance", "hash client"),
            ("random", _) => settings.set("balance", "power-of-two"),
            ("hash", key) => {
                let balance = match key {
                    "$remote_addr" | "$binary_remote_addr" => "hash client".to_owned(),
                    "$uri" | "$request_uri" | "$document_uri" => "hash path".to_owned(),
                    key => match (key.strip_prefix("$cookie_"), key.strip_prefix("$http_")) {
                        (Some(cookie), _) => format!("hash cookie {cookie}"),
                        (_, Some(field)) => format!("hash header {}", field.replace('_', "-")),
                        (None, None) => {
                            self.leave(directive, "a key is the client, the path, one field or one cookie");
                            return;
                        }
                    },
                };
                let note = (key == "$request_uri").then(|| "The query is no part of the key here.".to_owned());
                settings.write("balance", Value::from(balance).to_string(), note);
            }
            ("sticky", "cookie") => {
                settings.write("sticky.cookie", Value::from(directive.arg(1)).to_string(), None);
                for option in directive.args.get(2..).unwrap_or_default() {
                    match option.split_once('=') {
                        Some(("expires", time)) if values::time(time).is_some() => {
                            if let Some(time) = values::time(time) {
                                settings.set("sticky.lifetime", time);
                            }
                        }
                        // The cookie is always so.
                        Some(("path", "/")) | None if option == "path=/" || option == "httponly" => {}
                        _ => self.leave(
                            directive,
                            format!("the cookie is for all paths of its host (`{option}` is left out)"),
                        ),
                    }
                }
            }
            _ => self.leave(directive, "clients keep their server by a cookie that is set here (`sticky`)"),
        }
    }

    /// `proxy_next_upstream` and `proxy_next_upstream_tries`, as settings of the upstream.
    pub(super) fn next_upstream(
        &mut self,
        next: Option<&'a Directive>,
        tries: Option<&'a Directive>,
    ) -> Vec<(&'static str, Value)> {
        let mut said = Vec::new();
        if let Some(tries) = tries {
            match tries.arg(0).parse::<i64>() {
                Ok(1) => said.push(("retries", Value::from("off"))),
                Ok(tries @ 2..=101) => said.push(("retries", Value::from(tries - 1))),
                _ => self.leave(tries, "`retries` has a number"),
            }
        }
        let Some(next) = next else { return said };
        let mut statuses = Vec::new();
        for word in &next.args {
            match word.as_str() {
                "off" => said.insert(0, ("retries", Value::from("off"))),
                "error" => {}
                "timeout" => statuses.push(504),
                "invalid_header" => statuses.push(502),
                word => match word.strip_prefix("http_").and_then(|status| status.parse().ok()) {
                    Some(status) => statuses.push(status),
                    None => self.leave(next, format!("no request with effects is sent twice (`{word}` is left out)")),
                },
            }
        }
        statuses.sort_unstable();
        statuses.dedup();
        if !statuses.is_empty() {
            said.push(("retry-statuses", Value::Array(statuses.into_iter().collect::<toml_edit::Array>())));
        }
        said
    }
}
