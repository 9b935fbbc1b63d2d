//! A worker thread's connections to one server: idle HTTP/1.1 connections and shared HTTP/2 connections.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bodies::Timer;
use parking_lot::Mutex;
use proxy_protocol::Ends;
use tokio::time::Instant;

use crate::{
    connect::{Offer, Transport, connect, preface},
    error::{Failure, UpstreamError, Wait},
    group::Group,
    outgoing::Outgoing,
    server::{Connected, Protocol, Server},
    wire::Wire,
};

/// Flow-control window of one HTTP/2 stream: bytes under way or unread.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection. It lets as many streams be unread as servers commonly allow, without
/// stalling the others.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;

/// The connections of a worker thread to a server.
pub(crate) struct ServerPool {
    pub(crate) server: Arc<Server>,
    /// Most idle connections.
    keep: usize,
    keep_for: Duration,
    /// Idle HTTP/1.1 connections, the last used at the back. A request takes the one at the back, so the
    /// front one was last needed when as many were in use at once. It is closed when it has been idle for
    /// `keep_for`.
    idle: Mutex<VecDeque<Box<Http1>>>,
    /// Shared HTTP/2 connections.
    shared: Mutex<Vec<Arc<Http2>>>,
    /// Held while a connection is made that other requests may share.
    connecting: tokio::sync::Mutex<()>,
    /// The pools of all worker threads, this one included.
    registry: Arc<PoolRegistry>,
}

/// The pools of all worker threads, by server: to borrow from when a server's limit of connections is reached.
#[derive(Debug, Default)]
pub(crate) struct PoolRegistry(Mutex<HashMap<u64, Vec<Weak<ServerPool>>>>);

impl PoolRegistry {
    fn add(&self, pool: &Arc<ServerPool>) {
        let exists = |pools: &Vec<Weak<ServerPool>>| pools.iter().any(|pool| pool.strong_count() > 0);
        let mut all = self.0.lock();
        if !all.contains_key(&pool.server.id) {
            // A new server: servers that are gone leave.
            all.retain(|_, pools| exists(pools));
        }
        let pools = all.entry(pool.server.id).or_default();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    fn of(&self, server: &Server) -> Vec<Arc<ServerPool>> {
        let all = self.0.lock();
        all.get(&server.id).map_or_else(Vec::new, |pools| pools.iter().filter_map(Weak::upgrade).collect())
    }
}

/// An HTTP/1.1 connection. It carries one exchange at a time and is driven by the task of that exchange.
pub(crate) struct Http1 {
    pub(crate) wire: Wire<Transport, Outgoing>,
    /// A timer for the next exchange.
    pub(crate) timer: Option<Timer>,
    /// Whether it carried a request before.
    pub(crate) used: bool,
    /// The client that the server was told of; see [`Need::ends`].
    ends: Option<Ends>,
    home: Weak<ServerPool>,
    since: Instant,
}

/// An HTTP/2 connection.
pub(crate) struct Http2 {
    pub(crate) sender: http2::Sender,
    /// The client that the server was told of; see [`Need::ends`].
    ends: Option<Ends>,
    streams: AtomicUsize,
    /// Whether it carried a request before.
    pub(crate) used: AtomicBool,
    /// The connection is failing: streams on it may end, but none begins.
    retired: AtomicBool,
    /// When its last stream ended.
    since: Mutex<Instant>,
}

/// A stream slot on an HTTP/2 connection.
pub(crate) struct Stream(pub(crate) Arc<Http2>);

/// A connection for one request.
pub(crate) enum Connection {
    Http1(Box<Http1>),
    Http2(Stream),
}

/// Why there is no connection.
pub(crate) enum NoConnection {
    /// The limit of connections is reached.
    Full,
    Failed(UpstreamError),
}

/// The connection that a request needs, and until when.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// It must be HTTP/1.1, for a change of protocols.
    pub(crate) http1: bool,
    /// It must be HTTP/2, without a word about it before: a call of gRPC to a server whose version is not configured.
    pub(crate) http2: bool,
    /// It must not have carried a request before.
    pub(crate) fresh: bool,
    /// The client's connection, where servers are told of it in a header of the PROXY protocol. No other client's requests
    /// may take the connection.
    pub(crate) ends: Option<Ends>,
    pub(crate) started: Instant,
    pub(crate) end: Option<Instant>,
    /// When the client has no more use for an answer; `end` is no later.
    pub(crate) until: Option<Instant>,
}

impl Need {
    /// Whether a shared connection to a server would do, as far as its protocol is known.
    fn may_share(&self, server: &Server) -> bool {
        self.http2 || !self.http1 && server.protocol() != Protocol::Http1
    }
}

