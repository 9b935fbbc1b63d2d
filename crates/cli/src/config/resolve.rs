//! Stage two: every value is read, every default filled in, every contradiction found.

mod access;
mod access_log;
mod acme;
mod admission;
#[cfg(target_os = "linux")]
mod attached;
mod cache;
mod classes;
mod cluster;
mod compression;
mod conditions;
mod cors;
mod credentials;
mod expires;
mod forward_auth;
mod https;
mod limit;
mod limits;
mod listen;
mod maintenance;
mod named_files;
mod programs;
mod resolver;
mod resources;
mod routes;
mod rules;
mod sites;
mod targets;
mod tracing;
mod uplink;
mod upstreams;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use scheduler::class::ClassId;
use server::config::{Classes, Config, ForwardedField, ResourceConfig, Site};
use toml::Spanned;

pub use self::{
    listen::DEFAULT_LISTEN,
    named_files::{FileKind, NamedFile, SiteSpans},
};
use self::{
    named_files::WrittenLogs, resolver::Resolver, resources::drop_unused_site, rules::Configured, targets::Targets,
};
use super::{overrides::Overrides, problems::Problem, raw::Raw};
use crate::values::{self, Named as _};

/// A configuration, with the spans in the file to which later problems will point.
pub struct Resolved {
    pub config: Config,
    /// The spans of each site's paths, in the order of the sites.
    pub site_spans: Vec<SiteSpans>,
    /// The files of logs, with what they are and where they are named.
    pub log_files: Vec<(PathBuf, &'static str, Option<Range<usize>>)>,
    /// Other files and directories that the configuration names.
    pub named_files: Vec<NamedFile>,
    /// The span of each upstream's name, in the order of the upstreams.
    pub upstream_spans: Vec<Option<Range<usize>>>,
    /// The settings of `serpent attach`, which the server itself does not use.
    #[cfg(target_os = "linux")]
    pub attach: Option<attach::AttachOptions>,
}

/// Joins flags, file and defaults. Mistakes are added to `problems`; if there is one, the result must not be used.
/// `shape_is_sound` says that nothing of the file was left out.
pub fn resolve(
    raw: &Raw,
    flags: &Overrides,
    folder: Option<&Path>,
    shape_is_sound: bool,
    problems: &mut Vec<Problem>,
) -> Resolved {
    let mut r = Resolver {
        problems,
        folder,
        shape_is_sound,
        all_read: true,
        named_files: Vec::new(),
        logs: WrittenLogs::default(),
        resolvers: Vec::new(),
    };
    r.access_log(raw, flags);
    let mut resources = r.resources(raw);
    let (upstreams, upstream_workers, upstream_spans) = r.upstreams(raw, flags);
    r.probes(raw, &mut resources, &upstreams);
    let configured = Configured::of(raw);
    let targets = Targets { upstreams: &upstreams, resources: &resources, configured: &configured };
    let (mut sites, site_spans) = r.sites(raw, flags, &targets);
    r.unused_upstreams(&sites, &upstreams, &upstream_spans);
    let admin = r.setting(flags.admin, &raw.admin, values::address_or_off, None);
    // An operator who writes all addresses out means them, as in a container.
    let is_shorthand = raw.admin.as_ref().is_some_and(|admin| admin.get_ref().0.starts_with(':'));
    if let Some(address) = admin.filter(|_| is_shorthand && flags.admin.is_none()) {
        r.problems.push(
            Problem::warning(
                format!(
                    "everybody who reaches this machine can read its metrics at {address}: no password is asked for"
                ),
                raw.admin.as_ref().map(Spanned::span),
            )
            .help(format!("write `127.0.0.1:{}`, or `{address}` if that is meant", address.port())),
        );
    }
    let admin_token = r.file(&raw.admin_token, FileKind::Secret(32));
    if let (Some(token), None, true) = (&raw.admin_token, admin, shape_is_sound) {
        r.problems.push(
            Problem::warning("`admin-token` has no effect without `admin`", Some(token.span()))
                .help("give `admin` an address, as in `admin = \"127.0.0.1:9090\"`"),
        );
    }
    let listen = r.listen(raw, flags, &sites, admin, shape_is_sound);
    r.upstreams_that_are_this_server(raw, &upstreams, &listen);
    r.https(raw, &mut sites, &listen);
    let acme = r.acme(raw, &sites, &listen);
    r.reachable(raw, acme.as_ref(), &listen);
    let tls = listen.iter().any(|listen| listen.tls);
    let classes = r.classes(raw, flags, &mut sites, &mut resources, tls, &configured);
    let limits = r.limits(raw, flags, !upstreams.is_empty());
    let proxy_protocol = r.proxy_protocol(raw);
    let cluster = r.cluster(raw, &classes);
    let config = Config {
        listen,
        sites,
        upstreams,
        upstream_workers,
        classes,
        proxy_protocol,
        uplink: r.uplink(raw, flags),
        limits,
        workers: {
            let automatic = || values::workers("auto").expect("`auto` is a number of workers");
            r.setting(flags.workers, &raw.workers, values::workers, automatic())
        },
        access_log: r.logs.server.clone(),
        error_log: r.error_log(raw),
        tracing: r.tracing(raw),
        admin,
        admin_token,
        acme,
        cluster,
        cache: r.cache(raw, flags),
        shared_cache: r.shared_cache(raw),
    };
    #[cfg(target_os = "linux")]
    let attach = raw.attach.as_ref().and_then(|attach| r.attach(attach));
    #[cfg(not(target_os = "linux"))]
    if let Some(attach) = &raw.attach {
        r.problems.push(Problem::new("`[attach]` is for Linux alone", Some(attach.span())).help("leave it out"));
    }
    Resolved {
        config,
        site_spans,
        log_files: r.logs.files(),
        named_files: r.named_files,
        upstream_spans,
        #[cfg(target_os = "linux")]
        attach,
    }
}

impl Resolver<'_> {
    /// Classes, the rules that lead to them, and what depends on both: admission, and shares of the uplink.
    fn classes(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
        sites: &mut [Site],
        resources: &mut Vec<ResourceConfig>,
        tls: bool,
        configured: &Configured,
    ) -> Classes {
        let classes = self.class_list(&raw.class);
        let names: Vec<_> = classes.iter().map(|class| class.name.clone()).collect();
        self.revalidation_classes(raw, &names);
        let last = ClassId((classes.len() - 1) as u16);
        let default = raw.default_class.as_ref().and_then(|written| self.class_named(written, &names)).unwrap_or(last);
        let users = raw.users.as_ref().and_then(|users| self.users(users));
        let keys = raw.keys.as_ref().and_then(|keys| self.keys(keys));
        let session = raw.session.as_ref().map(|session| self.session(session, tls));
        let mut rules = self.rules(raw, &names, default, resources, configured);
        self.unused_classes(&raw.class, &classes, default, &rules);
        drop_unused_site(raw, sites, &mut rules, resources);
        let admission = self.admission(raw, flags, &classes, resources);
        self.needless_slots(raw, flags, sites);
        let uplink_share = self.uplink_share(raw);
        self.uplink_reserves(raw, &classes, &admission, uplink_share);
        self.without_effect(raw, &admission, uplink_share);
        let trusted_proxies = self.read_each(raw.trusted_proxies.as_deref().unwrap_or_default(), values::network);
        let forwarded = self.setting(None, &raw.forwarded_by, ForwardedField::named, ForwardedField::default());
        Classes { classes, default, rules, admission, uplink_share, users, keys, session, trusted_proxies, forwarded }
    }
}
