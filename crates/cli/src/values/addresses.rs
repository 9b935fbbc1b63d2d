//! Addresses, networks, host names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::uri::Authority;
use ipnet::IpNet;

use super::numbers::or_off;

/// An address to listen on, as given. TLS may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAt {
    /// The address.
    pub address: SocketAddr,
    /// Whether `https://` or `http://` stands before it; `None` uses TLS if there is a certificate.
    pub tls: Option<bool>,
}

/// Reads `127.0.0.1:8080`, `[::1]:8080`, `:8080` or `localhost:8080`, each with or without `http://` or
/// `https://`.
pub fn listen(text: &str) -> Result<ListenAt, String> {
    let (tls, rest) = match text {
        _ if text.starts_with("http://") => (Some(false), &text[7..]),
        _ if text.starts_with("https://") => (Some(true), &text[8..]),
        _ => (None, text),
    };
    address(rest.strip_suffix('/').unwrap_or(rest)).map(|address| ListenAt { address, tls })
}

/// Reads a socket address; `:8080` is that port on all addresses, IPv6 and IPv4.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = |port: &str| {
        port.parse::<u16>()
            .map_err(|_| format!("`{port}` is not a port: give a number from 0 (any free port) to 65535"))
    };
    if text.contains(',') {
        return Err(format!("`{text}` has several addresses: write {}", list(text)));
    }
    if let Some(rest) = text.strip_prefix(':') {
        return Ok((Ipv6Addr::UNSPECIFIED, port(rest)?).into());
    }
    if let Some(rest) = text.strip_prefix("localhost:") {
        return Ok((Ipv4Addr::LOCALHOST, port(rest)?).into());
    }
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8080");
        format!(
            "`{text}` is not an address to listen on: give an IP address and a port, as in `127.0.0.1:{port}` or \
             `[::1]:{port}`, or `:{port}` for all addresses"
        )
    })
}

/// Reads an address, or `off`.
pub fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    or_off(text, address)
}

/// Reads a host name, in lower case and without a final dot. `*.` at its beginning stands for any labels.
pub fn host_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    let is_address = text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let sound = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if is_address || (name.len() <= 253 && labels.split('.').all(sound)) {
        return Ok(name);
    }
    Err(match text {
        "*" | "_" => format!("`{text}` is not a host name: without `names` the first site answers for every name"),
        _ if text.contains([',', ' ']) => format!("`{text}` is not one host name: write {}", list(text)),
        _ if text.contains('/') && !text.contains(':') => {
            format!("`{text}` is not a host name: leave out the path, which a `[[site.route]]` has")
        }
        _ if !text.is_ascii() => format!("`{text}` must be written in ASCII: international names as `xn--...`"),
        _ if text.contains(':') => format!("`{text}` is not a host name: leave out the scheme and the port"),
        _ => format!("`{text}` is not a host name: write it as in `www.example.org` or `*.example.org`"),
    })
}

/// A list as the file has it, of a text whose parts are divided by commas or spaces.
pub fn list(text: &str) -> String {
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    format!("`[{}]`", parts.map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(", "))
}

/// Reads the host, with or without a port, for requests of a page.
pub fn probed_host(text: &str) -> Result<Authority, String> {
    let host = text.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@') && !host.host().is_empty());
    host.ok_or_else(|| format!("`{text}` is not a host: write it as in `www.example.org` or `app.example:8080`"))
}

/// Reads a network, as in `10.0.0.0/8` or `2001:db8::/32`, or a single address.
pub fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let Ok(network) = text.parse::<IpNet>() else {
        if matches!(text, "all" | "any" | "*") {
            return Err(format!("`{text}` is not a network: all addresses are `[\"0.0.0.0/0\", \"::/0\"]`"));
        }
        return Err(format!("`{text}` is not a network: write it as in `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`"));
    };
    if network != network.trunc() {
        return Err(format!(
            "`{text}` is an address within a network: write `{}`, or the address alone",
            network.trunc()
        ));
    }
    Ok(network)
}

/// Reads an address of this server: `10.0.0.1:443`, `10.0.0.1` for all its ports, `:443` for that port of all
/// addresses.
pub fn destination(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    let port = text.strip_prefix(':').map(|port| port.parse::<u16>().ok().filter(|port| *port != 0));
    match (port, text.parse::<SocketAddr>()) {
        (Some(Some(port)), _) => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        (None, Ok(address)) => Ok(address),
        _ => Err(format!(
            "`{text}` is not an address of this server: write it as in `10.0.0.1:443`, `10.0.0.1` for any port, or \
             `:443` for any address"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let read = |text| listen(text).map(|at| (at.address.to_string(), at.tls));
        assert_eq!(read("127.0.0.1:8080"), Ok(("127.0.0.1:8080".into(), None)));
        assert_eq!(read("[::1]:443"), Ok(("[::1]:443".into(), None)));
        assert_eq!(read(":80"), Ok(("[::]:80".into(), None)));
        assert_eq!(read("localhost:0"), Ok(("127.0.0.1:0".into(), None)));
        assert_eq!(read("https://0.0.0.0:443/"), Ok(("0.0.0.0:443".into(), Some(true))));
        assert_eq!(read("http://:80"), Ok(("[::]:80".into(), Some(false))));
    }

    #[test]
    fn what_is_not_an_address_says_what_to_write() {
        for text in ["", "8080", "127.0.0.1", "example.org:80", "[::1]:80x", "ftp://127.0.0.1:21"] {
            assert!(listen(text).unwrap_err().contains("give an IP address and a port"), "{text}");
        }
        assert!(listen(":65536").unwrap_err().contains("not a port"));
    }

    #[test]
    fn networks_and_our_own_addresses() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("192.0.2.7").unwrap().to_string(), "192.0.2.7/32");
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        assert!(network("10.1.2.3/8").unwrap_err().contains("write `10.0.0.0/8`"));
        assert!(network("10.0.0.0/33").unwrap_err().contains("is not a network"));
        assert!(network("example.org").is_err());
        assert_eq!(destination(":443").unwrap().to_string(), "[::]:443");
        assert_eq!(destination("10.0.0.1").unwrap().to_string(), "10.0.0.1:0");
        assert_eq!(destination("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(destination(":0").is_err() && destination("https").is_err() && destination(":x").is_err());
    }
}
