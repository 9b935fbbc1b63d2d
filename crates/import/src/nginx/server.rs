//! `server`: its site.

use super::{
    clients,
    guards::{is_guard, is_translated_guard},
    listen::{self, Listen, Others},
    location::{Location, Pattern},
    state::{INHERITED, Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    fields::Fields,
    syntax::Directive,
};

/// A `server` with what decides where its requests come from.
pub struct Server<'a> {
    http: &'a [Directive],
    pub directive: &'a Directive,
    pub listen: Vec<Listen>,
    /// Addresses beside its own at which requests may reach it after the translation.
    others: Others,
    names: Vec<String>,
    /// Whether names of it have no counterpart.
    has_lost_names: bool,
    has_certificate: bool,
}

impl<'a> Server<'a> {
    pub(super) fn read(translation: &mut Translation<'a>, http: &'a [Directive], directive: &'a Directive) -> Self {
        let of = |name: &'static str| directive.inner().iter().filter(move |inner| inner.name == name);
        let mut listen: Vec<Listen> = of("listen").filter_map(|one| listen::read(translation, one)).collect();
        if of("listen").next().is_none() {
            listen.push(Listen { address: ":80".to_owned(), tls: false, is_default: false });
        }
        // An older way to say it.
        if of("ssl").any(|ssl| ssl.arg(0) == "on") {
            listen.iter_mut().for_each(|listen| listen.tls = true);
        }
        let mut names = Vec::new();
        let mut has_lost_names = false;
        for directive in of("server_name") {
            for name in &directive.args {
                match name.as_str() {
                    "_" | "" | "localhost" => {}
                    name if name.starts_with('~') || name.ends_with(".*") || values::has_variable(name) => {
                        has_lost_names = true;
                        translation.leave(directive, format!("`{name}`: a name is whole, or begins with `*.`"));
                    }
                    name => match name.strip_prefix('.') {
                        Some(name) => names.extend([name.to_owned(), format!("*.{name}")]),
                        None => names.push(name.to_ascii_lowercase()),
                    },
                }
            }
        }
        let has_certificate = one_in_force(&[http, directive.inner()], "ssl_certificate").is_some();
        Self { http, directive, listen, others: Others::None, names, has_lost_names, has_certificate }
    }

