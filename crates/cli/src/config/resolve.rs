//! Stage two: every value read, every default filled in, every contradiction found.

mod classes;
mod gateway;
mod resources;

use std::{
    collections::HashMap,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
};

use scheduler::{Order, uplink::UTILISATION};
use server::config::{
    AccessLog, CacheConfig, CacheControlRule, CertificateFiles, Config, Cutoffs, Enforce, FilesConfig, Limits, Listen,
    LogFormat, LogTarget, Site, SymlinkPolicy, UplinkConfig, UplinkRate,
};
use toml::Spanned;

use super::{
    DEFAULT_LISTEN, Overrides, path_in,
    problems::{self, Problem},
    raw::{Raw, RawCutoffs, RawFiles, RawSite, Setting, Written},
};
use crate::{
    open_files,
    values::{self, ListenAt, Named},
};

/// A configuration, with the places in the file that are still needed to point at.
pub struct Resolved {
    pub config: Config,
    /// For each site, in order.
    pub places: Vec<SitePlaces>,
    pub access_log: Option<Range<usize>>,
    /// Other files and directories that are named.
    pub named: Vec<NamedFile>,
    /// For each upstream, in order, its name.
    pub upstreams: Vec<Option<Range<usize>>>,
}

/// A file or directory that the configuration names.
pub struct NamedFile {
    pub path: PathBuf,
    pub span: Option<Range<usize>>,
    pub kind: FileKind,
}

/// What a file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Certificate authorities, PEM.
    Authorities,
    /// A certificate chain, PEM, that has its key in the next entry.
    Chain,
    /// The private key of the entry before, PEM.
    Key,
    /// A secret of at least so many bytes, that nobody else is to read.
    Secret(u64),
    /// Passwords or keys, hashed: not for everybody to read.
    Hashes,
    /// A file to be sent.
    Page,
    /// A directory.
    Directory,
    /// A program.
    Program,
    /// A program, or a directory of them.
    Programs,
    /// What a program runs: a file, or a directory of them.
    Scripts,
}

/// Where a site's paths stand in the file; `None` for those from flags or defaults.
#[derive(Clone, Default)]
pub struct SitePlaces {
    pub root: Option<Range<usize>>,
    pub chain: Option<Range<usize>>,
    pub key: Option<Range<usize>>,
}

/// Puts flags, file and defaults together. Mistakes are added to `problems`; with any there, the result is not to be used.
/// `shape_is_sound` tells that nothing of the file was left out.
pub fn resolve(
    raw: &Raw,
    flags: &Overrides,
    folder: Option<&Path>,
    shape_is_sound: bool,
    problems: &mut Vec<Problem>,
) -> Resolved {
    let mut r = Resolver { problems, folder, shape_is_sound, all_read: true, named: Vec::new() };
    let mut resources = r.resources(raw);
    let (upstreams, upstream_places) = r.upstreams(raw, flags);
    r.probes(raw, &mut resources, &upstreams);
    let targets = gateway::Targets { upstreams: &upstreams, resources: &resources };
    let (mut sites, places) = r.sites(raw, flags, &targets);
    r.unused_upstreams(&sites, &upstreams, &upstream_places);
    let admin = r.setting(flags.admin, &raw.admin, values::address_or_off, None);
    let admin_token = r.file(&raw.admin_token, FileKind::Secret(32));
    if let (Some(token), None, true) = (&raw.admin_token, admin, shape_is_sound) {
        r.problems.push(
            Problem::warning("`admin-token` has no effect without `admin`", Some(token.span()))
                .help("give `admin` an address, as in `admin = \"127.0.0.1:9090\"`"),
        );
    }
    let listen = r.listen(raw, flags, &sites, admin, shape_is_sound);
    let tls = listen.iter().any(|listen| listen.tls);
    let classes = r.classes(raw, flags, &mut sites, &mut resources, tls);
    let limits = r.limits(raw, flags, !upstreams.is_empty());
    let config = Config {
        listen,
        sites,
        upstreams,
        classes,
        uplink: r.uplink(raw, flags),
        limits,
        workers: {
            let automatic = || values::workers("auto").expect("`auto` is a number of workers");
            r.setting(flags.workers, &raw.workers, values::workers, automatic())
        },
        access_log: r.access_log(raw, flags),
        admin,
        admin_token,
        cache: r.cache(raw, flags),
    };
    let access_log = raw.access_log.target.as_ref().filter(|_| flags.access_log.is_none()).map(Spanned::span);
    Resolved { config, places, access_log, named: r.named, upstreams: upstream_places }
}

