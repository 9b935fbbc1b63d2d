//! Upstreams: servers, TLS towards them, time limits, checks.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    time::Duration,
};

use server::config::{
    Access, ActiveChecks, Balance, CertificateFiles, Listen, Origin, OutlierChecks, PassiveChecks, Route, Site,
    StickyConfig, UpstreamAddress, UpstreamConfig, UpstreamServer, WorkersConfig,
};
use toml::Spanned;

use super::{
    named_files::{FileKind, path_in},
    resolver::Resolver,
};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::{Raw, RawActive, RawOutliers, RawPassive, RawServer, RawSticky, RawUpstream},
        written::TextOr,
    },
    values,
};

impl Resolver<'_> {
    pub(super) fn upstreams(
        &mut self,
        raw: &Raw,
        flags: &Overrides,
    ) -> (Vec<UpstreamConfig>, Vec<WorkersConfig>, Vec<Option<Range<usize>>>) {
        let (mut upstreams, mut started, mut spans) = (Vec::<UpstreamConfig>::new(), Vec::new(), Vec::new());
        let resolvers = self.read_each(raw.resolver.as_deref().unwrap_or_default(), values::name_server);
        self.resolvers.clone_from(&resolvers);
        for written in &raw.upstream {
            let upstream = self.upstream(written, &resolvers);
            let workers = written.get_ref().workers.as_ref();
            started.extend(workers.map(|workers| self.worker_processes(&upstream.name, workers)));
            let place = written.get_ref().name.as_ref().map_or(written.span(), Spanned::span);
            if let Some(first) = upstreams.iter().position(|it| it.name == upstream.name && !it.name.is_empty()) {
                self.problems.push(
                    Problem::new(format!("there are two upstreams `{}`", upstream.name), Some(place.clone()))
                        .also(spans.get(first).cloned().flatten(), "the first one")
                        .help("give each a name of its own; one upstream can have several `servers`"),
                );
            }
            upstreams.push(upstream);
            spans.push(Some(place));
        }
        if !flags.upstream.is_empty() {
            let given = UpstreamConfig::new("upstream".to_owned(), flags.upstream.clone());
            upstreams.push(UpstreamConfig { resolvers, ..given });
            spans.push(None);
        }
        (upstreams, started, spans)
    }

    /// Warns of upstreams that no route leads to.
    pub(super) fn unused_upstreams(
        &mut self,
        sites: &[Site],
        upstreams: &[UpstreamConfig],
        spans: &[Option<Range<usize>>],
    ) {
        let used = |at| {
            let asks = |access: &Access| access.forward_auth.as_ref().is_some_and(|auth| auth.upstream == at);
            let leads_there = |route: &Route| {
                matches!(route.origin, Origin::Upstream { upstream, .. } if upstream == at) || asks(&route.access)
            };
            sites.iter().any(|site| asks(&site.access) || site.routes.iter().any(leads_there))
        };
        for (at, (upstream, place)) in upstreams.iter().zip(spans).enumerate() {
            if self.shape_is_sound && !upstream.name.is_empty() && !used(at) {
                self.problems.push(
                    Problem::warning(format!("no route leads to the upstream `{}`", upstream.name), place.clone())
                        .help(format!("add a `[[site.route]]` with `upstream = \"{}\"`", upstream.name)),
                );
            }
        }
    }

    /// Warns of upstreams that lead back to this server.
    pub(super) fn upstreams_that_are_this_server(
        &mut self,
        raw: &Raw,
        upstreams: &[UpstreamConfig],
        listen: &[Listen],
    ) {
        for (at, upstream) in upstreams.iter().enumerate() {
            for (number, server) in
                upstream.servers.iter().enumerate().filter(|(_, server)| is_listened_on(server, listen))
            {
                let written = raw.upstream.get(at).and_then(|raw| raw.get_ref().servers.as_ref()?.get(number));
                let message =
                    format!("this server listens on `{}` itself: requests would go in a circle", server.authority);
                self.problems.push(
                    Problem::warning(message, written.map(Spanned::span))
                        .help("name the address of the other server, or give `listen` another port"),
                );
            }
        }
    }

    fn upstream(&mut self, written: &Spanned<RawUpstream>, resolvers: &[SocketAddr]) -> UpstreamConfig {
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
            servers,
            resolvers: resolvers.to_vec(),
            tls_ca: self.file(&raw.tls_ca, FileKind::Authorities),
            tls_name: self.optional(&raw.tls_name, values::host_name),
            tls_certificate: self.own_certificate(raw),
            tls_verify: raw.tls_verify.as_ref().is_none_or(|verify| *verify.get_ref()),
            proxy_protocol: self.setting(
                None,
                &raw.proxy_protocol,
                |text| values::or_off(text, values::proxy_version),
                default.proxy_protocol,
            ),
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
            most_requests: self.setting(None, &raw.max_requests, values::limit_or_off, default.most_requests),
            balance: self.balance(raw),
            sticky: raw.sticky.as_ref().and_then(|sticky| self.sticky(sticky)),
            slow_start: self
                .setting(None, &raw.slow_start, values::duration_or_off, None)
                .unwrap_or(default.slow_start),
            retries: self.setting(
                None,
                &raw.retries,
                |text| values::count_or_off(text, 100).map(|count| count.unwrap_or(0) as u32),
                default.retries,
            ),
            retry_statuses: self.read_each(raw.retry_statuses.as_deref().unwrap_or_default(), values::retried_status),
            retry_budget: self.setting(
                None,
                &raw.retry_budget,
                |text| values::or_off(text, values::whole_percent),
                default.retry_budget,
            ),
            hedge: self.setting(None, &raw.hedge, |text| values::or_off(text, values::hedge), default.hedge),
            hedge_budget: self.setting(None, &raw.hedge_budget, values::whole_percent, default.hedge_budget),
            head_bytes: self.setting(None, &raw.response_head, values::response_head, default.head_bytes),
            passive: self.passive(&raw.passive, &default.passive),
            active: raw.active.as_ref().and_then(|active| self.active(active)),
            outliers: raw.outliers.as_ref().map(|outliers| self.outliers(outliers.get_ref())),
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
        let servers: Vec<_> = list.iter().filter_map(|written| self.server(written)).collect();
        if servers.len() == list.len() {
            for (at, (server, place)) in servers.iter().zip(list).enumerate() {
                if let Some(first) = servers[..at].iter().position(|other| other.address == server.address) {
                    self.problems.push(
                        Problem::new("this server is given twice", Some(place.span()))
                            .also(Some(list[first].span()), "first given here")
                            .help(
                                "leave one of them out, and give the other a `weight` if it is to have more requests",
                            ),
                    );
                }
            }
        }
        servers
    }

    fn server(&mut self, written: &Spanned<TextOr<RawServer>>) -> Option<UpstreamServer> {
        let raw = &*written.get_ref().table(written.span());
        let folder = self.folder;
        let read = |text: &str| {
            let mut server = values::upstream_server(text)?;
            if let UpstreamAddress::Unix(path) = &mut server.address {
                *path = path_in(folder, &path.to_string_lossy());
            }
            Ok(server)
        };
        let missing = ("this server has no `url`", "add `url = \"http://127.0.0.1:3000\"`");
        let server = self.required(&raw.url, written.span(), missing, read)?;
        let number = |text: &str| values::count(text, 1_000).map(|number| number as u32);
        let weight = self.setting(None, &raw.weight, number, server.weight);
        let priority = self.setting(None, &raw.priority, number, server.priority);
        if let (UpstreamAddress::Service(_), Some(weight)) = (&server.address, &raw.weight) {
            self.problems.push(
                Problem::new("the records of a service have the weights of its servers", Some(weight.span()))
                    .help("leave out `weight`"),
            );
        }
        let is_backup = raw.backup.as_ref().is_some_and(|backup| *backup.get_ref());
        if let (true, Some(priority)) = (is_backup, &raw.priority) {
            self.problems.push(
                Problem::new("a backup comes after all priorities", Some(priority.span()))
                    .help("leave out `priority`, or leave out `backup` and give the server the last priority"),
            );
        }
        let priority = if is_backup { UpstreamServer::BACKUP } else { priority };
        Some(UpstreamServer { weight, priority, ..server })
    }

    fn balance(&mut self, raw: &RawUpstream) -> Balance {
        let balance = self.setting(None, &raw.balance, values::balance, Balance::LeastLoaded);
        let bound = self.setting(None, &raw.hash_bound, |text| values::or_off(text, values::hash_bound), None);
        match (balance, &raw.hash_bound) {
            (Balance::Hash { key, .. }, _) => Balance::Hash { key, bound },
            (balance, Some(written)) if bound.is_some() => {
                self.problems.push(
                    Problem::new("`hash-bound` is about keys, and this upstream has none", Some(written.span()))
                        .help("add `balance = \"hash client\"`, or leave it out"),
                );
                balance
            }
            (balance, _) => balance,
        }
    }

    fn sticky(&mut self, written: &Spanned<TextOr<RawSticky>>) -> Option<StickyConfig> {
        let raw = &*written.get_ref().table(written.span());
        let missing = ("this table has no `cookie`", "name one that the site does not use: `cookie = \"server\"`");
        Some(StickyConfig {
            cookie: self.required(&raw.cookie, written.span(), missing, values::cookie_name)?,
            secret: self.file(&raw.secret, FileKind::Secret(32)),
            lifetime: self.optional(&raw.lifetime, values::duration),
        })
    }

    fn own_certificate(&mut self, raw: &RawUpstream) -> Option<CertificateFiles> {
        self.pair(&raw.tls_cert, &raw.tls_key)?;
        let chain = self.file(&raw.tls_cert, FileKind::Chain)?;
        let key = self.file(&raw.tls_key, FileKind::Key)?;
        Some(CertificateFiles { chain, key, ocsp: None })
    }

    fn passive(&mut self, raw: &RawPassive, default: &PassiveChecks) -> PassiveChecks {
        let failures = |text: &str| values::count_or_off(text, 1_000_000).map(|count| count.unwrap_or(0) as u32);
        PassiveChecks {
            failures: self.setting(None, &raw.failures, failures, default.failures),
            pause: self.setting(None, &raw.pause, values::duration, default.pause),
        }
    }

    fn outliers(&mut self, raw: &RawOutliers) -> OutlierChecks {
        let requests = |text: &str| values::count(text, 1_000_000).map(|count| count as u32);
        OutlierChecks {
            every: self.setting(None, &raw.every, values::duration, Duration::from_secs(10)),
            requests: self.setting(None, &raw.requests, requests, 20),
            errors: self.setting(None, &raw.errors, |text| values::or_off(text, values::percent), Some(0.5)),
            slower: self.setting(None, &raw.slower, |text| values::or_off(text, values::times), None),
            pause: self.setting(None, &raw.pause, values::duration, Duration::from_secs(30)),
            most: self.setting(None, &raw.most, values::whole_percent, 50),
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
}

fn is_listened_on(server: &UpstreamServer, listen: &[Listen]) -> bool {
    let (ip, port) = match &server.address {
        UpstreamAddress::Socket(address) => (address.ip(), address.port()),
        UpstreamAddress::Name(name, port) if name == "localhost" => (Ipv4Addr::LOCALHOST.into(), *port),
        UpstreamAddress::Name(..) | UpstreamAddress::Service(_) | UpstreamAddress::Unix(_) => return false,
    };
    let is_here = |own: IpAddr| own == ip || own.is_unspecified() && (ip.is_loopback() || ip.is_unspecified());
    listen.iter().any(|listen| listen.address.port() == port && is_here(listen.address.ip()))
}
