//! `location`: its route.

use super::{
    compression::is_compressed,
    condition::entries,
    error_page::is_error_page,
    expand::ENTRY,
    expression::{starts_with, whole_address, within, without_looking_around},
    fastcgi::is_done_anyway,
    forward_auth::is_for_auth,
    guards::{guard_in, is_guard, is_translated_guard, refuses},
    named::{goes_on_to, is_named_route, only_path},
    state::{INHERITED, Translation, in_force, one_in_force},
    upstream::{Target, idle_timeout},
    values,
};
use crate::{
    draft::{Section, Settings, from, list, table},
    syntax::Directive,
};

/// A location with the blocks around it, the outermost first.
pub struct Location<'a> {
    pub directive: &'a Directive,
    pub levels: Vec<&'a [Directive]>,
    /// The location around it.
    pub outer: Option<Pattern>,
}

/// The paths that a location takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `location = /path`
    Exactly(String),
    /// `location ^~ /path`
    PrefixFirst(String),
    /// `location ~ expression`
    Expression(String),
    /// `location ~ expression` in the location of a prefix.
    Inner {
        /// It takes paths below the prefix only.
        expression: String,
        prefix: String,
        /// Whether the outer location has `^~`.
        is_first: bool,
        /// Longer prefixes, whose locations take their paths.
        others: Vec<String>,
    },
    /// `location /path`
    Prefix(String),
    /// Some paths of a location, in front of it.
    Part { expression: String, location: Box<Pattern> },
    /// `location @name`, by a path that no client may ask for.
    Named(String),
}

impl Pattern {
    /// The place among the routes. Here the first route that matches counts; nginx asks for exact paths, then for the
    /// longest prefix if it has `^~`, then for expressions in their order, then for the longest prefix. The expressions in the
    /// location of the longest prefix come before all others.
    pub fn order(&self) -> (u8, usize) {
        let shorter = |path: &str| usize::MAX - path.len();
        match self {
            Self::Exactly(_) | Self::Named(_) => (0, 0),
            Self::Inner { is_first: true, .. } => (1, 0),
            Self::PrefixFirst(path) => (2, shorter(path)),
            Self::Inner { is_first: false, .. } => (3, 0),
            Self::Expression(_) => (4, 0),
            Self::Prefix(path) => (5, shorter(path)),
            Self::Part { location, .. } => location.order(),
        }
    }

    /// The settings of a route that refuses requests: for every path that begins with a prefix, as in nginx, and not
    /// only for what is below it.
    pub(super) fn settings_of_refusal(&self) -> Settings {
        let mut settings = self.settings();
        if let Some(path) = self.prefix().filter(|path| !path.ends_with('/')) {
            settings.rename("path", "path-regex", starts_with(path));
        }
        settings
    }

    pub(super) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        match self {
            Self::Exactly(path) => settings.set("path-regex", format!("^{}$", regex::escape(path))),
            Self::PrefixFirst(path) | Self::Prefix(path) => settings.set("path", path.as_str()),
            Self::Expression(expression) | Self::Part { expression, .. } => {
                settings.set("path-regex", expression.as_str())
            }
            Self::Inner { expression, others, .. } => {
                settings.set("path-regex", expression.as_str());
                if !others.is_empty() {
                    settings.set("unless", table([("path-regex", list(others.iter().map(|path| starts_with(path))))]));
                }
            }
            Self::Named(path) => {
                settings.set("path", path.as_str());
                settings.set("internal", true);
                // Its requests keep their path.
                settings.set("replace-prefix", "/");
            }
        }
        settings
    }

    pub(super) fn expression(&self) -> Option<&str> {
        match self {
            Self::Expression(expression) | Self::Inner { expression, .. } => Some(expression),
            _ => None,
        }
    }

    /// The prefix that an expression in this location is confined to, whether that has `^~`, and the longer prefixes, if they
    /// are known.
    fn around(&self) -> Option<(&str, bool, Option<&[String]>)> {
        match self {
            Self::PrefixFirst(path) => Some((path, true, None)),
            Self::Prefix(path) => Some((path, false, None)),
            Self::Inner { prefix, is_first, others, .. } => Some((prefix, *is_first, Some(others))),
            Self::Exactly(_) | Self::Expression(_) | Self::Part { .. } | Self::Named(_) => None,
        }
    }

    pub(super) fn prefix(&self) -> Option<&str> {
        match self {
            Self::PrefixFirst(path) | Self::Prefix(path) => Some(path),
            _ => None,
        }
    }
}

