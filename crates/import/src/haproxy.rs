//! The configuration of HAProxy, section by section.

mod acl;
mod backend;
mod frontend;
mod rules;
mod syntax;
mod values;

use crate::{
    draft::{Draft, Section, Settings, list},
    notes::Notes,
    report::Left,
    syntax::{Directive, Files, SyntaxError},
};
use backend::Backend;

/// What Serpent does by itself, or what its own structure makes needless.
const NEEDLESS: &[&str] = &[
    "chroot",
    "ca-base",
    "crt-base",
    "cpu-map",
    "daemon",
    "description",
    "group",
    "hash-type",
    "http-reuse",
    "id",
    "localpeer",
    "log-tag",
    "master-worker",
    "mode",
    "nbproc",
    "nbthread",
    "node",
    "pidfile",
    "setenv",
    "ssl-default-bind-ciphers",
    "ssl-default-bind-ciphersuites",
    "ssl-default-bind-curves",
    "ssl-default-bind-options",
    "ssl-default-server-ciphers",
    "ssl-default-server-ciphersuites",
    "ssl-default-server-options",
    "ssl-dh-param-file",
    "tune.bufsize",
    "tune.h2.initial-window-size",
    "tune.maxrewrite",
    "tune.ssl.default-dh-param",
    "uid",
    "ulimit-n",
    "unix-bind",
    "user",
];

/// The same, of `option`.
const NEEDLESS_OPTIONS: &[&str] = &[
    "abortonclose",
    "clitcpka",
    "contstats",
    "dontlog-normal",
    "dontlognull",
    "forwardfor",
    "http-ignore-probes",
    "http-keep-alive",
    "http-server-close",
    "http-use-htx",
    "httpclose",
    "httplog",
    "logasap",
    "redispatch",
    "socket-stats",
    "splice-auto",
    "splice-request",
    "splice-response",
    "srvtcpka",
    "tcp-smart-accept",
    "tcp-smart-connect",
    "tcpka",
    "tcplog",
];

fn reason(name: &str) -> &'static str {
    match name {
        "stick-table" | "stick" => "requests are limited by `limit`, and clients keep their server by `sticky`",
        "errorfile" | "errorfiles" | "http-error" => {
            "such a file has a head; put its body into a file of `error-pages`, as in `{ 503 = \"file:/srv/503.html\" }`"
        }
        "capture" | "log-format" | "log-format-sd" | "unique-id-format" | "unique-id-header" => {
            "the forms of the access log are `combined` and `json`"
        }
        "tcp-request" | "tcp-response" => "only HTTP is spoken; `limits` and `limit` bound connections and requests",
        "filter" | "lua-load" | "lua-load-per-thread" | "http-after-response" => {
            "there is no counterpart to filters and Lua"
        }
        "dispatch" => "name the servers",
        "peers" | "mailers" | "ring" | "resolvers" | "cache" | "program" | "userlist" | "http-errors" | "fcgi-app" => {
            "this section has no counterpart that the translation knows"
        }
        "server-template" => "name the servers one by one",
        "load-server-state-from-file" | "server-state-file" | "server-state-base" => {
            "see `serpent upgrade` and the admin API"
        }
        "fullconn" | "backlog" | "rate-limit" => "see `limits`, and slots in `[admission]`",
        _ => "it has no counterpart that the translation knows; see the settings in docs/guide/configuration.md",
    }
}

/// What is known while the file is translated.
#[derive(Default)]
struct Translation<'a> {
    notes: Notes,
    limits: Settings,
    access_log: Settings,
    top: Settings,
    resources: Vec<(String, i64)>,
    backends: Vec<Backend<'a>>,
}

/// A section with the defaults in front of it.
#[derive(Clone, Copy)]
struct Proxy<'a> {
    section: &'a Directive,
    defaults: Option<&'a Directive>,
}

impl<'a> Proxy<'a> {
    fn name(&self) -> &'a str {
        self.section.arg(0)
    }

    /// The lines of a name: those of the section, or else those of its defaults.
    fn in_force(&self, name: &str) -> Vec<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().filter(|it| it.name == name).collect::<Vec<_>>();
        let own = of(self.section);
        if own.is_empty() { self.defaults.map(of).unwrap_or_default() } else { own }
    }

    /// A time-out by its name; each is inherited by itself.
    fn timeout(&self, name: &str) -> Option<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().rfind(|it| it.name == "timeout" && it.arg(0) == name);
        of(self.section).or_else(|| self.defaults.and_then(of))
    }

    /// An option by its name, with its line.
    fn option(&self, name: &str) -> Option<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().rfind(|it| it.name == "option" && it.arg(0) == name);
        of(self.section).or_else(|| self.defaults.and_then(of))
    }

    fn is_http(&self) -> bool {
        self.in_force("mode").last().is_some_and(|mode| mode.arg(0) == "http")
    }
}

impl<'a> Translation<'a> {
    fn leave(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.notes.leave(directive, reason);
    }