/// Clients speak TLS to it.
const HTTPS_PORT: u16 = 443;

struct Resolver<'a> {
    problems: &'a mut Vec<Problem>,
    folder: Option<&'a Path>,
    /// Nothing of the file was left out, so what is missing is missing.
    shape_is_sound: bool,
    /// Every value so far could be read, so none was replaced by its default.
    all_read: bool,
    named: Vec<NamedFile>,
}

impl Resolver<'_> {
    /// Whether settings so far are as the operator wrote them, so that they can contradict each other.
    fn is_as_written(&self) -> bool {
        self.shape_is_sound && self.all_read
    }

    /// A value that cannot be read.
    fn unread(&mut self, message: String, written: &Spanned<Written>) {
        self.all_read = false;
        self.problems.push(Problem::new(message, Some(written.span())));
    }

    /// The flag if given, else what the file says, else the default.
    fn setting<T>(
        &mut self,
        flag: Option<T>,
        written: &Setting,
        read: impl Fn(&str) -> Result<T, String>,
        default: T,
    ) -> T {
        if let Some(value) = flag {
            return value;
        }
        let Some(written) = written else { return default };
        read(&written.get_ref().0).unwrap_or_else(|message| {
            self.unread(message, written);
            default
        })
    }

    /// What the file says, or nothing.
    fn optional<T>(&mut self, written: &Setting, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.setting(None, written, |text| read(text).map(Some), None)
    }

    /// What must be said; says so if it is not.
    fn required<T>(
        &mut self,
        written: &Setting,
        owner: Range<usize>,
        (missing, help): (&str, &str),
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        if written.is_none() && self.shape_is_sound {
            self.problems.push(Problem::new(missing, Some(owner)).help(help));
        }
        self.optional(written, read)
    }

    /// A file or directory, to be looked at later.
    fn file(&mut self, written: &Setting, kind: FileKind) -> Option<PathBuf> {
        let written = written.as_ref()?;
        let path = path_in(self.folder, &written.get_ref().0);
        self.named.push(NamedFile { path: path.clone(), span: Some(written.span()), kind });
        Some(path)
    }

    /// The place of a name in the list of those there are.
    fn place_of(&mut self, what: &str, written: &Spanned<Written>, known: &[String], help: &str) -> Option<usize> {
        let name = &written.get_ref().0;
        let found = known.iter().position(|known| known == name);
        // One without a name, which was told already, may be the one that is meant.
        if found.is_none() && self.shape_is_sound && !known.iter().any(String::is_empty) {
            let help = match problems::like(name, known.iter().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}`?"),
                None => help.to_owned(),
            };
            self.problems.push(Problem::new(format!("there is no {what} `{name}`"), Some(written.span())).help(help));
        }
        found
    }

    fn read_each<T>(&mut self, list: &[Spanned<Written>], read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut values = Vec::new();
        for written in list {
            match read(&written.get_ref().0) {
                Ok(value) => values.push(value),
                Err(message) => self.unread(message, written),
            }
        }
        values
    }

    fn listen(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
        sites: &[Site],
        admin: Option<SocketAddr>,
        shape_is_sound: bool,
    ) -> Vec<Listen> {
        let mut given: Vec<(ListenAt, Option<Range<usize>>)> = Vec::new();
        match &raw.listen {
            _ if !flags.listen.is_empty() => given.extend(flags.listen.iter().map(|at| (*at, None))),
            Some(list) if list.is_empty() && shape_is_sound => self.problems.push(
                Problem::new("`listen` is empty: there is no address to serve on", None)
                    .help("name an address, as in `listen = [\":80\"]`, or leave `listen` out for the default"),
            ),
            Some(list) => {
                for written in list {
                    match values::listen(&written.get_ref().0) {
                        Ok(at) => given.push((at, Some(written.span()))),
                        Err(message) => self.problems.push(Problem::new(message, Some(written.span()))),
                    }
                }
            }
            None => given.push((DEFAULT_LISTEN, None)),
        }

        let certificates = sites.iter().any(|site| site.certificate.is_some());
        let mut seen: HashMap<SocketAddr, Option<Range<usize>>> = HashMap::new();
        let mut listen = Vec::new();
        for (at, span) in given {
            if at.tls == Some(true) && !certificates && shape_is_sound {
                self.problems.push(
                    Problem::new(
                        format!("https://{} needs a certificate, and no site has one", at.address),
                        span.clone(),
                    )
                    .help("give a site `tls-cert` and `tls-key` (flags --tls-cert and --tls-key), or write http://"),
                );
            }
            if admin == Some(at.address) && at.address.port() != 0 {
                self.problems.push(
                    Problem::new(format!("{} is the address of `admin` already", at.address), span.clone())
                        .also(raw.admin.as_ref().map(Spanned::span), "given here")
                        .help("give `admin` an address of its own, out of reach of the public"),
                );
            }
            if at.address.port() == HTTPS_PORT && at.tls.is_none() && !certificates && self.is_as_written() {
                self.problems.push(
                    Problem::warning(
                        format!(
                            "{} speaks HTTP without TLS, on the port of HTTPS: no site has a certificate",
                            at.address
                        ),
                        span.clone(),
                    )
                    .help(format!(
                        "give a site `tls-cert` and `tls-key` (flags --tls-cert and --tls-key), or write \
                         `http://{}` if that is meant",
                        at.address
                    )),
                );
            }
            // Port 0 means any free port, and so a different one each time.
            if at.address.port() != 0
                && let Some(first) = seen.insert(at.address, span.clone())
            {
                self.problems.push(
                    Problem::new(format!("the address {} is given twice", at.address), span)
                        .also(first, "first given here")
                        .help("leave one of them out"),
                );
                continue;
            }
            listen.push(Listen { address: at.address, tls: at.tls.unwrap_or(certificates) });
        }
        listen
    }

    fn sites(&mut self, raw: &Raw, flags: &Overrides, targets: &gateway::Targets<'_>) -> (Vec<Site>, Vec<SitePlaces>) {
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
            let site = Site {
                names: Vec::new(),
                root,
                routes: if flags.upstream.is_empty() { Vec::new() } else { vec![gateway::route_to_all(targets)] },
                certificate: flags.certificate(),
                client_ca: None,
                files: self.files(&raw.files, None, flags),
            };
            return (vec![site], vec![SitePlaces::default()]);
        }

        let mut taken: HashMap<String, Range<usize>> = HashMap::new();
        let (mut sites, mut places) = (Vec::new(), Vec::new());
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
            let certificate = flags.certificate().or_else(|| self.certificate(site));
            let from_file = |setting: &Setting, flag: bool| setting.as_ref().filter(|_| !flag).map(Spanned::span);
            places.push(SitePlaces {
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
                    .help("give the site `tls-cert` and `tls-key`"),
                );
            }
            let routes = self.routes(site, root.is_some(), targets);
            sites.push(Site { names, root, routes, certificate, client_ca, files });
        }
        (sites, places)
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
        })
    }

    /// A certificate and its key, where both are given; one alone is a problem.
    fn pair<'w>(
        &mut self,
        cert: &'w Setting,
        key: &'w Setting,
    ) -> Option<(&'w Spanned<Written>, &'w Spanned<Written>)> {
        match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(only), None) | (None, Some(only)) => {
                self.problems.push(
                    Problem::new("a certificate needs its key, and a key its certificate", Some(only.span()))
                        .help("give both `tls-cert` and `tls-key`"),
                );
                None
            }
            (None, None) => None,
        }
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
            dot_files: flags.dot_files || pick(|files| files.dot_files).unwrap_or(false),
            symlinks: self.setting(flags.symlinks, &symlinks, SymlinkPolicy::named, SymlinkPolicy::WithinRoot),
            precompressed: pick(|files| files.precompressed).unwrap_or(true),
            cache_control: cache_control.into_iter().flatten().filter_map(|rule| self.cache_control(rule)).collect(),
            mime_types: mime_types.into_iter().flatten().filter_map(|entry| self.mime_type(entry)).collect(),
        }
    }

    fn cache_control(&mut self, rule: &super::raw::RawCacheControl) -> Option<CacheControlRule> {
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

    fn uplink(&mut self, raw: &Raw, flags: &Overrides) -> UplinkConfig {
        let section = &raw.uplink;
        let cutoffs = section.cutoffs.as_ref().map_or(Cutoffs::Learned, |written| self.cutoffs(written));
        let uplink = UplinkConfig {
            rate: self.setting(flags.uplink, &section.rate, values::uplink_rate, UplinkRate::Auto),
            order: self.setting(flags.order, &section.order, Order::named, Order::Srpt),
            enforce: self.setting(flags.enforce, &section.enforce, Enforce::named, Enforce::Server),
            cutoffs,
            guard_stretch: self.setting(flags.guard, &section.guard, values::stretch_or_off, None),
            utilisation: self.setting(None, &section.utilisation, values::share, UTILISATION),
            segment_overhead_bytes: {
                let read = |text: &str| match values::size(text) {
                    Ok(bytes @ 0..=1024) => Ok(bytes as u32),
                    Ok(_) => Err("headers of a segment take at most 1024 bytes".to_owned()),
                    Err(message) => Err(message),
                };
                self.setting(None, &section.segment_overhead, read, 66)
            },
            device: {
                let read = |text: &str| Ok((text != "auto").then(|| text.to_owned()));
                self.setting(flags.device.clone().map(Some), &section.device, read, None)
            },
        };
        if uplink.enforce == Enforce::Kernel && matches!(uplink.rate, UplinkRate::Off) {
            let span = if flags.enforce.is_none() { section.enforce.as_ref().map(Spanned::span) } else { None };
            self.problems.push(
                Problem::new("`enforce = \"kernel\"` and `rate = \"off\"` contradict each other", span)
                    .also(section.rate.as_ref().filter(|_| flags.uplink.is_none()).map(Spanned::span), "off here")
                    .help("leave the rate out: in kernel mode it is the rate that `serpent uplink install` was given"),
            );
        }
        let unlimited = matches!(uplink.rate, UplinkRate::Off) || uplink.enforce == Enforce::Off;
        if let Some(share) = section.share.as_ref().filter(|share| unlimited && share.get_ref().0 != "off") {
            self.problems.push(
                Problem::warning("nobody waits for the uplink, so there is nothing to share", Some(share.span()))
                    .help("give the uplink a `rate`, or leave `share` out"),
            );
        }
        if let (Enforce::Kernel, Some(share)) = (uplink.enforce, &section.share)
            && share.get_ref().0 != "off"
        {
            self.problems.push(
                Problem::new("the kernel's bands know no classes", Some(share.span()))
                    .also(
                        section.enforce.as_ref().filter(|_| flags.enforce.is_none()).map(Spanned::span),
                        "kernel here",
                    )
                    .help("share the uplink with `enforce = \"server\"`, or leave `share` out"),
            );
        }
        if uplink.enforce == Enforce::Kernel && uplink.order == Order::Fsp {
            let span = if flags.order.is_none() { section.order.as_ref().map(Spanned::span) } else { None };
            self.problems.push(
                Problem::new("the order `fsp` cannot be put into the kernel's bands", span)
                    .also(
                        section.enforce.as_ref().filter(|_| flags.enforce.is_none()).map(Spanned::span),
                        "kernel here",
                    )
                    .help("use `srpt` with `enforce = \"kernel\"`, or `fsp` with `enforce = \"server\"`"),
            );
        }
        uplink
    }

    fn cutoffs(&mut self, written: &Spanned<RawCutoffs>) -> Cutoffs {
        match written.get_ref() {
            RawCutoffs::Word(word) if word == "learned" => Cutoffs::Learned,
            RawCutoffs::Word(word) => {
                self.problems.push(
                    Problem::new(format!("`{word}` is not a way to choose cutoffs"), Some(written.span()))
                        .help("write `learned`, or one to six sizes as in [\"2KiB\", \"20KiB\", \"200KiB\"]"),
                );
                Cutoffs::Learned
            }
            RawCutoffs::Sizes(list) => {
                if !(1..=6).contains(&list.len()) {
                    self.problems.push(
                        Problem::new(format!("{} cutoffs are given", list.len()), Some(written.span()))
                            .help("give one to six: there are at most seven bands for responses"),
                    );
                }
                let mut last: Option<(u64, Range<usize>)> = None;
                let sizes = self.read_each(list, values::size);
                // Without all of them read it is not known which follows which.
                if sizes.len() == list.len() {
                    for (bytes, place) in sizes.iter().zip(list) {
                        if let Some((before, span)) = last.replace((*bytes, place.span()))
                            && *bytes <= before
                        {
                            self.problems.push(
                                Problem::new("cutoffs must increase", Some(place.span()))
                                    .also(Some(span), "not above this one")
                                    .help("sort them, smallest first, and leave out those given twice"),
                            );
                        }
                    }
                }
                Cutoffs::Given(sizes)
            }
        }
    }

    fn limits(&mut self, raw: &Raw, flags: &Overrides, passes_on: bool) -> Limits {
        let (section, default) = (&raw.limits, Limits::default());
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let head = |text: &str| match values::size(text) {
            Ok(bytes @ 1024..=1_048_576) => Ok(bytes),
            Ok(_) => Err("a request head takes from 1KiB to 1MiB".to_owned()),
            Err(message) => Err(message),
        };
        Limits {
            connections: self
                .setting(flags.connections, &section.connections, values::connections, None)
                .map_or_else(|| open_files::connections_that_fit(passes_on), to_usize),
            request_head_bytes: to_usize(self.setting(
                None,
                &section.request_head,
                head,
                default.request_head_bytes as u64,
            )),
            request_headers: to_usize(self.setting(
                None,
                &section.request_headers,
                |text| values::count(text, 10_000),
                default.request_headers as u64,
            )),
            request_body_bytes: self.setting(None, &section.request_body, values::size, default.request_body_bytes),
            handshake_timeout: self.setting(
                None,
                &section.handshake_timeout,
                values::duration,
                default.handshake_timeout,
            ),
            head_timeout: self.setting(None, &section.head_timeout, values::duration, default.head_timeout),
            request_body_rate: self.setting(
                None,
                &section.request_body_rate,
                values::size_or_off,
                default.request_body_rate,
            ),
            idle_timeout: self.setting(None, &section.idle_timeout, values::duration, default.idle_timeout),
            write_timeout: self.setting(None, &section.write_timeout, values::duration, default.write_timeout),
            response_rate: self.setting(None, &section.response_rate, values::size_or_off, default.response_rate),
            http2_streams: self.setting(
                None,
                &section.http2_streams,
                |text| values::count(text, 65_536).map(|streams| streams as u32),
                default.http2_streams,
            ),
            shutdown_timeout: self.setting(
                flags.shutdown_timeout,
                &section.shutdown_timeout,
                values::duration_or_off,
                default.shutdown_timeout,
            ),
            body_memory_bytes: to_usize(self.setting(
                None,
                &section.body_memory,
                values::size_or_off,
                default.body_memory_bytes as u64,
            )),
            body_file_bytes: self.setting(None, &section.body_file, values::size_or_off, default.body_file_bytes),
            body_files_bytes: self.setting(None, &section.body_files, values::size, default.body_files_bytes),
            body_directory: match &section.body_directory {
                Some(written) if written.get_ref().0 == "auto" => None,
                written => self.file(written, FileKind::Directory),
            },
        }
    }

    fn access_log(&mut self, raw: &Raw, flags: &Overrides) -> Option<AccessLog> {
        let section = &raw.access_log;
        let format = self.setting(flags.access_log_format, &section.format, LogFormat::named, LogFormat::Combined);
        let folder = self.folder;
        let target = self.setting(
            flags.access_log.as_deref().map(|text| log_target(None, text)),
            &section.target,
            |text| Ok(log_target(folder, text)),
            None,
        );
        target.map(|target| AccessLog { target, format })
    }

    fn cache(&mut self, raw: &Raw, flags: &Overrides) -> CacheConfig {
        let (section, default) = (&raw.cache, CacheConfig::default());
        CacheConfig {
            capacity_bytes: self.setting(flags.cache, &section.capacity, values::size_or_off, default.capacity_bytes),
            max_file_bytes: self.setting(None, &section.max_file, values::size, default.max_file_bytes),
            revalidate_after: self.setting(
                None,
                &section.revalidate_after,
                values::duration_or_zero,
                default.revalidate_after,
            ),
        }
    }
}

fn log_target(folder: Option<&Path>, text: &str) -> Option<LogTarget> {
    match text {
        "off" => None,
        "-" => Some(LogTarget::Stdout),
        _ => Some(LogTarget::File(path_in(folder, text))),
    }
}

fn index_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || matches!(text, "." | "..") {
        return Err(format!("`{text}` is not a file name: an index file lies in the directory that is asked for"));
    }
    Ok(text.to_owned())
}
