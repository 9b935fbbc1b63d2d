//! `bind`: addresses and certificates.

use std::collections::BTreeSet;

use super::{
    state::{Proxy, Translation, in_base},
    values,
};
use crate::draft::list;

/// The addresses that a frontend listens on, and its settings for TLS.
#[derive(Default)]
pub(super) struct Binds {
    /// Each with its port, and whether it speaks TLS.
    pub addresses: Vec<(String, bool)>,
    pub certificate: Option<String>,
    pub client_ca: Option<String>,
    pub requires_certificate: bool,
}

impl Binds {
    /// The addresses without their ports.
    pub(super) fn hosts(&self) -> BTreeSet<String> {
        self.addresses.iter().filter_map(|(address, _)| Some(address.rsplit_once(':')?.0.to_owned())).collect()
    }
}

impl<'a> Translation<'a> {
    pub(super) fn binds(&mut self, proxy: &Proxy<'a>) -> Binds {
        let mut binds = Binds::default();
        for directive in proxy.section.inner().iter().filter(|it| it.name == "bind") {
            let after = |name: &str| directive.args.iter().skip_while(|arg| *arg != name).nth(1);
            let has = |name: &str| directive.args.iter().any(|arg| arg == name);
            let tls = has("ssl");
            for written in directive.arg(0).split(',') {
                match values::address(written) {
                    Some((host, port))
                        if host.is_empty() || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() =>
                    {
                        binds.addresses.push((format!("{host}:{port}"), tls));
                    }
                    _ => self.leave(directive, "an address is an IP address and a port"),
                }
            }
            if has("accept-proxy") {
                self.leave(directive, "name the addresses of these proxies in `proxy-protocol`");
            }
            if let Some(certificate) = after("crt") {
                match binds.certificate {
                    Some(_) => {
                        self.leave(directive, "each site has a certificate (`tls-cert`): the first one is taken")
                    }
                    None => binds.certificate = Some(in_base(self.crt_base, certificate)),
                }
                if directive.args.iter().filter(|arg| *arg == "crt").count() > 1 || certificate.ends_with('/') {
                    self.leave(directive, "each site has a certificate: name a file for each (`tls-cert`, `tls-key`)");
                }
            } else if let Some(crt_list) = after("crt-list").filter(|_| tls) {
                binds.certificate.get_or_insert_with(|| in_base(self.crt_base, crt_list));
                self.leave(directive, "each site has a certificate: name a file for each (`tls-cert`, `tls-key`)");
            }
            if let Some(authorities) = after("ca-file") {
                binds.client_ca = Some(in_base(self.ca_base, authorities));
                binds.requires_certificate |= after("verify").is_some_and(|verify| verify == "required");
            }
        }
        binds
    }
}

/// The value of `listen`.
pub(super) fn listen(addresses: &[(String, bool)]) -> toml_edit::Value {
    let tls = addresses.iter().any(|(_, tls)| *tls);
    list(addresses.iter().map(|(address, is_tls)| match is_tls {
        true => format!("https://{address}"),
        false if tls => format!("http://{address}"),
        false => address.clone(),
    }))
}
