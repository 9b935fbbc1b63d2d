//! Version 2: a signature, two bytes of kinds, a length, addresses, and extensions (TLVs), which are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::header::{Ends, Header, MOST_BYTES, Malformed, Progress, address, octets_v6};

pub(crate) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes before the addresses.
const FIXED_BYTES: usize = 16;
/// The version, in the upper half of its byte.
const VERSION: u8 = 0x20;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

pub(crate) fn read(bytes: &[u8]) -> Result<Progress, Malformed> {
    let Some(kinds) = bytes.get(SIGNATURE.len()) else { return Ok(Progress::Incomplete) };
    if kinds & 0xf0 != VERSION {
        return Err(Malformed::Version);
    }
    let command = kinds & 0x0f;
    if command != LOCAL && command != PROXY {
        return Err(Malformed::Binary);
    }
    let Some(&[_, _, _, _, _, _, _, _, _, _, _, _, _, family, high, low]) = bytes.first_chunk() else {
        return Ok(Progress::Incomplete);
    };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if len > MOST_BYTES {
        return Err(Malformed::TooLong);
    }
    let Some(rest) = bytes.get(FIXED_BYTES..len) else { return Ok(Progress::Incomplete) };
    let header = match (command, family) {
        (PROXY, TCP4) => {
            let (addresses, extensions) = rest.split_first_chunk::<12>().ok_or(Malformed::Binary)?;
            skip(extensions)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *addresses;
            proxied(Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h), ports)
        }
        (PROXY, TCP6) => {
            let (source, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Binary)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Binary)?;
            let (ports, extensions) = rest.split_first_chunk::<4>().ok_or(Malformed::Binary)?;
            skip(extensions)?;
            proxied(Ipv6Addr::from(*source), Ipv6Addr::from(*destination), *ports)
        }
        // LOCAL, and a client that did not come by TCP: what follows is skipped as a whole.
        _ => Header::Local,
    };
    Ok(Progress::Complete(header, len))
}

fn proxied(source: impl Into<IpAddr>, destination: impl Into<IpAddr>, [a, b, c, d]: [u8; 4]) -> Header {
    Header::Proxied(Ends {
        source: address(source, u16::from_be_bytes([a, b])),
        destination: address(destination, u16::from_be_bytes([c, d])),
    })
}

/// Skips extensions, which have to fill the header exactly.
fn skip(mut rest: &[u8]) -> Result<(), Malformed> {
    while !rest.is_empty() {
        let (&[_, high, low], value) = rest.split_first_chunk().ok_or(Malformed::Binary)?;
        rest = value.get(usize::from(u16::from_be_bytes([high, low]))..).ok_or(Malformed::Binary)?;
    }
    Ok(())
}

/// Writes a header. Both addresses are of one family.
pub(crate) fn write(ends: Option<Ends>, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let Some(Ends { source, destination }) = ends else { return out.extend([VERSION | LOCAL, 0, 0, 0]) };
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend([VERSION | PROXY, TCP4, 0, 12]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        _ => {
            out.extend([VERSION | PROXY, TCP6, 0, 36]);
            out.extend(octets_v6(source));
            out.extend(octets_v6(destination));
        }
    }
    out.extend(source.port().to_be_bytes());
    out.extend(destination.port().to_be_bytes());
}
