//! Listening sockets, and the connections accepted from them.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Listen,
    connection_limit::{ConnectionLimit, ConnectionPermit},
    metrics::WorkerMetrics,
    uplink::Uplink,
};

/// Most connections that wait to be accepted. The kernel lowers it to `net.core.somaxconn` (4096 by default),
/// so that the operator sets it in one place, as with most servers.
const BACKLOG: i32 = 65_535;
/// Pause after an error that accepting again does not cure immediately (no descriptors, no memory).
const BACKOFF: Duration = Duration::from_millis(100);

/// Binds an address once for each worker. Several sockets share a port where the kernel spreads connections
/// over them (Linux); elsewhere the workers share one socket.
///
/// Inherited sockets of the address are taken in place of new ones. There may be more of them than workers: each has
/// connections in its queue.
pub(crate) fn bind(
    listen: &Listen,
    all: &[Listen],
    workers: usize,
    uplink: &Uplink,
    inherited: &mut Vec<StdTcpListener>,
) -> io::Result<Vec<StdTcpListener>> {
    let mut taken = inherited_of(listen.address, inherited);
    if !taken.is_empty() {
        for socket in &taken {
            prepare(&SockRef::from(socket), uplink)?;
        }
        for number in taken.len()..workers {
            taken.push(taken[number % taken.len()].try_clone()?);
        }
        return Ok(taken);
    }
    // If an IPv4 socket has the same port, the IPv6 wildcard must not accept IPv4.
    let only_v6 = all.iter().any(|other| {
        other.address.is_ipv4() && other.address.ip().is_unspecified() && other.address.port() == listen.address.port()
    });
    let share_port = cfg!(target_os = "linux") && workers > 1;
    if share_port && listen.address.port() != 0 {
        // With SO_REUSEPORT a second server on the same address would silently take half of the connections.
        open(listen.address, only_v6, false)?;
    }
    let first = listening(listen.address, only_v6, share_port, uplink)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(match share_port {
            true => listening(address, only_v6, true, uplink)?,
            false => sockets[0].try_clone()?,
        });
    }
    Ok(sockets)
}

fn listening(address: SocketAddr, only_v6: bool, share_port: bool, uplink: &Uplink) -> io::Result<StdTcpListener> {
    let socket = open(address, only_v6, share_port)?;
    prepare(&socket, uplink)?;
    Ok(socket.into())
}

/// Takes the sockets of an address out of those that are inherited.
pub(crate) fn inherited_of(address: SocketAddr, inherited: &mut Vec<StdTcpListener>) -> Vec<StdTcpListener> {
    inherited.extract_if(.., |socket| socket.local_addr().is_ok_and(|local| local == address)).collect()
}

fn prepare(socket: &Socket, uplink: &Uplink) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit the option on Linux, which saves a call each; `Connections` sets it on other
    // systems.
    socket.set_tcp_nodelay(true)?;
    uplink.prepare_listener(socket);
    socket.listen(BACKLOG)
}

fn open(address: SocketAddr, only_v6: bool, share_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(only_v6)?;
    }
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuse_port(share_port)?;
    let _ = share_port;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The connections of one listening socket on one worker.
pub(crate) struct Connections {
    pub(crate) socket: StdTcpListener,
    pub(crate) drain: CancellationToken,
    /// Whether TLS is used; a reload can change it.
    pub(crate) tls: Arc<AtomicBool>,
}

/// An accepted connection and its permit. Connections accepted while the server stops have none.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    /// The client's address, or that of a proxy before this server.
    pub(crate) peer: SocketAddr,
    /// The address of the proxy that has said which client it stands for (PROXY protocol).
    pub(crate) proxy: Option<SocketAddr>,
    /// The address of the listener; `None` where that stands for several. Behind such a proxy the one that the client
    /// connected to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) tls: bool,
    /// The limit of unsent bytes that the socket has from its listener.
    pub(crate) unsent_limit_bytes: Option<u32>,
    pub(crate) permit: Option<ConnectionPermit>,
}

impl Connections {
    /// Passes every connection to `serve` until the drain begins. Then it passes those that the kernel has
    /// completed already, so that closing the socket resets none.
    pub(crate) async fn accept(
        self,
        limit: &Arc<ConnectionLimit>,
        metrics: &WorkerMetrics,
        mut serve: impl FnMut(Accepted),
    ) {
        let Self { socket, drain, tls } = self;
        let listener = match TcpListener::from_std(socket) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a listening socket cannot be polled"),
        };
        // Without an answer there is no limit.
        let unsent_limit_bytes = kernel::socket::notsent_lowat(&listener).ok().flatten();
        let local = listener.local_addr().ok().filter(|address| !address.ip().is_unspecified());
        let accepted = |stream, peer, permit| {
            let stream = prepared(stream);
            Accepted { stream, peer, proxy: None, local, tls: tls.load(Relaxed), unsent_limit_bytes, permit }
        };
        let mut failing = false;
        let mut ended = pin!(drain.cancelled());
        // Checked each time: under a constant stream of connections, a wait for the drain would never be
        // polled.
        while !drain.is_cancelled() {
            let permit = match limit.try_take() {
                Some(permit) => permit,
                None => {
                    metrics.accept_pauses.fetch_add(1, Relaxed);
                    tokio::select! {
                        biased;
                        () = &mut ended => break,
                        permit = limit.take() => permit,
                    }
                }
            };
            let next = tokio::select! {
                biased;
                next = listener.accept() => next,
                () = &mut ended => break,
            };
            match next {
                Ok((stream, peer)) => {
                    failing = false;
                    metrics.accepted.fetch_add(1, Relaxed);
                    serve(accepted(stream, peer, Some(permit)));
                }
                Err(error) => {
                    metrics.accept_errors.fetch_add(1, Relaxed);
                    if is_of_one_connection(&error) {
                        continue;
                    }
                    if !failing {
                        tracing::error!(%error, "connections cannot be accepted; raise the limit on open files?");
                        failing = true;
                    }
                    tokio::select! {
                        () = &mut ended => break,
                        () = tokio::time::sleep(BACKOFF) => {}
                    }
                }
            }
        }
        // tokio's readiness may be outdated, so the kernel is asked until it has no more connections.
        let Ok(listener) = listener.into_std() else { return };
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    metrics.accepted.fetch_add(1, Relaxed);
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    if let Ok(stream) = stream {
                        serve(accepted(stream, peer, None));
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn prepared(stream: TcpStream) -> TcpStream {
    if cfg!(not(target_os = "linux")) {
        // Fails only if the connection is gone already.
        let _ = stream.set_nodelay(true);
    }
    stream
}

/// Whether an error concerns the accepted connection, not accepting itself.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused | Kind::Interrupted
    ) || cfg!(target_os = "linux")
        && matches!(
            error.kind(),
            // On Linux, accept(2) returns pending network errors of the new connection.
            Kind::NetworkDown | Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::TimedOut
        )
}
