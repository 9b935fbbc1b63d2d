//! HTTP on one connection: what is let in, which protocol it speaks, and what answers it.

mod answer;
mod exchange;
mod framing;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod head;
mod intake;
mod interim;
mod pools;
mod presence;
mod target;
mod tunnel;

use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{StatusCode, Version};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    body::ClientBody,
    config::Limits,
    gate::Flow,
    metrics::WorkerMetrics,
    serve::{Live, Shared},
    tls::ClientCertificate,
    uplink::ClassAt,
    upstream::{ClientAddress, Upgraded},
};
use exchange::Exchange;
use head::HeadLimits;
pub(crate) use intake::Protocol;
use intake::{Intake, Patience};
use interim::Interims;
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

/// As much of a refused request as the log shows.
const MAX_REFUSED_LINE_BYTES: usize = 256;

/// What HTTP needs to know of the limits, made once for all connections of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct HttpSettings {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    head: HeadLimits,
    patience: Patience,
}

impl HttpSettings {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            // A client that has sent its requests and closed its side still gets the answers.
            .half_close(true)
            // The intake keeps this time, and answers 408.
            .header_read_timeout(None)
            // The intake hands over whole heads within the limit, so hyper's own limits only must not be smaller.
            .max_buf_size(limits.request_head_bytes.saturating_add(16 * 1024));
        if limits.request_headers > 100 {
            http1.max_headers(limits.request_headers);
        }
        let mut http2 = http2::Builder::new(TokioExecutor::new());
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
            http1,
            http2,
            head: HeadLimits {
                head_bytes: limits.request_head_bytes,
                fields: limits.request_headers,
                body_bytes: limits.request_body_bytes,
            },
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
    /// The status of the refused request, or 0.
    refused: AtomicU16,
    /// What it began with, for the log.
    refused_line: Mutex<Box<[u8]>>,
    /// Requests under way.
    in_flight: AtomicU32,
    /// Requests that have ended.
    ended: AtomicU64,
    /// When the last response ended, in milliseconds after the connection's start.
    last_end_ms: AtomicU64,
    /// The other side of the connection after an upgrade, and whose it is.
    tunnel: Mutex<Option<(Upgraded, ClassAt)>>,
    /// Who waits for a request to end.
    waits: Mutex<Option<Waker>>,
    /// What goes to the client before a response.
    interims: Interims,
    started: Instant,
}

impl Marks {
    fn new(drain: Arc<Drain>) -> Self {
        Self {
            drain,
            refused: AtomicU16::new(0),
            refused_line: Mutex::default(),
            in_flight: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            last_end_ms: AtomicU64::new(0),
            tunnel: Mutex::default(),
            waits: Mutex::default(),
            interims: Interims::default(),
            started: Instant::now(),
        }
    }

    fn refuse(&self, status: StatusCode, head: &[u8]) {
        let line = head.trim_ascii_start();
        let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len()).min(MAX_REFUSED_LINE_BYTES);
        *self.refused_line.lock() = line[..end].trim_ascii_end().into();
        self.refused.store(status.as_u16(), Relaxed);
    }

    /// The status noted for the refused request; 400 where nothing was noted.
    fn refused(&self) -> StatusCode {
        StatusCode::from_u16(self.refused.load(Relaxed)).unwrap_or(StatusCode::BAD_REQUEST)
    }

    fn refused_line(&self) -> Box<[u8]> {
        self.refused_line.lock().clone()
    }

    fn closing(&self) -> bool {
        self.drain.flag.load(Relaxed)
    }

    fn begin_request(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    fn end_request(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.started).as_millis();
        self.last_end_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
        self.in_flight.fetch_sub(1, Relaxed);
        self.ended.fetch_add(1, SeqCst);
        if let Some(waker) = self.waits.lock().take() {
            waker.wake();
        }
    }

    /// Ready when so many requests have ended.
    fn poll_ended(&self, cx: &mut Context<'_>, requests: u64) -> Poll<()> {
        if self.ended.load(SeqCst) >= requests {
            return Poll::Ready(());
        }
        *self.waits.lock() = Some(cx.waker().clone());
        if self.ended.load(SeqCst) >= requests { Poll::Ready(()) } else { Poll::Pending }
    }

    /// From the end of the response under way on, the connection leads there.
    fn tunnel(&self, upgraded: Upgraded, class: ClassAt) {
        *self.tunnel.lock() = Some((upgraded, class));
    }

    fn take_tunnel(&self) -> Option<(Upgraded, ClassAt)> {
        self.tunnel.lock().take()
    }

    /// Since when nothing is under way.
    fn idle_since(&self) -> Option<Instant> {
        (self.in_flight.load(Relaxed) == 0)
            .then(|| self.started + Duration::from_millis(self.last_end_ms.load(Relaxed)))
    }
}

