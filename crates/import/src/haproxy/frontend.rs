//! `frontend` and `listen`: sites and their routes.

use super::{
    acl::When,
    binds::Binds,
    rules::{Action, Line, Lines},
    state::{Proxy, Site, Translation},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    syntax::Directive,
};

/// Why a route or a site is closed, above it.
const CLOSED: &str =
    "CLOSED: HAProxy guards it by what follows, which is not translated. Write its counterpart, then open it:";

impl<'a> Translation<'a> {
    /// The sites of a frontend: the first one for all hosts that are no other site's.
    pub(super) fn sites_of(&mut self, proxy: &Proxy<'a>, binds: &Binds, mut lines: Lines<'a>) -> Vec<Site> {
        let default = proxy.in_force("default_backend");
        let itself = (proxy.section.name == "listen").then_some((proxy.section, proxy.name()));
        if let Some((directive, name)) = default.last().map(|it| (*it, it.arg(0))).or(itself) {
            lines.lines.push(Line { directive, when: When::default(), action: Action::Upstream(name) });
        }
        let mut names: Vec<String> = Vec::new();
        let mut note = |when: &When| {
            for name in when.hosts.iter().flatten().chain(&when.other_hosts) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        };
        for line in &lines.lines {
            note(&line.when);
            let Action::Upstream(name) = line.action else { continue };
            let backend = self.backends.iter().find(|it| it.name == name).map(|backend| backend.proxy);
            if let Some(backend) = backend.filter(|backend| backend.section.name != "listen") {
                let own = self.lines(&backend);
                own.lines.iter().map(|line| &line.when).chain(own.limits.iter().map(|it| &it.when)).for_each(&mut note);
            }
        }
        lines.limits.iter().for_each(|limited| note(&limited.when));
        let mut sites: Vec<(Vec<String>, Vec<Section>)> = vec![(Vec::new(), self.routes(&lines, &[], proxy))];
        for name in names {
            let routes = self.routes(&lines, std::slice::from_ref(&name), proxy);
            let text = |routes: &[Section]| format!("{routes:?}");
            match sites.iter_mut().skip(1).find(|(_, other)| text(other) == text(&routes)) {
                Some((names, _)) => names.push(name),
                None => sites.push((vec![name], routes)),
            }
        }
        let error_pages = self.error_pages(proxy);
        let has_plain = binds.addresses.iter().any(|(_, tls)| !tls);
        let mut sections = Vec::new();
        for (names, mut routes) in sites {
            let mut site = Section::new("[[site]]");
            site.comment.push(from(&proxy.section.place));
            if !names.is_empty() {
                site.settings.set("names", list(&names));
            }
            if let Some(certificate) = &binds.certificate {
                site.settings.set("tls-cert", certificate.as_str());
                site.settings.set("tls-key", certificate.as_str());
                if has_plain && !lines.is_partly_sent_to_tls {
                    site.settings.set("https-redirect", false);
                }
            }
            if let Some(authorities) = &binds.client_ca {
                site.settings.set("client-ca", authorities.as_str());
                if binds.requires_certificate {
                    site.settings.set("require", table([("certificate", true.into())]));
                }
            }
            if let Some(limit) = &lines.limit {
                site.settings.set("limit", limit.value());
            }
            if let Some(pages) = &error_pages {
                site.settings.set("error-pages", pages.clone());
                // HAProxy changes its own errors only.
                let of_upstreams = routes.iter_mut().filter(|route| route.settings.has("upstream"));
                of_upstreams.for_each(|route| route.settings.set("error-pages", false));
            }
            lines.of_responses.write("response-headers", &mut site.settings);
            if let Some(guard) = lines.unguarded {
                self.notes.close(guard);
                site.settings.set("maintenance", table([("file", "/".into())]));
                site.comment.extend([CLOSED.to_owned(), format!("{}: {guard} (`maintenance` below)", guard.place)]);
            }
            site.inner.extend(compression(proxy));
            site.inner.extend(routes);
            sections.push((names, site));
        }
        self.leave_unused(&lines);
        sections
    }

