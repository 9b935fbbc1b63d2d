//! The input and the output of admission: arrivals, and decisions with their reasons.

use core::fmt;

use super::settings::ResourceId;
use crate::{class::ClassId, share};

/// Identifies a request until it is finished, refused or gone. An id is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Order of arrival.
    pub(super) sequence: u64,
    pub(super) index: u32,
}

impl RequestId {
    /// A small number, unique among the waiting and running requests: suitable as an index of the driver's table.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The properties of a request that admission needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// The resource type that it mainly needs.
    pub resource: ResourceId,
    /// Key of the client, such as a hash of its address ([`crate::class::QueueOrder::FairAmongClients`]).
    pub client: u64,
    /// The expected service time of its route in nanoseconds, if it is known. Otherwise the mean of the last requests of
    /// its type is used.
    pub expected_ns: Option<u64>,
    /// After so many nanoseconds its client has no more use for the answer: it is not started then. It is also its
    /// deadline, if that of its class is not earlier.
    pub within_ns: Option<u64>,
}

/// A decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Pass the request on to the site: it holds a slot now.
    Start(Start),
    /// Tell the client that its request is not served. The id is no longer valid.
    Refuse {
        /// The request.
        request: RequestId,
        /// The reason.
        refusal: Refusal,
    },
}

/// A request that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The request.
    pub request: RequestId,
    /// Its class.
    pub class: ClassId,
    /// Its resource type.
    pub resource: ResourceId,
    /// How long it waited, in nanoseconds.
    pub waited_ns: u64,
    /// Why it was chosen.
    pub reason: Reason,
}

/// Why a request was chosen: the answers to the three questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Why its resource type was chosen.
    pub idlest: Idlest,
    /// Why its class was chosen.
    pub share: share::Reason,
    /// Why this request of its class was chosen.
    pub turn: Turn,
}

/// Why a resource type was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idlest {
    /// No other type had waiting requests and room.
    Only,
    /// The idlest of several.
    First,
    /// Idler types had waiting requests and room. But their free slots are kept for classes without waiting requests, or
    /// the waiting classes are at their own limits.
    OthersKept,
}

/// Why a request was chosen within its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// No other of its class waited there.
    Only,
    /// First by the class's order.
    First,
    /// The newest, since others have waited for too long ([`crate::class::QueueOrder::LifoUnderOverload`]).
    Newest,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The queue of its class was full, and this request would have been served last.
    QueueFull,
    /// It waited for as long as its class allows.
    WaitedTooLong,
    /// It could no longer be finished by its deadline, or its client's time is over.
    TooLate,
    /// Its class or resource type does not exist.
    NoSuchQueue,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "too many requests of its class wait",
            Self::WaitedTooLong => "it waited for as long as its class allows",
            Self::TooLate => "it could not be done by its deadline any more",
            Self::NoSuchQueue => "there is no such class or resource type",
        })
    }
}

impl core::error::Error for Refusal {}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Requests waiting now.
    pub waiting: usize,
    /// Requests running now.
    pub running: usize,
    /// Requests that arrived, ever.
    pub arrived: u64,
    /// Requests started, ever.
    pub started: u64,
    /// Requests finished, ever.
    pub finished: u64,
    /// Requests whose client was gone while they waited, ever.
    pub gone_waiting: u64,
    /// Requests given up while they ran, ever.
    pub gone_running: u64,
    /// Requests refused, ever: its queue was full.
    pub refused_full: u64,
    /// Requests refused, ever: waited for too long.
    pub refused_waited: u64,
    /// Requests refused, ever: too late for their deadline.
    pub refused_late: u64,
}

impl ClassStats {
    /// Adds the counters of another class.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { arrived, started, finished, gone_waiting, gone_running, .. } = other;
        self.arrived += arrived;
        self.started += started;
        self.finished += finished;
        self.gone_waiting += gone_waiting;
        self.gone_running += gone_running;
        self.refused_full += other.refused_full;
        self.refused_waited += other.refused_waited;
        self.refused_late += other.refused_late;
    }
}
