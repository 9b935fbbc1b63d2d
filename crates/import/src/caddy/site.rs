//! A site: its addresses, its certificate, its logs, and its routes.

use super::{
    address::{self, Address, Scheme},
    block::{self, Scope, compression},
    matcher::{self, Pattern},
    options::Options,
    route::Route,
    state::{Translation, without_block},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    syntax::Directive,
};

/// The state that all sites share.
#[derive(Default)]
pub struct Sites {
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// Names that have a site.
    names: Vec<String>,
    has_nameless: bool,
    /// Names of sites with a certificate.
    pub secure: Vec<String>,
}

/// The certificate of a site.
enum Certificate {
    Files(String, String),
    Acme,
    None,
}

impl Sites {
    fn listen(&mut self, address: String) {
        if !self.listen.contains(&address) {
            self.listen.push(address);
        }
    }
}

impl Translation {
    /// The sections of a site: one for each set of names that its matchers tell apart.
    pub fn site(&mut self, site: &Directive, options: &Options, sites: &mut Sites) -> Vec<Section> {
        let mut addresses = Vec::new();
        for address in address::read(site) {
            match address {
                Ok(address) => addresses.push(address),
                Err(reason) => self.leave(&without_block(site), reason),
            }
        }
        if addresses.is_empty() {
            return Vec::new();
        }
        let hosts: Vec<String> = addresses.iter().map(|it| it.host.clone()).filter(|host| !host.is_empty()).collect();
        if self.only_sends_to_https(site, &addresses, sites) {
            self.leave(&without_block(site), "a site with a certificate sends requests without TLS to it by default");
            return Vec::new();
        }
        let certificate = self.certificate(site, &addresses, options);
        self.listens(site, &addresses, &certificate, options, sites);
        let is_nameless = addresses.iter().any(|address| address.host.is_empty());
        // Hosts that matchers tell apart have sites of their own, of which the more precise name counts.
        let mut parts: Vec<Vec<String>> = matcher::hosts_of(&block::named(site.inner()));
        parts.retain(|part| *part != hosts);
        let own = |host: &String| !parts.iter().flatten().any(|other| other == host);
        let rest: Vec<String> = hosts.iter().filter(|host| own(host)).cloned().collect();
        if !rest.is_empty() || is_nameless {
            parts.push(if is_nameless { Vec::new() } else { rest });
        }
        let mut sections = Vec::new();
        for names in parts {
            let mut new: Vec<String> = Vec::new();
            for name in &names {
                if !sites.names.contains(name) && !new.contains(name) {
                    new.push(name.clone());
                }
            }
            let is_taken =
                if names.is_empty() { std::mem::replace(&mut sites.has_nameless, true) } else { new.is_empty() };
            if is_taken {
                let reason = "a name has one site, whatever the address: another site of these names was translated";
                self.leave(&without_block(site), reason);
                continue;
            }
            sites.names.extend(new.iter().cloned());
            sections.push(self.part(site, new, &certificate, options));
        }
        sections
    }

    /// One site, with these names.
    fn part(&mut self, site: &Directive, names: Vec<String>, certificate: &Certificate, options: &Options) -> Section {
        let mut section = Section::new("[[site]]");
        section.comment.push(from(&site.place));
        let named = block::named(site.inner());
        self.encodes = None;
        let scope = Scope { named, hosts: &names, pattern: Pattern::All, stripped: String::new(), root: None };
        let mut routes = self.block(site.inner(), &scope, false);
        let root = self.one_root(&mut routes);
        let settings = &mut section.settings;
        if !names.is_empty() {
            settings.set("names", list(&names));
        }
        if let Some(root) = &root {
            settings.set("root", root.as_str());
        }
        match certificate {
            Certificate::Files(chain, key) => {
                settings.set("tls-cert", chain.as_str());
                settings.set("tls-key", key.as_str());
                if !options.redirects {
                    settings.set("https-redirect", false);
                }
            }
            Certificate::Acme if names.iter().any(|name| name.starts_with("*.")) => {}
            Certificate::Acme => {
                settings.set("acme", true);
                if !options.redirects {
                    settings.set("https-redirect", false);
                }
            }
            Certificate::None => {}
        }
        self.client_certificates(site, settings);
        self.log(site, settings);
        self.error_pages(site, root.is_some(), settings);
        self.unreachable(&mut routes);
        let takes_all = routes.iter().any(|route| route.pattern == Pattern::All);
        routes.retain(|route| !route.is_plain());
        if let Some(encode) = self.encodes.take() {
            let settings = compression(self, &encode);
            section.inner.push(Section { settings, ..Section::new("[site.compression]") });
        }
        section.inner.extend(routes.iter().map(Route::section));
        if root.is_some() && !takes_all || root.is_none() && routes.is_empty() {
            // The files of the root are for their routes only.
            let mut rest = Section::new("[[site.route]]");
            rest.comment.push("what no directive takes".to_owned());
            rest.settings.set("path", "/");
            rest.settings.write("respond", "404".to_owned(), None);
            section.inner.push(rest);
        }
        section
    }

