//! Addresses to listen on.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
};

use ipnet::IpNet;
use server::config::{Listen, Site};
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{overrides::Overrides, problems::Problem, raw::Raw},
    values::{self, ListenAt},
};

/// The address that is listened on when none is given.
pub const DEFAULT_LISTEN: ListenAt =
    ListenAt { address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080), tls: None };

/// Clients speak TLS to it.
const HTTPS_PORT: u16 = 443;

impl Resolver<'_> {
    /// Networks of proxies whose connections begin with a header of the PROXY protocol.
    pub(super) fn proxy_protocol(&mut self, raw: &Raw) -> Vec<IpNet> {
        let written = raw.proxy_protocol.as_deref().unwrap_or_default();
        for everywhere in written.iter().filter(|network| network.get_ref().0.ends_with("/0")) {
            self.problems.push(
                Problem::warning(
                    "every client has to begin with a header of the PROXY protocol, and can claim any address in it",
                    Some(everywhere.span()),
                )
                .help("name the addresses of the proxies alone, as in `proxy-protocol = [\"10.0.0.0/8\"]`"),
            );
        }
        self.read_each(written, values::network)
    }

    pub(super) fn listen(
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
            None if flags.inherited.iter().any(|at| Some(at.address) != admin) => {
                // One of the sockets may be that of `admin`.
                given.extend(flags.inherited.iter().filter(|at| Some(at.address) != admin).map(|at| (*at, None)));
            }
            None => given.push((DEFAULT_LISTEN, None)),
        }

        let certificates = sites.iter().any(|site| site.certificate.is_some());
        let mut seen: HashMap<SocketAddr, Option<Range<usize>>> = HashMap::new();
        let mut listen = Vec::new();
        for (at, span) in given {
            if at.tls == Some(true) && !certificates && self.is_as_written() {
                let help = if raw.site.is_empty() {
                    "give --tls-cert FILE and --tls-key FILE, or write http://; to try it: `openssl req -x509 -newkey \
                     rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out cert.pem`"
                } else {
                    "give a site `acme = true`, or `tls-cert` and `tls-key` (flags --tls-cert and --tls-key), or write http://"
                };
                self.problems.push(
                    Problem::new(
                        format!("https://{} needs a certificate, and no site has one", at.address),
                        span.clone(),
                    )
                    .help(help),
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
                        "give a site `acme = true`, or `tls-cert` and `tls-key` (flags --tls-cert and --tls-key), or write \
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
}
