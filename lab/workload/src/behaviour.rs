//! How a client goes about its requests: connections, protocol, patience.

use serde::{Deserialize, Serialize};

/// What a client does with its connections, and when it loses patience.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Behaviour {
    /// HTTP/1.1 or HTTP/2.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Requests on a connection before it is closed; 1 is a new connection for each, 0 is as many as the server allows.
    pub requests_per_connection: u32,
    /// Seconds after which a request is aborted, counted from each attempt's start. Without it clients wait for ever.
    pub abort_after_s: Option<f64>,
    /// Times that an aborted request is asked again. The response time runs on from the first attempt.
    pub retries: u16,
    /// Header fields sent with each request, by which a server may tell classes apart.
    pub headers: Vec<(String, String)>,
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1, one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2, by prior knowledge, or by ALPN over TLS; many requests at a time on a connection.
    Http2,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            protocol: Protocol::Http1,
            tls: false,
            requests_per_connection: 1,
            abort_after_s: None,
            retries: 0,
            headers: Vec::new(),
        }
    }
}
