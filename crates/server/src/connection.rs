//! A client's connection as its requests see it: who is at its other end, and what its parts tell each other.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, OnceLock},
};

use tokio_util::sync::CancellationToken;

use crate::{
    body::{ClientBody, IncomingBody, Patience},
    config::Limits,
    connection_state::ConnectionState,
    gate::Flow,
    http::pools::WorkerPools,
    metrics::WorkerMetrics,
    state::{ConfigSnapshot, ServerState},
    tls::ClientCertificate,
    upstream::{self, ClientAddress},
};

/// A connection, as its requests see it.
pub(crate) struct Connection {
    pub(crate) server: Arc<ServerState>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) flow: Flow,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) pools: Arc<WorkerPools>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) tls: Option<TlsFacts>,
    /// The client speaks HTTP without TLS on an address of TLS, so each request is refused.
    pub(crate) is_misplaced: bool,
    /// The peer's address as text, made when it is first needed.
    client_address: OnceLock<Box<ClientAddress>>,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The client's, or that of a proxy before this server.
    pub(crate) peer: SocketAddr,
    /// This server's.
    pub(crate) local: SocketAddr,
}

/// The facts about the client from the TLS handshake.
#[derive(Debug)]
pub(crate) struct TlsFacts {
    /// The name that the client asked for, in lower case.
    pub(crate) server_name: Option<Box<str>>,
    /// The client's certificate, if the client was asked for one and has shown a valid one.
    pub(crate) client: Option<Box<ClientCertificate>>,
}

impl TlsFacts {
    /// The names in the client's certificate, if it was issued by the authorities that a site trusts
    /// ([`crate::sites::Sites::client_ca`]).
    pub(crate) fn client_names(&self, trusted: Option<&Path>) -> Option<&[Box<str>]> {
        self.client.as_ref().filter(|client| trusted == Some(&*client.authorities)).map(|client| &*client.names)
    }
}

impl Connection {
    pub(crate) fn new(
        server: Arc<ServerState>,
        metrics: Arc<WorkerMetrics>,
        pools: Arc<WorkerPools>,
        flow: Flow,
        drain: CancellationToken,
        ends: Ends,
        tls: Option<TlsFacts>,
    ) -> Self {
        Self {
            server,
            metrics,
            flow,
            state: Arc::new(ConnectionState::new(drain)),
            pools,
            peer: ends.peer,
            local: ends.local,
            tls,
            is_misplaced: false,
            client_address: OnceLock::new(),
        }
    }

    /// The connection of a client that speaks HTTP without TLS on an address of TLS.
    pub(crate) fn misplaced(self) -> Self {
        Self { is_misplaced: true, ..self }
    }

    pub(crate) fn client_address(&self) -> &ClientAddress {
        self.client_address.get_or_init(|| Box::new(self.peer.ip().into()))
    }

    /// The ends of the connection of a client, which may be behind a proxy that names its address alone.
    pub(crate) fn ends_of(&self, client: IpAddr) -> upstream::Ends {
        let port = if client == self.peer.ip().to_canonical() { self.peer.port() } else { 0 };
        upstream::Ends { source: SocketAddr::new(client, port), destination: self.local }
    }

    /// The names in the client's certificate, if it was issued by the authorities that a site trusts.
    pub(crate) fn certificate_names(&self, snapshot: &ConfigSnapshot, site: usize) -> Option<&[Box<str>]> {
        self.tls.as_ref().and_then(|tls| tls.client_names(snapshot.sites.client_ca(site)))
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The body of a request, with the time limits for its arrival.
    pub(crate) fn client_body(&self, body: IncomingBody, limits: &Limits) -> ClientBody {
        let (time, bytes_per_second) = (limits.head_timeout, limits.request_body_rate);
        ClientBody::new(body, Some(Patience::Rate { time, bytes_per_second }))
    }
}
