//! The load generator: one thread, a small state machine for each connection.
//!
//! In open loop every request has a planned time, fixed before the run. It is sent then regardless of other
//! requests, and its response time counts from then: a client that waited for answers would spare the slow
//! server. In closed loop the planned time is the one that its user reached, and from there it is the same.
//! The lateness of sending is recorded, because it is the generator's own error.
//!
//! A group of clients has a [`workload::behaviour::Behaviour`], which is implemented as follows:
//!
//! - **Connections.** A request takes a free connection of its group, the one that became free last, or opens
//!   another. A user of a closed loop has no connection of its own. If the server closes a connection before
//!   it answered, that is no failure. The request is retried on a new connection, as in browsers, and its
//!   time continues.
//! - **HTTP/2.** A connection is free while it has fewer requests under way than the server allows (100 until
//!   the server announces its limit). Flow-control windows are a browser's, 6 MiB per stream and 15 MiB per
//!   connection, so that TCP and the server decide, not the client.
//! - **TLS.** 1.3, or 1.2 if the server has no better; key exchange X25519 before the NIST curves. The server
//!   must prove that it has the lab's certificate; names, dates and issuers are not checked. Sessions are
//!   never resumed, so that each connection costs the same.
//! - **Aborts.** `abort_after_s` after the start of an attempt, the client closes the connection with a plain
//!   close, as a browser does. Linux then sends a FIN, or a RST if bytes are unread, and answers later data
//!   with RST. In HTTP/2 only the stream is reset (CANCEL), unless the server never sent anything on the
//!   connection. A retry begins at once, in HTTP/1.1 on a new connection; the aborted response is discarded.
//!   httperf's time-out is an abort without retries.

mod connection;
mod generator;
mod group;
mod http1;
mod http2;
mod load;
mod report;
mod response;
mod tls;
mod transport;

use self::generator::Generator;
pub use self::load::{ClientGroup, Load, LoadResult, TlsServer};
use crate::{LabError, realtime::sharpen};

impl Load<'_> {
    /// Sends the requests from the calling thread, which must be in the clients' namespace. Returns when all
    /// have ended or the drain time is over. The thread gets the highest priority and timer precision that
    /// the system allows.
    ///
    /// # Errors
    ///
    /// [`LabError::Request`] for a group that does not exist or has impossible settings,
    /// [`LabError::Interrupted`] after a stop, [`LabError::Io`] when the system refuses to wait for sockets.
    /// The fate of a single request is in its outcome.
    pub fn drive(self) -> Result<LoadResult, LabError> {
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

/// Priority of the generator: below that of the lab's other real-time threads, which emulate the path.
const RANK: u8 = 1;

#[cfg(test)]
mod tests;
