//! Routes of a site: their patterns, where they lead, the header fields that they change.

use std::{ops::Range, sync::Arc};

use http::{HeaderName, HeaderValue, StatusCode};
use server::config::{
    Access, AccessLog, CompressionConfig, Cors, Expires, Filter, HeaderRules, LogChoice, Origin, PathPattern, Redirect,
    Respond, Rewrite, Route, RouteLimit, Times, UpstreamConfig, is_script,
};
use toml::Spanned;

use super::{access::WrittenAccess, resolver::Resolver, resources::default_resource, targets::Targets};
use crate::{
    config::{
        problems::Problem,
        raw::{RawHeaders, RawRequestHeaders, RawRoute, RawSite},
        written::{Pairs, Setting, Written},
    },
    values,
};

/// Settings of a site that hold for each route without its own.
pub(super) struct OfSite {
    pub compression: Option<Arc<CompressionConfig>>,
    pub expires: Option<Arc<Expires>>,
    pub cors: Option<Arc<Cors>>,
    pub log: Option<AccessLog>,
}

/// The route of `--upstream`.
pub(super) fn route_to_all(targets: &Targets<'_>) -> Route {
    Route {
        name: "/".to_owned(),
        pattern: PathPattern::Prefix("/".to_owned()),
        filter: Filter::default(),
        origin: Origin::Upstream {
            upstream: targets.upstreams.len().saturating_sub(1),
            replace_prefix: None,
            keep_host: true,
            buffer_request: true,
            buffer_response: true,
            times: None,
        },
        resource: default_resource(targets.resources),
        admitted: true,
        request_headers: HeaderRules::default(),
        response_headers: HeaderRules::default(),
        compression: None,
        expires: None,
        cors: None,
        access: Access::default(),
        limit: RouteLimit::OfSite,
        maintenance: true,
        try_files: Vec::new(),
        fallback: None,
        listing: None,
        request_body_bytes: None,
        early_hints: false,
        internal: false,
        replaces_errors: true,
        cache: None,
        access_log: LogChoice::Outer,
    }
}

