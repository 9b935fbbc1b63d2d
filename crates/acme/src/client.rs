//! Requests to the authority: a connection each, with TLS and HTTP/1.1. An authority is asked a dozen times in two months,
//! so no connection is worth keeping.

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::error::AcmeError;

/// From the look-up of the name to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer: a chain of certificates is a few kilobytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;
const HTTPS_PORT: u16 = 443;

/// Carries requests to one authority.
#[derive(Clone)]
pub(crate) struct Client {
    tls: Arc<ClientConfig>,
    /// How long the authority wants to be left alone, in seconds; 0: it has not said.
    patience_s: Arc<AtomicU64>,
}

impl Client {
    /// Trusts the authorities in a file, or those of the system. Blocks.
    pub(crate) fn new(roots: Option<&Path>) -> Result<Self, AcmeError> {
        let mut store = RootCertStore::empty();
        let place = roots.unwrap_or(Path::new("the authorities of this system"));
        let wrong = |message: String| AcmeError::File(place.to_owned(), message);
        let found = match roots {
            Some(path) => CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| wrong(error.to_string()))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let (added, _) = store.add_parsable_certificates(found);
        if added == 0 {
            return Err(wrong("there is none: install ca-certificates, or name a file".to_owned()));
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls), patience_s: Arc::default() })
    }

    /// How long the authority wants to be left alone, if it has said so since this was last asked.
    pub(crate) fn take_patience(&self) -> Option<u64> {
        Some(self.patience_s.swap(0, Relaxed)).filter(|patience| *patience > 0)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let told = |error: io::Error| Error::Other(format!("{host}: {error}").into());
            let exchanged = timeout(TIMEOUT, exchange(client.tls, request)).await;
            let response = exchanged.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(told)?;
            let status = response.status();
            if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
                && let Some(patience) = retry_after(&response)
            {
                client.patience_s.store(patience, Relaxed);
            }
            if (status.is_client_error() || status.is_server_error()) && !is_json(&response) {
                return Err(told(io::Error::other(format!("it answers {status}"))));
            }
            let (parts, body) = response.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

async fn exchange(tls: Arc<ClientConfig>, request: Request<BodyWrapper<Bytes>>) -> io::Result<Response<Bytes>> {
    let (mut parts, body) = request.into_parts();
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not an address with https://");
    let authority = parts.uri.authority().cloned().ok_or_else(invalid)?;
    if parts.uri.scheme_str() != Some("https") {
        return Err(invalid());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(HTTPS_PORT))).await?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    parts.uri = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into();
    parts.headers.insert(header::HOST, HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?);

    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(Request::from_parts(parts, body)).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(io::Error::other)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    let answer = answer.await;
    // Dropped in time, the sender ends it as well.
    connection.abort();
    answer
}

fn retry_after(response: &Response<Bytes>) -> Option<u64> {
    response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn is_json(response: &Response<Bytes>) -> bool {
    let value = response.headers().get(header::CONTENT_TYPE);
    value.and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains("json"))
}
