//! The state while a file of HAProxy is translated.

use super::values;
use crate::{
    draft::{Section, Settings},
    notes::Notes,
    syntax::{Directive, Files},
};

/// Keywords without a setting: Serpent does this by itself, or its own structure makes it needless.
const NEEDLESS: &[&str] = &[
    "chroot",
    "ca-base",
    "crt-base",
    "cpu-map",
    "daemon",
    "description",
    "gid",
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

pub(super) fn reason(name: &str) -> &'static str {
    match name {
        "stick-table" | "stick" => "requests are limited by `limit`, and clients keep their server by `sticky`",
        "errorfile" | "errorfiles" | "http-error" => {
            "error pages are those of a site (`error-pages`), not of a backend"
        }
        "capture" | "log-format" | "log-format-sd" | "unique-id-format" | "unique-id-header" => {
            "the forms of the access log are `combined` and `json`"
        }
        "tcp-request" | "tcp-response" => "only HTTP is spoken; `limits` and `limit` bound connections and requests",
        "filter" | "lua-load" | "lua-load-per-thread" | "http-after-response" => {
            "there is no counterpart to filters and Lua"
        }
        "dispatch" => "name the servers",
        "peers" | "mailers" | "ring" | "cache" | "program" | "userlist" | "fcgi-app" => {
            "this section has no counterpart that the translation knows"
        }
        "load-server-state-from-file" | "server-state-file" | "server-state-base" => {
            "see `serpent upgrade` and the admin API"
        }
        "fullconn" | "backlog" | "rate-limit" => "see `limits`, and slots in `[admission]`",
        _ => "it has no counterpart that the translation knows; see the settings in docs/guide/configuration.md",
    }
}

/// The state while the file is translated.
pub(super) struct Translation<'a> {
    /// Where relative names of certificates and of authorities start.
    pub crt_base: Option<&'a str>,
    pub ca_base: Option<&'a str>,
    /// Lists and maps.
    pub files: &'a dyn Files,
    /// Stick tables, by the names of their sections.
    pub tables: Vec<(&'a str, &'a Directive)>,
    /// Sections of error pages, and of name servers.
    pub http_errors: Vec<&'a Directive>,
    pub resolvers: Vec<&'a Directive>,
    /// The section whose name servers are taken.
    resolver: Option<&'a Directive>,
    pub notes: Notes,
    pub limits: Settings,
    pub access_log: Settings,
    pub top: Settings,
    pub resources: Vec<(String, i64)>,
    pub backends: Vec<Backend<'a>>,
}

/// A section with the defaults in front of it.
#[derive(Clone, Copy)]
pub(super) struct Proxy<'a> {
    pub section: &'a Directive,
    pub defaults: Option<&'a Directive>,
}

impl<'a> Proxy<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.section.arg(0)
    }

    /// The lines of a name: those of the section, or else those of its defaults.
    pub(super) fn in_force(&self, name: &str) -> Vec<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().filter(|it| it.name == name).collect::<Vec<_>>();
        let own = of(self.section);
        if own.is_empty() { self.defaults.map(of).unwrap_or_default() } else { own }
    }

    /// A time-out by its name; each is inherited by itself.
    pub(super) fn timeout(&self, name: &str) -> Option<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().rfind(|it| it.name == "timeout" && it.arg(0) == name);
        of(self.section).or_else(|| self.defaults.and_then(of))
    }

    /// An option by its name, with its line.
    pub(super) fn option(&self, name: &str) -> Option<&'a Directive> {
        let of = |section: &'a Directive| section.inner().iter().rfind(|it| it.name == "option" && it.arg(0) == name);
        of(self.section).or_else(|| self.defaults.and_then(of))
    }

    pub(super) fn is_http(&self) -> bool {
        self.in_force("mode").last().is_some_and(|mode| mode.arg(0) == "http")
    }
}

/// A directory that `global` names.
fn base<'a>(sections: &'a [Directive], name: &str) -> Option<&'a str> {
    let mut global = sections.iter().filter(|section| section.name == "global").flat_map(Directive::inner);
    global.rfind(|line| line.name == name).map(|line| line.arg(0))
}

/// A file with the directory that relative names start at.
pub(super) fn in_base(base: Option<&str>, file: &str) -> String {
    match base {
        Some(base) if !file.starts_with(['/', '@']) => format!("{}/{file}", base.trim_end_matches('/')),
        _ => file.to_owned(),
    }
}

