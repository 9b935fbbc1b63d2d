//! How many requests of a resource type the site is to work on at once.
//!
//! A window that is too small leaves the site idle while requests wait; one that is too large makes it slower for all. Two
//! machines are here, both without clock and without requests:
//!
//! - [`Probing`] looks for the first window, before the site is in use, by asking it at higher and higher rates
//!   ("Multiple-resource Request Scheduling Algorithms for Proportional System-time Differentiation at Website Gateway",
//!   section 3.3.1).
//! - A [`Controller`] keeps the windows right from then on. There are four, see [`Method`].
//!
//! Calls to a controller: [`Controller::handle_finished`] for every request that the site has answered,
//! [`Controller::handle_load`] when the number of those running or waiting has changed, [`Controller::poll_window`] after
//! both, and again at [`Controller::poll_timeout`], until it says `None`. What it says goes to
//! [`crate::admission::Admission::handle_window`].
//!
//! ```
//! use serpent_scheduler::{
//!     Instant,
//!     admission::ResourceId,
//!     control::{Controller, Method, Probed, Settings, Window},
//! };
//!
//! let disk = ResourceId(0);
//! let window = Window { bound_ns: Some(420_000_000), ..Window::new(7) };
//! let mut control = Settings::new(Method::Probe, vec![Some(window)]).build()?;
//! // Ten probing requests in a row that come back in time: the site can take one more.
//! for second in 60..70 {
//!     let now = Instant::from_ns(second * 1_000_000_000);
//!     assert_eq!(control.poll_probe(now), Some(disk));
//!     assert_eq!(control.poll_window(now), None);
//!     control.handle_probed(now, disk, Probed::Answered { service_ns: 300_000_000 });
//! }
//! let change = control.poll_window(Instant::from_ns(70_000_000_000)).expect("ten of ten were in time");
//! assert_eq!((change.resource, change.window), (disk, 8));
//! # Ok::<(), serpent_scheduler::control::SettingsError>(())
//! ```
//!
//! Invariants, held by tests over every controller: a window is never below 1, never outside of the operator's limits, and
//! is changed only as `poll_window` says.

mod fixed;
mod gradient;
mod knee;
mod probe;
mod probing;

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

pub use self::probing::{Found, Measured, Probing, ProbingError, ProbingSettings, Search, Step, Stop};
use self::{fixed::Fixed, gradient::Gradient, knee::Knee, probe::Probe};
use crate::{admission::ResourceId, time::Instant};

/// The rule by which windows are adjusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// They are not.
    Fixed,
    /// By the service time of probing requests, as in the paper's section 3.5.2.
    Probe,
    /// By trying windows beside the one in force, and keeping what serves more requests. No probing requests.
    Knee,
    /// By the least service time over that of late, for comparison: as Envoy's adaptive concurrency is documented.
    Gradient,
}

impl Method {
    /// All of them, as they are listed to people.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Probe, Self::Knee, Self::Gradient];

    /// The name in configuration, flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Probe => "probe",
            Self::Knee => "knee",
            Self::Gradient => "gradient",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A resource type's window, as the operator sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first one.
    pub first: u32,
    /// Never below this, at least 1.
    pub least: u32,
    /// Never above this.
    pub most: u32,
    /// The bound on the service time of a probing request, in nanoseconds. [`Method::Probe`] needs it, and nobody else.
    pub bound_ns: Option<u64>,
}

impl Window {
    /// One that may become anything from 1 to 1000.
    pub const fn new(first: u32) -> Self {
        // Beyond a thousand a window is none: no site that needs one works on so many requests at once.
        let most = if first > 1000 { first } else { 1000 };
        Self { first, least: 1, most, bound_ns: None }
    }

    fn clamp(&self, window: u32) -> u32 {
        window.clamp(self.least, self.most)
    }
}

/// What a controller is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// By which rule.
    pub method: Method,
    /// By resource type; `None` for one without a window of its own, which is left alone.
    pub windows: Vec<Option<Window>>,
    /// A probing request is sent to each type so often, in nanoseconds ([`Method::Probe`]). The paper's P, for which it
    /// gives no value.
    pub probe_every_ns: u64,
    /// The first probing request is sent after so long, in nanoseconds. An idle site is fast, and its answers say nothing
    /// of a full one; the paper waits for a minute (section 4.3).
    pub probe_after_ns: u64,
    /// A window shrinks when the paper's adjCounter exceeds this.
    pub shrink_above: i32,
    /// A window grows when the paper's adjCounter is below this.
    pub grow_below: i32,
}

impl Settings {
    /// With the paper's thresholds, and a probing request every second.
    pub const fn new(method: Method, windows: Vec<Option<Window>>) -> Self {
        Self {
            method,
            windows,
            probe_every_ns: SECOND_NS,
            probe_after_ns: 60 * SECOND_NS,
            shrink_above: 4,
            grow_below: -9,
        }
    }

