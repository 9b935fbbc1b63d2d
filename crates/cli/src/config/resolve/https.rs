//! The redirect to TLS of sites with a certificate, and warnings where it or `hsts` has no effect.

use server::config::{Listen, Redirect, Site};
use toml::Spanned;

use super::resolver::Resolver;
use crate::config::{problems::Problem, raw::Raw};

/// Clients speak TLS to it where an address names no port.
const HTTPS_PORT: u16 = 443;

impl Resolver<'_> {
    /// Sends requests without TLS to TLS, where a site has a certificate and the server listens for both.
    pub(super) fn https(&mut self, raw: &Raw, sites: &mut [Site], listen: &[Listen]) {
        let is_proxied = raw.trusted_proxies.iter().flatten().next().is_some();
        // A port that the system chooses is not known before the start.
        let ports = || listen.iter().filter(|listen| listen.tls).map(|it| it.address.port()).filter(|port| *port != 0);
        let port = ports().find(|port| *port == HTTPS_PORT).or_else(|| ports().next());
        let has_both = listen.iter().any(|listen| !listen.tls);
        // Without any site in the file there is one, from flags.
        for (at, site) in sites.iter_mut().enumerate() {
            let written = raw.site.get(at).map(Spanned::get_ref);
            let switch = written.and_then(|written| written.https_redirect.as_ref());
            let has_certificate = site.certificate.is_some();
            if has_both && has_certificate && switch.is_none_or(|switch| *switch.get_ref()) {
                site.to_https = port.map(Redirect::to_https);
            }
            if !self.is_as_written() || has_certificate {
                continue;
            }
            if let Some(switch) = switch.filter(|switch| *switch.get_ref()) {
                self.problems.push(
                    Problem::warning(
                        "`https-redirect` has no effect: this site has no certificate",
                        Some(switch.span()),
                    )
                    .help("give the site a certificate, or leave the setting out"),
                );
            }
            let hsts = written.and_then(|written| written.hsts.as_ref()).filter(|_| site.hsts.is_some());
            if let (Some(hsts), false) = (hsts, is_proxied) {
                self.problems.push(
                    Problem::warning("`hsts` has no effect: this site has no certificate", Some(hsts.span()))
                        .help("give the site a certificate, or name the proxies that speak TLS in `trusted-proxies`"),
                );
            }
        }
    }
}