impl<'a> Translation<'a> {
    pub(super) fn new(sections: &'a [Directive], files: &'a dyn Files) -> Self {
        let tables = sections.iter().flat_map(|section| {
            let lines = section.inner().iter().filter(|line| line.name == "stick-table");
            lines.map(|line| (section.arg(0), line))
        });
        Self {
            files,
            tables: tables.collect(),
            crt_base: base(sections, "crt-base"),
            ca_base: base(sections, "ca-base"),
            http_errors: sections.iter().filter(|section| section.name == "http-errors").collect(),
            resolvers: sections.iter().filter(|section| section.name == "resolvers").collect(),
            resolver: None,
            notes: Notes::default(),
            limits: Settings::default(),
            access_log: Settings::default(),
            top: Settings::default(),
            resources: Vec::new(),
            backends: Vec::new(),
        }
    }

    pub(super) fn leave(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.notes.leave(directive, reason);
    }

    pub(super) fn other(&mut self, directive: &Directive) {
        match directive.name.as_str() {
            "option" if directive.arg(0) == "forwardfor" && directive.args.iter().any(|arg| arg == "header") => {
                self.leave(directive, "servers see the client in `X-Forwarded-For`");
            }
            "option" if NEEDLESS_OPTIONS.contains(&directive.arg(0)) => self.notes.skip(directive),
            "no" => self.leave(directive, "what is taken back here is named where it has a counterpart"),
            _ => self.notes.other(directive, NEEDLESS, reason),
        }
    }

    pub(super) fn global(&mut self, section: &'a Directive) {
        for directive in section.inner() {
            match directive.name.as_str() {
                "maxconn" => self.limit("connections", directive),
                "log" => self.log(directive),
                "stats" => self.leave(directive, "the admin address (`admin`) has the page, metrics and the API"),
                _ => self.other(directive),
            }
        }
    }

    /// Takes the name servers of a section: those of the whole server.
    pub(super) fn name_servers(&mut self, name: &str) {
        let Some(section) = self.resolvers.iter().copied().find(|section| section.arg(0) == name) else { return };
        match self.resolver {
            Some(known) if known == section => return,
            Some(_) => return self.leave(section, "all names are asked of the same name servers (`resolver`)"),
            None => self.resolver = Some(section),
        }
        let mut servers: Vec<&str> = Vec::new();
        for line in section.inner().iter().filter(|line| line.name == "nameserver") {
            let address = line.arg(1).trim_start_matches("udp@").trim_start_matches("tcp@");
            match address.parse::<std::net::SocketAddr>() {
                Ok(_) => servers.push(address),
                Err(_) => self.leave(line, "a name server has an IP address and a port"),
            }
        }
        // Without any: those of the system, as with `parse-resolv-conf`.
        if !servers.is_empty() {
            self.top.set("resolver", crate::draft::list(servers));
        }
    }

    pub(super) fn limit(&mut self, name: &str, directive: &Directive) {
        match directive.arg(0).parse::<i64>() {
            Ok(number) if number > 0 => self.limits.write(name, number.to_string(), None),
            _ => self.leave(directive, "the number cannot be read"),
        }
    }

    pub(super) fn limit_time(&mut self, name: &str, timeout: Option<&Directive>) {
        let Some(timeout) = timeout else { return };
        match values::time(timeout.arg(1)) {
            Some(time) if self.limits.text_of(name).is_some_and(|known| known.trim_matches('"') != time) => {
                self.leave(timeout, format!("all sites have one `limits.{name}`: the first time is taken"));
            }
            Some(time) => self.limits.set(name, time),
            None => self.leave(timeout, "the time cannot be read, or is zero"),
        }
    }

    /// `log ADDRESS [options] FACILITY`: the access log.
    pub(super) fn log(&mut self, directive: &Directive) {
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

/// A backend, translated.
pub(super) struct Backend<'a> {
    pub name: &'a str,
    pub proxy: Proxy<'a>,
    pub upstream: Section,
    /// Whether it has a window of its own in `[admission.resources]`.
    pub has_window: bool,
    pub is_used: bool,
}

/// A site: its names (none: all other hosts), and what stands in the file.
pub(super) type Site = (Vec<String>, Section);
