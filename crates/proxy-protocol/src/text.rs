//! Version 1: a line of text, as in `PROXY TCP4 192.0.2.7 198.51.100.1 56324 443`.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::header::{Ends, Header, Malformed, Progress, address, octets_v6};

pub(crate) const SIGNATURE: &[u8] = b"PROXY ";

/// The longest line of the specification, its end included.
const MOST_BYTES: usize = 107;

pub(crate) fn read(bytes: &[u8]) -> Result<Progress, Malformed> {
    let within = &bytes[..bytes.len().min(MOST_BYTES)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() >= MOST_BYTES { Err(Malformed::TooLong) } else { Ok(Progress::Incomplete) };
    };
    let line = within[..end].strip_suffix(b"\r").ok_or(Malformed::Text)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed::Text)?;
    Ok(Progress::Complete(header(line)?, end + 1))
}

fn header(line: &str) -> Result<Header, Malformed> {
    let rest = line.strip_prefix("PROXY ").ok_or(Malformed::Text)?;
    // Text after UNKNOWN has no meaning.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Ok(Header::Local);
    }
    let mut words = rest.split(' ');
    let mut next = || words.next().ok_or(Malformed::Text);
    let (family, source, destination) = (next()?, next()?, next()?);
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(Malformed::Text);
    }
    let ip = |text: &str| -> Result<IpAddr, Malformed> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from),
            "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::from),
            _ => return Err(Malformed::Text),
        }
        .map_err(|_| Malformed::Text)
    };
    Ok(Header::Proxied(Ends {
        source: address(ip(source)?, source_port),
        destination: address(ip(destination)?, destination_port),
    }))
}

/// A port in decimal digits, without zeros before it.
fn port(text: &str) -> Result<u16, Malformed> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().map_err(|_| Malformed::Text) } else { Err(Malformed::Text) }
}

/// Writes a line. Both addresses are of one family.
pub(crate) fn write(ends: Option<Ends>, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = match ends {
        None => out.write_all(b"PROXY UNKNOWN\r\n"),
        Some(Ends { source, destination }) => {
            let (from, to) = (source.port(), destination.port());
            match (source.ip(), destination.ip()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    write!(out, "PROXY TCP4 {source} {destination} {from} {to}\r\n")
                }
                _ => {
                    let ip = |address| Ipv6Addr::from(octets_v6(address));
                    write!(out, "PROXY TCP6 {} {} {from} {to}\r\n", ip(source), ip(destination))
                }
            }
        }
    };
}
