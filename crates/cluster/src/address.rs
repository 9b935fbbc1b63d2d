//! The address of a store: one server, a cluster, or a master that sentinels know.

use std::{fmt, sync::Arc};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo, RedisError,
    TlsCertificates,
};

/// Most hosts of one address.
const MOST_HOSTS: usize = 64;
const SENTINEL_PORT: u16 = 26379;
const STORE_PORT: u16 = 6379;

/// Certificates for a store that is reached over TLS, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The authorities whose certificates are accepted; `None`: those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The certificate of this gateway and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// An address that is no address of a store, or certificates that are none.
#[derive(Debug)]
pub enum AddressError {
    /// The text is none of the forms below.
    Form(String),
    /// A certificate, or a key.
    Certificate(RedisError),
    /// There are certificates, and the address is not one of TLS.
    NotTls,
}

/// How the server is found that has the data.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// There is one.
    There,
    /// A node of a cluster tells which one has a key.
    ByCluster,
    /// A sentinel tells it.
    BySentinel {
        /// The name under which sentinels know the master.
        master: String,
        /// The account at the master; that of the address is the one at the sentinels.
        account: Box<RedisConnectionInfo>,
    },
}

/// A parsed address.
#[derive(Clone)]
pub(crate) struct Address {
    pub found: Found,
    /// The server, or the nodes or sentinels that are asked, at least one.
    pub hosts: Arc<[ConnectionInfo]>,
}

/// The words of the library without the name of its error.
fn plain(error: &redis::RedisError) -> String {
    let text = error.to_string();
    text.split(" - InvalidClientConfig").next().unwrap_or_default().to_owned()
}

impl Address {
    /// Reads `redis://`, `rediss://` (TLS) and `unix://` addresses of one server, and `redis+cluster://` and
    /// `redis+sentinel://` (or `rediss+...`) with several hosts.
    pub fn parse(text: &str, trust: &Trust) -> Result<Self, AddressError> {
        let form = |message: &str| AddressError::Form(message.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(|| form("it has no scheme"))?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if scheme == "unix" || kind == "unix" {
            let info = text.into_connection_info().map_err(|error| form(&plain(&error)))?;
            return Self::new(Found::There, vec![info], trust);
        }
        if !["redis", "rediss", "valkey", "valkeys"].contains(&scheme) {
            return Err(form("its scheme is none of a store"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, hosts) = authority.rsplit_once('@').map_or(("", authority), |(account, hosts)| (account, hosts));
        let host = |account: &str, host: &str, path: &str, query: &str| {
            let at = if account.is_empty() { String::new() } else { format!("{account}@") };
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            let url = format!("{scheme}://{at}{host}/{path}{query}");
            url.as_str().into_connection_info().map_err(|error| form(&plain(&error)))
        };
        let names: Vec<&str> = hosts.split(',').collect();
        if names.len() > MOST_HOSTS || names.contains(&"") {
            return Err(form("it has no host, or too many"));
        }
        match kind {
            "" if names.len() > 1 => Err(form("several hosts are those of `redis+cluster://` or `redis+sentinel://`")),
            "" => Self::new(Found::There, vec![host(account, hosts, path, query)?], trust),
            "cluster" => {
                if !path.trim_matches('/').is_empty() {
                    return Err(form("a cluster has no numbered databases"));
                }
                let hosts = names.iter().map(|name| host(account, name, "", query)).collect::<Result<_, _>>()?;
                Self::new(Found::ByCluster, hosts, trust)
            }
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(form("behind the sentinels stands the name of the master, as in `.../mymaster`"));
                }
                let mut of_sentinels = String::new();
                for part in query.split('&').filter(|part| !part.is_empty()) {
                    match part.split_once('=') {
                        Some(("sentinel", account)) => of_sentinels = account.to_owned(),
                        _ => return Err(form("the one thing after `?` is `sentinel=USER:PASSWORD`")),
                    }
                }
                let of_master = host(account, names[0], database, "")?;
                let found = Found::BySentinel {
                    master: master.to_owned(),
                    account: Box::new(of_master.redis_settings().clone()),
                };
                let sentinel = |name: &&str| {
                    let info = host(&of_sentinels, name, "", "")?;
                    let default = if has_port(name) { None } else { Some(SENTINEL_PORT) };
                    let (name, port) = place(info.addr());
                    Ok(info.clone().set_addr(at(info.addr(), name, default.unwrap_or(port))))
                };
                Self::new(found, names.iter().map(sentinel).collect::<Result<_, AddressError>>()?, trust)
            }
            _ => Err(form("its scheme is none of a store")),
        }
    }

    fn new(found: Found, hosts: Vec<ConnectionInfo>, trust: &Trust) -> Result<Self, AddressError> {
        let mut hosts = hosts;
        if *trust != Trust::default() {
            let certificates = TlsCertificates {
                client_tls: trust
                    .identity
                    .clone()
                    .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
                root_cert: trust.authorities.clone(),
            };
            for host in &mut hosts {
                if !matches!(host.addr(), ConnectionAddr::TcpTls { .. }) {
                    return Err(AddressError::NotTls);
                }
                let client = Client::build_with_tls(host.clone(), certificates.clone());
                *host = client.map_err(AddressError::Certificate)?.get_connection_info().clone();
            }
        }
        Ok(Self { found, hosts: hosts.into() })
    }

    /// The server at a place that a node or sentinel has named, reached as that one is.
    pub fn server(&self, like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
        let info = like.clone().set_addr(at(like.addr(), host.to_owned(), port));
        match &self.found {
            Found::BySentinel { account, .. } => info.set_redis_settings((**account).clone()),
            Found::There | Found::ByCluster => info,
        }
    }
}

/// Host and port; those of a socket in the file system are of no meaning.
pub(crate) fn place(address: &ConnectionAddr) -> (String, u16) {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port),
        _ => (String::new(), STORE_PORT),
    }
}

