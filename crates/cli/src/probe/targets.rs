//! Finds the resources to probe and the addresses of their servers.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket},
    num::NonZeroU32,
};

use http::uri::{Authority, PathAndQuery};
use server::config::{Config, ResourceConfig, UpstreamAddress, UpstreamConfig, UpstreamServer};

use crate::values;

/// A resource that has a page.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub resource: String,
    /// Its page.
    pub page: PathAndQuery,
    /// The host name in the requests, if the configuration names one.
    pub host: Option<Authority>,
    /// The upstream to ask. Its names are already resolved, so that the operator agrees to exactly the
    /// servers that are asked.
    pub upstream: UpstreamConfig,
    /// Least and most size of its window.
    pub limits: (NonZeroU32, NonZeroU32),
    /// Its servers that are not on this machine.
    pub elsewhere: Vec<String>,
}

impl Target {
    /// The page and the servers as text.
    pub fn whereabouts(&self) -> String {
        let servers: Vec<_> = self.upstream.servers.iter().map(values::show_server).collect();
        format!("{} of {} ({})", self.page, self.upstream.name, servers.join(", "))
    }

    /// Most requests in progress at once, given the limit `most`.
    pub fn outstanding(&self, most: u32) -> usize {
        let connections = self.upstream.most_connections.map_or(usize::MAX, |most| most.get() as usize);
        (most as usize).min(connections.saturating_mul(self.upstream.servers.len().max(1)))
    }
}

/// The resources to probe: the named ones, or all that have a page. Resolves names.
pub fn targets(config: &Config, named: &[String]) -> Result<Vec<Target>, String> {
    let resources = &config.classes.admission.resources;
    let with_page: Vec<_> = resources.iter().filter(|resource| resource.probe.is_some()).collect();
    let help = "give it one, as in `disk = { probe = \"/disk.php?cost=12\" }` in `[admission.resources]`";
    let chosen = if named.is_empty() {
        if with_page.is_empty() {
            let slots = if matches!(resources.as_slice(), [site] if site.window.is_none()) {
                "; for a site without resources, in place of `slots = 20`: `site = { window = 20, probe = \"/basket\" }`"
            } else {
                ""
            };
            return Err(format!("no resource has a page to be probed by: {help}{slots}"));
        }
        with_page
    } else {
        let one = |name: &String| match resources.iter().find(|resource| resource.name == *name) {
            Some(resource) if resource.probe.is_some() => Ok(resource),
            Some(_) => Err(format!("the resource `{name}` has no page to be probed by: {help}")),
            None => {
                let known: Vec<_> = with_page.iter().map(|resource| format!("`{}`", resource.name)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(format!("there is no resource `{name}`; those with a page: {known}"))
            }
        };
        let mut chosen = named.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let mut seen = Vec::new();
        chosen.retain(|resource| {
            !seen.contains(&&resource.name) && {
                seen.push(&resource.name);
                true
            }
        });
        chosen
    };
    chosen.into_iter().map(|resource| target(config, resource)).collect()
}

fn target(config: &Config, resource: &ResourceConfig) -> Result<Target, String> {
    let name = &resource.name;
    let probe = resource.probe.as_ref().ok_or_else(|| format!("the resource `{name}` has no page"))?;
    let upstream = config.upstreams.get(probe.upstream);
    let mut upstream = upstream.cloned().ok_or_else(|| format!("the upstream of the resource `{name}` is gone"))?;
    if upstream.servers.is_empty() {
        return Err(format!(
            "the servers of the upstream `{}`, which the resource `{name}` is probed at, are started by `serpent serve`: \
             start one by hand and name it in `servers` of an upstream of its own",
            upstream.name
        ));
    }
    let mut elsewhere = Vec::new();
    let mut servers = Vec::new();
    for server in &upstream.servers {
        let (addresses, is_local) = located(server)
            .map_err(|error| format!("the server {} cannot be looked up: {error}", values::show_server(server)))?;
        if !is_local {
            elsewhere.push(values::show_server(server));
        }
        servers.extend(addresses.into_iter().map(|address| UpstreamServer { address, ..server.clone() }));
    }
    upstream.servers = servers;
    Ok(Target {
        resource: name.clone(),
        page: probe.path.clone(),
        host: probe.host.clone(),
        upstream,
        limits: (resource.least, resource.most),
        elsewhere,
    })
}

/// Resolves a server, and tells whether all its addresses are on this machine.
fn located(server: &UpstreamServer) -> std::io::Result<(Vec<UpstreamAddress>, bool)> {
    let addresses: Vec<SocketAddr> = match &server.address {
        UpstreamAddress::Unix(_) => return Ok((vec![server.address.clone()], true)),
        UpstreamAddress::Socket(address) => vec![*address],
        UpstreamAddress::Service(name) => {
            let message = format!("`{name}` is a service; name its servers to probe them");
            return Err(std::io::Error::other(message));
        }
        UpstreamAddress::Name(host, port) => (host.as_str(), *port).to_socket_addrs()?.collect(),
    };
    if addresses.is_empty() {
        return Err(std::io::Error::other("it has no address"));
    }
    let is_local = addresses.iter().all(|address| is_local(address.ip()));
    Ok((addresses.into_iter().map(UpstreamAddress::Socket).collect(), is_local))
}

/// Whether an address belongs to this machine. Nothing is sent: the system is asked which source address it
/// would use.
fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let from = |any: IpAddr| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    let any = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    from(any).is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_this_machine() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn an_address_of_its_own_is_this_machine() {
        // The source address of this machine towards the outside, if it has a route there.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            assert!(is_local(socket.local_addr().unwrap().ip()));
        }
    }
}
