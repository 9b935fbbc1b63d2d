//! Bulk uploads of other hosts, which meet the site's responses before the bottleneck.

/// Connections of other hosts that send as fast as CUBIC lets them. They fill the bottleneck's queue, whatever the site
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherUploads {
    /// When the first one begins, in nanoseconds since the start.
    pub from_ns: u64,
    /// When there are no more.
    pub until_ns: u64,
    /// How long each one lasts.
    pub lasts_ns: u64,
    /// From the start of one to that of the next.
    pub every_ns: u64,
    /// Connections at the same time.
    pub connections: u32,
    /// Their round-trip time without queues.
    pub rtt_ns: u64,
}

/// The group of these connections. Clients that make requests never have it.
pub(super) const UPLOADS: u16 = u16::MAX;