/// Another place, with TLS and its certificates as at `like`.
fn at(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        && (!host.contains('[') || host.contains("]:"))
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(message) => write!(
                f,
                "not the address of a store such as rediss://user:password@host:6379, redis+cluster://a:6379,b:6379 or \
                 redis+sentinel://a:26379,b:26379/mymaster: {message}"
            ),
            Self::Certificate(error) => write!(f, "the certificates for the store cannot be used: {error}"),
            Self::NotTls => f.write_str("certificates are for a store over TLS: write its address with `rediss`"),
        }
    }
}

impl std::error::Error for AddressError {}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authorities, identity) = (self.authorities.is_some(), self.identity.is_some());
        f.debug_struct("Trust").field("authorities", &authorities).field("identity", &identity).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text, &Trust::default()).map_err(|error| error.to_string())
    }

    fn places(text: &str) -> Vec<(String, u16)> {
        parse(text).expect(text).hosts.iter().map(|host| place(host.addr())).collect()
    }

    fn host(name: &str, port: u16) -> (String, u16) {
        (name.to_owned(), port)
    }

    #[test]
    fn one_server_several_nodes_and_sentinels() {
        assert_eq!(places("redis://a"), [host("a", 6379)]);
        assert_eq!(places("redis://[::1]:7000/2"), [host("::1", 7000)]);
        assert_eq!(places("rediss+cluster://u:p@a:1,b,[::1]:3"), [host("a", 1), host("b", 6379), host("::1", 3)]);
        assert_eq!(places("redis+sentinel://a,b:5/shop"), [host("a", 26379), host("b", 5)]);
        let address = parse("rediss+sentinel://u:p%40@a,b/shop/3?sentinel=s:t").unwrap();
        let Found::BySentinel { master, account } = &address.found else { panic!("{:?}", address.found) };
        assert_eq!((master.as_str(), account.username(), account.password()), ("shop", Some("u"), Some("p@")));
        assert_eq!(account.db(), 3);
        let sentinel = address.hosts[0].redis_settings();
        assert_eq!((sentinel.username(), sentinel.password()), (Some("s"), Some("t")));
        let server = address.server(&address.hosts[1], "10.0.0.1", 7);
        assert_eq!(place(server.addr()), host("10.0.0.1", 7));
        assert!(matches!(server.addr(), ConnectionAddr::TcpTls { .. }), "as the sentinel");
        assert_eq!((server.redis_settings().username(), server.redis_settings().db()), (Some("u"), 3));
    }

    #[test]
    fn mistakes_are_said() {
        for (text, said) in [
            ("", "no scheme"),
            ("host:6379", "no scheme"),
            ("http://host", "none of a store"),
            ("redis+ring://a", "none of a store"),
            ("redis://a,b", "several hosts"),
            ("redis+cluster://a,,b", "no host"),
            ("redis+cluster://a/1", "no numbered databases"),
            ("redis+sentinel://a,b", "name of the master"),
            ("redis+sentinel://a/shop?password=x", "sentinel=USER:PASSWORD"),
            ("redis://host/one", "Invalid database"),
        ] {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        let trust = Trust { authorities: Some(b"none".to_vec()), identity: None };
        assert!(matches!(Address::parse("redis://a", &trust), Err(AddressError::NotTls)));
        assert!(!format!("{trust:?}").contains("110"));
    }
}
