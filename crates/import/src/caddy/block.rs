//! A block of directives: its routes.

use super::{
    matcher::{self, Match, Named, Pattern},
    route::{Addition, Route},
    state::Translation,
    values,
};
use crate::{
    draft::{Settings, list, table},
    fields::Fields,
    syntax::Directive,
};

/// Where a block stands.
#[derive(Clone)]
pub struct Scope<'a> {
    pub named: Named<'a>,
    /// The names of the site.
    pub hosts: &'a [String],
    /// The paths of the block.
    pub pattern: Pattern,
    /// The prefix that was taken from the paths.
    pub stripped: String,
    pub root: Option<String>,
}

/// The order in which directives act, wherever they stand, but for those of `route`.
const ORDER: &[&str] = &[
    "redir",
    "rewrite",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "respond",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
];

/// Directives of a whole site, wherever they stand.
const OF_SITE: &[&str] = &["tls", "log", "bind", "handle_errors"];

/// Changes that hold for the directives behind them.
#[derive(Default)]
struct Modified {
    /// Prefixes that are taken away, with the paths for which they are.
    strips: Vec<(Pattern, String)>,
    /// Put in front of all paths.
    added: String,
    tries: Vec<String>,
    /// The script for what is no file.
    fallback: Option<String>,
}

/// A directive that answers.
struct Handler<'a> {
    directive: &'a Directive,
    args: &'a [String],
    paths: Vec<Pattern>,
    /// `allow` or `deny` with addresses.
    clients: Option<(&'static str, Vec<String>)>,
}

