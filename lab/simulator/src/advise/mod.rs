//! From a site's own access log to what scheduling would do for it.
//!
//! What a log tells is when responses were asked for and how large they were; an uplink of a given rate, and an order on it,
//! make response times of that. Nothing is assumed of how requests come: they come as they came. Growing load is the same
//! traffic in less time, as in "Implementation of SRPT Scheduling in Web Servers", section 4.2.3.
//!
//! The way: give every record to a [`Survey`]; make a [`Plan`] of it; read the log again and give every record to one
//! [`Batch`] of the plan's scenarios, or to several (on several threads, if wanted); give what they predict to
//! [`Plan::advise`]. Memory does not grow with the log: what is kept is counts, and the requests that are under way.
//!
//! Every record with a size counts, whatever its method and status, with the bytes that were sent: that is what the uplink
//! carried. An answer without a body (304, an error) still costs its head.

mod advice;
mod batch;
mod certainty;
mod measures;
mod plan;
pub mod report;
mod run;
mod sizes;
mod spread;
mod survey;
#[cfg(test)]
mod tests;
mod timeline;
pub mod words;

use std::fmt;

use workload::{rate::Rate, wire::WireModel};

pub use self::{
    batch::{Batch, Outcome},
    plan::Plan,
    report::Advice,
    survey::Survey,
};

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The rate of the uplink.
    pub uplink: Rate,
    /// What of it Serpent uses, so that the queue stands where it is ordered. Fair sharing, as other servers do it, uses all.
    pub utilisation: f64,
    /// What a response costs on the wire beside its body.
    pub wire: WireModel,
    /// Seed of what the log does not tell.
    pub seed: u64,
    /// Which part of the log is simulated.
    pub part: Part,
    /// So many requests are quick enough: [`Part::Auto`] takes the busiest hours of a log with more.
    pub quick_requests: u64,
}

/// Which part of a log is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it if that is quick, otherwise the busiest hours.
    #[default]
    Auto,
    /// All of it, however long it takes.
    Whole,
    /// What lies between these, in nanoseconds from the first record; nothing else of the log counts.
    Window(u64, u64),
}

impl Part {
    fn window_ns(self) -> Option<(u64, u64)> {
        if let Self::Window(from_ns, until_ns) = self { Some((from_ns, until_ns)) } else { None }
    }
}

impl Question {
    /// What the server does by default, and clients that keep their connections as browsers do.
    pub fn new(uplink: Rate) -> Self {
        Self {
            uplink,
            utilisation: scheduler::uplink::UTILISATION,
            wire: WireModel::KEPT_ALIVE,
            seed: 1,
            part: Part::Auto,
            quick_requests: 300_000,
        }
    }
}

/// Who goes first, among those that are held against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Everybody in turn on the whole uplink, as other servers do.
    Fair,
    /// Fewest bytes left first.
    Srpt,
    /// The same, but nobody is to take longer than three times what fair sharing would.
    Guarded,
    /// Whom fair sharing would finish first.
    Fsp,
    /// Least sent so far first.
    Las,
    /// Fewest bytes left first, by the kernel's bands.
    Banded,
}

impl Policy {
    /// All of them; the others are compared with the first.
    pub const ALL: [Self; 6] = [Self::Fair, Self::Srpt, Self::Guarded, Self::Fsp, Self::Las, Self::Banded];

    /// The stretch of [`Policy::Guarded`].
    pub const GUARD_STRETCH: f64 = 3.0;

    /// Its name in tables and for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Srpt => "srpt",
            Self::Guarded => "srpt-guard-3",
            Self::Fsp => "fsp",
            Self::Las => "las",
            Self::Banded => "srpt-bands",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdvisable {
    /// No request of the log lies in the window.
    Nothing {
        /// So many lie outside.
        outside_window: u64,
    },
    /// No response has a body, so there is nothing to order.
    NoBodies {
        /// So many requests were looked at.
        requests: u64,
    },
}

impl fmt::Display for NotAdvisable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { outside_window } => write!(
                f,
                "no request lies in the window ({outside_window} lie outside): it counts from the first record of the log"
            ),
            Self::NoBodies { requests } => write!(
                f,
                "none of its {requests} requests was answered with a body (all are 0 bytes, or no answers to GET with 2xx), \
                 so there is nothing to order"
            ),
        }
    }
}

impl std::error::Error for NotAdvisable {}