/// The prefixes of locations that are longer than this one.
fn longer(prefix: &str, locations: &[Directive]) -> Vec<String> {
    let others = locations.iter().filter_map(|one| match (&one.args[..], one.name.as_str()) {
        ([path], "location") => Some(path),
        ([modifier, path], "location") if modifier == "^~" => Some(path),
        _ => None,
    });
    others.filter(|path| path.len() > prefix.len() && path.starts_with(prefix)).cloned().collect()
}

/// Directives that have an application answer.
const RUNS_SCRIPTS: [&str; 3] = ["fastcgi_pass", "uwsgi_pass", "scgi_pass"];

/// Directives of a location that are translated apart from its other options.
const OPTIONS: &[&str] = &[
    "location",
    "alias",
    "rewrite",
    "return",
    "proxy_pass",
    "grpc_pass",
    "grpc_read_timeout",
    "break",
    "fastcgi_pass",
    "uwsgi_pass",
    "internal",
];

impl<'a> Translation<'a> {
    /// The pattern of a location; `None`: it has no counterpart, which is said. `around`: what stands beside the location
    /// `outer` in which it is.
    fn pattern(&mut self, location: &Directive, outer: Option<&Pattern>, around: &[Directive]) -> Option<Pattern> {
        let (modifier, written) = match &location.args[..] {
            [name] if name.starts_with('@') => {
                let alone = [&[], std::slice::from_ref(location)];
                if only_path(name, &alone).is_some() {
                    // `try_files` leads to that path at once.
                    return None;
                }
                if !is_named_route(name, &alone) {
                    self.leave(location, "a location with a name passes on to an upstream, or is a page for errors");
                    return None;
                }
                return Some(Pattern::Named(format!("/{name}/")));
            }
            [path] => ("", path.as_str()),
            [modifier, path] => (modifier.as_str(), path.as_str()),
            _ => {
                self.leave(location, "a location has a path");
                return None;
            }
        };
        let is_first = matches!(outer, Some(Pattern::PrefixFirst(_)));
        match modifier {
            "=" => Some(Pattern::Exactly(written.to_owned())),
            "^~" => Some(Pattern::PrefixFirst(written.to_owned())),
            "~" | "~*" => {
                let expression = values::regex(written, modifier == "~*");
                let made = expression.and_then(|expression| match outer.and_then(Pattern::around) {
                    None => Ok(Pattern::Expression(expression)),
                    Some((prefix, is_first, others)) => {
                        let (prefix, expression) = (prefix.to_owned(), within(prefix, &expression)?);
                        let others = others.map_or_else(|| longer(&prefix, around), <[_]>::to_vec);
                        Ok(Pattern::Inner { expression, prefix, is_first, others })
                    }
                });
                made.map_err(|reason| self.leave(location, reason)).ok()
            }
            // The expressions beside the outer location are not asked.
            "" if is_first => Some(Pattern::PrefixFirst(written.to_owned())),
            "" => Some(Pattern::Prefix(written.to_owned())),
            _ => {
                self.leave(location, "this modifier is not known");
                None
            }
        }
    }

