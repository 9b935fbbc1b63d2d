//! A load: the requests to send, the clients that send them, and the results.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use workload::{behaviour::Behaviour, demand::Demand, outcome::Outcome};

use crate::docroot::Content;

/// The requests to send, and how to send them.
#[derive(Debug)]
pub struct Load<'a> {
    /// The source of requests.
    pub demand: Demand,
    /// The groups of clients, by the numbers in requests.
    pub groups: &'a [ClientGroup],
    /// The server's address for groups without TLS.
    pub server: SocketAddrV4,
    /// The server's address for groups with TLS.
    pub tls: Option<TlsServer<'a>>,
    /// Requests with a later planned time are not sent.
    pub until: Duration,
    /// How long to wait for responses after that.
    pub drain: Duration,
    /// The bytes of the files.
    pub content: &'a Content,
    /// Time zero. It must be later than now, so that the first request is not late: by 50 ms, since the first
    /// use of TLS in a process takes some 30 ms.
    pub start: Instant,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
}

/// Clients with the same behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientGroup {
    /// A /24 of this machine to connect from (its last byte is ignored). Groups may share one. Loads within a
    /// minute of each other should use different ones. Ports in TIME_WAIT on this side are skipped, but those
    /// on the server's side are not visible, and now and then one resets a connection.
    pub sources: Ipv4Addr,
    /// Their behaviour.
    pub behaviour: Behaviour,
    /// Largest segment, in bytes, that they announce and send (`TCP_MAXSEG`, see tcp(7)); by default the
    /// device's.
    pub mss_bytes: Option<u16>,
}

/// The server's TLS endpoint.
#[derive(Clone, Copy, Debug)]
pub struct TlsServer<'a> {
    /// Its address.
    pub address: SocketAddrV4,
    /// The certificate that the server must show, in DER.
    pub certificate_der: &'a [u8],
}

/// The results of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// One for each request, in the order of sending.
    pub outcomes: Vec<Outcome>,
    /// Connections opened.
    pub connections: u64,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// Notes for judging the run: settings that the system refused the generator, and its first own fault.
    pub notes: Vec<String>,
}
