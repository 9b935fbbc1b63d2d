//! `listen`.

use std::net::IpAddr;

use super::state::Translation;
use crate::syntax::Directive;

/// An address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// `:80`, `192.0.2.1:8080`, `[::1]:80`.
    pub address: String,
    pub tls: bool,
    pub is_default: bool,
}

/// The address of a `listen`; `None`: it has no counterpart, which is said.
pub fn read(translation: &mut Translation<'_>, directive: &Directive) -> Option<Listen> {
    let written = directive.arg(0);
    if written.starts_with("unix:") {
        translation.leave(directive, "addresses are those of IP and a port");
        return None;
    }
    let options = directive.args.get(1..).unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option == name);
    if has("proxy_protocol") && !translation.has_proxy_protocol {
        translation.leave(directive, "name the proxies in `proxy-protocol`; the rest of the line is translated");
    }
    if has("quic") {
        translation.leave(directive, "HTTP/3 is not spoken");
        return None;
    }
    let (host, port) = match written.rsplit_once(':') {
        _ if written.chars().all(|c| c.is_ascii_digit()) => ("", written),
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => (host, port),
        _ => (written, "80"),
    };
    let host = match host {
        "*" | "[::]" | "0.0.0.0" => "",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let is_address = host.is_empty() || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if !is_address || port.parse::<u16>().is_err() {
        translation.leave(directive, "an address is an IP address and a port");
        return None;
    }
    let tls = has("ssl");
    Some(Listen { address: format!("{host}:{port}"), tls, is_default: has("default_server") || has("default") })
}

/// The addresses at which a site is reached beside those of its own server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing that matters.
    None,
    /// Other IP addresses, or usual ports beside an unusual one.
    Named,
    /// IP addresses that more clients can reach: only these may have the site.
    Refused(&'static [&'static str]),
}

const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1"];
const PRIVATE: &[&str] =
    &["127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10"];

/// Compares the addresses of a server with those of all.
pub fn others(own: &[Listen], all: &[Listen]) -> Others {
    let has_all = |listen: &Listen| listen.host().is_empty();
    let new = all.iter().any(|listen| !own.iter().any(|own| has_all(own) || own.host() == listen.host()));
    let within = |nets: fn(IpAddr) -> bool| own.iter().all(|listen| listen.host().parse().is_ok_and(nets));
    if new {
        return match (within(is_loopback), within(is_private)) {
            (true, _) => Others::Refused(LOOPBACK),
            (false, true) => Others::Refused(PRIVATE),
            (false, false) => Others::Named,
        };
    }
    let is_usual = |listen: &Listen| matches!(listen.port(), "80" | "443");
    match !own.iter().any(is_usual) && all.iter().any(is_usual) {
        true => Others::Named,
        false => Others::None,
    }
}

impl Listen {
    fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']'])
    }

    fn port(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// All addresses, each once, as `listen` has them.
pub fn addresses<'a>(all: impl Iterator<Item = &'a Listen>) -> Vec<String> {
    let mut addresses: Vec<&Listen> = Vec::new();
    for listen in all {
        if !addresses.iter().any(|other| other.address == listen.address) {
            addresses.push(listen);
        }
    }
    let tls = addresses.iter().any(|listen| listen.tls);
    let written = |listen: &&Listen| match listen.tls {
        true => format!("https://{}", listen.address),
        false if tls => format!("http://{}", listen.address),
        false => listen.address.clone(),
    };
    addresses.iter().map(written).collect()
}
