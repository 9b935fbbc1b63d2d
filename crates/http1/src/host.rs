//! The host and port that a request names (RFC 3986, sections 3.2.2 and 3.2.3). No I/O, no clock.

use std::{net::Ipv6Addr, str};

use memchr::memchr;

/// Whether this is `uri-host [ ":" port ]` (RFC 9110, section 7.2). The empty host is one.
///
/// A comma is refused although the grammar has it: a list in `Host` only serves to deceive.
pub fn is_host_and_port(value: &[u8]) -> bool {
    let (is_host, rest) = match value {
        [b'[', rest @ ..] => match memchr(b']', rest) {
            Some(end) => (is_ip_literal(&rest[..end]), &rest[end + 1..]),
            None => return false,
        },
        _ => {
            let (name, rest) = value.split_at(memchr(b':', value).unwrap_or(value.len()));
            (is_registered_name(name), rest)
        }
    };
    is_host && matches!(rest, [] | [b':', ..]) && rest.iter().skip(1).all(u8::is_ascii_digit)
}

/// Whether this is a name or an IPv4 address. Percent-encoding is refused, although the grammar allows it: no name in
/// use has it. The `http` crate refuses it in an authority (HTTP/2, absolute targets), so all three forms are read alike.
fn is_registered_name(name: &[u8]) -> bool {
    // Always to the end, which takes less than to stop at each byte.
    name.iter().fold(true, |all, &byte| all & is_name_byte(byte))
}

/// Whether the text between brackets is an IPv6 address without a zone, or an address of a later version.
fn is_ip_literal(literal: &[u8]) -> bool {
    let [b'v' | b'V', later @ ..] = literal else {
        return str::from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    };
    let Some(dot) = memchr(b'.', later) else { return false };
    let (version, address) = (&later[..dot], &later[dot + 1..]);
    let sound = |&byte: &u8| is_name_byte(byte) || byte == b':';
    !version.is_empty() && version.iter().all(u8::is_ascii_hexdigit) && !address.is_empty() && address.iter().all(sound)
}

fn is_name_byte(byte: u8) -> bool {
    NAME_BYTES[usize::from(byte)]
}

/// `unreserved` and `sub-delims` of RFC 3986, section 2, without the comma.
static NAME_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        bytes[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+;=";
    let mut at = 0;
    while at < others.len() {
        bytes[others[at] as usize] = true;
        at += 1;
    }
    bytes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_or_none() {
        for sound in [
            "",
            ":80",
            "a",
            "a:",
            "a:80",
            "a.example.",
            "192.0.2.1:8080",
            "a_b-c~d",
            "[::1]",
            "[::1]:443",
            "[2001:db8::192.0.2.1]",
            "[v1.a:b]",
            "a:99999",
        ] {
            assert!(is_host_and_port(sound.as_bytes()), "{sound:?}");
        }
        for wrong in [
            "[::1",
            "::1",
            "a:x",
            "a:80:80",
            "%",
            "%4",
            "%zz",
            "caf%C3%A9",
            "a%",
            "[]",
            "[::1]x",
            "[::1]80",
            "[::1%25eth0]",
            "[a]",
            "[v1.]",
            "[v.a]",
            "[vg.a]",
            "[::1]]",
            "a]",
            "a[",
            "u@a",
            "a,b",
            "a b",
            "a/b",
            "a?",
            "a#",
            "\u{e9}",
            "a:-1",
        ] {
            assert!(!is_host_and_port(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
