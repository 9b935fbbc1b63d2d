//! Where an application listens: a socket, an address, or a name that is looked up for as long as its records say.
//!
//! A look-up never delays a request once an address is known: until its answer is there, and while look-ups fail, the last
//! addresses stay in use.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use names::{Question, Resolver, resolver};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::{
    config::FastCgiAddress,
    socket::{KeptSocket, Socket},
};

/// Time for one look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until a name is looked up again after the first failure; each further one doubles it, up to the longest.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_AGAIN: Duration = Duration::from_secs(30);

/// A name, and the name servers that are asked for it.
type Key = (FastCgiAddress, Arc<[SocketAddr]>);

/// The endpoints of this process. Routes and configurations with the same address share what is known of it.
static ENDPOINTS: LazyLock<Mutex<HashMap<Key, Weak<Endpoint>>>> = LazyLock::new(Mutex::default);

/// The place of an application.
pub(crate) struct Endpoint {
    address: FastCgiAddress,
    /// The name servers of the configuration; none: those of the system.
    servers: Arc<[SocketAddr]>,
    resolver: Resolver,
    /// Held during a look-up.
    looking: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

/// The known addresses of a name, and the time of its next look-up.
struct Known {
    addresses: Vec<SocketAddr>,
    /// When it is looked up next.
    due: Instant,
    /// The time until then, after a failure.
    wait: Duration,
    has_failed: bool,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

impl Endpoint {
    /// The endpoint of an address. Nothing is looked up yet.
    pub(crate) fn of(address: &FastCgiAddress, servers: &[SocketAddr]) -> Arc<Self> {
        let key = (address.clone(), Arc::from(servers));
        let mut endpoints = ENDPOINTS.lock();
        endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        if let Some(endpoint) = endpoints.get(&key).and_then(Weak::upgrade) {
            return endpoint;
        }
        let endpoint = Arc::new(Self::new(address.clone(), key.1.clone(), resolver()));
        endpoints.insert(key, Arc::downgrade(&endpoint));
        endpoint
    }

    fn new(address: FastCgiAddress, servers: Arc<[SocketAddr]>, resolver: Resolver) -> Self {
        let known = Known { addresses: Vec::new(), due: Instant::now(), wait: AGAIN, has_failed: false };
        Self { address, servers, resolver, looking: tokio::sync::Mutex::default(), known: Mutex::new(known) }
    }

    /// Connects. Of several addresses, the next one is tried if one refuses; where all do that and their records are
    /// over, those of now.
    pub(crate) async fn connect(self: &Arc<Self>, most: Duration) -> io::Result<Socket> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("it accepts no connection within {most:?}"));
        let connected = timeout(most, async {
            let (host, port) = match &self.address {
                FastCgiAddress::Unix(path) => return Socket::of_path(path).await,
                FastCgiAddress::Tcp(host, port) => (host, *port),
            };
            if let Ok(ip) = host.parse::<IpAddr>() {
                return Socket::of_address(SocketAddr::new(ip, port)).await;
            }
            let (known, is_fresh) = self.state();
            if known.is_empty() {
                return first_that_accepts(self.look_up(host, port).await?).await;
            }
            self.refresh();
            match first_that_accepts(known.clone()).await {
                Err(error) if !is_fresh => match self.look_up(host, port).await {
                    Ok(now) if now != known => first_that_accepts(now).await,
                    _ => Err(error),
                },
                connected => connected,
            }
        });
        connected.await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether a kept connection leads to where the application is now.
    pub(crate) fn leads_here(&self, socket: &KeptSocket) -> bool {
        let known = self.known.lock();
        known.addresses.is_empty() || socket.peer().is_none_or(|peer| known.addresses.contains(&peer))
    }

    /// Has the name looked up if its records are over. Nothing waits for that.
    pub(crate) fn refresh(self: &Arc<Self>) {
        let FastCgiAddress::Tcp(host, port) = &self.address else { return };
        let (known, is_fresh) = self.state();
        if known.is_empty() || is_fresh {
            return;
        }
        let (endpoint, host, port) = (self.clone(), host.clone(), *port);
        tokio::spawn(async move {
            if let Ok(_looking) = endpoint.looking.try_lock() {
                let _ = endpoint.ask(&host, port).await;
            }
        });
    }

    /// The known addresses, and whether their records still hold.
    fn state(&self) -> (Vec<SocketAddr>, bool) {
        let known = self.known.lock();
        (known.addresses.clone(), Instant::now() < known.due)
    }

    /// The addresses of the name, looked up now unless that was just done.
    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let _looking = self.looking.lock().await;
        match self.state() {
            (known, true) if !known.is_empty() => Ok(known),
            (_, true) => Err(io::Error::other(format!("the name `{host}` cannot be looked up"))),
            _ => self.ask(host, port).await,
        }
    }

