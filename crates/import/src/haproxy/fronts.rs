//! Several frontends as the sites of one server.
//!
//! A site is chosen by host name, not by address. So frontends are joined where the name alone says which one is meant:
//! they listen on the same hosts' addresses, and no name has two meanings. The others are named, and each can be
//! translated alone.

use super::{
    binds::{Binds, listen},
    rules::Lines,
    state::{Proxy, Site, Translation},
};
use crate::{draft::Section, syntax::Directive};

/// A frontend that answers requests.
struct Front<'a> {
    proxy: Proxy<'a>,
    binds: Binds,
    lines: Lines<'a>,
}

impl<'a> Translation<'a> {
    /// The sites of all frontends, or of one of them.
    pub(super) fn sites(&mut self, proxies: &[Proxy<'a>], only: Option<&str>) -> Vec<Section> {
        let (mut fronts, mut addresses) = (Vec::new(), Vec::new());
        for proxy in proxies.iter().filter(|proxy| proxy.section.name != "backend") {
            if only.is_some_and(|only| only != proxy.name()) {
                continue;
            }
            let (binds, lines) = (self.binds(proxy), self.lines(proxy));
            if is_only_redirect(proxy, &lines) && binds.addresses.iter().all(|(_, tls)| !tls) {
                addresses.extend(binds.addresses);
                self.leave(proxy.section, "a site with a certificate sends requests without TLS to it by default");
            } else {
                fronts.push(Front { proxy: *proxy, binds, lines });
            }
        }
        // Frontends with TLS come first: they count more than those without.
        fronts.sort_by_key(|front| !front.binds.addresses.iter().any(|(_, tls)| *tls));
        let mut sites: Vec<Site> = Vec::new();
        let hosts = fronts.first().map(|front| front.binds.hosts());
        for front in fronts {
            let Front { proxy, binds, lines } = front;
            if hosts.as_ref().is_some_and(|hosts| *hosts != binds.hosts()) {
                self.alone(proxy.section, "sites are served at all addresses, and this frontend is at others only");
                continue;
            }
            let before = (self.notes.left.len(), self.backends.iter().map(|it| it.is_used).collect::<Vec<_>>());
            let own = self.sites_of(&proxy, &binds, lines);
            match joined(&sites, own) {
                Ok(all) => sites = all,
                Err(host) => {
                    self.notes.left.truncate(before.0);
                    self.backends.iter_mut().zip(before.1).for_each(|(backend, is_used)| backend.is_used = is_used);
                    let host = if host.is_empty() { "other hosts".to_owned() } else { format!("`{host}`") };
                    let why =
                        format!("sites are chosen by host name, and another frontend answers {host} in another way");
                    self.alone(proxy.section, &why);
                    continue;
                }
            }
            addresses.extend(binds.addresses);
            self.limit_time("idle-timeout", proxy.timeout("client"));
            self.limit_time("head-timeout", proxy.timeout("http-request"));
            self.other_lines(proxy.section);
        }
        let backends: Vec<_> = self.backends.iter().map(|backend| backend.proxy.section).collect();
        backends.into_iter().for_each(|section| self.other_lines(section));
        if !addresses.is_empty() {
            addresses.sort_by_key(|(_, tls)| *tls);
            addresses.dedup();
            self.top.set("listen", listen(&addresses));
        }
        sites.into_iter().map(|(_, section)| section).collect()
    }

    /// Names a frontend that is not served with the others.
    fn alone(&mut self, section: &Directive, why: &str) {
        let name = section.arg(0);
        let how = format!("{why}: it is not served here; `serpent import --frontend {name}` makes a file of it alone");
        self.leave(section, how);
    }
}

/// Whether a frontend does nothing but send requests to TLS.
fn is_only_redirect(proxy: &Proxy<'_>, lines: &Lines<'_>) -> bool {
    let has_backend =
        |it: &Directive| matches!(it.name.as_str(), "use_backend" | "default_backend" | "server" | "server-template");
    let goes_to_tls = |it: &Directive| {
        (it.name == "redirect" || it.name == "http-request" && it.arg(0) == "redirect")
            && it.args.windows(2).any(|pair| pair == ["scheme", "https"])
    };
    let inner = proxy.section.inner();
    lines.is_sent_to_tls && lines.lines.is_empty() || inner.iter().any(goes_to_tls) && !inner.iter().any(has_backend)
}

/// The sites of frontends before and those of another one; an error is the host that both answer, in other ways.
fn joined(sites: &[Site], others: Vec<Site>) -> Result<Vec<Site>, String> {
    let mut all = sites.to_vec();
    for (names, site) in others {
        // All other hosts.
        if names.is_empty() {
            match all.first_mut() {
                Some((_, known)) if known.serves_same(&site) => join(known, &site),
                Some((_, known)) if serves_nothing(known) => *known = site,
                Some(_) if serves_nothing(&site) => {}
                Some(_) => return Err(String::new()),
                None => all.push((names, site)),
            }
            continue;
        }
        let mut new = Vec::new();
        for name in names {
            match all.iter_mut().find(|(known, _)| known.contains(&name)) {
                Some((_, known)) if known.serves_same(&site) => join(known, &site),
                Some(_) => return Err(name),
                None => new.push(name),
            }
        }
        if !new.is_empty() {
            let mut site = site;
            site.settings.replace("names", crate::draft::list(&new));
            all.push((new, site));
        }
    }
    Ok(all)
}

/// Adds what a site without TLS does beside the same site with TLS.
fn join(site: &mut Section, other: &Section) {
    if other.settings.text_of("tls-cert").is_none() && site.settings.text_of("tls-cert").is_some() {
        site.settings.set("https-redirect", false);
    }
}

/// Whether a site has no backend for any request.
fn serves_nothing(site: &Section) -> bool {
    let [route] = &site.inner[..] else { return false };
    route.settings.text_of("respond") == Some("503") && route.settings.is_only(&["path", "respond"])
}