impl Translation {
    /// The routes of a block. `is_ordered`: its directives act as they stand.
    pub fn block<'a>(&mut self, lines: &'a [Directive], scope: &Scope<'a>, is_ordered: bool) -> Vec<Route> {
        let mut scope = scope.clone();
        scope.named.extend(named(lines));
        let (mut modified, mut additions, mut handlers) = (Modified::default(), Vec::new(), Vec::new());
        for line in lines.iter().filter(|line| !line.name.starts_with('@')) {
            let name = line.name.as_str();
            if OF_SITE.contains(&name) {
                if scope.pattern != Pattern::All {
                    self.leave(line, "it is a setting of the whole site, not of a route");
                }
                continue;
            }
            // Its only argument is the directory.
            if name == "root" && line.args.len() == 1 {
                scope.root = Some(line.arg(0).to_owned());
                continue;
            }
            if name == "handle_path" && line.args.is_empty() {
                self.leave(line, "it has no path");
                continue;
            }
            if matches!(name, "try_files") {
                modified.tries.extend(self.tries(line));
                continue;
            }
            let (matched, args) = match (name, line.args.len()) {
                // Its only argument is the path.
                ("rewrite", 1) => (Match::Paths(vec![Pattern::All]), &*line.args),
                _ => matcher::of(line, &scope.named, scope.hosts),
            };
            let (paths, clients) = match matched {
                Match::None => continue,
                Match::Unknown(reason) => {
                    self.leave(line, reason);
                    continue;
                }
                Match::Paths(paths) => (paths, None),
                Match::Clients { paths, networks, are_excluded } => {
                    let name = if are_excluded { "deny" } else { "allow" };
                    (paths, Some((name, networks)))
                }
            };
            let whole: Vec<Pattern> = paths
                .into_iter()
                .filter_map(|path| {
                    let whole = path.within(&scope.pattern, &scope.stripped);
                    if whole.is_none() {
                        self.leave(line, "these paths are not plainly a part of those of the block around");
                    }
                    whole
                })
                .collect();
            if whole.is_empty() {
                continue;
            }
            if ORDER.contains(&name) {
                handlers.push(Handler { directive: line, args, paths: whole, clients });
                continue;
            }
            if clients.is_some() {
                self.leave(line, "it is for clients of some addresses: `allow` and `deny` let in or refuse");
                continue;
            }
            match name {
                "root" => match whole.contains(&scope.pattern) {
                    true => scope.root = args.first().cloned(),
                    false => self.leave(line, "a site has one root: make a site of these files"),
                },
                "encode" => {
                    if scope.pattern != Pattern::All {
                        self.leave(
                            line,
                            "compression holds for the whole site; `compression = false` of a route is the exception",
                        );
                    }
                    self.encodes.get_or_insert_with(|| line.clone());
                }
                "uri" => self.uri(line, args, whole, &mut modified),
                "vars" | "map" => self.other(line),
                _ => {
                    let mut addition = Addition::new(line, whole);
                    if self.addition(line, args, &mut addition) {
                        additions.push(addition);
                    }
                }
            }
        }
        if !is_ordered {
            let rank = |handler: &Handler<'_>| {
                // Blocks are one kind.
                let name = handler.directive.name.replace("handle_path", "handle");
                let by_path = handler.paths.iter().map(Pattern::order).min();
                (ORDER.iter().position(|other| *other == name), by_path)
            };
            handlers.sort_by_key(rank);
        }
        modified.fallback = self.php_fallback(lines, &scope.pattern);
        let mut routes = Vec::new();
        for handler in &handlers {
            let refuses = matches!(&*handler.directive.name, "abort" | "error" | "respond");
            if let (true, Some((name, networks))) = (refuses, &handler.clients) {
                // Clients that are refused, rather than those that are let in.
                let mut addition = Addition::new(handler.directive, handler.paths.clone());
                addition.settings.set(if *name == "allow" { "deny" } else { "allow" }, list(networks));
                additions.push(addition);
                continue;
            }
            if let Some((name, _)) = &handler.clients {
                self.leave(handler.directive, format!("other clients get 403 (`{name}`), and no other route"));
            }
            for path in &handler.paths {
                self.handler(handler, path, &scope, &modified, &mut routes);
            }
        }
        self.add(&additions, &mut routes);
        routes
    }

    fn handler<'a>(
        &mut self,
        handler: &Handler<'a>,
        path: &Pattern,
        scope: &Scope<'a>,
        modified: &Modified,
        routes: &mut Vec<Route>,
    ) {
        let Handler { directive, args, clients, .. } = handler;
        let first = routes.len();
        match directive.name.as_str() {
            "handle" | "route" | "handle_path" => {
                let mut inner = Scope { pattern: path.clone(), ..scope.clone() };
                if directive.name == "handle_path" {
                    let Some(prefix) = path.stripped() else {
                        return self.leave(directive, "only a prefix is taken from a path");
                    };
                    inner.stripped = prefix.to_owned();
                    inner.pattern = path.clone().with_slash();
                }
                if !modified.added.is_empty() || !modified.strips.is_empty() {
                    self.leave(directive, "paths are not changed before a block: change them inside");
                }
                routes.extend(self.block(directive.inner(), &inner, directive.name == "route"));
                // Blocks exclude each other: what is not answered inside goes to no directive behind it.
                let is_answered = |route: &Route| route.pattern.covers(&inner.pattern);
                if directive.name != "route" && !routes[first..].iter().any(is_answered) {
                    let mut rest = Route::new(inner.pattern.clone(), directive);
                    let status = if routes.len() == first { "501" } else { "404" };
                    rest.settings.write("respond", status.to_owned(), None);
                    routes.push(rest);
                }
            }
            _ => {
                let mut route = Route::new(path.clone(), directive);
                if self.answers(directive, args, &mut route, scope, modified) {
                    routes.push(route);
                }
            }
        }
        if let Some((name, networks)) = clients {
            routes[first..].iter_mut().for_each(|route| route.settings.set(name, list(networks)));
        }
    }

    /// Whether the directive makes a route.
    fn answers(
        &mut self,
        directive: &Directive,
        args: &[String],
        route: &mut Route,
        scope: &Scope<'_>,
        modified: &Modified,
    ) -> bool {
        match directive.name.as_str() {
            "redir" => self.redirect(directive, args, route),
            "rewrite" => self.rewrite(directive, args, route, scope),
            "abort" => {
                self.leave(directive, "no connection is closed without an answer: it is 403");
                route.settings.write("respond", "403".to_owned(), None);
                true
            }
            "respond" | "error" => self.respond(directive, args, route),
            "file_server" => self.file_server(directive, args, route, scope, modified),
            "reverse_proxy" => {
                let conditional = modified.strips.iter().find(|(paths, _)| paths.covers(&route.pattern));
                let stripped = conditional.map_or(&*scope.stripped, |(_, prefix)| prefix);
                if !stripped.is_empty() {
                    route.pattern = route.pattern.clone().with_slash();
                }
                match route.pattern.replaced(stripped, &modified.added) {
                    Ok(Some(replaced)) => route.settings.set("replace-prefix", replaced),
                    Ok(None) => {}
                    Err(()) => {
                        let reason = "of the path that an upstream sees only the prefix changes (`replace-prefix`)";
                        self.leave(directive, reason);
                        return false;
                    }
                }
                self.proxy(directive, args, route)
            }
            _ => self.php(directive, args, route, scope),
        }
    }

    fn uri(&mut self, line: &Directive, args: &[String], paths: Vec<Pattern>, modified: &mut Modified) {
        match args {
            [what, prefix] if what == "strip_prefix" => {
                let prefix = format!("/{}", prefix.trim_matches('/'));
                for path in paths {
                    // A path that does not begin with the prefix stays as it is.
                    let path = if path == Pattern::All { Pattern::Prefix(prefix.clone()) } else { path };
                    modified.strips.push((path, prefix.clone()));
                }
            }
            _ => self.leave(line, "only a prefix is taken from a path (`strip_prefix`)"),
        }
    }

    fn tries(&mut self, line: &Directive) -> Vec<String> {
        let mut tries = Vec::new();
        for path in &line.args {
            match path.as_str() {
                "{path}" | "{path}/" | "{uri}" | "=404" => {}
                path if path.starts_with('=') => {
                    self.leave(line, format!("`{path}`: what is missing is answered by another file, or with 404"));
                }
                path => match values::template(path.split('?').next().unwrap_or(path)) {
                    Ok(path) => tries.push(path),
                    Err(reason) => self.leave(line, reason),
                },
            }
        }
        if !line.inner().is_empty() {
            self.leave(line, "the first file that exists is taken");
        }
        tries
    }

    fn redirect(&mut self, directive: &Directive, args: &[String], route: &mut Route) -> bool {
        let (target, code) = (args.first().map_or("", String::as_str), args.get(1).map_or("temporary", String::as_str));
        let status = match code {
            "temporary" => 302,
            "permanent" => 301,
            "html" => {
                self.leave(directive, "a redirect is one by status: it is 302");
                302
            }
            code => match code.parse::<u16>() {
                Ok(status @ (301..=303 | 307 | 308)) => status,
                _ => {
                    self.leave(directive, "a redirect has one of the statuses 301, 302, 303, 307 and 308");
                    return false;
                }
            },
        };
        match values::template(target) {
            Ok(target) if !target.is_empty() => {
                route.settings.set("redirect", target);
                if status != 302 {
                    route.settings.write("redirect-status", status.to_string(), None);
                }
                true
            }
            Ok(_) => {
                self.leave(directive, "it has no address");
                false
            }
            Err(reason) => {
                self.leave(directive, reason);
                false
            }
        }
    }

    fn rewrite(&mut self, directive: &Directive, args: &[String], route: &mut Route, scope: &Scope<'_>) -> bool {
        let target = match values::template(args.first().map_or("", String::as_str)) {
            Ok(target) if target.starts_with('/') => target,
            Ok(_) => {
                self.leave(directive, "a new path begins with a slash");
                return false;
            }
            Err(reason) => {
                self.leave(directive, reason);
                return false;
            }
        };
        let fixed = target.split(['{', '?']).next().unwrap_or_default();
        if !scope.stripped.is_empty() || route.pattern.covers(&Pattern::Exactly(fixed.to_owned())) {
            self.leave(directive, "routes are tried anew with the new path, and this one would take it again");
            return false;
        }
        let keeps = !target.contains('?') && !target.contains("{query}") && !target.contains("{uri}");
        route.settings.set("rewrite", format!("{target}{}", if keeps { "{query}" } else { "" }));
        true
    }

    fn respond(&mut self, directive: &Directive, args: &[String], route: &mut Route) -> bool {
        let is_status = |text: &str| text.len() == 3 && text.chars().all(|c| c.is_ascii_digit());
        let default = if directive.name == "error" { "500" } else { "200" };
        let (mut body, mut status) = (String::new(), default.to_owned());
        match args {
            [] => {}
            [one] if is_status(one) => status = one.clone(),
            [text, rest @ ..] => {
                body = text.clone();
                if let Some(code) = rest.first() {
                    status = code.clone();
                }
            }
        }
        for line in directive.inner() {
            match line.name.as_str() {
                "body" => body = line.arg(0).to_owned(),
                "message" => body = line.arg(0).to_owned(),
                _ => self.other(line),
            }
        }
        if !matches!(status.parse::<u16>(), Ok(200..=299 | 400..=599)) {
            self.leave(directive, "`respond` has statuses from 200 to 299 and from 400 to 599");
            return false;
        }
        route.settings.write("respond", status, None);
        match body.as_str() {
            "" => {}
            text if values::has_placeholder(text) && values::template(text).is_ok() => {
                self.leave(directive, "the text of an answer has no placeholders");
            }
            text => route.settings.set("respond-body", text),
        }
        true
    }

    fn file_server(
        &mut self,
        directive: &Directive,
        args: &[String],
        route: &mut Route,
        scope: &Scope<'_>,
        modified: &Modified,
    ) -> bool {
        let mut root = scope.root.clone();
        let mut lists = args.iter().any(|arg| arg == "browse");
        for line in directive.inner() {
            match line.name.as_str() {
                "root" => root = line.args.last().cloned(),
                "browse" => {
                    lists = true;
                    if !line.args.is_empty() {
                        self.leave(line, "the page of a listing is built in");
                    }
                }
                "index" => {
                    if line.args.first().is_none_or(|name| name != "index.html") {
                        self.leave(line, "it is a setting of the whole site (`site.files.index`)");
                    }
                }
                "hide" => self.leave(
                    line,
                    "names that begin with a dot are never sent; answer others by a route with `respond = 404`",
                ),
                "precompressed" => self.notes.skip(line),
                "pass_thru" => self.leave(line, "what is missing is answered by another file, or with 404"),
                _ => self.other(line),
            }
        }
        let root = root.unwrap_or_else(|| ".".to_owned());
        if values::has_placeholder(&root) {
            self.leave(directive, "a directory has no placeholders: give each site its own root");
            return false;
        }
        let conditional = modified.strips.iter().find(|(paths, _)| paths.covers(&route.pattern));
        let stripped = conditional.map_or(&*scope.stripped, |(_, prefix)| prefix);
        // The files of a path lie below the root of the site under the same path.
        let root = root.trim_end_matches('/');
        let root = if root.is_empty() { "/" } else { root };
        match root.strip_suffix(stripped) {
            Some(root) if !root.is_empty() => route.root = Some(root.to_owned()),
            Some(_) => route.root = Some("/".to_owned()),
            None => {
                let reason = "the files of a path lie below the root of its site under the same path: move them, or make a \
                              site of them";
                self.leave(directive, reason);
                return false;
            }
        }
        if !modified.added.is_empty() {
            self.leave(directive, "the path of a file is that of the request");
        }
        route.settings.set("files", true);
        if lists {
            route.settings.set("listing", true);
        }
        if let (Some(fallback), Pattern::All) = (&modified.fallback, &route.pattern) {
            route.settings.set("fallback", fallback.as_str());
        } else if !modified.tries.is_empty() {
            route.settings.set("try-files", list(&modified.tries));
        }
        true
    }

    /// Adds the settings of a directive to the routes of its block. Returns whether there are any.
    fn addition(&mut self, line: &Directive, args: &[String], addition: &mut Addition<'_>) -> bool {
        match line.name.as_str() {
            "header" => {
                match line.inner() {
                    [] => self.header(line, args, &mut addition.response),
                    lines => lines.iter().for_each(|line| self.field(line, &mut addition.response)),
                }
                true
            }
            "request_header" => {
                self.header(line, args, &mut addition.request);
                true
            }
            "forward_auth" => self.forward_auth(line, args, addition),
            "basic_auth" | "basicauth" => self.password(line, args, addition),
            "request_body" => {
                let size = line.inner().iter().find(|line| line.name == "max_size");
                match size.and_then(|size| values::size(size.arg(0))) {
                    Some(size) => addition.settings.set("request-body", size),
                    None => self.leave(line, "it has no size that can be read (`max_size`)"),
                }
                size.is_some()
            }
            "log_skip" | "skip_log" => {
                addition.settings.set("access-log", "off");
                true
            }
            _ => {
                self.other(line);
                false
            }
        }
    }

    /// A line of a block of `header`.
    fn field(&mut self, line: &Directive, headers: &mut Fields) {
        if matches!(line.name.as_str(), "defer" | "match") {
            if line.name == "match" {
                self.leave(line, "fields are for all statuses");
            }
            return;
        }
        let args: Vec<String> = std::iter::once(&line.name).chain(&line.args).cloned().collect();
        self.header(line, &args, headers);
    }

    fn password(&mut self, line: &Directive, args: &[String], addition: &mut Addition<'_>) -> bool {
        let names: Vec<&str> = line.inner().iter().map(|user| user.name.as_str()).collect();
        if names.is_empty() {
            self.leave(line, "it names no user");
            return false;
        }
        if args.first().is_some_and(|hash| hash != "bcrypt") {
            self.leave(line, "passwords are hashed by bcrypt, apr1 or SHA-crypt");
        }
        let realm = args.get(1).map(|realm| ("realm", realm.as_str().into()));
        let required = [("user", list(&names))].into_iter().chain(realm);
        addition.settings.set("require", table(required));
        self.has_users = true;
        let reason = format!(
            "users stand in a file: write a line `name:hash` for each of {} into `users.htpasswd`, for its owner alone",
            names.join(", ")
        );
        let left = Directive { block: None, ..line.clone() };
        self.leave(&left, reason);
        true
    }
}

