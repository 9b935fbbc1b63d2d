//! The interface of a controller: what it is told about the site, and the changes that it makes.

use core::fmt;

use crate::{admission::ResourceId, time::Instant};

/// Adjusts the windows of a site's resource types. The head of this module gives the order of calls.
pub trait Controller: fmt::Debug {
    /// The site has finished an ordinary request.
    fn handle_finished(&mut self, _now: Instant, _finished: &Finished) {}

    /// The load of a type has changed. Called after every change, when admission has no decision left to
    /// make.
    fn handle_load(&mut self, _now: Instant, _resource: ResourceId, _load: Load) {}

    /// Returns the type that gets a probing request now. The request counts as sent and takes no slot. Ask
    /// until `None`.
    fn poll_probe(&mut self, _now: Instant) -> Option<ResourceId> {
        None
    }

    /// Reports the outcome of a probing request.
    fn handle_probed(&mut self, _now: Instant, _resource: ResourceId, _probed: Probed) {}

    /// Returns the next change of a window, which takes effect at once. Ask until `None`.
    fn poll_window(&mut self, now: Instant) -> Option<Change>;

    /// When to ask again if no event comes before.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The window in force; `None` for a type without a window.
    fn window(&self, resource: ResourceId) -> Option<u32>;
}

/// An ordinary request that the site has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The resource type of the request.
    pub resource: ResourceId,
    /// A key of the route, or of another group of requests with similar work. Service times are compared
    /// within a key.
    pub route: u64,
    /// Time from the start of the request to the end of the site's work on it, in nanoseconds.
    pub service_ns: u64,
    /// Whether the site did its work. False for an error of the site, a time-out or a broken connection. True
    /// for an answer that blames the client (such as 404).
    pub done: bool,
}

/// The load of a resource type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests of the type that the site works on.
    pub running: u32,
    /// Whether requests of the type wait.
    pub waiting: bool,
}

/// The outcome of a probing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The site answered it.
    Answered {
        /// Service time in nanoseconds.
        service_ns: u64,
    },
    /// The site did not answer, or answered with an error. Counts as late.
    Failed,
    /// The probe says nothing about the site: the page does not exist, or no request could be sent. Does not
    /// count.
    Lost,
}

/// A new window for a resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The resource type.
    pub resource: ResourceId,
    /// The new window, within the operator's limits.
    pub window: u32,
    /// Why the window changes.
    pub reason: Reason,
}

/// Why a window is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Probing requests were late often enough.
    Late,
    /// Probing requests were in time often enough.
    InTime,
    /// A step from a small window towards the configured first window.
    Approach,
    /// Another window is tried, or compared once more.
    Trial,
    /// The new window served more, or as much with fewer requests at once.
    Better,
    /// The other window served no more.
    NoBetter,
    /// The trial has no result: the site fails, or there were too few requests.
    Interrupted,
    /// The ratio of the least to the recent service times.
    Ratio,
    /// To measure the least service time.
    Least,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "probing requests were late",
            Self::InTime => "probing requests were in time",
            Self::Approach => "the first window is approached from a small one",
            Self::Trial => "to try another window",
            Self::Better => "it serves more, or as much with fewer at once",
            Self::NoBetter => "another window serves no more",
            Self::Interrupted => "what was tried says nothing",
            Self::Ratio => "the ratio of the least to the late service times",
            Self::Least => "to measure the least service time",
        })
    }
}
