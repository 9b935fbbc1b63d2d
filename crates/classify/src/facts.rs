//! The properties of a request that rules can test.

use std::{net::SocketAddr, time::SystemTime};

use http::request::Parts;

/// The properties of a request that rules can test.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Method, target, header.
    pub parts: &'a Parts,
    /// The requested host, without port, in lower case.
    pub host: &'a str,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// This server's end of the connection.
    pub local: SocketAddr,
    /// Names in the client's verified certificate: the common name and the DNS names. Empty without one.
    pub certificate_names: &'a [Box<str>],
    /// Whether the client has shown a trusted certificate.
    pub has_certificate: bool,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The current time, for sessions.
    pub now: SystemTime,
}
