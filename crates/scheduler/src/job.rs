//! A job: one response on its way out, as far as the scheduler needs to know it.

use crate::{class::ClassId, link::SEGMENT_BYTES, time::Instant, uplink::classes::Source};

/// Names a job until it is finished; then the name is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u32);

impl JobId {
    /// A small number, unique among the jobs under way: fit to index a table of the driver.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whether a job's size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes in all.
    Known(u64),
    /// Not known (yet): chunked, or proxied without a length.
    Unknown,
}

/// What TCP knows of the path to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// Congestion window in segments.
    pub window_segments: u32,
    /// Segment size.
    pub mss_bytes: u32,
    /// Measured rate of delivery; zero when not measured yet.
    pub delivery_bytes_per_second: u64,
}

impl Path {
    /// What is assumed before anything was measured: 50 ms away, the initial window of RFC 6928.
    pub const UNKNOWN: Self =
        Self { rtt_ns: 50_000_000, window_segments: 10, mss_bytes: SEGMENT_BYTES, delivery_bytes_per_second: 0 };

    /// Payload of a full segment. A size of zero is one that nobody measured.
    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(if self.mss_bytes == 0 { SEGMENT_BYTES } else { self.mss_bytes })
    }

    pub(crate) fn bytes_per_round(&self) -> f64 {
        f64::from(self.window_segments.max(1)) * f64::from(self.mss_bytes.max(1))
    }
}

/// What the scheduler keeps of a job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub class: ClassId,
    pub size: Size,
    /// Payload bytes granted so far, less those handed back.
    pub attained_bytes: u64,
    /// Of the last grant, what was not handed back, and what it is charged for that.
    pub granted_bytes: u64,
    pub granted_wire_bytes: u64,
    /// What of its class's share that grant was charged to; `None` where the link was not shared.
    pub charged_to: Option<Source>,
    pub arrived: Instant,
    /// Order of arrival.
    pub sequence: u64,
    pub path: Path,
    /// Start tag of fair queueing, see [`crate::uplink`].
    pub share_tag_bytes: u64,
    /// Finish tag in the virtual processor-sharing system, see [`crate::sharing`].
    pub sharing_tag: u64,
    /// When the job last asked for leave.
    pub waited_until: Instant,
    pub guard: Guard,
    /// It cannot be done by its class's deadline any more ([`crate::share::Policy::Edf`]).
    pub late: bool,
    pub waiting: Option<Waiting>,
}

/// How far the guard against starvation is with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Fair sharing has not finished it yet, or there is no guard.
    Resting,
    /// Fair sharing has finished it; from this moment on it goes ahead.
    AheadFrom(Instant),
    /// It goes ahead of all that are not guarded.
    Ahead,
}

/// A job's place in the queue, and how much it asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub rank: Rank,
    pub wanted_bytes: u64,
}

/// A place among the waiting of a class: first who was guarded, then who is not late, then by the order's number, then by
/// arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub unguarded: bool,
    pub late: bool,
    pub place: u64,
    pub sequence: u64,
}

impl Job {
    /// Bytes that stand between this job and its end as far as one can tell: those left, or, with the size unknown, as
    /// many as it has had. A response that outgrew its announcement (record framing) is as good as done.
    pub fn ahead_bytes(&self) -> u64 {
        match self.size {
            Size::Known(size) => size.saturating_sub(self.attained_bytes),
            Size::Unknown => self.attained_bytes,
        }
    }

    /// RRT = RTT * (1 + remaining / (cwnd * MSS)), "Implementation of a New Scheduling Policy in Web Servers", section
    /// 3.3.5, in nanoseconds and without the thesis's integer division.
    pub fn remaining_response_ns(&self, bytes_per_round: f64) -> u64 {
        (self.path.rtt_ns as f64 * (1.0 + self.ahead_bytes() as f64 / bytes_per_round)) as u64
    }
}