impl ServerPool {
    pub(crate) fn new(server: Arc<Server>, keep: usize, keep_for: Duration, registry: Arc<PoolRegistry>) -> Arc<Self> {
        let pool = Arc::new(Self {
            server,
            keep,
            keep_for,
            idle: Mutex::new(VecDeque::new()),
            shared: Mutex::new(Vec::new()),
            connecting: tokio::sync::Mutex::new(()),
            registry,
        });
        pool.registry.add(&pool);
        pool
    }

    /// Gives an existing connection or a new one.
    pub(crate) async fn connection(self: &Arc<Self>, group: &Group, need: Need) -> Result<Connection, NoConnection> {
        if let Some(connection) = self.ready(need) {
            return Ok(connection);
        }
        let until = Instant::now() + group.config.connect_timeout;
        let until = need.end.map_or(until, |end| end.min(until));
        // A request that may share a connection waits for the one being made.
        let mut first = None;
        if need.ends.is_none() && need.may_share(&self.server) {
            match tokio::time::timeout_at(until, self.connecting.lock()).await {
                Ok(lock) => first = Some(lock),
                Err(_) => return Err(self.too_late(need, until)),
            }
            if let Some(connection) = self.ready(need) {
                return Ok(connection);
            }
        }
        let most = group.config.most_connections.map(std::num::NonZeroU32::get);
        let mut connected = Connected::new(&self.server, most);
        if connected.is_none() {
            // A connection closed by the server may not be noticed yet, and one being closed may be gone in a
            // moment.
            self.tidy(Instant::now());
            tokio::task::yield_now().await;
            connected = Connected::new(&self.server, most);
        }
        if connected.is_none()
            && let Some(borrowed) = self.borrowed(need)
        {
            return Ok(borrowed);
        }
        if connected.is_none() && group.config.proxy_protocol.is_some() {
            // Idle connections are those of other clients.
            self.registry.of(&self.server).iter().any(|pool| pool.close_one());
            tokio::task::yield_now().await;
            connected = Connected::new(&self.server, most);
        }
        let Some(connected) = connected else { return Err(NoConnection::Full) };
        if first.is_some() && !need.may_share(&self.server) {
            // The server speaks HTTP/1.1 only, so there is nothing to share.
            first = None;
        }
        // Boxed, because this future is large and seldom needed.
        let made = Box::pin(self.make(group, need, until, connected)).await;
        drop(first);
        made
    }

    fn ready(&self, need: Need) -> Option<Connection> {
        if need.may_share(&self.server)
            && let Some(stream) = self.stream(need.ends)
        {
            return Some(Connection::Http2(stream));
        }
        if need.fresh || need.http2 { None } else { self.take_idle(need.ends).map(Connection::Http1) }
    }

    /// A connection of this thread or another, for when no new one may be made.
    fn borrowed(&self, need: Need) -> Option<Connection> {
        let need = Need { fresh: false, ..need };
        self.ready(need).or_else(|| self.registry.of(&self.server).iter().find_map(|pool| pool.ready(need)))
    }

    fn stream(&self, ends: Option<Ends>) -> Option<Stream> {
        let mut shared = self.shared.lock();
        if shared.is_empty() {
            return None;
        }
        shared.retain(|connection| !connection.is_over());
        let free = shared
            .iter()
            .filter(|connection| connection.ends == ends)
            .find(|connection| connection.streams.load(Relaxed) < connection.sender.most_streams().max(1))?;
        Some(Stream::new(free))
    }

    fn take_idle(&self, ends: Option<Ends>) -> Option<Box<Http1>> {
        loop {
            let mut idle = self.idle.lock();
            // Where servers are not told of clients, that is the last one.
            let at = idle.iter().rposition(|connection| connection.ends == ends)?;
            let mut connection = idle.remove(at)?;
            drop(idle);
            if !connection.is_over() {
                return Some(connection);
            }
        }
    }

    /// Closes an idle connection, the oldest one first. Returns whether there was any.
    fn close_one(&self) -> bool {
        let idle = self.idle.lock().pop_front();
        if idle.is_some() {
            return true;
        }
        let mut shared = self.shared.lock();
        let at = shared.iter().position(|connection| connection.streams.load(Relaxed) == 0);
        at.map(|at| shared.swap_remove(at)).is_some()
    }