    /// A prefix with `^~` takes no paths of longer prefixes. Those come before it where no expression has to come first.
    pub(super) fn longer_than_first(&mut self, routes: &mut [(Pattern, Section)]) {
        let firsts: Vec<String> = routes
            .iter()
            .filter_map(|(pattern, _)| match pattern {
                Pattern::PrefixFirst(path) => Some(path.clone()),
                _ => None,
            })
            .collect();
        let is_longer = |path: &String| firsts.iter().any(|first| path.len() > first.len() && path.starts_with(first));
        let longer: Vec<String> = routes
            .iter()
            .filter_map(|(pattern, _)| match pattern {
                Pattern::Prefix(path) if is_longer(path) => Some(path.clone()),
                _ => None,
            })
            .collect();
        let is_expression =
            |pattern: &Pattern| matches!(pattern, Pattern::Expression(_) | Pattern::Inner { is_first: false, .. });
        if !routes.iter().any(|(pattern, _)| is_expression(pattern)) {
            for (pattern, _) in routes {
                match pattern {
                    Pattern::Prefix(path) if is_longer(path) => *pattern = Pattern::PrefixFirst(path.clone()),
                    _ => {}
                }
            }
            return;
        }
        for (pattern, section) in routes {
            let Pattern::PrefixFirst(path) = pattern else { continue };
            let others: Vec<String> =
                longer.iter().filter(|other| other.starts_with(path.as_str())).map(|it| starts_with(it)).collect();
            match section.settings.text_of("unless") {
                _ if others.is_empty() => {}
                None => section.settings.set("unless", table([("path-regex", list(others))])),
                Some(_) => section.comment.push("Longer locations of nginx take a part of these paths.".to_owned()),
            }
        }
    }

