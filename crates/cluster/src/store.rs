//! The connection with the store.

use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value};
use scheduler::lease::{Ask, CellSettings, Reply};
use tokio::sync::Notify;

use crate::{
    address::{Address, AddressError, Trust},
    discovery::{self, Known, Server},
    error::Error,
    message::{CellName, counts, decode, decode_seen, decode_shared, decode_under_way, encode, words},
    shared::{SharedAsk, SharedReply},
};

/// The function that divides the windows of a site.
const LIBRARY: &str = include_str!("site.lua");
const ASK: &str = "serpent_2_ask";
const LEAVE: &str = "serpent_2_leave";
const SPEND: &str = "serpent_2_spend";
const UNDER_WAY: &str = "serpent_2_under_way";
const SHARE: &str = "serpent_2_share";
const SEE: &str = "serpent_2_see";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a store, and the site whose gateways share it.
#[derive(Clone)]
pub struct Store {
    address: Address,
    known: Known,
    site: Arc<str>,
    gateway: Arc<str>,
}

/// An open connection with the store. It ends with the first error.
pub struct Connection {
    connection: redis::aio::MultiplexedConnection,
    keys: [String; 4],
    gateway: Arc<str>,
    notices: Notices,
    /// The process that answers, so that the function notices another one.
    process: u64,
}

/// Requests that a gateway has let in under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The limit and the client, the same at all gateways.
    pub of: String,
    /// How many requests, or bytes.
    pub requests: u64,
    /// For how long they are to be remembered.
    pub keep: Duration,
}

/// Notices of the store: an ask is worth its while.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Notify>);

impl Store {
    /// The store at an address such as `rediss://user:password@host:6379/0`, `unix:///path`, `redis+cluster://a,b` or
    /// `redis+sentinel://a,b/mymaster`. `gateway` tells this gateway from all others of the site, and from itself before a
    /// restart.
    ///
    /// # Errors
    /// The address is none, or a certificate is none.
    pub fn new(address: &str, trust: &Trust, site: &str, gateway: &str) -> Result<Self, AddressError> {
        let address = Address::parse(address, trust)?;
        Ok(Self { address, known: Known::default(), site: site.into(), gateway: gateway.into() })
    }

    /// Opens a connection with the server that has the data of the site now.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub async fn connect(&self, answer_timeout: Duration) -> Result<Connection, Error> {
        self.connect_at(&self.prefix(), answer_timeout).await
    }

    /// Opens a connection for leases whose keys begin so.
    async fn connect_at(&self, prefix: &str, answer_timeout: Duration) -> Result<Connection, Error> {
        let channels = [format!("{prefix}:to:{}", self.gateway), format!("{prefix}:all")];
        self.connect_to(answer_timeout, prefix, &channels).await
    }

    /// Opens a connection on which notices come when a value has changed that the gateways have in common.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub async fn connect_shared(&self, answer_timeout: Duration) -> Result<Connection, Error> {
        let prefix = self.prefix();
        self.connect_to(answer_timeout, &prefix, &[format!("{prefix}:shared")]).await
    }

    /// Opens a connection for the leases of a line that several gateways of the site send through. They are apart from those
    /// of the site's slots.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub async fn connect_line(&self, line: &str, answer_timeout: Duration) -> Result<Connection, Error> {
        self.connect_at(&format!("{}:line:{line}", self.prefix()), answer_timeout).await
    }

    /// The name of this gateway.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    fn prefix(&self) -> String {
        format!("serpent:{{{}}}", self.site)
    }

    async fn connect_to(
        &self,
        answer_timeout: Duration,
        prefix: &str,
        channels: &[String],
    ) -> Result<Connection, Error> {
        let notices = Notices::default();
        let tell = notices.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(answer_timeout))
            .set_push_sender(move |push: PushInfo| {
                if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                    tell.0.notify_one();
                }
                Ok::<_, redis::aio::SendError>(())
            });
        let keys = ["gateways", "sums", "ends", "denied"].map(|key| format!("{prefix}:{key}"));
        let server = discovery::server(&self.address, &self.known, &keys[0]).await?;
        // Notices come on the same connection as answers, which the older protocol does not have.
        let settings = server.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        let client = Client::open(server.set_redis_settings(settings))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(channels).await?;
        let Server { process, is_replica } = discovery::ask(&mut connection).await?;
        if is_replica {
            return Err(Error::Unknown("the server that is named as the master is a replica"));
        }
        Ok(Connection { connection, keys, gateway: self.gateway.clone(), notices, process })
    }
}

