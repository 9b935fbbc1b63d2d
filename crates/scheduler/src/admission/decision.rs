//! What admission is told, what it answers, and why.

use core::fmt;

use super::ResourceId;
use crate::{class::ClassId, share};

/// Names a request until it is finished, refused or gone. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Order of arrival.
    pub(super) sequence: u64,
    pub(super) index: u32,
}

impl RequestId {
    /// A small number, unique among the requests waiting and running: fit to index a table of the driver.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// A request, as far as admission needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Whose it is.
    pub class: ClassId,
    /// What it mainly needs.
    pub resource: ResourceId,
    /// Key of the client, such as a hash of its address ([`super::QueueOrder::FairAmongClients`]).
    pub client: u64,
    /// How long the site will take for it, in nanoseconds, if that is known of its route. Otherwise the mean of the last
    /// requests of its type is taken.
    pub expected_ns: Option<u64>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Pass the request on to the site: it holds a slot now.
    Start(Start),
    /// Tell the client that its request is not served. The name is no longer in force.
    Refuse {
        /// Which.
        request: RequestId,
        /// Why.
        refusal: Refusal,
    },
}

/// A request whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which.
    pub request: RequestId,
    /// Its class.
    pub class: ClassId,
    /// Its resource type.
    pub resource: ResourceId,
    /// How long it waited, in nanoseconds.
    pub waited_ns: u64,
    /// Why it is its turn.
    pub reason: Reason,
}

/// Why a request goes next: one answer to each of the three questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Why its resource type.
    pub idlest: Idlest,
    /// Why its class.
    pub share: share::Reason,
    /// Why this one of its class.
    pub turn: Turn,
}

/// Why it is a resource type's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idlest {
    /// No other had somebody waiting and room.
    Only,
    /// The idlest of several.
    First,
    /// Idler ones had room and somebody waiting, but their slots are kept for classes that have nobody waiting, or the
    /// classes that wait have as many running as they may.
    OthersKept,
}

/// Why it is a request's turn within its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// No other of its class waited there.
    Only,
    /// First by the class's order.
    First,
    /// The newest, since others have waited for too long ([`super::QueueOrder::LifoUnderOverload`]).
    Newest,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// More waited than the class may have, and this one would have gone last.
    QueueFull,
    /// It waited for as long as its class allows.
    WaitedTooLong,
    /// It could not be done by its deadline any more.
    TooLate,
    /// There is no such class or resource type (any more).
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

/// Plain numbers of a class.
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
    /// As if both were one class.
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
