//! The sites, and the choice of a site by host name.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use acme::Challenges;
use http::{HeaderValue, StatusCode};
use limits::Limiter;
use programs::{Application, Cgi, FastCgi, Uwsgi};

use crate::{
    config::{self, Certificate, ErrorPage, Filter, Route, Site, is_script},
    host::normal,
    pipeline::{
        error_page::Page,
        guard::{Guard, Switch},
        target::{BadPath, Target},
        transform::Transform,
    },
};
use files::{Cache, Files, FilesConfig};
use heads::EarlyHints;

/// `Server` of every response, whatever its origin.
pub(crate) const SERVER_NAME: HeaderValue = HeaderValue::from_static("serpent");

/// Sites by host name. Unknown names select the first site.
pub(crate) struct Sites {
    names: Names,
    sites: Vec<Entry>,
    /// Whether a connection can carry requests for a site with another certificate, or with other authorities
    /// for client certificates, than the one it was opened for.
    several_certificates: bool,
}

struct Entry {
    names: Vec<String>,
    files: Option<Files>,
    /// Absolute.
    root: Option<PathBuf>,
    routes: Vec<ResolvedRoute>,
    /// For paths that no route matches: the files.
    otherwise: ResolvedRoute,
    certificate: Option<Certificate>,
    client_ca: Option<PathBuf>,
    error_pages: Vec<(ErrorPage, Page)>,
    /// The extensions of scripts.
    scripts: Vec<String>,
    maintenance: Option<Arc<Switch>>,
}

/// A route of a site, ready for requests.
#[derive(Debug)]
pub(crate) struct ResolvedRoute {
    pub(crate) config: Route,
    /// The key under which its service times are learned.
    pub(crate) key: u64,
    pub(crate) guards: Box<[Guard]>,
    pub(crate) origin: Origin,
    pub(crate) transforms: Box<[Transform]>,
    /// The resources that its pages let clients load early, where clients are told of them.
    pub(crate) early_hints: Option<Box<EarlyHints>>,
}

/// The origin of a route.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The files of the site.
    Files,
    /// Another server.
    Upstream(UpstreamOrigin),
    /// A program that is run for each request, or an application behind FastCGI or uwsgi.
    Program(Application),
}

/// How requests of a route go to an upstream; see [`config::Origin::Upstream`].
#[derive(Debug)]
pub(crate) struct UpstreamOrigin {
    pub(crate) upstream: usize,
    pub(crate) replace_prefix: Option<String>,
    pub(crate) keep_host: bool,
    pub(crate) buffer_request: bool,
    pub(crate) buffer_response: bool,
    pub(crate) times: Option<config::Times>,
}

/// How an origin takes the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyUse {
    /// Not at all.
    Ignored,
    /// When all of it is here.
    Whole,
    /// As the client sends it.
    Streamed,
}

/// A path and the route that takes it.
#[derive(Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) route: &'a ResolvedRoute,
    /// The index in [`Sites::routes`]; `None`: no route matches, and the files of the site answer.
    pub(crate) number: Option<usize>,
    pub(crate) target: Target<'a>,
    rest_bytes: usize,
}

impl Routed<'_> {
    /// The decoded path behind the part that a prefix matched; all of it for other patterns.
    pub(crate) fn rest(&self) -> &str {
        self.split().1
    }

    /// The decoded part of the path that a prefix matched.
    pub(crate) fn prefix(&self) -> &str {
        self.split().0
    }

    fn split(&self) -> (&str, &str) {
        let path = self.target.decoded();
        path.split_at(path.len() - self.rest_bytes)
    }
}

/// Why a site cannot be opened; the operator has to fix it.
#[derive(Debug)]
pub(crate) struct SiteError {
    /// The setting that names it.
    pub(crate) setting: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) error: io::Error,
}

impl Sites {
    /// The limits of all sites and routes, each with a number that is the same wherever this configuration is used.
    pub(crate) fn limiters(&self) -> Vec<(u64, Arc<Limiter>)> {
        let mut limiters: Vec<(u64, Arc<Limiter>)> = Vec::new();
        for site in &self.sites {
            for route in site.routes.iter().chain([&site.otherwise]) {
                for (is_of_site, limiter) in route.guards.iter().filter_map(Guard::limiter) {
                    let mut hasher = DefaultHasher::new();
                    (&site.names, (!is_of_site).then_some(route.key)).hash(&mut hasher);
                    if !limiters.iter().any(|(_, known)| Arc::ptr_eq(known, limiter)) {
                        limiters.push((hasher.finish(), limiter.clone()));
                    }
                }
            }
        }
        limiters
    }

