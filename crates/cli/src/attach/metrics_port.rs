//! The port at which `serpent attach --follow` answers Prometheus.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::{Mutex, Semaphore},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::failure::Failure;

/// Most connections at once: one or two scrapers, and people. Others wait in the kernel.
const CONNECTIONS: usize = 8;
/// Longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 8192;

/// A bound port.
pub struct MetricsPort {
    address: SocketAddr,
    socket: StdTcpListener,
}

impl MetricsPort {
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let bind = || {
            let socket = StdTcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            Ok(Self { address: socket.local_addr()?, socket })
        };
        bind().map_err(|error: io::Error| Failure::Run(format!("--metrics-listen {address}: {error}")))
    }

    /// The address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers with the counters of a device, on a thread of its own, until the process ends.
    pub fn answer(self, device: String) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Run(format!("--metrics-listen {}: {error}", self.address));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(self.socket).map_err(failed)?
        };
        let run = move || runtime.block_on(accept(listener, Arc::new(Mutex::new(device))));
        thread::Builder::new().name("metrics".into()).spawn(run).map(drop).map_err(failed)
    }
}

async fn accept(listener: TcpListener, device: Arc<Mutex<String>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await;
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                // No descriptor is free, as a rule; one will be.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let device = device.clone();
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(|request| async { Ok::<_, Infallible>(answer(&device, request).await) }),
                );
            // An error of a scraper's connection concerns only the scraper.
            let _ = timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

/// One request at a time looks at the device, because a look takes a quarter of a second.
async fn answer(device: &Mutex<String>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let device = device.lock().await;
            let name = device.clone();
            match spawn_blocking(move || attach::show(&name)).await {
                Ok(Ok(shown)) => (StatusCode::OK, shown.prometheus()),
                Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            }
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "not found: /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
