//! A request that asks for admission, and its refusal.

use std::time::Duration;

use scheduler::{
    admission::{Refusal, ResourceId},
    class::ClassId,
};

/// A request that asks for admission.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// The resource that it mainly needs.
    pub resource: ResourceId,
    /// A hash of the client's address.
    pub client: u64,
    /// The key of its route, under which service times are learned.
    pub route: u64,
    /// How long its client has use for the answer; `None`: that is not known.
    pub within: Option<Duration>,
}

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The class with which it arrived.
    pub class: ClassId,
    /// The reason.
    pub refusal: Refusal,
    /// How long it waited before the refusal.
    pub waited: Duration,
}
