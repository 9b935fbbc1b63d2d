//! Bulk uploads of other hosts, which meet the site's responses before the bottleneck.

/// Connections of other hosts that send as fast as CUBIC lets them. They fill the bottleneck's queue, whatever the site
/// does. With a fixed window they keep a part of it instead that does not grow.
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
    /// The window of each, whatever is lost, in place of that of CUBIC. BBR, too, keeps a few packets in the queue and no more.
    pub window_segments: Option<u32>,
}

/// The group of these connections. Clients that make requests never have it.
pub(super) const UPLOADS: u16 = u16::MAX;
