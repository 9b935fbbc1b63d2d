//! `backend`: its upstream.

use toml_edit::Value;

use super::{
    state::{Backend, Proxy, Translation, in_base},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    syntax::Directive,
};

/// A server of a backend.
#[derive(Default)]
struct Server {
    url: String,
    weight: Option<i64>,
    backup: bool,
    most: Option<i64>,
    is_checked: bool,
}

/// Options of a server that say nothing that is needed here.
const NEEDLESS: &[&str] = &[
    "cookie",
    "id",
    "sni",
    "alpn",
    "init-addr",
    "check-sni",
    "ciphers",
    "ssl-min-ver",
    "ssl-max-ver",
    "track",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "error-limit",
    "pool-purge-delay",
    "pool-max-conn",
    "resolve-prefer",
    "port",
];

impl<'a> Translation<'a> {
    pub(super) fn backend(&mut self, proxy: &Proxy<'a>) {
        let mut upstream = Section::new("[[upstream]]");
        upstream.comment.push(from(&proxy.section.place));
        let settings = &mut upstream.settings;
        settings.set("name", proxy.name());
        let mut active: Vec<(&str, Value)> = Vec::new();
        let defaults: Vec<&String> = proxy.in_force("default-server").into_iter().flat_map(|it| &it.args).collect();
        let mut servers = Vec::new();
        let is_server = |it: &&Directive| matches!(it.name.as_str(), "server" | "server-template");
        for directive in proxy.section.inner().iter().filter(is_server) {
            servers.extend(self.server(directive, &defaults, settings, &mut active));
        }
        if servers.is_empty() {
            let has_answer = |it: &Directive| matches!(it.name.as_str(), "http-request" | "redirect" | "stick-table");
            if !proxy.section.inner().iter().any(has_answer) && proxy.in_force("stats").is_empty() {
                self.leave(proxy.section, "it has no server that is used");
            }
        }
        settings.set("servers", servers_value(&servers));
        self.balance(proxy, settings);
        for (name, setting) in [("connect", "connect-timeout"), ("server", "idle-timeout")] {
            if let Some(timeout) = proxy.timeout(name) {
                match values::time(timeout.arg(1)) {
                    Some(time) => settings.set(setting, time),
                    None => self.leave(timeout, "the time cannot be read, or is zero"),
                }
            }
        }
        if let Some(retries) = proxy.in_force("retries").last() {
            match retries.arg(0) {
                "0" => settings.set("retries", "off"),
                number => settings.write("retries", number.to_owned(), None),
            }
        }
        if let Some(on) = proxy.in_force("retry-on").last() {
            let statuses: Vec<i64> = on.args.iter().filter_map(|word| word.parse().ok()).collect();
            if !statuses.is_empty() {
                settings.set("retry-statuses", Value::Array(statuses.into_iter().collect::<toml_edit::Array>()));
            }
        }
        self.checks(proxy, &servers, active, settings);
        let window =
            servers.iter().filter(|it| !it.backup).map(|it| it.most).sum::<Option<i64>>().filter(|most| *most > 0);
        if let Some(window) = window {
            self.resources.push((proxy.name().to_owned(), window));
            let most = servers.iter().filter_map(|it| it.most).max().unwrap_or(window);
            settings.write("max-requests", most.to_string(), None);
        } else if let Some(most) = servers.iter().filter_map(|it| it.most).max() {
            settings.write(
                "max-requests",
                most.to_string(),
                Some("For each server; the others have no `maxconn`.".to_owned()),
            );
        }
        self.backends.push(Backend {
            name: proxy.name(),
            proxy: *proxy,
            upstream,
            has_window: window.is_some(),
            is_used: false,
        });
    }