    pub(crate) fn open(sites: &[Site], cache: &Cache, challenges: Option<&Arc<Challenges>>) -> Result<Self, SiteError> {
        let opened = sites.iter().map(|site| {
            let open = |root: &PathBuf| {
                let says_freshness = site.expires.is_some() || site.routes.iter().any(|route| route.expires.is_some());
                let (tells_type, server_name) = (says_freshness, Some(SERVER_NAME));
                let mut files = FilesConfig { tells_type, server_name, ..site.files.clone() };
                // A guard sends them to their route.
                files.index.retain(|name| !is_script(&site.scripts(), name));
                Files::open(root, &files, cache.clone()).map_err(|error| SiteError {
                    setting: "root",
                    path: root.clone(),
                    error,
                })
            };
            let files = site.root.as_ref().map(open).transpose()?;
            let limiter = site.limit.as_ref().map(|limit| Limiter::new(limit, Instant::now())).map(Arc::new);
            let maintenance = site.maintenance.as_ref().map(|maintenance| {
                Arc::new(Switch::new(maintenance, site.names.first().map_or("default", |name| name)))
            });
            let open = |route: &Route| {
                ResolvedRoute::open(route, site, cache, limiter.as_ref(), challenges, maintenance.as_ref())
            };
            let routes = site.routes.iter().map(open).collect::<Result<_, _>>()?;
            let (access, compression) = (site.access.clone(), site.compression.clone());
            let of_files = Route::of_files(access, compression, site.expires.clone(), site.cors.clone());
            let otherwise = open(&of_files)?;
            let (certificate, client_ca) = (site.certificate.clone(), site.client_ca.clone());
            // Programs start elsewhere, where a relative path would mean another directory.
            let absolute = |root: &PathBuf| {
                let failed = |error| SiteError { setting: "root", path: root.clone(), error };
                std::path::absolute(root).map_err(failed)
            };
            let root = site.root.as_ref().map(absolute).transpose()?;
            let open = |page: &ErrorPage| match Page::open(&page.page, &site.files) {
                Ok(opened) => Ok((page.clone(), opened)),
                Err((path, error)) => Err(SiteError { setting: "error_pages", path, error }),
            };
            let error_pages = site.error_pages.iter().map(open).collect::<Result<_, _>>()?;
            let (names, scripts) = (site.names.clone(), site.scripts());
            Ok(Entry {
                names,
                files,
                root,
                routes,
                otherwise,
                certificate,
                client_ca,
                error_pages,
                scripts,
                maintenance,
            })
        });
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let first = &opened[0];
        let several_certificates =
            opened.iter().any(|site| site.certificate != first.certificate || site.client_ca != first.client_ca);
        Ok(Self { names: Names::new(sites), sites: opened, several_certificates })
    }

