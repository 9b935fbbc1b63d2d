//! Routes of sites, upstreams, programs.

use std::{num::NonZeroU32, ops::Range, path::PathBuf, time::Duration};

use http::HeaderName;
use scheduler::admission::ResourceId;
use server::config::{
    ActiveChecks, CertificateFiles, CgiConfig, HeaderRules, Origin, PassiveChecks, PathPattern, ResourceConfig, Route,
    Site, UpstreamAddress, UpstreamConfig, UpstreamServer, WorkersConfig,
};
use toml::Spanned;

use super::{
    super::{
        path_in,
        problems::{self, Problem},
        raw::{
            Pairs, Raw, RawActive, RawCgi, RawHeaders, RawPassive, RawProgram, RawRoute, RawSite, RawUpstream,
            RawWorkers, Setting, Written,
        },
    },
    FileKind, NamedFile, Resolver,
};
use crate::{config::Overrides, values};

/// What routes can lead to.
pub(super) struct Targets<'a> {
    pub upstreams: &'a [UpstreamConfig],
    pub resources: &'a [ResourceConfig],
}

/// The route of `--upstream`.
pub(super) fn route_to_all(targets: &Targets<'_>) -> Route {
    Route {
        name: "/".to_owned(),
        pattern: PathPattern::Prefix("/".to_owned()),
        origin: Origin::Upstream {
            upstream: targets.upstreams.len().saturating_sub(1),
            replace_prefix: None,
            keep_host: true,
            buffer_request: true,
            buffer_response: true,
        },
        resource: default_resource(targets.resources),
        admitted: true,
        request_headers: HeaderRules::default(),
        response_headers: HeaderRules::default(),
    }
}

