//! A finished request.

use scheduler::{admission::ResourceId, class::ClassId};

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedRequest {
    /// Number of its load in the scenario.
    pub load: usize,
    /// Its class.
    pub class: ClassId,
    /// Its resource type.
    pub resource: ResourceId,
    /// When it came, in nanoseconds since the start.
    pub arrived_ns: u64,
    /// When it was admitted; `None` if it was not.
    pub started_ns: Option<u64>,
    /// When it ended.
    pub end_ns: u64,
    /// How it ended.
    pub end: End,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The site did its work.
    Done,
    /// The site answered with an error.
    Failed,
    /// The gateway refused it.
    Refused,
    /// Its client gave it up.
    Gone,
}
