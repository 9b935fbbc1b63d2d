//! The content of a header.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

/// Longest header that is read. One of version 1 has at most 107 bytes; the rest is for extensions (TLVs) of version 2.
pub const MOST_BYTES: usize = 4096;

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary, with room for extensions.
    V2,
}

/// The two ends of a client's connection to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The client's end.
    pub source: SocketAddr,
    /// The end that the client connected to.
    pub destination: SocketAddr,
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The proxy stands for itself (a check of health), or does not say for which client. The ends of its own connection count.
    Local,
    /// The proxy stands for a client.
    Proxied(Ends),
}

/// How much of a header the first bytes of a connection hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of them belong to the header, which has not ended.
    Incomplete,
    /// The header is that long. The bytes behind it are the client's.
    Complete(Header, usize),
}

/// The first bytes of a connection are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They begin otherwise.
    NoHeader,
    /// A line of text that says something else.
    Text,
    /// A binary header that says something else.
    Binary,
    /// Of a version that is not known.
    Version,
    /// Longer than [`MOST_BYTES`], or a line of text longer than it may be.
    TooLong,
}

/// The address of a header. Addresses of IPv4 that are written as IPv6 are those of IPv4.
pub(crate) fn address(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into().to_canonical(), port)
}

/// The bytes of an address as IPv6.
pub(crate) fn octets_v6(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "it begins without a header of the PROXY protocol",
            Self::Text => "its PROXY line is malformed",
            Self::Binary => "its binary PROXY header is malformed",
            Self::Version => "its PROXY header has a version that is not known",
            Self::TooLong => "its PROXY header is too long",
        })
    }
}

impl std::error::Error for Malformed {}