/// A request under way, from its head to the end of its response; or to the reset of its stream, whichever comes first.
struct InFlight(Arc<Marks>);

impl InFlight {
    fn begin(marks: Arc<Marks>) -> Self {
        marks.begin_request();
        Self(marks)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.end_request(Instant::now());
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

    /// A request's body, whose time is kept: in HTTP/1 by the intake.
    fn client_body(&self, body: Incoming, version: Version, live: &Live) -> ClientBody {
        ClientBody::new(body, (version == Version::HTTP_2).then_some(live.limits.head_timeout))
    }
}

/// Serves a connection to its end. `protocol` is what ALPN agreed on; without it the first bytes tell.
pub(crate) async fn serve<S>(stream: S, protocol: Option<Protocol>, connection: Connection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let live = connection.shared.live.load_full();
    let settings = &live.http;
    let marks = connection.marks.clone();
    let mut intake = Intake::new(stream, settings.head, settings.patience, marks.clone());
    // A task's waker stays the same, so one registration lasts for the connection's life; who is woken looks at the mark.
    let mut drained = pin!(marks.drain.begun());
    let mut watched = false;
    let mut watch = |cx: &mut Context<'_>| {
        if !watched {
            watched = true;
            let _ = drained.as_mut().poll(cx);
        }
    };

    let protocol = match protocol {
        Some(Protocol::Http2) => {
            intake.pass_http2();
            Protocol::Http2
        }
        _ => match std::future::poll_fn(|cx| {
            watch(cx);
            intake.poll_protocol(cx)
        })
        .await
        {
            Ok(Some(protocol)) => protocol,
            Ok(None) | Err(_) => return intake.close(false).await,
        },
    };
    match protocol {
        Protocol::Http1 => {
            let settings_idle = settings.patience.idle;
            let (shared, flow) = (connection.shared.clone(), connection.flow.clone());
            let mut http = settings.http1.serve_connection(TokioIo::new(intake), Exchange::new(connection));
            drop(live);
            let result = std::future::poll_fn(|cx| {
                watch(cx);
                http.poll_without_shutdown(cx)
            })
            .await;
            let parts = http.into_parts();
            if let Some((upgraded, class)) = marks.take_tunnel() {
                let client = tunnel::Client::new(parts.io.into_inner(), parts.read_buf, flow, class);
                // What comes after HTTP/1 is in a box, so that an idle connection is not as large as it.
                return Box::pin(tunnel::run(client, upgraded, &shared.stopping, settings_idle)).await;
            }
            let unread = result.is_err() || !parts.read_buf.is_empty();
            Box::pin(parts.io.into_inner().close(unread)).await;
        }
        Protocol::Http2 => {
            let idle_timeout = settings.patience.idle;
            let http = settings.http2.serve_connection(TokioIo::new(intake), Exchange::new(connection));
            drop(live);
            let mut http = Box::pin(http);
            let mut idle = pin!(sleep_until(Instant::now() + idle_timeout));
            let mut ending = false;
            let _ = std::future::poll_fn(|cx| {
                watch(cx);
                if !ending && marks.closing() {
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
        }
    }
}
