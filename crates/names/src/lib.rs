#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RData, RecordType},
};
use tokio::task::JoinSet;

/// Most servers of one name. More than that are left out.
pub const MOST_SERVERS: usize = 256;

/// Shortest and longest time between two look-ups of a name that was found.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);
/// The same where no record says how long it holds: `/etc/hosts`, and the system's own way.
const UNKNOWN: Duration = Duration::from_secs(15);
/// From here on a time is not that of a record.
const NO_RECORD: Duration = Duration::from_secs(86_000);
/// Time until a name server is asked again, and how often one is asked.
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

/// Finds the servers of a name.
pub type Resolver = Arc<dyn Fn(Question, Arc<[SocketAddr]>) -> LookUp + Send + Sync>;
/// A look-up under way.
pub type LookUp = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

/// A name to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The addresses of a host; the port is given.
    Host(String, u16),
    /// The servers of a service, as in `_http._tcp.shop.internal`, with their ports, priorities and weights.
    Service(String),
}

/// The servers of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The preferred ones first.
    pub found: Vec<Found>,
    /// How long the answer holds.
    pub lasts: Duration,
}

/// A server of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// That of a service; 0 for a host.
    pub priority: u16,
    /// Where it listens.
    pub address: SocketAddr,
    /// That of a service; `None` for a host.
    pub weight: Option<u16>,
}

impl Answer {
    fn new(mut found: Vec<Found>, lasts: Duration) -> Self {
        found.sort_unstable();
        // Of an address that is there twice, the first priority counts.
        let mut seen = Vec::new();
        found.retain(|it| {
            let is_new = !seen.contains(&it.address);
            seen.push(it.address);
            is_new
        });
        Self { found, lasts: if lasts >= NO_RECORD { UNKNOWN } else { lasts.clamp(SHORTEST, LONGEST) } }
    }
}

/// Asks the name servers that are given, or those of the system with its own files.
pub fn resolver() -> Resolver {
    Arc::new(|question, servers| Box::pin(look_up(question, servers)))
}

async fn look_up(question: Question, servers: Arc<[SocketAddr]>) -> io::Result<Answer> {
    let given = servers.clone();
    // Reads the files of the system.
    let made = tokio::task::spawn_blocking(move || make(&given)).await.map_err(io::Error::other)?;
    match (question, made) {
        (Question::Service(name), made) => services(made.map_err(io::Error::other)?, name).await,
        (Question::Host(host, port), Ok(resolver)) => match addresses(&resolver, host.clone()).await {
            Ok((addresses, lasts)) => Ok(of_host(&addresses, port, lasts)),
            Err(error) if servers.is_empty() => by_the_system(&host, port).await.map_err(|_| error),
            Err(error) => Err(error),
        },
        (Question::Host(host, port), Err(_)) => by_the_system(&host, port).await,
    }
}

fn make(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = address.port());
            server
        };
        let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        (options.timeout, options.attempts) = (ASK_AGAIN, ATTEMPTS);
        options.use_hosts_file = ResolveHosts::Never;
        builder
    };
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

async fn addresses(resolver: &TokioResolver, host: String) -> io::Result<(Vec<IpAddr>, Duration)> {
    let found = resolver.lookup_ip(host).await.map_err(io::Error::other)?;
    Ok((found.iter().collect(), found.valid_until().saturating_duration_since(Instant::now())))
}

fn of_host(addresses: &[IpAddr], port: u16, lasts: Duration) -> Answer {
    let found = |ip: &IpAddr| Found { priority: 0, address: SocketAddr::new(*ip, port), weight: None };
    Answer::new(addresses.iter().map(found).collect(), lasts)
}

/// The system knows names by other ways than DNS, too (`nsswitch.conf`), and says of none how long it holds.
async fn by_the_system(host: &str, port: u16) -> io::Result<Answer> {
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.map(|address| address.ip()).collect();
    Ok(of_host(&found, port, UNKNOWN))
}

async fn services(resolver: TokioResolver, name: String) -> io::Result<Answer> {
    let mut name = Name::from_utf8(&name).map_err(io::Error::other)?;
    name.set_fqdn(true);
    let records = resolver.lookup(name, RecordType::SRV).await.map_err(io::Error::other)?;
    let mut lasts = records.valid_until().saturating_duration_since(Instant::now());
    let mut services: Vec<_> = records
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            // The root as target: the service is not here (RFC 2782).
            RData::SRV(service) if !service.target.is_root() => Some(service.clone()),
            _ => None,
        })
        .collect();
    services.sort_by_key(|service| service.priority);
    services.truncate(MOST_SERVERS);
    let mut asked = JoinSet::new();
    for service in services {
        let resolver = resolver.clone();
        asked.spawn(async move {
            let found = resolver.lookup_ip(service.target.clone()).await;
            (service, found)
        });
    }
    let mut found = Vec::new();
    while let Some(answered) = asked.join_next().await {
        let (service, addresses) = answered.map_err(io::Error::other)?;
        let addresses = match addresses {
            Ok(addresses) => addresses,
            // The others serve.
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => continue,
            Err(error) => return Err(io::Error::other(error)),
        };
        lasts = lasts.min(addresses.valid_until().saturating_duration_since(Instant::now()));
        found.extend(addresses.iter().map(|ip| Found {
            priority: service.priority,
            address: SocketAddr::new(ip, service.port),
            weight: Some(service.weight),
        }));
    }
    Ok(Answer::new(found, lasts))
}