    /// The routes of a site with these names; none: of all other hosts.
    fn routes(&mut self, lines: &Lines<'a>, names: &[String], proxy: &Proxy<'a>) -> Vec<Section> {
        let mut routes = Vec::new();
        if let Some(monitor) = proxy.in_force("monitor-uri").last() {
            let mut section = Section::new("[[site.route]]");
            section.comment.push(from(&monitor.place));
            section.settings.set("path-regex", format!("^{}$", regex::escape(monitor.arg(0))));
            section.settings.write("respond", "200".to_owned(), None);
            routes.push(section);
        }
        let mut is_complete = false;
        for line in lines.lines.iter().filter(|line| line.when.is_about(names)) {
            if is_complete {
                break;
            }
            is_complete = line.when.is_everything();
            match &line.action {
                Action::Answer(settings) => routes.push(route(line, settings)),
                Action::Upstream(name) => routes.extend(self.routes_to(line, name, lines, names)),
            }
        }
        if !is_complete {
            let mut section = Section::new("[[site.route]]");
            section.comment.push("HAProxy has no backend for other requests.".to_owned());
            section.settings.set("path", "/");
            section.settings.write("respond", "503".to_owned(), None);
            routes.push(section);
        }
        routes
    }

    /// The routes to a backend: its own answers, and its servers.
    fn routes_to(&mut self, line: &Line<'a>, name: &'a str, front: &Lines<'a>, names: &[String]) -> Vec<Section> {
        let Some(at) = self.backends.iter().position(|backend| backend.name == name) else {
            self.leave(line.directive, "this backend is not there, or speaks no HTTP");
            return vec![unserved(line)];
        };
        let proxy = self.backends[at].proxy;
        // The lines of a `listen` are those of its frontend.
        let own = if proxy.section.name == "listen" { Lines::default() } else { self.lines(&proxy) };
        let mut routes = Vec::new();
        let mut guard = own.unguarded;
        for inner in &own.lines {
            let Action::Answer(settings) = &inner.action else { continue };
            match line.when.and(&inner.when) {
                Ok(when) if when.is_about(names) => {
                    let is_complete = inner.when.is_everything();
                    routes.push(route(
                        &Line { directive: inner.directive, when, action: Action::Upstream(name) },
                        settings,
                    ));
                    if is_complete {
                        return routes;
                    }
                }
                Ok(_) => {}
                Err(reason) => {
                    self.leave(inner.directive, reason);
                    guard = guard.or(Some(inner.directive).filter(|_| settings.text_of("respond").is_some()));
                }
            }
        }
        if let Some(guard) = guard {
            self.notes.close(guard);
            let mut section = unserved(line);
            section.settings.replace("respond", 403);
            section.comment.extend([CLOSED.to_owned(), format!("{}: {guard}", guard.place)]);
            routes.push(section);
            return routes;
        }
        let backend = &mut self.backends[at];
        if backend.upstream.settings.text_of("servers") == Some("[]") {
            routes.push(unserved(line));
            return routes;
        }
        backend.is_used = true;
        let mut settings = Settings::default();
        settings.set("upstream", name);
        if backend.has_window {
            settings.set("resource", name);
        } else if !self.resources.is_empty() {
            settings.set("admitted", false);
        }
        let mut fields = front.of_requests.clone();
        own.of_requests.set.iter().for_each(|(name, value)| fields.set(name, value));
        fields.add.extend(own.of_requests.add.iter().cloned());
        fields.remove.extend(own.of_requests.remove.iter().cloned());
        fields.client.extend(own.of_requests.client.iter().cloned());
        fields.write("request-headers", &mut settings);
        own.of_responses.write("response-headers", &mut settings);
        let of_all = own.limit.as_ref().map(|limit| (line.when.clone(), limit.value(), line.directive));
        let of_some = front.limits.iter().chain(&own.limits).filter_map(|limited| {
            let both = line.when.and(&limited.when).ok()?;
            Some((both, limited.limit.value(), limited.directive))
        });
        let before = front.lines.iter().take_while(|it| !std::ptr::eq(*it, line)).map(|it| &it.when);
        let before: Vec<&When> = before.filter(|when| when.is_about(names)).collect();
        let mut limits: Vec<(When, toml_edit::Value, &Directive)> = Vec::new();
        for (when, limit, directive) in of_some.chain(of_all).filter(|(when, ..)| when.is_about(names)) {
            // A route before takes these requests.
            if before.iter().any(|earlier| earlier.covers(&when)) {
                continue;
            }
            match limits.iter().any(|(known, ..)| known.is_same_but_hosts(&when)) {
                true => self.leave(directive, "a route has one limit: the first one is taken"),
                false => limits.push((when, limit, directive)),
            }
        }
        let is_limited = limits.iter().any(|(when, ..)| when.is_same_but_hosts(&line.when));
        // Limits of fewer requests come first.
        limits.sort_by_key(|(when, ..)| when.is_same_but_hosts(&line.when));
        for (when, limit, directive) in limits {
            let mut settings = settings.clone();
            settings.set("limit", limit);
            routes.push(route(&Line { directive, when, action: Action::Upstream(name) }, &settings));
        }
        if !is_limited {
            routes.push(route(line, &settings));
        }
        routes
    }