    /// The routes of a location, in their order.
    pub(super) fn location(&mut self, location: &Location<'a>, root: Option<&str>) -> Vec<(Pattern, Section)> {
        let Location { directive, levels, outer } = location;
        if is_for_auth(directive, levels) || is_error_page(directive, levels) {
            return Vec::new();
        }
        let around = levels.len().checked_sub(3).map_or(&[][..], |at| levels[at]);
        let Some(pattern) = self.pattern(directive, outer.as_ref(), around) else {
            if directive.arg(0).starts_with('@') {
                // No client asks for its paths.
                return Vec::new();
            }
            // The text of a script must not be sent.
            let script = || directive.inner().iter().find(|it| RUNS_SCRIPTS.contains(&it.name.as_str()));
            let Some(guard) = guard_in(directive.inner()).or_else(script) else { return Vec::new() };
            // More is closed than nginx refuses, but not all of the site.
            if let Some(expression) = directive.args.get(1).and_then(|written| without_looking_around(written)) {
                let ignores_case = directive.arg(0) == "~*";
                if let Ok(expression) = values::regex(&expression, ignores_case) {
                    return vec![self.closed(guard, &Pattern::Expression(expression))];
                }
            }
            self.unguarded_site = self.unguarded_site.or(Some(guard));
            return Vec::new();
        };
        let mut routes = Vec::new();
        for inner in directive.inner() {
            if inner.name == "location" {
                let levels = [&levels[..], &[inner.inner()]].concat();
                let outer = Some(pattern.clone());
                routes.extend(self.location(&Location { directive: inner, levels, outer }, root));
            }
        }
        let mut unguarded = None;
        let has_scripts = directive.inner().iter().any(|inner| inner.name == "fastcgi_pass");
        for inner in directive.inner().iter().filter(|inner| matches!(inner.name.as_str(), "if" | "limit_except")) {
            if has_scripts && is_done_anyway(inner) {
                continue;
            }
            let made: Option<Vec<_>> = match inner.name.as_str() {
                "if" => self.conditional(inner, &pattern),
                _ => self.limit_except(inner, &pattern).map(|route| vec![route]),
            };
            match made {
                Some(mut made) => {
                    self.headers_of_answers(levels, &mut made);
                    routes.extend(made);
                }
                None => unguarded = unguarded.or(Some(inner)),
            }
        }
        let has = |name: &str| directive.inner().iter().find(|inner| inner.name == name);
        let lost = |inner: &&Directive| is_guard(inner) && !is_translated_guard(inner) && inner.name != "if";
        let unguarded = unguarded
            .filter(|inner| is_guard(inner))
            .or_else(|| directive.inner().iter().filter(|inner| inner.name != "limit_except").find(lost));
        // Directives behind `return` are not reached.
        let at = |name: &str| directive.inner().iter().position(|inner| inner.name == name);
        let is_answered = at("return").is_some_and(|returns| at("rewrite").is_none_or(|rewrites| returns < rewrites));
        if has("proxy_pass").or(has("grpc_pass")).is_none() && !is_answered && unguarded.is_none() {
            // The new path has a route of its own. The rest of the location is for paths that no expression matches.
            let is_guarded = levels[2..].iter().any(|level| level.iter().any(is_guard));
            let (rewritten, is_all) = self.rewrites(directive, &pattern, is_guarded);
            routes.extend(rewritten);
            if is_all {
                return routes;
            }
        }
        let mut settings = pattern.settings();
        let of_map = directive.inner().iter().find(|inner| inner.name == ENTRY);
        if let Some(entry) = of_map {
            self.entry(entry, &mut settings);
        }
        for inner in directive.inner() {
            let name = inner.name.as_str();
            match name {
                "gzip" | "brotli" if inner.arg(0) == "off" && !is_compressed(levels) => {
                    if is_compressed(&levels[..levels.len() - 1]) {
                        settings.set("compression", false);
                    }
                }
                "error_page" if goes_on_to(inner, levels).is_some() => {}
                "error_page" | "gzip" | "gzip_comp_level" | "gzip_min_length" | "gzip_types" | "brotli"
                | "brotli_comp_level" | "brotli_min_length" | "brotli_types" => {
                    self.leave(inner, "it is a setting of the whole site, not of a route");
                }
                "error_log" => self.error_log(inner),
                _ if is_done_anyway(inner) && has("fastcgi_pass").is_some() => {}
                _ if OPTIONS.contains(&name) || INHERITED.contains(&name) => {}
                "autoindex" | "index" | "if" | "limit_except" | ENTRY => {}
                _ => self.other(inner),
            }
        }
        let made = if let Some(answer) = has("return") {
            self.answer(answer, &mut settings)
        } else if let Some(pass) = has("proxy_pass").or_else(|| has("grpc_pass")) {
            if let Some(rewrite) = has("rewrite") {
                self.prefix(rewrite, &pattern, &mut settings);
            }
            self.pass(pass, levels, &pattern, &mut settings)
        } else if let Some(pass) = has("fastcgi_pass") {
            self.fastcgi(pass, levels, pattern.expression(), root, &mut settings)
        } else if let Some(pass) = has("uwsgi_pass") {
            self.uwsgi(pass, levels, &mut settings)
        } else if has("scgi_pass").is_some() {
            // The reason was given with the directive.
            false
        } else {
            self.files(location, &pattern, root, &mut settings)
        };
        let guard = unguarded.or_else(|| directive.inner().iter().filter(|_| !made).find(|inner| is_guard(inner)));
        if let Some(guard) = guard {
            if of_map.is_some() {
                // The location for all other entries is closed for all of them.
                return Vec::new();
            }
            // Without it, this or another route would answer.
            routes.push(self.closed(guard, &pattern));
            return routes;
        }
        if !made {
            // The text of a script must not be sent.
            let script = RUNS_SCRIPTS.into_iter().find_map(has);
            routes.extend(script.filter(|_| of_map.is_none()).map(|pass| self.closed(pass, &pattern)));
            return routes;
        }
        let intercepts = ["proxy_intercept_errors", "fastcgi_intercept_errors", "uwsgi_intercept_errors"];
        let intercepts = intercepts.into_iter().filter_map(|name| one_in_force(levels, name));
        let has_origin = settings.has("upstream") || settings.has_any("fastcgi") || settings.has_any("uwsgi");
        if self.has_error_pages && has_origin && !intercepts.into_iter().any(|one| one.arg(0) == "on") {
            settings.set("error-pages", false);
        }
        let is_own_size = has("client_max_body_size").is_some();
        if let Some(size) = self.body_size_of(levels).filter(|_| has_origin || is_own_size) {
            settings.set("request-body", size);
        }
        if has("internal").is_some() {
            settings.set("internal", true);
        }
        // A location in a location has the guards of that.
        self.access(&levels[2..], levels, &mut settings);
        if let Some(guard) = self.unguarded.take() {
            if of_map.is_some() {
                return Vec::new();
            }
            routes.push(self.closed(guard, &pattern));
            return routes;
        }
        // A location in a location takes what that says.
        let own = &levels[2..];
        self.log(own, &mut settings);
        let has_words = self.expires(own, levels, settings.has("upstream"), &mut settings)
            || self.cache_control(levels, has_origin, &mut settings);
        let is_error = has("return").is_some_and(refuses);
        let mut headers = self.response_headers(levels, has_words, is_error);
        // The usual default, `application/octet-stream`, says nothing of a text that stands here.
        let own_type = one_in_force(levels, "default_type").filter(|it| it.arg(0) != "application/octet-stream");
        if let Some(own_type) = own_type.filter(|_| settings.has("respond-body") && !headers.sets("Content-Type")) {
            headers.set("Content-Type", own_type.arg(0));
        }
        headers.write("response-headers", &mut settings);
        let mut section = Section { settings, ..Section::new("[[site.route]]") };
        section.comment.push(from(&directive.place));
        let prefix = pattern.prefix().filter(|path| !path.ends_with('/')).map(str::to_owned);
        let is_guarded = levels[2..].iter().any(|level| guard_in(level).is_some());
        match prefix {
            Some(path) if is_guarded && section.settings.has("replace-prefix") => {
                section
                    .comment
                    .push(format!("{path} and what is below it; other paths that begin with it are refused"));
                let mut others = Section::new("[[site.route]]");
                others.comment.push(from(&directive.place));
                others.settings.set("path-regex", starts_with(&path));
                others.settings.write("respond", "403".to_owned(), None);
                routes.extend([(pattern.clone(), section), (pattern, others)]);
            }
            Some(path) if is_guarded => {
                section.settings.rename("path", "path-regex", starts_with(&path));
                routes.push((pattern, section));
            }
            Some(path) => {
                section
                    .comment
                    .push(format!("{path} and what is below it; nginx takes every path that begins with it"));
                routes.push((pattern, section));
            }
            None => routes.push((pattern, section)),
        }
        routes
    }

