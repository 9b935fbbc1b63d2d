//! Connections of proxies that say for which client they stand (PROXY protocol).

use std::{io, net::IpAddr, sync::atomic::Ordering::Relaxed, time::Duration};

use ipnet::IpNet;
use proxy_protocol::{Header, MOST_BYTES, Malformed, Progress};
use tokio::{
    io::ReadBuf,
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{listener::Accepted, metrics::WorkerMetrics, state::ServerState};

/// Time between two messages about refused connections. They are counted, too.
const SELDOM: Duration = Duration::from_secs(10);

/// Whether a connection from this address has to begin with a header.
pub(crate) fn is_proxy(proxies: &[IpNet], peer: IpAddr) -> bool {
    // A socket of both families writes addresses of IPv4 as IPv6.
    !proxies.is_empty() && proxies.iter().any(|network| network.contains(&peer.to_canonical()))
}

/// The connection as that of the client that its header names; `None`: it is refused, and is closed.
pub(crate) async fn of_client(
    state: &ServerState,
    metrics: &WorkerMetrics,
    accepted: Accepted,
    limit: Duration,
) -> Option<Accepted> {
    let why = match timeout(limit, read(&accepted.stream)).await {
        Ok(Ok(Header::Local)) => return Some(accepted),
        Ok(Ok(Header::Proxied(ends))) => {
            let proxy = Some(accepted.peer);
            return Some(Accepted { peer: ends.source, local: Some(ends.destination), proxy, ..accepted });
        }
        Ok(Err(Refused::Malformed(why))) => why.to_string(),
        Ok(Err(Refused::Broken(error))) => format!("it ended within its PROXY header: {error}"),
        // A check of health that only connects.
        Ok(Err(Refused::Silent)) => return None,
        Err(_) => format!("its PROXY header was not complete after {limit:?} (limits.handshake-timeout)"),
    };
    metrics.proxy_headers_refused.fetch_add(1, Relaxed);
    if is_due(&mut state.told_of_proxy_headers.lock(), Instant::now()) {
        tracing::warn!(
            proxy = %accepted.peer,
            "a connection from a network of `proxy-protocol` is refused: {why}; let the proxy send the header, or take its \
             address out of `proxy-protocol`"
        );
    }
    None
}

/// Why a connection is refused.
enum Refused {
    Malformed(Malformed),
    Broken(io::Error),
    /// It ended without a byte.
    Silent,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Takes the header off the connection, and no byte of the client. Bytes are looked at first, and taken when they certainly
/// belong to the header.
async fn read(stream: &TcpStream) -> Result<Header, Refused> {
    let mut bytes = [0; MOST_BYTES];
    let mut taken = 0;
    loop {
        let mut ahead = ReadBuf::new(&mut bytes[taken..]);
        let seen = taken + std::future::poll_fn(|cx| stream.poll_peek(cx, &mut ahead)).await?;
        if seen == taken {
            return Err(if taken == 0 {
                Refused::Silent
            } else {
                io::Error::from(io::ErrorKind::UnexpectedEof).into()
            });
        }
        match proxy_protocol::read(&bytes[..seen]).map_err(Refused::Malformed)? {
            Progress::Incomplete => taken += take(stream, &mut bytes[taken..seen])?,
            Progress::Complete(header, len) => {
                while taken < len {
                    taken += take(stream, &mut bytes[taken..len])?;
                }
                return Ok(header);
            }
        }
    }
}

/// Takes bytes that are there.
fn take(stream: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    match stream.try_read(bytes)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        taken => Ok(taken),
    }
}

/// Whether enough time has passed for another message.
fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.saturating_duration_since(last) >= SELDOM);
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proxy_protocol::{Ends, Version};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        near.set_nodelay(true).unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn networks_hold_for_addresses_of_both_families() {
        let proxies = ["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        for (address, expected) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("2001:db8::1", true), ("11.0.0.1", false), ("::1", false)]
        {
            assert_eq!(is_proxy(&proxies, address.parse().unwrap()), expected, "{address}");
        }
        assert!(!is_proxy(&[], [10, 0, 0, 1].into()));
    }

    #[test]
    fn messages_are_rare() {
        let (mut last, start) = (None, Instant::now());
        let at = [0, 1, 9, 10, 11, 19, 20].map(|s| is_due(&mut last, start + Duration::from_secs(s)));
        assert_eq!(at, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn an_end_within_a_header_is_an_error_and_one_before_it_is_none() {
        run(async {
            let (mut client, server) = pair().await;
            client.write_all(b"PROXY TCP4 ").await.unwrap();
            drop(client);
            assert!(
                matches!(read(&server).await, Err(Refused::Broken(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
            );
            let (client, server) = pair().await;
            drop(client);
            assert!(matches!(read(&server).await, Err(Refused::Silent)));
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_byte_of_the_client_is_lost_or_doubled(
            v2 in any::<bool>(),
            behind in prop::collection::vec(any::<u8>(), 0..5_000),
            mut cuts in prop::collection::vec(0_usize..300, 0..4),
        ) {
            run(async move {
                let (mut client, mut server) = pair().await;
                let source = "192.0.2.7:1234".parse().unwrap();
                let ends = Ends { source, destination: "198.51.100.1:443".parse().unwrap() };
                let mut bytes = Vec::new();
                proxy_protocol::write(if v2 { Version::V2 } else { Version::V1 }, Some(ends), &mut bytes);
                bytes.extend_from_slice(&behind);
                cuts.sort_unstable();
                let writing = async {
                    let mut from = 0;
                    for cut in cuts {
                        let to = cut.min(bytes.len());
                        client.write_all(&bytes[from..to]).await.unwrap();
                        from = to;
                        tokio::task::yield_now().await;
                    }
                    client.write_all(&bytes[from..]).await.unwrap();
                    client.shutdown().await.unwrap();
                };
                let reading = async {
                    let header = read(&server).await.ok().expect("a header");
                    assert_eq!(header, Header::Proxied(ends));
                    let mut rest = Vec::new();
                    server.read_to_end(&mut rest).await.unwrap();
                    assert_eq!(rest, behind);
                };
                tokio::join!(writing, reading);
            });
        }
    }
}