    fn server(
        &mut self,
        directive: &'a Directive,
        defaults: &[&String],
        settings: &mut Settings,
        active: &mut Vec<(&'static str, Value)>,
    ) -> Option<Server> {
        let mut server = Server::default();
        let (mut tls, mut h2, mut verify) = (false, false, true);
        // `server-template PREFIX NUMBER ADDRESS`: as many servers as the name has.
        let is_template = directive.name == "server-template";
        let at = if is_template { 2 } else { 1 };
        let own = directive.args.iter().skip(at + 1).collect::<Vec<_>>();
        let mut left_out = Vec::new();
        for (is_own, words) in [(false, defaults), (true, &own[..])] {
            let mut words = words.iter();
            while let Some(word) = words.next() {
                let mut number = || words.next().and_then(|value| value.parse::<i64>().ok());
                match word.as_str() {
                    "check" => server.is_checked = true,
                    "no-check" => server.is_checked = false,
                    "backup" => server.backup = true,
                    "ssl" => tls = true,
                    "no-ssl" => tls = false,
                    "weight" => server.weight = number(),
                    "maxconn" => server.most = number().filter(|most| *most > 0),
                    "disabled" => {
                        self.leave(directive, "a server that is not used is left out of the list");
                        return None;
                    }
                    "inter" => put(active, "every", words.next().and_then(|it| values::time(it)).map(Value::from)),
                    "fall" | "rise" => {
                        let name = if *word == "fall" { "fall" } else { "rise" };
                        put(active, name, number().map(Value::from));
                    }
                    "fastinter" | "downinter" => {
                        words.next();
                    }
                    "slowstart" => settings.extend(&one("slow-start", words.next().and_then(|it| values::time(it)))),
                    "verify" => verify = words.next().is_none_or(|it| *it != "none"),
                    "ca-file" => {
                        let file = words.next().filter(|file| !file.starts_with('@'));
                        settings.extend(&one("tls-ca", file.map(|file| in_base(self.ca_base, file))));
                    }
                    "crt" => {
                        let file = words.next().map(|file| in_base(self.crt_base, file));
                        settings.extend(&one("tls-cert", file.clone()));
                        settings.extend(&one("tls-key", file));
                    }
                    "send-proxy" => settings.set("proxy-protocol", "v1"),
                    "send-proxy-v2" => settings.set("proxy-protocol", "v2"),
                    "proto" => h2 = words.next().is_some_and(|it| *it == "h2"),
                    "alpn" => h2 = words.next().is_some_and(|it| *it == "h2"),
                    "observe" => {
                        let is_http = words.next().filter(|it| it.as_str() == "layer7");
                        left_out.extend(is_http.map(|_| "observe layer7 (see `outliers`)".to_owned()));
                    }
                    "resolvers" => self.name_servers(words.next().map_or("", |name| name.as_str())),
                    word if NEEDLESS.contains(&word) => {
                        words.next();
                    }
                    "no-verifyhost" | "check-ssl" | "allow-0rtt" | "no-tls-tickets" => {}
                    other if is_own => left_out.push(other.to_owned()),
                    _ => {}
                }
            }
        }
        if !left_out.is_empty() {
            self.leave(directive, format!("left out: `{}`", left_out.join(" ")));
        }
        if server.weight == Some(0) {
            self.leave(directive, "a server of weight 0 gets no request: it is left out of the list");
            return None;
        }
        server.weight = server.weight.filter(|weight| *weight != 1 && (1..=1000).contains(weight));
        let scheme = match (tls, h2) {
            (false, false) => "http",
            (false, true) => "h2c",
            (true, false) => "https",
            (true, true) => "h2",
        };
        let written = directive.arg(at);
        if is_template && written.starts_with('_') {
            // The records of a service have the ports.
            let service = written.split(':').next().unwrap_or_default();
            server.url = format!("{scheme}://{service}");
            return Some(server);
        }
        server.url = match written.strip_prefix("unix@").or(Some(written).filter(|it| it.starts_with('/'))) {
            Some(path) => format!("unix:{path}"),
            None => match values::address(written) {
                Some((host, port)) if !host.is_empty() => format!("{scheme}://{host}:{port}"),
                _ => {
                    self.leave(directive, "a server has an address and a port: it is left out of the list");
                    return None;
                }
            },
        };
        if tls && !verify {
            settings.write(
                "tls-verify",
                "false".to_owned(),
                Some("As `verify none` says: nobody checks who answers.".to_owned()),
            );
        }
        Some(server)
    }

    fn checks(
        &mut self,
        proxy: &Proxy<'a>,
        servers: &[Server],
        mut active: Vec<(&'static str, Value)>,
        settings: &mut Settings,
    ) {
        if !servers.iter().any(|server| server.is_checked) {
            return;
        }
        let Some(option) = proxy.option("httpchk") else {
            let directive = proxy.section;
            let message = "`check` without `option httpchk` asks whether a port is open; `active` asks for a page, and failures of \
                           requests are seen anyway (`passive`)";
            return self.leave(directive, message);
        };
        // `option httpchk [METHOD] URI`
        let in_option = option.args.iter().skip(1).find(|arg| arg.starts_with('/')).cloned();
        let mut path = in_option;
        for check in proxy.in_force("http-check") {
            let after = |word: &str| check.args.iter().skip_while(|arg| *arg != word).nth(1).cloned();
            match check.arg(0) {
                "send" => path = after("uri").or(path),
                "expect" => match (check.arg(1), check.arg(2)) {
                    ("status", statuses) if statuses.chars().all(|c| c.is_ascii_digit() || c == '-') => {
                        put(&mut active, "statuses", Some(statuses.into()));
                    }
                    _ => self.leave(check, "a check expects a status (`active.statuses`)"),
                },
                _ => self.leave(check, "a check asks for a path, and expects a status"),
            }
        }
        put(&mut active, "path", Some(path.unwrap_or_else(|| "/".to_owned()).into()));
        if let Some(time) = proxy.timeout("check").and_then(|timeout| values::time(timeout.arg(1))) {
            put(&mut active, "timeout", Some(time.into()));
        }
        settings.set("active", table(active));
    }

    fn balance(&mut self, proxy: &Proxy<'a>, settings: &mut Settings) {
        if let Some(balance) = proxy.in_force("balance").last() {
            let inside = |text: &str| text.split_once('(').map(|(_, rest)| rest.trim_end_matches(')').to_owned());
            let rule = match balance.arg(0) {
                "roundrobin" | "static-rr" => Some("round-robin".to_owned()),
                "leastconn" => Some("least-loaded".to_owned()),
                "source" => Some("hash client".to_owned()),
                "uri" => Some("hash path".to_owned()),
                rule if rule.starts_with("random") => Some("power-of-two".to_owned()),
                rule if rule.starts_with("hdr(") => inside(rule).map(|name| format!("hash header {name}")),
                "hash" => match (balance.arg(1), inside(balance.arg(1))) {
                    ("src", _) => Some("hash client".to_owned()),
                    ("path" | "url" | "pathq", _) => Some("hash path".to_owned()),
                    (key, Some(name)) if key.contains("cook(") => Some(format!("hash cookie {name}")),
                    (key, Some(name)) if key.contains("hdr(") => Some(format!("hash header {name}")),
                    _ => None,
                },
                _ => None,
            };
            match rule {
                Some(rule) => settings.set("balance", rule),
                None => self.leave(balance, "there is no such rule; the least loaded server gets the next request"),
            }
        }
        if let Some(factor) = proxy.in_force("hash-balance-factor").last()
            && settings.text_of("balance").is_some_and(|rule| rule.contains("hash"))
        {
            settings.set("hash-bound", format!("{}%", factor.arg(0)));
        }
        for cookie in proxy.in_force("cookie") {
            match cookie.args.iter().any(|arg| arg == "insert") {
                true => settings.set("sticky", cookie.arg(0)),
                false => self.leave(cookie, "the cookie by which clients keep their server is set here (`sticky`)"),
            }
        }
    }
}

fn one(name: &str, value: Option<String>) -> Settings {
    let mut settings = Settings::default();
    if let Some(value) = value {
        settings.set(name, value);
    }
    settings
}

fn put(active: &mut Vec<(&'static str, Value)>, name: &'static str, value: Option<Value>) {
    let Some(value) = value else { return };
    active.retain(|(other, _)| *other != name);
    active.push((name, value));
}

fn servers_value(servers: &[Server]) -> Value {
    if servers.iter().all(|server| server.weight.is_none() && !server.backup) {
        return list(servers.iter().map(|server| server.url.as_str()));
    }
    let one = |server: &Server| {
        let weight = server.weight.map(|weight| ("weight", Value::from(weight)));
        let backup = server.backup.then(|| ("backup", Value::from(true)));
        if weight.is_none() && backup.is_none() {
            return Value::from(server.url.as_str());
        }
        table([("url", Value::from(server.url.as_str()))].into_iter().chain(weight).chain(backup))
    };
    Value::Array(servers.iter().map(one).collect())
}
