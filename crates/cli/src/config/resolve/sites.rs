//! Sites: their names, roots and certificates, and how their files are served.

use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
};

use http::Uri;
use server::config::{
    Access, CacheControlRule, Certificate, CertificateFiles, ErrorPage, FilesConfig, HeaderRules, LogChoice,
    PageSource, Route, Site, SymlinkPolicy,
};
use toml::Spanned;

use super::{
    access::WrittenAccess,
    named_files::{FileKind, NamedFile, SiteSpans, path_in},
    resolver::Resolver,
    routes::{OfSite, route_to_all},
    rules::Configured,
    targets::Targets,
};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::{Raw, RawFiles, RawSite},
        written::{RawCacheControl, Setting},
    },
    values::{self, Named as _},
};

impl Resolver<'_> {
    pub(super) fn sites(&mut self, raw: &Raw, flags: &Overrides, targets: &Targets<'_>) -> (Vec<Site>, Vec<SiteSpans>) {
        let shape_is_sound = self.shape_is_sound;
        if !raw.site.is_empty() && !flags.upstream.is_empty() {
            self.problems.push(
                Problem::new("--upstream cannot be given: the file has sites, and says what they pass on", None)
                    .help("add `[[upstream]]` and a route to the file"),
            );
        }
        if raw.site.len() > 1 {
            for (given, flag) in [(flags.dir.is_some(), "DIR"), (flags.tls_cert.is_some(), "--tls-cert and --tls-key")]
            {
                if given {
                    self.problems.push(
                        Problem::new(
                            format!(
                                "{flag} cannot be given: the file has {} sites, and which one is meant is open",
                                raw.site.len()
                            ),
                            None,
                        )
                        .help("set it in the file, at the site that is meant"),
                    );
                }
            }
        }
        if raw.site.is_empty() {
            let root = match (&flags.dir, self.folder) {
                (Some(dir), _) => Some(dir.clone()),
                (None, _) if !flags.upstream.is_empty() => None,
                (None, None) => Some(PathBuf::from(".")),
                (None, Some(_)) => {
                    if shape_is_sound {
                        self.problems.push(
                            Problem::new("the file has no site, so there is nothing to serve", None).help(
                                "add `[[site]]` with `root = \"DIRECTORY\"`, or name the directory on the command line",
                            ),
                        );
                    }
                    Some(PathBuf::from("."))
                }
            };
            let compression = self.compression(&raw.compression, None);
            let to_all = || Route { compression: compression.clone(), ..route_to_all(targets) };
            let site = Site {
                names: Vec::new(),
                root,
                routes: if flags.upstream.is_empty() { Vec::new() } else { vec![to_all()] },
                certificate: flags.certificate().map(Certificate::Files),
                client_ca: None,
                files: self.files(&raw.files, None, flags),
                compression,
                expires: None,
                cors: None,
                response_headers: HeaderRules::default(),
                access: Access::default(),
                error_pages: Vec::new(),
                limit: None,
                maintenance: None,
                to_https: None,
                hsts: None,
                access_log: LogChoice::Outer,
            };
            return (vec![site], vec![SiteSpans::default()]);
        }

        let mut taken: HashMap<String, Range<usize>> = HashMap::new();
        let (mut sites, mut spans) = (Vec::new(), Vec::new());
        for (index, written) in raw.site.iter().enumerate() {
            let site = written.get_ref();
            let names = self.names(site, &mut taken);
            if names.is_empty() && index > 0 && site.names.iter().flatten().next().is_none() && shape_is_sound {
                self.problems.push(
                    Problem::new("this site has no names, so no request can reach it", Some(written.span()))
                        .help("give it `names`, or make it the first site: that one answers for unknown names"),
                );
            }
            let root = match (&flags.dir, &site.root) {
                (Some(dir), _) => Some(dir.clone()),
                (None, Some(root)) => Some(path_in(self.folder, &root.get_ref().0)),
                (None, None) if !site.route.is_empty() => None,
                (None, None) => {
                    if shape_is_sound {
                        self.problems.push(
                            Problem::new("this site has no `root`, and no route", Some(written.span())).help(
                                "add `root = \"DIRECTORY\"` (a relative path starts at the file's folder), or a \
                                 `[[site.route]]` with an `upstream`",
                            ),
                        );
                    }
                    Some(PathBuf::from("."))
                }
            };
            let managed = self.managed(site, &names);
            let files = flags.certificate().or_else(|| self.certificate(site));
            if let (Some(ocsp), None) = (&site.ocsp_response, &site.tls_cert) {
                self.problems.push(
                    Problem::new(
                        "an OCSP response is about a certificate, and this site has none in a file",
                        Some(ocsp.span()),
                    )
                    .help("leave it out, or give the site `tls-cert` and `tls-key`"),
                );
            }
            let certificate = files.map(Certificate::Files).or(managed);
            let from_file = |setting: &Setting, flag: bool| setting.as_ref().filter(|_| !flag).map(Spanned::span);
            spans.push(SiteSpans {
                root: from_file(&site.root, flags.dir.is_some()),
                chain: from_file(&site.tls_cert, flags.tls_cert.is_some()),
                key: from_file(&site.tls_key, flags.tls_cert.is_some()),
            });
            let files = self.files(&site.files, Some(&raw.files), flags);
            let client_ca = self.file(&site.client_ca, FileKind::Authorities);
            if let (Some(authorities), None, None) = (&site.client_ca, &certificate, &site.tls_cert) {
                self.problems.push(
                    Problem::new(
                        "clients show certificates over TLS only, and this site has none",
                        Some(authorities.span()),
                    )
                    .help("give the site `tls-cert` and `tls-key`, or `acme = true`"),
                );
            }
            let compression = self.compression(&site.compression, Some(&raw.compression));
            let configured = Configured { client_certificates: site.client_ca.is_some(), ..*targets.configured };
            let targets = Targets { configured: &configured, ..*targets };
            let RawSite { allow, deny, require, forward_auth, .. } = site;
            let access = self.access(&WrittenAccess { allow, deny, require, forward_auth }, None, &targets);
            let expires = self.expires(site);
            let cors = site.cors.as_ref().and_then(|written| self.cors(written));
            let server_log = self.logs.server.clone();
            let access_log = self.log_of(site.access_log.as_ref(), server_log.as_ref());
            let log = match &access_log {
                LogChoice::Outer => server_log,
                LogChoice::Own(log) => Some(log.clone()),
                LogChoice::Off => None,
            };
            let of_site = OfSite { compression, expires, cors, log };
            let routes = self.routes(site, root.is_some(), &access, &targets, &of_site);
            let OfSite { compression, expires, cors, .. } = of_site;
            let limit = site.limit.as_ref().and_then(|limit| self.limit(limit, &configured));
            let hsts = self.setting(None, &site.hsts, values::hsts, None);
            let response_headers = self.headers(&site.response_headers);
            let error_pages = self.error_pages(site, root.as_deref());
            let maintenance = site.maintenance.as_ref().and_then(|written| self.maintenance(written));
            sites.push(Site {
                names,
                root,
                routes,
                certificate,
                client_ca,
                files,
                compression,
                expires,
                cors,
                response_headers,
                access,
                error_pages,
                limit,
                maintenance,
                to_https: None,
                hsts,
                access_log,
            });
        }
        (sites, spans)
    }

    fn names(&mut self, site: &RawSite, taken: &mut HashMap<String, Range<usize>>) -> Vec<String> {
        let mut names = Vec::new();
        for written in site.names.iter().flatten() {
            let (text, span) = (&written.get_ref().0, written.span());
            match values::host_name(text) {
                Err(message) => self.problems.push(Problem::new(message, Some(span))),
                Ok(name) => match taken.insert(name.clone(), span.clone()) {
                    Some(first) => self.problems.push(
                        Problem::new(format!("the name `{name}` is given twice"), Some(span))
                            .also(Some(first), "first given here")
                            .help("a name leads to one site: leave one of them out"),
                    ),
                    None => names.push(name),
                },
            }
        }
        names
    }

    fn certificate(&mut self, site: &RawSite) -> Option<CertificateFiles> {
        let (chain, key) = self.pair(&site.tls_cert, &site.tls_key)?;
        Some(CertificateFiles {
            chain: path_in(self.folder, &chain.get_ref().0),
            key: path_in(self.folder, &key.get_ref().0),
            ocsp: self.file(&site.ocsp_response, FileKind::Page),
        })
    }

    /// A site's `[site.files]` goes before the file's `[files]`, setting by setting.
    fn files(&mut self, site: &RawFiles, all: Option<&RawFiles>, flags: &Overrides) -> FilesConfig {
        let pick = |get: fn(&RawFiles) -> Option<bool>| get(site).or_else(|| all.and_then(get));
        let index = site.index.as_ref().or_else(|| all.and_then(|all| all.index.as_ref()));
        let symlinks = site.symlinks.as_ref().or_else(|| all.and_then(|all| all.symlinks.as_ref())).cloned();
        let cache_control = site.cache_control.as_ref().or_else(|| all.and_then(|all| all.cache_control.as_ref()));
        let mime_types = site.mime_types.as_ref().or_else(|| all.and_then(|all| all.mime_types.as_ref()));
        FilesConfig {
            index: index.map_or_else(|| vec!["index.html".to_owned()], |list| self.read_each(list, index_name)),
            listing: flags.listing || pick(|files| files.listing).unwrap_or(false),
            folders_first: pick(|files| files.folders_first).unwrap_or(true),
            dot_files: flags.dot_files || pick(|files| files.dot_files).unwrap_or(false),
            symlinks: self.setting(flags.symlinks, &symlinks, SymlinkPolicy::named, SymlinkPolicy::WithinRoot),
            precompressed: pick(|files| files.precompressed).unwrap_or(true),
            cache_control: cache_control.into_iter().flatten().filter_map(|rule| self.cache_control(rule)).collect(),
            mime_types: mime_types.into_iter().flatten().filter_map(|entry| self.mime_type(entry)).collect(),
            tells_type: false,
            server_name: None,
        }
    }

    /// The pages of a site for errors; those for one status before those for many.
    fn error_pages(&mut self, site: &RawSite, root: Option<&Path>) -> Vec<ErrorPage> {
        let mut pages = Vec::new();
        for (key, value) in site.error_pages.iter().flatten() {
            let text = &*value.get_ref().0;
            if root.is_none() && text.starts_with('/') {
                if self.shape_is_sound {
                    let problem = Problem::new("this site has no files for its errors", Some(value.span()));
                    self.problems.push(problem.help(format!(
                        "give the site a `root`, or write `file:{text}` for that file of this machine, or `text:…`"
                    )));
                }
                continue;
            }
            let read = |text: &str| -> Result<_, String> {
                if let Some(text) = text.strip_prefix("text:") {
                    return Ok((PageSource::Text(text.to_owned()), None));
                }
                if let Some(file) = text.strip_prefix("file:") {
                    let file = path_in(self.folder, file);
                    return Ok((PageSource::File(file.clone()), Some(file)));
                }
                let path = values::path(text)?;
                let file = root.map(|root| root.join(path.trim_start_matches('/')));
                let uri = server::classify::encoded_path(&path).parse::<Uri>();
                let uri = uri.map_err(|_| format!("`{text}` is too long for a path"))?;
                Ok((PageSource::OfRoot(uri), file))
            };
            match (values::error_statuses(key.get_ref()), read(text)) {
                (Ok(statuses), Ok((page, file))) => {
                    self.named_files.extend(file.map(|path| NamedFile {
                        path,
                        span: Some(value.span()),
                        kind: FileKind::Page,
                    }));
                    pages.push(ErrorPage { statuses, page });
                }
                (statuses, path) => {
                    self.problems.extend(statuses.err().map(|message| Problem::new(message, Some(key.span()))));
                    self.problems.extend(path.err().map(|message| Problem::new(message, Some(value.span()))));
                }
            }
        }
        pages.sort_by_key(|page| page.statuses.1 - page.statuses.0);
        pages
    }

    fn cache_control(&mut self, rule: &RawCacheControl) -> Option<CacheControlRule> {
        let pattern = rule.pattern.get_ref();
        let glob =
            globset::GlobBuilder::new(pattern.strip_prefix('/').unwrap_or(pattern)).literal_separator(true).build();
        let glob = glob.map_err(|error| {
            Problem::new(format!("the pattern cannot be read: {}", error.kind()), Some(rule.pattern.span()))
                .help("`*` stands for any part of a name, `**` for any folders, `{js,css}` for a choice")
        });
        let value = http::HeaderValue::from_str(rule.value.get_ref()).map_err(|_| {
            Problem::new("a header cannot hold this value", Some(rule.value.span()))
                .help("write printable ASCII, as in `public, max-age=3600`")
        });
        match (glob, value) {
            (Ok(glob), Ok(value)) => Some(CacheControlRule { pattern: glob.compile_matcher(), value }),
            (glob, value) => {
                self.problems.extend(glob.err().into_iter().chain(value.err()));
                None
            }
        }
    }

    fn mime_type(&mut self, (extension, kind): (&Spanned<String>, &Spanned<String>)) -> Option<(String, String)> {
        let name = extension.get_ref().trim_start_matches('.').to_ascii_lowercase();
        let sound = |part: &str| part.split_once('/').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty());
        if name.is_empty() || name.contains(['.', '/']) {
            let message = format!("`{}` is not a file extension", extension.get_ref());
            self.problems.push(Problem::new(message, Some(extension.span())).help("write it as in `webmanifest`"));
            None
        } else if !sound(kind.get_ref()) || http::HeaderValue::from_str(kind.get_ref()).is_err() {
            let message = format!("`{}` is not a MIME type", kind.get_ref());
            self.problems.push(Problem::new(message, Some(kind.span())).help("write it as in `application/json`"));
            None
        } else {
            Some((name, kind.get_ref().clone()))
        }
    }
}

fn index_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || matches!(text, "." | "..") {
        return Err(format!("`{text}` is not a file name: an index file lies in the directory that is asked for"));
    }
    let names: Vec<_> = text.split([',', ' ']).filter(|name| !name.is_empty()).collect();
    if names.len() > 1 && names.iter().all(|name| name.contains('.')) {
        return Err(format!("`{text}` is several names: write {}", values::list(text)));
    }
    Ok(text.to_owned())
}