    /// Names the limits that no route has.
    fn leave_unused(&mut self, lines: &Lines<'a>) {
        for limited in &lines.limits {
            let mut backends = lines.lines.iter().filter(|line| matches!(line.action, Action::Upstream(_)));
            if backends.all(|line| line.when.and(&limited.when).is_err()) {
                self.leave(
                    limited.directive,
                    "no route to a backend has the same pattern: set `limit` of a route by hand",
                );
            }
        }
    }

    /// A section that only shows statistics: the admin address.
    pub(super) fn is_stats(&mut self, proxy: &Proxy<'a>) -> bool {
        let inner = proxy.section.inner();
        let has = |name: &str| inner.iter().any(|it| it.name == name);
        if !has("stats") || has("server") || has("default_backend") || has("use_backend") {
            return false;
        }
        let port = inner.iter().filter(|it| it.name == "bind").find_map(|it| values::address(it.arg(0)));
        if let Some((_, port)) = port {
            self.top.set("admin", format!("127.0.0.1:{port}"));
        }
        let message = "the page, metrics and the API are at `admin`, which only this machine reaches";
        self.leave(proxy.section, message);
        true
    }

    /// The lines of a section that are not looked at otherwise.
    pub(super) fn other_lines(&mut self, section: &'a Directive) {
        for directive in section.inner() {
            match directive.name.as_str() {
                "maxconn" => self.limit("connections", directive),
                "log" => self.log(directive),
                "timeout" => match directive.arg(0) {
                    "queue" => self.leave(directive, "see `most-wait` of a class: how long requests wait for a slot"),
                    "tunnel" => self.leave(directive, "a tunnel ends after `idle-timeout` of the upstream"),
                    _ => {}
                },
                "acl"
                | "bind"
                | "http-request"
                | "http-response"
                | "tcp-request"
                | "redirect"
                | "block"
                | "use_backend"
                | "default_backend"
                | "server"
                | "server-template"
                | "default-server"
                | "balance"
                | "cookie"
                | "retries"
                | "retry-on"
                | "hash-balance-factor"
                | "monitor-uri"
                | "compression"
                | "http-check"
                | "errorfile"
                | "errorfiles"
                    if directive.name != "errorfile" && directive.name != "errorfiles" || section.name != "backend" => {
                }
                "option" if directive.arg(0) == "httpchk" => {}
                "stick-table"
                    if directive.args.iter().any(|arg| arg.contains("http_req_rate") || arg.contains("conn_cur")) => {}
                "stats" => self.leave(
                    &without_secrets(directive),
                    "the admin address (`admin`) has the page, metrics and the API",
                ),
                _ => self.other(directive),
            }
        }
    }
}

/// `stats auth` has a password.
fn without_secrets(directive: &Directive) -> Directive {
    let mut shown = directive.clone();
    if shown.arg(0) == "auth" {
        shown.args = vec!["auth".to_owned(), "...".to_owned()];
    }
    shown
}

fn route(line: &Line<'_>, settings: &Settings) -> Section {
    let mut section = Section::new("[[site.route]]");
    section.comment.push(from(&line.directive.place));
    line.when.write(&mut section.settings);
    section.settings.extend(settings);
    section
}

/// The route of a backend without servers.
fn unserved(line: &Line<'_>) -> Section {
    let mut settings = Settings::default();
    settings.write("respond", "503".to_owned(), None);
    route(line, &settings)
}

/// `compression algo gzip`, `compression type text/html`.
fn compression(proxy: &Proxy<'_>) -> Option<Section> {
    let lines = proxy.in_force("compression");
    let of = |names: &[&str]| -> Vec<&str> {
        let found = lines.iter().filter(|it| names.contains(&it.arg(0)));
        found.flat_map(|it| it.args.iter().skip(1).map(String::as_str)).collect()
    };
    let compresses = of(&["algo", "algo-res"]).iter().any(|algo| matches!(*algo, "gzip" | "deflate" | "raw-deflate"));
    let mut section = Section::new("[site.compression]");
    section.settings.set("codings", list(["gzip"]));
    let types = of(&["type", "type-res"]);
    if !types.is_empty() {
        // A type of HAProxy is the begin of one.
        let whole = |kind: &&str| if kind.ends_with('/') { format!("{kind}*") } else { (*kind).to_owned() };
        section.settings.set("types", list(types.iter().map(whole)));
    }
    compresses.then_some(section)
}