    /// The index of the site for a host, which may have a port.
    pub(crate) fn find(&self, host: &str) -> usize {
        if self.sites.len() == 1 { 0 } else { self.names.find(host).unwrap_or(0) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.sites.len()
    }

    /// The host names of a site.
    pub(crate) fn names_of(&self, site: usize) -> &[String] {
        &self.sites[site].names
    }

    /// Where the certificate of a site is from, if it has one.
    pub(crate) fn certificate(&self, site: usize) -> Option<&Certificate> {
        self.sites[site].certificate.as_ref()
    }

    /// The files of a site, by its index, if it has any.
    pub(crate) fn files(&self, site: usize) -> Option<&Files> {
        self.sites[site].files.as_ref()
    }

    /// The directory of a site's files, if it has any.
    pub(crate) fn root(&self, site: usize) -> Option<&Path> {
        self.sites[site].root.as_deref()
    }

    /// The routes of a site.
    pub(crate) fn routes(&self, site: usize) -> &[ResolvedRoute] {
        &self.sites[site].routes
    }

    /// The transforms of a route; without a number, those of the site's files.
    pub(crate) fn transforms(&self, site: usize, route: Option<usize>) -> &[Transform] {
        let Entry { routes, otherwise, .. } = &self.sites[site];
        &route.map_or(otherwise, |number| &routes[number]).transforms
    }

    /// The name of a route.
    pub(crate) fn route_name(&self, site: usize, route: Option<usize>) -> Option<&str> {
        Some(&self.routes(site)[route?].config.name)
    }

    /// The resources that the pages of a route let clients load early, where clients are told of them.
    pub(crate) fn early_hints(&self, site: usize, route: Option<usize>) -> Option<&EarlyHints> {
        self.routes(site)[route?].early_hints.as_deref()
    }

    /// The first route of a site that matches a path and takes the request, or else the files of the site.
    ///
    /// # Errors
    /// The path is malformed.
    pub(crate) fn route<'a>(
        &'a self,
        site: usize,
        path: &'a str,
        takes: impl Fn(&Filter) -> bool,
    ) -> Result<Routed<'a>, BadPath> {
        let Entry { routes, otherwise, .. } = &self.sites[site];
        if routes.is_empty() {
            // The files read the path themselves.
            return Ok(Routed { route: otherwise, number: None, target: Target::unread(path), rest_bytes: path.len() });
        }
        let target = Target::parse(path)?;
        let path = target.decoded();
        let mut matches = routes.iter().enumerate();
        let found = matches.find_map(|(number, route)| {
            let rest = route.config.pattern.matches(path)?;
            takes(&route.config.filter).then_some((number, route, rest.len()))
        });
        let (number, route, rest_bytes) = match found {
            Some((number, route, rest_bytes)) => (Some(number), route, rest_bytes),
            None => (None, otherwise, path.len()),
        };
        Ok(Routed { route, number, target, rest_bytes })
    }

    /// The page of a site for the status of an error, and the files that may have it. `of_origin`: the error is that of the
    /// origin of this route.
    pub(crate) fn error_page(
        &self,
        site: usize,
        of_origin: Option<usize>,
        status: StatusCode,
    ) -> Option<(Option<&Files>, &Page)> {
        let Entry { files, error_pages, scripts, routes, .. } = &self.sites[site];
        if of_origin.is_some_and(|route| !routes[route].config.replaces_errors) {
            return None;
        }
        let is_for = |(page, _): &&(ErrorPage, Page)| (page.statuses.0..=page.statuses.1).contains(&status.as_u16());
        let (_, page) = error_pages.iter().find(is_for)?;
        let is_script = matches!(page, Page::OfRoot(path) if is_script(scripts, path.path()));
        (!is_script).then_some((files.as_ref(), page))
    }

    /// Whether a path leads to a script of a site, which is not sent as it is.
    pub(crate) fn is_script(&self, site: usize, path: &str) -> bool {
        is_script(&self.sites[site].scripts, path)
    }

    /// The switches that close sites for maintenance.
    pub(crate) fn maintenance(&self) -> impl Iterator<Item = &Arc<Switch>> {
        self.sites.iter().filter_map(|site| site.maintenance.as_ref())
    }

    /// The file of authorities for client certificates, if the site asks for any.
    pub(crate) fn client_ca(&self, site: usize) -> Option<&Path> {
        self.sites[site].client_ca.as_deref()
    }

    /// Whether a connection opened for `server_name` was handled as the site requires: it used the site's
    /// certificate and asked for the site's client certificates. A site that asks for none accepts a
    /// connection that did, since it trusts no client certificate.
    pub(crate) fn same_certificate(&self, server_name: &str, site: usize) -> bool {
        if !self.several_certificates {
            return true;
        }
        let (asked, site) = (&self.sites[self.find(server_name)], &self.sites[site]);
        asked.certificate == site.certificate && (site.client_ca.is_none() || asked.client_ca == site.client_ca)
    }
}

impl ResolvedRoute {
    fn open(
        route: &Route,
        site: &Site,
        cache: &Cache,
        limiter: Option<&Arc<Limiter>>,
        challenges: Option<&Arc<Challenges>>,
        maintenance: Option<&Arc<Switch>>,
    ) -> Result<Self, SiteError> {
        let origin = match &route.origin {
            config::Origin::Cgi(cgi) => {
                let failed = |error| SiteError { setting: "cgi", path: cgi.program.clone(), error };
                Origin::Program(Application::Cgi(Cgi::open(cgi).map_err(failed)?))
            }
            config::Origin::FastCgi(fastcgi) => {
                let scripts = fastcgi.root.as_ref().or(site.root.as_ref());
                let failed = |error| SiteError { setting: "fastcgi", path: scripts.cloned().unwrap_or_default(), error };
                let opened = FastCgi::open(fastcgi, site.root.as_deref(), site.files.symlinks);
                Origin::Program(Application::FastCgi(Box::new(opened.map_err(failed)?)))
            }
            config::Origin::Uwsgi(uwsgi) => Origin::Program(Application::Uwsgi(Box::new(Uwsgi::new(uwsgi)))),
            config::Origin::Upstream { upstream, replace_prefix, keep_host, buffer_request, buffer_response, times } => {
                Origin::Upstream(UpstreamOrigin {
                    upstream: *upstream,
                    replace_prefix: replace_prefix.clone(),
                    keep_host: *keep_host,
                    buffer_request: *buffer_request,
                    buffer_response: *buffer_response,
                    times: *times,
                })
            }
            config::Origin::Files
            // No request gets past the guard that answers.
            | config::Origin::Redirect(_)
            | config::Origin::Rewrite(_)
            | config::Origin::Respond(_) => Origin::Files,
        };
        let mut hasher = DefaultHasher::new();
        // Routes of one path differ by their filters.
        (&route.name, format!("{:?}", route.filter)).hash(&mut hasher);
        let (guards, transforms) =
            (Guard::of(route, site, limiter, challenges, maintenance), Transform::of(route, site, cache.copies()));
        let early_hints = route.early_hints.then(Box::default);
        Ok(Self { config: route.clone(), key: hasher.finish(), guards, origin, transforms, early_hints })
    }
}