    fn other(&mut self, directive: &Directive) {
        match directive.name.as_str() {
            "option" if NEEDLESS_OPTIONS.contains(&directive.arg(0)) => self.notes.skip(directive),
            "no" => self.leave(directive, "what is taken back here is named where it has a counterpart"),
            _ => self.notes.other(directive, NEEDLESS, reason),
        }
    }

    fn global(&mut self, section: &'a Directive) {
        for directive in section.inner() {
            match directive.name.as_str() {
                "maxconn" => self.limit("connections", directive),
                "log" => self.log(directive),
                "stats" => self.leave(directive, "the admin address (`admin`) has the page, metrics and the API"),
                _ => self.other(directive),
            }
        }
    }

    fn limit(&mut self, name: &str, directive: &Directive) {
        match directive.arg(0).parse::<i64>() {
            Ok(number) if number > 0 => self.limits.write(name, number.to_string(), None),
            _ => self.leave(directive, "the number cannot be read"),
        }
    }

    fn limit_time(&mut self, name: &str, timeout: Option<&Directive>) {
        let Some(timeout) = timeout else { return };
        match values::time(timeout.arg(1)) {
            Some(time) => self.limits.set(name, time),
            None => self.leave(timeout, "the time cannot be read, or is zero"),
        }
    }

    /// `log ADDRESS [options] FACILITY`: the access log.
    fn log(&mut self, directive: &Directive) {
        let facility = directive.args.iter().skip(1).find(|arg| values::FACILITIES.contains(&arg.as_str()));
        let facility = facility.map(|facility| format!(",facility={facility}")).unwrap_or_default();
        let target = match directive.arg(0) {
            "global" => return,
            "stdout" | "stderr" | "fd@1" | "fd@2" => "-".to_owned(),
            socket if socket.starts_with('/') => format!("syslog:server=unix:{socket}{facility}"),
            address => {
                let address = address.strip_prefix("udp@").unwrap_or(address);
                if address.contains(['@', '$']) {
                    return self.leave(directive, "a log goes to a file, a receiver or standard output (`access-log`)");
                }
                let port = if address.contains(':') { "" } else { ":514" };
                format!("syslog:server={address}{port}{facility},rfc=3164")
            }
        };
        if self.access_log.has("target") {
            return self.leave(directive, "a request is logged once: the first log is taken");
        }
        self.access_log.set("target", target);
    }
}

/// Translates all that was read: the text, and what it does not have.
pub fn all(file: &str, files: &dyn Files) -> Result<(String, Vec<Left>), SyntaxError> {
    let sections = syntax::read(file, files)?;
    let mut translation = Translation::default();
    let mut proxies = Vec::new();
    let mut defaults: Vec<&Directive> = Vec::new();
    for section in &sections {
        match section.name.as_str() {
            "global" => translation.global(section),
            "defaults" => defaults.push(section),
            "frontend" | "backend" | "listen" => {
                // `frontend NAME from DEFAULTS`
                let named = section.args.iter().skip_while(|arg| *arg != "from").nth(1);
                let of_name = named.and_then(|name| defaults.iter().find(|it| it.arg(0) == name));
                let proxy = Proxy { section, defaults: of_name.or(defaults.last()).copied() };
                if proxy.is_http() {
                    proxies.push(proxy);
                } else {
                    translation.leave(section, "only HTTP is spoken (`mode http`)");
                }
            }
            _ => translation.leave(section, reason(&section.name)),
        }
    }
    for defaults in &defaults {
        translation.other_lines(defaults);
    }
    proxies.retain(|proxy| !translation.is_stats(proxy));
    let is_backend = |proxy: &&Proxy<'_>| proxy.section.name != "frontend";
    for proxy in proxies.iter().filter(is_backend) {
        translation.backend(proxy);
    }
    let sites = translation.sites(&proxies);
    let mut draft = Draft::default();
    let Translation { notes, limits, access_log, top, resources, backends, .. } = translation;
    draft.top = top;
    let mut admission = Section::new("[admission.resources]");
    let is_used = |name: &str| backends.iter().any(|backend| backend.is_used && backend.name == name);
    for (name, window) in resources.into_iter().filter(|(name, _)| is_used(name)) {
        admission.settings.set(&name, crate::draft::table([("window", window.into())]));
    }
    for (header, settings) in [("[limits]", limits), ("[access-log]", access_log)] {
        if !settings.is_empty() {
            draft.sections.push(Section { settings, ..Section::new(header) });
        }
    }
    if !admission.settings.is_empty() {
        admission
            .comment
            .push("As many requests at once as the servers of a backend have `maxconn`; others wait.".to_owned());
        draft.sections.push(admission);
    }
    draft.sections.extend(backends.into_iter().filter(|it| it.is_used).map(|it| it.upstream));
    draft.sections.extend(sites);
    draft.comment = notes.header("HAProxy");
    Ok((draft.text(), notes.left))
}

/// `names` of addresses to listen on.
fn listen(addresses: &[(String, bool)]) -> toml_edit::Value {
    let tls = addresses.iter().any(|(_, tls)| *tls);
    list(addresses.iter().map(|(address, is_tls)| match is_tls {
        true => format!("https://{address}"),
        false if tls => format!("http://{address}"),
        false => address.clone(),
    }))
}
