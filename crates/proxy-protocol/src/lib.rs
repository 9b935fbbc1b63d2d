#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod binary;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod header;
#[cfg(test)]
mod tests;
mod text;

use std::net::{IpAddr, SocketAddr};

pub use self::header::{Ends, Header, MOST_BYTES, Malformed, Progress, Version};

/// Reads the first bytes of a connection: all that came so far.
///
/// # Errors
///
/// They are no header, as soon as that is certain.
pub fn read(bytes: &[u8]) -> Result<Progress, Malformed> {
    if starts_like(bytes, binary::SIGNATURE) {
        binary::read(bytes)
    } else if starts_like(bytes, text::SIGNATURE) {
        text::read(bytes)
    } else {
        Err(Malformed::NoHeader)
    }
}

/// Whether the bytes agree with a signature as far as there are any.
fn starts_like(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, expected)| byte == expected)
}

/// Writes a header for a client; `None`: the connection is the proxy's own.
pub fn write(version: Version, ends: Option<Ends>, out: &mut Vec<u8>) {
    let ends = ends.map(of_one_family);
    match version {
        Version::V1 => text::write(ends, out),
        Version::V2 => binary::write(ends, out),
    }
}

/// Both addresses as IPv4 or both as IPv6: a header has no other.
fn of_one_family(ends: Ends) -> Ends {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    let (source, destination) = (canonical(ends.source), canonical(ends.destination));
    match source.is_ipv4() == destination.is_ipv4() {
        true => Ends { source, destination },
        false => Ends { source: mapped(source), destination: mapped(destination) },
    }
}
