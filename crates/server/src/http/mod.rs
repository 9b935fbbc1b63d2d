//! HTTP on one connection: what is let in, which protocol it speaks, and what answers it.

mod answer;
mod exchange;
mod farewell;
mod flood;
mod framed;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod http1;
mod pools;
mod presence;
mod target;
mod tunnel;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    path::Path,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use ::http1::HeadLimits;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    body::{self, Arriving, ClientBody},
    config::Limits,
    gate::{Flow, StreamExecutor},
    metrics::WorkerMetrics,
    serve::{Live, Shared},
    tls::ClientCertificate,
    uplink::ClassAt,
    upstream::{ClientAddress, Upgraded},
};
use exchange::Exchange;
use framed::Framed;
pub(crate) use http1::Protocol;
use http1::{Interims, Patience, Session};
pub(crate) use pools::WorkerPools;
use presence::SpareTimer;

/// Bytes that hyper may hold of an HTTP/2 stream's response beyond what the gate has let through. Its default of 400 KB
/// would take a large response out of the scheduler's hands.
const HTTP2_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// Streams a client may reset before we have looked at them (CVE-2023-44487), and resets it may provoke (CVE-2025-8671),
/// before its connection is closed. h2's own defaults are 20 and 1024.
const HTTP2_PENDING_RESETS: usize = 20;
const HTTP2_PROVOKED_RESETS: usize = 256;
/// Windows for what clients send us: small request bodies, which are thrown away.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// How long an HTTP/2 client may take to close a connection that it was asked to leave and on which nothing is under way.
const HTTP2_GOODBYE: Duration = Duration::from_secs(2);

/// What HTTP needs to know of the limits, made once for all connections of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    http2: http2::Builder<StreamExecutor>,
    head: HeadLimits,
    patience: Patience,
}

impl HttpSettings {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut http2 = http2::Builder::new(StreamExecutor);
        http2
            .timer(TokioTimer::new())
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(u32::try_from(limits.request_head_bytes).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS)
            .max_local_error_reset_streams(HTTP2_PROVOKED_RESETS)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            // Finds clients that vanished; an idle one that answers is closed by `idle_timeout`.
            .keep_alive_interval(limits.idle_timeout.max(Duration::from_secs(1)))
            .keep_alive_timeout(limits.head_timeout.max(Duration::from_secs(1)));
        Self {
            http2,
            head: HeadLimits { head_bytes: limits.request_head_bytes, fields: limits.request_headers },
            patience: Patience { head: limits.head_timeout, idle: limits.idle_timeout },
        }
    }
}

/// A set of connections that are asked to end together: those of one listener on one worker, or tunnels.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    flag: AtomicBool,
    notify: Notify,
}

impl Drain {
    /// Asks the connections to end after the responses under way.
    pub(crate) fn begin(&self) {
        self.flag.store(true, SeqCst);
        self.notify.notify_waiters();
    }

    /// Whether the connections were asked to end.
    pub(crate) fn has_begun(&self) -> bool {
        self.flag.load(SeqCst)
    }

    /// Waits for the request to end.
    pub(crate) async fn begun(&self) {
        let mut notified = pin!(self.notify.notified());
        // Registered before the flag is looked at, so that no request is missed.
        notified.as_mut().enable();
        if !self.has_begun() {
            notified.await;
        }
    }
}

/// What the parts of a connection tell each other.
#[derive(Debug)]
pub(crate) struct Marks {
    drain: Arc<Drain>,
    /// HTTP/2: requests under way.
    in_flight: AtomicU32,
    /// HTTP/2: when the last response ended, in milliseconds after the connection's start.
    last_end_ms: AtomicU64,
    /// The other side of the connection after an upgrade, and whose it is.
    tunnel: Mutex<Option<(Box<Upgraded>, ClassAt)>>,
    /// HTTP/1: what goes to the client before a response.
    interims: Interims,
    started: Instant,
}

