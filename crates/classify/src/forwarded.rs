//! Finds the client's address behind trusted proxies.
//!
//! Every proxy appends the address of its peer. So the last entry was written by this server's peer, the
//! entry before it by the peer's peer, and so on. The search starts at the peer and continues while the
//! writers are trusted. The first address that is not trusted is the client. Entries before it were written
//! by the client and may be anything. An entry that is no address ends the search too, and its writer counts
//! as the client.
//!
//! *Invariant.* No text before an entry can change how that entry is read: entries are separated from the
//! right.

use std::net::{IpAddr, SocketAddr};

use heads::ForwardedField;
use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a peer is a trusted proxy.
pub(crate) fn is_trusted(peer: IpAddr, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    trusted.iter().any(|net| net.contains(&peer))
}

/// The client's address.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet], field: ForwardedField) -> IpAddr {
    let peer = peer.to_canonical();
    let is_trusted = |address: &IpAddr| is_trusted(*address, trusted);
    if !is_trusted(&peer) {
        return peer;
    }
    match field {
        ForwardedField::XForwardedFor => {
            let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
            let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
            walk(peer, entries.map(address), is_trusted)
        }
        ForwardedField::Forwarded => {
            let lines = headers.get_all(header::FORWARDED).iter().rev();
            let elements = lines.flat_map(|line| Elements(Some(line.as_bytes())));
            walk(peer, elements.map(|element| address(node(element)?)), is_trusted)
        }
    }
}

fn walk(peer: IpAddr, entries: impl Iterator<Item = Option<IpAddr>>, is_trusted: impl Fn(&IpAddr) -> bool) -> IpAddr {
    let mut client = peer;
    for entry in entries {
        let Some(address) = entry else { break };
        client = address;
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

/// An address in the forms that proxies write: with or without port, and IPv6 with or without brackets.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    // A port may be obfuscated (RFC 7239, section 6).
    let text = match text.rsplit_once(':') {
        Some((address, port)) if port.starts_with('_') => address,
        _ => text,
    };
    let plain = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    Some(plain.or_else(with_port).or_else(in_brackets)?.to_canonical())
}

/// The elements of a `Forwarded` line, from the right. A comma in a quoted string is no delimiter.
struct Elements<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.take()?;
        let mut quoted = false;
        for (at, byte) in text.iter().enumerate().rev() {
            match byte {
                // Seen from the right, a string is opened by the first quote that is not escaped.
                b'"' if !quoted => quoted = true,
                b'"' => quoted = text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1,
                b',' if !quoted => {
                    self.0 = Some(&text[..at]);
                    return Some(&text[at + 1..]);
                }
                _ => {}
            }
        }
        Some(text)
    }
}

