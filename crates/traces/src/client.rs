//! Requests to the collector: HTTP/1.1 over one connection, with TLS where the address says so.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::config::TracesConfig;

/// From the look-up of the name to the end of the answer, as in the exporters of OpenTelemetry.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer: it has numbers and a message.
const MOST_ANSWER_BYTES: usize = 64 * 1024;
/// Longest time that a collector may ask for.
const LONGEST_PAUSE_S: u64 = 300;

/// Why nothing can be sent to the collector as configured.
#[derive(Debug)]
pub struct OpenError {
    /// The file of authorities; `None`: those of the system.
    pub path: Option<PathBuf>,
    /// The problem with the authorities.
    pub message: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.message),
            None => write!(f, "the authorities of this system: {}", self.message),
        }
    }
}

impl std::error::Error for OpenError {}

/// How a request to the collector ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was taken. The body may say that some spans were not.
    Taken(Bytes),
    /// The same may be sent again, after so long if the collector says so.
    Again(String, Option<Duration>),
    /// The same would be refused again.
    Refused(String),
}

/// Carries requests to one collector.
pub(crate) struct Client {
    config: TracesConfig,
    tls: Option<Arc<ClientConfig>>,
    connection: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// Reads the authorities, where TLS is spoken; blocks.
    pub(crate) fn new(config: &TracesConfig) -> Result<Self, OpenError> {
        let tls = config.endpoint.is_tls().then(|| tls(config)).transpose()?;
        Ok(Self { config: config.clone(), tls, connection: tokio::sync::Mutex::default() })
    }

    /// Sends a request.
    pub(crate) async fn send(&self, body: Bytes) -> Answer {
        match timeout(TIMEOUT, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Again(error.to_string(), None),
            Err(_) => Answer::Again(format!("it has not answered within {TIMEOUT:?}"), None),
        }
    }

    async fn exchange(&self, body: Bytes) -> io::Result<Answer> {
        let mut kept = self.connection.lock().await;
        // Taken out, so that a request that is given up leaves no connection with half of an exchange on it.
        let mut connection = match kept.take().filter(|connection| !connection.is_closed()) {
            // The collector may have closed it just now.
            Some(mut connection) => match connection.send_request(self.request(body.clone())).await {
                Ok(response) => return self.read(response, connection, &mut kept).await,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let response = connection.send_request(self.request(body)).await.map_err(told)?;
        self.read(response, connection, &mut kept).await
    }

    async fn read(
        &self,
        response: http::Response<hyper::body::Incoming>,
        connection: SendRequest<Full<Bytes>>,
        kept: &mut Option<SendRequest<Full<Bytes>>>,
    ) -> io::Result<Answer> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_ANSWER_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
        *kept = Some(connection);
        let says = || format!("it answers {}", head.status);
        Ok(match head.status {
            status if status.is_success() => Answer::Taken(body),
            // OTLP specification, "Retryable Response Codes".
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                let after = head.headers.get(header::RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse().ok());
                Answer::Again(says(), after.map(|seconds: u64| Duration::from_secs(seconds.min(LONGEST_PAUSE_S))))
            }
            _ => Answer::Refused(says()),
        })
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::post(self.config.endpoint.path().clone()).body(Full::new(body));
        let fields = request.as_mut().map(Request::headers_mut).expect("a path was read as one");
        fields.insert(header::USER_AGENT, HeaderValue::from_static(concat!("serpent/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in &self.config.headers {
            fields.insert(name, value.clone());
        }
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if let Ok(host) = HeaderValue::from_str(self.config.endpoint.authority()) {
            fields.insert(header::HOST, host);
        }
        request.expect("it was made above")
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let endpoint = &self.config.endpoint;
        let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(endpoint.host().to_owned()).map_err(io::Error::other)?;
                handshake(TlsConnector::from(tls.clone()).connect(name, stream).await?).await
            }
        }
    }
}

async fn handshake<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    // Ends when the sender is dropped, or the collector closes it; the sender knows the error.
    tokio::spawn(connection);
    Ok(sender)
}

/// hyper names the cause apart from the error.
fn told(error: hyper::Error) -> io::Error {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    io::Error::other(format!("{error}{cause}"))
}

fn tls(config: &TracesConfig) -> Result<Arc<ClientConfig>, OpenError> {
    let wrong = |message: String| OpenError { path: config.ca.clone(), message };
    let found = match &config.ca {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(error.to_string()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(found);
    if added == 0 {
        return Err(wrong("there is none: install ca-certificates, or name a file".to_owned()));
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(tls))
}