    async fn ask(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let answer = (self.resolver)(Question::Host(host.to_owned(), port), self.servers.clone());
        let answered = match timeout(LOOK_UP_TIMEOUT, answer).await {
            Ok(Ok(answer)) if answer.found.is_empty() => Err("it has no address".to_owned()),
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        };
        let mut known = self.known.lock();
        match answered {
            Ok(answer) => {
                if std::mem::take(&mut known.has_failed) {
                    tracing::info!(application = %self.address, "the name `{host}` is looked up again");
                }
                known.addresses = answer.found.iter().map(|found| found.address).collect();
                (known.due, known.wait) = (Instant::now() + answer.lasts, AGAIN);
                Ok(known.addresses.clone())
            }
            Err(problem) => {
                if !std::mem::replace(&mut known.has_failed, true) {
                    let kept = known.addresses.len();
                    tracing::warn!(
                        application = %self.address,
                        "the name `{host}` cannot be looked up: {problem}; its {kept} known addresses stay in use"
                    );
                }
                known.due = Instant::now() + known.wait;
                known.wait = LONGEST_AGAIN.min(2 * known.wait);
                Err(io::Error::other(format!("the name `{host}` cannot be looked up: {problem}")))
            }
        }
    }
}

async fn first_that_accepts(addresses: Vec<SocketAddr>) -> io::Result<Socket> {
    let mut failed = None;
    for address in addresses {
        match Socket::of_address(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("its name has no address")))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use names::{Answer, Found};
    use tokio::net::TcpListener;

    use super::*;

    /// An endpoint whose name has these addresses, for two seconds each time; none: the look-up fails.
    fn named(port: u16, addresses: &Arc<Mutex<Vec<IpAddr>>>) -> (Arc<Endpoint>, Arc<AtomicUsize>) {
        let (addresses, asked) = (addresses.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        let resolver: Resolver = Arc::new(move |question, _| {
            assert_eq!(question, Question::Host("app.test".to_owned(), port));
            counted.fetch_add(1, SeqCst);
            let found = addresses.lock().clone();
            let found = found.iter().map(|ip| Found { priority: 0, address: SocketAddr::new(*ip, port), weight: None });
            let answer = Answer { found: found.collect(), lasts: Duration::from_secs(2) };
            Box::pin(async move { Ok(answer) })
        });
        let address = FastCgiAddress::Tcp("app.test".to_owned(), port);
        (Arc::new(Endpoint::new(address, Arc::from([]), resolver)), asked)
    }

    async fn peer(endpoint: &Arc<Endpoint>) -> SocketAddr {
        let socket = endpoint.connect(Duration::from_secs(5)).await.unwrap();
        socket.into_kept().unwrap().peer().unwrap()
    }

    #[tokio::test]
    async fn a_name_is_followed_and_its_last_addresses_stay_when_it_fails() {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let (one, other): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap());
        let addresses = Arc::new(Mutex::new(vec![one]));
        let (endpoint, asked) = named(port, &addresses);
        assert_eq!(peer(&endpoint).await, first.local_addr().unwrap());
        let kept = endpoint.connect(Duration::from_secs(5)).await.unwrap().into_kept().unwrap();
        assert_eq!(asked.load(SeqCst), 1, "its record still holds");
        assert!(endpoint.leads_here(&kept));

        *addresses.lock() = vec![other];
        let is_due = || endpoint.known.lock().due <= Instant::now();
        while !is_due() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The request that finds the record too old does not wait for the answer.
        assert_eq!(peer(&endpoint).await, first.local_addr().unwrap());
        while asked.load(SeqCst) < 2 || is_due() {
            tokio::task::yield_now().await;
        }
        assert_eq!(peer(&endpoint).await, second.local_addr().unwrap());
        assert!(!endpoint.leads_here(&kept), "a kept connection to where it was is not used");
        // After a long time without requests, the known address may be that of nothing.
        endpoint.known.lock().addresses = vec![SocketAddr::new("127.0.0.3".parse().unwrap(), port)];
        endpoint.known.lock().due = Instant::now();
        assert_eq!(peer(&endpoint).await, second.local_addr().unwrap());

        addresses.lock().clear();
        endpoint.known.lock().due = Instant::now();
        assert_eq!(peer(&endpoint).await, second.local_addr().unwrap());
        while !endpoint.known.lock().has_failed {
            tokio::task::yield_now().await;
        }
        assert_eq!(peer(&endpoint).await, second.local_addr().unwrap());
    }

    #[tokio::test]
    async fn an_unknown_name_is_asked_for_once_a_second_and_the_next_address_is_tried() {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addresses = Arc::new(Mutex::new(Vec::new()));
        let (endpoint, asked) = named(port, &addresses);
        for _ in 0..5 {
            let error = endpoint.connect(Duration::from_secs(5)).await.unwrap_err();
            assert!(error.to_string().contains("`app.test` cannot be looked up"), "{error}");
        }
        assert_eq!(asked.load(SeqCst), 1);
        *addresses.lock() = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        endpoint.known.lock().due = Instant::now();
        assert_eq!(peer(&endpoint).await, listener.local_addr().unwrap());
    }

    #[test]
    fn routes_with_the_same_address_share_what_is_known() {
        let address = FastCgiAddress::Tcp("app.test".to_owned(), 9000);
        let one = Endpoint::of(&address, &[]);
        assert!(Arc::ptr_eq(&one, &Endpoint::of(&address, &[])));
        assert!(!Arc::ptr_eq(&one, &Endpoint::of(&address, &["127.0.0.1:53".parse().unwrap()])));
    }
}
