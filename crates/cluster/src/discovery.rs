//! Finds the server that has the data of a site: at once, through nodes of a cluster, or through sentinels.
//!
//! All data of a site has one hash slot, so one node of a cluster has it all, and one connection is enough. That node, or
//! the master that sentinels name, is looked up whenever a connection is opened. A connection ends with its first error, so
//! a failover and a slot that moves are noticed by the next message.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, Value, aio::MultiplexedConnection};
use tokio::task::JoinSet;

use crate::{
    address::{Address, Found, place},
    error::Error,
};

/// A node or sentinel that has not answered by then is not waited for. They are asked all at once.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Most nodes of a cluster that are remembered beside those of the address.
const MOST_KNOWN: usize = 16;

/// Nodes of a cluster that other nodes have named.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<Vec<ConnectionInfo>>>);

/// A server, as it says itself.
pub(crate) struct Server {
    /// Changes with each start, and is another one at a replica. 0: not known, because the account may not ask.
    pub process: u64,
    pub is_replica: bool,
}

/// The server that has the data of a site now. `key` is one of its keys.
pub(crate) async fn server(address: &Address, known: &Known, key: &str) -> Result<ConnectionInfo, Error> {
    let mut hosts = address.hosts.to_vec();
    let request = match &address.found {
        Found::There => return Ok(hosts.swap_remove(0)),
        Found::ByCluster => {
            hosts.extend(known.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
            Request::Cluster(key.to_owned())
        }
        Found::BySentinel { master, .. } => Request::Sentinel(master.clone()),
    };
    let mut asked = JoinSet::new();
    for host in hosts {
        let request = request.clone();
        asked.spawn(async move {
            let named = tokio::time::timeout(TIMEOUT, request.send(&host)).await;
            named.unwrap_or(Err(Error::Unknown("no node and no sentinel has answered"))).map(|named| (host, named))
        });
    }
    let mut failed = None;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok((host, named))) => {
                let servers = named.iter().map(|(name, port)| match name.is_empty() {
                    // A node that has no name for itself.
                    true => host.clone(),
                    false => address.server(&host, name, *port),
                });
                let servers: Vec<_> = servers.take(MOST_KNOWN).collect();
                let first = servers[0].clone();
                if matches!(address.found, Found::ByCluster) {
                    *known.0.lock().unwrap_or_else(PoisonError::into_inner) = servers;
                }
                return Ok(first);
            }
            Ok(Err(error)) => failed = Some(error),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or(Error::Unknown("no node and no sentinel has answered")))
}

/// Asks a server what it is.
pub(crate) async fn ask(connection: &mut MultiplexedConnection) -> Result<Server, RedisError> {
    let info: Result<String, RedisError> =
        redis::cmd("INFO").arg("server").arg("replication").query_async(connection).await;
    let info = match info {
        Ok(info) => info,
        // The account may not ask. Then a replica is noticed when it refuses to write.
        Err(error) if error.code() == Some("NOPERM") => String::new(),
        Err(error) => return Err(error),
    };
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let process = value("run_id").map_or(0, |id| {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        // The numbers of the function in the store are exact up to 53 bits.
        hasher.finish() >> 16 | 1
    });
    Ok(Server { process, is_replica: value("role") == Some("slave") })
}

#[derive(Clone)]
enum Request {
    /// Which node has this key?
    Cluster(String),
    /// Where is the master with this name?
    Sentinel(String),
}

impl Request {
    /// The servers that a node or sentinel names, first the one that is looked for; at least one.
    async fn send(&self, host: &ConnectionInfo) -> Result<Vec<(String, u16)>, Error> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let client = Client::open(host.clone())?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (own, _) = place(host.addr());
        match self {
            Self::Cluster(key) => {
                let slot: u16 = command("CLUSTER", &["KEYSLOT", key]).query_async(&mut connection).await?;
                let slots: Value = command("CLUSTER", &["SLOTS"]).query_async(&mut connection).await?;
                nodes(&slots, slot, &own).ok_or(Error::Unknown("no node of the cluster has the slot of the site"))
            }
            Self::Sentinel(master) => {
                let command = command("SENTINEL", &["GET-MASTER-ADDR-BY-NAME", master]);
                let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
                let named = address.ok_or(Error::Unknown("the sentinel does not know a master with this name"))?;
                Ok(vec![named])
            }
        }
    }
}

fn command(name: &str, arguments: &[&str]) -> Cmd {
    redis::cmd(name).arg(arguments).clone()
}

/// The nodes in an answer to `CLUSTER SLOTS`: first the master of a slot, then all others. A node without a name is at
/// `own`.
fn nodes(slots: &Value, slot: u16, own: &str) -> Option<Vec<(String, u16)>> {
    let Value::Array(ranges) = slots else { return None };
    let (mut master, mut all) = (None, Vec::new());
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &range[..] else { return None };
        for (at, node) in nodes.iter().enumerate() {
            let Value::Array(node) = node else { return None };
            let [name, Value::Int(port), ..] = &node[..] else { return None };
            let name = match name {
                Value::BulkString(name) if !name.is_empty() && name != b"?" => {
                    String::from_utf8_lossy(name).into_owned()
                }
                Value::SimpleString(name) => name.clone(),
                _ => own.to_owned(),
            };
            let node = (name, u16::try_from(*port).ok()?);
            if at == 0 && (*first..=*last).contains(&i64::from(slot)) {
                master = Some(node.clone());
            }
            all.push(node);
        }
    }
    let master = master?;
    all.sort();
    all.dedup();
    all.retain(|node| *node != master);
    all.insert(0, master);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_of_a_slot_is_found_and_all_nodes_are_remembered() {
        let node = |name: &str, port| Value::Array(vec![Value::BulkString(name.into()), Value::Int(port), Value::Nil]);
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let slots = Value::Array(vec![
            range(0, 8000, vec![node("a", 1), node("b", 2)]),
            range(8001, 16383, vec![node("", 3), node("a", 1)]),
        ]);
        let host = |name: &str, port| (name.to_owned(), port);
        assert_eq!(nodes(&slots, 8000, "own"), Some(vec![host("a", 1), host("b", 2), host("own", 3)]));
        assert_eq!(nodes(&slots, 8001, "own"), Some(vec![host("own", 3), host("a", 1), host("b", 2)]));
        assert_eq!(nodes(&Value::Array(vec![]), 1, "own"), None);
        assert_eq!(nodes(&Value::Nil, 1, "own"), None);
    }
}
