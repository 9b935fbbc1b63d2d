//! The behaviour of a client: connections, protocol, patience.

use serde::{Deserialize, Serialize};

/// How a client uses connections, and when it gives up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Behaviour {
    /// HTTP/1.1 or HTTP/2.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Requests per connection. 1 makes a new connection for each request; 0 makes as many requests as the
    /// server allows.
    pub requests_per_connection: u32,
    /// Seconds after which a request is aborted, from the start of each attempt. `None` means that clients
    /// wait for ever.
    pub abort_after_s: Option<f64>,
    /// Number of retries of an aborted request. The response time counts from the first attempt.
    pub retries: u16,
    /// Header fields of each request; a server may use them to tell classes apart.
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
