//! Listening sockets, and connections taken from them.

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

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    config::Listen,
    http::Drain,
    metrics::WorkerMetrics,
    places::{Place, Places},
    uplink::Uplink,
};

/// Connections that may wait to be accepted: as many as `net.core.somaxconn` allows (4096, where nobody changed it), to which
/// the kernel lowers it. So the operator has one place to say it, as with most servers.
const BACKLOG: i32 = 65_535;
/// After an error that accepting again will not cure at once (no descriptors, no memory).
const BACKOFF: Duration = Duration::from_millis(100);

/// Binds an address once for each worker. Several sockets share a port where the kernel spreads connections over them
/// (Linux); elsewhere the workers share one socket.
pub(crate) fn bind(
    listen: &Listen,
    all: &[Listen],
    workers: usize,
    uplink: &Uplink,
) -> io::Result<Vec<StdTcpListener>> {
    // With an IPv4 socket of its own beside it, the IPv6 wildcard must leave IPv4 alone.
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
    // Accepted sockets inherit it on Linux, which saves a call for each; `Connections` sees to other systems.
    socket.set_tcp_nodelay(true)?;
    uplink.prepare_listener(&socket)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn open(address: SocketAddr, only_v6: bool, share_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
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
    pub(crate) drain: Arc<Drain>,
    /// Whether TLS is spoken; a reload can change it.
    pub(crate) tls: Arc<AtomicBool>,
}

/// One connection, with its place among those allowed. Those taken when the server stops have none.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) place: Option<Place>,
}

impl Connections {
    /// Hands every connection to `serve` until the drain begins, and then those that the kernel has already completed, so
    /// that none is reset by closing the socket.
    pub(crate) async fn accept(self, places: &Arc<Places>, metrics: &WorkerMetrics, mut serve: impl FnMut(Accepted)) {
        let Self { socket, drain, tls } = self;
        let listener = match TcpListener::from_std(socket) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a listening socket cannot be polled"),
        };
        let mut failing = false;
        let mut ended = pin!(drain.begun());
        // Looked at each time: while connections are always there, waiting for the end would never get its turn.
        while !drain.has_begun() {
            let place = match places.try_take() {
                Some(place) => place,
                None => {
                    metrics.accept_pauses.fetch_add(1, Relaxed);
                    tokio::select! {
                        biased;
                        () = &mut ended => break,
                        place = places.take() => place,
                    }
                }
            };
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = &mut ended => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    metrics.accepted.fetch_add(1, Relaxed);
                    serve(Accepted { stream: prepared(stream), peer, tls: tls.load(Relaxed), place: Some(place) });
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
        // tokio's knowledge of what is readable may be old; the kernel is asked until it has no more.
        let Ok(listener) = listener.into_std() else { return };
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    metrics.accepted.fetch_add(1, Relaxed);
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    if let Ok(stream) = stream {
                        serve(Accepted { stream: prepared(stream), peer, tls: tls.load(Relaxed), place: None });
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
        // Fails only for a connection that is gone already.
        let _ = stream.set_nodelay(true);
    }
    stream
}

/// Errors of the connection that was to be accepted, not of accepting.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused | Kind::Interrupted
    ) || cfg!(target_os = "linux")
        && matches!(
            error.kind(),
            // accept(2) on Linux passes on pending network errors of the new connection.
            Kind::NetworkDown | Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::TimedOut
        )
}
