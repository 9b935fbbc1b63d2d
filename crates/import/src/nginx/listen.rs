//! `listen`.

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
    if has("proxy_protocol") {
        translation.leave(directive, "the PROXY protocol is not spoken; the rest of the line is translated");
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
    let host = if matches!(host, "*" | "[::]" | "0.0.0.0") { "" } else { host };
    let is_address = host.is_empty() || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if !is_address || port.parse::<u16>().is_err() {
        translation.leave(directive, "an address is an IP address and a port");
        return None;
    }
    let tls = has("ssl");
    Some(Listen { address: format!("{host}:{port}"), tls, is_default: has("default_server") || has("default") })
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