impl Marks {
    fn new(drain: Arc<Drain>) -> Self {
        Self {
            drain,
            in_flight: AtomicU32::new(0),
            last_end_ms: AtomicU64::new(0),
            tunnel: Mutex::default(),
            interims: Interims::default(),
            started: Instant::now(),
        }
    }

    fn closing(&self) -> bool {
        self.drain.flag.load(Relaxed)
    }

    /// From the end of the response under way on, the connection leads there.
    fn tunnel(&self, upgraded: Box<Upgraded>, class: ClassAt) {
        *self.tunnel.lock() = Some((upgraded, class));
    }

    fn take_tunnel(&self) -> Option<(Box<Upgraded>, ClassAt)> {
        self.tunnel.lock().take()
    }

    /// Since when nothing is under way.
    fn idle_since(&self) -> Option<Instant> {
        (self.in_flight.load(Relaxed) == 0)
            .then(|| self.started + Duration::from_millis(self.last_end_ms.load(Relaxed)))
    }
}

/// A request of HTTP/2 under way, from its head to the end of its response; or to the reset of its stream, whichever comes first.
struct InFlight(Arc<Marks>);

impl InFlight {
    fn begin(marks: Arc<Marks>) -> Self {
        marks.in_flight.fetch_add(1, Relaxed);
        Self(marks)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let ms = self.0.started.elapsed().as_millis();
        self.0.last_end_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A connection, as its requests see it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    metrics: Arc<WorkerMetrics>,
    flow: Flow,
    marks: Arc<Marks>,
    pools: Arc<WorkerPools>,
    peer: SocketAddr,
    local: SocketAddr,
    tls: Option<TlsFacts>,
    spare_timer: SpareTimer,
    /// The peer's address, written out when it was first needed.
    client_address: OnceLock<ClientAddress>,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The client's, or that of what stands before it.
    pub(crate) peer: SocketAddr,
    /// Ours.
    pub(crate) local: SocketAddr,
}

/// What the handshake told.
#[derive(Debug)]
pub(crate) struct TlsFacts {
    /// The name the client asked for, in lower case.
    pub(crate) server_name: Option<Box<str>>,
    /// The client's certificate, where it was asked for one and has shown one that was found good.
    pub(crate) client: Option<ClientCertificate>,
}

impl TlsFacts {
    /// The names of the client's certificate, if the authorities that vouch for it are those that a site trusts
    /// ([`crate::sites::Sites::client_ca`]).
    pub(crate) fn client_names(&self, trusted: Option<&Path>) -> Option<&[Box<str>]> {
        self.client.as_ref().filter(|client| trusted == Some(&*client.authorities)).map(|client| &*client.names)
    }
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        metrics: Arc<WorkerMetrics>,
        pools: Arc<WorkerPools>,
        flow: Flow,
        drain: Arc<Drain>,
        ends: Ends,
        tls: Option<TlsFacts>,
    ) -> Self {
        let Ends { peer, local } = ends;
        let spare_timer = SpareTimer::default();
        let marks = Arc::new(Marks::new(drain));
        Self { shared, metrics, flow, marks, pools, peer, local, tls, spare_timer, client_address: OnceLock::new() }
    }

    fn client_address(&self) -> &ClientAddress {
        self.client_address.get_or_init(|| self.peer.ip().into())
    }

    /// A request's body, whose time is kept.
    fn client_body(&self, body: Arriving, live: &Live) -> ClientBody {
        let (time, bytes_per_second) = (live.limits.head_timeout, live.limits.request_body_rate);
        ClientBody::new(body, Some(body::Patience::Rate { time, bytes_per_second }))
    }
}

