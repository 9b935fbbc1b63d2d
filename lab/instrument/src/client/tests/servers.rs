//! Small scripted servers on the loopback network, each with its own threads.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, SocketAddrV4, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use bytes::Bytes;
use rcgen::{Certificate, CertificateParams, KeyPair};
use rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Builder,
};
use tokio_rustls::TlsAcceptor;

use crate::docroot::Content;

/// Size of every file.
pub(super) const SIZE: u64 = 100_000;

/// A request as the script of [`http1`] sees it.
pub(super) struct Asked {
    pub(super) file: u32,
    /// Its source address.
    pub(super) from: SocketAddr,
    /// Largest segment that TCP sends there, in bytes.
    pub(super) mss_bytes: u32,
    /// Header lines as received.
    pub(super) lines: Vec<String>,
}

pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Serves each connection with `script`, which returns `true` to continue with the next request.
pub(super) fn http1(
    tls: Option<Arc<ServerConfig>>,
    script: impl Fn(&mut dyn Stream, &Asked) -> bool + Send + Sync + 'static,
) -> SocketAddrV4 {
    let (listener, address) = listen();
    let script = Arc::new(script);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            let from = connection.peer_addr().unwrap();
            let mss_bytes = socket2::SockRef::from(&connection).tcp_mss().unwrap();
            let (script, tls) = (Arc::clone(&script), tls.clone());
            thread::spawn(move || {
                let stream: Box<dyn Stream> = match tls {
                    None => Box::new(connection),
                    Some(config) => {
                        Box::new(rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), connection))
                    }
                };
                let mut reader = BufReader::new(stream);
                while let Some((file, lines)) = read_request(&mut reader)
                    && script(reader.get_mut(), &Asked { file, from, mss_bytes, lines })
                {}
            });
        }
    });
    address
}

fn read_request(reader: &mut impl BufRead) -> Option<(u32, Vec<String>)> {
    let mut lines = reader.lines().map_while(Result::ok);
    let file = lines.next()?.strip_prefix("GET /")?[..6].parse().ok()?;
    Some((file, lines.take_while(|line| !line.is_empty()).collect()))
}

/// Sends a head that announces [`SIZE`], and `body_bytes` of the file.
pub(super) fn answer(stream: &mut dyn Stream, file: u32, body_bytes: u64) {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(&body(file, body_bytes));
    // The client may be gone.
    let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
}

fn body(file: u32, body_bytes: u64) -> Vec<u8> {
    let content = Content::new();
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < body_bytes {
        let at = bytes.len() as u64;
        bytes.extend_from_slice(content.piece(file, at, body_bytes - at));
    }
    bytes
}

/// Response of an HTTP/2 server to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// This many bytes of this file, where [`SIZE`] was announced.
    Body(u32, u64),
    /// This many bytes of this file, as announced.
    Of(u32, u64),
    /// Another status.
    Status(u16),
    /// A head without a length.
    NoLength,
    /// No response.
    Silence,
    /// `REFUSED_STREAM`.
    Refuse,
    /// Closes the connection.
    Close,
}

/// Observations of an HTTP/2 server.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) connections: AtomicUsize,
    pub(super) under_way: AtomicUsize,
    pub(super) most_under_way: AtomicUsize,
    /// Streams that the client reset.
    pub(super) resets: AtomicUsize,
}

/// Serves each request by `script`, which gets its file and its number on the connection, from 1. At most
/// `most_streams` run at a time.
pub(super) fn http2(
    tls: Option<Arc<ServerConfig>>,
    most_streams: u32,
    script: impl Fn(u32, usize) -> Reply + Copy + Send + 'static,
) -> (SocketAddrV4, Arc<Seen>) {
    let (listener, address) = listen();
    listener.set_nonblocking(true).unwrap();
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                all.connections.fetch_add(1, Ordering::Relaxed);
                let (seen, tls) = (Arc::clone(&all), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(connection, most_streams, script, seen).await,
                        Some(config) => {
                            if let Ok(stream) = TlsAcceptor::from(config).accept(connection).await {
                                serve(stream, most_streams, script, seen).await;
                            }
                        }
                    }
                });
            }
        });
    });
    (address, seen)
}

async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    most_streams: u32,
    script: impl Fn(u32, usize) -> Reply,
    seen: Arc<Seen>,
) {
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) =
        builder.max_concurrent_streams(most_streams).max_send_buffer_size(1 << 20).handshake::<_, Bytes>(io).await
    else {
        return;
    };
    let mut number = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        number += 1;
        let file = request.uri().path()[1..7].parse().unwrap();
        let mut head = http::Response::new(());
        head.headers_mut().insert("content-length", SIZE.into());
        let reply = script(file, number);
        let body = match reply {
            Reply::Close => return,
            Reply::Refuse => {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                continue;
            }
            Reply::Body(file, bytes) => Some(body(file, bytes)),
            Reply::Of(file, bytes) => {
                head.headers_mut().insert("content-length", bytes.into());
                Some(body(file, bytes))
            }
            Reply::Status(status) => {
                *head.status_mut() = http::StatusCode::from_u16(status).unwrap();
                Some(body(file, SIZE))
            }
            Reply::NoLength => {
                head.headers_mut().clear();
                Some(body(file, SIZE))
            }
            Reply::Silence => None,
        };
        let seen = Arc::clone(&seen);
        let now = seen.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most_under_way.fetch_max(now, Ordering::Relaxed);
        tokio::spawn(async move {
            if let Some(body) = body {
                if let Ok(mut stream) = respond.send_response(head, false) {
                    let _ = stream.send_data(body.into(), true);
                }
            } else if std::future::poll_fn(|context| respond.poll_reset(context)).await.is_ok() {
                seen.resets.fetch_add(1, Ordering::Relaxed);
            }
            seen.under_way.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// A server's TLS settings with its own certificate and these protocols, and that certificate in DER.
pub(super) fn tls(protocols: &[&str]) -> (Arc<ServerConfig>, Vec<u8>) {
    let (certificate, key) = certificate();
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    (Arc::new(config), certificate.der().to_vec())
}

/// A certificate and its key.
pub(super) fn certificate() -> (Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["lab.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate, key)
}

fn listen() -> (TcpListener, SocketAddrV4) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!("bound to IPv4") };
    (listener, address)
}