    /// The requests for which the entry of a map counts that chooses the server.
    fn entry(&mut self, entry: &Directive, settings: &mut Settings) {
        let Some(map) = self.map_of(entry.arg(0)) else { return };
        let number: usize = entry.arg(1).parse().unwrap_or(usize::MAX);
        if let Some(found) = entries(map).ok().and_then(|(entries, _)| entries.into_iter().nth(number)) {
            found.when.write(settings);
        }
        self.maps_used.insert(entry.arg(0).to_owned());
    }

    /// `return`. Returns whether there is a route.
    pub(super) fn answer(&mut self, answer: &Directive, settings: &mut Settings) -> bool {
        let (status, text) = match answer.arg(0).parse::<u16>() {
            Ok(status) => (status, answer.args.get(1).map(String::as_str)),
            Err(_) => (302, answer.args.first().map(String::as_str)),
        };
        if let (301..=303 | 307 | 308, Some(url)) = (status, text) {
            let begin = settings.text_of("path-regex").unwrap_or_default().trim_matches(['\'', '"']).to_owned();
            let begin = begin.strip_prefix("(?i)").unwrap_or(&begin);
            let target = values::template(url).and_then(|target| match target.starts_with("{1}") {
                true => whole_address(begin, &target),
                false => Ok(target),
            });
            return match target {
                Ok(target) => {
                    settings.set("redirect", target);
                    if status != 302 {
                        settings.write("redirect-status", status.to_string(), None);
                    }
                    true
                }
                Err(reason) => {
                    self.leave(answer, reason);
                    false
                }
            };
        }
        if status == 444 {
            self.leave(answer, "no connection is closed without an answer: it is 403");
            settings.write("respond", "403".to_owned(), None);
            return true;
        }
        if !matches!(status, 200..=299 | 400..=599) {
            self.leave(answer, "`respond` has statuses from 200 to 299 and from 400 to 599, with an answer to each");
            return false;
        }
        settings.write("respond", status.to_string(), None);
        match text {
            Some(text) if values::has_variable(text) => self.leave(answer, "the text of an answer has no variables"),
            Some(text) if !text.is_empty() => settings.set("respond-body", text),
            _ => {}
        }
        true
    }