impl Resolver<'_> {
    /// The routes of a site, whose access holds for each route that does not say otherwise.
    pub(super) fn routes(
        &mut self,
        site: &RawSite,
        has_files: bool,
        access: &Access,
        targets: &Targets<'_>,
        of_site: &OfSite,
    ) -> Vec<Route> {
        let mut routes: Vec<(Route, Range<usize>)> = Vec::new();
        for written in &site.route {
            let Some(mut route) = self.route(written, has_files, access, targets) else { continue };
            route.compression = self.compression_of(written.get_ref(), of_site.compression.as_ref());
            route.expires = self.expires_of(written.get_ref(), site, of_site.expires.as_ref());
            route.cors = match &written.get_ref().cors {
                Some(cors) => self.cors(cors),
                None => of_site.cors.clone(),
            };
            if let (Some(on), None) = (&written.get_ref().maintenance, &site.maintenance) {
                self.problems.push(
                    Problem::new("`maintenance` of a route has no effect: its site is never closed", Some(on.span()))
                        .help(
                            "give the site `maintenance = { file = \"/run/serpent/maintenance\" }`, or leave this out",
                        ),
                );
            }
            let off = written.get_ref().error_pages.as_ref().filter(|on| !on.get_ref());
            if let (Some(on), None) = (off, &site.error_pages) {
                let message = "`error-pages` of a route has no effect: its site has none";
                self.problems.push(Problem::new(message, Some(on.span())).help("leave it out"));
            }
            route.access_log = self.log_of(written.get_ref().access_log.as_ref(), of_site.log.as_ref());
            let place = pattern_span(written);
            if let Some((earlier, at)) = routes.iter().find(|(earlier, _)| covers(earlier, &route)) {
                self.problems.push(
                    Problem::new(
                        format!("no request reaches this route: `{}` before it takes them all", earlier.name),
                        Some(place.clone()),
                    )
                    .also(Some(at.clone()), "takes them")
                    .help("the first route that matches has the request: put this one before the other"),
                );
            }
            routes.push((route, place));
        }
        self.scripts_are_no_files(site, &routes);
        routes.into_iter().map(|(route, _)| route).collect()
    }

    fn route(
        &mut self,
        written: &Spanned<RawRoute>,
        has_files: bool,
        of_site: &Access,
        targets: &Targets<'_>,
    ) -> Option<Route> {
        let (raw, owner) = (written.get_ref(), written.span());
        let pattern = self.pattern(raw, owner.clone());
        let filter = self.filter(raw, pattern_span(written));
        let origin = self.origin(raw, owner, has_files, pattern.as_ref().map(|(_, pattern)| pattern), targets);
        let resource = match &raw.resource {
            Some(written) => self.resource(written, targets.resources),
            None => default_resource(targets.resources),
        };
        let request_headers = self.request_headers(&raw.request_headers);
        let response_headers = self.headers(&raw.response_headers);
        let RawRoute { allow, deny, require, forward_auth, .. } = raw;
        let access = self.access(&WrittenAccess { allow, deny, require, forward_auth }, Some(of_site), targets);
        let limit = match &raw.limit {
            None => RouteLimit::OfSite,
            Some(written) => self.limit(written, targets.configured).map_or(RouteLimit::Off, RouteLimit::Own),
        };
        let request_body_bytes = self.optional(&raw.request_body, values::size);
        self.without_origin(raw, &request_headers);
        let ((name, pattern), origin) = pattern.zip(origin)?;
        let try_files = self.try_files(raw, &pattern, &origin);
        let fallback = self.fallback(raw, &pattern, &origin);
        let never_waits = match &origin {
            Origin::Files => Some("files never wait for a slot"),
            Origin::Redirect(_) => Some("a redirect never waits for a slot"),
            Origin::Rewrite(_) => Some("the route that the request goes on to has its own"),
            Origin::Respond(_) => Some("such an answer never waits for a slot"),
            Origin::Upstream { .. } | Origin::Cgi(_) | Origin::FastCgi(_) | Origin::Uwsgi(_) => None,
        };
        let admitted = raw.admitted.as_ref().map_or(never_waits.is_none(), |written| *written.get_ref());
        let early_hints = raw.early_hints.as_ref().is_some_and(|written| *written.get_ref());
        let cache = self.cache_of(raw, &origin, &filter);
        let of_waiting = [
            ("admitted", raw.admitted.as_ref().filter(|_| admitted).map(Spanned::span)),
            ("resource", raw.resource.as_ref().map(Spanned::span)),
            ("early-hints", raw.early_hints.as_ref().filter(|_| early_hints).map(Spanned::span)),
        ];
        for (key, place) in of_waiting.into_iter().filter(|(_, place)| place.is_some()) {
            if let Some(why) = never_waits {
                let message = format!("`{key}` has no effect here: {why}");
                self.problems.push(Problem::new(message, place).help("leave it out"));
            }
        }
        Some(Route {
            name,
            pattern,
            filter,
            origin,
            resource,
            admitted,
            request_headers,
            response_headers,
            compression: None,
            expires: None,
            cors: None,
            access,
            limit,
            maintenance: raw.maintenance.as_ref().is_none_or(|on| *on.get_ref()),
            try_files,
            fallback,
            listing: raw.listing.as_ref().map(|on| *on.get_ref()),
            request_body_bytes,
            early_hints,
            internal: raw.internal.as_ref().is_some_and(|on| *on.get_ref()),
            replaces_errors: raw.error_pages.as_ref().is_none_or(|on| *on.get_ref()),
            cache,
            access_log: LogChoice::Outer,
        })
    }

    /// `compression = false` of a route takes it out of the compression of its site.
    fn compression_of(
        &mut self,
        raw: &RawRoute,
        of_site: Option<&Arc<CompressionConfig>>,
    ) -> Option<Arc<CompressionConfig>> {
        if let (Some(written), None, true) = (&raw.compression, of_site, self.is_as_written()) {
            self.problems.push(
                Problem::new(
                    "`compression` of a route has no effect: its site compresses nothing",
                    Some(written.span()),
                )
                .help("add `[compression]` with `codings = [\"zstd\", \"br\", \"gzip\"]`, or leave this out"),
            );
        }
        of_site.filter(|_| raw.compression.as_ref().is_none_or(|on| *on.get_ref())).cloned()
    }

    /// Adds problems for settings of redirects, rewrites and fixed answers where there is none, and of origins where there is
    /// one.
    fn without_origin(&mut self, raw: &RawRoute, request_headers: &HeaderRules) {
        let of_others = [
            ("redirect-status", "a redirect", &raw.redirect_status, &raw.redirect),
            ("respond-body", "`respond`", &raw.respond_body, &raw.respond),
            ("respond-type", "`respond-body`", &raw.respond_type, &raw.respond_body),
        ];
        for (key, what, given, needed) in of_others {
            if let (Some(given), None) = (given, needed) {
                let message = format!("`{key}` is about {what}, and this route has none");
                self.problems.push(Problem::new(message, Some(given.span())).help("leave it out"));
            }
        }
        let early = [(&raw.redirect, "redirected"), (&raw.rewrite, "rewritten"), (&raw.respond, "answered")];
        for (written, done) in early {
            let Some(written) = written else { continue };
            let why = match done {
                "rewritten" => "a rewritten request is for another route",
                "redirected" => "a redirected request goes to no origin",
                _ => "a request that is answered at once goes to no origin",
            };
            if !request_headers.is_empty() {
                self.problems.push(
                    Problem::new(why, Some(written.span()))
                        .help("leave out `request-headers`, which have no effect here"),
                );
            }
            if raw.request_body.is_some() {
                self.problems.push(
                    Problem::new(why, Some(written.span())).help("leave out `request-body`, which has no effect here"),
                );
            }
        }
    }

    /// The pattern, and its text in the file.
    fn pattern(&mut self, raw: &RawRoute, owner: Range<usize>) -> Option<(String, PathPattern)> {
        type Read = fn(&str) -> Result<PathPattern, String>;
        let kinds: [(&Setting, Read); 3] = [
            (&raw.path, values::path_prefix),
            (&raw.path_glob, values::path_glob),
            (&raw.path_regex, values::path_regex),
        ];
        let mut given = kinds.into_iter().filter_map(|(setting, read)| setting.as_ref().map(|it| (it, read)));
        let Some((written, read)) = given.next() else {
            if self.shape_is_sound {
                self.problems.push(
                    Problem::new("this route has no `path`", Some(owner))
                        .help("add `path = \"/\"` for all paths, or `path-glob` or `path-regex`"),
                );
            }
            return None;
        };
        if let Some((second, _)) = given.next() {
            self.problems.push(
                Problem::new("a route has one pattern", Some(second.span()))
                    .also(Some(written.span()), "given already")
                    .help("make two routes of it"),
            );
        }
        let text = &written.get_ref().0;
        if let Some(prefix) = text.strip_suffix('*').filter(|_| raw.path.is_some()) {
            self.problems.push(Problem::warning("a `*` in a `path` stands for itself", Some(written.span())).help(
                format!("write `path = \"{prefix}\"`, which has all that is below, or `path-glob = \"{text}\"`"),
            ));
        }
        match read(text) {
            Ok(pattern) => Some((written.get_ref().0.clone(), pattern)),
            Err(message) => {
                self.problems.push(Problem::new(message, Some(written.span())));
                None
            }
        }
    }

    fn origin(
        &mut self,
        raw: &RawRoute,
        owner: Range<usize>,
        has_files: bool,
        pattern: Option<&PathPattern>,
        targets: &Targets<'_>,
    ) -> Option<Origin> {
        let files = raw.files.as_ref().filter(|files| *files.get_ref());
        let given = [
            raw.upstream.as_ref().map(Spanned::span),
            raw.cgi.as_ref().map(Spanned::span),
            raw.fastcgi.as_ref().map(Spanned::span),
            raw.uwsgi.as_ref().map(Spanned::span),
            raw.redirect.as_ref().map(Spanned::span),
            raw.rewrite.as_ref().map(Spanned::span),
            raw.respond.as_ref().map(Spanned::span),
            files.map(Spanned::span),
        ];
        let mut places = given.into_iter().flatten();
        match (places.next(), places.next()) {
            (None, _) if self.shape_is_sound => {
                self.problems.push(Problem::new("this route leads nowhere", Some(owner)).help(
                    "add `upstream = \"NAME\"`, `cgi = \"DIRECTORY\"`, `fastcgi = \"ADDRESS\"`, `uwsgi = \"ADDRESS\"`, `redirect = \"ADDRESS\"`, \
                     `rewrite = \"PATH\"`, `respond = STATUS`, or `files = true` for the files of the site",
                ))
            }
            (first, Some(second)) => self.problems.push(
                Problem::new("a route leads to one place", Some(second))
                    .also(first, "given already")
                    .help("leave in one of `upstream`, `cgi`, `fastcgi`, `uwsgi`, `redirect`, `rewrite`, `respond` and `files`"),
            ),
            _ => {}
        }
        if let Some(upstream) = &raw.upstream {
            let names: Vec<_> = targets.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
            let help = format!("add `[[upstream]]` with `name = \"{}\"`", upstream.get_ref().0);
            let replace_prefix = self.replace_prefix(raw, pattern);
            let on = |setting: &Option<Spanned<bool>>| setting.as_ref().is_none_or(|on| *on.get_ref());
            let upstream = self.index_of("upstream", upstream, &names, &help)?;
            return Some(Origin::Upstream {
                upstream,
                times: self.times(raw, &targets.upstreams[upstream]),
                replace_prefix,
                keep_host: on(&raw.keep_host),
                buffer_request: on(&raw.buffer_request),
                buffer_response: on(&raw.buffer_response),
            });
        }
        let of_upstreams = [
            ("replace-prefix", raw.replace_prefix.as_ref().map(Spanned::span)),
            ("keep-host", raw.keep_host.as_ref().map(Spanned::span)),
            ("buffer-request", raw.buffer_request.as_ref().map(Spanned::span)),
            ("buffer-response", raw.buffer_response.as_ref().map(Spanned::span)),
            ("idle-timeout", raw.idle_timeout.as_ref().map(Spanned::span)),
            ("total-timeout", raw.total_timeout.as_ref().map(Spanned::span)),
        ];
        let own_timeout = match (&raw.cgi, &raw.fastcgi, &raw.uwsgi) {
            (Some(_), _, _) => Some("cgi.timeout"),
            (_, Some(_), _) => Some("fastcgi.timeout"),
            (_, _, Some(_)) => Some("uwsgi.timeout"),
            _ => None,
        };
        for (key, place) in of_upstreams.into_iter().filter(|(_, place)| place.is_some()) {
            if self.shape_is_sound {
                let help = match own_timeout.filter(|_| key.ends_with("-timeout")) {
                    Some(own) => format!("write `{own}`"),
                    None => "leave it out".to_owned(),
                };
                let message = format!("`{key}` is about an upstream, and this route has none");
                self.problems.push(Problem::new(message, place).help(help));
            }
        }
        if let Some(cgi) = &raw.cgi {
            return self.cgi(cgi).map(Origin::Cgi);
        }
        if let Some(fastcgi) = &raw.fastcgi {
            return self.fastcgi(fastcgi, has_files).map(Box::new).map(Origin::FastCgi);
        }
        if let Some(uwsgi) = &raw.uwsgi {
            return self.uwsgi(uwsgi).map(Box::new).map(Origin::Uwsgi);
        }
        if raw.redirect.is_some() {
            return self.redirect(raw, pattern?).map(Origin::Redirect);
        }
        if raw.rewrite.is_some() {
            let pattern = pattern?;
            let read = |text: &str| Rewrite::new(text, pattern).map_err(|error| error.to_string());
            return self.optional(&raw.rewrite, read).map(Origin::Rewrite);
        }
        if raw.respond.is_some() {
            return self.respond(raw).map(Origin::Respond);
        }
        let files = files?;
        if !has_files && self.shape_is_sound {
            self.problems
                .push(Problem::new("this site has no files", Some(files.span())).help("give the site a `root`"));
        }
        Some(Origin::Files)
    }

    /// The time limits of a route, if it has any; its upstream has the others.
    fn times(&mut self, raw: &RawRoute, upstream: &UpstreamConfig) -> Option<Times> {
        let UpstreamConfig { idle_timeout, total_timeout, .. } = *upstream;
        (raw.idle_timeout.is_some() || raw.total_timeout.is_some()).then(|| Times {
            idle: self.setting(None, &raw.idle_timeout, values::duration, idle_timeout),
            total: self.setting(None, &raw.total_timeout, values::duration_or_off, total_timeout),
        })
    }

    fn try_files(&mut self, raw: &RawRoute, pattern: &PathPattern, origin: &Origin) -> Vec<Rewrite> {
        let written = raw.try_files.as_deref().unwrap_or_default();
        if let Some(first) = written.first().filter(|_| !matches!(origin, Origin::Files)) {
            self.problems.push(
                Problem::new("`try-files` is about files, and this route has none", Some(first.span()))
                    .help("leave it out, or write `files = true`"),
            );
        }
        if let Some(listing) = raw.listing.as_ref().filter(|_| !matches!(origin, Origin::Files)) {
            self.problems.push(
                Problem::new("`listing` is about files, and this route has none", Some(listing.span()))
                    .help("leave it out, or write `files = true`"),
            );
        }
        self.read_each(written, |text| Rewrite::new(text, pattern).map_err(|error| error.to_string()))
    }

    /// The query of the request goes along, unless the target has one.
    fn fallback(&mut self, raw: &RawRoute, pattern: &PathPattern, origin: &Origin) -> Option<Rewrite> {
        let written = raw.fallback.as_ref()?;
        if !matches!(origin, Origin::Files) {
            self.problems.push(
                Problem::new(
                    "`fallback` is about files that are missing, and this route has none",
                    Some(written.span()),
                )
                .help("leave it out, or write `files = true`"),
            );
        }
        if let Some(tried) = raw.try_files.iter().flatten().next() {
            self.problems.push(
                Problem::new("`try-files` has no effect beside `fallback`", Some(tried.span()))
                    .also(Some(written.span()), "takes all that is no file")
                    .help("leave one of them out"),
            );
        }
        let has_query = |text: &str| text.contains('?') || text.contains("{query}") || text.contains("{uri}");
        self.optional(&raw.fallback, |text| {
            let target = if has_query(text) { text.to_owned() } else { format!("{text}{{query}}") };
            Rewrite::new(&target, pattern).map_err(|error| error.to_string())
        })
    }

    /// Adds a problem for each path of `try-files` and each error page that is a script: its text is never sent.
    fn scripts_are_no_files(&mut self, site: &RawSite, routes: &[(Route, Range<usize>)]) {
        let scripts = routes.iter().filter_map(|(route, _)| match &route.origin {
            Origin::FastCgi(fastcgi) => Some(fastcgi.extensions.iter().cloned()),
            _ => None,
        });
        let scripts: Vec<String> = scripts.flatten().collect();
        let is_of_root = |page: &str| page.starts_with('/') && is_script(&scripts, page);
        for (_, page) in site.error_pages.iter().flatten().filter(|(_, page)| is_of_root(&page.get_ref().0)) {
            self.problems.push(
                Problem::new(
                    format!("`{}` is a script, and an error page is a file", page.get_ref().0),
                    Some(page.span()),
                )
                .help("name a file that is sent as it is"),
            );
        }
        for tried in site.route.iter().flat_map(|route| route.get_ref().try_files.iter().flatten()) {
            let text = &tried.get_ref().0;
            if is_script(&scripts, text.split(['?', '{']).next().unwrap_or_default()) {
                self.problems.push(
                    Problem::new(format!("`{text}` is a script, and `try-files` is about files"), Some(tried.span()))
                        .help(format!("write `fallback = \"{text}\"`: the route of that path answers")),
                );
            }
        }
    }

    fn redirect(&mut self, raw: &RawRoute, pattern: &PathPattern) -> Option<Redirect> {
        let read = |text: &str| {
            let status = text.parse().ok().filter(|status| Redirect::STATUSES.contains(status));
            let status = status.and_then(|status| StatusCode::from_u16(status).ok());
            status.ok_or_else(|| format!("`{text}` is no status of a redirect: 301, 302, 303, 307 or 308"))
        };
        let status = self.setting(None, &raw.redirect_status, read, Redirect::DEFAULT_STATUS);
        self.optional(&raw.redirect, |text| Redirect::new(text, status, pattern).map_err(|error| error.to_string()))
    }

    fn respond(&mut self, raw: &RawRoute) -> Option<Respond> {
        let status = self.optional(&raw.respond, Respond::status)?;
        let of_text = HeaderValue::from_static(Respond::DEFAULT_TYPE);
        let content_type = self.setting(None, &raw.respond_type, values::header_value, of_text);
        let body = raw.respond_body.as_ref().map(|body| (body.get_ref().0.clone().into(), content_type));
        if let Some(body) = raw.respond_body.as_ref().filter(|_| !Respond::may_have_body(status)) {
            let message = format!("an answer of status {} has no body", status.as_u16());
            self.problems.push(Problem::new(message, Some(body.span())).help("leave it out, or take another status"));
        }
        Some(Respond { status, body })
    }

    fn replace_prefix(&mut self, raw: &RawRoute, pattern: Option<&PathPattern>) -> Option<String> {
        let written = raw.replace_prefix.as_ref()?;
        let replacement = self.optional(&raw.replace_prefix, values::path)?;
        match pattern? {
            PathPattern::Prefix(prefix) if prefix.ends_with('/') == replacement.ends_with('/') => Some(replacement),
            PathPattern::Prefix(prefix) => {
                self.problems.push(
                    Problem::new(
                        format!(
                            "`{prefix}` and `{replacement}` do not end alike: paths would get a slash too many or too few"
                        ),
                        Some(written.span()),
                    )
                    .also(raw.path.as_ref().map(Spanned::span), "what is replaced")
                    .help("end both with `/`, or neither"),
                );
                None
            }
            _ => {
                self.problems.push(
                    Problem::new("only a `path` has a prefix to replace", Some(written.span()))
                        .help("write the route with `path`, or leave `replace-prefix` out"),
                );
                None
            }
        }
    }

    pub(super) fn headers(&mut self, raw: &RawHeaders) -> HeaderRules {
        self.header_rules(raw.remove.as_deref(), [&raw.set, &raw.add], None, false)
    }

    fn request_headers(&mut self, raw: &RawRequestHeaders) -> HeaderRules {
        self.header_rules(raw.remove.as_deref(), [&raw.set, &raw.add], raw.client.as_deref(), true)
    }

    fn header_rules(
        &mut self,
        remove: Option<&[Spanned<Written>]>,
        [set, add]: [&Option<Pairs>; 2],
        client: Option<&[Spanned<Written>]>,
        of_request: bool,
    ) -> HeaderRules {
        let name = |text: &str| {
            let name = values::header_name(text)?;
            may_be_changed(&name, of_request)?;
            Ok(name)
        };
        let [remove, client] = [remove, client].map(|names| self.read_each(names.unwrap_or_default(), name));
        let mut rules = HeaderRules { remove, client, ..HeaderRules::default() };
        for (pairs, out) in [(set, &mut rules.set), (add, &mut rules.add)] {
            for (key, value) in pairs.iter().flatten() {
                match (name(key.get_ref()), values::header_value(&value.get_ref().0)) {
                    (Ok(name), Ok(value)) => out.push((name, value)),
                    (name, read) => {
                        self.problems.extend(name.err().map(|message| Problem::new(message, Some(key.span()))));
                        self.problems.extend(read.err().map(|message| Problem::new(message, Some(value.span()))));
                    }
                }
            }
        }
        rules
    }
}

