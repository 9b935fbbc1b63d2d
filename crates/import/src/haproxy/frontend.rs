//! `frontend` and `listen`: sites and their routes.

use super::{
    acl::When,
    rules::{Action, Fields, Line, Lines},
    state::{Proxy, Translation},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    syntax::Directive,
};

/// Why a route or a site is closed, above it.
const CLOSED: &str =
    "CLOSED: HAProxy guards it by what follows, which is not translated. Write its counterpart, then open it:";

/// What a frontend listens on.
#[derive(Default)]
struct Binds {
    addresses: Vec<(String, bool)>,
    certificate: Option<String>,
    client_ca: Option<String>,
    requires_certificate: bool,
}

impl<'a> Translation<'a> {
    /// The sites of all frontends.
    pub(super) fn sites(&mut self, proxies: &[Proxy<'a>]) -> Vec<Section> {
        let fronts = proxies.iter().filter(|proxy| proxy.section.name != "backend");
        let mut all: Vec<(&Proxy<'a>, Binds, Lines<'a>)> = Vec::new();
        let mut addresses = Vec::new();
        for proxy in fronts {
            let (binds, lines) = (self.binds(proxy), self.lines(proxy));
            let has_backend = |it: &Directive| matches!(it.name.as_str(), "use_backend" | "default_backend" | "server");
            let only_redirects = lines.is_sent_to_tls && lines.lines.is_empty() || {
                let goes_to_tls = |it: &Directive| {
                    (it.name == "redirect" || it.name == "http-request" && it.arg(0) == "redirect")
                        && it.args.windows(2).any(|pair| pair == ["scheme", "https"])
                };
                let inner = proxy.section.inner();
                inner.iter().any(goes_to_tls) && !inner.iter().any(has_backend)
            };
            addresses.extend(binds.addresses.iter().cloned());
            match only_redirects && binds.addresses.iter().all(|(_, tls)| !tls) {
                true => {
                    self.leave(proxy.section, "a site with a certificate sends requests without TLS to it by default")
                }
                false => all.push((proxy, binds, lines)),
            }
        }
        let mut translated: Option<(Proxy<'a>, Binds, Lines<'a>)> = None;
        for (proxy, binds, lines) in all {
            match translated {
                None => translated = Some((*proxy, binds, lines)),
                Some(_) => {
                    let message = "sites are chosen by host name, not by address: the first frontend is translated, and this one is \
                                   not served; give its hosts a site of their own";
                    self.leave(proxy.section, message);
                    addresses.retain(|address| !binds.addresses.contains(address));
                }
            }
        }
        let Some((proxy, binds, lines)) = translated else { return Vec::new() };
        if !addresses.is_empty() {
            addresses.dedup();
            self.top.set("listen", listen(&addresses));
        }
        self.others(&proxy);
        self.sites_of(&proxy, &binds, lines)
    }

    fn sites_of(&mut self, proxy: &Proxy<'a>, binds: &Binds, mut lines: Lines<'a>) -> Vec<Section> {
        let default = proxy.in_force("default_backend");
        let itself = (proxy.section.name == "listen").then_some((proxy.section, proxy.name()));
        if let Some((directive, name)) = default.last().map(|it| (*it, it.arg(0))).or(itself) {
            lines.lines.push(Line { directive, when: When::default(), action: Action::Upstream(name) });
        }
        let mut names: Vec<String> = Vec::new();
        for line in &lines.lines {
            let hosts = line.when.hosts.iter().flatten().chain(&line.when.other_hosts);
            let new: Vec<String> = hosts.filter(|name| !names.contains(name)).cloned().collect();
            names.extend(new);
        }
        let mut sites: Vec<(Vec<String>, Vec<Section>)> = vec![(Vec::new(), self.routes(&lines, &[], proxy))];
        for name in names {
            let routes = self.routes(&lines, std::slice::from_ref(&name), proxy);
            let text = |routes: &[Section]| format!("{routes:?}");
            match sites.iter_mut().skip(1).find(|(_, other)| text(other) == text(&routes)) {
                Some((names, _)) => names.push(name),
                None => sites.push((vec![name], routes)),
            }
        }
        let mut sections = Vec::new();
        for (names, routes) in sites {
            let mut site = Section::new("[[site]]");
            site.comment.push(from(&proxy.section.place));
            if !names.is_empty() {
                site.settings.set("names", list(&names));
            }
            if let Some(certificate) = &binds.certificate {
                site.settings.set("tls-cert", certificate.as_str());
                site.settings.set("tls-key", certificate.as_str());
            }
            if let Some(authorities) = &binds.client_ca {
                site.settings.set("client-ca", authorities.as_str());
                if binds.requires_certificate {
                    site.settings.set("require", table([("certificate", true.into())]));
                }
            }
            if let Some(rate) = &lines.limit {
                let (rate, burst) = rate;
                site.settings.set("limit", table([("rate", rate.as_str().into()), ("burst", (*burst).into())]));
            }
            lines.of_responses.write("response-headers", &mut site.settings);
            if let Some(guard) = lines.unguarded {
                self.notes.close(guard);
                site.settings.set("maintenance", table([("file", "/".into())]));
                site.comment.extend([CLOSED.to_owned(), format!("{}: {guard} (`maintenance` below)", guard.place)]);
            }
            site.inner.extend(compression(proxy));
            site.inner.extend(routes);
            sections.push(site);
        }
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
                Action::Upstream(name) => routes.extend(self.routes_to(line, name, &lines.of_requests)),
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
    fn routes_to(&mut self, line: &Line<'a>, name: &str, of_requests: &Fields) -> Vec<Section> {
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
                Ok(when) if when.hosts.as_ref().is_none_or(|hosts| !hosts.is_empty()) => {
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
        let mut fields = of_requests.clone();
        fields.extend(&own.of_requests);
        fields.write("request-headers", &mut settings);
        own.of_responses.write("response-headers", &mut settings);
        routes.push(route(line, &settings));
        routes
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

    fn binds(&mut self, proxy: &Proxy<'a>) -> Binds {
        let mut binds = Binds::default();
        for directive in proxy.section.inner().iter().filter(|it| it.name == "bind") {
            let after = |name: &str| directive.args.iter().skip_while(|arg| *arg != name).nth(1);
            let has = |name: &str| directive.args.iter().any(|arg| arg == name);
            let tls = has("ssl");
            for written in directive.arg(0).split(',') {
                match values::address(written) {
                    Some((host, port))
                        if host.is_empty() || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() =>
                    {
                        binds.addresses.push((format!("{host}:{port}"), tls));
                    }
                    _ => self.leave(directive, "an address is an IP address and a port"),
                }
            }
            if has("accept-proxy") {
                self.leave(directive, "name the addresses of these proxies in `proxy-protocol`");
            }
            if let Some(certificate) = after("crt") {
                match binds.certificate {
                    Some(_) => {
                        self.leave(directive, "each site has a certificate (`tls-cert`): the first one is taken")
                    }
                    None => binds.certificate = Some(certificate.clone()),
                }
                if directive.args.iter().filter(|arg| *arg == "crt").count() > 1 || certificate.ends_with('/') {
                    self.leave(directive, "each site has a certificate: name a file for each (`tls-cert`, `tls-key`)");
                }
            } else if let Some(crt_list) = after("crt-list").filter(|_| tls) {
                binds.certificate.get_or_insert_with(|| crt_list.clone());
                self.leave(directive, "each site has a certificate: name a file for each (`tls-cert`, `tls-key`)");
            }
            if let Some(authorities) = after("ca-file") {
                binds.client_ca = Some(authorities.clone());
                binds.requires_certificate |= after("verify").is_some_and(|verify| verify == "required");
            }
        }
        binds
    }

    /// What else stands in a frontend, and in the backends.
    fn others(&mut self, front: &Proxy<'a>) {
        self.limit_time("idle-timeout", front.timeout("client"));
        self.limit_time("head-timeout", front.timeout("http-request"));
        let mut sections = vec![front.section];
        sections.extend(self.backends.iter().map(|backend| backend.proxy.section));
        for section in sections {
            self.other_lines(section);
        }
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
                | "default-server"
                | "balance"
                | "cookie"
                | "retries"
                | "retry-on"
                | "hash-balance-factor"
                | "monitor-uri"
                | "compression"
                | "http-check" => {}
                "option" if directive.arg(0) == "httpchk" => {}
                "stick-table" if directive.args.iter().any(|arg| arg.contains("http_req_rate")) => {}
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
        section.settings.set("types", list(types));
    }
    compresses.then_some(section)
}

/// The value of `listen`.
fn listen(addresses: &[(String, bool)]) -> toml_edit::Value {
    let tls = addresses.iter().any(|(_, tls)| *tls);
    list(addresses.iter().map(|(address, is_tls)| match is_tls {
        true => format!("https://{address}"),
        false if tls => format!("http://{address}"),
        false => address.clone(),
    }))
}