/// Serves a connection to its end. `protocol` is what ALPN agreed on; without it the first bytes tell.
pub(crate) async fn serve<S>(stream: S, protocol: Option<Protocol>, connection: Connection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let live = connection.shared.live.load_full();
    let marks = connection.marks.clone();
    // A task's waker stays the same, so one registration lasts for the connection's life; who is woken looks at the mark.
    let mut drained = pin!(marks.drain.begun());
    poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx).is_ready())).await;
    if protocol == Some(Protocol::Http2) {
        return serve_http2(stream, Bytes::new(), live, connection).await;
    }
    let HttpSettings { head, patience, .. } = live.http;
    let mut session = Session::new(stream, head, patience, marks.drain.clone());
    match poll_fn(|cx| session.poll_protocol(cx)).await {
        Some(Protocol::Http1) => drop(live),
        Some(Protocol::Http2) => {
            let (stream, early) = session.into_parts();
            return serve_http2(stream, early, live, connection).await;
        }
        None => return poll_fn(|cx| session.poll_close(cx)).await,
    }

    let (shared, flow) = (connection.shared.clone(), connection.flow.clone());
    let exchange = Exchange::new(connection);
    let answer = |request, body| exchange.begin(request, Arriving::from(body));
    session.serve(&marks.interims, answer, |refused| exchange.refuse(refused)).await;
    drop(exchange);
    match marks.take_tunnel() {
        Some((upgraded, class)) => {
            let (stream, early) = session.into_parts();
            let client = tunnel::Client::new(stream, early, flow, class);
            // What comes after HTTP/1 is in a box, so that an idle connection is not as large as it.
            Box::pin(tunnel::run(client, *upgraded, &shared.stopping, patience.idle)).await;
        }
        None => poll_fn(|cx| session.poll_close(cx)).await,
    }
}

/// To the end of the connection, of which `early` was read already.
fn serve_http2<S>(
    stream: S,
    early: Bytes,
    live: Arc<Live>,
    connection: Connection,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (marks, metrics, flow) = (connection.marks.clone(), connection.metrics.clone(), connection.flow.clone());
    let exchange = Exchange::new(connection);
    let answer = move |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        exchange.begin(Box::new(parts), Arriving::from(body))
    };
    drive_http2(Framed::new(stream, early, metrics), &live.http, marks, move || flow.gave_up(), answer)
}

/// Has each request answered. `gave_up`: whether the client takes nothing of a response. In a box, so that a connection of HTTP/1 is not as large.
fn drive_http2<S, F, B>(
    stream: Framed<S>,
    settings: &HttpSettings,
    marks: Arc<Marks>,
    gave_up: impl Fn() -> bool + Send + Sync + 'static,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = io::Error> + Send + 'static,
{
    let idle_timeout = settings.patience.idle;
    let answer = service_fn(move |request| {
        let respond = answer(request);
        async move { Ok::<_, Infallible>(respond.await) }
    });
    let http = settings.http2.serve_connection(TokioIo::new(stream), answer);
    Box::pin(async move {
        let mut http = pin!(http);
        let mut idle = pin!(sleep_until(Instant::now() + idle_timeout));
        let mut ending = false;
        let _ = poll_fn(|cx| {
            // Of a client that takes nothing of its last response no next request is waited for.
            if !ending && (marks.closing() || gave_up() && marks.idle_since().is_some()) {
                ending = true;
                idle.as_mut().reset(Instant::now() + HTTP2_GOODBYE);
                http.as_mut().graceful_shutdown();
            }
            while idle.as_mut().poll(cx).is_ready() {
                let patience = if ending { HTTP2_GOODBYE } else { idle_timeout };
                let now = Instant::now();
                let due = marks.idle_since().unwrap_or(now) + patience;
                if due > now {
                    idle.as_mut().reset(due);
                } else if ending {
                    return Poll::Ready(Ok(()));
                } else {
                    ending = true;
                    idle.as_mut().reset(now + HTTP2_GOODBYE);
                    http.as_mut().graceful_shutdown();
                }
            }
            http.as_mut().poll(cx)
        })
        .await;
    })
}
