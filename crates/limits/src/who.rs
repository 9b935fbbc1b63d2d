//! The owner of requests that are counted together.

use std::net::{IpAddr, Ipv6Addr};

/// The owner of requests or connections that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// An address, or a network of 64 bits of IPv6; see [`Who::client`].
    Address(IpAddr),
    /// The hash of an API key.
    Key([u8; 32]),
    /// The index of a class.
    Class(u16),
    /// Everyone.
    All,
    /// The keyed hash of something else, or of several things; see [`Limiter::hasher`](crate::Limiter::hasher).
    Hash(u64),
}

impl Who {
    /// The client with an address. A client with one IPv6 address of a network usually has all of it.
    pub fn client(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
            address => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let client = |text: &str| Who::client(text.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
    }
}