impl Connection {
    /// Asks for slots.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn ask(
        &mut self,
        lease: Duration,
        ask: &Ask,
        cells: &[CellSettings],
        names: &[CellName],
    ) -> Result<Reply, Error> {
        let ask = encode(ask, self.process, cells, names);
        let lease_us = lease.as_micros().to_string();
        let answer = self.call(ASK, &[&self.gateway.clone(), &lease_us, &ask]).await?;
        decode(&answer).ok_or(Error::Answer)
    }

    /// Says how many requests this gateway has let in since its last call, under limits that all gateways have together.
    /// Returns for each how many the others have let in since then.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn spend(&mut self, spent: &[Spent]) -> Result<Vec<u64>, Error> {
        let numbers: Vec<_> =
            spent.iter().map(|it| (it.requests.to_string(), it.keep.as_millis().to_string())).collect();
        let gateway = self.gateway.clone();
        let mut arguments = vec![&*gateway];
        for (it, (requests, keep_ms)) in spent.iter().zip(&numbers) {
            arguments.extend([&*it.of, requests, keep_ms]);
        }
        let keys = [self.key("spent")];
        let answer = self.call_with(SPEND, &keys, &arguments).await?;
        counts(&answer).filter(|counts| counts.len() == spent.len()).ok_or(Error::Answer)
    }

    /// Says how many requests of clients are under way here, under a limit that all gateways have together, which counts for a
    /// time. Returns how many are at the others.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn under_way(
        &mut self,
        limit: &str,
        keep: Duration,
        here: &[(String, u32)],
    ) -> Result<Vec<(String, u64)>, Error> {
        let (gateway, keep_ms) = (self.gateway.clone(), keep.as_millis().to_string());
        let numbers: Vec<_> = here.iter().map(|(_, count)| count.to_string()).collect();
        let mut arguments = vec![&*gateway, &keep_ms];
        for ((client, _), count) in here.iter().zip(&numbers) {
            arguments.extend([&**client, count]);
        }
        let answer = self.call_with(UNDER_WAY, &[self.key("under") + ":" + limit], &arguments).await?;
        decode_under_way(&answer).ok_or(Error::Answer)
    }

    /// Tells what has changed here of the values that all gateways have in common, and hears what has changed elsewhere.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn share(&mut self, ask: &SharedAsk) -> Result<SharedReply, Error> {
        let (gateway, words) = (self.gateway.clone(), words(ask));
        let arguments: Vec<&str> = std::iter::once(&*gateway).chain(words.iter().map(|word| &**word)).collect();
        let answer = self.call_with(SHARE, &[self.key("shared")], &arguments).await?;
        decode_shared(&answer).ok_or(Error::Answer)
    }

    /// Says something of this gateway, which counts for a time; an empty text takes it back. Returns what all gateways say
    /// if that is wanted: their names, how long ago, and their texts.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn see(
        &mut self,
        text: &str,
        keep: Duration,
        all: bool,
    ) -> Result<Vec<(String, Duration, String)>, Error> {
        let (gateway, keep_ms) = (self.gateway.clone(), keep.as_millis().to_string());
        let arguments = [&*gateway, text, &keep_ms, if all { "1" } else { "0" }];
        let answer = self.call_with(SEE, &[self.key("seen")], &arguments).await?;
        decode_seen(&answer).ok_or(Error::Answer)
    }

    fn key(&self, name: &str) -> String {
        self.keys[0].replace(":gateways", &format!(":{name}"))
    }

    /// Tells the store that this gateway ends, so that others have its slots at once.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn leave(&mut self) -> Result<(), Error> {
        self.call(LEAVE, &[&self.gateway.clone()]).await.map(drop)
    }

    /// The notices that come on this connection.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }

    pub(crate) async fn call(&mut self, function: &str, arguments: &[&str]) -> Result<Value, Error> {
        let keys = self.keys.clone();
        self.call_with(function, &keys, arguments).await
    }

    async fn call_with(&mut self, function: &str, keys: &[String], arguments: &[&str]) -> Result<Value, Error> {
        match self.call_once(function, keys, arguments).await {
            Err(error) if is_missing(&error) => {
                // The store is new, or was emptied. If another gateway has just put it there, this changes nothing.
                let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(LIBRARY).clone();
                let _: Value = load.query_async(&mut self.connection).await?;
                Ok(self.call_once(function, keys, arguments).await?)
            }
            answer => Ok(answer?),
        }
    }

    async fn call_once(&mut self, function: &str, keys: &[String], arguments: &[&str]) -> Result<Value, RedisError> {
        redis::cmd("FCALL")
            .arg(function)
            .arg(keys.len())
            .arg(keys)
            .arg(arguments)
            .query_async(&mut self.connection)
            .await
    }
}

impl Notices {
    /// Waits for the next notice. One that came before is not lost.
    pub async fn notified(&self) {
        self.0.notified().await;
    }
}

/// Whether the function is not there. The store has no code of its own for that.
fn is_missing(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("unction not found"))
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Store").field("site", &self.site).field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
