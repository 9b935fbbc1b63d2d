//! The load generator: one thread, a small state machine for each connection.
//!
//! In open loop every request has its moment, decided before the run. Whatever becomes of the others, it is sent then, and
//! its response time counts from then: a client that waited for answers would spare the very server that is slow. In closed
//! loop the moment is the one that its user came to, and from there it is the same. How late requests were sent is recorded,
//! because that is the generator's own error.
//!
//! What a group of clients does ([`workload::behaviour::Behaviour`]), and how it is done here:
//!
//! - **Connections.** A request takes a connection of its group that can take one, the last that became free, and opens
//!   another if there is none. A user of a closed loop has no connection of its own. A connection that the server closes before
//!   it answered is no failure: the request is asked again on a new one, as browsers do, and the time runs on.
//! - **HTTP/2.** A connection can take a request as long as it has fewer under way than the server allows (100 until the server
//!   has said how many). Flow-control windows are a browser's, 6 MiB a stream and 15 MiB a connection, so that
//!   TCP and the server decide, not the client.
//! - **TLS.** 1.3, or 1.2 if the server has no better; key exchange X25519 before the NIST curves. The server must prove that it
//!   has the lab's certificate; names, dates and issuers are not looked at. Sessions are never resumed, so that each connection
//!   costs the same.
//! - **Aborts.** `abort_after_s` after an attempt began, the client closes the connection as a browser does, with a plain close:
//!   Linux then sends a FIN, or a RST if bytes lie unread, and answers whatever comes later with RST. In HTTP/2 only
//!   the stream is reset (CANCEL), unless nothing was ever heard on the connection. A retry begins at once, in HTTP/1.1 on
//!   a new connection; nothing of the aborted response is kept. httperf's time-out is an abort without retries.

mod connection;
mod generator;
mod group;
mod http1;
mod http2;
mod response;
mod tls;
mod transport;

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use workload::{behaviour::Behaviour, demand::Demand, outcome::Outcome};

use self::generator::Generator;
use crate::{LabError, docroot::Content, realtime::sharpen};

/// What to send, where, and how.
#[derive(Debug)]
pub struct Load<'a> {
    /// Who asks for what, and when.
    pub demand: Demand,
    /// The groups of clients, by the numbers that requests name.
    pub groups: &'a [ClientGroup],
    /// The server, for groups that speak in the clear.
    pub server: SocketAddrV4,
    /// And for those that use TLS.
    pub tls: Option<TlsServer<'a>>,
    /// No request whose moment is later is sent.
    pub until: Duration,
    /// How long to wait for responses after that.
    pub drain: Duration,
    /// The bytes of the files.
    pub content: &'a Content,
    /// Time zero. Later than now, so that the first request is not late: 50 ms, for a process that never used TLS before needs
    /// some 30 ms to get ready for it.
    pub start: Instant,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
}

/// Clients that behave alike.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientGroup {
    /// A /24 of this machine's own to connect from (its last byte does not count). Groups may share one. Loads within a
    /// minute of each other had better not: ports in TIME_WAIT on this side are passed over, on the server's side they are not
    /// seen, and now and then one resets a connection.
    pub sources: Ipv4Addr,
    /// What they do.
    pub behaviour: Behaviour,
    /// Largest segment, in bytes, that they announce and send (`TCP_MAXSEG`, see tcp(7)); the device's if not given.
    pub mss_bytes: Option<u16>,
}

/// Where the server speaks TLS.
#[derive(Clone, Copy, Debug)]
pub struct TlsServer<'a> {
    /// Its address.
    pub address: SocketAddrV4,
    /// The certificate that it must show, in DER.
    pub certificate_der: &'a [u8],
}

/// What came of it.
#[derive(Debug)]
pub struct Drive {
    /// One for each request, in the order in which they were sent.
    pub outcomes: Vec<Outcome>,
    /// Connections opened.
    pub connections: u64,
    /// Most requests under way at one time.
    pub most_concurrent: usize,
    /// What must be known to judge the run: what the system refused the generator, and the first fault of its own.
    pub notes: Vec<String>,
}

impl Load<'_> {
    /// Sends the requests from the calling thread, which must be in the clients' namespace, and returns when all have ended
    /// or the time to drain is over. The thread's priority and timer are made as sharp as the system lets them be.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for a group that does not exist or cannot be what it is asked to be, [`LabError::Interrupted`]
    /// after a stop, [`LabError::Io`] when the system refuses to wait for sockets. What happens to a single request is
    /// its outcome.
    pub fn drive(self) -> Result<Drive, LabError> {
        let blunt = sharpen(RANK);
        let mut generator = Generator::new(self)?;
        generator.run()?;
        let mut drive = generator.finish();
        drive.notes.extend(blunt.map(|reason| {
            format!("the generator is an ordinary thread ({reason}): it may be late when the machine is busy")
        }));
        Ok(drive)
    }
}

/// Of threads that must never be slow the generator gives way to all others, which make the path.
const RANK: u8 = 1;

#[cfg(test)]
mod tests;