impl Origin {
    /// How it takes the body of a request.
    pub(crate) fn is_upstream(&self) -> bool {
        matches!(self, Self::Upstream(_))
    }

    /// How long nothing may move of a request to an upstream, where its route says so.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        match self {
            Self::Upstream(upstream) => upstream.times.map(|times| times.idle),
            Self::Files | Self::Program(_) => None,
        }
    }

    pub(crate) fn body_use(&self) -> BodyUse {
        match self {
            Self::Files => BodyUse::Ignored,
            Self::Upstream(upstream) if !upstream.buffer_request => BodyUse::Streamed,
            Self::Upstream(_) | Self::Program(_) => BodyUse::Whole,
        }
    }
}

/// The index of the site for a host, which may have a port.
pub fn site_of(sites: &[Site], host: &str) -> usize {
    Names::new(sites).find(host).unwrap_or(0)
}

/// Normalizes a host for comparison with sites' names: without port and trailing dot, in lower case.
pub fn host_of(host: &str) -> Cow<'_, str> {
    normal(host)
}

/// The plain and wildcard host names of a list of sites.
#[derive(Debug, Default)]
pub(crate) struct Names {
    plain: HashMap<Box<str>, usize>,
    /// The names behind `*.`.
    wildcard: HashMap<Box<str>, usize>,
}

impl Names {
    pub(crate) fn new(sites: &[Site]) -> Self {
        let mut names = Self::default();
        for (at, site) in sites.iter().enumerate() {
            for name in &site.names {
                match name.strip_prefix("*.") {
                    Some(suffix) => names.wildcard.entry(suffix.into()).or_insert(at),
                    None => names.plain.entry(name.as_str().into()).or_insert(at),
                };
            }
        }
        names
    }

    /// The site with the name. Plain names come before wildcards, and longer wildcards before shorter ones.
    pub(crate) fn find(&self, host: &str) -> Option<usize> {
        let name = normal(host);
        if let Some(&site) = self.plain.get(&*name) {
            return Some(site);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        let mut suffixes = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        suffixes.find_map(|suffix| self.wildcard.get(suffix).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(names: &[&[&str]]) -> Vec<Site> {
        names
            .iter()
            .map(|names| Site {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                root: Some("/".into()),
                routes: Vec::new(),
                certificate: None,
                client_ca: None,
                compression: None,
                expires: None,
                cors: None,
                response_headers: crate::config::HeaderRules::default(),
                access: crate::config::Access::default(),
                error_pages: Vec::new(),
                limit: None,
                maintenance: None,
                to_https: None,
                hsts: None,
                access_log: crate::config::LogChoice::Outer,
                files: crate::config::FilesConfig {
                    index: Vec::new(),
                    listing: false,
                    dot_files: false,
                    symlinks: crate::config::SymlinkPolicy::Never,
                    precompressed: false,
                    cache_control: Vec::new(),
                    mime_types: Vec::new(),
                    ..crate::config::FilesConfig::default()
                },
            })
            .collect()
    }

    fn names(names: &[&[&str]]) -> Names {
        Names::new(&sites(names))
    }

    #[test]
    fn the_root_of_a_site_is_absolute_for_programs() {
        let mut sites = sites(&[&["a"]]);
        sites[0].root = Some("src".into());
        let opened = Sites::open(&sites, &Cache::new(crate::config::CacheConfig::default()), None).unwrap();
        assert_eq!(opened.root(0), Some(&*std::env::current_dir().unwrap().join("src")));
    }

    #[test]
    fn a_host_is_found_in_any_writing() {
        let names =
            names(&[&["a.example", "[::1]"], &["*.b.example", "b.example"], &["deep.b.example", "*.x.b.example"]]);
        for (host, site) in [
            ("a.example", Some(0)),
            ("A.Example:8080", Some(0)),
            ("a.example.", Some(0)),
            ("a.example.:80", Some(0)),
            ("[::1]", Some(0)),
            ("[::1]:80", Some(0)),
            ("b.example", Some(1)),
            ("www.b.example", Some(1)),
            ("one.two.b.example", Some(1)),
            ("deep.b.example", Some(2)),
            ("one.x.b.example", Some(2)),
            ("x.b.example", Some(1)),
            ("cb.example", None),
            (".a.example", None),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(names.find(host), site, "{host:?}");
        }
    }

    #[test]
    fn the_first_site_with_a_name_has_it() {
        assert_eq!(names(&[&["a"], &["a"]]).find("a"), Some(0));
    }
}