    async fn make(
        self: &Arc<Self>,
        group: &Group,
        need: Need,
        until: Instant,
        connected: Connected,
    ) -> Result<Connection, NoConnection> {
        let server = &self.server;
        let offer = match server.spec.http2 {
            Some(true) => Offer::Http2,
            None if need.http2 => Offer::Http2,
            None if server.spec.tls && !need.http1 => Offer::Any,
            Some(false) | None => Offer::Http1,
        };
        let preface = preface(&group.config, need.ends);
        let connecting = connect(server, group.tls.as_ref(), offer, &preface, Some(connected));
        let failed = |failure| {
            let after = need.started.elapsed();
            NoConnection::Failed(UpstreamError::Failed { server: server.name.clone(), failure, after })
        };
        let (transport, http2) = match tokio::time::timeout_at(until, connecting).await {
            Ok(Ok(made)) => made,
            Ok(Err(failure)) => return Err(server.shortage(failure).map_or_else(failed, NoConnection::Failed)),
            Err(_) => return Err(self.too_late(need, until)),
        };
        if !need.http1 && !need.http2 {
            server.learn(if http2 { Protocol::Http2 } else { Protocol::Http1 });
        }
        if http2 {
            let head_bytes = u32::try_from(group.config.head_bytes).unwrap_or(u32::MAX);
            let (sender, connection) = http2::connect(transport, STREAM_WINDOW, CONNECTION_WINDOW, head_bytes)
                .await
                .map_err(|error| failed(Failure::of(error)))?;
            tokio::spawn(connection);
            let connection = Arc::new(Http2 {
                sender,
                ends: need.ends,
                streams: AtomicUsize::new(0),
                used: AtomicBool::new(false),
                retired: AtomicBool::new(false),
                since: Mutex::new(Instant::now()),
            });
            let stream = Stream::new(&connection);
            self.shared.lock().push(connection);
            Ok(Connection::Http2(stream))
        } else {
            Ok(Connection::Http1(Box::new(Http1 {
                wire: Wire::new(transport, group.config.head_bytes),
                timer: None,
                used: false,
                ends: need.ends,
                home: Arc::downgrade(self),
                since: Instant::now(),
            })))
        }
    }

    fn too_late(&self, need: Need, until: Instant) -> NoConnection {
        if need.until == Some(until) {
            return NoConnection::Failed(UpstreamError::client_gave_up());
        }
        let wait = if need.end == Some(until) { Wait::End } else { Wait::Connection };
        let after = need.started.elapsed();
        NoConnection::Failed(UpstreamError::TimedOut { server: self.server.name.clone(), wait, after })
    }

    /// Closes connections that were idle for too long. Returns whether the server still belongs to its
    /// upstream.
    pub(crate) fn tidy(&self, now: Instant) -> bool {
        let retired = self.server.retired.load(Relaxed);
        let keep_for = if retired { Duration::ZERO } else { self.keep_for };
        let over = |since: Instant| since + keep_for <= now;
        // Each idle connection has to be looked at to find those closed by the server. That is not done under
        // the lock.
        let mut idle = std::mem::take(&mut *self.idle.lock());
        idle.retain_mut(|connection| !over(connection.since) && !connection.is_over());
        let mut newer = self.idle.lock();
        idle.append(&mut newer);
        *newer = idle;
        drop(newer);
        self.shared.lock().retain(|connection| {
            let busy = connection.streams.load(Relaxed) > 0;
            !connection.is_over() && (busy || !over(*connection.since.lock()))
        });
        !retired
    }
}

impl Http1 {
    /// Whether the server has closed the connection or sent unexpected bytes.
    fn is_over(&mut self) -> bool {
        // The first check is cheap and mostly enough.
        !self.wire.transport().is_silent() && self.wire.is_over()
    }

    /// Returns the connection to its pool if it can carry another exchange.
    pub(crate) fn put_back(mut self: Box<Self>) {
        if !self.wire.is_free() {
            return;
        }
        self.used = true;
        self.since = Instant::now();
        let Some(home) = self.home.upgrade() else { return };
        if home.server.retired.load(Relaxed) {
            return;
        }
        if home.keep == 0 {
            return;
        }
        // At most two are closed here, because requests wait for the lock. The next calls or `tidy` close the
        // rest.
        let mut closed = [None, None];
        let mut idle = home.idle.lock();
        for place in &mut closed {
            let over = |oldest: &Http1| oldest.since + home.keep_for <= self.since;
            if idle.len() >= home.keep || idle.front().is_some_and(|oldest| over(oldest)) {
                *place = idle.pop_front();
            }
        }
        idle.push_back(self);
        drop(idle);
        drop(closed);
    }
}

impl Http2 {
    fn is_over(&self) -> bool {
        self.retired.load(Relaxed) || self.sender.is_over()
    }

    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }
}

impl Stream {
    fn new(connection: &Arc<Http2>) -> Self {
        connection.streams.fetch_add(1, Relaxed);
        Self(connection.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.0.streams.fetch_sub(1, Relaxed) == 1 {
            *self.0.since.lock() = Instant::now();
        }
    }
}

impl fmt::Debug for ServerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPool").field("server", &self.server.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1(_) => "Http1",
            Self::Http2(_) => "Http2",
        })
    }
}
