//! The state of a connection, which its parts share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use limits::Permit;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{body::Timer, http::http1::interim::Interims, uplink::ClassAt, upstream::Upgraded};

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Cancelled when the connection has to end after the responses under way.
    pub(crate) drain: CancellationToken,
    /// HTTP/1: interim responses on their way to the client.
    pub(crate) interims: Interims,
    /// HTTP/2: requests under way.
    in_flight: AtomicU32,
    /// HTTP/2: when the last response ended, in milliseconds after the connection's start.
    last_end_ms: AtomicU64,
    tunnel: Mutex<Option<Box<Tunnel>>>,
    /// The timer that tells whether a request's client is still there, kept for the next request. Most requests are over
    /// before it fires, so it is seldom set anew.
    pub(crate) spare_timer: Mutex<Option<Timer>>,
    started: Instant,
}

/// A connection after an upgrade.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// The other side.
    pub(crate) upgraded: Box<Upgraded>,
    /// The class that it counts for.
    pub(crate) class: ClassAt,
    /// The places of its request in limits on requests at once, held until the tunnel ends.
    pub(crate) permits: Vec<Permit>,
    /// How long nothing may move; `None`: as long as the client's connection may be idle.
    pub(crate) idle: Option<Duration>,
}

impl ConnectionState {
    pub(crate) fn new(drain: CancellationToken) -> Self {
        Self {
            drain,
            interims: Interims::default(),
            in_flight: AtomicU32::new(0),
            last_end_ms: AtomicU64::new(0),
            tunnel: Mutex::default(),
            spare_timer: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Whether the connection has to end after the responses under way.
    pub(crate) fn is_closing(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Makes the connection a tunnel once the response under way has ended.
    pub(crate) fn tunnel(&self, tunnel: Tunnel) {
        *self.tunnel.lock() = Some(Box::new(tunnel));
    }

    pub(crate) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.lock().take()
    }

    /// HTTP/2: since when no request is under way.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.in_flight.load(Relaxed) == 0)
            .then(|| self.started + Duration::from_millis(self.last_end_ms.load(Relaxed)))
    }
}

/// A request of HTTP/2 under way: from its head to the end of its response, or to the reset of its stream.
pub(crate) struct InFlight(Arc<ConnectionState>);

impl InFlight {
    pub(crate) fn begin(state: Arc<ConnectionState>) -> Self {
        state.in_flight.fetch_add(1, Relaxed);
        Self(state)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let ms = self.0.started.elapsed().as_millis();
        self.0.last_end_ms.store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
