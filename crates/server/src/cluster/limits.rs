//! Limits that several gateways have together.

use std::{
    cmp::Reverse,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use cluster::{Connection, Error, Spent, Store};
use limits::{HEARD_FOR, Limiter, Who};
use tokio::time::timeout;

use super::ANSWER_TIMEOUT;
use crate::state::{ConfigSnapshot, ServerState};

/// Time between two exchanges about limits: so much later a gateway hears what others let in.
const SHARED_EVERY: Duration = Duration::from_millis(100);
/// Most clients that others are told of at once, those with the most requests.
const MOST_TOLD: usize = 1000;

/// A report to other gateways about a client under a limit.
struct Report {
    of: Arc<Limiter>,
    who: Who,
    is_bytes: bool,
    spent: Spent,
}

/// Tells other gateways which requests were let in under limits, which are under way and how many bytes were sent, and
/// counts theirs, forever. Does nothing without a store. While the store does not answer, each gateway has the whole
/// limit.
pub(crate) async fn share_limits(state: Arc<ServerState>) {
    let Some(store) = state.cluster.as_ref().map(|cluster| &cluster.store) else { return std::future::pending().await };
    let mut connection = None;
    loop {
        tokio::time::sleep(SHARED_EVERY).await;
        let snapshot = state.snapshot.load_full();
        let told = spent(&snapshot);
        let under_way = under_way(&snapshot);
        if told.is_empty() && under_way.is_empty() {
            continue;
        }
        match timeout(ANSWER_TIMEOUT, share(store, &mut connection, &snapshot.names, &told, &under_way)).await {
            Ok(Ok(())) => {
                let requests = told.iter().filter(|it| !it.is_bytes).map(|it| it.spent.requests).sum();
                state.metrics.limit_requests_told.fetch_add(requests, Relaxed);
            }
            // The task that holds the leases tells of it.
            Ok(Err(_)) | Err(_) => connection = None,
        }
    }
}

/// Requests and bytes since the last call.
fn spent(snapshot: &ConfigSnapshot) -> Vec<Report> {
    let mut told = Vec::new();
    for (limit, limiter) in &snapshot.shared_limits {
        let requests = limiter.take_spent().into_iter().map(|(who, requests)| (who, u64::from(requests)));
        let requests = limiter.fills_in().map(|keep| ("", false, keep, requests.collect()));
        let bytes = limiter.bytes_fill_in().map(|keep| ("bytes ", true, keep, limiter.take_spent_bytes()));
        for (kind, is_bytes, keep, of_clients) in requests.into_iter().chain(bytes) {
            let mut of_clients: Vec<(Who, u64)> = of_clients;
            // A flood from many addresses must not keep the store from dividing slots.
            of_clients.sort_unstable_by_key(|&(_, count)| Reverse(count));
            of_clients.truncate(MOST_TOLD.saturating_sub(told.len()));
            told.extend(of_clients.into_iter().map(|(who, requests)| {
                let of = format!("{kind}{limit:016x}:{}", name(who, &snapshot.names));
                // Other gateways would miss an entry that is kept for less than some exchanges.
                let keep = keep.max(10 * SHARED_EVERY);
                Report { of: limiter.clone(), who, is_bytes, spent: Spent { of, requests, keep } }
            }));
        }
    }
    told
}

type RequestsUnderWay = Vec<(u64, Arc<Limiter>, Vec<(String, u32)>)>;

/// Requests that are under way, by limit.
fn under_way(snapshot: &ConfigSnapshot) -> RequestsUnderWay {
    let of = |(limit, limiter): &(u64, Arc<Limiter>)| {
        let counts = limiter.tell_at_once(MOST_TOLD)?;
        let named = counts.into_iter().map(|(who, count)| (name(who, &snapshot.names), count));
        Some((*limit, limiter.clone(), named.collect()))
    };
    snapshot.shared_limits.iter().filter_map(of).collect()
}

async fn share(
    store: &Store,
    connection: &mut Option<Connection>,
    classes: &[Arc<str>],
    told: &[Report],
    under_way: &RequestsUnderWay,
) -> Result<(), Error> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(store.connect_shared(ANSWER_TIMEOUT).await?),
    };
    if !told.is_empty() {
        let spent: Vec<Spent> = told.iter().map(|it| it.spent.clone()).collect();
        let others = connection.spend(&spent).await?;
        let now = Instant::now();
        for (it, count) in told.iter().zip(others).filter(|(_, count)| *count > 0) {
            match it.is_bytes {
                true => it.of.spend_bytes(it.who, count, now),
                false => it.of.spend(it.who, u32::try_from(count).unwrap_or(u32::MAX), now),
            }
        }
    }
    for (limit, limiter, here) in under_way {
        let others = connection.under_way(&format!("{limit:016x}"), HEARD_FOR, here).await?;
        let read =
            |(name, count): (String, u64)| Some((who(&name, classes)?, u32::try_from(count).unwrap_or(u32::MAX)));
        limiter.hear_at_once(others.into_iter().filter_map(read), Instant::now());
    }
    Ok(())
}

/// The name of a client, the same at all gateways.
fn name(client: Who, classes: &[Arc<str>]) -> String {
    match client {
        Who::Address(address) => address.to_string(),
        Who::Key(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        Who::Class(class) => format!("class {}", classes.get(usize::from(class)).map_or("", |name| name)),
        Who::All => "all".to_owned(),
        Who::Hash(hash) => format!("{hash:016x}"),
    }
}

/// The client with a name that [`name`] has given it at another gateway.
fn who(name: &str, classes: &[Arc<str>]) -> Option<Who> {
    if name == "all" {
        return Some(Who::All);
    }
    if let Some(class) = name.strip_prefix("class ") {
        let at = classes.iter().position(|known| **known == *class)?;
        return Some(Who::Class(u16::try_from(at).ok()?));
    }
    if let Ok(address) = name.parse() {
        return Some(Who::Address(address));
    }
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.len() {
        16 if digits(name) => u64::from_str_radix(name, 16).ok().map(Who::Hash),
        64 if digits(name) => {
            let mut key = [0; 32];
            for (byte, pair) in key.iter_mut().zip(name.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            Some(Who::Key(key))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_their_names_at_all_gateways() {
        let classes: Vec<Arc<str>> = ["gold", "plain"].map(Arc::from).to_vec();
        let addresses = ["192.0.2.1", "2001:db8::"].map(|text| Who::Address(text.parse().unwrap()));
        let others = [Who::All, Who::Class(1), Who::Hash(7), Who::Hash(u64::MAX), Who::Key([0xab; 32])];
        for client in addresses.into_iter().chain(others) {
            assert_eq!(who(&name(client, &classes), &classes), Some(client));
        }
        for unknown in ["", "class silver", "x", "00000000000000g0", "192.0.2"] {
            assert_eq!(who(unknown, &classes), None, "{unknown}");
        }
    }
}