/// Refuses header fields that frame a message or direct it. Rules may not change those.
pub(super) fn may_be_changed(name: &HeaderName, of_request: bool) -> Result<(), String> {
    let framing = [
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    if framing.contains(&name.as_str()) {
        return Err(format!("`{name}` says how a message is framed, and is always made here: leave it out"));
    }
    if of_request && name == http::header::HOST {
        return Err(
            "`host` is not changed by rules: set `keep-host`, or write the name in the upstream's `servers`".into()
        );
    }
    Ok(())
}

fn pattern_span(written: &Spanned<RawRoute>) -> Range<usize> {
    let raw = written.get_ref();
    let place = raw.path.as_ref().or(raw.path_glob.as_ref()).or(raw.path_regex.as_ref());
    place.map_or(written.span(), Spanned::span)
}

/// Whether `earlier` matches every path that `later` matches, as far as that can be told.
fn covers(earlier: &Route, later: &Route) -> bool {
    if !earlier.filter.is_empty() {
        return false;
    }
    match (&earlier.pattern, &later.pattern) {
        (PathPattern::Prefix(prefix), _) if prefix == "/" => true,
        (PathPattern::Prefix(earlier), PathPattern::Prefix(later)) => {
            let rest = later.strip_prefix(earlier.as_str());
            rest.is_some_and(|rest| rest.is_empty() || earlier.ends_with('/') || rest.starts_with('/'))
        }
        (PathPattern::Glob(a), PathPattern::Glob(b)) => a.glob().glob() == b.glob().glob(),
        (PathPattern::Regex(a), PathPattern::Regex(b)) => a.as_str() == b.as_str(),
        _ => false,
    }
}