    fn pass(
        &mut self,
        pass: &'a Directive,
        levels: &[&'a [Directive]],
        pattern: &Pattern,
        settings: &mut Settings,
    ) -> bool {
        let Some(Target { name, path, streams }) = self.target(pass, levels) else { return false };
        settings.set("upstream", name);
        match (path.as_deref(), pattern.prefix()) {
            (None, _) => {}
            (Some(path), Some(prefix)) if path == prefix => {}
            (Some(path), Some(prefix)) if path.ends_with('/') == prefix.ends_with('/') => {
                settings.set("replace-prefix", path);
            }
            _ => {
                self.leave(
                    pass,
                    "a path behind the server takes the place of a prefix, and both end in a slash, or neither",
                );
                return false;
            }
        }
        let off = |name: &str| one_in_force(levels, name).is_some_and(|one| one.arg(0) == "off");
        if streams || off("proxy_buffering") {
            settings.set("buffer-response", false);
        }
        if streams || off("proxy_request_buffering") {
            settings.set("buffer-request", false);
        }
        if let Some(time) = idle_timeout(levels) {
            settings.set("idle-timeout", time);
        }
        self.cache(levels, settings);
        self.request_headers(levels, settings);
        let hidden: Vec<&str> = in_force(levels, "proxy_hide_header").into_iter().map(|hidden| hidden.arg(0)).collect();
        if !hidden.is_empty() {
            settings.set("response-headers.remove", list(hidden));
        }
        if let Some(redirect) =
            one_in_force(levels, "proxy_redirect").filter(|it| !matches!(it.arg(0), "off" | "default"))
        {
            self.leave(redirect, "`Location` of an upstream is passed on as it is");
        }
        true
    }

    /// A location that serves files. Returns whether there is a route.
    fn files(
        &mut self,
        location: &Location<'a>,
        pattern: &Pattern,
        root: Option<&str>,
        settings: &mut Settings,
    ) -> bool {
        let own = |name: &str| location.directive.inner().iter().find(|inner| inner.name == name);
        let message = "a route has the files of its site: move them below the root of the site, or make a site of them";
        // A location in a location takes what that says.
        let below = &location.levels[2..];
        if let Some(other) = one_in_force(below, "root").filter(|other| Some(other.arg(0)) != root) {
            self.leave(other, message);
            return false;
        }
        if let Some(alias) = own("alias") {
            let same = root.zip(pattern.prefix()).is_some_and(|(root, prefix)| {
                alias.arg(0).trim_end_matches('/')
                    == format!("{}{prefix}", root.trim_end_matches('/')).trim_end_matches('/')
            });
            if !same {
                self.leave(alias, message);
                return false;
            }
        }
        if root.is_none() {
            self.leave(location.directive, "the site has no root, so there are no files");
            return false;
        }
        // For `/` they are settings of the whole site.
        let own_below = |name| own(name).filter(|_| location.levels.len() > 2 && pattern.prefix() != Some("/"));
        if let Some(index) = own_below("index") {
            self.leave(index, "it is a setting of the whole site (`site.files`)");
        }
        settings.set("files", true);
        if let Some(autoindex) = one_in_force(below, "autoindex").filter(|_| pattern.prefix() != Some("/")) {
            settings.set("listing", autoindex.arg(0) == "on");
        }
        self.instead_of_files(&location.levels, settings);
        true
    }
}