/// The value of `for` in an element of `Forwarded` (RFC 7239, section 4). `None`: malformed or missing.
fn node(element: &[u8]) -> Option<&[u8]> {
    let mut rest = element.trim_ascii();
    let mut node = None;
    loop {
        // Pairs may be empty, as in `for=192.0.2.1;`.
        while let [b';', more @ ..] = rest {
            rest = more;
        }
        if rest.is_empty() {
            return node;
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&rest[..equals], &rest[equals + 1..]);
        if name.is_empty() || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$&'*+^`|~%".contains(byte))
        {
            return None;
        }
        let (value, after) = match value {
            [b'"', quoted @ ..] => {
                let mut escaped = false;
                let end = quoted.iter().position(|byte| {
                    let ends = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    ends
                })?;
                (&quoted[..end], &quoted[end + 1..])
            }
            plain => plain.split_at(plain.iter().position(|byte| *byte == b';').unwrap_or(plain.len())),
        };
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
        if !matches!(after, [] | [b';', ..]) {
            return None;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

    fn trusted() -> Vec<IpNet> {
        TRUSTED.iter().map(|net| net.parse().expect("a network")).collect()
    }

    fn seen(peer: &str, field: ForwardedField, lines: &[&str]) -> String {
        let name = match field {
            ForwardedField::XForwardedFor => X_FORWARDED_FOR,
            ForwardedField::Forwarded => header::FORWARDED,
        };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name.clone(), HeaderValue::from_str(line).expect("a value"));
        }
        client(peer.parse().expect("an address"), &headers, &trusted(), field).to_string()
    }

    #[test]
    fn the_client_is_the_first_address_from_the_right_that_is_not_trusted() {
        for (peer, lines, client) in [
            ("10.0.0.1", &[][..], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("192.0.2.9", &["198.51.100.1"], "192.0.2.9"),
            ("10.0.0.1", &["198.51.100.1, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.1, 192.0.2.1,10.1.1.1 , 10.2.2.2"], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.1", "192.0.2.1", "10.1.1.1"], "192.0.2.1"),
            ("10.0.0.1", &["10.3.3.3, 10.1.1.1"], "10.3.3.3"),
            ("10.0.0.1", &["192.0.2.1, unknown, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["192.0.2.1, , 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["192.0.2.1,"], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1"),
            ("fd00::1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("fd00::1", &["[2001:db8::1]"], "2001:db8::1"),
            ("fd00::1", &["2001:db8::1"], "2001:db8::1"),
            ("::ffff:10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1; DROP TABLE"], "10.0.0.1"),
        ] {
            assert_eq!(seen(peer, ForwardedField::XForwardedFor, lines), client, "{peer} {lines:?}");
        }
    }

    #[test]
    fn forwarded_is_walked_alike() {
        for (lines, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1"),
            (&["For=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (&["for=198.51.100.1, proto=https;for=192.0.2.1;by=10.0.0.1"], "192.0.2.1"),
            (&["for=192.0.2.1;host=\"a,b;c=\\\"d\"", "for=10.1.1.1"], "192.0.2.1"),
            (&["for=\"192.0.2.1:_hidden\""], "192.0.2.1"),
            (&["for=192.0.2.1, for=_secret, for=10.1.1.1"], "10.1.1.1"),
            (&["for=192.0.2.1, proto=http"], "10.0.0.1"),
            (&["for=192.0.2.1;for=192.0.2.2"], "10.0.0.1"),
            (&["for=192.0.2.1;;proto=http"], "192.0.2.1"),
            (&["for=192.0.2.1;"], "192.0.2.1"),
            (&[";;for=192.0.2.1"], "192.0.2.1"),
            (&["for=192.0.2.1; ;proto=http"], "10.0.0.1"),
            (&["for=192.0.2.1;;=x"], "10.0.0.1"),
            (&[";"], "10.0.0.1"),
            (&["for 192.0.2.1"], "10.0.0.1"),
            (&["for=\"192.0.2.1\"x"], "10.0.0.1"),
            (&[""], "10.0.0.1"),
        ] {
            assert_eq!(seen("10.0.0.1", ForwardedField::Forwarded, lines), client, "{lines:?}");
        }
    }

    #[test]
    fn the_other_field_is_not_believed() {
        let mut headers = HeaderMap::new();
        headers.insert(header::FORWARDED, HeaderValue::from_static("for=192.0.2.1"));
        headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("192.0.2.2"));
        let peer = "10.0.0.1".parse().expect("an address");
        for (field, seen) in [(ForwardedField::XForwardedFor, "192.0.2.2"), (ForwardedField::Forwarded, "192.0.2.1")] {
            assert_eq!(client(peer, &headers, &trusted(), field).to_string(), seen);
        }
    }

    proptest! {
        #[test]
        fn what_a_client_writes_does_not_change_what_its_proxy_says(
            forged in prop_oneof!["[ -~]{0,40}", "[\"\\\\,;= for1.]{0,40}"],
            separate in any::<bool>(),
        ) {
            for (field, appended) in [
                (ForwardedField::XForwardedFor, "192.0.2.1"),
                (ForwardedField::Forwarded, "for=192.0.2.1;proto=http"),
                (ForwardedField::Forwarded, "proto=http;for=\"192.0.2.1:80\";host=\"a,b\""),
            ] {
                let joined = format!("{forged}, {appended}");
                let lines = if separate { vec![forged.as_str(), appended] } else { vec![joined.as_str()] };
                prop_assert_eq!(seen("10.0.0.1", field, &lines), "192.0.2.1");
            }
        }
    }
}