    /// Finds what contradicts itself.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (window, id) in self.windows.iter().zip((0..).map(ResourceId)) {
            let Some(Window { first, least, most, bound_ns }) = *window else { continue };
            if least == 0 {
                return Err(SettingsError::Least(id));
            }
            if first < least || first > most {
                return Err(SettingsError::First(id));
            }
            if self.method == Method::Probe && bound_ns.is_none_or(|bound_ns| bound_ns == 0) {
                return Err(SettingsError::Bound(id));
            }
        }
        let probes = self.method == Method::Probe;
        if probes && (self.probe_every_ns == 0 || self.shrink_above < 0 || self.grow_below > 0) {
            return Err(SettingsError::Probes);
        }
        Ok(())
    }

    /// Who adjusts windows so.
    ///
    /// # Errors
    /// What [`Settings::check`] finds.
    pub fn build(&self) -> Result<Box<dyn Controller + Send>, SettingsError> {
        self.check()?;
        Ok(match self.method {
            Method::Fixed => Box::new(Fixed::new(self)),
            Method::Probe => Box::new(Probe::new(self)),
            Method::Knee => Box::new(Knee::new(self)),
            Method::Gradient => Box::new(Gradient::new(self)),
        })
    }
}

/// Why windows cannot be adjusted so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// The least window is 0.
    Least(ResourceId),
    /// The first window is not between the least and the most.
    First(ResourceId),
    /// [`Method::Probe`], and no bound on the service time.
    Bound(ResourceId),
    /// Probing requests without any time between, or thresholds on the wrong side of 0.
    Probes,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(ResourceId(resource)) => {
                write!(f, "resource type {resource} may have a window of 0: the least is 1")
            }
            Self::First(ResourceId(resource)) => {
                write!(f, "the first window of resource type {resource} is not between its least and its most")
            }
            Self::Bound(ResourceId(resource)) => write!(
                f,
                "resource type {resource} has no bound on the service time of its probing requests: measure it by probing \
                 the site, or use another method"
            ),
            Self::Probes => f.write_str(
                "probing requests need some time between them, a threshold of 0 or more for shrinking, and one of 0 or less \
                 for growing",
            ),
        }
    }
}

impl core::error::Error for SettingsError {}

/// Adjusts the windows of a site's resource types. See the head of this module for the order of calls.
pub trait Controller: fmt::Debug {
    /// The site is done with an ordinary request.
    fn handle_finished(&mut self, _now: Instant, _finished: &Finished) {}

    /// So many requests of a type run now. Told after every change, when admission has nothing more to decide.
    fn handle_load(&mut self, _now: Instant, _resource: ResourceId, _load: Load) {}

    /// Which type a probing request is to be sent to now. It counts as sent; it takes no slot. Ask until it says `None`.
    fn poll_probe(&mut self, _now: Instant) -> Option<ResourceId> {
        None
    }

    /// What became of a probing request.
    fn handle_probed(&mut self, _now: Instant, _resource: ResourceId, _probed: Probed) {}

    /// The next change of a window. It counts as made. Ask until it says `None`.
    fn poll_window(&mut self, now: Instant) -> Option<Change>;

    /// When to ask again if nothing happens until then.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The window in force; `None` for a type without one.
    fn window(&self, resource: ResourceId) -> Option<u32>;
}

/// An ordinary request that the site has done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its resource type.
    pub resource: ResourceId,
    /// A key of its route, or of whatever else tells requests of like work: service times are compared within it.
    pub route: u64,
    /// From its start to the end of the site's work on it, in nanoseconds.
    pub service_ns: u64,
    /// Whether the site did its work. An error of the site, a time-out, or a connection that broke is none; an answer
    /// that the client was wrong is.
    pub done: bool,
}

/// How busy a resource type is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests of it at the site.
    pub running: u32,
    /// Whether any wait.
    pub waiting: bool,
}

/// What became of a probing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The site answered it.
    Answered {
        /// After so many nanoseconds.
        service_ns: u64,
    },
    /// It did not, or with an error. It counts as late.
    Failed,
    /// Nothing is known of the site: there is no such page, or it could not be asked. It does not count.
    Lost,
}

/// From now on a type has this window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which type.
    pub resource: ResourceId,
    /// Within the operator's limits.
    pub window: u32,
    /// Why.
    pub reason: Reason,
}

/// Why a window is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Probing requests were late, and often enough.
    Late,
    /// Probing requests were in time, and often enough.
    InTime,
    /// The first window is approached from a small one.
    Approach,
    /// To see whether another window does better, or to compare again.
    Trial,
    /// It did better, or as well with fewer at once.
    Better,
    /// The other window did no better.
    NoBetter,
    /// What was being tried says nothing: the site fails, or there was too little to do.
    Interrupted,
    /// The ratio of least to late service times.
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

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
