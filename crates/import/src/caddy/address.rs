//! Addresses of sites.

use crate::syntax::Directive;

/// An address of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// In lower case; empty: any.
    pub host: String,
    pub port: Option<u16>,
    /// `None`: it is not said.
    pub scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

/// The addresses of a site. Errors are those that cannot be read, with the reasons.
pub fn read(site: &Directive) -> Vec<Result<Address, String>> {
    let all = std::iter::once(&site.name).chain(&site.args);
    let each = all.flat_map(|text| text.split(',')).filter(|text| !text.is_empty());
    each.map(one).collect()
}

fn one(text: &str) -> Result<Address, String> {
    let (scheme, rest) = match text.split_once("://") {
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some(_) => return Err(format!("`{text}`: sites are reached by `http` and `https`")),
        None => (None, text),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    if !matches!(path, "" | "/" | "/*") {
        return Err(format!("`{text}`: the address of a site has no path; a route has one"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = port.map(|port| port.parse::<u16>().map_err(|_| format!("`{text}`: `{port}` is no port")));
    Ok(Address { host: host.to_ascii_lowercase(), port: port.transpose()?, scheme })
}

impl Address {
    /// Whether a public authority gives a certificate for the name.
    pub fn is_public(&self) -> bool {
        let local = ["localhost", "local", "internal", "home.arpa", "test"];
        let host = self.host.trim_matches(['[', ']']);
        let is_local = local.iter().any(|end| host == *end || host.ends_with(&format!(".{end}")));
        !host.is_empty() && !is_local && host.contains('.') && host.parse::<std::net::IpAddr>().is_err()
    }
}
