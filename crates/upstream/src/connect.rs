//! Connections to servers: TCP or Unix sockets, TLS or not.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use proxy_protocol::Ends;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    config::UpstreamConfig,
    error::{Failure, UpstreamSetupError},
    server::{Connected, Endpoint, Server},
};

/// A connection to a server.
pub(crate) struct Transport {
    stream: Stream,
    /// Counts the connection for as long as the socket is open.
    _connected: Option<Connected>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    TlsTcp(Box<TlsStream<TcpStream>>),
    TlsUnix(Box<TlsStream<UnixStream>>),
}

/// The TLS settings of an upstream's servers.
#[derive(Debug)]
pub(crate) struct ClientTls {
    material: Material,
    name: Option<ServerName<'static>>,
    /// HTTP/2 or HTTP/1.1, chosen by the server.
    any: Offering,
    http1: Offering,
    http2: Offering,
}

type Offering = Arc<ClientConfig>;

/// The certificates and keys read from files. If they change, connections made with the old ones are not
/// reused.
#[derive(Debug, PartialEq)]
struct Material {
    roots: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
}

/// The versions of HTTP that are offered by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Any,
    Http1,
    Http2,
}

impl ClientTls {
    /// Reads certificates; `None` where no server of the upstream speaks TLS.
    pub(crate) fn new(config: &UpstreamConfig) -> Result<Option<Self>, UpstreamSetupError> {
        if !config.servers.iter().any(|server| server.tls) {
            return Ok(None);
        }
        let wrong = |message: String| UpstreamSetupError { upstream: config.name.clone(), message };
        let roots = match &config.tls_ca {
            Some(path) => certificates(path).map_err(wrong)?,
            None if config.tls_verify => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
                    return Err(wrong(format!(
                        "this system has no certificate authorities{why}; install them (ca-certificates), or name a file of them"
                    )));
                }
                found.certs
            }
            None => Vec::new(),
        };
        let (chain, key) = match &config.tls_certificate {
            Some(files) => {
                let key = PrivateKeyDer::from_pem_file(&files.key)
                    .map_err(|error| wrong(format!("the key {} cannot be used: {error}", files.key.display())))?;
                (certificates(&files.chain).map_err(wrong)?, Some(key))
            }
            None => (Vec::new(), None),
        };
        let name = match &config.tls_name {
            Some(name) => {
                Some(ServerName::try_from(name.clone()).map_err(|_| wrong(format!("`{name}` is no server name")))?)
            }
            None => None,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?;
        let builder = if config.tls_verify {
            let mut store = RootCertStore::empty();
            let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
            if added == 0 {
                return Err(wrong("none of its certificate authorities can be used".to_owned()));
            }
            builder.with_root_certificates(store)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        };
        let own = match &key {
            Some(key) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| wrong(format!("its own certificate cannot be used: {error}")))?,
            None => builder.with_no_client_auth(),
        };
        let offering = |protocols: &[&[u8]]| {
            let mut config = own.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Some(Self {
            name,
            any: offering(&[b"h2", b"http/1.1"]),
            http1: offering(&[b"http/1.1"]),
            http2: offering(&[b"h2"]),
            material: Material { roots, chain, key },
        }))
    }

    /// Whether both were made from the same certificates.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.material == other.material
    }

    fn connector(&self, offer: Offer) -> TlsConnector {
        TlsConnector::from(match offer {
            Offer::Any => self.any.clone(),
            Offer::Http1 => self.http1.clone(),
            Offer::Http2 => self.http2.clone(),
        })
    }

    fn name(&self, server: &Server) -> io::Result<ServerName<'static>> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let host = server.spec.authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(host.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

fn certificates(path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("{} cannot be used: {error}", path.display()))?;
    if read.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(read) }
}

/// The first bytes of a connection to a server of an upstream: a header of the PROXY protocol, if it gets one. `None`: the
/// connection carries no client's requests.
pub(crate) fn preface(config: &UpstreamConfig, ends: Option<Ends>) -> Vec<u8> {
    let mut header = Vec::new();
    if let Some(version) = config.proxy_protocol {
        proxy_protocol::write(version, ends, &mut header);
    }
    header
}

/// Connects, writes `preface`, and completes the TLS handshake. Also returns whether the connection speaks HTTP/2.
pub(crate) async fn connect(
    server: &Server,
    tls: Option<&ClientTls>,
    offer: Offer,
    preface: &[u8],
    connected: Option<Connected>,
) -> Result<(Transport, bool), Failure> {
    let tls = if server.spec.tls { tls } else { None };
    let encrypt = match tls {
        Some(tls) => Some((tls.connector(offer), tls.name(server).map_err(Failure::Tls)?)),
        None if server.spec.tls => return Err(Failure::Tls(io::Error::other("TLS is not set up"))),
        None => None,
    };
    let mut http2 = offer == Offer::Http2;
    let stream = match &server.endpoint {
        Endpoint::Tcp(address) => {
            let mut stream = TcpStream::connect(address).await.map_err(Failure::Connect)?;
            stream.set_nodelay(true).map_err(Failure::Connect)?;
            stream.write_all(preface).await.map_err(Failure::Connect)?;
            match encrypt {
                Some((connector, name)) => {
                    let stream = connector.connect(name, stream).await.map_err(Failure::Tls)?;
                    http2 |= stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    Stream::TlsTcp(Box::new(stream))
                }
                None => Stream::Tcp(stream),
            }
        }
        Endpoint::Unix(path) => {
            let mut stream = UnixStream::connect(path).await.map_err(Failure::Connect)?;
            stream.write_all(preface).await.map_err(Failure::Connect)?;
            match encrypt {
                Some((connector, name)) => {
                    let stream = connector.connect(name, stream).await.map_err(Failure::Tls)?;
                    http2 |= stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    Stream::TlsUnix(Box::new(stream))
                }
                None => Stream::Unix(stream),
            }
        }
    };
    server.reached();
    Ok((Transport { stream, _connected: connected }, http2))
}

macro_rules! on_stream {
    ($this:expr, $stream:ident => $do:expr) => {
        match &mut $this.stream {
            Stream::Tcp($stream) => $do,
            Stream::Unix($stream) => $do,
            Stream::TlsTcp($stream) => $do,
            Stream::TlsUnix($stream) => $do,
        }
    };
}

impl Transport {
    /// Whether certainly nothing was received, not even an end. The look is cheap and registers no waker.
    pub(crate) fn is_silent(&self) -> bool {
        let looked = match &self.stream {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, || Ok(())),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, || Ok(())),
            // TLS may have read and buffered bytes already, so silence is not certain.
            Stream::TlsTcp(_) | Stream::TlsUnix(_) => return false,
        };
        looked.is_err()
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
            Stream::TlsTcp(stream) => stream.is_write_vectored(),
            Stream::TlsUnix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

/// Accepts any certificate, as the operator configured. The server must still prove that it has the
/// certificate's key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
