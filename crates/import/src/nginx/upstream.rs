//! `upstream`, and the servers of `proxy_pass`.

use super::{
    balancing::{self, Server},
    state::{Translation, Used, one_in_force},
    values,
};
use crate::{
    draft::{Section, Settings, from},
    syntax::Directive,
};

/// Where a location sends its requests.
pub struct Target {
    /// The name of the upstream.
    pub name: String,
    /// The path that takes the place of the location's prefix.
    pub path: Option<String>,
    /// gRPC needs bodies that are not kept.
    pub streams: bool,
}

impl<'a> Translation<'a> {
    /// `proxy_pass`, `grpc_pass`. `None`: it has no counterpart, which is said.
    pub(super) fn target(&mut self, pass: &'a Directive, levels: &[&'a [Directive]]) -> Option<Target> {
        let url = pass.arg(0);
        if values::has_variable(url) {
            self.leave(pass, "the servers of an upstream are named in the file: variables cannot choose them");
            return None;
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (scheme, streams) = match scheme {
            "http" => ("http", false),
            "https" => ("https", false),
            "grpc" => ("h2c", true),
            "grpcs" => ("h2", true),
            _ => {
                self.leave(pass, "servers are reached by `http`, `https`, `grpc` and `grpcs`");
                return None;
            }
        };
        let (authority, path) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (socket, path) = socket.split_once(':').unwrap_or((socket, ""));
                (format!("unix:{socket}"), path)
            }
            None => match rest.find('/') {
                Some(at) => (rest[..at].to_owned(), &rest[at..]),
                None => (rest.to_owned(), ""),
            },
        };
        let name = self.upstream(pass, scheme, &authority);
        self.upstream_settings(&name, levels);
        Some(Target { name, path: (!path.is_empty()).then(|| path.to_owned()), streams })
    }

    /// The name of the upstream for a server or a declared group, which is added if it is new.
    fn upstream(&mut self, pass: &Directive, scheme: &'static str, authority: &str) -> String {
        let declared = self.upstreams.declared.iter().copied().find(|declared| declared.arg(0) == authority);
        let base = match declared {
            Some(_) => authority.to_owned(),
            None => {
                let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
                authority.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
            }
        };
        let name = match scheme {
            "http" => base,
            other => format!("{base}-{other}"),
        };
        if self.upstreams.used.iter().any(|used| used.name == name && used.scheme == scheme) {
            return name;
        }
        let mut section = Section::new("[[upstream]]");
        section.comment.push(from(&declared.unwrap_or(pass).place));
        section.settings.set("name", name.as_str());
        let servers = match declared {
            Some(group) => self.servers(group, scheme, &mut section.settings),
            None => vec![Server::plain(url(scheme, authority))],
        };
        section.settings.set("servers", balancing::servers(servers));
        self.upstreams.used.push(Used { name: name.clone(), scheme, section });
        name
    }

    fn servers(&mut self, group: &'a Directive, scheme: &str, settings: &mut Settings) -> Vec<Server> {
        let mut servers = Vec::new();
        for directive in group.inner() {
            match directive.name.as_str() {
                "server" => {
                    let url = url(scheme, directive.arg(0));
                    servers.extend(self.server_of_group(directive, url, settings));
                }
                "keepalive" => settings.write("keep-connections", directive.arg(0).to_owned(), None),
                "keepalive_timeout" => {
                    if let Some(time) = values::time(directive.arg(0)) {
                        settings.set("keep-for", time);
                    }
                }
                // This is how a server is chosen anyway.
                "least_conn" | "zone" => {}
                "ip_hash" | "hash" | "random" | "sticky" => self.rule_of_group(directive, settings),
                _ => self.other(directive),
            }
        }
        servers
    }

    /// Translates a location's settings for its servers. They hold for the upstream.
    fn upstream_settings(&mut self, name: &str, levels: &[&'a [Directive]]) {
        if let Some(directive) = one_in_force(levels, "proxy_connect_timeout")
            && let Some(time) = values::time(directive.arg(0)).map(toml_edit::Value::from)
            && self.upstream_setting(name, "connect-timeout", time)
        {
            self.leave(
                directive,
                "the time to connect is that of the upstream, which has another from a location before",
            );
        }
        let next = one_in_force(levels, "proxy_next_upstream");
        let tries = one_in_force(levels, "proxy_next_upstream_tries");
        for (setting, value) in self.next_upstream(next, tries) {
            if self.upstream_setting(name, setting, value)
                && let Some(directive) = next.or(tries)
            {
                self.leave(directive, "retries are those of the upstream, which has others from a location before");
            }
        }
        let verified = one_in_force(levels, "proxy_ssl_verify").is_some_and(|verify| verify.arg(0) == "on");
        if let Some(used) = self.upstreams.used.iter_mut().find(|used| used.name == name) {
            let note = "the certificate of the server is checked here; `tls-verify = false` turns that off".to_owned();
            if matches!(used.scheme, "https" | "h2") && !verified && !used.section.comment.contains(&note) {
                used.section.comment.push(note);
            }
        }
    }

    /// Gives an upstream a setting. Returns whether it has another value already, which stays.
    pub(super) fn upstream_setting(&mut self, name: &str, setting: &str, value: toml_edit::Value) -> bool {
        let Some(used) = self.upstreams.used.iter_mut().find(|used| used.name == name) else { return false };
        used.section.settings.set(setting, value.clone());
        used.section.settings.text_of(setting).is_some_and(|text| text != value.to_string().trim())
    }
}

/// The longest silence of the servers of a location.
pub fn idle_timeout(levels: &[&[Directive]]) -> Option<String> {
    let said = ["proxy_read_timeout", "grpc_read_timeout"].into_iter().find_map(|name| one_in_force(levels, name))?;
    values::time(said.arg(0))
}

fn url(scheme: &str, authority: &str) -> String {
    match authority.strip_prefix("unix:") {
        Some(path) if scheme == "h2c" => format!("unix+h2c:{path}"),
        Some(path) => format!("unix:{path}"),
        None => format!("{scheme}://{authority}"),
    }
}
