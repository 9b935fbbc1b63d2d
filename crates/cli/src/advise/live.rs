//! The last responses of a running server, from its admin address.

use std::{fs, path::Path, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use crate::failure::Failure;

/// The server answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of an answer: those of all responses that a server keeps, and some.
const MOST_BYTES: usize = 16 << 20;

/// The report of a running server.
pub struct ServerReport {
    /// Its last responses, as a table that is read like a log.
    pub responses: Bytes,
    /// The rate of its uplink, in bits per second.
    pub rate: Option<u64>,
}

/// Asks the server with this admin address.
pub fn fetch(url: &str, token: Option<&Path>) -> Result<ServerReport, Failure> {
    let address = address(url)?;
    let token = token.map(read_token).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Run(format!("cannot ask {url}: {error}")))?;
    runtime.block_on(async {
        let get = |path| ask(&address, path, token.as_deref());
        let live = get("/api/live?after=1e15").await?;
        let live: Value = serde_json::from_slice(&live).unwrap_or_default();
        if live["version"].is_null() {
            return Err(Failure::Usage(format!(
                "{url} is no admin address of Serpent: set `admin`, and name that address"
            )));
        }
        let rate = live["uplink"]["rate_bits_per_second"].as_u64();
        Ok(ServerReport { responses: get("/api/responses").await?, rate })
    })
}

/// The host and the port of an address such as `http://127.0.0.1:9090/` or `127.0.0.1:9090`.
fn address(url: &str) -> Result<String, Failure> {
    let wrong =
        || Failure::Usage(format!("--admin {url}: give the admin address of the server, as in http://127.0.0.1:9090"));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(Failure::Usage(format!("--admin {url}: the admin address speaks http, without TLS")));
    }
    authority.port_u16().ok_or_else(wrong)?;
    Ok(authority.as_str().to_owned())
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Failure::Usage(format!("--admin-token {}: {error}", path.display())))?;
    Ok(text.trim().to_owned())
}

async fn ask(address: &str, path: &str, token: Option<&str>) -> Result<Bytes, Failure> {
    let failed = |problem: String| Failure::Run(format!("http://{address}{path}: {problem}"));
    let answered = timeout(PATIENCE, async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| failed(format!("{error}; is the server running there, with `admin = \"{address}\"`?")))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        tokio::spawn(connection);
        let mut request = Request::get(path).header(header::HOST, address);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        Ok::<_, Failure>((status, body.map_err(|error| failed(error.to_string()))?.to_bytes()))
    });
    let (status, body) = answered.await.map_err(|_| failed("no answer".to_owned()))??;
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::Usage(format!(
            "http://{address}{path}: {status}; ask on the machine itself, by its address, or name the file of `admin-token` \
             with --admin-token"
        ))),
        _ => Err(Failure::Usage(format!("http://{address}{path}: {status}; is this the admin address of Serpent?"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_read_as_people_write_it() {
        for url in ["http://127.0.0.1:9090/", "http://127.0.0.1:9090", "127.0.0.1:9090"] {
            assert_eq!(address(url).unwrap(), "127.0.0.1:9090", "{url}");
        }
        assert_eq!(address("http://[::1]:9090/page").unwrap(), "[::1]:9090");
        for (url, part) in
            [("", "as in http://"), ("http://a b", "as in"), ("http://host", "as in"), ("https://a:1", "without TLS")]
        {
            assert!(address(url).unwrap_err().to_string().contains(part), "{url}");
        }
    }
}
