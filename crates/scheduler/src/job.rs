//! A job: the scheduler's view of one response.

use crate::{
    class::ClassId,
    link::SEGMENT_BYTES,
    priority::{GroupId, Priority},
    time::Instant,
    uplink::classes::Source,
};

/// Identifies a job until it is finished. Later jobs may get the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u32);

impl JobId {
    /// A small number, unique among the current jobs: suitable as an index of the driver's table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whether a job's size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The total in bytes.
    Known(u64),
    /// Not known (yet): chunked, or proxied without a length.
    Unknown,
}

/// TCP's measurements of the path to the client.
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
    /// Assumed before the first measurement: 50 ms away, the initial window of RFC 6928.
    pub const UNKNOWN: Self =
        Self { rtt_ns: 50_000_000, window_segments: 10, mss_bytes: SEGMENT_BYTES, delivery_bytes_per_second: 0 };

    /// Payload of a full segment. A size of zero was not measured.
    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(if self.mss_bytes == 0 { SEGMENT_BYTES } else { self.mss_bytes })
    }

    pub(crate) fn bytes_per_round(&self) -> f64 {
        f64::from(self.window_segments.max(1)) * f64::from(self.mss_bytes.max(1))
    }
}

/// The scheduler's state of a job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub class: ClassId,
    pub size: Size,
    /// Payload bytes granted so far, less those handed back.
    pub attained_bytes: u64,
    /// The part of the last grant that was not handed back, and its charge in wire bytes.
    pub granted_bytes: u64,
    pub granted_wire_bytes: u64,
    /// The part of its class's share that the last grant was charged to; `None` where the link is not shared.
    pub charged_to: Option<Source>,
    /// The job whose place earned the last grant, and its order of arrival; `None`: its own place did.
    pub earned_by: Option<(JobId, u64)>,
    pub arrived: Instant,
    /// Order of arrival.
    pub sequence: u64,
    pub path: Path,
    /// Start tag of fair queueing, see [`crate::uplink`].
    pub share_tag_bytes: u64,
    /// Finish tag in the virtual processor-sharing system, see [`crate::processor_sharing`].
    pub sharing_tag: u64,
    /// When the job last asked to write.
    pub waited_until: Instant,
    pub guard: Guard,
    /// The job can no longer meet the deadline of its class ([`crate::share::Policy::Edf`]).
    pub late: bool,
    /// Set while the job asks for a grant.
    pub waiting: Option<Waiting>,
    /// The job's place in the queue of its class, while it is there.
    pub queued: Option<Rank>,
    /// `None`: the job is in no group.
    pub member: Option<Member>,
}

/// A job as a member of its group, see [`crate::priority`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub group: GroupId,
    /// The class whose queue has the job's place. Each group is of one class.
    pub class: usize,
    pub priority: Priority,
    /// Bytes that the job's place has earned for others of the group, less those that others' places have
    /// earned for the job.
    pub lent_bytes: i64,
    /// Bytes of the turns that an incremental job has had.
    pub round_bytes: u64,
    /// The job has ended. Its place stays until it has earned what the job got from others.
    pub has_ended: bool,
}

/// State of the guard against starvation for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The job is not finished under simulated fair sharing, or there is no guard.
    Resting,
    /// Fair sharing would have finished the job; from this time on it goes ahead.
    AheadFrom(Instant),
    /// The job goes ahead of all unguarded ones.
    Ahead,
}

/// How much a job asked for, and its turn in its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub wanted_bytes: u64,
    /// `None`: the job is in no group.
    pub turn: Option<Turn>,
}

/// A turn among the jobs of a group. The more urgent go first; then those that are sent one after the other,
/// in the order in force; then the incremental ones in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub urgency: u8,
    pub incremental: bool,
    pub round_bytes: u64,
    pub rank: Rank,
}

/// A place among the waiting jobs of a class. Guarded jobs come first, then jobs that are not late, then by
/// the order's number, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub unguarded: bool,
    pub late: bool,
    pub key: u64,
    pub sequence: u64,
}

impl Member {
    pub fn new(group: GroupId, priority: Priority) -> Self {
        Self { group, class: 0, priority: priority.capped(), lent_bytes: 0, round_bytes: 0, has_ended: false }
    }
}

impl Job {
    /// Estimated bytes until the end of the job: the bytes left, or, with an unknown size, as many as were
    /// sent so far. A response that outgrew its announced size (record framing) counts as done.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_after(self.attained_bytes)
    }

    /// The same after other bytes than the job has got: [`Job::earned_bytes`] for the job's place.
    pub fn ahead_after(&self, served_bytes: u64) -> u64 {
        match self.size {
            Size::Known(size) => size.saturating_sub(served_bytes),
            Size::Unknown => served_bytes,
        }
    }

    /// Bytes that the job's place has earned, for whichever job of the group.
    pub fn earned_bytes(&self) -> u64 {
        self.attained_bytes.saturating_add_signed(self.lent_bytes())
    }

    /// As [`Member::lent_bytes`].
    pub fn lent_bytes(&self) -> i64 {
        self.member.map_or(0, |member| member.lent_bytes)
    }

    pub fn has_ended(&self) -> bool {
        self.member.is_some_and(|member| member.has_ended)
    }

    /// Whether the job's place has earned all of the job's size, and part of it for others. Then the job is
    /// served by the places of those others.
    pub fn is_spent(&self) -> bool {
        matches!(self.size, Size::Known(size) if self.lent_bytes() > 0 && self.earned_bytes() >= size)
    }

    /// The most bytes that the job's place can earn for others.
    pub fn lendable_bytes(&self) -> u64 {
        let owed_bytes = u64::try_from(-self.lent_bytes()).unwrap_or(0);
        match self.size {
            _ if self.has_ended() => owed_bytes,
            Size::Known(size) => size.saturating_sub(self.earned_bytes()).max(owed_bytes),
            Size::Unknown => u64::MAX,
        }
    }

    /// Makes the job larger, by bytes that it has got already.
    pub fn grow(&mut self, bytes: u64) {
        self.attained_bytes += bytes;
        if let Size::Known(size) = &mut self.size {
            *size = size.saturating_add(bytes);
        }
    }

    /// Remaining response time in nanoseconds: RRT = RTT * (1 + remaining / (cwnd * MSS)). See "Implementation of a New
    /// Scheduling Policy in Web Servers", section 3.3.5. The thesis's integer division is left out.
    pub fn remaining_response_ns(&self, ahead_bytes: u64) -> u64 {
        (self.path.rtt_ns as f64 * (1.0 + ahead_bytes as f64 / self.path.bytes_per_round())) as u64
    }
}
