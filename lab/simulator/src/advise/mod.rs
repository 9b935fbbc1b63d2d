//! Advice on scheduling for a site, computed from the site's own access log.
//!
//! A log tells when each response was requested and how large it was. Response times follow from that, given
//! the rate of an uplink and an order on it. No model of arrivals is assumed: requests arrive at the logged
//! times. A higher load is the same traffic in less time, as in "Implementation of SRPT Scheduling in Web
//! Servers", section 4.2.3.
//!
//! The steps:
//!
//! - Give every record to a [`Survey`].
//! - Make a [`Plan`] of the survey.
//! - Read the log again and give every record to one or more [`Batch`]es of the plan's scenarios. Batches may
//!   run on several threads.
//! - Give the outcomes to [`Plan::advise`].
//!
//! Memory does not grow with the log: only counts and the requests in progress are kept.
//!
//! Every record with a size counts, whatever its method and status. Its size is the number of bytes sent,
//! because the uplink carried them. A response without a body (304, an error) still costs its head.

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

/// The question that the advice answers: the uplink, and how to simulate the log on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The rate of the uplink.
    pub uplink: Rate,
    /// Share of the uplink's rate that Serpent uses, so that the queue builds up where it is ordered. Fair
    /// sharing uses the whole rate, as other servers do.
    pub utilisation: f64,
    /// Bytes on the wire that a response costs beside its body.
    pub wire: WireModel,
    /// Seed of the random choices for facts that the log does not tell.
    pub seed: u64,
    /// The part of the log that is simulated.
    pub part: Part,
    /// Number of requests that is simulated quickly. For a log with more, [`Part::Auto`] takes the busiest
    /// hours.
    pub quick_requests: u64,
}

/// The part of a log that is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The whole log if that is quick, otherwise the busiest hours.
    #[default]
    Auto,
    /// The whole log, however long it takes.
    Whole,
    /// The window between these times, in nanoseconds from the first record. Nothing outside it counts.
    Window(u64, u64),
}

impl Part {
    fn window_ns(self) -> Option<(u64, u64)> {
        if let Self::Window(from_ns, until_ns) = self { Some((from_ns, until_ns)) } else { None }
    }
}

impl Question {
    /// A question with the defaults of the server, and with clients that keep their connections as browsers
    /// do.
    pub fn new(uplink: Rate) -> Self {
        Self {
            uplink,
            utilisation: scheduler::correction::UTILISATION,
            wire: WireModel::KEPT_ALIVE,
            seed: 1,
            part: Part::Auto,
            quick_requests: 300_000,
        }
    }
}

/// The order in which responses that compete for the uplink are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// All responses in turn on the whole uplink, as other servers do.
    Fair,
    /// Fewest bytes left first.
    Srpt,
    /// As [`Policy::Srpt`], but with a limit: no response is to take longer than three times its time under
    /// fair sharing.
    Guarded,
    /// The response first that fair sharing would finish first.
    Fsp,
    /// Least sent so far first.
    Las,
    /// Fewest bytes left first, enforced by the kernel's bands.
    Banded,
}

impl Policy {
    /// All policies. The others are compared with the first.
    pub const ALL: [Self; 6] = [Self::Fair, Self::Srpt, Self::Guarded, Self::Fsp, Self::Las, Self::Banded];

    /// The stretch of [`Policy::Guarded`].
    pub const GUARD_STRETCH: f64 = 3.0;

    /// The name in tables and in output for programs.
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

/// The reason why there is no advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdvisable {
    /// No request of the log lies in the window.
    Nothing {
        /// Number of requests outside the window.
        outside_window: u64,
    },
    /// No response has a body, so there is nothing to order.
    NoBodies {
        /// Number of requests in the log.
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