/// The matchers that a block defines.
pub fn named(lines: &[Directive]) -> Named<'_> {
    lines.iter().filter(|line| line.name.starts_with('@')).map(|line| (line.name.as_str(), line)).collect()
}

/// The compression of a site.
pub fn compression(translation: &mut Translation, line: &Directive) -> Settings {
    let mut settings = Settings::default();
    let mut codings: Vec<&str> = Vec::new();
    let mut coding = |name: &str, line: &Directive, translation: &mut Translation| match name {
        "gzip" if !codings.contains(&"gzip") => codings.push("gzip"),
        "zstd" if !codings.contains(&"zstd") => codings.push("zstd"),
        // Of a module that is not part of Caddy.
        "br" if !codings.contains(&"br") => codings.push("br"),
        "gzip" | "zstd" | "br" => {}
        _ => translation.leave(line, format!("`{name}`: responses are compressed by Zstandard, Brotli or gzip")),
    };
    for name in line.args.iter().filter(|name| !name.starts_with(['@', '/', '*'])) {
        coding(name, line, translation);
    }
    for inner in line.inner() {
        match inner.name.as_str() {
            "minimum_length" => {
                if let Some(size) = values::size(inner.arg(0)) {
                    settings.set("min-size", size);
                }
            }
            "match" => translation.leave(inner, "media types are listed in `compression.types`"),
            name => {
                coding(name, inner, translation);
                match (name, inner.arg(0).parse::<u8>()) {
                    ("gzip", Ok(level @ 1..=9)) => settings.write("gzip-level", level.to_string(), None),
                    ("br", Ok(level @ 0..=11)) => settings.write("br-level", level.to_string(), None),
                    _ => {}
                }
            }
        }
    }
    if codings.is_empty() {
        codings = vec!["zstd", "gzip"];
    }
    settings.set("codings", list(codings));
    settings
}
