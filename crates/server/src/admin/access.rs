//! Checks which clients may read at the admin address, and which may change something.
//!
//! `/metrics` and `/health` are open to all who reach the address. The rest is read without a password from the own
//! machine only; from elsewhere it needs the token, as every change does. The token is sent in a header that no other
//! page can make a browser send.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::problem::{Done, Problem};
use crate::state::ConfigSnapshot;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    is_own_machine: bool,
}

impl Peer {
    /// The peer of a connection, and the address that it has reached.
    pub fn new(peer: SocketAddr, local: Option<SocketAddr>) -> Self {
        let (peer, local) = (peer.ip().to_canonical(), local.map(|local| local.ip().to_canonical()));
        Self { is_own_machine: peer.is_loopback() || Some(peer) == local }
    }

    /// Whether the request is of the own machine: not of a proxy on it, and not of a page whose name an attacker's name server
    /// has pointed here. Such a name has a dot.
    fn is_trusted(self, headers: &HeaderMap) -> bool {
        let is_forwarded =
            ["forwarded", "x-forwarded-for", "x-real-ip", "via"].iter().any(|name| headers.contains_key(*name));
        self.is_own_machine && !is_forwarded && headers.get(header::HOST).is_none_or(is_local_name)
    }
}

/// Whether a `Host` is an address, or a name that only this machine or its network can have.
fn is_local_name(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || !name.contains('.') || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Checks that the client may read.
pub(super) fn may_read(snapshot: &ConfigSnapshot, peer: Peer, headers: &HeaderMap) -> Done<()> {
    if peer.is_trusted(headers) {
        return Ok(());
    }
    const WITHOUT: &str = "is read without a password only on this machine, by its address or as localhost; /metrics and /health need none";
    let Some(token) = &snapshot.admin_token else {
        let message = format!("this {WITHOUT}. Set `admin-token` to read it from elsewhere, and reload");
        return Err(Problem::new(StatusCode::FORBIDDEN, message));
    };
    match bearer(headers).is_some_and(|given| token.is(given)) {
        true => Ok(()),
        false => {
            let message =
                format!("this {WITHOUT}. From elsewhere send the token of `admin-token`: Authorization: Bearer TOKEN");
            Err(Problem::new(StatusCode::UNAUTHORIZED, message))
        }
    }
}

/// Checks that a request is not made by a page of another site.
pub(super) fn is_of_this_page(headers: &HeaderMap) -> Done<()> {
    let forbidden = |by: &str| {
        let message = format!("the page that asks is not of this address ({by})");
        Err(Problem::new(StatusCode::FORBIDDEN, message))
    };
    if let Some(origin) = headers.get(header::ORIGIN) {
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let origin = origin.as_bytes();
        let of = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
        if of.is_none() || of != host {
            return forbidden("Origin");
        }
    }
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => forbidden("Sec-Fetch-Site"),
    }
}

/// Checks that the client may change anything.
pub(super) fn may_change(snapshot: &ConfigSnapshot, headers: &HeaderMap) -> Done<()> {
    let Some(token) = &snapshot.admin_token else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "nothing can be changed here: set `admin-token` to a file that holds a token of at least 32 characters, and reload",
        ));
    };
    // A page of another site can make a browser send requests, though without the token.
    is_of_this_page(headers)?;
    match bearer(headers).is_some_and(|given| token.is(given)) {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "a change needs the token that `admin-token` names: Authorization: Bearer TOKEN",
        )),
    }
}

/// The one token that a request shows.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(one), None) = (given.next(), given.next()) else { return None };
    let (scheme, rest) = one.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_the_own_machine_is_trusted() {
        for (peer, local, is_own) in [
            ("127.0.0.1:5", "127.0.0.1:9090", true),
            ("[::1]:5", "[::1]:9090", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:9090", true),
            ("10.0.0.1:5", "10.0.0.1:9090", true),
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:9090", true),
            ("10.0.0.2:5", "10.0.0.1:9090", false),
            ("[fd00::2]:5", "[fd00::1]:9090", false),
        ] {
            let peer = Peer::new(peer.parse().unwrap(), local.parse().ok());
            assert_eq!(peer.is_trusted(&headers(&[])), is_own, "{peer:?}");
        }
    }

    #[test]
    fn a_name_that_an_attacker_can_own_and_a_proxy_are_not_trusted() {
        let own = Peer { is_own_machine: true };
        for (host, is_trusted) in [
            ("127.0.0.1:9090", true),
            ("[::1]:9090", true),
            ("[::1]", true),
            ("localhost:9090", true),
            ("serpent.localhost", true),
            ("gateway:9090", true),
            ("evil.example:9090", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
        ] {
            assert_eq!(own.is_trusted(&headers(&[("host", host)])), is_trusted, "{host}");
        }
        for field in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
            assert!(!own.is_trusted(&headers(&[("host", "localhost"), (field, "a")])), "{field}");
        }
    }

    #[test]
    fn a_page_of_another_site_asks_in_vain() {
        for (fields, is_ours) in [
            (&[("host", "a:1")][..], true),
            (&[("host", "a:1"), ("origin", "http://a:1"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "a:1"), ("origin", "http://a:2")], false),
            (&[("host", "a:1"), ("origin", "null")], false),
            (&[("host", "a:1"), ("sec-fetch-site", "none")], true),
            (&[("host", "a:1"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "a:1"), ("sec-fetch-site", "same-site")], false),
        ] {
            assert_eq!(is_of_this_page(&headers(fields)).is_ok(), is_ours, "{fields:?}");
        }
    }
}