impl Resolver<'_> {
    pub(super) fn upstreams(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
    ) -> (Vec<UpstreamConfig>, Vec<Option<Range<usize>>>) {
        let (mut upstreams, mut places) = (Vec::<UpstreamConfig>::new(), Vec::new());
        for written in &raw.upstream {
            let upstream = self.upstream(written);
            let place = written.get_ref().name.as_ref().map_or(written.span(), Spanned::span);
            if let Some(first) = upstreams.iter().position(|it| it.name == upstream.name && !it.name.is_empty()) {
                self.problems.push(
                    Problem::new(format!("there are two upstreams `{}`", upstream.name), Some(place.clone()))
                        .also(places.get(first).cloned().flatten(), "the first one")
                        .help("give each a name of its own; one upstream can have several `servers`"),
                );
            }
            upstreams.push(upstream);
            places.push(Some(place));
        }
        if !flags.upstream.is_empty() {
            upstreams.push(UpstreamConfig::new("upstream".to_owned(), flags.upstream.clone()));
            places.push(None);
        }
        (upstreams, places)
    }

    /// What nobody uses is hardly what was meant.
    pub(super) fn unused_upstreams(
        &mut self,
        sites: &[Site],
        upstreams: &[UpstreamConfig],
        places: &[Option<Range<usize>>],
    ) {
        let used = |at| {
            let leads_there =
                |route: &Route| matches!(route.origin, Origin::Upstream { upstream, .. } if upstream == at);
            sites.iter().any(|site| site.routes.iter().any(leads_there))
        };
        for (at, (upstream, place)) in upstreams.iter().zip(places).enumerate() {
            if self.shape_is_sound && !upstream.name.is_empty() && !used(at) {
                self.problems.push(
                    Problem::warning(format!("no route leads to the upstream `{}`", upstream.name), place.clone())
                        .help(format!("add a `[[site.route]]` with `upstream = \"{}\"`", upstream.name)),
                );
            }
        }
    }

    fn upstream(&mut self, written: &Spanned<RawUpstream>) -> UpstreamConfig {
        let (raw, owner) = (written.get_ref(), written.span());
        let missing = ("this upstream has no `name`", "add `name = \"app\"`, by which routes name it");
        let name = self.required(&raw.name, owner.clone(), missing, values::name).unwrap_or_default();
        let default = UpstreamConfig::new(name, Vec::new());
        let servers = self.servers(raw, owner.clone());
        let tls = servers.iter().any(|server| server.tls);
        let about_tls = [
            ("tls-ca", raw.tls_ca.as_ref().map(Spanned::span)),
            ("tls-name", raw.tls_name.as_ref().map(Spanned::span)),
            ("tls-cert", raw.tls_cert.as_ref().map(Spanned::span)),
            ("tls-verify", raw.tls_verify.as_ref().map(Spanned::span)),
        ];
        let all_read = raw.servers.as_ref().is_none_or(|list| list.len() == servers.len());
        if !tls && all_read && self.shape_is_sound {
            for (key, place) in about_tls.into_iter().filter(|(_, place)| place.is_some()) {
                self.problems.push(
                    Problem::new(format!("`{key}` is about TLS, and no server of this upstream speaks it"), place)
                        .help("write servers that do with `https://`, or leave it out"),
                );
            }
        }
        UpstreamConfig {
            workers: raw.workers.as_ref().map(|workers| self.worker_processes(workers)),
            servers,
            tls_ca: self.file(&raw.tls_ca, FileKind::Authorities),
            tls_name: self.optional(&raw.tls_name, values::host_name),
            tls_certificate: self.own_certificate(raw),
            tls_verify: raw.tls_verify.as_ref().is_none_or(|verify| *verify.get_ref()),
            connect_timeout: self.setting(None, &raw.connect_timeout, values::duration, default.connect_timeout),
            idle_timeout: self.setting(None, &raw.idle_timeout, values::duration, default.idle_timeout),
            total_timeout: self.setting(None, &raw.total_timeout, values::duration_or_off, default.total_timeout),
            keep_connections: self.setting(
                None,
                &raw.keep_connections,
                |text| values::count_or_off(text, 65_536).map(|count| count.unwrap_or(0) as usize),
                default.keep_connections,
            ),
            keep_for: self.setting(None, &raw.keep_for, values::duration, default.keep_for),
            most_connections: self.setting(None, &raw.max_connections, values::limit_or_off, default.most_connections),
            retries: self.setting(
                None,
                &raw.retries,
                |text| values::count_or_off(text, 100).map(|count| count.unwrap_or(0) as u32),
                default.retries,
            ),
            head_bytes: self.setting(None, &raw.response_head, response_head, default.head_bytes),
            passive: self.passive(&raw.passive, &default.passive),
            active: raw.active.as_ref().and_then(|active| self.active(active)),
            ..default
        }
    }

    fn servers(&mut self, raw: &RawUpstream, owner: Range<usize>) -> Vec<UpstreamServer> {
        let list = raw.servers.as_deref().unwrap_or_default();
        match (list, &raw.workers) {
            ([], None) if self.shape_is_sound => self.problems.push(
                Problem::new("this upstream has no server", Some(owner))
                    .help("add `servers = [\"http://127.0.0.1:3000\"]`, or `[upstream.workers]` with a `command`"),
            ),
            ([first, ..], Some(workers)) => self.problems.push(
                Problem::new("`servers` and `workers` exclude each other", Some(first.span()))
                    .also(Some(workers.span()), "workers here")
                    .help("make two upstreams of it: one has servers, or processes that are started here"),
            ),
            _ => {}
        }
        let folder = self.folder;
        let read = |text: &str| {
            let mut server = values::upstream_server(text)?;
            if let UpstreamAddress::Unix(path) = &mut server.address {
                *path = path_in(folder, &path.to_string_lossy());
            }
            Ok(server)
        };
        let servers = self.read_each(list, read);
        if servers.len() == list.len() {
            for (at, (server, place)) in servers.iter().zip(list).enumerate() {
                if let Some(first) = servers[..at].iter().position(|other| other.address == server.address) {
                    self.problems.push(
                        Problem::new("this server is given twice", Some(place.span()))
                            .also(Some(list[first].span()), "first given here")
                            .help("leave one of them out: each has as many requests as the others"),
                    );
                }
            }
        }
        servers
    }

    fn own_certificate(&mut self, raw: &RawUpstream) -> Option<CertificateFiles> {
        self.pair(&raw.tls_cert, &raw.tls_key)?;
        let chain = self.file(&raw.tls_cert, FileKind::Chain)?;
        let key = self.file(&raw.tls_key, FileKind::Key)?;
        Some(CertificateFiles { chain, key })
    }

    fn passive(&mut self, raw: &RawPassive, default: &PassiveChecks) -> PassiveChecks {
        let failures = |text: &str| values::count_or_off(text, 1_000_000).map(|count| count.unwrap_or(0) as u32);
        PassiveChecks {
            failures: self.setting(None, &raw.failures, failures, default.failures),
            pause: self.setting(None, &raw.pause, values::duration, default.pause),
        }
    }

    fn active(&mut self, written: &Spanned<RawActive>) -> Option<ActiveChecks> {
        let raw = written.get_ref();
        let missing =
            ("active checks need a `path`", "name what the server answers when it is well: `path = \"/health\"`");
        let path = |text: &str| values::page(text).map(http::Uri::from);
        let times = |text: &str| values::count(text, 1000).map(|count| count as u32);
        Some(ActiveChecks {
            path: self.required(&raw.path, written.span(), missing, path)?,
            every: self.setting(None, &raw.every, values::duration, Duration::from_secs(5)),
            timeout: self.setting(None, &raw.timeout, values::duration, Duration::from_secs(2)),
            statuses: self.setting(None, &raw.statuses, values::statuses, (200, 399)),
            rise: self.setting(None, &raw.rise, times, 2),
            fall: self.setting(None, &raw.fall, times, 3),
        })
    }

    fn worker_processes(&mut self, written: &Spanned<RawWorkers>) -> WorkersConfig {
        let raw = written.get_ref();
        let default = WorkersConfig {
            command: Vec::new(),
            directory: None,
            environment: Vec::new(),
            processes: NonZeroU32::MIN.saturating_add(1),
            start_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(10),
        };
        WorkersConfig {
            command: self.command(raw, written.span()),
            directory: self.file(&raw.directory, FileKind::Directory),
            environment: self.environment(raw.environment.as_ref()),
            processes: self.setting(
                None,
                &raw.processes,
                |text| values::count(text, 1000).map(|count| NonZeroU32::new(count as u32).unwrap_or(NonZeroU32::MIN)),
                default.processes,
            ),
            start_timeout: self.setting(None, &raw.start_timeout, values::duration, default.start_timeout),
            stop_timeout: self.setting(None, &raw.stop_timeout, values::duration, default.stop_timeout),
        }
    }

    fn command(&mut self, raw: &RawWorkers, owner: Range<usize>) -> Vec<String> {
        let help = "add `command = [\"/usr/bin/app\", \"--listen\", \"unix:{socket}\"]`";
        let Some(list) = &raw.command else {
            if self.shape_is_sound {
                self.problems.push(Problem::new("these workers have no `command`", Some(owner)).help(help));
            }
            return Vec::new();
        };
        let (place, list) = (list.span(), list.get_ref());
        let mut words: Vec<String> = list.iter().map(|word| word.get_ref().0.clone()).collect();
        let Some(program) = words.first_mut() else {
            self.problems.push(Problem::new("the command is empty", Some(place)).help(help));
            return words;
        };
        if program.contains('/') {
            *program = self.absolute(program).to_string_lossy().into_owned();
        }
        let path = PathBuf::from(&*program);
        self.named.push(NamedFile { path, span: Some(list[0].span()), kind: FileKind::Program });
        let known = ["socket", "port", "class"];
        let mut reached = false;
        for (word, written) in words.iter().zip(list) {
            for name in placeholders(word) {
                reached |= matches!(name, "socket" | "port");
                // Braces are also used for other things.
                if let Some(meant) = problems::like(name, known).filter(|meant| *meant != name) {
                    self.problems.push(
                        Problem::new(format!("there is no `{{{name}}}` to put in"), Some(written.span()))
                            .help(format!("did you mean `{{{meant}}}`?")),
                    );
                    reached = true;
                }
            }
        }
        if !reached {
            self.problems.push(
                Problem::new("nothing in the command tells the worker where to listen", Some(place)).help(
                    "write `{socket}` where it takes the path of a Unix socket, or `{port}` where it takes a port",
                ),
            );
        }
        words
    }

    /// Programs are started elsewhere than here, so that a relative path would mean another file there.
    fn absolute(&self, path: &str) -> PathBuf {
        let path = path_in(self.folder, path);
        std::path::absolute(&path).unwrap_or(path)
    }

    fn environment(&mut self, written: Option<&Pairs>) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for (name, value) in written.into_iter().flatten() {
            if variable(name.get_ref()).is_err() || value.get_ref().0.contains('\0') {
                let message = format!("`{}` cannot be a variable of this value", name.get_ref());
                self.problems
                    .push(Problem::new(message, Some(name.span())).help("write it as in `LANG = \"C.UTF-8\"`"));
                continue;
            }
            variables.push((name.get_ref().clone(), value.get_ref().0.clone()));
        }
        variables
    }

    pub(super) fn routes(&mut self, site: &RawSite, has_files: bool, targets: &Targets<'_>) -> Vec<Route> {
        let mut routes: Vec<(Route, Range<usize>)> = Vec::new();
        for written in &site.route {
            let Some(route) = self.route(written, has_files, targets) else { continue };
            let place = pattern_place(written);
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
        routes.into_iter().map(|(route, _)| route).collect()
    }

    fn route(&mut self, written: &Spanned<RawRoute>, has_files: bool, targets: &Targets<'_>) -> Option<Route> {
        let (raw, owner) = (written.get_ref(), written.span());
        let pattern = self.pattern(raw, owner.clone());
        let origin = self.origin(raw, owner, has_files, pattern.as_ref().map(|(_, pattern)| pattern), targets);
        let resource = match &raw.resource {
            Some(written) => self.resource(written, targets.resources),
            None => default_resource(targets.resources),
        };
        let request_headers = self.headers(&raw.request_headers, true);
        let response_headers = self.headers(&raw.response_headers, false);
        let ((name, pattern), origin) = pattern.zip(origin)?;
        let is_files = matches!(origin, Origin::Files);
        let admitted = raw.admitted.as_ref().map_or(!is_files, |written| *written.get_ref());
        let of_slots = [
            ("admitted", raw.admitted.as_ref().filter(|_| admitted).map(Spanned::span)),
            ("resource", raw.resource.as_ref().map(Spanned::span)),
        ];
        for (key, place) in of_slots.into_iter().filter(|(_, place)| is_files && place.is_some()) {
            self.problems.push(
                Problem::new(format!("`{key}` has no effect here: files never wait for a slot"), place)
                    .help("leave it out"),
            );
        }
        Some(Route { name, pattern, origin, resource, admitted, request_headers, response_headers })
    }

    pub(super) fn resource(&mut self, written: &Spanned<Written>, resources: &[ResourceConfig]) -> ResourceId {
        let names: Vec<_> = resources.iter().map(|resource| resource.name.clone()).collect();
        let help =
            format!("name it and its slots: `[admission]` with `resources = {{ {} = 10 }}`", written.get_ref().0);
        ResourceId(self.place_of("resource", written, &names, &help).unwrap_or(0) as u16)
    }

    /// The pattern, and how it is written.
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
        match read(&written.get_ref().0) {
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
        let given =
            [raw.upstream.as_ref().map(Spanned::span), raw.cgi.as_ref().map(Spanned::span), files.map(Spanned::span)];
        let mut places = given.into_iter().flatten();
        match (places.next(), places.next()) {
            (None, _) if self.shape_is_sound => {
                self.problems.push(Problem::new("this route leads nowhere", Some(owner)).help(
                    "add `upstream = \"NAME\"`, `cgi = \"DIRECTORY\"`, or `files = true` for the files of the site",
                ))
            }
            (first, Some(second)) => self.problems.push(
                Problem::new("a route leads to one place", Some(second))
                    .also(first, "given already")
                    .help("leave in one of `upstream`, `cgi` and `files`"),
            ),
            _ => {}
        }
        if let Some(upstream) = &raw.upstream {
            let names: Vec<_> = targets.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
            let help = format!("add `[[upstream]]` with `name = \"{}\"`", upstream.get_ref().0);
            let replace_prefix = self.replace_prefix(raw, pattern);
            let on = |setting: &Option<Spanned<bool>>| setting.as_ref().is_none_or(|on| *on.get_ref());
            return Some(Origin::Upstream {
                upstream: self.place_of("upstream", upstream, &names, &help)?,
                replace_prefix,
                keep_host: on(&raw.keep_host),
                buffer_request: on(&raw.buffer_request),
                buffer_response: on(&raw.buffer_response),
            });
        }
        let only_there = [
            ("replace-prefix", raw.replace_prefix.as_ref().map(Spanned::span)),
            ("keep-host", raw.keep_host.as_ref().map(Spanned::span)),
            ("buffer-request", raw.buffer_request.as_ref().map(Spanned::span)),
            ("buffer-response", raw.buffer_response.as_ref().map(Spanned::span)),
        ];
        for (key, place) in only_there.into_iter().filter(|(_, place)| place.is_some()) {
            if self.shape_is_sound {
                self.problems.push(
                    Problem::new(format!("`{key}` is about an upstream, and this route has none"), place)
                        .help("leave it out"),
                );
            }
        }
        if let Some(cgi) = &raw.cgi {
            return self.cgi(cgi).map(Origin::Cgi);
        }
        let files = files?;
        if !has_files && self.shape_is_sound {
            self.problems
                .push(Problem::new("this site has no files", Some(files.span())).help("give the site a `root`"));
        }
        Some(Origin::Files)
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

    fn cgi(&mut self, written: &Spanned<RawProgram>) -> Option<CgiConfig> {
        let as_table;
        let table = match written.get_ref() {
            RawProgram::Table(table) => table,
            RawProgram::Path(path) => {
                as_table = RawCgi { program: Some(Spanned::new(written.span(), path.clone())), ..RawCgi::default() };
                &as_table
            }
        };
        let missing =
            ("this table has no `program`", "add `program = \"/usr/lib/cgi-bin\"`: a directory, or one program");
        let program = self.required(&table.program, written.span(), missing, |text| Ok(text.to_owned()))?;
        let program = self.absolute(&program);
        let kind = if table.interpreter.is_some() { FileKind::Scripts } else { FileKind::Programs };
        let place = table.program.as_ref().map(Spanned::span);
        self.named.push(NamedFile { path: program.clone(), span: place, kind });
        let interpreter = table.interpreter.as_ref().map(|interpreter| {
            let path = self.absolute(&interpreter.get_ref().0);
            let span = Some(interpreter.span());
            self.named.push(NamedFile { path: path.clone(), span, kind: FileKind::Program });
            path
        });
        Some(CgiConfig {
            program,
            interpreter,
            environment: self.environment(table.environment.as_ref()),
            pass_environment: self.read_each(table.pass_environment.as_deref().unwrap_or_default(), variable),
            timeout: self.setting(None, &table.timeout, values::duration, Duration::from_secs(60)),
            head_bytes: self.setting(None, &table.response_head, response_head, 64 * 1024),
            most_running: self.setting(
                None,
                &table.max_running,
                |text| values::count(text, 100_000).map(|n| NonZeroU32::new(n as u32).unwrap_or(NonZeroU32::MIN)),
                const { NonZeroU32::new(64).unwrap() },
            ),
        })
    }

    fn headers(&mut self, raw: &RawHeaders, of_request: bool) -> HeaderRules {
        let name = |text: &str| {
            let name = values::header_name(text)?;
            may_be_changed(&name, of_request)?;
            Ok(name)
        };
        let remove = self.read_each(raw.remove.as_deref().unwrap_or_default(), name);
        let mut rules = HeaderRules { remove, ..HeaderRules::default() };
        for (pairs, out) in [(&raw.set, &mut rules.set), (&raw.add, &mut rules.add)] {
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

/// The resource of those who name none.
pub(super) fn default_resource(resources: &[ResourceConfig]) -> ResourceId {
    ResourceId(resources.iter().position(|resource| resource.name == super::resources::SITE).unwrap_or(0) as u16)
}

/// Fields that frame a message, or that say where it goes, are not for rules.
fn may_be_changed(name: &HeaderName, of_request: bool) -> Result<(), String> {
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

fn variable(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['=', '\0']) {
        return Err(format!("`{text}` is not the name of a variable"));
    }
    Ok(text.to_owned())
}

fn response_head(text: &str) -> Result<usize, String> {
    match values::size(text) {
        Ok(bytes @ 1024..=1_048_576) => Ok(bytes as usize),
        Ok(_) => Err("a response head takes from 1KiB to 1MiB".to_owned()),
        Err(message) => Err(message),
    }
}

/// What stands in braces.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

fn pattern_place(written: &Spanned<RawRoute>) -> Range<usize> {
    let raw = written.get_ref();
    let place = raw.path.as_ref().or(raw.path_glob.as_ref()).or(raw.path_regex.as_ref());
    place.map_or(written.span(), Spanned::span)
}

/// Whether `earlier` matches whatever `later` matches, as far as that can be said.
fn covers(earlier: &Route, later: &Route) -> bool {
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
