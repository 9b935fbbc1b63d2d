//! The connection with the store.

use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use scheduler::lease::{Ask, CellSettings, Reply};
use tokio::sync::Notify;

use crate::message::{CellName, counts, decode, encode};

/// The function that divides the windows of a site.
const LIBRARY: &str = include_str!("site.lua");
const ASK: &str = "serpent_1_ask";
const LEAVE: &str = "serpent_1_leave";
const SPEND: &str = "serpent_1_spend";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a store, and the site whose gateways share it.
#[derive(Clone)]
pub struct Store {
    client: Client,
    site: Arc<str>,
    gateway: Arc<str>,
}

/// An open connection with the store. It ends with the first error.
pub struct Connection {
    connection: redis::aio::MultiplexedConnection,
    keys: [String; 4],
    gateway: Arc<str>,
    notices: Notices,
}

/// Requests that a gateway has let in under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The limit and the client, the same at all gateways.
    pub of: String,
    /// How many.
    pub requests: u32,
    /// For how long they are to be remembered.
    pub keep: Duration,
}

/// Notices of the store: an ask is worth its while.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Notify>);

/// An address that is no address of a store.
#[derive(Debug)]
pub struct StoreError(RedisError);

/// Why the store gave no answer.
#[derive(Debug)]
pub enum Error {
    /// It cannot be reached, or the connection has ended.
    Connection(RedisError),
    /// It has answered that it will not: the fault of its operator, or of the account given to us.
    Refused(RedisError),
    /// Its answer has another form. Perhaps another version of the function is there.
    Answer,
}

impl Store {
    /// The store at an address such as `rediss://user:password@host:6379/0`, or `unix:///path`. `gateway` tells this
    /// gateway from all others of the site, and from itself before a restart.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(address: &str, site: &str, gateway: &str) -> Result<Self, StoreError> {
        let info: redis::ConnectionInfo =
            redis::IntoConnectionInfo::into_connection_info(address).map_err(StoreError)?;
        // Notices come on the same connection as answers, which the older protocol does not have.
        let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings)).map_err(StoreError)?;
        Ok(Self { client, site: site.into(), gateway: gateway.into() })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The store cannot be reached or refuses.
    pub async fn connect(&self, answer_timeout: Duration) -> Result<Connection, Error> {
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
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let prefix = format!("serpent:{{{}}}", self.site);
        let channels = [format!("{prefix}:to:{}", self.gateway), format!("{prefix}:all")];
        connection.subscribe(&channels).await?;
        let keys = ["gateways", "sums", "ends", "denied"].map(|key| format!("{prefix}:{key}"));
        Ok(Connection { connection, keys, gateway: self.gateway.clone(), notices })
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
        let ask = encode(ask, cells, names);
        let lease_us = lease.as_micros().to_string();
        let answer = self.call(ASK, &[&self.gateway.clone(), &lease_us, &ask]).await?;
        decode(&answer).ok_or(Error::Answer)
    }

    /// Says how many requests this gateway has let in since its last call, under limits that all gateways have together.
    /// Returns for each how many the others have let in since then.
    ///
    /// # Errors
    /// There is no answer; the connection is of no further use.
    pub async fn spend(&mut self, spent: &[Spent]) -> Result<Vec<u32>, Error> {
        let numbers: Vec<_> =
            spent.iter().map(|it| (it.requests.to_string(), it.keep.as_millis().to_string())).collect();
        let gateway = self.gateway.clone();
        let mut arguments = vec![&*gateway];
        for (it, (requests, keep_ms)) in spent.iter().zip(&numbers) {
            arguments.extend([&*it.of, requests, keep_ms]);
        }
        let keys = [self.keys[0].replace(":gateways", ":spent")];
        let answer = self.call_with(SPEND, &keys, &arguments).await?;
        counts(&answer).filter(|counts| counts.len() == spent.len()).ok_or(Error::Answer)
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

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let refused = matches!(
            error.kind(),
            ErrorKind::AuthenticationFailed
                | ErrorKind::Server(
                    ServerErrorKind::NoPerm | ServerErrorKind::ReadOnly | ServerErrorKind::ResponseError
                )
        );
        if refused { Self::Refused(error) } else { Self::Connection(error) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not the address of a store such as rediss://user:password@host:6379: {}", self.0)
    }
}

impl std::error::Error for StoreError {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "the store cannot be reached: {error}"),
            Self::Refused(error) => write!(
                f,
                "the store refuses: {error} (it has to be Redis 7 or Valkey, writable, and its account may call FCALL, \
                 FUNCTION LOAD and SUBSCRIBE)"
            ),
            Self::Answer => f.write_str("the store's answer has another form: does another version of Serpent use it?"),
        }
    }
}

impl std::error::Error for Error {}

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
