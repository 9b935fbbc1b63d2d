//! `maintenance` of a site.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

/// While a file exists, the requests of a site are refused with 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// The file. Its content does not matter.
    pub file: PathBuf,
    /// Clients in these networks are let in.
    pub exempt: Vec<IpNet>,
    /// When refused clients should come again, rounded up to seconds.
    pub retry_after: Duration,
}

impl Maintenance {
    /// When refused clients should come again, if nothing else is said.
    pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(60);

    /// Whether a client is let in all the same.
    pub fn is_exempt(&self, client: IpAddr) -> bool {
        self.exempt.iter().any(|net| net.contains(&client))
    }
}