    /// The root of a site, which is that of most of its paths. Routes with another one are left out.
    fn one_root(&mut self, routes: &mut Vec<Route>) -> Option<String> {
        let all = routes.iter().find(|route| route.pattern == Pattern::All && route.root.is_some());
        let root = all.or(routes.iter().find(|route| route.root.is_some()))?.root.clone()?;
        routes.retain(|route| {
            let is_one = route.root.as_ref().is_none_or(|other| *other == root);
            if !is_one {
                let directive = Directive {
                    place: route.place.clone(),
                    name: "file_server".to_owned(),
                    args: Vec::new(),
                    block: None,
                };
                self.leave(&directive, "a site has one root: move these files below it, or make a site of them");
            }
            is_one
        });
        Some(root)
    }

    /// Takes out routes that no request reaches.
    fn unreachable(&mut self, routes: &mut Vec<Route>) {
        let mut kept: Vec<Route> = Vec::new();
        for route in std::mem::take(routes) {
            if kept.iter().any(|earlier| earlier.pattern.covers(&route.pattern)) {
                let directive = Directive {
                    place: route.place.clone(),
                    name: route.settings.names().next().unwrap_or_default().to_owned(),
                    args: Vec::new(),
                    block: None,
                };
                self.leave(&directive, "no request reaches it: a directive before it takes them all");
            } else {
                kept.push(route);
            }
        }
        *routes = kept;
    }

    /// Whether all it does is to send clients to the same host by HTTPS, where there is a site for that.
    fn only_sends_to_https(&self, site: &Directive, addresses: &[Address], sites: &Sites) -> bool {
        let is_plain = addresses.iter().all(|it| it.scheme == Some(Scheme::Http) || it.port == Some(80));
        let covered = addresses.iter().all(|it| match it.host.is_empty() {
            true => !sites.secure.is_empty(),
            false => sites.secure.contains(&it.host),
        });
        let sends =
            |line: &Directive| line.name == "redir" && line.args.iter().any(|arg| arg.starts_with("https://{host}"));
        is_plain && covered && !site.inner().is_empty() && site.inner().iter().all(sends)
    }

    fn certificate(&mut self, site: &Directive, addresses: &[Address], options: &Options) -> Certificate {
        let mut is_internal = options.is_local;
        let lines: Vec<&Directive> = site.inner().iter().filter(|line| line.name == "tls").collect();
        for line in lines {
            match &line.args[..] {
                [chain, key] => return Certificate::Files(chain.clone(), key.clone()),
                [one] if one == "internal" => is_internal = true,
                [one] if one.contains('@') => self.acme.set("contact", one.as_str()),
                [] => {}
                _ => self.leave(&without_block(line), "a certificate has two files, or is asked for by its names"),
            }
            for inner in line.inner() {
                match inner.name.as_str() {
                    "protocols" | "ciphers" | "curves" | "alpn" => self.notes.skip(inner),
                    "client_auth" => {}
                    "ca" => self.acme.set("directory", inner.arg(0)),
                    "ca_root" => self.acme.set("ca", inner.arg(0)),
                    "issuer" if inner.arg(0) == "internal" => is_internal = true,
                    "issuer" if inner.arg(0) == "acme" => {}
                    "dns" | "resolvers" | "propagation_delay" | "dns_challenge_override_domain" => {
                        self.leave(inner, "names are proven by port 80 or 443 (`acme.challenges`), not by DNS");
                    }
                    "on_demand" => self.leave(inner, "certificates are asked for by the names in the file"),
                    _ => self.other(inner),
                }
            }
        }
        let secure: Vec<&Address> = addresses.iter().filter(|address| is_secure(address, options)).collect();
        if secure.is_empty() || !options.asks {
            return Certificate::None;
        }
        if is_internal || secure.iter().any(|address| !address.is_public()) {
            let reason = "there is no authority inside: make a certificate, and name it with `tls-cert` and `tls-key`; \
                          until then it is served without TLS";
            self.leave(&without_block(site), reason);
            return Certificate::None;
        }
        if secure.iter().any(|address| address.host.starts_with("*.")) {
            let reason = "a wildcard needs a certificate in files: name it with `tls-cert` and `tls-key`";
            self.leave(&without_block(site), reason);
        }
        Certificate::Acme
    }

    fn listens(
        &mut self,
        site: &Directive,
        addresses: &[Address],
        certificate: &Certificate,
        options: &Options,
        sites: &mut Sites,
    ) {
        let binds = site.inner().iter().filter(|line| line.name == "bind");
        let mut hosts: Vec<String> = Vec::new();
        for line in binds {
            for host in &line.args {
                match host.parse::<std::net::IpAddr>() {
                    Ok(std::net::IpAddr::V6(_)) => hosts.push(format!("[{host}]")),
                    Ok(_) => hosts.push(host.clone()),
                    Err(_) => self.leave(line, "an address is an IP address"),
                }
            }
        }
        if hosts.is_empty() {
            hosts = options.hosts.clone();
        }
        let has_certificate = match certificate {
            Certificate::Files(..) => true,
            Certificate::Acme => addresses.iter().any(|it| is_secure(it, options) && !it.host.starts_with("*.")),
            Certificate::None => false,
        };
        let has_files = matches!(certificate, Certificate::Files(..));
        for address in addresses {
            let wants = is_secure(address, options) || has_files && address.scheme != Some(Scheme::Http);
            let secure = wants && has_certificate;
            let port = address.port.unwrap_or(if secure { options.https_port } else { options.http_port });
            for host in &hosts {
                sites.listen(format!("{}://{host}:{port}", if secure { "https" } else { "http" }));
                if secure && options.redirects && address.port.is_none() {
                    sites.listen(format!("http://{host}:{}", options.http_port));
                }
            }
            if secure {
                sites.secure.push(address.host.clone());
            }
        }
    }

