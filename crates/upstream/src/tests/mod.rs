//! Tests with real servers, over loopback and Unix sockets. Where time matters, tokio's paused clock is used,
//! which advances only when no task can run.

mod checked;
mod dns;
mod exchanged;
mod hedged;
mod http2;
mod named;
mod placed;
mod probed;
mod proxied;
mod retried;
mod timed;

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bodies::{RequestBody, Store, StoreLimits};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time::Instant,
};

use super::*;

pub(super) type TestBody = UnsyncBoxBody<Bytes, io::Error>;

pub(super) fn text(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A server, and the number of connections it accepted.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Peer {
    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// A server that speaks HTTP/1.1 and HTTP/2.
    pub(super) async fn http<F, A>(service: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<TestBody>> + Send + 'static,
    {
        Self::raw(move |stream, _| serve(stream, service.clone())).await
    }

    /// A server that runs `each` for every connection, numbered from 0.
    pub(super) async fn raw<F, A>(each: F) -> Self
    where
        F: Fn(TcpStream, usize) -> A + Send + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(each(stream, counted.fetch_add(1, SeqCst)));
            }
        });
        Self { address, connections }
    }

    /// A server that answers each request with its path.
    pub(super) async fn echo_path() -> Self {
        Self::http(|request| async move { Response::new(text(request.uri().path().to_owned())) }).await
    }
}

pub(super) async fn serve<S, F, A>(stream: S, service: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<TestBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = service(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let _ =
        auto::Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

/// A server on a Unix socket. Bytes written there arrive at once, so the paused clock does not advance while
/// they are under way. Over loopback it might.
pub(super) struct Near {
    folder: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl Near {
    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(super) fn at(&self) -> UpstreamServer {
        at_unix(self.path())
    }

    /// A path on which no server listens.
    pub(super) fn dead() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), connections: Arc::new(AtomicUsize::new(0)) }
    }

    pub(super) fn raw<F, A>(each: F) -> Self
    where
        F: Fn(UnixStream, usize) -> A + Send + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let near = Self::dead();
        near.listen(each);
        near
    }

    pub(super) fn listen<F, A>(&self, each: F)
    where
        F: Fn(UnixStream, usize) -> A + Send + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = UnixListener::bind(self.path()).unwrap();
        let counted = self.connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(each(stream, counted.fetch_add(1, SeqCst)));
            }
        });
    }

    pub(super) fn http<F, A>(service: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<TestBody>> + Send + 'static,
    {
        Self::raw(move |stream, _| serve(stream, service.clone()))
    }

    pub(super) fn echo_path() -> Self {
        Self::http(|request| async move { Response::new(text(request.uri().path().to_owned())) })
    }
}

pub(super) fn at(address: SocketAddr) -> UpstreamServer {
    UpstreamServer::new(UpstreamAddress::Socket(address), None, false, address.to_string().parse().unwrap())
}

pub(super) fn at_unix(path: PathBuf) -> UpstreamServer {
    let authority = http::uri::Authority::from_static("localhost");
    UpstreamServer::new(UpstreamAddress::Unix(path), None, false, authority)
}

pub(super) fn http2(server: UpstreamServer) -> UpstreamServer {
    UpstreamServer { http2: Some(true), ..server }
}

pub(super) fn config(servers: Vec<UpstreamServer>) -> UpstreamConfig {
    UpstreamConfig {
        keep_connections: 16,
        keep_for: Duration::from_secs(30),
        head_bytes: 16 * 1024,
        ..UpstreamConfig::new("app", servers)
    }
}

pub(super) fn pools(config: UpstreamConfig) -> (Pools, Arc<Upstreams>) {
    let upstreams = Arc::new(Upstreams::new(&[config], &[]).unwrap());
    (Pools::new(upstreams.clone()), upstreams)
}

pub(super) fn defaults() -> Ask<'static> {
    static CLIENT: LazyLock<ClientAddress> = LazyLock::new(|| IpAddr::from([192, 0, 2, 7]).into());
    Ask {
        upstream: 0,
        class: 0,
        client: &CLIENT,
        client_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        ends: None,
        scheme: "http",
        host: "shop.example",
        keep_host: false,
        believed: None,
        rules: None,
        times: None,
        until: None,
    }
}

pub(super) fn whole(bytes: impl Into<Bytes>) -> RequestBody {
    RequestBody::from_bytes(bytes, &Store::new(StoreLimits::default()))
}

pub(super) fn get(path: &str) -> Request<RequestBody> {
    Request::get(path).body(RequestBody::Empty).unwrap()
}

pub(super) fn post(path: &str, bytes: impl Into<Bytes>) -> Request<RequestBody> {
    Request::post(path).body(whole(bytes)).unwrap()
}

/// Sends a request and reads the answer to its end.
pub(super) async fn asked(pools: &Pools, request: Request<RequestBody>) -> Result<(StatusCode, String), UpstreamError> {
    let answer = pools.send(request, defaults()).await?;
    let status = answer.response.status();
    let body = answer.response.into_body().collect().await.map_err(UpstreamError::of_body)?;
    Ok((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
}

pub(super) async fn reason(pools: &Pools, request: Request<RequestBody>) -> &'static str {
    match asked(pools, request).await {
        Ok((status, body)) => panic!("answered {status}: {body}"),
        Err(error) => error.reason(),
    }
}

pub(super) fn server_stats(upstreams: &Upstreams) -> Vec<ServerStats> {
    upstreams.stats().remove(0).servers
}

/// Lets other tasks run until a condition holds.
pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < limit, "never: {what}");
        tokio::task::yield_now().await;
    }
}

/// Reads a head, and any bytes that came with it.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    let mut buf = [0; 4096];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buf).await {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => read.extend_from_slice(&buf[..bytes]),
        }
    }
    Some(String::from_utf8(read).unwrap())
}

pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &str) {
    stream.write_all(bytes.as_bytes()).await.unwrap();
}