    fn inner(&self) -> &'a [Directive] {
        self.directive.inner()
    }

    fn is_default(&self) -> bool {
        self.listen.iter().any(|listen| listen.is_default)
    }

    fn has_tls(&self) -> bool {
        self.listen.iter().any(|listen| listen.tls)
    }

    /// Whether all it does is to send clients to the same host by HTTPS.
    fn only_sends_to_https(&self) -> bool {
        let is_plain = self.listen.iter().all(|listen| !listen.tls);
        let sends = |returns: &Directive| {
            returns.name == "return"
                && matches!(returns.arg(0), "301" | "302" | "307" | "308")
                && returns.arg(1).starts_with("https://")
                && returns.arg(1).ends_with("$request_uri")
        };
        // `if ($host = name) { return … }`, as certbot writes it, and the same in `location /`.
        let nested = |one: &Directive| {
            sends(one) || matches!(one.name.as_str(), "if" | "location") && one.inner().iter().any(&sends)
        };
        let harmless = |one: &Directive| {
            nested(one)
                || matches!(
                    one.name.as_str(),
                    "listen" | "server_name" | "access_log" | "error_log" | "server_tokens" | "root"
                )
                || one.name == "return" && one.arg(0) == "404"
                || one.name == "location" && one.args.iter().any(|arg| arg.contains("acme-challenge"))
        };
        is_plain && self.inner().iter().any(nested) && self.inner().iter().all(harmless)
    }

    /// Sites for hosts that `if ($host …)` sends elsewhere at once; the server has these names no more.
    pub(super) fn take_sent_elsewhere(&mut self, translation: &mut Translation<'a>) -> Vec<Section> {
        let mut sites = Vec::new();
        for directive in self.inner() {
            let Some((condition, answer)) = of_host(directive) else { continue };
            let taken: Vec<String> = self.names.iter().filter(|name| condition.holds(name)).cloned().collect();
            // The first site without names is for all others, and a wildcard has no end of names.
            if taken.is_empty()
                || taken.len() == self.names.len()
                || self.is_default()
                || taken.iter().any(|it| it.starts_with('*'))
            {
                translation.leave(directive, "a site answers for a host: give the host a `server` of its own first");
                continue;
            }
            let mut route = Section::new("[[site.route]]");
            route.settings.set("path", "/");
            if !translation.answer(answer, &mut route.settings) {
                continue;
            }
            let mut site = Section::new("[[site]]");
            site.comment.push(from(&directive.place));
            site.settings.set("names", list(&taken));
            self.certificate(&mut site.settings);
            site.inner.push(route);
            sites.push(site);
            self.names.retain(|name| !taken.contains(name));
        }
        sites
    }

    fn certificate(&self, settings: &mut Settings) {
        let levels = [self.http, self.inner()];
        let tls = ["ssl_certificate", "ssl_certificate_key"].map(|name| one_in_force(&levels, name));
        if let [Some(chain), Some(key)] = tls.filter_tls(self.has_tls()) {
            settings.set("tls-cert", chain.arg(0));
            settings.set("tls-key", key.arg(0));
            if let Some(response) = one_in_force(&levels, "ssl_stapling_file") {
                settings.set("ocsp-response", response.arg(0));
            }
        }
    }

    /// A site answers at all addresses of `listen`, also at those that its server did not have. If that had only
    /// addresses of this machine or of a private network, other clients find the site closed.
    fn elsewhere(&self, translation: &mut Translation<'a>, settings: &mut Settings) {
        let at = self.inner().iter().find(|one| one.name == "listen").unwrap_or(self.directive);
        let own = match self.others {
            Others::None => return,
            Others::Named => {
                let message = "a site is reached by its names at all addresses of `listen`, not at this one only";
                return translation.leave(at, message);
            }
            Others::Refused(own) => own,
        };
        translation.leave(
            at,
            format!(
                "a site is reached at all addresses of `listen`: other clients than {} find it closed",
                own.join(" ")
            ),
        );
        settings.set("maintenance", table([("file", "/".into()), ("exempt", list(own))]));
    }

    /// The site.
    pub(super) fn translate(&self, translation: &mut Translation<'a>) -> Section {
        let levels = [self.http, self.inner()];
        let mut site = Section::new("[[site]]");
        site.comment.push(from(&self.directive.place));
        let settings = &mut site.settings;
        if !self.names.is_empty() {
            settings.set("names", list(&self.names));
        }
        let root = self.root(&levels);
        if let Some(root) = root {
            settings.set("root", root);
        }
        self.certificate(settings);
        self.elsewhere(translation, settings);
        if one_in_force(&levels, "ssl_verify_client").is_some_and(|verify| verify.arg(0) != "off")
            && let Some(authorities) = one_in_force(&levels, "ssl_client_certificate")
        {
            settings.set("client-ca", authorities.arg(0));
        }
        translation.access(&levels, &levels, settings);
        let of_all = translation.unguarded.take();
        if let Some(file) = self.inner().iter().find_map(maintenance) {
            match settings.has("maintenance") {
                true => translation.leave(self.directive, format!("the file `{file}` does not close it, besides")),
                false => settings.set("maintenance", table([("file", file.into())])),
            }
        }
        translation.error_pages(&levels, root, settings);
        translation.log(&levels[1..], settings);
        let has_words = translation.expires(&levels, &levels, false, settings);
        self.others(translation);
        let (mut routes, unguarded) = self.routes(translation, root);
        let headers = translation.response_headers(&levels, has_words, false);
        let is_for_all = |pattern: &Pattern| *pattern == Pattern::Prefix("/".to_owned());
        let tries = in_force(&levels, "try_files").is_empty();
        if root.is_some() && !routes.iter().any(|(pattern, _)| is_for_all(pattern)) && (!headers.is_empty() || !tries) {
            routes.extend(translation.rest_of_files(self.directive, &levels, headers));
        }
        let has_scripts = routes.iter().any(|(_, route)| route.settings.has_any("fastcgi"));
        site.inner.extend(self.files(translation, &levels, has_scripts));
        site.inner.extend(translation.compression(&levels));
        site.inner.extend(routes.into_iter().map(|(_, route)| route));
        if let Some(guard) = unguarded.or(of_all).or(translation.unguarded_site.take()) {
            translation.close_site(guard, &mut site);
        }
        site
    }

    /// The root of the server, or of its location `/`.
    fn root(&self, levels: &[&'a [Directive]]) -> Option<&'a str> {
        let of_all = |one: &&Directive| one.name == "location" && one.args.last().is_some_and(|path| path == "/");
        let everything = self.inner().iter().find(of_all);
        let inner = everything.and_then(|all| all.inner().iter().find(|one| one.name == "root"));
        let said = one_in_force(levels, "root").or(inner).map(|root| root.arg(0)).filter(|root| !root.is_empty());
        // Where something else answers for all other paths, the root is for these locations alone.
        let has_answer =
            |all: &&Directive| all.inner().iter().any(|one| one.name == "return" || one.name.ends_with("_pass"));
        said.or_else(|| everything.filter(has_answer).and_then(|_| self.inner().iter().find_map(root_of)))
    }

    fn others(&self, translation: &mut Translation<'a>) {
        for directive in self.inner() {
            match directive.name.as_str() {
                "listen" | "server_name" | "ssl" | "location" | "rewrite" | "return" | "if" => {}
                "types" => translation.types(directive),
                "error_log" => translation.error_log(directive),
                "keepalive_timeout" => translation.limit_time(directive, "idle-timeout"),
                name if INHERITED.contains(&name) || clients::NAMES.contains(&name) => {}
                _ => translation.other(directive),
            }
        }
        let sizes = |block: &'a [Directive]| block.iter().filter(|one| one.name == "client_max_body_size");
        for directive in sizes(self.http).chain(sizes(self.inner())) {
            // A size that cannot be read is named.
            translation.body_size(directive);
        }
    }

    /// The routes, and a guard of all of them that has no counterpart.
    fn routes(
        &self,
        translation: &mut Translation<'a>,
        root: Option<&str>,
    ) -> (Vec<(Pattern, Section)>, Option<&'a Directive>) {
        let is_lost = |one: &&Directive| is_guard(one) && !is_translated_guard(one) && one.name != "if";
        let mut unguarded = self.inner().iter().find(is_lost);
        let everything = Pattern::Prefix("/".to_owned());
        let mut first: Vec<(Pattern, Section)> = Vec::new();
        for directive in self.inner() {
            match directive.name.as_str() {
                "rewrite" => first.extend(translation.rewrite(directive)),
                "if" if maintenance(directive).is_some() || of_host(directive).is_some() => {}
                "if" if self.is_of_https(directive) => {
                    translation
                        .leave(directive, "a site with a certificate sends requests without TLS to it by default");
                }
                "if" => match translation.conditional(directive, &everything) {
                    Some(made) => first.extend(made),
                    None => unguarded = unguarded.or(Some(directive).filter(|it| is_guard(it))),
                },
                "return" => {
                    let pattern = Pattern::Prefix("/".to_owned());
                    let mut section = Section::new("[[site.route]]");
                    section.comment.push(from(&directive.place));
                    section.settings.set("path", "/");
                    if translation.answer(directive, &mut section.settings) {
                        // All requests are answered before a location is looked for.
                        first.push((pattern, section));
                        translation.headers_of_answers(&[self.http, self.inner()], &mut first);
                        return (first, unguarded);
                    }
                }
                _ => {}
            }
        }
        translation.headers_of_answers(&[self.http, self.inner()], &mut first);
        let mut routes = Vec::new();
        for directive in self.inner().iter().filter(|directive| directive.name == "location") {
            let levels = vec![self.http, self.inner(), directive.inner()];
            routes.extend(translation.location(&Location { directive, levels, outer: None }, root));
        }
        let without_slash: Vec<_> = routes.iter().filter_map(|route| self.without_slash(route)).collect();
        routes.extend(without_slash);
        translation.longer_than_first(&mut routes);
        routes.sort_by_key(|(pattern, _)| pattern.order());
        // A location `/` that only serves files is what happens anyway.
        let plain = |(pattern, route): &(Pattern, Section)| {
            *pattern == Pattern::Prefix("/".to_owned()) && route.settings.is_only(&["path", "files"])
        };
        routes.retain(|route| !plain(route));
        first.extend(routes);
        (first, unguarded)
    }

    /// nginx sends a client from `/a` to `/a/`, if another server or an application answers for `/a/` and no location for `/a`.
    fn without_slash(&self, (pattern, route): &(Pattern, Section)) -> Option<(Pattern, Section)> {
        let bare = pattern.prefix()?.strip_suffix('/').filter(|bare| !bare.is_empty())?;
        let of_bare = |one: &Directive| one.name == "location" && one.args.last().is_some_and(|path| path == bare);
        let has_origin = ["upstream", "fastcgi", "uwsgi"].into_iter().any(|name| route.settings.has_any(name));
        if !has_origin || route.settings.has("internal") || self.inner().iter().any(of_bare) {
            return None;
        }
        let pattern = Pattern::Exactly(bare.to_owned());
        let mut section = Section { settings: pattern.settings(), ..Section::new("[[site.route]]") };
        section.comment.clone_from(&route.comment);
        section.comment.truncate(1);
        section.settings.set("redirect", format!("{bare}/{{query}}"));
        section.settings.write("redirect-status", "301".to_owned(), None);
        if let Some(fields) = route.settings.text_of("response-headers.set") {
            section.settings.write("response-headers.set", fields.to_owned(), None);
        }
        for guard in ["require", "forward-auth"] {
            if route.settings.text_of(guard) == Some("\"off\"") {
                section.settings.set(guard, "off");
            }
        }
        Some((pattern, section))
    }

    /// `if ($scheme = http) { return 301 https://…; }` of a site with a certificate.
    fn is_of_https(&self, directive: &Directive) -> bool {
        let condition = directive.args.join(" ");
        let condition = condition.trim_matches(['(', ')', ' ']);
        let is_plain = matches!(condition, "$scheme = http" | "$scheme != https" | "$https = " | "$https =");
        let sends = |inner: &Directive| inner.name == "return" && inner.arg(1).starts_with("https://");
        is_plain && self.has_certificate && directive.inner().iter().all(sends)
    }

    /// `has_scripts`: a route runs them. Otherwise an index that is a script would be sent as it is.
    fn files(
        &self,
        translation: &mut Translation<'a>,
        levels: &[&'a [Directive]],
        has_scripts: bool,
    ) -> Option<Section> {
        let of_all = |one: &&Directive| one.name == "location" && one.args.last().is_some_and(|path| path == "/");
        let all = self.inner().iter().find(of_all).map(Directive::inner);
        let levels = [levels, all.as_slice()].concat();
        let mut section = Section::new("[site.files]");
        if let Some(index) = one_in_force(&levels, "index") {
            let plain = |name: &&String| !values::has_variable(name) && !name.starts_with('/');
            let mut names: Vec<&String> = index.args.iter().filter(plain).collect();
            if !has_scripts && names.iter().any(|name| name.ends_with(".php")) {
                translation.leave(index, "nothing runs a script here, and its text must not be sent");
                names.retain(|name| !name.ends_with(".php"));
            }
            if names != ["index.html"] && !names.is_empty() {
                section.settings.set("index", list(names));
            }
        }
        if one_in_force(&levels, "autoindex").is_some_and(|autoindex| autoindex.arg(0) == "on") {
            section.settings.set("listing", true);
        }
        (!section.settings.is_empty()).then_some(section)
    }
}

/// The root that a location with files has: `root`, or an `alias` that ends with the path of the location.
fn root_of(location: &Directive) -> Option<&str> {
    let path = match &location.args[..] {
        [path] if location.name == "location" => path,
        [modifier, path] if location.name == "location" && modifier == "^~" => path,
        _ => return None,
    };
    let said = |name: &str| location.inner().iter().find(|one| one.name == name).map(|one| one.arg(0));
    let root =
        said("root").or_else(|| said("alias")?.trim_end_matches('/').strip_suffix(path.trim_end_matches('/')))?;
    (path.starts_with('/') && root.len() > 1 && root.starts_with('/') && !values::has_variable(root)).then_some(root)
}

/// Certificates of servers without TLS are of no use.
trait OfTls: Sized {
    fn filter_tls(self, tls: bool) -> Self;
}

impl OfTls for [Option<&Directive>; 2] {
    fn filter_tls(self, tls: bool) -> Self {
        if tls { self } else { [None, None] }
    }
}

impl<'a> Translation<'a> {
    /// The route for files that no location takes.
    fn rest_of_files(
        &mut self,
        server: &'a Directive,
        levels: &[&'a [Directive]],
        headers: Fields,
    ) -> Option<(Pattern, Section)> {
        let mut section = Section::new("[[site.route]]");
        section.comment.push(from(&server.place));
        section.settings.set("path", "/");
        section.settings.set("files", true);
        self.instead_of_files(levels, &mut section.settings);
        headers.write("response-headers", &mut section.settings);
        let told = !section.settings.is_only(&["path", "files"]);
        told.then(|| (Pattern::Prefix("/".to_owned()), section))
    }
}

/// Takes out the servers whose names have no counterpart, unless one answers for all other names as well.
pub fn without_lost<'a>(translation: &mut Translation<'a>, servers: &mut Vec<Server<'a>>) {
    // The first server of a file answers for all other names in nginx, too.
    let first_of_all = servers.first().map(|server| server.directive);
    servers.retain(|server| {
        let is_first = first_of_all.is_some_and(|first| std::ptr::eq(first, server.directive));
        let is_lost = server.has_lost_names && server.names.is_empty() && !server.is_default() && !is_first;
        if is_lost {
            translation.leave(server.directive, "none of its names has a counterpart, so that it has no requests");
        }
        !is_lost
    });
}

/// Makes the servers sites: each name has one, and the first answers for all other names.
pub fn merge<'a>(translation: &mut Translation<'a>, servers: &mut Vec<Server<'a>>) {
    // Of all names with and without TLS, the server with TLS is the site.
    let secure: Vec<String> =
        servers.iter().filter(|server| server.has_tls()).flat_map(|server| server.names.clone()).collect();
    let is_every_name_secure = servers.iter().any(|server| server.has_tls() && server.names.is_empty());
    servers.retain_mut(|server| {
        if server.has_tls() {
            return true;
        }
        let is_secure = |name: &String| secure.contains(name);
        let covered = match server.names.is_empty() {
            true => !secure.is_empty() || is_every_name_secure,
            false => is_every_name_secure || server.names.iter().all(is_secure),
        };
        if server.only_sends_to_https() && covered {
            translation
                .leave(server.directive, "a site with a certificate sends requests without TLS to it by default");
            return false;
        }
        let had_names = !server.names.is_empty();
        server.names.retain(|name| !is_secure(name));
        if if had_names { server.names.is_empty() } else { is_every_name_secure } {
            let message =
                "a name has one site, whatever the address: the server of these names with TLS was translated";
            translation.leave(server.directive, message);
            return false;
        }
        true
    });
    servers.sort_by_key(|server| !(server.is_default() || server.names.is_empty()));
    let mut taken: Vec<String> = Vec::new();
    let mut nameless = false;
    servers.retain_mut(|server| {
        let had_names = !server.names.is_empty();
        server.names.retain(|name| !taken.contains(name));
        taken.extend(server.names.iter().cloned());
        let is_reached = if had_names { !server.names.is_empty() } else { !std::mem::replace(&mut nameless, true) };
        if !is_reached {
            let message = "a name has one site, whatever the address: another server of these names was translated";
            translation.leave(server.directive, message);
        }
        is_reached
    });
    let all: Vec<Listen> = servers.iter().flat_map(|server| server.listen.clone()).collect();
    for server in servers {
        server.others = listen::others(&server.listen, &all);
    }
}

/// A condition on the host of a request.
struct OfHost {
    name: String,
    /// Whether it holds for all other names.
    others: bool,
}

impl OfHost {
    fn holds(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(&self.name) != self.others
    }
}

/// `if ($host = NAME) { return …; }`, also with `!=`.
fn of_host(directive: &Directive) -> Option<(OfHost, &Directive)> {
    let [answer] = directive.inner() else { return None };
    let condition = directive.args.join(" ");
    let words: Vec<&str> = condition.strip_prefix('(')?.strip_suffix(')')?.split_whitespace().collect();
    let [variable, operator, name] = words[..] else { return None };
    let is_it = directive.name == "if" && answer.name == "return" && matches!(variable, "$host" | "$http_host");
    let others = match operator {
        "=" => false,
        "!=" => true,
        _ => return None,
    };
    (is_it && !name.is_empty() && !values::has_variable(name))
        .then(|| (OfHost { name: name.to_owned(), others }, answer))
}

/// `if (-f /run/closed) { return 503; }`: the file that closes a site.
fn maintenance(directive: &Directive) -> Option<String> {
    let [answer] = directive.inner() else { return None };
    let closes = directive.name == "if" && answer.name == "return" && answer.args == ["503"];
    let condition = directive.args.join(" ");
    let file = condition.strip_prefix('(')?.strip_suffix(')')?.trim().strip_prefix("-f ")?.trim();
    (closes && file.starts_with('/') && !file.contains('$')).then(|| file.to_owned())
}