    fn client_certificates(&mut self, site: &Directive, settings: &mut Settings) {
        let of_tls = site.inner().iter().filter(|line| line.name == "tls").flat_map(Directive::inner);
        for line in of_tls.filter(|line| line.name == "client_auth") {
            let of = |name: &str| line.inner().iter().find(|inner| inner.name == name);
            let authorities = of("trust_pool").or(of("trusted_ca_cert_file")).and_then(|line| line.args.last());
            match authorities {
                Some(file) => settings.set("client-ca", file.as_str()),
                None => self.leave(line, "its authorities stand in a file (`client-ca`)"),
            }
            let mode = of("mode").map_or("require_and_verify", |mode| mode.arg(0));
            if mode == "require_and_verify" && authorities.is_some() {
                settings.set("require", table([("certificate", true.into())]));
            }
        }
    }

    /// `log` of a site.
    fn log(&mut self, site: &Directive, settings: &mut Settings) {
        for line in site.inner().iter().filter(|line| line.name == "log") {
            if settings.has("access-log") {
                self.leave(&without_block(line), "a request is logged once: the first log is taken");
                continue;
            }
            let mut log = Settings::default();
            let Some(target) = self.log_target(line) else { continue };
            log.set("target", target);
            let format = line.inner().iter().find(|inner| inner.name == "format");
            match format.map_or("json", |format| format.arg(0)) {
                "console" | "single_field" | "transform" => log.set("format", "combined"),
                _ => log.set("format", "json"),
            }
            if let Some(format) = format.filter(|format| !matches!(format.arg(0), "json" | "console")) {
                self.leave(&without_block(format), "the forms of the access log are `combined` and `json`");
            }
            for inner in line.inner().iter().filter(|it| !matches!(&*it.name, "output" | "format" | "level")) {
                self.leave(inner, "the access log has all requests of the site");
            }
            match log.text_of("target") {
                Some("\"off\"") => settings.set("access-log", "off"),
                _ => {
                    let pairs = ["target", "format"].map(|name| {
                        let text = log.text_of(name).unwrap_or_default().trim_matches('"').to_owned();
                        (name, text.into())
                    });
                    settings.set("access-log", table(pairs));
                }
            }
        }
    }

    /// The target of a log. `None`: there is none, which is said.
    pub fn log_target(&mut self, line: &Directive) -> Option<String> {
        let Some(output) = line.inner().iter().find(|inner| inner.name == "output") else {
            return Some("-".to_owned());
        };
        for inner in output.inner() {
            self.leave(inner, "logs are renamed by others, as by logrotate; SIGHUP opens them anew");
        }
        match (output.arg(0), output.arg(1)) {
            ("file", path) if !path.is_empty() && !values::has_placeholder(path) => Some(path.to_owned()),
            ("stdout" | "stderr", _) => Some("-".to_owned()),
            ("discard", _) => Some("off".to_owned()),
            _ => {
                self.leave(
                    &without_block(output),
                    "a log goes to a file, to standard output, to syslog or to the journal",
                );
                None
            }
        }
    }

    /// `handle_errors` with a page.
    fn error_pages(&mut self, site: &Directive, has_root: bool, settings: &mut Settings) {
        let mut pages: Vec<(String, toml_edit::Value)> = Vec::new();
        for line in site.inner().iter().filter(|line| line.name == "handle_errors") {
            let page = line.inner().iter().find(|inner| inner.name == "rewrite").and_then(|inner| inner.args.last());
            match page {
                Some(page) if has_root && page.starts_with('/') && !values::has_placeholder(page) => {
                    let statuses = match line.args.is_empty() {
                        true => vec!["4xx".to_owned(), "5xx".to_owned()],
                        false => line.args.clone(),
                    };
                    pages.extend(statuses.into_iter().map(|status| (status, page.as_str().into())));
                }
                _ => {
                    let reason =
                        "an error has a page by its status: `error-pages = { 404 = \"/404.html\" }`, from the root";
                    self.leave(&without_block(line), reason);
                }
            }
        }
        if !pages.is_empty() {
            settings.set("error-pages", table(pages));
        }
    }
}

/// Whether an address is one of TLS, if there is a certificate.
fn is_secure(address: &Address, options: &Options) -> bool {
    match (address.scheme, address.port) {
        (Some(scheme), _) => scheme == Scheme::Https,
        (None, Some(port)) if port == options.http_port => false,
        (None, Some(port)) if port == options.https_port => true,
        (None, _) => !address.host.is_empty(),
    }
}
